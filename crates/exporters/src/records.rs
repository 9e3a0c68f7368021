//! What a sink keeps on the shelf: its cursor and its dead letters.
//!
//! | key | value |
//! |---|---|
//! | `sinks/NAME/cursor` | [`Saved`], as JSON |
//! | `sinks/NAME/dead/PLACE` | a dead letter, as JSON |

use std::sync::Arc;

use playhouse_billing::export::{Cursor, DeadLetter, Place};
use playhouse_protocol::Timestamp;
use playhouse_protocol::operator::ArchivedRows;
use playhouse_store::{Shelf, StoreError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What all keys begin with.
const ALL: &str = "sinks/";

/// Why a sink cannot go on from what it keeps.
#[derive(Debug, Error)]
pub(crate) enum RecordError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("what is kept under {key} cannot be read: {reason}")]
    Damaged { key: String, reason: String },
    #[error("another process moved {key}: a sink must be driven by one engine only")]
    Taken { key: String },
}

/// How far a sink is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Saved {
    /// What is delivered or given up.
    pub(crate) cursor: Cursor,
    /// The file that is being written, for a sink of files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<FileMark>,
    /// What had left the ledger when it began with all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) archived: Option<ArchivedRows>,
    /// What kind of sink it is, for people who look when it is not configured any more; absent where an older engine saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
}

/// What is certain of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileMark {
    /// Its length, in bytes. What is behind that was not saved.
    pub(crate) length: u64,
    /// The numbers of its first and its last row; of no meaning while it is empty.
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// When it was begun.
    pub(crate) begun: Timestamp,
    /// Its number in its file system: one of another number is another file, or a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) inode: Option<u64>,
    /// By which it is known again; absent while it is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_line: Option<LastLine>,
}

/// The last line of what is certain of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LastLine {
    /// Its length, in bytes.
    pub(crate) bytes: u64,
    /// Stands for it.
    pub(crate) digest: String,
}

/// The records of one sink. Everything here blocks.
pub(crate) struct Records {
    shelf: Arc<dyn Shelf>,
    name: String,
    /// The cursor as it stands on the shelf.
    stored: Option<Vec<u8>>,
}

impl Records {
    pub(crate) fn new(shelf: Arc<dyn Shelf>, name: &str) -> Self {
        Self { shelf, name: name.to_owned(), stored: None }
    }

    /// The names of all sinks of which something is kept, in order.
    pub(crate) fn names(shelf: &dyn Shelf) -> Result<Vec<String>, RecordError> {
        let keys = shelf.scan(ALL)?.into_iter().filter_map(|(key, _)| {
            let (name, _) = key.strip_prefix(ALL)?.split_once('/')?;
            Some(name.to_owned())
        });
        let mut names: Vec<String> = keys.collect();
        names.dedup();
        Ok(names)
    }

    /// Removes everything, the letters first: what is left after a crash is still found. How many letters there were.
    pub(crate) fn clear(&self) -> Result<u64, RecordError> {
        let letters = self.shelf.scan(&self.letters_key())?;
        for (key, _) in &letters {
            self.replace(key, None)?;
        }
        self.replace(&self.cursor_key(), None)?;
        Ok(letters.len() as u64)
    }

    fn cursor_key(&self) -> String {
        format!("{ALL}{}/cursor", self.name)
    }

    fn letters_key(&self) -> String {
        format!("{ALL}{}/dead/", self.name)
    }

    fn letter_key(&self, place: Place) -> String {
        format!("{}{place}", self.letters_key())
    }

    /// What was saved; `None` for a sink that never began.
    pub(crate) fn load(&mut self) -> Result<Option<Saved>, RecordError> {
        let key = self.cursor_key();
        self.stored = self.shelf.get(&key)?;
        self.stored.as_deref().map(|bytes| read(&key, bytes)).transpose()
    }

    /// Saves over what was loaded or saved before. Durable on return.
    pub(crate) fn save(&mut self, saved: &Saved) -> Result<(), RecordError> {
        let key = self.cursor_key();
        let bytes = write(&key, saved)?;
        if !self.shelf.compare_and_set(&key, self.stored.as_deref(), Some(&bytes))? {
            return Err(RecordError::Taken { key });
        }
        self.stored = Some(bytes);
        Ok(())
    }

    /// The letters, in the order of the feed.
    pub(crate) fn letters(&self) -> Result<Vec<DeadLetter>, RecordError> {
        let found = self.shelf.scan(&self.letters_key())?;
        found.iter().map(|(key, bytes)| read(key, bytes)).collect()
    }

    /// How many letters there are.
    pub(crate) fn count(&self) -> Result<u64, RecordError> {
        Ok(self.shelf.scan(&self.letters_key())?.len() as u64)
    }

    /// Keeps a letter, in place of one of the same place. Durable on return.
    pub(crate) fn bury(&self, letter: &DeadLetter) -> Result<(), RecordError> {
        let key = self.letter_key(letter.place);
        let bytes = write(&key, letter)?;
        self.replace(&key, Some(&bytes))
    }

    /// Forgets a letter.
    pub(crate) fn forget(&self, place: Place) -> Result<(), RecordError> {
        self.replace(&self.letter_key(place), None)
    }

    fn replace(&self, key: &str, new: Option<&[u8]>) -> Result<(), RecordError> {
        loop {
            let old = self.shelf.get(key)?;
            if old.as_deref() == new || self.shelf.compare_and_set(key, old.as_deref(), new)? {
                return Ok(());
            }
        }
    }
}

fn read<T: for<'a> Deserialize<'a>>(key: &str, bytes: &[u8]) -> Result<T, RecordError> {
    serde_json::from_slice(bytes)
        .map_err(|error| RecordError::Damaged { key: key.to_owned(), reason: error.to_string() })
}

fn write(key: &str, value: &impl Serialize) -> Result<Vec<u8>, RecordError> {
    serde_json::to_vec(value)
        .map_err(|error| RecordError::Damaged { key: key.to_owned(), reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use playhouse_store::Store;

    use super::*;

    #[test]
    fn a_cursor_that_another_moved_is_not_overwritten() {
        let shelf = Store::memory().unwrap().shelf;
        let mut one = Records::new(shelf.clone(), "a");
        let mut two = Records::new(shelf.clone(), "a");
        assert_eq!(one.load().unwrap(), None);
        assert_eq!(two.load().unwrap(), None);
        let saved = Saved { cursor: Cursor::at(3), ..Saved::default() };
        one.save(&saved).unwrap();
        let error = two.save(&Saved::default()).unwrap_err().to_string();
        assert!(error.contains("sinks/a/cursor"), "{error}");
        assert_eq!(two.load().unwrap(), Some(saved));
        two.save(&Saved::default()).unwrap();
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let shelf = Store::memory().unwrap().shelf;
        shelf.compare_and_set("sinks/a/cursor", None, Some(b"{")).unwrap();
        let error = Records::new(shelf, "a").load().unwrap_err().to_string();
        assert!(error.contains("sinks/a/cursor cannot be read"), "{error}");
    }
}

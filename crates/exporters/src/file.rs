//! A folder of files with one row a line.
//!
//! `usage.ndjson` is the one that is written; a file that is full or old becomes `usage-FIRST-LAST.ndjson`, named by the
//! numbers of its rows in the feed. Before a cursor is saved the file is synced, and its length is saved with the cursor.
//! After a crash the file is cut back to that length, so that no row is in it twice and no line is partial.
//!
//! Everything here blocks.

use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use fs_err::{File, OpenOptions};
use playhouse_protocol::Timestamp;
use thiserror::Error;

use crate::records::FileMark;

/// The file that is written.
const ACTIVE: &str = "usage.ndjson";

/// Why files cannot be written.
#[derive(Debug, Error)]
pub(crate) enum FileError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(
        "{0} holds what this sink has not written: move it away, or name another folder. Nothing was changed"
    )]
    Foreign(PathBuf),
    #[error(
        "{path} has {found} bytes, and {expected} were written: it was changed by others. Move it away, and export what it \
         lost from the ledger"
    )]
    Short { path: PathBuf, found: u64, expected: u64 },
}

/// When a file is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rotation {
    pub(crate) bytes: u64,
    pub(crate) millis: u64,
}

/// Writes the files of a sink.
#[derive(Debug)]
pub(crate) struct Files {
    folder: PathBuf,
    rotation: Rotation,
    /// `None` until there is a row for a new one.
    active: Option<Active>,
}

#[derive(Debug)]
struct Active {
    file: File,
    /// What is written, and synced when it becomes part of what is saved.
    mark: FileMark,
}

impl Files {
    /// Opens the folder, and cuts the active file back to what was saved of it. `is_new`: nothing was ever saved, so what is
    /// there is not ours.
    pub(crate) fn open(
        folder: &Path,
        rotation: Rotation,
        saved: Option<FileMark>,
        is_new: bool,
    ) -> Result<Self, FileError> {
        fs_err::create_dir_all(folder)?;
        let mut files = Self { folder: folder.to_owned(), rotation, active: None };
        let path = files.active_path();
        if !fs_err::exists(&path)? {
            // A file that was saved is not there when the engine ended between its renaming and the next save.
            return Ok(files);
        }
        let mut file = OpenOptions::new().read(true).write(true).open(&path)?;
        let found = file.metadata()?.len();
        if is_new && found > 0 {
            return Err(FileError::Foreign(path));
        }
        let expected = saved.map_or(0, |mark| mark.length);
        if found < expected {
            return Err(FileError::Short { path, found, expected });
        }
        file.set_len(expected)?;
        file.seek(SeekFrom::Start(expected))?;
        file.sync_all()?;
        files.active = saved.map(|mark| Active { file, mark });
        Ok(files)
    }

    /// Whether there is a file that is being written.
    pub(crate) fn has_active(&self) -> bool {
        self.active.is_some()
    }

    fn active_path(&self) -> PathBuf {
        self.folder.join(ACTIVE)
    }

    /// Writes whole lines, the rows `first` to `last` of the feed. After an error the files must be opened again.
    pub(crate) fn append(
        &mut self,
        lines: &[u8],
        first: u64,
        last: u64,
        now: Timestamp,
    ) -> Result<(), FileError> {
        let active = match &mut self.active {
            Some(active) => active,
            None => {
                let path = self.folder.join(ACTIVE);
                let file =
                    OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
                sync_folder(&self.folder)?;
                let mark = FileMark { length: 0, first, last, begun: now };
                self.active.insert(Active { file, mark })
            }
        };
        active.file.write_all(lines)?;
        active.mark.length += lines.len() as u64;
        active.mark.last = last;
        Ok(())
    }

    /// Makes what was written durable, and says what is there to be saved. After an error the files must be opened again:
    /// what could not be synced may be lost.
    pub(crate) fn sync(&mut self) -> Result<Option<FileMark>, FileError> {
        let Some(active) = &mut self.active else { return Ok(None) };
        active.file.sync_data()?;
        Ok(Some(active.mark))
    }

    /// Whether the active file is full or old.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.active.as_ref().is_some_and(|active| {
            active.mark.length >= self.rotation.bytes
                || now.millis_since(active.mark.begun) >= self.rotation.millis
        })
    }

    /// Closes the active file. It must be synced and saved; that it is closed must be saved before the next row.
    pub(crate) fn rotate(&mut self) -> Result<(), FileError> {
        let Some(active) = self.active.take() else { return Ok(()) };
        let FileMark { first, last, .. } = active.mark;
        let name = |suffix: &str| self.folder.join(format!("usage-{first:020}-{last:020}{suffix}.ndjson"));
        let mut target = name("");
        // A ledger that was made anew counts from 1 again, and nothing that was exported is overwritten.
        for number in 2.. {
            if !fs_err::exists(&target)? {
                break;
            }
            target = name(&format!("-{number}"));
        }
        fs_err::rename(self.active_path(), &target)?;
        sync_folder(&self.folder)?;
        Ok(())
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);
    const ROTATION: Rotation = Rotation { bytes: 10, millis: 500 };

    fn text(path: &Path) -> String {
        fs_err::read_to_string(path).unwrap()
    }

    #[test]
    fn what_was_not_saved_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::open(folder.path(), ROTATION, None, true).unwrap();
        files.append(b"1\n", 1, 1, NOW).unwrap();
        let mark = files.sync().unwrap().unwrap();
        files.append(b"2\n{\"par", 2, 3, NOW).unwrap();
        drop(files);
        let mut files = Files::open(folder.path(), ROTATION, Some(mark), false).unwrap();
        assert_eq!(text(&folder.path().join(ACTIVE)), "1\n");
        files.append(b"2\n", 2, 2, NOW).unwrap();
        assert_eq!(text(&folder.path().join(ACTIVE)), "1\n2\n");
    }

    #[test]
    fn a_file_that_is_full_or_old_is_closed_under_the_numbers_of_its_rows() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::open(folder.path(), ROTATION, None, true).unwrap();
        assert!(!files.is_due(NOW), "there is none");
        files.append(b"1\n", 7, 8, NOW).unwrap();
        assert!(!files.is_due(Timestamp::from_millis(1_499)));
        assert!(files.is_due(Timestamp::from_millis(1_500)));
        files.append(b"23456789\n", 9, 12, NOW).unwrap();
        assert!(files.is_due(NOW));
        let mark = files.sync().unwrap();
        files.rotate().unwrap();
        let closed = folder.path().join("usage-00000000000000000007-00000000000000000012.ndjson");
        assert_eq!(text(&closed), "1\n23456789\n");
        drop(files);
        // The engine ended before it could save that.
        let mut files = Files::open(folder.path(), ROTATION, mark, false).unwrap();
        files.append(b"x\n", 7, 12, NOW).unwrap();
        files.rotate().unwrap();
        assert_eq!(text(&closed), "1\n23456789\n", "nothing is overwritten");
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn the_files_of_others_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(ACTIVE);
        fs_err::write(&path, "theirs\n").unwrap();
        let error = Files::open(folder.path(), ROTATION, None, true).unwrap_err().to_string();
        assert!(error.contains("move it away"), "{error}");
        let mark = FileMark { length: 70, first: 1, last: 2, begun: NOW };
        let error = Files::open(folder.path(), ROTATION, Some(mark), false).unwrap_err().to_string();
        assert!(error.contains("has 7 bytes, and 70 were written"), "{error}");
        assert_eq!(text(&path), "theirs\n");
    }
}

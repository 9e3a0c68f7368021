//! Goes on with what can still be read of a store whose database the engine refuses.
//!
//! The database is opened in a copy, where a backend may cut off or repair what it likes, and what can be read of it is written
//! into a fresh one, key by key. The old one is kept beside it under another name, with its blobs: first it is there twice, then
//! the pointer is renamed, so that whatever cuts this off leaves one of both in its place. What is made from logs (lists, sums,
//! rows of the ledger) is made again at the next opening.
//!
//! What sled wrote behind a place that cannot be read is lost with it: its pages are found by the log, in order. What redb wrote
//! on pages that cannot be read is lost, and no more than that, as long as its own lists of pages can be read.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fs_err as fs;
use playhouse_protocol::SessionId;
use playhouse_protocol::id::ID_LENGTH;
use playhouse_protocol::upkeep::{Salvaged, StoreProblem};

use crate::blobs::sync_folder;
use crate::check::closed::open_copy;
use crate::format::inspect;
use crate::lock::DataLock;
use crate::open::GENERATION;
use crate::site::{DiskSite, Pointed, Site};
use crate::table::{Batch, Table};
use crate::{Store, StoreError, keys, ledger, marker, site};

/// So many pairs, of about so many bytes, are copied at once.
const PAIRS: usize = 1_000;
const BYTES: usize = 1024 * 1024;
/// What a file is looked through in.
const PIECE: usize = 1024 * 1024;
/// The most sessions that are named.
const MOST_NAMED: usize = 1_000;
/// What the ids of sessions begin with.
const SESSION: &[u8] = b"ses_";
/// The folder of the blobs.
const BLOBS: &str = "blobs";

impl Store {
    /// Puts a fresh database with what can still be read in the place of that of the store in `data`, which nobody has open. The
    /// old one stays beside it. See [`Salvaged`].
    ///
    /// # Errors
    /// [`StoreError::Locked`] while somebody has it open; [`StoreError::Format`] when the directory holds no store, or one that
    /// this engine cannot read; [`StoreError::Damaged`] where nothing can be read at all. Then all is as it was.
    pub fn salvage(data: &Path) -> Result<Salvaged, StoreError> {
        let Some(format) = inspect(data)? else {
            let (path, found) = (data.to_owned(), "holds no store".to_owned());
            return Err(StoreError::Format { path, found, known: "one that an engine has made".to_owned() });
        };
        let lock = Arc::new(DataLock::take(data)?);
        let format = Arc::new(format);
        let place = site::place_of(data, format.backend)?;
        // Not among temporary files, which may be in memory.
        let folder = tempfile::Builder::new().prefix("salvage-").tempdir_in(data)?;
        let (old, problems) = open_copy(format.backend, &place, &folder.path().join("database"))?;
        let known = known_sessions(&*old);
        let known = known.union(&named_in(&place.join(site::DATABASE))?).copied().collect();
        format.raise()?;
        let disk = DiskSite::closed(data, Arc::clone(&format), lock)?;
        let (number, fresh) = disk.make()?;
        let mut copy = Copy { old: &*old, fresh: &*fresh, known: &known, problems };
        copy.all()?;
        let problems = copy.problems;
        // No opening has the number of one that may have told clients something.
        let known_openings = marker::read(data)?.max(openings(&*fresh)?);
        let generation = Some(known_openings.to_string().into_bytes());
        let mut batch =
            Batch::from([(keys::shelf(GENERATION), generation), (keys::INDEX_MARK.to_vec(), None)]);
        // What is made from logs is made again.
        ledger::forget_mark(&mut batch);
        fresh.apply(batch)?;
        fresh.flush()?;
        let there = sessions_with_logs(&*fresh)?;
        drop(fresh);
        let kept = keep(data, &place)?;
        marker::forget_end(data)?;
        if let Pointed::Perhaps(error) = disk.point_at(number)? {
            return Err(error);
        }
        site::remove_database(&place)?;
        let lost = known.difference(&there).copied();
        Ok(Salvaged {
            sessions: there.len() as u64,
            not_there: lost.clone().take(MOST_NAMED).collect(),
            more_not_there: (lost.count() as u64).saturating_sub(MOST_NAMED as u64),
            kept: kept.display().to_string(),
            problems,
        })
    }
}

/// The number of openings that a table knows of.
fn openings(table: &dyn Table) -> Result<u64, StoreError> {
    let text = table.get(&keys::shelf(GENERATION))?.and_then(|text| String::from_utf8(text).ok());
    Ok(text.and_then(|text| text.parse().ok()).unwrap_or(0))
}

/// Keeps the database and the blobs of the store in `data` under another name: the same files, twice. Where.
fn keep(data: &Path, place: &Path) -> Result<PathBuf, StoreError> {
    let name = place.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut number = 1;
    let kept = loop {
        let kept = data.join(format!("damaged-{number}"));
        if !kept.exists() {
            break kept;
        }
        number += 1;
    };
    link_all(place, &kept.join(name))?;
    if data.join(BLOBS).is_dir() {
        link_all(&data.join(BLOBS), &kept.join(BLOBS))?;
    }
    sync_folder(&kept)?;
    sync_folder(data)?;
    Ok(kept)
}

fn link_all(from: &Path, to: &Path) -> Result<(), StoreError> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => link_all(&entry.path(), &to)?,
            false => fs::hard_link(entry.path(), to)?,
        }
    }
    sync_folder(to)
}

/// The sessions that lists, logs and summaries name, as far as they can be read.
fn known_sessions(table: &dyn Table) -> BTreeSet<SessionId> {
    let mut known = BTreeSet::new();
    for prefix in [keys::CREATED, keys::LOGS, b"s/"] {
        // What cannot be read is told where it is copied.
        let _ = table.visit(prefix.to_vec(), &keys::end_of(prefix), &mut |key, _| {
            known.extend(match prefix {
                keys::CREATED => keys::cursor_of_created(key).map(|cursor| cursor.session),
                _ => keys::session_at_start(key, prefix.len()),
            });
            Ok(true)
        });
    }
    known
}

/// The sessions of which there is a record.
fn sessions_with_logs(table: &dyn Table) -> Result<BTreeSet<SessionId>, StoreError> {
    let (mut found, mut from) = (BTreeSet::new(), keys::LOGS.to_vec());
    let end = keys::end_of(keys::LOGS);
    while let Some((key, _)) = table.scan(&from, &end, 1)?.into_iter().next() {
        from = match keys::session_of_frame(&key) {
            Some(session) => {
                found.insert(session);
                keys::end_of(&keys::log(session))
            }
            None => keys::after(&key),
        };
    }
    Ok(found)
}

/// The sessions that a file names anywhere.
fn named_in(path: &Path) -> Result<BTreeSet<SessionId>, StoreError> {
    let (mut found, mut content) = (BTreeSet::new(), Vec::new());
    let mut file = fs::File::open(path)?;
    loop {
        let kept = content.len();
        let read = file.by_ref().take(PIECE as u64).read_to_end(&mut content)?;
        if read == 0 {
            return Ok(found);
        }
        debug_assert!(kept < ID_LENGTH);
        for at in memchr::memmem::find_iter(&content, SESSION) {
            found.extend(keys::session_at_start(&content, at));
        }
        // One may go on in the next piece.
        let last = content.len().saturating_sub(ID_LENGTH - 1);
        content.drain(..last);
    }
}

/// Copies one table into another.
struct Copy<'a> {
    old: &'a dyn Table,
    fresh: &'a dyn Table,
    /// Where it goes on behind what cannot be read.
    known: &'a BTreeSet<SessionId>,
    problems: Vec<StoreProblem>,
}

impl Copy<'_> {
    fn all(&mut self) -> Result<(), StoreError> {
        let (mut from, end) = (Vec::new(), vec![0xff]);
        let mut limit = PAIRS;
        loop {
            match self.old.page(&from, &end, limit, BYTES) {
                Ok(page) => {
                    let Some((last, _)) = page.last() else { return Ok(()) };
                    from = keys::after(last);
                    limit = PAIRS;
                    self.fresh.apply(page.into_iter().map(|(key, value)| (key, Some(value))).collect())?;
                }
                // One by one up to there.
                Err(StoreError::Damaged { .. }) if limit > 1 => limit = 1,
                Err(StoreError::Damaged { found, .. }) => {
                    let next = self.behind(&from);
                    self.problems.push(StoreProblem {
                        place: format!("keys from {} to {}", from.escape_ascii(), next.escape_ascii()),
                        what: found,
                    });
                    (from, limit) = (next, PAIRS);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The next key from which something may be read again.
    fn behind(&self, key: &[u8]) -> Vec<u8> {
        let kind = key.get(..2).unwrap_or(key);
        let next_kind = match key.len() {
            // Before the first kind there is nothing.
            0 | 1 => b"a/".to_vec(),
            _ => keys::end_of(&kind[..1]),
        };
        let is_by_session = [keys::LOGS, b"s/", keys::UNFINISHED, b"f/", b"g/", b"d/"].contains(&kind);
        if !is_by_session {
            return next_kind;
        }
        let place = |session: &SessionId| [kind, session.as_str().as_bytes()].concat();
        self.known.iter().map(place).find(|place| &place[..] > key).unwrap_or(next_kind)
    }
}

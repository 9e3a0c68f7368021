//! Goes on with what can still be read of a store whose database the engine refuses.
//!
//! The database is opened in a copy, where a backend may cut off or repair what it likes, and what can be read of it is written
//! into a fresh one, key by key. The old one is kept beside it under another name, with its blobs: first it is there twice, then
//! the pointer is renamed, so that whatever cuts this off leaves one of both in its place, and the same copy serves the next time.
//! Sessions that are missing or shorter are noted in the fresh one (`losses`). What is made from logs (lists, sums,
//! rows of the ledger) is made again at the next opening. Logs of which not even the first record can be read are left out.
//!
//! What sled wrote behind a place that cannot be read is lost with it: its pages are found by the log, in order. What redb wrote
//! on pages that cannot be read is lost, and no more than that, as long as its own lists of pages can be read. Where sled's log is
//! that of a compaction, which writes all keys before their values, keys without values may be all that is left of some.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fs_err as fs;
use playhouse_protocol::id::ID_LENGTH;
use playhouse_protocol::upkeep::{SalvageNote, Salvaged, SessionLoss, StoreProblem};
use playhouse_protocol::{SessionId, SessionSummary, Timestamp};

use crate::blobs::{BLOBS, FileBlobs, sync_folder};
use crate::check::closed::{is_of_snapshots, open_copy};
use crate::check::of_damage;
use crate::format::inspect;
use crate::in_hand::InHand;
use crate::lock::DataLock;
use crate::open::GENERATION;
use crate::projection::Source;
use crate::site::{DiskSite, Pointed, Site};
use crate::table::{Batch, Pair, Table};
use crate::{Store, StoreError, journal, keys, ledger, losses, marker, projection, site};

/// So many pairs, of about so many bytes, are copied at once.
const PAIRS: usize = 1_000;
const BYTES: usize = 1024 * 1024;
/// What a file is looked through in.
const PIECE: usize = 1024 * 1024;
/// The most sessions that are named.
const MOST_NAMED: usize = 1_000;
/// What the ids of sessions begin with.
const SESSION: &[u8] = b"ses_";
/// Kinds of keys that are copied without a value: they say all; or are made again (the index); or an empty frame says that the log
/// is damaged from there on.
const WITHOUT_VALUE: [&[u8]; 6] =
    [keys::CREATED, keys::UNFINISHED, keys::BY_TENANT, b"d/", b"g/", keys::LOGS];

impl Store {
    /// Puts a fresh database with what can still be read in the place of that of the store in `data`, which nobody has open. The
    /// old one stays beside it. `now` is the time, which the fresh one notes. See [`Salvaged`].
    ///
    /// # Errors
    /// [`StoreError::Locked`] while somebody has it open; [`StoreError::Format`] when the directory holds no store, or one that
    /// this engine cannot read; [`StoreError::Damaged`] where nothing can be read at all. Then all is as it was.
    pub fn salvage(data: &Path, now: Timestamp) -> Result<Salvaged, StoreError> {
        let Some(format) = inspect(data)? else {
            let (path, found) = (data.to_owned(), "holds no store".to_owned());
            return Err(StoreError::Format { path, found, known: "one that an engine has made".to_owned() });
        };
        let lock = Arc::new(DataLock::take(data)?);
        let format = Arc::new(format);
        let place = site::place_of(data, format.backend)?;
        site::remove_salvaging(data)?;
        // Where all is lost, that is what goes on.
        fs::create_dir_all(&place)?;
        // Not among temporary files, which may be in memory.
        let folder = tempfile::Builder::new().prefix(site::SALVAGING).tempdir_in(data)?;
        let (old, mut problems) = open_copy(format.backend, &place, &folder.path().join("database"))?;
        let opened = openings(&*old)?;
        let is_older = [marker::check(data, &place, opened), marker::check_end(data, &place, opened, &*old)];
        for error in is_older.into_iter().filter_map(Result::err) {
            problems.push(of_damage(error)?);
        }
        // What else is wrong is wrong with what is there.
        let end_lost = problems.iter().any(|problem| !is_of_snapshots(problem));
        let listed = known_sessions(&*old);
        let mut known = listed.clone();
        for file in std::iter::once(site::DATABASE).chain(journal::FILES) {
            known.extend(named_in(&place.join(file))?);
        }
        format.raise()?;
        let disk = DiskSite::closed(data, Arc::clone(&format), lock)?;
        let (number, fresh) = disk.make()?;
        let fresh: Arc<dyn Table> = Arc::from(fresh);
        let archived = ledger::archived(&*old).unwrap_or_default();
        let mut copy = Copy { old: &*old, fresh: &*fresh, known: &known, archived, problems, bare: 0 };
        copy.all()?;
        let Copy { mut problems, bare, .. } = copy;
        problems.extend((bare > 0).then(|| without_values(bare)));
        let blobs = FileBlobs::to_read(data.join(BLOBS), Arc::new(InHand::new(Duration::ZERO)));
        let source = Source::new(Arc::clone(&fresh), Arc::new(blobs));
        let there = put_in_order(&source)?;
        fail_point!(SALVAGE_COPIED);
        let kept = keep(data, &place)?;
        let reason = problems
            .first()
            .map_or_else(String::new, |problem| format!("{}: {}", problem.place, problem.what));
        let note = SalvageNote { at: now, reason, kept: kept.display().to_string(), end_lost };
        // Where all could be read, what is named elsewhere in the files was deleted.
        let named = if problems.is_empty() { &listed } else { &known };
        let (lost, shorter) = Noting { old: &*old, source: &source, note: &note }.all(named, &there)?;
        let was_damaged = !(problems.is_empty() && lost.is_empty() && shorter.is_empty());
        if was_damaged {
            fresh.apply(losses::note(&note)?)?;
        }
        // No opening has the number of one that may have told clients something.
        let known_openings = marker::read(data)?.max(openings(&*fresh)?);
        let generation = Some(known_openings.to_string().into_bytes());
        // The index is made again from the logs, and so is the ledger, whose mark was not copied.
        fresh
            .apply(Batch::from([(keys::shelf(GENERATION), generation), (keys::INDEX_MARK.to_vec(), None)]))?;
        fresh.flush()?;
        drop((source, fresh));
        marker::forget_end(data)?;
        fail_point!(SALVAGE_KEPT);
        if let Pointed::Perhaps(error) = disk.point_at(number)? {
            return Err(error);
        }
        fail_point!(SALVAGE_POINTED);
        if was_damaged {
            marker::write_salvaged(data, now)?;
        }
        site::remove_database(&place)?;
        Ok(Salvaged {
            sessions: there.values().filter(|is_session| **is_session).count() as u64,
            more_not_there: lost.len().saturating_sub(MOST_NAMED) as u64,
            not_there: lost.into_iter().take(MOST_NAMED).collect(),
            more_shorter: shorter.len().saturating_sub(MOST_NAMED) as u64,
            shorter: shorter.into_iter().take(MOST_NAMED).collect(),
            end_lost,
            kept: note.kept,
            problems,
        })
    }
}

/// The number of openings that a table knows of.
fn openings(table: &dyn Table) -> Result<u64, StoreError> {
    let text = table.get(&keys::shelf(GENERATION))?.and_then(|text| String::from_utf8(text).ok());
    Ok(text.and_then(|text| text.parse().ok()).unwrap_or(0))
}

/// Keeps the database and the blobs of the store in `data` under another name: the same files, twice. Where. What a salvage kept
/// that was cut off behind that is taken as it is.
fn keep(data: &Path, place: &Path) -> Result<PathBuf, StoreError> {
    let name = place.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut number = 1;
    let kept = loop {
        let kept = data.join(format!("damaged-{number}"));
        if !kept.exists() {
            break kept;
        }
        if is_same(&place.join(site::DATABASE), &kept.join(&name).join(site::DATABASE)) {
            return Ok(kept);
        }
        number += 1;
    };
    // Removed when the store is next opened or salvaged, should this be cut off.
    let new = data.join(format!("{}kept", site::SALVAGING));
    link_all(place, &new.join(name))?;
    if data.join(BLOBS).is_dir() {
        link_all(&data.join(BLOBS), &new.join(BLOBS))?;
    }
    sync_folder(&new)?;
    fs::rename(&new, &kept)?;
    sync_folder(data)?;
    Ok(kept)
}

/// Whether two names are those of one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let of = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    of(one).is_ok_and(|one| of(other).is_ok_and(|other| one == other))
}

/// Notes in a fresh database what it lacks of the old one.
struct Noting<'a> {
    old: &'a dyn Table,
    source: &'a Source,
    note: &'a SalvageNote,
}

impl Noting<'_> {
    /// The sessions that are missing of those that are known, and those that are shorter, of those that are there.
    fn all(
        &self,
        known: &BTreeSet<SessionId>,
        there: &BTreeMap<SessionId, bool>,
    ) -> Result<(Vec<SessionId>, Vec<SessionId>), StoreError> {
        let (mut lost, mut shorter, mut batch) = (Vec::new(), Vec::new(), Batch::new());
        for session in known.iter().filter(|session| !there.contains_key(session)) {
            lost.push(*session);
            // What was said of it after a damage before holds.
            if self.source.table.get(&keys::shelf(&losses::missing(*session)))?.is_none() {
                batch.extend(losses::loss(*session, &self.loss(*session, 0))?);
            }
            if batch.len() >= PAIRS {
                self.source.table.apply(std::mem::take(&mut batch))?;
            }
        }
        for session in there.iter().filter_map(|(session, is_session)| is_session.then_some(*session)) {
            if let Some(damage) = self.source.damage(session)? {
                shorter.push(session);
                let left = damage.seq.0.saturating_sub(1).max(1);
                batch.extend(losses::loss(session, &self.loss(session, left))?);
            }
        }
        self.source.table.apply(batch)?;
        Ok((lost, shorter))
    }

    fn loss(&self, session: SessionId, left: u64) -> SessionLoss {
        // What cannot be read is not known.
        let summary = self.old.get(&keys::summary(session)).ok().flatten();
        let summary = summary.and_then(|stored| projection::decode(session, &stored));
        let log = keys::log(session);
        let last = self.old.last_key(&log, &keys::end_of(&log)).ok().flatten();
        let last = last.and_then(|key| keys::seq_of_frame(&key)).map(|seq| seq.0);
        SessionLoss {
            at: self.note.at,
            kept: self.note.kept.clone(),
            had: last.max(summary.as_ref().map(|summary| summary.head.0)).filter(|had| *had >= left),
            left,
            turns: summary.as_ref().map(|summary| summary.turns),
            tenant: summary.as_ref().map(|summary| summary.tenant.clone()),
            workspace: summary.map(|summary| summary.workspace),
        }
    }
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

fn without_values(count: u64) -> StoreProblem {
    StoreProblem {
        place: format!("{count} keys"),
        what: "their values are behind what cannot be read".to_owned(),
    }
}

/// Leaves out logs of which not even the first record can be read, and lists the sessions of the others. The logs that there are,
/// and whether each is a session's that was not deleted.
fn put_in_order(source: &Source) -> Result<BTreeMap<SessionId, bool>, StoreError> {
    let table = &*source.table;
    let mut there = BTreeMap::new();
    for session in sessions_with_logs(table)? {
        let mut first = None;
        source.walk_own(session, |entry| {
            first = SessionSummary::begin(&entry);
            false
        })?;
        let mut batch = Batch::new();
        match first {
            Some(summary) => {
                let is_session = !source.is_rest(session)?;
                let place = keys::created(&keys::cursor(&summary));
                if is_session && table.get(&place)?.is_none() {
                    batch.insert(place, Some(Vec::new()));
                }
                there.insert(session, is_session);
            }
            None => {
                let log = keys::log(session);
                table.visit(log.clone(), &keys::end_of(&log), &mut |key, _| {
                    batch.insert(key.to_vec(), None);
                    Ok(true)
                })?;
            }
        }
        if !batch.is_empty() {
            table.apply(batch)?;
        }
    }
    let mut batch = Batch::new();
    for prefix in [keys::CREATED, b"s/", keys::UNFINISHED] {
        table.visit(prefix.to_vec(), &keys::end_of(prefix), &mut |key, _| {
            let session = match prefix {
                keys::CREATED => keys::cursor_of_created(key).map(|cursor| cursor.session),
                _ => keys::session_at_start(key, prefix.len()),
            };
            if session.is_none_or(|session| there.get(&session) != Some(&true)) {
                batch.insert(key.to_vec(), None);
            }
            Ok(true)
        })?;
    }
    table.apply(batch)?;
    Ok(there)
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
    let mut file = match fs::File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(found),
        result => result?,
    };
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
    /// Rows of before are in no ledger.
    archived: Timestamp,
    problems: Vec<StoreProblem>,
    /// So many keys have no value and should.
    bare: u64,
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
                    let batch: Batch = page.into_iter().filter_map(|pair| self.take(pair)).collect();
                    self.fresh.apply(batch)?;
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

    /// What is copied of a pair, if it is.
    fn take(&mut self, (key, value): Pair) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        if ledger::is_made_again(&key, &value, self.archived) {
            return None;
        }
        if value.is_empty() && !WITHOUT_VALUE.iter().any(|kind| key.starts_with(kind)) {
            self.bare += 1;
            return None;
        }
        Some((key, Some(value)))
    }

    /// The next key from which something may be read again: always one behind it.
    fn behind(&self, key: &[u8]) -> Vec<u8> {
        // Before the first kind there is nothing.
        let Some(letter) = key.first() else { return b"a/".to_vec() };
        let kind = [*letter, b'/'];
        let is_by_session = [keys::LOGS, b"s/", keys::UNFINISHED, b"f/", b"g/", b"d/"].contains(&&kind[..]);
        let place = |session: &SessionId| [&kind[..], session.as_str().as_bytes()].concat();
        let known = self.known.iter().filter(|_| is_by_session).map(place);
        known.into_iter().find(|place| &place[..] > key).unwrap_or_else(|| keys::end_of(&kind[..1]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryTable;

    /// A table of which all keys from `from` up to `to` cannot be read.
    struct Torn {
        table: MemoryTable,
        from: &'static [u8],
        to: &'static [u8],
    }

    impl Table for Torn {
        fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
            self.table.get(key)
        }

        fn page(&self, from: &[u8], to: &[u8], limit: usize, bytes: usize) -> Result<Vec<Pair>, StoreError> {
            let page = self.table.page(from, to, limit, bytes)?;
            let last = page.last().map_or(to, |(key, _)| &key[..]);
            match from < self.to && last >= self.from {
                true => {
                    let (what, found) = ("the table".to_owned(), "a page of it is gone".to_owned());
                    Err(StoreError::Damaged { what, found })
                }
                false => Ok(page),
            }
        }

        fn last_key(&self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
            self.table.last_key(from, to)
        }

        fn apply(&self, batch: Batch) -> Result<(), StoreError> {
            self.table.apply(batch)
        }

        fn flush(&self) -> Result<(), StoreError> {
            Ok(())
        }

        fn reopen(&self) -> Result<(), StoreError> {
            Ok(())
        }
    }

    fn session(number: u32) -> SessionId {
        SessionId::parse(&format!("ses_{number:012x}12345678901234")).unwrap()
    }

    #[test]
    fn a_copy_goes_on_behind_whatever_cannot_be_read_and_ends() {
        let known: BTreeSet<SessionId> = (1..=3).map(session).collect();
        let kinds: [&[u8]; 6] = [b"c/", b"f/", b"k/", keys::LOGS, b"s/", b"x/"];
        let all = kinds.iter().flat_map(|kind| {
            (1..=3).map(|number| ([kind, session(number).as_str().as_bytes()].concat(), Some(vec![1])))
        });
        let all: Batch = all.collect();
        let second = [keys::LOGS, session(2).as_str().as_bytes()].concat().leak();
        let third = [keys::LOGS, session(3).as_str().as_bytes()].concat().leak();
        for (from, to, saved) in [
            (&b""[..], &b""[..], 18),
            (b"c/", b"c/z", 15),
            // Behind what cannot be read nothing begins with this letter either.
            (b"c/", b"f/z", 12),
            (b"c", b"k", 12),
            (second, third, 17),
            (second, b"m", 16),
            (b"", b"z", 0),
        ] {
            let (table, fresh) = (MemoryTable::default(), MemoryTable::default());
            table.apply(all.clone()).unwrap();
            let old = Torn { table, from, to };
            let (archived, problems) = (Timestamp::default(), Vec::new());
            let mut copy = Copy { old: &old, fresh: &fresh, known: &known, archived, problems, bare: 0 };
            copy.all().unwrap();
            let copied = fresh.scan(b"", &[0xff], 100).unwrap().len();
            assert_eq!(copied, saved, "{} to {}", from.escape_ascii(), to.escape_ascii());
            assert_eq!(copy.problems.is_empty(), saved == 18, "{:?}", copy.problems);
        }
    }
}

//! A table before which a journal stands.
//!
//! What is applied goes to a journal and to memory, and a flush makes the journal durable: one write to one file, whatever a backend
//! does with it. When enough has come together, a thread settles it: hands it on to the backend, in pieces, and flushes that.
//! What changed many times meanwhile is handed on once. Readers look into memory first.
//!
//! ```text
//! apply -> young (memory) and the next entry of the journal
//! flush -> the entry is durable
//!          the journal's file is long enough: young becomes old; a thread settles old; the next entries go to the other file
//! ```
//!
//! The backend has a mark of its own, `m/journal`, which nobody sees from outside: whether a journal is in use, its salt, the number
//! of the last entry that is settled, and of the last that was durable then. Before the first flush of a table that was closed in
//! order, or is fresh, there is no journal: all goes to the backend, also what a compaction fills a fresh one with. An opening that
//! ends in order settles all, and leaves a backend that needs no journal.

mod mark;
mod overlay;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use self::mark::Mark;
use self::overlay::Overlay;
use crate::StoreError;
use crate::journal::{self, Journal};
use crate::keys;
use crate::table::{Batch, Pair, Table};

/// A file of the journal that is this long is settled, in bytes.
const TURN: u64 = 512 * 1024;
/// One that is so many times as long is waited for; and long before that what is settled is in a hurry.
const MOST: u64 = 4;
/// How much is handed on to the backend at once, in bytes.
const PIECE: usize = 128 * 1024;

/// How often a backend that failed is tried to be opened again.
const AGAIN: Duration = Duration::from_millis(100);

/// How long readers wait for a backend that failed while something was settled.
const REOPENED_WITHIN: Duration = Duration::from_secs(1);

/// An entry that is this long is written before it is asked for, in bytes.
const LONG: usize = 16 * 1024 * 1024;

/// See the module.
pub(crate) struct Journaled {
    directory: PathBuf,
    base: Arc<dyn Table>,
    overlay: Arc<RwLock<Overlay>>,
    writing: Mutex<Writing>,
    /// A thread settles what is old, and opens a backend again that failed meanwhile.
    is_settling: Arc<AtomicBool>,
    /// See [`TURN`].
    turn: u64,
}

#[derive(Default)]
struct Writing {
    /// `None` until the first flush.
    journal: Option<Journal>,
    /// The number of the last entry of the journal before.
    last: u64,
    /// What an opening before left to be settled, and the number of the last entry of it. It waits for a flush: until then nobody
    /// knows whether the disk takes anything.
    left: Option<(Arc<Batch>, u64)>,
    /// The table was opened again in place: it goes on when the backend has taken what is left, and not before.
    is_reopened: bool,
    settling: Option<Settling>,
    /// The last entry that is durable, for the mark.
    durable: Arc<AtomicU64>,
    /// Nobody knows what is durable: it is to be opened again.
    failed: bool,
}

/// A thread that hands on what is old.
struct Settling {
    thread: JoinHandle<Result<(), StoreError>>,
    /// It need not leave the processor to others.
    hurry: Arc<AtomicBool>,
}

impl Journaled {
    /// Puts a journal, in `directory`, before the table of a backend there.
    ///
    /// # Errors
    /// What was durable in the journal cannot be read.
    pub(crate) fn open(directory: &Path, base: Box<dyn Table>) -> Result<Self, StoreError> {
        let table = Self::at(directory, base);
        let damages = table.load(&mut table.writing.lock())?;
        damages.into_iter().next().map_or(Ok(table), Err)
    }

    /// The same for a copy that may be damaged: what can be read of it, and what cannot.
    pub(crate) fn open_cut(
        directory: &Path,
        base: Box<dyn Table>,
    ) -> Result<(Self, Vec<StoreError>), StoreError> {
        let table = Self::at(directory, base);
        let mut damages = Vec::new();
        match Mark::of(&*table.base) {
            // As if it was there, and empty.
            Ok(Some(Mark { in_use: true, .. })) => damages.extend(journal::complete(directory)?),
            Ok(_) => {}
            // What is in the journal is not known then.
            Err(error @ StoreError::Damaged { .. }) => return Ok((table, vec![error])),
            Err(error) => return Err(error),
        }
        damages.extend(table.load(&mut table.writing.lock())?);
        Ok((table, damages))
    }

    fn at(directory: &Path, base: Box<dyn Table>) -> Self {
        Self {
            directory: directory.to_owned(),
            base: Arc::from(base),
            overlay: Arc::default(),
            writing: Mutex::default(),
            is_settling: Arc::default(),
            turn: TURN,
        }
    }

    /// Begins with what the journal holds. What is damaged in it.
    fn load(&self, writing: &mut Writing) -> Result<Vec<StoreError>, StoreError> {
        let (mut new, mut damages) = (Writing::default(), Vec::new());
        match Mark::of(&*self.base)? {
            None => {}
            Some(Mark { in_use: false, settled, .. }) => new.last = settled,
            Some(Mark { in_use: true, salt, settled, seen }) => {
                let found = Journal::read(&self.directory, settled..=seen, salt)?;
                if let Some(error) = &found.unsure {
                    tracing::warn!(%error, "the journal can be read and not written");
                }
                new.failed = found.unsure.is_some();
                damages = found.damages;
                new.left = Some((Arc::new(found.changes), found.journal.last()));
                new.durable = Arc::new(found.journal.last().into());
                new.journal = Some(found.journal);
            }
        }
        let overlay =
            Overlay { young: Batch::new(), old: new.left.as_ref().map(|(left, _)| Arc::clone(left)) };
        *self.overlay.write() = overlay;
        *writing = new;
        Ok(damages)
    }

    /// Has a thread settle what is old: all of the entries up to this one that was not settled before.
    fn settle(&self, writing: &mut Writing, old: Arc<Batch>, last: u64) {
        let Some(journal) = &writing.journal else { return };
        let (salt, durable) = (journal.salt(), Arc::clone(&writing.durable));
        let (base, overlay) = (Arc::clone(&self.base), Arc::clone(&self.overlay));
        let hurry = Arc::<AtomicBool>::default();
        let (in_hurry, is_settling) = (Arc::clone(&hurry), Arc::clone(&self.is_settling));
        is_settling.store(true, Ordering::Release);
        let work = move || -> Result<(), StoreError> {
            let _end = End(is_settling);
            let mark = || Mark { in_use: true, salt, settled: last, seen: durable.load(Ordering::Acquire) };
            if let Err(error) = hand_on(&*base, &old, mark, &in_hurry) {
                tracing::error!(%error, "the journal could not be settled");
                // For readers: some backends refuse everything after a write that failed. Whoever writes next takes over.
                while !base.can_be_read() && base.reopen().is_err() && !in_hurry.load(Ordering::Relaxed) {
                    thread::sleep(AGAIN);
                }
                return Err(error);
            }
            overlay.write().old = None;
            Ok(())
        };
        match thread::Builder::new().name("playhouse-settle".to_owned()).spawn(work) {
            Ok(thread) => writing.settling = Some(Settling { thread, hurry }),
            Err(error) => {
                self.is_settling.store(false, Ordering::Release);
                tracing::error!(%error, "no thread can be started to settle the journal");
                writing.failed = true;
            }
        }
    }
}

/// The end of a thread that settles, however it comes.
struct End(Arc<AtomicBool>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Hands `old` on to the backend, durably, and then the mark that says so: one that is there without the rest would be believed.
fn hand_on(
    base: &dyn Table,
    old: &Batch,
    mark: impl FnOnce() -> Mark,
    hurry: &AtomicBool,
) -> Result<(), StoreError> {
    let (mut piece, mut size) = (Batch::new(), 0);
    let mut began = Instant::now();
    for (key, value) in old {
        size += key.len() + value.as_ref().map_or(0, Vec::len);
        piece.insert(key.clone(), value.clone());
        if size >= PIECE {
            base.apply(std::mem::take(&mut piece))?;
            fail_point!(SETTLE_PIECE);
            // Sessions are not to wait for it.
            if !hurry.load(Ordering::Relaxed) {
                thread::sleep(began.elapsed());
            }
            (size, began) = (0, Instant::now());
        }
    }
    if !piece.is_empty() {
        base.apply(piece)?;
    }
    base.flush()?;
    base.apply(mark().batch())?;
    base.flush()?;
    fail_point!(SETTLED);
    Ok(())
}

impl Writing {
    fn check(&self) -> Result<(), StoreError> {
        match self.failed {
            true => Err(StoreError::Backend("the journal failed, and was not opened again".to_owned())),
            false => Ok(()),
        }
    }

    /// Waits until what is old is settled.
    fn settled(&mut self) -> Result<(), StoreError> {
        let Some(Settling { thread, hurry }) = self.settling.take() else { return Ok(()) };
        hurry.store(true, Ordering::Relaxed);
        let panicked = |_| Err(StoreError::Backend("settling the journal panicked".to_owned()));
        thread.join().unwrap_or_else(panicked).inspect_err(|_| self.failed = true)
    }

    /// Looks whether it is settled by now.
    fn look(&mut self) -> Result<(), StoreError> {
        match &self.settling {
            Some(Settling { thread, .. }) if thread.is_finished() => self.settled(),
            Some(_) | None => Ok(()),
        }
    }
}

impl Journaled {
    /// The next entries go to the other file, and those before are settled.
    fn turn(&self, writing: &mut Writing) {
        let old = {
            let mut overlay = self.overlay.write();
            let old = Arc::new(std::mem::take(&mut overlay.young));
            overlay.old = Some(Arc::clone(&old));
            old
        };
        if let Some(journal) = &mut writing.journal {
            let last = journal.last();
            journal.turn();
            self.settle(writing, old, last);
        }
    }

    /// Makes durable what was applied, and has settled what is enough.
    fn write(&self, writing: &mut Writing) -> Result<(), StoreError> {
        writing.check()?;
        writing.look()?;
        let Some(journal) = &mut writing.journal else {
            return self.begin(writing).inspect_err(|_| writing.failed = true);
        };
        journal.write().inspect_err(|_| writing.failed = true)?;
        let (length, last) = (journal.length(), journal.last());
        writing.durable.store(last, Ordering::Release);
        // What was left before is settled first.
        if length >= MOST * self.turn {
            writing.settled()?;
        } else if length >= self.turn
            && let Some(Settling { hurry, .. }) = &writing.settling
        {
            hurry.store(true, Ordering::Relaxed);
        }
        if writing.settling.is_some() {
            return Ok(());
        }
        if let Some((left, last)) = writing.left.take() {
            self.settle(writing, left, last);
            if writing.is_reopened {
                writing.settled()?;
            }
        } else if length >= self.turn {
            self.turn(writing);
            fail_point!(JOURNAL_TURNED);
        }
        Ok(())
    }

    /// The first flush of an opening.
    fn begin(&self, writing: &mut Writing) -> Result<(), StoreError> {
        // What an end has settled that was cut off may not be durable, and is in the files that are emptied now.
        self.base.flush()?;
        let journal = Journal::begin(&self.directory, writing.last)?;
        let last = journal.last();
        let mark = Mark { in_use: true, salt: journal.salt(), settled: last, seen: last };
        self.base.apply(mark.batch())?;
        self.base.flush()?;
        writing.durable.store(last, Ordering::Release);
        writing.journal = Some(journal);
        Ok(())
    }

    /// Settles all, and leaves a backend that needs no journal. Where nothing was flushed since it was opened all stays as it is: it
    /// may have been opened to be refused.
    fn end(&mut self) -> Result<(), StoreError> {
        let mut writing = self.writing.lock();
        writing.settled()?;
        writing.check()?;
        if writing.left.is_some() {
            return Ok(());
        }
        let Some(mut journal) = writing.journal.take() else { return Ok(()) };
        // As a whole or not at all, also what was never flushed.
        journal.write()?;
        let young = std::mem::take(&mut self.overlay.write().young);
        let last = journal.last();
        // The files stay until the next flush: a backend that loses its end gets it from there.
        let mark = || Mark { in_use: false, salt: 0, settled: last, seen: last };
        hand_on(&*self.base, &young, mark, &AtomicBool::new(true))
    }
}

impl Drop for Journaled {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(%error, "the journal is not settled, and is read when the store is opened the next time");
        }
    }
}

impl Journaled {
    fn overlay<T>(&self, look: impl FnOnce(&Overlay) -> T) -> T {
        look(&self.overlay.read())
    }

    /// Reads from the backend. Where a thread settles it may have failed at that, and is opened again: that is waited for.
    fn stored<T>(&self, read: impl Fn(&dyn Table) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let is_settling = || self.is_settling.load(Ordering::Acquire);
        let was_settling = is_settling();
        let result = read(&*self.base);
        if !was_settling || matches!(result, Ok(_) | Err(StoreError::Damaged { .. })) {
            return result;
        }
        let began = Instant::now();
        while is_settling() && began.elapsed() < REOPENED_WITHIN && !self.base.can_be_read() {
            thread::sleep(Duration::from_millis(1));
        }
        read(&*self.base)
    }
}

impl Table for Journaled {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        // What is settled in between is in the backend.
        match self.overlay(|overlay| overlay.get(key).cloned()) {
            Some(known) => Ok(known),
            None => self.stored(|base| base.get(key)),
        }
    }

    fn page(&self, from: &[u8], to: &[u8], limit: usize, bytes: usize) -> Result<Vec<Pair>, StoreError> {
        if from >= to || limit == 0 {
            return Ok(Vec::new());
        }
        let bytes = bytes.max(1);
        let (known, is_all) = self.overlay(|overlay| overlay.page(from, to, limit, bytes));
        // Behind the last that is known nobody knows what was changed.
        let end = match known.last() {
            Some((last, _)) if !is_all => keys::after(last),
            _ => to.to_vec(),
        };
        let mut known = known.into_iter().peekable();
        let (mut page, mut size, mut from) = (Vec::new(), 0_usize, from.to_vec());
        let mut is_full = |page: &mut Vec<Pair>, key: Vec<u8>, value: Vec<u8>| {
            size = size.saturating_add(key.len() + value.len());
            page.push((key, value));
            page.len() >= limit || size >= bytes
        };
        loop {
            // One more, as the mark is none that is wanted.
            let wanted = (limit - page.len()).saturating_add(1);
            let stored = self.stored(|base| base.page(&from, &end, wanted, bytes))?;
            let is_last = stored.len() < wanted
                && stored.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() < bytes;
            if let Some((last, _)) = stored.last() {
                from = keys::after(last);
            }
            for (key, value) in stored {
                while let Some((key, value)) = known.next_if(|(known, _)| *known < key) {
                    if let Some(value) = value
                        && is_full(&mut page, key, value)
                    {
                        return Ok(page);
                    }
                }
                let value = match known.next_if(|(known, _)| *known == key) {
                    Some((_, known)) => known,
                    None => Some(value).filter(|_| key != keys::JOURNAL),
                };
                if let Some(value) = value
                    && is_full(&mut page, key, value)
                {
                    return Ok(page);
                }
            }
            if is_last {
                for (key, value) in known {
                    if let Some(value) = value
                        && is_full(&mut page, key, value)
                    {
                        break;
                    }
                }
                return Ok(page);
            }
        }
    }

    fn wants_keys_first(&self) -> bool {
        self.base.wants_keys_first()
    }

    fn can_be_read(&self) -> bool {
        self.base.can_be_read()
    }

    fn last_key(&self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        if from >= to {
            return Ok(None);
        }
        let mut to = to.to_vec();
        loop {
            let last = self.overlay(|overlay| overlay.last_key(from, &to));
            let stored = self.stored(|base| base.last_key(from, &to))?;
            let is_known = |key: &Vec<u8>| last.as_ref().is_some_and(|(last, _)| last >= key);
            match (stored.filter(|key| !is_known(key)), last) {
                (Some(key), _) if *key == *keys::JOURNAL => to = key,
                (Some(key), _) | (None, Some((key, true))) => return Ok(Some(key)),
                (None, Some((removed, false))) => to = removed,
                (None, None) => return Ok(None),
            }
            if from >= &to[..] {
                return Ok(None);
            }
        }
    }

    fn apply(&self, batch: Batch) -> Result<(), StoreError> {
        let mut writing = self.writing.lock();
        writing.check()?;
        let Some(journal) = &mut writing.journal else { return self.base.apply(batch) };
        journal.stage(&batch);
        let is_long = journal.staged() >= LONG;
        self.overlay.write().young.extend(batch);
        // Whoever makes an index anew flushes once in the end.
        if is_long { self.write(&mut writing) } else { Ok(()) }
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.write(&mut self.writing.lock())
    }

    fn flush_filled(&self) -> Result<(), StoreError> {
        let is_filled = {
            let writing = self.writing.lock();
            writing.check()?;
            writing.journal.is_none()
        };
        if is_filled { self.base.flush() } else { self.flush() }
    }

    fn discard(&self) {
        let mut writing = self.writing.lock();
        // Whatever came of it.
        let _ = writing.settled();
        writing.journal = None;
    }

    fn reopen(&self) -> Result<(), StoreError> {
        let mut writing = self.writing.lock();
        // However that ends, all of it is in the journal.
        let _ = writing.settled();
        writing.failed = true;
        self.base.reopen()?;
        let damages = self.load(&mut writing)?;
        writing.is_reopened = true;
        writing.failed |= !damages.is_empty();
        damages.into_iter().next().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests;

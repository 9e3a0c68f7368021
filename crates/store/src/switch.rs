//! The table that is in use, which a compaction exchanges for a fresh one while it is read and written.
//!
//! The writer's thread copies pairs from the old table to a fresh one, slice by slice, between its rounds. A batch goes to
//! the old table always, and to the fresh one as far as its keys are copied already: so what is copied is equal at any time.
//! For a backend that wants it, all keys are copied first, without their values; nobody reads the fresh table before it is whole.
//! When all is copied the fresh table is flushed, a pointer on the disk is moved to it (`site`), and readers get it from
//! then on. Until the pointer is durable the old table alone counts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use crate::in_hand::InHand;
use crate::site::{Pointed, Site};
use crate::table::{Batch, Pair, Table};
use crate::{StoreError, keys};

/// Keys are text and begin with a letter: all of them are below this.
const END: &[u8] = &[0xff];

/// The fresh table is flushed after so many bytes, so that the last flush is no long one.
const FLUSH_AFTER: usize = 4 * 1024 * 1024;

/// What can be reclaimed when these are removed: frames, rows of the ledger and its feed. All else is small, and is written
/// again and again.
const WEIGHED: [&[u8]; 3] = [keys::LOGS, b"r/", b"x/"];

/// Letters that keys may begin with.
const LETTERS: usize = 26;

/// How many keys are copied at once before their values.
const KEYS: usize = 16;

/// How often it is looked whether something became durable.
const DURABLE_AGAIN: Duration = Duration::from_millis(5);

/// See the page of this module.
pub(crate) struct Switch {
    /// Closed before the site lets go of the data directory.
    current: RwLock<Box<dyn Table>>,
    /// `None` where nothing is on a disk.
    site: Option<Arc<dyn Site>>,
    /// Only the writer's thread comes here; the lock is for the compiler.
    moving: Mutex<Moving>,
    /// How many bytes of frames and rows were removed since the last compaction.
    removed: AtomicU64,
    /// How many batches were applied, and how many of them are durable.
    applied: AtomicU64,
    durable: AtomicU64,
    /// How often the table was opened again in place. What was applied before that, and not flushed, may be gone.
    reopened: AtomicU64,
    in_hand: Arc<InHand>,
    /// How many bytes of keys and values were handed to the table, by the letter that keys begin with.
    written: [AtomicU64; LETTERS],
}

#[derive(Default)]
struct Moving {
    copy: Option<Copy>,
    /// The pointer was moved away from this one, and it is not known whether durably.
    unsettled: Option<u64>,
}

struct Copy {
    number: u64,
    fresh: Box<dyn Table>,
    /// All keys below this are there, without values where those are not copied yet; `None` when all are.
    keys: Option<Vec<u8>>,
    /// All pairs with keys below this are copied.
    cursor: Vec<u8>,
    /// How many bytes were copied since the last flush.
    unflushed: usize,
    /// Why it cannot go on.
    failed: Option<StoreError>,
}

/// A table that does not count any more.
pub(crate) struct Retired {
    table: Option<Box<dyn Table>>,
    number: u64,
    site: Arc<dyn Site>,
}

impl Retired {
    /// Closes the table and removes it from the disk. It may take a while.
    pub(crate) fn remove(mut self) {
        if let Some(table) = self.table.take() {
            table.discard();
        }
        if let Err(error) = self.site.remove(self.number) {
            tracing::warn!(%error, "what a compaction left is removed when the store is opened the next time");
        }
    }
}

/// How a copy goes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Slice {
    /// So many bytes were copied.
    Copied(usize),
    /// All is copied.
    Ended,
}

impl Switch {
    pub(crate) fn new(
        table: Box<dyn Table>,
        site: Option<Arc<dyn Site>>,
        in_hand: Arc<InHand>,
    ) -> Result<Self, StoreError> {
        let removed = AtomicU64::new(read_removed(&*table)?);
        Ok(Self {
            current: RwLock::new(table),
            site,
            moving: Mutex::default(),
            removed,
            applied: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            reopened: AtomicU64::new(0),
            in_hand,
            written: Default::default(),
        })
    }

    /// How many bytes of keys and values were handed to the table for each kind of key, copies not counted.
    pub(crate) fn written(&self) -> BTreeMap<char, u64> {
        let counts = ('a'..='z').zip(&self.written);
        counts
            .map(|(kind, count)| (kind, count.load(Ordering::Relaxed)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    fn count(&self, batch: &Batch) {
        for (key, value) in batch {
            let size = key.len() + value.as_ref().map_or(0, Vec::len);
            let kind = key.first().and_then(|letter| letter.checked_sub(b'a'));
            if let Some(count) = kind.and_then(|kind| self.written.get(usize::from(kind))) {
                count.fetch_add(size as u64, Ordering::Relaxed);
            }
        }
    }

    fn with<T>(&self, work: impl FnOnce(&dyn Table) -> T) -> T {
        work(&**self.current.read())
    }

    /// Where its databases lie, for one on a disk.
    pub(crate) fn site(&self) -> Option<&dyn Site> {
        self.site.as_deref()
    }

    /// How many bytes of frames and rows were removed since the last compaction.
    pub(crate) fn removed(&self) -> u64 {
        self.removed.load(Ordering::Relaxed)
    }

    /// How often it was opened again, for [`Switch::wait_until_durable`].
    pub(crate) fn reopened(&self) -> u64 {
        self.reopened.load(Ordering::Acquire)
    }

    /// Waits until all is durable that was seen since it was opened for the time `reopened`.
    ///
    /// # Errors
    /// It was opened again meanwhile, so that what was seen may be gone; [`StoreError::Closed`] when `closing` is said.
    pub(crate) fn wait_until_durable(&self, reopened: u64, closing: &AtomicBool) -> Result<(), StoreError> {
        let seen = self.applied.load(Ordering::Acquire);
        loop {
            // Read before the other: a flush after an opening says nothing of what came before that.
            let durable = self.durable.load(Ordering::Acquire);
            if self.reopened() != reopened {
                return Err(StoreError::Backend("the store was opened again meanwhile".to_owned()));
            }
            if durable >= seen {
                return Ok(());
            }
            if closing.load(Ordering::Relaxed) {
                return Err(StoreError::Closed);
            }
            thread::sleep(DURABLE_AGAIN);
        }
    }

    /// Whether a copy is under way. This and all below is for the writer's thread.
    pub(crate) fn is_copying(&self) -> bool {
        self.moving.lock().copy.is_some()
    }

    /// Begins a copy.
    pub(crate) fn begin(&self) -> Result<(), StoreError> {
        let site = self.site.as_ref().ok_or_else(|| StoreError::Backend("it is not on a disk".to_owned()))?;
        let mut moving = self.moving.lock();
        if moving.copy.is_none() {
            let (number, fresh) = site.make()?;
            fail_point!(REWRITE_BEGUN);
            let keys = fresh.wants_keys_first().then(Vec::new);
            moving.copy = Some(Copy { number, fresh, keys, cursor: Vec::new(), unflushed: 0, failed: None });
        }
        Ok(())
    }

    /// Copies about so many bytes.
    pub(crate) fn copy_slice(&self, bytes: usize) -> Result<Slice, StoreError> {
        let mut moving = self.moving.lock();
        let Some(copy) = &mut moving.copy else {
            return Err(StoreError::Backend("nothing is copied".to_owned()));
        };
        if let Some(error) = copy.failed.take() {
            return Err(error);
        }
        if let Some(from) = &copy.keys {
            let page = self.with(|table| table.page(from, END, KEYS, bytes))?;
            let next = page.last().map(|(last, _)| keys::after(last));
            let size = page.iter().map(|(key, _)| key.len()).sum::<usize>();
            copy.fresh.apply(page.into_iter().map(|(key, _)| (key, Some(Vec::new()))).collect())?;
            copy.keys = next;
            copy.unflushed += size;
            if copy.keys.is_some() {
                return Ok(Slice::Copied(size));
            }
        }
        let page = self.with(|table| table.page(&copy.cursor, END, usize::MAX, bytes))?;
        let Some((last, _)) = page.last() else { return Ok(Slice::Ended) };
        let next = keys::after(last);
        let size = page.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        copy.fresh.apply(page.into_iter().map(|(key, value)| (key, Some(value))).collect())?;
        copy.cursor = next;
        copy.unflushed += size;
        fail_point!(REWRITE_COPIED);
        if copy.unflushed > FLUSH_AFTER {
            copy.fresh.flush_filled()?;
            copy.unflushed = 0;
        }
        Ok(Slice::Copied(size))
    }

    /// Puts the fresh table, to which all is copied, in place of the old one.
    ///
    /// # Errors
    /// The outer one: it did not come to that, and the old one is in use. The inner one: the fresh one is in use, and it is
    /// not known whether that outlasts a crash: nothing may be acknowledged before [`Table::reopen`] succeeded.
    pub(crate) fn exchange(&self) -> Result<Result<Retired, StoreError>, StoreError> {
        let mut moving = self.moving.lock();
        let (Some(copy), Some(site)) = (&mut moving.copy, &self.site) else {
            return Err(StoreError::Backend("nothing is copied".to_owned()));
        };
        if let Some(error) = copy.failed.take() {
            return Err(error);
        }
        copy.fresh.apply(Batch::from([(keys::REMOVED.to_vec(), None)]))?;
        copy.fresh.flush()?;
        fail_point!(REWRITE_FLUSHED);
        let before = site.current();
        let pointed = site.point_at(copy.number)?;
        let Some(Copy { fresh, .. }) = moving.copy.take() else {
            return Err(StoreError::Backend("nothing is copied".to_owned()));
        };
        let old = {
            let mut current = self.current.write();
            std::mem::replace(&mut *current, fresh)
        };
        self.removed.store(0, Ordering::Relaxed);
        Ok(match pointed {
            Pointed::Durably => Ok(Retired { table: Some(old), number: before, site: Arc::clone(site) }),
            Pointed::Perhaps(error) => {
                moving.unsettled = Some(before);
                Err(error)
            }
        })
    }

    /// Gives a copy up, if one is under way; what is left of it.
    pub(crate) fn abandon(&self) -> Option<Retired> {
        let Copy { number, fresh, .. } = self.moving.lock().copy.take()?;
        let site = Arc::clone(self.site.as_ref()?);
        Some(Retired { table: Some(fresh), number, site })
    }

    /// How many bytes of frames and rows a batch removes.
    fn weigh(&self, batch: &Batch) -> Result<u64, StoreError> {
        let mut bytes = 0;
        for prefix in WEIGHED {
            for (key, value) in batch.range(prefix.to_vec()..keys::end_of(prefix)) {
                if value.is_none() {
                    let before = self.with(|table| table.get(key))?;
                    bytes += before.map_or(0, |before| (key.len() + before.len()) as u64);
                }
            }
        }
        Ok(bytes)
    }
}

fn read_removed(table: &dyn Table) -> Result<u64, StoreError> {
    let value = table.get(keys::REMOVED)?;
    Ok(value.and_then(|value| value.try_into().ok()).map_or(0, u64::from_be_bytes))
}

impl Table for Switch {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.with(|table| table.get(key))
    }

    fn page(&self, from: &[u8], to: &[u8], limit: usize, bytes: usize) -> Result<Vec<Pair>, StoreError> {
        self.with(|table| table.page(from, to, limit, bytes))
    }

    fn last_key(&self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.with(|table| table.last_key(from, to))
    }

    fn can_be_read(&self) -> bool {
        self.with(|table| table.can_be_read())
    }

    fn apply(&self, mut batch: Batch) -> Result<(), StoreError> {
        let weight = self.weigh(&batch)?;
        let removed = self.removed().saturating_add(weight);
        if weight > 0 {
            // Known again after the next start.
            batch.insert(keys::REMOVED.to_vec(), Some(removed.to_be_bytes().to_vec()));
        }
        self.in_hand.hold_named_in_frames(&batch);
        self.count(&batch);
        let mut moving = self.moving.lock();
        let copied = moving.copy.as_ref().map(|copy| {
            // What is there of keys alone is kept equal too: a key that goes is not to stay there.
            let end = copy.keys.as_deref().unwrap_or(END);
            let below = batch.range(..end.to_vec());
            below.map(|(key, value)| (key.clone(), value.clone())).collect::<Batch>()
        });
        // Counted before anybody can see it.
        self.applied.fetch_add(1, Ordering::AcqRel);
        self.with(|table| table.apply(batch))?;
        self.removed.store(removed, Ordering::Relaxed);
        if let (Some(copy), Some(copied)) = (&mut moving.copy, copied)
            && !copied.is_empty()
            && copy.failed.is_none()
        {
            fail_point!(REWRITE_BETWEEN);
            // The write itself is done: only the copy is not good any more.
            copy.failed = copy.fresh.apply(copied).err();
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), StoreError> {
        let applied = self.applied.load(Ordering::Acquire);
        self.with(|table| table.flush())?;
        // Of what is durable somewhere else nobody is told that it is kept.
        self.check_place()?;
        self.durable.fetch_max(applied, Ordering::AcqRel);
        Ok(())
    }

    fn check_place(&self) -> Result<(), StoreError> {
        self.site.as_ref().map_or(Ok(()), |site| site.check())
    }

    /// A copy that was under way is given up, and a pointer that was moved is made durable first. A table that can be read is
    /// not closed before the disk takes writes, and one that cannot is opened for readers whatever the disk takes.
    fn reopen(&self) -> Result<(), StoreError> {
        // Whoever waits for what was written before is told that it failed.
        self.reopened.fetch_add(1, Ordering::AcqRel);
        self.check_place()?;
        let can_be_read = self.can_be_read();
        if !can_be_read {
            self.with(|table| table.reopen())?;
        }
        if let Some(site) = &self.site {
            site.try_writing()?;
        }
        if let Some(retired) = self.abandon() {
            retired.remove();
        }
        if let Some(site) = &self.site {
            let mut moving = self.moving.lock();
            if let Some(before) = moving.unsettled {
                site.sync()?;
                moving.unsettled = None;
                drop(moving);
                Retired { table: None, number: before, site: Arc::clone(site) }.remove();
            }
        }
        if can_be_read {
            self.with(|table| table.reopen())?;
        }
        self.removed.store(self.with(read_removed)?, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;

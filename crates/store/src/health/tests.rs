//! Against a disk in memory that fails and heals, and that forgets when it is opened again what was never flushed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::thread;
use std::time::Duration;

use playhouse_protocol::{Record, SessionId};
use serde_json::json;

use super::*;
use crate::logs::TableStore;
use crate::memory::MemoryTable;
use crate::table::{Pair, Table};
use crate::writer::tests::{begin, change, creation, session, store_in, wait};
use crate::{Append, Ledger as _, ListQuery, Log, Seq, Shelf as _, Upkeep as _};

/// What the disk does with the next writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Well,
    /// Batches do not arrive.
    FullAtOnce,
    /// Batches arrive in memory, and cannot be flushed.
    FullAtTheFlush,
    /// Nothing can be read, either.
    Gone,
    OnFire,
}

struct Shared {
    mood: Mutex<Mood>,
    /// What outlasts a reopening.
    durable: Mutex<Batch>,
    /// Whether what was not flushed is there all the same when it is opened again.
    keeps: AtomicBool,
    reopened: AtomicUsize,
    /// Failed since it was opened, like a sled or a redb.
    is_broken: AtomicBool,
}

#[derive(Clone)]
struct Disk {
    table: Arc<RwLock<MemoryTable>>,
    shared: Arc<Shared>,
}

impl Disk {
    fn new() -> Self {
        let shared = Shared {
            mood: Mutex::new(Mood::Well),
            durable: Mutex::default(),
            keeps: AtomicBool::new(false),
            reopened: AtomicUsize::new(0),
            is_broken: AtomicBool::new(false),
        };
        Self { table: Arc::default(), shared: Arc::new(shared) }
    }

    fn is(&self, mood: Mood) {
        *self.shared.mood.lock().unwrap() = mood;
    }

    fn all(&self) -> Batch {
        let pairs = self.table.read().unwrap().scan(b"", &[0xff], usize::MAX).unwrap();
        pairs.into_iter().map(|(key, value)| (key, Some(value))).collect()
    }

    fn meet(&self, fails_in: &[Mood]) -> Result<(), StoreError> {
        let mood = *self.shared.mood.lock().unwrap();
        if fails_in.contains(&mood) || self.shared.is_broken.load(Ordering::SeqCst) {
            self.shared.is_broken.store(true, Ordering::SeqCst);
            assert_ne!(mood, Mood::OnFire, "the disk is on fire");
            return Err(io::Error::from(ErrorKind::StorageFull).into());
        }
        Ok(())
    }

    fn read(&self) -> Result<(), StoreError> {
        match *self.shared.mood.lock().unwrap() {
            Mood::Gone => Err(StoreError::Backend("it does not answer".to_owned())),
            _ => Ok(()),
        }
    }
}

impl Table for Disk {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.read()?;
        self.table.read().unwrap().get(key)
    }

    fn page(&self, from: &[u8], to: &[u8], limit: usize, bytes: usize) -> Result<Vec<Pair>, StoreError> {
        self.read()?;
        self.table.read().unwrap().page(from, to, limit, bytes)
    }

    fn last_key(&self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.read()?;
        self.table.read().unwrap().last_key(from, to)
    }

    fn apply(&self, batch: Batch) -> Result<(), StoreError> {
        self.meet(&[Mood::FullAtOnce, Mood::Gone])?;
        self.table.read().unwrap().apply(batch)
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.meet(&[Mood::FullAtTheFlush, Mood::OnFire])?;
        *self.shared.durable.lock().unwrap() = self.all();
        Ok(())
    }

    fn reopen(&self) -> Result<(), StoreError> {
        if *self.shared.mood.lock().unwrap() == Mood::Gone {
            return Err(StoreError::Backend("it does not open".to_owned()));
        }
        self.shared.reopened.fetch_add(1, Ordering::SeqCst);
        self.shared.is_broken.store(false, Ordering::SeqCst);
        if !self.shared.keeps.load(Ordering::SeqCst) {
            let opened = MemoryTable::default();
            opened.apply(self.shared.durable.lock().unwrap().clone())?;
            *self.table.write().unwrap() = opened;
        }
        Ok(())
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never came true: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn is_suspended(error: &StoreError, expected: SuspensionReason) -> bool {
    matches!(error, StoreError::Suspended { reason } if *reason == expected)
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_store_that_failed_refuses_at_once_and_goes_on_when_the_disk_is_well() {
    for (mood, keeps, expected) in [
        (Mood::FullAtOnce, false, SuspensionReason::Full),
        (Mood::FullAtTheFlush, false, SuspensionReason::Full),
        (Mood::FullAtTheFlush, true, SuspensionReason::Full),
        (Mood::OnFire, false, SuspensionReason::Failed),
    ] {
        let disk = Disk::new();
        disk.shared.keeps.store(keeps, Ordering::SeqCst);
        let store = store_in(Box::new(disk.clone()));
        wait(&begin(&*store, creation(0))).unwrap();
        assert!(store.health().is_none());
        disk.is(mood);
        let error = wait(&begin(&*store, change(0, 1))).unwrap_err();
        assert!(is_suspended(&error, expected), "{mood:?}: {error}");
        // The disk may be well again: what is durable is not known before it is opened again.
        // Answered before the call returns.
        let error = begin(&*store, creation(1)).try_recv().unwrap().unwrap_err();
        assert!(is_suspended(&error, expected), "{error}");
        let error = store.compare_and_set("a", None, Some(b"1")).unwrap_err();
        assert!(is_suspended(&error, expected), "{error}");
        assert!(store.reclaim().is_err() && store.archive(Default::default(), &[1]).is_err());
        let health = store.health().unwrap();
        assert_eq!(health.reason, expected);
        // Reads go on.
        assert!(store.summary(session(0)).unwrap().is_some());
        assert_eq!(store.list(&ListQuery::default()).unwrap().sessions.len(), 1);
        // It tries, again and again.
        let before = disk.shared.reopened.load(Ordering::SeqCst);
        until("it is tried again", || disk.shared.reopened.load(Ordering::SeqCst) >= before + 2);
        assert_eq!(store.health().unwrap().since, health.since, "one suspension");
        disk.is(Mood::Well);
        until("it goes on", || store.health().is_none());
        let head = store.summary(session(0)).unwrap().unwrap().head;
        assert_eq!(head, Seq(if keeps { 2 } else { 1 }), "{mood:?}");
        assert_eq!(wait(&begin(&*store, change(0, head.0))).unwrap(), Seq(head.0 + 1));
        assert!(store.summary(session(1)).unwrap().is_none(), "what was refused was not begun with");
        assert_eq!(wait(&begin(&*store, creation(1))).unwrap(), Seq(1));
        assert_eq!(store.list(&ListQuery::default()).unwrap().sessions.len(), 2);
        assert!(store.compare_and_set("a", None, Some(b"1")).unwrap());
    }
}

/// A prompt to a session whose log ends at `expected`.
fn prompt(number: usize, expected: u64) -> Append {
    let record = json!({"type": "prompt.admitted", "data": {
        "message": "msg_01234567890112345678901234", "parts": [], "agent": "build", "model": "mock/m",
    }});
    let record: Record = serde_json::from_value(record).unwrap();
    let mut append = change(number, expected);
    append.entries[0].record = record;
    append
}

/// What readers are shown.
#[derive(Debug, PartialEq)]
struct Shown {
    /// Where their logs end, how many records are there, whether they have work.
    sessions: Vec<(SessionId, Seq, usize, bool)>,
    unfinished: Vec<SessionId>,
    shelf: Vec<(String, Vec<u8>)>,
}

fn shown(store: &TableStore) -> Shown {
    let mut sessions = Vec::new();
    for summary in store.list(&ListQuery::default()).unwrap().sessions {
        let read = store.read(summary.id, Seq::START, 100).unwrap();
        assert_eq!(read.damage, None);
        assert_eq!(store.summary(summary.id).unwrap().as_ref(), Some(&summary));
        sessions.push((summary.id, summary.head, read.entries.len(), summary.is_unfinished()));
    }
    let unfinished = store.unfinished().unwrap();
    assert_eq!(store.unfinished_of("acme").unwrap(), unfinished);
    Shown { sessions, unfinished, shelf: store.scan("").unwrap() }
}

#[test]
fn what_was_refused_is_not_shown_unless_it_became_durable_all_the_same() {
    type Refused = fn(&TableStore) -> bool;
    let refused: [Refused; 6] = [
        |store| wait(&begin(store, prompt(0, 1))).is_err(),
        |store| wait(&begin(store, change(0, 1))).is_err(),
        |store| wait(&begin(store, creation(2))).is_err(),
        |store| store.compare_and_set("a", Some(b"1"), Some(b"2")).is_err(),
        |store| store.compare_and_set("a", Some(b"1"), None).is_err(),
        |store| store.compare_and_set("b", None, Some(b"1")).is_err(),
    ];
    let look = |number: usize, refused: Refused, mood: Mood, keeps: bool| {
        let disk = Disk::new();
        disk.shared.keeps.store(keeps, Ordering::SeqCst);
        let store = store_in(Box::new(disk.clone()));
        wait(&begin(&*store, creation(0))).unwrap();
        wait(&begin(&*store, creation(1))).unwrap();
        wait(&begin(&*store, prompt(1, 1))).unwrap();
        assert!(store.compare_and_set("a", None, Some(b"1")).unwrap());
        let before = shown(&store);
        assert_eq!(before.unfinished, [session(1)]);
        disk.is(mood);
        assert!(refused(&store));
        for _ in 0..3 {
            assert_eq!(shown(&store), before, "request {number}, {mood:?}");
            assert_eq!(store.get("a").unwrap().as_deref(), Some(&b"1"[..]));
            assert_eq!(store.get("b").unwrap(), None);
            assert!(matches!(store.read(session(2), Seq::START, 10), Err(StoreError::Missing(_))));
            assert!(store.summary(session(2)).unwrap().is_none());
        }
        disk.is(Mood::Well);
        until("it goes on", || store.health().is_none());
        // Now it is known.
        assert_eq!(shown(&store) == before, !keeps, "request {number}, {mood:?}");
    };
    // Side by side: each waits until the disk is looked at again.
    thread::scope(|scope| {
        for (number, refused) in refused.into_iter().enumerate() {
            for (mood, keeps) in [
                (Mood::FullAtOnce, false),
                (Mood::FullAtTheFlush, false),
                (Mood::FullAtTheFlush, true),
                (Mood::OnFire, true),
            ] {
                scope.spawn(move || look(number, refused, mood, keeps));
            }
        }
    });
}

#[test]
fn a_disk_that_cannot_even_be_read_is_no_fault_of_requests() {
    let disk = Disk::new();
    let store = store_in(Box::new(disk.clone()));
    wait(&begin(&*store, creation(0))).unwrap();
    // A log that the writer does not remember, so that it has to be read.
    disk.is(Mood::Gone);
    let error = wait(&begin(&*store, change(7, 1))).unwrap_err();
    assert!(is_suspended(&error, SuspensionReason::Failed), "{error}");
    let text = error.to_string();
    assert!(text.contains("goes on by itself") && text.contains("the log of the engine says"), "{text}");
    disk.is(Mood::Well);
    until("it goes on", || store.health().is_none());
    assert!(matches!(wait(&begin(&*store, change(7, 1))), Err(StoreError::Conflict { .. })));
    assert_eq!(wait(&begin(&*store, change(0, 1))).unwrap(), Seq(2));
}

/// Sled cuts its log off where it cannot read it, and goes on as if nothing had been behind.
#[test]
fn a_backend_that_lost_what_was_durable_stays_suspended_as_damaged() {
    let disk = Disk::new();
    let store = store_in(Box::new(disk.clone()));
    wait(&begin(&*store, creation(0))).unwrap();
    let before = disk.shared.durable.lock().unwrap().clone();
    wait(&begin(&*store, creation(1))).unwrap();
    let all = std::mem::replace(&mut *disk.shared.durable.lock().unwrap(), before);
    disk.is(Mood::FullAtOnce);
    wait(&begin(&*store, change(1, 1))).unwrap_err();
    disk.is(Mood::Well);
    until("it is seen", || store.health().unwrap().reason == SuspensionReason::Damaged);
    let error = wait(&begin(&*store, change(0, 1))).unwrap_err();
    assert!(is_suspended(&error, SuspensionReason::Damaged), "{error}");
    // With a copy of what it was it goes on.
    *disk.shared.durable.lock().unwrap() = all;
    until("it goes on", || store.health().is_none());
    assert_eq!(wait(&begin(&*store, change(1, 1))).unwrap(), Seq(2));
}

/// Each time that it is opened again it may have what was never durable, or not.
#[test]
fn what_is_found_without_being_durable_may_be_gone_the_next_time() {
    let disk = Disk::new();
    let store = store_in(Box::new(disk.clone()));
    assert!(store.compare_and_set("a", None, Some(b"1")).unwrap());
    disk.is(Mood::FullAtTheFlush);
    disk.shared.keeps.store(true, Ordering::SeqCst);
    store.compare_and_set("a", Some(b"1"), Some(b"2")).unwrap_err();
    let before = disk.shared.reopened.load(Ordering::SeqCst);
    until("it is tried again", || disk.shared.reopened.load(Ordering::SeqCst) >= before + 2);
    disk.shared.keeps.store(false, Ordering::SeqCst);
    // A try that is under way found it, and would make it durable if the disk was well.
    let before = disk.shared.reopened.load(Ordering::SeqCst);
    until("it is gone", || disk.shared.reopened.load(Ordering::SeqCst) > before);
    disk.is(Mood::Well);
    until("it goes on", || {
        store.health().is_none_or(|suspended| suspended.reason == SuspensionReason::Damaged)
    });
    assert_eq!(store.health().map(|suspended| suspended.reason), None);
    assert_eq!(store.get("a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_suspended_store_can_be_closed() {
    let disk = Disk::new();
    let store = store_in(Box::new(disk.clone()));
    disk.is(Mood::FullAtTheFlush);
    wait(&begin(&*store, creation(0))).unwrap_err();
    drop(store);
    assert_eq!(Arc::strong_count(&disk.table), 1, "its thread has ended");
}

#[test]
fn the_reason_is_told_without_paths_and_keeps_its_kind_through_backends() {
    let of = |kind| StoreError::of_disk(&io::Error::from(kind), "sled: /data/x".to_owned());
    assert_eq!(of(ErrorKind::StorageFull).suspension(), Some(SuspensionReason::Full));
    assert_eq!(of(ErrorKind::QuotaExceeded).suspension(), Some(SuspensionReason::Full));
    assert_eq!(of(ErrorKind::ReadOnlyFilesystem).suspension(), Some(SuspensionReason::ReadOnly));
    assert_eq!(of(ErrorKind::NotFound).suspension(), None);
    assert_eq!(StoreError::Closed.suspension(), None);
    let health = Health::default();
    let reason = health.suspend(&of(ErrorKind::Other));
    assert_eq!(reason, SuspensionReason::Failed);
    let text = health.refusal().unwrap().to_string();
    assert!(!text.contains("/data"), "{text}");
    assert_eq!(health.suspend(&of(ErrorKind::StorageFull)), SuspensionReason::Full, "it may change");
    assert!(health.end().is_some() && health.suspended().is_none());
}

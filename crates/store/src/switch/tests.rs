//! Against a model, in memory with faults, and on the disk with a crash after each step.

use std::path::Path;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::format::{Backend, FormatFile, inspect};
use crate::lock::DataLock;
use crate::memory::MemoryTable;
use crate::site::DiskSite;

/// Places in memory, of which some things fail when they are told to.
#[derive(Default)]
pub(crate) struct MemorySite {
    current: AtomicU64,
    pub(crate) faults: Arc<Faults>,
}

#[derive(Default)]
pub(crate) struct Faults {
    /// Writes to fresh tables fail.
    writes: AtomicBool,
    /// The pointer cannot be moved.
    pointer: AtomicBool,
    /// It is moved, and nobody knows whether for good.
    pub(crate) durability: AtomicBool,
}

fn fault(flag: &AtomicBool, what: &str) -> Result<(), StoreError> {
    match flag.load(Ordering::Relaxed) {
        true => Err(StoreError::Backend(what.to_owned())),
        false => Ok(()),
    }
}

struct Faulty {
    table: MemoryTable,
    faults: Arc<Faults>,
    keys_first: bool,
}

impl Table for Faulty {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.table.get(key)
    }

    fn page(&self, from: &[u8], to: &[u8], limit: usize, bytes: usize) -> Result<Vec<Pair>, StoreError> {
        self.table.page(from, to, limit, bytes)
    }

    fn last_key(&self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.table.last_key(from, to)
    }

    fn apply(&self, batch: Batch) -> Result<(), StoreError> {
        fault(&self.faults.writes, "the fresh table cannot be written")?;
        self.table.apply(batch)
    }

    fn wants_keys_first(&self) -> bool {
        self.keys_first
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.table.flush()
    }

    fn reopen(&self) -> Result<(), StoreError> {
        self.table.reopen()
    }
}

impl Site for MemorySite {
    fn current(&self) -> u64 {
        self.current.load(Ordering::Relaxed)
    }

    fn size(&self) -> Result<u64, StoreError> {
        Ok(0)
    }

    fn make(&self) -> Result<(u64, Box<dyn Table>), StoreError> {
        // What is in use is written through the same kind of table: its faults are those of fresh ones only.
        let faults = Arc::clone(&self.faults);
        let number = self.current() + 1;
        // As one backend wants it, and then as the other.
        let fresh = Faulty { table: MemoryTable::default(), faults, keys_first: number % 2 == 1 };
        Ok((number, Box::new(fresh)))
    }

    fn point_at(&self, number: u64) -> Result<Pointed, StoreError> {
        fault(&self.faults.pointer, "the pointer cannot be moved")?;
        self.current.store(number, Ordering::Relaxed);
        Ok(match fault(&self.faults.durability, "the pointer may be moved") {
            Ok(()) => Pointed::Durably,
            Err(error) => Pointed::Perhaps(error),
        })
    }

    fn try_writing(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn sync(&self) -> Result<(), StoreError> {
        fault(&self.faults.durability, "the pointer may be moved")
    }

    fn remove(&self, number: u64) -> Result<(), StoreError> {
        assert_ne!(number, self.current(), "what is in use is not removed");
        Ok(())
    }
}

type Model = std::collections::BTreeMap<Vec<u8>, Vec<u8>>;

fn in_hand() -> Arc<InHand> {
    Arc::new(InHand::new(Duration::from_secs(60)))
}

/// All pairs but the count of what was removed, which is not the model's.
fn content(table: &dyn Table) -> Model {
    let pairs = table.scan(b"", END, usize::MAX).unwrap();
    pairs.into_iter().filter(|(key, _)| *key != keys::REMOVED).collect()
}

fn put(switch: &Switch, model: &mut Model, changes: &[(Vec<u8>, Option<Vec<u8>>)]) {
    switch.apply(changes.iter().cloned().collect()).unwrap();
    for (key, value) in changes.iter().cloned().collect::<Batch>() {
        match value {
            Some(value) => drop(model.insert(key, value)),
            None => drop(model.remove(&key)),
        }
    }
}

#[derive(Clone, Debug)]
enum Act {
    Put(Vec<(u8, u8)>),
    Remove(Vec<u8>),
    Begin,
    Slice(usize),
    Exchange,
    Abandon,
    /// Something fails from now on, or does not any more.
    Fault(u8, bool),
    Reopen,
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => vec((any::<u8>(), any::<u8>()), 1..6).prop_map(Act::Put),
        3 => vec(any::<u8>(), 1..6).prop_map(Act::Remove),
        2 => Just(Act::Begin),
        8 => (1_usize..80).prop_map(Act::Slice),
        3 => Just(Act::Exchange),
        1 => Just(Act::Abandon),
        2 => (0_u8..3, any::<bool>()).prop_map(|(which, is)| Act::Fault(which, is)),
        1 => Just(Act::Reopen),
    ]
}

/// Only what is copied to is to fail: a table that came into use by an exchange is well.
fn spare_current(switch: &Switch, faults: &Faults) {
    if switch.site().unwrap().current() > 0 {
        faults.writes.store(false, Ordering::Relaxed);
    }
}

fn key(number: u8) -> Vec<u8> {
    [keys::LOGS, &[number]].concat()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_holds_what_was_written_whatever_a_copy_does(acts in vec(acts(), 1..80)) {
        let site = Arc::new(MemorySite::default());
        let faults = Arc::clone(&site.faults);
        let switch = Switch::new(Box::<MemoryTable>::default(), Some(site), in_hand()).unwrap();
        let mut model = Model::new();
        let mut removed = 0;
        for act in acts {
            match act {
                Act::Put(pairs) => {
                    spare_current(&switch, &faults);
                    let changes: Vec<_> =
                        pairs.into_iter().map(|(at, size)| (key(at), Some(vec![at; usize::from(size)]))).collect();
                    put(&switch, &mut model, &changes);
                }
                Act::Remove(places) => {
                    spare_current(&switch, &faults);
                    let changes: Batch = places.into_iter().map(|at| (key(at), None)).collect();
                    removed += changes.keys().filter_map(|at| Some(at.len() + model.get(at)?.len())).sum::<usize>();
                    put(&switch, &mut model, &changes.into_iter().collect::<Vec<_>>());
                }
                Act::Begin => switch.begin().unwrap(),
                Act::Slice(bytes) => {
                    if switch.copy_slice(bytes).is_err() {
                        switch.abandon();
                    }
                }
                Act::Exchange => {
                    let mut ended = switch.copy_slice(usize::MAX);
                    while let Ok(Slice::Copied(_)) = ended {
                        ended = switch.copy_slice(usize::MAX);
                    }
                    match ended.and_then(|_| switch.exchange()) {
                        Ok(Ok(retired)) => {
                            retired.remove();
                            removed = 0;
                        }
                        Ok(Err(_)) => {
                            removed = 0;
                            // As the writer does it: nothing is written before it is open again.
                            prop_assert!(switch.reopen().is_err());
                            faults.durability.store(false, Ordering::Relaxed);
                            switch.reopen().unwrap();
                        }
                        Err(_) => drop(switch.abandon()),
                    }
                }
                Act::Abandon => drop(switch.abandon()),
                Act::Fault(which, is) => {
                    [&faults.writes, &faults.pointer, &faults.durability][usize::from(which)].store(is, Ordering::Relaxed);
                }
                Act::Reopen => {
                    switch.reopen().unwrap();
                    prop_assert!(!switch.is_copying());
                }
            }
            prop_assert_eq!(content(&switch), model.clone());
            prop_assert_eq!(switch.removed(), removed as u64);
        }
    }
}

#[test]
fn what_was_seen_before_it_was_opened_again_is_never_taken_for_durable() {
    let switch = Switch::new(Box::<MemoryTable>::default(), None, in_hand()).unwrap();
    let closing = AtomicBool::new(false);
    let mut model = Model::new();
    put(&switch, &mut model, &[(key(1), Some(vec![1]))]);
    let before = switch.reopened();
    switch.flush().unwrap();
    switch.wait_until_durable(before, &closing).unwrap();
    put(&switch, &mut model, &[(key(1), None)]);
    switch.reopen().unwrap();
    switch.flush().unwrap();
    let error = switch.wait_until_durable(before, &closing).unwrap_err().to_string();
    assert!(error.contains("opened again"), "{error}");
    switch.wait_until_durable(switch.reopened(), &closing).unwrap();
    put(&switch, &mut model, &[(key(1), Some(vec![2]))]);
    closing.store(true, Ordering::Relaxed);
    let closed = switch.wait_until_durable(switch.reopened(), &closing);
    assert!(matches!(closed, Err(StoreError::Closed)), "it was not flushed");
}

/// A copy of everything as it is: what a crash would leave, with all that was written to files.
fn crashed(data: &Path) -> tempfile::TempDir {
    fn copy(from: &Path, to: &Path) {
        fs_err::create_dir_all(to).unwrap();
        for entry in fs_err::read_dir(from).unwrap() {
            let (entry, to) = (entry.unwrap().path(), to.to_owned());
            let target = to.join(entry.file_name().unwrap());
            match entry.is_dir() {
                true => copy(&entry, &target),
                false => assert!(fs_err::copy(&entry, &target).is_ok()),
            }
        }
    }
    let directory = tempfile::tempdir().unwrap();
    copy(data, directory.path());
    directory
}

fn open(data: &Path, backend: Backend) -> (Arc<DiskSite>, Switch) {
    let lock = Arc::new(DataLock::take(data).unwrap());
    let format = inspect(data).unwrap().map_or_else(|| FormatFile::create(data, backend), Ok).unwrap();
    let (site, table) = DiskSite::open(data, Arc::new(format), lock).unwrap();
    let site = Arc::new(site);
    let switch = Switch::new(table, Some(Arc::clone(&site) as _), in_hand()).unwrap();
    (site, switch)
}

#[test]
fn a_crash_after_any_step_leaves_all_that_was_flushed_and_one_database() {
    for backend in Backend::ALL {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        let (_site, switch) = open(data, backend);
        let mut model = Model::new();
        let value = |number: u8, round: u8| Some(vec![number ^ round; 200]);
        let first: Vec<_> = (0..100).map(|number| (key(number), value(number, 0))).collect();
        put(&switch, &mut model, &first);
        switch.flush().unwrap();
        let survives = |step: &str, model: &Model| {
            let crashed = crashed(data);
            let (site, found) = open(crashed.path(), backend);
            assert_eq!(content(&found), *model, "{backend}, {step}");
            let databases = fs_err::read_dir(crashed.path()).unwrap().filter(|entry| {
                entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with(backend.name())
            });
            assert_eq!(databases.count(), 1, "{backend}, {step}");
            site.current()
        };
        assert_eq!(survives("before", &model), 0);
        let mut round = 0;
        let mut change = |model: &mut Model| {
            round += 1;
            // What is copied already, what is not yet, and what is removed.
            let changes: Vec<_> = [3, 50, 97]
                .into_iter()
                .map(|number| (key(number), value(number, round)))
                .chain([(key(10 + round), None), (key(200 + round), value(round, round))])
                .collect();
            put(&switch, model, &changes);
            switch.flush().unwrap();
        };
        switch.begin().unwrap();
        assert_eq!(survives("begun", &model), 0);
        while let Slice::Copied(_) = switch.copy_slice(5_000).unwrap() {
            assert_eq!(survives("copied", &model), 0);
            change(&mut model);
            assert_eq!(survives("written while it is copied", &model), 0);
        }
        // The steps of the exchange that leave something behind: format, then the pointer beside its place.
        fs_err::write(data.join("current.new"), format!("{backend}-1\n")).unwrap();
        assert_eq!(survives("the pointer is beside its place", &model), 0);
        let retired = switch.exchange().unwrap().unwrap();
        assert_eq!(survives("exchanged", &model), 1);
        change(&mut model);
        assert_eq!(survives("written after that", &model), 1);
        retired.remove();
        assert_eq!(survives("the old one is removed", &model), 1);
        switch.reopen().unwrap();
        assert_eq!(content(&switch), model);
        change(&mut model);
        assert_eq!(survives("opened in place", &model), 1);
    }
}

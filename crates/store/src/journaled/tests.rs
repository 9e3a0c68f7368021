use std::collections::BTreeMap;
use std::sync::Mutex;

use proptest::prelude::*;

use super::*;
use crate::memory::MemoryTable;

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A backend that forgets what was not flushed when it is opened again, and fails as told.
#[derive(Clone, Default)]
struct Disk(Arc<State>);

#[derive(Default)]
struct State {
    now: MemoryTable,
    durable: Mutex<Pairs>,
    fails: AtomicBool,
    flushes: Mutex<usize>,
}

impl Disk {
    fn all(&self) -> Pairs {
        self.0.now.page(&[], b"\xff", usize::MAX, usize::MAX).unwrap().into_iter().collect()
    }

    fn power_fails(&self) {
        let gone = self.all().into_keys().map(|key| (key, None));
        let there = self.0.durable.lock().unwrap().clone().into_iter().map(|(key, value)| (key, Some(value)));
        self.0.now.apply(gone.chain(there).collect()).unwrap();
    }

    fn check(&self) -> Result<(), StoreError> {
        match self.0.fails.load(Ordering::SeqCst) {
            true => Err(std::io::Error::from(std::io::ErrorKind::StorageFull).into()),
            false => Ok(()),
        }
    }
}

impl Table for Disk {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.now.get(key)
    }

    fn page(&self, from: &[u8], to: &[u8], limit: usize, bytes: usize) -> Result<Vec<Pair>, StoreError> {
        self.0.now.page(from, to, limit, bytes)
    }

    fn last_key(&self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.now.last_key(from, to)
    }

    fn apply(&self, batch: Batch) -> Result<(), StoreError> {
        self.check()?;
        self.0.now.apply(batch)
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.check()?;
        *self.0.durable.lock().unwrap() = self.all();
        *self.0.flushes.lock().unwrap() += 1;
        Ok(())
    }

    fn reopen(&self) -> Result<(), StoreError> {
        self.power_fails();
        Ok(())
    }
}

/// A table whose journal turns after so many bytes.
fn open(directory: &Path, disk: &Disk, turn: u64) -> Journaled {
    let mut table = Journaled::open(directory, Box::new(disk.clone())).unwrap();
    table.turn = turn;
    table
}

/// Ends as a process does that is killed, with a disk that loses what was not flushed.
fn crash(table: Journaled, disk: &Disk) {
    table.writing.lock().settled().unwrap();
    table.writing.lock().journal = None;
    drop(table);
    disk.power_fails();
}

fn put(key: &str, value: &str) -> Batch {
    Batch::from([(key.as_bytes().to_vec(), Some(value.as_bytes().to_vec()))])
}

#[derive(Clone, Debug)]
enum Step {
    Apply(Vec<(u8, Option<u8>)>),
    Flush,
    Crash,
    Reopen,
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let change = (0..40_u8, proptest::option::weighted(0.7, any::<u8>()));
    let step = prop_oneof![
        8 => proptest::collection::vec(change, 1..6).prop_map(Step::Apply),
        8 => Just(Step::Flush),
        1 => Just(Step::Crash),
        1 => Just(Step::Reopen),
        1 => Just(Step::Close),
    ];
    proptest::collection::vec(step, 1..80)
}

fn key(number: u8) -> Vec<u8> {
    // On both sides of the mark.
    format!("{}/{number:02}", if number.is_multiple_of(2) { "l" } else { "s" }).into_bytes()
}

fn check(table: &Journaled, model: &Pairs) {
    let all = table.page(b"a", b"z", usize::MAX, usize::MAX).unwrap();
    assert_eq!(all.into_iter().collect::<Pairs>(), *model);
    for number in 0..40 {
        assert_eq!(table.get(&key(number)).unwrap().as_ref(), model.get(&key(number)));
    }
    for (from, to) in [("a", "z"), ("l/", "l0"), ("l/07", "s/09"), ("m/", "m0"), ("s/20", "s/20")] {
        let (from, to) = (from.as_bytes(), to.as_bytes());
        let range = || model.range(from.to_vec()..to.to_vec());
        assert_eq!(table.last_key(from, to).unwrap().as_ref(), range().next_back().map(|(key, _)| key));
        for (limit, bytes) in [(0, 10), (1, 10), (3, usize::MAX), (7, 40), (usize::MAX, 25)] {
            let expected = range().map(|(key, value)| Ok::<_, ()>((key.clone(), value.clone())));
            let expected = crate::table::take(expected, limit, bytes).unwrap();
            assert_eq!(table.page(from, to, limit, bytes).unwrap(), expected, "{limit} of {bytes} bytes");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn it_is_a_table_that_keeps_what_was_flushed(steps in steps(), turn in prop_oneof![Just(60_u64), Just(400), Just(100_000)]) {
        let (directory, disk) = (tempfile::tempdir().unwrap(), Disk::default());
        let (mut model, mut durable) = (Pairs::new(), Pairs::new());
        let mut table = open(directory.path(), &disk, turn);
        for step in steps {
            match step {
                Step::Apply(changes) => {
                    let changes: Batch =
                        changes.into_iter().map(|(number, value)| (key(number), value.map(|value| vec![value; 9]))).collect();
                    for (key, value) in changes.clone() {
                        match value {
                            Some(value) => drop(model.insert(key, value)),
                            None => drop(model.remove(&key)),
                        }
                    }
                    table.apply(changes).unwrap();
                }
                Step::Flush => {
                    table.flush().unwrap();
                    durable = model.clone();
                }
                Step::Crash => {
                    crash(table, &disk);
                    model = durable.clone();
                    table = open(directory.path(), &disk, turn);
                }
                Step::Reopen => {
                    table.reopen().unwrap();
                    model = durable.clone();
                }
                Step::Close => {
                    table.flush().unwrap();
                    drop(table);
                    durable = model.clone();
                    disk.power_fails();
                    let stored = disk.all().into_iter().filter(|(key, _)| *key != *keys::JOURNAL);
                    prop_assert_eq!(stored.collect::<Pairs>(), model.clone(), "without its journal");
                    table = open(directory.path(), &disk, turn);
                }
            }
            check(&table, &model);
        }
    }
}

#[test]
fn the_backend_is_flushed_once_for_many_rounds() {
    let (directory, disk) = (tempfile::tempdir().unwrap(), Disk::default());
    let table = open(directory.path(), &disk, 10_000);
    for number in 0..1_000 {
        table.apply(put("l/hot", &format!("{number:050}"))).unwrap();
        table.flush().unwrap();
    }
    table.writing.lock().settled().unwrap();
    // About 100 bytes each.
    assert!((5..=20).contains(&*disk.0.flushes.lock().unwrap()), "{}", disk.0.flushes.lock().unwrap());
}

#[test]
fn a_fresh_table_is_filled_without_a_journal() {
    let (directory, disk) = (tempfile::tempdir().unwrap(), Disk::default());
    let table = open(directory.path(), &disk, 10_000);
    for number in 0..100 {
        table.apply(put(&format!("l/{number}"), "value")).unwrap();
    }
    assert!(fs_err::read_dir(directory.path()).unwrap().next().is_none());
    assert_eq!(disk.all().len(), 100);
    table.flush().unwrap();
    assert!(directory.path().join("journal-0").exists());
}

#[test]
fn what_cannot_be_settled_fails_the_next_flush_and_is_not_lost() {
    let (directory, disk) = (tempfile::tempdir().unwrap(), Disk::default());
    let table = open(directory.path(), &disk, 100);
    table.apply(put("l/1", "first")).unwrap();
    table.flush().unwrap();
    disk.0.fails.store(true, Ordering::SeqCst);
    table.apply(put("l/2", &"second".repeat(20))).unwrap();
    table.flush().unwrap();
    // The thread has failed by then.
    let error = loop {
        table.apply(put("l/3", "third")).unwrap();
        if let Err(error) = table.flush() {
            break error;
        }
        thread::yield_now();
    };
    assert!(error.suspension().is_some(), "{error}");
    assert!(table.apply(put("l/4", "fourth")).is_err() && table.flush().is_err());
    assert_eq!(table.get(b"l/2").unwrap(), Some("second".repeat(20).into_bytes()));
    table.reopen().unwrap();
    assert_eq!(table.get(b"l/2").unwrap(), Some("second".repeat(20).into_bytes()));
    disk.0.fails.store(false, Ordering::SeqCst);
    table.reopen().unwrap();
    table.apply(put("l/5", "fifth")).unwrap();
    table.flush().unwrap();
    drop(table);
    let table = open(directory.path(), &disk, 100);
    assert_eq!(table.get(b"l/2").unwrap(), Some("second".repeat(20).into_bytes()));
    assert_eq!(table.get(b"l/5").unwrap(), Some(b"fifth".to_vec()));
}

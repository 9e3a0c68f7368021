use std::path::PathBuf;

use proptest::prelude::*;
use tokio_util::sync::CancellationToken;

use super::super::directory::Directory;
use super::super::walk::Limits;
use super::*;

/// Collects paths; counts those that it saw.
struct Collect<'a> {
    seen: AtomicUsize,
    enough: usize,
    on_visit: &'a (dyn Fn(usize) + Sync),
}

impl<'a> Collect<'a> {
    fn new(on_visit: &'a (dyn Fn(usize) + Sync)) -> Self {
        Self { seen: AtomicUsize::new(0), enough: usize::MAX, on_visit }
    }
}

impl Work for Collect<'_> {
    type Hand = usize;
    type Batch = Vec<PathBuf>;

    fn hand(&self) -> usize {
        0
    }

    fn visit(&self, hand: &mut usize, batch: &mut Vec<PathBuf>, found: &Found<'_>) {
        *hand += 1;
        let seen = self.seen.fetch_add(1, Ordering::SeqCst) + 1;
        batch.push(found.path.to_owned());
        (self.on_visit)(seen);
    }

    fn has_enough(&self) -> bool {
        self.seen.load(Ordering::SeqCst) >= self.enough
    }
}

fn tree(directories: usize, files: usize) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for directory in 0..directories {
        let path = root.path().join(format!("d{:02}/e{directory}", directory % 10));
        fs_err::create_dir_all(&path).unwrap();
        for file in 0..files {
            fs_err::write(path.join(format!("f{file}")), "").unwrap();
            fs_err::write(path.parent().unwrap().join(format!("f{file}")), "").unwrap();
        }
    }
    root
}

#[allow(clippy::disallowed_methods)]
fn start(root: &tempfile::TempDir) -> Start {
    Start::at(Directory::new(std::fs::File::open(root.path()).unwrap().into()))
}

fn walk(cancel: &CancellationToken) -> Walk<'_> {
    Walk { hidden: false, depth: usize::MAX, limits: Limits::default(), cancel }
}

/// Files in the order of a walk by one thread.
fn sequential(root: &tempfile::TempDir) -> Vec<PathBuf> {
    let cancel = CancellationToken::new();
    let mut paths = Vec::new();
    walk(&cancel).run(start(root), &mut |found| {
        if !root.path().join(found.path).is_dir() {
            paths.push(found.path.to_owned());
        }
        Flow::Go
    });
    paths
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn the_order_is_that_of_paths_whatever_thread_is_fast() {
    let root = tree(120, 15);
    let expected = sequential(&root);
    let cancel = CancellationToken::new();
    for round in 0..5 {
        let slow = |seen: usize| {
            if (seen + round).is_multiple_of(97) {
                thread::sleep(std::time::Duration::from_millis(2));
            }
        };
        let mut paths = Vec::new();
        let work = Collect::new(&slow);
        let (report, hands) = sweep(&walk(&cancel), start(&root), &work, &mut |batch| {
            paths.extend(batch);
            Flow::Go
        });
        assert_eq!(report, Report { outcome: Outcome::Complete, unreadable: 0 });
        assert_eq!(paths, expected);
        assert_eq!(hands.iter().sum::<usize>(), expected.len(), "every hand comes back");
    }
}

#[test]
fn it_stops_when_it_is_told_to() {
    let root = tree(120, 15);
    let expected = sequential(&root);
    let cancel = CancellationToken::new();
    let work = Collect::new(&|_| ());
    let mut paths = Vec::new();
    let (report, _) = sweep(&walk(&cancel), start(&root), &work, &mut |batch| {
        paths.extend(batch);
        Flow::Stop
    });
    assert_eq!(report.outcome, Outcome::Stopped);
    assert_eq!(paths, expected[..paths.len()]);
    assert!(!paths.is_empty() && paths.len() <= FILES, "nothing is taken after the stop");

    let mut work = Collect::new(&|_| ());
    work.enough = 100;
    let mut count = 0;
    let (report, _) = sweep(&walk(&cancel), start(&root), &work, &mut |batch: Vec<PathBuf>| {
        count += batch.len();
        Flow::Go
    });
    assert_eq!(report.outcome, Outcome::Stopped);
    assert!(count >= 100 && count < expected.len(), "{count}: what was begun is done, and no more is begun");
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_cancelled_one_looks_at_nothing_more() {
    let root = tree(120, 15);
    let cancel = CancellationToken::new();
    let cancels = |seen: usize| {
        if seen == 10 {
            cancel.cancel();
        }
    };
    let work = Collect::new(&cancels);
    let (report, _) = sweep(&walk(&cancel), start(&root), &work, &mut |_| Flow::Go);
    assert_eq!(report.outcome, Outcome::Cancelled);
    // Each thread may be in the middle of one file.
    assert!(work.seen.load(Ordering::SeqCst) <= 10 + MOST_HELPERS);
}

#[test]
fn limits_hold() {
    let root = tree(40, 15);
    let cancel = CancellationToken::new();
    let work = Collect::new(&|_| ());
    let limits = Limits { time: std::time::Duration::ZERO, ..Limits::default() };
    let late = Walk { limits, ..walk(&cancel) };
    assert_eq!(sweep(&late, start(&root), &work, &mut |_| Flow::Go).0.outcome, Outcome::Time);
    assert_eq!(work.seen.load(Ordering::SeqCst), 0);
    let few = Walk { limits: Limits { entries: 50, ..Limits::default() }, ..walk(&cancel) };
    assert_eq!(sweep(&few, start(&root), &work, &mut |_| Flow::Go).0.outcome, Outcome::Entries);
    assert!(work.seen.load(Ordering::SeqCst) <= 50);
}

#[test]
fn a_panic_ends_it_and_is_not_lost() {
    let root = tree(120, 15);
    let panics = |seen: usize| assert!(seen != 700, "on purpose");
    let caught = std::panic::catch_unwind(|| {
        let cancel = CancellationToken::new();
        sweep(&walk(&cancel), start(&root), &Collect::new(&panics), &mut |_| Flow::Go).0
    });
    assert!(caught.is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn nothing_is_lost_or_seen_twice(names in prop::collection::btree_set("[ab]/[ab]/[a-e]{1,2}|[ab]/[c-e]{1,2}|[c-z]", 0..80)) {
        let root = tempfile::tempdir().unwrap();
        for name in &names {
            fs_err::create_dir_all(root.path().join(name).parent().unwrap()).unwrap();
            fs_err::write(root.path().join(name), "").unwrap();
        }
        let cancel = CancellationToken::new();
        let mut paths = Vec::new();
        sweep(&walk(&cancel), start(&root), &Collect::new(&|_| ()), &mut |batch| {
            paths.extend(batch);
            Flow::Go
        });
        prop_assert_eq!(paths.len(), names.len());
        prop_assert_eq!(paths, sequential(&root));
    }
}

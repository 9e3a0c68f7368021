//! Space comes back while the store is in use, whenever it is cut off.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fs_err as fs;
use playhouse_protocol::{Record, Seq};
use playhouse_store::{Backend, Reclaim, Store, StoreError, StoreOptions};

use crate::raw;
use crate::samples::*;

/// How long is waited for what happens by itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store that gives space back soon.
fn eager(data: &Path, backend: Backend) -> Store {
    let reclaim =
        Reclaim { least: 1024 * 1024, quiet: Duration::from_millis(50), grace: Duration::from_millis(50) };
    Store::open_with(data, &StoreOptions { backend, reclaim }).unwrap()
}

/// What a directory takes up on the disk, as `du` counts it.
fn taken_up(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).unwrap().filter_map(Result::ok);
    entries
        .map(|entry| match fs::symlink_metadata(entry.path()) {
            // Removed meanwhile.
            Err(_) => 0,
            Ok(found) if found.is_dir() => found.blocks() * 512 + taken_up(&entry.path()),
            Ok(found) => found.blocks() * 512,
        })
        .sum()
}

fn text(number: u64, seq: u64, size: usize) -> Record {
    proposed(number, &letters(size, number * 1_000 + seq))
}

/// A session with records of this size in the log, and one in a blob.
fn fill(store: &Store, number: u64, records: u64, size: usize) {
    create(store, session(number));
    for seq in 1..=records {
        append(store, session(number), seq, vec![text(number, seq, size)]).unwrap();
    }
    append(store, session(number), records + 1, vec![text(number, records + 1, 100_000)]).unwrap();
}

fn wait_until(what: impl Fn() -> String, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {}", what());
        thread::sleep(Duration::from_millis(20));
    }
}

fn is_good(store: &Store) {
    let report = store.upkeep.check().unwrap();
    assert_eq!((report.problems, report.more), (Vec::new(), 0));
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn after_deleting_half_of_the_sessions_half_of_the_space_comes_back_by_itself() {
    for backend in Backend::ALL {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        let store = eager(data, backend);
        const SESSIONS: u64 = 16;
        for number in 1..=SESSIONS {
            fill(&store, number, 40, 50_000);
        }
        let kept: Vec<_> =
            (2..=SESSIONS).step_by(2).map(|number| read_all(&store, session(number))).collect();
        let before = taken_up(data);
        assert!(before > 32_000_000, "{backend}: {before}");
        for number in (1..=SESSIONS).step_by(2) {
            delete(&store, session(number)).unwrap();
        }
        let blobs = || taken_up(&data.join("blobs"));
        // Some of sled's file is there for what comes next: two segments.
        let slack = 16 * 1024 * 1024;
        let sizes = || format!("{backend}: {before} became {}, blobs {}", taken_up(data), blobs());
        wait_until(sizes, || taken_up(data) < before * 6 / 10 + slack && blobs() < 1_500_000);
        // In service, and for good.
        append(&store, session(2), 42, vec![titled("later")]).unwrap();
        for (index, entries) in kept.iter().enumerate() {
            let found = read_all(&store, session(2 * (index as u64 + 1)));
            assert_eq!(found[..entries.len()], entries[..]);
        }
        is_good(&store);
        let live = store.blobs.put(TENANT, b"as ever").unwrap();
        drop(store);
        assert!(data.join("current").is_file(), "it lies elsewhere now");
        assert!(!data.join(backend.name()).exists(), "the old database is gone");
        assert!(fs::read_to_string(data.join("format.json")).unwrap().contains("\"version\":5"));
        let store = eager(data, backend);
        // First of all: no record names it, and the grace of this store is short.
        assert_eq!(store.blobs.get(TENANT, &live).unwrap(), b"as ever");
        assert_eq!(read_all(&store, session(2)).len(), kept[0].len() + 1);
        is_good(&store);
    }
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn what_was_removed_before_a_start_counts_after_it() {
    for backend in Backend::ALL {
        let directory = tempfile::tempdir().unwrap();
        // Waits longer than this test for a quiet moment.
        let late = Reclaim { least: 1024 * 1024, quiet: Duration::from_secs(3_600), ..Reclaim::default() };
        let store = Store::open_with(directory.path(), &StoreOptions { backend, reclaim: late }).unwrap();
        (1..=8).for_each(|number| fill(&store, number, 80, 50_000));
        // Less than a quarter, or half: it waits.
        delete(&store, session(3)).unwrap();
        delete(&store, session(4)).unwrap();
        drop(store);
        assert!(!directory.path().join("current").exists());
        let reclaim = Reclaim { least: 1024 * 1024, quiet: Duration::from_millis(50), ..Reclaim::default() };
        let store = Store::open_with(directory.path(), &StoreOptions { backend, reclaim }).unwrap();
        // What was removed before, and now, is a quarter of what 32 MB take up.
        for number in 5..=8 {
            delete(&store, session(number)).unwrap();
        }
        wait_until(|| format!("{backend}: the compaction"), || directory.path().join("current").exists());
        assert_eq!(read_all(&store, session(2)).len(), 82);
    }
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn writers_and_readers_go_on_while_it_moves_again_and_again() {
    for backend in Backend::ALL {
        let directory = tempfile::tempdir().unwrap();
        let store = eager(directory.path(), backend);
        let done = AtomicBool::new(false);
        let models = thread::scope(|scope| {
            let writers: Vec<_> = (0..4_u64)
                .map(|writer| {
                    let (store, done) = (&store, &done);
                    scope.spawn(move || write(store, writer, done))
                })
                .collect();
            let reader = scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    for number in (0..4).map(|writer| writer * 100 + 1) {
                        match store.log.read(session(number), Seq::START, usize::MAX) {
                            Ok(read) => {
                                assert_eq!(read.damage, None);
                                assert_eq!(read.entries, entries(0, expected(number, read.entries.len())));
                            }
                            Err(StoreError::Missing(_)) => {}
                            Err(error) => panic!("{error}"),
                        }
                        store.log.list(&Default::default()).unwrap();
                    }
                }
            });
            let places: Vec<_> = (0..5)
                .map(|_| {
                    let reclaimed = store.upkeep.reclaim().unwrap();
                    assert!(reclaimed.before > 0 && reclaimed.after > 0, "{reclaimed:?}");
                    fs::read_to_string(directory.path().join("current")).unwrap()
                })
                .collect();
            assert!(places.windows(2).all(|pair| pair[0] != pair[1]), "{places:?}");
            done.store(true, Ordering::SeqCst);
            reader.join().unwrap();
            writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect::<BTreeMap<_, _>>()
        });
        let check = |store: &Store| {
            for (number, count) in &models {
                assert_eq!(read_all(store, session(*number)), entries(0, expected(*number, *count)));
            }
            assert_eq!(store.log.count(TENANT).unwrap(), models.len() as u64);
            is_good(store);
        };
        check(&store);
        drop(store);
        check(&eager(directory.path(), backend));
    }
}

/// The first records of a session that [`write`] writes.
fn expected(number: u64, count: usize) -> Vec<Record> {
    let rest = (1..).map(|seq| text(number, seq, 2_000));
    std::iter::once(created(session(number), TENANT, "/w")).chain(rest).take(count).collect()
}

/// Appends to sessions and deletes some of them until it is told to end. How many records each has then.
fn write(store: &Store, writer: u64, done: &AtomicBool) -> BTreeMap<u64, usize> {
    let mut sessions = BTreeMap::<u64, usize>::new();
    for step in 0.. {
        if done.load(Ordering::SeqCst) {
            break;
        }
        let number = writer * 100 + 1 + step % 7;
        let count = sessions.get(&number).copied().unwrap_or(0);
        if count > 20 {
            delete(store, session(number)).unwrap();
            sessions.remove(&number);
            continue;
        }
        let records = expected(number, count + 2).split_off(count);
        append(store, session(number), count as u64, records).unwrap();
        sessions.insert(number, count + 2);
    }
    sessions
}

const CHILD: &str = "PLAYHOUSE_STORE_TEST_COMPACTION";

/// Not a test by itself: the process that [`a_compaction_survives_a_kill_at_any_time`] starts and kills.
#[test]
fn process_that_compacts() {
    let Some(told) = std::env::var_os(CHILD) else { return };
    let told = told.into_string().unwrap();
    let (backend, data) = told.split_once(' ').unwrap();
    let store = eager(Path::new(data), backend.parse().unwrap());
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for number in 1..=6 {
        let read = store.log.read(session(number), Seq::START, usize::MAX);
        counts.insert(number, read.map_or(0, |read| read.entries.len() as u64));
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                store.upkeep.reclaim().unwrap();
                println!("compacted");
            }
        });
        let mut stdout = std::io::stdout();
        for step in 0_u64.. {
            let number = 1 + step % 6;
            let count = counts[&number];
            // Said before and after: what is between may be either.
            if count > 30 {
                writeln!(stdout, "deleting {number} 0").unwrap();
                delete(&store, session(number)).unwrap();
                counts.insert(number, 0);
            } else {
                let records = expected(number, count as usize + 3).split_off(count as usize);
                append(&store, session(number), count, records).unwrap();
                counts.insert(number, count + 3);
            }
            writeln!(stdout, "acknowledged {number} {}", counts[&number]).unwrap();
        }
    });
}

#[test]
fn a_compaction_survives_a_kill_at_any_time() {
    for backend in Backend::ALL {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        // What the checker was told: how many records each session has, and which may be gone.
        let mut told: BTreeMap<u64, u64> = BTreeMap::new();
        let mut compactions = 0;
        for round in 0..3_u64 {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["compaction::process_that_compacts", "--exact", "--nocapture"])
                .env(CHILD, format!("{backend} {}", data.display()))
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let (mut deleting, mut acknowledged) = (None, 0);
            for line in BufReader::new(child.stdout.take().unwrap()).lines() {
                let line = line.unwrap();
                compactions += u32::from(line.contains("compacted"));
                let words: Vec<&str> = line.split_whitespace().rev().take(3).collect();
                if let [count, number, what] = words[..]
                    && let (Ok(count), Ok(number)) = (count.parse::<u64>(), number.parse::<u64>())
                {
                    match what {
                        "deleting" => deleting = Some(number),
                        "acknowledged" => {
                            deleting = None;
                            told.insert(number, count);
                            acknowledged += 1;
                            // At another point of a copy each time.
                            if acknowledged == 60 + round * 37 {
                                child.kill().unwrap();
                            }
                        }
                        _ => {}
                    }
                }
            }
            child.wait().unwrap();
            assert!(acknowledged >= 60, "{backend}: {acknowledged}");
            let store = eager(data, backend);
            for (number, least) in &mut told {
                let found = match store.log.read(session(*number), Seq::START, usize::MAX) {
                    Err(StoreError::Missing(_)) => 0,
                    read => {
                        let read = read.unwrap();
                        assert_eq!(read.damage, None);
                        assert_eq!(read.entries, entries(0, expected(*number, read.entries.len())));
                        read.entries.len() as u64
                    }
                };
                let may_be_gone = deleting == Some(*number) && found == 0;
                assert!(found >= *least || may_be_gone, "{backend}, session {number}: {found} of {least}");
                *least = found;
            }
            is_good(&store);
            drop(store);
            let databases = fs::read_dir(data).unwrap().filter(|entry| {
                let name = entry.as_ref().unwrap().file_name();
                name.to_str().unwrap().starts_with(backend.name())
            });
            assert_eq!(databases.count(), 1, "what was left by the kill is gone");
        }
        assert!(compactions > 0, "{backend}: none was finished");
    }
}

#[test]
fn a_pointer_that_leads_nowhere_is_refused_and_left_alone() {
    for backend in Backend::ALL {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        let store = open(data, Some(backend));
        create(&store, session(1));
        store.upkeep.reclaim().unwrap();
        drop(store);
        let place = raw::place(data, backend);
        assert_eq!(place, data.join(format!("{backend}-1")));
        // Leftovers of a compaction that was cut off go; others have nothing to do with it.
        for name in
            [backend.name().to_owned(), format!("{backend}-2"), format!("{backend}-x"), "sledge".to_owned()]
        {
            fs::create_dir_all(data.join(name)).unwrap();
        }
        fs::write(data.join("current.new"), "half").unwrap();
        assert_eq!(read_all(&open(data, Some(backend)), session(1)).len(), 1);
        assert!(!data.join(backend.name()).exists() && !data.join(format!("{backend}-2")).exists());
        assert!(data.join(format!("{backend}-x")).exists() && data.join("sledge").exists());
        let good = fs::read_to_string(data.join("current")).unwrap();
        for (pointer, expected) in [
            (format!("{backend}-7\n"), "names a database that is not there"),
            ("../elsewhere\n".to_owned(), "does not name a database"),
            (String::new(), "does not name a database"),
        ] {
            fs::write(data.join("current"), pointer).unwrap();
            let error = Store::open(data).unwrap_err();
            assert!(matches!(error, StoreError::Format { .. }), "{error}");
            assert!(error.to_string().contains(expected), "{error}");
            assert!(place.is_dir());
        }
        fs::write(data.join("current"), good).unwrap();
        assert_eq!(read_all(&open(data, Some(backend)), session(1)).len(), 1);
    }
}

#[test]
fn a_data_directory_keeps_its_backend() {
    for [is, wanted] in [[Backend::Sled, Backend::Redb], [Backend::Redb, Backend::Sled]] {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), Some(is));
        create(&store, session(1));
        drop(store);
        let store = open(directory.path(), Some(wanted));
        assert_eq!(read_all(&store, session(1)).len(), 1);
        drop(store);
        assert!(directory.path().join(is.name()).is_dir() && !directory.path().join(wanted.name()).exists());
        let format = fs::read_to_string(directory.path().join("format.json")).unwrap();
        assert!(format.contains(&format!("\"version\":5,\"backend\":\"{is}\"")), "{format}");
    }
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_compacted_database_is_little_more_than_what_is_in_it() {
    for backend in Backend::ALL {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        let store = open(data, Some(backend));
        const SESSIONS: u64 = 16;
        for number in 1..=SESSIONS {
            fill(&store, number, 60, 40_000);
        }
        store.upkeep.reclaim().unwrap();
        drop(store);
        let content: usize =
            raw::pairs(data, backend).iter().map(|(key, value)| key.len() + value.len()).sum();
        let taken = taken_up(&raw::place(data, backend));
        // A segment of sled is 8 MB.
        let most = content as u64 * 17 / 10 + 8 * 1024 * 1024;
        assert!(taken < most, "{backend}: {taken} bytes for {content}");
    }
}

//! A disk that is really full: the store refuses writes, can be read, and goes on by itself when there is room.
//!
//! The process that has the store runs in a small file system of its own, in memory. That takes `bwrap` (`apt install
//! bubblewrap`).

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use fs_err as fs;
use playhouse_protocol::{Entry, Seq};
use playhouse_store::{Backend, Store, StoreError, StoreOptions, SuspensionReason};

use crate::samples::*;

/// Says to this binary that it is the process in the small file system: with which backend, and where.
const CHILD: &str = "PLAYHOUSE_TEST_SMALL_DISK";
const DISK: usize = 96 * 1024 * 1024;
const SESSIONS: u64 = 6;
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_full_disk_suspends_the_store_until_there_is_room() {
    for backend in Backend::ALL {
        let place = tempfile::tempdir().unwrap();
        let ended = Command::new("bwrap")
            .args(["--dev-bind", "/", "/", "--size", &DISK.to_string(), "--tmpfs"])
            .arg(place.path())
            .args(["--die-with-parent", "--"])
            .arg(std::env::current_exe().unwrap())
            .args(["disk::process_on_a_small_disk", "--exact", "--nocapture"])
            .env(CHILD, format!("{backend} {}", place.path().display()))
            .output()
            .expect("this needs bwrap: apt install bubblewrap");
        let (said, log) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert!(ended.status.success() && said.contains("it went on"), "{backend}: {said}\n{log}");
    }
}

/// Takes up all of the disk that is left.
fn fill(filler: &Path) {
    let mut file = fs::File::create(filler).unwrap();
    let (mut size, bytes) = (1024 * 1024, vec![1; 1024 * 1024]);
    while size > 0 {
        match file.write(&bytes[..size]) {
            Ok(0) | Err(_) => size /= 2,
            Ok(_) => {}
        }
    }
}

fn record(seq: u64) -> playhouse_protocol::Record {
    proposed(seq, &letters(5_000 + usize::try_from(seq % 7).unwrap() * 4_500, seq))
}

/// What was acknowledged is there, and nothing but what was tried.
fn holds(store: &Store, acknowledged: &BTreeMap<u64, u64>) {
    for (number, count) in acknowledged {
        is_all(*number, *count, &read_all(store, session(*number)));
    }
}

fn is_all(number: u64, count: u64, entries: &[Entry]) {
    let found = entries.len() as u64;
    assert!((count..=count + 1).contains(&found), "session {number}: {found} of {count} records");
    for entry in entries.iter().skip(1) {
        assert_eq!(entry.record, record(entry.seq.0), "session {number}, record {}", entry.seq);
    }
}

/// The same while the disk is full: a page that sled keeps in no memory, and had not written in full when it failed, cannot be read
/// until the database is opened again. Then that is said; what is read is all that was acknowledged.
fn holds_what_can_be_read(store: &Store, acknowledged: &BTreeMap<u64, u64>) {
    for (number, count) in acknowledged {
        match store.log.read(session(*number), Seq::START, usize::MAX) {
            Ok(read) => {
                assert_eq!(read.damage, None);
                is_all(*number, *count, &read.entries);
            }
            Err(error) => assert_eq!(error.suspension(), Some(SuspensionReason::Full), "{error}"),
        }
    }
}

#[test]
fn process_on_a_small_disk() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let (name, place) = told.split_once(' ').unwrap();
    let backend = Backend::ALL.into_iter().find(|backend| backend.name() == name).unwrap();
    let (data, filler) = (Path::new(place).join("data"), Path::new(place).join("filler"));
    let options = StoreOptions { backend, ..StoreOptions::default() };
    let mut store = Store::open_with(&data, &options).unwrap();
    let mut acknowledged = BTreeMap::new();
    for number in 0..SESSIONS {
        create(&store, session(number));
        acknowledged.insert(number, 1);
    }
    for round in 0..3 {
        for number in 0..SESSIONS {
            for seq in (acknowledged[&number]..).take(40) {
                append(&store, session(number), seq, vec![record(seq + 1)]).unwrap();
                acknowledged.insert(number, seq + 1);
            }
        }
        fill(&filler);
        // It may have some room of its own.
        let error = (0..10_000).find_map(|turn: u64| {
            let number = turn % SESSIONS;
            let seq = acknowledged[&number];
            let error = append(&store, session(number), seq, vec![record(seq + 1)]).err();
            if error.is_none() {
                acknowledged.insert(number, seq + 1);
            }
            error
        });
        let error = error.expect("the disk is full");
        assert!(matches!(error, StoreError::Suspended { reason: SuspensionReason::Full }), "{error}");
        assert!(error.to_string().contains("make room"), "{error}");
        let error = store.blobs.put(TENANT, &vec![7; 200_000]).unwrap_err();
        assert_eq!(error.suspension(), Some(SuspensionReason::Full), "{error}");
        // It tries in vain. Who reads is not held up.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(2_500) {
            holds_what_can_be_read(&store, &acknowledged);
            let refused = append(&store, session(0), acknowledged[&0], vec![record(1)]).unwrap_err();
            assert_eq!(refused.suspension(), Some(SuspensionReason::Full), "{refused}");
            thread::sleep(Duration::from_millis(50));
        }
        assert!(store.log.health().unwrap().since.elapsed() > Duration::from_secs(2));
        fs::remove_file(&filler).unwrap();
        let begun = Instant::now();
        while let Some(suspended) = store.log.health() {
            assert!(begun.elapsed() < PATIENCE, "it does not go on: {suspended:?}");
            thread::sleep(Duration::from_millis(20));
        }
        holds(&store, &acknowledged);
        let report = store.upkeep.check().unwrap();
        assert_eq!((report.problems, report.more), (Vec::new(), 0));
        for (number, count) in &mut acknowledged {
            *count = read_all(&store, session(*number)).len() as u64;
            *count = append(&store, session(*number), *count, vec![record(*count + 1)]).unwrap().0;
        }
        if round == 1 {
            drop(store);
            store = Store::open_with(&data, &options).unwrap();
        }
        holds(&store, &acknowledged);
    }
    drop(store);
    let store = Store::open_with(&data, &options).unwrap();
    holds(&store, &acknowledged);
    assert_eq!(store.generation, 3);
    let mut out = std::io::stdout();
    writeln!(out, "it went on").unwrap();
}

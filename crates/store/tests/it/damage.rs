//! What becomes of records that cannot be trusted: their session can be read up to there, the others are as they were.

use std::path::Path;

use fs_err as fs;
use playhouse_protocol::ledger::{ArchiveQuery, RowQuery};
use playhouse_protocol::{Record, Seq, Timestamp};
use playhouse_store::{ListQuery, Store, StoreError, frame};

use crate::samples::*;

/// A closed store with two sessions of five records each.
fn closed_store() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    for number in 1..=2 {
        create(&store, session(number));
        let records = vec![titled("a"), proposed(1, &"x".repeat(70_000)), titled("b"), admitted(1)];
        append_each(&store, session(number), 1, records);
    }
    directory
}

/// Changes the table behind the store's back.
pub(crate) fn tamper(data: &Path, change: impl FnOnce(&sled::Db)) {
    let directory = data.join("sled");
    // Threads of the closed store let go of its file a moment later; the segment size has to be the store's.
    let database = loop {
        match sled::Config::new().path(&directory).segment_size(8 << 20).open() {
            Err(error) if error.to_string().contains("could not acquire lock") => std::thread::yield_now(),
            result => break result.unwrap(),
        }
    };
    change(&database);
    database.flush().unwrap();
}

/// Removes rows of the index by tenant.
fn remove_index(database: &sled::Db, is_lost: impl Fn(&[u8]) -> bool) {
    let rows: Vec<_> = database.scan_prefix(b"t/").keys().map(Result::unwrap).collect();
    assert!(!rows.is_empty(), "the index is there");
    for key in rows.iter().filter(|key| is_lost(key)) {
        database.remove(key).unwrap();
    }
}

/// The index has these sessions, and no others.
fn check_index(store: &Store, numbers: &[u64]) {
    let sessions: Vec<_> = numbers.iter().map(|number| session(*number)).collect();
    for workspace in [None, Some("/w".to_owned())] {
        let query = ListQuery { tenant: Some(TENANT.to_owned()), workspace, ..ListQuery::default() };
        let found: Vec<_> =
            store.log.list(&query).unwrap().sessions.into_iter().map(|summary| summary.id).collect();
        let mut sorted = found.clone();
        sorted.sort_by_key(|id| std::cmp::Reverse(*id));
        assert_eq!(sorted, sessions);
    }
    let mut unfinished = store.log.unfinished_of(TENANT).unwrap();
    unfinished.sort_by_key(|id| std::cmp::Reverse(*id));
    assert_eq!(unfinished, sessions);
    assert_eq!(store.log.count(TENANT).unwrap(), numbers.len() as u64);
}

pub(crate) fn frame_key(number: u64, seq: u64) -> Vec<u8> {
    [b"l/", session(number).as_str().as_bytes(), &seq.to_be_bytes()].concat()
}

fn change_frame(data: &Path, seq: u64, change: impl FnOnce(&mut Vec<u8>)) {
    tamper(data, |database| {
        let key = frame_key(1, seq);
        let mut frame = database.get(&key).unwrap().expect("the frame is there").to_vec();
        change(&mut frame);
        database.insert(key, frame).unwrap();
    });
}

/// Opens the store: session 1 is damaged at `seq` as `reason` says, session 2 and the rest of session 1 are well.
fn check_damage(data: &Path, seq: u64, reason: &str) {
    let store = Store::open(data).unwrap();
    let read = store.log.read(session(1), Seq::START, usize::MAX).unwrap();
    let damage = read.damage.expect("the damage is seen");
    assert_eq!(damage.seq, Seq(seq), "{damage}");
    assert!(damage.to_string().contains(reason), "expected {reason:?} in {damage}");
    assert_eq!(read.entries.len() as u64, seq - 1);
    assert_eq!(read_all(&store, session(2)).len(), 5);
    append(&store, session(2), 5, vec![titled("it goes on")]).unwrap();
    assert_eq!(store.log.list(&ListQuery::default()).unwrap().sessions.len(), 2);
    // Reading again finds the same: nothing was cut off.
    assert_eq!(store.log.read(session(1), Seq::START, usize::MAX).unwrap().damage, Some(damage));
    // What is damaged can still be deleted.
    delete(&store, session(1)).unwrap();
    assert_eq!(store.log.list(&ListQuery::default()).unwrap().sessions.len(), 1);
    check_index(&store, &[2]);
    create(&store, session(1));
}

#[test]
fn a_flipped_byte_is_named() {
    for seq in [1, 3, 5] {
        let directory = closed_store();
        change_frame(directory.path(), seq, |frame| *frame.last_mut().unwrap() ^= 1);
        check_damage(directory.path(), seq, "checksum");
    }
}

#[test]
fn a_frame_that_is_cut_off_is_named() {
    let directory = closed_store();
    change_frame(directory.path(), 3, |frame| frame.truncate(5));
    check_damage(directory.path(), 3, "cut off: it has 5 bytes");
}

#[test]
fn a_newer_frame_is_named_with_both_versions() {
    let directory = closed_store();
    change_frame(directory.path(), 3, |frame| frame[1] = 3);
    check_damage(directory.path(), 3, "frame version 3; this engine reads up to 2");
}

#[test]
fn a_frame_of_another_place_is_refused() {
    let directory = closed_store();
    tamper(directory.path(), |database| {
        let other = database.get(frame_key(2, 2)).unwrap().unwrap();
        database.insert(frame_key(1, 2), other).unwrap();
    });
    check_damage(directory.path(), 2, "not its own");
}

#[test]
fn a_gap_is_named() {
    let directory = closed_store();
    tamper(directory.path(), |database| {
        database.remove(frame_key(1, 3)).unwrap().unwrap();
    });
    check_damage(directory.path(), 3, "goes on with record 4");
}

#[test]
fn a_log_that_lost_its_end_is_named() {
    for lost in [5..=5, 2..=5, 1..=5] {
        let directory = closed_store();
        let first = *lost.start();
        tamper(directory.path(), |database| {
            for seq in lost {
                database.remove(frame_key(1, seq)).unwrap().unwrap();
            }
        });
        check_damage(directory.path(), first, "should go on to record 5");
    }
}

#[test]
fn a_log_that_begins_with_another_record_is_named() {
    let directory = closed_store();
    tamper(directory.path(), |database| {
        let entry = entries(0, vec![titled("a")]).remove(0);
        let (_, frame) = frame::encode(session(1), &[entry], |_| Err(StoreError::Closed)).unwrap().remove(0);
        database.insert(frame_key(1, 1), frame).unwrap();
    });
    check_damage(directory.path(), 1, "begins with session.created, not with session.changed");
}

#[test]
fn a_lost_or_changed_blob_is_damage() {
    for (content, reason) in [(None, "has no such content"), (Some("changed"), "what is stored has 7")] {
        let directory = closed_store();
        let store = Store::open(directory.path()).unwrap();
        let call = proposed(9, &"y".repeat(80_000));
        append(&store, session(1), 5, vec![call]).unwrap();
        drop(store);
        let newest = blob_files(&directory.path().join("blobs"))
            .into_iter()
            .max_by_key(|path| fs::metadata(path).unwrap().len());
        match content {
            Some(content) => fs::write(newest.unwrap(), content).unwrap(),
            None => fs::remove_file(newest.unwrap()).unwrap(),
        }
        check_damage(directory.path(), 6, reason);
    }
}

fn blob_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { blob_files(&path) } else { vec![path] }).collect()
}

#[test]
fn a_damaged_summary_is_made_again() {
    let key = [b"s/", session(1).as_str().as_bytes()].concat();
    for damage in [None, Some(&b"nonsense"[..])] {
        let directory = closed_store();
        tamper(directory.path(), |database| {
            match damage {
                Some(damage) => database.insert(&key, damage).unwrap(),
                None => database.remove(&key).unwrap(),
            };
            // The indexes are projections as well.
            database.remove([b"u/", session(1).as_str().as_bytes()].concat()).unwrap();
            // All but the one by which it is known that the session was counted.
            let is_lost =
                |key: &[u8]| key.ends_with(session(1).as_str().as_bytes()) && key.get(2 + 16) != Some(&b'a');
            remove_index(database, is_lost);
        });
        let store = Store::open(directory.path()).unwrap();
        let expected = fold(&read_all(&store, session(1)));
        assert_eq!(store.log.summary(session(1)).unwrap(), expected);
        append(&store, session(1), 5, vec![titled("c")]).unwrap();
        assert_eq!(store.log.unfinished().unwrap(), [session(1), session(2)]);
        assert_eq!(store.log.list(&ListQuery::default()).unwrap().sessions.len(), 2);
        check_index(&store, &[2, 1]);
        drop(store);
        let store = Store::open(directory.path()).unwrap();
        assert_eq!(store.log.summary(session(1)).unwrap(), fold(&read_all(&store, session(1))));
    }
}

#[test]
fn an_index_that_counted_turns_only_is_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    create(&store, session(1));
    create(&store, session(2));
    append(&store, session(1), 1, vec![admitted(1), started(1, 1), ended(1)]).unwrap();
    drop(store);
    // As an engine left it that knew only of turns.
    tamper(directory.path(), |database| {
        let id = session(1).as_str().as_bytes().to_vec();
        database.remove([b"u/", &id[..]].concat()).unwrap().expect("it has work");
        remove_index(database, |key| key.get(2 + 16) == Some(&b'u'));
        let mark = database.get("m/index").unwrap().unwrap();
        database.insert("m/index", [&[1], &mark[1..]].concat()).unwrap();
    });
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.log.unfinished().unwrap(), [session(1)]);
    assert_eq!(store.log.unfinished_of(TENANT).unwrap(), [session(1)]);
    assert_eq!(store.upkeep.check().unwrap().problems, []);
}

#[test]
fn a_log_that_does_not_match_its_summary_takes_nothing_more() {
    let directory = closed_store();
    tamper(directory.path(), |database| {
        database.remove([b"s/", session(1).as_str().as_bytes()].concat()).unwrap();
        database.remove(frame_key(1, 3)).unwrap();
    });
    let store = Store::open(directory.path()).unwrap();
    for expected in [2, 5] {
        let error = append(&store, session(1), expected, vec![Record::Deleted {}]).unwrap_err().to_string();
        assert!(error.contains("damaged") && error.contains("record 3"), "{error}");
    }
}

/// It would be made anew from all logs, which takes as long as there are.
#[test]
fn what_an_opening_kept_that_was_cut_off_is_not_made_again() {
    let directory = closed_store();
    tamper(directory.path(), |database| {
        for mark in ["m/index", "m/ledger"] {
            let before = database.get(mark).unwrap().unwrap();
            database.insert(mark, [&before[..1], &2_u64.to_be_bytes()].concat()).unwrap();
        }
        remove_index(database, |key| key.ends_with(session(2).as_str().as_bytes()));
    });
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.generation, 2);
    let query = ListQuery { tenant: Some(TENANT.to_owned()), ..ListQuery::default() };
    assert_eq!(store.log.list(&query).unwrap().sessions.len(), 1, "the index is as it was left");
}

#[test]
fn a_damaged_row_of_the_ledger_keeps_no_other_from_those_who_read_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    create(&store, session(1));
    append(&store, session(1), 1, vec![admitted(1), Record::TurnStarted { turn: message(1) }]).unwrap();
    for number in 1..=5 {
        let seq = 3 + 2 * (number - 1);
        append(&store, session(1), seq, vec![started(number, 1), used(number, 10)]).unwrap();
    }
    drop(store);
    tamper(directory.path(), |database| {
        // The last one as well: whoever follows the feed is not told of the end without it.
        for number in [2_u64, 5] {
            let key = [&b"x/"[..], &number.to_be_bytes()].concat();
            let mut row = database.get(&key).unwrap().expect("the row is there").to_vec();
            *row.last_mut().unwrap() ^= 1;
            database.insert(key, row).unwrap();
        }
    });
    let store = Store::open(directory.path()).unwrap();
    let numbers = |after, limit| {
        let page = store.ledger.feed(after, limit).unwrap();
        page.into_iter().map(|(number, _)| number).collect::<Vec<_>>()
    };
    assert_eq!((numbers(0, 2), numbers(1, 2), numbers(4, 9)), (vec![1, 3], vec![3, 4], vec![]));
    assert_eq!(store.ledger.feed_end(), 5);
    assert_eq!(store.ledger.rows(&RowQuery::default()).unwrap().rows.len(), 3);
    let later = Timestamp::from_millis(u64::MAX);
    let page =
        store.ledger.archivable(&ArchiveQuery { before: later, up_to: None, after: 0, limit: 0 }).unwrap();
    assert_eq!((page.numbers, page.rows.len()), (vec![1, 3, 4], 3));
    // What is wrong is named.
    let problems = store.upkeep.check().unwrap().problems;
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].place.ends_with(r"x/\x00\x00\x00\x00\x00\x00\x00\x02"), "{problems:?}");
}

#[test]
fn a_store_without_its_index_or_with_one_that_was_not_kept_gets_it_when_it_is_opened() {
    let changes: [fn(&sled::Db); 3] = [
        // As an engine leaves it that knows nothing of the index: new, or opened in between.
        |database| {
            remove_index(database, |_| true);
            database.remove("m/index").unwrap().expect("the mark is there");
        },
        |database| {
            remove_index(database, |key| key.ends_with(session(2).as_str().as_bytes()));
            database.insert("k/engine/generation", "7").unwrap().expect("the generation is there");
        },
        // Of another version, with rows that mean something else.
        |database| {
            database.insert("t/something", "else").unwrap();
            let mut mark = database.get("m/index").unwrap().unwrap().to_vec();
            mark[0] += 1;
            database.insert("m/index", mark).unwrap();
        },
    ];
    for change in changes {
        let directory = closed_store();
        tamper(directory.path(), change);
        for _ in 0..2 {
            check_index(&Store::open(directory.path()).unwrap(), &[2, 1]);
        }
        let store = Store::open(directory.path()).unwrap();
        delete(&store, session(1)).unwrap();
        check_index(&store, &[2]);
    }
}

#[test]
fn a_snapshot_that_was_never_finished_is_no_damage() {
    let directory = closed_store();
    // As a full disk or a crash leaves it.
    let unfinished = directory.path().join("sled/snap.0000000000009BE3.generating");
    fs::write(&unfinished, "").unwrap();
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.log.read(session(1), Seq::START, usize::MAX).unwrap().entries.len(), 5);
    assert!(!unfinished.exists());
}

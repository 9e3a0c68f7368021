//! What is wrong is found, and named.

use fs_err as fs;
use playhouse_store::{Backend, Store};

use crate::damage::frame_key;
use crate::raw;
use crate::samples::*;

/// A closed store: a session with work, its fork, one that was deleted and kept for a fork, and a row of the ledger.
fn closed_store(backend: Backend) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Some(backend));
    for number in [1, 3] {
        create(&store, session(number));
        let records = vec![admitted(1), started(1, 1), used(1, 100), proposed(1, &"x".repeat(70_000))];
        match number {
            1 => append_each(&store, session(number), 1, records),
            // The fork needs a part of that frame.
            _ => drop(append(&store, session(number), 1, records).unwrap()),
        }
    }
    for (of, from) in [(2, 1), (4, 3)] {
        let fork = playhouse_protocol::Record::Forked(forked(session(of), session(from), 3));
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let append = playhouse_store::Append {
            session: session(of),
            tenant: TENANT.into(),
            expected: playhouse_protocol::Seq(3),
            entries: entries(3, vec![fork]),
        };
        store.log.fork(append, Box::new(move |end| sender.send(end).unwrap()));
        receiver.recv().unwrap().unwrap();
    }
    delete(&store, session(3)).unwrap();
    directory
}

fn problems(store: &Store) -> Vec<String> {
    let report = store.upkeep.check().unwrap();
    report.problems.into_iter().map(|problem| format!("{}: {}", problem.place, problem.what)).collect()
}

#[test]
fn a_store_without_damage_has_none() {
    for backend in Backend::ALL {
        let directory = closed_store(backend);
        let store = open(directory.path(), Some(backend));
        assert_eq!(problems(&store), Vec::<String>::new());
        let report = store.upkeep.check().unwrap();
        assert_eq!((report.sessions, report.records, report.blobs), (3, 5 + 3 + 2, 1), "{report:?}");
        assert!(report.rows > 0);
    }
    let memory = Store::memory().unwrap();
    create(&memory, session(1));
    assert_eq!(memory.upkeep.check().unwrap().sessions, 1);
    assert_eq!(problems(&memory), Vec::<String>::new());
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn each_damage_is_named_with_its_place() {
    type Change = fn(&mut std::collections::BTreeMap<Vec<u8>, Vec<u8>>);
    let of = |kind: &str, number: u64| [kind.as_bytes(), session(number).as_str().as_bytes()].concat();
    assert_eq!(of("l/", 1)[..], frame_key(1, 1)[..of("l/", 1).len()]);
    let cases: [(Change, &str); 13] = [
        (
            |pairs| pairs.get_mut(&frame_key(1, 2)).unwrap()[20] ^= 1,
            "session ses_000000000001Sess1234567890, record 2: the checksum",
        ),
        (|pairs| drop(pairs.remove(&frame_key(1, 4))), "record 4: it is missing"),
        (|pairs| drop(pairs.remove(&frame_key(3, 3))), "should go on to record 3"),
        (|pairs| retain(pairs, "s/", 1), "its summary is missing or damaged"),
        (|pairs| retain(pairs, "c/", 1), "it is not in the list of all sessions"),
        (|pairs| retain(pairs, "u/", 1), "it has work to do and is not in the list of those"),
        (|pairs| retain(pairs, "t/", 1), "in the index of its tenant is not good"),
        (|pairs| retain(pairs, "d/", 2), "the log that it was forked from does not know of it"),
        (|pairs| retain(pairs, "l/", 2), "it is in the list of all sessions, and has no record"),
        (|pairs| retain(pairs, "d/", 4), "its records were kept for forks, of which there is none"),
        (
            |pairs| {
                let is_row = |key: &[u8], entry: &[u8]| key.starts_with(b"x/") && entry[0] == 3;
                let (_, row) = pairs.iter_mut().find(|(key, entry)| is_row(key, entry)).unwrap();
                row[20] ^= 1;
            },
            "this row is damaged",
        ),
        (
            |pairs| drop(pairs.insert(b"q/what".to_vec(), b"1".to_vec())),
            "key q/what: nothing of this form is known",
        ),
        (
            |pairs| {
                let is_count = |key: &&Vec<u8>| key.starts_with(b"t/") && key.len() == 19;
                let key = pairs.keys().find(is_count).unwrap().clone();
                pairs.insert(key, 9_u64.to_be_bytes().to_vec());
            },
            "it says that there are 9 sessions; there are 3",
        ),
    ];
    for backend in Backend::ALL {
        for (change, expected) in cases {
            let directory = closed_store(backend);
            raw::tamper(directory.path(), backend, change);
            let store = open(directory.path(), Some(backend));
            let before = problems(&store);
            assert!(
                before.iter().any(|problem| problem.contains(expected)),
                "{backend}: expected {expected:?} in {before:#?}"
            );
            // It changed nothing.
            assert_eq!(problems(&store), before);
        }
    }
}

/// Removes the keys of a kind that end with a session, or are of its log.
fn retain(pairs: &mut std::collections::BTreeMap<Vec<u8>, Vec<u8>>, kind: &str, number: u64) {
    let id = session(number);
    let id = id.as_str().as_bytes();
    let before = pairs.len();
    pairs.retain(|key, _| {
        !key.starts_with(kind.as_bytes()) || !(key.ends_with(id) || key[2..].starts_with(id))
    });
    assert!(pairs.len() < before, "there is such a key");
}

#[test]
fn a_blob_that_is_gone_is_named() {
    let directory = closed_store(Backend::Redb);
    let store = open(directory.path(), Some(Backend::Redb));
    fs::remove_dir_all(directory.path().join("blobs").join(TENANT)).unwrap();
    let problems = problems(&store);
    assert!(problems[0].contains("record 5") && problems[0].contains("has no such content"), "{problems:#?}");
}

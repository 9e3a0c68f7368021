//! What becomes of a store whose database is damaged, when somebody wants to go on with the rest.

use std::path::Path;

use fs_err as fs;
use playhouse_protocol::ledger::RowQuery;
use playhouse_store::{Backend, ListQuery, Store, StoreError};

use crate::flips::{copy_folder, text};
use crate::raw;
use crate::samples::*;

const SESSIONS: u64 = 12;

/// A store as a killed process leaves it, with a large record in each session.
fn killed(backend: Backend) -> tempfile::TempDir {
    let (live, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    drop(open(live.path(), Some(backend)));
    let store = open(live.path(), Some(backend));
    for number in 1..=SESSIONS {
        create(&store, session(number));
        let records = vec![
            admitted(1),
            started(number, 1),
            used(number, 100),
            proposed(1, &text(number, 70_000)),
            titled("b"),
            ended(1),
        ];
        append(&store, session(number), 1, records).unwrap();
    }
    assert!(store.shelf.compare_and_set("keys/one", None, Some(b"kept")).unwrap());
    copy_folder(live.path(), copy.path());
    fs::remove_file(copy.path().join("lock")).unwrap();
    copy
}

/// Changes a byte in the middle of what is used of the database.
fn damage(data: &Path, backend: Backend, part: usize) {
    let file = raw::place(data, backend).join("db");
    let mut content = fs::read(&file).unwrap();
    let used: Vec<usize> = (0..content.len()).filter(|place| content[*place] != 0).collect();
    content[used[used.len() / 10 * part]] ^= 0x10;
    fs::write(file, content).unwrap();
}

#[test]
fn what_can_be_read_of_a_damaged_database_goes_on_and_the_old_one_is_kept() {
    let directory = killed(Backend::Sled);
    damage(directory.path(), Backend::Sled, 6);
    let before = fs::read(directory.path().join("sled/db")).unwrap();
    assert!(matches!(Store::open(directory.path()), Err(StoreError::Damaged { .. })));
    let salvaged = Store::salvage(directory.path()).unwrap();
    assert!((1..SESSIONS).contains(&salvaged.sessions), "{salvaged:?}");
    let first_lost = session(salvaged.sessions + 1);
    assert!(salvaged.not_there.contains(&first_lost), "{salvaged:?}");
    assert!(salvaged.not_there.contains(&session(SESSIONS)), "{salvaged:?}");
    assert!(salvaged.problems[0].what.contains("is not what was written"), "{salvaged:?}");
    let kept = Path::new(&salvaged.kept);
    assert_eq!(fs::read(kept.join("sled/db")).unwrap(), before);
    assert!(kept.join("blobs").is_dir() && !directory.path().join("sled").exists());
    // What is there is whole, and goes on.
    let store = Store::open(directory.path()).unwrap();
    let report = store.upkeep.check().unwrap();
    assert_eq!((&report.problems[..], report.sessions), (&[][..], salvaged.sessions));
    assert_eq!(store.log.list(&ListQuery::default()).unwrap().sessions.len() as u64, salvaged.sessions);
    let rows = store.ledger.rows(&RowQuery::default()).unwrap().rows.len() as u64;
    assert!(rows == salvaged.sessions || rows + 1 == salvaged.sessions, "{rows} rows");
    assert_eq!(store.generation, 3, "none before had this number");
    create(&store, first_lost);
    drop(store);
    // Once more: then nothing is wrong, and another old one is kept.
    let again = Store::salvage(directory.path()).unwrap();
    assert_eq!((again.sessions, again.problems), (salvaged.sessions + 1, vec![]));
    assert!(again.kept != salvaged.kept && kept.join("sled/db").exists());
    assert_eq!(read_all(&Store::open(directory.path()).unwrap(), first_lost).len(), 1);
}

#[test]
fn a_snapshot_of_sled_that_is_damaged_costs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    for number in 1..=3 {
        let store = Store::open(directory.path()).unwrap();
        create(&store, session(number));
    }
    let snapshot = fs::read_dir(directory.path().join("sled")).unwrap().find_map(|file| {
        let path = file.unwrap().path();
        path.file_name().unwrap().to_string_lossy().starts_with("snap.").then_some(path)
    });
    fs::OpenOptions::new().write(true).open(snapshot.unwrap()).unwrap().set_len(100).unwrap();
    assert!(matches!(Store::open(directory.path()), Err(StoreError::Damaged { .. })));
    let salvaged = Store::salvage(directory.path()).unwrap();
    assert_eq!((salvaged.sessions, salvaged.not_there), (3, vec![]));
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.log.list(&ListQuery::default()).unwrap().sessions.len(), 3);
}

#[test]
fn of_redb_what_is_on_other_pages_is_saved() {
    let mut saved = 0;
    for part in [2, 4, 5, 7] {
        let directory = killed(Backend::Redb);
        damage(directory.path(), Backend::Redb, part);
        match Store::salvage(directory.path()) {
            Ok(salvaged) => {
                let store = Store::open(directory.path()).unwrap();
                let listed = store.log.list(&ListQuery { limit: 50, ..ListQuery::default() }).unwrap();
                assert!(listed.sessions.len() as u64 <= salvaged.sessions, "{salvaged:?}");
                saved += salvaged.sessions;
            }
            // Not even its lists of pages can be read: all is as it was.
            Err(error) => {
                assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
                assert!(directory.path().join("redb/db").exists());
            }
        }
    }
    assert!(saved >= SESSIONS, "{saved}");
}

#[test]
fn a_store_that_is_in_use_or_none_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    assert!(matches!(Store::salvage(directory.path()), Err(StoreError::Format { .. })));
    let _store = Store::open(directory.path()).unwrap();
    assert!(matches!(Store::salvage(directory.path()), Err(StoreError::Locked { .. })));
}

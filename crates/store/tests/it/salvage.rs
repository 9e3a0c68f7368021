//! What becomes of a store whose database is damaged, when somebody wants to go on with the rest.

use std::path::Path;

use fs_err as fs;
use playhouse_protocol::Timestamp;
use playhouse_protocol::ledger::{RowQuery, UsageQuery};
use playhouse_store::{Backend, ListQuery, Store, StoreError, StoreOptions};

use crate::flips::{copy_folder, text};
use crate::raw;
use crate::samples::*;

const SESSIONS: u64 = 12;

/// The time of salvages.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_900_000_000_000);

/// A store as a killed process leaves it, with a large record in each session.
fn killed(backend: Backend, is_compacted: bool) -> tempfile::TempDir {
    let (live, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    drop(open(live.path(), Some(backend)));
    let mut store = open(live.path(), Some(backend));
    // One that is compacted is copied in slices of 256 KB, without what is in blobs.
    let size = if is_compacted { 60_000 } else { 70_000 };
    for number in 1..=SESSIONS {
        create(&store, session(number));
        let records = vec![
            admitted(1),
            started(number, 1),
            used(number, 100),
            proposed(1, &text(number, size)),
            // What a journal holds goes to the database in pieces of 128 KB.
            titled(&text(number, 40_000)),
            ended(1),
        ];
        append(&store, session(number), 1, records).unwrap();
    }
    assert!(store.shelf.compare_and_set("keys/one", None, Some(b"kept")).unwrap());
    // Out of the journal.
    drop(store);
    store = open(live.path(), Some(backend));
    if is_compacted {
        store.upkeep.reclaim().unwrap();
    }
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
    let directory = killed(Backend::Sled, false);
    damage(directory.path(), Backend::Sled, 3);
    let before = fs::read(directory.path().join("sled/db")).unwrap();
    assert!(matches!(Store::open(directory.path()), Err(StoreError::Damaged { .. })));
    let salvaged = Store::salvage(directory.path(), NOW).unwrap();
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
    assert_eq!(store.generation, 4, "none before had this number");
    create(&store, first_lost);
    drop(store);
    // Once more: then nothing is wrong, and another old one is kept.
    let again = Store::salvage(directory.path(), NOW).unwrap();
    assert_eq!((again.sessions, again.problems), (salvaged.sessions + 1, vec![]));
    assert!(
        again.not_there.is_empty(),
        "what else is named in its files was lost before: {:?}",
        again.not_there
    );
    assert!(again.kept != salvaged.kept && kept.join("sled/db").exists());
    assert_eq!(read_all(&Store::open(directory.path()).unwrap(), first_lost).len(), 1);
}

/// A compaction of sled writes all keys, and then their values: what is cut off leaves keys that say nothing.
#[test]
#[ignore = "slow: scripts/slow runs it"]
fn of_a_compacted_database_no_session_is_said_to_be_there_that_cannot_be_read() {
    let (mut refused, mut saved) = (0, 0);
    let whole = killed(Backend::Sled, true);
    for part in 1..10 {
        let directory = tempfile::tempdir().unwrap();
        copy_folder(whole.path(), directory.path());
        damage(directory.path(), Backend::Sled, part);
        // The end of its log may look like a write that was cut off.
        if Store::open(directory.path()).is_ok() {
            continue;
        }
        refused += 1;
        // Whatever is lost of it, a check says so.
        let report = Store::check_closed(directory.path()).unwrap();
        assert!(!report.problems.is_empty(), "part {part}");
        let salvaged = Store::salvage(directory.path(), NOW).unwrap();
        saved += salvaged.sessions;
        let store = Store::open(directory.path()).unwrap();
        let listed = store.log.list(&ListQuery::default()).unwrap().sessions;
        assert_eq!(listed.len() as u64, salvaged.sessions, "part {part}: {salvaged:?}");
        for number in 1..=SESSIONS {
            let is_listed = listed.iter().any(|summary| summary.id == session(number));
            assert_ne!(is_listed, salvaged.not_there.contains(&session(number)), "part {part}: {salvaged:?}");
        }
        // What is wrong is wrong with single records, from which on their logs cannot be read.
        let report = store.upkeep.check().unwrap();
        let is_known = |place: &str| place.starts_with("session ") && place.contains(", record ");
        assert!(report.problems.iter().all(|problem| is_known(&problem.place)), "part {part}: {report:?}");
        assert!(report.problems.len() <= 1, "part {part}: {report:?}");
        // Each row that is there counts once.
        let rows = store.ledger.rows(&RowQuery::default()).unwrap().rows;
        let groups = store.ledger.usage(&UsageQuery::default()).unwrap().groups;
        let counted: u64 = groups.iter().map(|group| group.sum.totals.attempts).sum();
        assert_eq!(counted, rows.len() as u64, "part {part}");
        create(&store, session(SESSIONS + 1));
    }
    assert!(refused > 5 && saved > 0, "{refused} refused, {saved} saved");
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
    let salvaged = Store::salvage(directory.path(), NOW).unwrap();
    assert_eq!((salvaged.sessions, salvaged.not_there), (3, vec![]));
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.log.list(&ListQuery::default()).unwrap().sessions.len(), 3);
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn of_redb_what_is_on_other_pages_is_saved() {
    let mut saved = 0;
    for part in [2, 4, 5, 7] {
        let directory = killed(Backend::Redb, false);
        damage(directory.path(), Backend::Redb, part);
        match Store::salvage(directory.path(), NOW) {
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
    assert!(matches!(Store::salvage(directory.path(), NOW), Err(StoreError::Format { .. })));
    let _store = Store::open(directory.path()).unwrap();
    assert!(matches!(Store::salvage(directory.path(), NOW), Err(StoreError::Locked { .. })));
}

#[test]
fn what_is_missing_or_shorter_is_noted_in_the_fresh_database_for_good() {
    let directory = killed(Backend::Sled, false);
    damage(directory.path(), Backend::Sled, 5);
    assert!(Store::open(directory.path()).is_err());
    let (store, salvaged) = Store::open_or_salvage(directory.path(), &StoreOptions::default(), NOW).unwrap();
    let salvaged = salvaged.unwrap();
    assert!(salvaged.end_lost && !salvaged.not_there.is_empty(), "{salvaged:?}");
    let losses = store.losses.clone().unwrap();
    assert_eq!((losses.note.at, &losses.note.kept), (NOW, &salvaged.kept));
    for id in &salvaged.not_there {
        let loss = losses.missing(*id).unwrap().unwrap();
        assert_eq!((loss.at, loss.left), (NOW, 0), "{loss:?}");
        assert!(playhouse_store::reason_of_missing(*id, &loss).contains(id.as_str()));
    }
    assert_eq!(losses.missing(session(99)).unwrap(), None);
    drop((store, losses));
    // Damaged again: soon that is refused, and what was noted holds.
    fs::write(directory.path().join("sled-1/db"), "").unwrap();
    let again = |millis| {
        let now = Timestamp::from_millis(NOW.as_millis() + millis);
        Store::open_or_salvage(directory.path(), &StoreOptions::default(), now)
    };
    let error = again(3_599_999).unwrap_err().to_string();
    assert!(error.contains("salvaged from damage at 2030-03-17T17:46:40Z, less than an hour ago"), "{error}");
    let (store, all_lost) = again(3_600_000).unwrap();
    assert_eq!(all_lost.unwrap().sessions, 0);
    assert_eq!(store.losses.as_ref().unwrap().note.at.as_millis(), NOW.as_millis() + 3_600_000);
    drop(store);
    assert!(again(3_600_001).unwrap().1.is_none(), "nothing is wrong with it");
}

#[test]
fn a_session_whose_log_ends_early_says_how_much_of_it_is_left() {
    for backend in Backend::ALL {
        let directory = killed(backend, false);
        drop(Store::open(directory.path()).unwrap());
        let log = [b"l/", session(1).as_str().as_bytes()].concat();
        raw::tamper(directory.path(), backend, |pairs| {
            let (_, last) =
                pairs.range_mut(log.clone()..).take_while(|(key, _)| key.starts_with(&log)).last().unwrap();
            *last.last_mut().unwrap() ^= 0x10;
        });
        let salvaged = Store::salvage(directory.path(), NOW).unwrap();
        assert_eq!((&salvaged.shorter[..], salvaged.end_lost), (&[session(1)][..], false), "{salvaged:?}");
        let store = Store::open(directory.path()).unwrap();
        let losses = store.losses.clone().unwrap();
        let of = |number| losses.of(&store.log.summary(session(number)).unwrap().unwrap());
        let said = of(1).unwrap();
        assert!(said.at == NOW && said.reason.contains("the first 1 of 7 records"), "{said:?}");
        assert_eq!((of(2), losses.missing(session(1)).unwrap()), (None, None), "{backend}");
    }
}

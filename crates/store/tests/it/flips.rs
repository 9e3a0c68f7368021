//! Bytes of a database that change behind the store's back: it says so, or what it gives is what was written. Nothing is lost
//! in silence, nothing panics, and what is refused is left as it is.

use std::path::Path;

use fs_err as fs;
use playhouse_protocol::Seq;
use playhouse_protocol::ledger::RowQuery;
use playhouse_store::{Backend, ListQuery, Store, StoreError};

use crate::raw;
use crate::salvage::NOW;
use crate::samples::*;

/// How many sessions there are, and of how many of them nothing may be missing: what was written last looks as if a crash had
/// cut it off.
const SESSIONS: u64 = 12;
const KEPT: u64 = 11;

/// How many bytes are changed, one after the other.
const FLIPS: usize = 80;

/// Text that no packing makes much smaller.
pub(crate) fn text(seed: u64, length: usize) -> String {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'!' + ((state >> 33) % 90) as u8)
    };
    (0..length).map(|_| next()).collect()
}

/// A store as a killed process leaves it: with the sessions in its database, or in its journal.
fn killed(backend: Backend, are_settled: bool) -> tempfile::TempDir {
    let live = tempfile::tempdir().unwrap();
    let copy = tempfile::tempdir().unwrap();
    drop(open(live.path(), Some(backend)));
    let mut store = open(live.path(), Some(backend));
    for number in 1..=SESSIONS {
        create(&store, session(number));
        let records =
            vec![admitted(1), started(1, 1), used(1, 100), proposed(1, &text(number, 30_000)), titled("b")];
        append(&store, session(number), 1, records).unwrap();
    }
    if are_settled {
        drop(store);
        store = open(live.path(), Some(backend));
        titled_once_more(&store);
    }
    copy_folder(live.path(), copy.path());
    drop(store);
    fs::remove_file(copy.path().join("lock")).unwrap();
    copy
}

/// There is a journal again.
fn titled_once_more(store: &Store) {
    append(store, session(SESSIONS), 6, vec![titled("c")]).unwrap();
}

fn file(data: &Path, backend: Backend) -> std::path::PathBuf {
    raw::place(data, backend).join("db")
}

pub(crate) fn copy_folder(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir_all(&to).unwrap();
            copy_folder(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// What became of a store.
#[derive(Debug, Default)]
struct Outcomes {
    refused: usize,
    told: usize,
    of_no_matter: usize,
}

impl Outcomes {
    fn look(&mut self, data: &Path, backend: Backend, place: usize) {
        let store = match Store::open(data) {
            Ok(store) => store,
            Err(error) => {
                let text = error.to_string();
                assert!(matches!(error, StoreError::Damaged { .. }), "byte {place} of {backend}: {error:?}");
                assert!(text.contains("store check"), "{text}");
                self.refused += 1;
                return;
            }
        };
        let (mut damaged, mut missing) = (Vec::new(), Vec::new());
        for number in 1..=KEPT {
            match store.log.read(session(number), Seq::START, usize::MAX) {
                Ok(read) if read.damage.is_some() => damaged.push(number),
                Ok(read) if read.entries.len() == 6 => {}
                Ok(_) => missing.push(number),
                Err(StoreError::Missing(_)) => missing.push(number),
                Err(error) => {
                    assert!(
                        matches!(error, StoreError::Damaged { .. }),
                        "byte {place} of {backend}: {error:?}"
                    );
                    damaged.push(number);
                }
            }
        }
        let report = store.upkeep.check().unwrap();
        assert!(
            missing.is_empty() || !report.problems.is_empty(),
            "byte {place} of {backend} lost {missing:?} in silence"
        );
        // Whatever is asked is answered, or it is said why not.
        let _ = store.log.list(&ListQuery::default());
        let _ = store.ledger.rows(&RowQuery::default());
        let _ = store.ledger.feed(0, 100);
        match damaged.is_empty() && report.problems.is_empty() {
            true => self.of_no_matter += 1,
            false => self.told += 1,
        }
    }
}

fn flip(backend: Backend, name: &str, are_settled: bool) -> Outcomes {
    let copy = killed(backend, are_settled);
    let file = |data: &Path| raw::place(data, backend).join(name);
    let content = fs::read(file(copy.path())).unwrap();
    let used: Vec<_> = (0..content.len()).filter(|place| content[*place] != 0).collect();
    let mut outcomes = Outcomes::default();
    for number in 0..FLIPS {
        let place = used[number * used.len() / FLIPS];
        let directory = tempfile::tempdir().unwrap();
        copy_folder(copy.path(), directory.path());
        let mut changed = content.clone();
        changed[place] ^= 0x10;
        fs::write(file(directory.path()), changed).unwrap();
        outcomes.look(directory.path(), backend, place);
    }
    outcomes
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_byte_that_changed_in_sled_is_told() {
    let outcomes = flip(Backend::Sled, "db", true);
    // Sled keeps a checksum of all that it writes.
    assert!(outcomes.refused > FLIPS * 3 / 4, "{outcomes:?}");
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_byte_that_changed_in_redb_is_told() {
    let outcomes = flip(Backend::Redb, "db", true);
    assert!(outcomes.refused + outcomes.told > FLIPS / 4, "{outcomes:?}");
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_byte_that_changed_in_a_journal_is_told() {
    for backend in Backend::ALL {
        let outcomes = flip(backend, "journal-0", false);
        // All but what was written last.
        assert!(outcomes.refused > FLIPS * 7 / 8, "{backend}: {outcomes:?}");
    }
}

#[test]
fn what_is_refused_is_left_as_it_is_and_can_be_looked_through() {
    let copy = killed(Backend::Sled, true);
    let content = fs::read(file(copy.path(), Backend::Sled)).unwrap();
    let place = content.iter().rposition(|byte| *byte != 0).unwrap() / 2;
    let mut changed = content;
    changed[place] ^= 0x10;
    let file = file(copy.path(), Backend::Sled);
    fs::write(&file, &changed).unwrap();
    for _ in 0..2 {
        let error = Store::open(copy.path()).unwrap_err().to_string();
        assert!(error.contains("is damaged: byte ") && error.contains("Nothing was changed"), "{error}");
        assert!(fs::read(&file).unwrap() == changed, "the database was changed");
    }
    let report = Store::check_closed(copy.path()).unwrap();
    assert!(report.problems[0].what.contains("is not what was written"), "{:?}", report.problems);
    assert!((1..SESSIONS).contains(&report.sessions), "{report:?}");
    assert!(fs::read(&file).unwrap() == changed, "the database was changed");
}

#[test]
fn a_database_that_was_emptied_or_lost_is_not_begun_anew() {
    for backend in Backend::ALL {
        for (change, is) in [
            (emptied as fn(&Path), "it is empty"),
            (|file| fs::remove_file(file).unwrap(), "it is empty"),
            (|file| fs::remove_dir_all(file.parent().unwrap()).unwrap(), "it is empty"),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let store = open(directory.path(), Some(backend));
            create(&store, session(1));
            drop(store);
            change(&file(directory.path(), backend));
            for _ in 0..2 {
                let error = Store::open(directory.path()).unwrap_err();
                assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
                let text = error.to_string();
                assert!(text.contains(is) && text.contains("the store was opened once"), "{text}");
                let report = Store::check_closed(directory.path()).unwrap();
                assert!(report.problems[0].what.contains(is), "{report:?}");
            }
            // Whoever says that it is to be so gets an empty one.
            fs::remove_file(directory.path().join("opened")).unwrap();
            let store = Store::open(directory.path()).unwrap();
            assert_eq!(store.log.list(&ListQuery::default()).unwrap().sessions.len(), 0);
        }
    }
}

fn emptied(file: &Path) {
    fs::write(file, "").unwrap();
}

#[test]
fn a_database_of_before_is_not_taken_for_the_one_of_today() {
    for backend in Backend::ALL {
        let directory = tempfile::tempdir().unwrap();
        let older = tempfile::tempdir().unwrap();
        drop(open(directory.path(), Some(backend)));
        copy_folder(directory.path(), older.path());
        for number in 1..3 {
            create(&Store::open(directory.path()).unwrap(), session(number));
        }
        let place = raw::place(directory.path(), backend);
        fs::remove_dir_all(&place).unwrap();
        copy_folder(&raw::place(older.path(), backend), &{
            fs::create_dir(&place).unwrap();
            place
        });
        let text = Store::open(directory.path()).unwrap_err().to_string();
        assert!(text.contains("had been opened once, and the store was opened 3 times"), "{text}");
        // The whole of the copy is good.
        let store = Store::open(older.path()).unwrap();
        assert_eq!(store.generation, 2);
    }
}

#[test]
fn what_the_store_says_of_its_openings_has_to_be_a_number() {
    let directory = tempfile::tempdir().unwrap();
    drop(Store::open(directory.path()).unwrap());
    let opened = directory.path().join("opened");
    assert_eq!(fs::read_to_string(&opened).unwrap(), "1\n");
    fs::write(&opened, "many").unwrap();
    let text = Store::open(directory.path()).unwrap_err().to_string();
    assert!(text.contains("opened holds \"many\""), "{text}");
}

#[test]
fn a_damaged_ledger_keeps_no_store_from_starting() {
    for backend in Backend::ALL {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), Some(backend));
        for number in 1..=3 {
            create(&store, session(number));
            append(&store, session(number), 1, vec![admitted(1), started(1, 1), used(1, 100)]).unwrap();
        }
        drop(store);
        // All is settled, and then damaged; and the store is taken for one whose ledger has to be made from its logs.
        drop(Store::open(directory.path()).unwrap());
        raw::tamper(directory.path(), backend, |pairs| {
            for (key, value) in pairs.iter_mut() {
                if [b"i/", b"j/", b"a/", b"b/", b"x/"].iter().any(|kind| key.starts_with(*kind)) {
                    let last = value.len() - 1;
                    value[last] ^= 0x10;
                }
            }
            pairs.remove(&b"m/ledger"[..]).expect("the mark is there");
        });
        for round in 0..2 {
            let store = Store::open(directory.path()).unwrap();
            let number = 10 + round;
            create(&store, session(number));
            append(&store, session(number), 1, vec![admitted(1), started(1, 1), used(1, 7)]).unwrap();
            // Sums are written now; those that are damaged are made again from what is there.
            store.ledger.archive(playhouse_protocol::Timestamp::from_millis(1), &[]).unwrap();
            assert_eq!(store.log.health().map(|suspended| suspended.reason), None);
            assert_eq!(read_all(&store, session(1)).len(), 4);
            let report = store.upkeep.check().unwrap();
            assert!(
                report.problems.iter().any(|problem| problem.what.contains("this row is damaged")),
                "{report:?}"
            );
            let error = store.ledger.rows(&RowQuery::default()).unwrap_err().to_string();
            assert!(error.contains("the ledger is damaged") && error.contains("store check"), "{error}");
        }
    }
}

/// It ended in order, so what it had is known, also what no opening stands behind.
#[test]
fn a_database_that_lost_its_end_since_the_last_opening_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for number in 1..=2 {
        let store = open(directory.path(), Some(Backend::Sled));
        create(&store, session(number));
        append(&store, session(number), 1, vec![proposed(1, &text(number, 9_000)), titled("b")]).unwrap();
    }
    let file = file(directory.path(), Backend::Sled);
    let content = fs::read(&file).unwrap();
    let end = content.iter().rposition(|byte| *byte != 0).unwrap();
    let mut cut = content.clone();
    cut[end - 4_000..].fill(0);
    fs::write(&file, &cut).unwrap();
    // The journal still has it.
    let copy = tempfile::tempdir().unwrap();
    copy_folder(directory.path(), copy.path());
    let store = Store::open(copy.path()).unwrap();
    assert_eq!(read_all(&store, session(2)).len(), 3);
    drop(store);
    for journal in ["journal-0", "journal-1"] {
        fs::write(file.with_file_name(journal), "").unwrap();
    }
    let report = Store::check_closed(directory.path()).unwrap();
    assert!(report.problems[0].what.contains("its journal is not there"), "{:?}", report.problems);
    for _ in 0..2 {
        let error = Store::open(directory.path()).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
        assert!(error.to_string().contains("its journal is not there"), "{error}");
    }
    // Whoever wants to goes on with what is left.
    Store::salvage(directory.path(), NOW).unwrap();
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(read_all(&store, session(1)).len(), 3);
}

//! The ledger is closed up to times that only rise, and a row that comes behind one of a later time says that it is late:
//! whatever the clock does, and wherever the process ends.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use playhouse_protocol::ledger::LedgerClosed;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::damage::tamper;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// One attempt that ended at this time by the clock of that moment, which may have stepped back.
fn attempt_at(store: &Store, number: u64, millis: u64) {
    let end = Record::AttemptEnded(AttemptEnded {
        usage: Some(Usage { tokens: Tokens { input: number, ..Tokens::default() }, ..Usage::default() }),
        ended: Some(at(millis)),
        ..AttemptEnded::new(attempt(number), AttemptOutcome::Finished)
    });
    write(store, 1, TENANT, NOON + number, vec![started(number, 1), end]);
}

/// Whether each row of the feed is late, checked against the closings before it.
fn check(store: &Store) -> Vec<bool> {
    let (mut closed, mut late) = (None::<LedgerClosed>, Vec::new());
    for item in feed(store) {
        match item {
            FeedItem::Closed(next) => {
                assert!(closed.is_none_or(|before| before < next), "{closed:?} {next:?}");
                closed = Some(next);
            }
            FeedItem::Row(row) => {
                // Where closing began is not told.
                if closed.is_some_and(|closed| row.ended < closed.until) {
                    assert!(row.late, "{row:?} behind {closed:?}");
                }
                late.push(row.late);
            }
            FeedItem::TurnEnded(_) => {}
        }
    }
    late
}

pub(super) fn what_comes_behind_a_closing_says_that_it_is_late(store: &Store) {
    write(store, 1, TENANT, NOON, vec![created(session(1), TENANT, "/w"), turn(1)]);
    attempt_at(store, 1, NOON);
    // The first one only says from where on it is closed: there is nobody who was told of anything.
    store.ledger.close(at(NOON - 5)).unwrap();
    assert_eq!(told(store).len(), 1);
    store.ledger.close(at(NOON + 10)).unwrap();
    attempt_at(store, 2, NOON + 10);
    attempt_at(store, 3, NOON + 9);
    for not_later in [0, NOON, NOON + 10] {
        store.ledger.close(at(not_later)).unwrap();
    }
    assert_eq!(told(store)[1..].len(), 3, "{:?}", told(store));
    assert_eq!(told(store)[1], format!("closed {}", NOON + 10));
    assert_eq!(check(store), [false, false, true]);
    // A late row keeps its time, and so does a correction that a clock behind the closing made.
    let found = rows(store, RowQuery { to: Some(at(NOON + 10)), ..RowQuery::default() });
    assert_eq!(
        found.iter().map(|row| (row.tokens.input, row.late)).collect::<Vec<_>>(),
        [(1, false), (3, true)]
    );
    let row = &found[0];
    let correction = LedgerRow {
        id: row.id.correction(1),
        tokens: Tokens::default(),
        corrects: Some(row.id.clone()),
        ended: at(NOON + 1),
        ..row.clone()
    };
    store.ledger.correct(vec![correction]).unwrap();
    let last = rows(store, RowQuery::default()).into_iter().find(|row| row.corrects.is_some()).unwrap();
    assert_eq!((last.ended, last.late), (at(NOON + 1), true));
    // Closings are archived as other entries are, and it stays closed.
    let query = ArchiveQuery { before: at(NOON + 11), up_to: None, after: 0, limit: 0 };
    let page = store.ledger.archivable(&query).unwrap();
    assert_eq!(page.numbers, [1, 2, 3, 4, 5]);
    assert_eq!(store.ledger.archive(query.before, &page.numbers).unwrap(), 4);
    store.ledger.close(at(NOON + 10)).unwrap();
    assert_eq!(store.ledger.feed_end(), 5);
}

/// Something that happens to a store.
#[derive(Clone, Debug)]
enum Act {
    Attempt(u64),
    Close(u64),
    Reopen,
    /// An older engine had it, which kept no ledger.
    Rebuild,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::histories(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_closing_is_never_broken_silently(
        acts in vec(
            prop_oneof![
                5 => (0..100_u64).prop_map(Act::Attempt),
                3 => (0..100_u64).prop_map(Act::Close),
                1 => Just(Act::Reopen),
                1 => Just(Act::Rebuild),
            ],
            1..40,
        ),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(directory.path()).unwrap();
        write(&store, 1, TENANT, NOON, vec![created(session(1), TENANT, "/w"), turn(1)]);
        let (mut closed, mut late) = (0, Vec::new());
        for (number, act) in (1..).zip(&acts) {
            match act {
                Act::Attempt(offset) => {
                    attempt_at(&store, number, NOON + offset);
                    late.push(NOON + offset < closed);
                }
                Act::Close(offset) => {
                    store.ledger.close(at(NOON + offset)).unwrap();
                    closed = closed.max(NOON + offset);
                }
                Act::Reopen | Act::Rebuild => {
                    drop(store);
                    if matches!(act, Act::Rebuild) {
                        tamper(directory.path(), |database| drop(database.remove("m/ledger").unwrap()));
                    }
                    store = Store::open(directory.path()).unwrap();
                }
            }
            prop_assert_eq!(&check(&store), &late);
        }
    }
}

#[test]
fn a_changed_byte_of_a_closing_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    store.ledger.close(at(NOON)).unwrap();
    store.ledger.close(at(NOON + 1)).unwrap();
    assert_eq!(told(&store), [format!("closed {}", NOON + 1)]);
    // What is written last is looked at when a store is opened.
    create(&store, session(1));
    drop(store);
    let key = [&b"x/"[..], &1_u64.to_be_bytes()].concat();
    let whole = {
        let mut found = None;
        tamper(directory.path(), |database| found = database.get(&key).unwrap());
        found.unwrap().to_vec()
    };
    for place in 1..whole.len() {
        let mut changed = whole.clone();
        changed[place] ^= 1;
        tamper(directory.path(), |database| drop(database.insert(&key, changed).unwrap()));
        let store = Store::open(directory.path()).unwrap();
        assert!(store.ledger.feed(0, 9).unwrap().is_empty(), "byte {place}");
        let report = store.upkeep.check().unwrap();
        assert!(report.problems.iter().any(|problem| problem.what.contains("closing")), "{report:?}");
    }
}

/// The process of [`closings_survive_a_kill`].
const CHILD: &str = "PLAYHOUSE_STORE_TEST_CLOSINGS";

/// Not a test by itself: the process that [`closings_survive_a_kill`] starts and kills. It names what was acknowledged.
#[test]
fn process_that_closes() {
    let Some(data) = std::env::var_os(CHILD) else { return };
    let store = Store::open(Path::new(&data)).unwrap();
    create(&store, session(1));
    store.ledger.close(at(NOON)).unwrap();
    let mut stdout = std::io::stdout();
    for number in 1.. {
        // Each third row is late.
        attempt_at(&store, number, NOON + 10 * number - if number % 3 == 0 { 20 } else { 0 });
        store.ledger.close(at(NOON + 10 * number)).unwrap();
        writeln!(stdout, "acknowledged {number}").unwrap();
    }
}

#[test]
fn closings_survive_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["ledger::closings::process_that_closes", "--exact", "--nocapture"])
        .env(CHILD, directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acknowledged = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let told = line.split_once("acknowledged ").and_then(|(_, number)| number.parse::<u64>().ok());
        acknowledged = told.unwrap_or(acknowledged);
        if acknowledged == 60 {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let before = check(&store);
    let closings =
        |store: &Store| feed(store).iter().filter(|item| matches!(item, FeedItem::Closed(_))).count() as u64;
    assert!(closings(&store) >= acknowledged && acknowledged >= 60);
    assert_eq!(before[..7], [false, false, true, false, false, true, false]);
    // What was told holds for the next process, and is not told again.
    let (told, number) = (closings(&store), before.len() as u64 + 1);
    store.ledger.close(at(NOON + 10 * told)).unwrap();
    assert_eq!(closings(&store), told);
    attempt_at(&store, number, NOON + 10 * told - 1);
    assert_eq!(check(&store).last(), Some(&true));
}

//! A ledger that its first version wrote is taken over whole.

use std::collections::BTreeMap;
use std::path::Path;

use super::*;
use crate::damage::tamper;

/// The stored form of a value of the ledger.
fn sealed(key: &[u8], json: &[u8]) -> Vec<u8> {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(json);
    [&[1][..], &hasher.finalize().to_be_bytes(), json].concat()
}

/// The rows of the feed by number.
fn by_number(store: &Store) -> BTreeMap<u64, LedgerRow> {
    let entries = store.ledger.feed(0, 1_000).unwrap().into_iter();
    let row = |(number, item)| match item {
        FeedItem::Row(row) => Some((number, *row)),
        FeedItem::TurnEnded(_) | FeedItem::Closed(_) => None,
    };
    entries.filter_map(row).collect()
}

/// Rewrites a ledger, of which all is settled, as the first version had it: rows with numbers above `from`, and all sums. The
/// other rows become what the second one had.
fn as_first_version(data: &Path, rows: &BTreeMap<u64, LedgerRow>, from: u64) -> usize {
    tamper(data, |database| {
        let pairs = |kind: &str| -> Vec<_> { database.scan_prefix(kind).map(Result::unwrap).collect() };
        for (key, _) in [pairs("i/"), pairs("j/")].concat() {
            database.remove(&key).unwrap();
        }
        for (number, row) in rows {
            let (key, json) =
                ([&b"x/"[..], &number.to_be_bytes()].concat(), serde_json::to_vec(row).unwrap());
            let (time, id) = (row.ended.as_millis(), row.id.0.as_bytes());
            let tenant = row.tenant.as_bytes();
            let mut sessions = vec![row.session, row.root];
            sessions.dedup();
            if *number <= from {
                let entry = [&[2][..], &time.to_be_bytes(), &sealed(&key, &json)].concat();
                database.insert(key, entry).unwrap();
                let list = |list: &[u8], step: u64| {
                    let key = [list, &step.to_be_bytes(), &number.to_be_bytes()].concat();
                    let places = serde_json::to_vec(&[((time, &row.id), number)]).unwrap();
                    database.insert(&key, sealed(&key, &places)).unwrap();
                };
                list(&[b"i/", tenant, &[0]].concat(), time / 60_000);
                for session in &sessions {
                    list(&[b"j/", session.as_str().as_bytes()].concat(), time / DAY);
                }
                continue;
            }
            let row_key = [&b"r/"[..], tenant, &[0], &time.to_be_bytes(), id].concat();
            database.insert(&row_key, sealed(&row_key, &json)).unwrap();
            for session in &sessions {
                let listed = [&b"y/"[..], session.as_str().as_bytes(), &time.to_be_bytes(), id].concat();
                database.insert(listed, tenant).unwrap();
            }
            database.insert(key, [&[0][..], &row_key].concat()).unwrap();
        }
        for (key, sum) in [pairs("a/"), pairs("b/")].concat() {
            let mut json: serde_json::Value = serde_json::from_slice(&sum[5..]).unwrap();
            json.as_object_mut().unwrap().remove("up_to");
            database.insert(&key, sealed(&key, &serde_json::to_vec(&json).unwrap())).unwrap();
        }
        let generation = database.get("m/ledger").unwrap().unwrap()[1..].to_vec();
        database.insert("m/ledger", [&[1][..], &generation].concat()).unwrap();
        if from == 0 {
            database.remove("m/ledger/settled").unwrap().expect("all is settled");
        }
    });
    rows.keys().filter(|number| **number > from).count()
}

/// All that can be asked.
fn answers(store: &Store) -> impl PartialEq + std::fmt::Debug + use<> {
    let by = vec![GroupBy::Session, GroupBy::Day, GroupBy::Model];
    let tree = RowQuery { root: Some(session(1)), limit: 1, ..RowQuery::default() };
    (
        rows(store, RowQuery::default()),
        rows(store, tree),
        rows(store, RowQuery { session: Some(session(3)), ..RowQuery::default() }),
        usage(store, UsageQuery { by, ..UsageQuery::default() }),
        store.ledger.feed(0, 1_000).unwrap(),
        store.ledger.feed_end(),
    )
}

#[test]
fn what_the_first_version_wrote_is_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    for number in 1..=3 {
        let begin = match number {
            2 => child(2, 1, 1, 8),
            _ => created(session(number), TENANT, "/w"),
        };
        write(&store, number, TENANT, NOON, vec![begin, turn(1)]);
        for day in 0..4 {
            let attempt = number * 10 + day;
            write(
                &store,
                number,
                TENANT,
                NOON + day * DAY,
                vec![started(attempt, 1), used(attempt, attempt)],
            );
        }
        write(&store, number, TENANT, NOON + 4 * DAY, vec![ended(1)]);
    }
    // Its rows are in no log any more.
    delete(&store, session(3)).unwrap();
    let before = Timestamp::from_millis(NOON + DAY);
    let page = store.ledger.archivable(&ArchiveQuery { before, up_to: None, after: 0, limit: 0 }).unwrap();
    assert_eq!(store.ledger.archive(before, &page.numbers).unwrap(), 3);
    let (expected, rows) = (answers(&store), by_number(&store));
    drop(store);
    // All of it; and as a takeover leaves it that ended halfway.
    for (from, count) in [(0, 9), (8, 4)] {
        drop(Store::open(directory.path()).unwrap());
        assert_eq!(as_first_version(directory.path(), &rows, from), count);
        for _ in 0..2 {
            let store = Store::open(directory.path()).unwrap();
            assert_eq!(answers(&store), expected);
            assert_eq!(store.upkeep.check().unwrap().problems, []);
        }
        tamper(directory.path(), |database| {
            assert_eq!(["r/", "y/"].map(|kind| database.scan_prefix(kind).count()), [0, 0]);
        });
    }
    let store = Store::open(directory.path()).unwrap();
    let end = store.ledger.feed_end();
    write(&store, 1, TENANT, NOON + 5 * DAY, vec![turn(3), started(50, 3), used(50, 1)]);
    assert_eq!(store.ledger.feed(0, 100).unwrap().last().unwrap().0, end + 1);
    let sums = usage(&store, UsageQuery::default());
    assert_eq!(sums[&UsageKey::default()].totals.attempts, 13);
}

#[test]
fn what_a_newer_engine_wrote_is_refused_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let begin = vec![created(session(1), TENANT, "/w"), turn(1), started(1, 1), used(1, 5)];
    write(&store, 1, TENANT, NOON, begin);
    let row = rows(&store, RowQuery::default());
    create(&store, session(2));
    drop(store);
    let key = [&b"x/"[..], &1_u64.to_be_bytes()].concat();
    let of_row = |change: &dyn Fn(&mut Vec<u8>)| {
        tamper(directory.path(), |database| {
            let mut entry = database.get(&key).unwrap().unwrap().to_vec();
            change(&mut entry);
            // Behind a tag and a time, over all but itself.
            let mut hasher = crc32fast::Hasher::new();
            [&key[..], &entry[..9], &entry[13..]].iter().for_each(|part| hasher.update(part));
            entry[9..13].copy_from_slice(&hasher.finalize().to_be_bytes());
            database.insert(&key, entry).unwrap();
        });
    };
    let refused = || match Store::open(directory.path()) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("it is opened"),
    };
    // A row of a form that is not known, in no list yet.
    of_row(&|entry| entry[13] += 7);
    tamper(directory.path(), |database| drop(database.remove("m/ledger/settled").unwrap()));
    let error = refused();
    assert!(
        error.contains("was written by a newer engine") && error.contains("Nothing was changed"),
        "{error}"
    );
    of_row(&|entry| entry[13] -= 7);
    assert_eq!(rows(&Store::open(directory.path()).unwrap(), RowQuery::default()), row);
    // The mark that a newer engine leaves.
    let form = |form: u64| {
        tamper(directory.path(), |database| {
            drop(database.insert("m/ledger/form", &form.to_be_bytes()).unwrap());
        });
    };
    form(4);
    assert!(refused().contains("with rows of form 4"), "{}", refused());
    form(3);
    // One that stands in lists is not passed over either: whoever bills waits for the right engine.
    let store = Store::open(directory.path()).unwrap();
    create(&store, session(3));
    drop(store);
    of_row(&|entry| entry[13] += 7);
    let store = Store::open(directory.path()).unwrap();
    assert!(store.ledger.feed(0, 9).unwrap_err().to_string().contains("by a newer engine"));
    assert!(store.ledger.rows(&RowQuery::default()).unwrap_err().to_string().contains("by a newer engine"));
}

//! Corrections are rows that no log makes: they are kept whatever is made again from logs and from the feed.

use playhouse_protocol::ledger::CostByClass;

use super::*;
use crate::damage::tamper;

/// When the corrections of these tests were made.
const LATER: u64 = NOON + 3 * DAY;

fn correction(row: &LedgerRow, number: u64, cost: &str) -> LedgerRow {
    let cost = Some(Cost(cost.parse().unwrap()));
    let none = Some(Cost::ZERO);
    let costs = CostByClass {
        input: cost,
        cache_read: none,
        cache_write_5m: none,
        cache_write_30m: cost,
        cache_write_1h: none,
        cache_write_12h: none,
        output: none,
        reasoning: none,
    };
    LedgerRow {
        id: row.id.correction(number),
        tokens: Tokens::default(),
        costs,
        cost,
        ended: Timestamp::from_millis(LATER),
        corrects: Some(row.id.clone()),
        ..row.clone()
    }
}

fn one_turn(store: &Store) -> LedgerRow {
    let records = vec![created(session(1), TENANT, "/w"), turn(1), started(1, 1), used(1, 1_200), ended(1)];
    write(store, 1, TENANT, NOON, records);
    rows(store, RowQuery::default()).remove(0)
}

fn by_day(store: &Store) -> Vec<(u64, u64, u64, String)> {
    let sums = usage(store, UsageQuery { by: vec![GroupBy::Day], ..UsageQuery::default() });
    let told = |(key, sum): (UsageKey, UsageSum)| {
        let totals = sum.totals;
        (key.day.unwrap().0, totals.attempts, totals.tokens.input, totals.cost.normalized().0.to_string())
    };
    sums.into_iter().map(told).collect()
}

pub(super) fn a_correction_is_money_of_the_day_on_which_it_was_made(store: &Store) {
    let row = one_turn(store);
    let corrections = vec![correction(&row, 1, "0.0100"), correction(&row, 2, "-0.002")];
    store.ledger.correct(corrections.clone()).unwrap();
    let expected = [(20_000, 1, 1_200, "0.0036".to_owned()), (20_003, 0, 0, "0.008".to_owned())];
    assert_eq!(by_day(store), expected);
    let found = rows(store, RowQuery { session: Some(session(1)), ..RowQuery::default() });
    assert_eq!(found[1..], corrections, "as they were written");
    // They are followed as all rows are, and archived like them.
    let of_feed = feed(store);
    assert_eq!(of_feed.len(), 4);
    let items = corrections.into_iter().map(|row| FeedItem::Row(Box::new(row)));
    assert_eq!(of_feed[2..], items.collect::<Vec<_>>());
    let before = Timestamp::from_millis(LATER + 1);
    let mut query = ArchiveQuery { before, up_to: Some(0), after: 0, limit: 0 };
    let page = store.ledger.archivable(&query).unwrap();
    assert_eq!((page.kept, page.kept_corrections), (3, 2));
    query.up_to = None;
    let page = store.ledger.archivable(&query).unwrap();
    assert_eq!((page.rows.len(), page.kept_corrections), (3, 0));
    assert_eq!(store.ledger.archive(before, &page.numbers).unwrap(), 3);
    assert_eq!(by_day(store), expected);
}

#[test]
fn what_is_made_again_keeps_corrections() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let row = one_turn(&store);
    store.ledger.correct(vec![correction(&row, 1, "0.01")]).unwrap();
    let (of_day, of_feed, all) = (by_day(&store), feed(&store), rows(&store, RowQuery::default()));
    drop(store);
    for kinds in [&["m/ledger"][..], &["m/ledger", "a/", "b/", "i/", "j/"]] {
        tamper(directory.path(), |database| {
            for kind in kinds {
                let found: Vec<_> = database.scan_prefix(kind).map(Result::unwrap).collect();
                found.into_iter().for_each(|(key, _)| drop(database.remove(key).unwrap()));
            }
        });
        let store = Store::open(directory.path()).unwrap();
        assert_eq!(by_day(&store), of_day);
        assert_eq!((feed(&store), rows(&store, RowQuery::default())), (of_feed.clone(), all.clone()));
    }
}

//! The ledger: what every backend promises of it. `closings` and `corrections` hold that these are kept,
//! `histories` that it is what the logs say after any history,
//! `versions` that nothing is lost of what an older engine wrote.

mod closings;
mod corrections;
mod histories;
mod versions;

use self::closings::what_comes_behind_a_closing_says_that_it_is_late;
use self::corrections::a_correction_is_money_of_the_day_on_which_it_was_made;

use std::collections::BTreeMap;

use crate::samples::*;
use playhouse_protocol::day::DAY;
use playhouse_protocol::ledger::{
    ArchiveQuery, FeedItem, GroupBy, Purpose, RowQuery, Tier, UsageKey, UsageQuery, UsageSum,
};
use playhouse_protocol::operator::BY_HAND_TENANT;
use playhouse_protocol::record::{AttemptEnded, AttemptOutcome, AttemptStarted, SessionCreated};
use playhouse_protocol::usage::{Cost, Quality, Tokens, Usage};
use playhouse_protocol::{Day, Entry, LedgerRow, ModelRef, Record, Seq, SessionId, Timestamp};
use playhouse_store::{Append, Store};

conformance!(
    a_row_says_what_its_attempt_used,
    an_attempt_that_used_nothing_has_no_row,
    a_turn_that_is_over_follows_its_rows,
    rows_outlive_their_session,
    a_fork_has_rows_of_its_own_only,
    the_rows_of_a_tree_are_found_by_its_root,
    what_was_archived_stays_in_the_sums,
    sums_are_paged,
    numbers_that_a_server_made_up_harm_nothing,
    a_correction_is_money_of_the_day_on_which_it_was_made,
    what_comes_behind_a_closing_says_that_it_is_late,
);

/// Noon of the first day that rows are of.
const NOON: u64 = 20_000 * DAY + DAY / 2;

fn turn(number: u64) -> Record {
    Record::TurnStarted { turn: message(number) }
}

/// Appends records that are made at `at`.
fn write(store: &Store, number: u64, tenant: &str, at: u64, records: Vec<Record>) {
    let head = store.log.summary(session(number)).unwrap().map_or(Seq::START, |summary| summary.head);
    let mut entries = entries(head.0, records);
    entries.iter_mut().for_each(|entry| entry.at = Timestamp::from_millis(at));
    append_entries(store, session(number), tenant, head, entries).unwrap();
}

fn fork(store: &Store, of: u64, from: u64, turn: Option<u64>, more: Vec<Record>) {
    let head = store.log.summary(session(from)).unwrap().unwrap();
    let record = playhouse_protocol::record::Forked {
        tenant: head.tenant.clone(),
        turn: turn.map(message),
        ..forked(session(of), session(from), head.head.0)
    };
    let entries = entries(head.head.0, [vec![Record::Forked(record)], more].concat());
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let fork = Append { session: session(of), tenant: head.tenant.into(), expected: head.head, entries };
    store.log.fork(fork, Box::new(move |result| sender.send(result).unwrap()));
    receiver.recv().unwrap().unwrap();
}

fn rows(store: &Store, query: RowQuery) -> Vec<LedgerRow> {
    let (mut query, mut found) = (query, Vec::new());
    loop {
        let page = store.ledger.rows(&query).unwrap();
        assert!(query.limit == 0 || page.rows.len() <= query.limit);
        found.extend(page.rows);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return found,
        }
    }
}

fn usage(store: &Store, query: UsageQuery) -> BTreeMap<UsageKey, UsageSum> {
    let (mut query, mut found) = (query, BTreeMap::new());
    loop {
        let page = store.ledger.usage(&query).unwrap();
        assert!(query.limit == 0 || page.groups.len() <= query.limit);
        for group in page.groups {
            assert!(found.last_key_value().is_none_or(|(last, _)| *last < group.key), "in order, each once");
            found.insert(group.key, group.sum);
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None => return found,
        }
    }
}

/// The feed, page by page: it has no gaps.
fn feed(store: &Store) -> Vec<FeedItem> {
    let mut found = Vec::new();
    loop {
        let page = store.ledger.feed(found.len() as u64, 3).unwrap();
        if page.is_empty() {
            assert_eq!(store.ledger.feed_end(), found.len() as u64);
            return found;
        }
        for (number, item) in page {
            found.push(item);
            assert_eq!(number, found.len() as u64);
        }
    }
}

/// What the feed says, in short.
fn told(store: &Store) -> Vec<String> {
    feed(store)
        .into_iter()
        .map(|item| match item {
            FeedItem::Row(row) => {
                format!("{} {}", row.attempt.as_str().get(4..16).unwrap(), row.tokens.input)
            }
            FeedItem::TurnEnded(end) => format!("end {}", end.turn.as_str().get(4..16).unwrap()),
            FeedItem::Closed(closed) => format!("closed {}", closed.until.as_millis()),
        })
        .collect()
}

fn a_row_says_what_its_attempt_used(store: &Store) {
    let Record::AttemptStarted(first) = started(7, 1) else { unreachable!("it starts an attempt") };
    let begin = AttemptStarted {
        tier: Tier::Light,
        purpose: Purpose::Title,
        catalogue: Some("2026-11-01".to_owned()),
        attempt_number: 2,
        ..first
    };
    write(store, 1, TENANT, NOON, vec![created(session(1), TENANT, "/w"), turn(1)]);
    write(store, 1, TENANT, NOON, vec![Record::AttemptStarted(begin)]);
    let raw = serde_json::json!({"prompt_tokens": 500});
    let end = Record::AttemptEnded(AttemptEnded {
        attempt: attempt(7),
        outcome: AttemptOutcome::Aborted,
        usage: Some(Usage {
            tokens: Tokens { input: 500, ..Tokens::default() },
            quality: Quality::Estimated,
            raw: Some(raw.clone()),
            inner: Vec::new(),
            provider_cost: None,
            served: Vec::new(),
        }),
        cost: Some(Cost("0.0015".parse().unwrap())),
        answered_by: Some("claude-1".to_owned()),
        assumed: Vec::new(),
        calls: Vec::new(),
        costs: None,
        ended: None,
        inner: Vec::new(),
    });
    write(store, 1, TENANT, NOON + 1_000, vec![end]);
    let found = rows(store, RowQuery::default());
    let [row] = &found[..] else { panic!("{found:?}") };
    assert_eq!(row.id.0, "row_000000000007Atte1234567890");
    assert_eq!((&*row.tenant, &*row.workspace), (TENANT, "/w"));
    assert_eq!((row.session, row.root, row.parent_step), (session(1), session(1), None));
    assert_eq!((row.turn, row.step, row.step_number), (message(1), message(2), 1));
    assert_eq!((row.attempt, row.attempt_number), (attempt(7), 2));
    assert_eq!((&*row.agent, row.purpose, row.tier), ("build", Purpose::Title, Tier::Light));
    assert_eq!((&*row.provider, &*row.model), ("anthropic", "claude-sonnet-4-5"));
    assert_eq!(row.answered_by.as_deref(), Some("claude-1"));
    assert_eq!((row.tokens.total(), row.quality, row.raw.as_ref()), (500, Quality::Estimated, Some(&raw)));
    assert_eq!(row.catalogue.as_deref(), Some("2026-11-01"));
    assert_eq!(row.prices.input, Some("3".parse().unwrap()));
    assert_eq!((row.costs.input, row.costs.output), (row.cost, Some(Cost::ZERO)));
    assert_eq!(row.cost, Some(Cost("0.0015".parse().unwrap())));
    assert_eq!((row.started.as_millis(), row.ended.as_millis()), (NOON, NOON + 1_000));
}

fn an_attempt_that_used_nothing_has_no_row(store: &Store) {
    let unused = Record::AttemptEnded(AttemptEnded {
        attempt: attempt(1),
        outcome: AttemptOutcome::Lost,
        usage: None,
        cost: None,
        answered_by: None,
        assumed: Vec::new(),
        calls: Vec::new(),
        costs: None,
        ended: None,
        inner: Vec::new(),
    });
    write(store, 1, TENANT, NOON, vec![created(session(1), TENANT, "/w"), turn(1), started(1, 1), unused]);
    // Nothing is known of its beginning.
    write(store, 1, TENANT, NOON, vec![used(9, 5)]);
    assert_eq!(rows(store, RowQuery::default()), []);
    assert_eq!((store.ledger.feed_end(), store.ledger.feed(0, 9).unwrap().len()), (0, 0));
    // Nobody pays for calls by hand.
    let begin = vec![created(session(2), BY_HAND_TENANT, "/w"), turn(1), started(2, 1), used(2, 5), ended(1)];
    write(store, 2, BY_HAND_TENANT, NOON, begin);
    assert_eq!((rows(store, RowQuery::default()), store.ledger.feed_end()), (vec![], 0));
    assert!(usage(store, UsageQuery::default()).is_empty());
}

fn a_turn_that_is_over_follows_its_rows(store: &Store) {
    write(
        store,
        1,
        TENANT,
        NOON,
        vec![created(session(1), TENANT, "/w"), turn(1), started(1, 1), started(2, 1)],
    );
    write(store, 1, TENANT, NOON, vec![used(1, 10), used(2, 20), started(3, 1), ended(1)]);
    // A prompt that waited and never ran.
    write(store, 1, TENANT, NOON, vec![ended(5)]);
    // One attempt was still under way, and a title was made later.
    write(store, 1, TENANT, NOON, vec![used(3, 30), turn(2), started(4, 1), used(4, 40), ended(2)]);
    let expected = [
        "000000000001 10",
        "000000000002 20",
        "end 000000000001",
        "000000000003 30",
        "end 000000000001",
        "000000000004 40",
        "end 000000000001",
        "end 000000000002",
    ];
    assert_eq!(told(store), expected);
    // A session that is removed in the middle of a turn.
    write(
        store,
        2,
        TENANT,
        NOON,
        vec![created(session(2), TENANT, "/w"), turn(7), started(5, 7), used(5, 50)],
    );
    delete(store, session(2)).unwrap();
    assert_eq!(told(store)[8..], ["000000000005 50", "end 000000000007"]);
    assert_eq!(store.ledger.feed(3, 1).unwrap()[0].0, 4);
    assert_eq!(store.ledger.feed(0, 0).unwrap(), []);
    assert_eq!(store.ledger.feed(u64::MAX, 5).unwrap(), []);
}

fn rows_outlive_their_session(store: &Store) {
    write(
        store,
        1,
        TENANT,
        NOON,
        vec![created(session(1), TENANT, "/w"), turn(1), started(1, 1), used(1, 10)],
    );
    let before = (rows(store, RowQuery::default()), usage(store, UsageQuery::default()));
    delete(store, session(1)).unwrap();
    assert_eq!((rows(store, RowQuery::default()), usage(store, UsageQuery::default())), before);
    let of_session = RowQuery { session: Some(session(1)), ..RowQuery::default() };
    assert_eq!(rows(store, of_session), before.0);
    assert_eq!(before.0.len(), 1);
}

fn a_fork_has_rows_of_its_own_only(store: &Store) {
    let first = vec![created(session(1), TENANT, "/w"), turn(1), started(1, 1), used(1, 10), started(2, 1)];
    write(store, 1, TENANT, NOON, first);
    // What ran in the prefix is ended in the fork, and was another's.
    fork(store, 2, 1, Some(1), vec![used(2, 20), started(3, 1), used(3, 30), ended(1)]);
    let found = rows(store, RowQuery::default());
    let told: Vec<_> = found.iter().map(|row| (row.session, row.root, row.tokens.input)).collect();
    assert_eq!(told, [(session(1), session(1), 10), (session(2), session(2), 30)]);
}

fn child(number: u64, parent: u64, root: u64, step: u64) -> Record {
    let Record::SessionCreated(created) = created(session(number), TENANT, "/w") else {
        unreachable!("it creates a session")
    };
    Record::SessionCreated(SessionCreated {
        parent: Some(session(parent)),
        root: Some(session(root)),
        parent_step: Some(message(step)),
        ..created
    })
}

fn the_rows_of_a_tree_are_found_by_its_root(store: &Store) {
    let first = [created(session(1), TENANT, "/w"), child(2, 1, 1, 8), child(3, 2, 1, 9)];
    for (number, record) in (1..).zip(first) {
        write(
            store,
            number,
            TENANT,
            NOON + number,
            vec![record, turn(number), started(number, 1), used(number, number)],
        );
    }
    write(
        store,
        4,
        TENANT,
        NOON,
        vec![created(session(4), TENANT, "/w"), turn(4), started(4, 1), used(4, 4)],
    );
    let sessions = |query| rows(store, query).iter().map(|row| row.tokens.input).collect::<Vec<_>>();
    let tree = |root| RowQuery { root: Some(session(root)), limit: 2, ..RowQuery::default() };
    assert_eq!(sessions(tree(1)), [1, 2, 3]);
    assert_eq!(sessions(tree(2)), [0_u64; 0]);
    assert_eq!(sessions(tree(4)), [4]);
    for number in 1..=4 {
        let query = RowQuery { session: Some(session(number)), ..RowQuery::default() };
        assert_eq!(sessions(query.clone()), [number]);
        assert_eq!(sessions(RowQuery { turn: Some(message(1)), ..query.clone() }), [number]);
        assert_eq!(sessions(RowQuery { tenant: Some("other".to_owned()), ..query }), [0_u64; 0]);
    }
    assert_eq!(rows(store, tree(1))[1].parent_step, Some(message(8)));
    let early = RowQuery { to: Some(Timestamp::from_millis(NOON + 2)), ..tree(1) };
    assert_eq!(sessions(early), [1]);
}

fn what_was_archived_stays_in_the_sums(store: &Store) {
    let begin = [created(session(1), TENANT, "/w"), created(session(2), "other", "/w")];
    for (number, record) in (1..).zip(begin) {
        let tenant = if number == 1 { TENANT } else { "other" };
        write(store, number, tenant, NOON, vec![record, turn(number)]);
        for day in 0..4 {
            let attempt = number * 10 + day;
            write(store, number, tenant, NOON + day * DAY, vec![started(attempt, number), used(attempt, 1)]);
        }
        write(store, number, tenant, NOON + 4 * DAY, vec![ended(number)]);
    }
    let by = vec![GroupBy::Tenant, GroupBy::Day, GroupBy::Session];
    let query = UsageQuery { by, ..UsageQuery::default() };
    let (sums, end) = (usage(store, query.clone()), store.ledger.feed_end());
    assert_eq!((sums.len(), end), (8, 10));
    let before = Timestamp::from_millis(NOON + 2 * DAY);
    assert_eq!(store.ledger.archived_before().unwrap(), None);
    let archive = ArchiveQuery { before, up_to: Some(6), after: 0, limit: 1 };
    let (mut query_of_page, mut away, mut kept) = (archive.clone(), Vec::new(), 0);
    loop {
        let page = store.ledger.archivable(&query_of_page).unwrap();
        assert_eq!(store.ledger.archive(before, &page.numbers).unwrap(), page.rows.len() as u64);
        away.extend(page.rows);
        kept += page.kept;
        let Some(next) = page.next else { break };
        query_of_page.after = next;
    }
    // Two days of the first session, and of the second the one that stands within what was exported.
    assert_eq!(away.iter().map(|row| row.attempt).collect::<Vec<_>>(), [10, 11, 20].map(attempt));
    assert_eq!(kept, 1);
    assert_eq!(rows(store, RowQuery::default()).len(), 5);
    assert_eq!(usage(store, query), sums);
    assert_eq!(store.ledger.feed_end(), end);
    let numbers: Vec<u64> = store.ledger.feed(0, 100).unwrap().iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [3, 4, 5, 7, 8, 9, 10]);
    // What is too young stays, whoever names it.
    assert_eq!(store.ledger.archive(before, &[1, 4, 9, 99]).unwrap(), 0);
    assert_eq!(store.ledger.archived_before().unwrap(), Some(before));
    let all = ArchiveQuery { before: Timestamp::from_millis(u64::MAX), up_to: None, after: 0, limit: 0 };
    let page = store.ledger.archivable(&all).unwrap();
    assert_eq!((page.numbers.len(), page.rows.len(), page.next), (7, 5, None));
    assert_eq!(store.ledger.archive(all.before, &page.numbers).unwrap(), 5);
    assert_eq!((rows(store, RowQuery::default()).len(), store.ledger.feed_end()), (0, end));
    write(store, 1, TENANT, NOON + 5 * DAY, vec![turn(3), started(50, 3), used(50, 1)]);
    assert_eq!(store.ledger.feed(0, 9).unwrap()[0].0, end + 1, "numbers are not given again");
}

fn sums_are_paged(store: &Store) {
    for number in 1..=5 {
        let tenant = if number % 2 == 0 { "even" } else { "odd" };
        let begin = vec![created(session(number), tenant, "/w"), turn(1)];
        write(store, number, tenant, NOON, begin);
        for day in 0..3 {
            let attempt = number * 10 + day;
            write(store, number, tenant, NOON + day * DAY, vec![started(attempt, 1), used(attempt, number)]);
        }
    }
    for by in
        [vec![GroupBy::Session], vec![GroupBy::Session, GroupBy::Day], vec![GroupBy::Tenant, GroupBy::Day]]
    {
        let whole = UsageQuery { by, ..UsageQuery::default() };
        let expected = usage(store, whole.clone());
        for limit in 1..6 {
            assert_eq!(usage(store, UsageQuery { limit, ..whole.clone() }), expected, "{limit}");
        }
        let even = UsageQuery { tenant: Some("even".to_owned()), limit: 2, ..whole };
        let of_even: BTreeMap<_, _> =
            expected.into_iter().filter(|(key, _)| key.tenant.as_deref() == Some("even")).collect();
        assert_eq!(usage(store, even), of_even);
    }
}

fn numbers_that_a_server_made_up_harm_nothing(store: &Store) {
    write(store, 1, TENANT, NOON, vec![created(session(1), TENANT, "/w"), turn(1)]);
    for number in 1..=3 {
        let most = u64::MAX;
        let tokens =
            Tokens { input: most, cache_read: most, output: most, reasoning: most, ..Tokens::default() };
        let end = Record::AttemptEnded(AttemptEnded {
            attempt: attempt(number),
            outcome: AttemptOutcome::Finished,
            usage: Some(Usage { tokens, ..Usage::default() }),
            cost: Some(Cost(rust_decimal::Decimal::MAX)),
            answered_by: None,
            assumed: Vec::new(),
            calls: Vec::new(),
            costs: None,
            ended: None,
            inner: Vec::new(),
        });
        write(store, 1, TENANT, u64::MAX - 5, vec![started(number, 1), end]);
    }
    let sums = usage(store, UsageQuery { by: vec![GroupBy::Day], ..UsageQuery::default() });
    let (_, sum) = sums.first_key_value().unwrap();
    assert_eq!((sum.totals.tokens.total(), sum.totals.attempts), (u64::MAX, 3));
    assert_eq!(sum.totals.cost, Cost(rust_decimal::Decimal::MAX));
}

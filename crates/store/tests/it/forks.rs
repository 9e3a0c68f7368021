//! Logs that share records: what every backend promises of forks, what becomes of damage in a shared part, and that no
//! tree of forks, appends and deletions reads otherwise than copies would.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::sync_channel;

use playhouse_protocol::record::Forked;
use playhouse_protocol::{Entry, Record, Seq, SessionId};
use playhouse_store::{Append, ListQuery, Store, StoreError};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::damage::{frame_key, tamper};
use crate::raw;
use crate::samples::*;

conformance!(
    a_fork_reads_the_shared_records_and_its_own,
    a_fork_pays_and_is_listed_for_itself,
    forks_of_forks_read_through,
    a_deleted_parent_keeps_what_its_forks_share,
    what_no_fork_needs_any_more_goes,
    a_fork_that_does_not_fit_is_refused_whole,
    requests_for_forks_see_each_other,
    a_chain_of_forks_has_an_end,
);

/// The first entries of the fork `of` of `from` at `at`, and more records.
fn fork_entries(of: SessionId, from: SessionId, at: u64, more: Vec<Record>) -> Vec<Entry> {
    let forked = Record::Forked(Forked { turn: None, ..forked(of, from, at) });
    entries(at, [vec![forked], more].concat())
}

fn queue_fork(
    store: &Store,
    of: SessionId,
    from: SessionId,
    at: u64,
    more: Vec<Record>,
) -> std::sync::mpsc::Receiver<Result<Seq, StoreError>> {
    let entries = fork_entries(of, from, at, more);
    let (sender, receiver) = sync_channel(1);
    let fork = Append { session: of, tenant: TENANT.into(), expected: Seq(at), entries };
    store.log.fork(fork, Box::new(move |result| sender.send(result).unwrap()));
    receiver
}

fn fork(store: &Store, of: u64, from: u64, at: u64, more: Vec<Record>) -> Result<Seq, StoreError> {
    queue_fork(store, session(of), session(from), at, more).recv().unwrap()
}

/// Session 1 with ten records.
fn parent(store: &Store) {
    create(store, session(1));
    let records = (2..=10).map(|number| titled(&number.to_string())).collect();
    append(store, session(1), 1, records).unwrap();
}

fn titles(store: &Store, number: u64) -> Vec<String> {
    let title = |entry: Entry| match entry.record {
        Record::SessionCreated(_) => "created".to_owned(),
        Record::SessionChanged(changed) => changed.title.unwrap(),
        other => other.kind().to_owned(),
    };
    read_all(store, session(number)).into_iter().map(title).collect()
}

fn is_missing(store: &Store, number: u64) -> bool {
    let read = store.log.read(session(number), Seq::START, 10);
    let listed = store.log.list(&ListQuery::default()).unwrap().sessions;
    matches!(read, Err(StoreError::Missing(_)))
        && store.log.summary(session(number)).unwrap().is_none()
        && listed.iter().all(|summary| summary.id != session(number))
}

fn a_fork_reads_the_shared_records_and_its_own(store: &Store) {
    parent(store);
    assert_eq!(fork(store, 2, 1, 4, vec![titled("mine")]).unwrap(), Seq(6));
    let expected = ["created", "2", "3", "4", "session.forked", "mine"];
    assert_eq!(titles(store, 2), expected);
    append(store, session(2), 6, vec![titled("more")]).unwrap();
    append(store, session(1), 10, vec![titled("11")]).unwrap();
    assert_eq!(titles(store, 2), [&expected[..], &["more"]].concat());
    assert_eq!(titles(store, 1).len(), 11);
    // In pages, over the seam.
    for (after, limit, places) in [(0, 2, 1..3), (2, 3, 3..6), (3, 9, 4..8), (5, 1, 6..7), (7, 5, 0..0)] {
        let read = store.log.read(session(2), Seq(after), limit).unwrap();
        assert_eq!(read.damage, None);
        let found: Vec<u64> = read.entries.iter().map(|entry| entry.seq.0).collect();
        assert_eq!(found, places.collect::<Vec<_>>(), "after {after}");
    }
}

fn a_fork_pays_and_is_listed_for_itself(store: &Store) {
    create(store, session(1));
    append(store, session(1), 1, vec![admitted(1), started(1, 1), used(1, 500), ended(1), admitted(2)])
        .unwrap();
    fork(store, 2, 1, 5, Vec::new()).unwrap();
    let summary = store.log.summary(session(2)).unwrap().unwrap();
    assert_eq!((summary.totals().attempts, summary.turns, summary.open_turns), (0, 0, 0));
    assert_eq!((summary.forked_from, summary.parent), (Some(session(1)), None));
    assert_eq!(Some(summary), fold(&read_all(store, session(2))), "it is the fold of the log");
    assert_eq!(store.log.unfinished().unwrap(), [session(1)]);
    assert_eq!(store.log.count(TENANT).unwrap(), 2);
    append(store, session(2), 6, vec![admitted(7), started(7, 7), used(7, 40)]).unwrap();
    let summary = store.log.summary(session(2)).unwrap().unwrap();
    assert_eq!(summary.totals().tokens.input, 40);
    assert_eq!(Some(summary), fold(&read_all(store, session(2))));
    assert_eq!(store.log.unfinished().unwrap(), [session(1), session(2)]);
    let listed =
        store.log.list(&ListQuery { tenant: Some(TENANT.to_owned()), ..ListQuery::default() }).unwrap();
    assert_eq!(listed.sessions.iter().map(|found| found.id).collect::<Vec<_>>(), [session(2), session(1)]);
}

fn forks_of_forks_read_through(store: &Store) {
    parent(store);
    fork(store, 2, 1, 4, vec![titled("two")]).unwrap();
    fork(store, 3, 2, 6, vec![titled("three")]).unwrap();
    // Cut where the first one's records still are.
    fork(store, 4, 3, 3, Vec::new()).unwrap();
    fork(store, 5, 3, 7, vec![titled("five")]).unwrap();
    let forked = "session.forked";
    assert_eq!(titles(store, 3), ["created", "2", "3", "4", forked, "two", forked, "three"]);
    assert_eq!(titles(store, 4), ["created", "2", "3", forked]);
    assert_eq!(titles(store, 5), ["created", "2", "3", "4", forked, "two", forked, forked, "five"]);
    for number in 2..=5 {
        assert_eq!(store.log.summary(session(number)).unwrap(), fold(&read_all(store, session(number))));
    }
    // One shares no record of this one's own, so it does not depend on it.
    delete(store, session(3)).unwrap();
    delete(store, session(2)).unwrap();
    delete(store, session(1)).unwrap();
    assert_eq!(titles(store, 4), ["created", "2", "3", forked]);
    assert_eq!(titles(store, 5).len(), 9);
}

fn a_deleted_parent_keeps_what_its_forks_share(store: &Store) {
    parent(store);
    fork(store, 2, 1, 4, Vec::new()).unwrap();
    assert_eq!(delete(store, session(1)).unwrap(), Seq(10));
    assert!(is_missing(store, 1));
    assert_eq!(titles(store, 2).len(), 5);
    append(store, session(2), 5, vec![titled("on")]).unwrap();
    // It is gone for everybody else.
    assert!(matches!(delete(store, session(1)), Err(StoreError::Missing(_))));
    assert!(matches!(fork(store, 3, 1, 2, Vec::new()), Err(StoreError::Missing(id)) if id == session(1)));
    assert!(matches!(
        append(store, session(1), 10, vec![titled("a")]),
        Err(StoreError::Conflict { found: Seq::START, .. })
    ));
    let error = append(store, session(1), 0, vec![created(session(1), TENANT, "/w")]).unwrap_err();
    assert!(error.to_string().contains("take another id"), "{error}");
    assert_eq!(store.log.count(TENANT).unwrap(), 1);
    assert_eq!(titles(store, 2).len(), 6);
}

fn what_no_fork_needs_any_more_goes(store: &Store) {
    parent(store);
    fork(store, 2, 1, 4, vec![titled("two")]).unwrap();
    fork(store, 3, 2, 6, Vec::new()).unwrap();
    fork(store, 4, 1, 2, Vec::new()).unwrap();
    for number in [1, 2] {
        delete(store, session(number)).unwrap();
    }
    assert_eq!((titles(store, 3).len(), titles(store, 4).len()), (7, 3));
    delete(store, session(3)).unwrap();
    assert!(is_missing(store, 2) && is_missing(store, 3));
    assert_eq!(titles(store, 4), ["created", "2", "session.forked"]);
    delete(store, session(4)).unwrap();
    // Nothing of them is left, so that their names are as good as new.
    for number in 1..=4 {
        assert!(is_missing(store, number));
        create(store, session(number));
        assert_eq!(titles(store, number), ["created"]);
    }
}

fn a_fork_that_does_not_fit_is_refused_whole(store: &Store) {
    parent(store);
    append_entries(store, session(5), "other", Seq(0), entries(0, vec![created(session(5), "other", "/w")]))
        .unwrap();
    create(store, session(6));
    append(store, session(6), 1, vec![Record::Deleted {}]).unwrap();
    let valid = || fork_entries(session(2), session(1), 4, vec![titled("a")]);
    let with = |change: &dyn Fn(&mut Forked)| {
        let mut entries = valid();
        let Record::Forked(forked) = &mut entries[0].record else { panic!("it is forked first") };
        change(forked);
        entries
    };
    let at = |at: u64| fork_entries(session(2), session(1), at, Vec::new());
    let twice =
        fork_entries(session(2), session(1), 4, vec![Record::Forked(forked(session(2), session(1), 4))]);
    for (entries, expected, said) in [
        (vec![], 4, "no records"),
        (entries(4, vec![titled("a")]), 4, "a fork begins with session.forked"),
        (valid(), 5, "record 5 stands where record 6 should"),
        (twice, 4, "it begins twice"),
        (with(&|forked| forked.session = session(3)), 4, "is that of session ses_000000000003"),
        (with(&|forked| forked.at = Seq(3)), 4, "behind record 3"),
        (with(&|forked| forked.tenant = "other".into()), 4, "of tenant \"other\""),
        (with(&|forked| forked.workspace = "/v".into()), 4, "is one of tenant \"acme\" in /w"),
        (with(&|forked| forked.from = session(5)), 4, "is one of tenant \"other\""),
        (with(&|forked| forked.from = session(9)), 4, "there is no session ses_000000000009"),
        (with(&|forked| forked.from = session(6)), 4, "there is no session ses_000000000006"),
        (at(11), 11, "ends at record 10"),
        (at(0), 0, "it shares no record"),
    ] {
        let (sender, receiver) = sync_channel(1);
        let fork = Append { session: session(2), tenant: TENANT.into(), expected: Seq(expected), entries };
        store.log.fork(fork, Box::new(move |result| sender.send(result).unwrap()));
        let error = receiver.recv().unwrap().unwrap_err().to_string();
        assert!(error.contains(said), "expected {said:?} in {error}");
        assert!(is_missing(store, 2));
    }
    // As an append, it is none.
    let error = append_entries(store, session(1), TENANT, Seq(10), at(10)).unwrap_err().to_string();
    assert!(error.contains("only a new fork begins"), "{error}");
    fork(store, 2, 1, 4, Vec::new()).unwrap();
    let error = fork(store, 2, 1, 4, Vec::new()).unwrap_err();
    assert!(matches!(error, StoreError::Conflict { found: Seq(5), .. }), "{error}");
}

fn requests_for_forks_see_each_other(store: &Store) {
    let (sender, receiver) = sync_channel(8);
    let done = || {
        let sender = sender.clone();
        Box::new(move |result| sender.send(result).unwrap())
    };
    let entries = entries(0, vec![created(session(1), TENANT, "/w"), titled("2")]);
    let append = Append { session: session(1), tenant: TENANT.into(), expected: Seq(0), entries };
    store.log.append(append, done());
    let fork = |of, from, at| Append {
        session: session(of),
        tenant: TENANT.into(),
        expected: Seq(at),
        entries: fork_entries(session(of), session(from), at, Vec::new()),
    };
    store.log.fork(fork(2, 1, 2), done());
    store.log.fork(fork(3, 2, 3), done());
    store.log.delete(session(1), done());
    store.log.delete(session(2), done());
    let ends: Vec<u64> = (0..5).map(|_| receiver.recv().unwrap().unwrap().0).collect();
    assert_eq!(ends, [2, 3, 4, 2, 3]);
    assert_eq!(titles(store, 3), ["created", "2", "session.forked", "session.forked"]);
    assert!(is_missing(store, 1) && is_missing(store, 2));
    store.log.delete(session(3), done());
    store.log.append(
        Append {
            session: session(1),
            tenant: TENANT.into(),
            expected: Seq(0),
            entries: crate::samples::entries(0, vec![created(session(1), TENANT, "/w")]),
        },
        done(),
    );
    assert_eq!((receiver.recv().unwrap().unwrap(), receiver.recv().unwrap().unwrap()), (Seq(4), Seq(1)));
    assert_eq!(titles(store, 1), ["created"]);
}

fn a_chain_of_forks_has_an_end(store: &Store) {
    create(store, session(1));
    let waiting: Vec<_> = (1..=1_001)
        .map(|place| queue_fork(store, session(place + 1), session(place), place, Vec::new()))
        .collect();
    let (last, rest) = waiting.split_last().unwrap();
    for answer in rest {
        answer.recv().unwrap().unwrap();
    }
    let error = last.recv().unwrap().unwrap_err().to_string();
    assert!(error.contains("1000 times over"), "{error}");
    assert_eq!(read_all(store, session(1_001)).len(), 1_001);
    // One that is cut nearer to the first is no longer in that chain.
    fork(store, 2_000, 1_001, 10, Vec::new()).unwrap();
    assert_eq!(read_all(store, session(2_000)).len(), 11);
}

/// A closed store with session 1 of ten records, its fork 2 at the fourth, and the fork 3 of that, with eight.
fn closed_store() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    create(&store, session(1));
    append_each(&store, session(1), 1, (2..=10).map(|number| titled(&number.to_string())).collect());
    fork(&store, 2, 1, 4, vec![titled("two")]).unwrap();
    fork(&store, 3, 2, 6, vec![titled("three")]).unwrap();
    directory
}

/// Opens the store: the log of a session is good up to before `seq`.
fn check_damage(data: &Path, number: u64, seq: u64, reason: &str) {
    let store = Store::open(data).unwrap();
    let read = store.log.read(session(number), Seq::START, usize::MAX).unwrap();
    let damage = read.damage.expect("the damage is seen");
    assert!(damage.to_string().contains(reason), "expected {reason:?} in {damage}");
    assert_eq!((damage.seq, read.entries.len() as u64), (Seq(seq), seq - 1));
    assert!(store.log.summary(session(number)).unwrap().is_some());
}

#[test]
fn damage_in_a_shared_record_is_seen_by_all_that_share_it() {
    let directory = closed_store();
    tamper(directory.path(), |database| {
        let mut frame = database.get(frame_key(1, 3)).unwrap().unwrap().to_vec();
        *frame.last_mut().unwrap() ^= 1;
        database.insert(frame_key(1, 3), frame).unwrap();
    });
    for number in 1..=3 {
        check_damage(directory.path(), number, 3, "checksum");
    }
    // What comes before it can be forked.
    let store = Store::open(directory.path()).unwrap();
    fork(&store, 4, 3, 2, Vec::new()).unwrap();
    assert_eq!(titles(&store, 4), ["created", "2", "session.forked"]);
}

#[test]
fn shared_records_that_are_lost_are_named() {
    let directory = closed_store();
    tamper(directory.path(), |database| {
        for place in 3..=10 {
            database.remove(frame_key(1, place)).unwrap().unwrap();
        }
    });
    for number in 2..=3 {
        check_damage(directory.path(), number, 3, "should go on to record 4");
    }
}

#[test]
fn a_link_that_is_damaged_or_lost_is_named() {
    let key = [b"f/", session(2).as_str().as_bytes()].concat();
    let changes: [fn(&mut Vec<u8>); 3] =
        [|value| value[40] ^= 1, |value| value.truncate(12), |value| value.clear()];
    for change in changes {
        let directory = closed_store();
        tamper(directory.path(), |database| {
            let mut value = database.get(&key).unwrap().unwrap().to_vec();
            change(&mut value);
            database.insert(&key, value).unwrap();
        });
        check_damage(directory.path(), 2, 1, "is damaged");
        check_damage(directory.path(), 3, 1, "is damaged");
        let store = Store::open(directory.path()).unwrap();
        assert_eq!(titles(&store, 1).len(), 10);
        delete(&store, session(2)).unwrap();
        delete(&store, session(3)).unwrap();
        assert_eq!(store.log.list(&ListQuery::default()).unwrap().sessions.len(), 1);
    }
    let directory = closed_store();
    tamper(directory.path(), |database| drop(database.remove(&key).unwrap().unwrap()));
    check_damage(directory.path(), 2, 1, "goes on with record 5");
}

#[test]
fn a_fork_without_its_summary_gets_it_from_its_own_records() {
    let directory = closed_store();
    tamper(directory.path(), |database| {
        database.remove([b"s/", session(3).as_str().as_bytes()].concat()).unwrap().unwrap();
    });
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.log.summary(session(3)).unwrap(), fold(&read_all(&store, session(3))));
    append(&store, session(3), 8, vec![titled("on")]).unwrap();
    assert_eq!(store.log.summary(session(3)).unwrap(), fold(&read_all(&store, session(3))));
}

const CHILD: &str = "PLAYHOUSE_STORE_TEST_FORKS";

/// Not a test by itself: the process that [`forks_and_what_they_share_survive_a_kill`] starts and kills. It goes on in a
/// fork of its session again and again, and deletes the session before; it names what was acknowledged.
#[test]
fn process_that_forks() {
    let Some(data) = std::env::var_os(CHILD) else { return };
    let store = Store::open(Path::new(&data)).unwrap();
    create(&store, session(1));
    let (mut number, mut stdout) = (1, std::io::stdout());
    for end in 1.. {
        if end % 5 == 0 {
            fork(&store, number + 1, number, end, Vec::new()).unwrap();
            delete(&store, session(number)).unwrap();
            number += 1;
        } else {
            append(&store, session(number), end, vec![titled("on")]).unwrap();
        }
        writeln!(stdout, "acknowledged {number} {}", end + 1).unwrap();
    }
}

#[test]
fn forks_and_what_they_share_survive_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["forks::process_that_forks", "--exact", "--nocapture"])
        .env(CHILD, directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut number, mut end) = (0_u64, 0);
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let Some((_, told)) = line.split_once("acknowledged ") else { continue };
        let Some((of, place)) = told.split_once(' ') else { continue };
        let (Ok(of), Ok(place)) = (of.parse(), place.parse::<u64>()) else { continue };
        (number, end) = (of, place);
        if end == 203 {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(end >= 203, "{end}");
    let store = Store::open(directory.path()).unwrap();
    assert!((1..number).all(|before| is_missing(&store, before)));
    // The session that was acknowledged last, or the fork that it went on in.
    let there: Vec<u64> = (number..number + 1_000).filter(|number| !is_missing(&store, *number)).collect();
    assert!((1..=2).contains(&there.len()), "{there:?}");
    for number in there.iter().copied() {
        let entries = read_all(&store, session(number));
        assert_eq!(store.log.summary(session(number)).unwrap(), fold(&entries));
        assert!(entries.len() as u64 >= end, "{} of {end}", entries.len());
        append(&store, session(number), entries.len() as u64, vec![titled("on")]).unwrap();
        assert_eq!(read_all(&store, session(number)).len(), entries.len() + 1);
    }
}

/// Something that happens to a store. Sessions are chosen among those that are there.
#[derive(Clone, Debug)]
enum Act {
    Create,
    Append { session: prop::sample::Index, records: usize },
    Fork { session: prop::sample::Index, at: prop::sample::Index, records: usize },
    Delete { session: prop::sample::Index },
    Reopen,
}

fn acts() -> impl Strategy<Value = Act> {
    let session = any::<prop::sample::Index>;
    prop_oneof![
        1 => Just(Act::Create),
        4 => (session(), 1_usize..4).prop_map(|(session, records)| Act::Append { session, records }),
        6 => (session(), session(), 0_usize..3)
            .prop_map(|(session, at, records)| Act::Fork { session, at, records }),
        4 => session().prop_map(|session| Act::Delete { session }),
        1 => Just(Act::Reopen),
    ]
}

/// A record, and the log and the place in which it was written.
type Copied = (Entry, (u64, u64));

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_of_forks_reads_as_copies_would(acts in vec(acts(), 1..40), backend in backends()) {
        let directory = tempfile::tempdir().unwrap();
        let mut store = open(directory.path(), backend);
        let mut logs: BTreeMap<u64, Vec<Copied>> = BTreeMap::new();
        let mut next = 1;
        // Where the frames of each log end that was ever there.
        let mut ends: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        let texts = |number: u64, count: usize| (0..count).map(move |_| titled(&format!("of {number}")));
        let copied = |number: u64, entries: Vec<Entry>| {
            entries.into_iter().map(move |entry| { let seq = entry.seq.0; (entry, (number, seq)) })
        };
        for act in acts {
            let choose = |index: prop::sample::Index, logs: &BTreeMap<u64, Vec<Copied>>| {
                (!logs.is_empty()).then(|| *logs.keys().nth(index.index(logs.len())).unwrap())
            };
            match act {
                Act::Create => {
                    let record = created(session(next), TENANT, "/w");
                    append(&store, session(next), 0, vec![record.clone()]).unwrap();
                    logs.insert(next, copied(next, entries(0, vec![record])).collect());
                    ends.entry(next).or_default().insert(1);
                    next += 1;
                }
                Act::Append { session: index, records } => {
                    let Some(number) = choose(index, &logs) else { continue };
                    let log = logs.get_mut(&number).unwrap();
                    let (end, records) = (log.len() as u64, texts(number, records).collect::<Vec<_>>());
                    append(&store, session(number), end, records.clone()).unwrap();
                    log.extend(copied(number, entries(end, records)));
                    ends.entry(number).or_default().insert(log.len() as u64);
                }
                Act::Fork { session: index, at, records } => {
                    let Some(number) = choose(index, &logs) else { continue };
                    let shared = logs[&number].clone();
                    let at = at.index(shared.len()) as u64 + 1;
                    let more: Vec<Record> = texts(next, records).collect();
                    fork(&store, next, number, at, more.clone()).unwrap();
                    let own = copied(next, fork_entries(session(next), session(number), at, more));
                    let log: Vec<Copied> = shared.into_iter().take(at as usize).chain(own).collect();
                    ends.entry(next).or_default().insert(log.len() as u64);
                    logs.insert(next, log);
                    next += 1;
                }
                Act::Delete { session: index } => {
                    let Some(number) = choose(index, &logs) else { continue };
                    let log = logs.remove(&number).unwrap();
                    prop_assert_eq!(delete(&store, session(number)).unwrap(), Seq(log.len() as u64));
                }
                Act::Reopen if backend.is_none() => {}
                Act::Reopen => {
                    drop(store);
                    store = open(directory.path(), backend);
                }
            }
        }
        for number in 1..next {
            match logs.get(&number) {
                None => prop_assert!(is_missing(&store, number)),
                Some(log) => {
                    let expected: Vec<Entry> = log.iter().map(|(entry, _)| entry.clone()).collect();
                    prop_assert_eq!(store.log.summary(session(number)).unwrap(), fold(&expected));
                    prop_assert_eq!(read_all(&store, session(number)), expected);
                }
            }
        }
        prop_assert_eq!(store.log.count(TENANT).unwrap(), logs.len() as u64);
        // No record is there twice, and none that nobody can read.
        let mut needed: BTreeMap<u64, u64> = BTreeMap::new();
        for (number, place) in logs.values().flatten().map(|(_, place)| *place) {
            let last = needed.entry(number).or_default();
            *last = place.max(*last);
        }
        // Of a log that was kept for its forks the last frame is cut.
        let frames = needed.into_iter().flat_map(|(number, last)| {
            ends[&number].range(..last).copied().chain([last]).map(move |place| frame_key(number, place))
        });
        let needed: BTreeSet<Vec<u8>> = frames.collect();
        drop(store);
        let Some(backend) = backend else { return Ok(()) };
        let found = raw::keys(directory.path(), backend);
        let kind = |kind: &[u8]| found.iter().filter(|key| key.starts_with(kind)).cloned().collect::<BTreeSet<_>>();
        prop_assert_eq!(kind(b"l/"), needed);
        if logs.is_empty() {
            let rest: Vec<_> = [b"f/", b"d/", b"g/"].iter().flat_map(|prefix| kind(*prefix)).collect();
            prop_assert_eq!(rest, Vec::<Vec<u8>>::new());
        }
    }
}

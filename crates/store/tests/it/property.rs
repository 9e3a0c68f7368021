//! What holds for any history and any damage.

use std::collections::HashMap;

use playhouse_protocol::{Record, Seq};
use playhouse_store::{ListQuery, StoreError, frame};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;

use crate::samples::*;

/// Something that happens to a store.
#[derive(Clone, Debug)]
enum Act {
    Append { session: u64, records: Vec<Record> },
    Delete { session: u64 },
    Reopen,
}

fn records() -> impl Strategy<Value = Record> {
    prop_oneof![
        ".{0,12}".prop_map(|title| titled(&title)),
        (0_u64..3).prop_map(admitted),
        (0_u64..3).prop_map(ended),
        (0_u64..3).prop_map(|number| started(number, 1)),
        (0_u64..3, 0_u64..5_000).prop_map(|(number, input)| used(number, input)),
        (any::<f64>(), any::<i64>()).prop_map(|(float, integer)| with_numbers(float, integer)),
        (60_000_usize..70_000).prop_map(|size| proposed(1, &"z".repeat(size))),
    ]
}

fn with_numbers(float: f64, integer: i64) -> Record {
    let mut record = one_of_each_kind().into_iter().find(|record| record.kind() == "call.settled").unwrap();
    if let Record::CallSettled { result, .. } = &mut record {
        result
            .metadata
            .insert("numbers".to_owned(), Value::from(vec![Value::from(float), Value::from(integer)]));
    }
    record
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        12 => (1_u64..4, vec(records(), 1..4))
            .prop_map(|(session, records)| Act::Append { session, records }),
        1 => (1_u64..4).prop_map(|session| Act::Delete { session }),
        2 => Just(Act::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::histories(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_appended_is_there_after_any_history(acts in vec(acts(), 1..25), backend in backends()) {
        let directory = tempfile::tempdir().unwrap();
        let mut store = open(directory.path(), backend);
        let mut logs: HashMap<u64, Vec<Record>> = HashMap::new();
        for act in acts {
            match act {
                Act::Reopen if backend.is_none() => {}
                Act::Reopen => {
                    let before = store.generation;
                    drop(store);
                    store = open(directory.path(), backend);
                    prop_assert_eq!(store.generation, before + 1);
                }
                Act::Delete { session: number } => {
                    let there = logs.remove(&number).map(|records| Seq(records.len() as u64));
                    prop_assert_eq!(delete(&store, session(number)).ok(), there);
                }
                Act::Append { session: number, mut records } => {
                    let log = logs.entry(number).or_default();
                    if log.is_empty() {
                        records.insert(0, created(session(number), TENANT, "/w"));
                    }
                    let end = append(&store, session(number), log.len() as u64, records.clone()).unwrap();
                    log.extend(records);
                    prop_assert_eq!(end, Seq(log.len() as u64));
                }
            }
        }
        let mut unfinished = Vec::new();
        for number in 1..4 {
            let expected = logs.get(&number).cloned().map(|records| entries(0, records));
            let found = match store.log.read(session(number), Seq::START, usize::MAX) {
                Err(StoreError::Missing(_)) => None,
                result => {
                    let read = result.unwrap();
                    prop_assert_eq!(read.damage, None);
                    Some(read.entries)
                }
            };
            let summary = expected.as_deref().and_then(fold);
            prop_assert_eq!(found, expected);
            unfinished.extend(summary.iter().filter(|summary| summary.is_unfinished()).map(|summary| summary.id));
            prop_assert_eq!(store.log.summary(session(number)).unwrap(), summary);
        }
        prop_assert_eq!(store.log.unfinished_of(TENANT).unwrap(), unfinished.clone());
        prop_assert_eq!(store.log.unfinished().unwrap(), unfinished);
        prop_assert_eq!(store.log.count(TENANT).unwrap(), logs.len() as u64);
        let all = ListQuery { tenant: Some(TENANT.to_owned()), ..ListQuery::default() };
        prop_assert_eq!(store.log.list(&all).unwrap().sessions.len(), logs.len());
        prop_assert_eq!(store.log.list(&Default::default()).unwrap().sessions.len(), logs.len());
    }

    /// Whatever is stored of it: the summary of a session with work may end before its log does.
    #[test]
    fn a_summary_is_the_fold_of_the_log_after_any_appends_and_ends_of_the_process(
        appends in vec((vec(steps(), 1..12), prop::bool::weighted(0.2)), 1..40),
        backend in backends(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mut store = open(directory.path(), backend);
        create(&store, session(1));
        let mut log = read_all(&store, session(1));
        for (records, ends) in appends {
            let more = entries(log.len() as u64, records);
            let end = append_entries(&store, session(1), TENANT, Seq(log.len() as u64), more.clone()).unwrap();
            log.extend(more);
            prop_assert_eq!(end, Seq(log.len() as u64));
            if ends && backend.is_some() {
                // Nothing is written when a store is closed: it is as after a kill.
                drop(store);
                store = open(directory.path(), backend);
            }
            let summary = fold(&log).unwrap();
            let is_open = summary.is_unfinished();
            prop_assert_eq!(store.log.summary(session(1)).unwrap(), Some(summary.clone()));
            prop_assert_eq!(store.log.list(&ListQuery::default()).unwrap().sessions, vec![summary]);
            prop_assert_eq!(store.log.unfinished().unwrap().len(), usize::from(is_open));
        }
        prop_assert_eq!(read_all(&store, session(1)), log);
        let report = store.upkeep.check().unwrap();
        prop_assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
}

/// Records of turns that begin often and end seldom.
fn steps() -> impl Strategy<Value = Record> {
    prop_oneof![
        3 => (0_u64..3).prop_map(admitted),
        2 => (0_u64..3).prop_map(ended),
        6 => (0_u64..5).prop_map(|number| started(number, 1)),
        6 => (0_u64..5, 0_u64..5_000).prop_map(|(number, input)| used(number, input)),
        6 => (0_usize..3_000, any::<u64>()).prop_map(|(size, seed)| proposed(1, &letters(size, seed))),
        1 => ".{0,12}".prop_map(|title| titled(&title)),
        1 => Just(proposed(1, &letters(40_000, 1))),
    ]
}

#[test]
fn no_changed_byte_and_no_cut_is_taken_for_a_record() {
    for (place, record) in (1..).zip(one_of_each_kind()) {
        let entry = entries(place, vec![record]).remove(0);
        let entries = std::slice::from_ref(&entry);
        let (_, frame) = frame::encode(session(1), entries, |_| Err(StoreError::Closed)).unwrap().remove(0);
        let read = |frame: &[u8]| frame::decode(session(1), entry.seq, frame, |_| Err(StoreError::Closed));
        assert_eq!(read(&frame).unwrap(), entries);
        for position in 0..frame.len() {
            for mask in [0x01, 0x20, 0x80, 0xff] {
                let mut changed = frame.clone();
                changed[position] ^= mask;
                assert!(read(&changed).is_err(), "{} with byte {position} changed", entry.record.kind());
            }
            assert!(read(&frame[..position]).is_err(), "{} cut at {position}", entry.record.kind());
        }
    }
}

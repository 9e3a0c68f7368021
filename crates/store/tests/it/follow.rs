//! Whoever follows the ledger's feed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use playhouse_protocol::{Record, Seq, Timestamp};
use playhouse_store::Store;

use crate::samples::*;

conformance!(a_follower_is_told_when_the_feed_grew, a_follower_that_panics_harms_nobody);

/// A session with a turn of one attempt.
fn write(store: &Store, number: u64) {
    let turn = Record::TurnStarted { turn: message(number) };
    let records =
        vec![created(session(number), TENANT, "/w"), turn, started(number, number), used(number, 5)];
    let mut entries = entries(0, records);
    entries.iter_mut().for_each(|entry| entry.at = Timestamp::from_millis(5));
    append_entries(store, session(number), TENANT, Seq::START, entries).unwrap();
}

fn a_follower_is_told_when_the_feed_grew(store: &Store) {
    write(store, 1);
    let told = Arc::<Mutex<Vec<u64>>>::default();
    let seen = Arc::clone(&told);
    let ledger = Arc::downgrade(&store.ledger);
    store.ledger.follow(Box::new(move |end| {
        assert!(ledger.upgrade().is_none_or(|ledger| ledger.feed_end() == end), "readers see it already");
        seen.lock().unwrap().push(end);
        end < 3
    }));
    // Nothing of this is in the feed.
    append(store, session(1), 4, vec![titled("x")]).unwrap();
    assert!(store.shelf.compare_and_set("a", None, Some(b"1")).unwrap());
    assert!(told.lock().unwrap().is_empty());
    write(store, 2);
    write(store, 3);
    assert_eq!(*told.lock().unwrap(), [2, 3]);
    // It wanted no more.
    write(store, 4);
    assert_eq!(*told.lock().unwrap(), [2, 3]);
}

fn a_follower_that_panics_harms_nobody(store: &Store) {
    let end = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&end);
    store.ledger.follow(Box::new(|_| panic!("a careless follower")));
    store.ledger.follow(Box::new(move |end| {
        seen.store(end, Ordering::Relaxed);
        true
    }));
    write(store, 1);
    write(store, 2);
    assert_eq!((end.load(Ordering::Relaxed), store.ledger.feed_end()), (2, 2));
}

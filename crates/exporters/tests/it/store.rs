//! The feed of a store's ledger.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use futures::FutureExt as _;
use playhouse_exporters::{Feed, LedgerFeed, Start, exported_up_to, status_at_rest};
use playhouse_protocol::id::AttemptId;
use playhouse_protocol::operator::ArchivedRows;
use playhouse_protocol::record::{
    AttemptEnded, AttemptOutcome, AttemptStarted, SessionCreated, TurnEnded, TurnOutcome,
};
use playhouse_protocol::usage::{Tokens, Totals, Usage};
use playhouse_protocol::{Entry, IdGenerator, MessageId, ModelRef, Record, Seq, SessionId, Timestamp};
use playhouse_store::{Append, Store};

use crate::lives::{Engine, GRACE, config};
use crate::server::{Kind, Server};

/// A turn with one attempt: a row, and the end of the turn.
fn append_a_turn(store: &Store) {
    let mut ids = IdGenerator::new(|bytes| bytes.fill(3));
    let at = Timestamp::from_millis(1_800_000_000_000);
    let (session, turn, step): (SessionId, MessageId, MessageId) = (ids.next(at), ids.next(at), ids.next(at));
    let attempt: AttemptId = ids.next(at);
    let model = ModelRef::new("p", "m");
    let records = [
        Record::SessionCreated(SessionCreated {
            title: "New session".to_owned(),
            ..SessionCreated::new(session, "acme", "/w", "build", model.clone())
        }),
        Record::TurnStarted { turn },
        Record::AttemptStarted(AttemptStarted {
            estimated_input: 5,
            ..AttemptStarted::new(attempt, turn, step, "build", model)
        }),
        Record::AttemptEnded(AttemptEnded {
            attempt,
            outcome: AttemptOutcome::Finished,
            usage: Some(Usage { tokens: Tokens { input: 5, ..Tokens::default() }, ..Usage::default() }),
            cost: None,
            answered_by: None,
            assumed: Vec::new(),
            calls: Vec::new(),
            costs: None,
            ended: None,
            inner: Vec::new(),
        }),
        Record::TurnEnded(TurnEnded {
            changed: None,
            output: None,
            turn,
            outcome: TurnOutcome::Completed,
            error: None,
            steps: 1,
            totals: Totals::default(),
        }),
    ];
    let entries = (1..).zip(records).map(|(seq, record)| Entry { seq: Seq(seq), at, record }).collect();
    let (sender, receiver) = sync_channel(1);
    let append = Append { session, tenant: "acme".into(), expected: Seq::START, entries };
    store.log.append(append, Box::new(move |result| sender.send(result).unwrap()));
    receiver.recv().unwrap().unwrap();
}

#[test]
fn whoever_waits_is_woken_when_it_grew() {
    let store = Store::memory().unwrap();
    let feed = LedgerFeed::new(Arc::clone(&store.ledger));
    assert_eq!(feed.end(), 0);
    assert!(feed.grown(0).now_or_never().is_none(), "there is nothing");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let waiting = runtime.spawn(feed.grown(0));
    append_a_turn(&store);
    runtime.block_on(waiting).unwrap();
    assert_eq!(feed.end(), 2, "a row, and the end of its turn");
    let numbers: Vec<u64> = feed.after(0, 9).unwrap().iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [1, 2]);
    assert!(feed.grown(1).now_or_never().is_some(), "at once");
    let later = LedgerFeed::new(Arc::clone(&store.ledger));
    assert!(later.grown(1).now_or_never().is_some(), "what was there before it, too");
    let waits = feed.grown(2);
    drop(feed);
    assert!(waits.now_or_never().is_none(), "nothing comes any more");
}

#[test]
fn what_was_archived_is_passed_over() {
    let store = Store::memory().unwrap();
    append_a_turn(&store);
    let server = Server::start(Kind::OpenMeter, 1);
    let feed: Arc<dyn Feed> = Arc::new(LedgerFeed::new(Arc::clone(&store.ledger)));
    assert_eq!(feed.archived().unwrap(), None);
    let before = Timestamp::from_millis(1_800_000_000_001);
    assert_eq!(store.ledger.archive(before, &[1, 2]).unwrap(), 1);
    let gone = ArchivedRows { rows: 1, before };
    assert_eq!(feed.archived().unwrap(), Some(gone));
    // Before its first start it is known as well; one that begins now misses nothing.
    let mut new = config(&server);
    assert_eq!(status_at_rest("money", &new, &store.shelf, &*feed).unwrap().archived, Some(gone));
    new.start = Start::Now;
    assert_eq!(status_at_rest("money", &new, &store.shelf, &*feed).unwrap().archived, None);
    let engine = Engine::over(&config(&server), feed, &store.shelf);
    let status = engine.wait("the end", |status| status.settled == 2);
    assert_eq!((status.rows_behind, status.delivered), (0, 0));
    assert_eq!(status.archived, Some(gone));
    engine.runtime.block_on(engine.exporters.as_ref().unwrap().stop(GRACE));
    assert_eq!(exported_up_to(&store.shelf, "money").unwrap(), 2);
    // It stays known, however often the engine begins.
    let feed: Arc<dyn Feed> = Arc::new(LedgerFeed::new(Arc::clone(&store.ledger)));
    let engine = Engine::over(&config(&server), Arc::clone(&feed), &store.shelf);
    engine.wait("what it began with", |status| status.archived == Some(gone));
    assert_eq!(status_at_rest("money", &config(&server), &store.shelf, &*feed).unwrap().archived, Some(gone));
}

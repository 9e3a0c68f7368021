//! Removing sessions: with all below them, and to the end, also where something cuts that off.

use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use mock_llm::{Model, Script, call, text, tokens};
use playhouse_actors::{Heard, Resume};
use playhouse_protocol::ledger::{Purpose, RowQuery};
use playhouse_protocol::{
    CommandError, Entry, EventBody, NewSession, Prompt, Record, SessionId, SessionSummary, Timestamp,
};
use playhouse_store::{Append, ListQuery, Store};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::resume::{Ground, all_is_finished};
use crate::support::{Stage, until};

async fn below(stage: &Stage, parent: SessionId, model: &str) -> SessionId {
    let new = NewSession { parent: Some(parent), ..stage.new_session(model) };
    stage.engine.create(new).await.unwrap().id()
}

fn all(store: &Store) -> Vec<SessionSummary> {
    store.log.list(&ListQuery { limit: 500, ..ListQuery::default() }).unwrap().sessions
}

fn rows(store: &Store) -> usize {
    store.ledger.rows(&RowQuery { limit: 500, ..RowQuery::default() }).unwrap().rows.len()
}

/// The last record of a session that is removed, as an engine leaves it that is killed behind it.
fn deleted(store: &Store, session: SessionId) {
    let summary = store.log.summary(session).unwrap().unwrap();
    let entry = Entry { seq: summary.head.next(), at: Timestamp::default(), record: Record::Deleted {} };
    let append = Append {
        session,
        tenant: summary.tenant.as_str().into(),
        expected: summary.head,
        entries: vec![entry],
    };
    let (done, flushed) = sync_channel(1);
    store.log.append(append, Box::new(move |end| done.send(end).unwrap()));
    flushed.recv().unwrap().unwrap();
}

/// What a removed session's title was written of until then is in the bill.
#[tokio::test(flavor = "multi_thread")]
async fn a_title_that_a_removal_cuts_off_is_billed_with_what_came_of_it() {
    let titler = Model { rate: Some(200.0), ..Model::new().step(tokens(2_000)) };
    let stage = Stage::new(Script::new().model("titler", titler)).await;
    stage.directory.titles.store(true, Ordering::SeqCst);
    let session = stage.session("echo").await;
    session.run(Prompt::text("hi")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    stage.engine.delete(session.id()).await.unwrap();
    let rows = stage.store.ledger.rows(&RowQuery { limit: 500, ..RowQuery::default() }).unwrap().rows;
    let title = rows.iter().find(|row| row.purpose == Purpose::Title).expect("it is billed");
    assert!((20..1_000).contains(&title.tokens.output), "{title:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_with_all_below_it_and_what_runs_there_is_aborted() {
    let waits = Model::new().step(call("probe", json!({"mode": "wait"}))).step(text("Done."));
    let stage = Stage::new(Script::new().model("waits", waits)).await;
    let (root, other) = (stage.session("echo").await, stage.session("echo").await);
    let mut family = vec![root.id()];
    for model in ["echo", "waits", "waits", "echo"] {
        family.push(below(&stage, root.id(), model).await);
    }
    let deepest = below(&stage, family[1], "waits").await;
    family.push(deepest);
    let stays = below(&stage, other.id(), "echo").await;
    root.run(Prompt::text("hi")).await.unwrap();
    for running in [family[2], family[3], deepest] {
        stage.engine.session(running).await.unwrap().prompt(Prompt::text("go")).await.unwrap();
        stage.probe.begun().await;
    }
    let before = rows(&stage.store);
    let mut listener = stage.engine.hub().listen(&"local".into(), None, |_| true);
    stage.engine.delete(root.id()).await.unwrap();
    let mut left: Vec<_> = all(&stage.store).into_iter().map(|summary| summary.id).collect();
    left.sort_unstable();
    let mut expected = vec![other.id(), stays];
    expected.sort_unstable();
    assert_eq!(left, expected);
    assert_eq!(rows(&stage.store), before, "what was used stays");
    // Whoever watches is told of each.
    let mut told = Vec::new();
    let watched = async {
        while told.len() < family.len() {
            let Heard::Event(shout) = listener.next().await.unwrap() else { panic!("nothing is missed") };
            let event = shout.event.event();
            if matches!(&event.body, EventBody::Durable(record) if **record == Record::Deleted {}) {
                told.push(event.session);
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), watched).await.expect("each is told of");
    told.sort_unstable();
    family.sort_unstable();
    assert_eq!(told, family);
    assert_eq!(stage.engine.delete(deepest).await, Err(CommandError::NotFound(deepest)));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_parked_goes_with_all_below_it_too() {
    let stage = Stage::new(Script::new()).await;
    let root = stage.session("echo").await;
    let child = below(&stage, root.id(), "echo").await;
    stage.directory.panics_in_session.store(1_000, Ordering::SeqCst);
    drop(root.prompt(Prompt::text("go")).await);
    let parked = async {
        while !matches!(root.snapshot().await, Err(CommandError::Parked { .. })) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), parked).await.expect("it is parked");
    stage.directory.panics_in_session.store(0, Ordering::SeqCst);
    stage.engine.delete(root.id()).await.unwrap();
    assert_eq!(stage.engine.summary(child).await, Err(CommandError::NotFound(child)));
    assert!(all(&stage.store).is_empty());
}

/// The engine is killed when the last record of the session at the top is durable: nobody asks again.
#[test]
fn a_removal_that_was_cut_off_is_finished_by_the_next_engine_and_nothing_goes_on_below() {
    for resume in [Resume::Auto, Resume::Manual] {
        let ground = Ground::new();
        let streams = || Model::new().step(text("A whole answer.").delay(Duration::from_secs(600)));
        let script = || Script::new().model("streams", streams());
        let (root, other) = ground.killed_with(script(), async |stage| {
            let (root, other) = (stage.session("echo").await, stage.session("echo").await);
            let child = below(stage, root.id(), "echo").await;
            for session in [below(stage, root.id(), "streams").await, below(stage, child, "streams").await] {
                let session = stage.engine.session(session).await.unwrap();
                let mut events = session.events(None).await.unwrap();
                session.prompt(Prompt::text("go")).await.unwrap();
                until(&mut events, |record| matches!(record, Record::AttemptStarted(_))).await;
            }
            (root.id(), other.id())
        });
        deleted(&ground.store, root);
        let report = ground.store.upkeep.check().unwrap();
        assert_eq!((report.problems, report.sessions, report.removals), (vec![], 5, 1));
        Runtime::new().unwrap().block_on(async {
            let stage = ground.stage(script(), resume).await;
            // None is made below one that goes.
            all_is_finished(&stage).await;
            let left: Vec<_> = all(&stage.store).into_iter().map(|summary| summary.id).collect();
            assert_eq!(left, [other]);
            assert_eq!(stage.directory.mock.journal().count(), 0, "nothing went on");
            assert_eq!(rows(&stage.store), 2, "each attempt has its row");
        });
    }
}

#[test]
fn none_is_made_below_one_that_is_being_removed() {
    let ground = Ground::new();
    let (root, child) = ground.killed_with(Script::new(), async |stage| {
        let root = stage.session("echo").await;
        (root.id(), below(stage, root.id(), "echo").await)
    });
    deleted(&ground.store, root);
    Runtime::new().unwrap().block_on(async {
        let stage = ground.stage(Script::new(), Resume::OnDemand).await;
        for parent in [root, child] {
            let new = NewSession { parent: Some(parent), ..stage.new_session("echo") };
            assert_eq!(stage.engine.create(new).await.err(), Some(CommandError::NotFound(parent)));
        }
        assert_eq!(stage.engine.delete(root).await, Err(CommandError::NotFound(root)), "it was deleted");
        assert!(all(&stage.store).is_empty());
    });
}

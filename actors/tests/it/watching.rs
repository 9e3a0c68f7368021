//! Watching many sessions at once, and reading sessions without their events.

use std::sync::mpsc::sync_channel;

use mock_llm::{Model, Script, call, text};
use playhouse_actors::{Heard, Listener, Shout};
use playhouse_protocol::command::MessagesQuery;
use playhouse_protocol::event::Provisional;
use playhouse_protocol::record::Record;
use playhouse_protocol::{CommandError, Entry, EventBody, MessageId, NewSession, Prompt, Seq, Timestamp};
use playhouse_store::Append;
use serde_json::json;

use crate::consents::{THERE, goes, waiting};
use crate::support::{Stage, until};

fn ears(stage: &Stage, tenant: &str) -> Listener {
    stage.engine.hub().listen(&tenant.into(), None, |_| true)
}

/// The events that are there.
fn heard(listener: &mut Listener) -> Vec<Shout> {
    let mut shouts = Vec::new();
    while let Some(heard) = listener.try_next() {
        match heard {
            Heard::Event(shout) => shouts.push(shout),
            Heard::Behind { .. } => panic!("it is behind"),
        }
    }
    shouts
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_has_the_events_of_every_session_as_their_own_subscribers_have_them() {
    let stage = Stage::new(Script::new()).await;
    let (mut mine, mut theirs) = (ears(&stage, "local"), ears(&stage, "other"));
    let session = stage.session("echo").await;
    let mut events = session.events(None).await.unwrap();
    session.run(Prompt::text("hello")).await.unwrap();
    let shouts = heard(&mut mine);
    let positions: Vec<u64> = shouts.iter().map(|shout| shout.position).collect();
    assert_eq!(positions, (1..=positions.len() as u64).collect::<Vec<_>>());
    let EventBody::Durable(first) = &shouts[0].event.event().body else { panic!("it begins with a record") };
    assert!(matches!(**first, Record::SessionCreated(_)));
    for shout in &shouts[1..] {
        let own = events.next().await.unwrap().unwrap();
        assert_eq!(own.json().as_ptr(), shout.event.json().as_ptr(), "{own:?}");
        assert!(shout.owner.workspace.ends_with("/workspace"), "{shout:?}");
    }
    let other = NewSession { tenant: "other".into(), ..stage.new_session("echo") };
    stage.engine.create(other).await.unwrap();
    assert_eq!((heard(&mut mine).len(), heard(&mut theirs).len()), (0, 1));
    stage.engine.shutdown().await;
    assert!(mine.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_a_sub_session_is_told_once() {
    let stage = Stage::new(goes(&[THERE])).await.bare();
    let root = stage.session("echo").await;
    let mut all = ears(&stage, "local");
    let below = NewSession { parent: Some(root.id()), ..stage.new_session("m") };
    let (below, _events, asked) = waiting(&stage, below).await;
    // It is told to the root's subscribers before this.
    root.run(Prompt::text("hello")).await.unwrap();
    let shouts = heard(&mut all);
    let asks = |shout: &&Shout| match &shout.event.event().body {
        EventBody::Durable(record) => matches!(&**record, Record::ConsentAsked(told) if *told == asked),
        EventBody::Provisional(piece) => matches!(piece, Provisional::DescendantRequest { .. }),
    };
    let told: Vec<&Shout> = shouts.iter().filter(asks).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].event.event().session, below.id());

    let waits = stage.engine.waiting("local").await.unwrap();
    assert_eq!(waits.len(), 1);
    assert_eq!((waits[0].session, &waits[0].consents), (below.id(), &vec![asked]));
    assert_eq!(stage.engine.waiting("other").await.unwrap(), []);
    assert_eq!(stage.engine.busy("local").await.unwrap().len(), 1);
    below.abort().await.unwrap();
    assert_eq!(stage.engine.waiting("local").await.unwrap(), []);
    assert_eq!(stage.engine.busy("local").await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_that_wait_are_the_last_messages() {
    let model = Model::new().step(call("probe", json!({"mode": "wait"}))).step(text("Done."));
    let stage = Stage::new(Script::new().model("m", model)).await;
    let session = stage.session("m").await;
    let mut events = session.events(None).await.unwrap();
    session.prompt(Prompt::text("one")).await.unwrap();
    stage.probe.begun().await;
    let two = session.prompt(Prompt::text("two")).await.unwrap().turn;
    let page = async |before: Option<MessageId>, after: Option<MessageId>, limit: u32| {
        stage.engine.messages(session.id(), MessagesQuery { before, after, limit }).await.unwrap()
    };
    let all = page(None, None, 0).await;
    assert_eq!((all.messages.len(), all.before, all.after), (3, None, None));
    assert_eq!(all.messages[2].id(), two);
    let last = page(None, None, 1).await;
    assert_eq!((last.messages[0].id(), last.before, last.after), (two, Some(two), None));
    let before = page(Some(two), None, 1).await;
    let step = all.messages[1].id();
    assert_eq!((before.messages[0].id(), before.before, before.after), (step, Some(step), Some(step)));
    let crossed = page(Some(step), Some(two), 5).await;
    assert!(crossed.messages.is_empty());
    let outline = stage.engine.outline(session.id()).await.unwrap();
    assert!(outline.messages.is_empty() && outline.walls.is_some());
    assert_eq!(outline.summary, session.snapshot().await.unwrap().summary);
    stage.probe.release(1);
    until(&mut events, |record| matches!(record, Record::TurnEnded(ended) if ended.turn != two)).await;
    session.abort().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_session_is_read_up_to_where_its_log_is_good() {
    let stage = Stage::new(Script::new()).await;
    let session = stage.session("echo").await;
    session.run(Prompt::text("hello")).await.unwrap();
    let good = session.snapshot().await.unwrap();
    stage.engine.shutdown().await;
    // A record that does not fit: no such turn began.
    let turn = MessageId::parse("msg_00000000000012345678901234").unwrap();
    let head = good.summary.head;
    let entry = Entry {
        seq: head.next(),
        at: Timestamp::from_millis(u64::MAX / 2),
        record: Record::TurnStarted { turn },
    };
    let append =
        Append { session: session.id(), tenant: "local".into(), expected: head, entries: vec![entry] };
    let (done, flushed) = sync_channel(1);
    stage.store.log.append(append, Box::new(move |result| done.send(result).unwrap()));
    flushed.recv().unwrap().unwrap();

    let stage = Stage::on(stage.store.clone(), stage.folder.clone(), Script::new(), 1 << 20).await;
    let id = session.id();
    assert!(matches!(stage.engine.session(id).await, Err(CommandError::Parked { .. })));
    assert!(stage.engine.parked(id).unwrap().contains("turn.started does not fit"));
    let page = stage.engine.messages(id, MessagesQuery::default()).await.unwrap();
    assert_eq!(page.messages, good.messages);
    let damage = page.damage.unwrap();
    assert_eq!(damage.seq, head.next());
    let outline = stage.engine.outline(id).await.unwrap();
    assert_eq!((outline.todos, outline.damage), (good.todos, Some(damage)));
    let nobody = MessagesQuery { before: Some(turn), ..MessagesQuery::default() };
    assert!(matches!(stage.engine.messages(id, nobody).await, Err(CommandError::Invalid(_))));
    let records = stage.engine.read(id).await.unwrap().0;
    assert_eq!(records.last().map(|entry| entry.seq), Some(Seq(head.0 + 1)));
}

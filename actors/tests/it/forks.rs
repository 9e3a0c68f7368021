//! Forks: both sessions go on by themselves, and neither pays for the other.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;

use mock_llm::{Model, Script, call, text};
use playhouse_actors::{ForkAt, Heard, SessionHandle};
use playhouse_protocol::message::{CallOutcome, CallState, Message, Part};
use playhouse_protocol::record::{Record, SessionChanged, TurnOutcome};
use playhouse_protocol::usage::Totals;
use playhouse_protocol::{
    Command, CommandError, Entry, EventBody, MessageId, NewSession, Prompt, Seq, SessionId, Timestamp,
    WhenBusy,
};
use playhouse_store::{Append, Store};
use serde_json::json;

use crate::consents::{THERE, goes, waiting};
use crate::support::{Stage, kinds, until};

/// A model that makes a call and answers, and then only answers.
fn worker() -> Script {
    let model = Model::new()
        .step(call("probe", json!({"mode": "free"})))
        .step(text("I did it."))
        .next_turn()
        .step(text("So it is."))
        .cycle();
    Script::new().model("m", model)
}

async fn ids(stage: &Stage, session: SessionId) -> Vec<MessageId> {
    let page = stage.engine.messages(session, Default::default()).await.unwrap();
    page.messages.iter().map(Message::id).collect()
}

fn bodies(stage: &Stage) -> Vec<Vec<u8>> {
    stage
        .directory
        .mock
        .journal()
        .entries()
        .iter()
        .map(|entry| entry.body.clone().unwrap().to_vec())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_and_its_origin_go_on_by_themselves_with_the_same_beginning() {
    let stage = Stage::new(worker()).await;
    let origin = stage.session("m").await;
    origin.run(Prompt::text("Do it")).await.unwrap();
    let before = origin.snapshot().await.unwrap();
    let fork = stage.engine.fork(origin.id(), None).await.unwrap();
    let snapshot = fork.snapshot().await.unwrap();
    assert_eq!(snapshot.messages, before.messages, "messages keep their ids");
    let summary = snapshot.summary;
    assert_eq!((summary.id, summary.forked_from, summary.parent), (fork.id(), Some(origin.id()), None));
    assert_eq!((summary.title.as_str(), summary.totals()), ("Do it (fork #1)", Totals::default()));
    assert_eq!((&summary.workspace, &summary.model), (&before.summary.workspace, &before.summary.model));

    let sent = bodies(&stage).len();
    origin.run(Prompt::text("Is it done?")).await.unwrap();
    fork.run(Prompt::text("Is it done?")).await.unwrap();
    let bodies = bodies(&stage);
    assert_eq!(bodies.len(), sent + 2);
    assert_eq!(bodies[sent], bodies[sent + 1], "what a provider caches of the one it has for the other");
    let (of_origin, of_fork) = (ids(&stage, origin.id()).await, ids(&stage, fork.id()).await);
    assert_eq!((of_origin.len(), of_fork.len()), (5, 5));
    assert_eq!(of_origin[..3], of_fork[..3]);
    assert!(of_fork[3..].iter().all(|id| !of_origin.contains(id)));
    assert_eq!(origin.snapshot().await.unwrap().summary.totals().attempts, 3);
    assert_eq!(fork.snapshot().await.unwrap().summary.totals().attempts, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_before_a_message_takes_settings_of_now_and_words_of_then() {
    let stage = Stage::new(worker()).await;
    let origin = stage.session("m").await;
    origin.run(Prompt::text("Do it")).await.unwrap();
    origin.run(Prompt::text("And now?")).await.unwrap();
    let changed =
        SessionChanged { title: Some("Work".into()), agent: Some("reader".into()), ..Default::default() };
    origin.command(Command::Change(changed)).await.unwrap();
    let all = ids(&stage, origin.id()).await;
    for (index, message) in all.iter().enumerate() {
        let fork = stage.engine.fork(origin.id(), Some(*message)).await.unwrap();
        assert_eq!(ids(&stage, fork.id()).await, all[..index]);
        let summary = stage.engine.summary(fork.id()).await.unwrap();
        assert_eq!((summary.title.as_str(), summary.agent.as_str()), ("Work (fork #1)", "reader"));
        let turn = fork.run(Prompt::text("And now?")).await.unwrap();
        assert_eq!(turn.ended.outcome, TurnOutcome::Completed);
    }
    let nobody = MessageId::parse("msg_00000000000012345678901234").unwrap();
    let error = stage.engine.fork(origin.id(), Some(nobody)).await.unwrap_err();
    assert!(matches!(&error, CommandError::Invalid(text) if text.contains("there is no message")), "{error}");
    let missing = SessionId::parse("ses_00000000000012345678901234").unwrap();
    assert_eq!(stage.engine.fork(missing, None).await.unwrap_err(), CommandError::NotFound(missing));
    let fork = stage.engine.fork(origin.id(), None).await.unwrap();
    let fork = stage.engine.fork(fork.id(), Some(all[1])).await.unwrap();
    assert_eq!(ids(&stage, fork.id()).await, all[..1]);
    assert_eq!(stage.engine.summary(fork.id()).await.unwrap().title, "Work (fork #2)");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_of_a_busy_session_runs_nothing_and_disturbs_nothing() {
    let model = Model::new().step(call("probe", json!({"mode": "wait"}))).step(text("Done."));
    let stage = Stage::new(Script::new().model("m", model)).await;
    let origin = stage.session("m").await;
    let mut events = origin.events(None).await.unwrap();
    let turn = origin.prompt(Prompt::text("go")).await.unwrap().turn;
    stage.probe.begun().await;
    let later = origin.prompt(Prompt::text("later")).await.unwrap().turn;
    let fork = stage.engine.fork(origin.id(), None).await.unwrap();
    let snapshot = fork.snapshot().await.unwrap();
    assert_eq!(snapshot.summary.open_turns, 0);
    assert_eq!(snapshot.messages.len(), 2, "what waits stays behind");
    let Message::Assistant(answer) = &snapshot.messages[1] else { panic!("an answer") };
    let Some(Part::Call(call)) = answer.parts.last() else { panic!("a call") };
    let CallState::Settled(result) = &call.state else { panic!("{:?}", call.state) };
    assert_eq!(result.outcome, CallOutcome::Interrupted);
    assert_eq!(stage.probe.executed.load(Ordering::SeqCst), 1, "it runs once, there");
    // A client that asks for the turn again is told how it ended here.
    let mut again = Prompt::text("go");
    again.message = Some(turn);
    assert_eq!(fork.run(again).await.unwrap().ended.outcome, TurnOutcome::Aborted);
    assert_eq!(stage.engine.busy("local").await.unwrap().len(), 1);
    stage.probe.release(1);
    until(&mut events, |record| matches!(record, Record::TurnEnded(ended) if ended.turn == turn)).await;
    assert_eq!(stage.engine.summary(fork.id()).await.unwrap().totals(), Totals::default());
    stage.probe.release(1);
    until(&mut events, |record| matches!(record, Record::TurnEnded(ended) if ended.turn == later)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waits_stays_with_its_session() {
    let stage = Stage::new(goes(&[THERE])).await.bare();
    let (origin, _events, asked) = waiting(&stage, stage.new_session("m")).await;
    let fork = stage.engine.fork(origin.id(), None).await.unwrap();
    let told = |error: CommandError| matches!(error, CommandError::ConsentSettled { .. });
    let answer = playhouse_protocol::ConsentAnswer::Once;
    assert!(told(fork.answer(asked.consent, answer.clone()).await.unwrap_err()));
    let waits = stage.engine.waiting("local").await.unwrap();
    assert_eq!(waits.iter().map(|waits| waits.session).collect::<Vec<_>>(), [origin.id()]);
    assert!(stage.danger.went().is_empty());
    origin.answer(asked.consent, answer).await.unwrap();
    assert_eq!(fork.snapshot().await.unwrap().consents, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_outlives_its_origin_and_a_restart() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let data = folder.path().join("data");
    let (fork, shared) = {
        let store = Store::open(&data).unwrap();
        let stage = Stage::on(store, folder.clone(), worker(), 1 << 20).await;
        let origin = stage.session("m").await;
        origin.run(Prompt::text("Do it")).await.unwrap();
        let shared = ids(&stage, origin.id()).await;
        let fork = stage.engine.fork(origin.id(), None).await.unwrap();
        let other = stage.engine.fork(fork.id(), Some(shared[1])).await.unwrap();
        stage.engine.delete(origin.id()).await.unwrap();
        assert_eq!(stage.engine.read(origin.id()).await.unwrap_err(), CommandError::NotFound(origin.id()));
        assert_eq!(
            stage.engine.fork(origin.id(), None).await.unwrap_err(),
            CommandError::NotFound(origin.id())
        );
        assert_eq!(stage.engine.count("local").await.unwrap(), 2);
        stage.engine.delete(other.id()).await.unwrap();
        fork.run(Prompt::text("And now?")).await.unwrap();
        stage.engine.shutdown().await;
        (fork.id(), shared)
    };
    let stage = Stage::on(Store::open(&data).unwrap(), folder, worker(), 1 << 20).await;
    let all = ids(&stage, fork).await;
    assert_eq!((all.len(), &all[..3]), (5, &shared[..]));
    let handle = stage.engine.session(fork).await.unwrap();
    handle.run(Prompt::text("And then?")).await.unwrap();
    // Its script begins anew: a call and two answers.
    assert_eq!(ids(&stage, fork).await.len(), 8);
    let list = stage.engine.list(Default::default()).await.unwrap();
    assert_eq!(list.sessions.iter().map(|summary| summary.id).collect::<Vec<_>>(), [fork]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_a_fork_begin_with_what_it_shares_and_the_hub_tells_its_own() {
    let stage = Stage::new(worker()).await;
    let origin = stage.session("m").await;
    origin.run(Prompt::text("Do it")).await.unwrap();
    let mut all = stage.engine.hub().listen(&"local".into(), None, |_| true);
    let second = ids(&stage, origin.id()).await[2];
    let fork = stage.engine.fork(origin.id(), Some(second)).await.unwrap();
    let told = |listener: &mut playhouse_actors::Listener| {
        let mut told = Vec::new();
        while let Some(Heard::Event(shout)) = listener.try_next() {
            let event = shout.event.event();
            let EventBody::Durable(record) = &event.body else { continue };
            assert_eq!(event.session, fork.id());
            told.push((event.id.seq, record.kind()));
        }
        told
    };
    let records = stage.records(&fork).await;
    let own = kinds(&records).into_iter().zip(1_u64..).skip_while(|(kind, _)| *kind != "session.forked");
    let own: Vec<(Seq, &str)> = own.map(|(kind, seq)| (Seq(seq), kind)).collect();
    assert_eq!(own.iter().map(|(_, kind)| *kind).collect::<Vec<_>>(), ["session.forked", "turn.ended"]);
    assert_eq!(told(&mut all), own);
    // Its own subscribers get all of its log, in order.
    let mut events = fork.events(Some(Seq::START)).await.unwrap();
    for (seq, record) in (1_u64..).zip(&records) {
        let event = events.next().await.unwrap().unwrap();
        assert_eq!((event.event().id.seq, event.event().session), (Seq(seq), fork.id()));
        let EventBody::Durable(told) = &event.event().body else { panic!("{event:?}") };
        assert_eq!(**told, record.clone().into_event());
    }
    fork.run(Prompt::text("Do it")).await.unwrap();
    assert_eq!(told(&mut all).first().unwrap().0, Seq(records.len() as u64 + 1));
}

/// Parks a session: its log gets a record that does not fit.
async fn park(stage: &Stage, session: &SessionHandle) {
    let head = stage.engine.summary(session.id()).await.unwrap().head;
    let turn = MessageId::parse("msg_00000000000012345678901234").unwrap();
    let record = Record::TurnStarted { turn };
    let entry = Entry { seq: head.next(), at: Timestamp::from_millis(u64::MAX / 2), record };
    let append =
        Append { session: session.id(), tenant: "local".into(), expected: head, entries: vec![entry] };
    let (done, flushed) = sync_channel(1);
    stage.store.log.append(append, Box::new(move |result| done.send(result).unwrap()));
    flushed.recv().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_readable_of_a_parked_session_goes_on_in_a_fork() {
    let stage = Stage::new(worker()).await;
    let origin = stage.session("m").await;
    origin.run(Prompt::text("Do it")).await.unwrap();
    let all = ids(&stage, origin.id()).await;
    stage.engine.shutdown().await;
    park(&stage, &origin).await;
    let stage = Stage::on(stage.store.clone(), stage.folder.clone(), worker(), 1 << 20).await;
    let id = origin.id();
    assert!(matches!(stage.engine.session(id).await, Err(CommandError::Parked { .. })));
    let record = stage.engine.read(id).await.unwrap().0.last().unwrap().seq;
    let place = format!("record {record}: turn.started does not fit");
    let page = stage.engine.messages(id, Default::default()).await.unwrap();
    assert_eq!(page.damage.map(|damage| damage.seq), Some(record));
    // What comes after that would be missing, and nobody would be told.
    let refused = stage.engine.fork(id, None).await.unwrap_err();
    assert!(matches!(&refused, CommandError::Parked { reason, .. } if reason.contains(&place)), "{refused}");
    let nobody = MessageId::parse("msg_00000000000012345678901234").unwrap();
    let unknown = stage.engine.fork(id, Some(nobody)).await.unwrap_err().to_string();
    assert!(unknown.contains("as far as its log can be read") && unknown.contains(&place), "{unknown}");
    let before = stage.engine.fork(id, Some(all[1])).await.unwrap();
    assert_eq!(ids(&stage, before.id()).await, all[..1]);
    let fork = stage.engine.fork(id, ForkAt::Readable).await.unwrap();
    assert_eq!(ids(&stage, fork.id()).await, all);
    assert_eq!(stage.engine.messages(fork.id(), Default::default()).await.unwrap().damage, None);
    fork.run(Prompt::text("And now?")).await.unwrap();
    // Removed as it is, it leaves the fork what that shares.
    stage.engine.delete(id).await.unwrap();
    assert_eq!(ids(&stage, fork.id()).await.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_in_what_is_shared_parks_all_that_share_it_under_their_own_names() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let data = folder.path().join("data");
    let (origin, fork) = {
        let stage = Stage::on(Store::open(&data).unwrap(), folder.clone(), worker(), 1 << 20).await;
        let origin = stage.session("m").await;
        origin.run(Prompt::text("Do it")).await.unwrap();
        // So much is kept as a file of its own.
        origin.run(Prompt::text("And this. ".repeat(10_000))).await.unwrap();
        let fork = stage.engine.fork(origin.id(), None).await.unwrap();
        stage.engine.shutdown().await;
        (origin.id(), fork.id())
    };
    fs_err::remove_dir_all(data.join("blobs")).unwrap();
    let stage = Stage::on(Store::open(&data).unwrap(), folder, worker(), 1 << 20).await;
    for session in [origin, fork] {
        assert!(matches!(stage.engine.session(session).await, Err(CommandError::Parked { .. })));
        assert_eq!(ids(&stage, session).await.len(), 3, "it is readable up to there");
        let outline = stage.engine.outline(session).await.unwrap();
        let summary = stage.engine.summary(session).await.unwrap();
        assert_eq!(
            (outline.summary.id, outline.summary.forked_from, outline.summary.title),
            (session, summary.forked_from, summary.title)
        );
        let again = stage.engine.fork(session, ForkAt::Readable).await.unwrap();
        assert_eq!(ids(&stage, again.id()).await.len(), 3);
        assert_eq!(stage.engine.summary(again.id()).await.unwrap().forked_from, Some(session));
        again.run(Prompt::text("And now?")).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_of_a_sub_session_is_nobodys_child() {
    let stage = Stage::new(worker()).await;
    let root = stage.session("m").await;
    let child = NewSession { parent: Some(root.id()), unattended: true, ..stage.new_session("m") };
    let child = stage.engine.create(child).await.unwrap();
    child.run(Prompt::text("Do it")).await.unwrap();
    let fork = stage.engine.fork(child.id(), None).await.unwrap();
    assert_eq!(stage.engine.summary(fork.id()).await.unwrap().parent, None);
    let mut steer = Prompt::text("And now?");
    steer.when_busy = WhenBusy::Steer;
    fork.run(steer).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_may_read_the_outputs_that_its_results_name_and_no_others() {
    let say = "for i in $(seq 1 9000); do echo $i; done";
    let talker = |read: &str| {
        Script::new().model(
            "m",
            Model::new()
                .step(call("bash", json!({"command": say, "description": "talk"})))
                .step(text("That was much."))
                .next_turn()
                .step(call("read", json!({"filePath": read, "limit": 1})))
                .step(text("I looked.")),
        )
    };
    let stage = Stage::new(talker("/nowhere")).await;
    let (origin, other) = (stage.session("m").await, stage.session("m").await);
    let mut files = Vec::new();
    for session in [&origin, &other] {
        session.run(Prompt::text("talk")).await.unwrap();
        let result = crate::consents::results(&stage, session).await.remove(0);
        files.push(result.metadata["outputPath"].as_str().unwrap().to_owned());
    }
    stage.engine.shutdown().await;
    for (file, expected) in files.iter().zip([CallOutcome::Done, CallOutcome::Declined]) {
        let stage = Stage::on(stage.store.clone(), stage.folder.clone(), talker(file), 1 << 20).await;
        let fork = stage.engine.fork(origin.id(), None).await.unwrap();
        fork.run(Prompt::text("look")).await.unwrap();
        let result = crate::consents::results(&stage, &fork).await.pop().unwrap();
        assert_eq!(result.outcome, expected, "{}", result.output);
        stage.engine.shutdown().await;
    }
}

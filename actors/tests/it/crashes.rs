//! Panics, failed stores and restarts.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mock_llm::{Cut, Fault, Model, Script, call, text};
use playhouse_protocol::message::CallOutcome;
use playhouse_protocol::record::{AttemptOutcome, Record, SessionChanged, TurnOutcome};
use playhouse_protocol::{Command, CommandError, ErrorCode, Prompt, Seq};
use playhouse_store::Store;
use serde_json::json;

use crate::logs;
use crate::support::{Stage, kinds, until};
use crate::suspended::Disk;

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_a_tool_is_the_result_of_its_call() {
    for mode in ["panic", "panic-in-prepare", "panic-later", "panic-later-in-prepare"] {
        let script = Script::new()
            .model("m", Model::new().step(call("probe", json!({ "mode": mode }))).step(text("I saw it.")));
        let stage = Stage::new(script).await;
        let (session, other) = (stage.session("m").await, stage.session("echo").await);
        let (finished, beside) = tokio::join!(session.run(Prompt::text("go")), other.run(Prompt::text("hi")));
        assert_eq!(finished.unwrap().ended.outcome, TurnOutcome::Completed);
        assert_eq!(beside.unwrap().ended.outcome, TurnOutcome::Completed);
        let records = stage.records(&session).await;
        let crashed = records.iter().find_map(|record| match record {
            Record::CallSettled { result, .. } => Some(result),
            _ => None,
        });
        let crashed = crashed.unwrap();
        assert_eq!(crashed.outcome, CallOutcome::Crashed);
        assert!(crashed.output.contains("on fire"), "{}", crashed.output);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_a_step_fails_its_turn_only() {
    let stage = Stage::new(Script::new()).await;
    let (session, other) = (stage.session("echo").await, stage.session("echo").await);
    other.run(Prompt::text("warm")).await.unwrap();
    stage.directory.panic_in_step.store(true, Ordering::SeqCst);
    let ended = session.run(Prompt::text("go")).await.unwrap().ended;
    assert_eq!(ended.outcome, TurnOutcome::Failed);
    let error = ended.error.unwrap();
    assert_eq!(error.code, ErrorCode::Internal);
    assert!(error.message.contains("on fire"), "{error}");
    assert_eq!(other.run(Prompt::text("hi")).await.unwrap().ended.outcome, TurnOutcome::Completed);
    assert_eq!(session.run(Prompt::text("again")).await.unwrap().ended.outcome, TurnOutcome::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_actor_that_panics_at_a_later_step_is_another_one_at_the_next() {
    logs::keep();
    let script = Script::new().model(
        "m",
        Model::new()
            .step(call("probe", json!({"mode": "wait"})))
            .step(text("Not heard."))
            .step(call("probe", json!({"mode": "once"})))
            .step(text("Done.")),
    );
    let stage = Stage::new(script).await;
    let session = stage.session("m").await;
    let mut events = session.events(None).await.unwrap();
    session.prompt(Prompt::text("go")).await.unwrap();
    // The actor of the first step is kept for the second one.
    stage.probe.begun().await;
    let fault = ("step", "run", Some(session.id()));
    logs::set_fire(fault);
    stage.probe.release(1);
    let ended = until(&mut events, |record| matches!(record, Record::TurnEnded(_))).await;
    assert!(!logs::is_set(fault));
    let Record::TurnEnded(ended) = ended else { unreachable!() };
    assert_eq!(ended.outcome, TurnOutcome::Failed);
    let error = ended.error.unwrap();
    assert!(error.code == ErrorCode::Internal && error.message.contains("on fire"), "{error}");
    let ended = session.run(Prompt::text("again")).await.unwrap().ended;
    assert_eq!(ended.outcome, TurnOutcome::Completed, "{:?}", ended.error);
    let records = stage.records(&session).await;
    let outcomes: Vec<bool> = records
        .iter()
        .filter_map(|record| match record {
            Record::AttemptEnded(ended) => Some(ended.outcome == AttemptOutcome::Finished),
            _ => None,
        })
        .collect();
    assert_eq!(outcomes[..2], [true, false], "{:?}", kinds(&records));
    assert!(outcomes[2..].iter().all(|completed| *completed), "{:?}", kinds(&records));
    let started = records.iter().filter(|record| matches!(record, Record::AttemptStarted(_))).count();
    assert_eq!(started, outcomes.len(), "each has one end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_crashed_comes_back_when_all_that_it_gave_to_the_store_is_written() {
    logs::keep();
    let (store, disk) = Disk::with_a_store();
    let stage = Stage::on(store, Arc::new(tempfile::tempdir().unwrap()), Script::new(), 1 << 20).await;
    let session = stage.session("echo").await;
    session.run(Prompt::text("one")).await.unwrap();
    disk.stand_still();
    let prompt = tokio::spawn({
        let session = session.clone();
        async move { session.prompt(Prompt::text("two")).await }
    });
    let look = || tokio::time::sleep(Duration::from_millis(5));
    while !disk.has_in_hand() {
        look().await;
    }
    let woken = stage.directory.woken.load(Ordering::SeqCst);
    let fault = ("session", "command", Some(session.id()));
    logs::set_fire(fault);
    let change = tokio::spawn({
        let session = session.clone();
        async move { session.command(Command::Change(SessionChanged::default())).await }
    });
    // Far longer than it takes to come back.
    for _ in 0..100 {
        look().await;
        assert_eq!(stage.directory.woken.load(Ordering::SeqCst), woken, "it comes back before that");
    }
    assert!(!logs::is_set(fault), "it has crashed");
    disk.move_on();
    // Nobody can tell them what became of it; both are through.
    let _ = tokio::join!(prompt, change);
    let ended = session.run(Prompt::text("three")).await.unwrap().ended;
    assert_eq!(ended.outcome, TurnOutcome::Completed, "{:?}", ended.error);
    let records = stage.records(&session).await;
    let turns = records.iter().filter(|record| matches!(record, Record::TurnEnded(_))).count();
    assert_eq!(turns, 3, "what was given to the store counts");
    let crashes = logs::of(session.id()).iter().filter(|line| line.contains("actor crashed")).count();
    assert_eq!(crashes, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_panics_comes_back_from_its_log() {
    let script = Script::new()
        .model("m", Model::new().step(call("probe", json!({"mode": "wait"}))).step(text("Done.")));
    let stage = Stage::new(script).await;
    let session = stage.session("m").await;
    let mut events = session.events(None).await.unwrap();
    session.prompt(Prompt::text("go")).await.unwrap();
    stage.probe.begun().await;
    // The panic comes when the next attempt is about to start; the call's result is lost with it.
    stage.directory.panics_in_session.store(1, Ordering::SeqCst);
    stage.probe.release(1);
    let ended = until(&mut events, |record| matches!(record, Record::TurnEnded(_))).await;
    let Record::TurnEnded(ended) = ended else { unreachable!() };
    assert_eq!(ended.outcome, TurnOutcome::Completed);
    let records = stage.records(&session).await;
    let results: Vec<CallOutcome> = records
        .iter()
        .filter_map(|record| match record {
            Record::CallSettled { result, .. } => Some(result.outcome),
            _ => None,
        })
        .collect();
    assert_eq!(results, [CallOutcome::Interrupted], "it ran once, and what it did is not known");
    assert_eq!(stage.probe.executed.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_meets_a_crash_is_carried_out_once() {
    let stage = Stage::new(Script::new()).await;
    let session = stage.session("echo").await;
    stage.directory.panics_in_session.store(1, Ordering::SeqCst);
    let finished = session.run(Prompt::text("go")).await.unwrap();
    assert_eq!(finished.ended.outcome, TurnOutcome::Completed);
    let records = stage.records(&session).await;
    let admitted = records.iter().filter(|record| matches!(record, Record::PromptAdmitted(_))).count();
    assert_eq!(admitted, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_keeps_crashing_is_parked_and_can_be_read_and_deleted() {
    let stage = Stage::new(Script::new()).await;
    let (session, other) = (stage.session("echo").await, stage.session("tokens-5").await);
    session.run(Prompt::text("fine")).await.unwrap();
    stage.directory.panics_in_session.store(1_000, Ordering::SeqCst);
    let error = session.prompt(Prompt::text("go")).await.unwrap_err();
    assert!(matches!(&error, CommandError::Parked { reason, .. } if reason.contains("on fire")), "{error}");
    stage.directory.panics_in_session.store(0, Ordering::SeqCst);
    assert!(matches!(session.snapshot().await, Err(CommandError::Parked { .. })));
    assert!(kinds(&stage.records(&session).await).contains(&"turn.ended"));
    assert_eq!(other.run(Prompt::text("hi")).await.unwrap().ended.outcome, TurnOutcome::Completed);
    stage.engine.delete(session.id()).await.unwrap();
    assert_eq!(session.snapshot().await.unwrap_err(), CommandError::NotFound(session.id()));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_turn_of_a_session_that_is_parked_is_told() {
    let script = Script::new().model("m", Model::new().step(call("probe", json!({"mode": "wait"}))));
    let stage = Stage::new(script).await;
    let session = stage.session("m").await;
    let running = tokio::spawn({
        let session = session.clone();
        async move { session.run(Prompt::text("go")).await }
    });
    stage.probe.begun().await;
    stage.directory.panics_in_session.store(1_000, Ordering::SeqCst);
    stage.probe.release(1);
    let ended = tokio::time::timeout(Duration::from_secs(20), running).await.expect("it ends").unwrap();
    assert!(
        matches!(&ended, Err(CommandError::Parked { reason, .. }) if reason.contains("on fire")),
        "{ended:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_a_crash_cut_off_is_metered() {
    let stage =
        Stage::new(Script::new().model("m", Model::new().step(text("slow").delay(Duration::from_secs(60)))))
            .await;
    let session = stage.session("m").await;
    session.prompt(Prompt::text("go")).await.unwrap();
    // The request is sent, so this engine writes nothing more until the answer comes, in a minute.
    stage.directory.mock.journal().wait_until(|entries| !entries.is_empty()).await;
    let quick = Script::new().model("m", Model::new().step(text("quick")));
    // Another engine on the same store goes on with it, and so ends the attempt.
    let other = Stage::on(stage.store.clone(), Arc::clone(&stage.folder), quick, 1 << 20).await;
    let mut events =
        other.engine.session(session.id()).await.unwrap().events(Some(Seq::START)).await.unwrap();
    until(&mut events, |record| matches!(record, Record::TurnEnded(_))).await;
    assert_eq!(other.engine.usage().await.unwrap().totals.attempts, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_attempt_is_made_again_and_its_pieces_are_withdrawn() {
    let step = text("A whole answer.").fault(Fault::cut(5, Cut::Eof)).fail_first(1);
    let stage = Stage::new(Script::new().model("m", Model::new().step(step))).await;
    let session = stage.session("m").await;
    let ended = session.run(Prompt::text("go")).await.unwrap().ended;
    assert_eq!(
        (ended.outcome, ended.totals.attempts, ended.totals.estimated),
        (TurnOutcome::Completed, 2, 1)
    );
    let records = stage.records(&session).await;
    let ends: Vec<bool> = records
        .iter()
        .filter_map(|record| match record {
            Record::AttemptEnded(ended) => Some(ended.outcome == AttemptOutcome::Finished),
            _ => None,
        })
        .collect();
    assert_eq!(ends, [false, true]);
    let journal = stage.directory.mock.journal().entries();
    let attempts: Vec<String> = records
        .iter()
        .filter_map(|record| match record {
            Record::AttemptStarted(started) => Some(started.attempt.to_string()),
            _ => None,
        })
        .collect();
    let asked: Vec<String> = journal.iter().filter_map(|entry| entry.attempt.clone()).collect();
    assert_eq!(asked, attempts, "each request carries the id of its attempt");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_stops_in_the_middle_is_a_failure() {
    let step = text("Half an answer.").fault(Fault::cut(5, Cut::Eof));
    let stage = Stage::new(Script::new().model("m", Model::new().step(step))).await;
    let ended = stage.session("m").await.run(Prompt::text("go")).await.unwrap().ended;
    assert_eq!(ended.outcome, TurnOutcome::Failed);
    assert_eq!(ended.error.unwrap().code, ErrorCode::StreamCut);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_shutdown_the_turn_goes_on_with_the_next_engine() {
    let script = || {
        Script::new()
            .model("m", Model::new().step(call("probe", json!({"mode": "wait"}))).step(text("Done.")))
    };
    let (store, folder) = (Store::memory().unwrap(), Arc::new(tempfile::tempdir().unwrap()));
    let first = Stage::on(store.clone(), Arc::clone(&folder), script(), 1 << 20).await;
    let session = first.session("m").await;
    session.prompt(Prompt::text("go")).await.unwrap();
    session.prompt(Prompt::text("and then")).await.unwrap();
    first.probe.begun().await;
    let stopped = first.engine.shutdown().await;
    assert_eq!((stopped.sessions, stopped.stragglers), (1, Vec::new()));
    assert!(matches!(session.snapshot().await, Err(CommandError::NotAccepted(_))));

    let second = Stage::on(store, folder, script(), 1 << 20).await;
    let again = second.engine.session(session.id()).await.unwrap();
    let mut events = again.events(Some(Seq::START)).await.unwrap();
    for _ in 0..2 {
        let ended = until(&mut events, |record| matches!(record, Record::TurnEnded(_))).await;
        let Record::TurnEnded(ended) = ended else { unreachable!() };
        assert_eq!(ended.outcome, TurnOutcome::Completed);
    }
    let snapshot = again.snapshot().await.unwrap();
    assert_eq!(snapshot.summary.turns, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflicting_owner_stops_this_one() {
    let stage = Stage::new(Script::new()).await;
    let session = stage.session("echo").await;
    session.run(Prompt::text("mine")).await.unwrap();
    // Another engine on the same store takes the session over.
    let other = Stage::on(stage.store.clone(), Arc::clone(&stage.folder), Script::new(), 1 << 20).await;
    other.engine.session(session.id()).await.unwrap().run(Prompt::text("theirs")).await.unwrap();
    let refused = session.prompt(Prompt::text("mine again")).await;
    assert!(refused.is_err(), "{refused:?}");
    // It reads the log again and goes on from what is there.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let snapshot = session.snapshot().await.unwrap();
    assert!(snapshot.messages.len() >= 4, "{}", snapshot.messages.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_removed_did_not_crash() {
    logs::keep();
    let stage = Stage::new(Script::new()).await;
    for _ in 0..20 {
        let session = stage.session("echo").await;
        session.run(Prompt::text("hi")).await.unwrap();
        stage.engine.delete(session.id()).await.unwrap();
        assert!(matches!(stage.engine.summary(session.id()).await, Err(CommandError::NotFound(_))));
        // The engine still answers, so what it had to say of the end is said.
        assert!(stage.engine.session(session.id()).await.is_err());
        let said = logs::of(session.id());
        assert!(said.iter().any(|line| line.contains("a prompt was admitted")), "the log is kept: {said:?}");
        assert!(!said.iter().any(|line| line.contains("crashed")), "{said:?}");
    }
}

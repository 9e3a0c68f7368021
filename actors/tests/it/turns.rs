//! Turns that go as they should.

use std::time::Duration;

use std::sync::Arc;

use mock_llm::{Model, Script, call, calls, text, tokens};
use playhouse_protocol::message::{CallOutcome, Message, Part};
use playhouse_protocol::record::{Record, TurnOutcome};
use playhouse_protocol::{CommandError, Prompt, WhenBusy};
use playhouse_store::{ListQuery, Store};
use serde_json::{Value, json};

use crate::logs;
use crate::support::{Stage, kinds, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_reads_edits_and_ends() {
    let script = Script::new().model(
        "fixer",
        Model::new()
            .step(text("I look.").call("read", json!({"filePath": "a.txt"})))
            .step(call("edit", json!({"filePath": "a.txt", "oldString": "old", "newString": "new"})))
            .step(text("Done.")),
    );
    let stage = Stage::new(script).await;
    let file = stage.folder.path().join("workspace/a.txt");
    fs_err::write(&file, "an old word\n").unwrap();
    let session = stage.session("fixer").await;
    let finished = session.run(Prompt::text("Fix it.")).await.unwrap();
    assert_eq!(finished.ended.outcome, TurnOutcome::Completed);
    assert_eq!(finished.ended.steps, 3);
    assert_eq!(fs_err::read_to_string(&file).unwrap(), "an new word\n");

    let snapshot = session.snapshot().await.unwrap();
    assert_eq!(snapshot.summary.title, "Fix it.");
    assert_eq!(snapshot.messages.len(), 4);
    let Message::Assistant(first) = &snapshot.messages[1] else { panic!("an answer") };
    assert!(matches!(&first.parts[0], Part::Text { text, .. } if text == "I look."));
    let report = stage.engine.usage().await.unwrap();
    assert_eq!(report.totals.attempts, 3);
    assert_eq!(report.totals.tokens, snapshot.summary.totals().tokens);
    let by_model = stage.engine.session_usage(session.id()).await.unwrap();
    assert_eq!(by_model.len(), 1);
    assert_eq!(stage.engine.shutdown().await.stragglers, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_begins_with_the_one_before() {
    let step = || call("probe", json!({"mode": "free"}));
    let stage = Stage::new(
        Script::new()
            .model("m", Model::new().step(step()).step(step()).step(text("a")).next_turn().step(text("b"))),
    )
    .await;
    let session = stage.session("m").await;
    session.run(Prompt::text("one")).await.unwrap();
    session.run(Prompt::text("two")).await.unwrap();
    let bodies: Vec<Value> = stage
        .directory
        .mock
        .journal()
        .entries()
        .iter()
        .map(|entry| serde_json::from_slice(entry.body.as_deref().unwrap()).unwrap())
        .collect();
    assert_eq!(bodies.len(), 4);
    for pair in bodies.windows(2) {
        let [before, after] = pair else { unreachable!() };
        let messages = |body: &Value| without_markers(&body["messages"]);
        let (before, after) = (messages(before), messages(after));
        assert_eq!(
            after.as_array().unwrap()[..before.as_array().unwrap().len()],
            before.as_array().unwrap()[..]
        );
    }
}

fn without_markers(value: &Value) -> Value {
    match value {
        Value::Object(object) => object
            .iter()
            .filter(|(key, _)| *key != "cache_control")
            .map(|(key, value)| (key.clone(), without_markers(value)))
            .collect(),
        Value::Array(items) => items.iter().map(without_markers).collect(),
        other => other.clone(),
    }
}

// Elsewhere the workspace is looked at on another thread.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_call_has_an_actor_of_its_own_only_while_it_waits() {
    let probe = |mode: &str| call("probe", json!({ "mode": mode }));
    let model = Model::new().step(probe("free-once")).step(probe("wait")).step(probe("once"));
    let stage = Stage::new(Script::new().model("m", model.step(text("Done.")))).await;
    let session = stage.session("m").await;
    let released = async {
        stage.probe.begun().await;
        // Its session is through with beginning it.
        session.snapshot().await.unwrap();
        stage.probe.release(1);
    };
    let (finished, ()) = tokio::join!(session.run(Prompt::text("go")), released);
    assert_eq!(finished.unwrap().ended.outcome, TurnOutcome::Completed);
    let tasks = stage.probe.tasks.lock().unwrap().clone();
    let [first, waits, goes_on, last] = tasks[..] else { panic!("{tasks:?}") };
    assert!(waits == first && last == first && goes_on != first, "{tasks:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_without_effects_run_side_by_side() {
    let modes = ["free-wait", "free-wait", "free-wait"];
    let script = Script::new().model(
        "m",
        Model::new().step(calls(modes.map(|mode| ("probe", json!({ "mode": mode }))))).step(text("Done.")),
    );
    let stage = Stage::new(script).await;
    let session = stage.session("m").await;
    let turn = tokio::spawn({
        let session = session.clone();
        async move { session.run(Prompt::text("go")).await.unwrap() }
    });
    // All three are at work before any of them may end.
    for _ in modes {
        stage.probe.begun().await;
    }
    stage.probe.release(modes.len());
    assert_eq!(turn.await.unwrap().ended.outcome, TurnOutcome::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_the_agent_lacks_is_refused_where_calls_run() {
    let script = Script::new()
        .model("m", Model::new().step(call("bash", json!({"command": "touch made"}))).step(text("Done.")));
    let stage = Stage::new(script).await;
    let session = stage.session("m").await;
    let prompt = Prompt { agent: Some("reader".into()), ..Prompt::text("go") };
    session.run(prompt).await.unwrap();
    assert!(!stage.folder.path().join("workspace/made").exists());
    let records = stage.records(&session).await;
    let refused = records.iter().find_map(|record| match record {
        Record::CallSettled { result, .. } => Some(result),
        _ => None,
    });
    assert_eq!(refused.unwrap().outcome, CallOutcome::Declined);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_step_limit_ends_the_turn_with_what_the_model_says_then() {
    let step = || call("probe", json!({"mode": "free"}));
    let stage =
        Stage::new(Script::new().model("m", Model::new().step(step()).step(step()).step(step()))).await;
    let session = stage.session("m").await;
    let finished = session.run(Prompt { steps: Some(2), ..Prompt::text("go") }).await.unwrap();
    assert_eq!(finished.ended.outcome, TurnOutcome::MaxSteps);
    let last = stage.directory.mock.journal().entries().pop().unwrap();
    let body: Value = serde_json::from_slice(last.body.as_deref().unwrap()).unwrap();
    assert_eq!(body["tool_choice"]["type"], "none");
    assert!(body["tools"].as_array().is_some_and(|tools| !tools.is_empty()), "tools are kept");
    let messages = body["messages"].as_array().unwrap();
    let tail = messages.last().unwrap();
    assert_eq!(tail["role"], "user");
    assert!(tail["content"].to_string().contains("The step limit of this turn is reached."), "{tail}");
    // It stays where it was: what the model thought at the limit was made after it.
    session.run(Prompt::text("and now?")).await.unwrap();
    let next = stage.directory.mock.journal().entries().pop().unwrap();
    let body: Value = serde_json::from_slice(next.body.as_deref().unwrap()).unwrap();
    let kept = &body["messages"][messages.len() - 1];
    let text = |message: &Value| message["content"][0]["content"].clone();
    assert_eq!(text(kept), text(tail), "{kept}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_session_queues_rejects_and_is_steered() {
    let script = Script::new().model(
        "m",
        Model::new()
            .step(call("probe", json!({"mode": "wait"})))
            .step(text("first"))
            .next_turn()
            .step(text("steered"))
            .next_turn()
            .step(text("queued")),
    );
    let stage = Stage::new(script).await;
    let session = stage.session("m").await;
    let mut events = session.events(None).await.unwrap();
    let first = session.prompt(Prompt::text("one")).await.unwrap();
    stage.probe.begun().await;
    let busy = |when_busy, text: &str| Prompt { when_busy, ..Prompt::text(text) };
    let refused = session.prompt(busy(WhenBusy::Reject, "no")).await.unwrap_err();
    assert_eq!(refused.to_string(), "session is busy");
    let queued = session.prompt(busy(WhenBusy::Queue, "two")).await.unwrap();
    session.prompt(busy(WhenBusy::Steer, "aside")).await.unwrap();
    stage.probe.release(1);
    let ended =
        |turn| move |record: &Record| matches!(record, Record::TurnEnded(ended) if ended.turn == turn);
    until(&mut events, ended(first.turn)).await;
    until(&mut events, ended(queued.turn)).await;
    let second = &stage.directory.mock.journal().entries()[1];
    assert!(
        String::from_utf8_lossy(second.body.as_deref().unwrap()).contains("aside"),
        "the steered prompt is read by step 2"
    );
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!(snapshot.summary.open_turns, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_prompt_twice_runs_once() {
    let stage = Stage::new(Script::new()).await;
    let session = stage.session("echo").await;
    let first = session.run(Prompt::text("hello")).await.unwrap();
    let again = Prompt { message: Some(first.ended.turn), ..Prompt::text("hello") };
    assert!(session.prompt(again.clone()).await.unwrap().repeated);
    let waited = tokio::time::timeout(Duration::from_secs(20), session.run(again)).await;
    assert_eq!(waited.expect("its turn is over").unwrap().ended, first.ended);
    assert_eq!(stage.directory.mock.journal().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_prompts_are_refused_and_leave_nothing() {
    let stage = Stage::new(Script::new()).await;
    let session = stage.session("echo").await;
    let bad = [
        Prompt::text("  \n"),
        Prompt { steps: Some(0), ..Prompt::text("go") },
        Prompt::text("x".repeat(6 << 20)),
    ];
    for prompt in bad {
        assert!(matches!(session.prompt(prompt).await, Err(CommandError::Invalid(_))));
    }
    assert_eq!(kinds(&stage.records(&session).await), ["session.created"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_directory_is_gone_says_so_and_can_be_read() {
    let stage = Stage::new(Script::new()).await;
    let session = stage.session("echo").await;
    fs_err::remove_dir(stage.folder.path().join("workspace")).unwrap();
    let error = session.prompt(Prompt::text("go")).await.unwrap_err().to_string();
    assert!(error.contains("workspace"), "{error}");
    assert!(session.snapshot().await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_engines_live_in_one_process() {
    let one = Stage::new(Script::new()).await;
    let two = Stage::new(Script::new()).await;
    let (first, second) = (one.session("echo").await, two.session("echo").await);
    let (left, right) = tokio::join!(first.run(Prompt::text("left")), second.run(Prompt::text("right")));
    assert_eq!(left.unwrap().ended.outcome, TurnOutcome::Completed);
    assert_eq!(right.unwrap().ended.outcome, TurnOutcome::Completed);
    assert!(two.engine.session(first.id()).await.is_err(), "they share nothing");
    one.engine.shutdown().await;
    assert!(second.run(Prompt::text("still here")).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_sessions_run_at_once() {
    let stage = Stage::new(Script::new()).await;
    let mut turns = Vec::new();
    for _ in 0..100 {
        let session = stage.session("tools-3-tokens-20").await;
        turns.push(tokio::spawn(async move { session.run(Prompt::text("go")).await.unwrap() }));
    }
    for turn in turns {
        let ended = turn.await.unwrap().ended;
        assert_eq!((ended.outcome, ended.steps), (TurnOutcome::Completed, 4));
    }
    let listed = stage.engine.list(ListQuery { limit: 500, ..ListQuery::default() }).await.unwrap();
    assert_eq!(listed.sessions.len(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_session_is_gone_also_after_a_restart() {
    let (store, folder) = (Store::memory().unwrap(), Arc::new(tempfile::tempdir().unwrap()));
    let stage = Stage::on(store.clone(), Arc::clone(&folder), Script::new(), 1 << 20).await;
    let (kept, gone) = (stage.session("echo").await, stage.session("echo").await);
    gone.run(Prompt::text("hello")).await.unwrap();
    let mut events = gone.events(None).await.unwrap();
    stage.engine.delete(gone.id()).await.unwrap();
    until(&mut events, |record| matches!(record, Record::Deleted {})).await;
    assert!(events.next().await.unwrap().is_none(), "the stream ends");
    let not_found = CommandError::NotFound(gone.id());
    assert_eq!(gone.snapshot().await.unwrap_err(), not_found);
    assert_eq!(stage.engine.delete(gone.id()).await.unwrap_err(), not_found);
    stage.engine.shutdown().await;
    let again = Stage::on(store, folder, Script::new(), 1 << 20).await;
    let listed = again.engine.list(ListQuery::default()).await.unwrap();
    let ids: Vec<_> = listed.sessions.iter().map(|summary| summary.id).collect();
    assert_eq!(ids, [kept.id()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_token_passes_through_a_mailbox() {
    logs::keep();
    let script = Script::new()
        .model("short", Model::new().step(tokens(10)))
        .model("long", Model::new().step(tokens(10_000)));
    let stage = Stage::new(script).await;
    let mut all = Vec::new();
    for (model, least) in [("short", 10), ("long", 10_000)] {
        let session = stage.session(model).await;
        logs::count_all(session.id());
        let finished = session.run(Prompt::text("Speak.")).await.unwrap();
        assert!(finished.ended.totals.tokens.output >= least, "{:?}", finished.ended.totals.tokens);
        // The last ones come after the turn's end.
        let all_came = async {
            loop {
                let messages = logs::counted_all(session.id());
                if ["session child-ended", "metering ended"].iter().all(|name| messages.contains_key(*name)) {
                    return messages;
                }
                tokio::task::yield_now().await;
            }
        };
        let mut messages = tokio::time::timeout(Duration::from_secs(20), all_came).await.unwrap();
        assert_eq!(messages.get("session attempt"), Some(&1), "{messages:?}");
        // How many records go into the log at once depends on how fast the disk is.
        messages.retain(|message, _| !matches!(message.as_str(), "session flushed" | "session write"));
        all.push(messages);
    }
    assert_eq!(all[0], all[1]);
}

//! Aborts: everything is settled, nothing goes on.

use std::time::{Duration, Instant};

use mock_llm::{Fault, Model, Script, call, calls, text, tokens};
use playhouse_protocol::event::Provisional;
use playhouse_protocol::message::CallOutcome;
use playhouse_protocol::record::{AttemptOutcome, Record, StepPart, TurnOutcome};
use playhouse_protocol::usage::Quality;
use playhouse_protocol::{EventBody, Prompt, WhenBusy};
use serde_json::json;

use crate::support::{POOL, Stage, until};

fn outcomes(records: &[Record]) -> Vec<CallOutcome> {
    records
        .iter()
        .filter_map(|record| match record {
            Record::CallSettled { result, .. } => Some(result.outcome),
            _ => None,
        })
        .collect()
}

fn turn_outcomes(records: &[Record]) -> Vec<TurnOutcome> {
    records
        .iter()
        .filter_map(|record| match record {
            Record::TurnEnded(ended) => Some(ended.outcome),
            _ => None,
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_cancels_calls_and_queued_prompts() {
    let step = calls([("probe", json!({"mode": "wait"})), ("probe", json!({"mode": "second"}))]);
    let stage = Stage::new(Script::new().model("m", Model::new().step(step))).await;
    let session = stage.session("m").await;
    session.prompt(Prompt::text("one")).await.unwrap();
    stage.probe.begun().await;
    session.prompt(Prompt::text("two")).await.unwrap();
    assert_eq!(session.abort().await.unwrap(), 2);
    let records = stage.records(&session).await;
    assert_eq!(outcomes(&records), [CallOutcome::Cancelled, CallOutcome::Cancelled]);
    assert_eq!(turn_outcomes(&records), [TurnOutcome::Aborted, TurnOutcome::Aborted]);
    assert_eq!(session.abort().await.unwrap(), 0);
    let after = session.run(Prompt::text("three")).await.unwrap();
    assert_eq!(after.ended.outcome, TurnOutcome::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_in_the_middle_of_an_answer_keeps_its_text() {
    let step = text("The beginning.").fault(Fault::stall(4));
    let stage = Stage::new(Script::new().model("m", Model::new().step(step))).await;
    let session = stage.session("m").await;
    let mut events = session.events(None).await.unwrap();
    session.prompt(Prompt::text("go")).await.unwrap();
    loop {
        let event = events.next().await.unwrap().unwrap();
        if matches!(event.event().body, EventBody::Provisional(Provisional::PartDelta { .. })) {
            break;
        }
    }
    session.abort().await.unwrap();
    let records = stage.records(&session).await;
    let ended = records.iter().find_map(|record| match record {
        Record::AttemptEnded(ended) => Some(ended),
        _ => None,
    });
    let ended = ended.unwrap();
    assert_eq!(ended.outcome, AttemptOutcome::Aborted);
    assert_eq!(ended.usage.as_ref().unwrap().quality, Quality::Estimated);
    let kept = records.iter().find_map(|record| match record {
        Record::StepFinished(finished) => finished.parts.first(),
        _ => None,
    });
    assert!(matches!(kept, Some(StepPart::Text { text, .. }) if !text.is_empty()), "{kept:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupting_prompt_takes_the_place_of_the_running_turn() {
    let script = Script::new()
        .model("m", Model::new().step(tokens(100_000).rate(20.0)).next_turn().step(text("the second")));
    let stage = Stage::new(script).await;
    let session = stage.session("m").await;
    let mut events = session.events(None).await.unwrap();
    let first = session.prompt(Prompt::text("one")).await.unwrap();
    until(&mut events, |record| matches!(record, Record::AttemptStarted(_))).await;
    let now = Prompt { when_busy: WhenBusy::Interrupt, ..Prompt::text("now") };
    let finished = session.run(now).await.unwrap();
    assert_eq!(finished.ended.outcome, TurnOutcome::Completed);
    let records = stage.records(&session).await;
    let Some(Record::TurnEnded(ended)) =
        records.iter().find(|record| matches!(record, Record::TurnEnded(ended) if ended.turn == first.turn))
    else {
        panic!("the first turn ended")
    };
    assert_eq!(ended.outcome, TurnOutcome::Aborted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_does_not_listen_is_given_up() {
    let step = call("probe", json!({"mode": "hang"}));
    let stage = Stage::new(Script::new().model("m", Model::new().step(step))).await;
    let session = stage.session("m").await;
    let mut events = session.events(None).await.unwrap();
    session.prompt(Prompt::text("go")).await.unwrap();
    until(&mut events, |record| matches!(record, Record::CallIntended(_))).await;
    session.abort().await.unwrap();
    assert_eq!(outcomes(&stage.records(&session).await), [CallOutcome::Cancelled]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_ends_the_process_tree_of_a_command() {
    let folder_mark = format!("{}", std::process::id());
    let command = format!(
        "trap '' TERM; (sleep 987{folder_mark} & setsid sleep 987{folder_mark}) & sleep 987{folder_mark}"
    );
    let stage =
        Stage::new(Script::new().model("m", Model::new().step(call("bash", json!({"command": command})))))
            .await;
    let session = stage.session("m").await;
    session.prompt(Prompt::text("go")).await.unwrap();
    let mark = format!("987{folder_mark}");
    let deadline = Instant::now() + Duration::from_secs(10);
    while sleeping(&mark) < 3 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(sleeping(&mark), 3, "the command runs");
    session.abort().await.unwrap();
    assert_eq!(sleeping(&mark), 0, "nothing of it is left when the abort is answered");
    assert_eq!(turn_outcomes(&stage.records(&session).await), [TurnOutcome::Aborted]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_while_a_large_prompt_is_serialized_loses_nothing_of_the_conversation() {
    let stage = Stage::new(Script::new()).await;
    let session = stage.session("tokens-5").await;
    session.run(Prompt::text("remember the blue door")).await.unwrap();
    let mut others = Vec::new();
    for _ in 0..POOL {
        others.push(stage.session("hog").await);
    }
    for other in &others {
        other.prompt(Prompt::text("go")).await.unwrap();
    }
    stage.directory.pool_is_hogged().await;
    // It is large enough to be serialized on the pool, where it must wait: the abort meets it there.
    let mut events = session.events(None).await.unwrap();
    session.prompt(Prompt::text("x".repeat(300 * 1024))).await.unwrap();
    until(&mut events, |record| matches!(record, Record::AttemptStarted(_))).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    session.abort().await.unwrap();
    stage.directory.let_go();
    let ended = session.run(Prompt::text("and now?")).await.unwrap().ended;
    assert_eq!(ended.outcome, TurnOutcome::Completed);
    let asked = stage.directory.mock.journal().entries();
    let bodies: Vec<_> = asked
        .iter()
        .filter(|entry| entry.model.as_deref() == Some("tokens-5"))
        .map(|entry| String::from_utf8_lossy(entry.body.as_deref().unwrap()).into_owned())
        .collect();
    assert_eq!(bodies.len(), 2, "the aborted request never left");
    assert!(bodies[1].contains("remember the blue door"), "what was said before is still in the request");
}

/// Processes `sleep MARK` on this machine.
fn sleeping(mark: &str) -> usize {
    fs_err::read_dir("/proc")
        .unwrap()
        .filter_map(Result::ok)
        .filter_map(|entry| fs_err::read(entry.path().join("cmdline")).ok())
        .filter(|line| line.as_slice() == format!("sleep\0{mark}\0").as_bytes())
        .count()
}

//! What is told when things go wrong: crashes, subscribers that fall behind, calls and attempts that end badly. A healthy
//! engine leaves these at 0, so that nobody would notice if they were not counted.
//!
//! Each engine here runs in one thread, and what it records goes to a recorder of that thread: tests beside it count apart.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use mock_llm::{Model, Script, call, text, tokens};
use playhouse_actors::Heard;
use playhouse_protocol::event::Provisional;
use playhouse_protocol::record::{Record, TurnOutcome};
use playhouse_protocol::{CommandError, EventBody, Prompt, Seq};
use playhouse_store::Store;
use serde_json::json;

use crate::support::Stage;

fn recorder() -> PrometheusRecorder {
    PrometheusBuilder::new().build_recorder()
}

/// Whether this line is told: a series and its value.
fn tells(recorder: &PrometheusRecorder, stage: &Stage, line: &str) -> bool {
    stage.engine.observe();
    recorder.handle().render().lines().any(|found| found == line)
}

#[track_caller]
fn told(recorder: &PrometheusRecorder, stage: &Stage, line: &str) {
    assert!(tells(recorder, stage, line), "{line} is not in\n{}", recorder.handle().render());
}

/// The value of a counter, 0 where it is not told.
fn count(recorder: &PrometheusRecorder, series: &str) -> u64 {
    let text = recorder.handle().render();
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
    value.unwrap_or(0)
}

#[tokio::test]
async fn crashes_are_counted_and_sessions_that_are_parked_are_told() {
    let recorder = recorder();
    let _here = metrics::set_default_local_recorder(&recorder);
    let stage = Stage::new(Script::new()).await;
    let (session, other) = (stage.session("echo").await, stage.session("echo").await);
    stage.directory.panics_in_session.store(1, Ordering::SeqCst);
    assert_eq!(session.run(Prompt::text("go")).await.unwrap().ended.outcome, TurnOutcome::Completed);
    told(&recorder, &stage, "playhouse_session_crashes_total 1");
    told(&recorder, &stage, "playhouse_sessions{state=\"parked\"} 0");
    told(&recorder, &stage, "playhouse_sessions{state=\"idle\"} 1");
    stage.directory.panics_in_session.store(1_000, Ordering::SeqCst);
    let error = session.prompt(Prompt::text("again")).await.unwrap_err();
    assert!(matches!(error, CommandError::Parked { .. }), "{error}");
    stage.directory.panics_in_session.store(0, Ordering::SeqCst);
    told(&recorder, &stage, "playhouse_session_crashes_total 4");
    told(&recorder, &stage, "playhouse_sessions{state=\"parked\"} 1");
    told(&recorder, &stage, "playhouse_sessions{state=\"idle\"} 0");
    assert_eq!(other.run(Prompt::text("hi")).await.unwrap().ended.outcome, TurnOutcome::Completed);
    told(&recorder, &stage, "playhouse_sessions{state=\"idle\"} 1");
    stage.engine.delete(session.id()).await.unwrap();
    // The supervisor forgets it after that was answered.
    let forgotten = async {
        while !tells(&recorder, &stage, "playhouse_sessions{state=\"parked\"} 0") {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), forgotten).await.expect("it is parked no more");
}

#[tokio::test]
async fn subscribers_that_fall_behind_are_counted_by_kind_of_stream() {
    let recorder = recorder();
    let _here = metrics::set_default_local_recorder(&recorder);
    let script = Script::new().model("m", Model::new().step(tokens(20_000)));
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let stage = Stage::with(Store::memory().unwrap(), folder, script, |options| {
        (options.limits.ring_bytes, options.limits.hub_bytes) = (2_000, 2_000);
    })
    .await;
    let session = stage.session("m").await;
    let mut all = stage.engine.hub().listen(&"local".into(), None, |_| true);
    let mut one = session.events(Some(Seq::START)).await.unwrap();
    session.run(Prompt::text("go")).await.unwrap();
    let resyncs = || {
        ["session", "tenant"]
            .map(|stream| count(&recorder, &format!("playhouse_event_resyncs_total{{stream=\"{stream}\"}}")))
    };
    // Whoever ran the turn reads its events, too.
    let [before, none] = resyncs();
    assert_eq!(none, 0);
    let mut seen = 0;
    loop {
        let event = one.next().await.unwrap().unwrap();
        match &event.event().body {
            EventBody::Provisional(Provisional::Resync { .. }) => seen += 1,
            EventBody::Durable(record) if matches!(**record, Record::TurnEnded(_)) => break,
            _ => {}
        }
    }
    assert!(seen > 0, "a ring of 2,000 bytes does not hold all");
    assert_eq!(resyncs(), [before + seen, 0]);
    assert!(matches!(all.try_next(), Some(Heard::Behind { .. })), "nor does the hub");
    assert_eq!(resyncs(), [before + seen, 1]);
}

#[tokio::test]
async fn calls_and_attempts_that_end_badly_are_told_by_outcome() {
    let recorder = recorder();
    let _here = metrics::set_default_local_recorder(&recorder);
    let script = Script::new()
        .model("m", Model::new().step(call("probe", json!({"mode": "panic"}))).step(text("I saw it.")));
    let stage = Stage::new(script).await;
    let session = stage.session("m").await;
    assert_eq!(session.run(Prompt::text("go")).await.unwrap().ended.outcome, TurnOutcome::Completed);
    told(&recorder, &stage, "playhouse_tool_calls_total{tool=\"probe\",outcome=\"crashed\"} 1");
    let other = stage.session("echo").await;
    stage.directory.panic_in_step.store(true, Ordering::SeqCst);
    assert_eq!(other.run(Prompt::text("go")).await.unwrap().ended.outcome, TurnOutcome::Failed);
    for (model, outcome, requests) in [("m", "finished", 2), ("echo", "internal", 1)] {
        let labels = format!("provider=\"mock\",model=\"{model}\",outcome=\"{outcome}\"");
        told(&recorder, &stage, &format!("playhouse_provider_requests_total{{{labels}}} {requests}"));
    }
    told(&recorder, &stage, "playhouse_turns_total{outcome=\"failed\"} 1");
    told(&recorder, &stage, "playhouse_turns_total{outcome=\"completed\"} 1");
    assert_eq!(count(&recorder, "playhouse_session_crashes_total"), 0, "no session crashed");
}

/// What is told of attempts waits for the next request, or for the end of a turn: a title has neither behind it.
#[tokio::test]
async fn a_title_that_comes_after_the_end_of_its_turn_is_counted() {
    let recorder = recorder();
    let _here = metrics::set_default_local_recorder(&recorder);
    let titler = Model::new().step(text("A title").delay(Duration::from_millis(300)));
    let stage = Stage::new(Script::new().model("titler", titler)).await;
    stage.directory.titles.store(true, Ordering::SeqCst);
    let session = stage.session("echo").await;
    session.run(Prompt::text("hi")).await.unwrap();
    let requests =
        "playhouse_provider_requests_total{provider=\"mock\",model=\"titler\",outcome=\"finished\"} 1";
    let counted = async {
        while !tells(&recorder, &stage, requests) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let counted = tokio::time::timeout(Duration::from_secs(20), counted).await;
    counted.unwrap_or_else(|_| panic!("{requests} is not in\n{}", recorder.handle().render()));
}

#[tokio::test]
async fn sessions_that_leave_are_counted_and_those_that_are_followed_are_told() {
    let recorder = recorder();
    let _here = metrics::set_default_local_recorder(&recorder);
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let stage = Stage::with(Store::memory().unwrap(), folder, Script::new(), |options| {
        options.limits.idle_after = Some(Duration::from_millis(5));
    })
    .await;
    let (followed, other) = (stage.session("echo").await, stage.session("echo").await);
    let events = followed.events(None).await.unwrap();
    other.snapshot().await.unwrap();
    let asleep = async |number| {
        let line = format!("playhouse_sessions{{state=\"asleep\"}} {number}");
        let told = async {
            while stage.engine.in_memory() > 0 || !tells(&recorder, &stage, &line) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), told).await.expect("they sleep");
    };
    asleep(1).await;
    told(&recorder, &stage, "playhouse_session_evictions_total{reason=\"idle\"} 2");
    told(&recorder, &stage, "playhouse_session_wake_duration_seconds_count 2");
    drop(events);
    asleep(0).await;
}

//! Commands that outlive their call: they end with their session, and with the engine.

use std::path::Path;
use std::time::Duration;

use mock_llm::{Model, Script, call, text};
use playhouse_actors::SessionHandle;
use playhouse_protocol::message::CallOutcome;
use playhouse_protocol::{Prompt, Record};
use serde_json::json;

use crate::support::Stage;

/// Two left behind, one of them out of reach, and one in the background.
fn model() -> Model {
    let left = "sleep 500 & echo $!; setsid sleep 500 & echo $!";
    let background = json!({"command": "sleep 500 & echo $!; wait", "background": true});
    Model::new()
        .step(call("bash", json!({"command": left})))
        .step(call("bash", background))
        .step(text("They run."))
}

/// A session with commands that run, and the numbers of their processes.
async fn session_with_commands(stage: &Stage) -> (SessionHandle, Vec<String>) {
    let session = stage.session("m").await;
    session.run(Prompt::text("go")).await.unwrap();
    let mut processes = Vec::new();
    for record in stage.records(&session).await {
        let Record::CallSettled { result, .. } = record else { continue };
        assert_eq!(result.outcome, CallOutcome::Done, "{}", result.output);
        let numbers = result.output.lines().filter(|line| line.parse::<u32>().is_ok());
        processes.extend(numbers.map(str::to_owned));
    }
    assert_eq!(processes.len(), 3, "{processes:?}");
    (session, processes)
}

fn lives(process: &str) -> bool {
    let stat = fs_err::read_to_string(Path::new("/proc").join(process).join("stat"));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with(['Z', 'X']))
}

async fn gone(processes: &[String]) -> bool {
    for _ in 0..500 {
        if !processes.iter().any(|process| lives(process)) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn they_end_when_their_session_is_deleted() {
    let stage = Stage::new(Script::new().model("m", model())).await;
    let (session, processes) = session_with_commands(&stage).await;
    let (other, others) = session_with_commands(&stage).await;
    assert!(processes.iter().chain(&others).all(|process| lives(process)), "they outlive their calls");
    stage.engine.delete(session.id()).await.unwrap();
    assert!(gone(&processes).await);
    assert!(others.iter().all(|process| lives(process)), "those of another session go on");
    stage.engine.delete(other.id()).await.unwrap();
    assert!(gone(&others).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn they_end_when_the_engine_stops() {
    let stage = Stage::new(Script::new().model("m", model())).await;
    let (_session, processes) = session_with_commands(&stage).await;
    assert!(processes.iter().all(|process| lives(process)), "they outlive their calls");
    stage.engine.shutdown().await;
    assert!(gone(&processes).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_leaves_those_in_the_background_alone() {
    let stage = Stage::new(Script::new().model("m", model())).await;
    let (session, processes) = session_with_commands(&stage).await;
    session.abort().await.unwrap();
    assert!(processes.iter().all(|process| lives(process)));
    stage.engine.shutdown().await;
    assert!(gone(&processes).await);
}

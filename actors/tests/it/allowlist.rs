//! The only tools that there are in a session.

use mock_llm::{Model, Script, call, text};

use playhouse_protocol::message::CallOutcome;
use playhouse_protocol::{CommandError, NewSession, Prompt};
use serde_json::{Value, json};

use crate::support::Stage;
use crate::tasks::results;

const ALLOWED: [&str; 3] = ["read", "batch", "task"];

/// The tools that each request shows, sorted.
fn shown(stage: &Stage) -> Vec<Vec<String>> {
    let tools = |body: Value| {
        let tools = body["tools"].as_array().cloned().unwrap_or_default();
        let mut names: Vec<String> =
            tools.iter().filter_map(|tool| tool["name"].as_str()).map(str::to_owned).collect();
        names.sort_unstable();
        names
    };
    let entries = stage.directory.mock.journal().entries();
    let bodies = entries.iter().filter_map(|entry| entry.body.as_ref());
    bodies.map(|body| tools(serde_json::from_slice(body).unwrap())).collect()
}

fn allowed(stage: &Stage, model: &str) -> NewSession {
    NewSession { tools: Some(ALLOWED.map(str::to_owned).to_vec()), ..stage.new_session(model) }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_on_it_is_neither_shown_nor_called_nor_named() {
    let inner = json!({"tool_calls": [{"tool": "bash", "parameters": {"command": "touch made"}}]});
    let handed = json!({"description": "list", "prompt": "List it.", "subagent_type": "worker"});
    let model = Model::new()
        .step(call("bash", json!({"command": "touch made"})))
        .step(call("nothing", json!({})))
        .step(call("batch", inner))
        .step(call("task", handed))
        .step(text("So."));
    // The session below: with the tools of the one above, and no others.
    let worker = Model::new().step(call("list", json!({}))).step(text("No."));
    let stage = Stage::new(Script::new().model("m", model).model("worker", worker)).await;
    let session = stage.engine.create(allowed(&stage, "m")).await.unwrap();
    session.run(Prompt::text("go")).await.unwrap();
    let results = crate::tasks::results(&stage, session.id()).await;
    assert_eq!(results.len(), 4);
    for result in &results[..2] {
        assert_eq!(result.outcome, CallOutcome::Failed, "{}", result.output);
        assert!(result.output.contains("read") && !result.output.contains("write"), "{}", result.output);
    }
    assert!(!results[2].output.contains("write") && !stage.folder.path().join("workspace/made").exists());
    let shown = shown(&stage);
    assert!(shown.iter().all(|tools| *tools == ["batch", "read", "task"]), "{shown:?}");
    let children = stage.engine.list(playhouse_store::ListQuery {
        kin: Some(playhouse_store::Kin::ChildrenOf(session.id())),
        limit: 10,
        ..Default::default()
    });
    let child = children.await.unwrap().sessions.remove(0);
    let below = crate::tasks::results(&stage, child.id).await.remove(0);
    assert!(below.outcome == CallOutcome::Failed && !below.output.contains("write"), "{}", below.output);
    // A prompt to that session by itself has no more.
    let session = stage.engine.session(child.id).await.unwrap();
    session.run(Prompt::text("go")).await.unwrap();
    assert_eq!(self::shown(&stage).last().unwrap(), &["batch", "read", "task"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_below_has_no_more_than_the_one_above_and_unknown_names_are_refused() {
    let stage = Stage::new(Script::new()).await;
    let unknown = NewSession { tools: Some(vec!["raed".into()]), ..stage.new_session("echo") };
    let error = stage.engine.create(unknown).await.unwrap_err();
    assert!(matches!(&error, CommandError::Invalid(text) if text.contains("read")), "{error}");
    let above = stage.engine.create(allowed(&stage, "echo")).await.unwrap();
    for (tools, expected) in
        [(None, &["batch", "read", "task"][..]), (Some(vec!["bash".into(), "read".into()]), &["read"])]
    {
        let new = NewSession { parent: Some(above.id()), tools, ..stage.new_session("echo") };
        let below = stage.engine.create(new).await.unwrap();
        below.run(Prompt::text("go")).await.unwrap();
        assert_eq!(shown(&stage).last().unwrap(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_that_a_prompt_turns_off_are_off_in_what_it_hands_over() {
    let handed = json!({"description": "list", "prompt": "List it.", "subagent_type": "worker"});
    let model = Model::new().step(call("task", handed)).step(text("So."));
    let worker = Model::new().step(call("list", json!({}))).step(text("No."));
    let stage = Stage::new(Script::new().model("m", model).model("worker", worker)).await;
    let session = stage.session("m").await;
    let tools = [("list".to_owned(), false)].into();
    session.run(Prompt { tools, ..Prompt::text("go") }).await.unwrap();
    let children = stage.engine.list(playhouse_store::ListQuery {
        kin: Some(playhouse_store::Kin::ChildrenOf(session.id())),
        limit: 10,
        ..Default::default()
    });
    let child = children.await.unwrap().sessions.remove(0);
    let below = results(&stage, child.id).await.remove(0);
    assert_eq!(below.outcome, CallOutcome::Declined, "{}", below.output);
}

//! Results that are too long for a model: whose they are, and how they end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use mock_llm::{Model, Script, call, calls, text};
use playhouse_actors::SessionHandle;
use playhouse_protocol::message::{CallOutcome, CallPart, CallResult, CallState, Message, Part};
use playhouse_protocol::{Prompt, Record, SessionId};
use playhouse_store::Store;
use serde_json::{Value, json};

use crate::support::Stage;

/// The results in the order of the calls.
async fn results(session: &SessionHandle) -> Vec<CallResult> {
    let messages = session.snapshot().await.unwrap().messages;
    let parts = messages.into_iter().flat_map(|message| match message {
        Message::Assistant(message) => message.parts,
        Message::User(_) => Vec::new(),
    });
    let results = parts.filter_map(|part| match part {
        Part::Call(CallPart { state: CallState::Settled(result), .. }) => Some(result),
        _ => None,
    });
    results.collect()
}

/// The results in the order in which they came.
async fn settled(stage: &Stage, session: &SessionHandle) -> Vec<CallResult> {
    let records = stage.records(session).await;
    let results = records.into_iter().filter_map(|record| match record {
        Record::CallSettled { result, .. } => Some(result),
        _ => None,
    });
    results.collect()
}

/// A model whose command writes more than a model reads.
fn talker() -> Script {
    let seq = call("bash", json!({"command": "seq 100000"}));
    Script::new().model("m", Model::new().step(seq).step(text("That was long.")))
}

/// The folder of what was saved for a session.
fn folder_of(stage: &Stage, session: SessionId) -> PathBuf {
    fs_err::canonicalize(stage.folder.path()).unwrap().join("outputs").join(session.as_str())
}

fn looks_at(folder: &Path, file: &Path) -> Vec<(&'static str, Value)> {
    let (folder, file) = (folder.to_str().unwrap(), file.to_str().unwrap());
    vec![
        ("read", json!({"filePath": file, "offset": 54321, "limit": 1})),
        ("grep", json!({"pattern": "^54321$", "path": folder})),
        ("glob", json!({"pattern": "*.txt", "path": folder})),
        ("list", json!({"path": folder})),
        ("batch", json!({"tool_calls": [{"tool": "read", "parameters": {"filePath": file, "limit": 1}}]})),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_reads_its_own_outputs_and_no_other_ones() {
    let (store, place) = (Store::memory().unwrap(), Arc::new(tempfile::tempdir().unwrap()));
    let stage = Stage::on(store.clone(), Arc::clone(&place), talker(), 1 << 20).await;
    let (owner, other) = (stage.session("m").await, stage.session("m").await);
    for session in [&owner, &other] {
        session.run(Prompt::text("talk")).await.unwrap();
    }
    let result = results(&owner).await.remove(0);
    let file = PathBuf::from(result.metadata["outputPath"].as_str().unwrap());
    let folder = folder_of(&stage, owner.id());
    assert!(file.starts_with(&folder) && result.output.contains(file.to_str().unwrap()));
    stage.engine.shutdown().await;

    // The same calls by both, now that the place is known.
    let script = Script::new().model(
        "m",
        Model::new()
            .step(text("It was said before."))
            .next_turn()
            .step(calls(looks_at(&folder, &file)))
            .step(text("Seen.")),
    );
    let again = Stage::on(store, place, script, 1 << 20).await;
    let look = async |id: SessionId| {
        let session = again.engine.session(id).await.unwrap();
        session.run(Prompt::text("look")).await.unwrap();
        results(&session).await.split_off(1)
    };
    let seen = look(owner.id()).await;
    let all: Vec<CallOutcome> = seen.iter().map(|result| result.outcome).collect();
    assert_eq!(all, [CallOutcome::Done; 5], "{seen:?}");
    for (result, part) in seen.iter().zip(["54321", "54321", "prt_", "prt_", "1"]) {
        assert!(result.output.contains(part), "{part} in {}", result.output);
    }

    let refused = look(other.id()).await;
    let last = refused.len() - 1;
    for (index, result) in refused.iter().enumerate() {
        assert!(result.output.contains("belongs to the engine"), "{}", result.output);
        assert!(!result.output.contains("prt_") || result.output.contains(file.to_str().unwrap()));
        let expected = if index == last { CallOutcome::Done } else { CallOutcome::Declined };
        assert_eq!(result.outcome, expected, "{result:?}");
    }
    assert_eq!(refused[last].metadata["results"][0]["ok"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saved_output_cannot_be_changed_by_file_tools() {
    let (store, place) = (Store::memory().unwrap(), Arc::new(tempfile::tempdir().unwrap()));
    let stage = Stage::on(store.clone(), Arc::clone(&place), talker(), 1 << 20).await;
    let session = stage.session("m").await;
    session.run(Prompt::text("talk")).await.unwrap();
    let result = results(&session).await.remove(0);
    let file = result.metadata["outputPath"].as_str().unwrap().to_owned();
    stage.engine.shutdown().await;
    let script = Script::new().model(
        "m",
        Model::new()
            .step(text("It was said before."))
            .next_turn()
            .step(call("read", json!({"filePath": file, "limit": 1})))
            .step(call("write", json!({"filePath": file, "content": "forged"})))
            .step(text("No.")),
    );
    let again = Stage::on(store, place, script, 1 << 20).await;
    let session = again.engine.session(session.id()).await.unwrap();
    session.run(Prompt::text("forge")).await.unwrap();
    assert_eq!(results(&session).await.last().unwrap().outcome, CallOutcome::Declined);
    assert!(fs_err::read_to_string(file).unwrap().starts_with("1\n2\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_session_takes_its_outputs_with_it() {
    let stage = Stage::new(talker()).await;
    let (kept, gone) = (stage.session("m").await, stage.session("m").await);
    for session in [&kept, &gone] {
        session.run(Prompt::text("talk")).await.unwrap();
        assert!(folder_of(&stage, session.id()).exists());
    }
    stage.engine.delete(gone.id()).await.unwrap();
    assert!(!folder_of(&stage, gone.id()).exists() && folder_of(&stage, kept.id()).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn old_outputs_are_swept_when_an_engine_starts() {
    let (store, place) = (Store::memory().unwrap(), Arc::new(tempfile::tempdir().unwrap()));
    let stage = Stage::on(store.clone(), Arc::clone(&place), talker(), 1 << 20).await;
    let (old, young) = (stage.session("m").await, stage.session("m").await);
    for session in [&old, &young] {
        session.run(Prompt::text("talk")).await.unwrap();
    }
    stage.engine.shutdown().await;
    let (old, young) = (folder_of(&stage, old.id()), folder_of(&stage, young.id()));
    let saved = fs_err::read_dir(&old).unwrap().next().unwrap().unwrap().path();
    for path in [&saved, &old] {
        let time = SystemTime::now() - Duration::from_secs(25 * 3_600);
        fs_err::File::open(path).unwrap().file().set_modified(time).unwrap();
    }
    let _again = Stage::on(store, place, talker(), 1 << 20).await;
    let swept = async {
        while old.exists() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), swept).await.expect("it is swept");
    assert_eq!(fs_err::read_dir(young).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_stand_in_the_order_of_the_calls_whichever_ends_first() {
    let modes = ["free-wait", "free", "free-wait", "free"];
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
    stage.probe.begun().await;
    stage.probe.begun().await;
    // The others end while these two wait.
    let quick_ones_ended = async {
        while settled(&stage, &session).await.len() < 2 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), quick_ones_ended).await.expect("they end");
    stage.probe.release(2);
    turn.await.unwrap();
    let came: Vec<String> = settled(&stage, &session).await.into_iter().map(|result| result.output).collect();
    assert_eq!(came[..2], ["did free", "did free"], "they ended first");
    let second = &stage.directory.mock.journal().entries()[1];
    let body: Value = serde_json::from_slice(second.body.as_deref().unwrap()).unwrap();
    let last = body["messages"].as_array().unwrap().last().unwrap().to_string();
    let places: Vec<usize> = last.match_indices("did free").map(|(place, _)| place).collect();
    let read: Vec<bool> = places.iter().map(|place| last[*place..].starts_with("did free-wait")).collect();
    assert_eq!(read, [true, false, true, false], "{last}");
}

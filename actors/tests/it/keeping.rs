//! What clients keep with a session, and sessions that are put aside.

use std::sync::Arc;

use mock_llm::Script;
use playhouse_protocol::record::SessionChanged;
use playhouse_protocol::{Command, CommandError, NewSession, Prompt, Reply, SessionId, Timestamp};
use playhouse_store::{ListQuery, Store};
use serde_json::{Map, Value, json};

use crate::support::Stage;

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

async fn listed(stage: &Stage, archived: Option<bool>) -> Vec<SessionId> {
    let page = stage.engine.list(ListQuery { archived, ..ListQuery::default() }).await.unwrap();
    page.sessions.into_iter().map(|summary| summary.id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_keep_with_a_session_is_durable() {
    let store = Store::memory().unwrap();
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let stage = Stage::on(store.clone(), Arc::clone(&folder), Script::new(), 1024 * 1024).await;
    let metadata = object(json!({"ticket": {"number": 7}, "z": 1, "a": null}));
    let new = NewSession { metadata: metadata.clone(), ..stage.new_session("echo") };
    let (session, plain) = (stage.engine.create(new).await.unwrap(), stage.session("echo").await);
    assert_eq!(stage.engine.summary(session.id()).await.unwrap().metadata, metadata);
    session.run(Prompt::text("hello")).await.unwrap();
    let at = Timestamp::from_millis(1_800_000_000_000);
    let change = |changed| session.command(Command::Change(changed));
    let aside = SessionChanged { archived: Some(Some(at)), ..SessionChanged::default() };
    assert_eq!(change(aside).await.unwrap(), Reply::Done);
    assert_eq!(listed(&stage, Some(false)).await, [plain.id()]);
    assert_eq!(listed(&stage, Some(true)).await, [session.id()]);
    assert_eq!(listed(&stage, None).await.len(), 2);
    // Other changes leave it where it is, and what is kept is replaced as a whole.
    let kept = object(json!({"b": true}));
    let other = SessionChanged { metadata: Some(kept.clone()), ..SessionChanged::default() };
    change(other).await.unwrap();
    stage.engine.shutdown().await;
    let stage = Stage::on(store, folder, Script::new(), 1024 * 1024).await;
    let summary = stage.engine.summary(session.id()).await.unwrap();
    assert_eq!((summary.archived, summary.metadata), (Some(at), kept));
    let session = stage.engine.session(session.id()).await.unwrap();
    let back = SessionChanged { archived: Some(None), ..SessionChanged::default() };
    session.command(Command::Change(back)).await.unwrap();
    assert_eq!(session.snapshot().await.unwrap().summary.archived, None);
    assert!(listed(&stage, Some(true)).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_is_kept_than_a_list_can_bear() {
    let stage = Stage::new(Script::new()).await;
    let deep = (0..20).fold(json!(1), |value, _| json!([value]));
    let session = stage.session("echo").await;
    for (metadata, wrong) in
        [(json!({"text": "x".repeat(16 * 1_024)}), "bytes of JSON"), (json!({"deep": deep}), "too deep")]
    {
        let metadata = object(metadata);
        let new = NewSession { metadata: metadata.clone(), ..stage.new_session("echo") };
        let changed = SessionChanged { metadata: Some(metadata), ..SessionChanged::default() };
        let errors = [
            stage.engine.create(new).await.unwrap_err(),
            session.command(Command::Change(changed)).await.unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(&error, CommandError::Invalid(text) if text.contains(wrong)), "{error}");
        }
    }
    let most = object(json!({"text": "x".repeat(16_000)}));
    let new = NewSession { metadata: most, ..stage.new_session("echo") };
    stage.engine.create(new).await.unwrap();
}

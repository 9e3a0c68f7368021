//! Requests of sub-sessions: the clients of the session at the top are told of them.

use std::sync::Arc;
use std::time::Duration;

use mock_llm::{Model, Script, call, text};
use playhouse_actors::{SessionHandle, Subscription};
use playhouse_protocol::consent::ConsentAnswer;
use playhouse_protocol::event::Provisional;
use playhouse_protocol::{CommandError, EventBody, NewSession, Prompt, Record, SessionId};
use playhouse_store::Store;
use serde_json::json;

use crate::consents::{THERE, ended, goes, waiting};
use crate::support::{Stage, until};

/// The next request of a sub-session that is told here.
async fn request(events: &mut Subscription) -> (SessionId, Record) {
    let wait = async {
        loop {
            let event = events.next().await.unwrap().expect("the stream goes on");
            if let EventBody::Provisional(Provisional::DescendantRequest { session, record }) =
                &event.event().body
            {
                return (*session, record.as_ref().clone());
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.expect("the request is told")
}

/// A session at the top and what is needed for one three below it.
async fn family(stage: &Stage) -> (SessionHandle, NewSession) {
    let root = stage.session("echo").await;
    let mut parent = root.id();
    for _ in 0..2 {
        let new = NewSession { parent: Some(parent), ..stage.new_session("echo") };
        parent = stage.engine.create(new).await.unwrap().id();
    }
    (root, NewSession { parent: Some(parent), ..stage.new_session("m") })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_three_deep_reaches_the_clients_of_the_root_and_is_answered_by_them() {
    let stage = Stage::new(goes(&[THERE])).await.bare();
    let (root, deep) = family(&stage).await;
    let mut watching = root.events(None).await.unwrap();
    let (deep, mut events, asked) = waiting(&stage, deep).await;
    let (session, record) = request(&mut watching).await;
    assert_eq!((session, record), (deep.id(), Record::ConsentAsked(asked.clone())));
    let mut late = root.events(None).await.unwrap();
    assert_eq!(request(&mut late).await.0, deep.id(), "who comes later is told as well");

    stage.engine.session(session).await.unwrap().answer(asked.consent, ConsentAnswer::Once).await.unwrap();
    let (_, record) = request(&mut watching).await;
    let answer = ConsentAnswer::Once;
    assert_eq!(record, Record::ConsentSettled { consent: asked.consent, answer });
    ended(&mut events).await;
    assert_eq!(stage.danger.went(), [THERE]);
    // What is over is told to nobody who comes after it.
    let mut after = root.events(None).await.unwrap();
    root.run(Prompt::text("hello")).await.unwrap();
    while let Some(event) = after.try_next() {
        let body = &event.event().body;
        assert!(!matches!(body, EventBody::Provisional(Provisional::DescendantRequest { .. })), "{body:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_of_sub_sessions_are_told_as_well_also_after_a_restart() {
    let script = || {
        let questions = json!({"questions": [{
            "question": "Which colour?",
            "header": "Colour",
            "options": [{"label": "Red", "description": "like a rose"}],
        }]});
        Script::new().model("m", Model::new().step(call("question", questions)).step(text("Then so.")))
    };
    let (store, folder) = (Store::memory().unwrap(), Arc::new(tempfile::tempdir().unwrap()));
    let stage = Stage::on(store.clone(), Arc::clone(&folder), script(), 1 << 20).await;
    let (root, deep) = family(&stage).await;
    let mut watching = root.events(None).await.unwrap();
    let deep = stage.engine.create(deep).await.unwrap();
    deep.prompt(Prompt::text("go")).await.unwrap();
    assert!(matches!(request(&mut watching).await.1, Record::QuestionAsked(_)));
    stage.engine.shutdown().await;

    // The sub-session is woken before the one at the top.
    let again = Stage::on(store, folder, script(), 1 << 20).await;
    let deep = again.engine.session(deep.id()).await.unwrap();
    let mut events = deep.events(None).await.unwrap();
    let root = again.engine.session(root.id()).await.unwrap();
    let mut watching = root.events(None).await.unwrap();
    let (session, record) = request(&mut watching).await;
    let Record::QuestionAsked(asked) = record else { panic!("{record:?}") };
    assert_eq!(session, deep.id());
    deep.answer_question(asked.question, None).await.unwrap();
    until(&mut events, |record| matches!(record, Record::TurnEnded(_))).await;
    assert!(matches!(request(&mut watching).await.1, Record::QuestionSettled { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_must_be_a_session_of_the_same_tenant_and_not_too_deep() {
    let stage = Stage::new(Script::new()).await;
    let root = stage.session("echo").await;
    let foreign = NewSession { tenant: "other".into(), parent: Some(root.id()), ..stage.new_session("echo") };
    let not_found = CommandError::NotFound(root.id());
    assert_eq!(stage.engine.create(foreign).await.unwrap_err(), not_found);
    let mut parent = root.id();
    let mut depth = 0;
    let refused = loop {
        let new = NewSession { parent: Some(parent), ..stage.new_session("echo") };
        match stage.engine.create(new).await {
            Ok(session) => (parent, depth) = (session.id(), depth + 1),
            Err(error) => break error.to_string(),
        }
        assert!(depth < 100, "there is no end");
    };
    assert_eq!(depth, 8, "{refused}");
    stage.engine.delete(root.id()).await.unwrap();
    let orphan = NewSession { parent: Some(root.id()), ..stage.new_session("echo") };
    assert_eq!(stage.engine.create(orphan).await.unwrap_err(), not_found);
}

//! What is allowed for always: for whom it holds, how long, and how it is taken back.

use std::sync::Arc;

use mock_llm::{Model, Script, call, text};
use playhouse_policy::Action;
use playhouse_protocol::consent::{ConsentAnswer, PermissionRule};
use playhouse_protocol::message::CallOutcome;
use playhouse_protocol::record::TurnOutcome;
use playhouse_protocol::{CommandError, NewSession, Prompt, Seq};
use playhouse_store::Store;
use serde_json::json;

use crate::consents::{THERE, asked, ended, goes, results, settled, waiting};
use crate::support::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn always_settles_what_it_covers_of_the_same_tenant_and_workspace_only() {
    let stage = Stage::new(goes(&[THERE])).await.bare();
    let elsewhere = stage.folder.path().join("elsewhere");
    fs_err::create_dir(&elsewhere).unwrap();
    let elsewhere = elsewhere.to_string_lossy().into_owned();
    let (first, mut first_events, asked) = waiting(&stage, stage.new_session("m")).await;
    let (_, mut second_events, _) = waiting(&stage, stage.new_session("m")).await;
    let foreign = NewSession { tenant: "other".into(), ..stage.new_session("m") };
    let distant = NewSession { workspace: elsewhere, ..stage.new_session("m") };
    let (foreign, _, _) = waiting(&stage, foreign).await;
    let (distant, _, _) = waiting(&stage, distant).await;

    first.answer(asked.consent, ConsentAnswer::Always).await.unwrap();
    assert_eq!(ended(&mut first_events).await, TurnOutcome::Completed);
    assert_eq!(settled(&mut second_events).await, ConsentAnswer::Covered { by: Some(asked.consent) });
    assert_eq!(ended(&mut second_events).await, TurnOutcome::Completed);
    for other in [&foreign, &distant] {
        assert_eq!(other.snapshot().await.unwrap().consents.len(), 1);
    }
    let later = stage.session("m").await;
    later.run(Prompt::text("go")).await.unwrap();
    assert_eq!(stage.danger.went().len(), 3);
    let grants = stage.engine.grants(Some("local")).await.unwrap();
    assert_eq!(grants.len(), 1);
    assert_eq!((grants[0].rule.pattern.as_str(), grants[0].consent), ("test://there/*", asked.consent));
    assert!(stage.engine.grants(Some("other")).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn always_outlives_the_engine_until_it_is_withdrawn() {
    let script = || {
        let go = || call("danger", json!({"to": THERE}));
        let model = Model::new().step(go()).step(text("Done.")).next_turn().step(go()).step(text("Again."));
        Script::new().model("m", model)
    };
    let (store, folder) = (Store::memory().unwrap(), Arc::new(tempfile::tempdir().unwrap()));
    let stage = Stage::on(store.clone(), Arc::clone(&folder), script(), 1 << 20).await.bare();
    let (session, mut events, first) = waiting(&stage, stage.new_session("m")).await;
    session.answer(first.consent, ConsentAnswer::Always).await.unwrap();
    ended(&mut events).await;
    stage.engine.shutdown().await;

    let again = Stage::on(store, folder, script(), 1 << 20).await.bare();
    let session = again.session("m").await;
    session.run(Prompt::text("go")).await.unwrap();
    assert_eq!(again.danger.went(), [THERE]);
    let grant = again.engine.grants(None).await.unwrap().remove(0);
    assert_eq!(grant.consent, first.consent);
    let foreign = again.engine.revoke(Some("other"), &grant.id).await.unwrap_err();
    assert!(matches!(foreign, CommandError::Invalid(_)), "{foreign}");
    assert_eq!(again.engine.revoke(Some("local"), &grant.id).await.unwrap(), grant);
    let gone = again.engine.revoke(None, &grant.id).await.unwrap_err().to_string();
    assert!(gone.contains("playhouse consents list"), "{gone}");

    // It holds for a session that was live before.
    let mut events = session.events(None).await.unwrap();
    session.prompt(Prompt::text("once more")).await.unwrap();
    let asked_again = asked(&mut events).await;
    session.answer(asked_again.consent, ConsentAnswer::Once).await.unwrap();
    ended(&mut events).await;
    assert!(again.engine.grants(None).await.unwrap().is_empty());
}

/// The process ended after the grant was kept and before the log said so: the request is open, and allowed.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_no_record_follows_is_not_lost() {
    let (store, folder) = (Store::memory().unwrap(), Arc::new(tempfile::tempdir().unwrap()));
    let stage = Stage::on(store.clone(), Arc::clone(&folder), goes(&[THERE]), 1 << 20).await.bare();
    let (left, _, _) = waiting(&stage, stage.new_session("m")).await;
    stage.engine.shutdown().await;
    let between = Stage::on(store.clone(), Arc::clone(&folder), goes(&[THERE]), 1 << 20).await.bare();
    let (session, mut events, asked) = waiting(&between, between.new_session("m")).await;
    session.answer(asked.consent, ConsentAnswer::Always).await.unwrap();
    ended(&mut events).await;
    between.engine.shutdown().await;

    let last = Stage::on(store, folder, goes(&[THERE]), 1 << 20).await.bare();
    let left = last.engine.session(left.id()).await.unwrap();
    let mut events = left.events(Some(Seq::START)).await.unwrap();
    assert_eq!(settled(&mut events).await, ConsentAnswer::Covered { by: None });
    assert_eq!(ended(&mut events).await, TurnOutcome::Completed);
    assert_eq!(last.danger.went(), [THERE]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_allowed_for_always_stands_against_no_rule_that_denies() {
    let stage = Stage::new(goes(&[THERE])).await.bare();
    let (session, mut events, asked) = waiting(&stage, stage.new_session("m")).await;
    session.answer(asked.consent, ConsentAnswer::Always).await.unwrap();
    ended(&mut events).await;
    let deny = PermissionRule {
        permission: "danger".into(),
        pattern: "test://there/a".into(),
        action: Action::Deny,
    };
    let strict = NewSession { permissions: vec![deny], ..stage.new_session("m") };
    let careful = NewSession { agent: Some("careful".into()), ..stage.new_session("m") };
    for new in [strict, careful] {
        let session = stage.engine.create(new).await.unwrap();
        session.run(Prompt::text("go")).await.unwrap();
        assert_eq!(results(&stage, &session).await[0].outcome, CallOutcome::Declined);
    }
    assert_eq!(stage.danger.went().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_no_rule_can_cover_takes_no_always() {
    // Without an origin there is no pattern.
    let stage = Stage::new(goes(&["nowhere"])).await.bare();
    let (session, mut events, asked) = waiting(&stage, stage.new_session("m")).await;
    let refused = session.answer(asked.consent, ConsentAnswer::Always).await.unwrap_err().to_string();
    assert!(refused.contains("cannot be allowed for always"), "{refused}");
    assert_eq!(session.snapshot().await.unwrap().consents.len(), 1, "it still waits");
    session.answer(asked.consent, ConsentAnswer::Once).await.unwrap();
    assert_eq!(ended(&mut events).await, TurnOutcome::Completed);
    assert!(stage.engine.grants(None).await.unwrap().is_empty());
}

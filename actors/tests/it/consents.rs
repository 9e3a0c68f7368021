//! Requests for consent: how they are asked, and how each of them ends.

use std::sync::Arc;
use std::time::Duration;

use mock_llm::{Model, Script, call, text};
use playhouse_actors::{Ground, SessionHandle, Subscription};
use playhouse_policy::{Action, Rule};
use playhouse_protocol::consent::{ConsentAnswer, ConsentAsked, PermissionRule, Risk};
use playhouse_protocol::message::{CallOutcome, CallResult};
use playhouse_protocol::record::{Record, SessionChanged, TurnOutcome};
use playhouse_protocol::{Command, CommandError, NewSession, Prompt, Seq};
use playhouse_store::Store;
use serde_json::{Value, json};

use crate::support::{Stage, bare_ground, until};

/// A model that goes to each of these addresses, one in a step.
pub(crate) fn goes(to: &[&str]) -> Script {
    Script::new().model("m", going(to))
}

fn going(to: &[&str]) -> Model {
    let model = to.iter().fold(Model::new(), |model, to| model.step(call("danger", json!({"to": to}))));
    model.step(text("Done."))
}

pub(crate) const THERE: &str = "test://there/a";

pub(crate) async fn asked(events: &mut Subscription) -> ConsentAsked {
    match until(events, |record| matches!(record, Record::ConsentAsked(_))).await {
        Record::ConsentAsked(asked) => asked,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn settled(events: &mut Subscription) -> ConsentAnswer {
    match until(events, |record| matches!(record, Record::ConsentSettled { .. })).await {
        Record::ConsentSettled { answer, .. } => answer,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn ended(events: &mut Subscription) -> TurnOutcome {
    match until(events, |record| matches!(record, Record::TurnEnded(_))).await {
        Record::TurnEnded(ended) => ended.outcome,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn results(stage: &Stage, session: &SessionHandle) -> Vec<CallResult> {
    let records = stage.records(session).await;
    let results = records.into_iter().filter_map(|record| match record {
        Record::CallSettled { result, .. } => Some(result),
        _ => None,
    });
    results.collect()
}

/// A session that waits for consent to its first call.
pub(crate) async fn waiting(stage: &Stage, new: NewSession) -> (SessionHandle, Subscription, ConsentAsked) {
    let session = stage.engine.create(new).await.unwrap();
    let mut events = session.events(None).await.unwrap();
    session.prompt(Prompt::text("go")).await.unwrap();
    let asked = asked(&mut events).await;
    (session, events, asked)
}

async fn count_of_asked(stage: &Stage, session: &SessionHandle) -> usize {
    let records = stage.records(session).await;
    records.iter().filter(|record| matches!(record, Record::ConsentAsked(_))).count()
}

fn rule(permission: &str, pattern: &str, action: Action) -> PermissionRule {
    PermissionRule { permission: permission.into(), pattern: pattern.into(), action }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_says_what_would_be_done_and_once_lets_it_run_once() {
    let stage = Stage::new(goes(&[THERE, THERE])).await.bare();
    let (session, mut events, first) = waiting(&stage, stage.new_session("m")).await;
    assert_eq!((first.tool.as_str(), first.risk), ("danger", Risk::Dangerous));
    assert_eq!(first.preview, "go to test://there/a");
    assert!(first.reason.contains("no rule allows it"), "{}", first.reason);
    assert_eq!(first.always(), [rule("danger", "test://there/*", Action::Allow)]);
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!(snapshot.consents, std::slice::from_ref(&first));
    assert_eq!(snapshot.walls.unwrap().by, "none");
    assert!(stage.danger.went().is_empty());

    session.answer(first.consent, ConsentAnswer::Once).await.unwrap();
    let again = session.answer(first.consent, ConsentAnswer::Once).await.unwrap_err();
    let consent = first.consent;
    assert_eq!(again, CommandError::ConsentSettled { consent, answer: ConsentAnswer::Once });
    let second = asked(&mut events).await;
    assert_ne!(second.consent, consent, "the next call asks anew");
    assert_eq!(stage.danger.went(), [THERE]);
    session.answer(second.consent, ConsentAnswer::Once).await.unwrap();
    assert_eq!(ended(&mut events).await, TurnOutcome::Completed);
    assert_eq!(stage.danger.went(), [THERE, THERE]);
    assert!(session.snapshot().await.unwrap().consents.is_empty());
    assert!(stage.engine.grants(None).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decline_goes_to_the_model_with_its_message() {
    let stage = Stage::new(goes(&[THERE])).await.bare();
    let (session, mut events, asked) = waiting(&stage, stage.new_session("m")).await;
    for not_ours in [ConsentAnswer::Covered { by: None }, ConsentAnswer::TimedOut, ConsentAnswer::Unattended]
    {
        let refused = session.answer(asked.consent, not_ours).await.unwrap_err();
        assert!(matches!(refused, CommandError::Invalid(_)), "{refused}");
    }
    let decline = ConsentAnswer::Decline { message: Some("use the other one".into()) };
    session.answer(asked.consent, decline).await.unwrap();
    assert_eq!(ended(&mut events).await, TurnOutcome::Completed);
    let result = results(&stage, &session).await.remove(0);
    assert_eq!(result.outcome, CallOutcome::Declined);
    let second = &stage.directory.mock.journal().entries()[1];
    assert!(String::from_utf8_lossy(second.body.as_deref().unwrap()).contains("use the other one"));
    assert!(stage.danger.went().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_who_answers_in_time_is_a_decline() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let wait = Duration::from_millis(1);
    let stage = Stage::with(Store::memory().unwrap(), folder, goes(&[THERE]), |options| {
        options.limits.asking_wait = wait;
    })
    .await
    .bare();
    let session = stage.session("m").await;
    let mut events = session.events(None).await.unwrap();
    session.prompt(Prompt::text("go")).await.unwrap();
    let asked = asked(&mut events).await;
    assert_eq!(ended(&mut events).await, TurnOutcome::Completed);
    let late = session.answer(asked.consent, ConsentAnswer::Always).await.unwrap_err();
    let timed_out = CommandError::ConsentSettled { consent: asked.consent, answer: ConsentAnswer::TimedOut };
    assert_eq!(late, timed_out);
    let result = results(&stage, &session).await.remove(0);
    assert_eq!(result.outcome, CallOutcome::Declined);
    assert!(result.output.contains("nobody answered in time"), "{}", result.output);
    assert!(stage.engine.grants(None).await.unwrap().is_empty(), "what came too late allows nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_anyone_to_ask_it_is_declined_at_once() {
    let stage = Stage::new(goes(&[THERE])).await.bare();
    let by_session = NewSession { unattended: true, ..stage.new_session("m") };
    let cases = [
        (by_session, Prompt::text("go")),
        (stage.new_session("m"), Prompt { unattended: true, ..Prompt::text("go") }),
    ];
    for (new, prompt) in cases {
        let session = stage.engine.create(new).await.unwrap();
        assert_eq!(session.run(prompt).await.unwrap().ended.outcome, TurnOutcome::Completed);
        let result = results(&stage, &session).await.remove(0);
        assert_eq!(result.outcome, CallOutcome::Declined);
        assert!(
            result.output.contains("--yes") && result.output.contains("[permissions]"),
            "{}",
            result.output
        );
        assert_eq!(count_of_asked(&stage, &session).await, 1, "the log says what was asked");
        assert!(session.snapshot().await.unwrap().consents.is_empty());
    }
    assert!(stage.danger.went().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_and_a_delete_settle_what_is_open() {
    let stage = Stage::new(goes(&[THERE])).await.bare();
    let (session, mut events, asked) = waiting(&stage, stage.new_session("m")).await;
    assert_eq!(session.abort().await.unwrap(), 1);
    assert_eq!(settled(&mut events).await, ConsentAnswer::Withdrawn);
    assert!(session.snapshot().await.unwrap().consents.is_empty());
    let late = session.answer(asked.consent, ConsentAnswer::Once).await.unwrap_err();
    let withdrawn = CommandError::ConsentSettled { consent: asked.consent, answer: ConsentAnswer::Withdrawn };
    assert_eq!(late, withdrawn);
    assert_eq!(results(&stage, &session).await[0].outcome, CallOutcome::Cancelled);

    let (session, mut events, asked) = waiting(&stage, stage.new_session("m")).await;
    stage.engine.delete(session.id()).await.unwrap();
    assert_eq!(settled(&mut events).await, ConsentAnswer::Withdrawn);
    until(&mut events, |record| matches!(record, Record::Deleted {})).await;
    let gone = session.answer(asked.consent, ConsentAnswer::Once).await.unwrap_err();
    assert_eq!(gone, CommandError::NotFound(session.id()));
    assert!(stage.danger.went().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_outlives_the_engine_and_is_asked_once() {
    let (store, folder) = (Store::memory().unwrap(), Arc::new(tempfile::tempdir().unwrap()));
    let stage = Stage::on(store.clone(), Arc::clone(&folder), goes(&[THERE]), 1 << 20).await.bare();
    let (session, _, asked) = waiting(&stage, stage.new_session("m")).await;
    assert_eq!(stage.engine.shutdown().await.stragglers, Vec::<String>::new());

    let again = Stage::on(store, folder, goes(&[THERE]), 1 << 20).await.bare();
    let session = again.engine.session(session.id()).await.unwrap();
    let mut events = session.events(None).await.unwrap();
    assert_eq!(session.snapshot().await.unwrap().consents, std::slice::from_ref(&asked));
    session.answer(asked.consent, ConsentAnswer::Once).await.unwrap();
    assert_eq!(ended(&mut events).await, TurnOutcome::Completed);
    assert_eq!(count_of_asked(&again, &session).await, 1);
    assert_eq!(again.danger.went(), [THERE]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_to_answer_begins_anew_after_a_restart() {
    let (store, folder) = (Store::memory().unwrap(), Arc::new(tempfile::tempdir().unwrap()));
    let stage = Stage::on(store.clone(), Arc::clone(&folder), goes(&[THERE]), 1 << 20).await.bare();
    let (session, _, _) = waiting(&stage, stage.new_session("m")).await;
    stage.engine.shutdown().await;
    let wait = Duration::from_millis(1);
    let hasty =
        Stage::with(store, folder, goes(&[THERE]), |options| options.limits.asking_wait = wait).await.bare();
    let session = hasty.engine.session(session.id()).await.unwrap();
    let mut events = session.events(Some(Seq::START)).await.unwrap();
    assert_eq!(settled(&mut events).await, ConsentAnswer::TimedOut);
    assert_eq!(ended(&mut events).await, TurnOutcome::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_goes_round_in_circles_is_asked_about_across_steps() {
    let step = || call("probe", json!({"mode": "free"}));
    let model = Model::new().step(step()).step(step()).step(step()).step(text("Done."));
    let stage = Stage::new(Script::new().model("m", model)).await.bare();
    let (session, mut events, asked) = waiting(&stage, stage.new_session("m")).await;
    assert_eq!(results(&stage, &session).await.len(), 2, "the third one asks");
    let wants: Vec<_> = asked.wants.iter().map(|want| want.permission.as_str()).collect();
    assert_eq!(wants, ["doom_loop"]);
    session.answer(asked.consent, ConsentAnswer::Decline { message: None }).await.unwrap();
    assert_eq!(ended(&mut events).await, TurnOutcome::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rules_of_a_session_hold_for_it_and_can_be_changed() {
    let stage = Stage::new(goes(&[THERE])).await.bare();
    let permissions = vec![rule("danger", "test://there/*", Action::Allow)];
    let new = NewSession { permissions, ..stage.new_session("m") };
    let session = stage.engine.create(new).await.unwrap();
    session.run(Prompt::text("go")).await.unwrap();
    assert_eq!(stage.danger.went(), [THERE]);

    // What was asked about needs nobody's consent any more when the rules change.
    let (session, mut events, _) = waiting(&stage, stage.new_session("m")).await;
    let change = |action| {
        let permissions = Some(vec![rule("danger", "*", action)]);
        Command::Change(SessionChanged { permissions, ..SessionChanged::default() })
    };
    session.command(change(Action::Allow)).await.unwrap();
    assert_eq!(settled(&mut events).await, ConsentAnswer::Covered { by: None });
    assert_eq!(ended(&mut events).await, TurnOutcome::Completed);

    let session = stage.session("m").await;
    session.command(change(Action::Deny)).await.unwrap();
    session.run(Prompt::text("go")).await.unwrap();
    assert_eq!(results(&stage, &session).await[0].outcome, CallOutcome::Declined);
    assert_eq!(stage.danger.went().len(), 2);

    let bad = NewSession { permissions: vec![rule("danger", "", Action::Deny)], ..stage.new_session("m") };
    let refused = stage.engine.create(bad).await.unwrap_err();
    assert!(matches!(refused, CommandError::Invalid(_)), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_session_allows_what_the_operator_denies_nor_what_the_workspace_asks_about() {
    let stage = Stage::new(goes(&[THERE, "test://secret/a"])).await;
    *stage.directory.ground.lock().unwrap() = Ground {
        configuration: [Rule::new("danger", "test://secret/*", Action::Deny)].into_iter().collect(),
        workspace: [Rule::new("danger", "test://there/*", Action::Ask)].into_iter().collect(),
        ..bare_ground()
    };
    let new = NewSession { permissions: vec![rule("*", "*", Action::Allow)], ..stage.new_session("m") };
    let (session, mut events, asked) = waiting(&stage, new).await;
    assert!(asked.reason.contains("the workspace says to ask"), "{}", asked.reason);
    session.answer(asked.consent, ConsentAnswer::Once).await.unwrap();
    ended(&mut events).await;
    let last = results(&stage, &session).await.pop().unwrap();
    assert_eq!(last.outcome, CallOutcome::Declined);
    assert!(last.output.contains("denied by a rule of the configuration"), "{}", last.output);
    assert_eq!(stage.danger.went(), [THERE]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_never_run_is_not_shown_to_the_model_and_refused_all_the_same() {
    let stage = Stage::new(goes(&[THERE])).await;
    let ground = Ground {
        configuration: [Rule::new("edit", "*", Action::Deny)].into_iter().collect(),
        ..bare_ground()
    };
    *stage.directory.ground.lock().unwrap() = ground;
    let permissions = vec![rule("danger", "*", Action::Deny)];
    let session = stage.engine.create(NewSession { permissions, ..stage.new_session("m") }).await.unwrap();
    session.run(Prompt::text("go")).await.unwrap();
    let first = &stage.directory.mock.journal().entries()[0];
    let body: Value = serde_json::from_slice(first.body.as_deref().unwrap()).unwrap();
    let shown: Vec<&str> =
        body["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    for hidden in ["danger", "edit", "write", "multiedit", "apply_patch", "notebook_edit"] {
        assert!(!shown.contains(&hidden), "{hidden} is shown");
    }
    assert!(shown.contains(&"read") && shown.contains(&"bash"), "{shown:?}");
    let result = results(&stage, &session).await.remove(0);
    assert_eq!(result.outcome, CallOutcome::Declined);
    assert!(result.output.contains("denied by the rules of the session"), "{}", result.output);
    assert_eq!(count_of_asked(&stage, &session).await, 0);
}

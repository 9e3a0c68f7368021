//! Questions for people, and the list of things to do.

use std::sync::Arc;
use std::time::Duration;

use mock_llm::{Model, Script, call, text};
use playhouse_actors::{SessionHandle, Subscription};
use playhouse_protocol::id::QuestionId;
use playhouse_protocol::message::{CallOutcome, CallResult};
use playhouse_protocol::question::{QuestionAnswer, TodoStatus};
use playhouse_protocol::record::{Record, TurnOutcome};
use playhouse_protocol::{CommandError, Prompt};
use playhouse_store::Store;
use serde_json::{Value, json};

use crate::support::{Stage, until};

/// A model that asks which colour it shall be, and goes on then.
fn asker() -> Script {
    Script::new().model("m", Model::new().step(call("question", colour())).step(text("Then so.")))
}

fn colour() -> Value {
    json!({"questions": [{
        "question": "Which colour?",
        "header": "Colour",
        "options": [
            {"label": "Red", "description": "like a rose"},
            {"label": "Blue", "description": "like the sea"},
        ],
    }]})
}

async fn asked(events: &mut Subscription) -> QuestionId {
    match until(events, |record| matches!(record, Record::QuestionAsked(_))).await {
        Record::QuestionAsked(asked) => asked.question,
        other => panic!("{other:?}"),
    }
}

async fn ended(events: &mut Subscription) -> TurnOutcome {
    match until(events, |record| matches!(record, Record::TurnEnded(_))).await {
        Record::TurnEnded(ended) => ended.outcome,
        other => panic!("{other:?}"),
    }
}

async fn results(stage: &Stage, session: &SessionHandle) -> Vec<CallResult> {
    let records = stage.records(session).await;
    let results = records.into_iter().filter_map(|record| match record {
        Record::CallSettled { result, .. } => Some(result),
        _ => None,
    });
    results.collect()
}

fn red() -> Option<Vec<Vec<String>>> {
    Some(vec![vec!["Red".to_owned()]])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_answered_through_the_handle_and_the_model_reads_it() {
    let stage = Stage::new(asker()).await;
    let session = stage.session("m").await;
    let mut events = session.events(None).await.unwrap();
    session.prompt(Prompt::text("go")).await.unwrap();
    let question = asked(&mut events).await;
    let open = session.snapshot().await.unwrap().questions;
    assert_eq!((open[0].question, open[0].questions[0].header.as_str()), (question, "Colour"));
    let misfit = session.answer_question(question, Some(Vec::new())).await.unwrap_err();
    assert!(matches!(misfit, CommandError::Invalid(_)), "{misfit}");
    session.answer_question(question, red()).await.unwrap();
    let again = session.answer_question(question, red()).await.unwrap_err();
    let answer = QuestionAnswer::Answered { answers: red().unwrap() };
    assert_eq!(again, CommandError::QuestionSettled { question, answer });
    assert_eq!(ended(&mut events).await, TurnOutcome::Completed);
    let results = results(&stage, &session).await;
    assert_eq!(results[0].output, "Which colour?\n→ Red");
    assert_eq!(results[0].metadata["answers"], json!([["Red"]]));
    let second = &stage.directory.mock.journal().entries()[1];
    assert!(String::from_utf8_lossy(second.body.as_deref().unwrap()).contains("→ Red"));
    assert!(session.snapshot().await.unwrap().questions.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_turn_goes_on_when_nobody_will_answer_or_nobody_does_in_time() {
    let stage = Stage::new(asker()).await;
    let session = stage.session("m").await;
    let mut events = session.events(None).await.unwrap();
    session.prompt(Prompt::text("go")).await.unwrap();
    let question = asked(&mut events).await;
    session.answer_question(question, None).await.unwrap();
    assert_eq!(ended(&mut events).await, TurnOutcome::Completed);
    let rejected = results(&stage, &session).await.remove(0);
    assert!(rejected.output.starts_with("not answered: "), "{}", rejected.output);
    assert_eq!((rejected.outcome, &rejected.metadata["answers"]), (CallOutcome::Done, &Value::Null));

    let folder = Arc::new(tempfile::tempdir().unwrap());
    let hasty = Stage::with(Store::memory().unwrap(), folder, asker(), |options| {
        options.limits.asking_wait = Duration::from_millis(1);
    })
    .await;
    let session = hasty.session("m").await;
    assert_eq!(session.run(Prompt::text("go")).await.unwrap().ended.outcome, TurnOutcome::Completed);
    let late = results(&hasty, &session).await.remove(0);
    assert!(late.output.contains("nobody answered in time"), "{}", late.output);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_ends_a_question() {
    let stage = Stage::new(asker()).await;
    let session = stage.session("m").await;
    let mut events = session.events(None).await.unwrap();
    session.prompt(Prompt::text("go")).await.unwrap();
    let question = asked(&mut events).await;
    assert_eq!(session.abort().await.unwrap(), 1);
    let withdrawn = stage.records(&session).await.into_iter().find_map(|record| match record {
        Record::QuestionSettled { answer, .. } => Some(answer),
        _ => None,
    });
    assert_eq!(withdrawn, Some(QuestionAnswer::Withdrawn));
    assert_eq!(results(&stage, &session).await[0].outcome, CallOutcome::Cancelled);
    let late = session.answer_question(question, red()).await.unwrap_err();
    assert_eq!(late, CommandError::QuestionSettled { question, answer: QuestionAnswer::Withdrawn });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_outlives_the_engine_and_is_asked_once() {
    let (store, folder) = (Store::memory().unwrap(), Arc::new(tempfile::tempdir().unwrap()));
    let stage = Stage::on(store.clone(), Arc::clone(&folder), asker(), 1 << 20).await;
    let session = stage.session("m").await;
    let mut events = session.events(None).await.unwrap();
    session.prompt(Prompt::text("go")).await.unwrap();
    let question = asked(&mut events).await;
    assert_eq!(stage.engine.shutdown().await.stragglers, Vec::<String>::new());

    // The scripts of a mock go by the conversation, so the new one goes on where the old one was.
    let again = Stage::on(store, folder, asker(), 1 << 20).await;
    let session = again.engine.session(session.id()).await.unwrap();
    let mut events = session.events(None).await.unwrap();
    assert_eq!(session.snapshot().await.unwrap().questions[0].question, question);
    session.answer_question(question, red()).await.unwrap();
    assert_eq!(ended(&mut events).await, TurnOutcome::Completed);
    let records = again.records(&session).await;
    let times = records.iter().filter(|record| matches!(record, Record::QuestionAsked(_))).count();
    assert_eq!(times, 1);
    assert_eq!(results(&again, &session).await[0].output, "Which colour?\n→ Red");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_things_to_do_is_kept_with_the_session() {
    let write = |status: &str| {
        let todo = json!({"content": "look at it", "status": status, "priority": "high"});
        call("todowrite", json!({"todos": [todo]}))
    };
    let script = Script::new().model(
        "m",
        Model::new()
            .step(write("in_progress"))
            .step(call("todoread", json!({})))
            .step(write("completed").call("todoread", json!({})))
            .step(text("Done."))
            .next_turn()
            .step(call("todoread", json!({})))
            .step(text("All done.")),
    );
    let (store, folder) = (Store::memory().unwrap(), Arc::new(tempfile::tempdir().unwrap()));
    let stage = Stage::on(store.clone(), Arc::clone(&folder), script.clone(), 1 << 20).await;
    let session = stage.session("m").await;
    session.run(Prompt::text("go")).await.unwrap();
    let outputs: Vec<String> =
        results(&stage, &session).await.into_iter().map(|result| result.output).collect();
    let (busy, done) = ("[>] look at it (high)", "[x] look at it (high)");
    assert_eq!(outputs, [busy, busy, done, done], "each call sees what those before it wrote");
    let todos = session.snapshot().await.unwrap().todos;
    assert_eq!((todos.len(), todos[0].status), (1, TodoStatus::Completed));
    stage.engine.shutdown().await;

    let again = Stage::on(store, folder, script, 1 << 20).await;
    let session = again.engine.session(session.id()).await.unwrap();
    session.run(Prompt::text("and now?")).await.unwrap();
    assert_eq!(results(&again, &session).await.last().unwrap().output, done);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_obeys_what_its_agent_may_use() {
    let calls = json!({"tool_calls": [
        {"tool": "read", "parameters": {"filePath": "a.txt"}},
        {"tool": "list", "parameters": {}},
        {"tool": "probe", "parameters": {"mode": "free"}},
    ]});
    let script = Script::new().model("m", Model::new().step(call("batch", calls)).step(text("Done.")));
    let stage = Stage::new(script).await;
    fs_err::write(stage.folder.path().join("workspace/a.txt"), "alpha\n").unwrap();
    let session = stage.session("m").await;
    let prompt = Prompt { agent: Some("batcher".into()), ..Prompt::text("go") };
    session.run(prompt).await.unwrap();
    let result = results(&stage, &session).await.remove(0);
    let ok: Vec<&Value> =
        result.metadata["results"].as_array().unwrap().iter().map(|result| &result["ok"]).collect();
    assert_eq!(ok, [true, false, false], "{}", result.output);
    assert!(result.output.contains("the agent batcher may not use the tool list"), "{}", result.output);
}

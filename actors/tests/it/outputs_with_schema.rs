//! Prompts that want an answer with a schema.

use mock_llm::{Model, Script, call, text};
use playhouse_protocol::message::CallOutcome;
use playhouse_protocol::output::{MOST_TRIES, WantedOutput};
use playhouse_protocol::record::TurnOutcome;
use playhouse_protocol::{CommandError, ErrorCode, NewSession, Prompt, Record};
use serde_json::{Value, json};

use crate::support::Stage;

fn wants(schema: Value) -> Prompt {
    Prompt { output: Some(Box::new(WantedOutput { schema })), ..Prompt::text("Count.") }
}

fn number() -> Value {
    json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}, "required": ["n"]})
}

fn request(stage: &Stage, number: usize) -> Value {
    let entry = &stage.directory.mock.journal().entries()[number];
    serde_json::from_slice(&entry.body.clone().unwrap()).unwrap()
}

/// The names of the tools in the request with this number.
fn shown(stage: &Stage, number: usize) -> Vec<String> {
    let request = request(stage, number);
    let tools = request["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_ends_when_the_answer_fits() {
    // A reminder counts as a prompt in the script.
    let model = Model::new()
        .step(text("It is three."))
        .next_turn()
        .step(call("submit_output", json!({"n": 1})))
        .step(call("submit_output", json!({"n": 3})))
        .next_turn()
        .step(text("four"));
    let stage = Stage::new(Script::new().model("m", model)).await;
    let new = NewSession { tools: Some(vec!["read".to_owned()]), ..stage.new_session("m") };
    let session = stage.engine.create(new).await.unwrap();
    let tools = [("*".to_owned(), false)].into();
    let ended = session.run(Prompt { tools, ..wants(number()) }).await.unwrap().ended;
    assert_eq!(
        (ended.outcome, ended.output, ended.steps),
        (TurnOutcome::Completed, Some(json!({"n": 3})), 3)
    );
    assert_eq!(shown(&stage, 0), ["read", "submit_output"]);
    let last = request(&stage, 2)["messages"].to_string();
    assert!(last.contains("The answer is not given yet") && last.contains("n: 1 is less than"), "{last}");
    // The next turn wants none.
    let ended = session.run(Prompt::text("And now?")).await.unwrap().ended;
    assert_eq!((ended.outcome, ended.output), (TurnOutcome::Completed, None));
    assert_eq!(shown(&stage, 3), ["read"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_never_gives_it_fails_the_turn() {
    let model = Model::new().step(call("submit_output", json!({"n": 1}))).cycle();
    let stage = Stage::new(Script::new().model("m", model)).await;
    let session = stage.session("m").await;
    let ended = session.run(wants(number())).await.unwrap().ended;
    assert_eq!((ended.outcome, ended.steps), (TurnOutcome::Failed, MOST_TRIES));
    assert_eq!(ended.error.unwrap().code, ErrorCode::InvalidOutput);
    // Neither does one that only talks.
    let session = stage.session("echo").await;
    let ended = session.run(wants(number())).await.unwrap().ended;
    assert_eq!((ended.outcome, ended.steps), (TurnOutcome::Failed, MOST_TRIES));
    // A limit of steps holds.
    let session = stage.session("echo").await;
    let ended = session.run(Prompt { steps: Some(2), ..wants(number()) }).await.unwrap().ended;
    assert_eq!((ended.outcome, ended.steps), (TurnOutcome::MaxSteps, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_object_is_given_within_one() {
    let model = Model::new()
        .step(call("submit_output", json!({"n": 1})))
        .step(call("submit_output", json!({"value": ["a", "b"]})));
    let stage = Stage::new(Script::new().model("m", model)).await;
    let session = stage.session("m").await;
    let schema =
        json!({"type": "array", "items": {"$ref": "#/$defs/Name"}, "$defs": {"Name": {"type": "string"}}});
    let ended = session.run(wants(schema)).await.unwrap().ended;
    assert_eq!(ended.output, Some(json!(["a", "b"])));
    let tools = request(&stage, 0)["tools"].to_string();
    assert!(tools.contains("\"$defs\"") && tools.contains("\"value\""), "{tools}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_one_there_is_no_such_tool_and_what_is_no_schema_is_refused() {
    let model = Model::new().step(call("submit_output", json!({"n": 1}))).step(text("done"));
    let stage = Stage::new(Script::new().model("m", model)).await;
    let session = stage.session("m").await;
    session.run(Prompt::text("Count.")).await.unwrap();
    let records = stage.records(&session).await;
    let outcome = records.iter().find_map(|record| match record {
        Record::CallSettled { result, .. } => Some(result.outcome),
        _ => None,
    });
    assert_eq!(outcome, Some(CallOutcome::Failed));
    let refused = session.prompt(wants(json!({"type": "objekt"}))).await;
    assert!(matches!(&refused, Err(CommandError::Invalid(why)) if why.contains("schema")), "{refused:?}");
}

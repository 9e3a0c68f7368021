//! `task`: hands work over to another agent, which works in a session of its own.
//!
//! What a sub-session is made of, how it is found again after a crash and how it ends with its parent is the engine's: see
//! [`Host::hand_over`](crate::Host::hand_over).

use playhouse_policy::Access;
use playhouse_protocol::message::CallInput;
use playhouse_protocol::record::{Effect, Recovery, TurnOutcome};
use playhouse_protocol::{Delegation, SessionId};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::host::{Work, WorkEnd};
use crate::tool::{CallContext, Risk, ToolError, ToolOutput};
use crate::{Ready, TypedTool};

/// The longest description, in characters.
const DESCRIPTION: usize = 100;

/// The tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct Task;

/// The arguments of `task`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    /// Three to five words for the user.
    description: String,
    prompt: String,
    subagent_type: String,
    task_id: Option<String>,
    background: Option<bool>,
}

impl TypedTool for Task {
    const NAME: &'static str = "task";
    const DESCRIPTION: &'static str = include_str!("../../../prompts/tools/task.md");
    // What the other agent does is judged call by call.
    const RISK: Risk = Risk::Safe;
    type Arguments = Arguments;
    type Task = Work;

    fn delegation(input: &CallInput) -> Option<Delegation> {
        let CallInput::Object(input) = input else { return Some(Delegation::default()) };
        let background = input.get("background").and_then(Value::as_bool).unwrap_or_default();
        let session = input.get("task_id").and_then(Value::as_str);
        Some(Delegation { session: session.and_then(|id| SessionId::parse(id.trim()).ok()), background })
    }

    async fn prepare(&self, arguments: Arguments, context: &CallContext) -> Result<Ready<Work>, ToolError> {
        let Arguments { description, prompt, subagent_type, task_id, background } = arguments;
        let wrong = |text: String| Err(ToolError::Invalid(text));
        if prompt.trim().is_empty() {
            return wrong("`prompt` is empty: write all that the other agent needs to know".to_owned());
        }
        let title: String = description.trim().chars().take(DESCRIPTION).collect();
        if title.is_empty() {
            return wrong("`description` is empty: say in a few words what the task is".to_owned());
        }
        let session = match task_id.as_deref().map(str::trim).filter(|id| !id.is_empty()) {
            None => None,
            Some(id) => match SessionId::parse(id) {
                Ok(session) => Some(session),
                Err(error) => {
                    return wrong(format!(
                        "`task_id`: {error}: take it from the result of an earlier task, or leave it out for a new one"
                    ));
                }
            },
        };
        let agent = subagent_type.trim().to_owned();
        context.host.takes_tasks(&agent)?;
        Ok(Ready {
            // Rules name agents: `task: { explore: allow, "*": ask }`.
            accesses: vec![Access::Agent(agent.clone())],
            effect: Effect::Delegated,
            recovery: Recovery::Reattach,
            preview: format!("{agent}: {title}\n\n{prompt}"),
            title: format!("{agent}: {title}"),
            task: Work { title, prompt, agent, session, background: background.unwrap_or_default() },
        })
    }

    async fn execute(&self, work: Work, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let (title, agent) = (format!("{}: {}", work.agent, work.title), work.agent.clone());
        let WorkEnd { session, outcome, text } = context.host.hand_over(work).await?;
        let mut metadata = Map::new();
        metadata.insert("sessionId".to_owned(), session.to_string().into());
        metadata.insert("agent".to_owned(), agent.into());
        metadata.insert("background".to_owned(), outcome.is_none().into());
        if let Some(outcome) = outcome {
            metadata.insert("outcome".to_owned(), outcome.to_string().into());
        }
        Ok(ToolOutput { title, output: told(session, outcome, &text), metadata, ..ToolOutput::default() })
    }
}

/// What the model reads.
fn told(session: SessionId, outcome: Option<TurnOutcome>, text: &str) -> String {
    let how = match outcome {
        None => "runs in the background: you are told when it has ended",
        Some(TurnOutcome::Completed) => "is done",
        Some(TurnOutcome::MaxSteps) => {
            "reached its limit of steps before it was done: call task with this task_id to let it go on"
        }
        Some(TurnOutcome::Aborted) => "was aborted by somebody before it was done",
        Some(TurnOutcome::Failed) => "failed: call task with this task_id to let it go on from where it was",
    };
    let text = text.trim();
    let separator = if text.is_empty() { "" } else { "\n\n" };
    format!("task_id: {session}\nThe task {how}.{separator}{text}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::testing::{self, Person};
    use crate::{Registry, Typed};

    const ID: &str = "ses_000000000000AAAAAAAAAAAAAA";

    async fn call(input: Value, end: WorkEnd) -> (Result<ToolOutput, ToolError>, Arc<Person>) {
        let folder = tempfile::tempdir().unwrap();
        let mut context = testing::context(folder.path(), &folder.path().join("outputs")).unwrap();
        let person = Arc::new(Person { end: Some(end), ..Person::default() });
        context.host = Arc::clone(&person) as _;
        let mut registry = Registry::new();
        registry.add(Arc::new(Typed::new(Task))).unwrap();
        (testing::call(&registry, "task", &input, &context).await, person)
    }

    fn end(outcome: Option<TurnOutcome>) -> WorkEnd {
        WorkEnd { session: SessionId::parse(ID).unwrap(), outcome, text: "It is in src/a.rs:3.\n".to_owned() }
    }

    fn find(more: &Value) -> Value {
        let mut input = json!({"description": " find it ", "prompt": "Find it.", "subagent_type": "explore"});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        input
    }

    #[tokio::test]
    async fn the_result_has_the_id_and_what_was_said_last() {
        let (result, person) = call(find(&json!({})), end(Some(TurnOutcome::Completed))).await;
        let result = result.unwrap();
        assert_eq!(result.output, format!("task_id: {ID}\nThe task is done.\n\nIt is in src/a.rs:3."));
        assert_eq!((result.title.as_str(), &result.metadata["sessionId"]), ("explore: find it", &json!(ID)));
        assert_eq!(result.metadata["background"], json!(false));
        let handed = person.tasks.lock().remove(0);
        let expected = Work {
            title: "find it".to_owned(),
            prompt: "Find it.".to_owned(),
            agent: "explore".to_owned(),
            session: None,
            background: false,
        };
        assert_eq!(handed, expected);
    }

    #[tokio::test]
    async fn how_it_ended_is_said_plainly() {
        for (outcome, says) in [
            (None, "runs in the background"),
            (Some(TurnOutcome::MaxSteps), "limit of steps"),
            (Some(TurnOutcome::Failed), "failed"),
            (Some(TurnOutcome::Aborted), "was aborted"),
        ] {
            let (result, _) = call(find(&json!({"background": outcome.is_none()})), end(outcome)).await;
            let result = result.unwrap();
            assert!(result.output.contains(says) && result.output.contains(ID), "{}", result.output);
            assert_eq!(result.metadata["background"], json!(outcome.is_none()));
        }
    }

    #[tokio::test]
    async fn what_cannot_be_handed_over_is_refused_with_what_to_do() {
        for (input, says) in [
            (find(&json!({"prompt": " "})), "`prompt` is empty"),
            (find(&json!({"description": ""})), "`description` is empty"),
            (find(&json!({"task_id": "ses_1"})), "leave it out for a new one"),
            (find(&json!({"subagent_type": "nobody"})), "there is no agent nobody"),
        ] {
            let (result, person) = call(input, end(None)).await;
            let error = result.unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
            assert!(person.tasks.lock().is_empty());
        }
    }

    #[test]
    fn the_session_to_go_on_with_is_known_before_the_call_is_made() {
        let of = |input: Value| {
            let Value::Object(input) = input else { panic!("an object") };
            Task::delegation(&CallInput::Object(input)).unwrap()
        };
        assert_eq!(of(find(&json!({}))), Delegation::default());
        let session = Some(SessionId::parse(ID).unwrap());
        let more = json!({"task_id": ID, "background": true});
        assert_eq!(of(find(&more)), Delegation { session, background: true });
    }
}

//! The tools: their arguments, their results, and how clients are shown them.

use std::borrow::Cow;
use std::sync::Arc;

use playhouse_protocol::output::WantedOutput;
use playhouse_protocol::record::TurnOutcome;
use playhouse_protocol::usage::Totals;
use playhouse_protocol::{ConsentAsked, MessageId, ModelRef, SessionId};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) const CREATE: &str = "session_create";
pub(crate) const PROMPT: &str = "session_prompt";
pub(crate) const STATUS: &str = "session_status";
pub(crate) const ABORT: &str = "session_abort";

/// Arguments of `session_create`: the members of the same names of `POST /v1/sessions`.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateArguments {
    /// The directory to work in, as an absolute path. Left out: the server's usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) workspace: Option<String>,
    /// The agent of prompts that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<String>,
    /// The model of prompts that name none, as PROVIDER/MODEL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<ModelRef>,
    /// A title for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    /// The only tools that the session and its sub-sessions have. Left out: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tools: Option<Vec<String>>,
}

/// Arguments of `session_prompt`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PromptArguments {
    /// The session, as session_create returned it.
    pub(crate) session: SessionId,
    /// The task, or the answer to what the session said last.
    pub(crate) text: String,
    /// The agent of this turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<String>,
    /// The model of this turn, as PROVIDER/MODEL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<ModelRef>,
    /// Asks for a value that fits a JSON Schema; the result has it as `output`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<WantedOutput>,
}

/// Arguments of `session_status`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StatusArguments {
    /// The session.
    pub(crate) session: SessionId,
}

/// Arguments of `session_abort`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AbortArguments {
    /// The session.
    pub(crate) session: SessionId,
    /// The only turn to end. Left out: the running one and those that wait.
    #[serde(default)]
    pub(crate) turn: Option<MessageId>,
}

/// Result of `session_create`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Created {
    /// The session's id.
    pub(crate) session: SessionId,
    /// The directory that it works in.
    pub(crate) workspace: String,
    /// The agent of prompts that name none.
    pub(crate) agent: String,
    /// The model of prompts that name none.
    pub(crate) model: ModelRef,
    /// The title.
    pub(crate) title: String,
}

/// Something that the turn asked and that was not granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Declined {
    /// The tool that asked.
    pub(crate) tool: String,
    /// What it asked.
    pub(crate) asked: String,
    /// Why it was not granted.
    pub(crate) why: String,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    /// The model was done.
    Completed,
    /// Somebody stopped it.
    Aborted,
    /// The step limit was reached.
    MaxSteps,
    /// It could not go on.
    Failed,
}

impl From<TurnOutcome> for Outcome {
    fn from(outcome: TurnOutcome) -> Self {
        match outcome {
            TurnOutcome::Completed => Self::Completed,
            TurnOutcome::Aborted => Self::Aborted,
            TurnOutcome::MaxSteps => Self::MaxSteps,
            TurnOutcome::Failed => Self::Failed,
        }
    }
}

/// Result of `session_prompt`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PromptResult {
    /// The session.
    pub(crate) session: SessionId,
    /// The turn.
    pub(crate) turn: MessageId,
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// The text of its last answer.
    pub(crate) text: String,
    /// The value that was asked for with `output`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<Value>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Steps that it took.
    pub(crate) steps: u32,
    /// Its tokens and its cost in US dollars.
    pub(crate) totals: Totals,
    /// What it asked and was not granted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) declined: Vec<Declined>,
}

/// Result of `session_status`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Status {
    /// The session.
    pub(crate) session: SessionId,
    /// `idle`, `busy`, `parked` or `deleted`.
    pub(crate) state: String,
    /// Why it is parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parked: Option<String>,
    /// The title.
    pub(crate) title: String,
    /// The directory that it works in.
    pub(crate) workspace: String,
    /// Turns that run or wait.
    pub(crate) open_turns: u32,
    /// Turns that are over.
    pub(crate) turns: u32,
    /// The last answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last: Option<LastAnswer>,
    /// What waits for an answer, in the session and below it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) waits: Vec<Waits>,
}

/// The last answer of a session.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LastAnswer {
    /// Its turn.
    pub(crate) turn: MessageId,
    /// Its text so far.
    pub(crate) text: String,
    /// Why it ended; absent while it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) finish: Option<String>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// A request that waits for an answer.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Waits {
    /// The session that asks.
    pub(crate) session: SessionId,
    /// The tool that asks.
    pub(crate) tool: String,
    /// What it asks.
    pub(crate) asked: String,
}

/// Result of `session_abort`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Aborted {
    /// Turns that were ended.
    pub(crate) turns: u32,
}

/// What a request for consent asks, in one line.
pub(crate) fn line_of(asked: &ConsentAsked) -> String {
    let preview = asked.preview.lines().next().unwrap_or_default();
    let line = if preview.is_empty() { asked.reason.as_str() } else { preview };
    line.chars().take(400).collect()
}

/// All tools.
pub(crate) fn all() -> Vec<Tool> {
    vec![
        tool::<CreateArguments, Created>(
            CREATE,
            "Begin a session: a coding agent with a conversation of its own, which works in one directory. Then give it \
             tasks with session_prompt.",
            ToolAnnotations::new().read_only(false).destructive(false).open_world(false),
        ),
        tool::<PromptArguments, PromptResult>(
            PROMPT,
            "Give a session a task and wait for the end of its turn. The agent reads and changes files and runs commands \
             in the session's directory. The result has the text of its answer, how the turn ended and what it cost. \
             Cancelling the request aborts the turn.",
            ToolAnnotations::new().read_only(false).destructive(true).open_world(true),
        ),
        tool::<StatusArguments, Status>(
            STATUS,
            "Say whether a session is idle or busy, what it said last, and what waits for an answer.",
            ToolAnnotations::new().read_only(true).open_world(false),
        ),
        tool::<AbortArguments, Aborted>(
            ABORT,
            "End the running turn of a session and those that wait, or one of them.",
            ToolAnnotations::new().read_only(false).destructive(false).idempotent(true).open_world(false),
        ),
    ]
}

fn tool<Arguments: JsonSchema, Result: JsonSchema>(
    name: &'static str,
    description: &'static str,
    annotations: ToolAnnotations,
) -> Tool {
    let mut tool = Tool::new(Cow::Borrowed(name), description, schema::<Arguments>());
    tool.output_schema = Some(schema::<Result>());
    tool.annotations = Some(annotations);
    tool
}

/// The schema of a type, without references: not every client resolves them.
fn schema<T: JsonSchema>() -> Arc<JsonObject> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let mut object = match schema.to_value() {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    };
    object.remove("title");
    object.remove("description");
    Arc::new(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_are_whole_and_of_objects() {
        for tool in all() {
            let output = tool.output_schema.unwrap();
            for schema in [&tool.input_schema, &output] {
                assert_eq!(schema["type"], "object", "{}", tool.name);
                let text = serde_json::to_string(schema).unwrap();
                assert!(!text.contains("$ref"), "{}: {text}", tool.name);
            }
        }
    }
}

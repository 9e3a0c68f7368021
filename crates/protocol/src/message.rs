//! What a client sees: a user message per prompt, and an assistant message per step, made of parts.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::changes::TouchedFiles;
use crate::error::ErrorInfo;
use crate::id::{MessageId, PartId, SessionId};
use crate::model::ModelRef;
use crate::time::Timestamp;
use crate::tool::ToolOrigin;
use crate::usage::{Cost, Tokens};

/// Content outside the log, named by its hash.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct BlobRef {
    /// SHA-256 of the content, 64 hex digits.
    pub hash: String,
    /// Size in bytes.
    pub size: u64,
}

/// How much calls changed in files, as their results tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Changed {
    /// Lines that were added.
    pub additions: u64,
    /// Lines that were removed.
    pub deletions: u64,
    /// Files, each once; at most 1,000 are told apart.
    pub files: u32,
}

impl Changed {
    /// Whether nothing was changed.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// A file that belongs to a prompt or to the result of a call. Its content is a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Media type, as in `image/png`.
    pub mime: String,
    /// Name for people and models.
    pub filename: String,
    /// The content.
    pub blob: BlobRef,
    /// The engine read it from the workspace, since the prompt names its path.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mentioned: bool,
    /// The id that its part of a prompt shall have; absent for a new one, and once it has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<PartId>,
    /// What the client that sent it wants back with it; of no matter to anybody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Box<Value>>,
}

impl Attachment {
    /// The media type of a directory's listing.
    pub const DIRECTORY: &'static str = "application/x-directory";

    /// A file that somebody gave.
    pub fn new(mime: impl Into<String>, filename: impl Into<String>, blob: BlobRef) -> Self {
        let (mime, filename) = (mime.into(), filename.into());
        Self { mime, filename, blob, mentioned: false, part: None, source: None }
    }

    /// Whether its content is text, which models read in place.
    ///
    /// ```
    /// use playhouse_protocol::message::{Attachment, BlobRef};
    /// let blob = BlobRef { hash: "0".repeat(64), size: 3 };
    /// assert!(Attachment::new("text/plain; charset=utf-8", "a.txt", blob.clone()).is_text());
    /// assert!(!Attachment::new("image/png", "a.png", blob).is_text());
    /// ```
    pub fn is_text(&self) -> bool {
        let mime = self.mime.trim_start();
        let begins =
            |text: &str| mime.get(..text.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(text));
        begins("text/") || begins(Self::DIRECTORY)
    }
}

/// A message of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// A prompt.
    User(UserMessage),
    /// A step's answer.
    Assistant(AssistantMessage),
}

impl Message {
    /// The message's id.
    pub fn id(&self) -> MessageId {
        match self {
            Self::User(message) => message.id,
            Self::Assistant(message) => message.id,
        }
    }
}

/// What follows from a prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PromptKind {
    /// A turn, in which a model answers it.
    #[default]
    Turn,
    /// Nothing: it is kept, and the next request of a turn has it.
    Note,
    /// A turn without a model: the tool `bash` runs what a person typed. The next prompt's request has it.
    Shell {
        /// The command.
        command: String,
        /// How long it may run, in milliseconds; absent for the tool's usual time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout: Option<u64>,
    },
    /// The same for a shell block of a command template. It is agreed to as any call of the agent, and models do not read it
    /// here: its output stands in the prompt that the template becomes.
    Block {
        /// The command.
        command: String,
        /// The name of the template.
        template: String,
    },
    /// A turn without a model: a client calls one tool. It is agreed to as any call of the agent is. The next prompt's
    /// request has it.
    Call {
        /// The name of the tool.
        tool: String,
        /// The arguments.
        input: Map<String, Value>,
    },
    /// Nothing: it is no prompt, but tells clients that models read its text in place of what stands before it.
    Compaction {
        /// What the text is.
        how: CompactionKind,
        /// Whether somebody asked for it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_hand: bool,
        /// The id of an answer that holds the text, for clients that want one.
        answer: MessageId,
    },
}

/// What stands for the older part of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionKind {
    /// A summary that a model wrote.
    Summary,
    /// A mark that something is left out.
    Cut,
}

impl PromptKind {
    /// Whether a model answers it.
    pub fn is_turn(&self) -> bool {
        *self == Self::Turn
    }

    /// Whether it only tells that the context was compacted.
    pub const fn is_compaction(&self) -> bool {
        matches!(self, Self::Compaction { .. })
    }

    /// The tool and the arguments of the one call of a turn without a model; `None` for all others.
    pub fn one_call(&self) -> Option<(&str, Map<String, Value>)> {
        let bash = |command: &str| Map::from_iter([("command".to_owned(), Value::from(command))]);
        match self {
            Self::Shell { command, timeout } => {
                let mut input = bash(command);
                input.extend(timeout.map(|timeout| ("timeout".to_owned(), Value::from(timeout))));
                Some(("bash", input))
            }
            Self::Block { command, .. } => Some(("bash", bash(command))),
            Self::Call { tool, input } => Some((tool, input.clone())),
            _ => None,
        }
    }

    /// Whether its turn is one call, and has no model.
    pub const fn is_one_call(&self) -> bool {
        matches!(self, Self::Shell { .. } | Self::Block { .. } | Self::Call { .. })
    }

    /// Whether models do not read its turn.
    pub const fn is_block(&self) -> bool {
        matches!(self, Self::Block { .. })
    }

    /// Whether nothing follows from it by itself.
    pub fn is_note(&self) -> bool {
        *self == Self::Note
    }
}

/// What a prompt says of single tools, by name: `false` turns one off for its turn, `true` changes nothing. `*` stands for
/// all tools that are not named.
pub type ToolSwitches = BTreeMap<String, bool>;

/// Whether these turn a tool off.
pub fn turns_off(switches: &ToolSwitches, tool: &str) -> bool {
    switches.get(tool).or_else(|| switches.get("*")) == Some(&false)
}

/// A prompt, as it was admitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserMessage {
    /// Also names the turn.
    pub id: MessageId,
    /// When it was admitted.
    pub created: Timestamp,
    /// The agent that answers it.
    pub agent: String,
    /// The model that answers it.
    pub model: ModelRef,
    /// Text and files.
    pub parts: Vec<Part>,
    /// It was aborted before its turn began: no model reads it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withdrawn: bool,
    /// What follows from it.
    #[serde(default, skip_serializing_if = "PromptKind::is_turn")]
    pub kind: PromptKind,
    /// What the model is told beside it, for its turn only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The tools that are turned off for its turn.
    #[serde(default, skip_serializing_if = "ToolSwitches::is_empty")]
    pub tools: ToolSwitches,
    /// What came of its turn, in a few sentences, where a model was asked for that. Models do not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

/// The answer of one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AssistantMessage {
    /// Also names the step.
    pub id: MessageId,
    /// The prompt that it answers.
    pub parent: MessageId,
    /// When its first attempt started.
    pub created: Timestamp,
    /// When its answer was complete, or given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<Timestamp>,
    /// The agent that answered.
    pub agent: String,
    /// The model that answered.
    pub model: ModelRef,
    /// Tokens of all attempts of this step.
    pub tokens: Tokens,
    /// Cost of all attempts of this step; absent when it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// Why the answer ended; absent while it has not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<FinishReason>,
    /// What went wrong, for a step that failed; a note for people, for one that stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
    /// Models do not read it: it is the shell block of a command template.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unread: bool,
    /// Text, reasoning and calls, in the model's order.
    pub parts: Vec<Part>,
}

/// Why a step's answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model had said all.
    Stop,
    /// The model waits for the results of its calls.
    ToolCalls,
    /// The output limit was reached.
    Length,
    /// The provider's filter, or the model, refused.
    ContentFilter,
    /// The provider gave another reason, or none.
    Other,
    /// The turn was aborted in the middle of the answer.
    Aborted,
    /// The step failed, with the error beside it.
    Failed,
}

/// How a text of a prompt is to be taken, as the client says that sent it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextMarks {
    /// A program put it there, for models: people are not shown it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub synthetic: bool,
    /// It is for people: models are not told it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignored: bool,
    /// What the client wants back with it; of no matter to anybody else.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Text of the user or of the model.
    Text {
        /// The part's id.
        id: PartId,
        /// The text.
        text: String,
        /// How it is to be taken, where it is no usual text of a prompt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        marks: Option<Box<TextMarks>>,
        /// Members that came with it from a model, which the provider wants back unchanged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opaque: Option<Value>,
    },
    /// What the model thought.
    Reasoning {
        /// The part's id.
        id: PartId,
        /// The readable text; may be empty.
        text: String,
        /// What the provider wants back unchanged (a signature, encrypted content).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opaque: Option<Value>,
    },
    /// An attached file.
    File {
        /// The part's id.
        id: PartId,
        /// The file.
        #[serde(flatten)]
        file: Attachment,
    },
    /// A tool call.
    Call(CallPart),
}

impl Part {
    /// Text, as it is.
    pub fn text(id: PartId, text: impl Into<String>) -> Self {
        Self::Text { id, text: text.into(), marks: None, opaque: None }
    }

    /// Its text, if models are told it.
    ///
    /// ```
    /// use playhouse_protocol::message::{Part, TextMarks};
    /// let id = "prt_00000000000012345678901234".parse().unwrap();
    /// assert_eq!(Part::text(id, "Fix it.").told(), Some("Fix it."));
    /// let marks = Some(Box::new(TextMarks { ignored: true, ..TextMarks::default() }));
    /// assert_eq!(Part::Text { id, text: "Saved.".into(), marks, opaque: None }.told(), None);
    /// ```
    pub fn told(&self) -> Option<&str> {
        match self {
            Self::Text { text, marks, .. } => {
                (!marks.as_ref().is_some_and(|marks| marks.ignored)).then_some(text)
            }
            _ => None,
        }
    }

    /// Its text, if it stands for what somebody said: programs put nothing else beside it.
    pub fn said(&self) -> Option<&str> {
        match self {
            Self::Text { text, marks, .. } => {
                (!marks.as_ref().is_some_and(|marks| marks.ignored || marks.synthetic)).then_some(text)
            }
            _ => None,
        }
    }

    /// The part's id.
    pub fn id(&self) -> PartId {
        match self {
            Self::Text { id, .. } | Self::Reasoning { id, .. } | Self::File { id, .. } => *id,
            Self::Call(call) => call.id,
        }
    }
}

/// A tool call and where it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallPart {
    /// Names the part and the call.
    pub id: PartId,
    /// The provider's id of the call, made unique within the step.
    pub call_id: String,
    /// The tool's name as the model wrote it.
    pub tool: String,
    /// The arguments.
    pub input: CallInput,
    /// Where the tool comes from; absent for a native one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Box<ToolOrigin>>,
    /// Members that came with it, which the provider wants back unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<Box<Value>>,
    /// Where the call stands.
    pub state: CallState,
    /// The files that it changed; absent where only its result tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<Box<TouchedFiles>>,
}

/// The arguments of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallInput {
    /// A JSON object, key order kept.
    Object(Map<String, Value>),
    /// What the model wrote is not a JSON object: the text as it came. Such a call is answered with an error.
    Malformed(String),
}

impl CallInput {
    /// Reads what a model wrote as arguments. No text at all is an empty object. The text of an object may be encoded as a
    /// JSON string once more.
    ///
    /// ```
    /// use playhouse_protocol::message::CallInput;
    /// let object = CallInput::from_model(r#"{"a":"b"}"#);
    /// assert!(matches!(object, CallInput::Object(_)));
    /// assert_eq!(CallInput::from_model(r#""{\"a\":\"b\"}""#), object);
    /// assert_eq!(CallInput::from_model("\"b\""), CallInput::Malformed("\"b\"".into()));
    /// ```
    pub fn from_model(text: &str) -> Self {
        if text.trim().is_empty() {
            return Self::Object(Map::new());
        }
        let inner = || serde_json::from_str::<String>(text).and_then(|inner| serde_json::from_str(&inner));
        match serde_json::from_str(text).or_else(|_| inner()) {
            Ok(object) => Self::Object(object),
            Err(_) => Self::Malformed(text.to_owned()),
        }
    }

    /// The arguments as a JSON value; malformed ones are a string.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Object(object) => Value::Object(object.clone()),
            Self::Malformed(text) => Value::String(text.clone()),
        }
    }
}

/// Where a call stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum CallState {
    /// The model asked for it; it has not started.
    Pending,
    /// It waits for consent.
    Asking,
    /// It runs, or may have run when the process ended.
    Running {
        /// When it was intended.
        started: Timestamp,
        /// The sub-session that it hands work over to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<SessionId>,
    },
    /// It has its result.
    Settled(CallResult),
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    /// The tool did its work.
    Done,
    /// The tool answered with an error, or the arguments did not fit.
    Failed,
    /// Policy or a person refused it.
    Declined,
    /// The turn was aborted.
    Cancelled,
    /// The process ended while it ran; its effects are not known.
    Interrupted,
    /// The tool panicked.
    Crashed,
}

/// The one result that every call has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallResult {
    /// How it ended.
    pub outcome: CallOutcome,
    /// One line for people.
    pub title: String,
    /// Exactly what the model reads, capped.
    pub output: String,
    /// Facts for clients, by tool.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Images and documents for the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// When it started (where it did), else when it was settled.
    pub started: Timestamp,
    /// When it was settled.
    pub ended: Timestamp,
}

/// The member of a result's facts that says that the call waited as long as it was told to, and nothing came.
pub const WAITED: &str = "waited";

impl CallResult {
    /// Whether the call waited as long as it was told to, and nothing came.
    pub fn has_waited(&self) -> bool {
        self.metadata.get(WAITED) == Some(&Value::Bool(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_are_no_object_are_kept_as_they_came() {
        assert_eq!(CallInput::from_model("  "), CallInput::Object(Map::new()));
        for text in ["[1]", "\"x\"", "{\"a\":", "null", "{\"a\":1} trailing"] {
            assert_eq!(CallInput::from_model(text), CallInput::Malformed(text.to_owned()));
        }
    }

    #[test]
    fn the_order_of_keys_is_kept() {
        let input = CallInput::from_model(r#"{"z":1,"a":{"y":2,"b":3}}"#);
        assert_eq!(input.to_value().to_string(), r#"{"z":1,"a":{"y":2,"b":3}}"#);
    }
}

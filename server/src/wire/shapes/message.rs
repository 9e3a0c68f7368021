//! Messages.

use playhouse_protocol::message::ToolSwitches;
use playhouse_protocol::{MessageId, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::part::Part;
use super::session::FileDiff;

/// A message with its parts, sorted by their ids.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessageWithParts {
    pub(crate) info: Message,
    pub(crate) parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub(crate) enum Message {
    User(Box<UserMessage>),
    Assistant(Box<AssistantMessage>),
}

impl Message {
    pub(crate) fn id(&self) -> MessageId {
        match self {
            Self::User(message) => message.id,
            Self::Assistant(message) => message.id,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct UserMessage {
    pub(crate) id: MessageId,
    #[serde(rename = "sessionID")]
    pub(crate) session: SessionId,
    pub(crate) time: Created,
    pub(crate) agent: String,
    pub(crate) model: MessageModel,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) system: Option<String>,
    #[serde(default, skip_serializing_if = "ToolSwitches::is_empty")]
    pub(crate) tools: ToolSwitches,
    /// What came of it; absent where nothing was changed for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) summary: Option<TurnSummary>,
}

/// What came of a prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TurnSummary {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) body: Option<String>,
    pub(crate) diffs: Vec<FileDiff>,
}

/// Milliseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Created {
    pub(crate) created: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MessageModel {
    #[serde(rename = "providerID")]
    pub(crate) provider: String,
    #[serde(rename = "modelID")]
    pub(crate) model: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct AssistantMessage {
    pub(crate) id: MessageId,
    #[serde(rename = "sessionID")]
    pub(crate) session: SessionId,
    pub(crate) time: AssistantTime,
    /// The prompt that it answers.
    #[serde(rename = "parentID")]
    pub(crate) parent: MessageId,
    #[serde(rename = "modelID")]
    pub(crate) model: String,
    #[serde(rename = "providerID")]
    pub(crate) provider: String,
    pub(crate) mode: String,
    pub(crate) agent: String,
    pub(crate) path: Roots,
    /// US dollars.
    pub(crate) cost: f64,
    pub(crate) tokens: Tokens,
    /// Whether it stands for the messages before it, where models are concerned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) summary: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<WireError>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) finish: Option<String>,
    /// The answer, where the prompt wanted one with a schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) structured: Option<Value>,
}

/// Milliseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AssistantTime {
    pub(crate) created: u64,
    /// When the answer and all its calls were over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) completed: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Roots {
    pub(crate) cwd: String,
    pub(crate) root: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tokens {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) total: Option<u64>,
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) reasoning: u64,
    pub(crate) cache: CacheTokens,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CacheTokens {
    pub(crate) read: u64,
    pub(crate) write: u64,
}

/// What went wrong with a message or a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", content = "data")]
pub(crate) enum WireError {
    ProviderAuthError {
        #[serde(rename = "providerID")]
        provider: String,
        message: String,
    },
    UnknownError {
        message: String,
    },
    MessageOutputLengthError {},
    MessageAbortedError {
        message: String,
    },
    StructuredOutputError {
        message: String,
        retries: u32,
    },
    ContextOverflowError {
        message: String,
    },
    ContentFilterError {
        message: String,
    },
    #[serde(rename = "APIError")]
    Api {
        message: String,
        #[serde(rename = "statusCode", default, skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
        #[serde(rename = "isRetryable")]
        retryable: bool,
    },
}

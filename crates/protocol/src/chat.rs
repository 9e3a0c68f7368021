//! A conversation as a model reads it, free of any provider's wire format.
//!
//! The session's history is translated into these once; a dialect serializes each message once and keeps the bytes.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::message::Attachment;

/// One message of the conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum ChatMessage {
    /// What the user, or the engine in the user's place, says.
    User {
        /// Text and files.
        parts: Vec<UserPart>,
    },
    /// What the model answered.
    Assistant {
        /// Text, reasoning and calls.
        parts: Vec<AssistantPart>,
    },
    /// The results of all calls of the assistant message before it, in the order of the calls.
    Results {
        /// One for each call.
        results: Vec<ResultPart>,
    },
}

/// A piece of a user message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum UserPart {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A file; its content is a blob.
    File(Attachment),
}

/// A piece of an assistant message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AssistantPart {
    /// Text.
    Text {
        /// The text.
        text: String,
        /// Members that came with it, to be sent back unchanged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opaque: Option<Value>,
    },
    /// Reasoning that the provider wants back.
    Reasoning {
        /// The readable text.
        text: String,
        /// What the provider gave to be sent back unchanged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opaque: Option<Value>,
        /// Whether what stood before it is not what it was made after: a signature of it does not hold any more.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stale: bool,
    },
    /// A call.
    Call {
        /// The id by which its result names it.
        id: String,
        /// The tool.
        name: String,
        /// The arguments; an empty object where the model wrote something else.
        input: Map<String, Value>,
        /// Members that came with it, to be sent back unchanged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opaque: Option<Value>,
    },
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultPart {
    /// The id of the call.
    pub id: String,
    /// The tool.
    pub name: String,
    /// What the model reads.
    pub output: String,
    /// Whether the call did what it should.
    pub ok: bool,
    /// Images and documents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
}

/// A tool as a model is told of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does and how to use it.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
}

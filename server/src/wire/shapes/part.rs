//! Parts of messages.

use playhouse_protocol::message::BlobRef;
use playhouse_protocol::{MessageId, PartId, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::message::CacheTokens;

/// What all parts have.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PartHead {
    pub(crate) id: PartId,
    #[serde(rename = "sessionID")]
    pub(crate) session: SessionId,
    #[serde(rename = "messageID")]
    pub(crate) message: MessageId,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(crate) enum Part {
    Text {
        #[serde(flatten)]
        head: PartHead,
        text: String,
        /// Not what a person wrote.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        synthetic: bool,
        /// Not what models are told.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        ignored: bool,
        /// What its client wants back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Box<Map<String, Value>>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        time: Option<PartTime>,
    },
    Reasoning {
        #[serde(flatten)]
        head: PartHead,
        text: String,
        time: PartTime,
    },
    File {
        #[serde(flatten)]
        head: PartHead,
        mime: String,
        filename: String,
        url: String,
        /// What its client wants back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<Box<Value>>,
        /// What the address stands for.
        #[serde(skip)]
        blob: Option<BlobRef>,
    },
    Tool {
        #[serde(flatten)]
        head: PartHead,
        #[serde(rename = "callID")]
        call: String,
        tool: String,
        state: ToolState,
    },
    /// Models do not read what stands before it any more.
    Compaction {
        #[serde(flatten)]
        head: PartHead,
        /// Whether nobody asked for it.
        auto: bool,
    },
    StepStart {
        #[serde(flatten)]
        head: PartHead,
    },
    StepFinish {
        #[serde(flatten)]
        head: PartHead,
        reason: String,
        cost: f64,
        tokens: StepTokens,
    },
    Patch {
        #[serde(flatten)]
        head: PartHead,
        hash: String,
        files: Vec<String>,
    },
}

#[cfg(test)]
impl Part {
    pub(crate) fn head(&self) -> &PartHead {
        match self {
            Self::Text { head, .. }
            | Self::Reasoning { head, .. }
            | Self::File { head, .. }
            | Self::Tool { head, .. }
            | Self::Compaction { head, .. }
            | Self::StepStart { head }
            | Self::StepFinish { head, .. }
            | Self::Patch { head, .. } => head,
        }
    }
}

/// Where a file of a prompt comes from: the client that sent it says so, and is told it again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum FileSource {
    File {
        text: SourceText,
        path: String,
    },
    Symbol {
        text: SourceText,
        path: String,
        range: SourceRange,
        name: String,
        kind: u64,
    },
    Resource {
        text: SourceText,
        #[serde(rename = "clientName")]
        client: String,
        uri: String,
    },
}

/// What stands for it in the text of the prompt, and where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SourceText {
    value: String,
    start: serde_json::Number,
    end: serde_json::Number,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SourceRange {
    start: SourcePosition,
    end: SourcePosition,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SourcePosition {
    line: serde_json::Number,
    character: serde_json::Number,
}

/// Milliseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PartTime {
    pub(crate) start: u64,
    /// Absent while it streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StepTokens {
    pub(crate) total: u64,
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) reasoning: u64,
    pub(crate) cache: CacheTokens,
}

/// Where a call stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum ToolState {
    Pending {
        input: Map<String, Value>,
        /// The arguments where they are no object.
        raw: String,
    },
    Running {
        input: Map<String, Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Map<String, Value>>,
        time: Start,
    },
    Completed {
        input: Map<String, Value>,
        output: String,
        title: String,
        metadata: Map<String, Value>,
        time: Span,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<Part>,
    },
    Error {
        input: Map<String, Value>,
        error: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Map<String, Value>>,
        time: Span,
    },
}

/// Milliseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Start {
    pub(crate) start: u64,
}

/// Milliseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

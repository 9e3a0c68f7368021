//! Calls whose result comes from outside of the engine: from the platform that registered the tool.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::PartId;
use crate::message::CallInput;
use crate::time::Timestamp;

/// The data of the event `call.offered`: a call that waits for its result from the platform.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallOffered {
    /// The call: also the idempotency key of what the platform does for it.
    pub call: PartId,
    /// The tool.
    pub tool: String,
    /// The arguments, which fit the tool's schema.
    pub input: CallInput,
    /// Deadline of the result. Without one the call fails then.
    pub until: Timestamp,
}

/// How a call ended that was offered to the platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum CallAnswer {
    /// A result.
    Output {
        /// A text; of any other value its JSON.
        output: String,
    },
    /// The platform could not do it.
    Error {
        /// What the model reads.
        error: String,
    },
    /// There was no result before the deadline.
    TimedOut,
}

impl CallAnswer {
    /// A text as it is, and any other value as its JSON.
    pub fn output(value: Value) -> Self {
        let output = match value {
            Value::String(text) => text,
            value => value.to_string(),
        };
        Self::Output { output }
    }
}

impl fmt::Display for CallAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Output { .. } => "it has an output",
            Self::Error { .. } => "it failed",
            Self::TimedOut => "its deadline passed",
        })
    }
}

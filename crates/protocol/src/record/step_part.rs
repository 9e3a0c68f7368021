//! The parts of a finished step.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::PartId;

/// A part of a finished step. A call is only named here; what it is stands in its [`CallProposed`](super::CallProposed).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", try_from = "AnyStepPart")]
pub enum StepPart {
    /// Text.
    Text {
        /// The part's id.
        id: PartId,
        /// The text.
        text: String,
        /// Members that came with it, which the provider wants back unchanged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opaque: Option<Value>,
    },
    /// What the model thought.
    Reasoning {
        /// The part's id.
        id: PartId,
        /// The readable text.
        text: String,
        /// What the provider wants back unchanged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opaque: Option<Value>,
    },
    /// The place of a call.
    Call {
        /// The call.
        id: PartId,
        /// Members that came with it, which the provider wants back unchanged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opaque: Option<Value>,
    },
}

/// What is read of any part of a step: which it is may come last, and to wait for that would take longer than all the rest.
#[derive(Deserialize)]
struct AnyStepPart {
    #[serde(rename = "type")]
    kind: StepPartKind,
    id: PartId,
    text: Option<String>,
    opaque: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum StepPartKind {
    Text,
    Reasoning,
    Call,
}

impl TryFrom<AnyStepPart> for StepPart {
    type Error = &'static str;

    fn try_from(AnyStepPart { kind, id, text, opaque }: AnyStepPart) -> Result<Self, Self::Error> {
        let text = text.ok_or("missing field `text`");
        Ok(match kind {
            StepPartKind::Text => Self::Text { id, text: text?, opaque },
            StepPartKind::Reasoning => Self::Reasoning { id, text: text?, opaque },
            StepPartKind::Call => Self::Call { id, opaque },
        })
    }
}

//! The turn of a command that a person runs by hand, or of a shell block of a command template: one call, and no model.

use playhouse_protocol::id::{MessageId, PartId};
use playhouse_protocol::message::{CallInput, FinishReason, Part, PromptKind};
use playhouse_protocol::record::{CallProposed, StepFinished, StepPart};
use playhouse_protocol::{Cost, Message, Record, Tokens};
use serde_json::{Map, Value};

use super::Machine;
use crate::effect::Stamp;
use crate::fold::FoldError;

/// The tool that runs what people type.
const TOOL: &str = "bash";

impl Machine {
    /// Whether the running turn is a command that a person typed: that person agreed to it.
    pub(super) fn is_by_hand(&self) -> bool {
        self.session.turn.as_ref().is_some_and(|turn| matches!(turn.kind, PromptKind::Shell { .. }))
    }

    /// Whether the running turn is a command, without a model.
    pub(super) fn is_command(&self) -> bool {
        self.session.turn.as_ref().is_some_and(|turn| turn.kind.command().is_some())
    }

    /// The step of such a turn: it proposes the one call, and is over.
    pub(super) fn propose_command(&mut self, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        let Some(turn) = &self.session.turn else { return Ok(()) };
        let Some((command, timeout)) = turn.kind.command() else { return Ok(()) };
        let (step, call) = match (&turn.step, self.session.messages.last()) {
            // The log was cut behind the proposal.
            (Some(step), Some(Message::Assistant(message))) => {
                let Some(call) = message.parts.first().map(Part::id) else { return Ok(()) };
                (step.id, call)
            }
            _ => {
                let mut input = Map::from_iter([("command".to_owned(), Value::from(command))]);
                if let Some(timeout) = timeout {
                    input.insert("timeout".to_owned(), Value::from(timeout));
                }
                let (step, call): (MessageId, PartId) =
                    (stamp.ids.next(stamp.now), stamp.ids.next(stamp.now));
                let proposed =
                    CallProposed::new(call, step, call.to_string(), TOOL, CallInput::Object(input));
                self.append(Record::CallProposed(proposed), stamp.now)?;
                (step, call)
            }
        };
        let finished = StepFinished {
            step,
            parts: vec![StepPart::Call { id: call, opaque: None }],
            finish: FinishReason::Stop,
            error: None,
            tokens: Tokens::default(),
            cost: Some(Cost::ZERO),
        };
        self.append(Record::StepFinished(finished), stamp.now)
    }
}

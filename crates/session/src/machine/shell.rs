//! The turn that is one call, and has no model: a command that a person runs by hand, a shell block of a command template, or
//! a tool that a client calls.

use playhouse_protocol::id::{MessageId, PartId};
use playhouse_protocol::message::{CallInput, FinishReason, Part, PromptKind};
use playhouse_protocol::record::{CallProposed, StepFinished, StepPart};
use playhouse_protocol::{Cost, Message, Record, Tokens};

use super::Machine;
use crate::effect::Stamp;
use crate::fold::FoldError;

impl Machine {
    /// Whether the running turn is a command that a person typed: that person agreed to it.
    pub(super) fn is_by_hand(&self) -> bool {
        self.session.turn.as_ref().is_some_and(|turn| matches!(turn.kind, PromptKind::Shell { .. }))
    }

    /// Whether the running turn is one call, without a model.
    pub(super) fn is_one_call(&self) -> bool {
        self.session.turn.as_ref().is_some_and(|turn| turn.kind.is_one_call())
    }

    /// The step of such a turn: it proposes the one call, and is over.
    pub(super) fn propose_one_call(&mut self, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        let Some(turn) = &self.session.turn else { return Ok(()) };
        let Some((tool, input)) = turn.kind.one_call() else { return Ok(()) };
        let (step, call) = match (&turn.step, self.session.messages.last()) {
            // The log was cut behind the proposal.
            (Some(step), Some(Message::Assistant(message))) => {
                let Some(call) = message.parts.first().map(Part::id) else { return Ok(()) };
                (step.id, call)
            }
            _ => {
                let (step, call): (MessageId, PartId) =
                    (stamp.ids.next(stamp.now), stamp.ids.next(stamp.now));
                let proposed =
                    CallProposed::new(call, step, call.to_string(), tool, CallInput::Object(input));
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

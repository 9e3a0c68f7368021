//! Turns that want an answer with a schema: they end when the model has given it, and not before.

use playhouse_protocol::message::{Part, PromptKind, TextMarks};
use playhouse_protocol::output::MOST_TRIES;
use playhouse_protocol::record::{PromptAdmitted, TurnOutcome};
use playhouse_protocol::{ErrorCode, ErrorInfo, Record};

use super::Machine;
use crate::effect::Stamp;
use crate::fold::{FoldError, StepPhase};

/// What a model reads that ends its answer without having given it.
const REMINDER: &str = "The answer is not given yet. Call the tool submit_output with arguments that fit its schema; this is not a message of the user.";

impl Machine {
    /// Whether the running turn wants an answer with a schema.
    pub(super) fn wants_output(&self) -> bool {
        self.session.turn.as_ref().is_some_and(|turn| turn.output.is_some())
    }

    /// How such a turn ends after its last step; `None` when it takes another step.
    pub(super) fn output_outcome(&self) -> Option<(TurnOutcome, Option<ErrorInfo>)> {
        let turn = self.session.turn.as_ref()?;
        let output = turn.output.as_ref()?;
        if output.value.is_some() {
            return Some((TurnOutcome::Completed, None));
        }
        if output.tries >= MOST_TRIES {
            let model = &turn.model;
            let message = format!(
                "{model} was asked {MOST_TRIES} times for an answer that fits the schema, and gave none: make the schema simpler, or use another model"
            );
            return Some((
                TurnOutcome::Failed,
                Some(ErrorInfo::new(ErrorCode::InvalidOutput, message).of_model(model)),
            ));
        }
        turn.is_over(turn.steps()).then_some((TurnOutcome::MaxSteps, None))
    }

    /// Tells a model that stopped without having given the answer.
    pub(super) fn remind_of_output(&mut self, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        let Some(turn) = &self.session.turn else { return Ok(()) };
        let has_stopped = turn
            .step
            .as_ref()
            .is_some_and(|step| matches!(&step.phase, StepPhase::Finished { calls, .. } if calls.is_empty()));
        // Once for each answer, also where the engine ended in between.
        let is_reminder = |part: &Part| matches!(part, Part::Text { text, .. } if text == REMINDER);
        let is_told = self.session.queue.iter().any(|queued| queued.prompt.parts.iter().any(is_reminder));
        if turn.output.is_none() || !has_stopped || is_told {
            return Ok(());
        }
        let (agent, model) = (turn.agent.clone(), turn.model.clone());
        let marks = TextMarks { synthetic: true, ..TextMarks::default() };
        let part = Part::Text {
            id: stamp.ids.next(stamp.now),
            text: REMINDER.to_owned(),
            marks: Some(Box::new(marks)),
            opaque: None,
        };
        let message = stamp.ids.next(stamp.now);
        let reminder = PromptAdmitted {
            steer: true,
            ..PromptAdmitted::new(message, vec![part], agent, model, PromptKind::Note)
        };
        self.append(Record::PromptAdmitted(reminder), stamp.now)
    }
}

#[cfg(test)]
#[test]
fn the_reminder_names_the_tool() {
    assert!(REMINDER.contains(playhouse_protocol::output::SUBMIT_OUTPUT));
}

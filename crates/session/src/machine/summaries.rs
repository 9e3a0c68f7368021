//! Summaries of turns: what came of one that changed files, in a few sentences of a small model. Nothing waits for one.

use playhouse_protocol::id::{AttemptId, MessageId};
use playhouse_protocol::ledger::Purpose;
use playhouse_protocol::record::{TurnOutcome, TurnSummarized};
use playhouse_protocol::{ErrorInfo, Record};

use super::Machine;
use super::again::Wanted;
use crate::context::{cut, digest_of_turn};
use crate::effect::Stamp;
use crate::fold::{FoldError, Turn};

/// How much of a turn is shown for its summary, in bytes.
const SHOWN: u64 = 16_000;
/// The most tokens of a summary's answer: models that think do so before it.
const MOST_OUTPUT: u64 = 2_000;
/// The longest summary, in bytes.
const LONGEST: u64 = 4_000;
/// So many are written at once.
const MOST_AT_ONCE: usize = 4;

/// A summary under way.
#[derive(Debug)]
pub(super) struct Summary {
    pub(super) attempt: AttemptId,
    turn: MessageId,
    /// Whether it was asked for before.
    again: bool,
}

impl Machine {
    /// Asks what came of a turn that is over, if somebody is asked for that. What one agent does for another is told by that
    /// other one, and what failed or was stopped is told by how it ended.
    pub(super) fn start_summary(
        &mut self,
        turn: &Turn,
        outcome: TurnOutcome,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        let ended_well = matches!(outcome, TurnOutcome::Completed | TurnOutcome::MaxSteps);
        let wanted = ended_well && turn.changed && turn.kind.is_turn() && turn.handed.is_none();
        if !wanted || self.live.delete.is_some() {
            Ok(())
        } else {
            self.ask_for_summary(turn.id, false, stamp)
        }
    }

    /// Asks for the summary of a turn, unless enough are written.
    pub(super) fn ask_for_summary(
        &mut self,
        turn: MessageId,
        again: bool,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        if self.live.summaries.len() >= MOST_AT_ONCE {
            return Ok(());
        }
        let model = &self.session.summary.model;
        let Some((agent, model)) = stamp.facts.aside(Purpose::Summary, model) else { return Ok(()) };
        let text = digest_of_turn(&self.session, turn, SHOWN);
        let attempt = self.start_aside(Purpose::Summary, turn, agent, model, text, MOST_OUTPUT, stamp)?;
        self.live.summaries.push(Summary { attempt, turn, again });
        Ok(())
    }

    /// The summary that this attempt writes is under way no more.
    pub(super) fn take_summary(&mut self, attempt: AttemptId) -> Option<Summary> {
        let place = self.live.summaries.iter().position(|summary| summary.attempt == attempt)?;
        Some(self.live.summaries.swap_remove(place))
    }

    pub(super) fn on_turn_summary(
        &mut self,
        Summary { attempt, turn, again }: Summary,
        written: Result<String, ErrorInfo>,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        let text = match written {
            Ok(text) if !self.session.is_deleted() => text,
            Err(error) if !again => {
                self.ask_again(Wanted::Summary { turn }, &error, stamp);
                return Ok(());
            }
            Ok(_) | Err(_) => return Ok(()),
        };
        let text = cut(&text, LONGEST).to_owned();
        self.append(Record::TurnSummarized(TurnSummarized { turn, attempt, text }), stamp.now)
    }
}

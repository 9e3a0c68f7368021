//! Titles and summaries of turns that failed: each is asked for once more, where coming back may help. Nothing waits for it, and
//! a session that leaves memory meanwhile goes without.

use playhouse_protocol::id::MessageId;
use playhouse_protocol::{ErrorInfo, Message};

use super::Machine;
use crate::effect::{Deadline, Effect, Stamp};
use crate::fold::FoldError;

/// What is asked for once more, when its time has come.
#[derive(Debug)]
pub(super) struct Again {
    /// Stands for a step in the deadline.
    step: MessageId,
    wanted: Wanted,
}

/// What is asked for once more.
#[derive(Debug)]
pub(super) enum Wanted {
    /// A title of this prompt, unless the session has another one meanwhile.
    Title { prompt: MessageId, instead_of: String },
    /// What came of this turn.
    Summary { turn: MessageId },
}

impl Machine {
    /// Asks again after a while, where the error is one that passes.
    pub(super) fn ask_again(&mut self, wanted: Wanted, error: &ErrorInfo, stamp: &mut Stamp<'_>) {
        let is_removed = self.session.is_deleted() || self.live.delete.is_some();
        let Ok(wait_ms) = self.retry.decide(1, 0, stamp.jitter, error) else { return };
        if is_removed {
            return;
        }
        let step = stamp.ids.next(stamp.now);
        self.live.again.push(Again { step, wanted });
        self.effects.push(Effect::Arm(Deadline::Retry { step }, wait_ms));
    }

    /// What waits for this deadline is asked for.
    pub(super) fn on_again_due(&mut self, step: MessageId, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        let Some(place) = self.live.again.iter().position(|again| again.step == step) else { return Ok(()) };
        match self.live.again.swap_remove(place).wanted {
            Wanted::Title { prompt, instead_of } => {
                if self.session.summary.title != instead_of {
                    return Ok(());
                }
                let asked = self.session.messages.iter().find_map(|message| match message {
                    Message::User(message) if message.id == prompt => Some(message.parts.clone()),
                    _ => None,
                });
                asked.map_or(Ok(()), |parts| self.start_title(prompt, &parts, true, stamp))
            }
            Wanted::Summary { turn } => self.ask_for_summary(turn, true, stamp),
        }
    }
}

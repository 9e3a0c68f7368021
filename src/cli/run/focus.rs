//! Which events of a session are those of one's own turn: an engine may run turns of others in it.

use playhouse_protocol::event::Provisional;
use playhouse_protocol::{EventBody, MessageId, Record};

/// What becomes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Shown,
    Hidden,
    /// Hidden, and the first of a turn that runs before one's own.
    AnotherFirst,
}

/// Tells one's own turn from others.
pub(super) struct Focus {
    /// Whether there can be others.
    shared: bool,
    /// The turn that runs, where its beginning was seen.
    running: Option<MessageId>,
    told: bool,
}

impl Focus {
    /// The running turn reads one's own prompt, and is one's own from here on.
    pub(super) fn joins(&mut self, turn: MessageId) {
        self.running = Some(turn);
    }

    /// `shared`: whether others may use the session as well.
    pub(super) fn new(shared: bool) -> Self {
        Self { shared, running: None, told: false }
    }

    /// Looks at the next event, whose turn is one's `own` or not. What came before the own prompt was not seen.
    pub(super) fn look(&mut self, body: &EventBody, own: MessageId) -> Look {
        if !self.shared {
            return Look::Shown;
        }
        let is_own = match body {
            EventBody::Durable(record) => match record.as_ref() {
                Record::TurnStarted { turn } => {
                    self.running = Some(*turn);
                    *turn == own
                }
                Record::TurnEnded(ended) => {
                    self.running.take_if(|running| *running == ended.turn);
                    // One that was withdrawn while it waited says nothing of the one that runs.
                    return if ended.turn == own { Look::Shown } else { Look::Hidden };
                }
                Record::PromptAdmitted(prompt) => {
                    return if prompt.message == own { Look::Shown } else { Look::Hidden };
                }
                // What is asked beside turns, for a title or a summary, says nothing of one that runs.
                Record::AttemptStarted(started)
                    if started.purpose.is_aside() && self.running != Some(own) =>
                {
                    return Look::Hidden;
                }
                Record::AttemptEnded(_) | Record::TurnSummarized(_) if self.running != Some(own) => {
                    return Look::Hidden;
                }
                Record::SessionCreated(_)
                | Record::SessionChanged(_)
                | Record::Forked(_)
                | Record::Deleted {} => true,
                _ => self.running == Some(own),
            },
            // They say nothing of turns: a prompt of megabytes is read from the log.
            EventBody::Provisional(Provisional::Resync { .. }) if self.running != Some(own) => {
                return Look::Hidden;
            }
            EventBody::Provisional(Provisional::SessionParked { .. }) => true,
            EventBody::Provisional(_) => self.running == Some(own),
        };
        match (is_own, self.told) {
            (true, _) => Look::Shown,
            (false, true) => Look::Hidden,
            (false, false) => {
                self.told = true;
                Look::AnotherFirst
            }
        }
    }
}

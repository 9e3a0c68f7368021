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

/// Tells one's own turn, and those of the shell blocks in its template, from others.
pub(super) struct Focus {
    /// Whether there can be others.
    shared: bool,
    /// One's own turn, where it is known.
    own: Option<MessageId>,
    /// Whether shell blocks of the own prompt may still come: they run before it is admitted.
    awaits_blocks: bool,
    /// The turn of the last shell block.
    block: Option<MessageId>,
    /// The turn that runs, where its beginning was seen.
    running: Option<MessageId>,
    told: bool,
}

impl Focus {
    /// `shared`: whether others may use the session as well. `template`: the turn, where a template with shell blocks may begin it.
    pub(super) fn new(shared: bool, template: Option<MessageId>) -> Self {
        Self {
            shared,
            own: template,
            awaits_blocks: template.is_some(),
            block: None,
            running: None,
            told: false,
        }
    }

    /// Whether shell blocks may come.
    pub(super) fn awaits_blocks(&self) -> bool {
        self.awaits_blocks
    }

    /// The own turn is this one.
    pub(super) fn is_at(&mut self, turn: MessageId) {
        self.own = Some(turn);
    }

    /// The running turn reads one's own prompt, and is one's own from here on.
    pub(super) fn joins(&mut self, turn: MessageId) {
        self.own = Some(turn);
        self.running = Some(turn);
    }

    fn is_own(&self, turn: MessageId) -> bool {
        self.own == Some(turn) || self.block == Some(turn)
    }

    /// Looks at the next event. What came before the own prompt and its blocks was not seen.
    pub(super) fn look(&mut self, body: &EventBody) -> Look {
        if let EventBody::Durable(record) = body
            && let Record::PromptAdmitted(prompt) = record.as_ref()
            && self.awaits_blocks
        {
            if prompt.kind.is_block() {
                self.block = Some(prompt.message);
            }
            self.awaits_blocks = self.own != Some(prompt.message);
        }
        if !self.shared {
            return Look::Shown;
        }
        let own_runs = self.running.is_some_and(|running| self.is_own(running));
        let is_own = match body {
            EventBody::Durable(record) => match record.as_ref() {
                Record::TurnStarted { turn } => {
                    self.running = Some(*turn);
                    self.is_own(*turn)
                }
                Record::TurnEnded(ended) => {
                    self.running.take_if(|running| *running == ended.turn);
                    // One that was withdrawn while it waited says nothing of the one that runs.
                    return if self.is_own(ended.turn) { Look::Shown } else { Look::Hidden };
                }
                Record::PromptAdmitted(prompt) => {
                    return if self.is_own(prompt.message) { Look::Shown } else { Look::Hidden };
                }
                // What is asked beside turns, for a title or a summary, says nothing of one that runs.
                Record::AttemptStarted(started) if started.purpose.is_aside() && !own_runs => {
                    return Look::Hidden;
                }
                Record::AttemptEnded(_) | Record::TurnSummarized(_) if !own_runs => {
                    return Look::Hidden;
                }
                Record::SessionCreated(_)
                | Record::SessionChanged(_)
                | Record::Forked(_)
                | Record::Deleted {} => true,
                _ => own_runs,
            },
            // They say nothing of turns: a prompt of megabytes is read from the log.
            EventBody::Provisional(Provisional::Resync { .. }) if !own_runs => {
                return Look::Hidden;
            }
            EventBody::Provisional(Provisional::SessionParked { .. }) => true,
            EventBody::Provisional(_) => own_runs,
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

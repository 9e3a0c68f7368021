//! Prompts that come, and changes of the session.

use playhouse_protocol::command::Accepted;
use playhouse_protocol::limit::{Amount, LimitScope, LimitUnit};
use playhouse_protocol::message::Part;
use playhouse_protocol::record::SessionChanged;
use playhouse_protocol::summary::UNTITLED;
use playhouse_protocol::{CommandError, Limit, Record, Reply, WhenBusy};

use super::Machine;
use crate::effect::{NewPrompt, Stamp, Ticket};
use crate::fold::FoldError;

/// The most prompts that may wait in one session.
const QUEUE_LIMIT: usize = 100;
/// Longest title that is made from a prompt, in characters.
const TITLE_LENGTH: usize = 60;

impl Machine {
    pub(super) fn on_prompt(
        &mut self,
        ticket: Ticket,
        new: NewPrompt,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        if self.refuse_deleted(ticket) {
            return Ok(());
        }
        let NewPrompt { mut prompt, when_busy } = new;
        prompt.steer = when_busy == WhenBusy::Steer;
        let turn = prompt.message;
        if self.session.knows_prompt(turn) {
            let reply = match self.session.is_prompt(turn, &prompt.parts, &prompt.kind) {
                true => Ok(Reply::Accepted(Accepted { turn, repeated: true })),
                false => Err(CommandError::Repeated(turn)),
            };
            self.reply(ticket, reply);
            return Ok(());
        }
        let busy = !self.session.is_idle();
        if busy && when_busy == WhenBusy::Reject {
            self.reply(ticket, Err(CommandError::Busy));
            return Ok(());
        }
        if self.session.queue.len() >= QUEUE_LIMIT && when_busy != WhenBusy::Interrupt {
            let told = format!(
                "{QUEUE_LIMIT} prompts wait in this session: send it when some are done, or abort them"
            );
            let waiting = Amount::Count(self.session.queue.len() as u64);
            let limit =
                Limit::of_count("waiting_prompts", LimitScope::Session, LimitUnit::Count, QUEUE_LIMIT as u64);
            let limit = Limit { needed: Some(Amount::Count(1)), ..limit.used(waiting) };
            self.reply(ticket, Err(CommandError::AtLimit { told, limit: Box::new(limit), passes: true }));
            return Ok(());
        }
        if busy && when_busy == WhenBusy::Interrupt {
            self.begin_abort(None, stamp)?;
        }
        let untitled = self.session.summary.title == UNTITLED && prompt.kind.is_turn();
        if untitled && let Some(title) = title_of(&prompt.parts) {
            let changed = SessionChanged { title: Some(title), ..SessionChanged::default() };
            self.append(Record::SessionChanged(changed), stamp.now)?;
        }
        let parts = untitled.then(|| prompt.parts.clone());
        self.append(Record::PromptAdmitted(prompt), stamp.now)?;
        if let Some(parts) = parts {
            self.start_title(turn, &parts, false, stamp)?;
        }
        self.reply(ticket, Ok(Reply::Accepted(Accepted { turn, repeated: false })));
        Ok(())
    }

    pub(super) fn on_change(
        &mut self,
        ticket: Ticket,
        changed: SessionChanged,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        if self.refuse_deleted(ticket) {
            return Ok(());
        }
        self.append(Record::SessionChanged(changed), stamp.now)?;
        self.reply(ticket, Ok(Reply::Done));
        Ok(())
    }
}

/// A title made from a prompt: its first line that says something, cut at a word where it is long.
fn title_of(parts: &[Part]) -> Option<String> {
    let line = |text: &'_ str| text.lines().map(str::trim).find(|line| !line.is_empty()).map(shortened_title);
    let said = parts.iter().filter_map(Part::said).find_map(line);
    said.or_else(|| parts.iter().filter_map(Part::told).find_map(line))
}

/// A line as a title, cut at a word where it is long.
pub(super) fn shortened_title(line: &str) -> String {
    if line.chars().count() <= TITLE_LENGTH {
        return line.to_owned();
    }
    let cut: String = line.chars().take(TITLE_LENGTH).collect();
    let whole_words = cut.rfind(' ').map_or(cut.as_str(), |space| &cut[..space]);
    format!("{}…", whole_words.trim_end())
}

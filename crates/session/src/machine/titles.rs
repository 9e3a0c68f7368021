//! Titles that a small model writes: once for a session, after its first prompt. Nothing waits for one.

use playhouse_protocol::id::{AttemptId, MessageId};
use playhouse_protocol::ledger::Purpose;
use playhouse_protocol::message::Part;
use playhouse_protocol::record::SessionChanged;
use playhouse_protocol::{ErrorInfo, Record};

use super::Machine;
use super::again::Wanted;
use super::prompts::shortened_title;
use crate::context::beginning;
use crate::effect::Stamp;
use crate::fold::FoldError;

/// How much of a prompt is shown for its title, in bytes.
const SHOWN: u64 = 4_000;
/// The most tokens of a title's answer: models that think do so before it.
const MOST_OUTPUT: u64 = 2_000;

/// A title under way.
#[derive(Debug)]
pub(super) struct Title {
    pub(super) attempt: AttemptId,
    /// What it is a title of.
    prompt: MessageId,
    /// Whether it was asked for before.
    again: bool,
    /// The title that it takes the place of, if nobody changed that meanwhile.
    instead_of: String,
}

impl Machine {
    /// Asks for a title of the first prompt, if somebody is asked for titles.
    pub(super) fn start_title(
        &mut self,
        prompt: MessageId,
        parts: &[Part],
        again: bool,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        let model = &self.session.summary.model;
        let Some((agent, model)) = stamp.facts.aside(Purpose::Title, model) else { return Ok(()) };
        let (text, instead_of) = (beginning(parts, SHOWN), self.session.summary.title.clone());
        let attempt = self.start_aside(Purpose::Title, prompt, agent, model, text, MOST_OUTPUT, stamp)?;
        self.live.title = Some(Title { attempt, prompt, again, instead_of });
        Ok(())
    }

    pub(super) fn on_title(
        &mut self,
        title: Title,
        written: Result<String, ErrorInfo>,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        let Title { prompt, again, instead_of, .. } = title;
        if self.session.is_deleted() || self.session.summary.title != instead_of {
            return Ok(());
        }
        let text = match written {
            Ok(text) => text,
            Err(error) if !again => {
                self.ask_again(Wanted::Title { prompt, instead_of }, &error, stamp);
                return Ok(());
            }
            Err(_) => return Ok(()),
        };
        let line = text.lines().map(str::trim).find(|line| !line.is_empty());
        let new = line.map(|line| shortened_title(line.trim_matches(['"', '#', '*', ' '])));
        let Some(new) = new.filter(|new| !new.is_empty()) else { return Ok(()) };
        let changed = SessionChanged { title: Some(new), ..SessionChanged::default() };
        self.append(Record::SessionChanged(changed), stamp.now)
    }
}

//! Tells a model of tools from outside that came or went since its requests begin with a list of them.
//!
//! What requests begin with stays as it is: the change is a note at the end of the history. What a note said last stands with
//! it, so that nothing is told twice, over restarts as well.

use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::message::{Message, Part, PromptKind, TextMarks};
use playhouse_protocol::record::PromptAdmitted;
use playhouse_protocol::{ModelRef, Seq, WhenBusy};
use playhouse_session::{Input, NewPrompt, Ticket};
use playhouse_tools::MCP_SEARCH;
use ractor::{ActorProcessingErr, ActorRef};
use serde_json::{Map, Value, json};

use super::SessionState;
use crate::conversation::outside::callable;
use crate::mailbox::SessionMessage;

/// The member of a note that says which tools it leaves callable, and where the list stands that it differs from.
const NOTED: &str = "playhouse_tools";
/// So much of descriptions and schemas stands in a note, in bytes; of the other tools only the names.
const MOST_SHOWN: usize = 16 * 1024;
/// So many names stand in a note.
const MOST_NAMES: usize = 60;

impl SessionState {
    /// Admits a note, if the tools that `agent` can call are not those of which `model` knows.
    pub(super) async fn tell_changed_tools(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        agent: &str,
        model: &ModelRef,
    ) -> Result<(), ActorProcessingErr> {
        let revision = self.shared.tools.revision();
        if self.told_tools == revision {
            return Ok(());
        }
        self.told_tools = revision;
        let Some((text, noted)) = self.changed_tools(agent, model) else { return Ok(()) };
        let marks = TextMarks { synthetic: true, metadata: noted, ..TextMarks::default() };
        let message = self.ids.next();
        let part = Part::Text { id: self.ids.next(), text, marks: Some(Box::new(marks)), opaque: None };
        let prompt = PromptAdmitted::new(message, vec![part], agent, model.clone(), PromptKind::Note);
        let note = NewPrompt { prompt, when_busy: WhenBusy::Steer };
        // Nobody waits for the answer.
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        Box::pin(self.feed(myself, Input::Prompt(ticket, note))).await
    }

    /// What changed, for the model, and what is to be kept with that.
    fn changed_tools(&self, agent: &str, model: &ModelRef) -> Option<(String, Map<String, Value>)> {
        let session = self.machine.session();
        let (at, shown) = session.outside_tools(agent, model)?;
        // Those are found by a search.
        if shown.iter().any(|name| name == MCP_SEARCH) {
            return None;
        }
        let handed = session.turn.as_ref().and_then(|turn| turn.handed.as_ref());
        let catalogue = self.catalogue();
        let handed = handed.and_then(|handed| self.judge.handed(&handed.mandates, &catalogue));
        let now = callable(&catalogue, self.shared.tools.native(), &self.judge, agent, handed.as_deref());
        let waiting = session.queue.iter().rev().find_map(|queued| noted(&queued.prompt.parts, at));
        let known = waiting.or_else(|| told(&session.messages, at)).unwrap_or_else(|| shown.to_vec());
        let come: Vec<&ToolSpec> = now.iter().filter(|spec| !known.contains(&spec.name)).copied().collect();
        let gone = known.iter().filter(|name| !now.iter().any(|spec| spec.name == **name));
        let gone: Vec<&str> = gone.map(String::as_str).collect();
        if come.is_empty() && gone.is_empty() {
            return None;
        }
        let mut text = "The tools have changed; this is not a message of the user.".to_owned();
        if !come.is_empty() {
            text.push_str("\nNew, and callable by name although they do not stand in the list of tools:");
            describe(&come, &mut text);
        }
        if !gone.is_empty() {
            text.push_str(&format!("\nGone, calls of them fail: {}", listed(&gone)));
        }
        let now: Vec<&str> = now.iter().map(|spec| spec.name.as_str()).collect();
        let noted = json!({"of": at.0, "callable": now});
        Some((text, Map::from_iter([(NOTED.to_owned(), noted)])))
    }
}

/// Says what `tools` do and take, as far as there is room.
fn describe(tools: &[&ToolSpec], text: &mut String) {
    let end = text.len() + MOST_SHOWN;
    let mut named = Vec::new();
    for ToolSpec { name, description, parameters } in tools {
        let entry = format!("\n- {name}: {}\n  Arguments, as JSON Schema: {parameters}", description.trim());
        if text.len() + entry.len() <= end {
            text.push_str(&entry);
        } else {
            named.push(name.as_str());
        }
    }
    if !named.is_empty() {
        text.push_str(&format!("\n- {}", listed(&named)));
    }
}

fn listed(names: &[&str]) -> String {
    let shown = names.iter().take(MOST_NAMES).copied().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(MOST_NAMES) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} others"),
    }
}

/// The tools that the last note left callable, of those about the list that was settled at this place.
fn told(messages: &[Message], at: Seq) -> Option<Vec<String>> {
    messages.iter().rev().find_map(|message| match message {
        Message::User(message) => noted(&message.parts, at),
        Message::Assistant(_) => None,
    })
}

fn noted(parts: &[Part], at: Seq) -> Option<Vec<String>> {
    parts.iter().find_map(|part| match part {
        Part::Text { marks: Some(marks), .. } => {
            let noted = marks.metadata.get(NOTED).filter(|noted| noted["of"] == at.0)?;
            serde_json::from_value(noted["callable"].clone()).ok()
        }
        _ => None,
    })
}

//! Reading a session as it stands: as a whole without its messages, and its messages in pages.

use std::ops::Range;

use playhouse_protocol::command::{MessagePage, MessagesQuery, Snapshot};
use playhouse_protocol::{Message, MessageId};

use super::Session;

/// Messages of a page that names no limit.
const USUAL_PAGE: usize = 50;

impl Session {
    /// The session as it stands, without its messages. The walls around its programs are not known here.
    pub fn outline(&self) -> Snapshot {
        Snapshot {
            summary: self.summary.clone(),
            messages: Vec::new(),
            todos: self.todos.clone(),
            questions: self.open_questions(),
            consents: self.open_consents(),
            walls: None,
            damage: None,
        }
    }

    /// A page of the messages, those that wait at the end.
    ///
    /// # Errors
    /// A message that is named and that there is not.
    pub fn page(&self, query: &MessagesQuery) -> Result<MessagePage, String> {
        let end = self.messages.len() + self.withdrawn.len() + self.queue.len();
        let range = self.range(query, end)?;
        let messages: Vec<Message> = range.clone().map(|index| self.message_at(index)).collect();
        Ok(MessagePage {
            before: messages.first().filter(|_| range.start > 0).map(Message::id),
            after: messages.last().filter(|_| range.end < end).map(Message::id),
            messages,
            damage: None,
        })
    }

    fn range(&self, query: &MessagesQuery, end: usize) -> Result<Range<usize>, String> {
        let limit = if query.limit == 0 { USUAL_PAGE } else { query.limit as usize };
        let after = query.after.map(|after| self.place_of(after)).transpose()?;
        let before = query.before.map(|before| self.place_of(before)).transpose()?;
        let (from, to) = (after.map_or(0, |after| after + 1), before.unwrap_or(end));
        let to = to.max(from);
        Ok(match after {
            Some(_) => from..to.min(from + limit),
            None => from.max(to.saturating_sub(limit))..to,
        })
    }

    /// The place of a message, looked for in the newest first.
    fn place_of(&self, id: MessageId) -> Result<usize, String> {
        let waiting = self.waiting_ids().position(|waiting| waiting == id);
        let place = match waiting {
            Some(index) => Some(self.messages.len() + index),
            None => self.messages.iter().rposition(|message| message.id() == id),
        };
        place.ok_or_else(|| format!("there is no message {id} in this session"))
    }

    fn message_at(&self, index: usize) -> Message {
        match index.checked_sub(self.messages.len()) {
            None => self.messages[index].clone(),
            Some(waiting) => self.waiting_at(waiting),
        }
    }
}

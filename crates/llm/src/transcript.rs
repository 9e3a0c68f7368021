//! A conversation, kept as the bytes of a request.

use bytes::Bytes;
use playhouse_protocol::chat::ChatMessage;
use playhouse_protocol::message::BlobRef;

use crate::call_ids::CallIds;
use crate::dialect::{Context, Dialect, DialectKind, Wire};
use crate::head::{Head, Reminder, ToolChoice};

/// How many of the last user-side messages carry a cache marker: the newest, so that the next request can read what this
/// one writes, and the one before it, which the last request wrote.
const MARKED_MESSAGES: usize = 2;

/// A conversation serialized in one dialect.
///
/// Each message is serialized once, when it is pushed. A request is a copy of what is there, between a head that never
/// changes and a tail: so requests only grow at the end of the message list, cache markers aside.
#[derive(Clone)]
pub struct Transcript {
    /// Its wire format.
    dialect: &'static dyn Dialect,
    /// Whether the head has tools.
    tools: bool,
    /// Everything before the first message.
    head: Wire,
    /// The messages with commas between them, and the marks of the last user-side ones.
    messages: Wire,
    /// Messages pushed, also those that had nothing to send.
    pushed: usize,
    /// The ids of the calls so far.
    ids: CallIds,
}

impl std::fmt::Debug for Transcript {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transcript")
            .field("messages", &self.pushed)
            .field("bytes", &self.messages.bytes.len())
            .finish()
    }
}

impl Transcript {
    /// An empty conversation under `head`.
    pub fn new(dialect: DialectKind, head: &Head) -> Self {
        let dialect = dialect.dialect();
        let mut wire = Wire::default();
        dialect.write_head(head, &mut wire);
        Self {
            dialect,
            tools: !head.tools.is_empty(),
            head: wire,
            messages: Wire::default(),
            pushed: 0,
            ids: CallIds::new(dialect.call_id_limit()),
        }
    }

    /// Adds a message. `blobs` loads the content of attachments; what it cannot load, and what the dialect cannot carry,
    /// becomes a note. A message that has nothing to send is counted and left out.
    pub fn push(&mut self, message: &ChatMessage, blobs: &dyn Fn(&BlobRef) -> Option<Bytes>) {
        self.pushed += 1;
        let before = self.messages.bytes.len();
        if before > 0 || !self.head.bytes.ends_with(b"[") {
            self.messages.bytes.push(b',');
        }
        let content = self.messages.bytes.len();
        let mut context = Context { ids: &mut self.ids, blobs };
        self.dialect.write_message(message, &mut context, &mut self.messages);
        if self.messages.bytes.len() == content {
            self.messages.bytes.truncate(before);
        }
        let surplus = self.messages.marks.len().saturating_sub(MARKED_MESSAGES);
        self.messages.marks.drain(..surplus);
    }

    /// How many messages were pushed.
    pub fn len(&self) -> usize {
        self.pushed
    }

    /// Whether no message was pushed.
    pub fn is_empty(&self) -> bool {
        self.pushed == 0
    }

    /// The size of the next request without markers and reminder, in bytes (nearly).
    pub fn size(&self) -> usize {
        self.head.bytes.len() + self.messages.bytes.len()
    }

    /// The body of a request for the next answer.
    pub fn request(&self, tool_choice: ToolChoice, reminder: Option<&Reminder>) -> Bytes {
        let mut extra = Vec::new();
        if let Some(reminder) = reminder {
            self.dialect.write_reminder(reminder, &mut extra);
        }
        let tail = self.dialect.tail(tool_choice, self.tools);
        let marker = self.dialect.cache_marker();
        let marks = self.head.marks.len() + self.messages.marks.len();
        let mut body = Vec::with_capacity(self.size() + marks * marker.len() + extra.len() + 1 + tail.len());
        copy_with_markers(&self.head, marker, &mut body);
        copy_with_markers(&self.messages, marker, &mut body);
        if !extra.is_empty() {
            if !body.ends_with(b"[") {
                body.push(b',');
            }
            body.extend_from_slice(&extra);
        }
        body.extend_from_slice(tail.as_bytes());
        body.into()
    }
}

fn copy_with_markers(wire: &Wire, marker: &str, body: &mut Vec<u8>) {
    let mut from = 0;
    for &mark in &wire.marks {
        body.extend_from_slice(&wire.bytes[from..mark]);
        body.extend_from_slice(marker.as_bytes());
        from = mark;
    }
    body.extend_from_slice(&wire.bytes[from..]);
}

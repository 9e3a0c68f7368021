//! A conversation, kept as the bytes of a request.

use std::cell::Cell;

use bytes::{Bytes, BytesMut};
use playhouse_protocol::capability::Modalities;
use playhouse_protocol::chat::ChatMessage;
use playhouse_protocol::message::BlobRef;

use crate::adjust::Parameter;
use crate::call_ids::CallIds;
use crate::dialect::{Context, Dialect, DialectKind, Wire};
use crate::head::{ChatFacts, Head, ToolChoice};

/// How many of the last user-side messages carry a cache marker: the newest, so that the next request can read what this
/// one writes, and the one before it, which the last request wrote.
const MARKED_MESSAGES: usize = 2;

/// The most that the files of a conversation have in all, in bytes. Each is sent with every request, in base64, and providers
/// refuse requests of more than 20 MB or so: then every later one too. The first ones stay and later ones are left out,
/// since what was sent must not change.
pub(crate) const MAX_FILE_BYTES: u64 = 12_000_000;

/// What a head has beside system prompt and tools, and the first messages behind it, in bytes: most have no more.
const ROOM: usize = 1_024;

/// A conversation serialized in one dialect.
///
/// Each message is serialized once, when it is pushed, after a head that never changes: so requests only grow at the end
/// of the message list, cache markers aside. A request goes on in the buffer of the last one, if nobody holds that any
/// more: a step costs what is new, however long the history is.
#[derive(Clone)]
pub struct Transcript {
    /// Its wire format.
    dialect: &'static dyn Dialect,
    /// The model that reads it.
    model: String,
    /// What it reads beside text.
    modalities: Modalities,
    /// What its server takes, if it is one of Chat Completions.
    chat: ChatFacts,
    /// Whether the last message is the results of calls.
    after_results: bool,
    /// Whether a request can say that no tool may be called.
    tools: bool,
    /// What is spliced in at marks.
    marker: &'static str,
    /// The last request. What comes after `settled` in it was its own.
    buffer: Bytes,
    /// How many bytes of `buffer` every later request begins with: the head, and messages up to the first mark that still
    /// counts.
    settled: usize,
    /// What follows, with the marks of the last user-side messages.
    recent: Wire,
    /// Messages pushed, also those that had nothing to send.
    pushed: usize,
    /// The ids of the calls so far.
    ids: CallIds,
    /// How many bytes of files may still come.
    file_room: u64,
}

impl std::fmt::Debug for Transcript {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transcript").field("messages", &self.pushed).field("bytes", &self.size()).finish()
    }
}

impl Transcript {
    /// An empty conversation under `head`.
    pub fn new(dialect: DialectKind, head: &Head) -> Self {
        let dialect = dialect.dialect();
        let marked = !head.adjustments.omits(Parameter::CacheControl);
        let marker = if marked { dialect.cache_marker() } else { "" };
        // Thousands of conversations may begin at once: what is about as long as it will be need not move again and again.
        let tools = usize::try_from(head.tools.bytes()).unwrap_or(0);
        let room = head.system.len() + head.system.len() / 8 + tools + tools / 8 + ROOM;
        let mut bytes = Vec::with_capacity(room);
        dialect.write_head(head, &mut bytes);
        Self {
            dialect,
            model: head.model.clone(),
            modalities: head.modalities,
            chat: head.chat,
            after_results: false,
            tools: !head.tools.is_empty() && !head.adjustments.omits(Parameter::ToolChoice),
            marker,
            settled: bytes.len(),
            buffer: bytes.into(),
            recent: Wire::default(),
            pushed: 0,
            ids: CallIds::new(dialect.call_id_form(head)),
            file_room: MAX_FILE_BYTES,
        }
    }

    /// Adds a message. `blobs` loads the content of attachments; what it cannot load, what the dialect cannot carry, and files
    /// beyond 12 MB in all become notes. A message that has nothing to send is counted and left out.
    pub fn push(&mut self, message: &ChatMessage, blobs: &dyn Fn(&BlobRef) -> Option<Bytes>) {
        self.pushed += 1;
        let before = self.recent.bytes.len();
        if before > 0 || !self.buffer[..self.settled].ends_with(b"[") {
            self.recent.bytes.push(b',');
        }
        let content = self.recent.bytes.len();
        let mut context = Context {
            model: &self.model,
            modalities: self.modalities,
            chat: self.chat,
            after_results: &mut self.after_results,
            ids: &mut self.ids,
            blobs,
            file_room: Cell::new(self.file_room),
        };
        self.dialect.write_message(message, &mut context, &mut self.recent);
        let file_room = context.file_room.get();
        self.file_room = file_room;
        if self.recent.bytes.len() == content {
            self.recent.bytes.truncate(before);
        }
        let surplus = self.recent.marks.len().saturating_sub(MARKED_MESSAGES);
        self.recent.marks.drain(..surplus);
    }

    /// How many messages were pushed.
    pub fn len(&self) -> usize {
        self.pushed
    }

    /// Whether no message was pushed.
    pub fn is_empty(&self) -> bool {
        self.pushed == 0
    }

    /// The size of the next request without markers, in bytes (nearly).
    pub fn size(&self) -> usize {
        self.settled + self.recent.bytes.len()
    }

    /// The body of a request for the next answer. Where the bodies of earlier requests are all dropped, this costs as much
    /// as what was pushed since the last one; else the whole conversation is copied once.
    pub fn request(&mut self, tool_choice: ToolChoice) -> Bytes {
        let mut body = self.settle();
        copy_with_markers(&self.recent, self.marker, &mut body);
        body.extend_from_slice(self.dialect.tail(tool_choice, self.tools).as_bytes());
        self.buffer = body.freeze();
        self.buffer.clone()
    }

    /// Takes the buffer, with what all later requests begin with and nothing else.
    fn settle(&mut self) -> BytesMut {
        let mut body = match std::mem::take(&mut self.buffer).try_into_mut() {
            Ok(mut body) => {
                body.truncate(self.settled);
                body
            }
            Err(held) => BytesMut::from(&held[..self.settled]),
        };
        let until = self.recent.marks.first().copied().unwrap_or(self.recent.bytes.len());
        body.extend_from_slice(&self.recent.bytes[..until]);
        self.recent.bytes.drain(..until);
        self.recent.marks.iter_mut().for_each(|mark| *mark -= until);
        self.settled = body.len();
        body
    }
}

fn copy_with_markers(wire: &Wire, marker: &str, body: &mut BytesMut) {
    let mut from = 0;
    for &mark in &wire.marks {
        body.extend_from_slice(&wire.bytes[from..mark]);
        body.extend_from_slice(marker.as_bytes());
        from = mark;
    }
    body.extend_from_slice(&wire.bytes[from..]);
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::chat::UserPart;
    use playhouse_protocol::message::Attachment;

    use super::*;

    fn transcript(dialect: DialectKind) -> Transcript {
        let mut transcript = Transcript::new(dialect, &Head::default());
        for _ in 0..100 {
            push(&mut transcript);
        }
        transcript
    }

    fn push(transcript: &mut Transcript) {
        let parts = vec![UserPart::Text { text: "hello".into() }];
        transcript.push(&ChatMessage::User { parts }, &|_| None);
    }

    #[test]
    fn a_request_goes_on_in_the_buffer_of_the_last_one() {
        for dialect in [DialectKind::Anthropic, DialectKind::OpenaiChat] {
            let mut transcript = transcript(dialect);
            drop(transcript.request(ToolChoice::Auto));
            // Room for what is added here, so that the buffer need not move.
            let settled = transcript.settle();
            let (place, room) = (settled.as_ptr(), settled.capacity());
            transcript.buffer = settled.freeze();
            push(&mut transcript);
            let next = transcript.request(ToolChoice::Auto);
            assert!(next.len() <= room, "the test needs room for the next request");
            assert_eq!(next.as_ptr(), place);
        }
    }

    #[test]
    #[ignore = "slow: scripts/slow runs it"]
    fn files_beyond_what_a_request_carries_become_notes_and_those_before_stay() {
        let file = |size: u64| {
            let blob = BlobRef { hash: format!("{size}"), size };
            UserPart::File(Attachment::new("image/png", format!("{size}.png"), blob))
        };
        let load = |blob: &BlobRef| Some(Bytes::from(vec![b'x'; usize::try_from(blob.size).unwrap()]));
        for dialect in [
            DialectKind::Anthropic,
            DialectKind::OpenaiChat,
            DialectKind::OpenaiResponses,
            DialectKind::Gemini,
        ] {
            let modalities = Modalities { image: true, pdf: true };
            let mut transcript = Transcript::new(dialect, &Head { modalities, ..Head::default() });
            for size in [5_000_000, 4_999_999, 4_999_998, 4_999_997, 100] {
                transcript.push(&ChatMessage::User { parts: vec![file(size)] }, &load);
            }
            let body = transcript.request(ToolChoice::Auto);
            assert!(body.len() < 16_000_000, "{dialect:?}: {}", body.len());
            let body = std::str::from_utf8(&body).unwrap();
            let left_out =
                |size: u64| body.contains(&format!("{size}.png\\\" (image/png, {size} bytes) is not shown"));
            let left_out: Vec<bool> =
                [5_000_000, 4_999_999, 4_999_998, 4_999_997, 100].into_iter().map(left_out).collect();
            assert_eq!(left_out, [false, false, true, true, false], "{dialect:?}");
        }
    }

    #[test]
    fn a_request_that_is_held_stays_as_it_is() {
        for dialect in [DialectKind::Anthropic, DialectKind::OpenaiChat] {
            let mut transcript = transcript(dialect);
            let held = transcript.request(ToolChoice::None);
            let copy = held.to_vec();
            push(&mut transcript);
            let next = transcript.request(ToolChoice::Auto);
            assert_eq!(held, copy);
            drop(held);
            let mut fresh = super::tests::transcript(dialect);
            push(&mut fresh);
            assert_eq!(next, fresh.request(ToolChoice::Auto));
        }
    }
}

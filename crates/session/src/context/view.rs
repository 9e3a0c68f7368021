//! The conversation that is sent: the history without what is left out of it.

use std::ops::Range;

use playhouse_protocol::chat::{ChatMessage, UserPart};
use playhouse_protocol::id::PartId;
use playhouse_protocol::message::{Attachment, CallResult};
use playhouse_protocol::{ModelRef, Seq};

use super::{Context, LINE_BYTES, Shown, texts};
use crate::chat::{self, Thoughts};
use crate::fold::Session;

impl Context {
    /// What is read of a result.
    pub(crate) fn output(
        &self,
        reader: &ModelRef,
        call: PartId,
        result: &CallResult,
    ) -> (String, Vec<Attachment>) {
        let (mut output, attachments) = self.output_as_shown(call, result);
        if !self.is_refused(reader, call) {
            return (output, attachments);
        }
        for file in attachments {
            output.extend(["\n", &texts::refused(&file)]);
        }
        (output, Vec::new())
    }

    fn output_as_shown(&self, call: PartId, result: &CallResult) -> (String, Vec<Attachment>) {
        let whole = || result.output.clone();
        match self.shown(call) {
            Shown::Whole => (whole(), result.attachments.clone()),
            Shown::Beginning(bytes) if (result.output.len() as u64) <= bytes + LINE_BYTES => {
                (whole(), result.attachments.clone())
            }
            Shown::Beginning(bytes) => (texts::shortened(&result.output, bytes), result.attachments.clone()),
            // One that is shorter than the line stays.
            Shown::Line if (result.output.len() as u64) <= LINE_BYTES => (whole(), Vec::new()),
            Shown::Line => (texts::cleared(result.output.len()), Vec::new()),
        }
    }
}

impl Session {
    /// Adds to `out` what `reader` reads of these messages. From 0 on that begins with what stands for the messages that
    /// are left out, if there are any; a range that begins later must begin where another one ended, of the same
    /// [`Session::context_revision`].
    pub fn read(&self, range: Range<usize>, reader: &ModelRef, out: &mut Vec<ChatMessage>) {
        let mut begins = range.start;
        if let Some(compacted) = self.context.compacted.as_ref().filter(|_| range.start == 0) {
            self.read_one(compacted.first, reader, out);
            let parts = vec![UserPart::Text { text: compacted.text.clone() }];
            out.push(ChatMessage::User { parts });
            self.read_one(compacted.prompt, reader, out);
            begins = compacted.from;
        }
        let rest = self.messages.get(begins..range.end).unwrap_or_default();
        for (place, message) in (begins..).zip(rest) {
            // A range that goes on behind another one begins with a message that the other one led up to.
            if (range.start == 0 || place > range.start) && self.context.is_reminded(message.id()) {
                chat::remind(out);
            }
            chat::translate_in(message, reader, &self.context, self.context.thoughts(place), out);
        }
        let next = self.messages.get(range.end).filter(|_| !rest.is_empty());
        if next.is_some_and(|next| self.context.is_reminded(next.id())) {
            chat::remind(out);
        }
    }

    fn read_one(&self, place: Option<usize>, reader: &ModelRef, out: &mut Vec<ChatMessage>) {
        if let Some(message) = place.and_then(|place| self.messages.get(place)) {
            chat::translate_in(message, reader, &self.context, Thoughts::Stale, out);
        }
    }

    /// The record that changed last what models read of the messages before it: what was read of another one does not go on.
    pub fn context_revision(&self) -> Seq {
        self.context.revision
    }
}

//! How much a message adds to a request.

use playhouse_protocol::message::{
    AssistantMessage, CallInput, CallState, FinishReason, Message, Part, UserMessage,
};

use crate::context::Context;

/// What a file counts as that is no text: about what an image costs.
pub(crate) const FILE_BYTES: u64 = 6_000;

impl Context {
    /// Bytes that a message adds to a request, roughly.
    pub(crate) fn bytes_of(&self, message: &Message) -> u64 {
        match message {
            Message::User(message) => user_bytes(message),
            Message::Assistant(message) => {
                let results = message.parts.iter().map(|part| match part {
                    Part::Call(call) => match &call.state {
                        CallState::Settled(result) => self.result_bytes(call.id, result),
                        CallState::Pending | CallState::Asking | CallState::Running { .. } => 0,
                    },
                    _ => 0,
                });
                answer_bytes(message) + results.sum::<u64>()
            }
        }
    }
}

pub(super) fn user_bytes(message: &UserMessage) -> u64 {
    if message.withdrawn || message.kind.is_compaction() {
        return 0;
    }
    let system = message.system.as_ref().map_or(0, String::len) as u64;
    message.parts.iter().map(part_bytes).sum::<u64>() + system
}

/// The bytes of an answer, without the results of its calls: 0 while it is not complete. Of one that failed, only the
/// reasoning that can go back counts.
pub(super) fn answer_bytes(message: &AssistantMessage) -> u64 {
    match message.finish {
        None => 0,
        Some(FinishReason::Failed) => {
            let is_proof = |part: &&Part| matches!(part, Part::Reasoning { opaque: Some(_), .. });
            message.parts.iter().filter(is_proof).map(part_bytes).sum()
        }
        Some(_) => message.parts.iter().map(part_bytes).sum(),
    }
}

/// Bytes that a part adds to a request, roughly.
fn part_bytes(part: &Part) -> u64 {
    let bytes = match part {
        Part::Text { .. } => part.told().map_or(0, str::len),
        Part::Reasoning { text, .. } => text.len(),
        Part::File { file, .. } if file.is_text() => return file.blob.size.max(200),
        Part::File { .. } => return FILE_BYTES,
        Part::Call(call) => match &call.input {
            CallInput::Object(object) => {
                call.tool.len()
                    + object.iter().map(|(key, value)| key.len() + value_bytes(value)).sum::<usize>()
            }
            CallInput::Malformed(text) => text.len(),
        },
    };
    bytes as u64
}

fn value_bytes(value: &serde_json::Value) -> usize {
    use serde_json::Value;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 5,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(value_bytes).sum::<usize>() + 2,
        Value::Object(object) => {
            object.iter().map(|(key, value)| key.len() + 3 + value_bytes(value)).sum::<usize>() + 2
        }
    }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::message::{Attachment, BlobRef};

    use super::*;

    #[test]
    fn a_text_counts_as_long_as_it_is_and_no_less_than_its_frame() {
        let bytes = |mime: &str, size| {
            let blob = BlobRef { hash: "0".repeat(64), size };
            let file = Attachment::new(mime, "name", blob);
            part_bytes(&Part::File {
                id: playhouse_protocol::PartId::parse("prt_00000000000012345678901234").unwrap(),
                file,
            })
        };
        assert_eq!([0, 199, 201, 50_000].map(|size| bytes("text/plain", size)), [200, 200, 201, 50_000]);
        assert_eq!([0, 50_000].map(|size| bytes("image/png", size)), [FILE_BYTES; 2]);
    }
}

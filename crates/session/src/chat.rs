//! The history as a model reads it.

use playhouse_protocol::ModelRef;
use playhouse_protocol::chat::{AssistantPart, ChatMessage, ResultPart, UserPart};
use playhouse_protocol::message::{
    AssistantMessage, CallInput, CallOutcome, CallPart, CallState, FinishReason, Message, Part, UserMessage,
};
use serde_json::Map;

/// Adds what a model reads of `message` to `out`: nothing, one message, or an answer and the results of its calls.
///
/// The translation of a message does not depend on the others, so that a conversation only grows. The message must be
/// complete: all its calls have their results. What one model gave to be sent back unchanged is for that model only: a
/// `reader` that is another one is not shown it.
pub fn translate(message: &Message, reader: &ModelRef, out: &mut Vec<ChatMessage>) {
    match message {
        Message::User(message) => translate_user(message, out),
        Message::Assistant(message) => translate_assistant(message, message.model == *reader, out),
    }
}

fn translate_user(message: &UserMessage, out: &mut Vec<ChatMessage>) {
    if message.withdrawn {
        return;
    }
    let parts: Vec<UserPart> = message
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::Text { text, .. } if text.is_empty() => None,
            Part::Text { text, .. } => Some(UserPart::Text { text: text.clone() }),
            Part::File { file, .. } => Some(UserPart::File(file.clone())),
            Part::Reasoning { .. } | Part::Call(_) => None,
        })
        .collect();
    if !parts.is_empty() {
        out.push(ChatMessage::User { parts });
    }
}

fn translate_assistant(message: &AssistantMessage, own: bool, out: &mut Vec<ChatMessage>) {
    // What a failed answer had said is shown to people; for a model it would be an answer, and as long as it came.
    if message.finish == Some(FinishReason::Failed) {
        return;
    }
    let parts: Vec<AssistantPart> =
        message.parts.iter().filter_map(|part| assistant_part(part, own)).collect();
    let says_something = parts.iter().any(|part| !matches!(part, AssistantPart::Reasoning { .. }));
    if !says_something {
        return;
    }
    out.push(ChatMessage::Assistant { parts });
    let calls = message.parts.iter().filter_map(|part| match part {
        Part::Call(call) => Some(result_part(call)),
        _ => None,
    });
    let results: Vec<ResultPart> = calls.collect();
    if !results.is_empty() {
        out.push(ChatMessage::Results { results });
    }
}

fn assistant_part(part: &Part, own: bool) -> Option<AssistantPart> {
    match part {
        Part::Text { text, .. } if text.trim().is_empty() => None,
        Part::Text { text, .. } => Some(AssistantPart::Text { text: text.clone() }),
        Part::Reasoning { .. } if !own => None,
        Part::Reasoning { text, opaque, .. } => {
            Some(AssistantPart::Reasoning { text: text.clone(), opaque: opaque.clone() })
        }
        Part::Call(call) => Some(AssistantPart::Call {
            id: call.call_id.clone(),
            name: call.tool.clone(),
            input: match &call.input {
                CallInput::Object(object) => object.clone(),
                // What is no object cannot be sent back as one; the result quotes it.
                CallInput::Malformed(_) => Map::new(),
            },
        }),
        Part::File { .. } => None,
    }
}

fn result_part(call: &CallPart) -> ResultPart {
    let (output, ok, attachments) = match &call.state {
        CallState::Settled(result) => {
            (result.output.clone(), result.outcome == CallOutcome::Done, result.attachments.clone())
        }
        // Not reached for complete messages. A model must see a result all the same.
        CallState::Pending | CallState::Asking | CallState::Running { .. } => {
            ("no result: the call was not finished".to_owned(), false, Vec::new())
        }
    };
    ResultPart { id: call.call_id.clone(), name: call.tool.clone(), output, ok, attachments }
}

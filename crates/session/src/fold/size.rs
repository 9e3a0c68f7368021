//! How much a message adds to a request.

use playhouse_protocol::message::{CallInput, Part};

/// What a file counts as: about what an image costs.
pub(super) const FILE_BYTES: u64 = 6_000;

/// Bytes that a part adds to a request, roughly.
pub(super) fn part_bytes(part: &Part) -> u64 {
    let bytes = match part {
        Part::Text { text, .. } | Part::Reasoning { text, .. } => text.len(),
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

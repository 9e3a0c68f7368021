//! What a call is about, in one short line.

use playhouse_protocol::message::CallInput;
use serde_json::Value;

/// The longest line, in characters.
const LONGEST: usize = 100;

/// What a call is said to do, where it says so, as in the title of its result.
pub fn title(input: &CallInput) -> String {
    let described = match input {
        CallInput::Object(object) => object.get("description").and_then(Value::as_str),
        CallInput::Malformed(_) => None,
    };
    match described.map(str::trim).filter(|text| !text.is_empty()) {
        Some(text) => first_line(text),
        None => argument(input),
    }
}

/// The argument that tells most about a call.
pub fn argument(input: &CallInput) -> String {
    let CallInput::Object(object) = input else { return String::new() };
    let known = ["command", "filePath", "pattern", "path"].iter().find_map(|key| object.get(*key));
    let value = known.or_else(|| object.values().find(|value| value.is_string()));
    let text = value.and_then(Value::as_str).unwrap_or_default();
    first_line(text)
}

/// The first line of a text; what is left out is marked.
///
/// ```
/// assert_eq!(playhouse_session::about::first_line("one\ntwo"), "one…");
/// ```
pub fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(LONGEST).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

//! The nearest call that is right: what was given, with names and types as the schema has them.
//!
//! It is only shown to the model, never made, so it may guess more than [`fit`](super::fit) may change.

use serde_json::{Map, Value};

use super::schema::{allowed, required};
use crate::names::nearest;

/// Characters of a text that are shown whole.
const TEXT: usize = 200;

/// Bytes of a call that is shown.
const LONGEST: usize = 2_000;

/// Names that other tools use for the same arguments.
const SAME_NAMES: [&[&str]; 4] = [
    &["tool", "name", "tool_name", "function"],
    &["parameters", "arguments", "args", "params", "input"],
    &["content", "text", "todo", "task"],
    &["status", "state"],
];

/// Words that stand for one of those that are taken.
const SAME_WORDS: [(&str, &[&str]); 7] = [
    ("end", &["kill", "stop", "terminate", "close"]),
    ("list", &["ls", "show"]),
    ("read", &["output", "get", "poll", "logs"]),
    ("write", &["send", "input", "type"]),
    ("completed", &["done", "finished", "closed"]),
    ("in_progress", &["doing", "active", "started", "running"]),
    ("pending", &["todo", "open", "waiting"]),
];

/// What `given` was probably meant to be. Whether it fits has to be checked.
pub(super) fn mended(given: &Value, schema: &Value) -> Value {
    let mut value = typed(given, schema);
    match &mut value {
        Value::Object(object) if schema.get("properties").is_some() => *object = named(object, schema),
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                items.iter_mut().for_each(|item| *item = mended(item, schema));
            }
        }
        _ => {}
    }
    within_range(&mut value, schema);
    one_of(&mut value, schema);
    value
}

/// The call as it is shown: `read {"filePath": "a"}`. `None` where it would be too long to be of use.
pub(super) fn shown(tool: &str, mut call: Value) -> Option<String> {
    shorten(&mut call);
    let text = call.to_string();
    (text.len() <= LONGEST).then(|| format!("{tool} {text}"))
}

/// An object whose properties have the names of the schema.
fn named(given: &Map<String, Value>, schema: &Value) -> Map<String, Value> {
    let empty = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    let mut right: Map<String, Value> = given
        .iter()
        .filter(|(name, value)| properties.contains_key(*name) && !value.is_null())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let mut strange: Vec<(&String, &Value)> =
        given.iter().filter(|(name, _)| !properties.contains_key(*name)).collect();
    strange.retain(|(name, value)| {
        let free = properties.keys().map(String::as_str).filter(|known| !right.contains_key(*known));
        let meant = same_name(name, free.clone()).or_else(|| nearest(name, free).first().copied());
        let meant = meant.map(str::to_owned);
        let found = meant.is_some();
        right.extend(meant.map(|known| (known, (*value).clone())));
        !found
    });
    // One that is missing, and one that nobody knows, are the same one.
    let missing: Vec<&str> = required(schema).into_iter().filter(|name| !right.contains_key(*name)).collect();
    if let ([missing], [(_, value)]) = (missing.as_slice(), strange.as_slice()) {
        right.insert((*missing).to_owned(), (*value).clone());
    }
    for (name, value) in &mut right {
        if let Some(schema) = properties.get(name) {
            *value = mended(value, schema);
        }
    }
    right
}

/// The one of `known` that is the same argument under another name.
fn same_name<'a>(name: &str, mut known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let same = SAME_NAMES.iter().find(|names| names.contains(&name))?;
    known.find(|known| same.contains(known))
}

/// A value of the type that the schema asks for, where it can be read as one.
fn typed(given: &Value, schema: &Value) -> Value {
    let wanted = schema.get("type").and_then(Value::as_str);
    let mended = match (wanted, given) {
        (Some("string"), Value::Number(_) | Value::Bool(_)) => Some(Value::String(given.to_string())),
        (Some("string"), Value::Array(items)) => match items.as_slice() {
            [only @ Value::String(_)] => Some(only.clone()),
            lines if lines.iter().all(Value::is_string) => {
                let lines: Vec<&str> = lines.iter().filter_map(Value::as_str).collect();
                Some(Value::String(lines.join("\n")))
            }
            _ => None,
        },
        (Some("integer"), Value::Number(number)) => whole(number.as_f64()),
        (Some("integer"), Value::String(text)) => {
            whole(text.trim().parse().ok()).or_else(|| whole(duration(text, schema)))
        }
        (Some("boolean"), Value::Number(number)) => number.as_f64().map(|number| Value::Bool(number != 0.0)),
        (Some("boolean"), Value::String(text)) => match text.trim().to_lowercase().as_str() {
            "true" | "yes" => Some(Value::Bool(true)),
            "false" | "no" => Some(Value::Bool(false)),
            _ => None,
        },
        // Written as text once more, as models do with what is nested.
        (Some("array" | "object"), Value::String(text)) => {
            let read = serde_json::from_str::<Value>(text).ok().filter(|read| is(read, wanted));
            read.or_else(|| listed(wanted, given))
        }
        (Some("array"), _) if !given.is_array() && !given.is_null() => listed(wanted, given),
        (Some("object"), Value::Array(items)) => match items.as_slice() {
            [only @ Value::Object(_)] => Some(only.clone()),
            _ => None,
        },
        _ => None,
    };
    mended.unwrap_or_else(|| given.clone())
}

fn is(value: &Value, wanted: Option<&str>) -> bool {
    if wanted == Some("array") { value.is_array() } else { value.is_object() }
}

/// One thing where a list is wanted.
fn listed(wanted: Option<&str>, given: &Value) -> Option<Value> {
    (wanted == Some("array")).then(|| Value::Array(vec![given.clone()]))
}

/// The whole number nearest to it.
fn whole(number: Option<f64>) -> Option<Value> {
    let number = number.filter(|number| number.is_finite())?;
    format!("{number:.0}").parse::<i64>().ok().map(Value::from)
}

/// `5s`, `500 ms` or `2 min`, in the unit that the description of the argument names.
fn duration(text: &str, schema: &Value) -> Option<f64> {
    let text = text.trim();
    let unit = text.find(|character: char| character.is_ascii_alphabetic())?;
    let number: f64 = text[..unit].trim().parse().ok()?;
    let milliseconds = match text[unit..].to_lowercase().as_str() {
        "ms" | "millis" | "milliseconds" => 1.0,
        "s" | "sec" | "secs" | "second" | "seconds" => 1e3,
        "m" | "min" | "mins" | "minute" | "minutes" => 6e4,
        "h" | "hour" | "hours" => 3.6e6,
        _ => return None,
    };
    let description = schema.get("description").and_then(Value::as_str).unwrap_or_default().to_lowercase();
    match description {
        text if text.contains("millisecond") => Some(number * milliseconds),
        text if text.contains("second") => Some(number * milliseconds / 1e3),
        _ => None,
    }
}

/// Whether `call` has all lists that it needs, and something in them: an empty one means nothing.
pub(super) fn says_something(call: &Value, schema: &Value) -> bool {
    required(schema)
        .iter()
        .all(|name| call.get(name).and_then(Value::as_array).is_none_or(|list| !list.is_empty()))
}

fn within_range(value: &mut Value, schema: &Value) {
    let Some(number) = value.as_f64() else { return };
    let limit = |name| schema.get(name).filter(|limit| limit.is_number());
    for (limit, beyond) in [
        (limit("minimum"), (|number, limit| number < limit) as fn(f64, f64) -> bool),
        (limit("maximum"), |number, limit| number > limit),
    ] {
        if let Some(limit) = limit
            && limit.as_f64().is_some_and(|edge| beyond(number, edge))
        {
            *value = limit.clone();
        }
    }
}

fn one_of(value: &mut Value, schema: &Value) {
    let (Some(allowed), Some(given)) = (allowed(schema), value.as_str()) else { return };
    let known = allowed.iter().filter_map(|value| value.as_str());
    let plain = given.trim().to_lowercase();
    let same = SAME_WORDS.iter().find(|(_, others)| others.contains(&plain.as_str())).map(|(word, _)| *word);
    let same = same.filter(|same| known.clone().any(|known| known == *same));
    if let Some(meant) = same.or_else(|| nearest(given, known).first().copied()) {
        *value = Value::String(meant.to_owned());
    }
}

/// Long texts are known to who wrote them.
fn shorten(value: &mut Value) {
    match value {
        Value::String(text) => {
            let count = text.chars().count();
            if count > TEXT {
                let start: String = text.chars().take(TEXT / 4).collect();
                *text = format!("{start}… (and {} more characters)", count - TEXT / 4);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(shorten),
        Value::Object(object) => object.values_mut().for_each(shorten),
        _ => {}
    }
}

//! Fits arguments to a schema: changes what is meant well, and says of the rest what is wrong with it.

use serde_json::{Map, Number, Value};

use super::schema::{allowed, required};
use crate::names::nearest;

/// How much of a value that does not fit is shown, in characters.
const SHOWN: usize = 60;

/// Checks `value` against `schema` and mends it where that is safe. What the schema says in other words than those known
/// here is left to the type.
pub(super) fn fit(value: &mut Value, schema: &Value) -> Result<(), String> {
    fit_at(value, schema, "")
}

fn fit_at(value: &mut Value, schema: &Value, at: &str) -> Result<(), String> {
    if let Some(name) = schema.get("type").and_then(Value::as_str) {
        mend(value, name);
        if !is(value, name) {
            return Err(format!("{} must be {}, not {}", named(at), described(name), shown(value)));
        }
    }
    if let Some(allowed) = allowed(schema)
        && !allowed.contains(&&*value)
    {
        let words: Vec<_> = allowed.iter().map(ToString::to_string).collect();
        return Err(format!("{} must be one of {}, not {}", named(at), words.join(", "), shown(value)));
    }
    match value {
        Value::Object(object) => fit_object(object, schema, at),
        Value::Array(items) => fit_items(items, schema, at),
        Value::Number(number) => fit_range(number, schema, at),
        _ => Ok(()),
    }
}

fn fit_object(object: &mut Map<String, Value>, schema: &Value, at: &str) -> Result<(), String> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return Ok(()) };
    let required = required(schema);
    object.retain(|name, value| !value.is_null() || required.contains(&name.as_str()));
    if schema.get("additionalProperties") == Some(&Value::Bool(false))
        && let Some(unknown) = object.keys().find(|name| !properties.contains_key(*name))
    {
        let meant = nearest(unknown, properties.keys().map(String::as_str));
        let hint = meant.first().map_or(String::new(), |name| format!(", did you mean `{name}`?"));
        return Err(format!("there is no {}{hint}", named(&below(at, unknown))));
    }
    if let Some(missing) = required.iter().find(|name| !object.contains_key(**name)) {
        return Err(format!("{} is missing", named(&below(at, missing))));
    }
    for (name, value) in object {
        if let Some(schema) = properties.get(name) {
            fit_at(value, schema, &below(at, name))?;
        }
    }
    Ok(())
}

fn fit_items(items: &mut [Value], schema: &Value, at: &str) -> Result<(), String> {
    let Some(schema) = schema.get("items") else { return Ok(()) };
    items.iter_mut().enumerate().try_for_each(|(index, item)| fit_at(item, schema, &format!("{at}[{index}]")))
}

fn fit_range(number: &Number, schema: &Value, at: &str) -> Result<(), String> {
    let limit = |name| schema.get(name).and_then(Value::as_f64);
    let value = number.as_f64().unwrap_or(f64::NAN);
    match (limit("minimum"), limit("maximum")) {
        (Some(least), _) if value < least => {
            Err(format!("{} must be at least {least}, not {number}", named(at)))
        }
        (_, Some(most)) if value > most => Err(format!("{} must be at most {most}, not {number}", named(at))),
        _ => Ok(()),
    }
}

/// `"10"` for 10, `10.0` for 10 and `"true"` for true can mean nothing else.
fn mend(value: &mut Value, name: &str) {
    let mended = match (name, &*value) {
        ("integer" | "number", Value::String(text)) => {
            text.trim().parse::<Number>().ok().map(Value::Number).map(|mut number| {
                mend(&mut number, name);
                number
            })
        }
        ("integer", Value::Number(number)) if number.is_f64() => whole(number).map(Value::Number),
        ("boolean", Value::String(text)) => text.trim().parse().ok().map(Value::Bool),
        _ => None,
    };
    if let Some(mended) = mended {
        *value = mended;
    }
}

/// A number without a fraction, as an integer. Written out, since a cast would clip silently.
fn whole(number: &Number) -> Option<Number> {
    let value = number.as_f64()?;
    (value.fract() == 0.0).then(|| format!("{value:.0}").parse::<i64>().ok().map(Number::from))?
}

fn is(value: &Value, name: &str) -> bool {
    match name {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        _ => true,
    }
}

fn described(name: &str) -> &str {
    match name {
        "string" => "a text",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        "array" => "a list",
        "object" => "an object",
        name => name,
    }
}

fn named(at: &str) -> String {
    if at.is_empty() { "the whole".to_owned() } else { format!("`{at}`") }
}

fn below(at: &str, name: &str) -> String {
    if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") }
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

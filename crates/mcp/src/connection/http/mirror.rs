//! Arguments of tools that are sent as headers as well (2026-07-28): those whose schema names a header in `x-mcp-header`.

use std::collections::{HashMap, HashSet};

use playhouse_tools::web::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

use super::remote::header_text;
use crate::list::ListedTool;

/// What names a header in a schema.
const ANNOTATION: &str = "x-mcp-header";
/// What the names of these headers begin with.
const PREFIX: &str = "mcp-param-";
/// Number of headers of one tool, and the longest part of a name in an error, in bytes.
const MOST: usize = 64;
const SHOWN: usize = 80;
/// Keywords whose values are no schemas.
const DATA: [&str; 5] = ["const", "default", "dependentRequired", "enum", "examples"];
/// Keywords whose values are schemas by name.
const NAMED: [&str; 5] = ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties"];

/// An argument that is sent as a header as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mirrored {
    path: Vec<String>,
    header: HeaderName,
}

/// The arguments of a tool that are sent as headers as well.
///
/// # Errors
/// The schema names headers in a way that the protocol forbids: such a tool may not be called over HTTP.
pub(crate) fn mirrored(schema: &Value) -> Result<Vec<Mirrored>, String> {
    let mut found = Vec::new();
    if schema.get(ANNOTATION).is_some() {
        return Err(format!("its schema has `{ANNOTATION}` outside of a property"));
    }
    look(schema, &mut Some(Vec::new()), &mut found)?;
    let mut names = HashSet::new();
    match found.iter().find(|one| !names.insert(&one.header)) {
        Some(twice) => Err(format!("two of its arguments have the header \"{}\"", twice.header)),
        None if found.len() > MOST => Err(format!("more than {MOST} of its arguments are headers")),
        None => Ok(found),
    }
}

/// Looks at a schema. `path` leads to it from the root through properties alone; `None` if something else lies between.
fn look(schema: &Value, path: &mut Option<Vec<String>>, found: &mut Vec<Mirrored>) -> Result<(), String> {
    let Value::Object(keywords) = schema else {
        let items = schema.as_array().into_iter().flatten();
        return items.into_iter().try_for_each(|item| look(item, &mut None, found));
    };
    for (keyword, value) in keywords {
        match keyword.as_str() {
            ANNOTATION => found.push(annotated(path.as_deref(), value, schema)?),
            "properties" => {
                for (name, property) in value.as_object().into_iter().flatten() {
                    let mut below = path.clone();
                    below.iter_mut().for_each(|path| path.push(name.clone()));
                    look(property, &mut below, found)?;
                }
            }
            named if NAMED.contains(&named) => {
                let schemas = value.as_object().into_iter().flat_map(Map::values);
                schemas.into_iter().try_for_each(|schema| look(schema, &mut None, found))?;
            }
            data if DATA.contains(&data) => {}
            _ => look(value, &mut None, found)?,
        }
    }
    Ok(())
}

fn annotated(path: Option<&[String]>, name: &Value, schema: &Value) -> Result<Mirrored, String> {
    let Some(path) = path else {
        return Err(format!("its schema has `{ANNOTATION}` where no argument is"));
    };
    let argument: String = path.join(".").chars().take(SHOWN).collect();
    let wrong = |why: &str| Err(format!("its argument \"{}\" {why}", argument.escape_debug()));
    let Some(name) = name.as_str().filter(|name| !name.is_empty()) else {
        return wrong("has a header without a name");
    };
    let Ok(header) = HeaderName::from_bytes(format!("{PREFIX}{name}").as_bytes()) else {
        return wrong("has a header whose name has characters that none can have");
    };
    match schema["type"].as_str() {
        Some("string" | "integer" | "boolean") => Ok(Mirrored { path: path.to_vec(), header }),
        _ => wrong("is a header, and no text, whole number or boolean"),
    }
}

/// The arguments of all tools that are sent as headers as well, by tool.
pub(super) fn of_tools(tools: &[ListedTool]) -> HashMap<String, Vec<Mirrored>> {
    let one = |tool: &ListedTool| {
        let mirrored = mirrored(&tool.input_schema).ok().filter(|mirrored| !mirrored.is_empty())?;
        Some((tool.name.clone(), mirrored))
    };
    tools.iter().filter_map(one).collect()
}

/// The headers of a call.
pub(super) fn headers(mirrored: &[Mirrored], arguments: &Value) -> Vec<(HeaderName, HeaderValue)> {
    let header = |one: &Mirrored| {
        let argument = one.path.iter().try_fold(arguments, |value, name| value.get(name))?;
        let text = match argument {
            Value::String(text) => text.clone(),
            Value::Bool(_) | Value::Number(_) => argument.to_string(),
            _ => return None,
        };
        Some((one.header.clone(), header_text(&text)?))
    };
    mirrored.iter().filter_map(header).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(properties: Value) -> Result<Vec<Mirrored>, String> {
        mirrored(&json!({"type": "object", "properties": properties}))
    }

    #[test]
    fn arguments_are_sent_as_the_headers_that_their_schema_names() {
        let found = of(json!({
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
            "flag": {"type": "boolean", "x-mcp-header": "Flag"},
            "other": {"type": "string", "default": {"x-mcp-header": 1}},
        }))
        .unwrap();
        let sent = |arguments: Value| -> Vec<(String, String)> {
            let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
            let mut sent: Vec<_> = headers(&found, &arguments)
                .iter()
                .map(|(name, value)| (name.to_string(), text(value)))
                .collect();
            sent.sort();
            sent
        };
        let pair = |name: &str, value: &str| (format!("mcp-param-{name}"), value.to_owned());
        let arguments = json!({"region": " us", "deep": {"n": 7}, "flag": null, "other": "x"});
        assert_eq!(sent(arguments), [pair("n", "7"), pair("region", "=?base64?IHVz?=")]);
        assert_eq!(sent(json!({"region": "", "flag": false})), [pair("flag", "false"), pair("region", "")]);
    }

    #[test]
    fn annotations_that_the_protocol_forbids_are_refused() {
        let text = json!({"type": "string", "x-mcp-header": "A"});
        for wrong in [
            json!({"a": {"type": "string", "x-mcp-header": ""}}),
            json!({"a": {"type": "string", "x-mcp-header": 1}}),
            json!({"a": {"type": "string", "x-mcp-header": "a b"}}),
            json!({"a": {"type": "string", "x-mcp-header": "ä"}}),
            json!({"a": {"type": "number", "x-mcp-header": "A"}}),
            json!({"a": {"type": "object", "x-mcp-header": "A"}}),
            json!({"a": text, "b": {"type": "string", "x-mcp-header": "a"}}),
            json!({"a": {"type": "array", "items": text}}),
            json!({"a": {"anyOf": [text]}}),
        ] {
            assert!(of(wrong.clone()).is_err(), "{wrong}");
        }
        assert!(mirrored(&json!({"$defs": {"x": text}})).is_err());
        assert!(mirrored(&text).is_err());
        assert_eq!(of(json!({"x-mcp-header": {"type": "string"}})), Ok(Vec::new()));
    }
}

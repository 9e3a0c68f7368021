//! Schemas of tools in the subset of OpenAPI that Gemini takes.
//!
//! What the subset has no word for is left out, so that the model is told less and refuses nothing; a tool checks its
//! arguments itself. The result depends on the schema alone, key by key in its order.

use serde_json::{Map, Value, json};

/// How deep references are followed: a schema that holds itself has no end here.
const DEPTH: usize = 16;

/// The fields that are kept as they are.
const KEPT: [&str; 12] = [
    "description",
    "title",
    "nullable",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minProperties",
    "maxProperties",
    "pattern",
];

/// The formats of texts and numbers that are known there; others make it refuse the request.
const FORMATS: [&str; 6] = ["date-time", "enum", "float", "double", "int32", "int64"];

/// The parameters of a function; `None` for a function without any, which must not have an empty object.
pub(super) fn parameters(schema: &Value) -> Option<Value> {
    let definitions = Definitions(schema);
    let value = definitions.convert(schema, DEPTH);
    let has_properties =
        value.get("properties").and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    has_properties.then_some(value)
}

/// The schema that references point into.
struct Definitions<'a>(&'a Value);

impl Definitions<'_> {
    fn convert(&self, schema: &Value, depth: usize) -> Value {
        let Value::Object(schema) = schema else { return json!({}) };
        let mut out = Map::new();
        if depth == 0 {
            return Value::Object(out);
        }
        for (name, value) in schema {
            match name.as_str() {
                "$ref" => {
                    let target = value.as_str().and_then(|path| self.0.pointer(path.strip_prefix('#')?));
                    self.add(&mut out, target, depth);
                }
                "allOf" => value
                    .as_array()
                    .into_iter()
                    .flatten()
                    .for_each(|part| self.add(&mut out, Some(part), depth)),
                "anyOf" | "oneOf" => self.alternatives(&mut out, value, depth),
                "type" => types(&mut out, value),
                "enum" => texts(&mut out, value.as_array().map_or(&[], Vec::as_slice)),
                "const" => texts(&mut out, std::slice::from_ref(value)),
                "format" if value.as_str().is_some_and(|format| FORMATS.contains(&format)) => {
                    out.insert(name.clone(), value.clone());
                }
                "properties" => {
                    let properties: Map<_, _> = value
                        .as_object()
                        .into_iter()
                        .flatten()
                        .map(|(name, schema)| (name.clone(), self.convert(schema, depth - 1)))
                        .collect();
                    if !properties.is_empty() {
                        out.insert(name.clone(), properties.into());
                    }
                }
                "items" => {
                    out.insert(name.clone(), self.convert(value, depth - 1));
                }
                "required" => {
                    out.insert(name.clone(), value.clone());
                }
                kept if KEPT.contains(&kept) => {
                    out.insert(name.clone(), value.clone());
                }
                _ => {}
            }
        }
        finish(&mut out);
        Value::Object(out)
    }

    /// Adds what another schema says, where this one has not said it.
    fn add(&self, out: &mut Map<String, Value>, schema: Option<&Value>, depth: usize) {
        let Some(Value::Object(other)) = schema.map(|schema| self.convert(schema, depth - 1)) else { return };
        for (name, value) in other {
            match (out.get_mut(&name), value) {
                (Some(Value::Object(have)), Value::Object(more)) => have.extend(more),
                (Some(Value::Array(have)), Value::Array(more)) => have.extend(more),
                (Some(_), _) => {}
                (None, value) => drop(out.insert(name, value)),
            }
        }
    }

    /// "Or nothing" is a flag there, and a single alternative is none.
    fn alternatives(&self, out: &mut Map<String, Value>, value: &Value, depth: usize) {
        let is_null = |schema: &&Value| schema.get("type").is_some_and(|kind| kind == "null");
        let (nothing, others): (Vec<_>, Vec<_>) = value.as_array().into_iter().flatten().partition(is_null);
        if !nothing.is_empty() {
            out.insert("nullable".to_owned(), true.into());
        }
        match others.as_slice() {
            [] => {}
            [single] => self.add(out, Some(single), depth),
            several => {
                let several: Vec<_> = several.iter().map(|schema| self.convert(schema, depth - 1)).collect();
                out.insert("anyOf".to_owned(), several.into());
            }
        }
    }
}

fn types(out: &mut Map<String, Value>, value: &Value) {
    let names: Vec<&str> = match value {
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        name => name.as_str().into_iter().collect(),
    };
    if names.contains(&"null") {
        out.insert("nullable".to_owned(), true.into());
    }
    let names: Vec<&str> = names.into_iter().filter(|name| *name != "null").collect();
    match names.as_slice() {
        [] => {}
        [name] => drop(out.insert("type".to_owned(), (*name).into())),
        several => {
            let several: Vec<_> = several.iter().map(|name| json!({"type": name})).collect();
            out.insert("anyOf".to_owned(), several.into());
        }
    }
}

/// Only texts can be enumerated there.
fn texts(out: &mut Map<String, Value>, values: &[Value]) {
    let texts: Vec<Value> = values.iter().filter(|value| value.is_string()).cloned().collect();
    if !texts.is_empty() && texts.len() == values.iter().filter(|value| !value.is_null()).count() {
        out.entry("type").or_insert_with(|| "string".into());
        out.insert("enum".to_owned(), texts.into());
    }
}

/// What a schema must have, and what it may have only with something else.
fn finish(out: &mut Map<String, Value>) {
    let kind = out.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    if kind != "string" {
        out.shift_remove("enum");
    }
    if kind == "array" {
        let items = out.entry("items").or_insert_with(|| json!({}));
        if items.as_object().is_some_and(Map::is_empty) {
            *items = json!({"type": "string"});
        }
    }
    let known = |name: &Value, out: &Map<String, Value>| {
        name.as_str().is_some_and(|name| out.get("properties").is_some_and(|known| known.get(name).is_some()))
    };
    if let Some(required) = out.get("required").and_then(Value::as_array) {
        let required: Vec<Value> = required.iter().filter(|name| known(name, out)).cloned().collect();
        if required.is_empty() {
            out.shift_remove("required");
        } else {
            out.insert("required".to_owned(), required.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(property: Value) -> Value {
        let schema = json!({"type": "object", "properties": {"x": property}});
        parameters(&schema).unwrap()["properties"]["x"].clone()
    }

    #[test]
    fn what_there_is_no_word_for_is_left_out() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Input", "type": "object",
            "properties": {"path": {"type": "string", "default": "a", "examples": ["b"]}},
            "required": ["path", "gone"], "additionalProperties": false,
        });
        let expected = r#"{"title":"Input","type":"object","properties":{"path":{"type":"string"}},"required":["path"]}"#;
        assert_eq!(parameters(&schema).unwrap().to_string(), expected);
    }

    #[test]
    fn a_function_without_parameters_has_none() {
        for schema in
            [json!({}), json!(true), json!({"type": "object"}), json!({"type": "object", "properties": {}})]
        {
            assert_eq!(parameters(&schema), None, "{schema}");
        }
    }

    #[test]
    fn every_property_has_a_form_that_is_taken() {
        for (from, to) in [
            (
                json!({"type": ["integer", "null"], "format": "uint32", "minimum": 0}),
                json!({"nullable": true, "type": "integer", "minimum": 0}),
            ),
            (json!({"type": "integer", "format": "int64"}), json!({"type": "integer", "format": "int64"})),
            (
                json!({"type": ["string", "integer"]}),
                json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
            ),
            (json!({"const": "a"}), json!({"type": "string", "enum": ["a"]})),
            (json!({"type": "integer", "enum": [1, 2]}), json!({"type": "integer"})),
            (json!({"enum": ["a", "b", null]}), json!({"type": "string", "enum": ["a", "b"]})),
            (json!({"type": "array"}), json!({"type": "array", "items": {"type": "string"}})),
            (json!({"type": "array", "items": true}), json!({"type": "array", "items": {"type": "string"}})),
            (
                json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
                json!({"nullable": true, "type": "string"}),
            ),
            (
                json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
                json!({"anyOf": [{"type": "string"}, {"type": "number"}]}),
            ),
            (
                json!({"type": "object", "additionalProperties": {"type": "string"}}),
                json!({"type": "object"}),
            ),
        ] {
            assert_eq!(converted(from.clone()), to, "{from}");
        }
    }

    #[test]
    fn references_are_followed_and_end_somewhere() {
        let schema = json!({
            "type": "object",
            "properties": {"kind": {"$ref": "#/$defs/Kind", "description": "which"}, "tree": {"$ref": "#/$defs/Tree"}},
            "$defs": {
                "Kind": {"type": "string", "enum": ["a", "b"], "description": "a kind"},
                "Tree": {"type": "object", "properties": {"child": {"$ref": "#/$defs/Tree"}, "other": {"$ref": "#/$defs/None"}}},
            },
        });
        let converted = parameters(&schema).unwrap();
        assert_eq!(converted["properties"]["kind"]["enum"], json!(["a", "b"]));
        assert_eq!(converted["properties"]["tree"]["properties"]["child"]["type"], "object");
        assert!(!converted.to_string().contains('$'));
        assert_eq!(parameters(&schema), Some(converted), "the same schema gives the same bytes");
    }
}

//! The schemas of the arguments of tools: what models are shown of them, and whether arguments fit.
//!
//! - [`shown`] rewrites a schema so that strict providers take it: an object at the top without unions, no references, known
//!   types, bounded depth and size. Keywords that are not known stay as they are.
//! - [`ArgumentCheck`] holds the original. One that cannot be compiled (it is not valid, or refers to another document) checks
//!   nothing: the server checks arguments as well.

use std::collections::HashMap;

use playhouse_tools::schema::CheckedSchema;
use serde_json::{Map, Value, json};

use crate::text::line;

/// The largest schema that models are shown, in bytes of JSON.
const LARGEST_SHOWN: usize = 32 * 1024;
/// Number of schemas within each other that models are shown.
const DEEPEST_SHOWN: usize = 24;
/// Total size of the targets that are put in place of references, in bytes of JSON.
const INLINED: usize = 64 * 1024;
/// The longest list of alternatives in a description, in bytes.
const ALTERNATIVES: usize = 500;
/// The types of JSON Schema.
const TYPES: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];
/// Keywords that combine schemas of the same value.
const UNIONS: [&str; 2] = ["anyOf", "oneOf"];

/// A compiled schema of arguments, or none if it could not be compiled.
#[derive(Debug)]
pub struct ArgumentCheck(Option<CheckedSchema>);

impl ArgumentCheck {
    /// Compiles a schema. One that accepts no object at all is not one of arguments, and refuses nothing.
    pub fn new(schema: &Value) -> Self {
        let is_usable = schema.as_object().is_some_and(takes_objects);
        Self(is_usable.then(|| CheckedSchema::new(schema).ok()).flatten())
    }

    /// Checks the arguments of a call.
    ///
    /// # Errors
    /// They do not fit: one line for each place, for example `items[2].name: 5 is not of type "string"`.
    pub fn check(&self, arguments: &Map<String, Value>) -> Result<(), String> {
        match &self.0 {
            Some(schema) => {
                let arguments = Value::Object(arguments.clone());
                // The server looks at what is too much work here.
                if schema.is_affordable(&arguments) { schema.check(&arguments) } else { Ok(()) }
            }
            None => Ok(()),
        }
    }
}

/// Checks that a schema of arguments is an object, or absent.
///
/// # Errors
/// It is something else: the tool cannot be offered.
pub fn usable(schema: &Value) -> Result<(), String> {
    let what = match schema {
        Value::Null | Value::Object(_) => return Ok(()),
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
    };
    Err(format!("its inputSchema is {what}, and must be an object"))
}

/// A schema as models are shown it.
///
/// ```
/// use playhouse_mcp::schema::shown;
/// use serde_json::json;
///
/// assert_eq!(shown(&json!({"properties": {"a": {}}})), json!({"type": "object", "properties": {"a": {}}}));
/// assert_eq!(shown(&json!("string")), json!({"type": "object"}));
/// ```
pub fn shown(schema: &Value) -> Value {
    let any = || json!({"type": "object"});
    let Some(object) = schema.as_object().filter(|object| takes_objects(object)) else { return any() };
    let mut rewrite = Rewrite::new(schema);
    let Value::Object(mut own) = rewrite.object(object, 0) else { return any() };
    merge_alternatives(&mut own);
    // Providers refuse these at the top.
    ["type", "not", "enum", "const"].iter().for_each(|keyword| drop(own.shift_remove(*keyword)));
    let mut shown = Map::from_iter([("type".to_owned(), Value::from("object"))]);
    shown.extend(own);
    let shown = Value::Object(shown);
    if shown.to_string().len() > LARGEST_SHOWN { any() } else { shown }
}

/// The alternatives of a union at the top of a schema, for the description of the tool, since [`shown`] merges them.
pub fn alternatives(schema: &Value) -> Option<String> {
    let mut rewrite = Rewrite::new(schema);
    let Value::Object(own) = rewrite.object(schema.as_object()?, 0) else { return None };
    let members: Vec<String> = UNIONS
        .iter()
        .flat_map(|keyword| list(&own, keyword))
        .filter_map(Value::as_object)
        .filter(|member| takes_objects(member))
        .map(|member| {
            let required: Vec<&str> = list(member, "required").iter().filter_map(Value::as_str).collect();
            let names = properties(member).map(|(name, _)| match required.contains(&name.as_str()) {
                true => format!("{name} (required)"),
                false => name.clone(),
            });
            format!("{{{}}}", names.collect::<Vec<_>>().join(", "))
        })
        .collect();
    (members.len() > 1)
        .then(|| line(&format!("Arguments take one of these forms: {}", members.join(" or ")), ALTERNATIVES))
}

/// Whether a schema says nothing of types, or that objects fit.
fn takes_objects(schema: &Map<String, Value>) -> bool {
    match schema.get("type") {
        None => true,
        Some(Value::String(name)) => name == "object",
        Some(Value::Array(names)) => names.iter().any(|name| name == "object"),
        Some(_) => false,
    }
}

/// The elements of a keyword that is a list.
fn list<'a>(schema: &'a Map<String, Value>, keyword: &str) -> &'a [Value] {
    schema.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn properties(schema: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

/// Replaces `anyOf`, `oneOf` and `allOf` at the top by the properties of their members. Members of `allOf` keep what they
/// require.
fn merge_alternatives(schema: &mut Map<String, Value>) {
    let mut merged: Vec<(String, Vec<Value>)> =
        properties(schema).map(|(name, value)| (name.clone(), vec![value.clone()])).collect();
    let had_properties = schema.contains_key("properties");
    let mut required: Vec<Value> = list(schema, "required").to_vec();
    let mut found = false;
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let Some(members) = schema.shift_remove(keyword) else { continue };
        let members: Vec<Value> = members.as_array().cloned().unwrap_or_default();
        for member in members.iter().filter_map(Value::as_object).filter(|member| takes_objects(member)) {
            found = true;
            let mut member = member.clone();
            // A union in a member is one of the whole.
            merge_alternatives(&mut member);
            for (name, value) in properties(&member) {
                match merged.iter_mut().find(|(known, _)| known == name) {
                    Some((_, values)) if values.contains(value) => {}
                    Some((_, values)) => values.push(value.clone()),
                    None => merged.push((name.clone(), vec![value.clone()])),
                }
            }
            if keyword == "allOf" {
                let more = list(&member, "required").iter().filter(|name| !required.contains(name));
                let more: Vec<Value> = more.cloned().collect();
                required.extend(more);
            }
        }
    }
    if !found {
        return;
    }
    if had_properties || !merged.is_empty() {
        let merged = merged.into_iter().map(|(name, mut values)| match values.len() {
            1 => (name, values.remove(0)),
            _ => (name, json!({"anyOf": values})),
        });
        schema.insert("properties".to_owned(), Value::Object(merged.collect()));
    }
    if !required.is_empty() {
        schema.insert("required".to_owned(), required.into());
    }
}

/// A copy of a schema without references.
struct Rewrite<'a> {
    root: &'a Value,
    /// References that are being put in place: one among them is recursive.
    open: Vec<String>,
    /// Sizes of targets that are known.
    sizes: HashMap<String, usize>,
    /// So many bytes may still be put in place.
    left: usize,
}

impl<'a> Rewrite<'a> {
    fn new(root: &'a Value) -> Self {
        Self { root, open: vec!["#".to_owned()], sizes: HashMap::new(), left: INLINED }
    }

    /// A schema; `{}` for one that is too deep or none.
    fn schema(&mut self, schema: &Value, depth: usize) -> Value {
        match schema {
            Value::Object(object) if depth < DEEPEST_SHOWN => self.object(object, depth),
            _ => json!({}),
        }
    }

    fn object(&mut self, object: &Map<String, Value>, depth: usize) -> Value {
        let mut copy = match object.get("$ref") {
            Some(reference) => self.target(reference, depth),
            None => Map::new(),
        };
        for (keyword, value) in object {
            let value = match (keyword.as_str(), value) {
                (
                    "$ref" | "$dynamicRef" | "$recursiveRef" | "$defs" | "definitions" | "$schema" | "$id"
                    | "$anchor" | "$dynamicAnchor" | "$vocabulary",
                    _,
                ) => continue,
                ("properties" | "patternProperties" | "dependentSchemas", Value::Object(named)) => {
                    let named =
                        named.iter().map(|(name, below)| (name.clone(), self.schema(below, depth + 1)));
                    Value::Object(named.collect())
                }
                ("properties" | "patternProperties" | "dependentSchemas", _) => continue,
                ("required", Value::Array(names)) if names.iter().all(Value::is_string) => value.clone(),
                ("required", _) => continue,
                ("type", value) => match known_type(value) {
                    Some(known) => known,
                    None => continue,
                },
                (
                    "additionalProperties" | "unevaluatedProperties" | "additionalItems" | "unevaluatedItems",
                    Value::Bool(_),
                ) => value.clone(),
                ("allOf" | "anyOf" | "oneOf" | "prefixItems" | "items", Value::Array(members)) => {
                    members.iter().map(|member| self.schema(member, depth + 1)).collect()
                }
                (
                    "items"
                    | "additionalProperties"
                    | "unevaluatedProperties"
                    | "additionalItems"
                    | "unevaluatedItems"
                    | "contains"
                    | "propertyNames"
                    | "not"
                    | "if"
                    | "then"
                    | "else",
                    below,
                ) => self.schema(below, depth + 1),
                _ => value.clone(),
            };
            copy.insert(keyword.clone(), value);
        }
        Value::Object(copy)
    }

    /// What a reference stands for; nothing if it is to elsewhere, recursive, or too large.
    fn target(&mut self, reference: &Value, depth: usize) -> Map<String, Value> {
        let nothing = Map::new;
        let Some(reference) = reference.as_str() else { return nothing() };
        let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(&decoded(pointer)));
        let Some(Value::Object(target)) = target else { return nothing() };
        if depth >= DEEPEST_SHOWN || self.open.iter().any(|open| open == reference) {
            return nothing();
        }
        let size = *self.sizes.entry(reference.to_owned()).or_insert_with(|| json!(target).to_string().len());
        let Some(left) = self.left.checked_sub(size) else { return nothing() };
        self.left = left;
        self.open.push(reference.to_owned());
        // One deeper: references to references end as well.
        let copy = self.object(target, depth + 1);
        self.open.pop();
        match copy {
            Value::Object(copy) => copy,
            _ => nothing(),
        }
    }
}

/// A type, without names that are none.
fn known_type(value: &Value) -> Option<Value> {
    let is_known = |name: &Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
    match value {
        Value::Array(names) => {
            let known: Vec<Value> = names.iter().filter(|name| is_known(name)).cloned().collect();
            (!known.is_empty()).then(|| known.into())
        }
        name => is_known(name).then(|| name.clone()),
    }
}

/// A fragment without percent encoding.
fn decoded(fragment: &str) -> String {
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| byte == b'%') {
            Some(decoded) => {
                bytes.push(decoded);
                rest = &after[2..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;

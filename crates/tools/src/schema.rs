//! Checks values against JSON Schemas that come from outside: of servers, platforms, workspaces and prompts.
//!
//! A schema refers to nothing but itself: nothing is read or fetched for it. Its patterns take time in proportion to what they
//! read.

use jsonschema::{PatternOptions, Validator};
use percent_encoding::percent_decode_str;
use serde_json::Value;
use thiserror::Error;

/// The largest schema, in bytes of JSON.
pub const LARGEST: usize = 256 * 1024;
/// So deep are schemas and values at most.
const DEEPEST: usize = 96;
/// So many problems of a value are told.
const MOST_PROBLEMS: usize = 5;
/// The longest problem, in characters.
const LONGEST_PROBLEM: usize = 300;
/// So often a schema is held against a part of a value at most.
const MOST_WORK: usize = 50_000;
/// So many schemas are held against parts of a value within each other at most: each takes some of a thread's stack.
const MOST_WITHIN: usize = 500;
/// Keywords by which a schema is known or found under another name.
const NAMES: [&str; 5] = ["$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef"];
/// Memory that a pattern may take, in bytes.
const PATTERN_BYTES: usize = 1024 * 1024;

/// A JSON Schema that is understood.
#[derive(Debug)]
pub struct CheckedSchema {
    validator: Validator,
    schema: Value,
}

/// Why something is no JSON Schema, in words for whoever wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct NoSchema(String);

impl CheckedSchema {
    /// Reads a schema: of draft 2020-12, unless it says of which draft it is.
    ///
    /// ```
    /// use playhouse_tools::schema::CheckedSchema;
    /// use serde_json::json;
    ///
    /// let schema = CheckedSchema::new(&json!({"type": "object", "properties": {"n": {"minimum": 3}}})).unwrap();
    /// assert_eq!(schema.check(&json!({"n": 1})).unwrap_err(), "n: 1 is less than the minimum of 3");
    /// ```
    ///
    /// # Errors
    /// It is none, refers to something else, or is too large.
    pub fn new(schema: &Value) -> Result<Self, NoSchema> {
        if depth(schema) > DEEPEST || schema.to_string().len() > LARGEST {
            return Err(NoSchema(format!(
                "the schema is too large: at most {LARGEST} bytes, and {DEEPEST} values within each other"
            )));
        }
        check_names(schema, schema, true).map_err(NoSchema)?;
        let patterns = PatternOptions::regex().size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES);
        let built = jsonschema::options().with_pattern_options(patterns).build(schema);
        let understood = |validator| Self { validator, schema: schema.clone() };
        built.map(understood).map_err(|error| {
            let place = place(&error.instance_path().to_string());
            NoSchema(format!("{place}{}", shortened(&error.to_string())))
        })
    }

    /// Whether `value` can be held against the schema with bounded work.
    pub fn is_affordable(&self, value: &Value) -> bool {
        is_affordable(&self.schema, value)
    }

    /// Whether `value` is as the schema says.
    ///
    /// # Errors
    /// What does not fit, one place a line: the path, and why.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        if depth(value) > DEEPEST {
            return Err(format!("more than {DEEPEST} values within each other"));
        }
        if !self.is_affordable(value) {
            return Err("the schema takes too long to be held against this value".to_owned());
        }
        let tell = |error: jsonschema::ValidationError<'_>| {
            format!("{}{}", place(&error.instance_path().to_string()), shortened(&error.to_string()))
        };
        let problems: Vec<String> = self.validator.iter_errors(value).take(MOST_PROBLEMS).map(tell).collect();
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    }
}

/// Whether a schema refers only to places of its own, by their paths.
fn check_names(root: &Value, schema: &Value, is_root: bool) -> Result<(), String> {
    let inside = match schema {
        Value::Array(items) => items.iter().collect(),
        Value::Object(members) => {
            for (name, value) in
                members.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
            {
                if NAMES.contains(&name)
                    || (!is_root && (name == "$id" || (name == "id" && is_draft_4(root))))
                {
                    return Err(format!("\"{name}\" is not understood: refer to \"#/$defs/NAME\""));
                }
                if name == "$ref" && target(root, value).is_none() {
                    return Err(format!(
                        "\"$ref\" leads to {}, which is not in the schema",
                        shortened(value)
                    ));
                }
            }
            members.values().collect()
        }
        _ => Vec::new(),
    };
    inside.into_iter().try_for_each(|inner| check_names(root, inner, false))
}

/// Whether the schema is of draft 4, in which `id` names a schema as `$id` does in later drafts.
fn is_draft_4(root: &Value) -> bool {
    root.get("$schema").and_then(Value::as_str).is_some_and(|draft| draft.contains("draft-04"))
}

/// The place in a schema that a reference names.
fn target<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    root.pointer(&percent_decode_str(reference.strip_prefix('#')?).decode_utf8().ok()?)
}

/// Whether a check of the value takes bounded work and bounded stack. References can double the work with each step, or form a chain that
/// needs a stack frame for each link.
fn is_affordable(root: &Value, value: &Value) -> bool {
    // Names of members are strings: only the schema decides how much work they take.
    static NAME: Value = Value::Null;
    let mut left = MOST_WORK;
    let mut open = vec![(root, value, 0)];
    while let Some((schema, value, within)) = open.pop() {
        if left == 0 || open.len() > MOST_WORK || within > MOST_WITHIN {
            return false;
        }
        let within = within + 1;
        left -= 1;
        let Value::Object(schema) = schema else { continue };
        let at = |name: &str| schema.get(name);
        let list = |name: &str| at(name).and_then(Value::as_array).into_iter().flatten();
        let table =
            |name: &str| at(name).and_then(Value::as_object).into_iter().flatten().map(|(_, schema)| schema);
        open.extend(
            at("$ref")
                .and_then(Value::as_str)
                .and_then(|name| target(root, name))
                .map(|to| (to, value, within)),
        );
        let same = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(list);
        let same = same.chain(["not", "if", "then", "else"].into_iter().filter_map(at));
        let same = same.chain(["dependentSchemas", "dependencies"].into_iter().flat_map(table));
        open.extend(same.map(|schema| (schema, value, within)));
        match value {
            Value::Object(members) => {
                let own = at("properties").and_then(Value::as_object);
                let patterns: Vec<&Value> = table("patternProperties").collect();
                for (name, member) in members {
                    open.extend(at("propertyNames").map(|schema| (schema, &NAME, within)));
                    open.extend(own.and_then(|own| own.get(name)).map(|schema| (schema, member, within)));
                    let others = ["additionalProperties", "unevaluatedProperties"].into_iter().filter_map(at);
                    open.extend(
                        patterns.iter().copied().chain(others).map(|schema| (schema, member, within)),
                    );
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    let by_place =
                        ["prefixItems", "items"].into_iter().filter_map(|name| at(name)?.get(index));
                    let all = ["items", "additionalItems", "contains", "unevaluatedItems"]
                        .into_iter()
                        .filter_map(at);
                    open.extend(by_place.chain(all).map(|schema| (schema, item, within)));
                }
            }
            _ => {}
        }
    }
    true
}

/// `a.b[2]: ` of `/a/b/2`; nothing for the whole.
fn place(pointer: &str) -> String {
    let mut place = String::new();
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        if !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit()) {
            place.push_str(&format!("[{step}]"));
        } else {
            let dot = if place.is_empty() { "" } else { "." };
            place.push_str(&format!("{dot}{step}"));
        }
    }
    if !place.is_empty() {
        place.push_str(": ");
    }
    place
}

/// A problem may hold the value that does not fit.
fn shortened(problem: &str) -> String {
    match problem.char_indices().nth(LONGEST_PROBLEM) {
        None => problem.to_owned(),
        // Why it does not fit stands at the end.
        Some(_) => {
            let characters: Vec<char> = problem.chars().collect();
            let half = LONGEST_PROBLEM / 2;
            let first: String = characters[..half].iter().collect();
            let last: String = characters[characters.len() - half..].iter().collect();
            format!("{first} … {last}")
        }
    }
}

/// How deep a value is; counts no further than [`DEEPEST`] and one.
fn depth(value: &Value) -> usize {
    let mut deepest = 0;
    let mut open = vec![(value, 1)];
    while let Some((value, at)) = open.pop() {
        deepest = deepest.max(at);
        if deepest > DEEPEST {
            break;
        }
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, at + 1))),
            Value::Object(members) => open.extend(members.values().map(|member| (member, at + 1))),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn problem(schema: Value, value: &Value) -> String {
        CheckedSchema::new(&schema).unwrap().check(value).unwrap_err()
    }

    #[test]
    fn each_problem_names_its_place() {
        let schema = json!({
            "type": "object",
            "$defs": {"Story": {"type": "object", "properties": {"status": {"enum": ["a", "b"]}}, "required": ["id"]}},
            "properties": {"stories": {"type": "array", "items": {"$ref": "#/$defs/Story"}}},
            "required": ["name"],
        });
        let told = problem(schema, &json!({"stories": [{"id": 1}, {"status": "c"}]}));
        assert!(told.contains("stories[1].status: \"c\" is not one of"), "{told}");
        assert!(told.contains("stories[1]: \"id\" is a required property"), "{told}");
        assert!(told.contains("\"name\" is a required property"), "{told}");
    }

    #[test]
    fn long_values_are_cut_and_the_reason_is_kept() {
        let told = problem(json!({"properties": {"a": {"maxLength": 3}}}), &json!({"a": "é".repeat(9_000)}));
        assert!(told.len() < 1_000 && told.ends_with("is longer than 3 characters"), "{told}");
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        for (schema, says) in [
            (json!({"type": "objekt"}), "type"),
            (json!({"$ref": "http://127.0.0.1:9/never.json"}), "never.json"),
            (json!({"$dynamicRef": "#x"}), "$dynamicRef"),
            (json!({"properties": {"a": {"$id": "b"}}}), "$id"),
            (json!({"$schema": "http://json-schema.org/draft-04/schema#", "not": {"id": "b"}}), "id"),
            (json!({"$schema": "http://127.0.0.1:9/never.json"}), "never.json"),
            (json!({"$defs": {"a%31": {}}, "$ref": "#/$defs/a%31"}), "a%31"),
            (json!({"$ref": "file:///etc/passwd"}), "passwd"),
            (json!({"pattern": "(a"}), "pattern"),
            (json!({"pattern": "(?<=a)b"}), "pattern"),
            (json!({"properties": {"a": {"minimum": "x"}}}), "minimum"),
            (json!("text"), ""),
        ] {
            let error = CheckedSchema::new(&schema).unwrap_err().to_string();
            assert!(error.contains(says), "{schema}: {error}");
        }
        let deep = (0..200).fold(json!({}), |inner, _| json!({"not": inner}));
        assert!(CheckedSchema::new(&deep).unwrap_err().to_string().contains("too large"));
    }

    #[test]
    fn a_schema_that_doubles_the_work_with_each_step_is_not_followed() {
        let of = |number: usize| json!({"$ref": format!("#/$defs/a{number}")});
        let mut defs: Map<String, Value> = (0..45)
            .map(|number| (format!("a{number}"), json!({"allOf": [of(number + 1), of(number + 1)]})))
            .collect();
        defs.insert("a45".to_owned(), json!({"type": "object"}));
        let wide = json!({"$defs": defs, "$ref": "#/$defs/a0"});
        let deep = json!({"$defs": {"a": {"allOf": [
            {"properties": {"x": {"$ref": "#/$defs/a"}}}, {"properties": {"x": {"$ref": "#/$defs/a"}}}
        ]}}, "$ref": "#/$defs/a"});
        let nested = (0..60).fold(json!({}), |inner, _| json!({"x": inner}));
        let names = json!({"$defs": wide["$defs"], "propertyNames": {"$ref": "#/$defs/a0"}});
        let cases =
            [(wide, json!({})), (deep, nested), (json!({"$ref": "#"}), json!(1)), (names, json!({"x": 1}))];
        for (schema, value) in cases {
            let told = match CheckedSchema::new(&schema) {
                Ok(schema) => schema.check(&value).unwrap_err(),
                Err(error) => error.to_string(),
            };
            assert!(told.contains("too long"), "{told}");
        }
        // One that is only large is.
        let items = json!({"items": {"properties": {"a": {"type": "integer"}}}});
        let many: Vec<Value> = (0..10_000).map(|number| json!({"a": number})).collect();
        assert_eq!(CheckedSchema::new(&items).unwrap().check(&many.into()), Ok(()));
    }

    /// Each of them takes some of the stack: a chain that is too long would end the engine.
    #[test]
    fn a_chain_of_references_is_followed_as_far_as_a_threads_stack_bears() {
        let chain = |links: usize| {
            let next = |link: usize| json!({"allOf": [{"$ref": format!("#/$defs/{link}")}]});
            let mut defs: Map<String, Value> =
                (0..links).map(|link| (link.to_string(), next(link + 1))).collect();
            defs.insert(links.to_string(), json!({"type": "object"}));
            CheckedSchema::new(&json!({"$defs": defs, "$ref": "#/$defs/0"})).unwrap()
        };
        // The stack of the engine's threads.
        let test = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
            let longest = chain(MOST_WITHIN / 2 - 1);
            assert_eq!(longest.check(&json!({})), Ok(()));
            assert!(longest.check(&json!(1)).unwrap_err().contains("object"));
            assert!(chain(MOST_WITHIN / 2).check(&json!({})).unwrap_err().contains("too long"));
            assert!(chain(5_000).check(&json!({})).unwrap_err().contains("too long"));
        });
        test.unwrap().join().unwrap();
    }

    #[test]
    fn a_deep_value_is_refused_without_following_it() {
        let schema = CheckedSchema::new(&json!({"items": {"$ref": "#"}})).unwrap();
        let deep = (0..100_000).fold(json!([]), |inner, _| Value::Array(vec![inner]));
        assert!(schema.check(&deep).unwrap_err().contains("within each other"));
        // Its drop would be as deep.
        std::mem::forget(deep);
    }
}

//! Checks values against JSON Schemas that come from outside: of servers, platforms, workspaces and prompts.
//!
//! A schema refers to nothing but itself: nothing is read or fetched for it. Its patterns take time in proportion to what they
//! read.

use boon::{CompileError, Compiler, ErrorKind, SchemaIndex, Schemas, UrlLoader, ValidationError};
use regex::RegexBuilder;
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
/// Keywords by which a schema is known or found under another name.
const NAMES: [&str; 5] = ["$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef"];
/// Memory that a pattern may take, in bytes.
const PATTERN_BYTES: usize = 1024 * 1024;
/// The address of a schema while it is compiled. Nothing is read from it.
const ADDRESS: &str = "schema:///schema";

/// A JSON Schema that is understood.
pub struct CheckedSchema {
    compiled: Schemas,
    root: SchemaIndex,
    schema: Value,
}

impl std::fmt::Debug for CheckedSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CheckedSchema").field(&self.schema).finish()
    }
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
    /// assert_eq!(schema.check(&json!({"n": 1})).unwrap_err(), "n: must be >=3, but got 1");
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
        let (mut compiler, mut compiled) = (Compiler::new(), Schemas::new());
        compiler.use_loader(Box::new(Nothing));
        let problem = |error: CompileError| NoSchema(why_not(&error));
        compiler.add_resource(ADDRESS, schema.clone()).map_err(problem)?;
        let root = compiler.compile(ADDRESS, &mut compiled).map_err(problem)?;
        Ok(Self { compiled, root, schema: schema.clone() })
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
        self.compiled.validate(value, self.root).map_err(|error| told(&error))
    }
}

/// Loads nothing: a schema refers only to itself.
struct Nothing;

impl UrlLoader for Nothing {
    fn load(&self, url: &str) -> Result<Value, Box<dyn std::error::Error>> {
        Err(format!("{url} is not read").into())
    }
}

/// Why a schema cannot be compiled.
fn why_not(error: &CompileError) -> String {
    match error {
        CompileError::ValidationError { src, .. } => told(src),
        CompileError::InvalidRegex { regex, src, .. } => {
            shortened(&format!("the pattern {regex:?} is not understood: {src}"))
        }
        error => shortened(&format!("{error:#}").replace(ADDRESS, "")),
    }
}

/// What does not fit, one place a line.
fn told(error: &ValidationError<'_, '_>) -> String {
    let mut lines = Vec::new();
    tell(error, &mut lines);
    lines.join("\n")
}

fn tell(error: &ValidationError<'_, '_>, lines: &mut Vec<String>) {
    if lines.len() == MOST_PROBLEMS {
        return;
    }
    let place = place(&error.instance_location.to_string());
    let of_several = match &error.kind {
        // Which of them is meant nobody knows.
        ErrorKind::AnyOf | ErrorKind::OneOf(None) => Some("fits none of the alternatives".to_owned()),
        // Its causes name the object only.
        kind @ ErrorKind::PropertyName { .. } => Some(kind.to_string()),
        _ => None,
    };
    match of_several {
        _ if error.causes.is_empty() => lines.push(format!("{place}{}", shortened(&error.kind.to_string()))),
        Some(what) => {
            let mut causes = Vec::new();
            error.causes.iter().for_each(|cause| tell(cause, &mut causes));
            lines.push(format!("{place}{}", shortened(&format!("{what}: {}", causes.join("; ")))));
        }
        None => error.causes.iter().for_each(|cause| tell(cause, lines)),
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
                if NAMES.contains(&name) || (name == "$id" && !is_root) {
                    return Err(format!("\"{name}\" is not understood: refer to \"#/$defs/NAME\""));
                }
                if name == "pattern" {
                    check_size(value)?;
                }
                if name == "$ref" && target(root, value).is_none() {
                    return Err(format!(
                        "\"$ref\" leads to {}, which is not in the schema",
                        shortened(value)
                    ));
                }
            }
            if let Some(Value::Object(patterns)) = members.get("patternProperties") {
                patterns.keys().try_for_each(|pattern| check_size(pattern))?;
            }
            members.values().collect()
        }
        _ => Vec::new(),
    };
    inside.into_iter().try_for_each(|inner| check_names(root, inner, false))
}

/// Whether a pattern takes no more memory than it may. Whether it is one at all is not judged here.
fn check_size(pattern: &str) -> Result<(), String> {
    // As JavaScript understands these two: of ASCII only.
    let plain = pattern.replace(r"\w", "[0-9A-Za-z_]").replace(r"\d", "[0-9]");
    match RegexBuilder::new(&plain).size_limit(PATTERN_BYTES).build() {
        Err(regex::Error::CompiledTooBig(_)) => {
            Err(format!("the pattern {} takes too much memory", shortened(pattern)))
        }
        _ => Ok(()),
    }
}

/// The place in a schema that a reference names.
fn target<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    root.pointer(reference.strip_prefix('#')?)
}

/// Whether holding a schema against a value ends soon: references may double the work with each step.
fn is_affordable(root: &Value, value: &Value) -> bool {
    let mut left = MOST_WORK;
    let mut open = vec![(root, value)];
    while let Some((schema, value)) = open.pop() {
        if left == 0 || open.len() > MOST_WORK {
            return false;
        }
        left -= 1;
        let Value::Object(schema) = schema else { continue };
        let at = |name: &str| schema.get(name);
        let list = |name: &str| at(name).and_then(Value::as_array).into_iter().flatten();
        let table =
            |name: &str| at(name).and_then(Value::as_object).into_iter().flatten().map(|(_, schema)| schema);
        open.extend(
            at("$ref").and_then(Value::as_str).and_then(|name| target(root, name)).map(|to| (to, value)),
        );
        let same = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(list);
        let same = same.chain(["not", "if", "then", "else"].into_iter().filter_map(at));
        let same = same.chain(["dependentSchemas", "dependencies"].into_iter().flat_map(table));
        open.extend(same.map(|schema| (schema, value)));
        match value {
            Value::Object(members) => {
                let own = at("properties").and_then(Value::as_object);
                let patterns: Vec<&Value> = table("patternProperties").collect();
                for (name, member) in members {
                    open.extend(own.and_then(|own| own.get(name)).map(|schema| (schema, member)));
                    let others = ["additionalProperties", "unevaluatedProperties"].into_iter().filter_map(at);
                    open.extend(patterns.iter().copied().chain(others).map(|schema| (schema, member)));
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    let by_place =
                        ["prefixItems", "items"].into_iter().filter_map(|name| at(name)?.get(index));
                    let all = ["items", "additionalItems", "contains", "unevaluatedItems"]
                        .into_iter()
                        .filter_map(at);
                    open.extend(by_place.chain(all).map(|schema| (schema, item)));
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
        assert!(told.contains("stories[1].status: value must be one of 'a', 'b'"), "{told}");
        assert!(told.contains("stories[1]: missing properties 'id'"), "{told}");
        assert!(told.contains("missing properties 'name'"), "{told}");
    }

    #[test]
    fn alternatives_stand_in_one_line() {
        let schema = json!({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["b"]}]}}});
        assert_eq!(
            problem(schema, &json!({"a": 1})),
            "a: fits none of the alternatives: a: want string, but got number; a: want object, but got number"
        );
        let schema = json!({"propertyNames": {"maxLength": 2}});
        assert_eq!(
            problem(schema, &json!({"abc": 1})),
            "invalid property 'abc': length must be <=2, but got 3"
        );
        let both = json!({"oneOf": [{"type": "object"}, {"required": ["a"]}]});
        assert_eq!(problem(both, &json!({"a": 1})), "oneOf failed, subschemas 0, 1 matched");
    }

    #[test]
    fn a_pattern_that_takes_much_memory_is_refused() {
        for schema in
            [json!({"pattern": "(a{1000}){100}"}), json!({"patternProperties": {"(a{1000}){100}": {}}})]
        {
            assert!(CheckedSchema::new(&schema).unwrap_err().to_string().contains("too much memory"));
        }
        let names = json!({"pattern": r"^\w{1,255}$"});
        assert_eq!(CheckedSchema::new(&names).unwrap().check(&json!("a_9")), Ok(()));
    }

    #[test]
    fn long_values_are_cut_and_the_reason_is_kept() {
        let told = problem(json!({"properties": {"a": {"maxLength": 3}}}), &json!({"a": "é".repeat(9_000)}));
        assert!(told.len() < 1_000 && told.ends_with("length must be <=3, but got 9000"), "{told}");
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        for (schema, says) in [
            (json!({"type": "objekt"}), "type"),
            (json!({"$ref": "http://127.0.0.1:9/never.json"}), "never.json"),
            (json!({"$dynamicRef": "#x"}), "$dynamicRef"),
            (json!({"properties": {"a": {"$id": "b"}}}), "$id"),
            (json!({"$ref": "file:///etc/passwd"}), "passwd"),
            (json!({"pattern": "(a"}), "pattern"),
            (json!({"pattern": "(?<=a)b"}), "pattern"),
            (json!({"$schema": "http://127.0.0.1:9/never.json"}), "never.json"),
            (json!({"$schema": "file:///etc/passwd"}), "passwd"),
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
        for (schema, value) in [(wide, json!({})), (deep, nested), (json!({"$ref": "#"}), json!(1))] {
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

    #[test]
    fn a_deep_value_is_refused_without_following_it() {
        let schema = CheckedSchema::new(&json!({"items": {"$ref": "#"}})).unwrap();
        let deep = (0..100_000).fold(json!([]), |inner, _| Value::Array(vec![inner]));
        assert!(schema.check(&deep).unwrap_err().contains("within each other"));
        // Its drop would be as deep.
        std::mem::forget(deep);
    }
}

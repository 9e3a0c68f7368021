//! The schemas of the arguments of tools: what models are shown of them, and whether arguments fit.
//!
//! A server's schema is not trusted. What is shown is an object of bounded size. Arguments are checked against the original, by
//! the keywords below and with bounded work; what is not understood (`pattern`, `format`, `not`, references to elsewhere, …)
//! counts as fitting, since the server checks arguments as well. So arguments that fit are never refused, and the usual
//! mistakes of models are told before anybody is asked.
//!
//! `type`, `enum`, `const`, `properties`, `required`, `additionalProperties`, `minProperties`, `maxProperties`, `items`,
//! `prefixItems`, `minItems`, `maxItems`, `minLength`, `maxLength`, `minimum`, `maximum`, `exclusiveMinimum`,
//! `exclusiveMaximum`, `allOf`, `anyOf`, `oneOf` (as `anyOf`), and `$ref` within the schema.

use std::cmp::Ordering::{Equal, Greater, Less};

use serde_json::{Map, Value, json};

use crate::text::cut;

/// The largest schema that models are shown, in bytes of JSON.
const LARGEST_SHOWN: usize = 32 * 1024;
/// How deep a schema that models are shown may be.
const DEEPEST_SHOWN: usize = 32;
/// How deep arguments and schemas are followed.
const DEEPEST: usize = 64;
/// Number of schemas that one check looks at.
const WORK: usize = 50_000;
/// The longest value in an error, in bytes.
const VALUE: usize = 100;

/// A schema as models are shown it: the original if it is that of an object and not too large, else one that takes any object.
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
    if depth(schema, DEEPEST_SHOWN) >= DEEPEST_SHOWN || schema.to_string().len() > LARGEST_SHOWN {
        return any();
    }
    let mut shown = object.clone();
    shown.remove("$schema");
    if shown.get("type").is_none_or(|name| name != "object") {
        let rest = std::mem::take(&mut shown);
        shown.insert("type".to_owned(), "object".into());
        shown.extend(rest.into_iter().filter(|(key, _)| key != "type"));
    }
    Value::Object(shown)
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

/// The depth of a value, `most` at most.
fn depth(value: &Value, most: usize) -> usize {
    if most == 0 {
        return 0;
    }
    let below = match value {
        Value::Array(items) => items.iter().map(|item| depth(item, most - 1)).max(),
        Value::Object(fields) => fields.values().map(|field| depth(field, most - 1)).max(),
        _ => None,
    };
    1 + below.unwrap_or(0)
}

/// Checks the arguments of a call. A schema that takes no object at all is not one of arguments, and refuses nothing.
///
/// # Errors
/// Arguments do not fit: names the first place where they do not, for example `items[2].name: is a number, must be a string`.
pub fn check(schema: &Value, arguments: &Map<String, Value>) -> Result<(), String> {
    if !schema.as_object().is_some_and(takes_objects) {
        return Ok(());
    }
    let mut check = Check { root: schema, work: WORK };
    // The same as a value, so that it is checked like any other.
    let arguments = Value::Object(arguments.clone());
    check
        .value(schema, &arguments, &mut Vec::new(), 0)
        .map_err(|(path, problem)| format!("{path}: {problem}"))
}

/// Where something does not fit, and why.
type Misfit = (String, String);

/// A step of a path.
#[derive(Clone)]
enum Step {
    Field(String),
    Item(usize),
}

struct Check<'a> {
    root: &'a Value,
    /// Number of schemas that may still be looked at.
    work: usize,
}

impl Check<'_> {
    fn value(
        &mut self,
        schema: &Value,
        value: &Value,
        path: &mut Vec<Step>,
        depth: usize,
    ) -> Result<(), Misfit> {
        if self.work == 0 || depth > DEEPEST {
            return Ok(());
        }
        self.work -= 1;
        let schema = match schema {
            Value::Bool(false) => return Err(misfit(path, "is not allowed here")),
            Value::Object(schema) => schema,
            _ => return Ok(()),
        };
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str)
            && let Some(pointer) = reference.strip_prefix('#')
            && let Some(target) = self.root.pointer(pointer)
        {
            let target = target.clone();
            self.value(&target, value, path, depth + 1)?;
        }
        kind(schema, value).map_err(|problem| misfit(path, &problem))?;
        bounds(schema, value).map_err(|problem| misfit(path, &problem))?;
        match value {
            Value::Object(fields) => self.fields(schema, fields, path, depth)?,
            Value::Array(items) => self.items(schema, items, path, depth)?,
            _ => {}
        }
        for all in list(schema, "allOf") {
            self.value(all, value, path, depth + 1)?;
        }
        for name in ["anyOf", "oneOf"] {
            let choices = list(schema, name);
            let mut first = None;
            for choice in choices {
                match self.value(choice, value, path, depth + 1) {
                    Ok(()) => {
                        first = None;
                        break;
                    }
                    Err(misfit) => first = first.or(Some(misfit)),
                }
            }
            match first {
                Some((_, problem)) if choices.len() > 1 => {
                    let problem =
                        format!("fits none of {} alternatives; the first: {problem}", choices.len());
                    return Err(misfit(path, &problem));
                }
                Some(misfit) => return Err(misfit),
                None => {}
            }
        }
        Ok(())
    }

    fn fields(
        &mut self,
        schema: &Map<String, Value>,
        fields: &Map<String, Value>,
        path: &mut Vec<Step>,
        depth: usize,
    ) -> Result<(), Misfit> {
        let missing = list(schema, "required")
            .iter()
            .filter_map(Value::as_str)
            .find(|name| !fields.contains_key(*name));
        if let Some(name) = missing {
            path.push(Step::Field(name.to_owned()));
            let missing = misfit(path, "is missing");
            path.pop();
            return Err(missing);
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, value) in fields {
            let own = properties.and_then(|properties| properties.get(name));
            // Names may fit a pattern, which is not looked at.
            let rest =
                schema.get("additionalProperties").filter(|_| !schema.contains_key("patternProperties"));
            let Some(below) = own.or(rest) else { continue };
            path.push(Step::Field(name.clone()));
            let checked = match below {
                Value::Bool(false) if own.is_none() => {
                    let known: Vec<&str> =
                        properties.into_iter().flat_map(Map::keys).map(String::as_str).collect();
                    Err(misfit(
                        path,
                        &format!("is not an argument; there are: {}", cut(&known.join(", "), 4 * VALUE)),
                    ))
                }
                below => self.value(below, value, path, depth + 1),
            };
            path.pop();
            checked?;
        }
        Ok(())
    }

    fn items(
        &mut self,
        schema: &Map<String, Value>,
        items: &[Value],
        path: &mut Vec<Step>,
        depth: usize,
    ) -> Result<(), Misfit> {
        let first = list(schema, "prefixItems");
        let rest = schema.get("items").filter(|rest| !rest.is_array());
        for (number, item) in items.iter().enumerate() {
            let Some(below) = first.get(number).or(rest) else { continue };
            path.push(Step::Item(number));
            let checked = self.value(below, item, path, depth + 1);
            path.pop();
            checked?;
        }
        Ok(())
    }
}

fn misfit(path: &[Step], problem: &str) -> Misfit {
    let mut shown = String::new();
    for step in path {
        match step {
            Step::Field(name) if shown.is_empty() => shown.push_str(name),
            Step::Field(name) => {
                shown.push('.');
                shown.push_str(name);
            }
            Step::Item(number) => shown.push_str(&format!("[{number}]")),
        }
    }
    let shown = if shown.is_empty() { "arguments".to_owned() } else { cut(&shown, 4 * VALUE) };
    (shown, problem.to_owned())
}

/// The elements of a keyword that is a list.
fn list<'a>(schema: &'a Map<String, Value>, keyword: &str) -> &'a [Value] {
    schema.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Types and listed values.
fn kind(schema: &Map<String, Value>, value: &Value) -> Result<(), String> {
    let names: Vec<&str> = match schema.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !names.is_empty() && !names.iter().any(|name| is_of(value, name)) {
        return Err(format!("is {}, must be of type {}", named(value), names.join(" or ")));
    }
    if let Some(listed) = schema.get("enum").and_then(Value::as_array)
        && !listed.iter().any(|listed| same(listed, value))
    {
        let listed: Vec<String> = listed.iter().map(Value::to_string).collect();
        return Err(format!(
            "is {}, must be one of {}",
            shown_value(value),
            cut(&listed.join(", "), 4 * VALUE)
        ));
    }
    match schema.get("const") {
        Some(only) if !same(only, value) => {
            Err(format!("is {}, must be {}", shown_value(value), shown_value(only)))
        }
        _ => Ok(()),
    }
}

/// Smallest and largest.
fn bounds(schema: &Map<String, Value>, value: &Value) -> Result<(), String> {
    let bound = |keyword: &str| schema.get(keyword).and_then(Value::as_f64);
    let within = |size: f64, least: &str, most: &str, what: &str| match (bound(least), bound(most)) {
        (Some(least), _) if size < least => Err(format!("has {size} {what}, must have {least} at least")),
        (_, Some(most)) if size > most => Err(format!("has {size} {what}, must have {most} at most")),
        _ => Ok(()),
    };
    match value {
        Value::Number(number) => {
            let Some(number) = number.as_f64() else { return Ok(()) };
            let broken = [
                ("minimum", "at least", Greater, true),
                ("maximum", "at most", Less, true),
                ("exclusiveMinimum", "more than", Greater, false),
                ("exclusiveMaximum", "less than", Less, false),
            ]
            .into_iter()
            .find_map(|(keyword, words, wanted, or_equal)| {
                let bound = bound(keyword)?;
                let order = number.partial_cmp(&bound)?;
                let fits = order == wanted || (or_equal && order == Equal);
                (!fits).then(|| format!("is {number}, must be {words} {bound}"))
            });
            broken.map_or(Ok(()), Err)
        }
        Value::String(text) => within(text.chars().count() as f64, "minLength", "maxLength", "characters"),
        Value::Array(items) => within(items.len() as f64, "minItems", "maxItems", "items"),
        Value::Object(fields) => within(fields.len() as f64, "minProperties", "maxProperties", "fields"),
        _ => Ok(()),
    }
}

fn is_of(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        // Not one of JSON Schema.
        _ => true,
    }
}

/// Equality of JSON: 1 and 1.0 are the same.
fn same(one: &Value, other: &Value) -> bool {
    one == other
        || matches!((one, other), (Value::Number(one), Value::Number(other)) if one.as_f64() == other.as_f64())
}

fn named(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn shown_value(value: &Value) -> String {
    cut(&value.to_string(), VALUE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn problem(schema: &Value, arguments: Value) -> String {
        let Value::Object(arguments) = arguments else { panic!("{arguments}") };
        check(schema, &arguments).err().unwrap_or_default()
    }

    #[test]
    fn the_first_misfit_is_named_with_its_path() {
        let schema = json!({
            "type": "object",
            "required": ["items"],
            "additionalProperties": false,
            "properties": {
                "items": {"type": "array", "maxItems": 3, "items": {"$ref": "#/$defs/item"}},
                "mode": {"enum": ["fast", "slow"]},
                "count": {"type": ["integer", "null"], "minimum": 1},
                "either": {"anyOf": [{"type": "string", "minLength": 2}, {"type": "boolean"}]},
            },
            "$defs": {"item": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
        });
        let cases = [
            (json!({"items": []}), ""),
            (json!({}), "items: is missing"),
            (json!({"items": {}}), "items: is an object, must be of type array"),
            (
                json!({"items": [{"name": "a"}, {"name": 1}]}),
                "items[1].name: is a number, must be of type string",
            ),
            (json!({"items": [{}]}), "items[0].name: is missing"),
            (json!({"items": [], "mode": "f"}), "mode: is \"f\", must be one of \"fast\", \"slow\""),
            (json!({"items": [], "count": 0}), "count: is 0, must be at least 1"),
            (json!({"items": [], "count": null}), ""),
            (json!({"items": [], "count": 2.0}), ""),
            (json!({"items": [], "count": 2.5}), "count: is a number, must be of type integer or null"),
            (json!({"items": [], "either": true}), ""),
            (
                json!({"items": [], "either": "a"}),
                "either: fits none of 2 alternatives; the first: has 1 characters, must have 2 at least",
            ),
            (
                json!({"items": [], "itmes": 1}),
                "itmes: is not an argument; there are: items, mode, count, either",
            ),
        ];
        for (arguments, expected) in cases {
            assert_eq!(problem(&schema, arguments.clone()), expected, "{arguments}");
        }
    }

    #[test]
    fn what_is_not_understood_refuses_nothing() {
        for schema in
            [json!(true), json!({"type": "string"}), json!(null), json!({"$ref": "https://example.com/x"})]
        {
            assert_eq!(problem(&schema, json!({"a": 1})), "", "{schema}");
        }
        let patterns = json!({"patternProperties": {"^a": {}}, "additionalProperties": false});
        assert_eq!(problem(&patterns, json!({"a": 1})), "");
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let schema = json!({"$ref": "#", "allOf": [{"$ref": "#"}, {"$ref": "#"}]});
        assert_eq!(problem(&schema, json!({"a": 1})), "");
    }

    #[test]
    fn absurd_schemas_are_not_shown() {
        let mut deep = json!({});
        for _ in 0..100 {
            deep = json!({"properties": {"a": deep}});
        }
        let large = json!({"description": "x".repeat(LARGEST_SHOWN)});
        for schema in [deep, large, json!({"type": "array"}), json!({"type": 1}), json!([])] {
            assert_eq!(shown(&schema), json!({"type": "object"}));
        }
        let schema = json!({"$schema": "x", "type": ["object", "null"], "properties": {}});
        assert_eq!(shown(&schema).to_string(), r#"{"type":"object","properties":{}}"#);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let keyword = prop::sample::select(vec![
            "type",
            "properties",
            "required",
            "items",
            "anyOf",
            "$ref",
            "enum",
            "a",
        ]);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-3..3).prop_map(Value::from),
            prop::sample::select(vec!["object", "string", "#", "#/properties/a", "a"]).prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map(keyword.clone(), inner, 0..4).prop_map(|fields| {
                    fields
                        .into_iter()
                        .map(|(key, value)| (key.to_owned(), value))
                        .collect::<Map<_, _>>()
                        .into()
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_schema_is_shown_as_an_object_and_checks_end(schema in any_json(), value in any_json()) {
            prop_assert_eq!(&shown(&schema)["type"], "object");
            let arguments = [("a".to_owned(), value)].into_iter().collect();
            let _ = check(&schema, &arguments);
        }
    }
}

//! Plain schemas from types.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// The JSON Schema of `T` by which arguments are checked: one object without references, titles and number formats, with
/// the doc comments as descriptions. Objects take no other properties than theirs.
pub fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    simplify(&mut schema);
    if let Some(object) = schema.as_object_mut() {
        // The type's own doc comment is for readers of the code; the model reads the tool's description.
        object.remove("description");
        object.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    }
    schema
}

/// Applies to a schema and all schemas in it, and not to the names of properties.
pub(super) fn simplify(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    for noise in ["$schema", "title", "format"] {
        object.remove(noise);
    }
    if object.get("default").is_some_and(Value::is_null) {
        object.remove("default");
    }
    drop_null_type(object);
    drop_null_alternative(object);
    if object.contains_key("properties") {
        object.entry("additionalProperties").or_insert(Value::Bool(false));
    }
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        properties.values_mut().for_each(simplify);
    }
    for single in ["items", "additionalProperties"] {
        object.get_mut(single).into_iter().for_each(simplify);
    }
    for list in ["anyOf", "oneOf", "allOf", "prefixItems"] {
        object.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().for_each(simplify);
    }
}

/// `schema` without what a model does not need, since every request carries it:
///
/// - whether other properties are taken, and defaults: the check of a call says what is wrong
/// - descriptions of list items, which are doc comments of types
/// - descriptions of single values of an enumeration
pub(super) fn told(mut schema: Value) -> Value {
    shorten(&mut schema);
    schema
}

fn shorten(schema: &mut Value) {
    let values = schema.get("oneOf").and_then(|_| allowed(schema));
    let values = values.map(|values| values.into_iter().cloned().collect::<Vec<_>>());
    let Some(object) = schema.as_object_mut() else { return };
    if object.get("additionalProperties").is_some_and(Value::is_boolean) {
        object.remove("additionalProperties");
    }
    object.remove("default");
    if let Some(values) = values {
        object.remove("oneOf");
        if values.iter().all(Value::is_string) {
            object.insert("type".to_owned(), "string".into());
        }
        object.insert("enum".to_owned(), values.into());
    }
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        properties.values_mut().for_each(shorten);
    }
    if let Some(Value::Object(items)) = object.get_mut("items") {
        items.remove("description");
    }
    for single in ["items", "additionalProperties"] {
        object.get_mut(single).into_iter().for_each(shorten);
    }
    for list in ["anyOf", "oneOf", "allOf", "prefixItems"] {
        object.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().for_each(shorten);
    }
}

/// `["string", "null"]`: that it may be left out is said by not being required.
fn drop_null_type(object: &mut Map<String, Value>) {
    let Some(Value::Array(types)) = object.get_mut("type") else { return };
    types.retain(|name| name != "null");
    if let [only] = types.as_slice() {
        let only = only.clone();
        object.insert("type".to_owned(), only);
    }
    if let Some(Value::Array(values)) = object.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
}

fn drop_null_alternative(object: &mut Map<String, Value>) {
    let Some(Value::Array(alternatives)) = object.get_mut("anyOf") else { return };
    alternatives.retain(|schema| schema.get("type").is_none_or(|name| name != "null"));
    if let [Value::Object(only)] = alternatives.as_slice() {
        let only = only.clone();
        object.remove("anyOf");
        for (key, value) in only {
            object.entry(key).or_insert(value);
        }
    }
}

/// A schema in one line, for error messages: `{command: string, timeout?: integer}`.
pub fn short(schema: &Value) -> String {
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        let required = required(schema);
        let field = |(name, schema): (&String, &Value)| {
            let mark = if required.contains(&name.as_str()) { "" } else { "?" };
            format!("{name}{mark}: {}", short(schema))
        };
        return format!("{{{}}}", properties.iter().map(field).collect::<Vec<_>>().join(", "));
    }
    let alternatives = schema.get("enum").or_else(|| schema.get("anyOf")).or_else(|| schema.get("oneOf"));
    if let Some(alternatives) = alternatives.and_then(Value::as_array) {
        let words = alternatives.iter().map(|alternative| match alternative {
            Value::Object(_) => short(alternative),
            value => value.to_string(),
        });
        return words.collect::<Vec<_>>().join(" | ");
    }
    match (schema.get("const"), schema.get("type"), schema.get("items")) {
        (Some(value), ..) => value.to_string(),
        (_, Some(Value::String(name)), Some(items)) if name == "array" => format!("[{}, …]", short(items)),
        (_, Some(Value::String(name)), _) => name.clone(),
        _ => "any".to_owned(),
    }
}

/// The values of which a value has to be one, where the schema lists them: variants with a description of their own stand
/// in `oneOf`.
pub(super) fn allowed(schema: &Value) -> Option<Vec<&Value>> {
    let list = |name| schema.get(name).and_then(Value::as_array);
    match list("enum") {
        Some(values) => Some(values.iter().collect()),
        None => list("oneOf").or_else(|| list("anyOf"))?.iter().map(|one| one.get("const")).collect(),
    }
}

/// The names that an object must have.
pub(super) fn required(schema: &Value) -> Vec<&str> {
    let names = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    names.filter_map(Value::as_str).collect()
}

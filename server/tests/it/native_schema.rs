//! Checks answers against the description of the API: as much of JSON Schema as that uses.

use serde_json::{Map, Value};

use crate::client::Client;

/// The description of the API.
pub(crate) struct Description(Value);

impl Description {
    /// As the server has it.
    pub(crate) async fn of(client: &Client) -> Self {
        Self(client.get("/v1/openapi.json").await.with(200))
    }

    /// Fails where `value` is not what the schema of this name says.
    pub(crate) fn check(&self, name: &str, value: &Value) {
        let schema = &self.0["components"]["schemas"][name];
        assert!(schema.is_object(), "there is no schema {name}");
        if let Err(error) = self.fits(schema, value) {
            panic!("{name}: {error}\n{value:#}");
        }
    }

    fn fits(&self, schema: &Value, value: &Value) -> Result<(), String> {
        let schema = schema.as_object().ok_or("a schema is an object")?;
        for (keyword, says) in schema {
            match keyword.as_str() {
                "$ref" => {
                    let name = says.as_str().and_then(|path| path.strip_prefix("#/components/schemas/"));
                    let named = &self.0["components"]["schemas"][name.ok_or("a reference to elsewhere")?];
                    self.fits(named, value)?;
                }
                "allOf" => {
                    for schema in says.as_array().into_iter().flatten() {
                        self.fits(schema, value)?;
                    }
                }
                "oneOf" => {
                    let all = says.as_array().into_iter().flatten();
                    let tried: Vec<_> = all.map(|schema| self.fits(schema, value)).collect();
                    let fitting = tried.iter().filter(|tried| tried.is_ok()).count();
                    if fitting != 1 {
                        return Err(format!("{fitting} of its forms fit: {tried:?}: {value}"));
                    }
                }
                "anyOf" => {
                    let mut all = says.as_array().into_iter().flatten();
                    if !all.any(|schema| self.fits(schema, value).is_ok()) {
                        return Err(format!("none of its forms fits: {value}"));
                    }
                }
                "type" => check_type(says, value)?,
                "const" if says == value => {}
                "const" => return Err(format!("{value} is not {says}")),
                "enum" => {
                    if !says.as_array().is_some_and(|names| names.contains(value)) {
                        return Err(format!("{value} is not one of {says}"));
                    }
                }
                "minimum" => {
                    if value.as_f64() < says.as_f64() {
                        return Err(format!("{value} is less than {says}"));
                    }
                }
                "maximum" => {
                    if value.as_f64() > says.as_f64() {
                        return Err(format!("{value} is more than {says}"));
                    }
                }
                "items" => {
                    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.fits(says, item).map_err(|error| format!("[{index}]: {error}"))?;
                    }
                }
                "required" => {
                    for name in says.as_array().into_iter().flatten() {
                        if value.get(name.as_str().unwrap()).is_none() {
                            return Err(format!("{name} is missing"));
                        }
                    }
                }
                "properties" => self.check_properties(schema, value)?,
                "pattern" => check_pattern(says.as_str().unwrap(), value)?,
                "additionalProperties" | "description" | "default" | "examples" => {}
                other => return Err(format!("the keyword {other} is not known here")),
            }
        }
        if !schema.contains_key("properties") && schema.contains_key("additionalProperties") {
            self.check_properties(schema, value)?;
        }
        Ok(())
    }

    fn check_properties(&self, schema: &Map<String, Value>, value: &Value) -> Result<(), String> {
        for (name, field) in value.as_object().into_iter().flatten() {
            let known = schema.get("properties").and_then(|properties| properties.get(name));
            match (known, schema.get("additionalProperties")) {
                (Some(schema), _) => self.fits(schema, field).map_err(|error| format!("{name}: {error}"))?,
                (None, Some(Value::Bool(false))) => return Err(format!("{name} is not described")),
                (None, None | Some(Value::Bool(true))) => {}
                (None, Some(schema)) => {
                    self.fits(schema, field).map_err(|error| format!("{name}: {error}"))?
                }
            }
        }
        Ok(())
    }
}

fn check_type(says: &Value, value: &Value) -> Result<(), String> {
    let fits = match says.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => return Err(format!("the type {other} is not known here")),
    };
    if fits { Ok(()) } else { Err(format!("{value} is no {says}")) }
}

fn check_pattern(pattern: &str, value: &Value) -> Result<(), String> {
    let text = value.as_str().ok_or_else(|| format!("{value} is no string"))?;
    let fits = match pattern {
        "^[0-9a-f]{64}$" => text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "^[^/]+/.+$" => {
            text.split_once('/').is_some_and(|(left, right)| !left.is_empty() && !right.is_empty())
        }
        "^-?[0-9]+(\\.[0-9]+)?$" => text.parse::<f64>().is_ok(),
        "^[0-9]+(\\.[0-9]+)?$" => {
            text.split('.').count() <= 2 && text.split('.').all(|part| part.parse::<u64>().is_ok())
        }
        "^urn:playhouse:problem:[a-z-]+$" => text.starts_with("urn:playhouse:problem:"),
        // The ids: a prefix, and then what all of them have.
        id => {
            let prefix = id.get(1..5).unwrap();
            text.len() == 30 && text.starts_with(prefix)
        }
    };
    if fits { Ok(()) } else { Err(format!("{value} is not as {pattern} says")) }
}

//! The wire's own description, and a check of values against it. It lies beside the repository and is no part of the
//! project: where it is absent, nothing is compared.

#![allow(dead_code, reason = "it is part of two programs of tests, and each uses some of it")]
#![allow(clippy::print_stdout, reason = "a test that compares nothing says so")]

use std::path::Path;

use serde_json::Value;

/// The description of the wire.
pub(crate) struct Description(Value);

/// A file that lies beside the repository, if it does.
pub(crate) fn beside(name: &str) -> Option<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/opencode").join(name);
    if !path.exists() {
        println!("not compared: there is no {}", path.display());
        return None;
    }
    Some(fs_err::read_to_string(path).unwrap())
}

impl Description {
    /// The description, if it is there.
    pub(crate) fn find() -> Option<Self> {
        Some(Self(serde_json::from_str(&beside("openapi.json")?).unwrap()))
    }

    /// All operations: path, method (in capitals) and what is said of it.
    pub(crate) fn operations(&self) -> impl Iterator<Item = (&str, String, &Value)> {
        self.0["paths"].as_object().unwrap().iter().flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().iter();
            methods.map(|(method, operation)| (path.as_str(), method.to_uppercase(), operation))
        })
    }

    /// The path with parameters in braces that an address fits; one without parameters first.
    pub(crate) fn template(&self, address: &str) -> Option<&str> {
        let parts: Vec<&str> = address.split('?').next().unwrap().split('/').collect();
        let fits = |template: &&str| {
            let written: Vec<&str> = template.split('/').collect();
            let mut pairs = written.iter().zip(&parts);
            written.len() == parts.len() && pairs.all(|(part, is)| part.starts_with('{') || part == is)
        };
        let templates = self.0["paths"].as_object().unwrap().keys().map(String::as_str);
        templates.filter(fits).min_by_key(|template| template.matches('{').count())
    }

    /// What is wrong with a value that should be the component `name`.
    pub(crate) fn component(&self, name: &str, value: &Value) -> Result<(), String> {
        self.check(&self.0["components"]["schemas"][name], value, name)
    }

    /// What is wrong with an event.
    pub(crate) fn event(&self, event: &Value) -> Result<(), String> {
        let kinds =
            self.0["components"]["schemas"]["GlobalEvent"]["properties"]["payload"]["anyOf"].as_array();
        let is_of = |schema: &&Value| self.resolve(schema)["properties"]["type"]["enum"][0] == event["type"];
        match kinds.unwrap().iter().find(is_of) {
            Some(schema) => self.check(schema, event, event["type"].as_str().unwrap_or_default()),
            // A real server sends it, and its description has forgotten it.
            None if event["type"] == "server.heartbeat" => Ok(()),
            None => Err(format!("there is no event {}", event["type"])),
        }
    }

    /// Whether an operation has answers with this status.
    pub(crate) fn knows(&self, method: &str, path: &str, status: u16) -> bool {
        self.0["paths"][path][method.to_lowercase()]["responses"][status.to_string()].is_object()
    }

    /// What is wrong with the answer to a request. `path` has its parameters in braces.
    pub(crate) fn response(&self, method: &str, path: &str, status: u16, body: &[u8]) -> Result<(), String> {
        let operation = &self.0["paths"][path][method.to_lowercase()];
        let response = &operation["responses"][status.to_string()];
        let place = format!("{method} {path} {status}");
        if !response.is_object() {
            return Err(format!("{place}: it has no such answer: {}", String::from_utf8_lossy(body)));
        }
        let schema = &response["content"]["application/json"]["schema"];
        if !schema.is_object() {
            // What is no JSON has no form that is checked.
            if response["content"].as_object().is_some_and(|types| !types.is_empty()) {
                return Ok(());
            }
            return if body.is_empty() { Ok(()) } else { Err(format!("{place}: it has no body")) };
        }
        let value: Value = serde_json::from_slice(body).map_err(|error| format!("{place}: {error}"))?;
        self.check(schema, &value, &place)
    }

    fn resolve<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let Some(name) = schema["$ref"].as_str() else { return schema };
        let name = name.rsplit('/').next().unwrap();
        let schema = &self.0["components"]["schemas"][name];
        assert!(schema.is_object(), "there is no schema {name}");
        self.resolve(schema)
    }

    fn check(&self, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
        let schema = self.resolve(schema);
        let wrong = |what: &str| Err(format!("{place}: {what}: {}", shown(value)));
        for choice in ["anyOf", "oneOf"] {
            let Some(schemas) = schema[choice].as_array() else { continue };
            let errors: Vec<String> =
                schemas.iter().filter_map(|schema| self.check(schema, value, place).err()).collect();
            if errors.len() == schemas.len() {
                return Err(format!("{place}: it is none of these: {}", errors.join("; ")));
            }
        }
        let fits = match schema["type"].as_str() {
            None => true,
            Some("object") => value.is_object(),
            Some("array") => value.is_array(),
            Some("string") => value.is_string(),
            Some("boolean") => value.is_boolean(),
            Some("null") => value.is_null(),
            Some("number") => value.is_number(),
            Some("integer") => value.is_i64() || value.is_u64(),
            Some(other) => panic!("{place}: what is a {other}?"),
        };
        if !fits {
            return wrong(&format!("it is no {}", schema["type"]));
        }
        if let Some(allowed) = schema["enum"].as_array()
            && !allowed.contains(value)
        {
            return wrong(&format!("it is none of {allowed:?}"));
        }
        if let (Some(pattern), Some(text)) = (schema["pattern"].as_str(), value.as_str()) {
            let prefix = pattern.strip_prefix('^').unwrap();
            // The colours of agents have the only pattern that is more than a prefix.
            let is_prefix = prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if is_prefix && !text.starts_with(prefix) {
                return wrong(&format!("it does not begin with {prefix}"));
            }
        }
        if let (Some(least), Some(number)) = (schema["minimum"].as_f64(), value.as_f64())
            && number < least
        {
            return wrong(&format!("it is less than {least}"));
        }
        if let Some(values) = value.as_array() {
            for (index, value) in values.iter().enumerate() {
                if schema["items"].is_object() {
                    self.check(&schema["items"], value, &format!("{place}[{index}]"))?;
                }
            }
        }
        let Some(object) = value.as_object() else { return Ok(()) };
        for name in schema["required"].as_array().into_iter().flatten() {
            if !object.contains_key(name.as_str().unwrap()) {
                return wrong(&format!("{name} is missing"));
            }
        }
        for (name, value) in object {
            let place = format!("{place}.{name}");
            match (&schema["properties"][name], &schema["additionalProperties"]) {
                (known, _) if known.is_object() => self.check(known, value, &place)?,
                (_, Value::Bool(false)) => {
                    return Err(format!("{place}: it should not be there: {}", shown(value)));
                }
                (_, more) if more.is_object() => self.check(more, value, &place)?,
                _ => {}
            }
        }
        Ok(())
    }
}

fn shown(value: &Value) -> String {
    value.to_string().chars().take(300).collect()
}

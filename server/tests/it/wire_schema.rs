//! A server of opencode, as the npm registry has it: its own description of the wire, a check of values against that, and what it
//! says. `scripts/setup` installs it into `tests/clients`. Three programs of tests have this file.

#![allow(dead_code, reason = "it is part of three programs of tests, and each uses some of it")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};

/// The longest wait for an answer, which no answer takes unless the server hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server of opencode that runs, with a home and a folder of its own.
pub(crate) struct Opencode {
    process: Child,
    address: SocketAddr,
    _home: tempfile::TempDir,
}

impl Opencode {
    /// Starts one, with a model that nobody serves.
    pub(crate) fn start() -> Self {
        let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        let program = folders
            .map(|folder| folder.join("tests/clients/node_modules/opencode-ai/bin/opencode.exe"))
            .find(|program| program.exists())
            .expect("opencode is in tests/clients/node_modules: scripts/setup installs it");
        let home = tempfile::tempdir().unwrap();
        let config = json!({"model": "local/m", "provider": {"local": {
            "npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "http://127.0.0.1:9/v1"}, "models": {"m": {}},
        }}});
        let work = home.path().join("work");
        fs_err::create_dir(&work).unwrap();
        let mut command = Command::new(program);
        command.args(["serve", "--hostname", "127.0.0.1", "--port", "0"]).current_dir(work).env_clear();
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path))).env("HOME", home.path());
        command.env("OPENCODE_CONFIG_CONTENT", config.to_string());
        // It neither updates itself nor asks for a list of models.
        command.env("OPENCODE_DISABLE_AUTOUPDATE", "1").env("OPENCODE_DISABLE_MODELS_FETCH", "1");
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let told = BufReader::new(process.stdout.take().unwrap());
        let address = told.lines().map_while(Result::ok).find_map(|line| {
            line.split_once("listening on http://").map(|(_, address)| address.trim().parse().unwrap())
        });
        Self { process, address: address.expect("it says where it listens"), _home: home }
    }

    /// Sends a request. Gives what follows the head of the answer, and how many bytes that is where it is known.
    fn send(&self, method: &str, path: &str, body: &str) -> (BufReader<TcpStream>, Option<u64>) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (host, length) = (self.address, body.len());
        // Answers of this version are not cut into chunks.
        let head = format!("{method} {path} HTTP/1.0\r\nhost: {host}\r\ncontent-length: {length}");
        let whole = format!("{head}\r\ncontent-type: application/json\r\n\r\n{body}");
        stream.write_all(whole.as_bytes()).unwrap();
        let mut answer = BufReader::new(stream);
        let mut length = None;
        let mut line = String::new();
        answer.read_line(&mut line).unwrap();
        assert!(line.contains(" 200"), "{method} {path}: {line}");
        while line.trim() != "" {
            line.clear();
            answer.read_line(&mut line).unwrap();
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = Some(value.trim().parse().unwrap());
            }
        }
        (answer, length)
    }

    /// The answer to a request.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (answer, length) = self.send(method, path, &body);
        let mut text = String::new();
        answer.take(length.unwrap_or(u64::MAX)).read_to_string(&mut text).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{method} {path}: {error}: {text}"))
    }

    /// What it tells from now on.
    pub(crate) fn events(&self) -> impl Iterator<Item = Value> + use<> {
        let mut lines = self.send("GET", "/event", "").0.lines();
        // It says first that somebody listens.
        lines.find(|line| line.as_ref().unwrap().starts_with("data: "));
        lines.filter_map(|line| Some(serde_json::from_str(line.unwrap().strip_prefix("data: ")?).unwrap()))
    }
}

impl Drop for Opencode {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The description of the wire.
#[derive(Clone)]
pub(crate) struct Description(Arc<Value>);

impl Description {
    /// The description, which one server is asked for.
    pub(crate) fn get() -> Self {
        static DESCRIPTION: OnceLock<Description> = OnceLock::new();
        let ask = || Self(Arc::new(Opencode::start().ask("GET", "/doc", &Value::Null)));
        DESCRIPTION.get_or_init(ask).clone()
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

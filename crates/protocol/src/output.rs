//! Answers that have a schema: what a prompt wants, and the call by which a model gives it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::message::CallInput;

/// The tool that a model must call in the turn of a prompt that wants an answer with a schema.
pub const SUBMIT_OUTPUT: &str = "submit_output";

/// The member of its result's metadata that holds the answer.
pub const OUTPUT: &str = "output";
/// So many answers and calls of a turn may fail to give what is wanted.
pub const MOST_TRIES: u32 = 5;

/// Members of a schema that references of it lead to.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];
/// The only argument, where a schema is not that of an object.
const VALUE: &str = "value";

/// The answer that a prompt wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WantedOutput {
    /// Its JSON Schema. The turn is completed when the model has given a value that fits.
    pub schema: Value,
}

impl WantedOutput {
    /// The schema of the arguments of [`SUBMIT_OUTPUT`]: that of the answer, or of an object around it, since arguments are one.
    ///
    /// ```
    /// # use playhouse_protocol::output::WantedOutput;
    /// # use serde_json::json;
    /// let wanted = WantedOutput { schema: json!({"type": "integer"}) };
    /// assert_eq!(wanted.parameters()["properties"]["value"], json!({"type": "integer"}));
    /// ```
    pub fn parameters(&self) -> Value {
        if !self.is_wrapped() {
            return self.schema.clone();
        }
        let mut inner = self.schema.clone();
        let mut outer = Map::new();
        outer.insert("type".to_owned(), "object".into());
        if let Some(inner) = inner.as_object_mut() {
            for name in DEFINITIONS {
                outer.extend(inner.remove_entry(name));
            }
        }
        outer.insert("properties".to_owned(), json!({VALUE: inner}));
        outer.insert("required".to_owned(), json!([VALUE]));
        Value::Object(outer)
    }

    /// The answer that arguments hold.
    ///
    /// # Errors
    /// They hold none, in words for the model.
    pub fn value_of(&self, arguments: &Map<String, Value>) -> Result<Value, String> {
        if !self.is_wrapped() {
            return Ok(Value::Object(arguments.clone()));
        }
        arguments.get(VALUE).cloned().ok_or_else(|| format!("\"{VALUE}\" is missing: it holds the answer"))
    }

    fn is_wrapped(&self) -> bool {
        match self.schema.get("type") {
            Some(kind) => kind != "object",
            None => self.schema.get("properties").is_none(),
        }
    }
}

/// What came of it so far in a turn.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputState {
    /// What is wanted.
    pub wanted: WantedOutput,
    /// How often an answer or a call did not give it.
    pub tries: u32,
    /// What was given.
    pub value: Option<Value>,
}

impl OutputState {
    /// Nothing was given yet.
    pub fn new(wanted: WantedOutput) -> Self {
        Self { wanted, tries: 0, value: None }
    }

    /// A call of [`SUBMIT_OUTPUT`] is settled.
    pub fn submitted(&mut self, input: &CallInput, is_done: bool) {
        let given = match input {
            CallInput::Object(arguments) if is_done => self.wanted.value_of(arguments).ok(),
            CallInput::Object(_) | CallInput::Malformed(_) => None,
        };
        match given {
            Some(value) => self.value = Some(value),
            None => self.tries += 1,
        }
    }
}

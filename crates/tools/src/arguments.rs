//! The arguments of calls: their schema from a type, and a strict reading that says what does not fit.
//!
//! ```
//! use playhouse_tools::arguments;
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//! use serde_json::json;
//!
//! #[derive(Debug, Deserialize, JsonSchema)]
//! struct Arguments {
//!     /// Number of the first line.
//!     offset: Option<u32>,
//! }
//!
//! let input = |value: serde_json::Value| value.as_object().cloned().unwrap();
//! let arguments: Arguments = arguments::parse("read", &input(json!({"offset": "10"})))?;
//! assert_eq!(arguments.offset, Some(10));
//!
//! let error = arguments::parse::<Arguments>("read", &input(json!({"ofset": 10}))).unwrap_err();
//! assert!(error.to_string().contains("did you mean `offset`"));
//! # Ok::<(), playhouse_tools::ToolError>(())
//! ```

mod fit;
mod mended;
mod schema;

use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use playhouse_protocol::chat::ToolSpec;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::ToolError;

pub use schema::{schema, short};
use schema::{simplify, told};

/// The specification of a native tool with arguments of type `T`. Its schema is shortened, so `description` explains the rest.
pub fn spec<T: JsonSchema>(name: &str, description: &str) -> ToolSpec {
    let parameters = told(schema::<T>());
    ToolSpec { name: name.to_owned(), description: description.trim().to_owned(), parameters }
}

/// Reads the arguments of a call to `tool`.
///
/// An argument that does not exist is refused. `null` is the same as leaving an optional one out, and a number or a
/// truth value may be written as text, since models do that.
///
/// # Errors
/// [`ToolError::Invalid`] with what did not fit, where, what the tool takes, and the nearest call that would be right,
/// where there is one.
pub fn parse<T: DeserializeOwned + JsonSchema + 'static>(
    tool: &str,
    input: &Map<String, Value>,
) -> Result<T, ToolError> {
    let schema = known::<T>();
    read(Value::Object(input.clone()), &schema).map_err(|reason| {
        let given = Value::Object(input.clone());
        misfit(tool, &reason, &schema, &given, &|call| read::<T>(call, &schema).is_ok())
    })
}

/// The schema of `T`, made once: making one takes longer than most calls.
fn known<T: JsonSchema + 'static>() -> Arc<Value> {
    static KNOWN: RwLock<BTreeMap<TypeId, Arc<Value>>> = RwLock::new(BTreeMap::new());
    let found = KNOWN.read().get(&TypeId::of::<T>()).cloned();
    found.unwrap_or_else(|| {
        let made = Arc::new(schema::<T>());
        let mut known = KNOWN.write();
        Arc::clone(known.entry(TypeId::of::<T>()).or_insert(made))
    })
}

fn read<T: DeserializeOwned>(mut input: Value, schema: &Value) -> Result<T, String> {
    fit::fit(&mut input, schema)?;
    serde_json::from_value(input).map_err(|error| error.to_string())
}

/// The error for arguments that are not even an object.
pub(crate) fn not_an_object(spec: &ToolSpec, written: &str) -> ToolError {
    let (reason, given) = match serde_json::from_str::<Value>(written) {
        Ok(given) => ("they must be one JSON object".to_owned(), given),
        Err(error) => (format!("they are not valid JSON ({error})"), Value::Null),
    };
    // Models are not told that no other properties are taken.
    let mut schema = spec.parameters.clone();
    simplify(&mut schema);
    misfit(&spec.name, &reason, &schema, &given, &|mut call| fit::fit(&mut call, &schema).is_ok())
}

fn misfit(
    tool: &str,
    reason: &str,
    schema: &Value,
    given: &Value,
    is_right: &dyn Fn(Value) -> bool,
) -> ToolError {
    let takes = short(schema);
    let call = mended::mended(given, schema);
    let right = mended::says_something(&call, schema) && is_right(call.clone());
    let nearest = right.then(|| mended::shown(tool, call)).flatten();
    let advice = nearest.map_or_else(
        || "Write the call again with arguments that fit".to_owned(),
        |call| format!("The nearest right call: {call}"),
    );
    let stop = if reason.ends_with('?') { "" } else { "." };
    ToolError::Invalid(format!(
        "the arguments of {tool} do not fit: {reason}{stop} It takes {takes} (in short; `?` marks what may be left out). \
         {advice}"
    ))
}

#[cfg(test)]
mod tests;

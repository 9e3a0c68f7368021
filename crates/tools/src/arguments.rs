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
mod schema;

use playhouse_protocol::chat::ToolSpec;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::ToolError;

pub use schema::{schema, short};

/// A tool as a model is told of it, with the arguments of type `T`.
pub fn spec<T: JsonSchema>(name: &str, description: &str) -> ToolSpec {
    ToolSpec { name: name.to_owned(), description: description.trim().to_owned(), parameters: schema::<T>() }
}

/// Reads the arguments of a call to `tool`.
///
/// An argument that does not exist is refused. `null` is the same as leaving an optional one out, and a number or a
/// truth value may be written as text, since models do that.
///
/// # Errors
/// [`ToolError::Invalid`] with what did not fit, where, and what the tool takes.
pub fn parse<T: DeserializeOwned + JsonSchema>(
    tool: &str,
    input: &Map<String, Value>,
) -> Result<T, ToolError> {
    let schema = schema::<T>();
    let mut input = Value::Object(input.clone());
    fit::fit(&mut input, &schema)
        .and_then(|()| serde_json::from_value(input).map_err(|error| error.to_string()))
        .map_err(|reason| misfit(tool, &reason, &schema))
}

/// The error for arguments that are not even an object.
pub(crate) fn not_an_object(spec: &ToolSpec, written: &str) -> ToolError {
    let reason = match serde_json::from_str::<Value>(written) {
        Ok(_) => "they must be one JSON object".to_owned(),
        Err(error) => format!("they are not valid JSON ({error})"),
    };
    misfit(&spec.name, &reason, &spec.parameters)
}

fn misfit(tool: &str, reason: &str, schema: &Value) -> ToolError {
    let takes = short(schema);
    ToolError::Invalid(format!(
        "the arguments of {tool} do not fit: {reason}. It takes {takes}. Write the call again with arguments that fit"
    ))
}

#[cfg(test)]
mod tests;

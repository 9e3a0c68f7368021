//! Capture tools: the arguments of a call are checked against a schema and kept in the session's log as an *artifact*.
//!
//! They are declared, not programmed: by configuration, by files of a workspace, over the API. A call can do nothing but keep
//! what a model wrote anyway.

mod examples;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::output::SUBMIT_OUTPUT;
use playhouse_protocol::record::{Effect, Recovery};
use playhouse_protocol::tool::ToolOrigin;
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::host_tool::HOST_PERMISSION;
use crate::registry::is_allowed_name;
use crate::schema::{CheckedSchema, NoSchema};
use crate::source::MCP_PREFIX;
use crate::tool::{Artifact, CallContext, Plan, Prepared, Risk, Tool, ToolError, ToolOutput};

pub use examples::{EXAMPLES, example};

/// Names that are no tool's own: permissions, and the tool of language servers, which not each session has.
const RESERVED: [&str; 6] = ["mcp", "lsp", HOST_PERMISSION, "external_directory", "doom_loop", "edit"];
/// The longest description, in bytes.
pub const LONGEST_DESCRIPTION: usize = 8 * 1024;
/// The member of arguments that holds a value that is no object.
const VALUE: &str = "value";
/// The longest preview, in bytes.
const LONGEST_PREVIEW: usize = 64 * 1024;

/// Why there can be no such capture tool: the part that is wrong, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CaptureError {
    /// It cannot have this name.
    #[error("`name` {0}")]
    Name(String),
    /// It cannot have this description.
    #[error("`description` {0}")]
    Description(String),
    /// It cannot have this schema.
    #[error("`schema`: {0}")]
    Schema(#[from] NoSchema),
}

/// A tool that keeps its arguments.
#[derive(Debug)]
pub struct CaptureTool {
    spec: ToolSpec,
    schema: CheckedSchema,
    /// Whether the value stands in the member [`VALUE`] of the arguments, since it need not be an object.
    is_wrapped: bool,
    by_name_only: bool,
}

impl CaptureTool {
    /// A tool that keeps values of this JSON Schema.
    ///
    /// # Errors
    /// The name is reserved or none that providers take, there is no description or a long one, the schema is none.
    ///
    /// ```
    /// use playhouse_tools::{Tool, capture::CaptureTool};
    /// use serde_json::json;
    ///
    /// let schema = json!({"type": "object", "properties": {"good": {"type": "boolean"}}});
    /// let tool = CaptureTool::new("verdict", "Says whether it is good.", &schema).unwrap();
    /// assert_eq!(tool.spec().parameters, schema);
    /// assert!(CaptureTool::new("mcp_x", "x", &schema).is_err());
    /// ```
    pub fn new(name: &str, description: &str, schema: &Value) -> Result<Self, CaptureError> {
        check_name(name).map_err(CaptureError::Name)?;
        let description = description.trim();
        match description.len() {
            0 => {
                return Err(CaptureError::Description(
                    "is missing: say what the tool is to be called for".into(),
                ));
            }
            1..=LONGEST_DESCRIPTION => {}
            bytes => {
                let message = format!("is {bytes} bytes long, at most {LONGEST_DESCRIPTION}");
                return Err(CaptureError::Description(message));
            }
        }
        let is_wrapped = !is_of_objects(schema);
        let checked = CheckedSchema::new(schema)?;
        let (name, parameters) = (name.to_owned(), parameters(schema));
        let spec = ToolSpec { name, description: description.to_owned(), parameters };
        Ok(Self { spec, schema: checked, is_wrapped, by_name_only: false })
    }

    /// The same, offered only to sessions whose allowlist names it.
    #[must_use]
    pub fn by_name_only(mut self) -> Self {
        self.by_name_only = true;
        self
    }

    fn value(&self, input: &Map<String, Value>) -> Result<Value, ToolError> {
        let value = match (self.is_wrapped, input.get(VALUE)) {
            (false, _) => Ok(Value::Object(input.clone())),
            (true, Some(value)) if input.len() == 1 => Ok(value.clone()),
            (true, _) => Err(format!("\"{VALUE}\" is the only argument, and needed")),
        };
        let place = if self.is_wrapped { format!("{VALUE}: ") } else { String::new() };
        let fits = |value| self.schema.check(&value).map(|()| value).map_err(|problem| place + &problem);
        let checked = value.and_then(fits);
        checked.map_err(|problems| {
            let name = &self.spec.name;
            ToolError::Invalid(format!(
                "nothing was kept: the arguments of {name} do not fit its schema\n{problems}"
            ))
        })
    }
}

/// Whether a capture tool may have this name; else a fragment that says why not.
///
/// # Errors
/// It is reserved, or none that providers take.
pub fn check_name(name: &str) -> Result<(), String> {
    let shown = name.escape_debug();
    if !is_allowed_name(name) {
        return Err(format!("is \"{shown}\", expected 1 to 64 of the characters a-z, A-Z, 0-9, _ and -"));
    }
    if name.starts_with(MCP_PREFIX) {
        return Err(format!("is \"{shown}\": names of tools of MCP servers begin with {MCP_PREFIX}"));
    }
    if RESERVED.contains(&name) {
        return Err(format!("is \"{shown}\", which is the name of a permission or of another tool"));
    }
    if name == SUBMIT_OUTPUT {
        return Err(format!("is \"{shown}\", which is reserved for answers that have a schema"));
    }
    Ok(())
}

/// The arguments of a capture tool with this schema, as a schema: a value that need not be an object is a member of them.
pub fn parameters(schema: &Value) -> Value {
    if is_of_objects(schema) { shown(schema) } else { wrapped(&shown(schema)) }
}

/// Whether all values of a schema are objects, as arguments of tools are.
fn is_of_objects(schema: &Value) -> bool {
    match schema.get("type") {
        Some(kind) => kind == "object",
        None => schema.get("properties").is_some(),
    }
}

/// What people are shown of arguments.
pub(crate) fn preview(value: &Value) -> String {
    let mut preview = serde_json::to_string_pretty(value).unwrap_or_default();
    let mut ends = (0..=LONGEST_PREVIEW.min(preview.len())).rev();
    let end = ends.find(|end| preview.is_char_boundary(*end)).unwrap_or_default();
    preview.truncate(end);
    preview
}

/// A schema of objects as models are shown it.
pub(crate) fn shown(schema: &Value) -> Value {
    let mut shown = schema.clone();
    if let Value::Object(members) = &mut shown {
        members.remove("$schema");
        members.remove("$id");
        if members.contains_key("properties") && !members.contains_key("type") {
            members.insert("type".to_owned(), "object".into());
        }
    }
    shown
}

/// The schema of objects whose member [`VALUE`] is of `schema`, as models are shown it. References to definitions lead where the
/// definitions stand now.
fn wrapped(schema: &Value) -> Value {
    let mut inner = schema.clone();
    let mut outer = json!({"type": "object", "required": [VALUE], "additionalProperties": false});
    if let Value::Object(members) = &mut inner {
        for key in ["$defs", "definitions"] {
            if let Some(moved) = members.remove(key) {
                outer[key] = moved;
            }
        }
    }
    outer["properties"] = json!({VALUE: inner});
    outer
}

impl Tool for CaptureTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn risk(&self) -> Risk {
        Risk::Safe
    }

    fn origin(&self) -> Option<&ToolOrigin> {
        Some(&ToolOrigin::Capture)
    }

    fn by_name_only(&self) -> bool {
        self.by_name_only
    }

    fn prepare<'a>(
        &'a self,
        input: &'a Map<String, Value>,
        _: &'a CallContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        let prepared = self.value(input).map(|value| {
            Prepared {
                accesses: Vec::new(),
                effect: Effect::Session,
                // The artifact stands in the log with the result, or does not count.
                recovery: Recovery::Rerun,
                preview: preview(&value),
                title: self.spec.name.clone(),
                plan: Box::new(value),
            }
        });
        std::future::ready(prepared).boxed()
    }

    fn execute<'a>(&'a self, plan: Plan, _: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        let name = &self.spec.name;
        let output = match plan.downcast::<Value>() {
            Ok(value) => {
                let artifact = Artifact::new(name, *value);
                let output = format!("kept as an artifact of {name}, {}", artifact.hash);
                let title = name.clone();
                Ok(ToolOutput { title, artifact: Some(Box::new(artifact)), ..ToolOutput::text(output) })
            }
            Err(_) => {
                Err(ToolError::Failed(format!("{name} was given the plan of another tool: this is a bug")))
            }
        };
        std::future::ready(output).boxed()
    }
}

#[cfg(test)]
mod tests;

//! Host tools: registered by the platform over the API, and carried out by it.
//!
//! A call is offered as an event of its session and waits for its result. A tool with a [`Delivery`] is sent its calls too,
//! and may answer at once.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_policy::Access;
use playhouse_protocol::CallAnswer;
use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::record::{Effect, Recovery};
use playhouse_protocol::tool::ToolOrigin;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::capture::{LONGEST_DESCRIPTION, check_name, preview, shown};
use crate::schema::CheckedSchema;
use crate::tool::{CallContext, Plan, Prepared, Risk, Tool, ToolError, ToolOutput};

/// The permission of all host tools. Rules judge it by the tool's name.
pub const HOST_PERMISSION: &str = "host";
/// The largest schema, in bytes of JSON.
pub const LARGEST_SCHEMA: usize = 64 * 1024;
/// Time that a call has for its result.
pub const RESULT_WAIT: Duration = Duration::from_secs(600);

/// Why there can be no such host tool: the part that is wrong, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HostToolError {
    /// It cannot have this name.
    #[error("`name` {0}")]
    Name(String),
    /// It cannot have this description.
    #[error("`description` {0}")]
    Description(String),
    /// It cannot have this schema.
    #[error("`schema`: {0}")]
    Schema(String),
}

/// Where calls are sent, beside the event.
pub trait Delivery: Send + Sync {
    /// Sends a call, again and again until it arrived. `None` says that the result comes later. Dropping the future ends it.
    fn deliver<'a>(
        &'a self,
        tool: &'a str,
        arguments: &'a Map<String, Value>,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Option<CallAnswer>>;
}

/// A tool that the platform carries out.
pub struct HostTool {
    spec: ToolSpec,
    schema: CheckedSchema,
    risk: Risk,
    delivery: Option<Arc<dyn Delivery>>,
}

impl HostTool {
    /// A tool whose calls are events, and nothing else.
    ///
    /// # Errors
    /// The name is reserved or none that providers take, there is no description or a long one, the schema is none of objects
    /// or a large one.
    ///
    /// ```
    /// use playhouse_tools::host_tool::HostTool;
    /// use playhouse_tools::{Risk, Tool};
    /// use serde_json::json;
    ///
    /// let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    /// let tool = HostTool::new("weather_at", "Tells the weather.", &schema, Risk::Safe).unwrap();
    /// assert_eq!(tool.permission(), "host");
    /// assert!(HostTool::new("submit_output", "x", &schema, Risk::Safe).is_err());
    /// ```
    pub fn new(name: &str, description: &str, schema: &Value, risk: Risk) -> Result<Self, HostToolError> {
        check_name(name).map_err(HostToolError::Name)?;
        let description = description.trim();
        if description.is_empty() {
            let why = "is missing: say what the tool is to be called for";
            return Err(HostToolError::Description(why.to_owned()));
        }
        if description.len() > LONGEST_DESCRIPTION {
            let why = format!("is {} bytes long, at most {LONGEST_DESCRIPTION}", description.len());
            return Err(HostToolError::Description(why));
        }
        let bytes = schema.to_string().len();
        if bytes > LARGEST_SCHEMA {
            return Err(HostToolError::Schema(format!("it has {bytes} bytes, at most {LARGEST_SCHEMA}")));
        }
        if schema.get("type").is_none_or(|kind| kind != "object") {
            let why = "arguments are objects: its `type` must be \"object\"";
            return Err(HostToolError::Schema(why.to_owned()));
        }
        let checked = CheckedSchema::new(schema).map_err(|error| HostToolError::Schema(error.to_string()))?;
        let spec = ToolSpec {
            name: name.to_owned(),
            description: description.to_owned(),
            parameters: shown(schema),
        };
        Ok(Self { spec, schema: checked, risk, delivery: None })
    }

    /// The same, whose calls are sent too.
    #[must_use]
    pub fn delivered(mut self, delivery: Arc<dyn Delivery>) -> Self {
        self.delivery = Some(delivery);
        self
    }
}

impl Tool for HostTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn permission(&self) -> &str {
        HOST_PERMISSION
    }

    fn risk(&self) -> Risk {
        self.risk
    }

    fn origin(&self) -> Option<&ToolOrigin> {
        Some(&ToolOrigin::Host)
    }

    fn prepare<'a>(
        &'a self,
        input: &'a Map<String, Value>,
        _: &'a CallContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        let name = &self.spec.name;
        let value = Value::Object(input.clone());
        let prepared = match self.schema.check(&value) {
            Ok(()) => {
                Ok(Prepared {
                    accesses: vec![Access::HostTool(name.clone())],
                    // Calls of safe tools run side by side.
                    effect: if self.risk == Risk::Safe { Effect::Delegated } else { Effect::Workspace },
                    recovery: Recovery::Reattach,
                    preview: preview(&value),
                    title: name.clone(),
                    plan: Box::new(input.clone()),
                })
            }
            Err(problems) => {
                Err(ToolError::Invalid(format!("the arguments of {name} do not fit its schema\n{problems}")))
            }
        };
        std::future::ready(prepared).boxed()
    }

    fn execute<'a>(
        &'a self,
        plan: Plan,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        async move {
            let name = &self.spec.name;
            let Ok(arguments) = plan.downcast::<Map<String, Value>>() else {
                let bug = format!("{name} was given the plan of another tool: this is a bug");
                return Err(ToolError::Failed(bug));
            };
            let delivered = async {
                let answer = match &self.delivery {
                    Some(delivery) => delivery.deliver(name, &arguments, context).await,
                    None => None,
                };
                if let Some(answer) = answer {
                    // It counts once it is in the log: the offer ends with it.
                    context.host.give(answer);
                }
                std::future::pending().await
            };
            let answer = tokio::select! {
                biased;
                // First, since a result that was taken counts, whatever came right behind it.
                answer = context.host.offer(RESULT_WAIT) => answer,
                () = context.cancel.cancelled() => None,
                never = delivered => never,
            };
            match answer {
                Some(CallAnswer::Output { output }) => {
                    Ok(ToolOutput { title: name.clone(), ..ToolOutput::text(output) })
                }
                Some(CallAnswer::Error { error }) => Err(ToolError::Failed(error)),
                Some(CallAnswer::TimedOut) => Err(ToolError::Failed(format!(
                    "{name} gave no result within {} minutes: whether it was done is not known",
                    RESULT_WAIT.as_secs() / 60
                ))),
                None if context.cancel.is_cancelled() => {
                    Err(ToolError::Cancelled(format!("{name} had given no result")))
                }
                None => Err(ToolError::Failed(format!("nobody is there who gives the result of {name}"))),
            }
        }
        .boxed()
    }
}

//! `submit_output`: how a model gives an answer that has a schema. The engine makes one for the turn of a prompt that wants it.

use std::future::ready;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::output::{OUTPUT, SUBMIT_OUTPUT, WantedOutput};
use playhouse_protocol::record::{Effect, Recovery};
use serde_json::{Map, Value};

use crate::schema::{CheckedSchema, NoSchema};
use crate::tool::{CallContext, Plan, Prepared, Risk, Tool, ToolError, ToolOutput};

const DESCRIPTION: &str = "Gives the final answer, in the form that the user wants. Call it exactly once, alone, when the work is done: the turn ends with it. Text beside it is not the answer.";

/// The tool of one turn.
#[derive(Debug)]
pub struct SubmitOutput {
    spec: ToolSpec,
    wanted: WantedOutput,
    schema: CheckedSchema,
}

impl SubmitOutput {
    /// The tool by which such an answer is given.
    ///
    /// # Errors
    /// What is wanted is no JSON Schema.
    pub fn new(wanted: &WantedOutput) -> Result<Self, NoSchema> {
        let schema = CheckedSchema::new(&wanted.schema)?;
        let spec = ToolSpec {
            name: SUBMIT_OUTPUT.to_owned(),
            description: DESCRIPTION.to_owned(),
            parameters: wanted.parameters(),
        };
        Ok(Self { spec, wanted: wanted.clone(), schema })
    }

    /// What is wanted.
    pub fn wanted(&self) -> &WantedOutput {
        &self.wanted
    }
}

impl Tool for SubmitOutput {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn risk(&self) -> Risk {
        Risk::Safe
    }

    fn prepare<'a>(
        &'a self,
        input: &'a Map<String, Value>,
        _: &'a CallContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        let checked = self.wanted.value_of(input).and_then(|value| {
            self.schema.check(&value)?;
            Ok(value)
        });
        let prepared = checked.map(|value| Prepared {
            accesses: Vec::new(),
            // A batch makes no such call: it would hide the answer.
            effect: Effect::Session,
            recovery: Recovery::Rerun,
            preview: value.to_string(),
            title: "the answer".to_owned(),
            plan: Box::new(value),
        });
        let told = |problems| ToolError::Invalid(format!("the answer does not fit its schema:\n{problems}"));
        ready(prepared.map_err(told)).boxed()
    }

    fn execute<'a>(&'a self, plan: Plan, _: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        let value = plan.downcast::<Value>().map_or(Value::Null, |value| *value);
        let metadata = Map::from_iter([(OUTPUT.to_owned(), value)]);
        ready(Ok(ToolOutput { metadata, ..ToolOutput::text("the answer is given") })).boxed()
    }
}

//! `batch`: several calls that change nothing, at once.
//!
//! Each is found, prepared, judged, run and capped as a call by itself would be; the batch only puts the results together.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::path::Path;

use futures::FutureExt as _;
use playhouse_policy::Verdict;
use playhouse_protocol::message::CallInput;
use playhouse_protocol::record::{Effect, Recovery};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::tool::{CallContext, NewAttachment, Risk, ToolError, ToolOutput};
use crate::{Ready, TypedTool, runner};

/// The most calls of a batch.
const MOST_CALLS: usize = 25;
/// Tools that are of no use in a batch, whatever they change.
const NOT_HERE: [&str; 2] = [Batch::NAME, crate::question::Question::NAME];

/// The tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct Batch;

/// The arguments of `batch`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    /// 1 to 25 calls.
    #[serde(rename = "tool_calls")]
    calls: Vec<Item>,
}

/// One call of a batch.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// The name of the tool.
    tool: String,
    /// Its arguments.
    #[serde(default)]
    parameters: Map<String, Value>,
}

/// What became of one call.
struct Ended {
    tool: String,
    title: String,
    result: Result<(String, Vec<NewAttachment>), ToolError>,
}

impl TypedTool for Batch {
    const NAME: &'static str = "batch";
    const DESCRIPTION: &'static str = include_str!("../../../prompts/tools/batch.md");
    const RISK: Risk = Risk::Safe;
    type Arguments = Arguments;
    type Task = Vec<Item>;

    async fn prepare(&self, arguments: Arguments, _: &CallContext) -> Result<Ready<Vec<Item>>, ToolError> {
        let calls = arguments.calls;
        if !(1..=MOST_CALLS).contains(&calls.len()) {
            return Err(ToolError::Invalid(format!(
                "make 1 to {MOST_CALLS} calls in a batch, not {}",
                calls.len()
            )));
        }
        let names: Vec<&str> = calls.iter().map(|call| call.tool.as_str()).collect();
        Ok(Ready {
            // Each call is judged by itself, when it is prepared: one that may not run is no reason to refuse the rest.
            accesses: Vec::new(),
            effect: Effect::None,
            recovery: Recovery::Rerun,
            preview: names.join(", "),
            title: title(calls.len()),
            task: calls,
        })
    }

    async fn execute(&self, calls: Vec<Item>, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let running = calls.into_iter().zip(1..).map(|(call, number)| run(call, number, context));
        let ended = futures::future::join_all(running).await;
        if context.cancel.is_cancelled() {
            let done = ended.iter().filter(|call| call.result.is_ok()).count();
            return Err(ToolError::Cancelled(format!("{done} of {} calls had ended", ended.len())));
        }
        Ok(output(ended))
    }
}

fn title(calls: usize) -> String {
    if calls == 1 { "1 call".to_owned() } else { format!("{calls} calls") }
}

async fn run(call: Item, number: usize, context: &CallContext) -> Ended {
    let Item { tool, parameters } = call;
    let context = CallContext { output_file: beside(&context.output_file, number), ..context.clone() };
    // Boxed: there may be many of them, and what a tool holds may be large.
    let made = AssertUnwindSafe(make(&tool, parameters, &context)).catch_unwind().boxed();
    let (title, result) = match made.await {
        Ok(Ok(output)) => (output.title, Ok((output.output, output.attachments))),
        Ok(Err(error)) => (String::new(), Err(error)),
        Err(panic) => {
            (String::new(), Err(ToolError::Failed(format!("the tool crashed: {}", reason(&*panic)))))
        }
    };
    Ended { tool, title, result }
}

async fn make(
    name: &str,
    parameters: Map<String, Value>,
    context: &CallContext,
) -> Result<ToolOutput, ToolError> {
    if NOT_HERE.contains(&name) {
        return Err(ToolError::Invalid(format!("{name} cannot be called in a batch: call it by itself")));
    }
    let tool = context.host.find(name)?;
    let prepared = runner::prepare_with(&*tool, &CallInput::Object(parameters), context).await?;
    if prepared.effect != Effect::None {
        return Err(ToolError::Invalid(format!(
            "{name} has effects, and a batch takes only calls that change nothing: call it by itself"
        )));
    }
    match context.host.judge(name, &prepared) {
        Verdict::Allow => runner::execute(&*tool, prepared, context).await,
        Verdict::Deny { reason } => Err(ToolError::Failed(reason)),
        Verdict::Ask { reason, .. } => Err(ToolError::Failed(format!(
            "{reason}. Somebody has to agree to it, which a batch does not wait for: call {name} by itself"
        ))),
    }
}

/// The file for what is too long of the call with this number: beside that of the batch.
fn beside(file: &Path, number: usize) -> std::path::PathBuf {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    file.with_file_name(format!("{stem}-{number}.txt"))
}

fn reason(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it panicked")
}

fn output(ended: Vec<Ended>) -> ToolOutput {
    let calls = ended.len();
    let (mut texts, mut results, mut attachments) = (Vec::new(), Vec::new(), Vec::new());
    for (Ended { tool, title, result }, number) in ended.into_iter().zip(1..) {
        let ok = result.is_ok();
        let (word, text) = match result {
            Ok((text, attached)) => {
                attachments.extend(attached);
                ("", text)
            }
            Err(error) => ("error: ", error.to_string()),
        };
        let about = if title.is_empty() { String::new() } else { format!(" {title}") };
        texts.push(format!("[{number}] {tool}{about}\n{word}{text}"));
        results.push(json!({"tool": tool, "ok": ok, "title": title}));
    }
    let failed = results.iter().filter(|result| result["ok"] == false).count();
    if failed > 0 {
        texts.push(format!("{failed} of {} failed", title(calls)));
    }
    let mut metadata = Map::new();
    metadata.insert("results".to_owned(), Value::Array(results));
    ToolOutput {
        title: title(calls),
        output: texts.join("\n\n"),
        metadata,
        attachments,
        ..ToolOutput::default()
    }
}

#[cfg(test)]
mod tests;

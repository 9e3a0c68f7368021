//! `batch`: several calls that change nothing, at once.
//!
//! Each is found, prepared, judged and run as a call by itself would be. Their results share the room of one: a file that
//! is shown only in part for that reason is not seen.

use std::any::Any;
use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::path::Path;

use futures::FutureExt as _;
use playhouse_policy::Verdict;
use playhouse_protocol::message::CallInput;
use playhouse_protocol::record::{Effect, Recovery};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::files::document::cut_characters;
use crate::runner::{self, Attachable};
use crate::tool::{CallContext, Risk, ToolError, ToolOutput};
use crate::truncate::{self, Room};
use crate::{ObservedCall, Ready, TypedTool};

/// The most calls of a batch.
const MOST_CALLS: usize = 25;
/// Characters of a tool's name, and of a title, over a result.
const TOOL: usize = 64;
const TITLE: usize = 100;
/// Bytes between two results, generously.
const BETWEEN: usize = 32;
/// Tools that are of no use in a batch, whatever they change.
const NOT_HERE: [&str; 2] = [Batch::NAME, crate::question::Question::NAME];

/// The tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct Batch;

/// The arguments of `batch`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    #[serde(rename = "tool_calls")]
    calls: Vec<Item>,
}

/// One call of a batch.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Item {
    tool: String,
    #[serde(default)]
    parameters: Map<String, Value>,
}

/// What became of one call.
struct Ended {
    number: usize,
    tool: String,
    result: Result<ToolOutput, ToolError>,
    /// With a file of its own for what is too long.
    context: CallContext,
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
        Ok(output(ended).await)
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
    let result = made
        .await
        .unwrap_or_else(|panic| Err(ToolError::Failed(format!("the tool crashed: {}", reason(&*panic)))));
    Ended { number, tool, result, context }
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
    let prepared = runner::prepare_uncapped(&*tool, &CallInput::Object(parameters), context).await?;
    if prepared.effect != Effect::None {
        return Err(ToolError::Invalid(format!(
            "{name} has effects, and a batch takes only calls that change nothing: call it by itself"
        )));
    }
    match context.host.judge(&*tool, &prepared) {
        Verdict::Allow => {
            if (ObservedCall { tool: &*tool, accesses: &prepared.accesses }).is_observed(prepared.effect) {
                context.writes.misses(format!("what {name} changes in a batch is not tracked"));
            }
            runner::execute_uncapped(&*tool, prepared, context).await
        }
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

impl Ended {
    /// What stands over its result.
    fn head(&self) -> String {
        let (tool, _) = cut_characters(&self.tool, TOOL);
        let title = self.result.as_ref().map_or("", |output| output.title.as_str());
        let (title, cut) = cut_characters(title, TITLE);
        let (space, dots) = (if title.is_empty() { "" } else { " " }, if cut { "…" } else { "" });
        let word = if self.result.is_ok() { "" } else { "error: " };
        format!("[{}] {tool}{space}{title}{dots}\n{word}", self.number)
    }

    /// How much there is to read of it.
    fn size(&self) -> Room {
        let text = match &self.result {
            Ok(output) => Cow::Borrowed(output.output.as_str()),
            Err(error) => Cow::Owned(error.to_string()),
        };
        Room { bytes: text.len(), lines: truncate::line_count(&text) }
    }

    async fn capped(self, room: Room) -> Self {
        let result = match self.result {
            Ok(output) => Ok(runner::cap_output(output, room, &self.context).await),
            Err(error) => Err(runner::cap_error(error, room, &self.context).await),
        };
        Self { result, ..self }
    }
}

/// One result of all of them. They share the room of one: short ones are shown as a whole, and long ones get equal parts of
/// what is left.
async fn output(mut ended: Vec<Ended>) -> ToolOutput {
    let mut attachable = Attachable::new();
    ended.iter_mut().filter_map(|call| call.result.as_mut().ok()).for_each(|output| attachable.limit(output));
    let heads: Vec<String> = ended.iter().map(Ended::head).collect();
    let sizes: Vec<Room> = ended.iter().map(Ended::size).collect();
    let around: usize = heads.iter().map(|head| head.len() + BETWEEN).sum();
    let share = Room {
        bytes: share(
            sizes.iter().map(|size| size.bytes),
            truncate::MAX_BYTES.saturating_sub(around + BETWEEN),
        ),
        lines: share(sizes.iter().map(|size| size.lines), truncate::MAX_LINES - 3 * MOST_CALLS),
    };
    let calls = ended.len();
    let mut whole = ToolOutput { title: title(calls), ..ToolOutput::default() };
    let (mut texts, mut results) = (Vec::new(), Vec::new());
    for (call, head) in ended.into_iter().zip(heads) {
        let Ended { tool, result, .. } = call.capped(share).await;
        let tool = cut_characters(&tool, TOOL).0.to_owned();
        let mut facts = json!({"tool": tool, "ok": result.is_ok(), "title": ""});
        let text = match result {
            Ok(output) => {
                facts["title"] = output.title.into();
                for cut in ["truncated", "outputPath"] {
                    facts
                        .as_object_mut()
                        .zip(output.metadata.get(cut))
                        .map(|(facts, value)| facts.insert(cut.to_owned(), value.clone()));
                }
                whole.attachments.extend(output.attachments);
                whole.seen.extend(output.seen);
                whole.rules.extend(output.rules);
                output.output
            }
            Err(error) => error.to_string(),
        };
        texts.push(format!("{head}{text}"));
        results.push(facts);
    }
    let failed = results.iter().filter(|result| result["ok"] == false).count();
    if failed > 0 {
        texts.push(format!("{failed} of {} failed", title(calls)));
    }
    if results.iter().any(|result| result["truncated"] == true) {
        whole.metadata.insert("truncated".to_owned(), true.into());
    }
    whole.metadata.insert("results".to_owned(), Value::Array(results));
    whole.output = texts.join("\n\n");
    whole
}

/// The most that each may have, so that all together have at most `room`.
fn share(sizes: impl Iterator<Item = usize>, room: usize) -> usize {
    let mut sizes: Vec<usize> = sizes.collect();
    sizes.sort_unstable();
    let (mut left, mut calls) = (room, sizes.len());
    for size in sizes {
        if size > left / calls {
            return left / calls;
        }
        left -= size;
        calls -= 1;
    }
    room
}

#[cfg(test)]
mod tests;

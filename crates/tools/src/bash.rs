//! `bash`: runs a command in the workspace.

mod live;

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use playhouse_policy::AccessKind;
use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::record::{Effect, Recovery};
use playhouse_workspace::process::{self, Environment, Exit, Receive, Spec};
use playhouse_workspace::{Resolved, door};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::truncate::{Capped, CappedBuffer};
use crate::{CallContext, Plan, Prepared, Risk, Tool, ToolError, ToolOutput, arguments, runner};
use live::Live;

const NAME: &str = "bash";
const DESCRIPTION: &str = include_str!("../../../prompts/tools/bash.md");
/// In milliseconds.
const DEFAULT_TIMEOUT: u64 = 120_000;
const MAX_TIMEOUT: u64 = 600_000;
/// How much of the end of the output clients get with the result, in bytes.
const GLANCE: usize = 2048;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The command. bash reads it, so it may be a whole script.
    command: String,
    /// How long it may run, in milliseconds: 120000 unless told otherwise, at most 600000.
    #[schemars(range(min = 1, max = MAX_TIMEOUT))]
    timeout: Option<u64>,
    /// The directory in which it runs: the workspace unless told otherwise. Use this instead of cd.
    workdir: Option<String>,
    /// What it does, in five to ten words, for the people who watch.
    description: Option<String>,
}

/// The tool.
#[derive(Debug)]
pub struct Bash {
    spec: ToolSpec,
}

impl Bash {
    /// The tool.
    pub fn new() -> Self {
        Self { spec: arguments::spec::<Arguments>(NAME, DESCRIPTION) }
    }
}

impl Default for Bash {
    fn default() -> Self {
        Self::new()
    }
}

struct Command {
    command: String,
    workdir: Resolved,
    timeout: Duration,
    title: String,
}

impl Tool for Bash {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn risk(&self) -> Risk {
        Risk::Dangerous
    }

    fn prepare<'a>(
        &'a self,
        input: &'a Map<String, Value>,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        prepare(input, context).boxed()
    }

    fn execute<'a>(
        &'a self,
        plan: Plan,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        execute(plan, context).boxed()
    }
}

async fn prepare(input: &Map<String, Value>, context: &CallContext) -> Result<Prepared, ToolError> {
    let arguments: Arguments = arguments::parse(NAME, input)?;
    let command = arguments.command;
    if command.trim().is_empty() {
        return Err(ToolError::Invalid("the command is empty: write what shall run".into()));
    }
    if command.contains('\0') {
        return Err(ToolError::Invalid("the command holds a NUL byte, which no command can".into()));
    }
    let workdir = resolve(arguments.workdir.unwrap_or_else(|| ".".into()), context).await?;
    let preview =
        if workdir.shown == "." { command.clone() } else { format!("in {}:\n{command}", workdir.shown) };
    let described = arguments.description.filter(|text| !text.trim().is_empty());
    let title = first_line(described.as_deref().unwrap_or(&command));
    Ok(Prepared {
        accesses: vec![workdir.access(AccessKind::Execute)],
        effect: Effect::Workspace,
        recovery: Recovery::Interrupt,
        preview,
        title: title.clone(),
        plan: Box::new(Command {
            command,
            workdir,
            timeout: Duration::from_millis(
                arguments.timeout.unwrap_or(DEFAULT_TIMEOUT).clamp(1, MAX_TIMEOUT),
            ),
            title,
        }),
    })
}

async fn resolve(workdir: String, context: &CallContext) -> Result<Resolved, ToolError> {
    let workspace = context.workspace.clone();
    let resolved = context.pool.run(move || workspace.resolve(&workdir)).await;
    resolved.map_err(|error| ToolError::Invalid(format!("workdir: {error}")))
}

/// For people: one line, not too long.
fn first_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    match line.char_indices().nth(100) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

async fn execute(plan: Plan, context: &CallContext) -> Result<ToolOutput, ToolError> {
    let Ok(plan) = plan.downcast::<Command>() else {
        return Err(ToolError::Failed("bash was given the plan of another tool".into()));
    };
    check_workdir(plan.workdir.clone(), context).await?;
    let spec = Spec {
        command: plan.command,
        workdir: plan.workdir.path,
        timeout: plan.timeout,
        environment: Environment::of_this_process(),
    };
    let mut output = Output {
        buffer: CappedBuffer::new(context.output_file.clone(), context.pool.clone()),
        live: Live::new(&*context.output),
    };
    let exit = process::run(&spec, &context.cancel, &mut output).await;
    output.live.finish();
    let exit = exit.map_err(|error| ToolError::Failed(error.to_string()))?;
    let glance = output.buffer.last(GLANCE);
    let capped = output.buffer.finish().await;
    if exit.cancelled {
        return Err(ToolError::Cancelled(cancelled(&capped)));
    }
    Ok(result(plan.title, &capped, glance, exit, plan.timeout))
}

/// It may have been replaced since it was judged.
async fn check_workdir(workdir: Resolved, context: &CallContext) -> Result<(), ToolError> {
    let opened = context.pool.run(move || door::open_directory(&workdir).map(drop)).await;
    opened.map_err(|error| ToolError::Failed(format!("workdir: {error}")))
}

fn cancelled(capped: &Capped) -> String {
    match capped.text.trim_end() {
        "" => "the command was ended".to_owned(),
        text => format!("the command was ended, after it had written:\n{text}"),
    }
}

fn result(title: String, capped: &Capped, glance: String, exit: Exit, timeout: Duration) -> ToolOutput {
    let mut output = match capped.text.as_str() {
        "" => "(no output)".to_owned(),
        text => text.to_owned(),
    };
    if let Some(note) = note(exit, timeout) {
        if !output.ends_with('\n') {
            output.push('\n');
        }
        output.push_str(&note);
    }
    let mut metadata = Map::new();
    metadata.insert("exit".into(), exit.code.into());
    metadata.insert("signal".into(), exit.signal.into());
    metadata.insert("timedOut".into(), exit.timed_out.into());
    metadata.insert("truncated".into(), capped.truncated.into());
    metadata.insert("output".into(), glance.into());
    runner::describe(capped, &mut metadata);
    ToolOutput { title, output, metadata, attachments: Vec::new() }
}

/// What the model has to know of the end, unless it was a good one.
fn note(exit: Exit, timeout: Duration) -> Option<String> {
    if exit.timed_out {
        return Some(format!(
            "[The command did not end within {} ms, so it and all its processes were ended. If it needs longer, call \
             again with a greater timeout (at most {MAX_TIMEOUT}). If it never ends, as a server does not, start it in \
             the background with its output in a file: COMMAND > FILE 2>&1 &]",
            timeout.as_millis()
        ));
    }
    match (exit.code, exit.signal) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("[exit code {code}]")),
        (None, Some(signal)) => Some(format!("[ended by signal {signal}]")),
        (None, None) => Some("[how the command ended is not known]".to_owned()),
    }
}

/// Where output goes: to the model, capped, and to those who watch.
struct Output<'a> {
    buffer: CappedBuffer,
    live: Live<'a>,
}

impl Receive for Output<'_> {
    fn receive<'a>(&'a mut self, chunk: &'a [u8]) -> BoxFuture<'a, ()> {
        self.live.write(chunk);
        self.buffer.receive(chunk)
    }
}

#[cfg(test)]
mod tests;

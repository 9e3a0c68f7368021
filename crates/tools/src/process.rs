//! `process`: what runs in the background, as `bash` has started it.

use std::fmt::Write as _;
use std::time::Duration;

use playhouse_policy::{Access, AccessKind, Zone};
use playhouse_protocol::message::WAITED;
use playhouse_protocol::record::{Effect, Recovery};
use playhouse_sandbox::{BackgroundCommand, State};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, json};

use crate::bash::{ending, first_line};
use crate::tool::{CallContext, Risk, ToolError, ToolOutput};
use crate::truncate::clean;
use crate::{Ready, TypedTool};

/// How long a command has to take what is written to it.
const WRITE_WAIT: Duration = Duration::from_secs(10);
/// The longest wait for output, in milliseconds.
const MAX_WAIT: u64 = 120_000;

/// The arguments of `process`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    action: Action,
    id: Option<String>,
    text: Option<String>,
    close: Option<bool>,
    all: Option<bool>,
    #[schemars(range(max = MAX_WAIT))]
    wait: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Action {
    List,
    Read,
    Write,
    End,
}

/// The tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct Process;

/// What is done with which command.
#[derive(Debug)]
pub enum Task {
    /// All are listed.
    List,
    /// The output of one is read.
    Read {
        /// Which one.
        id: String,
        /// Not only what is new.
        all: bool,
        /// So long something new is waited for.
        wait: Duration,
    },
    /// One gets input.
    Write {
        /// Which one.
        id: String,
        /// What it gets.
        text: String,
        /// Whether that was all.
        close: bool,
        /// So long its answer is waited for.
        wait: Duration,
    },
    /// One is ended.
    End {
        /// Which one.
        id: String,
    },
}

impl TypedTool for Process {
    const NAME: &'static str = "process";
    const DESCRIPTION: &'static str = include_str!("../../../prompts/tools/process.md");
    const RISK: Risk = Risk::Dangerous;
    // What it writes to a program may be a command.
    const CHANGES_UNNAMED_FILES: bool = true;
    type Arguments = Arguments;
    type Task = Task;

    async fn prepare(&self, arguments: Arguments, context: &CallContext) -> Result<Ready<Task>, ToolError> {
        let task = task(arguments)?;
        let acts = matches!(task, Task::Write { .. } | Task::End { .. });
        let (title, preview) = match &task {
            Task::List => ("list".to_owned(), String::new()),
            Task::Read { id, .. } => (format!("read {id}"), String::new()),
            Task::Write { id, text, .. } => (format!("write to {id}"), text.clone()),
            Task::End { id } => (format!("end {id}"), String::new()),
        };
        let ready = |accesses, effect, recovery| Ready {
            accesses,
            effect,
            recovery,
            preview: if preview.is_empty() { title.clone() } else { format!("{title}:\n{preview}") },
            title: title.clone(),
            task,
        };
        Ok(match acts {
            // What is written may be a command.
            true => {
                let root = context.workspace.root().to_string_lossy();
                let access = Access::path(AccessKind::Execute, root, Zone::Workspace);
                ready(vec![access], Effect::Workspace, Recovery::Interrupt)
            }
            false => ready(Vec::new(), Effect::None, Recovery::Rerun),
        })
    }

    async fn execute(&self, task: Task, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let find =
            |id: &str| context.processes.find(id).map_err(|error| ToolError::Failed(error.to_string()));
        match task {
            Task::List => Ok(list(&context.processes.list())),
            Task::Read { id, all, wait } => {
                let command = find(&id)?;
                let waited = news(&command, wait, context).await?;
                Ok(told(read(&command, all, context), waited))
            }
            Task::Write { id, text, close, wait } => {
                let command = find(&id)?;
                write(&command, &text, context).await?;
                if close {
                    command.close_input().await;
                }
                let waited = news(&command, wait, context).await?;
                Ok(told(read(&command, false, context), waited))
            }
            Task::End { id } => {
                let command = find(&id)?;
                command.end().await;
                Ok(read(&command, false, context))
            }
        }
    }
}

fn task(arguments: Arguments) -> Result<Task, ToolError> {
    let Arguments { action, id, text, close, all, wait } = arguments;
    let wait = Duration::from_millis(wait.unwrap_or_default().min(MAX_WAIT));
    if action == Action::List {
        return Ok(Task::List);
    }
    let id = id.filter(|id| !id.trim().is_empty()).ok_or_else(|| {
        ToolError::Invalid("`id` is missing: which one? The action list shows all, with their ids".into())
    })?;
    let close = close.unwrap_or_default();
    match (action, text) {
        (Action::Write, text) if text.as_ref().is_none_or(String::is_empty) && !close => {
            Err(ToolError::Invalid("`text` is missing: what shall be written to it?".into()))
        }
        (Action::Write, text) => Ok(Task::Write { id, text: text.unwrap_or_default(), close, wait }),
        (Action::End, _) => Ok(Task::End { id }),
        _ => Ok(Task::Read { id, all: all.unwrap_or_default(), wait }),
    }
}

/// Waits for something new. Whether nothing came for so long.
async fn news(command: &BackgroundCommand, wait: Duration, context: &CallContext) -> Result<bool, ToolError> {
    if wait.is_zero() {
        return Ok(false);
    }
    tokio::select! {
        biased;
        () = context.cancel.cancelled() => Err(ToolError::Cancelled(String::new())),
        () = command.has_news() => Ok(false),
        () = tokio::time::sleep(wait) => Ok(true),
    }
}

fn told(mut output: ToolOutput, waited: bool) -> ToolOutput {
    if waited {
        output.metadata.insert(WAITED.to_owned(), true.into());
    }
    output
}

async fn write(command: &BackgroundCommand, text: &str, context: &CallContext) -> Result<(), ToolError> {
    tokio::select! {
        biased;
        () = context.cancel.cancelled() => {
            Err(ToolError::Cancelled("how much of the text it has read is not known".into()))
        }
        written = command.write(text.as_bytes(), WRITE_WAIT) => {
            written.map_err(|error| ToolError::Failed(format!("{}: {error}", command.id())))
        }
    }
}

fn read(command: &BackgroundCommand, all: bool, context: &CallContext) -> ToolOutput {
    // Before the output is read: what comes between is not told as the output of one that has ended.
    let state = command.state();
    let reading = if all { command.read_all() } else { command.read_new() };
    let file = context.workspace.output().join(format!("{}.txt", command.id()));
    let mut output = String::new();
    // Writing to a String cannot fail.
    if reading.skipped > 0 {
        let _ = write!(output, "[{} bytes before this are not remembered", reading.skipped);
        let _ = match command.cut() {
            None => writeln!(output, "; all of the output is in {}]", file.display()),
            Some(_) => writeln!(output, "]"),
        };
    }
    if let Some(cut) = command.cut() {
        let (bytes, all) = (cut.bytes, command.written().0);
        let place = if bytes == 0 { String::new() } else { format!(" in {}", file.display()) };
        let _ = writeln!(
            output,
            "[{bytes} of {all} bytes of the output are kept{place}, the rest was not: {}]",
            cut.reason
        );
    }
    let text = clean(&reading.bytes);
    output.push_str(match (text.as_str(), all) {
        ("", true) => "(no output)",
        ("", false) => "(no new output)",
        (text, _) => text.trim_end_matches('\n'),
    });
    let _ = write!(output, "\n[{}]", described(command, &state));
    let mut metadata = facts(command, &state);
    if command.written().0 > 0 && command.cut().is_none_or(|cut| cut.bytes > 0) {
        metadata.insert("outputPath".into(), file.to_string_lossy().into());
    }
    ToolOutput { title: title(command), output, metadata, ..ToolOutput::default() }
}

fn list(commands: &[BackgroundCommand]) -> ToolOutput {
    let mut output = String::new();
    for command in commands {
        let new = if command.written().1 { ", with output that was not read" } else { "" };
        let state = described(command, &command.state());
        // Writing to a String cannot fail.
        let _ = writeln!(output, "{}: {state}{new}: {}", command.id(), first_line(command.command()));
    }
    if output.is_empty() {
        output = "(none runs in the background)".to_owned();
    }
    let all: Vec<_> = commands.iter().map(|command| facts(command, &command.state())).collect();
    let metadata = Map::from_iter([("processes".to_owned(), json!(all))]);
    ToolOutput {
        title: "list".to_owned(),
        output: output.trim_end().to_owned(),
        metadata,
        ..ToolOutput::default()
    }
}

fn title(command: &BackgroundCommand) -> String {
    format!("{}: {}", command.id(), first_line(command.command()))
}

/// How it is, in a few words.
fn described(command: &BackgroundCommand, state: &State) -> String {
    if let (Some(reason), State::Ended(..)) = (command.ended_because(), state) {
        return reason.to_owned();
    }
    match state {
        State::Running => format!("running for {} s, process {}", command.age().as_secs(), command.process()),
        State::Ended(exit, after) => format!("ended after {} s, {}", after.as_secs(), ending(*exit)),
        State::Lost(error) => error.clone(),
    }
}

fn facts(command: &BackgroundCommand, state: &State) -> Map<String, serde_json::Value> {
    let exit = match state {
        State::Ended(exit, _) => exit.code,
        _ => None,
    };
    let facts = json!({
        "processId": command.id(),
        "pid": command.process(),
        "command": command.command(),
        "running": *state == State::Running,
        "exit": exit,
    });
    facts.as_object().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests;

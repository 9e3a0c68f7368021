//! `bash`: runs a command in the workspace, and waits for it or leaves it in the background.

mod background;
mod hidden;
mod live;
mod report;
mod touched;
mod tracked;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::record::{Effect, Recovery};
use playhouse_sandbox::process::{self, Environment, Limits, Receive, Run, Spec};
use playhouse_workspace::{Resolved, door};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::tool::{CallContext, Risk, ToolError, ToolOutput};
use crate::truncate::CappedBuffer;
use crate::{Ready, TypedTool};
use hidden::{Found, Hidden};
use live::Live;
pub(crate) use report::{ending, first_line};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// How commands run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BashOptions {
    /// The longest time that a call may ask for.
    pub max_timeout: Duration,
    /// What a command, and a session with all of its commands, may use.
    pub limits: Limits,
    /// So many commands of one session may run in the background.
    pub most_background: usize,
}

impl Default for BashOptions {
    fn default() -> Self {
        Self { max_timeout: Duration::from_secs(600), limits: Limits::default(), most_background: 16 }
    }
}

/// The tool that looks after what is left in the background.
const PROCESS: &str = "process";

/// The arguments of `bash`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    command: String,
    /// Milliseconds. Default 120000; in the background none.
    #[schemars(range(min = 1))]
    timeout: Option<u64>,
    workdir: Option<String>,
    /// Five to ten words for the user.
    description: Option<String>,
    background: Option<bool>,
}

/// The tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bash {
    options: BashOptions,
}

impl Bash {
    /// The tool, with these limits.
    pub fn new(options: BashOptions) -> Self {
        Self { options }
    }

    fn timeout(&self, asked: Option<u64>, background: bool) -> Result<Option<Duration>, ToolError> {
        let most = self.options.max_timeout;
        match asked.map(Duration::from_millis) {
            None => Ok((!background).then_some(DEFAULT_TIMEOUT.min(most))),
            Some(timeout) if timeout <= most || background => Ok(Some(timeout)),
            Some(timeout) => Err(ToolError::Invalid(format!(
                "`timeout` must be at most {}, not {}: for what takes longer, use background",
                most.as_millis(),
                timeout.as_millis()
            ))),
        }
    }
}

/// A command that may run.
#[derive(Debug)]
pub struct Task {
    command: String,
    workdir: Resolved,
    timeout: Option<Duration>,
    title: String,
    background: bool,
    /// What it would read and may not: hidden from it.
    hidden: Vec<Hidden>,
}

impl TypedTool for Bash {
    const NAME: &'static str = "bash";
    const DESCRIPTION: &'static str = include_str!("../../../prompts/tools/bash.md");
    const RISK: Risk = Risk::Dangerous;
    const STARTS_PROGRAMS: bool = true;
    type Arguments = Arguments;
    type Task = Task;

    fn complete(&self, spec: &mut ToolSpec) {
        let most = self.options.max_timeout.as_millis();
        let sentence = format!("At most {most} when waited for.");
        if let Some(timeout) = spec.parameters.pointer_mut("/properties/timeout/description") {
            let described = timeout.as_str().unwrap_or_default();
            *timeout = format!("{described} {sentence}").trim().into();
        }
    }

    fn longest(&self) -> Option<Duration> {
        Some(self.options.max_timeout)
    }

    async fn prepare(&self, arguments: Arguments, context: &CallContext) -> Result<Ready<Task>, ToolError> {
        let Arguments { command, timeout, workdir, description, background } = arguments;
        let background = background.unwrap_or_default();
        if command.trim().is_empty() {
            return Err(ToolError::Invalid("the command is empty: write what shall run".into()));
        }
        if command.contains('\0') {
            return Err(ToolError::Invalid("the command holds a NUL byte, which no command can".into()));
        }
        if background && context.host.find(PROCESS).is_err() {
            return Err(ToolError::Invalid(
                "nothing can be left in the background here, as there is no tool `process` to look after it: run the command with a `timeout`, and let what never ends end by itself (as with `timeout 20 …`)".into(),
            ));
        }
        let timeout = self.timeout(timeout, background)?;
        let (workspace, walls) = (context.workspace.clone(), context.walls.clone());
        let host = Arc::clone(&context.host);
        let (command, found) = context
            .pool
            .run(move || {
                let told = touched::touched(&command, workdir.as_deref().unwrap_or("."), &workspace);
                let found = told.map(|mut told| {
                    if !told.tracked.is_empty() {
                        // What looks empty to git is shown as it was.
                        let shown = tracked::look(&told.tracked, &workspace, &host.showing());
                        told.accesses.extend(hidden::asked(shown));
                    }
                    let folders = match told.folders.is_empty() {
                        true => Found::default(),
                        false => hidden::look(&told.folders, &workspace, &host.showing()),
                    };
                    // What is left in the background may want these files later.
                    let may_hide =
                        told.only_reads && !background && !folders.is_nothing() && walls.can_hide();
                    (told.workdir, hidden::settle(told.accesses, folders, may_hide))
                });
                (command, found)
            })
            .await;
        let (workdir, (accesses, hidden)) =
            found.map_err(|error| ToolError::Invalid(format!("workdir: {error}")))?;
        let preview =
            if workdir.shown == "." { command.clone() } else { format!("in {}:\n{command}", workdir.shown) };
        let preview = if background { format!("in the background:\n{preview}") } else { preview };
        let described = description.filter(|text| !text.trim().is_empty());
        let title = first_line(described.as_deref().unwrap_or(&command));
        Ok(Ready {
            accesses,
            effect: Effect::Workspace,
            recovery: Recovery::Interrupt,
            preview,
            title: title.clone(),
            task: Task { command, workdir, timeout, title, background, hidden },
        })
    }

    async fn execute(&self, task: Task, context: &CallContext) -> Result<ToolOutput, ToolError> {
        check_workdir(task.workdir.clone(), context).await?;
        if context.cancel.is_cancelled() {
            return Err(ToolError::Cancelled("the command was not started".into()));
        }
        let spec = Spec {
            run: Run::Shell(task.command),
            workdir: task.workdir.path,
            timeout: task.timeout,
            environment: Environment::of_this_process(),
            scope: context.processes.scope(),
            limits: self.options.limits,
            walls: context.walls.hiding(task.hidden.iter().map(|file| file.path.clone()).collect()),
        };
        let note = hidden::note(&task.hidden);
        if task.background {
            let started = background::start(spec, task.title, &self.options, context).await;
            return started.map(|output| noted(output, &note));
        }
        let mut output = Output { buffer: CappedBuffer::of(context), live: Live::new(&*context.output) };
        let free = context.storage.free_before(&context.pool).await;
        let cancel = context.cancel.child_token();
        let (exit, full) = {
            let mut run = std::pin::pin!(process::run(&spec, &cancel, &mut output));
            tokio::select! {
                exit = &mut run => (exit, None),
                bound = context.storage.home_is_full(&context.pool) => {
                    cancel.cancel();
                    (run.await, Some(bound))
                }
            }
        };
        output.live.finish();
        context.storage.count_homes_later(free, &context.pool);
        let exit = exit.map_err(|error| ToolError::Failed(error.to_string()))?;
        let glance = output.buffer.last(report::GLANCE);
        let capped = output.buffer.finish().await;
        if let (Some(bound), true, false) = (full, exit.cancelled, context.cancel.is_cancelled()) {
            return Err(ToolError::Failed(report::filled_home(bound, &capped)));
        }
        if exit.cancelled {
            return Err(ToolError::Cancelled(report::cancelled(&capped)));
        }
        let limits = report::Limits { timeout: task.timeout, options: self.options };
        Ok(noted(report::result(task.title, &capped, glance, exit, limits), &note))
    }
}

fn noted(mut output: ToolOutput, note: &str) -> ToolOutput {
    output.output.push_str(note);
    output
}

/// It may have been replaced since it was judged.
async fn check_workdir(workdir: Resolved, context: &CallContext) -> Result<(), ToolError> {
    let opened = context.pool.run(move || door::open_directory(&workdir).map(drop)).await;
    opened.map_err(|error| ToolError::Failed(format!("workdir: {error}")))
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

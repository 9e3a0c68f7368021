//! Programs that format files which tools have edited: their change is part of the same change set.
//!
//! None runs unless the operator configures it. One runs in the walls of the session, once for each file that the call edited.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_sandbox::process::{self, Environment, Exit, Limits, Receive, Run, Spec};
use playhouse_tools::changed::{FileState, FileWrite, patch, path_text};
use playhouse_tools::undo::UNDONE;
use playhouse_tools::{CallContext, CallObserver, ToolError, ToolOutput};

/// Stands for the file in the words of a command.
const FILE: &str = "$FILE";
/// The longest time for one file.
const LONGEST: Duration = Duration::from_secs(10);
/// The longest time for all files of a call.
const LONGEST_OF_A_CALL: Duration = Duration::from_secs(30);
/// Bytes of a failed formatter's output that the model reads.
const MOST_SAID: usize = 1_000;
/// Bytes of what it changed that a model is shown.
const MOST_SHOWN: usize = 4_000;

/// A program that formats files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Formatter {
    /// Its name in the configuration.
    pub name: String,
    /// The program and its arguments; `$FILE` within a word stands for the file's absolute path.
    pub command: Vec<String>,
    /// File name extensions, each with its dot.
    pub extensions: Vec<String>,
}

impl Formatter {
    /// Whether the command names the file.
    pub fn names_the_file(&self) -> bool {
        self.command.iter().skip(1).any(|word| word.contains(FILE))
    }

    fn is_for(&self, path: &Path) -> bool {
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        self.extensions.iter().any(|extension| name.len() > extension.len() && name.ends_with(extension))
    }
}

/// Formats the files of one call. Comes before all observers that look at files.
pub(crate) struct Formatting {
    formatters: Arc<[Formatter]>,
}

impl Formatting {
    pub(crate) fn new(formatters: Arc<[Formatter]>) -> Self {
        Self { formatters }
    }
}

impl CallObserver for Formatting {
    fn after<'a>(
        &'a self,
        ended: &'a mut Result<ToolOutput, ToolError>,
        context: &'a CallContext,
    ) -> BoxFuture<'a, ()> {
        async move {
            // What was taken back stays as it was before.
            let Some(output) = ended.as_mut().ok().filter(|output| !output.metadata.contains_key(UNDONE))
            else {
                return;
            };
            let end = Instant::now() + LONGEST_OF_A_CALL;
            for write in context.writes.files() {
                let Some(written) = write.after else { continue };
                if let Some(formatter) =
                    self.formatters.iter().find(|formatter| formatter.is_for(&write.path))
                {
                    let work = Work { formatter, path: &write.path, written, end };
                    work.carry_out(output, context).await;
                }
            }
        }
        .boxed()
    }
}

/// One file to format.
struct Work<'a> {
    formatter: &'a Formatter,
    path: &'a Path,
    /// The file as the call left it.
    written: FileState,
    /// When formatters of the call may run no longer.
    end: Instant,
}

impl Work<'_> {
    /// Formats it, and adds to `output` what the model is told.
    async fn carry_out(self, output: &mut ToolOutput, context: &CallContext) {
        let shown = path_text(context.workspace.root(), self.path);
        let said = match self.run(&shown, output, context).await {
            Ok(said) => said,
            Err(why) => format!("\n[{} did not format {shown}: {why}]", self.formatter.name),
        };
        output.output.push_str(&said);
    }

    async fn run(
        &self,
        shown: &str,
        output: &mut ToolOutput,
        context: &CallContext,
    ) -> Result<String, String> {
        let Self { formatter: Formatter { name, command, .. }, path, end, .. } = *self;
        let Some(text) = path.to_str() else { return Err("its name is not UTF-8".to_owned()) };
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!("formatters of this call took {} s already", LONGEST_OF_A_CALL.as_secs()));
        }
        let _guard = context.locks.lock(&[path.to_owned()]).await;
        let before = state(path, context).await?;
        if before.as_ref().is_none_or(|before| before.content != self.written.content) {
            return Err("it changed since the call wrote it".to_owned());
        }
        let longest = left.min(LONGEST);
        let spec = Spec {
            run: Run::Words(command.iter().map(|word| word.replace(FILE, text).into()).collect()),
            workdir: context.workspace.root().to_owned(),
            timeout: Some(longest),
            environment: Environment::of_this_process(),
            scope: context.processes.scope(),
            limits: Limits::default(),
            walls: context.walls.clone(),
        };
        let mut said = Said::default();
        let exit = process::run(&spec, &context.cancel, &mut said).await;
        let failed = match exit {
            Ok(exit) => failure(&exit, longest),
            Err(error) => Some(error.to_string()),
        };
        let after = state(path, context)
            .await
            .map_err(|why| format!("it ran, and the file cannot be read now: {why}"))?;
        let failed = failed.or_else(|| after.is_none().then(|| "the file is gone".to_owned()));
        let is_changed = before != after;
        let what = match failed {
            None if !is_changed => return Ok(String::new()),
            None => format!("{name} formatted {shown}"),
            Some(why) => {
                let said = said.text();
                let said = if said.is_empty() { said } else { format!(": {said}") };
                let stands = if is_changed {
                    "it changed the file all the same"
                } else {
                    "the file stands as you wrote it"
                };
                format!("{name} did not format {shown}: {why}{said}; {stands}")
            }
        };
        if !is_changed {
            return Ok(format!("\n[{what}]"));
        }
        context.writes.wrote(FileWrite {
            path: path.to_owned(),
            before: before.clone(),
            after: after.clone(),
        });
        output.seen.retain(|(seen, _)| seen != path);
        let bytes = |state: &Option<FileState>| state.as_ref().and_then(|state| state.bytes.clone());
        let diff = match (bytes(&before), bytes(&after)) {
            (Some(before), Some(after)) => patch(shown, Some(&before), Some(&after)),
            _ => None,
        };
        match (diff, after.and_then(|after| after.content)) {
            (Some((diff, ..)), Some(content)) if diff.len() <= MOST_SHOWN => {
                output.seen.push((path.to_owned(), content));
                Ok(format!("\n[{what}:]\n{diff}"))
            }
            _ => {
                context.files.forget(path);
                Ok(format!("\n[{what}: read it again before you edit it]"))
            }
        }
    }
}

async fn state(path: &Path, context: &CallContext) -> Result<Option<FileState>, String> {
    let (workspace, path) = (Arc::clone(&context.workspace), path.to_owned());
    let read = context.pool.run(move || {
        let place = workspace.walked(&path).map_err(|error| error.to_string())?;
        FileState::read(&place).map_err(|error| error.to_string())
    });
    read.await
}

/// Why it did not do its work.
fn failure(exit: &Exit, longest: Duration) -> Option<String> {
    match exit {
        Exit { timed_out: true, .. } => Some(format!("it was ended after {} s", longest.as_secs())),
        Exit { cancelled: true, .. } => Some("the call was cancelled".to_owned()),
        Exit { code: Some(0), .. } => None,
        Exit { code: Some(code), .. } => Some(format!("exit code {code}")),
        Exit { signal: Some(signal), .. } => Some(format!("it was ended by signal {signal}")),
        _ => Some("it ended".to_owned()),
    }
}

/// The beginning of what it says.
#[derive(Default)]
struct Said(Vec<u8>);

impl Said {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).trim().to_owned()
    }
}

impl Receive for Said {
    fn receive<'a>(&'a mut self, chunk: &'a [u8]) -> BoxFuture<'a, ()> {
        let room = MOST_SAID.saturating_sub(self.0.len());
        self.0.extend_from_slice(&chunk[..chunk.len().min(room)]);
        futures::future::ready(()).boxed()
    }
}

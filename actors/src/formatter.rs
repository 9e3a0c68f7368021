//! Programs that format files which tools have edited: their change is part of the same change set.
//!
//! Off unless the operator configures one. It runs in the walls of the session on the edited file alone.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_sandbox::process::{self, Environment, Exit, Limits, Receive, Run, Spec};
use playhouse_tools::changed::{FileState, FileWrite, patch, path_text};
use playhouse_tools::{CallContext, CallObserver, ToolError, ToolOutput};

/// The word of a command that stands for the file.
pub const FILE: &str = "$FILE";
/// How long it may take.
const LONGEST: Duration = Duration::from_secs(10);
/// Bytes of its output that are told when it fails.
const MOST_SAID: usize = 1_000;
/// Bytes of what it changed that a model is shown.
const MOST_SHOWN: usize = 4_000;

/// A program that formats files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Formatter {
    /// Its name in the configuration.
    pub name: String,
    /// The program and its arguments; [`FILE`] within a word stands for the file's absolute path.
    pub command: Vec<String>,
    /// How names of its files end, each from the dot on.
    pub extensions: Vec<String>,
}

impl Formatter {
    fn is_for(&self, path: &Path) -> bool {
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        self.extensions.iter().any(|extension| name.len() > extension.len() && name.ends_with(extension))
    }
}

/// Formats the files of one call.
pub(crate) struct Formatting {
    pub(crate) formatters: Arc<[Formatter]>,
}

impl CallObserver for Formatting {
    fn after<'a>(
        &'a self,
        ended: &'a mut Result<ToolOutput, ToolError>,
        context: &'a CallContext,
    ) -> BoxFuture<'a, ()> {
        if self.formatters.is_empty() {
            return futures::future::ready(()).boxed();
        }
        async move {
            let Ok(output) = ended else { return };
            for FileWrite { path, after, .. } in context.writes.files() {
                let formatter = self.formatters.iter().find(|formatter| formatter.is_for(&path));
                if let (Some(formatter), Some(_)) = (formatter, after) {
                    let said = format(formatter, &path, context).await;
                    output.output.push_str(&said);
                }
            }
        }
        .boxed()
    }
}

/// Formats one file. Gives what the model is told.
async fn format(formatter: &Formatter, path: &Path, context: &CallContext) -> String {
    let _guard = context.locks.lock(&[path.to_owned()]).await;
    let name = &formatter.name;
    let Some(text) = path.to_str() else { return format!("\n[{name} did not format it: its name is not UTF-8]") };
    let before = match state(path, context).await {
        Ok(before) => before,
        Err(why) => return format!("\n[{name} did not format it: {why}]"),
    };
    let spec = Spec {
        run: Run::Words(formatter.command.iter().map(|word| word.replace(FILE, text).into()).collect()),
        workdir: context.workspace.root().to_owned(),
        timeout: Some(LONGEST),
        environment: Environment::of_this_process(),
        scope: context.processes.scope(),
        limits: Limits::default(),
        walls: context.walls.clone(),
    };
    let mut said = Said::default();
    let exit = process::run(&spec, &context.cancel, &mut said).await;
    let after = match state(path, context).await {
        Ok(after) => after,
        Err(why) => return format!("\n[{name} ran, and the file cannot be read now: {why}]"),
    };
    let shown = path_text(context.workspace.root(), path);
    let is_changed = before != after;
    if is_changed {
        context.writes.wrote(FileWrite { path: path.to_owned(), before: before.clone(), after: after.clone() });
        if let Some(content) = after.as_ref().and_then(|after| after.content) {
            context.files.remember(path, content);
        }
    }
    let failed = match exit {
        Ok(exit) => failure(&exit),
        Err(error) => Some(error.to_string()),
    };
    let what = match (&failed, is_changed) {
        (None, false) => return String::new(),
        (None, true) => format!("{name} formatted {shown}"),
        (Some(why), _) => {
            let said = said.text();
            let said = if said.is_empty() { String::new() } else { format!(": {said}") };
            let stands = if is_changed { "it changed the file all the same" } else { "the file stands as you wrote it" };
            format!("{name} did not format {shown}: {why}{said}; {stands}")
        }
    };
    if !is_changed {
        return format!("\n[{what}]");
    }
    let bytes = |state: &Option<FileState>| state.as_ref().and_then(|state| state.bytes.clone());
    match patch(&shown, bytes(&before).as_deref(), bytes(&after).as_deref()) {
        Some((diff, ..)) if diff.len() <= MOST_SHOWN => format!("\n[{what}:]\n{diff}"),
        _ => format!("\n[{what}: read it again before you edit it]"),
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
fn failure(exit: &Exit) -> Option<String> {
    match exit {
        Exit { timed_out: true, .. } => Some(format!("it was ended after {} s", LONGEST.as_secs())),
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

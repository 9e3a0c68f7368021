//! `lsp`: what a language server says of places and names.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use playhouse_lsp::{Answer, Client, FileEdits, Known, Operation, Place, Query, Spot, apply, line_of};
use playhouse_policy::{AccessKind, Zone};
use playhouse_protocol::record::{Effect, Recovery};
use playhouse_sandbox::blocking;
use playhouse_tools::changed::FileState;
use playhouse_tools::{CallContext, Ready, Risk, Showing, ToolError, ToolOutput, ToolScope, TypedTool};
use playhouse_workspace::Workspace;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::{Instant, timeout};

use super::{Inner, Job};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Places that are told.
const MOST_PLACES: usize = 100;
/// The longest line of a file that is told, in characters.
const LONGEST_LINE: usize = 200;
/// The longest file of which lines are told, in bytes.
const LARGEST: u64 = 4 << 20;
/// The operation that is none of the protocol's questions about places.
const DIAGNOSTICS: &str = "diagnostics";

/// The arguments of `lsp`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Arguments {
    operation: String,
    file_path: String,
    #[serde(default)]
    line: Option<u32>,
    #[serde(default)]
    character: Option<u32>,
    #[serde(default)]
    query: Option<String>,
    #[serde(default)]
    new_name: Option<String>,
}

/// The tool of one session.
pub(super) struct LspTool {
    pub(super) servers: Weak<Inner>,
    /// The session whose tool it is.
    pub(super) scope: ToolScope,
}

/// What is asked.
pub(super) struct Task {
    /// Absent for diagnostics.
    operation: Option<Operation>,
    path: PathBuf,
    /// The path as people and rules name it.
    shown: String,
    spot: Spot,
    words: String,
}

impl TypedTool for LspTool {
    const NAME: &'static str = "lsp";
    const DESCRIPTION: &'static str = include_str!("../../../../prompts/tools/lsp.md");
    const RISK: Risk = Risk::Safe;
    type Arguments = Arguments;
    type Task = Task;

    async fn prepare(&self, arguments: Arguments, context: &CallContext) -> Result<Ready<Task>, ToolError> {
        let Arguments { operation: name, file_path, line, character, query, new_name } = arguments;
        let operation = Operation::ALL.into_iter().find(|operation| operation.name() == name);
        if operation.is_none() && name != DIAGNOSTICS {
            let names = Operation::ALL.map(Operation::name).join(", ");
            return Err(ToolError::Invalid(format!(
                "there is no operation \"{}\": there are {names}, {DIAGNOSTICS}",
                name.escape_debug()
            )));
        }
        let spot = match (operation.filter(|operation| operation.has_spot()), line, character) {
            (None, ..) => Spot { line: 1, column: 1 },
            (Some(_), Some(line @ 1..), Some(column @ 1..)) => Spot { line, column },
            (Some(_), ..) => {
                return Err(ToolError::Invalid(format!(
                    "{name} needs `line` and `character`, both from 1: where the name stands"
                )));
            }
        };
        let words = match operation {
            Some(Operation::WorkspaceSymbol) => query.unwrap_or_default(),
            Some(Operation::Rename) => match new_name {
                Some(words) if !words.trim().is_empty() => words,
                _ => return Err(ToolError::Invalid("rename needs `newName`".to_owned())),
            },
            _ => String::new(),
        };
        let (workspace, written) = (Arc::clone(&context.workspace), file_path.clone());
        let place = context.pool.run(move || workspace.resolve(&written)).await;
        let place = place.map_err(|error| ToolError::Invalid(error.to_string()))?;
        let title = format!("{name} {}", place.shown);
        Ok(Ready {
            accesses: vec![place.access(AccessKind::Read)],
            effect: Effect::None,
            recovery: Recovery::Rerun,
            preview: title.clone(),
            title,
            task: Task { operation, path: place.path, shown: place.shown, spot, words },
        })
    }

    async fn execute(&self, task: Task, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let servers =
            self.servers.upgrade().ok_or_else(|| ToolError::Failed("the engine stops".to_owned()))?;
        tokio::select! {
            biased;
            () = context.cancel.cancelled() => Err(ToolError::Cancelled(String::new())),
            answer = task.answer(&servers, &self.scope, context) => answer.map(ToolOutput::text),
        }
    }
}

impl Task {
    async fn answer(
        &self,
        servers: &Arc<Inner>,
        scope: &ToolScope,
        context: &CallContext,
    ) -> Result<String, ToolError> {
        let name = &self.shown;
        let Some(Job { key, .. }) = servers.jobs(scope, [self.path.clone()]).await.pop() else {
            return Err(ToolError::Failed(format!("there is no language server for {name}")));
        };
        let Ok(lease) = timeout(PATIENCE, servers.lease(&key, scope.session)).await else {
            return Ok(format!("not known yet: {key} still starts"));
        };
        let lease = lease.map_err(ToolError::Failed)?;
        let running = lease.child();
        let failed = |error: playhouse_lsp::RequestError| ToolError::Failed(error.to_string());
        running.show(&context.workspace, std::slice::from_ref(&self.path)).await.map_err(failed)?;
        if !running.shows(&self.path) {
            return Err(ToolError::Failed(format!("{name} is no text file that can be read, or too large")));
        }
        let Some(operation) = self.operation else {
            let mut known =
                running.diagnose(std::slice::from_ref(&self.path), Instant::now() + PATIENCE).await;
            let known = known.pop().unwrap_or(Ok(Known::NotYet)).map_err(failed)?;
            return Ok(diagnostics(name, &known));
        };
        let query = Query { operation, path: &self.path, spot: self.spot, words: &self.words };
        let client = &running.client;
        let answer = client.ask(&query, PATIENCE).await.map_err(failed)?;
        let is_busy = client.is_busy();
        let told = Told { workspace: Arc::clone(&context.workspace), showing: context.host.showing() };
        if operation == Operation::Hover && told.showing.may_hide() {
            // What is told of a word is text of the file that defines it.
            let query = Query { operation: Operation::GoToDefinition, ..query };
            let is_told = match client.ask(&query, PATIENCE).await {
                Ok(Answer::Places(places)) => told.allows(places).await,
                _ => false,
            };
            if !is_told {
                return Ok("(left out: where it is defined is not known, or not to be read)".to_owned());
            }
        }
        let mut text = match answer {
            answer if answer.is_empty() && is_busy => {
                return Ok(format!("not known yet: {key} still loads the project"));
            }
            Answer::Text(text) if text.trim().is_empty() => {
                format!("nothing is known of what stands there ({key})")
            }
            Answer::Text(text) => text,
            Answer::Places(places) => told.places(client, places).await,
            Answer::Edits(edits) => told.edits(client, edits, &self.words).await,
        };
        if is_busy {
            text.push_str("\n(it still loads the project: this may not be all)");
        }
        Ok(text)
    }
}

/// What is wrong with a file, all of it.
fn diagnostics(shown: &str, known: &Known) -> String {
    match known {
        Known::NotYet => format!("what is wrong with {shown} is not known yet: ask again later"),
        Known::Found { problems, is_verified: true } if problems.is_empty() => {
            format!("no problems in {shown}")
        }
        Known::Found { problems, .. } if problems.is_empty() => {
            format!("no problems in {shown} are told; that is unverified, since the server names no version")
        }
        Known::Found { problems, is_verified } => {
            let line = |problem: &playhouse_lsp::Problem| {
                let (line, column) = (problem.spot.line, problem.spot.column);
                let code = problem.code.as_ref().map(|code| format!(" [{code}]")).unwrap_or_default();
                format!("{shown}:{line}:{column}: {}: {}{code}", problem.severity.name(), problem.message)
            };
            let mut lines: Vec<String> = problems.iter().take(MOST_PLACES).map(line).collect();
            if problems.len() > MOST_PLACES {
                lines.push(format!("({} more)", problems.len() - MOST_PLACES));
            }
            if !is_verified {
                lines.push("(unverified: the server does not say of which content it speaks)".to_owned());
            }
            lines.join("\n")
        }
    }
}

/// What may be told of files, and how.
struct Told {
    workspace: Arc<Workspace>,
    showing: Showing,
}

/// A file of which something is told.
struct File {
    shown: String,
    text: Option<String>,
}

impl Told {
    /// The files that may be told of, with their texts.
    async fn files(&self, paths: impl Iterator<Item = &PathBuf>) -> HashMap<PathBuf, File> {
        let paths: BTreeMap<PathBuf, ()> = paths.map(|path| (path.clone(), ())).collect();
        let workspace = Arc::clone(&self.workspace);
        let read = move || {
            let file = |(path, ()): (PathBuf, ())| {
                let place = workspace.resolve(path.to_str()?).ok()?;
                let is_inside = matches!(place.zone, Zone::Workspace | Zone::Guarded);
                is_inside.then_some(())?;
                let state = FileState::read(&place).ok().flatten().filter(|state| state.size <= LARGEST);
                let text = state.and_then(|state| String::from_utf8(state.bytes?.to_vec()).ok());
                Some((path, File { shown: place.shown, text }))
            };
            paths.into_iter().filter_map(file).collect::<HashMap<_, _>>()
        };
        let mut files = blocking(read).await;
        files.retain(|_, file| self.showing.allows(&file.shown));
        files
    }

    /// Whether rules let all of these files be read, wherever they lie.
    async fn allows(&self, places: Vec<Place>) -> bool {
        let (workspace, showing) = (Arc::clone(&self.workspace), self.showing.clone());
        let is_allowed = move |place: Place| {
            let place = place.path.to_str().and_then(|path| workspace.resolve(path).ok());
            place.is_some_and(|place| showing.allows(&place.shown))
        };
        blocking(move || places.into_iter().all(is_allowed)).await
    }

    async fn places(&self, client: &Client, places: Vec<Place>) -> String {
        let files = self.files(places.iter().map(|place| &place.path)).await;
        let (mut lines, mut left_out, mut more) = (Vec::new(), 0, 0);
        for place in &places {
            let Some(file) = files.get(&place.path) else {
                left_out += 1;
                continue;
            };
            if lines.len() >= MOST_PLACES {
                more += 1;
                continue;
            }
            let source = file.text.as_deref().and_then(|text| line_of(text, place.start.line));
            let spot = client.spot(place.start, source);
            let name =
                place.symbol.as_ref().map(|symbol| format!(" {}:", symbol.shown())).unwrap_or_default();
            let source = source.map(shortened).unwrap_or_default();
            lines.push(format!("{}:{}:{}:{name} {source}", file.shown, spot.line, spot.column));
        }
        if places.is_empty() {
            lines.push("nothing was found".to_owned());
        }
        if more > 0 {
            lines.push(format!("({more} more: ask for less)"));
        }
        lines.extend(left_out_line(left_out));
        lines.join("\n")
    }

    /// What a rename would change: each line as it would be.
    async fn edits(&self, client: &Client, edits: Vec<FileEdits>, new_name: &str) -> String {
        let files = self.files(edits.iter().map(|edit| &edit.path)).await;
        let count: usize = edits.iter().map(|file| file.edits.len()).sum();
        let (mut lines, mut left_out) = (Vec::new(), 0);
        for FileEdits { path, edits } in &edits {
            let Some(file) = files.get(path) else {
                left_out += edits.len();
                continue;
            };
            let after = file.text.as_deref().and_then(|text| apply(text, edits, client.encoding()));
            for (span, new) in edits {
                if lines.len() >= MOST_PLACES {
                    break;
                }
                let source = file.text.as_deref().and_then(|text| line_of(text, span.start.line));
                let spot = client.spot(span.start, source);
                // An edit that adds or takes lines moves those behind it: then only what is put there is told.
                let is_whole =
                    edits.iter().all(|(span, new)| span.start.line == span.end.line && !new.contains('\n'));
                let becomes = after.as_deref().filter(|_| is_whole);
                let becomes = becomes
                    .and_then(|text| line_of(text, span.start.line))
                    .map_or_else(|| shortened(new), shortened);
                let (shown, source) = (&file.shown, source.map(shortened).unwrap_or_default());
                lines.push(format!("{shown}:{}:{}: {source} -> {becomes}", spot.line, spot.column));
            }
        }
        if count == 0 {
            return format!("the server renames nothing to {new_name}");
        }
        let told = lines.len();
        lines.insert(0, format!("Renaming to {new_name} would change {count} places; nothing is changed yet, apply it with your edit tools:"));
        if told + left_out < count {
            lines.push(format!("({} more)", count - told - left_out));
        }
        lines.extend(left_out_line(left_out));
        lines.join("\n")
    }
}

fn left_out_line(count: usize) -> Option<String> {
    let places = if count == 1 { "place" } else { "places" };
    (count > 0).then(|| format!("({count} {places} left out: outside of the workspace, or not to be read)"))
}

fn shortened(line: &str) -> String {
    let line = line.trim();
    match line.char_indices().nth(LONGEST_LINE) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

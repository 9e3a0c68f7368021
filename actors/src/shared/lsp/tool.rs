//! `lsp`: what a language server says of places and names, and the renames that it works out.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use playhouse_lsp::{Answer, Client, FileEdits, Known, Operation, Place, Query, Spot, apply, line_of};
use playhouse_policy::{AccessKind, Zone};
use playhouse_protocol::record::{Effect, Recovery};
use playhouse_sandbox::blocking;
use playhouse_tools::changed::FileState;
use playhouse_tools::{
    CallContext, Ready, Rewrite, Rewrites, Risk, Showing, ToolError, ToolOutput, ToolScope, TypedTool,
};
use playhouse_workspace::Workspace;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::{Instant, timeout};

use super::{Inner, Job, Lease, Servers};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Places that are told.
const MOST_PLACES: usize = 100;
/// Files that a rename changes. A server is shown more at once.
const MOST_RENAMED: usize = 100;
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
    #[serde(default)]
    apply: Option<bool>,
}

/// The tool of one session.
pub(super) struct LspTool {
    pub(super) servers: Weak<Inner>,
    /// The session whose tool it is.
    pub(super) scope: ToolScope,
}

/// A call that was understood: a question to the server, or a rename to carry out.
pub(super) enum Task {
    /// Asks the server. Changes no file.
    Ask(Question),
    /// Writes the files that a rename changes.
    Rename(Rewrites),
}

/// What is asked.
pub(super) struct Question {
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
        let Arguments { operation: name, file_path, line, character, query, new_name, apply } = arguments;
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
        let apply = apply == Some(true);
        if apply && operation != Some(Operation::Rename) {
            return Err(ToolError::Invalid(format!("`apply` is for rename: {name} changes nothing")));
        }
        let (workspace, written) = (Arc::clone(&context.workspace), file_path.clone());
        let place = context.pool.run(move || workspace.resolve(&written)).await;
        let place = place.map_err(|error| ToolError::Invalid(error.to_string()))?;
        let title = format!("{name} {}", place.shown);
        let mut accesses = vec![place.access(AccessKind::Read)];
        let question = Question { operation, path: place.path, shown: place.shown, spot, words };
        if !apply {
            return Ok(Ready::looking(accesses, title, Task::Ask(question)));
        }
        let rewrites = self.unless_cancelled(context, question.rename(self, context)).await?;
        accesses.extend(rewrites.accesses());
        Ok(Ready {
            accesses,
            effect: Effect::Workspace,
            recovery: Recovery::Interrupt,
            preview: rewrites.preview(),
            title,
            task: Task::Rename(rewrites),
        })
    }

    async fn execute(&self, task: Task, context: &CallContext) -> Result<ToolOutput, ToolError> {
        match task {
            Task::Ask(question) => {
                let answer = self.unless_cancelled(context, question.answer(self, context)).await;
                answer.map(ToolOutput::text)
            }
            Task::Rename(rewrites) => rewrites.carry_out(context).await,
        }
    }
}

impl LspTool {
    async fn unless_cancelled<T>(
        &self,
        context: &CallContext,
        work: impl Future<Output = Result<T, ToolError>>,
    ) -> Result<T, ToolError> {
        tokio::select! {
            biased;
            () = context.cancel.cancelled() => Err(ToolError::Cancelled(String::new())),
            result = work => result,
        }
    }
}

fn failed(error: playhouse_lsp::RequestError) -> ToolError {
    ToolError::Failed(error.to_string())
}

impl Question {
    /// The server of the file, with its name, once it runs and is shown the file; an error says that it does not run yet.
    async fn server(&self, tool: &LspTool, context: &CallContext) -> Result<(Lease<Servers>, String), Reach> {
        let servers =
            tool.servers.upgrade().ok_or_else(|| ToolError::Failed("the engine stops".to_owned()))?;
        let Some(Job { key, .. }) = servers.jobs(&tool.scope, [self.path.clone()]).await.pop() else {
            return Err(ToolError::Failed(format!("there is no language server for {}", self.shown)).into());
        };
        let Ok(lease) = timeout(PATIENCE, servers.lease(&key, tool.scope.session)).await else {
            return Err(Reach::NotYet(format!("not known yet: {key} still starts")));
        };
        let lease = lease.map_err(ToolError::Failed)?;
        let running = lease.child();
        running.show(&context.workspace, std::slice::from_ref(&self.path)).await.map_err(failed)?;
        if !running.shows(&self.path) {
            let reason = format!("{} is no text file that can be read, or too large", self.shown);
            return Err(ToolError::Failed(reason).into());
        }
        Ok((lease, key.to_string()))
    }

    async fn answer(&self, tool: &LspTool, context: &CallContext) -> Result<String, ToolError> {
        let (lease, key) = match self.server(tool, context).await {
            Ok(reached) => reached,
            Err(Reach::NotYet(text)) => return Ok(text),
            Err(Reach::Never(error)) => return Err(error),
        };
        let running = lease.child();
        let Some(operation) = self.operation else {
            let mut known =
                running.diagnose(std::slice::from_ref(&self.path), Instant::now() + PATIENCE).await;
            let known = known.pop().unwrap_or(Ok(Known::NotYet)).map_err(failed)?;
            return Ok(diagnostics(&self.shown, &known));
        };
        let query = Query { operation, path: &self.path, spot: self.spot, words: &self.words };
        let client = &running.client;
        let answer = client.ask(&query, PATIENCE).await.map_err(failed)?;
        let is_busy = client.is_busy();
        let told = Told::of(context);
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

    /// Asks the server which edits a rename takes, and works out the new text of each file. Writes nothing.
    async fn rename(&self, tool: &LspTool, context: &CallContext) -> Result<Rewrites, ToolError> {
        let (lease, key) = match self.server(tool, context).await {
            Ok(reached) => reached,
            Err(Reach::NotYet(text)) => return Err(ToolError::Failed(text)),
            Err(Reach::Never(error)) => return Err(error),
        };
        let (running, new_name) = (lease.child(), &self.words);
        let query =
            Query { operation: Operation::Rename, path: &self.path, spot: self.spot, words: new_name };
        let mut shown = vec![self.path.clone()];
        let edits = loop {
            let Answer::Edits(edits) = running.client.ask(&query, PATIENCE).await.map_err(failed)? else {
                return Err(ToolError::Failed(format!("{key} answers with no edits")));
            };
            if running.client.is_busy() {
                return Err(ToolError::Failed(format!("not known yet: {key} still loads the project")));
            }
            let paths: Vec<PathBuf> = edits.iter().map(|file| file.path.clone()).collect();
            if paths.iter().all(|path| shown.contains(path)) {
                break edits;
            }
            if paths.len() > MOST_RENAMED {
                return Err(ToolError::Failed(format!(
                    "renaming to {new_name} would change {} files, and this changes {MOST_RENAMED} at most: apply the edits that it shows without `apply`",
                    paths.len()
                )));
            }
            if shown.len() > 1 {
                return Err(ToolError::Failed(format!(
                    "{key} answers with other files each time: ask again"
                )));
            }
            // It is asked again, so that its edits are of the texts that it is shown here.
            running.show(&context.workspace, &paths).await.map_err(failed)?;
            shown.extend(paths);
        };
        let texts: Vec<_> = edits.iter().map(|file| running.client.text(&file.path)).collect();
        let (workspace, encoding) = (Arc::clone(&context.workspace), running.client.encoding());
        let new_name = new_name.clone();
        let plan = move || {
            let rewrite = |(FileEdits { path, edits }, text): (FileEdits, Option<(Arc<str>, i32)>)| {
                let named = path.to_string_lossy().into_owned();
                let cannot = |why: &str| {
                    ToolError::Failed(format!("nothing was renamed: {named} would change, {why}"))
                };
                let place = workspace.resolve(&named).map_err(|error| cannot(&error.to_string()))?;
                if place.zone != Zone::Workspace {
                    return Err(cannot("and it is outside of the workspace"));
                }
                let (before, _) = text.ok_or_else(|| cannot("and it is no text file that can be read"))?;
                let after =
                    apply(&before, &edits, encoding).ok_or_else(|| cannot("and its edits do not fit"))?;
                Ok(Rewrite { place, before: before.to_string(), after })
            };
            let files: Result<Vec<_>, _> = edits.into_iter().zip(texts).map(rewrite).collect();
            let mut files = files?;
            files.retain(|file| file.before != file.after);
            if files.is_empty() {
                return Err(ToolError::Failed(format!("the server renames nothing to {new_name}")));
            }
            Rewrites::plan("the rename", files)
        };
        context.pool.run(plan).await
    }
}

/// Why a server cannot be asked.
enum Reach {
    /// The server is still starting: the text for the model.
    NotYet(String),
    /// The server cannot run, or cannot be shown the file.
    Never(ToolError),
}

impl From<ToolError> for Reach {
    fn from(error: ToolError) -> Self {
        Self::Never(error)
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
    fn of(context: &CallContext) -> Self {
        Self { workspace: Arc::clone(&context.workspace), showing: context.host.showing() }
    }

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
        lines.insert(0, format!("Renaming to {new_name} would change {count} places; nothing is changed yet: repeat it with `apply: true`, or edit yourself:"));
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

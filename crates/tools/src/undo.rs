//! `undo_last` and `undo_to`: a model takes back its own changes of files.
//!
//! The engine finds and plans them ([`Host`](crate::Host)). A call is judged as an edit of each path that it would write.

use std::path::PathBuf;

use playhouse_policy::AccessKind;
use playhouse_protocol::changes::{ChangeKind, TouchedFile};
use playhouse_protocol::record::{Effect, Recovery};
use playhouse_protocol::{LeftFile, PartId, RevertReport};
use playhouse_workspace::Resolved;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, json};

use crate::files::counted;
use crate::tool::{CallContext, Risk, ToolError, ToolOutput};
use crate::typed::{Ready, TypedTool};

/// The fact of a result that names the calls whose changes were taken back.
pub const UNDONE: &str = "undone";
/// Changes that are listed.
const MOST_LISTED: usize = 20;
/// Files that are named of one list.
const MOST_NAMED: usize = 50;

/// A call of the session that changed files, and was not taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnChange {
    /// The call.
    pub call: PartId,
    /// Its tool.
    pub tool: String,
    /// The files; empty where others did the work.
    pub files: Vec<TouchedFile>,
}

/// What taking calls back writes, or would write.
#[derive(Clone, Debug, Default)]
pub struct UndoPlan {
    /// What is written and what is left.
    pub report: RevertReport,
    /// The places that are written.
    pub places: Vec<Resolved>,
    /// Whether the calls changed anything at all.
    pub is_any: bool,
}

/// The arguments of `undo_last`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoArguments {}

/// The arguments of `undo_to`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    #[serde(default)]
    to: Option<String>,
}

/// The tool `undo_last`.
#[derive(Debug, Default)]
pub struct UndoLast;

/// The tool `undo_to`.
#[derive(Debug, Default)]
pub struct UndoTo;

/// What a call takes back.
#[derive(Debug)]
pub enum Task {
    /// Nothing: it lists.
    List(Vec<OwnChange>),
    /// The changes of these calls; these places may be written.
    Undo {
        /// The calls.
        calls: Vec<PartId>,
        /// The places.
        paths: Vec<PathBuf>,
        /// The newest change of the session when it was looked at.
        newest: Option<PartId>,
    },
}

impl TypedTool for UndoLast {
    const NAME: &'static str = "undo_last";
    const DESCRIPTION: &'static str = include_str!("../../../prompts/tools/undo_last.md");
    const RISK: Risk = Risk::Moderate;
    const PERMISSION: &'static str = "edit";
    type Arguments = NoArguments;
    type Task = Task;

    async fn prepare(&self, _: NoArguments, context: &CallContext) -> Result<Ready<Task>, ToolError> {
        let own = context.host.own_changes().await?;
        for change in &own {
            let plan = context.host.plan_undo(vec![change.call]).await?;
            if plan.is_any {
                return Ok(ready(vec![change.call], &own, &plan, context));
            }
        }
        Err(nothing())
    }

    async fn execute(&self, task: Task, context: &CallContext) -> Result<ToolOutput, ToolError> {
        execute(task, context).await
    }
}

impl TypedTool for UndoTo {
    const NAME: &'static str = "undo_to";
    const DESCRIPTION: &'static str = include_str!("../../../prompts/tools/undo_to.md");
    const RISK: Risk = Risk::Moderate;
    const PERMISSION: &'static str = "edit";
    type Arguments = Arguments;
    type Task = Task;

    async fn prepare(&self, arguments: Arguments, context: &CallContext) -> Result<Ready<Task>, ToolError> {
        let own = context.host.own_changes().await?;
        let Some(to) = arguments.to else {
            return Ok(Ready {
                accesses: Vec::new(),
                effect: Effect::None,
                recovery: Recovery::Rerun,
                preview: String::new(),
                title: "list changes".to_owned(),
                task: Task::List(own),
            });
        };
        let place = own.iter().position(|change| change.call.as_str() == to).ok_or_else(|| {
            ToolError::Invalid(format!(
                "no change of yours has the id {to:?}: call undo_to without `to` for the list"
            ))
        })?;
        let calls: Vec<PartId> = own.iter().take(place + 1).map(|change| change.call).collect();
        let plan = context.host.plan_undo(calls.clone()).await?;
        if plan.is_any { Ok(ready(calls, &own, &plan, context)) } else { Err(nothing()) }
    }

    async fn execute(&self, task: Task, context: &CallContext) -> Result<ToolOutput, ToolError> {
        execute(task, context).await
    }
}

fn nothing() -> ToolError {
    ToolError::Failed("there is no change of yours that could be taken back".to_owned())
}

fn ready(calls: Vec<PartId>, own: &[OwnChange], plan: &UndoPlan, context: &CallContext) -> Ready<Task> {
    let paths = plan.places.iter().map(|place| place.path.clone()).collect();
    Ready {
        accesses: plan.places.iter().map(|place| place.access(AccessKind::Write)).collect(),
        effect: Effect::Workspace,
        recovery: Recovery::Interrupt,
        preview: told(&plan.report, context),
        title: format!("take back {}", counted(calls.len(), "call")),
        task: Task::Undo { calls, paths, newest: newest(own) },
    }
}

async fn execute(task: Task, context: &CallContext) -> Result<ToolOutput, ToolError> {
    let (calls, paths, before) = match task {
        Task::List(own) => return Ok(listed(&own, context)),
        Task::Undo { calls, paths, newest } => (calls, paths, newest),
    };
    // Calls of one answer are looked at before the first of them runs.
    if newest(&context.host.own_changes().await?) != before {
        return Err(ToolError::Failed("a call before this one changed files: call it again".to_owned()));
    }
    let report = context.host.undo(calls.clone(), paths, context).await?;
    let mut metadata = Map::new();
    // Where nothing could be taken back it may be tried again.
    if report.conflicts.is_empty() || !report.files.is_empty() {
        metadata.insert(UNDONE.to_owned(), json!(calls));
    }
    let title = format!("took back {}", counted(calls.len(), "call"));
    Ok(ToolOutput { title, output: told(&report, context), metadata, ..ToolOutput::default() })
}

fn newest(own: &[OwnChange]) -> Option<PartId> {
    own.first().map(|change| change.call)
}

/// The changes, for a model.
fn listed(own: &[OwnChange], context: &CallContext) -> ToolOutput {
    let showing = context.host.showing();
    let lines = own.iter().take(MOST_LISTED).map(|change| {
        let shown =
            change.files.iter().map(|file| shown(&file.path, context)).filter(|path| showing.allows(path));
        let files: Vec<String> = shown.take(MOST_NAMED).collect();
        format!("{} {} {}\n", change.call, change.tool, files.join(", "))
    });
    let mut output: String = lines.collect();
    if own.is_empty() {
        output.push_str("You changed no file yet.\n");
    } else if own.len() > MOST_LISTED {
        output.push_str(&format!("and {} older ones\n", own.len() - MOST_LISTED));
    }
    ToolOutput { title: counted(own.len(), "change"), output, ..ToolOutput::default() }
}

/// A path from the workspace on.
fn shown(path: &str, context: &CallContext) -> String {
    let root = context.workspace.root().to_string_lossy();
    path.strip_prefix(&*root).map_or(path, |path| path.trim_start_matches('/')).to_owned()
}

/// What was taken back and what was not, for a model: paths that may not be read are left out.
fn told(report: &RevertReport, context: &CallContext) -> String {
    let showing = context.host.showing();
    let is_shown = |path: &str| showing.allows(path);
    let mut lines = Vec::new();
    for file in &report.files {
        let what = match file.kind {
            ChangeKind::Added => "made",
            ChangeKind::Modified => "changed",
            ChangeKind::Deleted => "removed",
        };
        lines.push((
            Some(file.path.as_str()),
            format!("{what} {} (+{} -{})", file.path, file.additions, file.deletions),
        ));
    }
    for folder in &report.folders {
        let what = match (folder.before, folder.after) {
            (None, _) => "made",
            (_, None) => "removed",
            _ => "changed the permissions of",
        };
        lines.push((Some(folder.path.as_str()), format!("{what} the folder {}", folder.path)));
    }
    let of = |what: &str, left: &LeftFile| match &left.path {
        Some(path) => format!("not taken back ({what}): {path}: {}", left.reason),
        None => format!("not taken back ({what}): {}", left.reason),
    };
    for (what, left) in [
        ("conflict", &report.conflicts),
        ("ambiguous", &report.ambiguous),
        ("not covered", &report.not_covered),
    ] {
        lines.extend(left.iter().map(|left| (left.path.as_deref(), of(what, left))));
    }
    let count = lines.len();
    let shown: Vec<String> =
        lines.into_iter().filter(|(path, _)| path.is_none_or(is_shown)).map(|(_, line)| line).collect();
    let hidden = count - shown.len();
    let more = shown.len().saturating_sub(MOST_NAMED);
    let mut text: Vec<String> = shown.into_iter().take(MOST_NAMED).collect();
    if more > 0 {
        text.push(format!("and {more} more"));
    }
    if hidden > 0 {
        text.push(format!("{} that you may not read left out", counted(hidden, "path")));
    }
    if text.is_empty() {
        text.push("No file is different.".to_owned());
    }
    text.join("\n")
}

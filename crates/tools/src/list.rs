//! `list`: a directory as a tree.

mod tree;

use playhouse_policy::AccessKind;
use playhouse_workspace::{Resolved, Workspace};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Map;
use tokio_util::sync::CancellationToken;

use crate::files;
use crate::files::directory::Kind;
use crate::files::pattern::Patterns;
use crate::files::walk::{Flow, Limits, Outcome, Report, Walk};
use crate::tool::{CallContext, Risk, ToolError, ToolOutput};
use crate::typed::{Ready, TypedTool};
use tree::{Node, SHOWN, Tree};

/// Entries that are looked at.
const LOOKED_AT: usize = 20_000;

/// Globs in one call.
const GLOBS: usize = 100;

/// The arguments of `list`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Arguments {
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    ignore: Option<Vec<String>>,
}

/// The tool.
#[derive(Debug, Default)]
pub struct List;

/// What a call lists.
pub struct Task {
    place: Resolved,
    ignore: Patterns,
    limits: Limits,
}

impl TypedTool for List {
    const NAME: &'static str = "list";
    const DESCRIPTION: &'static str = include_str!("../../../prompts/tools/list.md");
    const RISK: Risk = Risk::Safe;
    type Arguments = Arguments;
    type Task = Task;

    async fn prepare(&self, arguments: Arguments, context: &CallContext) -> Result<Ready<Task>, ToolError> {
        let ignore = arguments.ignore.unwrap_or_default();
        let is_plain = ignore.is_empty();
        if ignore.len() > GLOBS {
            return Err(ToolError::Invalid(format!("ignore has more than {GLOBS} globs: give fewer")));
        }
        // Many alternatives take a while.
        let parse = move || Patterns::parse("ignore", ignore.iter().map(String::as_str));
        let ignore = if is_plain { parse()? } else { files::reading(context, parse).await? };
        let place = files::resolve(context, files::or_workspace(arguments.path.as_deref())).await?;
        let limits = Limits { entries: LOOKED_AT, ..Limits::default() };
        Ok(Ready::looking(
            vec![place.access(AccessKind::Read)],
            place.shown.clone(),
            Task { place, ignore, limits },
        ))
    }

    async fn execute(&self, task: Task, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let (workspace, cancel) = (context.workspace.clone(), context.cancel.clone());
        files::reading(context, move || task.run(&workspace, &cancel)).await
    }
}

impl Task {
    /// Looks one level deeper each time, until there is enough to show: a large directory that comes first must not
    /// hide what lies beside it.
    fn run(&self, workspace: &Workspace, cancel: &CancellationToken) -> Result<ToolOutput, ToolError> {
        let mut depth = 1;
        loop {
            let (nodes, report) = self.look(workspace, cancel, depth)?;
            let deepest = nodes.iter().any(|node| node.depth == depth && node.kind == Kind::Directory);
            if !deepest || nodes.len() >= SHOWN || report.outcome != Outcome::Complete {
                return Ok(self.output(nodes, &report));
            }
            depth += 1;
        }
    }

    fn look(
        &self,
        workspace: &Workspace,
        cancel: &CancellationToken,
        depth: usize,
    ) -> Result<(Vec<Node>, Report), ToolError> {
        let start = files::start(workspace, &self.place)?;
        let mut nodes = Vec::new();
        let walk = Walk { hidden: false, depth, limits: self.limits, cancel };
        let report = walk.run(start, &mut |found| {
            if self.ignore.matches(found.path) {
                return Flow::Pass;
            }
            let depth = found.path.components().count();
            nodes.push(Node { name: found.name.to_string_lossy().into_owned(), kind: found.kind, depth });
            Flow::Go
        });
        if report.outcome == Outcome::Cancelled { Err(files::cancelled()) } else { Ok((nodes, report)) }
    }

    fn output(&self, nodes: Vec<Node>, report: &Report) -> ToolOutput {
        let tree = Tree::of(&nodes);
        let mut output = format!("{}/\n", self.place.shown.trim_end_matches('/'));
        if nodes.is_empty() {
            output.push_str("(nothing; hidden and ignored files are left out)\n");
        }
        output.push_str(&tree.text);
        if tree.shown < nodes.len() {
            output.push_str("(list a directory to see more of it)\n");
        }
        output.push_str(&report.shortfall(&self.limits));
        let mut metadata = Map::new();
        metadata.insert("count".into(), tree.shown.into());
        metadata.insert("truncated".into(), (tree.shown < nodes.len()).into());
        ToolOutput {
            title: self.place.shown.clone(),
            output: output.trim_end().to_owned(),
            metadata,
            ..ToolOutput::default()
        }
    }
}

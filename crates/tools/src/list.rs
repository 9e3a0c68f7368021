//! `list`: a directory as a tree.

mod tree;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_policy::AccessKind;
use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::record::{Effect, Recovery};
use playhouse_workspace::{Resolved, Workspace};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::arguments;
use crate::files;
use crate::files::directory::Kind;
use crate::files::pattern::Patterns;
use crate::files::walk::{Flow, Limits, Outcome, Report, Walk};
use crate::tool::{CallContext, Plan, Prepared, Risk, Tool, ToolError, ToolOutput};
use tree::{Node, SHOWN, Tree};

/// Entries that are looked at.
const LOOKED_AT: usize = 20_000;

/// Globs in one call.
const GLOBS: usize = 100;

/// The arguments of `list`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Arguments {
    /// The directory to list. Default: the workspace.
    #[serde(default)]
    path: Option<String>,
    /// Globs of files and directories to leave out, beside those that .gitignore names.
    #[serde(default)]
    ignore: Option<Vec<String>>,
}

/// The tool.
#[derive(Debug)]
pub struct List {
    spec: ToolSpec,
}

impl Default for List {
    fn default() -> Self {
        Self { spec: arguments::spec::<Arguments>("list", include_str!("../../../prompts/tools/list.md")) }
    }
}

/// What a call lists.
struct Task {
    place: Resolved,
    ignore: Patterns,
    limits: Limits,
}

impl Tool for List {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn risk(&self) -> Risk {
        Risk::Safe
    }

    fn prepare<'a>(
        &'a self,
        input: &'a Map<String, Value>,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        async move {
            let Arguments { path, ignore } = arguments::parse("list", input)?;
            let ignore = ignore.unwrap_or_default();
            if ignore.len() > GLOBS {
                return Err(ToolError::Invalid(format!("ignore has more than {GLOBS} globs: give fewer")));
            }
            let ignore = Patterns::parse("ignore", ignore.iter().map(String::as_str))?;
            let place = files::resolve(context, files::or_workspace(path.as_deref())).await?;
            let limits = Limits { entries: LOOKED_AT, ..Limits::default() };
            Ok(Prepared {
                accesses: vec![place.access(AccessKind::Read)],
                effect: Effect::None,
                recovery: Recovery::Rerun,
                preview: place.shown.clone(),
                title: place.shown.clone(),
                plan: Box::new(Task { place, ignore, limits }),
            })
        }
        .boxed()
    }

    fn execute<'a>(
        &'a self,
        plan: Plan,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        async move {
            let task = files::planned::<Task>(plan)?;
            let (workspace, cancel) = (context.workspace.clone(), context.cancel.clone());
            files::reading(context, move || task.run(&workspace, &cancel)).await
        }
        .boxed()
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
            attachments: Vec::new(),
        }
    }
}

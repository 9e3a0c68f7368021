//! `glob`: the files whose paths match a pattern, newest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;

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
use crate::files::directory::Kind;
use crate::files::pattern::Patterns;
use crate::files::walk::{Flow, Limits, Outcome, Walk};
use crate::files::{self, walk};
use crate::tool::{CallContext, Plan, Prepared, Risk, Tool, ToolError, ToolOutput};

/// Files that are shown.
const SHOWN: usize = 100;

/// The arguments of `glob`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Arguments {
    /// The glob, relative to path: "*.rs" matches names at any depth, "src/**/*.{ts,tsx}" matches paths.
    pattern: String,
    /// The directory to search. Default: the workspace.
    #[serde(default)]
    path: Option<String>,
}

/// The tool.
#[derive(Debug)]
pub struct Glob {
    spec: ToolSpec,
}

impl Default for Glob {
    fn default() -> Self {
        Self { spec: arguments::spec::<Arguments>("glob", include_str!("../../../prompts/tools/glob.md")) }
    }
}

/// What a call looks for.
struct Task {
    place: Resolved,
    patterns: Patterns,
    pattern: String,
    limits: Limits,
}

impl Tool for Glob {
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
            let Arguments { pattern, path } = arguments::parse("glob", input)?;
            let patterns = Patterns::parse("pattern", [pattern.as_str()])?;
            let place = files::resolve(context, files::or_workspace(path.as_deref())).await?;
            let title = files::search_title(&pattern, &place);
            Ok(Prepared {
                accesses: vec![place.access(AccessKind::Read)],
                effect: Effect::None,
                recovery: Recovery::Rerun,
                preview: title.clone(),
                title,
                plan: Box::new(Task { place, patterns, pattern, limits: Limits::default() }),
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
    fn run(&self, workspace: &Workspace, cancel: &CancellationToken) -> Result<ToolOutput, ToolError> {
        let start = files::start(workspace, &self.place)?;
        let mut newest = Newest::default();
        let walk =
            Walk { hidden: self.patterns.names_hidden(), depth: usize::MAX, limits: self.limits, cancel };
        let report = walk.run(start, &mut |found| {
            if found.kind == Kind::File && self.patterns.matches(found.path) {
                // A file that is gone again was not there.
                if let Ok(facts) = found.parent.facts(found.name) {
                    newest.add(found.path, (i128::from(facts.st_mtime), i128::from(facts.st_mtime_nsec)));
                }
            }
            Flow::Go
        });
        if report.outcome == Outcome::Cancelled {
            return Err(files::cancelled());
        }
        Ok(self.output(newest, &report))
    }

    fn output(&self, newest: Newest, report: &walk::Report) -> ToolOutput {
        let (found, paths) = (newest.count, newest.sorted());
        let mut output = String::new();
        for path in &paths {
            output.push_str(&files::shown_below(&self.place, Path::new(path)));
            output.push('\n');
        }
        if paths.is_empty() {
            output = format!(
                "no file matches {} in {} (hidden and ignored files are left out)\n",
                self.pattern, self.place.shown
            );
        } else if found > paths.len() {
            output.push_str(&format!(
                "(the newest {} of {found}; narrow the pattern to see the others)\n",
                paths.len()
            ));
        }
        output.push_str(&report.shortfall(&self.limits));
        let mut metadata = Map::new();
        metadata.insert("count".into(), found.into());
        metadata.insert("truncated".into(), (found > paths.len()).into());
        ToolOutput {
            title: files::search_title(&self.pattern, &self.place),
            output: output.trim_end().to_owned(),
            metadata,
            attachments: Vec::new(),
        }
    }
}

/// Seconds and nanoseconds.
type Time = (i128, i128);

/// The newest of many files, in memory for [`SHOWN`] of them.
#[derive(Default)]
struct Newest {
    /// The one to be dropped next on top: the oldest, and among those of one age the last by name.
    kept: BinaryHeap<(Reverse<Time>, String)>,
    count: usize,
}

impl Newest {
    fn add(&mut self, path: &Path, modified: Time) {
        self.count += 1;
        if self.kept.len() == SHOWN && self.kept.peek().is_some_and(|(oldest, _)| modified < oldest.0) {
            return;
        }
        self.kept.push((Reverse(modified), path.to_string_lossy().into_owned()));
        if self.kept.len() > SHOWN {
            self.kept.pop();
        }
    }

    fn sorted(self) -> Vec<String> {
        self.kept.into_sorted_vec().into_iter().map(|(_, path)| path).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_in_order() {
        let mut newest = Newest::default();
        for number in 0..1_000_i128 {
            newest.add(Path::new(&format!("f{:03}", number)), ((number * 7) % 1_000, 0));
        }
        newest.add(Path::new("a"), (5_000, 1));
        newest.add(Path::new("b"), (5_000, 1));
        newest.add(Path::new("c"), (5_000, 2));
        assert_eq!(newest.count, 1_003);
        let sorted = newest.sorted();
        assert_eq!(sorted.len(), SHOWN);
        // 857 * 7 = 5999
        assert_eq!(sorted[..4], ["c", "a", "b", "f857"]);
    }
}

//! `glob`: the files whose paths match a pattern, newest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;

use playhouse_policy::AccessKind;
use playhouse_workspace::{Resolved, Workspace};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Map;
use tokio_util::sync::CancellationToken;

use crate::files;
use crate::files::directory::Kind;
use crate::files::pattern::Patterns;
use crate::files::sweep::{Work, sweep};
use crate::files::walk::{Flow, Found, Limits, Outcome, Report, Walk};
use crate::tool::{CallContext, Risk, ToolError, ToolOutput};
use crate::typed::{Ready, TypedTool};

/// Files that are shown.
const SHOWN: usize = 100;

/// The arguments of `glob`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Arguments {
    pattern: String,
    #[serde(default)]
    path: Option<String>,
}

/// The tool.
#[derive(Debug, Default)]
pub struct Glob;

/// What a call looks for.
pub struct Task {
    place: Resolved,
    patterns: Patterns,
    pattern: String,
    limits: Limits,
}

impl TypedTool for Glob {
    const NAME: &'static str = "glob";
    const DESCRIPTION: &'static str = include_str!("../../../prompts/tools/glob.md");
    const RISK: Risk = Risk::Safe;
    type Arguments = Arguments;
    type Task = Task;

    async fn prepare(&self, arguments: Arguments, context: &CallContext) -> Result<Ready<Task>, ToolError> {
        let Arguments { pattern, path } = arguments;
        let wanted = pattern.clone();
        // Many alternatives take a while.
        let patterns = files::reading(context, move || Patterns::parse("pattern", [wanted.as_str()])).await?;
        let place = files::resolve(context, files::or_workspace(path.as_deref())).await?;
        let title = files::search_title(&pattern, &place);
        Ok(Ready::looking(
            vec![place.access(AccessKind::Read)],
            title,
            Task { place, patterns, pattern, limits: Limits::default() },
        ))
    }

    async fn execute(&self, task: Task, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let (workspace, cancel) = (context.workspace.clone(), context.cancel.clone());
        files::reading(context, move || task.run(&workspace, &cancel)).await
    }
}

impl Work for Task {
    type Hand = Newest;
    type Batch = ();

    fn hand(&self) -> Newest {
        Newest::default()
    }

    fn visit(&self, newest: &mut Newest, _: &mut (), found: &Found<'_>) {
        if found.kind == Kind::File && self.patterns.matches(found.path) {
            // A file that is gone again was not there.
            if let Ok(facts) = found.parent.facts(found.name) {
                newest.add(found.path, (i128::from(facts.st_mtime), i128::from(facts.st_mtime_nsec)));
            }
        }
    }
}

impl Task {
    fn run(&self, workspace: &Workspace, cancel: &CancellationToken) -> Result<ToolOutput, ToolError> {
        let start = files::start(workspace, &self.place)?;
        let walk =
            Walk { hidden: self.patterns.names_hidden(), depth: usize::MAX, limits: self.limits, cancel };
        let (report, hands) = sweep(&walk, start, self, &mut |()| Flow::Go);
        if report.outcome == Outcome::Cancelled {
            return Err(files::cancelled());
        }
        let newest = hands.into_iter().reduce(Newest::merge).unwrap_or_default();
        Ok(self.output(newest, &report))
    }

    fn output(&self, newest: Newest, report: &Report) -> ToolOutput {
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
                "(the newest {} of {found}; {} more: narrow the pattern to see them)\n",
                paths.len(),
                found - paths.len()
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
            ..ToolOutput::default()
        }
    }
}

/// Seconds and nanoseconds.
type Time = (i128, i128);

/// The newest of many files, in memory for [`SHOWN`] of them.
#[derive(Default)]
pub(crate) struct Newest {
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
        self.keep((Reverse(modified), path.to_string_lossy().into_owned()));
    }

    fn keep(&mut self, file: (Reverse<Time>, String)) {
        self.kept.push(file);
        if self.kept.len() > SHOWN {
            self.kept.pop();
        }
    }

    /// The newest of both.
    fn merge(mut self, other: Self) -> Self {
        self.count += other.count;
        other.kept.into_iter().for_each(|file| self.keep(file));
        self
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

    #[test]
    fn the_newest_of_several_are_the_newest_of_all() {
        let (mut whole, mut parts) = (Newest::default(), [Newest::default(), Newest::default()]);
        for number in 0..1_000_i128 {
            // Several of each age, so that the names decide.
            let (path, time) = (format!("f{number:03}"), ((number * 7) % 50, 0));
            whole.add(Path::new(&path), time);
            parts[usize::from(number % 3 == 0)].add(Path::new(&path), time);
        }
        let merged = parts.into_iter().reduce(Newest::merge).unwrap();
        assert_eq!((merged.count, merged.sorted()), (whole.count, whole.sorted()));
    }
}

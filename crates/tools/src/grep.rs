//! `grep`: the lines that match a regular expression.

mod lines;
mod search;

use std::fmt::Write as _;

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use playhouse_policy::{AccessKind, Known};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Map;

use crate::files;
use crate::files::pattern::{Patterns, split_list};
use crate::files::walk::Limits;
use crate::tool::{CallContext, Risk, ToolError, ToolOutput};
use crate::typed::{Ready, TypedTool};
pub use lines::{FoundLine, find_lines};
use search::{Search, Tally};

/// The longest pattern, in bytes.
const LONGEST: usize = 10_000;

/// The arguments of `grep`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Arguments {
    pattern: String,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    include: Option<String>,
}

/// The tool.
#[derive(Debug, Default)]
pub struct Grep;

/// What a call looks for.
pub struct Task {
    search: Search,
    pattern: String,
}

impl TypedTool for Grep {
    const NAME: &'static str = "grep";
    const DESCRIPTION: &'static str = include_str!("../../../prompts/tools/grep.md");
    const RISK: Risk = Risk::Safe;
    type Arguments = Arguments;
    type Task = Task;

    async fn prepare(&self, arguments: Arguments, context: &CallContext) -> Result<Ready<Task>, ToolError> {
        let Arguments { pattern, path, include } = arguments;
        let expression = pattern.clone();
        // Compiling a hostile expression may take a while.
        let compiled = files::reading(context, move || {
            let include = match include.as_deref().map(split_list).filter(|list| !list.is_empty()) {
                Some(list) => Some(Patterns::parse("include", list)?),
                None => None,
            };
            Ok((compile(&expression)?, include))
        });
        let (matcher, include) = compiled.await?;
        let place = files::resolve(context, files::or_workspace(path.as_deref())).await?;
        let title = files::search_title(&pattern, &place);
        let search = Search { place, matcher, include, limits: Limits::default() };
        Ok(Ready::looking(
            vec![search.place.access(AccessKind::Read).known(Known::Purpose)],
            title,
            Task { search, pattern },
        ))
    }

    async fn execute(&self, task: Task, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let (workspace, cancel) = (context.workspace.clone(), context.cancel.clone());
        let showing = context.host.showing();
        files::reading(context, move || {
            let tally = task.search.run(&workspace, &showing, &cancel)?;
            Ok(output(&task.pattern, &task.search, &tally))
        })
        .await
    }
}

fn compile(pattern: &str) -> Result<RegexMatcher, ToolError> {
    if pattern.is_empty() {
        return Err(ToolError::Invalid("pattern is empty: give a regular expression to look for".into()));
    }
    if pattern.len() > LONGEST {
        return Err(ToolError::Invalid(format!(
            "pattern is longer than {LONGEST} bytes: look for less at once"
        )));
    }
    RegexMatcherBuilder::new()
        // `^` and `$` are the ends of a line, not of what happens to be in the buffer.
        .multi_line(true)
        .line_terminator(Some(b'\n'))
        .crlf(true)
        .size_limit(10_000_000)
        .dfa_size_limit(10_000_000)
        .build(pattern)
        .map_err(|error| {
            ToolError::Invalid(format!(
                "pattern is not a usable regular expression: {}. Lines are searched one by one, and (, [, {{, *, +, ?, . and | need a backslash to be taken literally",
                error.to_string().trim_end()
            ))
        })
}

fn output(pattern: &str, search: &Search, tally: &Tally) -> ToolOutput {
    let place = &search.place;
    let mut output = tally.text.clone();
    if tally.searched == 0 && search.include.is_some() {
        let _ = writeln!(
            output,
            "no file was searched in {}: none matches include (hidden, ignored and binary files are left out)",
            place.shown
        );
    } else if tally.matches == 0 {
        let _ = writeln!(
            output,
            "no line matches in {} ({} searched; hidden, ignored and binary files are left out)",
            place.shown,
            files::counted(tally.searched, "file")
        );
    } else if tally.more > 0 {
        let _ = writeln!(
            output,
            "\n(stopped after {}; at least {} more: narrow the pattern, the path or include to see them)",
            files::counted(tally.matches, "line"),
            tally.more
        );
    }
    if tally.unsearchable > 0 {
        let _ = writeln!(output, "({} could not be searched)", files::counted(tally.unsearchable, "file"));
    }
    if tally.withheld > 0 {
        let _ = writeln!(
            output,
            "({} left out, since rules do not let them be read without asking: name one as path to ask)",
            files::counted(tally.withheld, "file")
        );
    }
    output.push_str(&tally.shortfall);
    let mut metadata = Map::new();
    metadata.insert("matches".into(), tally.matches.into());
    metadata.insert("files".into(), tally.files.into());
    metadata.insert("truncated".into(), (tally.more > 0).into());
    ToolOutput {
        title: files::search_title(pattern, place),
        output: output.trim_end().to_owned(),
        metadata,
        ..ToolOutput::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_expressions_are_explained() {
        let error = compile("fn (").unwrap_err().to_string();
        assert!(error.contains("unclosed group") && error.contains("backslash"), "{error}");
        assert!(compile("a\\nb").unwrap_err().to_string().contains("one by one"));
        assert!(compile("").unwrap_err().to_string().contains("empty"));
        assert!(compile(&"a".repeat(20_000)).unwrap_err().to_string().contains("longer"));
        assert!(compile("(\\w{1000}){1000}").unwrap_err().to_string().contains("not a usable"));
    }
}

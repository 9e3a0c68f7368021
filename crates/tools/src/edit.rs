//! `edit`: one text in a file for another.

mod nearest;
mod replace;
mod strategy;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_policy::AccessKind;
use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::record::{Effect, Recovery};
use playhouse_workspace::{FileTracker, Resolved};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::arguments;
use crate::files::document::{self, Content};
use crate::files::seen::{self, Current};
use crate::files::{self, change, diff};
use crate::tool::{CallContext, Plan, Prepared, Risk, Tool, ToolError, ToolOutput};
use replace::{Edited, Refusal};

/// Places whose lines are told.
const PLACES: usize = 10;

/// The arguments of `edit`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Arguments {
    /// The file to change: relative to the workspace, or absolute inside of it.
    file_path: String,
    /// The text to replace, exactly as it is in the file, without line numbers. Empty to create a new file.
    old_string: String,
    /// The text to put in its place.
    new_string: String,
    /// Replace every occurrence instead of the only one. Default false.
    #[serde(default)]
    replace_all: Option<bool>,
}

/// The tool.
#[derive(Debug)]
pub struct Edit {
    spec: ToolSpec,
}

impl Default for Edit {
    fn default() -> Self {
        Self { spec: arguments::spec::<Arguments>("edit", include_str!("../../../prompts/tools/edit.md")) }
    }
}

/// What a call changes.
#[derive(Clone, Debug)]
struct Task {
    place: Resolved,
    old: String,
    new: String,
    all: bool,
}

impl Tool for Edit {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn risk(&self) -> Risk {
        Risk::Dangerous
    }

    fn prepare<'a>(
        &'a self,
        input: &'a Map<String, Value>,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        async move {
            let arguments: Arguments = arguments::parse("edit", input)?;
            files::must_name_a_file(&arguments.file_path)?;
            if arguments.old_string == arguments.new_string {
                return Err(ToolError::Invalid(
                    "oldString and newString are the same, so there is nothing to change".into(),
                ));
            }
            let place = files::resolve(context, &arguments.file_path).await?;
            let (old, new) = (arguments.old_string, arguments.new_string);
            let task = Task { place, old, new, all: arguments.replace_all == Some(true) };
            let (task, preview) = files::reading(context, move || {
                let preview = task.preview();
                Ok((task, preview))
            })
            .await?;
            Ok(Prepared {
                accesses: vec![task.place.access(AccessKind::Write)],
                effect: Effect::Workspace,
                recovery: Recovery::Interrupt,
                preview,
                title: task.place.shown.clone(),
                plan: Box::new(task),
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
            let known = context.files.clone();
            let place = task.place.clone();
            files::changing(context, &place, move || task.run(&known)).await
        }
        .boxed()
    }
}

impl Task {
    /// What is replaced by what. The file itself is not looked at: the call says that when it runs.
    fn preview(&self) -> String {
        let old = (!self.old.is_empty()).then_some(self.old.as_bytes());
        let mut preview = change::preview(&diff::unified(&self.place.shown, old, self.new.as_bytes()));
        if self.all {
            preview.push_str("(every occurrence)\n");
        }
        preview
    }

    fn run(&self, known: &FileTracker) -> Result<ToolOutput, ToolError> {
        let shown = &self.place.shown;
        let before = seen::current(&self.place)?;
        match (&before, self.old.is_empty()) {
            (None, true) => {
                let diff = change::put(known, &self.place, None, self.new.as_bytes())?;
                let lines = files::counted(document::line_count(self.new.as_bytes()), "line");
                Ok(change::output(&self.place, &format!("created {shown}, {lines}"), &diff, true))
            }
            (None, false) => Err(ToolError::Failed(format!(
                "{shown} does not exist: check the path with list or glob, or create the file with write"
            ))),
            (Some(_), true) => Err(ToolError::Invalid(format!(
                "oldString is empty, which creates a file, but {shown} exists: say what to replace, or replace all of it with write"
            ))),
            (Some(current), false) => self.change(current, known),
        }
    }

    fn change(&self, current: &Current, known: &FileTracker) -> Result<ToolOutput, ToolError> {
        let shown = &self.place.shown;
        if document::classify(&current.bytes) == Content::Binary {
            return Err(ToolError::Failed(format!(
                "{shown} is a binary file, which edit does not change: use bash for it"
            )));
        }
        current.must_be_known(known, &self.place)?;
        let edited = replace::replace(&current.bytes, &self.old, &self.new, self.all)
            .map_err(|refusal| self.refused(&refusal))?;
        if edited.bytes == current.bytes {
            return Err(ToolError::Invalid(format!(
                "oldString and newString differ only in line endings, and {shown} keeps its own: there is nothing to change"
            )));
        }
        let diff = change::put(known, &self.place, Some(current), &edited.bytes)?;
        let mut output = change::output(&self.place, &self.summary(&edited), &diff, false);
        output.metadata.insert("strategy".into(), edited.strategy.into());
        output.metadata.insert("replacements".into(), edited.lines.len().into());
        Ok(output)
    }

    fn summary(&self, edited: &Edited) -> String {
        let shown = &self.place.shown;
        match &edited.lines[..] {
            [only] if only.start == only.end => format!("edited {shown}, line {}", only.start),
            [only] => format!("edited {shown}, lines {}-{}", only.start, only.end),
            all => {
                let lines = told(all.iter().map(|lines| lines.start), all.len());
                format!("edited {shown}, {} at lines {lines}", files::counted(all.len(), "place"))
            }
        }
    }

    fn refused(&self, refusal: &Refusal) -> ToolError {
        let shown = &self.place.shown;
        ToolError::Failed(match refusal {
            Refusal::Absent { nearest, hint } => {
                let mut text = format!("oldString was not found in {shown}; nothing was changed.");
                if let Some(hint) = hint {
                    text.push(' ');
                    text.push_str(hint);
                }
                match nearest {
                    Some(lines) => {
                        text.push_str(" The nearest lines are:\n");
                        text.push_str(lines);
                    }
                    None => text.push_str(" Nothing in the file is like it: read the file again"),
                }
                text
            }
            Refusal::Ambiguous { lines, count } => format!(
                "oldString is in {shown} {count} times, at lines {}; nothing was changed. Add lines around it to oldString until it is unique, or set replaceAll",
                told(lines.iter().copied(), *count)
            ),
            Refusal::TooMany { most } => format!(
                "oldString is in {shown} over {most} times, too often for one call; nothing was changed. Use bash (sed) for it"
            ),
            Refusal::TooLarge { bytes } => format!(
                "the file would have {}, and files are changed up to {} only; nothing was changed",
                files::size(*bytes),
                files::size(seen::LARGEST)
            ),
        })
    }
}

/// `1, 5, 9 and 3 more`.
fn told(lines: impl Iterator<Item = usize>, count: usize) -> String {
    let shown: Vec<String> = lines.take(PLACES).map(|line| line.to_string()).collect();
    let more = count - shown.len().min(count);
    let shown = shown.join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

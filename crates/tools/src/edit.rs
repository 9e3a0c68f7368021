//! `edit`: one text in a file for another.
//!
//! A `Change` is looked for by a cascade of strategies, from exact to similar. What is not found for
//! sure is refused with what is there instead.

mod block;
mod boundary;
mod context;
mod escape;
mod exact;
mod fit;
mod folded;
mod likeness;
mod lines;
pub(crate) mod nearest;
mod replace;
mod report;
mod strategy;
mod trimmed;
mod whitespace;

use std::borrow::Cow;

use playhouse_policy::Zone;
use playhouse_workspace::{FileTracker, Resolved};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::files::change::Keeping;
use crate::files::document;
use crate::files::seen::{self, Current};
use crate::files::{self, change, diff};
use crate::notebook;
use crate::tool::{CallContext, Risk, ToolError, ToolOutput};
use crate::typed::{Ready, TypedTool};

/// The arguments of `edit`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Arguments {
    file_path: String,
    old_string: String,
    new_string: String,
    #[serde(default)]
    replace_all: Option<bool>,
}

/// The tool.
#[derive(Debug, Default)]
pub struct Edit;

/// What a call changes.
#[derive(Debug)]
pub struct Task {
    place: Resolved,
    change: Change,
}

impl TypedTool for Edit {
    const NAME: &'static str = "edit";
    const DESCRIPTION: &'static str = include_str!("../../../prompts/tools/edit.md");
    const RISK: Risk = Risk::Dangerous;
    const PERMISSION: &'static str = "edit";
    type Arguments = Arguments;
    type Task = Task;

    async fn prepare(&self, arguments: Arguments, context: &CallContext) -> Result<Ready<Task>, ToolError> {
        files::must_name_a_file(&arguments.file_path)?;
        let change = Change {
            old: arguments.old_string,
            new: arguments.new_string,
            all: arguments.replace_all == Some(true),
        };
        change.must_differ()?;
        let place = files::resolve(context, &arguments.file_path).await?;
        let preview = |task: &Task| preview(&task.place, std::slice::from_ref(&task.change));
        files::writing(context, Task { place, change }, |task| &task.place, preview).await
    }

    async fn execute(&self, task: Task, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let (known, keeping) = (context.files.clone(), Keeping::of(context));
        let place = task.place.clone();
        let result = files::changing(context, &place, move || task.run(&known, &keeping)).await;
        notebook::with_advice(result, &place, context)
    }
}

impl Task {
    fn run(&self, known: &FileTracker, keeping: &Keeping) -> Result<ToolOutput, ToolError> {
        let shown = &self.place.shown;
        let before = seen::current(&self.place)?;
        if let (Some(current), false) = (&before, self.change.creates()) {
            must_be_editable(current, known, &self.place)?;
        }
        let applied = self.change.apply(shown, before.as_ref().map(|current| &current.text[..]))?;
        let put = change::put(known, keeping, &self.place, before.as_ref(), &applied.bytes)?;
        let created = before.is_none();
        let done = if created { "created" } else { "edited" };
        let mut output =
            change::output(&self.place, &format!("{done} {shown}, {}", applied.told), &put, created);
        if let Some(strategy) = applied.strategy {
            output.metadata.insert("strategy".into(), strategy.into());
            output.metadata.insert("replacements".into(), applied.replacements.into());
        }
        if let Some(warning) = applied.warning {
            let first = output.output.find('\n').map_or(output.output.len(), |at| at + 1);
            output.output.insert_str(first, &format!("warning: {warning}\n"));
            output.metadata.insert("warning".into(), warning.into());
        }
        Ok(output)
    }
}

/// What a person sees before agreeing to `changes`, one after the other: what becomes of the file, as far as it may be looked at before
/// that and the changes fit; else what each replaces by what.
pub(crate) fn preview(place: &Resolved, changes: &[Change]) -> String {
    if let Some(diff) = outcome(place, changes) {
        return change::preview(&diff);
    }
    let mut preview = String::new();
    for change in changes {
        // A person reads the first ones; what is left out is told of.
        if preview.len() > change::DIFF_FOR_CONSENT {
            preview.push_str("(more edits are not shown)\n");
            break;
        }
        preview.push_str(&change.preview(&place.shown));
    }
    preview
}

/// What `changes` make of the file as it is now.
fn outcome(place: &Resolved, changes: &[Change]) -> Option<diff::Diff> {
    if place.zone != Zone::Workspace {
        return None;
    }
    let before = seen::current(place).ok()?;
    if let Some(current) = &before {
        current.must_be_text(place, "edit").ok()?;
    }
    let before = before.as_ref().map(|current| current.text.as_slice());
    let mut bytes = before.map(Cow::Borrowed);
    for change in changes {
        bytes = Some(Cow::Owned(change.apply(&place.shown, bytes.as_deref()).ok()?.bytes));
    }
    Some(diff::unified(&place.shown, before, &bytes?))
}

/// Refuses a file that is no text, or that this session has not seen as it is.
pub(crate) fn must_be_editable(
    current: &Current,
    known: &FileTracker,
    place: &Resolved,
) -> Result<(), ToolError> {
    current.must_be_text(place, "edit")?;
    current.must_be_known(known, place)
}

/// One text for another.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// What is replaced; empty to create a file.
    pub(crate) old: String,
    /// What is put there.
    pub(crate) new: String,
    /// Whether every occurrence is.
    pub(crate) all: bool,
}

/// What a [`Change`] made.
#[derive(Debug)]
pub(crate) struct Applied {
    /// The whole new content.
    pub(crate) bytes: Vec<u8>,
    /// Where it changed: `line 3`; of a new file, how many lines it has.
    pub(crate) told: String,
    /// How the text was found; `None` for a new file.
    pub(crate) strategy: Option<&'static str>,
    /// How many places were replaced.
    pub(crate) replacements: usize,
    /// What the model must know of how it was found.
    pub(crate) warning: Option<String>,
}

impl Change {
    /// Refuses a change that changes nothing.
    pub(crate) fn must_differ(&self) -> Result<(), ToolError> {
        if self.old == self.new {
            return Err(ToolError::Invalid(
                "oldString and newString are the same, so there is nothing to change".into(),
            ));
        }
        Ok(())
    }

    /// Whether it makes a new file.
    pub(crate) fn creates(&self) -> bool {
        self.old.is_empty()
    }

    /// What is replaced by what, without a look at the file.
    fn preview(&self, shown: &str) -> String {
        let old = (!self.creates()).then_some(self.old.as_bytes());
        let mut preview = change::preview(&diff::unified(shown, old, self.new.as_bytes()));
        if self.all {
            preview.push_str("(every occurrence)\n");
        }
        preview
    }

    /// Makes the change in `before`, the content of the file that is shown as `shown`; `None` when there is no file.
    ///
    /// # Errors
    /// What the model shall read: the text is not there, or not for sure, or not only once.
    pub(crate) fn apply(&self, shown: &str, before: Option<&[u8]>) -> Result<Applied, ToolError> {
        match (before, self.creates()) {
            (None, true) => Ok(Applied {
                bytes: self.new.as_bytes().to_vec(),
                told: files::counted(document::line_count(self.new.as_bytes()), "line"),
                strategy: None,
                replacements: 0,
                warning: None,
            }),
            (None, false) => Err(ToolError::Failed(format!(
                "{shown} does not exist: check the path with list or glob, or create the file with write"
            ))),
            (Some(_), true) => Err(ToolError::Invalid(format!(
                "oldString is empty, which creates a file, but {shown} exists: say what to replace, or replace all of it with write"
            ))),
            (Some(before), false) => self.replaced(shown, before),
        }
    }

    fn replaced(&self, shown: &str, before: &[u8]) -> Result<Applied, ToolError> {
        let edited = replace::replace(before, &self.old, &self.new, self.all)
            .map_err(|refusal| report::refused(shown, &refusal))?;
        if edited.bytes == before {
            return Err(ToolError::Invalid(match edited.difference {
                None => format!(
                    "oldString and newString differ only in line endings, and {shown} keeps its own: there is nothing to change"
                ),
                Some(_) => format!(
                    "{shown} has newString already at {}, where oldString fits best: there is nothing to change",
                    report::lines(&edited)
                ),
            }));
        }
        Ok(Applied {
            told: report::lines(&edited),
            strategy: Some(edited.strategy),
            replacements: edited.lines.len(),
            warning: report::warning(&edited),
            bytes: edited.bytes,
        })
    }
}

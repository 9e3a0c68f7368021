//! `multiedit`: several edits of one file, in order, all of them or none.

use playhouse_workspace::{FileTracker, Resolved};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::edit::{self, Applied, Change, must_be_editable};
use crate::files::change::Keeping;
use crate::files::{self, change, seen};
use crate::notebook;
use crate::tool::{CallContext, Risk, ToolError, ToolOutput};
use crate::typed::{Ready, TypedTool};

/// Edits in one call.
const MOST: usize = 100;

/// The arguments of `multiedit`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Arguments {
    file_path: String,
    edits: Vec<One>,
}

/// One of the edits.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct One {
    old_string: String,
    new_string: String,
    #[serde(default)]
    replace_all: Option<bool>,
}

/// The tool.
#[derive(Debug, Default)]
pub struct MultiEdit;

/// What a call changes.
#[derive(Debug)]
pub struct Task {
    place: Resolved,
    changes: Vec<Change>,
}

impl TypedTool for MultiEdit {
    const NAME: &'static str = "multiedit";
    const DESCRIPTION: &'static str = include_str!("../../../prompts/tools/multiedit.md");
    const RISK: Risk = Risk::Dangerous;
    const PERMISSION: &'static str = "edit";
    type Arguments = Arguments;
    type Task = Task;

    async fn prepare(&self, arguments: Arguments, context: &CallContext) -> Result<Ready<Task>, ToolError> {
        files::must_name_a_file(&arguments.file_path)?;
        let count = arguments.edits.len();
        if !(1..=MOST).contains(&count) {
            return Err(ToolError::Invalid(format!(
                "edits has {}: give 1 to {MOST} of them",
                files::counted(count, "edit")
            )));
        }
        let mut changes = Vec::with_capacity(count);
        for (index, one) in arguments.edits.into_iter().enumerate() {
            let all = one.replace_all == Some(true);
            let change = Change { old: one.old_string, new: one.new_string, all };
            change.must_differ().map_err(|error| of_edit(index, count, error))?;
            changes.push(change);
        }
        let place = files::resolve(context, &arguments.file_path).await?;
        let preview = |task: &Task| edit::preview(&task.place, &task.changes);
        let ready = files::writing(context, Task { place, changes }, |task| &task.place, preview).await?;
        Ok(Ready { title: format!("{}, {}", ready.title, files::counted(count, "edit")), ..ready })
    }

    async fn execute(&self, task: Task, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let (known, cancel) = (context.files.clone(), context.cancel.clone());
        let keeping = Keeping::of(context);
        let place = task.place.clone();
        let result = files::changing(context, &place, move || task.run(&known, &keeping, &cancel)).await;
        notebook::with_advice(result, &place, context)
    }
}

impl Task {
    fn run(
        &self,
        known: &FileTracker,
        keeping: &Keeping,
        cancel: &CancellationToken,
    ) -> Result<ToolOutput, ToolError> {
        let shown = &self.place.shown;
        let before = seen::current(&self.place)?;
        if let (Some(current), false) = (&before, self.changes[0].creates()) {
            must_be_editable(current, known, &self.place)?;
        }
        let count = self.changes.len();
        let mut bytes = before.as_ref().map(|current| current.text.clone());
        let mut results = Vec::with_capacity(count);
        for (index, change) in self.changes.iter().enumerate() {
            if cancel.is_cancelled() {
                return Err(files::cancelled());
            }
            let mut applied =
                change.apply(shown, bytes.as_deref()).map_err(|error| of_edit(index, count, error))?;
            bytes = Some(std::mem::take(&mut applied.bytes));
            results.push(applied);
        }
        let bytes = bytes.unwrap_or_default();
        if before.as_ref().is_some_and(|current| current.text == bytes) {
            return Err(ToolError::Invalid(format!(
                "the edits undo each other, so there is nothing to change in {shown}"
            )));
        }
        let put = change::put(known, keeping, &self.place, before.as_ref(), &bytes)?;
        let created = before.is_none();
        let done = if created { "created" } else { "edited" };
        let summary = format!("{done} {shown}, {}", files::counted(count, "edit"));
        let mut output = change::output(&self.place, &summary, &put, created);
        let told: String = results.iter().enumerate().map(|(index, one)| told(index, one)).collect();
        let first = output.output.find('\n').map_or(output.output.len(), |at| at + 1);
        output.output.insert_str(first, &told);
        output.metadata.insert("results".into(), results.iter().map(facts).collect());
        Ok(output)
    }
}

/// `error` of the edit at `index`, from 0.
fn of_edit(index: usize, count: usize, error: ToolError) -> ToolError {
    let text = |text: String| format!("edit {} of {count} (none was applied): {text}", index + 1);
    match error {
        ToolError::Invalid(reason) => ToolError::Invalid(text(reason)),
        ToolError::Failed(reason) => ToolError::Failed(text(reason)),
        cancelled @ ToolError::Cancelled(_) => cancelled,
    }
}

/// One line for each edit. Lines of the file are counted as they were after it.
fn told(index: usize, applied: &Applied) -> String {
    let number = index + 1;
    match &applied.warning {
        Some(warning) => format!("{number}. {}; warning: {warning}\n", applied.told),
        None => format!("{number}. {}\n", applied.told),
    }
}

fn facts(applied: &Applied) -> Value {
    json!({
        "strategy": applied.strategy,
        "replacements": applied.replacements,
        "lines": applied.told,
        "warning": applied.warning,
    })
}

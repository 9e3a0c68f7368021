//! `notebook_edit`: one cell of a Jupyter notebook.
//!
//! The text of the notebook is changed in place: everything outside of the cell stays as it is, byte for byte. When the
//! source of a code cell is replaced, its outputs and its execution count go, since they belong to what ran before.

mod change;
mod layout;
mod scan;

use playhouse_policy::Zone;
use playhouse_workspace::{FileTracker, Resolved};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::files::change::Keeping;
use crate::files::document::split_mark;
use crate::files::seen::{self, LARGEST};
use crate::files::{self, diff};
use crate::tool::{CallContext, Risk, ToolError, ToolOutput};
use crate::typed::{Ready, TypedTool};
use change::{CellKind, Change, Changed, Name, Notebook};

/// The arguments of `notebook_edit`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Arguments {
    file_path: String,
    #[serde(default)]
    cell_id: Option<String>,
    #[serde(default)]
    cell_index: Option<usize>,
    #[serde(default)]
    new_source: Option<String>,
    #[serde(default)]
    cell_type: Option<CellType>,
    #[serde(default)]
    edit_mode: Option<EditMode>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum CellType {
    Code,
    Markdown,
    Raw,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum EditMode {
    Replace,
    Insert,
    Delete,
}

/// How the names of notebooks end.
const SUFFIX: &str = ".ipynb";

/// The result of a tool that edited a file as text. Where that is a notebook, says how its cells are changed: a model may not have been
/// shown that, where it may use the tool.
pub(crate) fn with_advice(
    result: Result<ToolOutput, ToolError>,
    place: &Resolved,
    context: &CallContext,
) -> Result<ToolOutput, ToolError> {
    const ADVICE: &str = "\n\nThe tool `notebook_edit` changes one cell of a notebook and keeps the file valid: its \
        arguments are filePath, cellId or cellIndex (from 0), newSource (plain text), editMode (replace, insert or \
        delete) and, to insert, cellType (code, markdown or raw).";
    if !place.shown.ends_with(SUFFIX) || context.host.find(NotebookEdit::NAME).is_err() {
        return result;
    }
    match result {
        Ok(mut output) => {
            output.output.push_str(ADVICE);
            Ok(output)
        }
        Err(ToolError::Failed(error)) => Err(ToolError::Failed(error + ADVICE)),
        Err(ToolError::Invalid(error)) => Err(ToolError::Invalid(error + ADVICE)),
        Err(cancelled @ ToolError::Cancelled(_)) => Err(cancelled),
    }
}

/// The tool.
#[derive(Debug, Default)]
pub struct NotebookEdit;

/// What a call changes.
#[derive(Clone, Debug)]
pub struct Task {
    place: Resolved,
    change: Change,
}

impl TypedTool for NotebookEdit {
    const NAME: &'static str = "notebook_edit";
    const DESCRIPTION: &'static str = include_str!("../../../prompts/tools/notebook_edit.md");
    const RISK: Risk = Risk::Dangerous;
    const PERMISSION: &'static str = "edit";
    const ONLY_FOR: Option<&'static str> = Some(SUFFIX);
    type Arguments = Arguments;
    type Task = Task;

    async fn prepare(&self, arguments: Arguments, context: &CallContext) -> Result<Ready<Task>, ToolError> {
        files::must_name_a_file(&arguments.file_path)?;
        let path = arguments.file_path.clone();
        let change = wanted(arguments)?;
        let task = Task { place: files::resolve(context, &path).await?, change };
        files::writing(context, task, |task| &task.place, Task::preview).await
    }

    async fn execute(&self, task: Task, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let (known, keeping) = (context.files.clone(), Keeping::of(context));
        let place = task.place.clone();
        files::changing(context, &place, move || task.run(&known, &keeping)).await
    }
}

/// The change that the arguments ask for.
fn wanted(arguments: Arguments) -> Result<Change, ToolError> {
    let Arguments { cell_id, cell_index, new_source, cell_type, edit_mode, .. } = arguments;
    let invalid = |text: &str| Err(ToolError::Invalid(text.to_owned()));
    let cell = match (cell_id, cell_index) {
        (Some(_), Some(_)) => {
            return invalid("cellId and cellIndex are both given: name the cell by one of them");
        }
        (Some(id), None) => Some(Name::Id(id)),
        (None, index) => index.map(Name::Index),
    };
    // As Jupyter has it, whatever the endings of the file.
    let source = new_source.map(|source| source.replace("\r\n", "\n"));
    let mode = edit_mode.unwrap_or(EditMode::Replace);
    if matches!(mode, EditMode::Replace | EditMode::Insert) && source.is_none() {
        return invalid("newSource is missing: give the whole source of the cell");
    }
    let source = source.unwrap_or_default();
    match (mode, cell, cell_type) {
        (EditMode::Insert, _, None) => invalid("cellType is missing: a new cell is code, markdown or raw"),
        (EditMode::Insert, cell, Some(kind)) => {
            let kind = match kind {
                CellType::Code => CellKind::Code,
                CellType::Markdown => CellKind::Markdown,
                CellType::Raw => CellKind::Raw,
            };
            Ok(Change::Insert { cell, kind, source })
        }
        (_, _, Some(_)) => {
            invalid("cellType is for insert only: to change the kind of a cell, delete it and insert another")
        }
        (_, None, None) => invalid("no cell is named: give cellId or cellIndex"),
        (EditMode::Replace, Some(cell), None) => Ok(Change::Replace { cell, source }),
        (EditMode::Delete, Some(_), None) if !source.is_empty() => {
            invalid("newSource is given with editMode delete: leave one of them out")
        }
        (EditMode::Delete, Some(cell), None) => Ok(Change::Delete { cell }),
    }
}

impl Task {
    /// The diff, as far as it may be looked at before somebody agreed.
    fn preview(&self) -> String {
        let diff = || {
            let current = seen::current(&self.place).ok()??;
            current.must_be_text(&self.place, "notebook_edit").ok()?;
            let changed = self.changed(&current.text).ok()?;
            Some(diff::unified(&self.place.shown, Some(&current.text), &changed.text))
        };
        match (self.place.zone == Zone::Workspace).then(diff).flatten() {
            Some(diff) => files::change::preview(&diff),
            None => format!("{} of {}", self.what(), self.place.shown),
        }
    }

    fn what(&self) -> String {
        let named = |cell: &Name| match cell {
            Name::Id(id) => format!("cell {id:?}"),
            Name::Index(index) => format!("cell {index}"),
        };
        match &self.change {
            Change::Replace { cell, .. } => format!("replace {}", named(cell)),
            Change::Insert { kind, .. } => format!("insert a {} cell", kind.name()),
            Change::Delete { cell } => format!("delete {}", named(cell)),
        }
    }

    /// The notebook `bytes` with the change in it.
    fn changed(&self, bytes: &[u8]) -> Result<Changed, String> {
        let (_, body) = split_mark(bytes);
        let mark = &bytes[..bytes.len() - body.len()];
        let mut changed = Notebook::of(body)?.apply(&self.change)?;
        changed.text.splice(..0, mark.iter().copied());
        Ok(changed)
    }

    fn run(&self, known: &FileTracker, keeping: &Keeping) -> Result<ToolOutput, ToolError> {
        let shown = &self.place.shown;
        let Some(current) = seen::current(&self.place)? else {
            return Err(ToolError::Failed(format!(
                "{shown} does not exist: check the path with list or glob, or create the notebook with write"
            )));
        };
        current.must_be_known(known, &self.place)?;
        let changed = self
            .changed(&current.text)
            .map_err(|error| ToolError::Failed(format!("{shown} cannot be edited like this: {error}")))?;
        if changed.text.len() as u64 > LARGEST {
            return Err(ToolError::Failed(format!(
                "{shown} would have {}, and files are changed up to {} only; nothing was changed",
                files::size(changed.text.len() as u64),
                files::size(LARGEST)
            )));
        }
        let put = files::change::put(known, keeping, &self.place, Some(&current), &changed.text)?;
        let mut output = files::change::output(&self.place, &self.summary(&changed), &put, false);
        let mode = match self.change {
            Change::Replace { .. } => "replace",
            Change::Insert { .. } => "insert",
            Change::Delete { .. } => "delete",
        };
        output.metadata.insert("editMode".into(), Value::from(mode));
        output.metadata.insert("cellIndex".into(), Value::from(changed.index));
        output.metadata.insert("cellId".into(), Value::from(changed.id));
        output.metadata.insert("cellType".into(), Value::from(changed.kind));
        Ok(output)
    }

    fn summary(&self, changed: &Changed) -> String {
        let done = match self.change {
            Change::Replace { .. } => "replaced the source of",
            Change::Insert { .. } => "inserted",
            Change::Delete { .. } => "deleted",
        };
        let id = changed.id.as_ref().map_or(String::new(), |id| format!("id {id}, "));
        let cleared = if changed.cleared { " and cleared its outputs" } else { "" };
        format!("{done} cell {} ({id}{}) of {}{cleared}", changed.index, changed.kind, self.place.shown)
    }
}

#[cfg(test)]
mod tests;

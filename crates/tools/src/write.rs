//! `write`: the whole content of a file.

use std::borrow::Cow;

use playhouse_policy::Zone;
use playhouse_workspace::{FileTracker, Resolved};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::files::change::{Keeping, Put};
use crate::files::document::{self, Endings, MARK, Unified};
use crate::files::endings::Mixed;
use crate::files::seen::{self, Current};
use crate::files::{self, change, diff};
use crate::tool::{CallContext, Risk, ToolError, ToolOutput};
use crate::typed::{Ready, TypedTool};

/// The arguments of `write`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Arguments {
    file_path: String,
    content: String,
}

/// The tool.
#[derive(Debug, Default)]
pub struct Write;

/// What a call writes.
#[derive(Debug)]
pub struct Task {
    place: Resolved,
    content: String,
}

impl TypedTool for Write {
    const NAME: &'static str = "write";
    const DESCRIPTION: &'static str = include_str!("../../../prompts/tools/write.md");
    const RISK: Risk = Risk::Dangerous;
    const PERMISSION: &'static str = "edit";
    type Arguments = Arguments;
    type Task = Task;

    async fn prepare(&self, arguments: Arguments, context: &CallContext) -> Result<Ready<Task>, ToolError> {
        let Arguments { file_path, content } = arguments;
        files::must_name_a_file(&file_path)?;
        let task = Task { place: files::resolve(context, &file_path).await?, content };
        files::writing(context, task, |task| &task.place, Task::preview).await
    }

    async fn execute(&self, task: Task, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let (known, keeping) = (context.files.clone(), Keeping::of(context));
        let place = task.place.clone();
        files::changing(context, &place, move || task.run(&known, &keeping)).await
    }
}

impl Task {
    /// The diff, as far as it may be looked at before somebody agreed.
    fn preview(&self) -> String {
        let size = files::size(self.content.len() as u64);
        if self.place.zone != Zone::Workspace {
            return format!("write {size} to {}", self.place.shown);
        }
        match seen::current(&self.place) {
            Ok(before) => {
                let bytes = content_for(&self.content, before.as_ref());
                let old = before.as_ref().map(|current| &current.text[..]);
                change::preview(&diff::unified(&self.place.shown, old, &bytes))
            }
            // The call will fail, and say why.
            Err(_) => format!("write {size} to {}", self.place.shown),
        }
    }

    fn run(&self, known: &FileTracker, keeping: &Keeping) -> Result<ToolOutput, ToolError> {
        let shown = &self.place.shown;
        let before = seen::current(&self.place)?;
        if let Some(current) = &before {
            current.must_be_known(known, &self.place)?;
        }
        let bytes = content_for(&self.content, before.as_ref());
        if bytes.len() as u64 > seen::LARGEST {
            return Err(ToolError::Invalid(format!(
                "content has {}, and at most {} can be written",
                files::size(bytes.len() as u64),
                files::size(seen::LARGEST)
            )));
        }
        let created = before.is_none();
        if before.as_ref().is_some_and(|current| current.text == *bytes) {
            let summary = format!("{shown} has exactly this content already; nothing was written");
            return Ok(change::output(&self.place, &summary, &Put::default(), false));
        }
        let put = change::put(known, keeping, &self.place, before.as_ref(), &bytes)?;
        let lines = files::counted(document::line_count(&bytes), "line");
        let done = if created { "created" } else { "replaced the content of" };
        Ok(change::output(&self.place, &format!("{done} {shown}, {lines}"), &put, created))
    }
}

/// `content` as it is written, in UTF-8: with the byte order mark and the line endings of what it replaces.
fn content_for<'a>(content: &'a str, before: Option<&Current>) -> Cow<'a, [u8]> {
    let Some(before) = before else { return Cow::Borrowed(content.as_bytes()) };
    let (had_mark, old) = document::split_mark(&before.text);
    let (has_mark, new) = document::split_mark(content.as_bytes());
    let endings = Endings::of(old);
    let unified = Unified::of(old);
    let new = match (endings.only(), Mixed::of(old, &unified, endings)) {
        (Some(ending), _) => document::with_ending(new, ending),
        // A content with endings of both kinds says what it wants.
        (None, Some(mixed)) if Endings::of(new).crlf == 0 => {
            let whole = 0..unified.text.len();
            Cow::Owned(mixed.put(&whole, &whole, new).bytes)
        }
        (None, _) => Cow::Borrowed(new),
    };
    if had_mark || has_mark { Cow::Owned([MARK, &new].concat()) } else { new }
}

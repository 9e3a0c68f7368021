//! Putting new content into a file, and telling what changed.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use playhouse_workspace::door::{self, DoorError, Expected, InPlace, Written};
use playhouse_workspace::{FileTracker, Resolved, Workspace};
use serde_json::{Map, Value};

use super::diff::{Diff, unified};
use super::encoding::Encoding;
use super::seen::{self, Current, LARGEST};
use super::size;
use crate::changed::{FileState, FileWrite, FolderWrite, WriteLog};
use crate::tool::{CallContext, ToolError, ToolOutput};

/// Bytes of a diff that clients get.
const DIFF_FOR_CLIENTS: usize = 32 * 1024;

/// Bytes of a diff that the model reads. It knows what it wrote; this shows where it went.
const DIFF_FOR_MODEL: usize = 6 * 1024;

/// Lines of a diff that the model reads.
const LINES_FOR_MODEL: usize = 1_000;

/// Bytes of a diff that a person sees before agreeing to it.
pub(crate) const DIFF_FOR_CONSENT: usize = 16 * 1024;

/// The bytes that stand for `text`, which is UTF-8, in the encoding of `before`.
///
/// # Errors
/// When they are more than a file may have.
pub(crate) fn encoded<'a>(
    resolved: &Resolved,
    before: Option<&Current>,
    text: &'a [u8],
) -> Result<Cow<'a, [u8]>, ToolError> {
    let encoding = before.map_or(Encoding::Utf8, |current| current.encoding);
    let Some(bytes) = encoding.encode(text) else {
        let shown = &resolved.shown;
        return Err(ToolError::Failed(format!("{shown} would not be valid {} any more", encoding.name())));
    };
    if bytes.len() as u64 > LARGEST {
        return Err(ToolError::Failed(format!(
            "{} would have {}, and files are changed up to {} only",
            resolved.shown,
            size(bytes.len() as u64),
            size(LARGEST)
        )));
    }
    Ok(bytes)
}

/// Where old contents are kept as long as a call writes files in place.
#[derive(Clone, Debug)]
pub(crate) struct Keeping {
    workspace: Arc<Workspace>,
    output_file: PathBuf,
    /// Where it is noted what was written.
    pub(crate) writes: WriteLog,
}

impl Keeping {
    /// Beside what the call of this context saves.
    pub(crate) fn of(context: &CallContext) -> Self {
        Self {
            workspace: Arc::clone(&context.workspace),
            output_file: context.output_file.clone(),
            writes: context.writes.clone(),
        }
    }

    /// Makes `bytes` the content of the file at `resolved`, which is `before` now, and notes it.
    pub(crate) fn change(
        &self,
        index: usize,
        resolved: &Resolved,
        before: &Current,
        bytes: &[u8],
    ) -> Result<Written, DoorError> {
        let written = self.write(index, resolved, bytes, Expected::Content(before.hash));
        match &written {
            Ok(written) => self.writes.wrote(FileWrite {
                path: resolved.path.clone(),
                before: Some(before.state(written.mode_before.unwrap_or(written.mode))),
                after: Some(FileState::new(written.hash, bytes, written.mode)),
            }),
            Err(error @ DoorError::Torn { .. }) => self.writes.misses(error.to_string()),
            Err(_) => {}
        }
        written
    }

    /// Notes that `bytes` were made the content of a new file.
    pub(crate) fn made(&self, resolved: &Resolved, bytes: &[u8], written: &Written) {
        self.writes.wrote(FileWrite {
            path: resolved.path.clone(),
            before: None,
            after: Some(FileState::new(written.hash, bytes, written.mode)),
        });
    }

    /// Makes `bytes` the content of the file at `resolved`, the one at `index` of those that the call writes.
    pub(crate) fn write(
        &self,
        index: usize,
        resolved: &Resolved,
        bytes: &[u8],
        expected: Expected,
    ) -> Result<Written, DoorError> {
        let kept = match index {
            0 => self.output_file.with_extension("before"),
            _ => self.output_file.with_extension(format!("{index}.before")),
        };
        door::write_keeping(resolved, bytes, expected, &InPlace { workspace: &self.workspace, kept: &kept })
    }
}

/// What a model is told of a file that is no longer the one that its other names are.
pub(crate) fn parted(resolved: &Resolved, written: &Written) -> Option<String> {
    let other = match written.parted {
        0 => return None,
        1 => "another name (hard link) of it keeps".to_owned(),
        count => format!("{count} other names (hard links) of it keep"),
    };
    let shown = &resolved.shown;
    Some(format!(
        "{shown} is a file of its own now: {other} the old content, since not all of them are in the workspace and may be changed"
    ))
}

/// What came of a change.
#[derive(Debug, Default)]
pub(crate) struct Put {
    pub(crate) diff: Diff,
    /// What people and models should know of it.
    pub(crate) note: Option<String>,
}

/// Makes `text`, which is UTF-8, the content of the file at `resolved`, which is `before` now. The file keeps its encoding.
pub(crate) fn put(
    files: &FileTracker,
    keeping: &Keeping,
    resolved: &Resolved,
    before: Option<&Current>,
    text: &[u8],
) -> Result<Put, ToolError> {
    let bytes = encoded(resolved, before, text)?;
    keeping.writes.must_be_intended(resolved, before.map(|current| current.hash))?;
    let written = match before {
        Some(current) => keeping.change(0, resolved, current, &bytes)?,
        None => {
            let made = door::create_parents(resolved)?;
            let written = keeping.write(0, resolved, &bytes, Expected::Nothing);
            written.as_ref().err().into_iter().for_each(|_| door::remove_empty(&made));
            let written = written?;
            keeping.writes.changed_folders(made.iter().map(|path| FolderWrite::made(path)));
            keeping.made(resolved, &bytes, &written);
            written
        }
    };
    seen::remember(files, resolved, &bytes, written.hash);
    let diff = unified(&resolved.shown, before.map(|current| &current.text[..]), text);
    Ok(Put { diff, note: parted(resolved, &written) })
}

/// The output of a call that changed a file: `summary`, and the diff where it tells something new.
pub(crate) fn output(resolved: &Resolved, summary: &str, put: &Put, created: bool) -> ToolOutput {
    let diff = &put.diff;
    let mut output = format!("{summary} (+{} -{})\n", diff.additions, diff.deletions);
    if let Some(note) = &put.note {
        output.push_str(&format!("note: {note}\n"));
    }
    if !created {
        output.push_str(&diff.capped_with_lines(DIFF_FOR_MODEL, LINES_FOR_MODEL));
    }
    let mut metadata = Map::new();
    metadata.insert("filePath".into(), Value::from(resolved.path.to_string_lossy()));
    metadata.insert("diff".into(), Value::from(diff.capped(DIFF_FOR_CLIENTS)));
    metadata.insert("additions".into(), Value::from(diff.additions));
    metadata.insert("deletions".into(), Value::from(diff.deletions));
    metadata.insert("created".into(), Value::from(created));
    ToolOutput { title: resolved.shown.clone(), output, metadata, ..ToolOutput::default() }
}

/// What a person sees before agreeing to a change.
pub(crate) fn preview(diff: &Diff) -> String {
    diff.capped(DIFF_FOR_CONSENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn folders_made_for_a_file_that_cannot_be_written_go_again() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("repo");
        fs_err::create_dir_all(root.join("old")).unwrap();
        let context = testing::context(&root, &folder.path().join("outputs")).unwrap();
        let mut place = context.workspace.resolve("old/new/deep/file").unwrap();
        // A name that no file can have, as a disk that is full lets no file be written.
        place.path.set_file_name("x".repeat(300));
        put(&context.files, &Keeping::of(&context), &place, None, b"x").unwrap_err();
        assert!(root.join("old").is_dir() && !root.join("old/new").exists());
    }
}

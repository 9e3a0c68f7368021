//! Putting new content into a file, and telling what changed.

use playhouse_workspace::door::{self, Expected};
use playhouse_workspace::{FileTracker, Resolved};
use serde_json::{Map, Value};

use super::diff::{Diff, unified};
use super::seen::{self, Current};
use crate::tool::{ToolError, ToolOutput};

/// Bytes of a diff that clients get.
const DIFF_FOR_CLIENTS: usize = 32 * 1024;

/// Bytes of a diff that the model reads. It knows what it wrote; this shows where it went.
const DIFF_FOR_MODEL: usize = 6 * 1024;

/// Lines of a diff that the model reads.
const LINES_FOR_MODEL: usize = 1_000;

/// Bytes of a diff that a person sees before agreeing to it.
pub(crate) const DIFF_FOR_CONSENT: usize = 16 * 1024;

/// Makes `bytes` the content of the file at `resolved`, which is `before` now.
pub(crate) fn put(
    files: &FileTracker,
    resolved: &Resolved,
    before: Option<&Current>,
    bytes: &[u8],
) -> Result<Diff, ToolError> {
    let (expected, made) = match before {
        Some(current) => (Expected::Content(current.hash), Vec::new()),
        None => (Expected::Nothing, door::create_parents(resolved)?),
    };
    let written = match door::write_atomic(resolved, bytes, expected) {
        Ok(written) => written,
        Err(error) => {
            door::remove_empty(&made);
            return Err(error.into());
        }
    };
    seen::remember(files, resolved, bytes, written.hash);
    Ok(unified(&resolved.shown, before.map(|current| &current.bytes[..]), bytes))
}

/// The output of a call that changed a file: `summary`, and the diff where it tells something new.
pub(crate) fn output(resolved: &Resolved, summary: &str, diff: &Diff, created: bool) -> ToolOutput {
    let mut output = format!("{summary} (+{} -{})\n", diff.additions, diff.deletions);
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
        put(&context.files, &place, None, b"x").unwrap_err();
        assert!(root.join("old").is_dir() && !root.join("old/new").exists());
    }
}

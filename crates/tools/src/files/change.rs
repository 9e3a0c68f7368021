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

/// Bytes of a diff that a person sees before agreeing to it.
pub(crate) const DIFF_FOR_CONSENT: usize = 16 * 1024;

/// Makes `bytes` the content of the file at `resolved`, which is `before` now.
pub(crate) fn put(
    files: &FileTracker,
    resolved: &Resolved,
    before: Option<&Current>,
    bytes: &[u8],
) -> Result<Diff, ToolError> {
    let expected = match before {
        Some(current) => Expected::Content(current.hash),
        None => {
            door::create_parents(resolved)?;
            Expected::Nothing
        }
    };
    let written = door::write_atomic(resolved, bytes, expected)?;
    seen::remember(files, resolved, bytes, written.hash);
    Ok(unified(&resolved.shown, before.map(|current| &current.bytes[..]), bytes))
}

/// The output of a call that changed a file: `summary`, and the diff where it tells something new.
pub(crate) fn output(resolved: &Resolved, summary: &str, diff: &Diff, created: bool) -> ToolOutput {
    let mut output = format!("{summary} (+{} -{})\n", diff.additions, diff.deletions);
    if !created {
        output.push_str(&diff.capped(DIFF_FOR_MODEL));
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

//! What a session changed in its files, as far as its calls told.

use std::path::Path;

use playhouse_protocol::message::{CallOutcome, CallState, Message};
use playhouse_protocol::{MessageId, Part};
use playhouse_session::Session;
use serde::Serialize;
use serde_json::{Map, Value};

/// The most files that are told.
const MOST_FILES: usize = 1_000;
/// The most bytes of patches, of one file and of all.
const MOST_PATCH: usize = 256 * 1024;
const MOST_PATCHES: usize = 4 * 1024 * 1024;

/// A file that a session changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct FileChange {
    /// From the session's directory on; the whole path of one that lies elsewhere.
    pub(crate) path: String,
    /// `added`, `modified` or `deleted`.
    pub(crate) status: &'static str,
    /// Lines.
    pub(crate) additions: u64,
    pub(crate) deletions: u64,
    /// What the calls showed, one after the other; empty where that is not known, or too much.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) patch: String,
}

/// The files that the calls of a session changed, in the order in which they were changed first; with `turn`, only
/// those that were changed for that prompt. Changes of one file are added up.
pub(crate) fn changes(session: &Session, turn: Option<MessageId>) -> Vec<FileChange> {
    let mut files: Vec<FileChange> = Vec::new();
    for message in &session.messages {
        let Message::Assistant(message) = message else { continue };
        if turn.is_some_and(|turn| turn != message.parent) {
            continue;
        }
        for part in &message.parts {
            let Part::Call(call) = part else { continue };
            let CallState::Settled(result) = &call.state else { continue };
            if result.outcome != CallOutcome::Done {
                continue;
            }
            match result.metadata.get("files").and_then(Value::as_array) {
                Some(changed) => {
                    changed.iter().filter_map(Value::as_object).for_each(|of| add(&mut files, of))
                }
                None => add(&mut files, &result.metadata),
            }
        }
    }
    let workspace = Path::new(&session.summary.workspace);
    for file in &mut files {
        if let Ok(inner) = Path::new(&file.path).strip_prefix(workspace) {
            file.path = inner.to_string_lossy().into_owned();
        }
    }
    let mut left = MOST_PATCHES;
    for file in &mut files {
        if file.patch.len() > left {
            file.patch.clear();
        }
        left -= file.patch.len();
    }
    files
}

/// Adds what the metadata of a call say of a file, if they do.
fn add(files: &mut Vec<FileChange>, facts: &Map<String, Value>) {
    let text = |name: &str| facts.get(name).and_then(Value::as_str);
    let count = |name: &str| facts.get(name).and_then(Value::as_u64);
    let (Some(path), Some(additions), Some(deletions)) =
        (text("filePath"), count("additions"), count("deletions"))
    else {
        return;
    };
    let patch = text("diff").or(text("patch")).unwrap_or_default();
    let created = facts.get("created").and_then(Value::as_bool).unwrap_or(false);
    let status = match text("type") {
        Some("add") => "added",
        Some("delete") => "deleted",
        _ if created => "added",
        _ => "modified",
    };
    match files.iter().position(|file| file.path == path) {
        Some(known) => {
            let file = &mut files[known];
            file.additions += additions;
            file.deletions += deletions;
            if file.patch.len() + patch.len() <= MOST_PATCH {
                file.patch.push_str(patch);
            }
            // What was added here and changed later is still new.
            if file.status != "added" || status == "deleted" {
                file.status = status;
            }
        }
        None if files.len() < MOST_FILES => files.push(FileChange {
            path: path.to_owned(),
            patch: patch.to_owned(),
            additions,
            deletions,
            status,
        }),
        None => {}
    }
}

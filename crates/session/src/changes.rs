//! What calls changed in files, as their results tell.

use std::collections::HashSet;
use std::path::Path;

use playhouse_protocol::changes::{ChangeKind, TouchedFile};
use playhouse_protocol::message::{CallOutcome, CallPart, CallResult, CallState, Changed, Message, Part};
use playhouse_protocol::{MessageId, PartId};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::fold::Session;

/// The most files that are told apart.
const MOST_FILES: usize = 1_000;
/// The most bytes of the patches of one file.
const MOST_PATCH: usize = 256 * 1024;

/// A file that calls changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileChange {
    /// From the session's directory on; the whole path of one that lies elsewhere.
    pub path: String,
    /// `added`, `modified` or `deleted`.
    pub status: &'static str,
    /// Lines that were added.
    pub additions: u64,
    /// Lines that were removed.
    pub deletions: u64,
    /// What the calls showed, one after the other; empty where that is not known, or too much.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub patch: String,
}

/// What a result tells of one file.
struct Told<'a> {
    path: &'a str,
    status: &'static str,
    additions: u64,
    deletions: u64,
    patch: &'a str,
}

/// What a result tells of files; nothing for a call that did not do its work.
fn told(result: &CallResult) -> impl Iterator<Item = Told<'_>> {
    let facts = Some(&result.metadata).filter(|_| result.outcome == CallOutcome::Done);
    let many = facts.and_then(|facts| facts.get("files")).and_then(Value::as_array);
    let one = facts.filter(|_| many.is_none());
    many.into_iter().flatten().filter_map(Value::as_object).chain(one).filter_map(of_file)
}

fn of_file(facts: &Map<String, Value>) -> Option<Told<'_>> {
    let text = |name: &str| facts.get(name).and_then(Value::as_str);
    let count = |name: &str| facts.get(name).and_then(Value::as_u64);
    let (path, additions, deletions) = (text("filePath")?, count("additions")?, count("deletions")?);
    let created = facts.get("created").and_then(Value::as_bool).unwrap_or(false);
    let status = match text("type") {
        Some("add") => "added",
        Some("delete") => "deleted",
        _ if created => "added",
        _ => "modified",
    };
    let patch = text("diff").or(text("patch")).unwrap_or_default();
    Some(Told { path, status, additions, deletions, patch })
}

/// The files that a result tells of.
pub(crate) fn paths(result: &CallResult) -> impl Iterator<Item = &str> {
    told(result).map(|told| told.path)
}

/// The absolute path that a change set of a session in `workspace` names.
pub(crate) fn whole_path(workspace: &str, path: &str) -> String {
    if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("{}/{path}", workspace.trim_end_matches('/'))
    }
}

/// How much was changed: what a fold keeps of results.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    total: Changed,
    paths: HashSet<Box<str>>,
    /// The call whose change set came last: its result tells nothing that is not in there.
    told: Option<PartId>,
}

impl Tally {
    /// Adds what a result tells, unless a change set did. Whether it tells of a change.
    pub(crate) fn add(&mut self, call: PartId, result: &CallResult) -> bool {
        if self.told.take_if(|told| *told == call).is_some() {
            return false;
        }
        let mut any = false;
        for Told { path, additions, deletions, .. } in told(result) {
            any = true;
            self.add_file(path, additions, deletions);
        }
        any
    }

    /// Adds what a call changed.
    pub(crate) fn add_set(&mut self, call: PartId, files: &[TouchedFile]) {
        self.told = Some(call);
        for file in files {
            self.add_file(&file.path, file.additions, file.deletions);
        }
    }

    fn add_file(&mut self, path: &str, additions: u64, deletions: u64) {
        self.total.additions = self.total.additions.saturating_add(additions);
        self.total.deletions = self.total.deletions.saturating_add(deletions);
        if self.paths.len() < MOST_FILES && !self.paths.contains(path) {
            self.paths.insert(path.into());
            self.total.files += 1;
        }
    }

    pub(crate) fn total(&self) -> Changed {
        self.total
    }
}

/// The files that results tell of, in the order in which they were changed first. Changes of one file are added up.
#[derive(Clone, Debug)]
pub struct Changes {
    files: Vec<FileChange>,
    /// The bytes of patches that may still be kept.
    left: usize,
}

impl Changes {
    /// None yet, with at most so many bytes of patches.
    pub fn new(most_patches: usize) -> Self {
        Self { files: Vec::new(), left: most_patches }
    }

    /// Those of the calls of a session; with `turn`, only those that were made for that prompt.
    pub fn of(session: &Session, turn: Option<MessageId>, most_patches: usize) -> Self {
        Self::in_messages(&session.messages, turn, most_patches)
    }

    /// Those of the calls of these messages; with `turn`, only those that were made for that prompt.
    pub fn in_messages(messages: &[Message], turn: Option<MessageId>, most_patches: usize) -> Self {
        let mut changes = Self::new(most_patches);
        for message in messages {
            let Message::Assistant(message) = message else { continue };
            if turn.is_some_and(|turn| turn != message.parent) {
                continue;
            }
            for part in &message.parts {
                if let Part::Call(call) = part {
                    changes.add(call);
                }
            }
        }
        changes
    }

    /// Adds what a call changed: what is known of that, else what its result tells. The patch is that of the result.
    pub fn add(&mut self, call: &CallPart) {
        let CallState::Settled(result) = &call.state else { return };
        let Some(files) = &call.changed else {
            told(result).for_each(|told| self.add_file(&told));
            return;
        };
        for file in &files.0 {
            let patch = told(result).find(|told| told.path == file.path).map_or("", |told| told.patch);
            self.add_file(&Told {
                path: &file.path,
                status: match file.kind {
                    ChangeKind::Added => "added",
                    ChangeKind::Modified => "modified",
                    ChangeKind::Deleted => "deleted",
                },
                additions: file.additions,
                deletions: file.deletions,
                patch,
            });
        }
    }

    /// Whether nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The files, with paths from `workspace` on.
    pub fn files(&self, workspace: &str) -> Vec<FileChange> {
        let workspace = Path::new(workspace);
        let mut files = self.files.clone();
        for file in &mut files {
            if let Ok(inner) = Path::new(&file.path).strip_prefix(workspace) {
                file.path = inner.to_string_lossy().into_owned();
            }
        }
        files
    }

    fn add_file(&mut self, told: &Told<'_>) {
        let patch = told.patch;
        match self.files.iter().position(|file| file.path == told.path) {
            Some(known) => {
                let file = &mut self.files[known];
                file.additions = file.additions.saturating_add(told.additions);
                file.deletions = file.deletions.saturating_add(told.deletions);
                // Half of what was changed would be taken for all of it.
                let is_whole = !file.patch.is_empty() || patch.is_empty();
                if is_whole && file.patch.len() + patch.len() <= MOST_PATCH && patch.len() <= self.left {
                    self.left -= patch.len();
                    file.patch.push_str(patch);
                } else {
                    self.left += file.patch.len();
                    file.patch = String::new();
                }
                // What was added here and changed later is still new.
                if file.status != "added" || told.status == "deleted" {
                    file.status = told.status;
                }
            }
            None if self.files.len() < MOST_FILES => {
                let kept = if patch.len() <= self.left.min(MOST_PATCH) { patch } else { "" };
                self.left -= kept.len();
                self.files.push(FileChange {
                    path: told.path.to_owned(),
                    patch: kept.to_owned(),
                    additions: told.additions,
                    deletions: told.deletions,
                    status: told.status,
                });
            }
            None => {}
        }
    }
}

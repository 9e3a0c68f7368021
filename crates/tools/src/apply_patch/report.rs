//! What clients and models are told of a patch.

use playhouse_workspace::ContentHash;
use serde_json::{Map, Value, json};

use super::plan::{Change, Planned};
use crate::files;
use crate::files::diff::{Diff, unified};
use crate::tool::ToolOutput;

/// Bytes of one file's diff that clients get.
const FOR_CLIENTS: usize = 32 * 1024;

/// Bytes of all diffs that clients get.
const FOR_CLIENTS_IN_ALL: usize = 256 * 1024;

/// Bytes of one file's diff that the model reads, and of all of them. It knows what it wrote; this shows where it went.
const FOR_MODEL: usize = 6 * 1024;
const FOR_MODEL_IN_ALL: usize = 24 * 1024;

/// Lines of all diffs that the model reads: fewer than an output may have.
const LINES_FOR_MODEL_IN_ALL: usize = 1_000;

/// Bytes of the diffs that a person sees before agreeing to them.
pub(super) const FOR_CONSENT: usize = 64 * 1024;

/// Notes on how hunks were found.
const NOTES: usize = 20;

/// The diff of an update as it was made for a preview, so that it need not be made again.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    /// Of the content that is updated. From the same content, the same hunks make the same.
    before: ContentHash,
    diff: Diff,
}

/// What happened to one file, as it is told.
struct Told<'a> {
    planned: &'a Planned,
    diff: Diff,
}

impl<'a> Told<'a> {
    fn of(planned: &'a Planned, draft: Option<&Draft>) -> Self {
        let shown = &planned.place.shown;
        let diff = match &planned.change {
            Change::Add { bytes } => unified(shown, None, bytes),
            Change::Delete { before } => {
                named(unified(shown, Some(&before.text), b""), &format!("a/{shown}"), "/dev/null")
            }
            Change::Update { before, .. } if draft.is_some_and(|draft| draft.before == before.hash) => {
                draft.map(|draft| draft.diff.clone()).unwrap_or_default()
            }
            Change::Update { before, text, to, .. } => {
                let diff = unified(shown, Some(&before.text), text);
                match to {
                    Some(to) => named(diff, &format!("a/{shown}"), &format!("b/{}", to.shown)),
                    None => diff,
                }
            }
        };
        Self { planned, diff }
    }

    fn into_draft(self) -> Option<Draft> {
        match &self.planned.change {
            Change::Update { before, .. } if self.diff.text.len() <= FOR_CLIENTS => {
                Some(Draft { before: before.hash, diff: self.diff })
            }
            _ => None,
        }
    }

    /// `update src/a.rs (+1 -2)`.
    fn line(&self) -> String {
        let shown = &self.planned.place.shown;
        let to = self.target().map_or(String::new(), |to| format!(" -> {}", to.shown));
        format!("{} {shown}{to} (+{} -{})\n", self.kind(), self.diff.additions, self.diff.deletions)
    }

    fn kind(&self) -> &'static str {
        match self.planned.change {
            Change::Add { .. } => "add",
            Change::Delete { .. } => "delete",
            Change::Update { to: Some(_), .. } => "move",
            Change::Update { .. } => "update",
        }
    }

    fn target(&self) -> Option<&playhouse_workspace::Resolved> {
        match &self.planned.change {
            Change::Update { to, .. } => to.as_ref(),
            Change::Add { .. } | Change::Delete { .. } => None,
        }
    }

    fn metadata(&self, patch: String) -> Value {
        let place = &self.planned.place;
        let mut facts = json!({
            "type": self.kind(),
            "relativePath": self.target().unwrap_or(place).shown,
            "filePath": place.path.to_string_lossy(),
            "patch": patch,
            "additions": self.diff.additions,
            "deletions": self.diff.deletions,
        });
        if let Some(to) = self.target() {
            facts["movePath"] = Value::from(to.path.to_string_lossy());
        }
        facts
    }
}

/// `diff` with other names in its head.
fn named(diff: Diff, old: &str, new: &str) -> Diff {
    let body = diff.text.splitn(3, '\n').nth(2).map(str::to_owned);
    Diff { text: body.map_or(String::new(), |body| format!("--- {old}\n+++ {new}\n{body}")), ..diff }
}

/// The diffs of all files, one after the other; and a draft for each file, where that is worth keeping.
pub(super) fn preview(planned: &[Planned]) -> (String, Vec<Option<Draft>>) {
    let mut text = String::new();
    let mut drafts = Vec::with_capacity(planned.len());
    for planned in planned {
        let told = Told::of(planned, None);
        if told.target().is_some() || told.diff.text.is_empty() {
            text.push_str(&told.line());
        }
        text.push_str(&told.diff.text);
        drafts.push(told.into_draft());
    }
    (Diff { text, ..Diff::default() }.capped(FOR_CONSENT), drafts)
}

/// The result of what is called `name`, as in "the patch", and was applied. `drafts` are those of its preview, if it had one; `written` is what is to be told
/// of the files that were written.
pub(super) fn output(
    name: &str,
    planned: &[Planned],
    drafts: &[Option<Draft>],
    written: &[String],
) -> ToolOutput {
    let draft = |index: usize| drafts.get(index).and_then(Option::as_ref);
    let told: Vec<Told<'_>> =
        planned.iter().enumerate().map(|(index, planned)| Told::of(planned, draft(index))).collect();
    let (additions, deletions) = told.iter().fold((0, 0), |(additions, deletions), told| {
        (additions + told.diff.additions, deletions + told.diff.deletions)
    });
    let files = files::counted(told.len(), "file");
    let mut output = format!("applied {name} to {files} (+{additions} -{deletions})\n");
    told.iter().for_each(|told| output.push_str(&told.line()));
    let notes: Vec<&String> = planned
        .iter()
        .filter_map(|planned| match &planned.change {
            Change::Update { notes, .. } => Some(notes),
            Change::Add { .. } | Change::Delete { .. } => None,
        })
        .flatten()
        .collect();
    for note in written.iter().chain(notes.iter().copied()).take(NOTES) {
        output.push_str("note: ");
        output.push_str(note);
        output.push('\n');
    }
    let left = (written.len() + notes.len()).saturating_sub(NOTES);
    if left > 0 {
        output.push_str(&format!("note: there are {left} more such notes\n"));
    }

    let (mut for_model, mut for_clients) = (FOR_MODEL_IN_ALL, FOR_CLIENTS_IN_ALL);
    let mut lines_for_model = LINES_FOR_MODEL_IN_ALL;
    let mut facts = Vec::with_capacity(told.len());
    for told in &told {
        // What was added is what the model wrote, and what was deleted is gone.
        if matches!(told.planned.change, Change::Update { .. }) {
            let diff = told.diff.capped_with_lines(FOR_MODEL.min(for_model), lines_for_model);
            for_model = for_model.saturating_sub(diff.len());
            lines_for_model = lines_for_model.saturating_sub(diff.lines().count());
            output.push_str(&diff);
        }
        let patch = told.diff.capped(FOR_CLIENTS.min(for_clients));
        for_clients = for_clients.saturating_sub(patch.len());
        facts.push(told.metadata(patch));
    }

    let title = match &told[..] {
        [only] => only.planned.place.shown.clone(),
        _ => files,
    };
    let mut metadata = Map::new();
    metadata.insert("files".into(), Value::Array(facts));
    metadata.insert("additions".into(), Value::from(additions));
    metadata.insert("deletions".into(), Value::from(deletions));
    ToolOutput { title, output, metadata, ..ToolOutput::default() }
}

//! `playhouse sessions undo`, `redo`, `diff`.

use playhouse_protocol::changes::ChangeKind;
use playhouse_protocol::{LeftFile, RevertReport, SessionId};

use super::{json, one_line, print};
use crate::cli::render::Shape;
use crate::cli::render::printable;
use crate::cli::{Exit, Failure};
use crate::client::Client;

/// Prints what was taken back or done again, or would be, and what was left alone.
pub(super) fn print_report(report: &RevertReport, format: Shape) -> Result<Exit, Failure> {
    if format != Shape::Table {
        print(&format!("{}\n", json(report)?))?;
        return Ok(Exit::Completed);
    }
    let mut text = String::new();
    for file in &report.files {
        let verb = match (file.kind, report.dry_run) {
            (ChangeKind::Deleted, true) => "would remove",
            (ChangeKind::Deleted, false) => "removed",
            (_, true) => "would write",
            (_, false) => "wrote",
        };
        let path = one_line(&file.path);
        // Those of a binary file are not counted.
        let lines = match (file.additions, file.deletions) {
            (0, 0) => String::new(),
            (added, removed) => format!(" (+{added} -{removed})"),
        };
        text.push_str(&format!("{verb} {path}{lines}\n"));
    }
    for folder in &report.folders {
        let verb = match (folder.before, folder.after, report.dry_run) {
            (_, None, true) => "would remove",
            (_, None, false) => "removed",
            (None, _, true) => "would make",
            (None, _, false) => "made",
            (_, _, true) => "would change the permissions of",
            (_, _, false) => "changed the permissions of",
        };
        text.push_str(&format!("{verb} {}/\n", one_line(&folder.path)));
    }
    let left = [&report.conflicts, &report.ambiguous, &report.not_covered];
    for (what, left) in ["conflict", "ambiguous", "not covered"].into_iter().zip(left) {
        left.iter().for_each(|left| text.push_str(&line(what, left)));
    }
    if text.is_empty() {
        text.push_str("no file is different\n");
    }
    print(&text)?;
    Ok(Exit::Completed)
}

fn line(what: &str, left: &LeftFile) -> String {
    let call = left.call.map(|call| format!("call {call}"));
    let which = left.path.as_deref().map(one_line).or(call).unwrap_or_else(|| "the session".to_owned());
    format!("{what}: {which}: {}\n", one_line(&left.reason))
}

/// Prints the diff of what the calls of a session changed.
pub(super) async fn print_diff(client: &Client, session: SessionId, format: Shape) -> Result<(), Failure> {
    let diff = client.diff(session).await?;
    if format != Shape::Table {
        return Ok(print(&format!("{}\n", json(&diff)?))?);
    }
    let files = diff.get("files").and_then(|files| files.as_array());
    for file in files.into_iter().flatten() {
        match file.get("patch").and_then(|patch| patch.as_str()).filter(|patch| !patch.is_empty()) {
            Some(patch) => print(&printable(patch))?,
            None => {
                let text = |name: &str| file.get(name).and_then(|value| value.as_str()).unwrap_or_default();
                print(&format!("{} {} (no diff is kept)\n", text("status"), one_line(text("path"))))?;
            }
        }
    }
    Ok(())
}

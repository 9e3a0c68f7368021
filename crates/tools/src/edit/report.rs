//! What the model reads of an edit.

use super::replace::{Edited, Refusal};
use crate::files;
use crate::files::seen::LARGEST;
use crate::tool::ToolError;

/// Lines that are told.
const PLACES: usize = 10;

/// Where a text was replaced: `line 3`, `lines 3-5`, `2 places at lines 3, 9`, `2 places in line 3`.
pub(super) fn lines(edited: &Edited) -> String {
    match &edited.lines[..] {
        [only] if only.start == only.end => format!("line {}", only.start),
        [only] => format!("lines {}-{}", only.start, only.end),
        all => {
            let mut starts: Vec<usize> = all.iter().map(|lines| lines.start).collect();
            starts.dedup();
            let lines = match &starts[..] {
                [only] => format!("in line {only}"),
                several => format!("at lines {}", told(several.iter().copied(), several.len())),
            };
            format!("{} {lines}", files::counted(all.len(), "place"))
        }
    }
}

/// How a text was found that is not there exactly.
pub(super) fn warning(edited: &Edited) -> Option<String> {
    let difference = edited.difference?;
    let strategy = edited.strategy;
    Some(format!(
        "oldString is not there exactly as given; it was matched by {strategy} ({difference}). Check the diff"
    ))
}

/// The error of an edit of the file that is shown as `shown`.
pub(super) fn refused(shown: &str, refusal: &Refusal) -> ToolError {
    ToolError::Failed(match refusal {
        Refusal::Absent { nearest, hint } => {
            let mut text = format!("oldString was not found in {shown}; nothing was changed.");
            if let Some(hint) = hint {
                text.push(' ');
                text.push_str(hint);
            }
            match nearest {
                Some(lines) => {
                    text.push_str(" The nearest lines are:\n");
                    text.push_str(lines);
                }
                None => text.push_str(" Nothing in the file is like it: read the file again"),
            }
            text
        }
        Refusal::Ambiguous { difference, places, lines, count } => {
            let at = match &places[..] {
                [only] if *lines == 1 => format!("all of them in line {}", only.first),
                _ => format!("at lines {}", told(places.iter().map(|place| place.first), *lines)),
            };
            let mut text = match difference {
                None => format!(
                    "oldString is in {shown} {count} times, {at}; nothing was changed. Add lines around it to oldString until it is unique, or set replaceAll"
                ),
                Some(difference) => format!(
                    "oldString is not in {shown} exactly, and {count} places may be meant ({difference}), {at}; nothing was changed. Copy the text exactly as it is in the file, with lines around it until it is unique"
                ),
            };
            text.push_str(":\n");
            places.iter().for_each(|place| text.push_str(&place.shown));
            text
        }
        Refusal::Doubtful { strategy, place, reason } => format!(
            "oldString was not found in {shown}; nothing was changed. There is one place at lines {}-{} that may be meant ({strategy}), but {reason}. Copy the text exactly as it is in the file:\n{}",
            place.first, place.last, place.shown
        ),
        Refusal::TooMany { most } => format!(
            "oldString is in {shown} over {most} times, too often for one call; nothing was changed. Use bash (sed) for it"
        ),
        Refusal::TooLarge { bytes } => format!(
            "the file would have {}, and files are changed up to {} only; nothing was changed",
            files::size(*bytes),
            files::size(LARGEST)
        ),
    })
}

/// `1, 5, 9 and 3 more`.
fn told(lines: impl Iterator<Item = usize>, count: usize) -> String {
    let shown: Vec<String> = lines.take(PLACES).map(|line| line.to_string()).collect();
    let more = count - shown.len().min(count);
    let shown = shown.join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

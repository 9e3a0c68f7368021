//! What a patch makes of the files: everything that can be wrong with it is found here, before anything changes.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;

use playhouse_workspace::door::{self, Kind};
use playhouse_workspace::{FileTracker, Resolved};

use super::{Deed, Step};
use crate::files::seen::{self, Current};
use crate::files::{cancelled, change, size};
use crate::patch::{Applied, Effort, Hunk, Loose, Stop, apply};
use crate::tool::ToolError;

/// Bytes of all files of a patch together, as they are and as they become.
const TOTAL: u64 = 200_000_000;

/// Files whose trouble is told.
const TOLD: usize = 5;

/// A file, and what becomes of it.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) place: Resolved,
    pub(super) change: Change,
}

#[derive(Debug)]
pub(super) enum Change {
    Add {
        bytes: Vec<u8>,
    },
    Delete {
        before: Current,
    },
    Update {
        before: Current,
        /// The text that it becomes, in UTF-8.
        text: Vec<u8>,
        /// The same as it is stored, where that is not UTF-8.
        encoded: Option<Vec<u8>>,
        to: Option<Resolved>,
        /// What people and models should know of how the hunks were found.
        notes: Vec<String>,
    },
}

impl Change {
    /// Whether anything is different afterwards.
    pub(super) fn is_change(&self) -> bool {
        match self {
            Self::Add { .. } | Self::Delete { .. } => true,
            Self::Update { before, text, to, .. } => to.is_some() || before.text != *text,
        }
    }

    /// What stands at the place before.
    pub(super) fn before(&self) -> Option<&Current> {
        match self {
            Self::Delete { before } | Self::Update { before, .. } => Some(before),
            Self::Add { .. } => None,
        }
    }

    /// What stands at the place before, if nothing does afterwards.
    pub(super) fn gone(&self) -> Option<&Current> {
        match self {
            Self::Delete { before } | Self::Update { before, to: Some(_), .. } => Some(before),
            Self::Add { .. } | Self::Update { .. } => None,
        }
    }

    fn bytes(&self) -> u64 {
        let bytes = match self {
            Self::Add { bytes } => bytes.len(),
            Self::Delete { before } => before.text.len(),
            Self::Update { before, text, .. } => before.text.len() + text.len(),
        };
        bytes as u64
    }
}

/// Plans all `steps`. Without `known`, it does not matter what the session has seen of the files.
pub(super) fn plan(
    steps: &[Step],
    known: Option<&FileTracker>,
    effort: &Effort<'_>,
) -> Result<Vec<Planned>, ToolError> {
    let mut planned = Vec::with_capacity(steps.len());
    let mut troubles = nested(steps);
    let mut total = 0;
    for step in steps {
        match plan_one(step, known, effort) {
            Ok(change) => {
                total += change.bytes();
                if total > TOTAL {
                    return Err(ToolError::Failed(format!(
                        "the files of this patch have more than {} together; no file was changed. Make several patches of it",
                        size(TOTAL)
                    )));
                }
                planned.push(Planned { place: step.place.clone(), change });
            }
            Err(error @ ToolError::Cancelled(_)) => return Err(error),
            Err(error) => troubles.push(error.to_string()),
        }
    }
    if troubles.is_empty() && !planned.iter().any(|planned| planned.change.is_change()) {
        troubles.push("it changes nothing: the lines that it removes and adds are the same".into());
    }
    if troubles.is_empty() { Ok(planned) } else { Err(refused(&troubles)) }
}

fn refused(troubles: &[String]) -> ToolError {
    let mut text = String::from("the patch was not applied, and no file was changed.");
    for trouble in troubles.iter().take(TOLD) {
        text.push('\n');
        text.push_str(trouble.trim_end());
    }
    if troubles.len() > TOLD {
        text.push_str(&format!("\n(and trouble with {} more files)", troubles.len() - TOLD));
    }
    ToolError::Failed(text)
}

/// New files below other new files.
fn nested(steps: &[Step]) -> Vec<String> {
    let made = || {
        steps.iter().filter_map(|step| match &step.deed {
            Deed::Add(_) => Some(&step.place),
            Deed::Update { to, .. } => to.as_ref(),
            Deed::Delete => None,
        })
    };
    let paths: BTreeSet<&Path> = made().map(|place| place.path.as_path()).collect();
    let below = made().filter(|place| place.path.ancestors().skip(1).any(|above| paths.contains(above)));
    below.map(|place| format!("{} would be below a file that the patch makes", place.shown)).collect()
}

fn plan_one(step: &Step, known: Option<&FileTracker>, effort: &Effort<'_>) -> Result<Change, ToolError> {
    let place = &step.place;
    match &step.deed {
        Deed::Add(content) => {
            must_be_free(place, "change it with \"*** Update File:\"")?;
            Ok(Change::Add { bytes: content.clone().into_bytes() })
        }
        Deed::Delete => Ok(Change::Delete { before: existing(place, known)? }),
        Deed::Update { sections, to } => {
            if let Some(to) = to {
                must_be_free(to, "delete it first, or move the file to another place")?;
            }
            let before = existing(place, known)?;
            before.must_be_text(place, "a patch")?;
            let (text, notes) = updated(place, &before.text, sections, effort)?;
            let encoded = match change::encoded(place, Some(&before), &text)? {
                Cow::Borrowed(_) => None,
                Cow::Owned(encoded) => Some(encoded),
            };
            Ok(Change::Update { before, text, encoded, to: to.clone(), notes })
        }
    }
}

fn existing(place: &Resolved, known: Option<&FileTracker>) -> Result<Current, ToolError> {
    let Some(current) = seen::current(place)? else {
        return Err(ToolError::Failed(format!(
            "{} does not exist: check the path with list or glob",
            place.shown
        )));
    };
    if let Some(known) = known {
        current.must_be_known(known, place)?;
    }
    Ok(current)
}

fn must_be_free(place: &Resolved, advice: &str) -> Result<(), ToolError> {
    match door::facts(place)? {
        None => Ok(()),
        Some(facts) if facts.kind == Kind::Directory => {
            Err(ToolError::Failed(format!("{} is a directory, not a file", place.shown)))
        }
        Some(_) => Err(ToolError::Failed(format!("{} exists already: {advice}", place.shown))),
    }
}

/// The content with the hunks of all `sections` in it, and notes on how they were found.
fn updated(
    place: &Resolved,
    before: &[u8],
    sections: &[Vec<Hunk>],
    effort: &Effort<'_>,
) -> Result<(Vec<u8>, Vec<String>), ToolError> {
    let shown = &place.shown;
    let mut bytes = before.to_vec();
    let mut notes = Vec::new();
    for hunks in sections.iter().filter(|hunks| !hunks.is_empty()) {
        let Applied { bytes: made, loose } = apply(&bytes, hunks, effort).map_err(|stop| match stop {
            Stop::Cancelled => cancelled(),
            Stop::Misfit(text) => ToolError::Failed(format!("{shown}: {text}")),
            Stop::TooMuch => ToolError::Failed(format!(
                "{shown}: finding the places of the hunks takes too long, because many of them are not in the file exactly as written. Make smaller patches, with lines exactly as read shows them"
            )),
        })?;
        bytes = made;
        for Loose { hunk, line, pass, also } in loose {
            if let Some(ignored) = pass.ignores() {
                notes.push(format!(
                    "hunk {hunk} of {shown} was found at line {line} only without regard to {ignored}"
                ));
            }
            if let Some(also) = also {
                notes.push(format!(
                    "hunk {hunk} of {shown} went to line {line}, and fits at line {also} as well: check that the first of these places was meant"
                ));
            }
        }
    }
    Ok((bytes, notes))
}

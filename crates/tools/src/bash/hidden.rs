//! What of the folders that a command reads may not be read without asking.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ignore::WalkBuilder;
use playhouse_policy::shell::Sweep;
use playhouse_policy::{Access, AccessKind, Known, Zone};
use playhouse_workspace::{Resolved, Workspace};

use crate::Showing;
use crate::files::{counted, shown_below};

/// The most files that are looked at.
const MOST_FILES: usize = 10_000;
/// For how long, at most.
const LONGEST: Duration = Duration::from_secs(1);
/// The most that are hidden from one command.
const MOST_HIDDEN: usize = 200;
/// The most that are named.
const MOST_NAMED: usize = 20;
/// What git keeps, by hash: none of it is a file of the workspace.
const OBJECTS: &str = ".git/objects";

/// A file that may not be read without asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hidden {
    pub(super) path: PathBuf,
    /// As rules and people name it.
    pub(super) shown: String,
}

/// What was found in folders.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) hidden: Vec<Hidden>,
    /// The folder of which not all was looked at, and why.
    pub(super) unseen: Option<(String, &'static str)>,
}

impl Found {
    pub(super) fn is_nothing(&self) -> bool {
        self.hidden.is_empty() && self.unseen.is_none()
    }
}

/// What a command touches, and what is hidden from it. Where nothing can be hidden, or not all is known, it is asked about.
pub(super) fn settle(mut accesses: Vec<Access>, found: Found, can_hide: bool) -> (Vec<Access>, Vec<Hidden>) {
    if can_hide && found.unseen.is_none() && !accesses.iter().any(takes_in) {
        return (accesses, found.hidden);
    }
    // Each would be asked about by itself.
    let rest = found.hidden.len().saturating_sub(MOST_NAMED);
    let unnamed = found
        .hidden
        .get(MOST_NAMED)
        .map(|file| (file.shown.clone(), format!("it is one of {rest} more files")));
    let read = |file: Hidden| {
        let access = Access::path(AccessKind::Read, file.path.to_string_lossy(), Zone::Workspace);
        access.shown(file.shown).known(Known::Purpose)
    };
    accesses.extend(found.hidden.into_iter().take(MOST_NAMED).map(read));
    let unseen = found.unseen.map(|(shown, why)| (shown, why.to_owned()));
    accesses
        .extend([unnamed, unseen].into_iter().flatten().map(|(shown, doubt)| Access::Below { shown, doubt }));
    (accesses, Vec::new())
}

/// Whether a command would put hidden files, which it sees empty, into git.
fn takes_in(access: &Access) -> bool {
    let Access::Command(command) = access else { return false };
    command.text.starts_with("git ") && !command.text.contains(" grep ")
}

/// What the model is told of files that were hidden; empty where none was.
pub(super) fn note(hidden: &[Hidden]) -> String {
    if hidden.is_empty() {
        return String::new();
    }
    let named: Vec<&str> = hidden.iter().take(MOST_NAMED).map(|file| file.shown.as_str()).collect();
    let rest = match hidden.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        rest => format!(" and {rest} more"),
    };
    let files = counted(hidden.len(), "file");
    format!(
        "\n[{files} that may not be read unasked looked empty to the command: {}{rest}. Ask for one by name with read.]",
        named.join(", ")
    )
}

/// Looks at what lies in these folders. Blocks for a second at most.
pub(super) fn look(folders: &[(Resolved, Sweep)], workspace: &Workspace, showing: &Showing) -> Found {
    let mut found = Found::default();
    let (begun, mut looked) = (Instant::now(), 0_usize);
    for (folder, sweep) in folders {
        let walk = WalkBuilder::new(&folder.path)
            .standard_filters(*sweep != Sweep::All)
            .hidden(*sweep == Sweep::Visible)
            .filter_entry(|entry| !entry.path().ends_with(OBJECTS))
            .build();
        for entry in walk {
            // What cannot be looked at cannot be read either.
            let Ok(entry) = entry else { continue };
            if entry.file_type().is_some_and(|kind| kind.is_dir()) {
                continue;
            }
            looked += 1;
            let why = if looked > MOST_FILES {
                "it holds more than 10,000 files"
            } else if begun.elapsed() > LONGEST {
                "it takes more than a second to look at it"
            } else if found.hidden.len() == MOST_HIDDEN {
                "more than 200 files in it may not be read unasked"
            } else {
                let inner = entry.path().strip_prefix(&folder.path).unwrap_or(entry.path());
                let shown = match inner.as_os_str().is_empty() {
                    true => folder.shown.clone(),
                    false => shown_below(folder, inner),
                };
                let mut places = vec![Hidden { path: entry.path().to_owned(), shown }];
                if entry.path_is_symlink() && *sweep != Sweep::All {
                    // Searches that leave anything out follow no links.
                    places.clear();
                } else if entry.path_is_symlink() {
                    // Its content is that of another file. A link cannot be hidden, and need not be.
                    let target = entry.path().to_str().and_then(|path| workspace.resolve(path).ok());
                    let is_denied = !showing.allows(&places[0].shown);
                    places.clear();
                    places.extend(
                        target
                            .filter(|target| {
                                target.path.is_file() && (is_denied || !showing.allows(&target.shown))
                            })
                            .map(|target| Hidden { path: target.path, shown: target.shown }),
                    );
                } else {
                    places.retain(|place| !showing.allows(&place.shown));
                }
                places.retain(|place| !found.hidden.contains(place));
                found.hidden.extend(places);
                continue;
            };
            found.unseen = Some((folder.shown.clone(), why));
            return found;
        }
    }
    found
}

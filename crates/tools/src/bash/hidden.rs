//! What of the folders that a command reads may not be read without asking.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ignore::{DirEntry, WalkBuilder};
use playhouse_policy::{Access, AccessKind, Known, Zone};
use playhouse_workspace::Workspace;

use super::touched::Folder;
use crate::Showing;
use crate::files::{counted, shown_below};

/// The most files that are looked at.
const MOST_FILES: usize = 10_000;
/// For how long, at most.
const LONGEST: Duration = Duration::from_secs(1);
/// The most that are hidden from one command.
pub(super) const MOST_HIDDEN: usize = 200;
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
pub(super) fn settle(mut accesses: Vec<Access>, found: Found, may_hide: bool) -> (Vec<Access>, Vec<Hidden>) {
    // What looks empty cannot be written.
    let is_written = |file: &Hidden| {
        accesses.iter().any(|access| {
            matches!(access, Access::Path { kind, path, .. } if kind.may_write() && Path::new(path) == file.path)
        })
    };
    if may_hide && found.unseen.is_none() && !found.hidden.iter().any(is_written) {
        return (accesses, found.hidden);
    }
    accesses.extend(asked(found));
    (accesses, Vec::new())
}

/// What was found, as reads that are asked about by name.
pub(super) fn asked(found: Found) -> impl Iterator<Item = Access> {
    let read = |file: Hidden| {
        let access = Access::path(AccessKind::Read, file.path.to_string_lossy(), Zone::Workspace);
        access.shown(file.shown).known(Known::Purpose)
    };
    let below = |(shown, why): (String, &str)| Access::Below { shown, doubt: why.to_owned() };
    found.hidden.into_iter().map(read).chain(found.unseen.map(below))
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
        "\n[{files} that may not be read unasked looked empty to the command, and could not be changed: {}{rest}. Ask for one by name with read.]",
        named.join(", ")
    )
}

/// Looks at what lies in these folders. Blocks for a second at most.
pub(super) fn look(folders: &[Folder], workspace: &Workspace, showing: &Showing) -> Found {
    let mut found = Found::default();
    if !showing.may_hide() {
        return found;
    }
    let (begun, mut looked) = (Instant::now(), 0_usize);
    let mut queue: Vec<Folder> = folders.to_vec();
    let mut at = 0;
    while let Some(used) = queue.get(at).cloned() {
        at += 1;
        let folder = &used.place;
        let walk = WalkBuilder::new(&folder.path)
            .max_depth(used.levels())
            .standard_filters(used.visible_only)
            .git_global(false)
            .filter_entry(move |entry| begun.elapsed() <= LONGEST && !entry.path().ends_with(OBJECTS))
            .build();
        for entry in walk {
            looked += 1;
            let why = if looked > MOST_FILES {
                "it holds more than 10,000 files"
            } else if begun.elapsed() > LONGEST {
                "it takes more than a second to look at it"
            } else if found.hidden.len() >= MOST_HIDDEN {
                "more than 200 files in it may not be read unasked"
            } else {
                // What cannot be looked at cannot be read either.
                if let Ok(entry) = entry {
                    add(&entry, &used, workspace, showing, &mut found, &mut queue);
                }
                continue;
            };
            found.unseen = Some((folder.shown.clone(), why));
            return found;
        }
        if begun.elapsed() > LONGEST {
            found.unseen = Some((folder.shown.clone(), "it takes more than a second to look at it"));
            return found;
        }
    }
    found
}

/// Adds what may not be read of an entry: the file, or what a link leads to.
fn add(
    entry: &DirEntry,
    used: &Folder,
    workspace: &Workspace,
    showing: &Showing,
    found: &mut Found,
    queue: &mut Vec<Folder>,
) {
    let Folder { place: folder, visible_only, pattern } = used;
    if entry.file_type().is_some_and(|kind| kind.is_dir()) {
        return;
    }
    let inner = entry.path().strip_prefix(&folder.path).unwrap_or(entry.path());
    // In a folder that a link leads to the rest of the pattern would match.
    let leads_on = || {
        let is_inner = used.levels().is_none_or(|levels| entry.depth() < levels);
        is_inner && entry.path_is_symlink() && entry.path().is_dir()
    };
    let is_followed = pattern.is_none() || leads_on();
    if !is_followed && pattern.as_ref().is_some_and(|pattern| !pattern.matches(inner)) {
        return;
    }
    let shown = match inner.as_os_str().is_empty() {
        true => folder.shown.clone(),
        false => shown_below(folder, inner),
    };
    let is_denied = !showing.allows(&shown);
    let file = if !entry.path_is_symlink() {
        is_denied.then(|| Hidden { path: entry.path().to_owned(), shown })
    } else if *visible_only {
        // Searches that leave anything out follow no links.
        None
    } else {
        // Its content is that of another file, or of a folder. A link cannot be hidden, and need not be.
        let target = entry.path().to_str().and_then(|path| workspace.resolve(path).ok());
        let target = target.filter(|target| target.path.starts_with(workspace.root()));
        if let Some(target) = target.as_ref().filter(|target| is_followed && target.path.is_dir())
            && !queue
                .iter()
                .any(|known| known.pattern.is_none() && target.path.starts_with(&known.place.path))
        {
            queue.push(Folder { place: target.clone(), visible_only: false, pattern: None });
        }
        target
            .filter(|target| target.path.is_file() && (is_denied || !showing.allows(&target.shown)))
            .map(|target| Hidden { path: target.path, shown: target.shown })
    };
    found.hidden.extend(file.filter(|file| !found.hidden.contains(file)));
}

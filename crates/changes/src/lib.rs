//! Taking changes of files back: a pure plan.
//!
//! [`plan`] goes through change sets, the newest first, and says for each path what is to be written. A path is taken back
//! as a whole, or left alone and listed:
//!
//! - what is there is what the change left: the state before the change comes back;
//! - it is the state before already: nothing is written;
//! - both differ: a three-way merge, where it is text and clean, else a conflict.
//!
//! Folding the sets of a path into one would lose what a person wrote between two calls.
//!
//! ```
//! use playhouse_changes::{PathState, PathWrite, Selection, Tree, plan};
//! use playhouse_protocol::changes::{ChangeKind, ChangeSet, ChangedFile, FileContent, FileImage};
//!
//! #[derive(Default)]
//! struct Files(Vec<PathWrite>);
//! impl Tree for Files {
//!     fn look(&mut self, _: &str) -> PathState {
//!         PathState::file(b"made\n".as_slice().into(), 0o100_644)
//!     }
//!     fn content(&mut self, _: &FileImage) -> Option<std::sync::Arc<[u8]>> {
//!         None
//!     }
//!     fn may(&mut self, _: &str) -> Result<(), String> {
//!         Ok(())
//!     }
//!     fn planned(&mut self, write: PathWrite) {
//!         self.0.push(write);
//!     }
//! }
//!
//! let sha = playhouse_changes::sha(b"made\n");
//! let after = FileImage { content: FileContent::Lost { sha, size: 5 }, mode: 0o100_644 };
//! let made = ChangedFile::new("new.txt", None, Some(after));
//! assert_eq!(made.kind, ChangeKind::Added);
//! let set = ChangeSet { changes: vec![made], ..ChangeSet::default() };
//! let mut files = Files::default();
//! plan([("ses_1", &set)], &Selection::default(), &mut files);
//! assert_eq!(files.0[0].to, PathState::Missing);
//! ```

mod folders;
mod merge;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use playhouse_protocol::changes::{ChangeSet, ChangedFile, FileImage};
use playhouse_protocol::revert::LeftFile;
use sha2::{Digest, Sha256};

pub use folders::{FolderPlan, plan_folders};

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathState {
    /// Nothing.
    Missing,
    /// A regular file, or a symbolic link, whose content is the path that it leads to.
    File {
        /// SHA-256 of the content, 64 hex digits.
        sha: String,
        /// Type and permission bits.
        mode: u32,
        /// The content; `None` where it is too large to be looked at.
        bytes: Option<Arc<[u8]>>,
    },
    /// Something else, or something that cannot be read, in words: `a directory`.
    Other(String),
}

impl PathState {
    /// A file with this content.
    pub fn file(bytes: Arc<[u8]>, mode: u32) -> Self {
        Self::File { sha: sha(&bytes), mode, bytes: Some(bytes) }
    }

    /// Whether it has the content and the type of `image`, or both are nothing.
    fn holds(&self, image: Option<&FileImage>) -> bool {
        match (self, image) {
            (Self::Missing, None) => true,
            (Self::File { sha, mode, .. }, Some(image)) => {
                sha == image.content.sha() && mode & TYPE == image.mode & TYPE
            }
            _ => false,
        }
    }
}

/// The bits of a mode that say what it is.
const TYPE: u32 = 0o170_000;

/// SHA-256 of `bytes`, 64 hex digits.
pub fn sha(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What a plan is made over. Paths are those of change sets.
pub trait Tree {
    /// What stands at `path` now.
    fn look(&mut self, path: &str) -> PathState;

    /// The content of an image; `None` where it is not kept.
    fn content(&mut self, image: &FileImage) -> Option<Arc<[u8]>>;

    /// Whether `path` may be written.
    ///
    /// # Errors
    /// Why not.
    fn may(&mut self, path: &str) -> Result<(), String>;

    /// What becomes of a path. It holds the whole content, so it is told before the next path is looked at.
    fn planned(&mut self, write: PathWrite);
}

/// What becomes of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathWrite {
    /// The path.
    pub path: String,
    /// What stands there now: it must still do so at the write.
    pub from: PathState,
    /// What shall stand there.
    pub to: PathState,
}

/// What is left alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevertPlan {
    /// Paths that are left as they are, and why.
    pub conflicts: Vec<LeftFile>,
    /// Paths of which nobody can tell who changed them.
    pub ambiguous: Vec<LeftFile>,
    /// Paths whose state before is not kept.
    pub not_covered: Vec<LeftFile>,
}

const AMBIGUOUS: &str = "nobody can tell who changed it: another command or tool, or one in the background, ran at the same time, or the \
                         engine was killed meanwhile. Name it (`paths`, `--path`) to take it back";
const NOT_KEPT: &str = "its content before the change is not kept";

/// Why a change cannot be taken back.
enum Left {
    Ambiguous,
    Conflict(String),
    NotCovered,
}

/// Which paths are taken back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Paths that are taken back although it cannot be told who changed them.
    pub named: Vec<String>,
    /// Whether only these are taken back.
    pub only_named: bool,
}

impl Selection {
    /// Only these paths.
    pub const fn only(named: Vec<String>) -> Self {
        Self { named, only_named: true }
    }

    fn names(&self, path: &str) -> bool {
        self.named.iter().any(|named| named == path)
    }

    /// Whether `folder` or a path below it is named.
    fn names_in(&self, folder: &str) -> bool {
        let below = |named: &str| {
            named.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.named.iter().any(|named| below(named))
    }
}

/// Plans to take back `sets`, newest first, each with its session. Each write is passed to `tree`, path by path.
pub fn plan<'a>(
    sets: impl IntoIterator<Item = (&'a str, &'a ChangeSet)>,
    selection: &Selection,
    tree: &mut dyn Tree,
) -> RevertPlan {
    let mut paths: BTreeMap<&str, (Vec<&ChangedFile>, BTreeSet<&str>)> = BTreeMap::new();
    let changes = sets
        .into_iter()
        .flat_map(|(session, set)| set.changes.iter().rev().map(move |change| (session, change)));
    for (session, change) in
        changes.filter(|(_, change)| !selection.only_named || selection.names(&change.path))
    {
        let (changes, sessions) = paths.entry(&change.path).or_default();
        changes.push(change);
        sessions.insert(session);
    }
    let mut plan = RevertPlan::default();
    for (path, (changes, sessions)) in paths {
        let from = tree.look(path);
        match take_all_back(from.clone(), &changes, &sessions, selection, tree) {
            Ok(to) if to == from => {}
            Ok(to) => match tree.may(path) {
                Ok(()) => tree.planned(PathWrite { path: path.to_owned(), from, to }),
                Err(why) => plan.conflicts.push(LeftFile::path(path, why)),
            },
            Err(Left::Ambiguous) => plan.ambiguous.push(LeftFile::path(path, AMBIGUOUS)),
            Err(Left::Conflict(why)) => plan.conflicts.push(LeftFile::path(path, why)),
            Err(Left::NotCovered) => plan.not_covered.push(LeftFile::path(path, NOT_KEPT)),
        }
    }
    plan
}

/// Whether a session may have made this change whose changes of the path are not taken back. `sessions`: those whose are.
fn is_doubtful(ambiguous: bool, among: &[String], sessions: &BTreeSet<&str>) -> bool {
    ambiguous && (among.is_empty() || !among.iter().all(|session| sessions.contains(session.as_str())))
}

/// Takes the changes of one path back, or none of them.
fn take_all_back(
    from: PathState,
    changes: &[&ChangedFile],
    sessions: &BTreeSet<&str>,
    selection: &Selection,
    tree: &mut dyn Tree,
) -> Result<PathState, Left> {
    // It is as it was before all of them.
    let has_mode = |image: Option<&FileImage>| match (&from, image) {
        (PathState::File { mode, .. }, Some(image)) => *mode == image.mode,
        _ => true,
    };
    let oldest = changes.last().map(|oldest| oldest.before.as_ref());
    if oldest.is_some_and(|before| from.holds(before) && has_mode(before)) {
        return Ok(from);
    }
    changes.iter().try_fold(from, |now, change| {
        let is_doubtful = is_doubtful(change.ambiguous, &change.among, sessions);
        if is_doubtful && !selection.names(&change.path) {
            return Err(Left::Ambiguous);
        }
        take_back(&now, change, tree)
    })
}

fn take_back(now: &PathState, change: &ChangedFile, tree: &mut dyn Tree) -> Result<PathState, Left> {
    let (before, after) = (change.before.as_ref(), change.after.as_ref());
    if now.holds(after) {
        let Some(image) = before else { return Ok(PathState::Missing) };
        let mode = match (now, after) {
            // Whoever changed the permissions since keeps them.
            (PathState::File { mode, .. }, Some(after)) if *mode != after.mode => *mode,
            _ => image.mode,
        };
        return match now {
            PathState::File { sha, bytes, .. } if sha == image.content.sha() => {
                Ok(PathState::File { sha: sha.clone(), mode, bytes: bytes.clone() })
            }
            _ => Ok(PathState::file(tree.content(image).ok_or(Left::NotCovered)?, mode)),
        };
    }
    if now.holds(before) {
        return Ok(now.clone());
    }
    let is_unknown = |image: Option<&FileImage>| image.is_some_and(|image| image.content.sha().is_empty());
    if is_unknown(before) || is_unknown(after) {
        return Err(Left::NotCovered);
    }
    let conflict = |why: &str| Err(Left::Conflict(why.to_owned()));
    match (now, before, after) {
        (PathState::Other(what), ..) => conflict(&format!("it is {what} now")),
        (PathState::Missing, ..) => conflict("it was removed since"),
        (PathState::File { .. }, _, None) => conflict("there is another file now"),
        (PathState::File { .. }, None, _) => conflict("it was made by the session and changed since"),
        (PathState::File { mode, bytes, .. }, Some(before), Some(after)) => {
            let Some(theirs) = bytes else { return conflict("it changed since and is too large to merge") };
            if mode & TYPE != before.mode & TYPE || mode & TYPE != after.mode & TYPE {
                return conflict("it is of another kind now");
            }
            let old = tree.content(before).ok_or(Left::NotCovered)?;
            let base = tree.content(after).ok_or(Left::NotCovered)?;
            match merge::merge(&base, theirs, &old) {
                Some(merged) => {
                    let mode = if *mode == after.mode { before.mode } else { *mode };
                    Ok(PathState::file(merged.into(), mode))
                }
                None => conflict("the same lines changed since"),
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! The folders of a workspace: which are there, and how they differ from those of the last look.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::walk::Seen;
use super::{State, TreeIndex, folder_of};
use crate::state::FolderWrite;

/// A folder at the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FolderFacts {
    /// Permission bits.
    pub(super) mode: u32,
    /// Git ignores it: nobody is told of it.
    pub(super) is_ignored: bool,
}

/// By path from the workspace on, each ending in a slash; without the workspace itself.
pub(super) type Folders = BTreeMap<Box<[u8]>, FolderFacts>;

/// The folders that differ from the last look, and how they were.
pub(super) type DifferingFolders = BTreeMap<Box<[u8]>, Option<FolderFacts>>;

/// The folders at `folder` and below it. Its path is empty or ends in a slash.
pub(super) fn below<'a>(
    folders: &'a Folders,
    folder: &[u8],
) -> impl Iterator<Item = (&'a Box<[u8]>, &'a FolderFacts)> {
    let folder: Box<[u8]> = folder.into();
    folders.range(folder.clone()..).take_while(move |(path, _)| path.starts_with(&folder))
}

impl Seen {
    /// What differs from the last look.
    fn folder_differences(&self, old: &Folders) -> DifferingFolders {
        let mut differing = DifferingFolders::new();
        let mut gone = |from: &[u8]| {
            let gone = below(old, from).filter(|(path, _)| !self.inner.contains_key(*path));
            differing.extend(gone.map(|(path, facts)| (path.clone(), Some(*facts))));
        };
        self.whole.iter().for_each(|folder| gone(folder));
        for (folder, inner) in &self.folders {
            let mut from = Bound::Excluded(folder.clone().into_boxed_slice());
            while let Some((path, _)) = old.range((from, Bound::Unbounded)).next()
                && let Some(name) = path.strip_prefix(folder.as_slice())
                && let Some(slash) = name.iter().position(|byte| *byte == b'/')
            {
                let way = path.get(..=folder.len() + slash).unwrap_or_default();
                if !inner.contains(way) {
                    gone(way);
                }
                // Behind all that lies below it: what follows a slash is a zero.
                let behind = [path.get(..folder.len() + slash).unwrap_or_default(), b"0"].concat();
                from = Bound::Included(behind.into_boxed_slice());
            }
        }
        for (path, now) in &self.inner {
            match old.get(path) {
                Some(was) if was.mode == now.mode => {}
                was => drop(differing.insert(path.clone(), was.copied())),
            }
        }
        differing
    }
}

impl State {
    /// Takes the folders that a look saw, and gives those that differ.
    pub(super) fn take_folders(&mut self, seen: &mut Seen, is_all: bool) -> DifferingFolders {
        let mut differing = seen.folder_differences(&self.folders);
        let mut inner = std::mem::take(&mut seen.inner);
        // A tool that makes or removes one says so itself.
        for path in self.held.keys() {
            let mut folder = [path, b"/".as_slice()].concat();
            while !folder.is_empty() {
                if let Some(was) = differing.remove(folder.as_slice()) {
                    match was {
                        Some(was) => drop(inner.insert(folder.as_slice().into(), was)),
                        None => drop(inner.remove(folder.as_slice())),
                    }
                }
                folder.pop();
                folder.truncate(folder_of(&folder).len());
            }
        }
        if is_all {
            self.folders = inner;
        } else {
            for path in differing.keys() {
                self.folders.remove(path);
            }
            self.folders.extend(inner);
        }
        differing.retain(|path, was| {
            let now = self.folders.get(path);
            !was.iter().chain(now).any(|facts| facts.is_ignored)
        });
        differing
    }
}

impl TreeIndex {
    /// Notes folders that a tool made or removed: no command did.
    pub(super) fn tool_changed(&self, state: &mut State, folders: &[FolderWrite]) {
        if state.files.is_none() {
            return;
        }
        for folder in folders {
            let Some(key) = self.key(&folder.path) else { continue };
            let key = [&*key, b"/"].concat().into_boxed_slice();
            match folder.after {
                Some(mode) => {
                    // One that git ignores is not told of later either: the tool has told.
                    state.folders.insert(key, FolderFacts { mode, is_ignored: false });
                }
                None => drop(state.folders.remove(&key)),
            }
        }
    }
}

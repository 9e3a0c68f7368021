//! Files that git does not know and does not ignore.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::FileType;

use super::RepositoryError;
use super::objects::Objects;
use super::stand_in::LONGEST_LIST;
use playhouse_sandbox::folder::Folder;

/// Names that are looked at, and folders in each other.
const MOST_NAMES: usize = 1_000_000;
const DEEPEST: usize = 128;

/// Looks for them.
pub(super) struct Search<'a> {
    /// Paths that git knows.
    pub(super) known: &'a HashSet<Vec<u8>>,
    /// Says when the time is over.
    pub(super) objects: &'a Objects,
    /// What was found: paths from the worktree on.
    pub(super) found: Vec<Vec<u8>>,
    /// Names that may still be looked at.
    left: usize,
}

/// The rules of the folders from the worktree on, the outermost first.
pub(crate) type Rules = Vec<Gitignore>;

impl<'a> Search<'a> {
    pub(super) fn new(known: &'a HashSet<Vec<u8>>, objects: &'a Objects) -> Self {
        Self { known, objects, found: Vec::new(), left: MOST_NAMES }
    }

    /// Looks in the folder `within` of a worktree, which is empty or ends in a slash. `exclude` are rules for the whole of it.
    pub(super) fn run(
        &mut self,
        worktree: &Folder,
        within: &[u8],
        exclude: Option<&str>,
    ) -> Result<(), RepositoryError> {
        let mut rules = vec![rules(Path::new(""), exclude.unwrap_or_default())];
        let mut folder = worktree.below(Path::new(""))?;
        let mut path = Vec::new();
        for name in within.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            rules.push(rules_in(&folder, &path));
            path.extend_from_slice(name);
            if is_ignored(&rules, &path, true) || is_repository(&folder, name) {
                return Ok(());
            }
            folder = folder.below(Path::new(OsStr::from_bytes(name)))?;
            path.push(b'/');
        }
        self.folder(&folder, &path, &mut rules, 0)
    }

    fn folder(
        &mut self,
        folder: &Folder,
        path: &[u8],
        rules: &mut Rules,
        depth: usize,
    ) -> Result<(), RepositoryError> {
        self.objects.in_time()?;
        rules.push(rules_in(folder, path));
        // One that may not be read has nothing to tell.
        let mut names = folder.names(self.left).unwrap_or_default();
        names.sort();
        self.left = self.left.checked_sub(names.len() + 1).ok_or(RepositoryError::TooMuch)?;
        for name in names.iter().filter(|name| *name != ".git") {
            let path = [path, name.as_bytes()].concat();
            let Ok(facts) = folder.facts(name) else { continue };
            match FileType::from_raw_mode(facts.st_mode) {
                FileType::RegularFile | FileType::Symlink
                    if !self.known.contains(&path) && !is_ignored(rules, &path, false) =>
                {
                    self.found.push(path);
                }
                // Of a submodule its own repository tells.
                FileType::Directory if depth < DEEPEST && !self.known.contains(&path) => {
                    if is_ignored(rules, &path, true) || is_repository(folder, name.as_bytes()) {
                        continue;
                    }
                    let Ok(inner) = folder.below(Path::new(name)) else { continue };
                    self.folder(&inner, &[&path, &b"/"[..]].concat(), rules, depth + 1)?;
                }
                _ => {}
            }
        }
        rules.pop();
        Ok(())
    }
}

/// Whether a folder is another repository.
fn is_repository(folder: &Folder, name: &[u8]) -> bool {
    let inner = folder.below(Path::new(OsStr::from_bytes(name)));
    inner.is_ok_and(|inner| inner.facts(".git".as_ref()).is_ok())
}

/// The rules of a folder, at a path from the worktree on that is empty or ends in a slash.
pub(crate) fn rules_in(folder: &Folder, path: &[u8]) -> Gitignore {
    let bytes = folder.bytes(".gitignore", LONGEST_LIST).unwrap_or_default();
    rules(Path::new(OsStr::from_bytes(path)), &String::from_utf8_lossy(&bytes))
}

/// The rules that a file says which lies in a folder.
pub(crate) fn rules(folder: &Path, text: &str) -> Gitignore {
    let mut builder = GitignoreBuilder::new(Path::new("/").join(folder));
    for line in text.trim_start_matches('\u{feff}').lines() {
        // One that cannot be read is left out, as git does.
        let _ = builder.add_line(None, line);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

/// The innermost folder that says something counts.
pub(crate) fn is_ignored(rules: &Rules, path: &[u8], is_folder: bool) -> bool {
    let path = Path::new("/").join(OsStr::from_bytes(path));
    let said = rules.iter().rev().map(|rules| rules.matched(&path, is_folder));
    matches!(said.into_iter().find(|said| !said.is_none()), Some(Match::Ignore(_)))
}

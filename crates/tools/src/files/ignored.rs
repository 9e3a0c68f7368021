//! What `.gitignore` and `.ignore` files say.
//!
//! The files come from the workspace, which nobody vouches for. So they are read through open handles, never through a
//! link, never when they are pipes, and only up to a size; and only those inside the workspace count, so that what
//! lies in a home directory around it has no say.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::directory::Directory;

/// Bytes of an ignore file that are read.
const LARGEST: u64 = 128 * 1024;

/// The rules of a directory and, through its parents, of all directories around it.
#[derive(Debug)]
pub(crate) struct Rules {
    parent: Option<Arc<Rules>>,
    ignore: Gitignore,
    gitignore: Gitignore,
    exclude: Gitignore,
    is_repository: bool,
}

impl Rules {
    /// The rules that hold in `directory`, which lies at `path` (from `/`, the root of the walk's tree).
    ///
    /// `has` tells which names it holds. Gives `parent` itself where the directory adds nothing.
    pub(crate) fn within(
        directory: &Directory,
        path: &Path,
        has: &dyn Fn(&str) -> bool,
        parent: Option<Arc<Self>>,
    ) -> Option<Arc<Self>> {
        let is_repository = has(".git");
        if !is_repository && !has(".gitignore") && !has(".ignore") {
            return parent;
        }
        let file = |name| if has(name) { load(directory, path, name) } else { Gitignore::empty() };
        let exclude = if is_repository {
            let info = directory.child(OsStr::new(".git")).and_then(|git| git.child(OsStr::new("info")));
            info.map_or_else(|_| Gitignore::empty(), |info| load(&info, path, "exclude"))
        } else {
            Gitignore::empty()
        };
        Some(Arc::new(Self {
            ignore: file(".ignore"),
            gitignore: file(".gitignore"),
            exclude,
            is_repository,
            parent,
        }))
    }

    /// Whether `path` (from the same `/`) is to be left out. What a directory nearer to it says counts more, and
    /// `.ignore` counts more than `.gitignore`, which counts more than `.git/info/exclude`.
    pub(crate) fn ignores(&self, path: &Path, is_directory: bool) -> bool {
        let mut gitignore = Match::None;
        let mut exclude = Match::None;
        let mut inside_repository = true;
        let mut rules = Some(self);
        while let Some(here) = rules {
            match here.ignore.matched(path, is_directory) {
                Match::None => {}
                found => return found.is_ignore(),
            }
            if inside_repository {
                if gitignore.is_none() {
                    gitignore = here.gitignore.matched(path, is_directory);
                }
                if exclude.is_none() {
                    exclude = here.exclude.matched(path, is_directory);
                }
                // A repository inside another one has rules of its own.
                inside_repository = !here.is_repository;
            }
            rules = here.parent.as_deref();
        }
        if gitignore.is_none() { exclude.is_ignore() } else { gitignore.is_ignore() }
    }
}

fn load(directory: &Directory, path: &Path, name: &str) -> Gitignore {
    let mut bytes = Vec::new();
    let read = directory.open(OsStr::new(name)).and_then(|file| file.take(LARGEST).read_to_end(&mut bytes));
    if read.is_err() {
        return Gitignore::empty();
    }
    let mut builder = GitignoreBuilder::new(path);
    for line in String::from_utf8_lossy(&bytes).trim_start_matches('\u{feff}').lines() {
        // A rule that cannot be read is left out, as git does.
        let _ = builder.add_line(None::<PathBuf>, line);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

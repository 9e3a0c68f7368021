//! What `.gitignore`, `.ignore` and `.rgignore` files say.
//!
//! The files come from the workspace, which nobody vouches for. So they are read through open handles, never through a
//! link, never when they are pipes, and only up to a size. Only those inside the workspace count, whether or not it is a
//! repository: what lies in a home directory around it, and the user's global excludes, belong to whoever runs the
//! engine and not to the session, and would make the same tree look different from machine to machine.

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
    rgignore: Gitignore,
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
        if !is_repository && ![".gitignore", ".ignore", ".rgignore"].into_iter().any(has) {
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
            rgignore: file(".rgignore"),
            ignore: file(".ignore"),
            gitignore: file(".gitignore"),
            exclude,
            is_repository,
            parent,
        }))
    }

    /// What is said of `path` (from the same `/`): that it is to be left out, that it is to be shown, or nothing.
    ///
    /// `.rgignore` counts more than `.ignore`, which counts more than `.gitignore`, which counts more than
    /// `.git/info/exclude`; of files of one name, the one nearest to the path counts most.
    pub(crate) fn ignores(&self, path: &Path, is_directory: bool) -> Option<bool> {
        let mut said = [const { None }; 4];
        let mut inside_repository = true;
        let mut rules = Some(self);
        while let Some(here) = rules {
            let files = [&here.rgignore, &here.ignore, &here.gitignore, &here.exclude];
            // A repository inside another one has rules of its own.
            let count = if inside_repository { 4 } else { 2 };
            for (said, file) in said.iter_mut().zip(files).take(count) {
                if said.is_none() {
                    *said = match file.matched(path, is_directory) {
                        Match::None => None,
                        found => Some(found.is_ignore()),
                    };
                }
            }
            if said[0].is_some() {
                break;
            }
            inside_repository &= !here.is_repository;
            rules = here.parent.as_deref();
        }
        said.into_iter().flatten().next()
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

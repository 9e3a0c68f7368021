//! Paths that others write, followed without looking at anything outside of some directories.
//!
//! Whether a path leads to something can be told from an answer, and from an error as well. So of what lies outside nothing
//! is asked: not even whether a link, or a way up, goes through something that exists.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use crate::door::{self, Kind};
use playhouse_sandbox::folder::Folder;

/// The most links in one path, as in Linux.
const MOST_LINKS: usize = 40;

/// Why a path leads to nothing within some directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strayed {
    /// It leads out of them.
    Outside,
    /// There is nothing, or it goes through a file or in a circle.
    Missing,
}

/// Where the absolute `path` leads, links followed. `roots` are absolute, links resolved, and are there. Blocks.
///
/// ```
/// use playhouse_workspace::{Strayed, follow_within};
///
/// let folder = tempfile::tempdir().unwrap();
/// let root = folder.path().canonicalize().unwrap();
/// std::os::unix::fs::symlink("..", root.join("up")).unwrap();
/// let roots = [root.clone()];
/// assert_eq!(follow_within(&root, &roots), Ok(root.clone()));
/// assert_eq!(follow_within(&root.join("up"), &roots), Err(Strayed::Outside));
/// assert_eq!(follow_within(&root.join("nothing"), &roots), Err(Strayed::Missing));
/// ```
///
/// # Errors
/// It leads elsewhere, or nowhere.
pub fn follow_within(path: &Path, roots: &[PathBuf]) -> Result<PathBuf, Strayed> {
    let is_within = |path: &Path| roots.iter().any(|root| path.starts_with(root));
    let is_above = |path: &Path| roots.iter().any(|root| root.starts_with(path));
    // Free of links.
    let mut place = PathBuf::from("/");
    let mut links = 0;
    // The next one is the last.
    let mut steps = steps(path);
    while let Some(step) = steps.pop() {
        let Step::Down(name) = step else {
            match step {
                Step::Root => place = PathBuf::from("/"),
                _ => {
                    place.pop();
                }
            }
            continue;
        };
        let next = place.join(OsStr::from_bytes(&name));
        if is_above(&next) {
            place = next;
            continue;
        }
        if !is_within(&next) {
            return Err(Strayed::Outside);
        }
        let facts = door::facts_at(&next).ok().flatten().ok_or(Strayed::Missing)?;
        match facts.kind {
            Kind::Link => {
                links += 1;
                let target = Folder::open(&place).and_then(|folder| folder.link(OsStr::from_bytes(&name)));
                let target = target.ok().filter(|_| links <= MOST_LINKS).ok_or(Strayed::Missing)?;
                steps.extend(self::steps(Path::new(OsStr::from_bytes(&target))));
            }
            Kind::Directory => place = next,
            _ if steps.is_empty() => place = next,
            _ => return Err(Strayed::Missing),
        }
    }
    if is_within(&place) { Ok(place) } else { Err(Strayed::Outside) }
}

/// A step on the way.
enum Step {
    Root,
    Up,
    Down(Vec<u8>),
}

/// The steps of a path, the last one first.
fn steps(path: &Path) -> Vec<Step> {
    let step = |component| match component {
        Component::RootDir => Some(Step::Root),
        Component::ParentDir => Some(Step::Up),
        Component::Normal(name) => Some(Step::Down(name.as_bytes().to_vec())),
        Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(step).collect()
}

#[cfg(test)]
mod tests {
    use fs_err::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_within_and_nothing_is_told_of_what_lies_outside() {
        let folder = tempfile::tempdir().unwrap();
        let top = fs_err::canonicalize(folder.path()).unwrap();
        for path in ["root/a/deep", "outside/there"] {
            fs_err::create_dir_all(top.join(path)).unwrap();
        }
        fs_err::write(top.join("root/file"), "").unwrap();
        let root = top.join("root");
        let link = |name: &str, target: &Path| symlink(target, root.join(name)).unwrap();
        link("short", Path::new("a/deep"));
        link("far", &root.join("a"));
        link("circle", Path::new("circle"));
        for there in ["there", "nowhere"] {
            let outside = top.join("outside").join(there);
            link(there, &outside);
            link(&format!("{there}-and-back"), &outside.join("../../root/a"));
            link(&format!("{there}-up"), &Path::new("../outside").join(there));
        }
        let follow = |path: &str| follow_within(&root.join(path), std::slice::from_ref(&root));
        for (path, expected) in [
            ("", ""),
            ("a/../a/deep", "a/deep"),
            ("short", "a/deep"),
            ("far/deep/..", "a"),
            ("file", "file"),
            ("../root/a", "a"),
        ] {
            assert_eq!(follow(path), Ok(root.join(expected).components().collect()), "{path}");
        }
        for path in ["missing", "circle", "file/below", "a/missing/.."] {
            assert_eq!(follow(path), Err(Strayed::Missing), "{path}");
        }
        for there in ["there", "nowhere"] {
            for path in ["", "-and-back", "-up", "/..", "/more"] {
                assert_eq!(follow(&format!("{there}{path}")), Err(Strayed::Outside), "{there}{path}");
            }
            for path in ["../outside/", "../outside/../outside/"] {
                let path = format!("{path}{there}/../../root");
                assert_eq!(follow(&path), Err(Strayed::Outside), "{path}");
            }
        }
        assert_eq!(follow(".."), Err(Strayed::Outside));
    }
}

//! Where a session works, as the wire tells it: a directory of a project.

use std::path::Path;
use std::sync::Arc;

use playhouse_actors::is_kept;
use sha2::{Digest as _, Sha256};

/// Digits of a project's id: as many as a commit has.
const ID_DIGITS: usize = 40;

/// A directory, and the project that it belongs to: the nearest directory above it that git keeps, or itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) directory: Arc<str>,
    /// The project's own directory.
    pub(crate) worktree: Arc<str>,
    /// The project's id: made from the path of its directory, so that it stays the same.
    pub(crate) project: Arc<str>,
    /// Whether git keeps the project.
    pub(crate) git: bool,
    /// When the project's directory was made, in milliseconds since the epoch, as far as the system knows.
    pub(crate) created: u64,
}

impl Place {
    /// The place of a directory that was admitted. Nothing above `roots` is looked at. Blocks.
    pub(crate) fn find(directory: &str, is_below_roots: impl Fn(&Path) -> bool) -> Self {
        let path = Path::new(directory);
        let kept = path.ancestors().take_while(|above| is_below_roots(above));
        let worktree = kept.into_iter().find(|above| is_kept(above, &is_below_roots));
        let git = worktree.is_some();
        let worktree = worktree.unwrap_or(path);
        let made = fs_err::metadata(worktree).ok();
        let made = made.and_then(|made| made.created().or_else(|_| made.modified()).ok());
        let made = made.and_then(|made| made.duration_since(std::time::UNIX_EPOCH).ok());
        Self::new(directory, &worktree.to_string_lossy(), git, made.map_or(0, |made| millis(&made)))
    }

    /// The place of a directory in a project.
    pub(crate) fn new(directory: &str, worktree: &str, git: bool, created: u64) -> Self {
        let digest = Sha256::digest(worktree.as_bytes());
        let id: String =
            digest.iter().flat_map(|byte| [byte >> 4, byte & 15]).take(ID_DIGITS).map(digit).collect();
        Self { directory: directory.into(), worktree: worktree.into(), project: id.into(), git, created }
    }

    /// The directory from the worktree on; empty for the worktree itself.
    pub(crate) fn path(&self) -> &str {
        let below = self.directory.strip_prefix(&*self.worktree).unwrap_or_default();
        below.strip_prefix('/').unwrap_or(below)
    }
}

fn digit(nibble: u8) -> char {
    char::from_digit(u32::from(nibble), 16).unwrap_or('0')
}

fn millis(time: &std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_the_nearest_directory_that_git_keeps() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let deep = root.join("project/src/deep");
        fs_err::create_dir_all(&deep).unwrap();
        let below = |path: &Path| path.starts_with(&root);
        let none = Place::find(deep.to_str().unwrap(), below);
        assert_eq!((&*none.worktree, none.git, none.path()), (deep.to_str().unwrap(), false, ""));
        fs_err::create_dir(root.join("project/.git")).unwrap();
        let found = Place::find(deep.to_str().unwrap(), below);
        assert_eq!(&*found.worktree, root.join("project").to_str().unwrap());
        assert_eq!((found.git, found.path(), found.project.len()), (true, "src/deep", 40));
        assert_ne!(found.project, none.project);
        // What lies above the roots is nobody's business.
        let narrow = Place::find(deep.to_str().unwrap(), |path| path.starts_with(&deep));
        assert!(!narrow.git);
    }

    #[test]
    fn a_link_that_leads_out_does_not_tell_whether_anything_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        let root = top.join("root");
        fs_err::create_dir_all(root.join("project")).unwrap();
        fs_err::create_dir_all(root.join("store/git")).unwrap();
        fs_err::create_dir_all(top.join("outside")).unwrap();
        let dot = root.join("project/.git");
        let is_kept = |target: &Path| {
            fs_err::os::unix::fs::symlink(target, &dot).unwrap();
            let place = Place::find(dot.parent().unwrap().to_str().unwrap(), |path| path.starts_with(&root));
            fs_err::remove_file(&dot).unwrap();
            place.git
        };
        assert!(is_kept(&root.join("store/git")) && is_kept(Path::new("../store/git")));
        for there in ["outside", "nowhere"] {
            assert!(!is_kept(&top.join(there)), "{there}");
            assert!(!is_kept(&top.join(there).join("../root/store/missing")), "{there}");
        }
        let back = |there: &str| is_kept(&top.join(there).join("../root/store/git"));
        assert_eq!(back("outside"), back("nowhere"));
    }
}

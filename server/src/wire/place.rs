//! Where a session works, as the wire tells it: a directory of a project.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

/// The most bytes of `.git/HEAD` and of a `.git` file that are read.
const LONGEST_HEAD: u64 = 4_096;
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
        let worktree = kept.into_iter().find(|above| above.join(".git").exists());
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

    /// The branch that is checked out. Blocks.
    pub(crate) fn branch(&self, is_below_roots: impl Fn(&Path) -> bool) -> Option<String> {
        if !self.git {
            return None;
        }
        let worktree = Path::new(&*self.worktree);
        let mut folder = worktree.join(".git");
        if folder.is_file() {
            // That of a further worktree or a submodule says where the folder is.
            let text = read_short(&folder, &is_below_roots)?;
            folder = worktree.join(text.strip_prefix("gitdir:")?.trim());
        }
        let head = read_short(&folder.join("HEAD"), &is_below_roots)?;
        Some(head.trim().strip_prefix("ref: refs/heads/")?.to_owned())
    }
}

fn digit(nibble: u8) -> char {
    char::from_digit(u32::from(nibble), 16).unwrap_or('0')
}

fn millis(time: &std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A short text file; one that a link leads to outside of the roots is not read.
fn read_short(path: &Path, is_below_roots: &impl Fn(&Path) -> bool) -> Option<String> {
    use std::io::Read as _;
    let path: PathBuf = fs_err::canonicalize(path).ok()?;
    if !is_below_roots(&path) || !path.is_file() {
        return None;
    }
    let mut text = String::new();
    fs_err::File::open(path).ok()?.take(LONGEST_HEAD).read_to_string(&mut text).ok()?;
    Some(text)
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
        assert_eq!(none.branch(below), None);
        fs_err::create_dir(root.join("project/.git")).unwrap();
        fs_err::write(root.join("project/.git/HEAD"), "ref: refs/heads/feature/x\n").unwrap();
        let found = Place::find(deep.to_str().unwrap(), below);
        assert_eq!(&*found.worktree, root.join("project").to_str().unwrap());
        assert_eq!((found.git, found.path(), found.project.len()), (true, "src/deep", 40));
        assert_eq!(found.branch(below).as_deref(), Some("feature/x"));
        assert_ne!(found.project, none.project);
        // What lies above the roots is nobody's business.
        let narrow = Place::find(deep.to_str().unwrap(), |path| path.starts_with(&deep));
        assert!(!narrow.git);
        assert_eq!(found.branch(|path| path.starts_with(&deep)), None);
    }
}

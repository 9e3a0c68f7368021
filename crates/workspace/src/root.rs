//! The directory that a session works in.

use std::io;
use std::path::{Path, PathBuf};

use playhouse_policy::Zone;
use thiserror::Error;

use crate::resolve::{self, PathError, Resolved};

/// The directory that a session works in, and the folder that keeps its long outputs. Holds no file open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// Absolute, links resolved, UTF-8.
    root: PathBuf,
    /// Absolute, links resolved as far as it exists, UTF-8.
    output: PathBuf,
}

/// Why a directory cannot be a workspace.
#[derive(Debug, Error)]
pub enum WorkspaceError {
    /// There is nothing.
    #[error("the workspace {path} does not exist: create it, or name another directory")]
    Missing {
        /// The path as it was given.
        path: PathBuf,
    },
    /// There is something else.
    #[error("the workspace {path} is not a directory: name the directory that holds it")]
    NotDirectory {
        /// The path as it was given.
        path: PathBuf,
    },
    /// Paths travel as JSON, which has no place for other bytes.
    #[error(
        "the path of the workspace {path:?} is not valid UTF-8: rename the directory, or use another one"
    )]
    NotUtf8 {
        /// The path, links resolved.
        path: PathBuf,
    },
    /// It cannot be listed.
    #[error(
        "the workspace {path} cannot be read: {source}. Check its permissions, and those of the directories above it"
    )]
    Unreadable {
        /// The path as it was given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The folder of saved outputs has no usable path.
    #[error("the folder for saved outputs cannot be used: {0}")]
    Output(#[from] PathError),
}

impl Workspace {
    /// The workspace at `root`, with `output` as the folder of saved outputs, which need not exist yet.
    ///
    /// # Errors
    /// When `root` does not exist, is not a directory, cannot be listed, or has a path that is not UTF-8, and when
    /// `output` leads nowhere.
    pub fn open(root: &Path, output: PathBuf) -> Result<Self, WorkspaceError> {
        let unreadable = |source| WorkspaceError::Unreadable { path: root.to_owned(), source };
        let canonical = match fs_err::canonicalize(root) {
            Ok(canonical) => canonical,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(WorkspaceError::Missing { path: root.to_owned() });
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(WorkspaceError::NotDirectory { path: root.to_owned() });
            }
            Err(error) => return Err(unreadable(error)),
        };
        if canonical.to_str().is_none() {
            return Err(WorkspaceError::NotUtf8 { path: canonical });
        }
        match fs_err::read_dir(&canonical) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(WorkspaceError::NotDirectory { path: root.to_owned() });
            }
            Err(error) => return Err(unreadable(error)),
        }
        // Relative to this process, unlike the paths of calls.
        let output = std::path::absolute(output).map_err(|_| PathError::Empty)?;
        let output = resolve::follow(&canonical, &output)?;
        Ok(Self { root: canonical, output })
    }

    /// The directory: absolute, links resolved, UTF-8.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of this session's saved outputs: absolute, UTF-8. It may not exist yet.
    pub fn output(&self) -> &Path {
        &self.output
    }

    /// Where `path` leads: relative paths start at the root, all links are followed, and the end of the path may not
    /// exist yet. Reads the file system, so it belongs into the [`Pool`](crate::Pool).
    ///
    /// # Errors
    /// When the path is empty, too long, holds a NUL byte, goes through a file, a loop of links or a directory that may
    /// not be searched, or leads to a place whose path is not UTF-8.
    pub fn resolve(&self, path: &str) -> Result<Resolved, PathError> {
        resolve::check(path)?;
        let resolved = resolve::follow(&self.root, Path::new(path))?;
        Ok(self.place(resolved))
    }

    /// The same for a path that a walk from a resolved directory came to without following links. Asks the file system
    /// nothing: the [`door`](crate::door) finds out if there is a link on the way after all.
    ///
    /// # Errors
    /// When the path is not absolute, not UTF-8, or holds `..`.
    pub fn walked(&self, path: &Path) -> Result<Resolved, PathError> {
        resolve::check_walked(path)?;
        Ok(self.place(path.to_owned()))
    }

    fn place(&self, path: PathBuf) -> Resolved {
        let zone = self.zone(&path);
        let shown = match path.strip_prefix(&self.root) {
            Ok(relative) if relative.as_os_str().is_empty() => ".".to_owned(),
            Ok(relative) => relative.to_string_lossy().into_owned(),
            Err(_) => path.to_string_lossy().into_owned(),
        };
        Resolved { path, zone, shown }
    }

    /// One of the two folders may lie in the other; the inner one counts.
    fn zone(&self, path: &Path) -> Zone {
        let output_is_inner = self.output.starts_with(&self.root);
        match (path.starts_with(&self.root), path.starts_with(&self.output)) {
            (true, true) if output_is_inner => Zone::Output,
            (true, _) => Zone::Workspace,
            (false, true) => Zone::Output,
            (false, false) => Zone::Outside,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(root: &Path) -> String {
        Workspace::open(root, PathBuf::from("/nowhere/out")).unwrap_err().to_string()
    }

    #[test]
    fn a_directory_that_cannot_be_one_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        assert!(error(&missing).contains("missing does not exist"), "{}", error(&missing));
        let file = folder.path().join("file");
        fs_err::write(&file, "").unwrap();
        assert!(error(&file).contains("file is not a directory"), "{}", error(&file));
        let below = file.join("below");
        assert!(error(&below).contains("is not a directory"), "{}", error(&below));
    }

    #[test]
    fn a_root_with_other_bytes_is_refused() {
        use std::os::unix::ffi::OsStrExt;
        let folder = tempfile::tempdir().unwrap();
        let odd = folder.path().join(std::ffi::OsStr::from_bytes(b"\xff\xfe"));
        fs_err::create_dir(&odd).unwrap();
        let link = folder.path().join("link");
        fs_err::os::unix::fs::symlink(&odd, &link).unwrap();
        assert!(error(&link).contains("not valid UTF-8"), "{}", error(&link));
    }

    #[test]
    fn the_inner_of_two_nested_folders_counts() {
        let folder = tempfile::tempdir().unwrap();
        let outer = Workspace::open(folder.path(), folder.path().join("outputs")).unwrap();
        assert_eq!(outer.resolve("outputs/a").unwrap().zone, Zone::Output);
        assert_eq!(outer.resolve("a").unwrap().zone, Zone::Workspace);
        fs_err::create_dir(folder.path().join("inner")).unwrap();
        let inner = Workspace::open(&folder.path().join("inner"), folder.path().to_owned()).unwrap();
        assert_eq!(inner.resolve("a").unwrap().zone, Zone::Workspace);
        assert_eq!(inner.resolve("../a").unwrap().zone, Zone::Output);
        assert_eq!(inner.resolve("..").unwrap().zone, Zone::Output);
    }
}

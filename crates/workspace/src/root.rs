//! The directory that a session works in.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use playhouse_policy::Zone;
use playhouse_sandbox::DirectoryError;
use thiserror::Error;

use crate::at_once;
use crate::door;
use crate::guarded;
use crate::resolve::{self, PathError, Resolved};

/// The directory that a session works in, and the folder that keeps its long outputs. Holds no file open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// Absolute, links resolved, UTF-8.
    root: Arc<Path>,
    /// Absolute, links resolved as far as it exists, UTF-8.
    output: Arc<Path>,
    /// Folders of outputs that other sessions saved and this one may read: as `output`.
    shared: Arc<[PathBuf]>,
    /// Directories and files of the engine's own: absolute, links resolved as far as they exist.
    hidden: Arc<[PathBuf]>,
    /// Git directories of this repository that need not have that name.
    git: Arc<[PathBuf]>,
}

/// Why a directory cannot be a workspace.
#[derive(Debug, Error)]
pub enum WorkspaceError {
    /// It is gone, cannot be read, or was replaced.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
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
        let unreadable = |source| DirectoryError::Unreadable { path: root.to_owned(), source };
        let canonical = match fs_err::canonicalize(root) {
            Ok(canonical) => canonical,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(DirectoryError::Missing { path: root.to_owned() }.into());
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(WorkspaceError::NotDirectory { path: root.to_owned() });
            }
            Err(error) => return Err(unreadable(error).into()),
        };
        if canonical.to_str().is_none() {
            return Err(WorkspaceError::NotUtf8 { path: canonical });
        }
        match fs_err::read_dir(&canonical) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(WorkspaceError::NotDirectory { path: root.to_owned() });
            }
            Err(error) => return Err(unreadable(error).into()),
        }
        // Relative to this process, unlike the paths of calls.
        let output = std::path::absolute(output).map_err(|_| PathError::Empty)?;
        let output = resolve::follow(&canonical, &output)?;
        let git = guarded::directories_of(&canonical).into();
        #[cfg(target_os = "linux")]
        for path in [&canonical, &output] {
            at_once::note_local(path);
        }
        Ok(Self {
            root: canonical.into(),
            output: output.into(),
            shared: Arc::default(),
            hidden: Arc::default(),
            git,
        })
    }

    /// The workspace at `root` that was opened before: a path without links, which still has to be one. Whoever could change
    /// what lies above a workspace would else choose what it is.
    ///
    /// # Errors
    /// As for [`Workspace::open`], and when a part of `root` is a link by now.
    pub fn reopen(root: &Path, output: PathBuf) -> Result<Self, WorkspaceError> {
        let workspace = Self::open(root, output)?;
        // What the links led to is not told.
        if workspace.root() != root {
            return Err(DirectoryError::Replaced { path: root.to_owned() }.into());
        }
        workspace.check()?;
        Ok(workspace)
    }

    /// Makes sure that the directory is still where it was, without a link on the way. Blocks.
    ///
    /// # Errors
    /// It is not.
    pub fn check(&self) -> Result<(), WorkspaceError> {
        door::hold(&self.root).map(drop).map_err(|error| DirectoryError::of(&self.root, error).into())
    }

    /// The same, where the outputs that other sessions saved in these folders may be read as its own: those whose records a
    /// fork shares. They need not exist. Asks the file system where their links lead.
    #[must_use]
    pub fn sharing(mut self, outputs: Vec<PathBuf>) -> Self {
        let place = |path: PathBuf| {
            let path = std::path::absolute(&path).ok()?;
            resolve::follow(&self.root, &path).ok()
        };
        self.shared = outputs.into_iter().filter_map(place).collect();
        self
    }

    /// The same, where nothing at these paths or below them is ever read or changed: directories and files of the engine's
    /// own, such as its data and its configuration. They need not exist. A workspace or a folder of saved outputs within
    /// them stays what it is: the inner one counts. Asks the file system where their links lead.
    ///
    /// ```
    /// use playhouse_policy::Zone;
    /// use playhouse_workspace::Workspace;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let folder = tempfile::tempdir()?;
    /// let data = folder.path().join("data");
    /// let workspace = Workspace::open(folder.path(), data.join("outputs"))?.hiding(vec![data]);
    /// assert_eq!(workspace.resolve("data/keys")?.zone, Zone::Hidden);
    /// assert_eq!(workspace.resolve("data/outputs/1")?.zone, Zone::Output);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn hiding(mut self, paths: Vec<PathBuf>) -> Self {
        let place = |path: PathBuf| {
            // One that leads nowhere is hidden as it is written.
            let path = std::path::absolute(&path).unwrap_or(path);
            resolve::follow(&self.root, &path).unwrap_or(path)
        };
        self.hidden = paths.into_iter().map(place).collect();
        self
    }

    /// Whether a walk from `directory`, which is resolved, may come to something hidden: then each place that it comes to has
    /// to be looked at with [`walked`](Self::walked).
    pub fn may_hide_below(&self, directory: &Path) -> bool {
        let processes = Path::new("/proc");
        processes.starts_with(directory)
            || directory.starts_with(processes)
            || self.hidden.iter().any(|hidden| lies_in(hidden, directory))
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
        let path = Path::new(path);
        // What lies above the workspace is looked at by `check`, and may lie on other file systems.
        let below = path.strip_prefix(&self.root).ok().filter(|_| at_once::is_on());
        let resolved = resolve::follow(&self.root, below.unwrap_or(path))?;
        Ok(self.place(resolved))
    }

    /// The same for a path that a walk from a resolved directory came to without following links. Asks the file system
    /// for no links: the [`door`](crate::door) finds out if there is one on the way after all.
    ///
    /// # Errors
    /// When the path is not absolute, not UTF-8, or holds `..`.
    pub fn walked(&self, path: &Path) -> Result<Resolved, PathError> {
        resolve::check_walked(path)?;
        Ok(self.place(path.to_owned()))
    }

    /// The same for a path that was found on disk, whose names may not be UTF-8.
    ///
    /// # Errors
    /// When the path is not absolute, or holds `..`.
    pub fn found(&self, path: &Path) -> Result<Resolved, PathError> {
        resolve::check_raw(path)?;
        Ok(self.place(path.to_owned()))
    }

    fn place(&self, path: PathBuf) -> Resolved {
        let zone = self.zone(&path);
        let shown = match path.strip_prefix(&self.root) {
            Ok(relative) if relative.as_os_str().is_empty() => ".".to_owned(),
            Ok(relative) => relative.to_string_lossy().into_owned(),
            Err(_) => path.to_string_lossy().into_owned(),
        };
        let base = match zone {
            Zone::Workspace | Zone::Guarded => Arc::clone(&self.root),
            Zone::Output => match self.shared.iter().find(|shared| path.starts_with(shared)) {
                Some(shared) => Arc::from(shared.as_path()),
                None => Arc::clone(&self.output),
            },
            Zone::Hidden | Zone::Outside => Arc::from(Path::new("/")),
        };
        Resolved { path, zone, shown, base }
    }

    /// Folders may lie in one another; the innermost counts, and what is hidden before what is not.
    fn zone(&self, path: &Path) -> Zone {
        if shows_memory(path) {
            return Zone::Hidden;
        }
        let hidden = self
            .hidden
            .iter()
            .filter(|hidden| lies_in(path, hidden))
            .map(|hidden| (depth(hidden), Zone::Hidden));
        let own = |folder: &Path, zone| path.starts_with(folder).then(|| (depth(folder), zone));
        let shared = self.shared.iter().map(|shared| own(shared, Zone::Output));
        let own = [own(&self.root, Zone::Workspace), own(&self.output, Zone::Output)];
        // Of those that are as deep, the last one.
        let innermost = own.into_iter().chain(shared).flatten().chain(hidden).max_by_key(|(depth, _)| *depth);
        match innermost {
            Some((_, Zone::Workspace)) if guarded::is_guarded(path, &self.git) => Zone::Guarded,
            Some((_, zone)) => zone,
            None => Zone::Outside,
        }
    }
}

fn depth(path: &Path) -> usize {
    path.components().count()
}

/// Whether `path` is `folder` or lies in it, on a file system that does not tell case apart as well.
fn lies_in(path: &Path, folder: &Path) -> bool {
    let mut names = path.components();
    folder.components().all(|folder| {
        names.next().is_some_and(|name| name.as_os_str().eq_ignore_ascii_case(folder.as_os_str()))
    })
}

/// Whether `path` shows what a process holds in memory, its environment first: those of this process and of the engine's
/// other ones hold keys.
fn shows_memory(path: &Path) -> bool {
    let mut names = path.components().skip(1).map(Component::as_os_str);
    if !path.starts_with("/proc") || names.next().is_none() {
        return false;
    }
    let first = names.next().unwrap_or_default();
    let of_process = first.to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    let last = path.file_name().unwrap_or_default();
    first == "kcore" || (of_process && ["environ", "mem"].iter().any(|name| last == *name))
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
    fn a_link_in_the_place_of_a_workspace_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let base = fs_err::canonicalize(folder.path()).unwrap();
        fs_err::create_dir_all(base.join("above/work")).unwrap();
        fs_err::create_dir_all(base.join("secret/work")).unwrap();
        let (root, outputs) = (base.join("above/work"), base.join("out"));
        let workspace = Workspace::reopen(&root, outputs.clone()).unwrap();
        let said =
            || [workspace.check().unwrap_err(), Workspace::reopen(&root, outputs.clone()).unwrap_err()];
        fs_err::remove_dir(&root).unwrap();
        assert!(
            said()
                .iter()
                .all(|error| matches!(error, WorkspaceError::Directory(DirectoryError::Missing { .. })))
        );
        fs_err::os::unix::fs::symlink(base.join("secret/work"), &root).unwrap();
        for error in said() {
            assert!(error.to_string().contains("no longer the directory that it was"), "{error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        fs_err::rename(base.join("above"), base.join("aside")).unwrap();
        fs_err::os::unix::fs::symlink("secret", base.join("above")).unwrap();
        assert!(
            said()
                .iter()
                .all(|error| matches!(error, WorkspaceError::Directory(DirectoryError::Replaced { .. })))
        );
        fs_err::remove_file(base.join("above")).unwrap();
        fs_err::create_dir_all(&root).unwrap();
        assert!(workspace.check().is_ok());
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
    fn a_walk_is_told_where_it_may_come_to_something_hidden() {
        let folder = tempfile::tempdir().unwrap();
        let base = fs_err::canonicalize(folder.path()).unwrap();
        let workspace = Workspace::open(&base, base.join("out")).unwrap().hiding(vec![base.join("a/keys")]);
        for directory in ["", "a", "a/keys", "A", "/", "/proc", "/proc/1"] {
            assert!(workspace.may_hide_below(&base.join(directory)), "{directory}");
        }
        for directory in ["b", "a/other", "/usr", "/processes"] {
            assert!(!workspace.may_hide_below(&base.join(directory)), "{directory}");
        }
    }

    #[test]
    fn what_is_hidden_is_so_wherever_it_lies_and_the_innermost_counts() {
        let folder = tempfile::tempdir().unwrap();
        let base = fs_err::canonicalize(folder.path()).unwrap();
        let (data, work) = (base.join("data"), base.join("data/homes/own"));
        fs_err::create_dir_all(&work).unwrap();
        fs_err::os::unix::fs::symlink(&data, base.join("link")).unwrap();
        fs_err::os::unix::fs::symlink("../..", work.join("up")).unwrap();
        let hidden =
            vec![base.join("link"), base.join("later/keys"), work.join("own"), base.join("play.toml")];
        let workspace = Workspace::open(&work, data.join("outputs")).unwrap().hiding(hidden);
        let zone = |path: &str| workspace.resolve(path).unwrap().zone;
        for (path, expected) in [
            ("a", Zone::Workspace),
            ("own", Zone::Hidden),
            ("own/key", Zone::Hidden),
            ("OWN/key", Zone::Hidden),
            ("owner", Zone::Workspace),
            ("../other", Zone::Hidden),
            ("up/sled", Zone::Hidden),
            ("up/outputs/call", Zone::Output),
            ("../../../later/keys/one", Zone::Hidden),
            ("../../../later", Zone::Outside),
            ("../../../play.toml", Zone::Hidden),
            ("../../../play.toml.old", Zone::Outside),
            ("/proc/self/root/etc/hostname", Zone::Outside),
            ("/proc/self/environ", Zone::Hidden),
            ("/proc/self/task/1/environ", Zone::Hidden),
            ("/proc/thread-self/mem", Zone::Hidden),
            ("/proc/1/environ", Zone::Hidden),
            ("/proc/1/status", Zone::Outside),
            ("/proc/kcore", Zone::Hidden),
            ("/proc/sys/vm/environ", Zone::Outside),
            (".git", Zone::Guarded),
            ("sub/.git/hooks/x", Zone::Guarded),
            (".git/COMMIT_EDITMSG", Zone::Workspace),
        ] {
            assert_eq!(zone(path), expected, "{path}");
        }
        let inside = base.join("link/homes/own/a");
        assert_eq!(zone(inside.to_str().unwrap()), Zone::Workspace);
        let own = Workspace::open(&work, data.join("outputs")).unwrap().hiding(vec![work.clone()]);
        assert_eq!(own.resolve("a").unwrap().zone, Zone::Hidden);
    }

    #[test]
    fn the_outputs_that_a_fork_shares_are_outputs() {
        let folder = tempfile::tempdir().unwrap();
        let base = fs_err::canonicalize(folder.path()).unwrap();
        fs_err::create_dir(base.join("work")).unwrap();
        let outputs = base.join("outputs");
        let workspace = Workspace::open(&base.join("work"), outputs.join("own")).unwrap();
        let workspace =
            workspace.hiding(vec![outputs.clone()]).sharing(vec![outputs.join("a"), outputs.join("b")]);
        let zone = |path: &str| workspace.resolve(path).unwrap().zone;
        for (path, expected) in [
            ("../outputs/own/1", Zone::Output),
            ("../outputs/a/1", Zone::Output),
            ("../outputs/b", Zone::Output),
            ("../outputs/c/1", Zone::Hidden),
            ("../outputs/ab/1", Zone::Hidden),
        ] {
            assert_eq!(zone(path), expected, "{path}");
        }
        assert_eq!(*workspace.resolve("../outputs/a/1").unwrap().base, *outputs.join("a"));
    }

    #[test]
    fn a_link_in_the_middle_does_not_hide_what_git_obeys() {
        let folder = tempfile::tempdir().unwrap();
        let work = fs_err::canonicalize(folder.path()).unwrap();
        fs_err::create_dir_all(work.join("store/hooks")).unwrap();
        fs_err::os::unix::fs::symlink("store", work.join(".git")).unwrap();
        fs_err::os::unix::fs::symlink(".git", work.join("other")).unwrap();
        fs_err::os::unix::fs::symlink("store/hooks", work.join("scripts")).unwrap();
        let workspace = Workspace::open(&work, work.join("../out")).unwrap();
        for path in [".git/hooks/x", "other/config", "scripts/pre-push", "store/config", "store", "scripts"] {
            assert_eq!(workspace.resolve(path).unwrap().zone, Zone::Guarded, "{path}");
        }
        assert_eq!(workspace.resolve("store/description").unwrap().zone, Zone::Workspace);
        assert_eq!(workspace.walked(&work.join("store/hooks/x")).unwrap().zone, Zone::Guarded);
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

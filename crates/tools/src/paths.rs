//! The paths of a directory tree: for programs, which show them in a way of their own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use playhouse_policy::Zone;
use playhouse_workspace::Workspace;
use tokio_util::sync::CancellationToken;

use crate::files;
use crate::files::directory::Kind;
use crate::files::walk::{Flow, Limits, Walk};
use crate::tool::ToolError;

/// Which paths are found, and how much that may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Whether names that begin with a dot are found, but for `.git`.
    pub hidden: bool,
    /// How deep the tree is looked at; 1 is only what lies in the directory itself.
    pub depth: usize,
    /// The most paths that are found.
    pub most: usize,
    /// How long the search takes at most.
    pub time: Duration,
}

/// A path that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPath {
    /// From the directory on where the search began.
    pub path: PathBuf,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// What lies below `path`, in the order of paths, as far as `reach` goes. What is ignored is left out, no link is followed, and
/// of ignore files only those are read that are regular files. Blocks.
///
/// # Errors
/// There is no such directory, or it cannot be read, or the search was cancelled.
pub fn find_paths(
    workspace: &Workspace,
    path: &str,
    reach: Reach,
    cancel: &CancellationToken,
) -> Result<Vec<FoundPath>, ToolError> {
    let path = files::or_workspace(Some(path).filter(|path| !path.is_empty()));
    let place = workspace.resolve(path).map_err(|error| ToolError::Invalid(error.to_string()))?;
    if !matches!(place.zone, Zone::Workspace | Zone::Guarded) {
        return Err(ToolError::Invalid(format!(
            "\"{}\" does not lie in the directory",
            place.shown.escape_debug()
        )));
    }
    let start = files::start(workspace, &place)?;
    let limits = Limits { time: reach.time, ..Limits::default() };
    let walk = Walk { hidden: reach.hidden, depth: reach.depth, limits, cancel };
    let mut paths = Vec::new();
    walk.run(start, &mut |found| {
        if paths.len() >= reach.most {
            return Flow::Stop;
        }
        paths.push(FoundPath {
            path: Path::to_owned(found.path),
            is_directory: found.kind == Kind::Directory,
        });
        Flow::Go
    });
    if cancel.is_cancelled() { Err(files::cancelled()) } else { Ok(paths) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignore_files_that_are_no_files_are_not_waited_for_and_links_lead_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs_err::create_dir_all(root.join(".git/info")).unwrap();
        fs_err::create_dir_all(root.join("in")).unwrap();
        fs_err::write(folder.path().join("rules"), "secret\n").unwrap();
        fs_err::os::unix::fs::symlink("../rules", root.join(".gitignore")).unwrap();
        for name in [root.join(".git/info/exclude"), root.join("in/.gitignore")] {
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(rustix::fs::CWD, &name, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        }
        fs_err::write(root.join("secret"), "").unwrap();
        fs_err::write(root.join("in/b"), "").unwrap();
        let workspace = Workspace::open(&root, folder.path().join("outputs")).unwrap();
        let reach = Reach { hidden: false, depth: usize::MAX, most: 100, time: Duration::from_secs(20) };
        let cancel = CancellationToken::new();
        let found = |path: &str, reach| -> Vec<(String, bool)> {
            let found = find_paths(&workspace, path, reach, &cancel).unwrap();
            found.into_iter().map(|of| (of.path.to_string_lossy().into_owned(), of.is_directory)).collect()
        };
        let all = [("in".to_owned(), true), ("in/b".to_owned(), false), ("secret".to_owned(), false)];
        assert_eq!(found("", reach), all, "what a link leads to is no rule");
        assert_eq!(found("in", reach), [("b".to_owned(), false)]);
        assert_eq!(found(".", Reach { most: 1, ..reach }), all[..1]);
        let below = found("", Reach { depth: 1, hidden: true, ..reach });
        assert_eq!(
            below.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(),
            [".gitignore", "in", "secret"]
        );
        for path in ["nowhere", "..", "/"] {
            assert!(find_paths(&workspace, path, reach, &cancel).is_err(), "{path}");
        }
    }
}

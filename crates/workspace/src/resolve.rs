//! Where a path leads, with all links followed by hand.
//!
//! `std::fs::canonicalize` does not do here: it fails for files that are still to be made, and for links that dangle.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use playhouse_policy::{Access, AccessKind, Zone};
use rustix::fs::FileType;
use rustix::io::Errno;
use thiserror::Error;

use crate::at_once;
use crate::door::Seen;

/// The longest path that is looked at, in bytes. Linux takes no longer one either.
const LONGEST: usize = 4096;
/// The most links in one path, as in Linux.
const MOST_LINKS: usize = 40;

/// A path with its links followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The place: absolute, free of links and of `..`, UTF-8. It need not exist.
    pub path: PathBuf,
    /// Where it lies.
    pub zone: Zone,
    /// The path for people and models: relative to the root where it is inside, else absolute.
    pub shown: String,
    /// The folder beneath which the door looks for it: the workspace, that of saved outputs, or the root of the system.
    pub(crate) base: Arc<Path>,
}

impl Resolved {
    /// What policy judges.
    pub fn access(&self, kind: AccessKind) -> Access {
        Access::path(kind, self.path.to_string_lossy(), self.zone).shown(&self.shown)
    }
}

/// Why a path leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    /// There is no path.
    #[error("the path is empty: write a path, or \".\" for the workspace itself")]
    Empty,
    /// No file system takes it.
    #[error("the path {0:?} holds a NUL byte, which no path can")]
    Nul(String),
    /// No file system takes it.
    #[error(
        "the path is too long ({0} bytes, or one name in it is over 255 bytes); the longest has 4096 bytes"
    )]
    TooLong(usize),
    /// It goes on after a file.
    #[error("{0} is a file, so nothing can be below it")]
    NotDirectory(String),
    /// The links never end.
    #[error("{0} goes through more than 40 symbolic links, so they probably lead in a circle")]
    Loop(String),
    /// A directory may not be searched.
    #[error("{0} may not be looked at: permission denied by a directory above it")]
    Denied(String),
    /// A link leads to such a place.
    #[error("{0:?} is not valid UTF-8, so it has no name here: rename it")]
    NotUtf8(PathBuf),
    /// A walk hands over only what it came to.
    #[error("{0:?} is not an absolute path free of \"..\"")]
    NotWalked(PathBuf),
    /// Anything else.
    #[error("{path} could not be looked at: {error}")]
    Io {
        /// The place.
        path: String,
        /// What the system said.
        error: Errno,
    },
}

/// What can be said of the text of a path alone.
pub(crate) fn check(path: &str) -> Result<(), PathError> {
    if path.is_empty() {
        return Err(PathError::Empty);
    }
    if path.len() > LONGEST {
        return Err(PathError::TooLong(path.len()));
    }
    if path.contains('\0') {
        return Err(PathError::Nul(path.to_owned()));
    }
    Ok(())
}

/// What must hold for a path that a walk came to.
pub(crate) fn check_walked(path: &Path) -> Result<(), PathError> {
    if path.to_str().is_none() {
        return Err(PathError::NotUtf8(path.to_owned()));
    }
    check_raw(path)
}

/// The same, whatever bytes names are made of.
pub(crate) fn check_raw(path: &Path) -> Result<(), PathError> {
    check(&path.to_string_lossy())?;
    let plain = |component| matches!(component, Component::RootDir | Component::Normal(_));
    if path.is_absolute() && path.components().all(plain) {
        Ok(())
    } else {
        Err(PathError::NotWalked(path.to_owned()))
    }
}

/// A step on the way.
enum Step {
    Root,
    Up,
    Down(OsString),
}

/// The steps of `path`, last one first.
fn steps(path: &Path) -> Vec<Step> {
    let step = |component| match component {
        Component::RootDir => Some(Step::Root),
        Component::ParentDir => Some(Step::Up),
        Component::Normal(name) => Some(Step::Down(name.to_owned())),
        Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(step).collect()
}

/// Follows `path` from the directory `from`, which is canonical.
pub(crate) fn follow(from: &Path, path: &Path) -> Result<PathBuf, PathError> {
    let mut place = from.to_owned();
    // What is known to be no directory cannot be left with `..` either, as the file system has it.
    let mut place_is_file = false;
    let mut links = 0;
    let mut ahead = steps(path);
    while let Some(step) = ahead.pop() {
        let name = match step {
            Step::Root => {
                place = PathBuf::from("/");
                place_is_file = false;
                continue;
            }
            _ if place_is_file => return Err(PathError::NotDirectory(display(&place))),
            // What does not exist yet is left the same way, by its name.
            Step::Up => {
                place.pop();
                continue;
            }
            Step::Down(name) => name,
        };
        let next = place.join(name);
        match kind(&next)? {
            Some(FileType::Symlink) => {
                links += 1;
                if links > MOST_LINKS {
                    return Err(PathError::Loop(display(path)));
                }
                ahead.extend(steps(&target(&next)?));
            }
            found => {
                place_is_file = !matches!(found, None | Some(FileType::Directory));
                place = next;
            }
        }
    }
    match place.to_str() {
        Some(text) if text.len() > LONGEST => Err(PathError::TooLong(text.len())),
        Some(_) => Ok(place),
        None => Err(PathError::NotUtf8(place)),
    }
}

/// What stands at `path`; `None` for nothing.
fn kind(path: &Path) -> Result<Option<FileType>, PathError> {
    match lstat(path) {
        Ok(seen) => Ok(Some(seen.file_type())),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(failed(path, error)),
    }
}

fn lstat(path: &Path) -> Result<Seen, Errno> {
    #[cfg(target_os = "linux")]
    if at_once::is_on() {
        return at_once::stat(rustix::fs::CWD, path, rustix::fs::OFlags::NOFOLLOW);
    }
    rustix::fs::lstat(path).map(|stat| Seen::from(&stat))
}

fn target(link: &Path) -> Result<PathBuf, PathError> {
    use std::os::unix::ffi::OsStringExt;
    if at_once::would_wait() {
        return Err(failed(link, Errno::AGAIN));
    }
    let target = rustix::fs::readlink(link, Vec::new()).map_err(|error| failed(link, error))?;
    Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
}

fn failed(path: &Path, error: Errno) -> PathError {
    match error {
        Errno::ACCESS | Errno::PERM => PathError::Denied(display(path)),
        Errno::NAMETOOLONG => PathError::TooLong(path.as_os_str().len()),
        Errno::NOTDIR => PathError::NotDirectory(display(path.parent().unwrap_or(path))),
        Errno::LOOP => PathError::Loop(display(path)),
        error => PathError::Io { path: display(path), error },
    }
}

fn display(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use fs_err::os::unix::fs::symlink;

    use super::*;
    use crate::Workspace;

    struct Fixture {
        _folder: tempfile::TempDir,
        base: PathBuf,
        workspace: Workspace,
    }

    /// `base/work` is the workspace; `base/other/deep` lies beside it.
    fn fixture() -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let base = fs_err::canonicalize(folder.path()).unwrap();
        for directory in ["stage/src", "other/deep"] {
            fs_err::create_dir_all(base.join(directory)).unwrap();
        }
        fs_err::write(base.join("stage/file"), "x").unwrap();
        let workspace = Workspace::open(&base.join("stage"), base.join("saved/outputs")).unwrap();
        Fixture { _folder: folder, base, workspace }
    }

    impl Fixture {
        fn check(&self, path: &str, leads_to: &str, zone: Zone) {
            let resolved = self.workspace.resolve(path).unwrap();
            assert_eq!((resolved.path, resolved.zone), (self.base.join(leads_to), zone), "{path}");
        }
    }

    #[test]
    fn relative_and_absolute_paths_are_the_same_inside() {
        let fixture = fixture();
        fixture.check("src/new/a.rs", "stage/src/new/a.rs", Zone::Workspace);
        fixture.check("./src//../file", "stage/file", Zone::Workspace);
        fixture.check("missing/../file", "stage/file", Zone::Workspace);
        let absolute = fixture.base.join("stage/file");
        let resolved = fixture.workspace.resolve(absolute.to_str().unwrap()).unwrap();
        assert_eq!((resolved.shown.as_str(), resolved.zone), ("file", Zone::Workspace));
        assert_eq!(fixture.workspace.resolve(".").unwrap().shown, ".");
    }

    #[test]
    fn what_leaves_is_outside() {
        let fixture = fixture();
        fixture.check("..", "", Zone::Outside);
        fixture.check("../stage/file", "stage/file", Zone::Workspace);
        fixture.check("missing/../../other", "other", Zone::Outside);
        fixture.check("../work-2/file", "work-2/file", Zone::Outside);
        fixture.check("../saved/outputs/call.txt", "saved/outputs/call.txt", Zone::Output);
        assert_eq!(fixture.workspace.resolve("../../../../../../../../..").unwrap().path, Path::new("/"));
    }

    #[test]
    fn links_are_followed_wherever_they_stand() {
        let fixture = fixture();
        let work = fixture.base.join("stage");
        symlink("../other", work.join("middle")).unwrap();
        symlink(fixture.base.join("other/none"), work.join("dangling")).unwrap();
        symlink("dangling", work.join("chain")).unwrap();
        symlink("src", work.join("inside")).unwrap();
        fixture.check("middle/deep/new", "other/deep/new", Zone::Outside);
        fixture.check("dangling", "other/none", Zone::Outside);
        fixture.check("chain/below", "other/none/below", Zone::Outside);
        fixture.check("inside/a", "stage/src/a", Zone::Workspace);
        // The parent of where the link leads, not of the link.
        fixture.check("middle/deep/../../stage/file", "stage/file", Zone::Workspace);
        fixture.check("middle/..", "", Zone::Outside);
    }

    #[test]
    fn what_leads_nowhere_is_an_error_that_says_why() {
        let fixture = fixture();
        symlink("circle", fixture.base.join("stage/circle")).unwrap();
        let error = |path: &str| fixture.workspace.resolve(path).unwrap_err();
        assert_eq!(error(""), PathError::Empty);
        assert_eq!(error("a\0b"), PathError::Nul("a\0b".into()));
        assert_eq!(error(&"a/".repeat(2049)), PathError::TooLong(4098));
        assert!(matches!(error(&"n".repeat(256)), PathError::TooLong(_)));
        assert!(matches!(error("circle/a"), PathError::Loop(_)));
        let file = fixture.base.join("stage/file").display().to_string();
        assert_eq!(error("file/below"), PathError::NotDirectory(file.clone()));
        assert_eq!(error("file/../src"), PathError::NotDirectory(file));
    }

    #[test]
    fn a_link_to_a_name_of_other_bytes_is_refused() {
        use std::os::unix::ffi::OsStrExt;
        let fixture = fixture();
        let odd = std::ffi::OsStr::from_bytes(b"\xff");
        symlink(odd, fixture.base.join("stage/link")).unwrap();
        assert!(matches!(fixture.workspace.resolve("link"), Err(PathError::NotUtf8(_))));
    }

    #[test]
    fn a_walked_path_is_placed_as_it_is() {
        let fixture = fixture();
        let path = fixture.base.join("stage/src/a");
        let walked = fixture.workspace.walked(&path).unwrap();
        assert_eq!((walked.shown.as_str(), walked.zone), ("src/a", Zone::Workspace));
        assert!(fixture.workspace.walked(Path::new("src/a")).is_err());
        assert!(fixture.workspace.walked(&fixture.base.join("stage/../a")).is_err());
    }
}

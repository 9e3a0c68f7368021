//! The way to a place, without a link in any part of it.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::{DoorError, open_at};
use crate::Resolved;

/// How a directory is held that is only passed through: searching it is enough, reading it is not asked.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
const PASS: OFlags = OFlags::PATH;
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
const PASS: OFlags = OFlags::RDONLY;

/// A place as its directory, held open, and its name in there. What happens above that directory matters no more.
pub(super) struct Spot<'a> {
    pub(super) directory: OwnedFd,
    pub(super) name: &'a Path,
    shown: &'a str,
}

impl<'a> Spot<'a> {
    /// Where `resolved` stands, whether or not anything is there.
    pub(super) fn of(resolved: &'a Resolved) -> Result<Self, DoorError> {
        let (parent, name) = split(&resolved.path);
        let directory =
            open_directory(parent).map_err(|error| DoorError::from_errno(&resolved.shown, error))?;
        Ok(Self { directory, name: Path::new(name), shown: &resolved.shown })
    }

    /// What stands there; a link is not followed.
    pub(super) fn stat(&self) -> Result<Stat, DoorError> {
        rustix::fs::statat(&self.directory, self.name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| self.error(error))
    }

    /// Opens what stands there; a link is not followed.
    pub(super) fn open(&self, flags: OFlags) -> Result<OwnedFd, DoorError> {
        open_at(&self.directory, self.name, flags, Mode::empty()).map_err(|error| self.error(error))
    }

    pub(super) fn error(&self, error: Errno) -> DoorError {
        DoorError::from_errno(self.shown, error)
    }
}

/// The directory of `path`, and its name. The root of the file system is `.` in itself.
pub(super) fn split(path: &Path) -> (&Path, &OsStr) {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => (parent, name),
        _ => (Path::new("/"), OsStr::new(".")),
    }
}

/// Opens the directory at the absolute `path`, where no part of it is a link.
pub(super) fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    #[cfg(target_os = "linux")]
    match in_one_call(path) {
        // Older kernels, and containers that filter the call, do not have it.
        Err(Errno::NOSYS | Errno::PERM) => {}
        result => return result,
    }
    by_hand(path)
}

#[cfg(target_os = "linux")]
fn in_one_call(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = PASS | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, path, flags, Mode::empty(), rustix::fs::ResolveFlags::NO_SYMLINKS)
}

/// From directory to directory, each held while the next one is opened.
fn by_hand(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = PASS | OFlags::DIRECTORY;
    let root = rustix::fs::openat(CWD, "/", flags | OFlags::CLOEXEC, Mode::empty())?;
    path.components().try_fold(root, |directory, component| match component {
        Component::RootDir => Ok(directory),
        Component::Normal(name) => open_at(&directory, Path::new(name), flags, Mode::empty()),
        // A resolved path has none of these.
        Component::CurDir | Component::ParentDir | Component::Prefix(_) => Err(Errno::INVAL),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_refuse_a_link_in_the_middle() {
        let folder = tempfile::tempdir().unwrap();
        let base = fs_err::canonicalize(folder.path()).unwrap();
        fs_err::create_dir_all(base.join("real/below")).unwrap();
        fs_err::os::unix::fs::symlink("real", base.join("link")).unwrap();
        for open in [open_directory, by_hand] {
            assert!(open(&base.join("real/below")).is_ok());
            assert!(open(Path::new("/")).is_ok());
            for path in ["link/below", "link"] {
                let error = open(&base.join(path)).unwrap_err();
                assert!(matches!(error, Errno::LOOP | Errno::NOTDIR), "{path}: {error}");
            }
            assert_eq!(open(&base.join("missing/below")).unwrap_err(), Errno::NOENT);
        }
    }
}

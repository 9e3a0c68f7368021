//! The way to a place, without a link in any part of it.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::Path;

use playhouse_sandbox::held;
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::{DoorError, Seen, open_at};
use crate::Resolved;
#[cfg(target_os = "linux")]
use crate::at_once;

/// A place as its directory, held open, and its name in there. What happens above that directory matters no more.
#[derive(Debug)]
pub(super) struct Spot<'a> {
    pub(super) directory: OwnedFd,
    pub(super) name: &'a Path,
    pub(super) shown: &'a str,
}

impl<'a> Spot<'a> {
    /// Where `resolved` stands, whether or not anything is there.
    pub(super) fn of(resolved: &'a Resolved) -> Result<Self, DoorError> {
        let (parent, name) = split(&resolved.path);
        let directory = open_directory(&resolved.base, parent)
            .map_err(|error| DoorError::from_errno(&resolved.shown, error))?;
        Ok(Self { directory, name: Path::new(name), shown: &resolved.shown })
    }

    /// What stands there; a link is not followed. Blocks.
    pub(super) fn stat(&self) -> Result<Stat, DoorError> {
        rustix::fs::statat(&self.directory, self.name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| self.error(error))
    }

    /// The same, of what whoever only looks wants to know.
    pub(super) fn see(&self) -> Result<Seen, DoorError> {
        #[cfg(target_os = "linux")]
        if at_once::is_on() {
            let seen = at_once::stat(&self.directory, self.name, OFlags::NOFOLLOW);
            return seen.map_err(|error| self.error(error));
        }
        self.stat().map(|stat| Seen::from(&stat))
    }

    /// Opens what stands there; a link is not followed.
    pub(super) fn open(&self, flags: OFlags) -> Result<OwnedFd, DoorError> {
        #[cfg(target_os = "linux")]
        if at_once::is_on() {
            let opened = at_once::open(&self.directory, self.name, flags | OFlags::NOFOLLOW);
            return opened.map_err(|error| self.error(error));
        }
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

/// Opens the directory at the absolute `path`, where no part of it is a link, and, where it lies in `base`, nothing leads
/// out of that.
pub(super) fn open_directory(base: &Path, path: &Path) -> Result<OwnedFd, Errno> {
    #[cfg(target_os = "linux")]
    if at_once::is_on() {
        return held::in_the_kernel(base, path, at_once::resolving()).map_err(at_once::answer);
    }
    held::open_directory(base, path)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use fs_err::os::unix::fs::symlink;
    use rustix::fs::{CWD, RenameFlags};

    use super::*;

    type Open = fn(&Path, &Path) -> Result<OwnedFd, Errno>;

    #[cfg(target_os = "linux")]
    const WAYS: [Open; 4] = [
        open_directory,
        |base, path| held::in_the_kernel(base, path, held::ResolveFlags::empty()),
        |_, path| held::by_hand(path),
        // Asked twice, since what is not there is not in the kernel's memory before it was asked for.
        |base, path| at_once(|| open_directory(base, path)).unwrap_or_else(|| open_directory(base, path)),
    ];
    #[cfg(not(target_os = "linux"))]
    const WAYS: [Open; 2] = [open_directory, |_, path| held::by_hand(path)];

    #[test]
    fn each_way_refuses_a_link_in_the_middle() {
        let folder = tempfile::tempdir().unwrap();
        let base = fs_err::canonicalize(folder.path()).unwrap();
        fs_err::create_dir_all(base.join("real/below")).unwrap();
        symlink("real", base.join("link")).unwrap();
        for open in WAYS {
            for from in [base.as_path(), Path::new("/")] {
                assert!(open(from, &base.join("real/below")).is_ok());
                assert!(open(from, &base).is_ok());
                for path in ["link/below", "link"] {
                    let error = open(from, &base.join(path)).unwrap_err();
                    assert!(matches!(error, Errno::LOOP | Errno::NOTDIR), "{path}: {error}");
                }
                assert_eq!(open(from, &base.join("missing/below")).unwrap_err(), Errno::NOENT);
            }
            assert!(open(Path::new("/"), Path::new("/")).is_ok());
            // The base itself is a link by now.
            assert!(open(&base.join("link"), &base.join("link/below")).is_err());
        }
        assert!(open_directory(&base, Path::new("/")).is_ok());
    }

    /// A thread swaps a directory and a link that leads out, as fast as it can.
    #[test]
    fn no_way_leads_out_while_a_directory_and_a_link_change_places() {
        let folder = tempfile::tempdir().unwrap();
        let base = fs_err::canonicalize(folder.path()).unwrap();
        for directory in ["work/one/below", "secret/below"] {
            fs_err::create_dir_all(base.join(directory)).unwrap();
        }
        let work = base.join("work");
        symlink("../secret", work.join("two")).unwrap();
        let inside = rustix::fs::stat(work.join("one/below")).unwrap().st_ino;
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let held = rustix::fs::openat(CWD, &work, OFlags::RDONLY, Mode::empty()).unwrap();
                while !over.load(Ordering::Relaxed) {
                    rustix::fs::renameat_with(&held, "one", &held, "two", RenameFlags::EXCHANGE).unwrap();
                }
            });
            let (mut opened, mut refused) = (0, 0);
            for round in 0..20_000 {
                match WAYS[round % WAYS.len()](&work, &work.join("one/below")) {
                    Ok(directory) => {
                        opened += 1;
                        assert_eq!(rustix::fs::fstat(&directory).unwrap().st_ino, inside);
                    }
                    Err(error) => {
                        refused += 1;
                        assert!(matches!(error, Errno::LOOP | Errno::NOTDIR | Errno::AGAIN), "{error}");
                    }
                }
            }
            over.store(true, Ordering::Relaxed);
            assert!(opened > 0 && refused > 0, "{opened} opened, {refused} refused: nothing was swapped");
        });
    }
}

//! Taking a file away, in a way that can be taken back.
//!
//! Between [`take`] and [`Taken::remove`] the file stands under a hidden name only, and a process that is killed then
//! leaves it there. So a file is taken when all else is done: what is left is then something that was to go.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Stat};
use rustix::io::Errno;

use super::walk::{self, Spot};
use super::write::{check_content, check_writable, rename_new, temporary_name};
use super::{DoorError, Expected};
use crate::Resolved;

/// A file that is away from its place. It waits beside it under another name, so that putting it back gives everything
/// back: content, permissions, owner, times. Dropped, it goes back as far as that is possible.
#[derive(Debug)]
#[must_use = "the file goes back to its place when this is dropped"]
pub struct Taken {
    directory: OwnedFd,
    name: OsString,
    aside: PathBuf,
    shown: String,
    mode: u32,
    settled: bool,
}

/// Whether the file at `resolved` may be taken, before anything is done that would have to be undone if not.
///
/// # Errors
/// When there is no regular file, or it is read-only, and when the place was replaced.
pub fn check_takable(resolved: &Resolved) -> Result<(), DoorError> {
    resolved.must_be_writable()?;
    let spot = Spot::of(resolved)?;
    let stat = spot.stat()?;
    check_writable(&spot, resolved, Some(&stat), Expected::Anything)
}

/// Takes the file at `resolved` away from its place.
///
/// # Errors
/// When there is no regular file, or not the `expected` one, or it is read-only, and when the place was replaced.
pub fn take(resolved: &Resolved, expected: Expected) -> Result<Taken, DoorError> {
    resolved.must_be_writable()?;
    let spot = Spot::of(resolved)?;
    let stat = spot.stat()?;
    check_writable(&spot, resolved, Some(&stat), expected)?;
    check_content(resolved, expected)?;
    let aside = loop {
        let aside = temporary_name();
        match rename_new(&spot.directory, spot.name, &aside) {
            Ok(()) => break aside,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(spot.error(error)),
        }
    };
    let name = spot.name.as_os_str().to_owned();
    let taken = Taken {
        directory: spot.directory,
        name,
        aside,
        shown: resolved.shown.clone(),
        mode: stat.st_mode,
        settled: false,
    };
    // The one whose content was compared, and not another that came into its place since.
    let moved = rustix::fs::statat(&taken.directory, &taken.aside, AtFlags::SYMLINK_NOFOLLOW);
    let same = |moved: &Stat| {
        (moved.st_dev, moved.st_ino, moved.st_size, moved.st_mtime, moved.st_mtime_nsec)
            == (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec)
    };
    match moved {
        Ok(moved) if same(&moved) => Ok(taken),
        _ => {
            let shown = taken.shown.clone();
            taken.put_back()?;
            Err(DoorError::Changed(shown))
        }
    }
}

impl Taken {
    /// Type and permission bits of the file.
    pub fn mode(&self) -> u32 {
        self.mode
    }

    /// Puts the file back.
    ///
    /// # Errors
    /// When something stands at its place; the file is then left under its other name, which the error tells.
    pub fn put_back(mut self) -> Result<(), DoorError> {
        self.settled = true;
        self.restore()
    }

    fn restore(&self) -> Result<(), DoorError> {
        rename_new(&self.directory, &self.aside, Path::new(&self.name)).map_err(|error| {
            // Under a name that nobody sweeps.
            let kept = self.aside.with_extension("kept");
            let kept = match rename_new(&self.directory, &self.aside, &kept) {
                Ok(()) => &kept,
                Err(_) => &self.aside,
            };
            DoorError::Io {
                path: format!("{} (kept beside it as {})", self.shown, kept.display()),
                source: error.into(),
            }
        })
    }

    /// Removes the file for good.
    ///
    /// # Errors
    /// When the system refuses; the file is then put back.
    pub fn remove(mut self) -> Result<(), DoorError> {
        match rustix::fs::unlinkat(&self.directory, &self.aside, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {
                self.settled = true;
                Ok(())
            }
            Err(error) => Err(DoorError::from_errno(&self.shown, error)),
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if !self.settled {
            let _ = self.restore();
        }
    }
}

/// Removes the directories that [`create_parents`](super::create_parents) made, as far as they are empty.
pub fn remove_empty(made: &[PathBuf]) {
    for path in made.iter().rev() {
        let (parent, name) = walk::split(path);
        if let Ok(directory) = walk::open_directory(Path::new("/"), parent) {
            // One that is not empty serves somebody else by now.
            let _ = rustix::fs::unlinkat(&directory, Path::new(name), AtFlags::REMOVEDIR);
        }
    }
}

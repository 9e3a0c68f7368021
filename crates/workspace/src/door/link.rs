//! Symbolic links themselves: read, made and removed, never followed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::walk::Spot;
use super::write::{check_content, check_writable, rename_new, temporary_name};
use super::{DoorError, Expected, Found, Kind};
use crate::Resolved;

impl Found<'_> {
    /// Where the link leads, as it says.
    ///
    /// # Errors
    /// It is no link any more.
    pub fn link(&self) -> Result<Vec<u8>, DoorError> {
        self.resolved.must_be_visible()?;
        read(&self.spot)
    }
}

fn read(spot: &Spot<'_>) -> Result<Vec<u8>, DoorError> {
    match rustix::fs::readlinkat(&spot.directory, spot.name, Vec::new()) {
        Ok(target) => Ok(target.into_bytes()),
        Err(Errno::INVAL) => Err(DoorError::Changed(spot.shown.to_owned())),
        Err(error) => Err(spot.error(error)),
    }
}

/// Makes a link at `resolved`, where nothing stands.
///
/// # Errors
/// When something stands there, when there is no directory, and when the place was replaced.
pub fn make_link(resolved: &Resolved, target: &[u8]) -> Result<(), DoorError> {
    resolved.must_be_writable()?;
    let spot = Spot::of(resolved)?;
    let target = OsStr::from_bytes(target);
    rustix::fs::symlinkat(target, &spot.directory, spot.name).map_err(|error| match error {
        Errno::EXIST => DoorError::Changed(resolved.shown.clone()),
        error => spot.error(error),
    })
}

/// Puts a link in the place of the regular file at `resolved`, at once.
///
/// # Errors
/// When there is no regular file, or not the `expected` one, and when the place was replaced.
pub fn replace_with_link(resolved: &Resolved, target: &[u8], expected: Expected) -> Result<(), DoorError> {
    resolved.must_be_writable()?;
    let spot = Spot::of(resolved)?;
    check_writable(&spot, resolved, Some(&spot.stat()?), expected)?;
    let aside = temporary_name();
    rustix::fs::symlinkat(OsStr::from_bytes(target), &spot.directory, &aside)
        .map_err(|error| spot.error(error))?;
    let put = check_content(resolved, expected).and_then(|()| {
        let renamed = rustix::fs::renameat(&spot.directory, &aside, &spot.directory, spot.name);
        renamed.map_err(|error| spot.error(error))
    });
    put.inspect_err(|_| {
        let _ = rustix::fs::unlinkat(&spot.directory, &aside, AtFlags::empty());
    })
}

/// A link that is away from its place. Dropped, it goes back.
#[derive(Debug)]
#[must_use = "the link goes back to its place when this is dropped"]
pub struct TakenLink<'a> {
    spot: Spot<'a>,
    aside: Option<PathBuf>,
}

/// Takes away the link at `resolved`, which leads to `target`.
///
/// # Errors
/// When there is another one, or none, and when the place was replaced.
pub fn take_link<'a>(resolved: &'a Resolved, target: &[u8]) -> Result<TakenLink<'a>, DoorError> {
    resolved.must_be_writable()?;
    let spot = Spot::of(resolved)?;
    if Kind::of(&spot.stat()?) != Kind::Link || read(&spot)? != target {
        return Err(DoorError::Changed(resolved.shown.clone()));
    }
    let aside = temporary_name();
    rename_new(&spot.directory, spot.name, &aside).map_err(|error| spot.error(error))?;
    let moved = rustix::fs::readlinkat(&spot.directory, &aside, Vec::new());
    let is_it = moved.is_ok_and(|moved| moved.as_bytes() == target);
    let taken = TakenLink { spot, aside: Some(aside) };
    if is_it { Ok(taken) } else { Err(DoorError::Changed(resolved.shown.clone())) }
}

impl TakenLink<'_> {
    /// Removes it for good.
    ///
    /// # Errors
    /// When the system refuses; it is then put back.
    pub fn remove(mut self) -> Result<(), DoorError> {
        let Some(aside) = &self.aside else { return Ok(()) };
        match rustix::fs::unlinkat(&self.spot.directory, aside, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {
                self.aside = None;
                Ok(())
            }
            Err(error) => Err(self.spot.error(error)),
        }
    }
}

impl Drop for TakenLink<'_> {
    fn drop(&mut self) {
        if let Some(aside) = &self.aside {
            // Where something else stands by now, it stays under its other name.
            let _ = rename_new(&self.spot.directory, aside, Path::new(self.spot.name));
        }
    }
}

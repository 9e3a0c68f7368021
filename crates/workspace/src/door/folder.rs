//! Single folders: made with permissions, removed where empty.

use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, RawMode};

use super::{DoorError, Spot, open_at};
use crate::Resolved;

/// The permission bits that the owner needs to write in a folder.
const OWNERS: u32 = 0o700;

/// Makes a folder. Its owner may write in it until [`set_folder_mode`] is called, whatever `mode` says. False: there was one.
///
/// # Errors
/// When there is something else, no folder above it, or no permission, and when the place was replaced.
pub fn make_folder(resolved: &Resolved, mode: u32) -> Result<bool, DoorError> {
    resolved.must_be_writable()?;
    let spot = Spot::of(resolved)?;
    // Never wider than it is to be, also before the bits come that the process takes away from new folders.
    let at_first = Mode::from_raw_mode(bits(mode | OWNERS) & 0o777);
    match rustix::fs::mkdirat(&spot.directory, spot.name, at_first) {
        Ok(()) => set_folder_mode(resolved, mode | OWNERS).map(|()| true),
        Err(rustix::io::Errno::EXIST) if open(&spot).is_ok() => Ok(false),
        Err(error) => Err(spot.error(error)),
    }
}

/// Gives the folder at `resolved` these permission bits.
///
/// # Errors
/// When there is no such folder, or it belongs to somebody else, and when the place was replaced.
pub fn set_folder_mode(resolved: &Resolved, mode: u32) -> Result<(), DoorError> {
    resolved.must_be_writable()?;
    let spot = Spot::of(resolved)?;
    let changed =
        open(&spot).and_then(|folder| rustix::fs::fchmod(folder, Mode::from_raw_mode(bits(mode) & 0o7777)));
    changed.map_err(|error| spot.error(error))
}

/// Removes the folder at `resolved`. False: there is something in it.
///
/// # Errors
/// When there is no such folder, or no permission, and when the place was replaced.
pub fn remove_folder(resolved: &Resolved) -> Result<bool, DoorError> {
    resolved.must_be_writable()?;
    let spot = Spot::of(resolved)?;
    match rustix::fs::unlinkat(&spot.directory, spot.name, AtFlags::REMOVEDIR) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::NOTEMPTY | rustix::io::Errno::EXIST) => Ok(false),
        Err(error) => Err(spot.error(error)),
    }
}

fn open(spot: &Spot<'_>) -> Result<std::os::fd::OwnedFd, rustix::io::Errno> {
    let name: &Path = spot.name;
    open_at(&spot.directory, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
}

#[allow(clippy::cast_possible_truncation, clippy::unnecessary_cast, reason = "types differ between systems")]
const fn bits(mode: u32) -> RawMode {
    mode as RawMode
}

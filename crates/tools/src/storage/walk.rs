//! Counting what lies in a folder, without following a link.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};

/// Entries that are looked at.
const LOOKED_AT: usize = 1_000_000;
/// How deep a folder is walked.
const DEPTH: usize = 64;
/// Bytes of a block of [`Stat::st_blocks`].
const BLOCK: u64 = 512;

/// The bytes of the files in a folder of saved outputs and below it; 0 for one that is not there. Blocks.
pub fn saved(folder: &Path) -> u64 {
    below(folder, size)
}

/// The bytes that the files in a folder and below it have on disk; 0 for one that is not there. Blocks.
pub fn allocated(folder: &Path) -> u64 {
    below(folder, |stat| u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK))
}

fn below(folder: &Path, bytes: fn(&Stat) -> u64) -> u64 {
    open(CWD, folder).map_or(0, |folder| Walk { left: LOOKED_AT, bytes }.sum(folder.as_fd(), 0))
}

/// The folder, if it is one and no link.
pub(super) fn open(at: BorrowedFd<'_>, name: impl rustix::path::Arg) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty()).ok()
}

/// Calls `visit` with the name and the facts of each entry of a folder, as long as it wants more.
pub(super) fn each(folder: BorrowedFd<'_>, mut visit: impl FnMut(&CStr, &Stat) -> bool) {
    let Ok(entries) = Dir::read_from(folder) else { return };
    for entry in entries.map_while(Result::ok) {
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        // What is gone meanwhile takes up nothing.
        let Ok(stat) = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        if !visit(name, &stat) {
            return;
        }
    }
}

pub(super) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

pub(super) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// A walk through a folder.
struct Walk {
    /// How many entries it may still look at.
    left: usize,
    bytes: fn(&Stat) -> u64,
}

impl Walk {
    fn sum(&mut self, folder: BorrowedFd<'_>, depth: usize) -> u64 {
        let mut sum = 0_u64;
        each(folder, |name, stat| {
            if self.left == 0 {
                return false;
            }
            self.left -= 1;
            sum = sum.saturating_add(match kind(stat) {
                FileType::Directory if depth < DEPTH => {
                    open(folder, name).map_or(0, |below| self.sum(below.as_fd(), depth + 1))
                }
                FileType::Directory => 0,
                _ => (self.bytes)(stat),
            });
            true
        });
        sum
    }
}

/// The bytes below a folder that is held open.
pub(super) fn saved_below(folder: BorrowedFd<'_>, name: &CStr) -> u64 {
    open(folder, name).map_or(0, |below| Walk { left: LOOKED_AT, bytes: size }.sum(below.as_fd(), 1))
}

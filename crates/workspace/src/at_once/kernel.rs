//! What the kernel has in its memory.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};

/// File systems that ask nobody else: ext2 to ext4, XFS, Btrfs, F2FS, bcachefs, ZFS, tmpfs, overlays.
const LOCAL: [u32; 8] =
    [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0xCA45_1A4E, 0x2FC1_2FC1, 0x0102_1994, 0x794C_7630];

/// The kernel is too old, or a filter of calls is in the way.
static IS_REFUSED: AtomicBool = AtomicBool::new(false);
/// Mounts of local file systems, by number. One of them may be used again for another: then something may block.
static MOUNTS: RwLock<BTreeSet<u64>> = RwLock::new(BTreeSet::new());

pub(super) fn is_able() -> bool {
    !IS_REFUSED.load(Ordering::Relaxed)
}

/// Keeps in mind on which file system `path` lies, if that is a local one. Blocks.
pub(crate) fn note_local(path: &Path) {
    let kind = rustix::fs::statfs(path).ok().and_then(|facts| u32::try_from(facts.f_type).ok());
    if !kind.is_some_and(|kind| LOCAL.contains(&kind)) {
        return;
    }
    if let Ok(facts) = rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::MNT_ID) {
        MOUNTS.write().unwrap_or_else(PoisonError::into_inner).insert(facts.stx_mnt_id);
    }
}

/// Whether what is held lies on a local file system. Asks nobody.
fn is_local(held: impl AsFd) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let facts = rustix::fs::statx(held, c"", flags, StatxFlags::MNT_ID);
    let is_known = |mount| MOUNTS.read().unwrap_or_else(PoisonError::into_inner).contains(&mount);
    facts.is_ok_and(|facts| is_known(facts.stx_mnt_id))
}

/// An error of what was tried at once: it is an answer if it says what stands there, and else a miss.
pub(crate) fn answer(error: Errno) -> Errno {
    match error {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG | Errno::ISDIR | Errno::XDEV => {}
        Errno::NOSYS | Errno::PERM | Errno::INVAL => {
            IS_REFUSED.store(true, Ordering::Relaxed);
            super::would_wait();
        }
        _ => {
            super::would_wait();
        }
    }
    error
}

/// How paths are resolved.
pub(crate) fn resolving() -> ResolveFlags {
    if super::is_on() { ResolveFlags::CACHED } else { ResolveFlags::empty() }
}

/// Opens `name` in `directory`, at once.
pub(crate) fn open(directory: impl AsFd, name: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    if !super::look() {
        return Err(Errno::AGAIN);
    }
    let opened =
        rustix::fs::openat2(directory, name, flags | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::CACHED);
    opened.map_err(answer)
}

/// What stands at `name` in `directory`, at once. Links are followed unless the flags say otherwise.
pub(crate) fn stat(directory: impl AsFd, name: &Path, flags: OFlags) -> Result<Stat, Errno> {
    let held = open(directory, name, flags | OFlags::PATH)?;
    // Others would be asked for what they know by now.
    if !is_local(&held) {
        super::would_wait();
        return Err(Errno::AGAIN);
    }
    rustix::fs::fstat(held).map_err(answer)
}

/// Reads on in a file, from where it is.
pub(super) fn read(file: &File, buffer: &mut [u8]) -> Result<usize, Errno> {
    /// As the kernel has it: where the file is, and on from there.
    const HERE: u64 = u64::MAX;
    rustix::io::preadv2(file, &mut [IoSliceMut::new(buffer)], HERE, ReadWriteFlags::NOWAIT)
}

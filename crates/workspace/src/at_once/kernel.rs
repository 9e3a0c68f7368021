//! What the kernel has in its memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{OnceLock, PoisonError, RwLock};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};

/// File systems that ask nobody else: ext2 to ext4, XFS, Btrfs, F2FS, bcachefs, ZFS, tmpfs, overlays.
const LOCAL: [u32; 8] =
    [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0xCA45_1A4E, 0x2FC1_2FC1, 0x0102_1994, 0x794C_7630];

/// Mounts of local file systems by number, and whether their files can be read at once: tmpfs and overlays do not know how.
static MOUNTS: RwLock<BTreeMap<u64, bool>> = RwLock::new(BTreeMap::new());

/// Whether the kernel knows of this (it is too old for it before 5.12), and no filter of calls is in the way.
pub(super) fn is_able() -> bool {
    static IS_ABLE: OnceLock<bool> = OnceLock::new();
    *IS_ABLE.get_or_init(|| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat2(CWD, "/", flags, Mode::empty(), ResolveFlags::CACHED);
        !matches!(opened, Err(Errno::NOSYS | Errno::PERM | Errno::INVAL))
    })
}

/// The number of the mount on which what is held lies. Asks nobody. Numbers that are used once only come with Linux 6.8; before
/// that one that was unmounted may be that of another mount later, and then something may block.
fn mount_of(held: impl AsFd) -> Option<u64> {
    /// `STATX_MNT_ID_UNIQUE` of `linux/stat.h`.
    const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let facts = rustix::fs::statx(held, c"", flags, StatxFlags::MNT_ID | UNIQUE);
    facts.ok().map(|facts| facts.stx_mnt_id)
}

/// Keeps in mind on which file system `path` lies, if that is a local one. Blocks.
pub(crate) fn note_local(path: &Path) {
    let kind = rustix::fs::statfs(path).ok().and_then(|facts| u32::try_from(facts.f_type).ok());
    if !kind.is_some_and(|kind| LOCAL.contains(&kind)) {
        return;
    }
    let held = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty());
    if let Some(mount) = held.ok().and_then(mount_of) {
        MOUNTS.write().unwrap_or_else(PoisonError::into_inner).entry(mount).or_insert(true);
    }
}

/// Whether files can be read at once where this lies; `None` where it is not known to be a local file system. Asks nobody.
fn reads(held: impl AsFd) -> Option<bool> {
    let mount = mount_of(held)?;
    MOUNTS.read().unwrap_or_else(PoisonError::into_inner).get(&mount).copied()
}

/// Whether what was opened can be read at once. Asks nobody.
pub(crate) fn is_readable(held: impl AsFd) -> bool {
    reads(held) == Some(true)
}

/// How a file of `owner` is opened to be read. That it was read need not be written down: the first to read what was changed
/// might wait for that. Only the owner may ask for it.
pub(crate) fn reading(owner: u32) -> OFlags {
    if super::is_on() && owner == rustix::process::geteuid().as_raw() {
        OFlags::NOATIME
    } else {
        OFlags::empty()
    }
}

/// An error of what was tried at once: it is an answer if it says what stands there, and else a miss.
pub(crate) fn answer(error: Errno) -> Errno {
    match error {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG | Errno::ISDIR | Errno::XDEV => {}
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
    if reads(&held).is_none() {
        super::would_wait();
        return Err(Errno::AGAIN);
    }
    rustix::fs::fstat(held).map_err(answer)
}

/// Reads on in a file, from where it is.
pub(super) fn read(file: &File, buffer: &mut [u8]) -> Result<usize, Errno> {
    /// As the kernel has it: where the file is, and on from there.
    const HERE: u64 = u64::MAX;
    let read = rustix::io::preadv2(file, &mut [IoSliceMut::new(buffer)], HERE, ReadWriteFlags::NOWAIT);
    if read == Err(Errno::OPNOTSUPP)
        && let Some(mount) = mount_of(file)
        && let Some(reads) = MOUNTS.write().unwrap_or_else(PoisonError::into_inner).get_mut(&mount)
    {
        *reads = false;
    }
    read
}

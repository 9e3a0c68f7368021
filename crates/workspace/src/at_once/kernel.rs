//! What the kernel has in its memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{LazyLock, OnceLock};

use parking_lot::RwLock;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};

use crate::door::Seen;

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

/// What is known of what is held, with the number of the mount on which it lies. Asks nobody. Numbers that are used once only come
/// with Linux 6.8; before that one that was unmounted may be that of another mount later, and then something may block.
fn known_of(held: impl AsFd, wanted: StatxFlags) -> Result<Statx, Errno> {
    /// `STATX_MNT_ID_UNIQUE` of `linux/stat.h`.
    const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(held, c"", flags, wanted | StatxFlags::MNT_ID | UNIQUE)
}

fn mount_of(held: impl AsFd) -> Option<u64> {
    known_of(held, StatxFlags::empty()).ok().map(|known| known.stx_mnt_id)
}

/// Keeps in mind on which file system `path` lies, if that is a local one. Blocks.
pub(crate) fn note_local(path: &Path) {
    let kind = rustix::fs::statfs(path).ok().and_then(|facts| u32::try_from(facts.f_type).ok());
    if !kind.is_some_and(|kind| LOCAL.contains(&kind)) {
        return;
    }
    let held = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty());
    if let Some(mount) = held.ok().and_then(mount_of) {
        MOUNTS.write().entry(mount).or_insert(true);
    }
}

/// Whether files can be read at once on this mount; `None` where it is not known to be one of a local file system.
fn reads(mount: u64) -> Option<bool> {
    MOUNTS.read().get(&mount).copied()
}

/// How a file of `owner` is opened to be read. That it was read need not be written down: the first to read what was changed
/// might wait for that. Only the owner may ask for it.
pub(crate) fn reading(owner: u32) -> OFlags {
    /// Should it change, the system says no, which is a miss.
    static OURS: LazyLock<u32> = LazyLock::new(|| rustix::process::geteuid().as_raw());
    if super::is_on() && owner == *OURS { OFlags::NOATIME } else { OFlags::empty() }
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
pub(crate) fn stat(directory: impl AsFd, name: &Path, flags: OFlags) -> Result<Seen, Errno> {
    let held = open(directory, name, flags | OFlags::PATH)?;
    // Others would be asked for what they know by now.
    seen(held, |reads| reads.is_some())
}

/// What was opened to be read, where it can be read at once.
pub(crate) fn opened(file: impl AsFd) -> Result<Seen, Errno> {
    seen(file, |reads| reads == Some(true))
}

/// What is held, if it lies where that is `enough`.
fn seen(held: impl AsFd, enough: impl FnOnce(Option<bool>) -> bool) -> Result<Seen, Errno> {
    // No more than is used: file systems that keep no time of reading say so.
    let wanted = StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::UID | StatxFlags::SIZE | StatxFlags::MTIME;
    let known = known_of(held, wanted).map_err(answer)?;
    let is_whole = StatxFlags::from_bits_retain(known.stx_mask).contains(wanted);
    if is_whole && enough(reads(known.stx_mnt_id)) {
        return Ok(Seen::from(&known));
    }
    super::would_wait();
    Err(Errno::AGAIN)
}

/// Reads on in a file, from where it is.
pub(super) fn read(file: &File, buffer: &mut [u8]) -> Result<usize, Errno> {
    /// As the kernel has it: where the file is, and on from there.
    const HERE: u64 = u64::MAX;
    let read = rustix::io::preadv2(file, &mut [IoSliceMut::new(buffer)], HERE, ReadWriteFlags::NOWAIT);
    if read == Err(Errno::OPNOTSUPP)
        && let Some(mount) = mount_of(file)
        && let Some(reads) = MOUNTS.write().get_mut(&mount)
    {
        *reads = false;
    }
    read
}

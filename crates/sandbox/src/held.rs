//! Directories that are held open, on ways without a link.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

#[cfg(target_os = "linux")]
pub use rustix::fs::ResolveFlags;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use thiserror::Error;

/// How a directory is held that is only passed through: searching it is enough, reading it is not asked.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
const PASS: OFlags = OFlags::PATH;
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
const PASS: OFlags = OFlags::RDONLY;

/// Why a directory that a session works in cannot be used.
#[derive(Debug, Error)]
pub enum DirectoryError {
    /// There is nothing.
    #[error("the workspace {path} does not exist: create it, or name another directory")]
    Missing {
        /// The path as it was given.
        path: PathBuf,
    },
    /// It cannot be listed.
    #[error(
        "the workspace {path} cannot be read: {source}. Check its permissions, and those of the directories above it"
    )]
    Unreadable {
        /// The path as it was given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A link stands in the place of the directory, or of one above it.
    #[error(
        "the workspace {path} is no longer the directory that it was: it, or a directory above it, was replaced by a link. \
         Put the directory back, or begin a new session"
    )]
    Replaced {
        /// The path that was free of links.
        path: PathBuf,
    },
}

impl DirectoryError {
    /// What the system's answer says about the directory at `root`, which was there and free of links.
    pub fn of(root: &Path, error: Errno) -> Self {
        let path = root.to_path_buf();
        match error {
            Errno::NOENT => Self::Missing { path },
            Errno::LOOP | Errno::NOTDIR => Self::Replaced { path },
            error => Self::Unreadable { path, source: error.into() },
        }
    }
}

/// Whether the directory at `root`, which was free of links, still is what it was.
///
/// # Errors
/// It is gone, may not be searched, or a link stands in the way.
pub fn check(root: &Path) -> Result<(), DirectoryError> {
    hold(root).map(drop).map_err(|error| DirectoryError::of(root, error))
}

/// Holds the directory at `path`, which is absolute and free of links, and has to be so still.
///
/// # Errors
/// There is none, or a link stands in the way.
pub fn hold(path: &Path) -> Result<OwnedFd, Errno> {
    open_directory(Path::new("/"), path)
}

/// How often the kernel is asked again, when it says that too much moved for an answer.
#[cfg(target_os = "linux")]
const TRIES: usize = 16;

/// Opens the directory at the absolute `path`, where no part of it is a link, and, where it lies in `base`, nothing leads
/// out of that.
///
/// # Errors
/// There is none, or a link stands in the way.
pub fn open_directory(base: &Path, path: &Path) -> Result<OwnedFd, Errno> {
    #[cfg(target_os = "linux")]
    for _ in 0..TRIES {
        match in_the_kernel(base, path, ResolveFlags::empty()) {
            Err(Errno::AGAIN) => {}
            // Older kernels, and containers that filter the call, do not have it.
            Err(Errno::NOSYS | Errno::PERM) => break,
            result => return result,
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = base;
    by_hand(path)
}

/// [`open_directory`] by the kernel, which follows the way as one, and refuses each link and each step out of `base`. `also`
/// is what it is asked for beside that.
///
/// # Errors
/// There is none, a link stands in the way, or the kernel does not have the call.
#[cfg(target_os = "linux")]
pub fn in_the_kernel(base: &Path, path: &Path, also: ResolveFlags) -> Result<OwnedFd, Errno> {
    let base = if path.starts_with(base) { base } else { Path::new("/") };
    let flags = PASS | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let no_links = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | also;
    if !path.is_absolute() {
        return Err(Errno::INVAL);
    }
    // Nothing leads out of the root.
    if base == Path::new("/") {
        return rustix::fs::openat2(CWD, path, flags, Mode::empty(), no_links);
    }
    let held = rustix::fs::openat2(CWD, base, flags, Mode::empty(), no_links)?;
    let below = path.strip_prefix(base).map_err(|_| Errno::INVAL)?;
    if below.as_os_str().is_empty() {
        return Ok(held);
    }
    rustix::fs::openat2(held, below, flags, Mode::empty(), no_links | ResolveFlags::BENEATH)
}

/// [`open_directory`] from directory to directory, each held while the next one is opened. There is no way out, since no name
/// is `..` and no link is followed.
///
/// # Errors
/// There is none, or a link stands in the way.
pub fn by_hand(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = PASS | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, "/", flags, Mode::empty())?;
    path.components().try_fold(root, |directory, component| match component {
        Component::RootDir => Ok(directory),
        Component::Normal(name) => {
            rustix::fs::openat(&directory, name, flags | OFlags::NOFOLLOW, Mode::empty())
        }
        // A resolved path has none of these.
        Component::CurDir | Component::ParentDir | Component::Prefix(_) => Err(Errno::INVAL),
    })
}

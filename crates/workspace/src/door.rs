//! The door to files: opens places that were resolved, and only them.
//!
//! Between the moment at which a path was resolved and judged and the moment at which it is used, a command may have put
//! a link in its way. So nothing here follows a link, in no part of the path: a place that is no longer the one that was
//! resolved is an error. The kernel sees to that, beneath the directory of the session (`openat2` with `RESOLVE_BENEATH`
//! and `RESOLVE_NO_SYMLINKS`); where it cannot, the way is gone by hand, from directory to directory. Pipes are not waited
//! for, and devices and sockets are not opened.
//!
//! What is [`Zone::Guarded`] or [`Zone::Output`] is not changed through the door, and what is [`Zone::Hidden`] not opened:
//! policy says so before, and this holds when policy is wrong.
//!
//! Other names of a file (hard links) cannot be told from the one that was given, and are read like it. A write changes
//! them with it only where all of them lie in the workspace and may be changed; else it puts a new file in the place of the
//! name.
//!
//! Everything here blocks, so it belongs into the [`Pool`](crate::Pool); but what only looks at a place, or opens a file to read it,
//! waits for nothing where it is tried [`at_once`](crate::at_once()).

mod carry;
mod folder;
mod in_place;
mod kept;
pub(crate) mod leftovers;
mod link;
mod names;
mod take;
mod walk;
mod write;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use playhouse_policy::Zone;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawMode, Stat};
use rustix::io::Errno;
use thiserror::Error;

use crate::{Resolved, at_once};
use walk::Spot;

pub use folder::{make_folder, remove_folder, set_folder_mode};
pub use kept::{RECORD, restore};
pub use link::{TakenLink, make_link, replace_with_link, take_link};
pub use take::{Taken, check_takable, remove_empty, take};
pub use write::{
    Expected, InPlace, Written, create_parents, create_private, set_mode, write_atomic, write_keeping,
    write_like, write_with_mode,
};

/// Why the door stays shut. The text names the place as people and models know it.
#[derive(Debug, Error)]
pub enum DoorError {
    /// There is nothing.
    #[error("{0} does not exist")]
    Missing(String),
    /// There is a directory.
    #[error("{0} is a directory, not a file")]
    Directory(String),
    /// There is something that is not a directory.
    #[error("{0} is not a directory")]
    NotDirectory(String),
    /// There is a pipe, a device or a socket.
    #[error("{path} is a {kind}, not a regular file, so it is not opened")]
    Special {
        /// The place.
        path: String,
        /// `pipe`, `device`, `socket`.
        kind: &'static str,
    },
    /// The place is not the one that was resolved.
    #[error(
        "{0} was replaced while the call ran: a part of its path is a link now, or no directory any more. Look at it again"
    )]
    Replaced(String),
    /// The content is not the expected one.
    #[error("{0} changed meanwhile: read it again, then repeat the change")]
    Changed(String),
    /// There is something already.
    #[error("{0} exists already")]
    Exists(String),
    /// The file may not be written.
    #[error("{0} is read-only: its permissions allow nobody, or not this user, to write it")]
    ReadOnly(String),
    /// It is not to be changed, whoever asks: policy says so before, and this is the second lock.
    #[error("{0} is not to be changed by a file tool")]
    NotToChange(String),
    /// It belongs to the engine.
    #[error("{0} belongs to the engine, and no call may touch it")]
    Hidden(String),
    /// The system denies it.
    #[error("{0} may not be opened: permission denied")]
    Denied(String),
    /// It was written in place, that failed, and its old content could not be put back.
    #[error(
        "{path} was not written as a whole, and its old content could not be put back: it is in {kept} ({source})"
    )]
    Torn {
        /// The place.
        path: String,
        /// Where its old content is.
        kept: String,
        /// What the system said.
        source: io::Error,
    },
    /// Anything else.
    #[error("{path}: {source}")]
    Io {
        /// The place.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}

impl DoorError {
    fn from_errno(shown: &str, error: Errno) -> Self {
        let path = shown.to_owned();
        match error {
            Errno::NOENT => Self::Missing(path),
            Errno::LOOP | Errno::NOTDIR | Errno::XDEV => Self::Replaced(path),
            Errno::ISDIR => Self::Directory(path),
            Errno::EXIST => Self::Exists(path),
            Errno::ACCESS | Errno::PERM => Self::Denied(path),
            error => Self::Io { path, source: error.into() },
        }
    }

    fn from_io(shown: &str, source: io::Error) -> Self {
        Self::Io { path: shown.to_owned(), source }
    }
}

impl Resolved {
    fn must_be_visible(&self) -> Result<(), DoorError> {
        if self.zone == Zone::Hidden { Err(DoorError::Hidden(self.shown.clone())) } else { Ok(()) }
    }

    fn must_be_writable(&self) -> Result<(), DoorError> {
        match self.zone {
            Zone::Workspace | Zone::Outside => Ok(()),
            Zone::Guarded | Zone::Output => Err(DoorError::NotToChange(self.shown.clone())),
            Zone::Hidden => self.must_be_visible(),
        }
    }
}

/// What stands at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A named pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A block or character device.
    Device,
}

impl Kind {
    fn of(stat: &Stat) -> Self {
        Seen::from(stat).kind()
    }

    fn from_type(kind: FileType) -> Option<Self> {
        match kind {
            FileType::RegularFile => Some(Self::File),
            FileType::Directory => Some(Self::Directory),
            FileType::Symlink => Some(Self::Link),
            FileType::Fifo => Some(Self::Pipe),
            FileType::Socket => Some(Self::Socket),
            FileType::CharacterDevice | FileType::BlockDevice => Some(Self::Device),
            FileType::Unknown => None,
        }
    }

    /// Refuses everything but a regular file.
    fn must_be_file(self, shown: &str) -> Result<(), DoorError> {
        let special = |kind| Err(DoorError::Special { path: shown.to_owned(), kind });
        match self {
            Self::File => Ok(()),
            Self::Directory => Err(DoorError::Directory(shown.to_owned())),
            // The path was free of links when it was resolved.
            Self::Link => Err(DoorError::Replaced(shown.to_owned())),
            Self::Pipe => special("pipe"),
            Self::Socket => special("socket"),
            Self::Device => special("device"),
        }
    }
}

/// What the system says of what it was asked for, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    mode: RawMode,
    owner: u32,
    bytes: u64,
    /// When its content last changed: seconds since the epoch, and nanoseconds.
    modified: (i64, u32),
}

impl From<&Stat> for Seen {
    fn from(stat: &Stat) -> Self {
        Self {
            mode: stat.st_mode,
            owner: stat.st_uid,
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0)),
        }
    }
}

#[cfg(target_os = "linux")]
impl From<&rustix::fs::Statx> for Seen {
    fn from(known: &rustix::fs::Statx) -> Self {
        Self {
            mode: known.stx_mode.into(),
            owner: known.stx_uid,
            bytes: known.stx_size,
            modified: (known.stx_mtime.tv_sec, known.stx_mtime.tv_nsec),
        }
    }
}

impl Seen {
    pub(crate) fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }

    fn kind(&self) -> Kind {
        Kind::from_type(self.file_type()).unwrap_or(Kind::Device)
    }

    fn facts(&self) -> Facts {
        let (seconds, nanoseconds) = self.modified;
        let since = Duration::new(u64::try_from(seconds).unwrap_or(0), nanoseconds);
        let modified = SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH);
        Facts { kind: self.kind(), bytes: self.bytes, modified }
    }
}

/// Facts of what stands at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What it is.
    pub kind: Kind,
    /// Size in bytes.
    pub bytes: u64,
    /// When its content last changed.
    pub modified: SystemTime,
}

/// What stands at `resolved`; `None` for nothing.
///
/// # Errors
/// When the place was replaced, or may not be looked at.
pub fn facts(resolved: &Resolved) -> Result<Option<Facts>, DoorError> {
    Ok(find(resolved)?.map(|found| found.seen.facts()))
}

/// What stands at a place, with the directory in which that place is held open.
#[derive(Debug)]
pub struct Found<'a> {
    spot: Spot<'a>,
    seen: Seen,
    resolved: &'a Resolved,
}

/// Finds what stands at `resolved`; `None` for nothing.
///
/// # Errors
/// When the place was replaced, or may not be looked at.
pub fn find(resolved: &Resolved) -> Result<Option<Found<'_>>, DoorError> {
    let found = Spot::of(resolved).and_then(|spot| {
        let seen = spot.see()?;
        Ok(Found { spot, seen, resolved })
    });
    match found {
        Ok(found) => Ok(Some(found)),
        Err(DoorError::Missing(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What stands at `path`, which is absolute and free of links, and has to be so still: a link in a part of it is an error, one
/// at its end is a [`Kind::Link`]. `None` for nothing.
///
/// # Errors
/// A part of it is a link, or no directory, or may not be searched.
pub fn facts_at(path: &Path) -> Result<Option<Facts>, DoorError> {
    let shown = path.to_string_lossy().into_owned();
    let base = Arc::from(Path::new("/"));
    facts(&Resolved { path: path.to_owned(), zone: Zone::Outside, shown, base })
}

/// Opens the regular file at `resolved` for reading. Returns at once, whatever stands there.
///
/// # Errors
/// When there is nothing, no regular file, or no permission, and when the place was replaced.
pub fn open_read(resolved: &Resolved) -> Result<File, DoorError> {
    resolved.must_be_visible()?;
    let missing = || DoorError::Missing(resolved.shown.clone());
    find(resolved)?.ok_or_else(missing)?.open_read()
}

impl Found<'_> {
    /// What it is.
    pub fn kind(&self) -> Kind {
        self.seen.kind()
    }

    /// Opens it, where it is a regular file, for reading. Returns at once, whatever stands there by now.
    ///
    /// # Errors
    /// As for [`open_read`].
    pub fn open_read(&self) -> Result<File, DoorError> {
        self.resolved.must_be_visible()?;
        let shown = &self.resolved.shown;
        // Looked at before it is opened, since opening a device may already do something.
        self.kind().must_be_file(shown)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        #[cfg(target_os = "linux")]
        let flags = flags | at_once::reading(self.seen.owner);
        let file = self.spot.open(flags)?;
        opened(&file).map_err(|error| self.spot.error(error))?.kind().must_be_file(shown)?;
        Ok(File::from(file))
    }
}

/// What was opened to be read.
fn opened(file: &OwnedFd) -> Result<Seen, Errno> {
    #[cfg(target_os = "linux")]
    if at_once::is_on() {
        return at_once::opened(file);
    }
    rustix::fs::fstat(file).map(|stat| Seen::from(&stat))
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: OsString,
    /// What it is; a link is a link, wherever it leads.
    pub kind: Kind,
}

/// The names in a directory, in the file system's order, without `.` and `..`.
#[derive(Debug)]
pub struct Entries {
    directory: rustix::fs::Dir,
    shown: String,
}

/// Lists the directory at `resolved`.
///
/// # Errors
/// When there is nothing, no directory, or no permission, and when the place was replaced. Reading on may fail, too.
pub fn read_dir(resolved: &Resolved) -> Result<Entries, DoorError> {
    let directory = open_directory(resolved)?;
    let directory =
        rustix::fs::Dir::new(directory).map_err(|error| DoorError::from_errno(&resolved.shown, error))?;
    Ok(Entries { directory, shown: resolved.shown.clone() })
}

/// Opens the directory at `resolved`, which also makes sure that it is one.
///
/// # Errors
/// When there is nothing, no directory, or no permission, and when the place was replaced.
pub fn open_directory(resolved: &Resolved) -> Result<OwnedFd, DoorError> {
    resolved.must_be_visible()?;
    if at_once::would_wait() {
        return Err(DoorError::from_errno(&resolved.shown, Errno::AGAIN));
    }
    let spot = Spot::of(resolved)?;
    match Kind::of(&spot.stat()?) {
        Kind::Directory => spot.open(OFlags::RDONLY | OFlags::DIRECTORY),
        Kind::Link => Err(DoorError::Replaced(resolved.shown.clone())),
        _ => Err(DoorError::NotDirectory(resolved.shown.clone())),
    }
}

/// Holds the directory at `path`, which is absolute and free of links, and has to be so still.
pub(crate) fn hold(path: &Path) -> Result<OwnedFd, Errno> {
    walk::open_directory(Path::new("/"), path)
}

impl Iterator for Entries {
    type Item = Result<Entry, DoorError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = match self.directory.read()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(DoorError::from_errno(&self.shown, error))),
            };
            if let Some(entry) = self.entry(&entry) {
                return Some(Ok(entry));
            }
        }
    }
}

impl Entries {
    /// `None` for the two dots, and for what is gone already.
    fn entry(&self, entry: &rustix::fs::DirEntry) -> Option<Entry> {
        use std::os::unix::ffi::OsStringExt;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            return None;
        }
        // Some file systems leave the type out.
        let kind = Kind::from_type(entry.file_type()).or_else(|| {
            let directory = self.directory.fd().ok()?;
            let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            Some(Kind::of(&stat))
        })?;
        Some(Entry { name: OsString::from_vec(name.to_bytes().to_vec()), kind })
    }
}

/// Opens `name` in `directory`, which is not followed if it is a link.
fn open_at(directory: &OwnedFd, name: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(directory, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode)
}

#[cfg(test)]
mod tests;

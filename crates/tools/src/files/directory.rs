//! Directories as open handles.
//!
//! A walk goes from a handle to what lies in it by a single name and never through a link, so that nothing that is
//! moved or replaced while it runs can lead it out of the tree that it began in.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat};

/// What an entry of a directory is, without following it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A pipe, a socket, a device.
    Other,
}

impl From<FileType> for Kind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Link,
            _ => Self::Other,
        }
    }
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The name.
    pub(crate) name: OsString,
    /// What it is.
    pub(crate) kind: Kind,
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct Directory {
    handle: OwnedFd,
}

impl Directory {
    /// The directory that `handle` is open on.
    pub(crate) fn new(handle: OwnedFd) -> Self {
        Self { handle }
    }

    /// The directory `name` in this one. A link is an error.
    pub(crate) fn child(&self, name: &OsStr) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self { handle: openat(&self.handle, name, flags, Mode::empty())? })
    }

    /// The regular file `name` in this directory, for reading. A link, a pipe or a device is an error, never a wait.
    pub(crate) fn open(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let handle = openat(&self.handle, name, flags, Mode::empty())?;
        if FileType::from_raw_mode(fstat(&handle)?.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok(handle.into())
    }

    /// Facts about `name` itself, not about what it may link to.
    pub(crate) fn facts(&self, name: &OsStr) -> io::Result<Stat> {
        Ok(statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// The entries, sorted by name, and whether there are more than `limit`. Stops early when `cancelled` says so.
    pub(crate) fn entries(
        &self,
        limit: usize,
        cancelled: &dyn Fn() -> bool,
    ) -> io::Result<(Vec<Entry>, bool)> {
        let mut entries = Vec::new();
        let mut more = false;
        for entry in Dir::read_from(&self.handle)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if entries.len() == limit || cancelled() {
                more = true;
                break;
            }
            let name = OsString::from_vec(name.to_vec());
            let kind = match entry.file_type() {
                // Some file systems leave it to us to ask.
                FileType::Unknown => match self.facts(&name) {
                    Ok(facts) => FileType::from_raw_mode(facts.st_mode).into(),
                    Err(_) => Kind::Other,
                },
                known => known.into(),
            };
            entries.push(Entry { name, kind });
        }
        entries.sort_unstable_by(|one, other| one.name.as_bytes().cmp(other.name.as_bytes()));
        Ok((entries, more))
    }
}

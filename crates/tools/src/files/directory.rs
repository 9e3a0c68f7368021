//! Directories as open handles.
//!
//! A walk goes from a handle to what lies in it by a single name and never through a link, so that nothing that is
//! moved or replaced while it runs can lead it out of the tree that it began in.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, statat};

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

/// The entries of a directory, sorted by name. All names lie in one buffer, since there may be a million of them.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    names: Vec<u8>,
    slots: Vec<Slot>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    from: usize,
    length: u32,
    kind: Kind,
}

impl Entries {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Name and kind of the entry at `index`, if there is one.
    pub(crate) fn get(&self, index: usize) -> Option<(&OsStr, Kind)> {
        let slot = self.slots.get(index)?;
        Some((OsStr::from_bytes(name(&self.names, *slot)), slot.kind))
    }

    /// Whether there is an entry of this name.
    pub(crate) fn has(&self, wanted: &str) -> bool {
        self.slots.binary_search_by(|slot| name(&self.names, *slot).cmp(wanted.as_bytes())).is_ok()
    }

    fn push(&mut self, name: &[u8], kind: Kind) {
        let length = u32::try_from(name.len()).unwrap_or(u32::MAX);
        self.slots.push(Slot { from: self.names.len(), length, kind });
        self.names.extend_from_slice(name);
    }

    fn sort(&mut self) {
        let names = &self.names;
        self.slots.sort_unstable_by(|one, other| name(names, *one).cmp(name(names, *other)));
    }
}

fn name(names: &[u8], slot: Slot) -> &[u8] {
    &names[slot.from..slot.from + slot.length as usize]
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

    /// The entries, and whether there are more than `limit`. Stops early when `cancelled` says so. To be called once:
    /// it reads the handle to its end.
    pub(crate) fn entries(&self, limit: usize, cancelled: &dyn Fn() -> bool) -> io::Result<(Entries, bool)> {
        let mut entries = Entries::default();
        let mut more = false;
        self.each(&mut |name, kind| {
            if name == b"." || name == b".." {
                return true;
            }
            if entries.len() == limit || cancelled() {
                more = true;
                return false;
            }
            let kind = match kind {
                // Some file systems leave it to us to ask.
                FileType::Unknown => match self.facts(OsStr::from_bytes(name)) {
                    Ok(facts) => FileType::from_raw_mode(facts.st_mode).into(),
                    Err(_) => Kind::Other,
                },
                known => known.into(),
            };
            entries.push(name, kind);
            true
        })?;
        entries.sort();
        Ok((entries, more))
    }

    /// Gives each name to `visit`, in the file system's order, until it says that it has enough.
    #[cfg(target_os = "linux")]
    fn each(&self, visit: &mut dyn FnMut(&[u8], FileType) -> bool) -> io::Result<()> {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 32 * 1024];
        let mut directory = rustix::fs::RawDir::new(&self.handle, &mut buffer);
        while let Some(entry) = directory.next() {
            let entry = entry?;
            if !visit(entry.file_name().to_bytes(), entry.file_type()) {
                break;
            }
        }
        Ok(())
    }

    /// Gives each name to `visit`, in the file system's order, until it says that it has enough.
    #[cfg(not(target_os = "linux"))]
    fn each(&self, visit: &mut dyn FnMut(&[u8], FileType) -> bool) -> io::Result<()> {
        for entry in rustix::fs::Dir::read_from(&self.handle)? {
            let entry = entry?;
            if !visit(entry.file_name().to_bytes(), entry.file_type()) {
                break;
            }
        }
        Ok(())
    }
}

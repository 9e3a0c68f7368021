//! A directory that is held open, and what lies in it.
//!
//! Nothing here follows a link or waits for a pipe, so what a workspace puts into the way leads nowhere: neither when it was
//! there from the beginning, nor when it comes while somebody looks.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};

use crate::held;

/// A directory. It stays the same one, whatever becomes of its path.
#[derive(Debug)]
pub struct Folder(OwnedFd);

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Folder {
    /// The one at `path`, which is absolute; no part of it may be a link.
    ///
    /// # Errors
    /// There is none.
    pub fn open(path: &Path) -> io::Result<Self> {
        let held = held::hold(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::openat(held, ".", flags, Mode::empty())?))
    }

    /// The one at `relative` in this one.
    ///
    /// # Errors
    /// There is none, or the way goes through a link or upwards.
    pub fn below(&self, relative: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut held = self.0.try_clone()?;
        for part in relative.components() {
            let Component::Normal(name) = part else { return Err(io::ErrorKind::InvalidInput.into()) };
            held = rustix::fs::openat(held, name, flags, Mode::empty())?;
        }
        Ok(Self(held))
    }

    /// What stands at a name; a link is not followed.
    ///
    /// # Errors
    /// Nothing, or it may not be looked at.
    pub fn facts(&self, name: &OsStr) -> io::Result<Stat> {
        Ok(rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// The regular file at `relative`, for reading, and what it is.
    ///
    /// # Errors
    /// There is none, or the way goes through a link or upwards.
    pub fn file(&self, relative: &Path) -> io::Result<(File, Stat)> {
        let (Some(parent), Some(name)) = (relative.parent(), relative.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let inner = (!parent.as_os_str().is_empty()).then(|| self.below(parent)).transpose()?;
        let folder = inner.as_ref().unwrap_or(self);
        let must_be_file = |facts: &Stat| match FileType::from_raw_mode(facts.st_mode) {
            FileType::RegularFile => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
        };
        // Looked at before it is opened, since opening a device may already do something.
        must_be_file(&folder.facts(name)?)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&folder.0, name, flags, Mode::empty())?;
        let facts = rustix::fs::fstat(&file)?;
        must_be_file(&facts)?;
        Ok((File::from(file), facts))
    }

    /// What a link says.
    ///
    /// # Errors
    /// There is none.
    pub fn link(&self, name: &OsStr) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(&self.0, name, Vec::new())?.into_bytes())
    }

    /// The names in it, without `.` and `..`, but no more than `most`.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn names(&self, most: usize) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if names.len() >= most {
                break;
            }
            names.push(OsString::from_vec(name.to_vec()));
        }
        Ok(names)
    }

    /// The content of a regular file of at most so many bytes.
    pub fn bytes(&self, relative: impl AsRef<Path>, longest: u64) -> Option<Vec<u8>> {
        let (file, _) = self.file(relative.as_ref()).ok()?;
        let mut bytes = Vec::new();
        file.take(longest + 1).read_to_end(&mut bytes).ok()?;
        (bytes.len() as u64 <= longest).then_some(bytes)
    }

    /// The same for text.
    pub fn text(&self, relative: impl AsRef<Path>, longest: u64) -> Option<String> {
        String::from_utf8(self.bytes(relative, longest)?).ok()
    }
}

/// The text of the regular file at the absolute `path`, no part of which is a link, if it has at most so many bytes.
pub fn text(path: &Path, longest: u64) -> Option<String> {
    Folder::open(path.parent()?).ok()?.text(path.file_name()?, longest)
}

/// Where `written` leads from `base` on, judged by its letters alone: whether anything is there is not asked, so that nobody
/// learns it. Right only where no part of it is a link.
pub fn lexical(base: &Path, written: &Path) -> PathBuf {
    let mut path = PathBuf::new();
    for part in base.join(written).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use fs_err::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn neither_links_nor_pipes_nor_the_way_up_lead_anywhere() {
        let folder = tempfile::tempdir().unwrap();
        let top = fs_err::canonicalize(folder.path()).unwrap();
        fs_err::create_dir_all(top.join("in/deep")).unwrap();
        fs_err::write(top.join("secret"), "secret").unwrap();
        fs_err::write(top.join("in/deep/file"), "text").unwrap();
        symlink("../secret", top.join("in/link")).unwrap();
        symlink("deep", top.join("in/other")).unwrap();
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, top.join("in/pipe"), FileType::Fifo, mode, 0).unwrap();
        let held = Folder::open(&top.join("in")).unwrap();
        // It stays what it is.
        fs_err::rename(top.join("in"), top.join("aside")).unwrap();
        symlink("/", top.join("in")).unwrap();
        assert_eq!(held.text("deep/file", 4).as_deref(), Some("text"));
        assert_eq!(held.text("deep/file", 3), None, "it is longer");
        for path in ["link", "other/file", "pipe", "../secret", "deep", "missing", ""] {
            assert_eq!(held.text(path, 100), None, "{path}");
        }
        assert_eq!(held.link(OsStr::new("link")).unwrap(), b"../secret");
        let mut names = held.names(100).unwrap();
        names.sort();
        assert_eq!(names, ["deep", "link", "other", "pipe"]);
        assert_eq!(held.names(2).unwrap().len(), 2);
        assert!(Folder::open(&top.join("in")).is_err());
    }

    #[test]
    fn paths_are_joined_by_their_letters() {
        for (written, expected) in
            [("../x/./y", "/a/x/y"), ("/z/../q", "/q"), ("../../../..", "/"), (".", "/a/b")]
        {
            assert_eq!(lexical(Path::new("/a/b"), Path::new(written)), Path::new(expected));
        }
    }
}

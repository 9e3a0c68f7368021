//! Reads a small file of a workspace without being led out of it.
//!
//! A workspace is not trusted: its files may be links to a key, devices, pipes without a writer, or change while they
//! are looked at. So links are resolved first, and then the file is opened one folder after the other, without
//! following any link: what was swapped in between is an error, not a way out.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path};

use rustix::fs::{CWD, Mode, OFlags, open, openat};

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// At most as many bytes as were asked for.
    pub bytes: Vec<u8>,
    /// The size of the whole file in bytes.
    pub size: u64,
}

/// The first `limit` bytes of the regular file `relative` inside of `root`. `None` when there is no such file.
///
/// # Errors
/// The file, or a link to it, leads outside of `root`; it is not a regular file; it cannot be read. Messages do not name
/// the path: the caller does.
pub fn read_inside(root: &Path, relative: &Path, limit: u64) -> io::Result<Option<Content>> {
    // Not fs_err: its messages name the path, which the caller does already.
    let root = root.canonicalize()?;
    // Joining an absolute path replaces the root, which the check of the prefix then refuses.
    let path = match root.join(relative).canonicalize() {
        Ok(path) => path,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let inside = path.strip_prefix(&root).map_err(|_| refused("it leads outside of the workspace"))?;
    let file = open_beneath(&root, inside)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(refused("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(Some(Content { bytes, size: metadata.len() }))
}

/// Opens `inside` (resolved, without links) below `root`, and follows no link on the way.
fn open_beneath(root: &Path, inside: &Path) -> io::Result<File> {
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // NONBLOCK: opening a pipe must not wait for somebody who writes into it.
    let last = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut folder = open(root, directory, Mode::empty())?;
    let names: Vec<&std::ffi::OsStr> = inside
        .components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect();
    let Some((file, folders)) = names.split_last() else {
        return Err(refused("it is the workspace itself, not a file"));
    };
    for name in folders {
        folder = openat(&folder, *name, directory, Mode::empty())?;
    }
    Ok(File::from(openat(&folder, *file, last, Mode::empty())?))
}

/// The same for a file that an operator named: any regular file, links followed.
///
/// # Errors
/// It does not exist, is not a regular file, or cannot be read.
pub fn read_trusted(path: &Path, limit: u64) -> io::Result<Content> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(refused("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(Content { bytes, size: metadata.len() })
}

fn refused(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn read(root: &Path, relative: &str) -> Result<Option<String>, String> {
        read_inside(root, Path::new(relative), 5)
            .map(|content| content.map(|content| String::from_utf8(content.bytes).unwrap()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn files_inside_are_read_and_cut() {
        let root = tempfile::tempdir().unwrap();
        fs_err::create_dir(root.path().join("docs")).unwrap();
        fs_err::write(root.path().join("docs/long.md"), "0123456789").unwrap();
        symlink("docs/long.md", root.path().join("link.md")).unwrap();
        let content = read_inside(root.path(), Path::new("docs/long.md"), 5).unwrap().unwrap();
        assert_eq!(content, Content { bytes: b"01234".to_vec(), size: 10 });
        assert_eq!(read(root.path(), "link.md"), Ok(Some("01234".to_owned())));
        assert_eq!(read(root.path(), "docs/../docs/./long.md"), Ok(Some("01234".to_owned())));
        assert_eq!(read(root.path(), "absent.md"), Ok(None));
    }

    #[test]
    fn nothing_leads_outside() {
        let outside = tempfile::tempdir().unwrap();
        fs_err::write(outside.path().join("key"), "secret").unwrap();
        let root = tempfile::tempdir().unwrap();
        symlink(outside.path().join("key"), root.path().join("file")).unwrap();
        symlink(outside.path(), root.path().join("folder")).unwrap();
        let up = format!("../{}/key", outside.path().file_name().unwrap().to_str().unwrap());
        let absolute = outside.path().join("key");
        for path in ["file", "folder/key", &up, absolute.to_str().unwrap()] {
            assert_eq!(
                read(root.path(), path),
                Err("it leads outside of the workspace".to_owned()),
                "{path}"
            );
        }
    }

    #[test]
    fn a_link_that_appears_after_the_check_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        fs_err::write(root.path().join("real"), "x").unwrap();
        symlink("real", root.path().join("link")).unwrap();
        assert!(open_beneath(root.path(), Path::new("real")).is_ok());
        assert!(open_beneath(root.path(), Path::new("link")).is_err());
    }

    #[test]
    fn what_is_no_file_is_refused_without_waiting() {
        let root = tempfile::tempdir().unwrap();
        fs_err::create_dir(root.path().join("folder")).unwrap();
        rustix::fs::mknodat(
            CWD,
            root.path().join("pipe"),
            rustix::fs::FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        for path in ["folder", "pipe"] {
            assert_eq!(read(root.path(), path), Err("it is not a regular file".to_owned()), "{path}");
            assert!(read_trusted(&root.path().join(path), 5).is_err(), "{path}");
        }
        assert_eq!(read(root.path(), "."), Err("it is the workspace itself, not a file".to_owned()));
    }
}

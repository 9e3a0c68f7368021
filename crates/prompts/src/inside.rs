//! Reads small files and folders of a workspace without being led out of it.
//!
//! A workspace is not trusted: its files may be links to a key, devices, pipes without a writer, or change while they
//! are looked at. So the way to a file is gone from folder to folder, each held open, and a link is followed by hand, as far
//! as it stays inside: of what lies outside nobody learns even whether it is there.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, open, openat, readlinkat, statat};
use rustix::io::Errno;

const OUTSIDE: &str = "it leads outside of the workspace";
const NO_FILE: &str = "it is not a regular file";
const NO_FOLDER: &str = "it is a file, not a folder";
/// The most links on the way to a file, as in Linux.
const MOST_LINKS: usize = 40;

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// At most as many bytes as were asked for.
    pub bytes: Vec<u8>,
    /// The size of the whole file in bytes.
    pub size: u64,
    /// Device and number: the same for every name of the same file.
    pub identity: (u64, u64),
    /// Whether its owner may run it.
    pub runs: bool,
}

/// A name in a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// The name.
    pub name: OsString,
    /// What it is.
    pub kind: NameKind,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameKind {
    /// A folder.
    Folder,
    /// A link, or something that the file system does not tell.
    Unknown,
    /// Anything else.
    Other,
}

/// Whether a file was not read since it, or a link to it, leads outside.
pub(crate) fn leads_outside(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|reason| reason.to_string() == OUTSIDE)
}

/// The first `limit` bytes of the regular file `relative` inside of `root`. `None` when there is no such file.
///
/// # Errors
/// The file, or a link to it, leads outside of `root`, whether or not anything is there; it is not a regular file; it cannot
/// be read. Messages do not name the path: the caller does.
pub fn read_inside(root: &Path, relative: &Path, limit: u64) -> io::Result<Option<Content>> {
    match open_inside(root, relative)? {
        None => Ok(None),
        Some(Found::File(file)) => read(file, limit).map(Some),
        Some(Found::Folder(_)) => Err(refused(NO_FILE)),
        Some(Found::Root(_)) => Err(refused("it is the workspace itself, not a file")),
    }
}

/// The names in the folder `relative` inside of `root`, in order; none where there is no such folder. Those that are not UTF-8
/// are left out. At most `limit` names are looked at: of a folder with more, which ones is not said.
///
/// # Errors
/// As [`read_inside`] has them; and it is a file.
pub fn names_inside(root: &Path, relative: &Path, limit: usize) -> io::Result<Vec<String>> {
    let names = list_inside(root, relative, limit)?.unwrap_or_default();
    Ok(names.into_iter().filter_map(|Name { name, .. }| name.into_string().ok()).collect())
}

/// The names in the folder `relative` inside of `root` with what they are, in order; `None` where there is no such folder. At
/// most `limit` names are looked at: of a folder with more, which ones is not said.
///
/// # Errors
/// As [`read_inside`] has them; and it is a file.
pub fn list_inside(root: &Path, relative: &Path, limit: usize) -> io::Result<Option<Vec<Name>>> {
    match open_inside(root, relative)? {
        None => Ok(None),
        Some(Found::Folder(folder) | Found::Root(folder)) => list(&folder, limit).map(Some),
        Some(Found::File(_)) => Err(refused(NO_FOLDER)),
    }
}

/// What lies at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// A regular file.
    File,
    /// A folder.
    Folder {
        /// The names in it, in order.
        names: Vec<Name>,
        /// Device and number: the same for every way to the same folder.
        identity: (u64, u64),
    },
}

/// What lies at `relative` inside of `root`, and of a folder at most `limit` names; `None` where nothing does.
///
/// # Errors
/// As [`read_inside`] has them.
pub(crate) fn look_inside(root: &Path, relative: &Path, limit: usize) -> io::Result<Option<Look>> {
    match open_inside(root, relative)? {
        None => Ok(None),
        Some(Found::File(_)) => Ok(Some(Look::File)),
        Some(Found::Folder(folder) | Found::Root(folder)) => {
            let facts = File::from(folder.try_clone()?).metadata()?;
            let identity = (facts.dev(), facts.ino());
            Ok(Some(Look::Folder { names: list(&folder, limit)?, identity }))
        }
    }
}

/// The same for a folder that an operator named: links are followed.
///
/// # Errors
/// It is not a folder, or cannot be read.
pub fn list_trusted(path: &Path, limit: usize) -> io::Result<Option<Vec<Name>>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat(CWD, path, flags, Mode::empty()) {
        Ok(folder) => list(&folder, limit).map(Some),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn list(folder: &OwnedFd, limit: usize) -> io::Result<Vec<Name>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        if names.len() == limit {
            break;
        }
        let kind = match entry.file_type() {
            FileType::Directory => NameKind::Folder,
            FileType::Symlink | FileType::Unknown => NameKind::Unknown,
            _ => NameKind::Other,
        };
        names.push(Name { name: name.to_owned(), kind });
    }
    names.sort();
    Ok(names)
}

fn read(file: File, limit: u64) -> io::Result<Content> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(refused(NO_FILE));
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    let identity = (metadata.dev(), metadata.ino());
    let runs = metadata.mode() & 0o100 != 0;
    Ok(Content { bytes, size: metadata.len(), identity, runs })
}

/// What lies at a path.
enum Found {
    File(File),
    Folder(OwnedFd),
    /// The path leads to where it begins.
    Root(OwnedFd),
}

/// A step on the way to a file.
enum Step {
    Up,
    Down(OsString),
}

/// The steps from `root` on, the last one first; a path from the top has to begin with where `root` is, links resolved.
fn steps(root: &Path, path: &Path) -> io::Result<Vec<Step>> {
    let within = |path: &Path| {
        // Not fs_err: its messages name the path, which the caller does already.
        let root = root.canonicalize()?;
        path.strip_prefix(root).map(Path::to_owned).map_err(|_| refused(OUTSIDE))
    };
    let path = if path.is_absolute() { Cow::Owned(within(path)?) } else { Cow::Borrowed(path) };
    let step = |component| match component {
        Component::ParentDir => Some(Step::Up),
        Component::Normal(name) => Some(Step::Down(name.to_owned())),
        _ => None,
    };
    Ok(path.components().rev().filter_map(step).collect())
}

/// Goes to a path from folder to folder, each held open, and by its links step by step: what lies outside is not looked at.
fn open_inside(root: &Path, relative: &Path) -> io::Result<Option<Found>> {
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // NONBLOCK: opening a pipe must not wait for somebody who writes into it.
    let last = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let top = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut held = vec![open(root, top, Mode::empty())?];
    let mut steps = self::steps(root, relative)?;
    let mut links = 0;
    while let Some(step) = steps.pop() {
        let Step::Down(name) = step else {
            if held.len() == 1 {
                return Err(refused(OUTSIDE));
            }
            held.pop();
            continue;
        };
        let Some(folder) = held.last() else { return Err(refused(OUTSIDE)) };
        let facts = match statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            facts => facts?,
        };
        match FileType::from_raw_mode(facts.st_mode) {
            FileType::Symlink => {
                links += 1;
                if links > MOST_LINKS {
                    return Err(refused("it goes through too many links"));
                }
                let target = readlinkat(folder, &name, Vec::new())?;
                let target = Path::new(OsStr::from_bytes(target.as_bytes()));
                steps.extend(self::steps(root, target)?);
                if target.is_absolute() {
                    held.truncate(1);
                }
            }
            FileType::Directory => held.push(openat(folder, &name, directory, Mode::empty())?),
            FileType::RegularFile if steps.is_empty() => {
                return Ok(Some(Found::File(File::from(openat(folder, &name, last, Mode::empty())?))));
            }
            _ => return Err(refused(NO_FILE)),
        }
    }
    let is_root = held.len() == 1;
    let found = if is_root { Found::Root } else { Found::Folder };
    held.pop().map(|folder| Some(found(folder))).ok_or_else(|| refused(OUTSIDE))
}

/// The same for a file that an operator named: any regular file, links followed.
///
/// # Errors
/// It does not exist, is not a regular file, or cannot be read.
pub fn read_trusted(path: &Path, limit: u64) -> io::Result<Content> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    read(File::from(openat(CWD, path, flags, Mode::empty())?), limit)
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
        assert_eq!((content.bytes.as_slice(), content.size), (b"01234".as_slice(), 10));
        let link = read_inside(root.path(), Path::new("link.md"), 5).unwrap().unwrap();
        assert_eq!(link.identity, content.identity);
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
    fn nothing_is_told_of_what_lies_outside() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        let root = top.join("root");
        fs_err::create_dir_all(root.join("docs")).unwrap();
        fs_err::create_dir(top.join("there")).unwrap();
        fs_err::write(root.join("docs/file"), "x").unwrap();
        fs_err::write(top.join("there/file"), "secret").unwrap();
        for (number, there) in ["there", "nowhere"].into_iter().enumerate() {
            let outside = top.join(there);
            for (kind, target) in [
                ("file", outside.join("file")),
                ("up", Path::new("..").join(there).join("file")),
                ("back", outside.join("../root/docs/file")),
            ] {
                let link = format!("{kind}{number}");
                symlink(target, root.join(&link)).unwrap();
                assert_eq!(read(&root, &link), Err(OUTSIDE.to_owned()), "{there} {kind}");
            }
        }
        symlink(root.join("docs"), root.join("inner")).unwrap();
        symlink("../inner/file", root.join("docs/round")).unwrap();
        symlink("docs/missing", root.join("dangling")).unwrap();
        symlink("circle", root.join("circle")).unwrap();
        assert_eq!(read(&root, "docs/round"), Ok(Some("x".to_owned())));
        assert_eq!(read(&root, "dangling"), Ok(None));
        assert!(read(&root, "circle").is_err() && read(&root, "docs/file/below").is_err());
    }

    #[test]
    fn names_of_a_folder_inside_are_listed() {
        let outside = tempfile::tempdir().unwrap();
        fs_err::write(outside.path().join("key"), "secret").unwrap();
        let root = tempfile::tempdir().unwrap();
        fs_err::create_dir_all(root.path().join("a/b")).unwrap();
        for name in ["a/two.md", "a/one.md"] {
            fs_err::write(root.path().join(name), "x").unwrap();
        }
        symlink("a", root.path().join("link")).unwrap();
        symlink(outside.path(), root.path().join("out")).unwrap();
        let names = |path: &str, limit| {
            names_inside(root.path(), Path::new(path), limit).map_err(|error| error.to_string())
        };
        let all = ["b", "one.md", "two.md"].map(str::to_owned).to_vec();
        assert_eq!((names("a", 100), names("link", 100)), (Ok(all.clone()), Ok(all)));
        assert_eq!(names("absent/deeper", 100), Ok(Vec::new()));
        assert!(names("a", 3).unwrap().len() <= 3);
        assert_eq!(names("a/one.md", 100), Err("it is a file, not a folder".to_owned()));
        for path in ["out", "..", "../.."] {
            assert_eq!(names(path, 100), Err(OUTSIDE.to_owned()), "{path}");
        }
    }

    #[test]
    fn names_are_listed_as_far_as_the_folder_lies_inside() {
        let outside = tempfile::tempdir().unwrap();
        let root = tempfile::tempdir().unwrap();
        fs_err::create_dir_all(root.path().join("docs/b")).unwrap();
        fs_err::write(root.path().join("docs/a"), "x").unwrap();
        symlink("docs", root.path().join("link")).unwrap();
        symlink(outside.path(), root.path().join("out")).unwrap();
        let listed = |path: &str, most| {
            let listed = list_inside(root.path(), Path::new(path), most);
            listed.map_err(|error| error.to_string())
        };
        let name = |name: &str, kind| Name { name: name.into(), kind };
        let names = [name("a", NameKind::Other), name("b", NameKind::Folder)];
        assert_eq!(listed("docs", 9), Ok(Some(names.to_vec())));
        assert_eq!(listed("link/.", 9), Ok(Some(names.to_vec())));
        assert_eq!(listed("absent", 9), Ok(None));
        assert_eq!(listed("docs/a", 9), Err(NO_FOLDER.to_owned()));
        assert_eq!(listed("out", 9), Err(OUTSIDE.to_owned()));
        assert_eq!(list_trusted(&root.path().join("link"), 9).unwrap().unwrap().len(), 2);
        assert_eq!(list_trusted(&root.path().join("absent"), 9).unwrap(), None);
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

//! The objects of a repository, read without git.
//!
//! git follows every link that it finds among its objects, and waits for every pipe. So they are read here, from folders
//! that are held open, and git is given copies of the few that a question needs.

mod pack;

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

use flate2::read::ZlibDecoder;

use super::RepositoryError;
use pack::{Entry, Pack};
use playhouse_sandbox::folder::Folder;

/// The largest object that is read, in bytes.
pub(super) const LARGEST: u64 = 128 * 1024 * 1024;
/// The most bytes that are unpacked for one question.
const MOST_UNPACKED: u64 = 8 * 1024 * 1024 * 1024;
/// The most packs of a repository: each holds files open.
const MOST_PACKS: usize = 200;
/// The most names in a folder of packs.
const MOST_NAMES: usize = 10_000;
/// The longest chain of objects that are kept as changes of another one. git makes none that is longer.
const LONGEST_CHAIN: usize = 4_096;
/// The longest line before the content of an object.
const LONGEST_HEAD: u64 = 64;

/// The file without content, for each kind of names.
pub(super) const NO_CONTENT: [&str; 2] = [
    "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
    "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
];
/// The tree without files.
const NO_FILES: [&str; 2] = [
    "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
];

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Commit,
    Tree,
    Blob,
    Tag,
}

impl Kind {
    fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"commit" => Some(Self::Commit),
            b"tree" => Some(Self::Tree),
            b"blob" => Some(Self::Blob),
            b"tag" => Some(Self::Tag),
            _ => None,
        }
    }
}

/// The objects of a repository, for one question.
#[derive(Debug)]
pub(super) struct Objects {
    folders: Vec<Folder>,
    packs: Vec<Pack>,
    deadline: Instant,
    /// Bytes that may still be unpacked.
    left: Cell<u64>,
}

/// Where an object is.
enum Spot {
    Loose(File),
    Packed(usize, u64),
}

impl Objects {
    /// Those in these folders; nothing is read after `deadline`. `long`: whether their names are of the longer kind. Blocks.
    ///
    /// # Errors
    /// A folder is not there, or there are too many packs.
    pub(super) fn open(paths: &[PathBuf], long: bool, deadline: Instant) -> Result<Self, RepositoryError> {
        let folders = paths.iter().map(|path| Folder::open(path)).collect::<Result<Vec<_>, _>>();
        let folders = folders.map_err(|_| unreadable("its objects are not there"))?;
        let mut packs = Vec::new();
        for folder in &folders {
            let Ok(folder) = folder.below(Path::new("pack")) else { continue };
            let mut names = folder.names(MOST_NAMES)?;
            names.retain(|name| Path::new(name).extension().is_some_and(|extension| extension == "idx"));
            if packs.len() + names.len() > MOST_PACKS {
                return Err(unreadable(&format!(
                    "it has more than {MOST_PACKS} packs: `git gc` makes them one"
                )));
            }
            packs.extend(names.iter().filter_map(|name| Pack::open(&folder, Path::new(name), long)));
        }
        Ok(Self { folders, packs, deadline, left: Cell::new(MOST_UNPACKED) })
    }

    /// An object of at most `most` bytes; `None` for one that is larger. Blocks.
    ///
    /// # Errors
    /// It is missing or broken, it is another kind of object, or there is no time left.
    pub(super) fn read(&self, id: &str, kind: Kind, most: u64) -> Result<Option<Vec<u8>>, RepositoryError> {
        // git knows these without having them.
        if (kind == Kind::Blob && NO_CONTENT.contains(&id)) || (kind == Kind::Tree && NO_FILES.contains(&id))
        {
            return Ok(Some(Vec::new()));
        }
        let most = most.min(LARGEST);
        let (mut spot, mut changes) = (self.find(id)?, Vec::<Vec<u8>>::new());
        let mut held = 0;
        let (found, mut content) = loop {
            self.in_time()?;
            match spot {
                Spot::Loose(file) => match self.loose(&file, if changes.is_empty() { most } else { LARGEST })
                {
                    Ok(Some(found)) => break found,
                    Ok(None) if changes.is_empty() => return Ok(None),
                    _ => return Err(broken(id)),
                },
                Spot::Packed(number, offset) => {
                    let pack = self.packs.get(number).ok_or_else(|| broken(id))?;
                    let (entry, size, at) = pack.entry(offset).ok_or_else(|| broken(id))?;
                    let is_whole = matches!(entry, Entry::Whole(_));
                    if changes.is_empty() && is_whole && size > most {
                        return Ok(None);
                    }
                    held += size;
                    if held > 2 * LARGEST || changes.len() > LONGEST_CHAIN {
                        return Err(unreadable(&format!("the object {id} is too large to be read")));
                    }
                    let content = pack.unpacked(at).and_then(|packed| self.inflated(packed, size));
                    let content = content.map_err(|_| broken(id))?;
                    if changes.is_empty()
                        && !is_whole
                        && pack::result_size(&content).is_none_or(|size| size > most)
                    {
                        return Ok(None);
                    }
                    match entry {
                        Entry::Whole(kind) => break (kind, content),
                        Entry::ChangeAt(base) => spot = Spot::Packed(number, base),
                        Entry::ChangeOf(base) => {
                            let within = pack.find(&base).map(|offset| Spot::Packed(number, offset));
                            spot = within.map_or_else(|| self.find(&base), Ok)?;
                        }
                    }
                    changes.push(content);
                }
            }
        };
        for change in changes.iter().rev() {
            self.in_time()?;
            content = pack::changed(&content, change, LARGEST).ok_or_else(|| broken(id))?;
            self.spend(content.len() as u64).map_err(|_| RepositoryError::TooSlow)?;
        }
        if found != kind {
            return Err(unreadable(&format!("the object {id} is not what it should be")));
        }
        Ok(Some(content))
    }

    /// Gives it time until `deadline`, and what a question may unpack.
    pub(super) fn go_on_until(&mut self, deadline: Instant) {
        self.deadline = deadline;
        self.left.set(MOST_UNPACKED);
    }

    /// Whether an object lies in a pack, which is held open from then on.
    pub(super) fn is_packed(&self, id: &str) -> bool {
        self.packs.iter().any(|pack| pack.find(id).is_some() && pack.is_open())
    }

    /// Fails when the time is over.
    pub(super) fn in_time(&self) -> Result<(), RepositoryError> {
        if Instant::now() > self.deadline { Err(RepositoryError::TooSlow) } else { Ok(()) }
    }

    fn find(&self, id: &str) -> Result<Spot, RepositoryError> {
        let (first, rest) = id.split_at_checked(2).ok_or_else(|| broken(id))?;
        let packed = || {
            let mut packs = self.packs.iter().enumerate();
            packs.find_map(|(number, pack)| Some(Spot::Packed(number, pack.find(id)?)))
        };
        let loose = |folder: &Folder| folder.file(&Path::new(first).join(rest)).ok();
        let found =
            packed().or_else(|| self.folders.iter().find_map(loose).map(|(file, _)| Spot::Loose(file)));
        found.ok_or_else(|| unreadable(&format!("the object {id} is missing")))
    }

    /// What a file of its own holds; `None` for more than `most` bytes.
    fn loose(&self, file: &File, most: u64) -> io::Result<Option<(Kind, Vec<u8>)>> {
        let wrong = || io::Error::from(io::ErrorKind::InvalidData);
        let mut content = BufReader::new(ZlibDecoder::new(file));
        let mut head = Vec::new();
        io::BufRead::read_until(&mut Read::take(&mut content, LONGEST_HEAD), 0, &mut head)?;
        let mut words = head.strip_suffix(&[0]).ok_or_else(wrong)?.splitn(2, |byte| *byte == b' ');
        let kind = words.next().and_then(Kind::named).ok_or_else(wrong)?;
        let size =
            words.next().and_then(|size| std::str::from_utf8(size).ok()?.parse().ok()).ok_or_else(wrong)?;
        if size > most {
            return Ok(None);
        }
        Ok(Some((kind, self.exactly(content, size)?)))
    }

    fn inflated(&self, packed: impl Read, size: u64) -> io::Result<Vec<u8>> {
        self.exactly(ZlibDecoder::new(packed), size)
    }

    fn exactly(&self, content: impl Read, size: u64) -> io::Result<Vec<u8>> {
        self.spend(size)?;
        let mut bytes = Vec::new();
        content.take(size).read_to_end(&mut bytes)?;
        if bytes.len() as u64 == size { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn spend(&self, bytes: u64) -> io::Result<()> {
        let left = self.left.get().checked_sub(bytes).ok_or(io::ErrorKind::QuotaExceeded)?;
        self.left.set(left);
        Ok(())
    }
}

fn unreadable(what: &str) -> RepositoryError {
    RepositoryError::Unreadable(what.to_owned())
}

fn broken(id: &str) -> RepositoryError {
    unreadable(&format!("the object {id} is broken"))
}

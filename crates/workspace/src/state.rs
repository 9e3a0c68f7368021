//! Files as they are at one time, and writes that lead from one to another.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::door::{self, DoorError, Kind};
use crate::{ContentHash, Resolved, hash, hash_of};

/// Bytes of one file, as it was or as it is, that are kept.
pub const LARGEST_KEPT: u64 = 16 * 1024 * 1024;

/// The bits of a mode that say what a file is.
pub const TYPE: u32 = 0o170_000;
/// The type of a symbolic link.
pub const LINK: u32 = 0o120_000;

/// A file as it is at one time. The content of a symbolic link is the path that it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileState {
    /// The content; `None` where it was never read.
    pub content: Option<ContentHash>,
    /// Its size in bytes.
    pub size: u64,
    /// The content itself, unless it is too large or lies elsewhere.
    pub bytes: Option<Bytes>,
    /// Type and permission bits.
    pub mode: u32,
}

impl FileState {
    /// A file with this content.
    pub fn new(content: ContentHash, bytes: &[u8], mode: u32) -> Self {
        let size = bytes.len() as u64;
        let bytes = (size <= LARGEST_KEPT).then(|| Bytes::copy_from_slice(bytes));
        Self { content: Some(content), size, bytes, mode }
    }

    /// The file or the link at `place`; `None` where there is none. Blocks.
    ///
    /// # Errors
    /// When there is something else, or something that cannot be read.
    pub fn read(place: &Resolved) -> Result<Option<Self>, DoorError> {
        let Some(found) = door::find(place)? else { return Ok(None) };
        if found.kind() == Kind::Link {
            let target = found.link()?;
            return Ok(Some(Self::new(hash(&target), &target, LINK | 0o777)));
        }
        let mut file = match found.open_read() {
            Ok(file) => file,
            Err(DoorError::Missing(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let failed = |source| DoorError::Io { path: place.shown.clone(), source };
        let facts = file.metadata().map_err(failed)?;
        if facts.len() > LARGEST_KEPT {
            let (content, size) = hash_of(&mut file).map_err(failed)?;
            return Ok(Some(Self { content: Some(content), size, bytes: None, mode: facts.mode() }));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        let (content, size) = (Some(hash(&bytes)), bytes.len() as u64);
        Ok(Some(Self { content, size, bytes: Some(bytes.into()), mode: facts.mode() }))
    }

    /// Whether both are surely alike.
    fn is_like(&self, other: &Self) -> bool {
        self.content.is_some() && (self.content, self.mode) == (other.content, other.mode)
    }
}

/// A file that was written, made or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileWrite {
    /// The absolute path, links of its folders resolved.
    pub path: PathBuf,
    /// The file before; `None` where there was none.
    pub before: Option<FileState>,
    /// The file after; `None` where there is none.
    pub after: Option<FileState>,
}

/// A folder that was made or removed, or got other permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderWrite {
    /// The absolute path, links of the folders above it resolved.
    pub path: PathBuf,
    /// Permission bits before; `None` where there was no folder.
    pub before: Option<u32>,
    /// Permission bits after; `None` where there is no folder.
    pub after: Option<u32>,
}

impl FolderWrite {
    /// One that was made at `path`. Blocks.
    pub fn made(path: &Path) -> Self {
        Self { path: path.to_owned(), before: None, after: folder_mode(path) }
    }
}

/// A path of which it cannot be told who changed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubtful {
    /// The absolute path.
    pub path: PathBuf,
    /// The sessions one of which changed it. Empty: anybody may have.
    pub among: Vec<String>,
}

/// The permission bits of the folder at `path`; `None` where there is none. Blocks.
pub fn folder_mode(path: &Path) -> Option<u32> {
    let facts = rustix::fs::lstat(path).ok()?;
    let is_folder = rustix::fs::FileType::from_raw_mode(facts.st_mode).is_dir();
    #[allow(clippy::useless_conversion, reason = "types differ between systems")]
    is_folder.then(|| u32::from(facts.st_mode) & 0o7777)
}

impl FileWrite {
    /// The write that takes this one back.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self { path: self.path, before: self.after, after: self.before }
    }

    /// Whether the file is as it was.
    pub fn is_nothing(&self) -> bool {
        match (&self.before, &self.after) {
            (None, None) => true,
            (Some(before), Some(after)) => before.is_like(after),
            _ => false,
        }
    }
}

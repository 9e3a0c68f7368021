//! What a session has seen of a file, and whether that is still so.

use std::fs::Metadata;
use std::io::Read;
use std::os::unix::fs::MetadataExt;

use playhouse_workspace::door::{self, DoorError};
use playhouse_workspace::{ContentHash, FileTracker, Resolved, hash};

use super::document::{self, Content};
use super::size;
use crate::tool::ToolError;

/// Files up to this size are remembered by their whole content; of larger ones, size and time have to do, so that the
/// first page of a huge file costs no more than that of a small one.
pub(crate) const WHOLE: u64 = 10_000_000;

/// The largest file that is changed.
pub(crate) const LARGEST: u64 = 50_000_000;

/// A mark of the state of a large file.
pub(crate) fn fingerprint(metadata: &Metadata) -> ContentHash {
    let (length, inode) = (metadata.len(), metadata.ino());
    let (seconds, nanoseconds) = (metadata.mtime(), metadata.mtime_nsec());
    hash(format!("playhouse large file {inode} {length} {seconds}.{nanoseconds:09}").as_bytes())
}

/// A file as it is now.
#[derive(Debug)]
pub(crate) struct Current {
    /// All of it.
    pub(crate) bytes: Vec<u8>,
    /// By which it is remembered.
    mark: ContentHash,
    /// Of the content.
    pub(crate) hash: ContentHash,
}

/// Reads the file at `resolved`; `None` when there is nothing.
pub(crate) fn current(resolved: &Resolved) -> Result<Option<Current>, ToolError> {
    let file = match door::open_read(resolved) {
        Ok(file) => file,
        Err(DoorError::Missing(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let failed = |source| ToolError::from(DoorError::Io { path: resolved.shown.clone(), source });
    let metadata = file.metadata().map_err(failed)?;
    let mut bytes = Vec::new();
    (&file).take(LARGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
    let length = bytes.len() as u64;
    if length > LARGEST {
        return Err(ToolError::Failed(format!(
            "{} has {}, and files are changed up to {} only: use bash (sed, awk, a script) for it",
            resolved.shown,
            size(metadata.len()),
            size(LARGEST)
        )));
    }
    let content = hash(&bytes);
    let mark = if length > WHOLE { fingerprint(&metadata) } else { content };
    Ok(Some(Current { bytes, mark, hash: content }))
}

impl Current {
    /// Refuses a file that this session has not seen as it is.
    pub(crate) fn must_be_known(&self, files: &FileTracker, resolved: &Resolved) -> Result<(), ToolError> {
        let shown = &resolved.shown;
        match files.known(&resolved.path) {
            Some(known) if known == self.mark => Ok(()),
            Some(_) => Err(ToolError::Failed(format!(
                "{shown} changed since it was last read: read it again, then repeat the change"
            ))),
            None if document::classify(&self.bytes) == Content::Binary => Err(ToolError::Failed(format!(
                "{shown} is a binary file that was not read in this session: if it is to be replaced, remove it with bash first"
            ))),
            None => Err(ToolError::Failed(format!(
                "{shown} exists and has not been read in this session: read it first, then change it"
            ))),
        }
    }
}

/// Remembers that the session made the file at `resolved`, with the content `bytes`.
pub(crate) fn remember(files: &FileTracker, resolved: &Resolved, bytes: &[u8], content: ContentHash) {
    if bytes.len() as u64 <= WHOLE {
        files.remember(&resolved.path, content);
        return;
    }
    match door::open_read(resolved).map(|file| file.metadata()) {
        Ok(Ok(metadata)) => files.remember(&resolved.path, fingerprint(&metadata)),
        _ => files.forget(&resolved.path),
    }
}

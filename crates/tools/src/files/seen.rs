//! What a session has seen of a file, and whether that is still so.

use std::fs::Metadata;
use std::io::Read;
use std::os::unix::fs::MetadataExt;

use playhouse_workspace::door::{self, DoorError};
use playhouse_workspace::{ContentHash, FileTracker, Resolved, hash};

use super::document::{self, Content};
use super::encoding::Encoding;
use super::size;
use crate::changed::FileState;
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
    /// Its text in UTF-8, with its mark; the bytes as they are where they are no text of a known encoding.
    pub(crate) text: Vec<u8>,
    /// How that text is stored.
    pub(crate) encoding: Encoding,
    /// The bytes as they are, where the text has others.
    raw: Option<Vec<u8>>,
    /// Whether they are not valid in that encoding.
    is_broken: bool,
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
    let encoding = Encoding::of(&bytes);
    let (text, raw, is_broken) = match (encoding, encoding.decode(&bytes)) {
        (Encoding::Utf8, _) => (bytes, None, false),
        (_, Some(text)) => (text.into_owned(), Some(bytes), false),
        (_, None) => (bytes, None, true),
    };
    Ok(Some(Current { text, encoding, raw, is_broken, mark, hash: content }))
}

/// The error of a call about the file at `resolved`, which has the mark of `encoding` and is not valid in it.
pub(crate) fn broken(resolved: &Resolved, encoding: Encoding) -> ToolError {
    ToolError::Failed(format!(
        "{} begins with the byte order mark of {}, and is not valid in it: look at it with bash (xxd | head), and convert or repair it (iconv -c) first",
        resolved.shown,
        encoding.name()
    ))
}

impl Current {
    /// The bytes as they are.
    pub(crate) fn raw(&self) -> &[u8] {
        self.raw.as_deref().unwrap_or(&self.text)
    }

    /// The file, with these type and permission bits.
    pub(crate) fn state(&self, mode: u32) -> FileState {
        FileState::new(self.hash, self.raw(), mode)
    }

    /// Refuses a file that is binary, or not valid in its encoding. `tool`: what does not change it, as in "a patch".
    pub(crate) fn must_be_text(&self, resolved: &Resolved, tool: &str) -> Result<(), ToolError> {
        if self.is_broken {
            return Err(broken(resolved, self.encoding));
        }
        if document::classify(&self.text) == Content::Binary {
            return Err(ToolError::Failed(format!(
                "{} is a binary file, which {tool} does not change: use bash for it",
                resolved.shown
            )));
        }
        Ok(())
    }

    /// Refuses a file that this session has not seen as it is.
    pub(crate) fn must_be_known(&self, files: &FileTracker, resolved: &Resolved) -> Result<(), ToolError> {
        let shown = &resolved.shown;
        match files.known(&resolved.path) {
            Some(known) if known == self.mark => Ok(()),
            _ if self.is_broken => Err(broken(resolved, self.encoding)),
            Some(_) => Err(ToolError::Failed(format!(
                "{shown} changed since it was last read: read it again, then repeat the change"
            ))),
            None if document::classify(&self.text) == Content::Binary => Err(ToolError::Failed(format!(
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

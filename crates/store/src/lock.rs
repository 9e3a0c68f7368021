//! The lock of a data directory: one process at a time.
//!
//! `DATA/lock` is held with `flock`, which ends with the process however it ends. Its content tells others who holds it;
//! what an ended process left there means nothing.

use std::fs::Metadata;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fs_err as fs;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::StoreError;

/// Name of the file.
pub(crate) const FILE: &str = "lock";

/// The longest command line that is kept, in characters.
const COMMAND: usize = 200;

/// Who holds a lock. The first field tells a lock of ours from any other file of that name.
#[derive(Serialize, Deserialize)]
struct Holder {
    playhouse_lock: u32,
    pid: u32,
    command: String,
}

/// The content of every lock of ours begins with this.
const MARK: &[u8] = b"{\"playhouse_lock\":";

/// Whether this is the content of a lock of ours. One that was never filled is empty.
pub(crate) fn is_ours(content: &[u8]) -> bool {
    content.is_empty() || content.starts_with(MARK)
}

/// A held lock. Dropping it lets go.
#[derive(Debug)]
pub(crate) struct DataLock {
    file: fs::File,
    data: PathBuf,
    /// Device and number of the file.
    identity: (u64, u64),
}

impl DataLock {
    /// Takes the lock of `data`, or says who has it.
    pub(crate) fn take(data: &Path) -> Result<Self, StoreError> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.options_mut().mode(0o600);
        let mut file = options.open(data.join(FILE))?;
        match flock(file.file(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(StoreError::Locked { path: data.to_owned(), holder: read_holder(&mut file) });
            }
            Err(error) => return Err(std::io::Error::from(error).into()),
        }
        let identity = identity(&file.metadata()?);
        // However this process moves.
        let mut lock = Self { file, data: std::path::absolute(data)?, identity };
        lock.sign()?;
        Ok(lock)
    }

    /// Whether the directory that was locked is still where it was: one that was removed, moved or replaced keeps nothing of what is
    /// written, and what lies in its place is not ours.
    ///
    /// # Errors
    /// [`StoreError::Replaced`]
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let is_ours = match std::fs::metadata(self.data.join(FILE)) {
            Ok(found) => identity(&found) == self.identity,
            // Something else may be wrong with the disk, which writing tells.
            Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        };
        if is_ours { Ok(()) } else { Err(StoreError::Replaced { path: self.data.clone() }) }
    }

    /// Keeps others from taking the lock of `data` as long as what is returned lives, and changes nothing: of a directory that
    /// can only be read, too. `None` where there is no lock to be taken.
    pub(crate) fn look(data: &Path) -> Result<Option<fs::File>, StoreError> {
        let mut file = match fs::File::open(data.join(FILE)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            result => result?,
        };
        match flock(file.file(), FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => {
                Err(StoreError::Locked { path: data.to_owned(), holder: read_holder(&mut file) })
            }
            Err(error) => Err(std::io::Error::from(error).into()),
        }
    }

    fn sign(&mut self) -> Result<(), StoreError> {
        let arguments: Vec<_> =
            std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
        let command = arguments.join(" ").chars().take(COMMAND).collect();
        let holder = Holder { playhouse_lock: 1, pid: std::process::id(), command };
        let text = serde_json::to_vec(&holder).map_err(|error| StoreError::Backend(error.to_string()))?;
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&text)?;
        Ok(())
    }
}

impl Drop for DataLock {
    fn drop(&mut self) {
        // Emptied, so that a later holder is not taken for this process before it has signed.
        if let Err(error) = self.file.set_len(0) {
            tracing::warn!(%error, "the lock of the data directory could not be emptied");
        }
        // Said outright: a child process between fork and exec may hold a copy of the file for a moment.
        if let Err(error) = flock(self.file.file(), FlockOperation::Unlock) {
            tracing::warn!(%error, "the lock of the data directory could not be released");
        }
    }
}

fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// A text for the error: who holds the lock, as far as the file tells.
fn read_holder(file: &mut fs::File) -> String {
    let mut text = Vec::new();
    let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.take(64 * 1024).read_to_end(&mut text));
    match read.ok().and_then(|_| serde_json::from_slice::<Holder>(&text).ok()) {
        Some(holder) => format!("process {} ({})", holder.pid, holder.command),
        None => "another process".to_owned(),
    }
}

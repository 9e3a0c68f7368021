//! Saving what is too long for the model, off the runtime.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use futures::FutureExt;
use futures::future::BoxFuture;
use playhouse_workspace::{Pool, door};

use super::MAX_FILE_BYTES;

/// How much is collected before it is written, in bytes.
const BLOCK: usize = 256 * 1024;

/// Writes to a file that is made with the first write. After an error it only remembers the error: a full disk is no
/// reason to end a command.
pub(crate) struct Saver {
    path: PathBuf,
    pool: Pool,
    pending: Vec<u8>,
    /// Bytes that were taken, written or not.
    taken: u64,
    /// The write under way. It is kept here, so that it goes on when the one who waited for it is gone.
    writing: Option<BoxFuture<'static, Writing>>,
    file: Option<File>,
    error: Option<String>,
}

/// What comes back from a write: the buffer is used again.
struct Writing {
    result: io::Result<File>,
    buffer: Vec<u8>,
}

impl Saver {
    pub(crate) fn new(path: PathBuf, pool: Pool) -> Self {
        Self { path, pool, pending: Vec::new(), taken: 0, writing: None, file: None, error: None }
    }

    /// Takes what still fits into the file. Call [`Self::write_when_full`] after it.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let room = MAX_FILE_BYTES - self.taken;
        let fitting = usize::try_from(room).map_or(bytes, |room| &bytes[..room.min(bytes.len())]);
        self.taken += fitting.len() as u64;
        if self.error.is_none() {
            self.pending.extend_from_slice(fitting);
        }
    }

    pub(super) async fn write_when_full(&mut self) {
        if self.pending.len() >= BLOCK {
            self.write().await;
        }
    }

    /// Writes the rest. Gives back the bytes that the file holds, or why it does not hold all.
    pub(super) async fn finish(mut self) -> Result<u64, String> {
        self.write().await;
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.taken),
        }
    }

    /// Writes what was added.
    pub(crate) async fn write(&mut self) {
        self.settle().await;
        if self.error.is_some() {
            self.pending = Vec::new();
            return;
        }
        let (file, path) = (self.file.take(), self.path.clone());
        let (buffer, pool) = (std::mem::take(&mut self.pending), self.pool.clone());
        let work = async move { pool.run(move || append(file, path, buffer)).await };
        self.writing = Some(work.boxed());
        self.settle().await;
    }

    async fn settle(&mut self) {
        let Some(writing) = &mut self.writing else { return };
        let Writing { result, mut buffer } = writing.await;
        self.writing = None;
        match result {
            Ok(file) => self.file = Some(file),
            Err(error) => self.error = Some(error.to_string()),
        }
        if self.pending.is_empty() {
            buffer.clear();
            self.pending = buffer;
        }
    }
}

fn append(file: Option<File>, path: PathBuf, buffer: Vec<u8>) -> Writing {
    let result = file.map_or_else(|| door::create_private(&path), Ok).and_then(|mut file| {
        file.write_all(&buffer)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        Ok(file)
    });
    Writing { result, buffer }
}

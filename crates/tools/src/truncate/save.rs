//! Saving what is too long for the model, off the runtime.

use std::io;
use std::path::PathBuf;

use futures::FutureExt;
use futures::future::BoxFuture;
use playhouse_workspace::Pool;

use super::MAX_FILE_BYTES;
use crate::storage::{SessionStorage, StorageBound, Writer};

/// How much is collected before it is written, in bytes.
const BLOCK: usize = 256 * 1024;

/// Writes to a file that is made with the first write. After an error it only remembers the error: a full disk is no
/// reason to end a command. After a bound of storage it only remembers that.
pub(crate) struct Saver {
    pool: Pool,
    pending: Vec<u8>,
    /// Bytes that were taken, written or not.
    taken: u64,
    /// Bytes that the file holds.
    kept: u64,
    /// The write under way. It is kept here, so that it goes on when the one who waited for it is gone.
    writing: Option<BoxFuture<'static, Writing>>,
    /// `None` during a write.
    writer: Option<Writer>,
    bound: Option<StorageBound>,
    error: Option<String>,
}

/// What comes back from a write: the buffer is used again.
struct Writing {
    result: io::Result<(usize, Option<StorageBound>)>,
    writer: Writer,
    buffer: Vec<u8>,
}

/// What a file holds of an output: its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Saved {
    pub(crate) bytes: u64,
    /// The bound that allowed no more.
    pub(crate) bound: Option<StorageBound>,
}

impl Saver {
    pub(crate) fn new(path: PathBuf, storage: &SessionStorage, pool: Pool) -> Self {
        Self {
            pool,
            pending: Vec::new(),
            taken: 0,
            kept: 0,
            writing: None,
            writer: Some(storage.writer(path)),
            bound: None,
            error: None,
        }
    }

    /// Takes what still fits into the file. Call [`Self::write_when_full`] after it.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let room = MAX_FILE_BYTES - self.taken;
        let fitting = usize::try_from(room).map_or(bytes, |room| &bytes[..room.min(bytes.len())]);
        self.taken += fitting.len() as u64;
        if !self.is_closed() {
            self.pending.extend_from_slice(fitting);
        }
    }

    pub(super) async fn write_when_full(&mut self) {
        if self.pending.len() >= BLOCK {
            self.write().await;
        }
    }

    /// Writes the rest. Gives back what the file holds, or why it does not hold all.
    pub(super) async fn finish(mut self) -> Result<Saved, String> {
        self.write().await;
        match self.error {
            Some(error) => Err(error),
            None => Ok(Saved { bytes: self.kept, bound: self.bound }),
        }
    }

    /// What the file holds and why it gets no more, if it does not.
    pub(crate) fn ended(&self) -> Option<(u64, String)> {
        let reason = match (&self.error, self.bound) {
            (Some(error), _) => error.clone(),
            (None, Some(bound)) => bound.to_string(),
            (None, None) if self.taken == MAX_FILE_BYTES => {
                format!("a file of outputs may have {} MB", MAX_FILE_BYTES >> 20)
            }
            (None, None) => return None,
        };
        Some((self.kept, reason))
    }

    /// Writes what was added.
    pub(crate) async fn write(&mut self) {
        self.settle().await;
        if self.is_closed() {
            self.pending = Vec::new();
        }
        if self.pending.is_empty() {
            return;
        }
        let Some(mut writer) = self.writer.take() else { return };
        let (buffer, pool) = (std::mem::take(&mut self.pending), self.pool.clone());
        let work =
            async move { pool.run(move || Writing { result: writer.write(&buffer), writer, buffer }).await };
        self.writing = Some(work.boxed());
        self.settle().await;
    }

    async fn settle(&mut self) {
        let Some(writing) = &mut self.writing else { return };
        let Writing { result, writer, mut buffer } = writing.await;
        self.writing = None;
        self.writer = Some(writer);
        match result {
            Ok((written, bound)) => {
                self.kept += written as u64;
                self.bound = bound;
            }
            Err(error) => self.error = Some(error.to_string()),
        }
        if self.pending.is_empty() {
            buffer.clear();
            self.pending = buffer;
        }
    }

    fn is_closed(&self) -> bool {
        self.error.is_some() || self.bound.is_some()
    }
}

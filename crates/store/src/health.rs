//! Whether the store takes writes.
//!
//! After a write or a flush that failed nobody knows what is durable. The store is then *suspended*: every write is refused
//! at once, with the reason, and from time to time the writer's thread tries to open the table again in place. When that
//! works, and a value of the store's own can be written and flushed, everything that is kept in memory is made anew from
//! what is there, and writes are taken again. Reads go on meanwhile, as far as the backend can.
//!
//! What was not acknowledged may be there afterwards or not. What was acknowledged is.

use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::atomic::Ordering;
use std::time::Instant;

use parking_lot::RwLock;

use crate::projection::Source;
use crate::table::Batch;
use crate::{StoreError, keys, ledger};

/// Why a store takes no writes. It is told to everybody, so it names no paths: those stand in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuspensionReason {
    /// The disk or its quota is full.
    Full,
    /// The file system is mounted for reading only.
    ReadOnly,
    /// The disk failed in another way.
    Failed,
    /// What is stored is not what was written.
    Damaged,
    /// The data directory was removed, moved or replaced.
    Replaced,
}

impl SuspensionReason {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Full, Self::ReadOnly, Self::Failed, Self::Damaged, Self::Replaced];

    /// A word that never changes: for labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::ReadOnly => "read-only",
            Self::Failed => "failed",
            Self::Damaged => "damaged",
            Self::Replaced => "replaced",
        }
    }

    /// What an error of this kind says of the disk, if it does.
    fn of(kind: ErrorKind) -> Option<Self> {
        match kind {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Some(Self::Full),
            ErrorKind::ReadOnlyFilesystem => Some(Self::ReadOnly),
            _ => None,
        }
    }
}

impl fmt::Display for SuspensionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the disk of the data directory is full: make room on it",
            Self::ReadOnly => "the file system of the data directory is read-only: mount it for writing",
            Self::Failed => {
                "the disk of the data directory cannot be written: the log of the engine says what failed"
            }
            Self::Replaced => {
                "the data directory is not the one that was opened: it was removed, moved or replaced. Start the engine anew"
            }
            Self::Damaged => {
                "the database is damaged: `playhouse store check` says where, and what cannot be read comes back with a copy of \
                 the data directory"
            }
        })
    }
}

/// A store that takes no writes just now. It goes on by itself when the disk takes them again.
#[derive(Clone, Copy, Debug)]
pub struct Suspended {
    /// Why, as far as is known now.
    pub reason: SuspensionReason,
    /// Since when.
    pub since: Instant,
}

impl StoreError {
    /// Why the disk refused this write, where that passes when somebody tends to the disk: then the same may be tried again
    /// later. Of a suspended store, and of a single file (a blob) for which there was no room.
    pub fn suspension(&self) -> Option<SuspensionReason> {
        match self {
            Self::Suspended { reason } => Some(*reason),
            Self::Replaced { .. } => Some(SuspensionReason::Replaced),
            Self::Io(error) => SuspensionReason::of(error.kind()),
            _ => None,
        }
    }

    /// Why nothing goes on after this error of a backend.
    pub(crate) fn as_suspension(&self) -> SuspensionReason {
        self.suspension().unwrap_or(match self {
            Self::Damaged { .. } => SuspensionReason::Damaged,
            _ => SuspensionReason::Failed,
        })
    }

    /// An error of a backend, which keeps what kind of failure of the disk it was.
    pub(crate) fn of_disk(error: &io::Error, text: String) -> Self {
        Self::Io(io::Error::new(error.kind(), text))
    }
}

/// What a store says of itself.
#[derive(Default)]
pub(crate) struct Health {
    suspended: RwLock<Option<Suspended>>,
}

impl Health {
    /// `None` while writes are taken.
    pub(crate) fn suspended(&self) -> Option<Suspended> {
        *self.suspended.read()
    }

    /// How requests are refused now, if they are.
    pub(crate) fn refusal(&self) -> Option<StoreError> {
        self.suspended().map(|Suspended { reason, .. }| StoreError::Suspended { reason })
    }

    /// No more writes are taken, or still none, after this error. Why.
    pub(crate) fn suspend(&self, error: &StoreError) -> SuspensionReason {
        let reason = error.as_suspension();
        let mut suspended = self.suspended.write();
        let since = suspended.map_or_else(Instant::now, |before| before.since);
        *suspended = Some(Suspended { reason, since });
        reason
    }

    /// Writes are taken again.
    pub(crate) fn end(&self) -> Option<Suspended> {
        self.suspended.write().take()
    }
}

/// Opens the table again in place, and makes anew what is kept in memory. The writer's thread only.
///
/// # Errors
/// The disk takes no writes yet. This may be tried again.
pub(crate) fn reopen(source: &Source) -> Result<(), StoreError> {
    let table = &*source.table;
    table.reopen()?;
    let found = source.witness.check(table)?;
    let times =
        table.get(keys::REOPENED)?.and_then(|value| value.try_into().ok()).map_or(0, u64::from_be_bytes);
    let times = times.saturating_add(1).to_be_bytes();
    table.apply(Batch::from([(keys::REOPENED.to_vec(), Some(times.to_vec()))]))?;
    let (feed_end, closed) = (ledger::settle_behind(source)?, ledger::closed(table)?);
    table.flush()?;
    source.witness.settle(found);
    source.veil.lift();
    source.held.forget();
    source.tail.forget();
    source.closed.store(closed.as_millis(), Ordering::Relaxed);
    source.grown(feed_end);
    Ok(())
}

#[cfg(test)]
mod tests;

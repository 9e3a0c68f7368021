//! The ledger: a row for each attempt that used or may have used tokens.
//!
//! It is a projection: rows, the feed of them and the running sums are written in the same batch as the records that they
//! are made from, so that no row is lost or doubled, and it costs no flush of its own. What a session's log says is in it
//! once; a fork's rows are those of its own records. Rows are never changed, and stay when their session is deleted.
//!
//! | key | value |
//! |---|---|
//! | `r/` tenant 0, time, row | the row |
//! | `y/` session, time, row | its tenant: the rows of a session, and those of the tree below it |
//! | `x/` number | a key of a row, or the end of a turn: what sinks follow |
//! | `a/` tenant 0, day, provider 0 model 0 purpose 0 agent | the sum of these rows |
//! | `b/` tenant 0, session, day, provider 0 … | the same by session |
//! | `m/ledger` | the version, and the generation that kept it |
//! | `m/ledger/feed` | the last number of the feed, as far as entries were archived |
//! | `m/ledger/archived` | the time before which rows were archived |
//!
//! Numbers of the feed are assigned by the one writer and are shown to readers when they are durable. Sums stay when their
//! rows are archived. `write` stages all of it, `read` and `usage` answer, and `prepare` makes it for a store that was kept
//! by an engine that knew nothing of it.

mod keys;
mod prepare;
mod read;
mod usage;
mod write;

use playhouse_protocol::LedgerRow;
use playhouse_protocol::Timestamp;
use playhouse_protocol::ledger::{
    ArchivePage, ArchiveQuery, FeedItem, Grain, RowPage, RowQuery, UsagePage, UsageQuery, UsageSum,
};
use serde::{Deserialize, Serialize};

use crate::StoreError;

pub(crate) use prepare::prepare;
pub(crate) use read::{archivable, feed, rows};
pub(crate) use usage::usage;
pub(crate) use write::{Staging, forget};

/// Of everything that is stored here.
const VERSION: u8 = 1;

/// Is told the number of the last entry of the feed that is durable, each time that it grew, and says whether it wants to be
/// told again. The writer calls it between two batches, so that it must neither wait nor use the store.
pub type FeedFollower = Box<dyn Fn(u64) -> bool + Send + Sync>;

/// The rows of all attempts that used tokens, and their sums. See [`crate::Store`].
pub trait Ledger: Send + Sync {
    /// A page of rows, in the order of tenant, time and id.
    ///
    /// # Errors
    /// The store cannot be read.
    fn rows(&self, query: &RowQuery) -> Result<RowPage, StoreError>;

    /// The entries with numbers above `after`, at most `limit` of them, in order: rows, and ends of turns behind the last of
    /// their rows. Numbers begin at 1 and rise; one that was given once names the same entry for ever. Only what is durable,
    /// and not archived.
    ///
    /// # Errors
    /// The store cannot be read, or a row is damaged.
    fn feed(&self, after: u64, limit: usize) -> Result<Vec<(u64, FeedItem)>, StoreError>;

    /// The number of the last entry that is durable; 0 where there is none. Fast.
    fn feed_end(&self) -> u64;

    /// Tells `follower` from now on whenever the feed grew.
    fn follow(&self, follower: FeedFollower);

    /// Sums of rows by groups. Whole days (UTC) are summed up from running sums, with what was archived; at the edges of a
    /// range that is not made of whole days rows are read.
    ///
    /// # Errors
    /// The store cannot be read.
    fn usage(&self, query: &UsageQuery) -> Result<UsagePage, StoreError>;

    /// A page of what may be written away. Whoever has made it durable elsewhere calls [`Ledger::archive`] then.
    ///
    /// # Errors
    /// The store cannot be read, or a row is damaged.
    fn archivable(&self, query: &ArchiveQuery) -> Result<ArchivePage, StoreError>;

    /// Removes entries of the feed that ended before this time, and their rows; sums stay. Durable on return. Others than
    /// those and what is not there are passed over. How many rows were removed.
    ///
    /// # Errors
    /// The store failed.
    fn archive(&self, before: Timestamp, numbers: &[u64]) -> Result<u64, StoreError>;
}

/// A running sum as it is stored: with what it is of, which its key holds in another form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Running {
    grain: Grain,
    sum: UsageSum,
}

fn damaged(what: &str, key: &[u8]) -> StoreError {
    StoreError::Backend(format!("the ledger is damaged: {what} {} cannot be read", key.escape_ascii()))
}

fn decode_row(key: &[u8], value: &[u8]) -> Result<LedgerRow, StoreError> {
    crate::value::decode(VERSION, key, value).ok_or_else(|| damaged("row", key))
}

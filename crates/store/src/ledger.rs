//! The ledger: a row for each attempt that used or may have used tokens.
//!
//! It is a projection: a row is written in the same batch as the records that it is made from, so that no row is lost or
//! doubled, and it costs no flush of its own. What a session's log says is in it once; a fork's rows are those of its own
//! records. Rows are never changed, and stay when their session is deleted. Corrections are rows that no record makes: they
//! stand in the feed only, which is never made again.
//!
//! | key | value |
//! |---|---|
//! | `x/` number | a row, the end of a turn, or that the ledger is closed: the feed that sinks follow |
//! | `i/` tenant 0, minute, number | the order of rows of the tenant that ended within that minute: times, ids, numbers |
//! | `j/` session, day, number | the same of a session and of the tree below it |
//! | `a/` tenant 0, day, provider 0 model 0 purpose 0 agent, labels and key if there are some | the sum of these rows, and up to which number they are counted |
//! | `b/` tenant 0, session, day, provider 0 … | the same by session |
//! | `m/ledger` | the layout, and the generation that kept it |
//! | `m/ledger/settled` | the number up to which all rows are in lists and sums |
//! | `m/ledger/feed` | the last number of the feed, as far as entries were archived |
//! | `m/ledger/form` | the newest form that its rows may have: an engine that knows only older ones refuses the store |
//! | `m/ledger/closed` | the time up to which the ledger is closed |
//! | `m/ledger/archived` | the time before which rows were archived |
//!
//! A row is one key in the batch of its records, for it is keys that cost time; lists and sums are written later, for many
//! rows together (`tail`, which tells how readers see all rows all the same). Numbers of the feed are assigned by the one
//! writer and are shown to readers when they are durable. Sums stay when their rows are archived.
//!
//! `entry` is the stored form of the feed (`packed`, as are lists), `lists` the order of rows, `sums` what is added up. `write` stages rows, `read` and
//! `usage` answer, and `prepare` makes it ready when the store is opened, with `migrate` for what its first version wrote.

mod check;
mod entry;
mod keys;
mod lists;
mod migrate;
mod packed;
mod prepare;
mod read;
mod sums;
mod tail;
mod unreadable;
mod usage;
mod write;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod tests;

use playhouse_protocol::ledger::{
    ArchivePage, ArchiveQuery, FeedItem, RowPage, RowQuery, UsagePage, UsageQuery,
};
use playhouse_protocol::{LedgerRow, Timestamp};

use crate::StoreError;

pub(crate) use check::check;
pub(crate) use prepare::{archived, closed, is_made_again, prepare, settle_behind};
pub(crate) use read::{archivable, archived_before, feed, rows};
pub(crate) use tail::{Tail, settle_some};
pub(crate) use unreadable::Unreadable;
pub(crate) use usage::usage;
pub(crate) use write::{Archived, Growth, Staging, archive, priced_later};

/// Of the values that are stored here as JSON.
const VERSION: u8 = 1;

/// Of where they stand: another is rewritten when the store is opened.
const LAYOUT: u8 = 2;

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
    /// and not archived. One that is damaged is passed over: it stays where it is, and is told in the log of the engine.
    ///
    /// # Errors
    /// The store cannot be read.
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

    /// Closes the ledger up to a time: a row that ended before and comes from now on is told as late. Nothing happens where it is
    /// closed up to that time already. Durable on return.
    ///
    /// # Errors
    /// The store failed.
    fn close(&self, until: Timestamp) -> Result<(), StoreError>;

    /// Adds corrections: rows that are the difference to other rows of this ledger. Durable on return.
    ///
    /// # Errors
    /// The store failed. They may have become durable all the same, all of them or none.
    fn correct(&self, corrections: Vec<LedgerRow>) -> Result<(), StoreError>;

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

    /// The latest time before which rows were archived; none where that never happened. Not every row before it needs to be:
    /// what a sink still needed stayed.
    ///
    /// # Errors
    /// The store cannot be read.
    fn archived_before(&self) -> Result<Option<Timestamp>, StoreError>;
}

fn newer(key: &[u8]) -> StoreError {
    StoreError::Newer { what: format!("entry {} of the ledger", key.escape_ascii()) }
}

fn damaged(what: &str, key: &[u8]) -> StoreError {
    let found = format!("{what} {} cannot be read", key.escape_ascii());
    StoreError::Damaged { what: "the ledger".to_owned(), found }
}

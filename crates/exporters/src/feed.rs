//! The ledger as sinks read it.

use futures::future::BoxFuture;
use playhouse_billing::export::FeedItem;
use playhouse_store::StoreError;

/// The entries of the ledger, numbered in the order in which they became durable.
///
/// Numbers begin at 1 and rise; one that was given once always names the same entry, and none below [`Feed::end`] is given
/// later. There may be gaps. The end of a turn stands behind the last of its rows; where a row comes later, the end is
/// there once more behind it.
pub trait Feed: Send + Sync {
    /// The entries with numbers above `number`, at most `limit` of them, in order. Only what is durable. May block.
    ///
    /// # Errors
    /// The store cannot be read.
    fn after(&self, number: u64, limit: usize) -> Result<Vec<(u64, FeedItem)>, StoreError>;

    /// The number of the last entry; 0 where there is none. Cheap: it is asked for with every snapshot.
    fn end(&self) -> u64;

    /// Resolves when there is an entry with a number above `number`, at once where there is one already. It may resolve too
    /// often. Dropping it is fine.
    fn grown(&self, number: u64) -> BoxFuture<'static, ()>;
}

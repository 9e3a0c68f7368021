//! The ledger as sinks read it.

use std::sync::{Arc, Weak};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_billing::export::FeedItem;
use playhouse_protocol::ledger::{ArchiveQuery, UsageQuery};
use playhouse_protocol::operator::ArchivedRows;
use playhouse_protocol::{Day, Timestamp};
use playhouse_store::{Ledger, StoreError};
use tokio::sync::watch;

/// The entries of the ledger, numbered in the order in which they became durable.
///
/// Numbers begin at 1 and rise; one that was given once always names the same entry, and none below [`Feed::end`] is given
/// later. There may be gaps. The end of a turn stands behind the last of its rows; where a row comes later, the end is
/// there once more behind it.
pub trait Feed: Send + Sync {
    /// The entries with numbers above `number`, at most `limit` of them, in order. Only what is durable. May block. Where there
    /// are fewer than `limit`, everything up to [`Feed::end`] as it was before the call is seen.
    ///
    /// # Errors
    /// The store cannot be read.
    fn after(&self, number: u64, limit: usize) -> Result<Vec<(u64, FeedItem)>, StoreError>;

    /// The number of the last entry; 0 where there is none. Cheap: it is asked for with every snapshot.
    fn end(&self) -> u64;

    /// Resolves when there is an entry with a number above `number`, at once where there is one already. It may resolve too
    /// often. Dropping it is fine.
    fn grown(&self, number: u64) -> BoxFuture<'static, ()>;

    /// Closes the ledger up to a time, see [`Ledger::close`]. May block. A feed without a ledger has nothing to close.
    ///
    /// # Errors
    /// The store cannot be written.
    fn close(&self, _until: Timestamp) -> Result<(), StoreError> {
        Ok(())
    }

    /// The rows that once were in the feed and were written away; `None` where there are none. May block for as long as it takes
    /// to look at all entries.
    ///
    /// # Errors
    /// The store cannot be read.
    fn archived(&self) -> Result<Option<ArchivedRows>, StoreError> {
        Ok(None)
    }
}

/// The feed of a store's ledger. It waits for the store's writer, and looks by itself for nothing.
pub struct LedgerFeed {
    ledger: Arc<dyn Ledger>,
    /// The number of the last entry, as the writer told it.
    end: Arc<watch::Sender<u64>>,
}

impl LedgerFeed {
    /// Of this ledger.
    pub fn new(ledger: Arc<dyn Ledger>) -> Self {
        let end = Arc::new(watch::Sender::new(0));
        let told: Weak<_> = Arc::downgrade(&end);
        ledger.follow(Box::new(move |number| told.upgrade().map(|end| raise(&end, number)).is_some()));
        // What was written before is known from here on, whichever of the two comes first.
        raise(&end, ledger.feed_end());
        Self { ledger, end }
    }
}

fn raise(end: &watch::Sender<u64>, number: u64) {
    end.send_if_modified(|end| {
        let is_more = number > *end;
        *end = number.max(*end);
        is_more
    });
}

impl Feed for LedgerFeed {
    fn after(&self, number: u64, limit: usize) -> Result<Vec<(u64, FeedItem)>, StoreError> {
        self.ledger.feed(number, limit)
    }

    fn end(&self) -> u64 {
        self.ledger.feed_end()
    }

    fn grown(&self, number: u64) -> BoxFuture<'static, ()> {
        let mut end = self.end.subscribe();
        async move {
            // An error says that the feed is gone: nothing comes any more.
            if end.wait_for(|end| *end > number).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        .boxed()
    }

    fn close(&self, until: Timestamp) -> Result<(), StoreError> {
        self.ledger.close(until)
    }

    /// No count of them is kept. Sums stay when rows are archived, so that it is the difference to the rows that are there.
    fn archived(&self) -> Result<Option<ArchivedRows>, StoreError> {
        let Some(before) = self.ledger.archived_before()? else { return Ok(None) };
        // Sums are of whole days.
        let last = Timestamp::from_millis(before.as_millis().saturating_sub(1));
        let to = Day::of(last).next().start();
        let all = self.ledger.usage(&UsageQuery { to: Some(to), ..UsageQuery::default() })?;
        let all: u64 = all.groups.iter().map(|group| group.sum.totals.attempts).sum();
        let mut query = ArchiveQuery { before: to, up_to: Some(0), after: 0, limit: 0 };
        let mut there = 0;
        loop {
            let page = self.ledger.archivable(&query)?;
            // Sums count the attempts of rows, of which corrections have none.
            there += page.kept.saturating_sub(page.kept_corrections);
            match page.next {
                Some(next) => query.after = next,
                None => break,
            }
        }
        let rows = all.saturating_sub(there);
        Ok((rows > 0).then_some(ArchivedRows { rows, before }))
    }
}

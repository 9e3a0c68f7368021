//! Logs and shelf on top of a table: reads go to the table, writes to the writer.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};

use playhouse_protocol::ledger::{
    ArchivePage, ArchiveQuery, FeedItem, RowPage, RowQuery, UsagePage, UsageQuery,
};
use playhouse_protocol::upkeep::{Reclaimed, StoreReport};
use playhouse_protocol::{LedgerRow, Seq, SessionId, SessionSummary, Timestamp};

use crate::compact::Compactor;
use crate::index::{self, Wanted};
use crate::janitor::Janitor;
use crate::open::Reclaim;
use crate::projection::Source;
use crate::site::DiskSite;
use crate::sweep::Sweepable;
use crate::switch::Switch;
use crate::table::for_each;
use crate::writer::{Archive, CompareAndSet, Request, Writer};
use crate::{
    Append, Done, FeedFollower, Ledger, ListQuery, Log, LogRead, Page, Shelf, StoreError, Suspended, Upkeep,
    check, keys, ledger,
};

const DEFAULT_PAGE: usize = 50;

/// Remembers at the end of an opening what was written last.
struct End {
    source: Arc<Source>,
    of: OnceLock<(Arc<DiskSite>, u64)>,
}

impl Drop for End {
    fn drop(&mut self) {
        let Some((site, generation)) = self.of.get() else { return };
        // The other one is that of the store. One more is the writer's, which still writes.
        if Arc::strong_count(&self.source) > 2 {
            return;
        }
        if let Some(seen) = self.source.witness.seen()
            && let Err(error) = site.remember_end(*generation, &seen)
        {
            tracing::warn!(%error, "what was written last could not be remembered beside the database");
        }
    }
}

/// The logs and the shelf of every backend.
pub(crate) struct TableStore {
    /// Dropped first: it still writes what waits.
    writer: Writer,
    /// Dropped next.
    end: End,
    source: Arc<Source>,
    /// Its table.
    switch: Arc<Switch>,
}

impl TableStore {
    /// `switch` is the table of `source`, whose blobs are `blobs`.
    pub(crate) fn start(
        source: Source,
        switch: Arc<Switch>,
        blobs: Arc<dyn Sweepable>,
        reclaim: Reclaim,
    ) -> Result<Self, StoreError> {
        let source = Arc::new(source);
        let janitor = Janitor::start(Arc::clone(&switch), blobs, reclaim)?;
        let compactor = Compactor::new(Arc::clone(&switch), janitor, reclaim);
        let writer = Writer::start(Arc::clone(&source), compactor)?;
        let end = End { source: Arc::clone(&source), of: OnceLock::new() };
        Ok(Self { writer, end, source, switch })
    }

    /// What is written last is remembered there, as the end of this opening.
    pub(crate) fn ends_in(&self, site: Arc<DiskSite>, generation: u64) {
        self.end.of.get_or_init(|| (site, generation));
    }

    /// Hands a request to the writer and waits for the answer. `what` it does is told where that cannot be.
    fn wait_for<T: Send + 'static>(
        &self,
        what: &str,
        request: impl FnOnce(Box<dyn FnOnce(Result<T, StoreError>) + Send>) -> Request,
    ) -> Result<T, StoreError> {
        if self.writer.is_current_thread() {
            let reason = format!("{what} from the answer to a write, which would wait for itself");
            return Err(StoreError::Backend(reason));
        }
        let (sender, receiver) = sync_channel(1);
        let done = Box::new(move |result| {
            // The receiver is this function, which waits.
            let _ = sender.send(result);
        });
        self.writer.submit_waiting(request(done));
        receiver.recv().unwrap_or(Err(StoreError::Closed))
    }
}

impl Log for TableStore {
    fn append(&self, append: Append, done: Done) {
        self.writer.submit(Request::Append(append, done));
    }

    fn read(&self, session: SessionId, after: Seq, limit: usize) -> Result<LogRead, StoreError> {
        self.source.veil.log(session, self.source.read(session, after, limit))
    }

    fn summary(&self, session: SessionId) -> Result<Option<SessionSummary>, StoreError> {
        Ok(self.source.veil.summary(session, self.source.summary(session)?))
    }

    fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        let limit = if query.limit == 0 { DEFAULT_PAGE } else { query.limit };
        let wanted = Wanted::of(query);
        let list = wanted.list();
        let from = match &query.after {
            Some(cursor) => keys::after(&[&list[..], &keys::place(cursor)].concat()),
            None => list.clone(),
        };
        let mut page = Page::default();
        let mut take = |key: &[u8], row: &[u8]| {
            if !wanted.may_match(row) {
                return Ok(true);
            }
            let Some(session) = keys::session_of_place(key, list.len()) else { return Ok(true) };
            // A session that was deleted since the index was read is skipped.
            let Some(summary) = self.summary(session)? else { return Ok(true) };
            if !wanted.matches(&summary) {
                return Ok(true);
            }
            if page.sessions.len() == limit {
                page.next = page.sessions.last().map(keys::cursor);
                return Ok(false);
            }
            page.sessions.push(summary);
            Ok(true)
        };
        let held = match wanted.searched() {
            Some(tenant) => self.source.held.rows(&*self.source.table, tenant)?,
            None => None,
        };
        let Some(rows) = held else {
            self.source.table.visit(from, &keys::end_of(&list), &mut take)?;
            return Ok(page);
        };
        for (key, row) in rows.range(from..) {
            if !take(key, row)? {
                break;
            }
        }
        Ok(page)
    }

    fn count(&self, tenant: &str) -> Result<u64, StoreError> {
        index::count(&*self.source.table, tenant)
    }

    fn unfinished_of(&self, tenant: &str) -> Result<Vec<SessionId>, StoreError> {
        let found = index::unfinished_of(&*self.source.table, tenant)?;
        Ok(self.source.veil.unfinished(Some(tenant), found))
    }

    fn waiting(&self) -> usize {
        self.writer.waiting()
    }

    fn health(&self) -> Option<Suspended> {
        self.writer.health()
    }

    fn check_place(&self) -> Result<(), StoreError> {
        self.source.table.check_place()
    }

    fn unfinished(&self) -> Result<Vec<SessionId>, StoreError> {
        let mut sessions = Vec::new();
        let end = keys::end_of(keys::UNFINISHED);
        for_each(&*self.source.table, keys::UNFINISHED.to_vec(), &end, |(key, _)| {
            sessions.extend(keys::session_of_unfinished(&key));
            Ok(true)
        })?;
        Ok(self.source.veil.unfinished(None, sessions))
    }

    fn fork(&self, fork: Append, done: Done) {
        self.writer.submit(Request::Fork(fork, done));
    }

    fn delete(&self, session: SessionId, done: Done) {
        self.writer.submit(Request::Delete(session, done));
    }
}

impl Ledger for TableStore {
    fn rows(&self, query: &RowQuery) -> Result<RowPage, StoreError> {
        ledger::rows(&self.source, query)
    }

    fn feed(&self, after: u64, limit: usize) -> Result<Vec<(u64, FeedItem)>, StoreError> {
        ledger::feed(&self.source, after, self.feed_end(), limit)
    }

    fn feed_end(&self) -> u64 {
        self.source.feed_end.load(Ordering::Acquire)
    }

    fn follow(&self, follower: FeedFollower) {
        self.source.follow(follower);
    }

    fn usage(&self, query: &UsageQuery) -> Result<UsagePage, StoreError> {
        ledger::usage(&self.source, query)
    }

    fn close(&self, until: Timestamp) -> Result<(), StoreError> {
        self.wait_for("the ledger was closed", |done| Request::Close(until, done))
    }

    fn correct(&self, corrections: Vec<LedgerRow>) -> Result<(), StoreError> {
        self.wait_for("the ledger was corrected", |done| Request::Correct(corrections, done))
    }

    fn archivable(&self, query: &ArchiveQuery) -> Result<ArchivePage, StoreError> {
        ledger::archivable(&self.source, query, self.feed_end())
    }

    fn archive(&self, before: Timestamp, numbers: &[u64]) -> Result<u64, StoreError> {
        // Read here, where nobody else waits for it.
        let priced = ledger::priced_later(&self.source, numbers)?;
        let archive = Archive { before, numbers: numbers.to_vec(), priced };
        self.wait_for("the ledger was archived", |done| Request::Archive(archive, done))
    }

    fn archived_before(&self) -> Result<Option<Timestamp>, StoreError> {
        ledger::archived_before(&*self.source.table)
    }
}

impl Shelf for TableStore {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let key = keys::shelf(key);
        Ok(self.source.veil.value(&key, self.source.table.get(&key)?))
    }

    fn compare_and_set(
        &self,
        key: &str,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool, StoreError> {
        let request = CompareAndSet {
            key: key.to_owned(),
            expected: expected.map(<[u8]>::to_vec),
            new: new.map(<[u8]>::to_vec),
        };
        self.wait_for("the shelf was written", |done| Request::CompareAndSet(request, done))
    }

    fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let mut found = Vec::new();
        let prefix = keys::shelf(prefix);
        for_each(&*self.source.table, prefix.clone(), &keys::end_of(&prefix), |(key, value)| {
            found.push((key, value));
            Ok(true)
        })?;
        let found = self.source.veil.values(&prefix, found).into_iter();
        Ok(found.filter_map(|(key, value)| Some((keys::name_on_shelf(&key)?, value))).collect())
    }
}

impl Upkeep for TableStore {
    fn reclaim(&self) -> Result<Reclaimed, StoreError> {
        self.wait_for("space was reclaimed", Request::Reclaim)
    }

    fn check(&self) -> Result<StoreReport, StoreError> {
        check::check(&self.source)
    }

    fn written(&self) -> BTreeMap<char, u64> {
        self.switch.written()
    }
}

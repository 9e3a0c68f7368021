//! Logs and shelf on top of a table: reads go to the table, writes to the writer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;

use playhouse_protocol::ledger::{
    ArchivePage, ArchiveQuery, FeedItem, RowPage, RowQuery, UsagePage, UsageQuery,
};
use playhouse_protocol::{Seq, SessionId, SessionSummary, Timestamp};

use crate::index::{self, Wanted};
use crate::projection::Source;
use crate::table::for_each;
use crate::writer::{Archive, CompareAndSet, Request, Writer};
use crate::{
    Append, Done, FeedFollower, Ledger, ListQuery, Log, LogRead, Page, Shelf, StoreError, keys, ledger,
};

const DEFAULT_PAGE: usize = 50;

/// The logs and the shelf of every backend.
pub(crate) struct TableStore {
    /// Dropped first: it still writes what waits.
    writer: Writer,
    source: Arc<Source>,
}

impl TableStore {
    pub(crate) fn start(source: Source) -> Result<Self, StoreError> {
        let source = Arc::new(source);
        Ok(Self { writer: Writer::start(Arc::clone(&source))?, source })
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
        self.source.read(session, after, limit)
    }

    fn summary(&self, session: SessionId) -> Result<Option<SessionSummary>, StoreError> {
        self.source.summary(session)
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
        self.source.table.visit(from, &keys::end_of(&list), &mut |key, row| {
            if !wanted.may_match(row) {
                return Ok(true);
            }
            let Some(session) = keys::session_of_place(key, list.len()) else { return Ok(true) };
            // A session that was deleted since the index was read is skipped.
            let Some(summary) = self.source.summary(session)? else { return Ok(true) };
            if !wanted.matches(&summary) {
                return Ok(true);
            }
            if page.sessions.len() == limit {
                page.next = page.sessions.last().map(keys::cursor);
                return Ok(false);
            }
            page.sessions.push(summary);
            Ok(true)
        })?;
        Ok(page)
    }

    fn count(&self, tenant: &str) -> Result<u64, StoreError> {
        index::count(&*self.source.table, tenant)
    }

    fn unfinished_of(&self, tenant: &str) -> Result<Vec<SessionId>, StoreError> {
        index::unfinished_of(&*self.source.table, tenant)
    }

    fn waiting(&self) -> usize {
        self.writer.waiting()
    }

    fn unfinished(&self) -> Result<Vec<SessionId>, StoreError> {
        let mut sessions = Vec::new();
        let end = keys::end_of(keys::UNFINISHED);
        for_each(&*self.source.table, keys::UNFINISHED.to_vec(), &end, |(key, _)| {
            sessions.extend(keys::session_of_unfinished(&key));
            Ok(true)
        })?;
        Ok(sessions)
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
        ledger::rows(&*self.source.table, query)
    }

    fn feed(&self, after: u64, limit: usize) -> Result<Vec<(u64, FeedItem)>, StoreError> {
        ledger::feed(&*self.source.table, after, self.feed_end(), limit)
    }

    fn feed_end(&self) -> u64 {
        self.source.feed_end.load(Ordering::Acquire)
    }

    fn follow(&self, follower: FeedFollower) {
        self.source.follow(follower);
    }

    fn usage(&self, query: &UsageQuery) -> Result<UsagePage, StoreError> {
        ledger::usage(&*self.source.table, query)
    }

    fn archivable(&self, query: &ArchiveQuery) -> Result<ArchivePage, StoreError> {
        ledger::archivable(&*self.source.table, query, self.feed_end())
    }

    fn archive(&self, before: Timestamp, numbers: &[u64]) -> Result<u64, StoreError> {
        let archive = Archive { before, numbers: numbers.to_vec() };
        self.wait_for("the ledger was archived", |done| Request::Archive(archive, done))
    }
}

impl Shelf for TableStore {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.source.table.get(&keys::shelf(key))
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
            found.extend(keys::name_on_shelf(&key).map(|name| (name, value)));
            Ok(true)
        })?;
        Ok(found)
    }
}

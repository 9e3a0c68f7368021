//! Logs and shelf on top of a table: reads go to the table, writes to the writer.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use playhouse_protocol::{Seq, SessionId, SessionSummary};

use crate::projection::Source;
use crate::table::for_each;
use crate::writer::{CompareAndSet, Request, Writer};
use crate::{Append, Done, Kin, ListQuery, Log, LogRead, Page, Shelf, StoreError, keys};

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
        let from = match &query.after {
            Some(cursor) => keys::after(&keys::created(cursor)),
            None => keys::CREATED.to_vec(),
        };
        let wanted = Wanted::of(query);
        let mut page = Page::default();
        for_each(&*self.source.table, from, &keys::end_of(keys::CREATED), |(key, _)| {
            let Some(cursor) = keys::cursor_of_created(&key) else { return Ok(true) };
            // A session that was deleted since the index was read is skipped.
            let Some(summary) = self.source.summary(cursor.session)? else { return Ok(true) };
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

    fn unfinished(&self) -> Result<Vec<SessionId>, StoreError> {
        let mut sessions = Vec::new();
        let end = keys::end_of(keys::UNFINISHED);
        for_each(&*self.source.table, keys::UNFINISHED.to_vec(), &end, |(key, _)| {
            sessions.extend(keys::session_of_unfinished(&key));
            Ok(true)
        })?;
        Ok(sessions)
    }

    fn delete(&self, session: SessionId, done: Done) {
        self.writer.submit(Request::Delete(session, done));
    }
}

/// A query, made ready for many summaries.
struct Wanted<'a> {
    query: &'a ListQuery,
    /// The text that titles must hold, in lower case.
    title: Option<String>,
}

impl<'a> Wanted<'a> {
    fn of(query: &'a ListQuery) -> Self {
        Self { query, title: query.title.as_ref().map(|title| title.to_lowercase()) }
    }

    fn matches(&self, summary: &SessionSummary) -> bool {
        let query = self.query;
        query.tenant.as_ref().is_none_or(|tenant| *tenant == summary.tenant)
            && query.workspace.as_ref().is_none_or(|workspace| *workspace == summary.workspace)
            && query.updated_since.is_none_or(|since| summary.updated >= since)
            && match query.kin {
                None => true,
                Some(Kin::Roots) => summary.parent.is_none(),
                Some(Kin::ChildrenOf(parent)) => summary.parent == Some(parent),
            }
            && self.title.as_ref().is_none_or(|title| summary.title.to_lowercase().contains(title))
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
        if self.writer.is_current_thread() {
            let reason = "the shelf was written from the answer to a write, which would wait for itself";
            return Err(StoreError::Backend(reason.to_owned()));
        }
        let (sender, receiver) = sync_channel(1);
        let request = CompareAndSet {
            key: key.to_owned(),
            expected: expected.map(<[u8]>::to_vec),
            new: new.map(<[u8]>::to_vec),
        };
        let done = Box::new(move |result| {
            // The receiver is this function, which waits.
            let _ = sender.send(result);
        });
        self.writer.submit_waiting(Request::CompareAndSet(request, done));
        receiver.recv().unwrap_or(Err(StoreError::Closed))
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

//! Reading rows and the feed.

use std::collections::BTreeSet;
use std::sync::Arc;

use playhouse_protocol::ledger::{ArchivePage, ArchiveQuery, FeedItem, RowPage, RowPlace, RowQuery};
use playhouse_protocol::{LedgerRow, SessionId, Timestamp};

use super::lists::{List, Range, each_number};
use super::tail::Pending;
use super::{Unreadable, damaged, entry, keys};
use crate::StoreError;
use crate::keys::end_of;
use crate::projection::Source;
use crate::table::Table;

/// How many rows a page has when nobody says, and the most that it has.
const USUAL_ROWS: usize = 100;
const MOST_ROWS: usize = 10_000;
/// A page ends after so many rows that are not wanted.
const MOST_PASSED_OVER: usize = 50_000;

/// The most rows of a page that was asked for with this limit.
pub(super) fn page(limit: usize, usual: usize) -> usize {
    if limit == 0 { usual } else { limit.min(MOST_ROWS) }
}

/// What a query reads: the tail as it was when it began, and the table from then on.
pub(super) struct Reader<'a> {
    pub(super) table: &'a dyn Table,
    /// What the query may want of the tail.
    pub(super) pending: Vec<Arc<Pending>>,
    unreadable: &'a Unreadable,
}

impl<'a> Reader<'a> {
    /// For rows and sums of a tenant, or of all.
    pub(super) fn of_tenant(source: &'a Source, tenant: Option<&str>) -> Self {
        let pending = source.tail.rows(|row| tenant.is_none_or(|tenant| *tenant == row.grain.tenant));
        Self { table: &*source.table, pending, unreadable: &source.unreadable }
    }

    /// For rows of a session and of the tree below it.
    pub(super) fn of_session(source: &'a Source, session: SessionId) -> Self {
        let pending = source.tail.rows(|row| row.session == session || row.root == session);
        Self { table: &*source.table, pending, unreadable: &source.unreadable }
    }

    /// Calls `each` with each tenant that has keys of this kind, or rows in the tail: with this one, else with all from
    /// `first` on, in order. It says whether to go on.
    pub(super) fn each_tenant(
        &self,
        kind: &[u8],
        tenant: Option<&str>,
        first: Option<&str>,
        each: &mut dyn FnMut(&str) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        if let Some(tenant) = tenant {
            return each(tenant).map(drop);
        }
        let pending: BTreeSet<Vec<u8>> =
            self.pending.iter().map(|row| keys::of_tenant(kind, &row.grain.tenant)).collect();
        let mut from = first.map_or_else(|| kind.to_vec(), |first| keys::of_tenant(kind, first));
        let end = end_of(kind);
        loop {
            let stored = self.table.scan(&from, &end, 1)?.into_iter().next().map(|(key, _)| key);
            let pending = pending.range::<Vec<u8>, _>(&from..).next().cloned();
            let Some(key) = [stored, pending].into_iter().flatten().min() else { return Ok(()) };
            let tenant = keys::tenant(kind, &key).ok_or_else(|| damaged("key", &key))?;
            if !each(&tenant)? {
                return Ok(());
            }
            from = end_of(&keys::of_tenant(kind, &tenant));
        }
    }

    /// Calls `each` with the rows of a list that ended within these milliseconds, and their numbers, in order, until it
    /// returns false.
    pub(super) fn each_row(
        &self,
        list: &List,
        span: (u64, u64),
        after: Option<&RowPlace>,
        each: &mut dyn FnMut(u64, LedgerRow) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let waiting = self.pending.iter().filter(|row| list.has(row));
        let waiting = waiting.map(|row| (row.place(), row.number)).collect();
        let after = after.map(|place| (place.ended.as_millis(), place.id.clone()));
        each_number(self.table, list, waiting, &Range { span, after }, &mut |number| {
            let key = keys::feed(number);
            // It may have been archived since.
            let Some(entry) = self.table.get(&key)? else { return Ok(true) };
            match self.unreadable.pass(number, &key, entry::row(&key, &entry))? {
                Some(row) => each(number, row),
                None => Ok(true),
            }
        })
    }
}

/// See [`super::Ledger::rows`].
pub(crate) fn rows(source: &Source, query: &RowQuery) -> Result<RowPage, StoreError> {
    let limit = page(query.limit, USUAL_ROWS);
    let span = span(query.from, query.to);
    let mut found = RowPage::default();
    let mut passed_over = 0;
    let mut take = |row: LedgerRow| {
        if !query.wants(&row) {
            passed_over += 1;
            if passed_over < MOST_PASSED_OVER {
                return Ok(true);
            }
            found.next = Some(row.place());
            return Ok(false);
        }
        if found.rows.len() == limit {
            found.next = found.rows.last().map(LedgerRow::place);
            return Ok(false);
        }
        found.rows.push(row);
        Ok(true)
    };
    let place = query.after.as_ref();
    if let Some(session) = query.session.or(query.root) {
        let reader = Reader::of_session(source, session);
        reader.each_row(&List::of_session(session), span, place, &mut |_, row| take(row))?;
        return Ok(found);
    }
    let reader = Reader::of_tenant(source, query.tenant.as_deref());
    let first = place.map(|place| place.tenant.as_str());
    reader.each_tenant(keys::LISTS, query.tenant.as_deref(), first, &mut |tenant| {
        // Tenants before the one where the page before ended are done, those behind it begin with their first row.
        let ended = place.map(|place| keys::of_tenant(keys::LISTS, &place.tenant));
        if ended.is_some_and(|ended| ended > keys::of_tenant(keys::LISTS, tenant)) {
            return Ok(true);
        }
        let place = place.filter(|place| place.tenant == tenant);
        let mut goes_on = true;
        reader.each_row(&List::of_tenant(tenant), span, place, &mut |_, row| {
            goes_on = take(row)?;
            Ok(goes_on)
        })?;
        Ok(goes_on)
    })?;
    Ok(found)
}

/// The milliseconds from one time to before another.
pub(super) fn span(from: Option<Timestamp>, to: Option<Timestamp>) -> (u64, u64) {
    (from.map_or(0, Timestamp::as_millis), to.map_or(u64::MAX, Timestamp::as_millis))
}

/// See [`super::Ledger::feed`]. `end` is the last number that is durable.
pub(crate) fn feed(
    source: &Source,
    from: u64,
    end: u64,
    limit: usize,
) -> Result<Vec<(u64, FeedItem)>, StoreError> {
    let mut found = Vec::new();
    if limit == 0 {
        return Ok(found);
    }
    each_entry(&*source.table, from, end, &mut |number, key, stored| {
        let item = source.unreadable.pass(number, key, entry::item(key, stored))?;
        found.extend(item.map(|item| (number, item)));
        Ok(found.len() < limit)
    })?;
    Ok(found)
}

/// What is called with the number, the key and the value of each entry, and says whether to go on.
pub(super) type EachEntry<'a> = dyn FnMut(u64, &[u8], &[u8]) -> Result<bool, StoreError> + 'a;

/// The entries of the feed behind `from`, up to `end`.
pub(super) fn each_entry(
    table: &dyn Table,
    from: u64,
    end: u64,
    each: &mut EachEntry<'_>,
) -> Result<(), StoreError> {
    let (Some(first), Some(last)) = (from.checked_add(1), end.checked_add(1)) else { return Ok(()) };
    table.visit(keys::feed(first), &keys::feed(last), &mut |key, stored| {
        let number = keys::number_of_feed(key).ok_or_else(|| damaged("entry of the feed", key))?;
        each(number, key, stored)
    })
}

/// See [`super::Ledger::archivable`]. `end` is the last number that is durable.
pub(crate) fn archivable(source: &Source, query: &ArchiveQuery, end: u64) -> Result<ArchivePage, StoreError> {
    let limit = page(query.limit, USUAL_ROWS);
    let up_to = query.up_to.unwrap_or(u64::MAX);
    let (mut found, mut looked_at) = (ArchivePage::default(), query.after);
    each_entry(&*source.table, query.after, end, &mut |number, key, stored| {
        if found.numbers.len() == limit {
            found.next = Some(looked_at);
            return Ok(false);
        }
        looked_at = number;
        if entry::time(stored).is_none_or(|time| time >= query.before) {
            return Ok(true);
        }
        if number > up_to {
            found.kept += u64::from(entry::is_row(stored));
            found.kept_corrections += u64::from(entry::is_correction(stored));
            return Ok(true);
        }
        if entry::is_row(stored) {
            // One that cannot be read cannot be written elsewhere either.
            let Some(row) = source.unreadable.pass(number, key, entry::row(key, stored))? else {
                return Ok(true);
            };
            found.rows.push(row);
        }
        found.numbers.push(number);
        Ok(true)
    })?;
    Ok(found)
}

/// See [`super::Ledger::archived_before`].
pub(crate) fn archived_before(table: &dyn Table) -> Result<Option<Timestamp>, StoreError> {
    let stored = table.get(keys::ARCHIVED_MARK)?;
    Ok(stored.map(|stored| Timestamp::from_millis(super::write::read_number(Some(&stored)))))
}

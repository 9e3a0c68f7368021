//! Reading rows and the feed.

use playhouse_protocol::ledger::{ArchivePage, ArchiveQuery, FeedItem, RowPage, RowPlace, RowQuery, TurnEnd};
use playhouse_protocol::{LedgerRow, SessionId, Timestamp};

use super::{damaged, decode_row, keys};
use crate::StoreError;
use crate::keys::{after, end_of};
use crate::table::Table;

/// What an entry of the feed begins with: what follows is the key of a row, or the end of a turn.
pub(super) const ROW: u8 = 0;
pub(super) const TURN_END: u8 = 1;

/// How many rows a page has when nobody says, and the most that it has.
const USUAL_ROWS: usize = 100;
const MOST_ROWS: usize = 10_000;

/// The most rows of a page that was asked for with this limit.
pub(super) fn page(limit: usize, usual: usize) -> usize {
    if limit == 0 { usual } else { limit.min(MOST_ROWS) }
}

/// The key of the row that an entry of the feed names.
pub(super) fn row_key(entry: &[u8]) -> Option<&[u8]> {
    entry.split_first().filter(|(tag, _)| **tag == ROW).map(|(_, key)| key)
}

fn turn_end(entry: &[u8]) -> Option<TurnEnd> {
    let (_, content) = entry.split_first().filter(|(tag, _)| **tag == TURN_END)?;
    serde_json::from_slice(content).ok()
}

/// The time that an entry of the feed is of.
pub(super) fn time(entry: &[u8]) -> Option<Timestamp> {
    match row_key(entry) {
        Some(key) => keys::time_of_row(key),
        None => turn_end(entry).map(|end| end.at),
    }
}

/// Calls `each` with what all keys of this kind of each tenant begin with: of this one, else of all from `first` on, in
/// order. It says whether to go on.
pub(super) fn each_tenant(
    table: &dyn Table,
    kind: &[u8],
    tenant: Option<&str>,
    first: Option<&str>,
    each: &mut dyn FnMut(&[u8]) -> Result<bool, StoreError>,
) -> Result<(), StoreError> {
    if let Some(tenant) = tenant {
        return each(&keys::of_tenant(kind, tenant)).map(drop);
    }
    let mut from = first.map_or_else(|| kind.to_vec(), |first| keys::of_tenant(kind, first));
    let end = end_of(kind);
    while let Some((key, _)) = table.scan(&from, &end, 1)?.into_iter().next() {
        let prefix = keys::tenant_prefix(kind, &key).ok_or_else(|| damaged("key", &key))?;
        if !each(prefix)? {
            break;
        }
        from = end_of(prefix);
    }
    Ok(())
}

/// Calls `each` with the rows of a tenant (named by what their keys begin with) that ended within these milliseconds, in
/// order, until it returns false.
pub(super) fn each_row(
    table: &dyn Table,
    list: &[u8],
    (from, to): (u64, u64),
    after_row: Option<&RowPlace>,
    each: &mut dyn FnMut(LedgerRow) -> Result<bool, StoreError>,
) -> Result<(), StoreError> {
    let mut start = keys::at(list, from);
    if let Some(place) = after_row {
        start = start.max(after(&keys::row(&place.tenant, place.ended, &place.id)));
    }
    table.visit(start, &keys::at(list, to), &mut |key, value| each(decode_row(key, value)?))
}

/// The same for the rows of a session and of the tree below it.
pub(super) fn each_row_of_session(
    table: &dyn Table,
    session: SessionId,
    (from, to): (u64, u64),
    after_row: Option<&RowPlace>,
    each: &mut dyn FnMut(LedgerRow) -> Result<bool, StoreError>,
) -> Result<(), StoreError> {
    let list = keys::of_session(session);
    let mut start = keys::at(&list, from);
    if let Some(place) = after_row {
        start = start.max(after(&keys::row_of_session(session, place.ended, &place.id)));
    }
    table.visit(start, &keys::at(&list, to), &mut |key, tenant| {
        let row = keys::row_of_listed(key, tenant).ok_or_else(|| damaged("entry", key))?;
        // It may have been archived since.
        let Some(value) = table.get(&row)? else { return Ok(true) };
        each(decode_row(&row, &value)?)
    })
}

/// See [`super::Ledger::rows`].
pub(crate) fn rows(table: &dyn Table, query: &RowQuery) -> Result<RowPage, StoreError> {
    let limit = page(query.limit, USUAL_ROWS);
    let span = span(query.from, query.to);
    let mut found = RowPage::default();
    let mut take = |row: LedgerRow| {
        let is_wanted = query.tenant.as_ref().is_none_or(|tenant| *tenant == row.tenant)
            && query.session.is_none_or(|session| session == row.session)
            && query.root.is_none_or(|root| root == row.root)
            && query.turn.is_none_or(|turn| turn == row.turn);
        if !is_wanted {
            return Ok(true);
        }
        if found.rows.len() == limit {
            found.next = found.rows.last().map(LedgerRow::place);
            return Ok(false);
        }
        found.rows.push(row);
        Ok(true)
    };
    let place = query.after.as_ref();
    match query.session.or(query.root) {
        Some(session) => each_row_of_session(table, session, span, place, &mut take)?,
        None => {
            let first = place.map(|place| place.tenant.as_str());
            each_tenant(table, keys::ROWS, query.tenant.as_deref(), first, &mut |list| {
                let mut goes_on = true;
                each_row(table, list, span, place, &mut |row| {
                    goes_on = take(row)?;
                    Ok(goes_on)
                })?;
                Ok(goes_on)
            })?;
        }
    }
    Ok(found)
}

/// The milliseconds from one time to before another.
pub(super) fn span(from: Option<Timestamp>, to: Option<Timestamp>) -> (u64, u64) {
    (from.map_or(0, Timestamp::as_millis), to.map_or(u64::MAX, Timestamp::as_millis))
}

/// See [`super::Ledger::feed`]. `end` is the last number that is durable.
pub(crate) fn feed(
    table: &dyn Table,
    from: u64,
    end: u64,
    limit: usize,
) -> Result<Vec<(u64, FeedItem)>, StoreError> {
    let mut found = Vec::new();
    if limit == 0 {
        return Ok(found);
    }
    each_entry(table, from, end, &mut |number, entry| {
        let item = match row_key(entry) {
            Some(key) => match table.get(key)? {
                Some(value) => FeedItem::Row(Box::new(decode_row(key, &value)?)),
                // It was archived since.
                None => return Ok(true),
            },
            None => FeedItem::TurnEnded(
                turn_end(entry).ok_or_else(|| damaged("entry of the feed", &keys::feed(number)))?,
            ),
        };
        found.push((number, item));
        Ok(found.len() < limit)
    })?;
    Ok(found)
}

/// What is called with each entry of the feed and its number, and says whether to go on.
type EachEntry<'a> = dyn FnMut(u64, &[u8]) -> Result<bool, StoreError> + 'a;

fn each_entry(table: &dyn Table, from: u64, end: u64, each: &mut EachEntry<'_>) -> Result<(), StoreError> {
    let (Some(first), Some(last)) = (from.checked_add(1), end.checked_add(1)) else { return Ok(()) };
    table.visit(keys::feed(first), &keys::feed(last), &mut |key, entry| {
        let number = keys::number_of_feed(key).ok_or_else(|| damaged("entry of the feed", key))?;
        each(number, entry)
    })
}

/// See [`super::Ledger::archivable`]. `end` is the last number that is durable.
pub(crate) fn archivable(
    table: &dyn Table,
    query: &ArchiveQuery,
    end: u64,
) -> Result<ArchivePage, StoreError> {
    let limit = page(query.limit, USUAL_ROWS);
    let up_to = query.up_to.unwrap_or(u64::MAX);
    let (mut found, mut looked_at) = (ArchivePage::default(), query.after);
    each_entry(table, query.after, end, &mut |number, entry| {
        if found.numbers.len() == limit {
            found.next = Some(looked_at);
            return Ok(false);
        }
        looked_at = number;
        if time(entry).is_none_or(|time| time >= query.before) {
            return Ok(true);
        }
        let row = row_key(entry);
        if number > up_to {
            found.kept += u64::from(row.is_some());
            return Ok(true);
        }
        if let Some(key) = row
            && let Some(value) = table.get(key)?
        {
            found.rows.push(decode_row(key, &value)?);
        }
        found.numbers.push(number);
        Ok(true)
    })?;
    Ok(found)
}

//! Makes the ledger ready when a store is opened: settles what the opening before left in the tail, and for a store whose
//! last opening did not keep the ledger makes it from the logs, once.

use std::collections::HashSet;
use std::sync::Arc;

use playhouse_protocol::LedgerRow;
use playhouse_protocol::{Day, MessageId, Record, Timestamp};

use super::read::each_entry;
use super::sums::Running;
use super::tail::{MANY, Pending, stage_all};
use super::write::{Growth, Staging, raise, read_number};
use super::{LAYOUT, entry, keys, lists, migrate};
use crate::draft::Draft;
use crate::keys::{CREATED, after, created, cursor_of_created, end_of};
use crate::projection::{self, Source, is_marked};
use crate::table::{Batch, Table};
use crate::{Cursor, StoreError};

/// How many sessions are listed at once.
const SLICE: usize = 1_000;

/// Makes the ledger good and marks it as kept by `generation`, the one that opens now. The last number of the feed. What it
/// writes is durable with the next flush.
pub(crate) fn prepare(source: &Source, generation: u64) -> Result<u64, StoreError> {
    let mark = |generation: u64| [&[LAYOUT][..], &generation.to_be_bytes()].concat();
    let table = &*source.table;
    let form = number_at(table, keys::FORM_MARK)?;
    if form > entry::NEWEST_FORM {
        return Err(StoreError::Newer { what: format!("the ledger, with rows of form {form},") });
    }
    let mut last = last_number(table)?;
    settle_as_far_as_possible(source, last)?;
    if generation > 1 && !is_marked(table, keys::MARK, generation, mark)? {
        migrate::migrate(source)?;
        tracing::info!("the ledger is made from the logs");
        last = fold(source, last)?;
    }
    let form = entry::NEWEST_FORM.to_be_bytes().to_vec();
    let marks = [(keys::MARK.to_vec(), Some(mark(generation))), (keys::FORM_MARK.to_vec(), Some(form))];
    table.apply(Batch::from(marks))?;
    Ok(last)
}

/// Whether what stands at this key is left out where parts of a table may be lost, and made again at the next opening: lists and
/// sums, from the feed and the logs. A sum that counts what is in neither would count it twice. Those of days that were
/// archived stay: their rows are elsewhere.
pub(crate) fn is_made_again(key: &[u8], stored: &[u8], archived: Timestamp) -> bool {
    let is_of = |kinds: &[&[u8]]| kinds.iter().any(|kind| key.starts_with(kind));
    if is_of(&[keys::SUMS, keys::SESSION_SUMS]) {
        let running = Running::decode(key, stored);
        return running.is_none_or(|running| Day(running.grain.day).next().start() > archived);
    }
    is_of(&[keys::LISTS, keys::OF_SESSION]) || key == keys::SETTLED_MARK || key == keys::MARK
}

/// Settles all rows of a table that was opened again in place, whatever was under way before. The last number of the feed.
/// What it writes is durable with the next flush; [`super::Tail::forget`] then.
pub(crate) fn settle_behind(source: &Source) -> Result<u64, StoreError> {
    let last = last_number(&*source.table)?;
    settle_rest(source, last)?;
    Ok(last)
}

/// The same, where sessions are worth more than lists and sums: rows that cannot be settled, since the table is damaged, wait
/// in the tail, where readers find them.
fn settle_as_far_as_possible(source: &Source, last: u64) -> Result<(), StoreError> {
    let error = match settle_rest(source, last) {
        Err(error @ StoreError::Damaged { .. }) => error,
        settled => return settled,
    };
    tracing::error!(%error, "rows of the ledger are in no list and in no sum yet");
    let (settled, mut rows) = (number_at(&*source.table, keys::SETTLED_MARK)?, Vec::new());
    let read = each_entry(&*source.table, settled, last, &mut |number, key, stored| {
        rows.extend(pending(number, key, stored)?);
        Ok(true)
    });
    if let Err(error) = read {
        tracing::error!(%error, "rows of the ledger that follow cannot be found");
    }
    source.tail.moved(rows, None);
    Ok(())
}

/// The row of an entry, if it is one that can be read.
///
/// # Errors
/// A newer engine wrote it: it would be in no list and in no sum for ever.
fn pending(number: u64, key: &[u8], stored: &[u8]) -> Result<Option<Arc<Pending>>, StoreError> {
    if !entry::is_row(stored) {
        return Ok(None);
    }
    match entry::row(key, stored) {
        Ok(row) => Ok(Some(Arc::new(Pending::new(number, &row)))),
        Err(error @ StoreError::Newer { .. }) => Err(error),
        Err(error) => {
            tracing::error!(%error, "a row of the ledger is in no list and in no sum");
            Ok(None)
        }
    }
}

fn number_at(table: &dyn Table, key: &[u8]) -> Result<u64, StoreError> {
    Ok(read_number(table.get(key)?.as_deref()))
}

/// Rows of before are not in the ledger any more.
pub(crate) fn archived(table: &dyn Table) -> Result<Timestamp, StoreError> {
    Ok(Timestamp::from_millis(number_at(table, keys::ARCHIVED_MARK)?))
}

/// The time up to which the ledger is closed.
pub(crate) fn closed(table: &dyn Table) -> Result<Timestamp, StoreError> {
    Ok(Timestamp::from_millis(number_at(table, keys::CLOSED_MARK)?))
}

fn last_number(table: &dyn Table) -> Result<u64, StoreError> {
    let last = table.last_key(keys::FEED, &end_of(keys::FEED))?;
    let last = last.and_then(|key| keys::number_of_feed(&key)).unwrap_or(0);
    Ok(last.max(number_at(table, keys::FEED_MARK)?).max(number_at(table, keys::SETTLED_MARK)?))
}

/// Writes lists and sums of the rows behind the mark.
fn settle_rest(source: &Source, last: u64) -> Result<(), StoreError> {
    let table = &*source.table;
    let mut settled = number_at(table, keys::SETTLED_MARK)?;
    while settled < last {
        let mut rows = Vec::new();
        let mut looked_at = last;
        each_entry(table, settled, last, &mut |number, key, stored| {
            rows.extend(pending(number, key, stored)?);
            looked_at = number;
            Ok(rows.len() < MANY)
        })?;
        let is_full = rows.len() >= MANY;
        let batch = Batch::new();
        let mut draft = Draft::new(table, &batch);
        if !rows.is_empty() {
            stage_all(source, &mut draft, &rows)?;
        }
        settled = if is_full { looked_at } else { last };
        raise(&mut draft, keys::SETTLED_MARK, settled)?;
        let changes = draft.changes;
        table.apply(changes)?;
    }
    Ok(())
}

/// Adds the rows of all logs that are not there. The others stay as they are: those of sessions that were deleted are in no
/// log, and numbers of the feed are not given again.
fn fold(source: &Source, mut last: u64) -> Result<u64, StoreError> {
    let archived = archived(&*source.table)?;
    let mut place: Option<Cursor> = None;
    loop {
        let from = place.as_ref().map_or_else(|| CREATED.to_vec(), |place| after(&created(place)));
        let listed = source.table.scan(&from, &end_of(CREATED), SLICE)?;
        for cursor in listed.iter().filter_map(|(key, _)| cursor_of_created(key)) {
            last = fold_session(source, cursor, archived, last)?;
        }
        place = listed.last().and_then(|(key, _)| cursor_of_created(key));
        if place.is_none() {
            return Ok(last);
        }
    }
}

fn fold_session(
    source: &Source,
    Cursor { session, .. }: Cursor,
    archived: Timestamp,
    last: u64,
) -> Result<u64, StoreError> {
    let round = Batch::new();
    let mut draft = Draft::new(&*source.table, &round);
    let mut growth = Growth::after(last, closed(&*source.table)?);
    let mut staging = Staging::new(&mut draft, &mut growth);
    let (mut turns, mut seen) = (HashSet::<MessageId>::new(), HashSet::new());
    let mut failed = None;
    let (summary, damage) = source.fold_with(session, |before, entry| {
        let staged = match &entry.record {
            Record::AttemptEnded(ended) => {
                let rows = LedgerRow::of(before, ended, entry.at);
                let mut rows = rows.into_iter().filter(|row| row.ended >= archived);
                let added = rows.try_fold(None, |new, row| {
                    let is_first = seen.insert((row.ended, row.id.clone()));
                    let turn = row.turn;
                    let is_new = is_first && add_missing(source, &mut staging, row)?;
                    Ok(new.or(is_new.then_some(turn)))
                });
                added.and_then(|new| match new {
                    Some(turn) if before.turn == Some(turn) => {
                        turns.insert(turn);
                        Ok(())
                    }
                    Some(turn) => staging.turn_ended(before, turn, entry.at),
                    None => Ok(()),
                })
            }
            Record::TurnEnded(ended) if turns.remove(&ended.turn) => {
                staging.turn_ended(before, ended.turn, entry.at)
            }
            _ => Ok(()),
        };
        failed = failed.take().or(staged.err());
        failed.is_none()
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    if growth.end > last {
        stage_all(source, &mut draft, &growth.rows)?;
        raise(&mut draft, keys::SETTLED_MARK, growth.end)?;
    }
    // Read again and again otherwise, until the session changes.
    if let Some(summary) = summary.filter(|_| damage.is_none())
        && source.stored_summary(session)?.is_none()
    {
        draft.put(crate::keys::summary(session), projection::encode(&summary)?);
    }
    if !draft.changes.is_empty() {
        source.table.apply(draft.changes)?;
    }
    Ok(growth.end)
}

/// Adds a row, unless it is there: false then.
fn add_missing(
    source: &Source,
    staging: &mut Staging<'_, '_, '_>,
    row: LedgerRow,
) -> Result<bool, StoreError> {
    if lists::has(&*source.table, &row.tenant, row.ended, &row.id)? {
        return Ok(false);
    }
    staging.row(row)?;
    Ok(true)
}

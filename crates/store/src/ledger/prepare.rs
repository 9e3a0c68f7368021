//! Makes the ledger for a store whose last opening did not keep it: from the logs, once.

use std::collections::HashSet;

use playhouse_protocol::{LedgerRow, MessageId, Record, Timestamp};

use super::write::{Staging, read_number};
use super::{VERSION, keys};
use crate::draft::Draft;
use crate::keys::{CREATED, after, created, cursor_of_created, end_of};
use crate::projection::{self, Source};
use crate::table::{Batch, Table};
use crate::{Cursor, StoreError};

/// How many sessions are listed at once.
const SLICE: usize = 1_000;

/// Makes the ledger good, if it was not kept by the opening before, and marks it as kept by `generation`, the one that opens
/// now. The last number of the feed. What it writes is durable with the next flush.
pub(crate) fn prepare(source: &Source, generation: u64) -> Result<u64, StoreError> {
    let mark = |generation: u64| [&[VERSION][..], &generation.to_be_bytes()].concat();
    let (table, kept) = (&*source.table, mark(generation.saturating_sub(1)));
    let mut last = last_number(table)?;
    if generation > 1 && table.get(keys::MARK)?.as_deref() != Some(&kept) {
        tracing::info!("the ledger is made from the logs");
        last = fold(source, last)?;
    }
    table.apply(Batch::from([(keys::MARK.to_vec(), Some(mark(generation)))]))?;
    Ok(last)
}

fn last_number(table: &dyn Table) -> Result<u64, StoreError> {
    let last = table.last_key(keys::FEED, &end_of(keys::FEED))?;
    let last = last.and_then(|key| keys::number_of_feed(&key)).unwrap_or(0);
    Ok(last.max(read_number(table.get(keys::FEED_MARK)?.as_deref())))
}

/// Adds the rows of all logs that are not there. The others stay as they are: those of sessions that were deleted are in no
/// log, and numbers of the feed are not given again.
fn fold(source: &Source, mut last: u64) -> Result<u64, StoreError> {
    let archived = Timestamp::from_millis(read_number(source.table.get(keys::ARCHIVED_MARK)?.as_deref()));
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
    let mut staging = Staging::new(&mut draft, last);
    let mut turns = HashSet::<MessageId>::new();
    let mut failed = None;
    let (summary, damage) = source.fold_with(session, |before, entry| {
        let staged = match &entry.record {
            Record::AttemptEnded(ended) => match LedgerRow::new(before, ended, entry.at) {
                Some(row) if row.ended >= archived => staging.row(&row).and_then(|is_new| {
                    if is_new && before.turn == Some(row.turn) {
                        turns.insert(row.turn);
                    } else if is_new {
                        staging.turn_ended(before, row.turn, entry.at)?;
                    }
                    Ok(())
                }),
                _ => Ok(()),
            },
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
    let last = staging.last();
    // Read again and again otherwise, until the session changes.
    if let Some(summary) = summary.filter(|_| damage.is_none())
        && source.stored_summary(session)?.is_none()
    {
        draft.put(crate::keys::summary(session), projection::encode(&summary)?);
    }
    if !draft.changes.is_empty() {
        source.table.apply(draft.changes)?;
    }
    Ok(last)
}

//! What the writer stages for the ledger, beside the records that it is made from.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use playhouse_protocol::ledger::{LedgerClosed, TurnEnd};
use playhouse_protocol::operator::BY_HAND_TENANT;
use playhouse_protocol::{Entry, LedgerRow, MessageId, Record, SessionId, SessionSummary, Timestamp};

use super::lists::List;
use super::read::Reader;
use super::tail::{self, Pending};
use super::{entry, keys, lists, sums};
use crate::StoreError;
use crate::draft::Draft;
use crate::projection::Source;
use crate::writer::Archive;

/// By what the feed grew.
#[derive(Debug)]
pub(crate) struct Growth {
    /// Its last number.
    pub(crate) end: u64,
    /// The rows that it gained.
    pub(crate) rows: Vec<Arc<Pending>>,
    /// The time up to which the ledger is closed, with it.
    pub(crate) closed: Timestamp,
}

impl Growth {
    /// Of a feed that ends with this number, and is closed up to this time.
    pub(crate) fn after(end: u64, closed: Timestamp) -> Self {
        Self { end, rows: Vec::new(), closed }
    }

    /// What comes behind it.
    pub(crate) fn next(&self) -> Self {
        Self::after(self.end, self.closed)
    }

    /// And then by this, which began where it ended.
    pub(crate) fn add(&mut self, more: Self) {
        (self.end, self.closed) = (more.end, more.closed);
        self.rows.extend(more.rows);
    }
}

/// Adds to the ledger, in the changes of one request.
pub(crate) struct Staging<'g, 'd, 'a> {
    draft: &'d mut Draft<'a>,
    growth: &'g mut Growth,
}

impl<'g, 'd, 'a> Staging<'g, 'd, 'a> {
    pub(crate) fn new(draft: &'d mut Draft<'a>, growth: &'g mut Growth) -> Self {
        Self { draft, growth }
    }

    /// Takes a record that is added to the log of a session that stands as `before`. An attempt's end gives its
    /// rows: the next summary knows nothing of the attempt any more.
    pub(crate) fn record(&mut self, before: &SessionSummary, entry: &Entry) -> Result<(), StoreError> {
        match &entry.record {
            Record::AttemptEnded(ended) => {
                let mut turn = None;
                for row in LedgerRow::of(before, ended, entry.at) {
                    turn = Some(row.turn);
                    self.row(row)?;
                }
                match turn {
                    // The turn is over, or runs no more here: whoever waits for its end has had it.
                    Some(turn) if before.turn != Some(turn) => self.turn_ended(before, turn, entry.at),
                    _ => Ok(()),
                }
            }
            Record::TurnEnded(ended) if before.turn == Some(ended.turn) => {
                self.turn_ended(before, ended.turn, entry.at)
            }
            _ => Ok(()),
        }
    }

    /// A session is removed in the middle of a turn: nobody else will say that the turn is over.
    pub(crate) fn removed(&mut self, session: &SessionSummary) -> Result<(), StoreError> {
        match session.turn {
            Some(turn) => self.turn_ended(session, turn, session.updated),
            None => Ok(()),
        }
    }

    /// Adds a row. One that ended before the ledger was closed says that it is late.
    pub(crate) fn row(&mut self, mut row: LedgerRow) -> Result<(), StoreError> {
        row.late = row.ended < self.growth.closed;
        let key = self.next();
        let entry = entry::of_row(&key, &row)?;
        self.draft.put(key, entry);
        self.growth.rows.push(Arc::new(Pending::new(self.growth.end, &row)));
        Ok(())
    }

    /// Closes the ledger up to a time, unless it is closed further. The first time only sets where closing begins: what was
    /// before belongs to no period that anybody was told of.
    pub(crate) fn close(&mut self, until: Timestamp) {
        if until <= self.growth.closed {
            return;
        }
        let is_first = self.growth.closed == Timestamp::from_millis(0);
        self.growth.closed = until;
        self.draft.put(keys::CLOSED_MARK.to_vec(), until.as_millis().to_be_bytes().to_vec());
        if is_first {
            return;
        }
        let key = self.next();
        let entry = entry::of_closed(&key, LedgerClosed { until });
        self.draft.put(key, entry);
    }

    pub(super) fn turn_ended(
        &mut self,
        session: &SessionSummary,
        turn: MessageId,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        if session.tenant == BY_HAND_TENANT {
            return Ok(());
        }
        let end = TurnEnd { tenant: session.tenant.clone(), session: session.id, turn, at };
        let key = self.next();
        self.draft.put(key, entry::of_turn_end(&end)?);
        Ok(())
    }

    /// The key of the next entry.
    fn next(&mut self) -> Vec<u8> {
        self.growth.end = self.growth.end.saturating_add(1);
        keys::feed(self.growth.end)
    }
}

/// What an archiving staged.
pub(crate) struct Archived {
    /// How many rows are removed.
    pub(crate) rows: u64,
    /// The number up to which rows are settled with it, where that is another now.
    pub(crate) settled: Option<u64>,
}

/// Stages the removal of entries of the feed before `before`, and of their rows. A row that was `priced` later is no row of
/// unknown cost in sums any more, since its correction cannot be looked up once it is archived. The sums have to be complete
/// for that: all is settled first, unless the round has done so (`is_settled`).
pub(crate) fn archive(
    source: &Source,
    draft: &mut Draft<'_>,
    is_settled: bool,
    Archive { before, numbers, priced }: &Archive,
) -> Result<Archived, StoreError> {
    let settled = if is_settled { None } else { tail::settle(source, draft)? };
    let durable = source.feed_end.load(Ordering::Relaxed);
    let (mut rows, mut last) = (Vec::new(), 0);
    for number in numbers.iter().filter(|number| **number <= durable) {
        let key = keys::feed(*number);
        let Some(stored) = draft.get(&key)? else { continue };
        if entry::time(&stored).is_none_or(|time| time >= *before) {
            continue;
        }
        if entry::is_row(&stored) {
            let row = Pending::new(*number, &entry::row(&key, &stored)?);
            if priced.contains(number) {
                sums::priced(draft, &row)?;
            }
            rows.push(row);
        }
        draft.remove(key);
        last = last.max(*number);
    }
    let count = rows.len() as u64;
    lists::remove(draft, rows)?;
    raise(draft, keys::FEED_MARK, last)?;
    raise(draft, keys::ARCHIVED_MARK, before.as_millis())?;
    Ok(Archived { rows: count, settled })
}

/// The numbers of those of these rows that have no cost, and a correction that says it. Reads each of their sessions.
pub(crate) fn priced_later(source: &Source, numbers: &[u64]) -> Result<HashSet<u64>, StoreError> {
    let mut unpriced = HashMap::<SessionId, Vec<(u64, LedgerRow)>>::new();
    for number in numbers {
        let key = keys::feed(*number);
        let Some(stored) = source.table.get(&key)?.filter(|stored| entry::is_row(stored)) else { continue };
        let row = entry::row(&key, &stored)?;
        if row.cost.is_none() {
            unpriced.entry(row.session).or_default().push((*number, row));
        }
    }
    let mut priced = HashSet::new();
    for (session, rows) in unpriced {
        let from = rows.iter().map(|(_, row)| row.ended.as_millis()).min().unwrap_or_default();
        let mut corrected = HashSet::new();
        let reader = Reader::of_session(source, session);
        reader.each_row(&List::of_session(session), (from, u64::MAX), None, &mut |_, row| {
            corrected.extend(row.corrects);
            Ok(true)
        })?;
        priced.extend(rows.iter().filter(|(_, row)| corrected.contains(&row.id)).map(|(number, _)| *number));
    }
    Ok(priced)
}

/// Makes a number that is kept at least this.
pub(super) fn raise(draft: &mut Draft<'_>, key: &[u8], to: u64) -> Result<(), StoreError> {
    let kept = read_number(draft.get(key)?.as_deref());
    draft.put(key.to_vec(), kept.max(to).to_be_bytes().to_vec());
    Ok(())
}

pub(super) fn read_number(stored: Option<&[u8]>) -> u64 {
    stored.and_then(|stored| stored.try_into().ok()).map_or(0, u64::from_be_bytes)
}

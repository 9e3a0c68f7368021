//! What the writer stages for the ledger, beside the records that it is made from.

use playhouse_protocol::ledger::{Grain, TurnEnd, UsageSum};
use playhouse_protocol::operator::BY_HAND_TENANT;
use playhouse_protocol::{Day, Entry, LedgerRow, MessageId, Record, SessionId, SessionSummary, Timestamp};

use super::{Running, VERSION, decode_row, keys, read};
use crate::draft::Draft;
use crate::{StoreError, value};

/// Adds to the ledger, in the changes of one request.
pub(crate) struct Staging<'d, 'a> {
    draft: &'d mut Draft<'a>,
    /// The last number of the feed.
    last: u64,
}

impl<'d, 'a> Staging<'d, 'a> {
    /// Behind the number `last` of the feed.
    pub(crate) fn new(draft: &'d mut Draft<'a>, last: u64) -> Self {
        Self { draft, last }
    }

    /// The last number of the feed now.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Takes a record that is added to the log of a session that stands as `before`.
    pub(crate) fn record(&mut self, before: &SessionSummary, entry: &Entry) -> Result<(), StoreError> {
        match &entry.record {
            Record::AttemptEnded(ended) => {
                let Some(row) = LedgerRow::new(before, ended, entry.at) else { return Ok(()) };
                let turn = row.turn;
                if self.row(&row)? && before.turn != Some(turn) {
                    // The turn is over, or runs no more here: whoever waits for its end has had it.
                    self.turn_ended(before, turn, entry.at)?;
                }
                Ok(())
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

    /// Adds a row, unless it is there: false then.
    pub(super) fn row(&mut self, row: &LedgerRow) -> Result<bool, StoreError> {
        let key = keys::row(&row.tenant, row.ended, &row.id);
        if self.draft.get(&key)?.is_some() {
            return Ok(false);
        }
        let grain = row.grain();
        self.add(keys::sum(&grain), &grain, None, row)?;
        self.add(keys::session_sum(&grain, row.session), &grain, Some(row.session), row)?;
        for listed in keys::lists_of(row) {
            self.draft.put(listed, row.tenant.clone().into_bytes());
        }
        self.draft.put(key.clone(), value::encode(VERSION, &key, row)?);
        self.feed(read::ROW, &key);
        Ok(true)
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
        let text = serde_json::to_vec(&end).map_err(|error| StoreError::Backend(error.to_string()))?;
        self.feed(read::TURN_END, &text);
        Ok(())
    }

    fn feed(&mut self, tag: u8, content: &[u8]) {
        self.last = self.last.saturating_add(1);
        self.draft.put(keys::feed(self.last), [&[tag], content].concat());
    }

    /// Adds a row to a running sum.
    fn add(
        &mut self,
        key: Vec<u8>,
        grain: &Grain,
        session: Option<SessionId>,
        row: &LedgerRow,
    ) -> Result<(), StoreError> {
        let mut sum = match self.draft.get(&key)? {
            None => UsageSum::default(),
            Some(stored) => match value::decode::<Running>(VERSION, &key, &stored) {
                Some(running) => running.sum,
                None => {
                    tracing::error!(key = %key.escape_ascii(), "a sum of the ledger is damaged and is made again from the rows that are there");
                    self.sum_again(grain, session)?
                }
            },
        };
        sum += UsageSum::of(row);
        let stored = value::encode(VERSION, &key, &Running { grain: grain.clone(), sum })?;
        self.draft.put(key, stored);
        Ok(())
    }

    fn sum_again(&self, grain: &Grain, session: Option<SessionId>) -> Result<UsageSum, StoreError> {
        let (list, day) = (keys::of_tenant(keys::ROWS, &grain.tenant), Day(grain.day));
        let (from, to) = (day.start().as_millis(), day.next().start().as_millis());
        let mut sum = UsageSum::default();
        for key in self.draft.keys(&keys::at(&list, from), &keys::at(&list, to))? {
            let Some(stored) = self.draft.get(&key)? else { continue };
            let row = decode_row(&key, &stored)?;
            if row.grain() == *grain && session.is_none_or(|session| session == row.session) {
                sum += UsageSum::of(&row);
            }
        }
        Ok(sum)
    }
}

/// Stages the removal of entries of the feed before `before`, and of their rows; how many rows these are.
pub(crate) fn forget(draft: &mut Draft<'_>, before: Timestamp, numbers: &[u64]) -> Result<u64, StoreError> {
    let (mut removed, mut last) = (0, 0);
    for number in numbers {
        let key = keys::feed(*number);
        let Some(stored) = draft.get(&key)? else { continue };
        if read::time(&stored).is_none_or(|time| time >= before) {
            continue;
        }
        if let Some(row_key) = read::row_key(&stored)
            && let Some(stored) = draft.get(row_key)?
        {
            let row = decode_row(row_key, &stored)?;
            keys::lists_of(&row).for_each(|listed| draft.remove(listed));
            draft.remove(row_key.to_vec());
            removed += 1;
        }
        draft.remove(key);
        last = last.max(*number);
    }
    raise(draft, keys::FEED_MARK, last)?;
    raise(draft, keys::ARCHIVED_MARK, before.as_millis())?;
    Ok(removed)
}

/// Makes a number that is kept at least this.
fn raise(draft: &mut Draft<'_>, key: &[u8], to: u64) -> Result<(), StoreError> {
    let kept = read_number(draft.get(key)?.as_deref());
    draft.put(key.to_vec(), kept.max(to).to_be_bytes().to_vec());
    Ok(())
}

pub(super) fn read_number(stored: Option<&[u8]>) -> u64 {
    stored.and_then(|stored| stored.try_into().ok()).map_or(0, u64::from_be_bytes)
}

//! An entry of the feed, as it is stored: what it is, and a row with the time it ended, or the end of a turn.

use playhouse_protocol::ledger::{FeedItem, TurnEnd};
use playhouse_protocol::{LedgerRow, Timestamp};

use super::{VERSION, damaged};
use crate::{StoreError, value};

/// What an entry begins with. 0 was the key of a row elsewhere, see `migrate`.
const TURN_END: u8 = 1;
const ROW: u8 = 2;
const ROW_AT: usize = 1 + size_of::<u64>();

pub(super) fn of_row(key: &[u8], row: &LedgerRow) -> Result<Vec<u8>, StoreError> {
    let mut start = [ROW; ROW_AT];
    start[1..].copy_from_slice(&row.ended.as_millis().to_be_bytes());
    value::encode_behind(&start, VERSION, key, row)
}

pub(super) fn of_turn_end(end: &TurnEnd) -> Result<Vec<u8>, StoreError> {
    let text = serde_json::to_vec(end).map_err(|error| StoreError::Backend(error.to_string()))?;
    Ok([&[TURN_END][..], &text].concat())
}

pub(super) fn is_row(entry: &[u8]) -> bool {
    entry.first() == Some(&ROW)
}

fn turn_end(entry: &[u8]) -> Option<TurnEnd> {
    let (_, content) = entry.split_first().filter(|(tag, _)| **tag == TURN_END)?;
    serde_json::from_slice(content).ok()
}

/// The time that it is of.
pub(super) fn time(entry: &[u8]) -> Option<Timestamp> {
    if !is_row(entry) {
        return turn_end(entry).map(|end| end.at);
    }
    let number = entry.get(1..)?.first_chunk()?;
    Some(Timestamp::from_millis(u64::from_be_bytes(*number)))
}

/// The row that the entry at `key` holds.
pub(super) fn row(key: &[u8], entry: &[u8]) -> Result<LedgerRow, StoreError> {
    let stored = entry.get(ROW_AT..).filter(|_| is_row(entry));
    stored.and_then(|stored| value::decode(VERSION, key, stored)).ok_or_else(|| damaged("row", key))
}

/// What the entry at `key` holds.
pub(super) fn item(key: &[u8], entry: &[u8]) -> Result<FeedItem, StoreError> {
    match turn_end(entry) {
        Some(end) => Ok(FeedItem::TurnEnded(end)),
        None => row(key, entry).map(|row| FeedItem::Row(Box::new(row))),
    }
}

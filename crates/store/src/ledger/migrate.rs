//! Takes over what the first version of the ledger wrote.
//!
//! It kept a row at `r/` tenant 0, time, id, named it at `y/` session, time, id for each list of a session, and had the key of
//! the row in the feed, behind a tag of 0. Its sums count all of its rows. Rows of sessions that were deleted are in no log:
//! they have to come from here.

use std::sync::Arc;

use playhouse_protocol::json::read_row;

use super::tail::Pending;
use super::{VERSION, entry, keys, lists};
use crate::draft::Draft;
use crate::keys::end_of;
use crate::projection::Source;
use crate::table::Batch;
use crate::{StoreError, value};

const ROW_ELSEWHERE: u8 = 0;
const OF_SESSION: &[u8] = b"y/";

/// How many entries of the feed are rewritten with one write.
const SLICE: usize = 1_000;

/// Rewrites all entries of that form. What was rewritten before an interruption stays so.
pub(super) fn migrate(source: &Source) -> Result<(), StoreError> {
    let table = &*source.table;
    let mut from = keys::FEED.to_vec();
    loop {
        let entries = table.scan(&from, &end_of(keys::FEED), SLICE)?;
        let Some((last, _)) = entries.last() else { return Ok(()) };
        from = crate::keys::after(last);
        let batch = Batch::new();
        let mut draft = Draft::new(table, &batch);
        let mut rows = Vec::new();
        for (key, stored) in &entries {
            let Some((&ROW_ELSEWHERE, row_key)) = stored.split_first() else { continue };
            let Some(number) = keys::number_of_feed(key) else { continue };
            let Some(stored) = table.get(row_key)? else {
                // The first version removed both together.
                draft.remove(key.clone());
                continue;
            };
            let Some(row) = value::read(VERSION, row_key, &stored, read_row) else {
                tracing::error!(key = %row_key.escape_ascii(), "a row of the ledger is damaged and stays as it is");
                continue;
            };
            draft.put(key.clone(), entry::of_row(key, &row)?);
            draft.remove(row_key.to_vec());
            for session in [row.session, row.root] {
                let (time, id) = (row.ended.as_millis().to_be_bytes(), row.id.0.as_bytes());
                draft.remove([OF_SESSION, session.as_str().as_bytes(), &time, id].concat());
            }
            rows.push(Arc::new(Pending::new(number, &row)));
        }
        for (key, rows) in lists::blocks(&rows) {
            lists::put(&mut draft, key, &rows);
        }
        table.apply(draft.changes)?;
    }
}

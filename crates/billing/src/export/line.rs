//! Rows as lines of JSON, for files.

use playhouse_protocol::LedgerRow;
use playhouse_protocol::ledger::CURRENCY;
use serde::Serialize;

use super::{ClosedNotice, Entry, Item, Request, Shape, joined, json};

/// A row as files and webhooks have it: as it stands in the ledger, with its currency.
#[derive(Serialize)]
pub(super) struct SentRow<'a> {
    #[serde(flatten)]
    row: &'a LedgerRow,
    currency: &'static str,
}

impl<'a> SentRow<'a> {
    pub(super) const fn new(row: &'a LedgerRow) -> Self {
        Self { row, currency: CURRENCY }
    }
}

/// What a line has that is no row.
#[derive(Serialize)]
struct Notice<'a> {
    r#type: &'a str,
    #[serde(flatten)]
    closed: &'a ClosedNotice,
}

/// One row a line: the row as it stands in the ledger, with its currency.
/// That the ledger is closed is a line with a `type`, which rows have not.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lines;

impl Shape for Lines {
    fn encode(&self, entry: &Entry) -> Vec<u8> {
        let mut line = match entry {
            Entry::Row(row) => json(&SentRow::new(row)),
            Entry::Report(report) => json(report),
            Entry::Closed(closed) => json(&Notice { r#type: ClosedNotice::TYPE, closed }),
        };
        line.push(b'\n');
        line
    }

    /// The lines as one body; what writes files takes the lines themselves.
    fn requests(&self, batch: &[&Item]) -> Vec<Request> {
        let body = batch.iter().flat_map(|item| item.encoded.iter().copied()).collect();
        vec![Request { content_type: "application/x-ndjson", headers: Vec::new(), body, signed_as: None }]
    }
}

/// Rows within a larger object, as the webhook has them.
pub(super) fn within(begin: &str, batch: &[&Item], end: &str) -> Vec<u8> {
    joined(begin.as_bytes(), batch, end.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::samples::{item, row};

    #[test]
    fn a_line_is_the_row() {
        let rows = [row(1, 1, "m"), row(2, 1, "m")];
        let items: Vec<Item> = rows.iter().map(|row| item(&Lines, 1, row.clone())).collect();
        let requests = Lines.requests(&items.iter().collect::<Vec<_>>());
        let text = String::from_utf8(requests[0].body.clone()).unwrap();
        let read: Vec<LedgerRow> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(read, rows);
        let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!((&first["currency"], &first["id"]), (&"USD".into(), &rows[0].id.0.as_str().into()));
    }
}

//! Rows for a server of the platform's own, signed.
//!
//! The body is `{"type": "usage.rows", "timestamp", "data": {"rows": […]}}`, with rows as they stand in the ledger and their
//! `currency`; that the ledger is closed is `{"type": "ledger.closed", "timestamp", "data": {"id", "until"}}`. Its id is
//! made from the body. A batch that is sent again after a restart may hold other rows than before, so a receiver removes
//! duplicates by the ids of the rows; that of the message tells it early. The signature covers the time of sending.

use super::line::{SentRow, within};
use super::signature::fingerprint;
use super::time::rfc3339;
use super::{ClosedNotice, Entry, Item, Request, Shape, json};

/// Batches of rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Webhook;

impl Shape for Webhook {
    fn encode(&self, entry: &Entry) -> Vec<u8> {
        match entry {
            Entry::Row(row) => json(&SentRow::new(row)),
            Entry::Report(report) => json(report),
            Entry::Closed(closed) => json(closed),
        }
    }

    /// Rows that follow each other are one message, and each closing is one: they are sent in the order of the feed.
    fn requests(&self, batch: &[&Item]) -> Vec<Request> {
        let is_closing = |item: &Item| matches!(item.entry, Entry::Closed(_));
        batch.chunk_by(|one, other| !is_closing(one) && !is_closing(other)).map(message).collect()
    }
}

/// A message with rows, or with one closing.
fn message(items: &[&Item]) -> Request {
    let time = items.last().map(|item| rfc3339(item.entry.at())).unwrap_or_default();
    let head = |kind: &str| format!(r#"{{"type":"{kind}","timestamp":"{time}","data":"#);
    let body = match items {
        [Item { entry: Entry::Closed(_), .. }] => within(&head(ClosedNotice::TYPE), items, "}"),
        _ => within(&(head("usage.rows") + r#"{"rows":["#), items, "]}}"),
    };
    let id = format!("msg_{}", fingerprint(&[&body]));
    Request { content_type: "application/json", headers: Vec::new(), body, signed_as: Some(id) }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::{LedgerRow, Timestamp};
    use serde_json::Value;

    use super::*;
    use crate::export::samples::{item, row};
    use crate::export::{Cursor, LedgerClosed, Place};

    #[test]
    fn a_closing_is_a_message_of_its_own_between_the_rows_around_it() {
        let entry = |number: u64| match number {
            2 | 3 => Entry::Closed(LedgerClosed { until: Timestamp::from_millis(number * 3_600_000) }.into()),
            _ => Entry::Row(Box::new(row(number, 1, "m"))),
        };
        let items: Vec<Item> = (0..6)
            .map(|number| {
                let (entry, place) = (entry(number), Place { number, part: 0 });
                Item { place, cursor: Cursor::at(number), encoded: Webhook.encode(&entry), entry }
            })
            .collect();
        let requests = Webhook.requests(&items.iter().collect::<Vec<_>>());
        let bodies: Vec<Value> =
            requests.iter().map(|request| serde_json::from_slice(&request.body).unwrap()).collect();
        let types: Vec<&str> = bodies.iter().map(|body| body["type"].as_str().unwrap()).collect();
        assert_eq!(types, ["usage.rows", "ledger.closed", "ledger.closed", "usage.rows"]);
        let closed = serde_json::json!({"id": "closed_7200000", "until": 7_200_000});
        assert_eq!(
            (&bodies[1]["data"], &bodies[1]["timestamp"]),
            (&closed, &"1970-01-01T02:00:00.000Z".into())
        );
        assert_eq!(bodies[3]["data"]["rows"].as_array().unwrap().len(), 2);
        assert_ne!(requests[1].signed_as, requests[2].signed_as);
    }

    #[test]
    fn the_same_rows_make_the_same_message() {
        let rows = [row(1, 1, "m"), row(2, 1, "m")];
        let items: Vec<Item> = rows.iter().map(|row| item(&Webhook, 1, row.clone())).collect();
        let both: Vec<&Item> = items.iter().collect();
        let request = Webhook.requests(&both).remove(0);
        assert_eq!(request, Webhook.requests(&both).remove(0));
        assert_ne!(request.signed_as, Webhook.requests(&both[..1])[0].signed_as);
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(body["type"], "usage.rows");
        assert_eq!(body["timestamp"], "2027-01-15T08:00:00.025Z");
        let read: Vec<LedgerRow> = serde_json::from_value(body["data"]["rows"].clone()).unwrap();
        assert_eq!(read, rows);
        assert_eq!(body["data"]["rows"][1]["currency"], "USD");
        assert!(
            !request.signed_as.unwrap().contains('.'),
            "the parts of what is signed are told apart by dots"
        );
    }
}

//! Rows for a server of the platform's own, signed.
//!
//! The body is `{"type": "usage.rows", "timestamp", "data": {"rows": […]}}`, with rows as they stand in the ledger and their
//! `currency`. Its id is
//! made from the body. A batch that is sent again after a restart may hold other rows than before, so a receiver removes
//! duplicates by the ids of the rows; that of the message tells it early. The signature covers the time of sending.

use super::line::{SentRow, within};
use super::signature::fingerprint;
use super::time::rfc3339;
use super::{Entry, Item, Request, Shape, json};

/// Batches of rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Webhook;

impl Shape for Webhook {
    fn encode(&self, entry: &Entry) -> Vec<u8> {
        match entry {
            Entry::Row(row) => json(&SentRow::new(row)),
            Entry::Report(report) => json(report),
        }
    }

    fn requests(&self, batch: &[&Item]) -> Vec<Request> {
        let time = batch.last().map(|item| rfc3339(item.entry.at())).unwrap_or_default();
        let begin = format!(r#"{{"type":"usage.rows","timestamp":"{time}","data":{{"rows":["#);
        let body = within(&begin, batch, "]}}");
        let id = format!("msg_{}", fingerprint(&[&body]));
        vec![Request { content_type: "application/json", headers: Vec::new(), body, signed_as: Some(id) }]
    }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::LedgerRow;
    use serde_json::Value;

    use super::*;
    use crate::export::samples::{item, row};

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

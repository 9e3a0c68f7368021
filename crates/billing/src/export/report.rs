//! What a turn used of a model, in three words: `{rawTokens, modelId, tier}`.
//!
//! A turn in which several models answered makes one report for each. The turn of a sub-session is a turn of its own.

use playhouse_protocol::ledger::Tier;
use playhouse_protocol::{MessageId, SessionId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Entry, Item, Request, Shape, Wants, json};

/// What a turn used of one model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnReport {
    /// Always the same for the same rows: goes out as the header `idempotency-key`.
    pub id: String,
    /// Who pays.
    pub tenant: String,
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: MessageId,
    /// The model, as `provider/model`.
    pub model_id: String,
    /// How the platform charges for it.
    pub tier: Tier,
    /// All tokens of all classes.
    pub raw_tokens: u64,
    /// When the turn ended.
    pub at: Timestamp,
}

/// One request for each turn and model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reports;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    raw_tokens: u64,
    model_id: &'a str,
    tier: &'a str,
}

impl Shape for Reports {
    fn wants(&self) -> Wants {
        Wants::Reports
    }

    /// Its body has three words.
    fn takes_closings(&self) -> bool {
        false
    }

    fn encode(&self, entry: &Entry) -> Vec<u8> {
        match entry {
            Entry::Report(report) => json(&Body {
                raw_tokens: report.raw_tokens,
                model_id: &report.model_id,
                tier: report.tier.name(),
            }),
            Entry::Row(row) => json(&Body {
                raw_tokens: row.tokens.total(),
                model_id: &format!("{}/{}", row.provider, row.model),
                tier: row.tier.name(),
            }),
            Entry::Closed(closed) => json(closed),
        }
    }

    fn requests(&self, batch: &[&Item]) -> Vec<Request> {
        batch.iter().map(|item| self.request(item)).collect()
    }
}

/// `text` as a header can carry it: other bytes than visible ASCII, and `%`, as `%` and two hex digits.
fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'%' => "%25".to_owned(),
        byte if byte.is_ascii_graphic() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

impl Reports {
    /// The tenant goes along as a header, because the body has three words and no more.
    fn request(self, item: &Item) -> Request {
        let mut headers = vec![("idempotency-key", item.entry.id().to_owned())];
        if let Entry::Report(report) = &item.entry {
            headers.push(("x-playhouse-session", report.session.to_string()));
            headers.push(("x-playhouse-turn", report.turn.to_string()));
            headers.push(("x-playhouse-tenant", percent_encoded(&report.tenant)));
        }
        Request { content_type: "application/json", headers, body: item.encoded.clone(), signed_as: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::samples::row;
    use crate::export::{Cursor, Place};

    #[test]
    fn a_report_has_three_words_and_says_in_headers_whose_it_is() {
        let row = row(1, 1, "opus");
        let report = TurnReport {
            id: "rep_1".to_owned(),
            tenant: "zoë & co".to_owned(),
            session: row.session,
            turn: row.turn,
            model_id: "anthropic/opus".to_owned(),
            tier: Tier::Pro,
            raw_tokens: 121,
            at: row.ended,
        };
        let entry = Entry::Report(report);
        let encoded = Reports.encode(&entry);
        assert_eq!(encoded, br#"{"rawTokens":121,"modelId":"anthropic/opus","tier":"pro"}"#);
        let item = Item { place: Place { number: 1, part: 0 }, cursor: Cursor::at(1), entry, encoded };
        let request = Reports.requests(&[&item]).remove(0);
        assert_eq!(request.headers[0], ("idempotency-key", "rep_1".to_owned()));
        assert_eq!(request.headers[3], ("x-playhouse-tenant", "zo%C3%AB%20&%20co".to_owned()));
    }
}

//! Rows as events of Polar.
//!
//! An event of a row has the row's id as `external_id`, by which Polar skips what it has, and the turn as `parent_id`. An event
//! is refused when its parent is not there, and a parent that Polar has already must not stand in one request with new
//! children. So each batch is two requests: the turns that its rows are of, which are skipped from the second time on, and
//! then the rows.
//!
//! The event of a turn holds no usage, and nothing in it depends on the row by which Polar learns of it: whatever rows stand
//! in a batch, an event of the same id has the same time and body. So its time is made from ids (`turn_time`).

use std::collections::BTreeSet;

use playhouse_protocol::LedgerRow;
use rust_decimal::Decimal;
use serde_json::{Map, Value, json};

use super::signature::fingerprint;
use super::time::rfc3339;
use super::turn_time::turn_time;
use super::{ClosedNotice, Entry, Item, Request, Shape, Verdict, joined, verdict};

/// The longest text in metadata, in characters.
const LONGEST_TEXT: usize = 500;
/// The longest name in metadata, in characters.
const LONGEST_NAME: usize = 40;
/// How many characters of a fingerprint a name that was cut ends in.
const FINGERPRINT: usize = 8;
/// The decimal places that Polar takes of an amount.
const DECIMALS: u32 = 12;

/// One event a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Polar {
    /// The name of the events of rows, which meters filter by.
    pub name: String,
    /// The name of the events of turns.
    pub turn_name: String,
    /// The organization; needed with a token that is not an organization's own.
    pub organization: Option<String>,
}

impl Shape for Polar {
    /// Its events are of customers.
    fn takes_closings(&self) -> bool {
        false
    }

    fn path(&self) -> &'static str {
        "/v1/events/ingest"
    }

    fn encode(&self, entry: &Entry) -> Vec<u8> {
        let event = match entry {
            Entry::Row(row) => self.row(row),
            Entry::Report(report) => {
                let mut event = self.event(&self.name, &report.id, &report.tenant, rfc3339(report.at));
                event.insert(
                    "metadata".to_owned(),
                    json!({
                        "rawTokens": report.raw_tokens,
                        "modelId": cut(&report.model_id),
                        "tier": report.tier.name(),
                    }),
                );
                event
            }
            Entry::Closed(closed) => self.event(ClosedNotice::TYPE, &closed.id, "", rfc3339(closed.until)),
        };
        Value::Object(event).to_string().into_bytes()
    }

    fn requests(&self, batch: &[&Item]) -> Vec<Request> {
        let request =
            |body| Request { content_type: "application/json", headers: Vec::new(), body, signed_as: None };
        let mut requests = Vec::new();
        let turns = self.turns(batch);
        if !turns.is_empty() {
            requests.push(request(json!({ "events": turns }).to_string().into_bytes()));
        }
        requests.push(request(joined(b"{\"events\":[", batch, b"]}")));
        requests
    }

    /// A row that ended just now is refused where Polar's clock is behind ours: that passes.
    fn verdict(&self, status: u16, body: &str) -> Verdict {
        match verdict(status) {
            Verdict::Refused if body.contains("must be in the past") => Verdict::Busy,
            other => other,
        }
    }
}

impl Polar {
    fn event(&self, name: &str, id: &str, customer: &str, time: String) -> Map<String, Value> {
        let mut event = Map::new();
        let mut insert = |key: &str, value: String| event.insert(key.to_owned(), Value::String(value));
        insert("name", name.to_owned());
        insert("external_customer_id", customer.to_owned());
        insert("external_id", id.to_owned());
        insert("timestamp", time);
        if let Some(organization) = &self.organization {
            insert("organization_id", organization.clone());
        }
        event
    }

    fn row(&self, row: &LedgerRow) -> Map<String, Value> {
        let mut event = self.event(&self.name, &row.id.0, &row.tenant, rfc3339(row.ended));
        event.insert("parent_id".to_owned(), json!(turn_id(row)));
        event.insert("metadata".to_owned(), Value::Object(metadata(row)));
        event
    }

    /// The turns of these rows, each once.
    fn turns(&self, batch: &[&Item]) -> Vec<Value> {
        let mut seen = BTreeSet::new();
        let mut turns = Vec::new();
        for item in batch {
            let Entry::Row(row) = &item.entry else { continue };
            if !seen.insert((row.session, row.turn)) {
                continue;
            }
            let mut event = self.event(&self.turn_name, &turn_id(row), &row.tenant, rfc3339(turn_time(row)));
            let metadata = json!({
                "session": row.session,
                "root": row.root,
                "turn": row.turn,
            });
            event.insert("metadata".to_owned(), metadata);
            turns.push(Value::Object(event));
        }
        turns
    }
}

/// Clients may choose the ids of their prompts, so a turn is known by its session as well.
fn turn_id(row: &LedgerRow) -> String {
    format!("{}/{}", row.session, row.turn)
}

fn metadata(row: &LedgerRow) -> Map<String, Value> {
    let mut metadata = Map::new();
    let tokens = &row.tokens;
    let mut llm = json!({
        "vendor": row.provider,
        "model": row.model,
        "input_tokens": tokens.all_input(),
        "output_tokens": tokens.all_output(),
        "total_tokens": tokens.total(),
    });
    if tokens.cache_read > 0 {
        llm["cached_input_tokens"] = json!(tokens.cache_read);
    }
    metadata.insert("_llm".to_owned(), llm);
    if let Some(cents) = row.cost.and_then(|cost| cost.0.checked_mul(Decimal::ONE_HUNDRED)) {
        let amount = cents.round_dp(DECIMALS).normalize().to_string();
        metadata.insert("_cost".to_owned(), json!({ "amount": amount, "currency": "usd" }));
    }
    let texts = [
        ("session", row.session.as_str()),
        ("root", row.root.as_str()),
        ("parent_step", row.parent_step.as_ref().map_or("", |step| step.as_str())),
        ("turn", row.turn.as_str()),
        ("step", row.step.as_str()),
        ("attempt", row.attempt.as_str()),
        ("workspace", &row.workspace),
        ("agent", &row.agent),
        ("purpose", row.purpose.name()),
        ("tier", row.tier.name()),
        ("answered_by", row.answered_by.as_deref().unwrap_or_default()),
        ("key", row.key.as_ref().map_or("", |key| &key.id)),
        ("key_name", row.key.as_ref().map_or("", |key| &key.name)),
        ("corrects", row.corrects.as_ref().map_or("", |row| row.0.as_str())),
    ];
    // Polar refuses empty texts.
    for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        metadata.insert(name.to_owned(), Value::String(cut(text)));
    }
    for (name, label) in row.labels.iter().filter(|(_, label)| !label.is_empty()) {
        metadata.insert(label_key(name), Value::String(cut(label)));
    }
    if row.late {
        metadata.insert("late".to_owned(), json!(true));
    }
    metadata.insert("quality".to_owned(), json!(row.quality));
    for (name, count) in [
        ("input", tokens.input),
        ("cache_read", tokens.cache_read),
        ("cache_write_5m", tokens.cache_write_5m),
        ("cache_write_1h", tokens.cache_write_1h),
        ("output", tokens.output),
        ("reasoning", tokens.reasoning),
    ] {
        metadata.insert(name.to_owned(), json!(count));
    }
    let long = [("cache_write_30m", tokens.cache_write_30m), ("cache_write_12h", tokens.cache_write_12h)];
    for (name, count) in long.into_iter().filter(|(_, count)| *count > 0) {
        metadata.insert(name.to_owned(), json!(count));
    }
    metadata
}

/// What a label is called in metadata. A name that is too long ends in a fingerprint of the whole, so that two never meet.
fn label_key(name: &str) -> String {
    let whole = format!("label_{name}");
    if whole.chars().count() <= LONGEST_NAME {
        return whole;
    }
    let fingerprint = fingerprint(&[name.as_bytes()]);
    let end: String = fingerprint.chars().take(FINGERPRINT).collect();
    let begin: String = whole.chars().take(LONGEST_NAME - FINGERPRINT - 1).collect();
    format!("{begin}_{end}")
}

fn cut(text: &str) -> String {
    text.chars().take(LONGEST_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::samples::{item, row};

    fn shape() -> Polar {
        let (name, turn_name) = ("playhouse.usage".to_owned(), "playhouse.turn".to_owned());
        Polar { name, turn_name, organization: None }
    }

    fn events(request: &Request) -> Vec<Value> {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        body["events"].as_array().unwrap().clone()
    }

    #[test]
    fn turns_go_before_their_rows_in_a_request_of_their_own() {
        let shape = shape();
        let rows = [row(1, 1, "m"), row(2, 2, "m"), row(3, 1, "m")];
        let items: Vec<Item> = rows.iter().map(|row| item(&shape, 1, row.clone())).collect();
        let requests = shape.requests(&items.iter().collect::<Vec<_>>());
        let [turns, rows] = [events(&requests[0]), events(&requests[1])];
        assert_eq!((turns.len(), rows.len()), (2, 3));
        let ids: Vec<&Value> = turns.iter().map(|turn| &turn["external_id"]).collect();
        for row in &rows {
            assert!(ids.contains(&&row["parent_id"]), "{row}");
            assert!(!ids.contains(&&row["external_id"]));
        }
    }

    #[test]
    fn the_event_of_a_turn_is_the_same_however_rows_are_batched() {
        let shape = shape();
        let rows: Vec<LedgerRow> = (1..=4).map(|number| row(number, 1, "m")).collect();
        let event = |batch: &[LedgerRow]| {
            let items: Vec<Item> = batch.iter().map(|row| item(&shape, 1, row.clone())).collect();
            events(&shape.requests(&items.iter().collect::<Vec<_>>())[0])
        };
        let whole = event(&rows);
        assert_eq!(whole.len(), 1);
        for from in 0..rows.len() {
            for to in from + 1..=rows.len() {
                assert_eq!(event(&rows[from..to]), whole, "{from} to {to}");
            }
        }
    }

    #[test]
    fn an_event_has_usage_and_cost_as_polar_names_them() {
        let shape = shape();
        let items = [item(&shape, 1, row(1, 1, "claude"))];
        let event = events(&shape.requests(&[&items[0]])[1]).remove(0);
        let metadata = &event["metadata"];
        let llm = json!({
            "vendor": "anthropic", "model": "claude", "input_tokens": 111, "output_tokens": 10,
            "total_tokens": 121, "cached_input_tokens": 10,
        });
        assert_eq!(metadata["_llm"], llm);
        assert_eq!(metadata["_cost"], json!({ "amount": "0.0456", "currency": "usd" }));
        assert_eq!(event["external_customer_id"], "acme");
        assert!(metadata.get("parent_step").is_none(), "no empty texts");
        assert!(metadata.as_object().unwrap().len() <= 50);
    }

    #[test]
    fn what_polar_would_refuse_is_not_sent() {
        let mut long = row(1, 1, "m");
        long.workspace = "é".repeat(600);
        long.cost = None;
        let metadata = metadata(&long);
        assert_eq!(metadata["workspace"].as_str().unwrap().chars().count(), 500);
        assert!(!metadata.contains_key("_cost"), "unknown is not 0");
    }

    #[test]
    fn long_names_of_labels_do_not_meet() {
        let long = "a".repeat(60);
        let names =
            ["customer".to_owned(), "b".repeat(34), "b".repeat(35), format!("{long}1"), format!("{long}2")];
        let mut row = row(1, 1, "m");
        row.labels = names.iter().map(|name| (name.clone(), name.clone())).collect();
        let metadata = metadata(&row);
        let labels: Vec<_> = metadata.iter().filter(|(name, _)| name.starts_with("label_")).collect();
        assert_eq!(labels.len(), names.len(), "{labels:?}");
        assert!(labels.iter().all(|(name, _)| name.chars().count() <= LONGEST_NAME));
        assert_eq!(
            metadata[&format!("label_{}", "b".repeat(34))],
            "b".repeat(34).as_str(),
            "40 are no more than 40"
        );
    }

    #[test]
    fn a_clock_that_is_behind_is_waited_for() {
        let body = r#"{"detail":[{"msg":"Value error, Timestamp must be in the past."}]}"#;
        assert_eq!(shape().verdict(422, body), Verdict::Busy);
        assert_eq!(shape().verdict(422, "{}"), Verdict::Refused);
    }
}

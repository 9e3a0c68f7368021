//! Rows as CloudEvents 1.0 in their JSON batch form, as OpenMeter takes them.
//!
//! A receiver removes duplicates by `source` and `id`. What a meter counts or groups by stands flat in `data`, so that a path
//! like `$.input` or `$.model` is enough.

use playhouse_protocol::ledger::{CURRENCY, CostByClass};
use playhouse_protocol::usage::Prices;
use playhouse_protocol::{KeyRef, Labels, LedgerRow};
use serde::Serialize;

use super::time::rfc3339;
use super::{ClosedNotice, Entry, Item, Request, Shape, joined, json};

/// One event a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudEvents {
    /// `source`: which engine. It must stay the same: duplicates are known by it.
    pub source: String,
    /// `type`: what meters are bound to.
    pub kind: String,
}

/// What stands in `data`.
#[derive(Serialize)]
struct Data<'a> {
    tenant: &'a str,
    workspace: &'a str,
    session: &'a str,
    root: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_step: Option<&'a str>,
    turn: &'a str,
    step: &'a str,
    step_number: u32,
    attempt: &'a str,
    attempt_number: u32,
    agent: &'a str,
    purpose: &'a str,
    provider: &'a str,
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    answered_by: Option<&'a str>,
    input: u64,
    cache_read: u64,
    cache_write_5m: u64,
    #[serde(skip_serializing_if = "playhouse_protocol::is_default")]
    cache_write_30m: u64,
    cache_write_1h: u64,
    #[serde(skip_serializing_if = "playhouse_protocol::is_default")]
    cache_write_12h: u64,
    output: u64,
    reasoning: u64,
    total: u64,
    quality: playhouse_protocol::usage::Quality,
    tier: &'a str,
    /// US dollars. Left out when it is not known: a meter would count nothing as 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<playhouse_protocol::Cost>,
    currency: &'a str,
    costs: &'a CostByClass,
    prices: &'a Prices,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    assumed: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    served: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    provider_cost: Option<playhouse_protocol::Cost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    catalogue: Option<&'a str>,
    #[serde(skip_serializing_if = "Labels::is_empty")]
    labels: &'a Labels,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a KeyRef>,
    started: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    corrects: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    late: bool,
}

/// What stands in `data` where the ledger is closed.
#[derive(Serialize)]
struct ClosedData<'a> {
    until: &'a str,
}

impl<'a> Data<'a> {
    fn new(row: &'a LedgerRow) -> Self {
        Self {
            tenant: &row.tenant,
            workspace: &row.workspace,
            session: row.session.as_str(),
            root: row.root.as_str(),
            parent_step: row.parent_step.as_ref().map(|step| step.as_str()),
            turn: row.turn.as_str(),
            step: row.step.as_str(),
            step_number: row.step_number,
            attempt: row.attempt.as_str(),
            attempt_number: row.attempt_number,
            agent: &row.agent,
            purpose: row.purpose.name(),
            provider: &row.provider,
            model: &row.model,
            answered_by: row.answered_by.as_deref(),
            input: row.tokens.input,
            cache_read: row.tokens.cache_read,
            cache_write_5m: row.tokens.cache_write_5m,
            cache_write_30m: row.tokens.cache_write_30m,
            cache_write_1h: row.tokens.cache_write_1h,
            cache_write_12h: row.tokens.cache_write_12h,
            output: row.tokens.output,
            reasoning: row.tokens.reasoning,
            total: row.tokens.total(),
            quality: row.quality,
            tier: row.tier.name(),
            cost: row.cost,
            currency: CURRENCY,
            costs: &row.costs,
            prices: &row.prices,
            assumed: &row.assumed,
            served: &row.served,
            provider_cost: row.provider_cost,
            catalogue: row.catalogue.as_deref(),
            labels: &row.labels,
            key: row.key.as_ref(),
            started: rfc3339(row.started),
            corrects: row.corrects.as_ref().map(|row| row.0.as_str()),
            late: row.late,
        }
    }
}

#[derive(Serialize)]
struct Event<'a, D> {
    specversion: &'a str,
    id: &'a str,
    source: &'a str,
    r#type: &'a str,
    time: String,
    subject: &'a str,
    datacontenttype: &'a str,
    data: D,
}

impl Shape for CloudEvents {
    fn path(&self) -> &'static str {
        "/api/v1/events"
    }

    fn encode(&self, entry: &Entry) -> Vec<u8> {
        match entry {
            Entry::Row(row) => json(&self.event(&row.id.0, rfc3339(row.ended), &row.tenant, Data::new(row))),
            Entry::Report(report) => {
                json(&self.event(&report.id, rfc3339(report.at), &report.tenant, report))
            }
            Entry::Closed(closed) => {
                let until = rfc3339(closed.until);
                let data = ClosedData { until: &until };
                let event = self.event(&closed.id, until.clone(), &self.source, data);
                json(&Event { r#type: ClosedNotice::TYPE, ..event })
            }
        }
    }

    fn requests(&self, batch: &[&Item]) -> Vec<Request> {
        let content_type = "application/cloudevents-batch+json";
        vec![Request { content_type, headers: Vec::new(), body: joined(b"[", batch, b"]"), signed_as: None }]
    }
}

impl CloudEvents {
    fn event<'a, D>(&'a self, id: &'a str, time: String, subject: &'a str, data: D) -> Event<'a, D> {
        Event {
            specversion: "1.0",
            id,
            source: &self.source,
            r#type: &self.kind,
            time,
            subject,
            datacontenttype: "application/json",
            data,
        }
    }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::Timestamp;
    use serde_json::Value;

    use super::*;
    use crate::export::LedgerClosed;
    use crate::export::samples::{item, row};

    #[test]
    fn a_batch_is_a_list_of_events_that_are_always_the_same() {
        let shape = CloudEvents { source: "engine-1".to_owned(), kind: "playhouse.usage".to_owned() };
        let mut unpriced = row(2, 1, "m");
        unpriced.cost = None;
        let items = [item(&shape, 1, row(1, 1, "m")), item(&shape, 2, unpriced.clone())];
        let request = shape.requests(&items.iter().collect::<Vec<_>>()).remove(0);
        assert_eq!(request.content_type, "application/cloudevents-batch+json");
        let events: Vec<Value> = serde_json::from_slice(&request.body).unwrap();
        let first = &events[0];
        assert_eq!(first["specversion"], "1.0");
        assert_eq!(first["source"], "engine-1");
        assert_eq!(first["type"], "playhouse.usage");
        assert_eq!(first["subject"], "acme");
        assert_eq!(first["time"], "2027-01-15T08:00:00.015Z");
        assert_eq!(first["id"], row(1, 1, "m").id.0.as_str());
        assert_eq!(first["data"]["input"], 101);
        assert_eq!(first["data"]["total"], 121);
        assert_eq!(first["data"]["cost"], "0.000456");
        assert!(events[1]["data"].get("cost").is_none(), "unknown is not 0");
        let closed = Entry::Closed(LedgerClosed { until: Timestamp::from_millis(3_600_000) }.into());
        let closed: Value = serde_json::from_slice(&shape.encode(&closed)).unwrap();
        assert_eq!((&closed["type"], &closed["id"]), (&"ledger.closed".into(), &"closed_3600000".into()));
        assert_eq!((&closed["data"]["until"], &closed["subject"]), (&closed["time"], &"engine-1".into()));
        assert_eq!(closed["time"], "1970-01-01T01:00:00.000Z");
        assert_eq!(item(&shape, 9, unpriced).encoded, items[1].encoded, "wherever it stands in the feed");
    }
}

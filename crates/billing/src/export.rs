//! What leaves the ledger: rows in the forms of other systems, and the rules by which they are delivered.
//!
//! Everything here is pure. A [`Shape`] says how a kind of sink wants its requests ([`cloudevents`], [`polar`],
//! [`webhook`], [`report`], [`line`](mod@line)); [`Turns`] makes one report of the rows of a turn; [`Delivery`] is the state
//! machine that decides what is sent, waited for, saved and given up. The package `playhouse-exporters` carries it out.
//!
//! Delivery is at least once and in the order of the feed. Ids, times and bodies of rows are functions of the rows, so that
//! a receiver can remove what comes twice.

pub mod cloudevents;
pub mod delivery;
pub mod line;
pub mod polar;
pub mod report;
pub mod signature;
pub mod time;
mod turn_time;
pub mod turns;
pub mod webhook;

use std::fmt;

pub use playhouse_protocol::ledger::{FeedItem, LedgerClosed, TurnEnd};
use playhouse_protocol::{LedgerRow, Timestamp};
use serde::{Deserialize, Serialize};

pub use delivery::{Answer, Answers, DeadLetter, Delivery, Effect, Input, Policy, Stamp, Trouble};
pub use report::TurnReport;
pub use turns::Turns;

/// What is sent: a row, or what a turn used of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// A row.
    Row(Box<LedgerRow>),
    /// What a turn used of one model.
    Report(TurnReport),
    /// No earlier row is to be expected.
    Closed(ClosedNotice),
}

impl Entry {
    /// The id by which a receiver knows it again.
    pub fn id(&self) -> &str {
        match self {
            Self::Row(row) => &row.id.0,
            Self::Report(report) => &report.id,
            Self::Closed(closed) => &closed.id,
        }
    }

    /// The time that it is of.
    pub fn at(&self) -> Timestamp {
        match self {
            Self::Row(row) => row.ended,
            Self::Report(report) => report.at,
            Self::Closed(closed) => closed.until,
        }
    }
}

/// That the ledger is closed, as receivers are told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedNotice {
    /// The same for the same time: a receiver finds what comes twice by it.
    pub id: String,
    /// The time before which it is closed.
    pub until: Timestamp,
}

impl ClosedNotice {
    /// The type by which receivers tell it from rows.
    pub const TYPE: &'static str = "ledger.closed";
}

impl From<LedgerClosed> for ClosedNotice {
    fn from(LedgerClosed { until }: LedgerClosed) -> Self {
        Self { id: format!("closed_{}", until.as_millis()), until }
    }
}

/// Where an entry comes from in the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The number of the feed's entry.
    pub number: u64,
    /// Counts the reports that one entry of the feed gives, from 0.
    #[serde(default, skip_serializing_if = "playhouse_protocol::is_default")]
    pub part: u32,
}

impl fmt::Display for Place {
    /// So that the order of the texts is the order of the places.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020}", self.number)?;
        if self.part > 0 {
            write!(f, "-{:06}", self.part)?;
        }
        Ok(())
    }
}

/// How far a sink is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cursor {
    /// The number after which the feed is read again after a restart.
    pub after: u64,
    /// What comes from entries up to this number is settled. It is ahead of `after` for reports, which are made of rows that
    /// have to be read again as long as a turn is open.
    pub settled: u64,
}

impl Cursor {
    /// All up to `number` is done with.
    pub const fn at(number: u64) -> Self {
        Self { after: number, settled: number }
    }
}

/// An entry on its way.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Where it comes from.
    pub place: Place,
    /// What may be saved when it and all before it are settled.
    pub cursor: Cursor,
    /// What it is.
    pub entry: Entry,
    /// The same in the form of its sink.
    pub encoded: Vec<u8>,
}

/// What a kind of sink makes entries from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// Every row.
    Rows,
    /// One report for each turn and model.
    Reports,
}

/// One request: a `POST`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `content-type`.
    pub content_type: &'static str,
    /// Other headers. No secrets: keys are added where they are sent.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// The id under which it is signed; `None` for what is not.
    pub signed_as: Option<String>,
}

/// How a server's answer is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has everything.
    Accepted,
    /// It cannot now.
    Busy,
    /// It does not want something of what was sent, and never will.
    Refused,
    /// It would refuse anything: the address or the key is wrong.
    Misconfigured,
}

/// What a status says, whoever answers.
pub const fn verdict(status: u16) -> Verdict {
    match status {
        200..=299 => Verdict::Accepted,
        408 | 425 | 429 | 500..=599 => Verdict::Busy,
        400 | 409 | 413 | 422 => Verdict::Refused,
        _ => Verdict::Misconfigured,
    }
}

/// The form that a kind of sink wants.
pub trait Shape: Send + Sync {
    /// What it is made from.
    fn wants(&self) -> Wants {
        Wants::Rows
    }

    /// Whether it takes [`Entry::Closed`] beside what it is made from.
    fn takes_closings(&self) -> bool {
        true
    }

    /// The path of its address where the operator gives the server alone.
    fn path(&self) -> &'static str {
        ""
    }

    /// One entry: what stands in a request for it, without what surrounds it.
    fn encode(&self, entry: &Entry) -> Vec<u8>;

    /// The requests that carry these entries. They are sent one after the other, and the batch is accepted when all are.
    fn requests(&self, batch: &[&Item]) -> Vec<Request>;

    /// What an answer says. `body` is its beginning.
    fn verdict(&self, status: u16, _body: &str) -> Verdict {
        verdict(status)
    }
}

/// `value` as JSON. What cannot be written (nothing that is sent here) is sent as its error, which a server refuses, so that
/// it ends as a dead letter.
fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value)
        .unwrap_or_else(|error| serde_json::json!({ "error": error.to_string() }).to_string().into_bytes())
}

/// `begin`, the entries with commas between them, `end`.
fn joined(begin: &[u8], batch: &[&Item], end: &[u8]) -> Vec<u8> {
    let size: usize = batch.iter().map(|item| item.encoded.len() + 1).sum();
    let mut body = Vec::with_capacity(begin.len() + size + end.len());
    body.extend_from_slice(begin);
    for (index, item) in batch.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend_from_slice(&item.encoded);
    }
    body.extend_from_slice(end);
    body
}

#[cfg(test)]
pub(crate) mod samples;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_sort_as_texts() {
        let places = [(1, 0), (1, 1), (1, 12), (2, 0), (10, 0), (u64::MAX, 3)];
        let texts: Vec<String> =
            places.iter().map(|(number, part)| Place { number: *number, part: *part }.to_string()).collect();
        assert!(texts.is_sorted(), "{texts:?}");
    }

    #[test]
    fn every_status_has_a_verdict() {
        for (status, expected) in [
            (204, Verdict::Accepted),
            (429, Verdict::Busy),
            (503, Verdict::Busy),
            (413, Verdict::Refused),
            (422, Verdict::Refused),
            (301, Verdict::Misconfigured),
            (401, Verdict::Misconfigured),
            (404, Verdict::Misconfigured),
            (0, Verdict::Misconfigured),
        ] {
            assert_eq!(verdict(status), expected, "{status}");
        }
    }
}

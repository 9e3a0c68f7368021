//! Answers in one piece, all of which is known.

use bytes::Bytes;
use playhouse_protocol::Tokens;

use super::{Body, Next, Say, deliver, stall};
use crate::fault::{Cut, Defect, Fault};
use crate::framing::Framing;
use crate::journal::{Outcome, Record};
use crate::pace::Pace;
use crate::plan::Plan;
use crate::usage;
use crate::wire::{About, Counts, Wire};

/// The body and what may happen in its middle.
struct Pieces {
    rest: Bytes,
    /// What is told of it when the last piece is handed over.
    counts: Counts,
    fault: Option<Fault>,
    is_begun: bool,
    /// How it has come out when nothing is left.
    outcome: Outcome,
}

/// A body that is known already, such as an error's.
pub(crate) fn plain(bytes: Bytes, framing: Framing, is_events: bool, record: Record) -> Body {
    let pieces = Pieces {
        rest: bytes,
        counts: Counts::default(),
        fault: None,
        is_begun: false,
        outcome: Outcome::Complete,
    };
    deliver(pieces, framing, is_events, record)
}

/// An answer that does not stream: what it says, after the time that saying it takes. Also its size in bytes.
pub(crate) async fn whole(wire: &dyn Wire, about: &About, mut plan: Plan, record: Record) -> (usize, Body) {
    let mut said = Tokens::default();
    let mut parts = Vec::with_capacity(plan.parts.len());
    for (kind, mut source) in std::mem::take(&mut plan.parts) {
        let mut text = String::new();
        let count = if kind.is_reasoning() { &mut said.reasoning } else { &mut said.output };
        while let Some(token) = source.next_token() {
            text.push_str(token);
            *count += 1;
        }
        parts.push((kind, text));
    }
    tokio::time::sleep(Pace::new(plan.rate).duration(said.output + said.reasoning)).await;
    let ending = plan.ending(about.input, said);
    let reported = usage::whole(wire, &ending).map(|(_, says)| says);
    let mut bytes = wire.whole(about, &parts, &ending);
    let defect = plan.fault.as_ref().and_then(Fault::defect);
    if defect == Some(Defect::MalformedJson) {
        bytes.truncate(bytes.len() / 2);
    }
    let fault = plan.fault.filter(|fault| fault.moment().is_some());
    let length = bytes.len();
    let counts = Counts { reported, ..Counts::default() };
    let pieces =
        Pieces { rest: Bytes::from(bytes), counts, fault, is_begun: false, outcome: Outcome::Complete };
    (length, deliver(pieces, plan.framing, false, record))
}

impl Say for Pieces {
    async fn next(&mut self) -> Next {
        if self.fault.is_some() && !self.is_begun {
            self.is_begun = true;
            let half = self.rest.split_to(self.rest.len() / 2);
            return Next::Send { bytes: half, counts: Counts::default(), is_last: false };
        }
        match self.fault.take() {
            Some(Fault::Stall { ms, .. }) => stall(ms).await,
            Some(fault) => {
                self.rest.clear();
                self.outcome = Outcome::Cut;
                if matches!(fault, Fault::Cut { how: Cut::Reset, .. }) {
                    return Next::Break;
                }
            }
            None => {}
        }
        if self.rest.is_empty() {
            return Next::Over(self.outcome);
        }
        Next::Send { bytes: std::mem::take(&mut self.rest), counts: self.counts, is_last: true }
    }
}

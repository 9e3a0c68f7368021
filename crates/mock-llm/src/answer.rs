//! An answer being said: bytes as they are due.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use playhouse_protocol::Tokens;

use crate::fault::{Cut, Fault};
use crate::journal::{Outcome, Record};
use crate::pace::Pace;
use crate::plan::{Plan, ending};
use crate::tokens::Source;
use crate::wire::{About, Counts, Encode, Frame, PartKind, Wire};

/// The body of an answer.
pub(crate) type Body = BoxStream<'static, io::Result<Bytes>>;

/// How far an answer is.
enum Stage {
    /// Nothing was said.
    Start,
    /// Between parts.
    Between,
    /// In a part.
    Inside(Source),
    /// All is said, or the fault has struck.
    End,
}

/// A stream under way.
struct Streaming {
    encoder: Box<dyn Encode>,
    parts: std::vec::IntoIter<(PartKind, Source)>,
    in_reasoning: bool,
    stage: Stage,
    /// What was said, as far as it is counted by part.
    said: Tokens,
    /// Finish, usage and fault; the parts are taken out.
    plan: Plan,
    input: Tokens,
    pace: Pace,
    frame: Frame,
    /// Whether the fault has ended it.
    is_cut: bool,
    record: Record,
}

/// An answer that streams.
pub(crate) fn streamed(wire: &dyn Wire, about: About, mut plan: Plan, record: Record) -> Body {
    let streaming = Streaming {
        input: about.input,
        encoder: wire.stream(about),
        parts: std::mem::take(&mut plan.parts).into_iter(),
        in_reasoning: false,
        stage: Stage::Start,
        said: Tokens::default(),
        pace: Pace::new(plan.rate),
        frame: Frame::new(plan.fault.as_ref().and_then(Fault::after_events)),
        plan,
        is_cut: false,
        record,
    };
    stream::unfold(streaming, |mut streaming| async move {
        let next = streaming.next().await?;
        Some((next, streaming))
    })
    .boxed()
}

impl Streaming {
    /// The next bytes; `None` when it is over.
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        // A client in the same process may take frames without ever waiting: give others their turn.
        tokio::task::coop::consume_budget().await;
        loop {
            if self.frame.is_shut() {
                if !self.frame.is_empty() {
                    return Some(Ok(self.send()));
                }
                if let Some(error) = self.strike().await {
                    return Some(Err(error));
                }
            } else if matches!(self.stage, Stage::End) {
                self.is_over();
                return (!self.frame.is_empty()).then(|| Ok(self.send()));
            } else if let Some(due) = self.pace.due(self.said.output + self.said.reasoning) {
                if !self.frame.is_empty() {
                    return Some(Ok(self.send()));
                }
                tokio::time::sleep_until(due).await;
            } else if self.frame.is_full() {
                return Some(Ok(self.send()));
            } else {
                self.advance();
            }
        }
    }

    /// Says one thing more.
    fn advance(&mut self) {
        let frame = &mut self.frame;
        match &mut self.stage {
            Stage::Start => {
                self.encoder.start(frame);
                self.stage = Stage::Between;
            }
            Stage::Between => match self.parts.next() {
                Some((kind, source)) => {
                    self.encoder.begin(&kind, frame);
                    self.in_reasoning = kind == PartKind::Reasoning;
                    self.stage = Stage::Inside(source);
                }
                None => {
                    let finish = self.plan.finish.clone();
                    self.encoder.finish(&ending(finish, self.plan.usage, self.input, self.said), frame);
                    self.stage = Stage::End;
                }
            },
            Stage::Inside(source) => match source.next_token() {
                Some(token) => {
                    self.encoder.delta(token, frame);
                    count(&mut self.said, self.in_reasoning, 1);
                }
                None => {
                    self.encoder.end(frame);
                    self.stage = Stage::Between;
                }
            },
            Stage::End => {}
        }
    }

    /// Lets the fault strike; an error is what the body ends with.
    async fn strike(&mut self) -> Option<io::Error> {
        match self.plan.fault.take() {
            Some(Fault::Stall { ms, .. }) => {
                stall(ms).await;
                self.frame.open();
                return None;
            }
            Some(Fault::ErrorEvent { kind, message, .. }) => {
                self.cut();
                self.encoder.error(&kind, &message, &mut self.frame);
            }
            Some(Fault::Cut { how: Cut::Reset, .. }) => {
                // Whoever carries the body sends what it has when it must wait, and drops it when it meets an error.
                tokio::task::yield_now().await;
                self.cut();
                return Some(reset());
            }
            Some(Fault::Cut { how: Cut::Eof, .. }) => self.cut(),
            // These have no gate, so they are never met here.
            Some(Fault::Status { .. } | Fault::Html(_) | Fault::Empty) | None => self.frame.open(),
        }
        None
    }

    fn cut(&mut self) {
        self.frame.drop_held();
        self.stage = Stage::End;
        self.is_cut = true;
        self.record.outcome(Outcome::Cut);
    }

    /// Nothing follows what is handed over now.
    fn is_over(&mut self) {
        if !self.is_cut {
            self.record.outcome(Outcome::Complete);
        }
    }

    /// Hands over what is ready.
    fn send(&mut self) -> Bytes {
        let (bytes, counts) = self.frame.take();
        self.record.sent(counts);
        bytes
    }
}

fn count(said: &mut Tokens, in_reasoning: bool, tokens: u64) {
    match in_reasoning {
        true => said.reasoning += tokens,
        false => said.output += tokens,
    }
}

async fn stall(ms: Option<u64>) {
    match ms {
        Some(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
        None => std::future::pending().await,
    }
}

fn reset() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the script resets the connection here")
}

/// An answer in one piece, all of which is known.
struct Pieces {
    rest: Bytes,
    /// What is told of it when the last piece is handed over.
    counts: Counts,
    /// Strikes in the middle.
    fault: Option<Fault>,
    is_begun: bool,
    record: Record,
}

/// A body that is known already, such as an error's.
pub(crate) fn plain(bytes: Bytes, record: Record) -> Body {
    pieces(bytes, Counts::default(), None, record)
}

/// An answer that does not stream: what it says, after the time that saying it takes.
pub(crate) async fn whole(wire: &dyn Wire, about: &About, mut plan: Plan, record: Record) -> (usize, Body) {
    let mut said = Tokens::default();
    let mut parts = Vec::with_capacity(plan.parts.len());
    for (kind, mut source) in std::mem::take(&mut plan.parts) {
        let mut text = String::new();
        while let Some(token) = source.next_token() {
            text.push_str(token);
            count(&mut said, kind == PartKind::Reasoning, 1);
        }
        parts.push((kind, text));
    }
    tokio::time::sleep(Pace::new(plan.rate).duration(said.output + said.reasoning)).await;
    let ending = ending(plan.finish, plan.usage, about.input, said);
    let counts = Counts { reported: Some(wire.reported(ending.tokens)), ..Counts::default() };
    let bytes = Bytes::from(wire.whole(about, &parts, &ending));
    (bytes.len(), pieces(bytes, counts, plan.fault, record))
}

fn pieces(bytes: Bytes, counts: Counts, fault: Option<Fault>, mut record: Record) -> Body {
    if bytes.is_empty() {
        record.outcome(Outcome::Complete);
    }
    let pieces = Pieces { rest: bytes, counts, fault, is_begun: false, record };
    stream::unfold(pieces, |mut pieces| async move {
        let next = pieces.next().await?;
        Some((next, pieces))
    })
    .boxed()
}

impl Pieces {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        if self.fault.is_some() && !self.is_begun {
            self.is_begun = true;
            let half = self.rest.split_to(self.rest.len() / 2);
            self.record.sent(Counts { bytes: half.len() as u64, ..Counts::default() });
            return Some(Ok(half));
        }
        match self.fault.take() {
            Some(Fault::Stall { ms, .. }) => stall(ms).await,
            Some(fault) => {
                tokio::task::yield_now().await;
                self.rest.clear();
                self.record.outcome(Outcome::Cut);
                return matches!(fault, Fault::Cut { how: Cut::Reset, .. }).then(|| Err(reset()));
            }
            None => {}
        }
        if self.rest.is_empty() {
            return None;
        }
        let rest = std::mem::take(&mut self.rest);
        self.record.sent(Counts { bytes: rest.len() as u64, ..self.counts });
        self.record.outcome(Outcome::Complete);
        Some(Ok(rest))
    }
}

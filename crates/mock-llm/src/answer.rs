//! An answer being said: bytes as they are due, counted as they are handed over.

mod pieces;
mod streaming;

use std::future::Future;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};

pub(crate) use self::pieces::{plain, whole};
pub(crate) use self::streaming::{Paced, Step, streamed};
use crate::framing::{Framer, Framing};
use crate::journal::{Outcome, Record};
use crate::wire::Counts;

/// The body of an answer.
pub(crate) type Body = BoxStream<'static, io::Result<Bytes>>;

/// What is said in answer.
pub(crate) enum Said {
    /// A body that says by itself when it goes on.
    Body(Body),
    /// A stream at a pace, whose times somebody else may keep.
    Paced(Box<Paced>),
}

impl Said {
    /// The body of it.
    pub(crate) fn into_body(self) -> Body {
        match self {
            Self::Body(body) => body,
            Self::Paced(paced) => paced.into_body(),
        }
    }
}

/// What comes next of an answer.
enum Next {
    /// These bytes. `is_last` promises that nothing follows them.
    Send {
        bytes: Bytes,
        /// What they tell, bytes not counted.
        counts: Counts,
        is_last: bool,
    },
    /// The connection breaks.
    Break,
    /// Nothing; it came out like this.
    Over(Outcome),
}

/// Something that is said bit by bit.
trait Say: Send + 'static {
    fn next(&mut self) -> impl Future<Output = Next> + Send;
}

/// An answer on its way out.
struct Delivery<S> {
    source: S,
    framer: Framer,
    /// What the bytes in the framer tell, and whether nothing follows them.
    counts: Counts,
    is_last: bool,
    /// Whether the next write has to wait.
    is_begun: bool,
    record: Record,
}

/// Hands over what `source` says, framed.
fn deliver(source: impl Say, framing: Framing, is_events: bool, record: Record) -> Body {
    let framer = Framer::new(framing, is_events);
    let delivery =
        Delivery { source, framer, counts: Counts::default(), is_last: false, is_begun: false, record };
    stream::unfold(delivery, |mut delivery| async move {
        let next = delivery.next().await?;
        Some((next, delivery))
    })
    .boxed()
}

impl<S: Say> Delivery<S> {
    /// The next bytes; `None` when it is over.
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        // A client in the same process may take frames without ever waiting: give others their turn.
        tokio::task::coop::consume_budget().await;
        loop {
            if let Some((bytes, empties)) = self.framer.take() {
                self.pause().await;
                return Some(Ok(self.hand_over(bytes, empties)));
            }
            match self.source.next().await {
                Next::Send { bytes, counts, is_last } => {
                    self.counts = counts;
                    self.is_last = is_last && !self.framer.has_trailer();
                    self.framer.put(bytes);
                }
                Next::Break => {
                    // Whoever carries the body sends what it has when it must wait, and drops it at an error.
                    tokio::task::yield_now().await;
                    self.record.outcome(Outcome::Cut);
                    let words = "the script resets the connection here";
                    return Some(Err(io::Error::new(io::ErrorKind::ConnectionReset, words)));
                }
                Next::Over(outcome) => {
                    if outcome == Outcome::Complete && self.framer.finish() {
                        self.is_last = true;
                        continue;
                    }
                    self.record.outcome(outcome);
                    if self.framer.framing().never_ends && outcome == Outcome::Complete {
                        std::future::pending::<()>().await;
                    }
                    return None;
                }
            }
        }
    }

    async fn pause(&mut self) {
        let pause = self.framer.framing().pause();
        if std::mem::replace(&mut self.is_begun, true) && !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }

    fn hand_over(&mut self, bytes: Bytes, empties: bool) -> Bytes {
        // What the bytes tell is told when all of them are there.
        let counts = if empties { std::mem::take(&mut self.counts) } else { Counts::default() };
        self.record.sent(Counts { bytes: bytes.len() as u64, ..counts });
        if empties && self.is_last {
            self.record.outcome(Outcome::Complete);
        }
        bytes
    }
}

async fn stall(ms: Option<u64>) {
    match ms {
        Some(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
        None => std::future::pending().await,
    }
}

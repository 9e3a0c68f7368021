//! An answer's body as the HTTP library takes it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use hyper::body::{Body as HttpBody, Frame};

use super::pacer::{Handed, Pacer, Work};
use super::socket::Wire;
use crate::answer::{Body, Paced, Step};

/// Streams an answer, and marks the connection to be reset when the answer says so.
pub(super) enum StreamBody {
    /// All of it goes through the library.
    Whole {
        body: Body,
        /// The connection, where an error of the body resets it.
        wire: Option<Arc<Wire>>,
    },
    /// It keeps to a pace, and the library has its turn.
    Mine(Box<Work>, Arc<Pacer>),
    /// It keeps to a pace, and the pacer has its turn.
    Handed(Handed, Arc<Pacer>),
    /// It is over.
    Over,
}

impl StreamBody {
    /// `body`, on a connection that is reset when the body says so.
    pub(super) fn new(body: Body, wire: Option<Arc<Wire>>) -> Self {
        Self::Whole { body, wire }
    }

    /// A body in chunks of HTTP/1.1 whose times are kept by the pacer.
    pub(super) fn paced(paced: Box<Paced>, wire: Arc<Wire>, pacer: Arc<Pacer>) -> Self {
        Self::Mine(Box::new(Work::new(paced, wire)), pacer)
    }

    /// These bytes.
    pub(super) fn once(bytes: Bytes) -> Self {
        Self::new(stream::iter([Ok(bytes)]).boxed(), None)
    }
}

impl HttpBody for StreamBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        loop {
            match &mut *self {
                Self::Whole { body, wire } => {
                    let next = ready!(Pin::new(body).poll_next(context));
                    if let (Some(Err(error)), Some(wire)) = (&next, wire)
                        && error.kind() == io::ErrorKind::ConnectionReset
                    {
                        wire.reset.store(true, Ordering::Relaxed);
                    }
                    return Poll::Ready(next.map(|bytes| bytes.map(Frame::data)));
                }
                Self::Mine(work, _) => {
                    ready!(work.poll_rest(context))?;
                    let due = match work.paced.step() {
                        Step::Ready { is_last } => {
                            work.wire.is_given();
                            return Poll::Ready(Some(Ok(Frame::data(work.paced.take(is_last)))));
                        }
                        Step::Wait(due) => due,
                        // There is no fault in it that could strike.
                        Step::Strike | Step::Over => {
                            *self = Self::Over;
                            continue;
                        }
                    };
                    if let Self::Mine(work, pacer) = std::mem::replace(&mut *self, Self::Over) {
                        let handed = pacer.hand(*work, due, context);
                        *self = Self::Handed(handed, pacer);
                    }
                    return Poll::Pending;
                }
                Self::Handed(handed, pacer) => {
                    let work = ready!(handed.poll_back(context));
                    *self = match work {
                        Some(work) => Self::Mine(Box::new(work), Arc::clone(pacer)),
                        None => Self::Over,
                    };
                }
                Self::Over => return Poll::Ready(None),
            }
        }
    }
}

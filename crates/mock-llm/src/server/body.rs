//! An answer's body as the HTTP library takes it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use hyper::body::{Body as HttpBody, Frame};

use crate::answer::Body;

/// Streams an answer, and marks the connection to be reset when the answer says so.
pub(super) struct StreamBody {
    body: Body,
    reset: Arc<AtomicBool>,
}

impl StreamBody {
    /// `body`, on a connection that is reset when it is dropped after `reset` was set.
    pub(super) fn new(body: Body, reset: Arc<AtomicBool>) -> Self {
        Self { body, reset }
    }

    /// These bytes.
    pub(super) fn once(bytes: Bytes) -> Self {
        Self::new(stream::iter([Ok(bytes)]).boxed(), Arc::default())
    }
}

impl HttpBody for StreamBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let next = ready!(Pin::new(&mut self.body).poll_next(context));
        if let Some(Err(error)) = &next
            && error.kind() == io::ErrorKind::ConnectionReset
        {
            self.reset.store(true, Ordering::Relaxed);
        }
        Poll::Ready(next.map(|bytes| bytes.map(Frame::data)))
    }
}

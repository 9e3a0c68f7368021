//! Requests that are made ready before they may leave.
//!
//! What a request waits for may take as long as making and encoding it. So that is done meanwhile, and the request is held in
//! front of its socket: whoever says that it may leave writes it into the socket as well, and wakes nobody for it. That is so over
//! HTTP/1.1 without TLS; other connections are shared with requests that may leave, or are not known before, and what goes
//! over them is begun when it may leave.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use crate::driven::{self, Driver};

/// Holds a request, of whoever sends it. It never leaves any more once this is dropped.
#[derive(Debug)]
pub struct Hold(Arc<Held>);

/// Lets a held request leave. Dropped without that, the request is held until it is given up.
#[derive(Debug)]
pub struct Opening(Arc<Held>);

impl Hold {
    /// Holds a request until it is opened.
    pub fn new() -> (Self, Opening) {
        let held = Arc::new(Held(Mutex::new(State::Held { sender: None, socket: None })));
        (Self(Arc::clone(&held)), Opening(held))
    }

    /// Holds nothing: for a request that may leave at once.
    pub fn none() -> Self {
        Self(Arc::new(Held(Mutex::new(State::Open(Instant::now())))))
    }

    /// Waits until the request may leave.
    pub async fn opened(&self) {
        poll_fn(|cx| self.0.poll_opened(cx)).await;
    }

    /// Since when it may leave; `None` while it may not.
    pub fn opened_at(&self) -> Option<Instant> {
        match &*self.0.state() {
            State::Open(since) => Some(*since),
            State::Held { .. } | State::GivenUp => None,
        }
    }

    /// Has the request never leave, unless it may have left. Returns whether it may.
    pub fn give_up(&self) -> bool {
        let before = {
            let mut state = self.0.state();
            if matches!(*state, State::Open(_)) {
                return true;
            }
            std::mem::replace(&mut *state, State::GivenUp)
        };
        // Its connection is of no use any more, and sees that.
        if let State::Held { socket: Some((waker, _)), .. } = before {
            waker.wake();
        }
        false
    }

    pub(crate) fn held(&self) -> Arc<Held> {
        Arc::clone(&self.0)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl Opening {
    /// Lets the request leave. If it is ready, it is written into its socket now, on this thread, which need not be one of the
    /// runtime's; but not if it is so large, or so many are under way, that this would hold the thread up for long. Does not block.
    pub fn open(self) {
        let before = {
            let mut state = self.0.state();
            if !matches!(*state, State::Held { .. }) {
                return;
            }
            std::mem::replace(&mut *state, State::Open(Instant::now()))
        };
        let State::Held { sender, socket } = before else { return };
        if let Some((waker, driver)) = socket
            && !driver.and_then(|driver| driver.upgrade()).is_some_and(|driver| driver.drive_from_outside())
        {
            waker.wake();
        }
        if let Some(sender) = sender {
            sender.wake();
        }
    }
}

/// What both know.
#[derive(Debug)]
pub(crate) struct Held(Mutex<State>);

#[derive(Debug)]
enum State {
    Held {
        /// Who waits with it.
        sender: Option<Waker>,
        /// The connection that has it, and who is to drive that when it may leave.
        socket: Option<(Waker, Option<Weak<Driver>>)>,
    },
    Open(Instant),
    GivenUp,
}

impl Held {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll_opened(&self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut *self.state() {
            State::Open(_) => Poll::Ready(()),
            State::Held { sender, .. } => {
                *sender = Some(cx.waker().clone());
                Poll::Pending
            }
            State::GivenUp => Poll::Pending,
        }
    }

    /// Whether it may not leave yet.
    pub(crate) fn holds(&self) -> bool {
        matches!(*self.state(), State::Held { .. })
    }

    /// Called by the socket that has it in front of it: ready when it may leave, an error when it never will. `driver`: who can write it
    /// when it may.
    pub(crate) fn poll_leave(
        &self,
        cx: &mut Context<'_>,
        driver: impl FnOnce() -> Option<Weak<Driver>>,
    ) -> Poll<io::Result<()>> {
        match &mut *self.state() {
            State::Open(_) => Poll::Ready(Ok(())),
            State::Held { socket, .. } => {
                *socket = Some((cx.waker().clone(), driver()));
                Poll::Pending
            }
            State::GivenUp => {
                let why = "the request was given up before it might leave";
                Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, why)))
            }
        }
    }
}

/// The body of a request, which may be held.
pub(crate) struct HeldBody {
    body: Full<Bytes>,
    /// Until the connection that has it knows that.
    held: Option<Arc<Held>>,
}

impl HeldBody {
    pub(crate) fn new(body: Bytes, held: Option<Arc<Held>>) -> Self {
        Self { body: Full::new(body), held }
    }
}

impl Body for HeldBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    /// Head and body are put together before anything is written into the socket: it is told then that it has to wait.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(held) = self.held.take().filter(|held| held.holds()) {
            driven::hold(held, usize::try_from(self.body.size_hint().lower()).unwrap_or(usize::MAX));
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

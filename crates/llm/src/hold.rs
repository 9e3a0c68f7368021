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

/// Holds a request, of whoever sends it. Once this is dropped it never leaves any more, unless it may have left by then.
#[derive(Debug)]
pub struct Hold(Arc<Held>);

/// Lets a held request leave. Dropped without that, the request is held until it is given up.
#[derive(Debug)]
#[must_use = "the request is held until this is opened"]
pub struct Opening(Arc<Held>);

impl Hold {
    /// Holds a request until it is opened.
    pub fn new() -> (Self, Opening) {
        let state = State::Held { sender: None, socket: None };
        let held = Arc::new(Held(Mutex::new(Standing { state, is_taken_back: false })));
        (Self(Arc::clone(&held)), Opening(held))
    }

    /// Holds nothing: for a request that may leave at once.
    pub fn none() -> Self {
        let state = State::Open(Instant::now());
        Self(Arc::new(Held(Mutex::new(Standing { state, is_taken_back: false }))))
    }

    /// Waits until the request may leave: for ever, if it is given up. One can wait at a time.
    pub async fn opened(&self) {
        poll_fn(|cx| self.0.poll_opened(cx)).await;
    }

    /// Since when it may leave; `None` while it may not, and if it never will.
    pub fn opened_at(&self) -> Option<Instant> {
        match self.0.standing().state {
            State::Open(since) => Some(since),
            State::Held { .. } | State::GivenUp => None,
        }
    }

    /// Has the request never leave, unless it may have left. Returns whether it may.
    pub fn give_up(&self) -> bool {
        let before = {
            let mut standing = self.0.standing();
            if matches!(standing.state, State::Open(_)) {
                return true;
            }
            std::mem::replace(&mut standing.state, State::GivenUp)
        };
        if let State::Held { socket: Some(socket), .. } = before {
            socket.give_up();
        }
        false
    }

    /// Called when a connection that had the request came to nothing. Whether none of it left, nor will over that one: it may be sent again
    /// when this is [opened](Self::opened).
    pub(crate) fn take_back(&self) -> bool {
        let socket = {
            let mut standing = self.0.standing();
            let Standing { state, is_taken_back } = &mut *standing;
            match state {
                State::Held { socket, .. } => {
                    *is_taken_back = true;
                    socket.take()
                }
                State::Open(_) => return *is_taken_back,
                State::GivenUp => return false,
            }
        };
        if let Some(socket) = socket {
            socket.give_up();
        }
        true
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
            let mut standing = self.0.standing();
            if !matches!(standing.state, State::Held { .. }) {
                return;
            }
            std::mem::replace(&mut standing.state, State::Open(Instant::now()))
        };
        let State::Held { sender, socket } = before else { return };
        if let Some(socket) = socket {
            socket.may_leave();
        }
        if let Some(sender) = sender {
            sender.wake();
        }
    }
}

/// What both know.
#[derive(Debug)]
pub(crate) struct Held(Mutex<Standing>);

#[derive(Debug)]
struct Standing {
    state: State,
    /// No connection may write it that has it in front of its socket.
    is_taken_back: bool,
}

#[derive(Debug)]
enum State {
    Held {
        /// Who waits with it.
        sender: Option<Waker>,
        /// Where it stands, when it is ready.
        socket: Option<AtSocket>,
    },
    Open(Instant),
    GivenUp,
}

/// The connection in front of whose socket a request stands.
#[derive(Debug)]
struct AtSocket {
    driver: Weak<Driver>,
    /// Whether who lets it leave may write it.
    drives: bool,
}

impl AtSocket {
    fn may_leave(self) {
        match self.driver.upgrade() {
            Some(driver) if self.drives => driver.drive_from_outside(),
            Some(driver) => driver.wake(),
            None => {}
        }
    }

    /// It never leaves over this connection, which is to see that and to end.
    fn give_up(self) {
        if let Some(driver) = self.driver.upgrade() {
            driver.wake();
        }
    }
}

impl Held {
    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll_opened(&self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.standing().state {
            State::Open(_) => Poll::Ready(()),
            State::Held { sender, .. } => {
                *sender = Some(cx.waker().clone());
                Poll::Pending
            }
            State::GivenUp => Poll::Pending,
        }
    }

    /// Whether it is ready, and kept from leaving.
    #[cfg(test)]
    fn is_at_socket(&self) -> bool {
        matches!(self.standing().state, State::Held { socket: Some(_), .. })
    }

    /// Called by the connection that has it in front of its socket: it leaves over another one.
    pub(crate) fn take_back(&self) {
        self.standing().is_taken_back = true;
    }

    fn is_open(&self) -> bool {
        matches!(self.standing().state, State::Open(_))
    }

    /// Called by the socket that has it in front of it: ready when it may leave, an error when it never will over this one. `driver` is told
    /// when that changes.
    pub(crate) fn poll_leave(
        &self,
        driver: &Weak<Driver>,
        drives: impl FnOnce() -> bool,
    ) -> Poll<io::Result<()>> {
        let mut standing = self.standing();
        if standing.is_taken_back {
            return Poll::Ready(Err(not_left()));
        }
        match &mut standing.state {
            State::Open(_) => Poll::Ready(Ok(())),
            State::Held { socket, .. } => {
                *socket = Some(AtSocket { driver: Weak::clone(driver), drives: drives() });
                Poll::Pending
            }
            State::GivenUp => Poll::Ready(Err(not_left())),
        }
    }
}

fn not_left() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the request was given up before it might leave")
}

/// The body of a request, which may be held.
pub(crate) struct HeldBody {
    body: Full<Bytes>,
    /// Until the connection that has it knows that.
    held: Option<Arc<Held>>,
}

impl HeldBody {
    /// `held`: only for a body that is not empty, below a head that fits into what a connection puts together before it writes.
    pub(crate) fn new(body: Bytes, held: Option<Arc<Held>>) -> Self {
        Self { body: Full::new(body), held }
    }
}

impl Body for HeldBody {
    type Data = Bytes;
    type Error = io::Error;

    /// Head and body are put together before anything is written into the socket: it is told here that it has to wait.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(held) = self.held.take().filter(|held| !held.is_open()) {
            let size = usize::try_from(self.body.size_hint().lower()).unwrap_or(usize::MAX);
            if !driven::hold(held, size) {
                // Nobody keeps it from leaving here.
                return Poll::Ready(Some(Err(not_left())));
            }
        }
        Pin::new(&mut self.body).poll_frame(cx).map_err(|never| match never {})
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;

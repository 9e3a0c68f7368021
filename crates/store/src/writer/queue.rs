//! What the writer's thread takes its requests from.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::Request;

/// How long the thread waits for an append that is coming before it sleeps again: longer than it takes to make its frames.
const COMING: Duration = Duration::from_micros(200);

/// A request, or `None`: one is coming.
pub(super) type Item = Option<Box<Request>>;

/// What the thread takes from.
pub(super) struct Queue {
    receiver: Receiver<Item>,
    /// Requests that are not taken yet.
    waiting: Arc<AtomicUsize>,
    /// The thread waits for one.
    rests: Arc<AtomicBool>,
}

/// What came of waiting for a request.
pub(super) enum Taken {
    Request(Box<Request>),
    /// None came in time.
    Nothing,
    /// There will be none any more.
    Closed,
}

impl Queue {
    pub(super) fn new(receiver: Receiver<Item>, waiting: &Arc<AtomicUsize>, rests: &Arc<AtomicBool>) -> Self {
        Self { receiver, waiting: Arc::clone(waiting), rests: Arc::clone(rests) }
    }

    /// The next request. It is waited for until `until`, or as long as it takes.
    pub(super) fn wait(&self, until: Option<Instant>) -> Taken {
        loop {
            if let Some(request) = self.next() {
                return Taken::Request(request);
            }
            self.rests.store(true, Ordering::Relaxed);
            let received = match until {
                Some(until) => self.receiver.recv_timeout(until.saturating_duration_since(Instant::now())),
                None => self.receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            self.rests.store(false, Ordering::Relaxed);
            match received {
                Ok(Some(request)) => {
                    self.took();
                    return Taken::Request(request);
                }
                Ok(None) => {
                    if let Some(request) = self.soon() {
                        return Taken::Request(request);
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Taken::Nothing,
                Err(RecvTimeoutError::Disconnected) => return Taken::Closed,
            }
        }
    }

    /// The next request, if it comes soon: stays awake until then.
    fn soon(&self) -> Option<Box<Request>> {
        let began = Instant::now();
        while began.elapsed() < COMING {
            if let Some(request) = self.next() {
                return Some(request);
            }
            // Whoever brings it may need this processor.
            thread::yield_now();
        }
        None
    }

    /// A request that is there already.
    pub(super) fn next(&self) -> Option<Box<Request>> {
        let request = std::iter::from_fn(|| self.receiver.try_recv().ok()).flatten().next()?;
        self.took();
        Some(request)
    }

    fn took(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

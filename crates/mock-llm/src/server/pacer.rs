//! Answers at a pace over HTTP/1.1: one task writes what is due on all connections, past the HTTP library.
//!
//! The library carries the head, the first events and the last ones; what comes between is one write for each time that is due,
//! the same bytes that it would write. A timer, a task that is woken and the buffers of the library cost more than the write.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::socket::Wire;
use crate::answer::{Paced, Step};

/// Answers that go on before other tasks have their turn.
const TOGETHER: usize = 64;
/// When it is tried again where the library still has to write what comes before.
const LATER: Duration = Duration::from_millis(5);

/// An answer, with the connection that it goes to.
pub(super) struct Work {
    pub(super) paced: Box<Paced>,
    pub(super) wire: Arc<Wire>,
    /// What was not written of a chunk.
    rest: Vec<u8>,
    failed: Option<io::Error>,
}

impl Work {
    pub(super) fn new(paced: Box<Paced>, wire: Arc<Wire>) -> Self {
        Self { paced, wire, rest: Vec::new(), failed: None }
    }

    /// Writes what was left of a chunk.
    pub(super) fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        while !self.rest.is_empty() {
            let count = ready!(self.wire.poll_write(context, &self.rest))?;
            self.rest.drain(..count);
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what is due; when more is, or nothing when the library has to go on.
    fn go_on(&mut self, chunk: &mut Vec<u8>) -> Option<Instant> {
        loop {
            match self.paced.step() {
                Step::Wait(due) => return Some(due),
                Step::Ready { is_last: false } if !self.wire.is_flushed() => {
                    return Some(Instant::now() + LATER);
                }
                Step::Ready { is_last: false } => {
                    self.paced.take_chunk(chunk);
                    match self.wire.write(chunk) {
                        Ok(count) if count == chunk.len() => {}
                        Ok(count) => {
                            self.rest.extend_from_slice(&chunk[count..]);
                            return None;
                        }
                        Err(error) => {
                            self.failed = Some(error);
                            return None;
                        }
                    }
                }
                // There is no fault in it that could strike.
                Step::Ready { is_last: true } | Step::Strike | Step::Over => return None,
            }
        }
    }
}

/// Work that was handed to the pacer. Dropping it says that nobody wants it any more.
pub(super) struct Handed(Arc<Job>);

struct Job {
    state: Mutex<State>,
}

struct State {
    /// Absent when it was taken back, or nobody wants it any more.
    work: Option<Work>,
    /// Whether the pacer has done what it could.
    is_back: bool,
    waker: Waker,
}

impl Handed {
    /// Takes the work back when the pacer has done with it.
    pub(super) fn poll_back(&self, context: &Context<'_>) -> Poll<Option<Work>> {
        let mut state = self.0.state.lock();
        if state.is_back {
            return Poll::Ready(state.work.take());
        }
        state.waker.clone_from(context.waker());
        Poll::Pending
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        // What it ends with is written without the lock.
        let work = self.0.state.lock().work.take();
        drop(work);
    }
}

impl Job {
    fn go_on(&self, chunk: &mut Vec<u8>) -> Option<Instant> {
        let mut state = self.state.lock();
        let due = state.work.as_mut()?.go_on(chunk);
        if due.is_none() {
            state.is_back = true;
            state.waker.wake_by_ref();
        }
        due
    }
}

/// A job, and when it goes on.
struct Due {
    at: Instant,
    job: Arc<Job>,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.cmp(&other.at)
    }
}

/// Keeps the times of answers.
#[derive(Default)]
pub(super) struct Pacer {
    due: Mutex<BinaryHeap<Reverse<Due>>>,
    changed: Notify,
}

impl Pacer {
    /// Has the work go on at this time.
    pub(super) fn hand(&self, work: Work, at: Instant, context: &Context<'_>) -> Handed {
        let state = State { work: Some(work), is_back: false, waker: context.waker().clone() };
        let job = Arc::new(Job { state: Mutex::new(state) });
        self.due.lock().push(Reverse(Due { at, job: Arc::clone(&job) }));
        self.changed.notify_one();
        Handed(job)
    }

    /// Keeps the times, until it is dropped.
    pub(super) async fn run(self: Arc<Self>) {
        let (mut chunk, mut jobs, mut again) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let next = self.take(&mut jobs);
            for (number, job) in jobs.drain(..).enumerate() {
                if let Some(at) = job.go_on(&mut chunk) {
                    again.push(Reverse(Due { at, job }));
                }
                if number % TOGETHER == TOGETHER - 1 {
                    tokio::task::yield_now().await;
                }
            }
            if !again.is_empty() {
                self.due.lock().extend(again.drain(..));
                continue;
            }
            let sleep = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = sleep => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// Takes the jobs that are due; when the next one is.
    fn take(&self, jobs: &mut Vec<Arc<Job>>) -> Option<Instant> {
        let now = Instant::now();
        let mut due = self.due.lock();
        loop {
            match due.peek() {
                Some(Reverse(first)) if first.at <= now => {
                    jobs.extend(due.pop().map(|Reverse(due)| due.job));
                }
                first => return first.map(|Reverse(first)| first.at),
            }
        }
    }
}

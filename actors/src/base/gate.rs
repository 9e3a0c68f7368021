//! The gate of a session in memory: whoever asks it something goes in first, and it leaves memory only while nobody is in.
//!
//! Closing it and going in exclude each other, so no command is ever on its way to an actor that leaves: either the command
//! came first and the session stays, or its caller finds the gate closed and asks the supervisor for the actor after this
//! one. Beside that it says since when the session rests, which nobody has to ask its actor for, and when the store has
//! nothing of it in hand any more: only then the log can be read from which the next actor begins.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// Set in the count of callers when the session leaves.
const CLOSED: usize = 1 << (usize::BITS - 1);
/// Instead of a time: the session is at work.
const AT_WORK: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Gate {
    /// Callers that are in, and [`CLOSED`].
    callers: AtomicUsize,
    /// Since when the session rests, in microseconds after `began`; or [`AT_WORK`].
    resting: AtomicU64,
    began: Instant,
    /// The actor was asked to leave, and has not decided.
    asked: AtomicBool,
    /// The actor was told that it rests for longer.
    settled: AtomicBool,
    /// Appends that the store has in hand.
    writes: AtomicUsize,
    written: Notify,
}

/// Somebody who asks the session something. It stays in memory until this is dropped.
#[derive(Debug)]
pub(crate) struct Caller(Arc<Gate>);

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.callers.fetch_sub(1, Ordering::AcqRel);
    }
}

/// An append that the store has in hand, until this is dropped.
#[derive(Debug)]
pub(crate) struct Writing(Arc<Gate>);

impl Drop for Writing {
    fn drop(&mut self) {
        if self.0.writes.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.written.notify_waiters();
        }
    }
}

impl Gate {
    /// The gate of a session that wakes.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            callers: AtomicUsize::new(0),
            resting: AtomicU64::new(AT_WORK),
            began: Instant::now(),
            asked: AtomicBool::new(false),
            settled: AtomicBool::new(false),
            writes: AtomicUsize::new(0),
            written: Notify::new(),
        })
    }

    /// The store gets an append.
    pub(crate) fn writing(self: &Arc<Self>) -> Writing {
        self.writes.fetch_add(1, Ordering::AcqRel);
        Writing(Arc::clone(self))
    }

    /// Waits until the store has none in hand. The actor must be gone: one that lives gives it more.
    pub(crate) async fn written(&self) {
        loop {
            let written = self.written.notified();
            if self.writes.load(Ordering::Acquire) == 0 {
                return;
            }
            written.await;
        }
    }

    /// Goes in; `None` when the session leaves.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Caller> {
        let one_more = |callers| (callers & CLOSED == 0).then_some(callers + 1);
        let entered = self.callers.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        entered.ok().map(|_| Caller(Arc::clone(self)))
    }

    /// Closes it for good, unless somebody is in.
    pub(crate) fn close(&self) -> bool {
        self.callers.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The actor is asked to leave; whether that is new.
    pub(crate) fn ask(&self) -> bool {
        !self.asked.swap(true, Ordering::AcqRel)
    }

    /// The actor stays.
    pub(crate) fn refuse(&self) {
        self.asked.store(false, Ordering::Release);
    }

    /// Whether the actor was asked to leave, and does or has not decided.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Whether the session leaves.
    pub(crate) fn is_closed(&self) -> bool {
        self.callers.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Whether the actor is to be told that it rests for longer, which it is once.
    pub(crate) fn settle(&self) -> bool {
        !self.settled.swap(true, Ordering::AcqRel)
    }

    /// Says whether there is anything to do, from now on.
    pub(crate) fn note(&self, rests: bool) {
        self.settled.store(false, Ordering::Release);
        let elapsed = || u64::try_from(self.began.elapsed().as_micros()).unwrap_or(AT_WORK);
        self.resting.store(if rests { elapsed() } else { AT_WORK }, Ordering::Release);
    }

    /// For how long the session has rested; `None` while it is at work.
    pub(crate) fn rested(&self) -> Option<Duration> {
        let since = self.resting.load(Ordering::Acquire);
        (since != AT_WORK).then(|| self.began.elapsed().saturating_sub(Duration::from_micros(since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_leaves_while_somebody_is_in_and_nobody_goes_in_afterwards() {
        let gate = Gate::new();
        let (one, two) = (gate.enter().unwrap(), gate.enter().unwrap());
        drop(one);
        assert!(!gate.close());
        drop(two);
        assert!(gate.close() && !gate.close());
        assert!(gate.enter().is_none());
    }

    #[test]
    fn going_in_and_closing_exclude_each_other() {
        for _ in 0..500 {
            let gate = Gate::new();
            let (entered, closed) = std::thread::scope(|scope| {
                let callers: Vec<_> = (0..3).map(|_| scope.spawn(|| gate.enter())).collect();
                let closed = scope.spawn(|| gate.close()).join().unwrap();
                let entered: Vec<_> = callers.into_iter().filter_map(|one| one.join().unwrap()).collect();
                (entered, closed)
            });
            assert!(entered.is_empty() || !closed, "{} are in", entered.len());
            drop(entered);
            assert_ne!(gate.close(), closed, "it closes when they are out, and once");
        }
    }

    #[tokio::test]
    async fn who_waits_for_the_store_waits_for_all_that_it_has_in_hand() {
        let gate = Gate::new();
        gate.written().await;
        let (one, two) = (gate.writing(), gate.writing());
        let mut waiting = tokio::spawn({
            let gate = Arc::clone(&gate);
            async move { gate.written().await }
        });
        drop(one);
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut waiting).await.is_err());
        std::thread::spawn(|| drop(two)).join().unwrap();
        waiting.await.unwrap();
    }

    #[test]
    fn it_rests_from_its_last_work_on() {
        let gate = Gate::new();
        assert_eq!(gate.rested(), None, "one that wakes is at work");
        gate.note(true);
        let rested = gate.rested().unwrap();
        assert!(gate.rested().unwrap() >= rested);
        gate.note(false);
        assert_eq!(gate.rested(), None);
    }
}

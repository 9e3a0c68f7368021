//! The thread that sweeps blobs: some time after something was removed, and when somebody asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::StoreError;
use crate::open::Reclaim;
use crate::sweep::{Sweepable, Swept, sweep};
use crate::switch::Switch;

/// How many jobs may wait.
const QUEUE: usize = 64;

/// How long after a sweep that failed the next begins by itself.
const AFTER_FAILURE: Duration = Duration::from_secs(60);

/// Is told what was removed. It must not block.
pub(crate) type SweepDone = Box<dyn FnOnce(Result<Swept, StoreError>) + Send>;

enum Job {
    /// Something was removed: blobs may be named by nobody.
    Removed,
    Sweep(SweepDone),
}

/// A handle of the thread.
#[derive(Clone)]
pub(crate) struct Janitor {
    shared: Arc<Shared>,
}

struct Shared {
    /// `None` once this is closed.
    sender: Mutex<Option<SyncSender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    closing: Arc<AtomicBool>,
}

impl Janitor {
    pub(crate) fn start(
        switch: Arc<Switch>,
        blobs: Arc<dyn Sweepable>,
        reclaim: Reclaim,
    ) -> Result<Self, StoreError> {
        let (sender, jobs) = sync_channel(QUEUE);
        let closing = Arc::<AtomicBool>::default();
        let work = Work { switch, blobs, reclaim, closing: Arc::clone(&closing) };
        let thread =
            thread::Builder::new().name("playhouse-sweep".to_owned()).spawn(move || work.run(&jobs))?;
        let shared = Shared { sender: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)), closing };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Blobs may be named by nobody now.
    pub(crate) fn something_was_removed(&self) {
        if let Some(sender) = &*self.shared.sender.lock() {
            // Where many jobs wait, one of them sees it.
            let _ = sender.try_send(Job::Removed);
        }
    }

    /// Asks for a sweep.
    pub(crate) fn sweep(&self, done: SweepDone) {
        let refused = match &*self.shared.sender.lock() {
            Some(sender) => sender.try_send(Job::Sweep(done)).err().map(|error| match error {
                std::sync::mpsc::TrySendError::Full(job)
                | std::sync::mpsc::TrySendError::Disconnected(job) => job,
            }),
            None => Some(Job::Sweep(done)),
        };
        if let Some(Job::Sweep(done)) = refused {
            done(Err(StoreError::Backend(
                "too many ask for a sweep of blobs, or the store is closed".to_owned(),
            )));
        }
    }

    /// Takes no more jobs, and ends the sweep that is under way.
    pub(crate) fn close(&self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        *self.shared.sender.lock() = None;
    }

    /// Waits until the thread has ended.
    pub(crate) fn join(&self) {
        let thread = self.shared.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that sweeps blobs panicked");
        }
    }
}

struct Work {
    switch: Arc<Switch>,
    blobs: Arc<dyn Sweepable>,
    reclaim: Reclaim,
    closing: Arc<AtomicBool>,
}

impl Work {
    fn run(&self, jobs: &Receiver<Job>) {
        // Once after every start: what was put and never named before it is known by nobody else.
        let mut due = Some(Instant::now() + self.reclaim.grace.max(self.reclaim.quiet));
        // A sweep reads all logs: it takes a tenth of the time at most.
        let mut rested = Instant::now();
        loop {
            let job = match due {
                Some(due) => jobs.recv_timeout(due.saturating_duration_since(Instant::now())),
                None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let done = match job {
                Err(RecvTimeoutError::Disconnected) => return,
                Ok(Job::Removed) => {
                    let soon = rested.max(Instant::now() + self.reclaim.quiet);
                    due = Some(due.map_or(soon, |due| due.min(soon)));
                    continue;
                }
                Ok(Job::Sweep(done)) => Some(done),
                Err(RecvTimeoutError::Timeout) => None,
            };
            let began = Instant::now();
            let swept = sweep(&self.switch, &*self.blobs, &self.closing);
            rested = Instant::now() + began.elapsed() * 9;
            due = self.next(&swept);
            if let Some(done) = done {
                done(swept);
            }
        }
    }

    /// When the next sweep begins by itself.
    fn next(&self, swept: &Result<Swept, StoreError>) -> Option<Instant> {
        match swept {
            Ok(swept) => {
                if swept.removed > 0 {
                    tracing::info!(
                        blobs = swept.removed,
                        bytes = swept.bytes,
                        "blobs that no record names were removed"
                    );
                }
                // What is held may be held twice as long as the grace.
                swept.spared.then(|| Instant::now() + self.reclaim.grace.max(self.reclaim.quiet))
            }
            Err(StoreError::Closed) => None,
            Err(error) => {
                tracing::warn!(%error, "blobs could not be swept");
                Some(Instant::now() + AFTER_FAILURE)
            }
        }
    }
}

//! When the table is copied to a fresh one, so that the space of what was removed comes back.
//!
//! By itself after enough was removed and a moment of quiet, or when somebody asks. The writer's thread does the work, a
//! slice at a time, and goes on with its rounds in between.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use playhouse_protocol::upkeep::Reclaimed;

use crate::StoreError;
use crate::janitor::{Janitor, SweepDone};
use crate::open::Reclaim;
use crate::sweep::Swept;
use crate::switch::{Retired, Slice, Switch};

/// How much is copied at once while nobody waits, and while somebody does.
const SLICE: usize = 256 * 1024;
const SMALL_SLICE: usize = 64 * 1024;

/// What part of the store's size on the disk must have been removed before a compaction begins, and before one does at
/// once. Sled takes up more than twice what is in it, so that an eighth is a quarter of what is there.
const PART: u64 = 8;
const LARGE_PART: u64 = 4;

/// How long after one that failed the next begins by itself.
const AFTER_FAILURE: Duration = Duration::from_secs(60);

/// Is told what came back.
pub(crate) type ReclaimDone = Box<dyn FnOnce(Result<Reclaimed, StoreError>) + Send>;

/// Belongs to the writer's thread.
pub(crate) struct Compactor {
    switch: Arc<Switch>,
    reclaim: Reclaim,
    janitor: Janitor,
    /// What was removed when it was last looked, and when that changed.
    seen: u64,
    changed: Instant,
    /// From how many removed bytes on a compaction begins, and begins at once.
    due_at: u64,
    now_at: u64,
    not_before: Option<Instant>,
    /// Who wait for the compaction that runs or comes.
    waiting: Vec<ReclaimDone>,
    /// What the table that is copied takes up.
    before: u64,
    began: Instant,
    /// Threads that remove what is not in use any more.
    removing: Vec<JoinHandle<()>>,
}

impl Compactor {
    pub(crate) fn new(switch: Arc<Switch>, janitor: Janitor, reclaim: Reclaim) -> Self {
        let now = Instant::now();
        let mut compactor = Self {
            switch,
            reclaim,
            janitor,
            seen: 0,
            changed: now,
            due_at: u64::MAX,
            now_at: u64::MAX,
            not_before: None,
            waiting: Vec::new(),
            before: 0,
            began: now,
            removing: Vec::new(),
        };
        compactor.look();
        compactor
    }

    /// Somebody asks for a compaction and a sweep.
    pub(crate) fn ask(&mut self, done: ReclaimDone) {
        self.waiting.push(done);
    }

    /// When there is something to do though nobody asks; `None` for never.
    pub(crate) fn due(&self) -> Option<Instant> {
        if self.switch.is_copying() || !self.waiting.is_empty() {
            return Some(self.began);
        }
        if self.seen < self.due_at {
            return None;
        }
        let at = if self.seen >= self.now_at { self.changed } else { self.changed + self.reclaim.quiet };
        Some(self.not_before.map_or(at, |not_before| at.max(not_before)))
    }

    /// Does what is due. `busy`: somebody waits to be served.
    ///
    /// # Errors
    /// Nobody knows what a crash would leave: nothing may be acknowledged until the store is opened again. Who wait are told by
    /// [`Compactor::give_up`].
    pub(crate) fn work(&mut self, busy: bool) -> Result<(), StoreError> {
        self.look();
        if !self.switch.is_copying() {
            if self.due().is_some_and(|due| due <= Instant::now()) {
                self.begin();
            }
            return Ok(());
        }
        match self.switch.copy_slice(if busy { SMALL_SLICE } else { SLICE }) {
            Ok(Slice::Copied(_)) => Ok(()),
            Ok(Slice::Ended) => match self.switch.exchange() {
                Ok(Ok(retired)) => {
                    self.end(retired);
                    Ok(())
                }
                // Who wait are told when nothing is taken any more: not before somebody can see it.
                Ok(Err(error)) => Err(error),
                Err(error) => {
                    self.fail(&error);
                    Ok(())
                }
            },
            Err(error) => {
                self.fail(&error);
                Ok(())
            }
        }
    }

    /// Gives up what is under way, for a table that failed.
    pub(crate) fn give_up(&mut self, error: &StoreError) {
        if let Some(retired) = self.switch.abandon() {
            self.remove(retired, || ());
        }
        self.tell(error);
    }

    /// Notices what was removed.
    fn look(&mut self) {
        let removed = self.switch.removed();
        if removed == self.seen {
            return;
        }
        if removed > self.seen {
            self.janitor.something_was_removed();
        }
        (self.seen, self.changed) = (removed, Instant::now());
        let Some(site) = self.switch.site() else { return };
        match site.size() {
            Ok(size) => {
                self.due_at = self.reclaim.least.max(size / PART);
                self.now_at = self.reclaim.least.max(size / LARGE_PART);
            }
            Err(error) => tracing::warn!(%error, "the size of the store is not known"),
        }
    }

    fn begin(&mut self) {
        let Some(site) = self.switch.site() else {
            // In memory the space comes back by itself; blobs are to be swept all the same.
            for done in std::mem::take(&mut self.waiting) {
                self.janitor.sweep(swept_with(Reclaimed::default(), done));
            }
            return;
        };
        self.before = site.size().unwrap_or(0);
        self.began = Instant::now();
        self.removing.retain(|thread| !thread.is_finished());
        match self.switch.begin() {
            Ok(()) => tracing::debug!(bytes = self.before, "a compaction begins"),
            Err(error) => self.fail(&error),
        }
    }

    fn end(&mut self, retired: Retired) {
        (self.seen, self.due_at, self.now_at) = (0, u64::MAX, u64::MAX);
        let after = self.switch.site().and_then(|site| site.size().ok()).unwrap_or(0);
        let reclaimed = Reclaimed { before: self.before, after, ..Reclaimed::default() };
        tracing::info!(
            before = reclaimed.before,
            after = reclaimed.after,
            seconds = self.began.elapsed().as_secs_f64(),
            "the store was compacted"
        );
        let (waiting, janitor) = (std::mem::take(&mut self.waiting), self.janitor.clone());
        self.remove(retired, move || {
            for done in waiting {
                janitor.sweep(swept_with(reclaimed, done));
            }
        });
    }

    /// The old table stays in use, and this is tried again later.
    fn fail(&mut self, error: &StoreError) {
        tracing::warn!(%error, "the store could not be compacted, and goes on as it is");
        self.not_before = Some(Instant::now() + AFTER_FAILURE);
        self.give_up(error);
    }

    fn tell(&mut self, error: &StoreError) {
        for done in std::mem::take(&mut self.waiting) {
            done(Err(match error {
                StoreError::Suspended { reason } => StoreError::Suspended { reason: *reason },
                error => StoreError::Backend(format!("the store could not be compacted: {error}")),
            }));
        }
    }

    /// Removes a table in a thread of its own, since that may take long, and then does `then`.
    fn remove(&mut self, retired: Retired, then: impl FnOnce() + Send + 'static) {
        let work = move || {
            retired.remove();
            then();
        };
        match thread::Builder::new().name("playhouse-retire".to_owned()).spawn(work) {
            Ok(thread) => self.removing.push(thread),
            Err(error) => {
                tracing::warn!(%error, "what a compaction left is removed when the store is opened the next time");
            }
        }
    }
}

/// Adds what a sweep removed.
fn swept_with(reclaimed: Reclaimed, done: ReclaimDone) -> SweepDone {
    Box::new(move |swept| {
        done(swept.map(|Swept { removed, bytes, waiting, .. }| Reclaimed {
            blobs: removed,
            blob_bytes: bytes,
            waiting_blobs: waiting,
            ..reclaimed
        }));
    })
}

impl Drop for Compactor {
    /// The data directory is let go of when nothing is done in it any more.
    fn drop(&mut self) {
        self.janitor.close();
        self.give_up(&StoreError::Closed);
        for thread in std::mem::take(&mut self.removing) {
            if thread.join().is_err() {
                tracing::error!("a thread that removes what a compaction left panicked");
            }
        }
        self.janitor.join();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::in_hand::InHand;
    use crate::memory::{MemoryBlobs, MemoryTable};
    use crate::projection::Source;
    use crate::switch::tests::MemorySite;
    use crate::writer::{Request, Writer};

    /// They would go on with a store that seems to be well.
    #[test]
    fn who_waits_is_told_of_a_pointer_that_may_be_moved_when_nothing_is_taken_any_more() {
        let in_hand = Arc::new(InHand::new(Duration::ZERO));
        let blobs = Arc::new(MemoryBlobs::new(Arc::clone(&in_hand)));
        let site = MemorySite::default();
        let faults = Arc::clone(&site.faults);
        faults.durability.store(true, Ordering::Relaxed);
        let switch = Switch::new(Box::<MemoryTable>::default(), Some(Arc::new(site)), in_hand).unwrap();
        let switch = Arc::new(switch);
        let reclaim = Reclaim::default();
        let janitor = Janitor::start(Arc::clone(&switch), Arc::clone(&blobs) as _, reclaim).unwrap();
        let compactor = Compactor::new(Arc::clone(&switch), janitor, reclaim);
        let source = Arc::new(Source::new(switch as _, blobs as _));
        let writer = Arc::new(Writer::start(source, compactor).unwrap());

        let (sender, told) = sync_channel(1);
        let seen = Arc::clone(&writer);
        let done = move |reclaimed| sender.send((reclaimed, seen.health().is_some())).unwrap();
        writer.submit(Request::Reclaim(Box::new(done)));
        let (reclaimed, is_suspended) = told.recv_timeout(Duration::from_secs(60)).unwrap();
        // They may ask again when it goes on.
        let error = reclaimed.unwrap_err();
        assert!(matches!(error, StoreError::Suspended { .. }), "{error}");
        assert!(is_suspended, "it was told before the store took no more");
        faults.durability.store(false, Ordering::Relaxed);
    }
}

//! A walk whose files are looked at on several threads, with results in the order of paths.
//!
//! One thread, the caller's, walks and puts what it comes to into batches. Helpers take batches, and so does the caller
//! whenever enough of them wait. What is made of a batch is handed over when everything before it was, so the result
//! is the same however many threads there were.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Scope, available_parallelism};
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::walk::{Flow, Found, Lens, Level, Outcome, Report, Start, Visitor, Walk};

/// Files in a batch.
const FILES: usize = 64;

/// Directories that the files of a batch lie in. A batch that waits keeps each of them open.
const DIRECTORIES: usize = 8;

/// Batches that wait.
const WAITING: usize = 8;

/// Helpers of one walk.
const MOST_HELPERS: usize = 7;

/// Helpers that are at work in this process, whatever they help with: there is no use in more than there are processors.
static HELPERS: AtomicUsize = AtomicUsize::new(0);

/// What is done with the files of a walk.
pub(crate) trait Work: Sync {
    /// What a thread has for itself.
    type Hand: Send;
    /// What is made of a batch.
    type Batch: Default + Send;

    /// For a thread that begins.
    fn hand(&self) -> Self::Hand;

    /// Looks at something that is not a directory, and is shown.
    fn visit(&self, hand: &mut Self::Hand, batch: &mut Self::Batch, found: &Found<'_>);

    /// Whether what was visited so far is enough: nothing that comes later in the order of paths can be of use.
    fn has_enough(&self) -> bool {
        false
    }
}

/// Does `work` with everything that `walk` shows from `start` on.
///
/// `take` is given the batches in the order of paths, and ends the walk when it says so. Returns the hands of all
/// threads as well.
pub(crate) fn sweep<W: Work>(
    walk: &Walk<'_>,
    start: Start,
    work: &W,
    take: &mut (dyn FnMut(W::Batch) -> Flow + Send),
) -> (Report, Vec<W::Hand>) {
    let lens = walk.lens(&start);
    let sweep = Sweep {
        walk,
        work,
        deadline: Instant::now() + walk.limits.time,
        lens: &lens,
        queue: Mutex::default(),
        filled: Condvar::new(),
        order: Mutex::new(Order { next: 0, early: BTreeMap::new(), take }),
        stopped: AtomicBool::new(false),
        late: AtomicBool::new(false),
        hands: Mutex::default(),
    };
    let mut report = thread::scope(|scope| {
        let _closes = Closes(&sweep);
        let mut walker = Walker {
            sweep: &sweep,
            scope,
            batch: Batch::default(),
            number: 0,
            has_asked: false,
            worker: Worker::new(&sweep),
        };
        let report = walk.traverse(start, &mut walker);
        walker.flush();
        sweep.close();
        while let Some(batch) = walker.sweep.next_or_none() {
            walker.worker.run(batch);
        }
        report
    });
    if walk.cancel.is_cancelled() {
        report.outcome = Outcome::Cancelled;
    } else if sweep.stopped.load(Ordering::Relaxed) {
        report.outcome = Outcome::Stopped;
    } else if sweep.late.load(Ordering::Relaxed) {
        report.outcome = Outcome::Time;
    }
    (report, sweep.hands.into_inner())
}

/// Entries of a directory, one after the other.
struct Run {
    level: Arc<Level>,
    from: usize,
    to: usize,
}

/// Files to look at.
#[derive(Default)]
struct Batch {
    /// Its place in the order of paths.
    number: usize,
    runs: Vec<Run>,
    files: usize,
}

#[derive(Default)]
struct Queue {
    batches: VecDeque<Batch>,
    is_closed: bool,
}

struct Order<'a, B> {
    /// The batch that is to be taken next.
    next: usize,
    /// Those that are done before their turn.
    early: BTreeMap<usize, B>,
    take: &'a mut (dyn FnMut(B) -> Flow + Send),
}

/// What the threads of one walk share.
struct Sweep<'a, W: Work> {
    walk: &'a Walk<'a>,
    work: &'a W,
    deadline: Instant,
    lens: &'a Lens,
    queue: Mutex<Queue>,
    filled: Condvar,
    order: Mutex<Order<'a, W::Batch>>,
    stopped: AtomicBool,
    late: AtomicBool,
    hands: Mutex<Vec<W::Hand>>,
}

impl<W: Work> Sweep<'_, W> {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }

    /// Tells the helpers that nothing comes any more.
    fn close(&self) {
        self.queue().is_closed = true;
        self.filled.notify_all();
    }

    fn next_or_none(&self) -> Option<Batch> {
        self.queue().batches.pop_front()
    }

    /// The next batch, as soon as there is one; `None` when there will be none.
    fn next(&self) -> Option<Batch> {
        let mut queue = self.queue();
        loop {
            if let Some(batch) = queue.batches.pop_front() {
                return Some(batch);
            }
            if queue.is_closed {
                return None;
            }
            self.filled.wait(&mut queue);
        }
    }

    fn is_over(&self) -> bool {
        if self.stopped.load(Ordering::Relaxed) || self.walk.cancel.is_cancelled() {
            return true;
        }
        let late = Instant::now() >= self.deadline;
        if late {
            self.late.store(true, Ordering::Relaxed);
        }
        late
    }

    fn done(&self, number: usize, batch: W::Batch) {
        let mut order = self.order.lock();
        order.early.insert(number, batch);
        loop {
            let next = order.next;
            let Some(batch) = order.early.remove(&next) else { return };
            order.next += 1;
            if !self.stopped.load(Ordering::Relaxed) && (order.take)(batch) == Flow::Stop {
                self.stopped.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// Whatever becomes of the walk, nobody waits for it for ever.
struct Closes<'a, 'b, W: Work>(&'a Sweep<'b, W>);

impl<W: Work> Drop for Closes<'_, '_, W> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A thread that looks at files.
struct Worker<'a, 'b, W: Work> {
    sweep: &'a Sweep<'b, W>,
    lens: Lens,
    hand: Option<W::Hand>,
}

impl<'a, 'b, W: Work> Worker<'a, 'b, W> {
    fn new(sweep: &'a Sweep<'b, W>) -> Self {
        Self { sweep, lens: sweep.lens.clone(), hand: Some(sweep.work.hand()) }
    }

    fn run(&mut self, batch: Batch) {
        let Some(hand) = &mut self.hand else { return };
        let mut made = W::Batch::default();
        'files: for run in &batch.runs {
            for index in run.from..run.to {
                if self.sweep.is_over() {
                    break 'files;
                }
                // A directory between two files is visited by the walk itself.
                if Lens::is_directory(&run.level, index) {
                    continue;
                }
                if let Some(found) = self.lens.find(&run.level, index) {
                    self.sweep.work.visit(hand, &mut made, &found);
                }
            }
        }
        self.sweep.done(batch.number, made);
    }
}

impl<W: Work> Drop for Worker<'_, '_, W> {
    fn drop(&mut self) {
        let hand = self.hand.take();
        self.sweep.hands.lock().extend(hand);
    }
}

/// The thread that walks.
struct Walker<'scope, 'env, 'b, W: Work> {
    sweep: &'env Sweep<'b, W>,
    scope: &'scope Scope<'scope, 'env>,
    batch: Batch,
    number: usize,
    has_asked: bool,
    worker: Worker<'env, 'b, W>,
}

impl<W: Work> Walker<'_, '_, '_, W> {
    /// Hands the batch over, and looks at another one where too many wait.
    fn flush(&mut self) {
        if self.batch.runs.is_empty() {
            return;
        }
        let mut batch = std::mem::take(&mut self.batch);
        batch.number = self.number;
        self.number += 1;
        let waiting = {
            let mut queue = self.sweep.queue();
            queue.batches.push_back(batch);
            queue.batches.len()
        };
        self.sweep.filled.notify_one();
        // Most walks are short, and over before a helper would be there.
        if waiting > 1 && !self.has_asked {
            self.has_asked = true;
            self.ask_for_help();
        }
        if waiting > WAITING
            && let Some(batch) = self.sweep.next_or_none()
        {
            self.worker.run(batch);
        }
    }

    fn ask_for_help(&self) {
        let processors = available_parallelism().map_or(1, std::num::NonZero::get);
        let sweep = self.sweep;
        for _ in 0..MOST_HELPERS.min(processors - 1) {
            let Some(helper) = Helper::claim(processors - 1) else { return };
            let helps = move || {
                let _helper = helper;
                let mut worker = Worker::new(sweep);
                while let Some(batch) = sweep.next() {
                    worker.run(batch);
                }
            };
            // Without help it takes longer, and that is all.
            let _ = thread::Builder::new().name("search".into()).spawn_scoped(self.scope, helps);
        }
    }
}

impl<W: Work> Visitor for Walker<'_, '_, '_, W> {
    fn directory(&mut self, _: &Found<'_>) -> Flow {
        Flow::Go
    }

    fn other(&mut self, level: &Arc<Level>, index: usize) -> Flow {
        match self.batch.runs.last_mut() {
            Some(run) if Arc::ptr_eq(&run.level, level) => run.to = index + 1,
            _ => self.batch.runs.push(Run { level: level.clone(), from: index, to: index + 1 }),
        }
        self.batch.files += 1;
        if self.batch.files >= FILES || self.batch.runs.len() >= DIRECTORIES {
            self.flush();
            if self.sweep.work.has_enough() || self.sweep.is_over() {
                return Flow::Stop;
            }
        }
        Flow::Go
    }
}

/// The right to be a helper.
struct Helper;

impl Helper {
    fn claim(most: usize) -> Option<Self> {
        HELPERS
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count < most).then_some(count + 1))
            .ok()
            .map(|_| Self)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        HELPERS.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;

//! Where blocking work runs.
//!
//! Work waits its turn in a queue of its own, and the thread that is done with one piece goes on with the next. If instead the task that
//! asks waited for a place and then began its work, each place would stand empty until its task was polled: where tasks wait for 50 ms
//! for a processor, eight places would do 160 pieces of work a second, however short they are.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;

use crate::at_once;

/// A bounded pool for work that blocks: reading files, searching, diffing. Clones share the bound. Needs a tokio
/// runtime around it, whose threads for such work are at least as many as those of all its pools. Where several runtimes share a pool,
/// work of one may run on a thread of another, which waits for it when it ends, and for what comes meanwhile.
#[derive(Clone, Debug)]
pub struct Pool(Arc<Places>);

#[derive(Debug)]
struct Places {
    /// No work is run while this lock is held.
    queue: Mutex<Queue>,
    limit: usize,
}

/// A piece of work, which leaves the place that it has before it tells what came out.
type Work = Box<dyn FnOnce(Place<'_>) + Send>;

/// A piece of work that waits its turn, and whose threads may carry it.
struct Waiting {
    work: Work,
    runtime: Handle,
}

#[derive(Default)]
struct Queue {
    /// What waits its turn, by the order in which it came.
    waiting: BTreeMap<u64, Waiting>,
    /// How many came.
    came: u64,
    /// How many run.
    running: usize,
    /// Threads that take from here, or are about to: as many as the limit at most.
    threads: usize,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("waiting", &self.waiting.len())
            .field("running", &self.running)
            .finish_non_exhaustive()
    }
}

impl Places {
    /// The next piece of work, and a place for it. Where there is none the thread that asks is none of the queue's any more.
    fn next(&self) -> Option<(Waiting, Place<'_>)> {
        let mut queue = self.queue.lock();
        let Some((_, next)) = queue.waiting.pop_first() else {
            queue.threads -= 1;
            return None;
        };
        queue.running += 1;
        Some((next, Place(self)))
    }
}

/// What a piece of work has while it runs.
struct Place<'a>(&'a Places);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.queue.lock().running -= 1;
    }
}

/// A thread of this runtime that is to take work.
struct Thread(Option<Arc<Places>>, Id);

impl Thread {
    /// Asks `runtime` for it: it is counted among the queue's already.
    fn begin(places: Arc<Places>, runtime: &Handle) {
        let thread = Self(Some(places), runtime.id());
        drop(runtime.spawn_blocking(move || thread.work()));
    }

    fn work(mut self) {
        let Some(places) = self.0.take() else { return };
        while let Some((Waiting { work, runtime }, place)) = places.next() {
            // It may be that of another thread.
            let _entered = runtime.enter();
            let panic = catch_unwind(AssertUnwindSafe(|| work(place)));
            // It is only a result that panics here, when it is dropped since nobody wants it. What it panics with may do so too.
            panic.unwrap_or_else(std::mem::forget);
        }
    }
}

impl Drop for Thread {
    /// It was never begun: its runtime is shut down, and with it the work of its tasks. What else waits is of another runtime, and
    /// needs a thread of that.
    fn drop(&mut self) {
        let Some(places) = self.0.take() else { return };
        let (never, next) = {
            let mut queue = places.queue.lock();
            queue.threads -= 1;
            let waiting = std::mem::take(&mut queue.waiting);
            let (never, waiting): (BTreeMap<_, _>, _) =
                waiting.into_iter().partition(|(_, waiting)| waiting.runtime.id() == self.1);
            queue.waiting = waiting;
            let next = queue.waiting.values().next().map(|next| next.runtime.clone());
            queue.threads += usize::from(next.is_some());
            (never, next)
        };
        drop(never);
        if let Some(runtime) = next {
            Self::begin(places, &runtime);
        }
    }
}

/// The piece of work of this number, which leaves the queue with this.
struct Asked<'a>(&'a Places, u64);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let never = self.0.queue.lock().waiting.remove(&self.1);
        // What it holds may do anything when it is dropped.
        drop(never);
    }
}

impl Pool {
    /// A pool that runs at most `limit` pieces of work at once (at least 1); the others wait their turn.
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Places { queue: Mutex::default(), limit: limit.max(1) }))
    }

    /// How many pieces of work run.
    pub fn running(&self) -> usize {
        self.0.queue.lock().running
    }

    /// How many pieces of work wait their turn.
    pub fn waiting(&self) -> usize {
        self.0.queue.lock().waiting.len()
    }

    /// [`run`](Self::run) for what only looks at files, and takes no longer than going to another thread does: a path, a small file.
    /// It is tried [at once](crate::at_once()) first, where nothing may block, and done again where it may if that was not enough.
    ///
    /// So it changes nothing, and asks for files through the [`door`](crate::door), [`Workspace`](crate::Workspace) and
    /// [`Reader`](crate::Reader) only: what asks `std::fs` belongs into `run`, or gives up first where it
    /// [`would_wait`](crate::would_wait).
    pub async fn brief<T, F>(&self, work: F) -> T
    where
        T: Send + 'static,
        F: Fn() -> T + Send + 'static,
    {
        // Others are to have their turn between such work.
        tokio::task::coop::consume_budget().await;
        match at_once(&work) {
            Some(result) => result,
            None => self.run(work).await,
        }
    }

    /// Runs `work` on a thread where it may block, and gives back its result. A panic in it goes on in the caller.
    ///
    /// Dropping the future while it waits its turn means that the work never starts. Dropping it later does **not**
    /// stop the work: it must watch a cancel flag by itself. It keeps its place in the pool until it is over. Where the runtime is shut
    /// down before it begins there may never be a result.
    pub async fn run<T, F>(&self, work: F) -> T
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let runtime = Handle::current();
        let (told, result) = oneshot::channel();
        let work: Work = Box::new(move |place| {
            let result = catch_unwind(AssertUnwindSafe(work));
            // What nobody wants is dropped here, and that may take a while.
            if told.is_closed() {
                drop(result);
                return drop(place);
            }
            drop(place);
            drop(told.send(result));
        });
        let waiting = Waiting { work, runtime: runtime.clone() };
        let (number, needs_thread) = {
            let mut queue = self.0.queue.lock();
            let (number, needs_thread) = (queue.came, queue.threads < self.0.limit);
            queue.came += 1;
            queue.threads += usize::from(needs_thread);
            queue.waiting.insert(number, waiting);
            (number, needs_thread)
        };
        let asked = Asked(&self.0, number);
        if needs_thread {
            Thread::begin(Arc::clone(&self.0), &runtime);
        }
        let result = result.await;
        drop(asked);
        match result {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn work_is_bounded() {
        let pool = Pool::new(2);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let work = (0..20).map(|number| {
            let (running, most) = (running.clone(), most.clone());
            pool.run(move || {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(std::time::Duration::from_millis(1));
                running.fetch_sub(1, Ordering::SeqCst);
                number
            })
        });
        let results = futures::future::join_all(work).await;
        assert_eq!(results, (0..20).collect::<Vec<_>>());
        assert!((1..=2).contains(&most.load(Ordering::SeqCst)));
    }

    #[tokio::test]
    async fn what_runs_and_what_waits_is_known() {
        let pool = Pool::new(1);
        let (release, held) = std::sync::mpsc::sync_channel::<()>(0);
        let first = tokio::spawn({
            let pool = pool.clone();
            async move { pool.run(move || held.recv()).await }
        });
        while pool.running() < 1 {
            tokio::task::yield_now().await;
        }
        let mut second = Box::pin(pool.run(|| ()));
        assert!((&mut second).now_or_never().is_none());
        assert_eq!((pool.running(), pool.waiting()), (1, 1));
        drop(second);
        assert_eq!(pool.waiting(), 0);
        drop(release);
        assert!(first.await.unwrap().is_err());
    }

    #[tokio::test]
    async fn what_waits_begins_as_soon_as_there_is_a_place_whenever_its_task_is_polled() {
        let pool = Pool::new(1);
        let (release, held) = std::sync::mpsc::sync_channel::<()>(0);
        let (tell, told) = std::sync::mpsc::sync_channel(10);
        let mut first = Box::pin(pool.run(move || held.recv()));
        let mut others: Vec<_> = (0..10)
            .map(|number| {
                let tell = tell.clone();
                Box::pin(pool.run(move || tell.send(number)))
            })
            .collect();
        assert!((&mut first).now_or_never().is_none());
        assert!(others.iter_mut().all(|other| other.now_or_never().is_none()));
        drop(others.remove(3));
        drop(release);
        // Nothing is polled while this thread waits.
        let began: Vec<i32> = (0..9).map(|_| told.recv_timeout(Duration::from_secs(60)).unwrap()).collect();
        assert_eq!(began, [0, 1, 2, 4, 5, 6, 7, 8, 9]);
        for other in others {
            within(other).await.unwrap();
        }
        assert_eq!((pool.running(), pool.waiting()), (0, 0));
    }

    #[tokio::test]
    async fn as_much_runs_at_once_as_there_are_places() {
        let pool = Pool::new(2);
        let came = Arc::new(AtomicUsize::new(0));
        let meet = || {
            let (came, begun) = (came.clone(), Instant::now());
            pool.run(move || {
                came.fetch_add(1, Ordering::SeqCst);
                while came.load(Ordering::SeqCst) < 2 && begun.elapsed() < Duration::from_secs(20) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                came.load(Ordering::SeqCst)
            })
        };
        assert_eq!(within(async { tokio::join!(meet(), meet()) }).await, (2, 2));
    }

    async fn within<T>(work: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(60), work).await.expect("nothing goes on")
    }

    /// What does this when it is dropped.
    struct Dropped<F: Fn()>(F);

    impl<F: Fn()> Drop for Dropped<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }

    #[tokio::test]
    async fn what_nobody_wants_may_panic_when_it_is_dropped_and_may_ask_the_pool() {
        let pool = Pool::new(1);
        let (release, held) = std::sync::mpsc::sync_channel::<()>(0);
        let mut unwanted = Box::pin(pool.run(move || {
            let _ = held.recv();
            Dropped(|| panic!("on purpose"))
        }));
        assert!((&mut unwanted).now_or_never().is_none());
        while pool.running() < 1 {
            tokio::task::yield_now().await;
        }
        let asked = Dropped({
            let pool = pool.clone();
            move || assert_eq!(pool.waiting(), 0)
        });
        let mut never = Box::pin(pool.run(move || drop(asked)));
        assert!((&mut never).now_or_never().is_none());
        assert_eq!(pool.waiting(), 1);
        drop(never);
        drop(unwanted);
        drop(release);
        assert_eq!(within(pool.run(|| 1)).await, 1);
        assert_eq!((pool.running(), pool.waiting()), (0, 0));
    }

    #[test]
    fn where_a_runtime_is_shut_down_its_work_is_dropped_and_that_of_others_is_done() {
        let pool = Pool::new(2);
        let ended = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let handle = ended.handle().clone();
        drop(ended);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        // The thread for this one does not begin before it is released.
        let (release, wait) = std::sync::mpsc::sync_channel::<()>(0);
        let taken = runtime.spawn_blocking(move || wait.recv());
        let mut other = Box::pin(pool.run(|| 1));
        runtime.block_on(async { assert!((&mut other).now_or_never().is_none()) });

        let held = Arc::new(());
        let mut never = Box::pin({
            let held = held.clone();
            pool.run(move || drop(held))
        });
        {
            let _entered = handle.enter();
            assert!((&mut never).now_or_never().is_none());
        }
        assert_eq!((Arc::strong_count(&held), pool.waiting()), (1, 1), "nothing but the other one waits");
        drop(release);
        assert_eq!(runtime.block_on(within(other)), 1);
        assert!((&mut never).now_or_never().is_none(), "there is never a result");
        assert!(runtime.block_on(taken).unwrap().is_err());
        let more = async { tokio::join!(pool.run(|| 2), pool.run(|| 3), pool.run(|| 4)) };
        assert_eq!(runtime.block_on(within(more)), (2, 3, 4));
        assert_eq!((pool.running(), pool.waiting()), (0, 0));
    }

    #[tokio::test]
    async fn brief_work_is_done_where_it_is_asked_for_unless_it_would_wait() {
        let pool = Pool::new(1);
        let here = std::thread::current().id();
        let thread = pool.brief(|| std::thread::current().id()).await;
        assert_eq!(thread == here, cfg!(target_os = "linux"));
        let waited = pool.brief(|| (crate::would_wait(), std::thread::current().id())).await;
        assert!(!waited.0 && waited.1 != here);
    }

    #[tokio::test]
    async fn a_panic_goes_on_in_the_caller_and_frees_its_place() {
        let pool = Pool::new(1);
        let work = std::panic::AssertUnwindSafe(pool.run(|| -> () { panic!("on purpose") }));
        let panic = work.catch_unwind().await.unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
        assert_eq!(pool.run(|| 1).await, 1);
        let brief = std::panic::AssertUnwindSafe(pool.brief(|| -> () { panic!("brief") }));
        let panic = brief.catch_unwind().await.unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"brief"));
        // Nothing of what it was tried in stays.
        assert!(!crate::would_wait());
    }
}

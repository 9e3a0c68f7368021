//! Where blocking work runs.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use tokio::sync::Semaphore;

/// How much of what is brief is done in place by work that was begun on a thread of the pool: the rest takes turns like any other.
const IN_PLACE: usize = 8;

/// A bounded pool for work that blocks: reading files, searching, diffing. Clones share the bound. Needs a tokio
/// runtime around it.
#[derive(Clone, Debug)]
pub struct Pool {
    permits: Arc<Semaphore>,
    limit: usize,
    /// Pieces of work that wait their turn.
    waiting: Arc<AtomicUsize>,
}

/// A piece of work that waits its turn.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

thread_local! {
    /// The pool for which this thread has begun with a piece of work, by its address, and how much it may still do in place.
    static HERE: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
}

/// What this thread has begun with, until it is dropped.
struct Here;

impl Here {
    fn begin(pool: &Pool) -> Self {
        HERE.set(Some((pool.address(), IN_PLACE)));
        Self
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        HERE.set(None);
    }
}

/// What came of beginning with a piece of work.
pub enum Begun<F: Future> {
    /// It is over.
    Over(F::Output),
    /// It waits for something. Whoever gets it has to ask it at once: nothing wakes it before.
    Waits(Pin<Box<F>>),
}

impl<F: Future> Begun<F> {
    /// Its result.
    pub async fn end(self) -> F::Output {
        match self {
            Self::Over(output) => output,
            Self::Waits(rest) => rest.await,
        }
    }
}

impl<F: Future> std::fmt::Debug for Begun<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::Over(_)) { "Over" } else { "Waits" })
    }
}

impl Pool {
    /// A pool that runs at most `limit` pieces of work at once (at least 1); the others wait their turn.
    pub fn new(limit: usize) -> Self {
        let limit = limit.clamp(1, Semaphore::MAX_PERMITS);
        Self { permits: Arc::new(Semaphore::new(limit)), limit, waiting: Arc::default() }
    }

    /// How many pieces of work run.
    pub fn running(&self) -> usize {
        self.limit.saturating_sub(self.permits.available_permits())
    }

    /// How many pieces of work wait their turn.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.permits).addr()
    }

    /// Whether this thread has begun with work that has its place in this pool, and may do one more thing in place.
    fn takes_here(&self) -> bool {
        match HERE.get() {
            Some((pool, left @ 1..)) if pool == self.address() => {
                HERE.set(Some((pool, left - 1)));
                true
            }
            _ => false,
        }
    }

    /// Begins with `work` on a thread where it may block: as far as it goes without waiting, all that is [brief](Self::brief)
    /// on the way is done there, in the place that it has in the pool. The rest of it is for whoever asked.
    ///
    /// Dropping the future, and a panic, mean what they mean for [`run`](Self::run).
    pub async fn begin<F>(&self, work: F) -> Begun<F>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (pool, mut work) = (self.clone(), Box::pin(work));
        self.run(move || {
            let _here = Here::begin(&pool);
            // It is asked again by whoever gets it, so that nothing has to be woken before.
            match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(output) => Begun::Over(output),
                Poll::Pending => Begun::Waits(work),
            }
        })
        .await
    }

    /// [`run`](Self::run) for what takes no longer than going to another thread does: looking at a path, reading a small file.
    /// Where this is called by work that the pool has [begun](Self::begin) with, it is done in place.
    pub async fn brief<T, F>(&self, work: F) -> T
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        if self.takes_here() { work() } else { self.run(work).await }
    }

    /// Runs `work` on a thread where it may block, and gives back its result. A panic in it goes on in the caller.
    ///
    /// Dropping the future while it waits its turn means that the work never starts. Dropping it later does **not**
    /// stop the work: it must watch a cancel flag by itself. It keeps its place in the pool until it is over.
    pub async fn run<T, F>(&self, work: F) -> T
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let waiting = Waiting::begin(&self.waiting);
        let Ok(permit) = self.permits.clone().acquire_owned().await else {
            // Nobody closes the semaphore.
            return std::future::pending().await;
        };
        drop(waiting);
        let running = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        match running.await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is shutting down, and drops this future next.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

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
    async fn brief_work_is_done_where_the_pool_began_and_what_waits_comes_back() {
        let pool = Pool::new(1);
        let here = std::thread::current().id();
        let of_pool = pool.clone();
        let begun = pool.begin(async move {
            // Its own place is the only one.
            let one = of_pool.brief(|| std::thread::current().id()).await;
            let other = of_pool.brief(|| std::thread::current().id()).await;
            (one, other, std::thread::current().id())
        });
        let Begun::Over((one, other, third)) = begun.await else { panic!("it had nothing to wait for") };
        assert!(one == other && other == third && third != here);

        let (send, receive) = tokio::sync::oneshot::channel();
        let of_pool = pool.clone();
        let begun = pool.begin(async move {
            let first = std::thread::current().id();
            let received: u32 = receive.await.unwrap();
            (
                first,
                received,
                std::thread::current().id(),
                of_pool.brief(|| std::thread::current().id()).await,
            )
        });
        let begun = begun.await;
        assert_eq!(pool.running(), 0);
        let end = tokio::spawn(begun.end());
        tokio::task::yield_now().await;
        send.send(7).unwrap();
        let (first, received, then, brief) = end.await.unwrap();
        assert!(first != here && received == 7 && then == here && brief != here);
        assert_ne!(pool.brief(|| std::thread::current().id()).await, here);
    }

    #[tokio::test]
    async fn brief_work_of_another_pool_and_what_is_too_much_take_their_turn() {
        let (pool, other) = (Pool::new(1), Pool::new(1));
        let of_other = other.clone();
        let taken = other.permits.clone().acquire_owned().await.unwrap();
        let begun = pool.begin(async move { of_other.brief(|| 2).await }).await;
        assert!(matches!(begun, Begun::Waits(_)));
        drop(taken);
        assert_eq!(begun.end().await, 2);
        let of_pool = pool.clone();
        let begun = pool.begin(async move {
            for _ in 0..IN_PLACE {
                assert!(of_pool.brief(|| ()).now_or_never().is_some());
            }
            of_pool.brief(|| 3).await
        });
        let begun = begun.await;
        assert!(matches!(begun, Begun::Waits(_)));
        assert_eq!(begun.end().await, 3);
    }

    #[tokio::test]
    async fn a_panic_goes_on_in_the_caller_and_frees_its_place() {
        let pool = Pool::new(1);
        let work = std::panic::AssertUnwindSafe(pool.run(|| -> () { panic!("on purpose") }));
        let panic = work.catch_unwind().await.unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
        assert_eq!(pool.run(|| 1).await, 1);
        let of_pool = pool.clone();
        let begun = pool.begin(async move { of_pool.brief(|| -> () { panic!("brief") }).await });
        let panic = std::panic::AssertUnwindSafe(begun).catch_unwind().await.unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"brief"));
        let begun = pool.begin(async { HERE.get().is_some() });
        assert!(begun.await.end().await && HERE.get().is_none());
    }
}

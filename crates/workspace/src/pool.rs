//! Where blocking work runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;
use tokio::task::JoinError;

use crate::at_once;

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
        blocking(move || {
            let _permit = permit;
            work()
        })
        .await
    }
}

/// Runs `work` on a thread where it may block, beside all pools, and gives back its result. A panic in it goes on in the
/// caller. Where the runtime is shut down before it begins there is never a result: that is no failure of the work, which a log
/// could keep, and a caller that is a task of the runtime is dropped next.
pub async fn blocking<T, F>(work: F) -> T
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    match try_blocking(work).await {
        Ok(result) => result,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// [`blocking`], where a panic in the work is an error.
pub(crate) async fn try_blocking<T, F>(work: F) -> Result<T, JoinError>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Err(error) if error.is_cancelled() => std::future::pending().await,
        result => result,
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

//! Locks on paths.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

type Table = Mutex<HashMap<PathBuf, Arc<tokio::sync::Mutex<()>>>>;

/// Locks on canonical paths, one table for a process: calls that change the same files take turns, those that do not
/// never meet. It holds entries only for paths that someone locks or waits for.
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// use playhouse_workspace::PathLocks;
///
/// let locks = PathLocks::new();
/// let guard = locks.lock(&["/repo/b".into(), "/repo/a".into()]).await;
/// drop(guard);
/// # });
/// ```
#[derive(Debug, Default)]
pub struct PathLocks {
    table: Arc<Table>,
}

/// Holds the locks of some paths until it is dropped.
#[must_use = "the paths are unlocked when this is dropped"]
#[derive(Debug)]
pub struct PathGuard {
    table: Arc<Table>,
    /// In the order of locking. `None` is a path that is waited for.
    held: Vec<(PathBuf, Option<OwnedMutexGuard<()>>)>,
}

impl PathLocks {
    /// A table without locks.
    pub fn new() -> Self {
        Self::default()
    }

    /// The table of this process: sessions of several engines may work in one directory.
    pub fn of_this_process() -> Arc<Self> {
        static SHARED: OnceLock<Arc<PathLocks>> = OnceLock::new();
        Arc::clone(SHARED.get_or_init(Arc::default))
    }

    /// Waits until none of `paths` is locked by another, and locks them. The same path twice counts once. Dropping the
    /// future leaves nothing locked.
    pub async fn lock(&self, paths: &[PathBuf]) -> PathGuard {
        // Everyone locks in the same order, so nobody waits for one who waits for them.
        let mut sorted = paths.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let mut guard = PathGuard { table: self.table.clone(), held: Vec::with_capacity(sorted.len()) };
        for path in sorted {
            let slot = self.slot(&path);
            guard.held.push((path, None));
            let locked = slot.lock_owned().await;
            if let Some((_, held)) = guard.held.last_mut() {
                *held = Some(locked);
            }
        }
        guard
    }

    fn slot(&self, path: &Path) -> Arc<tokio::sync::Mutex<()>> {
        let mut table = self.table.lock();
        table.entry(path.to_owned()).or_default().clone()
    }
}

impl Drop for PathGuard {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        for (path, held) in self.held.drain(..) {
            drop(held);
            // Slots are handed out under the table's lock only, so the count cannot grow meanwhile.
            if table.get(&path).is_some_and(|slot| Arc::strong_count(slot) == 1) {
                table.remove(&path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt;

    use super::*;

    fn paths(names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(PathBuf::from).collect()
    }

    impl PathLocks {
        fn entries(&self) -> usize {
            self.table.lock().len()
        }
    }

    #[tokio::test]
    async fn one_path_is_held_by_one_at_a_time() {
        let locks = PathLocks::new();
        let first = locks.lock(&paths(&["/a", "/a", "/b"])).await;
        assert_eq!(locks.entries(), 2);
        let (wanted, free) = (paths(&["/b", "/c"]), paths(&["/d"]));
        let mut second = Box::pin(locks.lock(&wanted));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(locks.lock(&free).now_or_never().is_some());
        drop(first);
        drop(second.await);
        assert_eq!(locks.entries(), 0);
    }

    #[tokio::test]
    async fn the_table_of_the_process_is_one() {
        let path = paths(&["/of/this/process"]);
        let held = PathLocks::of_this_process().lock(&path).await;
        assert!(PathLocks::of_this_process().lock(&path).now_or_never().is_none());
        assert!(PathLocks::new().lock(&path).now_or_never().is_some());
        drop(held);
        assert!(PathLocks::of_this_process().lock(&path).now_or_never().is_some());
    }

    #[tokio::test]
    async fn one_who_gives_up_leaves_nothing_locked() {
        let locks = PathLocks::new();
        let first = locks.lock(&paths(&["/b"])).await;
        let wanted = paths(&["/a", "/b"]);
        let mut second = Box::pin(locks.lock(&wanted));
        assert!(second.as_mut().now_or_never().is_none());
        drop(second);
        assert!(locks.lock(&paths(&["/a"])).now_or_never().is_some());
        drop(first);
        assert_eq!(locks.entries(), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn many_who_lock_in_any_order_all_come_to_an_end() {
        let locks = Arc::new(PathLocks::new());
        let inside = Arc::new(AtomicUsize::new(0));
        let tasks = (0..200).map(|number: usize| {
            let (locks, inside) = (locks.clone(), inside.clone());
            tokio::spawn(async move {
                let names = [format!("/{}", number % 3), format!("/{}", (number + 1) % 3), "/all".into()];
                let guard = locks.lock(&names.map(PathBuf::from)).await;
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                drop(guard);
            })
        });
        for result in futures::future::join_all(tasks).await {
            result.unwrap();
        }
        assert_eq!(locks.entries(), 0);
    }
}

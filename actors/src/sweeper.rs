//! Keeps the folders of saved outputs small, as long as an engine runs.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use playhouse_tools::outputs;
use playhouse_workspace::Pool;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::base::spawn;

/// How long after a sweep the next one begins.
const PERIOD: Duration = Duration::from_secs(3_600);

/// Sweeps at once, and then every hour. Ends when it is stopped or dropped.
#[derive(Debug)]
pub(crate) struct Sweeper(CancellationToken);

impl Sweeper {
    /// Removes from `folder` what was saved longer than `keep` ago; `None` keeps everything.
    pub(crate) fn start(folder: PathBuf, keep: Option<Duration>, pool: Pool) -> Self {
        Self::start_every(PERIOD, folder, keep, pool)
    }

    /// Starts sweeping, with `period` between two sweeps.
    fn start_every(period: Duration, folder: PathBuf, keep: Option<Duration>, pool: Pool) -> Self {
        let cancel = CancellationToken::new();
        if let Some(keep) = keep {
            let ended = cancel.clone();
            // Not awaited: it holds nothing but the token, and is over soon after that is cancelled.
            drop(spawn(async move {
                let work = sweep_every(period, folder, keep, pool, ended.clone());
                tokio::select! {
                    () = ended.cancelled() => {}
                    () = work => {}
                }
            }));
        }
        Self(cancel)
    }

    /// Cancelled when it is stopped.
    pub(crate) fn token(&self) -> CancellationToken {
        self.0.clone()
    }

    pub(crate) fn stop(&self) {
        self.0.cancel();
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn sweep_every(
    period: Duration,
    folder: PathBuf,
    keep: Duration,
    pool: Pool,
    cancel: CancellationToken,
) {
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // Before the beginning of time nothing was saved.
        let Some(time) = SystemTime::now().checked_sub(keep) else { continue };
        let (place, cancel) = (folder.clone(), cancel.clone());
        match pool.run(move || outputs::sweep(&place, time, &cancel)).await {
            Ok(swept) if swept == outputs::Swept::default() => {}
            Ok(swept) => tracing::info!(?swept, "old outputs were removed"),
            Err(error) => tracing::warn!(%error, "old outputs cannot be removed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);
    /// The time between two sweeps.
    const AGAIN: Duration = Duration::from_millis(20);

    /// An output that a session saved so long ago.
    fn saved(folder: &Path, number: u64, age: Duration) -> PathBuf {
        let path = folder.join(format!("ses_{number:012x}Sess1234567890/prt.txt"));
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(&path, "x").unwrap();
        let file = fs_err::File::options().write(true).open(&path).unwrap();
        file.file().set_modified(SystemTime::now() - age).unwrap();
        path
    }

    /// Waits until the file is gone.
    async fn gone(path: &Path) {
        let gone = async {
            while path.exists() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), gone).await.expect("it is removed");
    }

    #[tokio::test]
    async fn it_sweeps_at_once_and_then_again_and_again_until_it_is_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().to_owned();
        let pool = Pool::new(1);
        let begun = tokio::time::Instant::now();
        let first = saved(&place, 1, 3 * HOUR);
        let sweeper = Sweeper::start_every(AGAIN, place.clone(), Some(2 * HOUR), pool.clone());
        gone(&first).await;
        // The pool has one place, so that no sweep is under way meanwhile.
        let save = move || (saved(&place, 2, 3 * HOUR), saved(&place, 3, HOUR));
        let (second, young) = pool.run(save).await;
        gone(&second).await;
        assert!(begun.elapsed() >= AGAIN && young.exists());
        sweeper.stop();
        pool.run(|| ()).await;
        let third = saved(folder.path(), 4, 3 * HOUR);
        tokio::time::sleep(5 * AGAIN).await;
        assert!(third.exists());
    }

    #[tokio::test]
    async fn without_a_limit_everything_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let old = saved(folder.path(), 1, 1_000 * HOUR);
        let _sweeper = Sweeper::start_every(AGAIN, folder.path().to_owned(), None, Pool::new(1));
        tokio::time::sleep(5 * AGAIN).await;
        assert!(old.exists());
    }
}

//! Sinks are told hour by hour that the ledger is closed, behind the rows of that hour, and once however often they are killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_exporters::{Exporters, Feed as _, LedgerFeed, SinkConfig, SinkKind, Surroundings, Timer};
use playhouse_protocol::Timestamp;
use playhouse_store::Store;
use serde_json::Value;
use tokio::sync::{Semaphore, watch};

use crate::lives::sink;

const HOUR: u64 = 3_600_000;

/// The first hour of a day.
const BEGIN: u64 = 20_700 * 24 * HOUR;

fn lines(folder: &std::path::Path) -> Vec<Value> {
    let mut paths: Vec<_> = fs_err::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let text: String = paths.into_iter().map(|path| fs_err::read_to_string(path).unwrap()).collect();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Clocks that a test moves.
struct Clocks {
    /// What the wall clock shows beyond the monotonic one, in milliseconds.
    wall: AtomicU64,
    /// What the monotonic one shows, in milliseconds.
    elapsed: watch::Sender<u64>,
    /// Sleeps that were begun.
    asleep: Semaphore,
}

impl Clocks {
    fn at(wall: u64) -> Arc<Self> {
        Arc::new(Self {
            wall: AtomicU64::new(wall),
            elapsed: watch::Sender::new(0),
            asleep: Semaphore::new(0),
        })
    }

    fn surroundings(self: &Arc<Self>) -> Surroundings {
        let clocks = Arc::clone(self);
        let clock =
            move || Timestamp::from_millis(clocks.wall.load(Ordering::SeqCst) + *clocks.elapsed.borrow());
        Surroundings { clock: Arc::new(clock), timer: Arc::clone(self) as _, random: Arc::new(|| 0.3) }
    }

    /// Waits until the clocks were looked at, and what follows was done.
    async fn looked_at(&self) {
        tokio::time::timeout(Duration::from_secs(20), self.asleep.acquire()).await.unwrap().unwrap().forget();
    }

    /// A minute passes, and the clocks are looked at once more.
    async fn pass_a_minute(&self) {
        self.elapsed.send_modify(|elapsed| *elapsed += 60_000);
        self.looked_at().await;
    }
}

impl Timer for Clocks {
    fn elapsed(&self) -> Duration {
        Duration::from_millis(*self.elapsed.borrow())
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        let mut elapsed = self.elapsed.subscribe();
        let end = *elapsed.borrow() + u64::try_from(time.as_millis()).unwrap();
        self.asleep.add_permits(1);
        async move { drop(elapsed.wait_for(|elapsed| *elapsed >= end).await) }.boxed()
    }
}

/// A store with a sink that writes files.
struct Setup {
    folder: tempfile::TempDir,
    store: Store,
    feed: Arc<LedgerFeed>,
}

impl Setup {
    fn new() -> Self {
        let store = Store::memory().unwrap();
        let feed = Arc::new(LedgerFeed::new(Arc::clone(&store.ledger)));
        Self { folder: tempfile::tempdir().unwrap(), store, feed }
    }

    /// An engine that has looked at the clocks once.
    async fn start(&self, clocks: &Arc<Clocks>) -> Exporters {
        let config = SinkConfig {
            folder: Some(self.folder.path().to_owned()),
            linger_ms: Some(1),
            ..SinkConfig::new(SinkKind::File)
        };
        let exporters = Exporters::start(
            vec![sink(&config)],
            Arc::clone(&self.feed) as _,
            Arc::clone(&self.store.shelf),
            clocks.surroundings(),
        );
        clocks.looked_at().await;
        exporters
    }

    /// Runs an engine for a minute that ends at this time.
    async fn live(&self, until: u64) {
        let clocks = Clocks::at(until - 60_000);
        let exporters = self.start(&clocks).await;
        clocks.pass_a_minute().await;
        exporters.stop(Duration::from_secs(20)).await;
    }
}

fn closings(told: &[u64]) -> Vec<Value> {
    let line = |until: &u64| serde_json::json!({"type": "ledger.closed", "id": format!("closed_{until}"), "until": until});
    told.iter().map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_hour_that_is_over_is_told_once() {
    let setup = Setup::new();
    // Each life of an engine begins at another time; two of them go back.
    let mut told = Vec::new();
    for (hours, minutes, is_told) in [
        (0, 30, false),
        (0, 59, false),
        (1, 0, false),
        (1, 1, true),
        (1, 30, false),
        (0, 30, false),
        (48, 1, true),
        (47, 5, false),
        (49, 59, true),
    ] {
        setup.live(BEGIN + hours * HOUR + minutes * 60_000).await;
        told.extend(is_told.then_some(BEGIN + hours * HOUR));
        assert_eq!(setup.feed.end(), told.len() as u64, "{hours}:{minutes}");
        assert_eq!(lines(setup.folder.path()), closings(&told), "{hours}:{minutes}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_wrong_at_the_start_closes_nothing() {
    let setup = Setup::new();
    setup.live(BEGIN + 60_000).await;
    let right = BEGIN + HOUR + 5 * 60_000;
    for wrong in [right + 20 * 365 * 24 * HOUR, right + HOUR, 0] {
        let clocks = Clocks::at(wrong);
        let exporters = setup.start(&clocks).await;
        clocks.wall.store(right, Ordering::SeqCst);
        clocks.pass_a_minute().await;
        exporters.stop(Duration::from_secs(20)).await;
        assert_eq!(setup.feed.end(), 0, "the clock was set within that minute");
    }
    let clocks = Clocks::at(right + 20 * 365 * 24 * HOUR);
    let exporters = setup.start(&clocks).await;
    clocks.wall.store(right, Ordering::SeqCst);
    clocks.pass_a_minute().await;
    clocks.pass_a_minute().await;
    exporters.stop(Duration::from_secs(20)).await;
    assert_eq!(lines(setup.folder.path()), closings(&[BEGIN + HOUR]));
}

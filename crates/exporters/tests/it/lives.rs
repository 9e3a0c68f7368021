//! Lives of an engine: sinks that are started, killed at any point, and started again.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use playhouse_exporters::{
    Exporters, Feed, Sink, SinkConfig, SinkKind, SinkStatus, Surroundings, SystemTimer,
};
use playhouse_protocol::Timestamp;
use playhouse_store::Shelf;
use secrecy::SecretString;
use tokio::runtime::Runtime;

use crate::ledger::TestFeed;
use crate::server::{Kind, SIGNING_KEY, Server, TOKEN};

/// How long a test waits for what must come.
const DEADLINE: Duration = Duration::from_secs(120);

/// How long a sink may go on with what there is when it is told to end.
pub(crate) const GRACE: Duration = Duration::from_secs(60);

pub(crate) fn surroundings() -> Surroundings {
    let clock = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap())
    };
    Surroundings { clock: Arc::new(clock), timer: Arc::new(SystemTimer::start()), random: Arc::new(|| 0.3) }
}

/// The sink for a server, with short waits.
pub(crate) fn config(server: &Server) -> SinkConfig {
    let kind = match server.kind {
        Kind::OpenMeter => SinkKind::Cloudevents,
        Kind::Polar => SinkKind::Polar,
        Kind::Webhook => SinkKind::Webhook,
        Kind::Report => SinkKind::Report,
    };
    let path = if matches!(kind, SinkKind::Webhook | SinkKind::Report) { "/hook" } else { "" };
    SinkConfig {
        url: Some(format!("{}{path}", server.url())),
        key_env: Some(if kind == SinkKind::Webhook { "SIGNING" } else { "TOKEN" }.to_owned()),
        batch_rows: Some(8),
        linger_ms: Some(1),
        timeout_ms: Some(250),
        retry_first_ms: Some(2),
        retry_longest_ms: Some(10),
        ..SinkConfig::new(kind)
    }
}

pub(crate) fn sink(config: &SinkConfig) -> Sink {
    let vault = |name: &str| match name {
        "TOKEN" => Some(SecretString::from(TOKEN)),
        "SIGNING" => Some(SecretString::from(SIGNING_KEY)),
        _ => None,
    };
    Sink::new("money", config, &vault).unwrap()
}

/// An engine. Dropping it kills it: tasks end where they wait, and threads end what they are at.
pub(crate) struct Engine {
    pub(crate) exporters: Option<Exporters>,
    pub(crate) runtime: Runtime,
}

impl Engine {
    pub(crate) fn start(config: &SinkConfig, feed: &TestFeed, shelf: &Arc<dyn Shelf>) -> Self {
        Self::over(config, Arc::new(feed.clone()), shelf)
    }

    pub(crate) fn over(config: &SinkConfig, feed: Arc<dyn Feed>, shelf: &Arc<dyn Shelf>) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let guard = runtime.enter();
        let exporters = Exporters::start(vec![sink(config)], feed, Arc::clone(shelf), surroundings());
        drop(guard);
        Self { exporters: Some(exporters), runtime }
    }

    pub(crate) fn status(&self) -> SinkStatus {
        self.exporters.as_ref().unwrap().statuses().remove(0)
    }

    /// Waits until the status is as wanted.
    pub(crate) fn wait(&self, what: &str, is: impl Fn(&SinkStatus) -> bool) -> SinkStatus {
        let begun = Instant::now();
        loop {
            let status = self.status();
            if is(&status) {
                return status;
            }
            assert!(begun.elapsed() < DEADLINE, "{what} did not come: {status:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until everything is settled, and stops.
    pub(crate) fn finish(mut self, feed: &TestFeed) -> SinkStatus {
        let end = feed.end();
        let status = self.wait("the end of the feed", |status| status.settled >= end);
        let exporters = self.exporters.take().unwrap();
        self.runtime.block_on(exporters.stop(GRACE));
        status
    }
}

//! The sinks of an engine.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use playhouse_protocol::Timestamp;
use playhouse_store::{Shelf, StoreError};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::closing::close_hours;
use crate::dead::{Retried, Wanted, retry};
use crate::driver::Driver;
use crate::feed::Feed;
use crate::measure::Measures;
use crate::records::RecordError;
use crate::sink::Sink;
use crate::status::{Board, SinkStatus};

/// A clock that nobody sets, and waits by it.
pub trait Timer: Send + Sync {
    /// The time since a moment that stays the same for as long as the timer is there.
    fn elapsed(&self) -> Duration;

    /// Resolves after this time. Dropping it is fine.
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()>;
}

/// The timer of the system, from the moment at which it was made.
#[derive(Clone, Copy, Debug)]
pub struct SystemTimer(Instant);

impl SystemTimer {
    /// One that begins now.
    pub fn start() -> Self {
        Self(Instant::now())
    }
}

impl Timer for SystemTimer {
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        tokio::time::sleep(time).boxed()
    }
}

/// What sinks are given instead of clocks and a source of randomness of their own.
#[derive(Clone)]
pub struct Surroundings {
    /// Wall-clock time.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Monotonic time, by which the ledger is closed.
    pub timer: Arc<dyn Timer>,
    /// A number from 0 to 1, which spreads waits.
    pub random: Arc<dyn Fn() -> f64 + Send + Sync>,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").finish_non_exhaustive()
    }
}

/// Sinks at work, each in a task of its own: one that is stuck holds up no other. Another task closes the ledger hour by
/// hour. Dropping it ends them at once, wherever
/// they are, which loses nothing; [`Exporters::stop`] lets them finish what is under way.
pub struct Exporters {
    feed: Arc<dyn Feed>,
    shelf: Arc<dyn Shelf>,
    surroundings: Surroundings,
    sinks: Vec<Running>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// Nothing more is waited for.
    ending: CancellationToken,
    /// Everything ends at once.
    stop: CancellationToken,
}

/// A sink at work.
struct Running {
    sink: Sink,
    board: Arc<Board>,
    measures: Measures,
    /// Ends a wait after a failure.
    hurry: Arc<Notify>,
}

impl Running {
    /// Ends the wait after a failure, if there is one.
    fn hurry(&self, end: u64) -> bool {
        let waits = self.board.read(end).waits_until.is_some();
        if waits {
            self.hurry.notify_one();
        }
        waits
    }
}

impl fmt::Debug for Exporters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporters").field("sinks", &self.sinks.len()).finish_non_exhaustive()
    }
}

impl Exporters {
    /// Starts the sinks. Needs a tokio runtime around it. Each keeps its cursor on `shelf` under its name.
    pub fn start(
        sinks: Vec<Sink>,
        feed: Arc<dyn Feed>,
        shelf: Arc<dyn Shelf>,
        surroundings: Surroundings,
    ) -> Self {
        let (ending, stop) = (CancellationToken::new(), CancellationToken::new());
        let mut tasks = Vec::new();
        let start = |sink: Sink| {
            let board = Arc::new(Board::new(sink.name(), sink.kind().name()));
            let measures = Measures::of(&sink.name);
            let hurry = Arc::new(Notify::new());
            let driver = Driver {
                sink: sink.clone(),
                feed: Arc::clone(&feed),
                shelf: Arc::clone(&shelf),
                surroundings: surroundings.clone(),
                board: Arc::clone(&board),
                measures: measures.clone(),
                hurry: Arc::clone(&hurry),
                ending: ending.clone(),
                stop: stop.clone(),
            };
            tasks.push(tokio::spawn(driver.run()));
            Running { sink, board, measures, hurry }
        };
        let sinks = sinks.into_iter().map(start).collect();
        tasks.push(tokio::spawn(close_hours(Arc::clone(&feed), surroundings.clone(), ending.clone())));
        Self { feed, shelf, surroundings, sinks, tasks: Mutex::new(tasks), ending, stop }
    }

    /// How far each sink is. Cheap.
    pub fn statuses(&self) -> Vec<SinkStatus> {
        let end = self.feed.end();
        self.sinks.iter().map(|running| running.board.read(end)).collect()
    }

    /// Tells the recorder of metrics how far each sink is. Cheap.
    pub fn observe(&self) {
        let now = (self.surroundings.clock)();
        for (running, status) in self.sinks.iter().zip(self.statuses()) {
            running.measures.observe(&status, now);
        }
    }

    /// Sends dead letters of the sink `name` once more. Where all of them are wanted and the sink waits after a failure, what
    /// waits with it is tried at once, too. `None` where there is no such sink.
    ///
    /// # Errors
    /// The shelf cannot be read or written.
    pub async fn retry(&self, name: &str, wanted: &Wanted) -> Result<Option<Retried>, StoreError> {
        let Some(running) = self.sinks.iter().find(|running| running.sink.name() == name) else {
            return Ok(None);
        };
        let hurried =
            *wanted == Wanted { limit: wanted.limit, ..Wanted::ALL } && running.hurry(self.feed.end());
        let mut retried = retry(&running.sink, &self.shelf, wanted, &self.surroundings).await?;
        retried.hurried = hurried;
        running.board.change(|status| {
            status.dead_letters = status.dead_letters.saturating_sub(retried.delivered);
        });
        Ok(Some(retried))
    }

    /// Stops all sinks. Within `time` they deliver what is in the feed now, without waiting for more and without trying again
    /// what fails; what is left then waits for the next start. Their cursors are saved. The second time it does nothing.
    pub async fn stop(&self, time: Duration) {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        self.ending.cancel();
        let mut ended = join_all(tasks);
        let ended = match tokio::time::timeout(time, &mut ended).await {
            Ok(ended) => ended,
            Err(_) => {
                self.stop.cancel();
                ended.await
            }
        };
        for (running, ended) in self.sinks.iter().zip(ended) {
            if let Err(error) = ended {
                tracing::error!(sink = running.sink.name(), %error, "a sink crashed");
            }
        }
    }
}

impl Drop for Exporters {
    fn drop(&mut self) {
        for task in self.tasks.get_mut() {
            task.abort();
        }
    }
}

/// As what others know it.
pub(crate) fn store_error(error: RecordError) -> StoreError {
    match error {
        RecordError::Store(error) => error,
        other => StoreError::Backend(other.to_string()),
    }
}

//! The sinks of an engine.

use std::fmt;
use std::sync::Arc;

use playhouse_protocol::Timestamp;
use playhouse_store::{Shelf, StoreError};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::dead::{Retried, retry};
use crate::driver::Driver;
use crate::feed::Feed;
use crate::records::{RecordError, Records};
use crate::sink::Sink;
use crate::status::{Board, SinkStatus};

/// What sinks are given instead of a clock and a source of randomness of their own.
#[derive(Clone)]
pub struct Surroundings {
    /// Wall-clock time.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// A number from 0 to 1, which spreads waits.
    pub random: Arc<dyn Fn() -> f64 + Send + Sync>,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").finish_non_exhaustive()
    }
}

/// Sinks at work, each in a task of its own: one that is stuck holds up no other. Dropping it ends them at once, wherever
/// they are, which loses nothing; [`Exporters::stop`] lets them finish what is under way.
pub struct Exporters {
    feed: Arc<dyn Feed>,
    shelf: Arc<dyn Shelf>,
    surroundings: Surroundings,
    sinks: Vec<Running>,
    stop: CancellationToken,
}

/// A sink at work.
struct Running {
    sink: Sink,
    board: Arc<Board>,
    task: JoinHandle<()>,
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
        let stop = CancellationToken::new();
        let start = |sink: Sink| {
            let board = Arc::new(Board::new(sink.name(), sink.kind().name()));
            let driver = Driver {
                sink: sink.clone(),
                feed: Arc::clone(&feed),
                shelf: Arc::clone(&shelf),
                surroundings: surroundings.clone(),
                board: Arc::clone(&board),
                stop: stop.clone(),
            };
            Running { sink, board, task: tokio::spawn(driver.run()) }
        };
        let sinks = sinks.into_iter().map(start).collect();
        Self { feed, shelf, surroundings, sinks, stop }
    }

    /// How far each sink is. Cheap.
    pub fn statuses(&self) -> Vec<SinkStatus> {
        let end = self.feed.end();
        self.sinks.iter().map(|running| running.board.read(end)).collect()
    }

    /// Sends dead letters of the sink `name` once more: those with these ids, or all. `None` where there is no such sink.
    ///
    /// # Errors
    /// The shelf cannot be read or written.
    pub async fn retry(&self, name: &str, ids: Option<&[String]>) -> Result<Option<Retried>, StoreError> {
        let Some(running) = self.sinks.iter().find(|running| running.sink.name() == name) else {
            return Ok(None);
        };
        let retried = retry(&running.sink, &self.shelf, ids, &self.surroundings).await?;
        running.board.change(|status| {
            status.dead_letters = status.dead_letters.saturating_sub(retried.delivered);
        });
        Ok(Some(retried))
    }

    /// Stops all sinks: what is under way may end (for 3 seconds at most), and their cursors are saved.
    pub async fn stop(mut self) {
        self.stop.cancel();
        for running in &mut self.sinks {
            if let Err(error) = (&mut running.task).await {
                tracing::error!(sink = running.sink.name(), %error, "a sink crashed");
            }
        }
        self.sinks.clear();
    }
}

impl Drop for Exporters {
    fn drop(&mut self) {
        for running in &self.sinks {
            running.task.abort();
        }
    }
}

/// The number up to which no sink of these names needs the feed any more: rows behind it must not be archived. A sink that
/// never began counts as 0. `None` without names. Blocks.
///
/// # Errors
/// The shelf cannot be read.
pub fn exported_up_to<'a>(
    shelf: &Arc<dyn Shelf>,
    names: impl IntoIterator<Item = &'a str>,
) -> Result<Option<u64>, StoreError> {
    let cursors = names.into_iter().map(|name| {
        let saved = Records::new(Arc::clone(shelf), name).load().map_err(store_error)?;
        Ok(saved.map_or(0, |saved| saved.cursor.after))
    });
    Ok(cursors.collect::<Result<Vec<u64>, StoreError>>()?.into_iter().min())
}

/// As what others know it.
pub(crate) fn store_error(error: RecordError) -> StoreError {
    match error {
        RecordError::Store(error) => error,
        other => StoreError::Backend(other.to_string()),
    }
}

//! When an engine has nothing to do: no client is connected, and no turn runs or waits for an answer.

use std::collections::HashSet;
use std::time::Duration;

use playhouse_protocol::{CommandError, SessionId};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::app::App;

/// How often it is looked, at most and at least.
const LOOK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// How long after it was asked to leave an engine still does. Whoever waits for that asks again much sooner.
const ASKED: Duration = Duration::from_secs(1);

/// Waits until there was nothing to do for `time`, or at all while somebody asks it to leave, and leaves the server taking
/// no new work. `connections` are those that are open.
pub(crate) async fn idle(app: &App, connections: &TaskTracker, time: Duration) {
    let look = (time / 8).clamp(LOOK.0, LOOK.1);
    let (mut since, mut heard) = (Instant::now(), app.operator_requests());
    // When somebody asked it to leave: then it waits for nothing but the others that need it.
    let mut asked: Option<Instant> = None;
    loop {
        tokio::select! {
            () = tokio::time::sleep(if asked.is_some() { LOOK.0 } else { look }) => {}
            () = app.leaving().notified() => asked = Some(Instant::now()),
        }
        asked = asked.filter(|asked| asked.elapsed() < ASKED);
        let leaving = asked.is_some();
        let requests = app.operator_requests();
        let came = std::mem::replace(&mut heard, requests) != requests;
        // Whoever came and went between two looks counts too.
        if !connections.is_empty() || is_busy(app).await || (came && !leaving) {
            since = Instant::now();
            continue;
        }
        if since.elapsed() < time && !leaving {
            continue;
        }
        // From here on a client is told that the engine ends, and goes elsewhere. One that was told the opposite before is
        // connected still, and is not left alone.
        app.drain();
        if connections.is_empty() && app.operator_requests() == heard && !is_busy(app).await {
            return;
        }
        app.resume();
        since = Instant::now();
    }
}

/// Whether a turn is not over. One that cannot go on does not count: its session is parked.
async fn is_busy(app: &App) -> bool {
    let unfinished = app.engine().unfinished().await.unwrap_or_default();
    let mut parked: HashSet<SessionId> = HashSet::new();
    for id in &unfinished {
        if let Err(CommandError::Parked { .. }) = app.engine().session(*id).await {
            parked.insert(*id);
        }
    }
    parked.len() < unfinished.len()
}

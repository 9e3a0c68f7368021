//! Closes the ledger hour by hour, so that receivers know when a period is whole.
//!
//! A row has the time at which its end was written, so that only an append that is under way can be late. It is on its way to
//! the store for milliseconds: an hour is closed when it is over for [`GRACE_MS`]. An hour that is over while no engine runs
//! is closed at the next start. Rows of requests that were lost with an engine are of the time at which their session wakes.

use std::sync::Arc;
use std::time::Duration;

use playhouse_protocol::Timestamp;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::exporters::Surroundings;
use crate::feed::Feed;

const HOUR_MS: u64 = 3_600_000;

/// How long an hour has to be over.
const GRACE_MS: u64 = 60_000;

/// The longest time until the clock is looked at again: it may be set.
const LONGEST_WAIT_MS: u64 = 60_000;

/// The latest time up to which the ledger may be closed now.
fn due(now: Timestamp) -> Timestamp {
    let millis = now.as_millis().saturating_sub(GRACE_MS);
    Timestamp::from_millis(millis - millis % HOUR_MS)
}

/// How long it takes until that is another, in milliseconds.
fn wait(now: Timestamp) -> u64 {
    let next = due(now).as_millis().saturating_add(HOUR_MS + GRACE_MS);
    next.saturating_sub(now.as_millis()).clamp(1, LONGEST_WAIT_MS)
}

/// Closes each hour when it is due, until the engine ends.
pub(crate) async fn close_hours(feed: Arc<dyn Feed>, surroundings: Surroundings, ending: CancellationToken) {
    let mut closed = Timestamp::from_millis(0);
    loop {
        let now = (surroundings.clock)();
        let until = due(now);
        if until > closed {
            let feed = Arc::clone(&feed);
            match spawn_blocking(move || feed.close(until)).await {
                Ok(Ok(())) => closed = until,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the ledger cannot be closed now: it is tried again")
                }
                Err(error) => tracing::error!(%error, "closing the ledger crashed"),
            }
        }
        tokio::select! {
            () = ending.cancelled() => return,
            () = tokio::time::sleep(Duration::from_millis(wait(now))) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_closed_when_it_is_over_for_a_while() {
        let at = |millis| Timestamp::from_millis(millis);
        for (now, until, wait_ms) in [
            (0, 0, LONGEST_WAIT_MS),
            (HOUR_MS, 0, GRACE_MS),
            (HOUR_MS + GRACE_MS - 1, 0, 1),
            (HOUR_MS + GRACE_MS, HOUR_MS, LONGEST_WAIT_MS),
            (2 * HOUR_MS, HOUR_MS, GRACE_MS),
            (2 * HOUR_MS + 20_000, HOUR_MS, 40_000),
        ] {
            assert_eq!((due(at(now)), wait(at(now))), (at(until), wait_ms), "{now}");
        }
        assert!(wait(at(u64::MAX)) > 0);
    }
}

//! Closes the ledger hour by hour, so that receivers know when a period is whole.
//!
//! A row has the time at which its end was written, so that only an append that is under way can be late. It is on its way to
//! the store for milliseconds: an hour is closed when it is over for [`GRACE_MS`]. An hour that is over while no engine runs
//! is closed after the next start. Rows of requests that were lost with an engine are of the time at which their session wakes.
//!
//! A closing cannot be taken back, and a wall clock may be wrong until it is synchronized: nothing is closed before it has
//! agreed with the monotonic clock for [`AGREEMENT`], see [`Agreement`].

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

/// How long the wall clock has to agree with the monotonic one.
const AGREEMENT: Duration = Duration::from_secs(60);

/// The most that the two may differ, in milliseconds. A clock that is slewed is off by less within hours.
const TOLERANCE_MS: u64 = 10_000;

/// Since when the wall clock and the monotonic one agree.
#[derive(Debug, Default)]
struct Agreement {
    /// The readings of both when that began.
    since: Option<(Timestamp, Duration)>,
}

impl Agreement {
    /// For how long they agree. Zero where the wall clock was set since the reading before.
    fn look(&mut self, wall: Timestamp, elapsed: Duration) -> Duration {
        let (first, begun) = *self.since.get_or_insert((wall, elapsed));
        let agreed = elapsed.saturating_sub(begun);
        let expected =
            first.as_millis().saturating_add(u64::try_from(agreed.as_millis()).unwrap_or(u64::MAX));
        if wall.as_millis().abs_diff(expected) > TOLERANCE_MS {
            self.since = Some((wall, elapsed));
            return Duration::ZERO;
        }
        agreed
    }
}

/// The latest time up to which the ledger may be closed now.
fn due(now: Timestamp) -> Timestamp {
    let millis = now.as_millis().saturating_sub(GRACE_MS);
    Timestamp::from_millis(millis - millis % HOUR_MS)
}

/// How long it takes until that is another.
fn wait(now: Timestamp) -> Duration {
    let next = due(now).as_millis().saturating_add(HOUR_MS + GRACE_MS);
    Duration::from_millis(next.saturating_sub(now.as_millis()).clamp(1, LONGEST_WAIT_MS))
}

/// Closes each hour when it is due and the clocks agree, until the engine ends.
pub(crate) async fn close_hours(feed: Arc<dyn Feed>, surroundings: Surroundings, ending: CancellationToken) {
    let mut closed = Timestamp::from_millis(0);
    let mut agreement = Agreement::default();
    loop {
        let now = (surroundings.clock)();
        let missing = AGREEMENT.saturating_sub(agreement.look(now, surroundings.timer.elapsed()));
        let until = due(now);
        if until > closed && missing.is_zero() {
            let feed = Arc::clone(&feed);
            match spawn_blocking(move || feed.close(until)).await {
                Ok(Ok(())) => closed = until,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the ledger cannot be closed now: it is tried again")
                }
                Err(error) => tracing::error!(%error, "closing the ledger crashed"),
            }
        }
        let pause = if missing.is_zero() { wait(now) } else { missing };
        tokio::select! {
            () = ending.cancelled() => return,
            () = surroundings.timer.sleep(pause) => {}
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
            assert_eq!((due(at(now)), wait(at(now))), (at(until), Duration::from_millis(wait_ms)), "{now}");
        }
        assert!(wait(at(u64::MAX)) > Duration::ZERO);
    }

    #[test]
    fn clocks_agree_from_the_moment_at_which_the_wall_clock_was_set() {
        let mut agreement = Agreement::default();
        for (seconds, wall_ms, agreed) in [
            (5, 1_000_000, 0),
            (35, 1_030_000, 30),
            // Slewed a little, and then set, in both directions.
            (65, 1_069_000, 60),
            (75, 9_000_000, 0),
            (95, 9_020_000, 20),
            (105, 1_100_000, 0),
            (165, 1_160_000, 60),
        ] {
            let look = agreement.look(Timestamp::from_millis(wall_ms), Duration::from_secs(seconds));
            assert_eq!(look, Duration::from_secs(agreed), "{seconds}");
        }
    }
}

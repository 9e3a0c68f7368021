//! When a turn began, from its ids alone.
//!
//! Rows do not say it, and each of them has times of its own. Ids hold the low bits of the time at which they were made: with
//! a row to tell in which 795 days that was, the same turn gives the same time, by whichever of its rows. Nothing is kept by
//! it: it is what people see of an event that holds no usage.

use playhouse_protocol::{LedgerRow, Timestamp};

/// After so many milliseconds the time in ids begins anew.
const PERIOD: u64 = 1 << 36;
/// The digits of an id that hold time and counter, and the bits of the counter.
const DIGITS: std::ops::Range<usize> = 4..16;
const COUNTER: u32 = 12;
/// Clients may make the ids of their prompts, and their clocks may be so far ahead, in milliseconds. What is told is so much
/// earlier, because no event may lie in the future.
const AHEAD: u64 = 5 * 60_000;
/// The longest turn. A time before that is none: whoever made the id did not put one into it.
const LONGEST: u64 = 30 * 24 * 3_600_000;

/// The time of the turn of `row`, which is before the row: about when its prompt came, or else when its session was made.
pub(super) fn turn_time(row: &LedgerRow) -> Timestamp {
    let started = row.started.as_millis();
    let of_turn = low_bits(row.turn.as_str())
        .and_then(|low| latest(low, started.saturating_add(AHEAD)))
        .filter(|at| started.saturating_sub(*at) <= LONGEST);
    // Bits of sessions are inverted, so that newer ones sort first.
    let of_session = || low_bits(row.session.as_str()).and_then(|low| latest(PERIOD - 1 - low, started));
    let at = of_turn.map(|at| at.saturating_sub(AHEAD)).or_else(of_session);
    Timestamp::from_millis(at.unwrap_or(0))
}

/// The milliseconds in an id, without the high bits.
fn low_bits(id: &str) -> Option<u64> {
    u64::from_str_radix(id.get(DIGITS)?, 16).ok().map(|bits| bits >> COUNTER)
}

/// The latest time with these low bits that is not after `limit`; none before 1970.
fn latest(low: u64, limit: u64) -> Option<u64> {
    limit.checked_sub((limit.wrapping_sub(low)) % PERIOD)
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::{IdGenerator, MessageId};

    use super::*;
    use crate::export::samples::{START, row};

    /// The time of a turn for a row that began at `started`, whose id was made at `made` in a session of `session`.
    fn told(session: u64, made: u64, started: u64) -> u64 {
        let mut ids = IdGenerator::new(|bytes| bytes.fill(1));
        let mut row = row(1, 1, "m");
        row.session = ids.next(Timestamp::from_millis(session));
        row.turn = IdGenerator::new(|bytes| bytes.fill(1)).next(Timestamp::from_millis(made));
        row.started = Timestamp::from_millis(started);
        turn_time(&row).as_millis()
    }

    #[test]
    fn it_is_that_of_the_prompt_whatever_the_row() {
        let day = 24 * 3_600_000;
        // The last one is in the next 795 days.
        for made in [START, START + 7, START + PERIOD] {
            for later in [0, 1, 60_000, day, 29 * day] {
                assert_eq!(told(made - 5_000, made, made + later), made - AHEAD, "{made} {later}");
            }
        }
        // A client whose clock is two minutes ahead.
        for started in [START, START + 120_001] {
            assert_eq!(told(START - 1, START + 120_000, started), START + 120_000 - AHEAD);
        }
    }

    #[test]
    fn an_id_that_holds_no_time_gives_that_of_the_session() {
        let day = 24 * 3_600_000;
        for made in [START - 40 * day, START + day, 0, START + PERIOD / 2] {
            for later in [0, 1_000, day / 2] {
                assert_eq!(told(START - 9, made, START + later), START - 9, "{made} {later}");
            }
        }
    }

    #[test]
    fn it_is_never_in_the_future_and_no_id_is_too_odd() {
        let mut row = row(1, 1, "m");
        for time in ["000000000000", "ffffffffffff", "800000000000"] {
            row.turn = MessageId::parse(&format!("msg_{time}AAAAAAAAAAAAAA")).unwrap();
            for started in [0, 1, START, u64::MAX] {
                row.started = Timestamp::from_millis(started);
                assert!(turn_time(&row) <= row.started, "{time} {started}");
            }
        }
    }
}

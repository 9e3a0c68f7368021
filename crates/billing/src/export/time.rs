//! Times as text.

use playhouse_protocol::Timestamp;
use playhouse_protocol::day::{DAY, Day};

/// `time` as RFC 3339 in UTC, with milliseconds: `2027-01-15T08:00:00.000Z`.
///
/// ```
/// use playhouse_billing::export::time::rfc3339;
/// use playhouse_protocol::Timestamp;
/// assert_eq!(rfc3339(Timestamp::from_millis(1_800_000_000_123)), "2027-01-15T08:00:00.123Z");
/// ```
pub fn rfc3339(time: Timestamp) -> String {
    let millis = time.as_millis();
    let date = Day::of(time);
    let rest = millis % DAY;
    let (hour, minute, second) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1_000 % 60);
    format!("{date}T{hour:02}:{minute:02}:{second:02}.{:03}Z", rest % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_time_is_no_overflow() {
        assert!(rfc3339(Timestamp::from_millis(u64::MAX)).ends_with("Z"));
        assert_eq!(rfc3339(Timestamp::from_millis(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(Timestamp::from_millis(951_782_399_999)), "2000-02-28T23:59:59.999Z");
    }
}

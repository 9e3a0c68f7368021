//! Times as text.

use playhouse_protocol::Timestamp;

const DAY: u64 = 86_400_000;

/// `time` as RFC 3339 in UTC, with milliseconds: `2027-01-15T08:00:00.000Z`.
///
/// ```
/// use playhouse_billing::export::time::rfc3339;
/// use playhouse_protocol::Timestamp;
/// assert_eq!(rfc3339(Timestamp::from_millis(1_800_000_000_123)), "2027-01-15T08:00:00.123Z");
/// ```
pub fn rfc3339(time: Timestamp) -> String {
    let millis = time.as_millis();
    let (year, month, day) = date(millis / DAY);
    let rest = millis % DAY;
    let (hour, minute, second) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1_000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", rest % 1_000)
}

/// Year, month and day of a day that is counted from 1970-01-01. It counts in eras of 400 years that begin on the first of
/// March, so that the day of a leap year is the last of its year.
fn date(day: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097;
    let day = day + 719_468;
    let (era, day) = (day / ERA, day % ERA);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_each_other() {
        let is_leap =
            |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
        let (mut year, mut month, mut last) = (1970, 1, 1);
        for day in 0..200_000 {
            assert_eq!(date(day), (year, month, last));
            let length = match month {
                2 if is_leap(year) => 29,
                2 => 28,
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            last += 1;
            if last > length {
                (month, last) = (month + 1, 1);
            }
            if month > 12 {
                (year, month) = (year + 1, 1);
            }
        }
    }

    #[test]
    fn the_largest_time_is_no_overflow() {
        assert!(rfc3339(Timestamp::from_millis(u64::MAX)).ends_with("Z"));
        assert_eq!(rfc3339(Timestamp::from_millis(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(Timestamp::from_millis(951_782_399_999)), "2000-02-28T23:59:59.999Z");
    }
}

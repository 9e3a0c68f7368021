//! Days as they stand in bills: in UTC, whole, written `2026-11-22`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::time::Timestamp;

/// Milliseconds of a day.
pub const DAY: u64 = 24 * 3_600 * 1_000;

/// A day in UTC, as its number: 0 is 1970-01-01. Read and written as `YYYY-MM-DD`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Day(pub u64);

/// A text that is not a day.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("\"{0}\" is not a day: write it as YYYY-MM-DD, as in 2026-11-22")]
pub struct DayError(String);

impl Day {
    /// The day of this time.
    pub const fn of(time: Timestamp) -> Self {
        Self(time.as_millis() / DAY)
    }

    /// When it begins.
    pub const fn start(self) -> Timestamp {
        Timestamp::from_millis(self.0.saturating_mul(DAY))
    }

    /// The next one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Year, month and day. It counts in eras of 400 years that begin on the first of March, so that the day of a leap
    /// year is the last of its year.
    pub const fn date(self) -> (u64, u64, u64) {
        let day = self.0.saturating_add(TO_ERA);
        let (era, day) = (day / ERA, day % ERA);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        (era * 400 + year + (month <= 2) as u64, month, day)
    }

    /// The day of this date, if there is one.
    fn of_date(year: u64, month: u64, day: u64) -> Option<Self> {
        if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        let from_march = if month <= 2 { year - 1 } else { year };
        let (era, year_of_era) = (from_march / 400, from_march % 400);
        let month_of_year = if month > 2 { month - 3 } else { month + 9 };
        let day_of_year = (153 * month_of_year + 2) / 5 + day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        let found = Self((era * ERA + day_of_era).checked_sub(TO_ERA)?);
        // The 31st of a month that has none would be a day of the next.
        (found.date() == (year, month, day)).then_some(found)
    }
}

/// Days of 400 years.
const ERA: u64 = 146_097;
/// Days from the beginning of the first era to 1970-01-01.
const TO_ERA: u64 = 719_468;

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.date();
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

impl FromStr for Day {
    type Err = DayError;

    fn from_str(text: &str) -> Result<Self, DayError> {
        let refuse = || DayError(text.chars().take(64).collect());
        let digits = |part: Option<&str>, length: usize| {
            part.filter(|part| part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|part| part.parse::<u64>().ok())
        };
        let mut parts = text.split('-');
        let date = (digits(parts.next(), 4), digits(parts.next(), 2), digits(parts.next(), 2));
        let (Some(year), Some(month), Some(day)) = date else { return Err(refuse()) };
        if parts.next().is_some() {
            return Err(refuse());
        }
        Self::of_date(year, month, day).ok_or_else(refuse)
    }
}

crate::as_text!(Day);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_each_other_and_are_read_back() {
        let is_leap =
            |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
        let (mut year, mut month, mut last) = (1970, 1, 1);
        for number in 0..200_000 {
            let day = Day(number);
            assert_eq!(day.date(), (year, month, last));
            assert_eq!(day.to_string().parse(), Ok(day));
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
    fn what_is_no_day_is_refused() {
        for text in ["", "2026", "2026-11", "2026-13-01", "2026-02-29", "2026-11-31", "2026-11-22-1"] {
            assert!(text.parse::<Day>().is_err(), "{text}");
        }
        for text in ["+026-11-22", "2026-1-02", "1969-12-31", "2026-11-22T00:00"] {
            assert!(text.parse::<Day>().is_err(), "{text}");
        }
        assert_eq!("1970-01-01".parse(), Ok(Day(0)));
    }

    #[test]
    fn the_largest_time_is_no_overflow() {
        let latest = Timestamp::from_millis(u64::MAX);
        let last = Day::of(latest);
        assert!(last.start() <= latest && last.next() > last);
        assert!(!Day(u64::MAX).to_string().is_empty());
        assert_eq!(Day(u64::MAX).start(), Timestamp::from_millis(u64::MAX));
    }
}

//! How long a provider asks to wait.

use std::time::SystemTime;

use serde_json::Value;

use super::header;

/// The time from which dates are counted.
pub(super) type Now = SystemTime;

/// Fields of a body that say how long to wait, in seconds.
const SECONDS: [&str; 5] =
    ["retry_after", "retry_after_seconds", "resets_in_seconds", "reset_in_seconds", "reset_after_seconds"];
/// Fields of a body that say until when, in seconds or milliseconds since 1970, or as a date.
const MOMENTS: [&str; 2] = ["resets_at", "reset_at"];
/// Headers that say until when, the same way. Others of such names count what is left although nothing is used up.
const MOMENT_HEADERS: [&str; 2] = ["x-ratelimit-reset", "anthropic-ratelimit-unified-reset"];

/// What the headers ask for, in milliseconds. A date is counted from the server's own `date`, so that clocks need not
/// agree; where it gives none, from `now`. `is_limited`: whether a limit was refused; else headers that say when one begins anew
/// mean nothing.
pub(super) fn retry_after_ms(headers: &[(String, String)], is_limited: bool, now: Now) -> Option<u64> {
    let number = |name| header(headers, name)?.trim().parse::<f64>().ok();
    let millis = |number: f64| (number >= 0.0).then(|| whole(number));
    if let Some(wait) = number("retry-after-ms").and_then(millis) {
        return Some(wait);
    }
    if let Some(seconds) = number("retry-after") {
        return millis(seconds * 1000.0);
    }
    let date = |name| httpdate::parse_http_date(header(headers, name)?.trim()).ok();
    let Some(end) = date("retry-after") else {
        let moments = MOMENT_HEADERS.iter().filter(|_| is_limited);
        return moments.filter_map(|name| until(number(name)?, now)).next();
    };
    let wait = end.duration_since(date("date").unwrap_or(now)).unwrap_or_default();
    Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
}

/// What the fields of an error ask for, in milliseconds.
pub(super) fn field_wait_ms(error: &Value, now: Now) -> Option<u64> {
    let number = |value: &Value| value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
    let seconds = SECONDS.iter().find_map(|name| number(error.get(*name)?));
    let wait = seconds.filter(|seconds| *seconds >= 0.0).map(|seconds| whole(seconds * 1_000.0));
    let moment = || {
        let value = MOMENTS.iter().find_map(|name| error.get(*name))?;
        match number(value) {
            Some(number) => until(number, now),
            None => since_epoch_ms(value.as_str()?).and_then(|end| left(end, now)),
        }
    };
    // A gateway that repeats the headers of whom it asked.
    let repeated = || {
        let headers = error.get("metadata")?.get("headers")?.as_object()?;
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let headers: Vec<(String, String)> =
            headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), text(value))).collect();
        retry_after_ms(&headers, true, now)
    };
    wait.or_else(moment).or_else(repeated)
}

/// What a message asks for in words, in milliseconds: a time (`Please try again in 6s`, `in 1m2.5s`, `Resets in 16 days`) or
/// a date (`resets at 2026-12-01T00:00:00Z`), which counts as UTC.
pub(super) fn told_wait_ms(message: &str, now: Now) -> Option<u64> {
    let lower = message.to_ascii_lowercase();
    let behind = |words: &str| lower.split_once(words).map(|(_, rest)| rest);
    let times = ["again", "retry", "reset", "resets", "available", "renews", "refreshes"];
    let time = times.iter().find_map(|word| {
        let rest = behind(&format!("{word} in ")).or_else(|| behind(&format!("{word} after ")))?;
        duration_ms(rest)
    });
    let date = || {
        let dates = ["reset", "regain access", "again", "until", "available", "renew", "refresh"];
        dates.iter().find_map(|word| {
            // The date is one of the next words.
            let mut words = behind(word)?.split_inclusive(' ').take(4);
            let rest = behind(word)?;
            let mut at = 0;
            words.find_map(|word| {
                let end = since_epoch_ms(&rest[at..]);
                at += word.len();
                end
            })
        })
    };
    time.or_else(|| left(date()?, now))
}

/// The milliseconds until a moment in seconds or milliseconds since 1970; `None` for what is no moment to come.
fn until(moment: f64, now: Now) -> Option<u64> {
    // Less is before 2001, or a number of seconds that are left.
    const LEAST: f64 = 1e9;
    match moment {
        ..LEAST => None,
        _ if moment < LEAST * 100.0 => left(whole(moment * 1_000.0), now),
        _ => left(whole(moment), now),
    }
}

/// The milliseconds from `now` to a moment in milliseconds since 1970; `None` if it has passed.
fn left(end: u64, now: Now) -> Option<u64> {
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    end.checked_sub(u64::try_from(now.as_millis()).ok()?).filter(|left| *left > 0)
}

/// Milliseconds since 1970 of the date at the beginning of `text` (`2026-12-01`, `2026-12-01T08:30:00Z`,
/// `2026-12-01 at 08:30`).
fn since_epoch_ms(text: &str) -> Option<u64> {
    let part = |text: &str, range: std::ops::Range<usize>| text.get(range)?.parse::<u64>().ok();
    let (year, month, day) = (part(text, 0..4)?, part(text, 5..7)?, part(text, 8..10)?);
    let is_date = text.get(4..5) == Some("-") && text.get(7..8) == Some("-");
    if !is_date || !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years begin in March, so that a leap day is the last of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    let rest = text[10..].trim_start_matches(['t', 'T', ' ']).trim_start_matches("at ");
    let clock = (rest.get(2..3) == Some(":"))
        .then(|| Some((part(rest, 0..2)?, part(rest, 3..5)?, part(rest, 6..8).unwrap_or(0))));
    let (hours, minutes, seconds) = clock.flatten().unwrap_or_default();
    // Days from 0000-03-01 to 1970-01-01.
    let seconds = days.checked_sub(719_468)? * 86_400 + hours * 3_600 + minutes * 60 + seconds;
    Some(seconds * 1_000)
}

/// The duration at the beginning of `text`, one or more numbers with their units, in milliseconds.
fn duration_ms(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut millis = None;
    while rest.starts_with(|first: char| first.is_ascii_digit()) {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit) = rest.split_at(end);
        let unit = unit.trim_start_matches(' ');
        let unit_end = unit.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unit.len());
        let (unit, after) = unit.split_at(unit_end);
        let factor = match unit {
            "ms" | "millisecond" | "milliseconds" => 1.0,
            "s" | "sec" | "secs" | "second" | "seconds" => 1_000.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60_000.0,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3_600_000.0,
            "d" | "day" | "days" => 86_400_000.0,
            "w" | "week" | "weeks" => 7.0 * 86_400_000.0,
            "month" | "months" => 30.0 * 86_400_000.0,
            // A number without a unit that is known asks for nothing that can be told.
            _ => return millis.map(whole),
        };
        millis = Some(millis.unwrap_or(0.0) + number.parse::<f64>().ok()? * factor);
        rest = after.trim_start_matches([' ', ',']).trim_start_matches("and ");
    }
    millis.map(whole)
}

/// A cast saturates, so that an absurd number becomes a long time.
fn whole(millis: f64) -> u64 {
    millis.ceil() as u64
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::json;

    use super::*;

    fn wait(headers: &[(&str, &str)]) -> Option<u64> {
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        retry_after_ms(&headers, true, now())
    }

    const DAY: u64 = 86_400_000;

    /// Wed, 21 Oct 2026 07:28:00 GMT
    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_792_567_680)
    }

    #[test]
    fn a_date_is_counted_from_the_servers_clock_or_from_ours() {
        let later = ("retry-after", "Wed, 21 Oct 2026 07:28:30 GMT");
        assert_eq!(wait(&[later]), Some(30_000));
        assert_eq!(wait(&[later, ("date", "Wed, 21 Oct 2026 07:28:20 GMT")]), Some(10_000));
        assert_eq!(wait(&[later, ("date", "yesterday")]), Some(30_000));
        assert_eq!(wait(&[("retry-after", "Wed, 21 Oct 2026 07:27:00 GMT")]), Some(0), "it has passed");
        assert_eq!(wait(&[("retry-after", "Wednesday, 21-Oct-26 07:28:01 GMT")]), Some(1000));
    }

    #[test]
    fn milliseconds_come_before_seconds() {
        assert_eq!(wait(&[("retry-after-ms", "1500.5"), ("retry-after", "9")]), Some(1501));
        assert_eq!(wait(&[("retry-after-ms", "soon"), ("retry-after", "9")]), Some(9000));
    }

    #[test]
    fn a_wait_in_words_is_read() {
        for (text, wait) in [
            ("Limit 30000, Used 29000. Please try again in 6s. Visit https://x", Some(6_000)),
            ("Please try again in 1m2.5s.", Some(62_500)),
            ("please retry in 34.074824224s.", Some(34_075)),
            ("try again in 882ms", Some(882)),
            ("Try again in 20 seconds", Some(20_000)),
            ("try again in 6h0m0s", Some(21_600_000)),
            ("try again in a minute", None),
            ("try again in 6", None),
            ("try again in 6 parsecs", None),
            ("try again in 1.2.3s", None),
            ("try again later", None),
            ("Monthly usage limit reached. Resets in 16 days", Some(16 * DAY)),
            ("the quota will reset after 1 day, 3 hours and 20 min", Some(DAY + 12_000_000)),
            ("available again in 2 weeks", Some(14 * DAY)),
            ("Your limit renews in 1 month.", Some(30 * DAY)),
            ("you can retry in 3 hours 2 times", Some(10_800_000)),
            ("limit resets at 2026-10-22T07:28:00Z", Some(DAY)),
            ("You will regain access on 2026-11-01 at 00:00 UTC.", Some(10 * DAY + 59_520_000)),
            ("not available until 2027-03-01", Some(130 * DAY + 59_520_000)),
            ("the limit was reset on 2025-01-01", None),
            ("reset at 2026-13-01, 2026-1-1 or 10pm; gpt-4o-2024-08-06 is not available", None),
        ] {
            assert_eq!(told_wait_ms(text, now()), wait, "{text}");
        }
        assert_eq!(told_wait_ms(&format!("try again in {}s", "9".repeat(400)), now()), Some(u64::MAX));
    }

    #[test]
    fn moments_and_fields_are_read() {
        let end = 1_792_567_680 + 3_600;
        let (seconds, millis) = (end.to_string(), format!("{end}000"));
        for (headers, expected) in [
            (vec![("x-ratelimit-reset", &*seconds)], Some(3_600_000)),
            (vec![("x-ratelimit-reset", &*millis)], Some(3_600_000)),
            (vec![("anthropic-ratelimit-unified-reset", &*seconds), ("retry-after", "9")], Some(9_000)),
            // Seconds that are left, of whatever.
            (vec![("x-ratelimit-reset", "30")], None),
        ] {
            assert_eq!(wait(&headers), expected, "{headers:?}");
        }
        for (error, expected) in [
            (json!({"retry_after": 2.5}), Some(2_500)),
            (json!({"resets_in_seconds": "90"}), Some(90_000)),
            (json!({"resets_at": end}), Some(3_600_000)),
            (json!({"reset_at": "2026-10-22T07:28:00Z"}), Some(DAY)),
            (json!({"metadata": {"headers": {"X-RateLimit-Reset": millis}}}), Some(3_600_000)),
            (json!({"retry_after": -1, "resets_at": "soon"}), None),
            (json!("retry_after"), None),
        ] {
            assert_eq!(field_wait_ms(&error, now()), expected, "{error}");
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for value in ["-1", "NaN", "soon", ""] {
            assert_eq!(wait(&[("retry-after", value)]), None, "{value}");
        }
        assert_eq!(wait(&[("retry-after", "1e300")]), Some(u64::MAX));
        assert_eq!(wait(&[]), None);
    }
}

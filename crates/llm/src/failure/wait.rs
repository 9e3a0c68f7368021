//! How long a provider asks to wait.

use std::time::SystemTime;

use super::header;

/// What the headers ask for, in milliseconds. A date is counted from the server's own `date`, so that clocks need not
/// agree; where it gives none, from `now`.
pub(super) fn retry_after_ms(headers: &[(String, String)], now: SystemTime) -> Option<u64> {
    let number = |name| header(headers, name)?.trim().parse::<f64>().ok();
    let millis = |number: f64| (number >= 0.0).then(|| whole(number));
    if let Some(wait) = number("retry-after-ms").and_then(millis) {
        return Some(wait);
    }
    if let Some(seconds) = number("retry-after") {
        return millis(seconds * 1000.0);
    }
    let date = |name| httpdate::parse_http_date(header(headers, name)?.trim()).ok();
    let wait = date("retry-after")?.duration_since(date("date").unwrap_or(now)).unwrap_or_default();
    Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
}

/// What a message asks for in words (`Please try again in 6s`, `in 1m2.5s`, `in 882ms`), in milliseconds.
pub(super) fn told_wait_ms(message: &str) -> Option<u64> {
    let lower = message.to_ascii_lowercase();
    let rest = ["try again in ", "retry in ", "retry after "]
        .iter()
        .find_map(|words| lower.split_once(words).map(|(_, rest)| rest))?;
    duration_ms(rest)
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
            "s" | "sec" | "second" | "seconds" => 1_000.0,
            "m" | "min" | "minute" | "minutes" => 60_000.0,
            "h" | "hour" | "hours" => 3_600_000.0,
            // A number without a unit that is known asks for nothing that can be told.
            _ => return millis.map(whole),
        };
        millis = Some(millis.unwrap_or(0.0) + number.parse::<f64>().ok()? * factor);
        rest = after;
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

    use super::*;

    fn wait(headers: &[(&str, &str)]) -> Option<u64> {
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        // Wed, 21 Oct 2026 07:28:00 GMT
        retry_after_ms(&headers, UNIX_EPOCH + Duration::from_secs(1_792_567_680))
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
        ] {
            assert_eq!(told_wait_ms(text), wait, "{text}");
        }
        assert_eq!(told_wait_ms(&format!("try again in {}s", "9".repeat(400))), Some(u64::MAX));
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

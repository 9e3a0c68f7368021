//! How long a provider asks to wait.

use std::time::SystemTime;

use super::header;

/// What the headers ask for, in milliseconds. A date is counted from the server's own `date`, so that clocks need not
/// agree; where it gives none, from `now`.
pub(super) fn retry_after_ms(headers: &[(String, String)], now: SystemTime) -> Option<u64> {
    let number = |name| header(headers, name)?.trim().parse::<f64>().ok();
    // A cast saturates, so that an absurd number becomes a long time.
    let millis = |number: f64| (number >= 0.0).then(|| number.ceil() as u64);
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
    fn what_is_no_time_is_none() {
        for value in ["-1", "NaN", "soon", ""] {
            assert_eq!(wait(&[("retry-after", value)]), None, "{value}");
        }
        assert_eq!(wait(&[("retry-after", "1e300")]), Some(u64::MAX));
        assert_eq!(wait(&[]), None);
    }
}

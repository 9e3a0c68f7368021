//! How long a server asks to wait.

use std::time::UNIX_EPOCH;

use playhouse_protocol::Timestamp;
use reqwest::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};

/// What `retry-after` asks for, in milliseconds. A date is counted from the server's own `date`, so that clocks need not
/// agree; where it gives none, from `now`.
pub(crate) fn retry_after_ms(headers: &HeaderMap, now: Timestamp) -> Option<u64> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
    let asked = text(RETRY_AFTER)?;
    if let Ok(seconds) = asked.parse::<f64>() {
        // A cast saturates, so that an absurd number becomes a long time.
        return (seconds >= 0.0).then(|| (seconds * 1000.0).ceil() as u64);
    }
    let date = |text: &str| {
        let since = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
        u64::try_from(since.as_millis()).ok()
    };
    let from = text(DATE).and_then(date).unwrap_or(now.as_millis());
    Some(date(asked)?.saturating_sub(from))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(pairs: &[(HeaderName, &'static str)]) -> Option<u64> {
        let headers: HeaderMap =
            pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        // Wed, 21 Oct 2026 07:28:00 GMT
        retry_after_ms(&headers, Timestamp::from_millis(1_792_567_680_000))
    }

    #[test]
    fn seconds_and_dates_are_read() {
        let later = (RETRY_AFTER, "Wed, 21 Oct 2026 07:28:30 GMT");
        assert_eq!(wait(std::slice::from_ref(&later)), Some(30_000));
        assert_eq!(wait(&[later, (DATE, "Wed, 21 Oct 2026 07:28:20 GMT")]), Some(10_000));
        assert_eq!(wait(&[(RETRY_AFTER, "1.5")]), Some(1_500));
        assert_eq!(wait(&[(RETRY_AFTER, "1e300")]), Some(u64::MAX));
        assert_eq!(wait(&[(RETRY_AFTER, "Wed, 21 Oct 2026 07:27:00 GMT")]), Some(0), "it has passed");
        for value in ["soon", "-1", "NaN", ""] {
            assert_eq!(wait(&[(RETRY_AFTER, value)]), None, "{value}");
        }
        assert_eq!(wait(&[]), None);
    }
}

//! When a failed attempt is made again. The one retry layer of the engine: nothing below it tries twice.

use playhouse_protocol::{ErrorCode, ErrorInfo};

/// The most attempts of a step that end with an answer that cannot be decoded, and with one of reasoning only: the next one is
/// most likely the same.
pub(crate) const MOST_ALIKE: u32 = 2;

/// How often a step is attempted, and how long to wait in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The most attempts of one step. 1 means that nothing is made again.
    pub attempts: u32,
    /// Longest wait before the second attempt, in milliseconds; it doubles with each further one.
    pub base_ms: u64,
    /// The longest wait, in milliseconds. A provider that asks for more makes the step fail.
    pub longest_ms: u64,
    /// No attempt starts later than this after the first one, in milliseconds.
    pub total_ms: u64,
}

impl Default for RetryPolicy {
    /// 4 attempts, half a second, 1 and 2 s apart at most; a minute at the provider's wish; ten minutes in all.
    fn default() -> Self {
        Self { attempts: 4, base_ms: 500, longest_ms: 60_000, total_ms: 600_000 }
    }
}

impl RetryPolicy {
    /// Milliseconds to wait after `failures` attempts failed, the last with `error`, `elapsed_ms` after the first
    /// began. `jitter` (0 to 1) spreads the waits of many sessions: a wait is between a half and the whole of its bound. A
    /// wait that the provider asked for is kept as it is.
    ///
    /// # Errors
    /// The step is given up, with advice where coming back later helps: when, if the provider said it.
    pub fn decide(
        &self,
        failures: u32,
        elapsed_ms: u64,
        jitter: f64,
        error: &ErrorInfo,
    ) -> Result<u64, Option<String>> {
        let come_back = |asked: u64| Some(format!("come back in {}", in_words(asked)));
        if !error.code.is_retryable() {
            // When it ends. A shorter wait is one that providers ask for whatever the reason.
            let is_quota = error.code == ErrorCode::QuotaExceeded;
            let end = error.retry_after_ms.filter(|asked| is_quota && *asked > self.longest_ms);
            return Err(end.and_then(come_back));
        }
        let later = || {
            let passes = matches!(error.code, ErrorCode::RateLimited | ErrorCode::ProviderUnavailable);
            error.retry_after_ms.map_or(passes.then(|| "try again later".to_owned()), come_back)
        };
        if failures >= self.attempts {
            return Err(later());
        }
        let wait = match error.retry_after_ms {
            Some(asked) if asked > self.longest_ms => return Err(come_back(asked)),
            Some(asked) => asked,
            None => {
                let doublings = failures.saturating_sub(1).min(32);
                let bound = self.base_ms.saturating_mul(1 << doublings).min(self.longest_ms);
                #[allow(
                    clippy::cast_precision_loss,
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a wait of a minute at most, to the millisecond"
                )]
                let spread = (bound as f64 / 2.0 * jitter.clamp(0.0, 1.0)) as u64;
                bound - bound / 2 + spread.min(bound / 2)
            }
        };
        if elapsed_ms.saturating_add(wait) > self.total_ms {
            return Err(later());
        }
        Ok(wait)
    }
}

/// A wait for people, rounded up: in seconds up to two minutes, then in minutes, hours and days.
fn in_words(millis: u64) -> String {
    let seconds = millis.div_ceil(1_000);
    match seconds {
        0..=120 => format!("{seconds} s"),
        121..=7_200 => format!("{} minutes", seconds.div_ceil(60)),
        7_201..=172_800 => format!("{} hours", seconds.div_ceil(3_600)),
        _ => format!("{} days", seconds.div_ceil(86_400)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RetryPolicy = RetryPolicy { attempts: 4, base_ms: 100, longest_ms: 300, total_ms: 5_000 };

    fn refused() -> ErrorInfo {
        ErrorInfo::new(ErrorCode::Connection, "refused")
    }

    #[test]
    fn waits_double_and_end() {
        let waits: Vec<_> = (1..=4).map(|failures| POLICY.decide(failures, 0, 1.0, &refused())).collect();
        assert_eq!(waits, [Ok(100), Ok(200), Ok(300), Err(None)]);
    }

    #[test]
    fn waits_are_spread_over_their_upper_half() {
        assert_eq!(POLICY.decide(2, 0, 0.0, &refused()), Ok(100));
        assert_eq!(POLICY.decide(2, 0, 0.5, &refused()), Ok(150));
        assert_eq!(POLICY.decide(2, 0, 7.0, &refused()), Ok(200));
    }

    #[test]
    fn a_provider_may_ask_for_a_wait_but_not_for_any() {
        let ask =
            |ms| ErrorInfo { retry_after_ms: Some(ms), ..ErrorInfo::new(ErrorCode::RateLimited, "slow") };
        assert_eq!(POLICY.decide(1, 0, 0.0, &ask(250)), Ok(250));
        assert_eq!(POLICY.decide(1, 0, 0.0, &ask(61_500)), Err(Some("come back in 62 s".into())));
    }

    #[test]
    fn who_gives_up_says_when_to_come_back() {
        let ask = |code, wait| {
            POLICY.decide(4, 0, 0.0, &ErrorInfo { retry_after_ms: wait, ..ErrorInfo::new(code, "x") })
        };
        assert_eq!(ask(ErrorCode::RateLimited, Some(20)), Err(Some("come back in 1 s".into())));
        assert_eq!(ask(ErrorCode::ProviderUnavailable, None), Err(Some("try again later".into())));
        assert_eq!(ask(ErrorCode::StreamCut, None), Err(None));
    }

    #[test]
    fn a_long_wait_is_told_in_the_unit_that_fits() {
        for (seconds, words) in [
            (120, "120 s"),
            (121, "3 minutes"),
            (3_600, "60 minutes"),
            (7_201, "3 hours"),
            (172_800, "48 hours"),
            (16 * 86_400, "16 days"),
        ] {
            assert_eq!(in_words(seconds * 1_000), words);
        }
        assert_eq!(in_words(u64::MAX), "213503982335 days");
    }

    #[test]
    fn a_used_up_quota_says_when_it_ends_and_is_not_waited_for() {
        let quota = |ms| ErrorInfo { retry_after_ms: ms, ..ErrorInfo::new(ErrorCode::QuotaExceeded, "x") };
        assert_eq!(
            POLICY.decide(1, 0, 0.0, &quota(Some(86_400_000))),
            Err(Some("come back in 24 hours".into()))
        );
        assert_eq!(POLICY.decide(1, 0, 0.0, &quota(Some(200))), Err(None));
        assert_eq!(POLICY.decide(1, 0, 0.0, &quota(None)), Err(None));
    }

    #[test]
    fn the_total_time_is_bounded() {
        assert_eq!(POLICY.decide(1, 4_900, 1.0, &refused()), Ok(100));
        assert_eq!(POLICY.decide(1, 4_901, 1.0, &refused()), Err(None));
    }

    #[test]
    fn what_will_fail_again_is_not_tried_again() {
        let error = ErrorInfo::new(ErrorCode::Authentication, "no key");
        assert_eq!(RetryPolicy::default().decide(1, 0, 0.0, &error), Err(None));
    }
}

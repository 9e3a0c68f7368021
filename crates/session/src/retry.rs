//! When a failed attempt is made again.

use playhouse_protocol::ErrorInfo;

/// How often a step is attempted, and how long to wait in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The most attempts of one step. 1 means that nothing is made again.
    pub attempts: u32,
    /// Wait before the second attempt, in milliseconds; it doubles with each further one.
    pub base_ms: u64,
    /// The longest wait, in milliseconds. A provider that asks for more makes the step fail.
    pub longest_ms: u64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts: 3, base_ms: 500, longest_ms: 60_000 }
    }
}

impl RetryPolicy {
    /// Milliseconds to wait after attempt number `attempt` (from 1) failed with `error`; `None` to give up.
    pub fn wait_after(&self, attempt: u32, error: &ErrorInfo) -> Option<u64> {
        if attempt >= self.attempts || !error.code.is_retryable() {
            return None;
        }
        match error.retry_after_ms {
            Some(asked) => (asked <= self.longest_ms).then_some(asked),
            None => {
                let doublings = attempt.saturating_sub(1).min(32);
                Some(self.base_ms.saturating_mul(1 << doublings).min(self.longest_ms))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use playhouse_protocol::ErrorCode;

    #[test]
    fn waits_double_and_end() {
        let policy = RetryPolicy { attempts: 4, base_ms: 100, longest_ms: 300 };
        let error = ErrorInfo::new(ErrorCode::Connection, "refused");
        let waits: Vec<_> = (1..=4).map(|attempt| policy.wait_after(attempt, &error)).collect();
        assert_eq!(waits, [Some(100), Some(200), Some(300), None]);
    }

    #[test]
    fn a_provider_may_ask_for_a_wait_but_not_for_any() {
        let policy = RetryPolicy { attempts: 4, base_ms: 100, longest_ms: 300 };
        let ask = |ms| ErrorInfo {
            retry_after_ms: Some(ms),
            ..ErrorInfo::new(ErrorCode::RateLimited, "slow down")
        };
        assert_eq!(policy.wait_after(1, &ask(250)), Some(250));
        assert_eq!(policy.wait_after(1, &ask(301)), None);
    }

    #[test]
    fn what_will_fail_again_is_not_tried_again() {
        let error = ErrorInfo::new(ErrorCode::Authentication, "no key");
        assert_eq!(RetryPolicy::default().wait_after(1, &error), None);
    }
}

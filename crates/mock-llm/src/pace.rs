//! When each token is due.

use std::time::Duration;

use tokio::time::Instant;

/// Long enough for never, and short enough to be added to a time.
const NEVER: Duration = Duration::from_secs(60 * 60 * 24 * 365);

/// Spreads tokens evenly over time: what follows token n of a stream is due n/rate seconds after its beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Tokens a second; `None` for as fast as possible.
    rate: Option<f64>,
    start: Option<Instant>,
}

impl Pace {
    /// A pace that begins when it is first asked.
    pub(crate) fn new(rate: Option<f64>) -> Self {
        Self { rate, start: None }
    }

    /// How long `tokens` tokens take.
    pub(crate) fn duration(&self, tokens: u64) -> Duration {
        match self.rate {
            Some(rate) => Duration::try_from_secs_f64(tokens as f64 / rate).unwrap_or(NEVER).min(NEVER),
            None => Duration::ZERO,
        }
    }

    /// When to go on after `tokens` tokens; `None` for now.
    pub(crate) fn due(&mut self, tokens: u64) -> Option<Instant> {
        self.rate?;
        self.due_at(tokens, Instant::now())
    }

    /// When a token is due, seen from `now`; for a pace with a rate.
    fn due_at(&mut self, tokens: u64, now: Instant) -> Option<Instant> {
        let start = *self.start.get_or_insert(now);
        let due = start + self.duration(tokens);
        (due > now).then_some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_spread_evenly() {
        let mut pace = Pace::new(Some(4.0));
        let start = Instant::now();
        assert_eq!(pace.due_at(0, start), None);
        assert_eq!(pace.due_at(1, start), Some(start + Duration::from_millis(250)));
        let later = start + Duration::from_millis(600);
        assert_eq!(pace.due_at(2, later), None);
        assert_eq!(pace.due_at(3, later), Some(start + Duration::from_millis(750)));
        assert_eq!(Pace::new(None).due(1_000_000), None);
    }

    #[test]
    fn rates_that_take_for_ever_do_not_overflow() {
        assert_eq!(Pace::new(Some(f64::MIN_POSITIVE)).duration(u64::MAX), NEVER);
    }
}

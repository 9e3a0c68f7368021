//! What a child's failures mean for the next start: backoff, and a circuit that opens.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::super::{Refusal, Rules, StartError, State};

/// Failures of one key.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// Times of the failures within the window, oldest first. Bounded, as each of them delays the next.
    failures: VecDeque<Duration>,
    last_error: Option<Arc<str>>,
    /// What keeps the next start waiting. Cleared by a start.
    block: Option<Block>,
    /// The circuit was open and no child ran for long since: one failure opens it again.
    half_open: bool,
}

#[derive(Clone, Copy, Debug)]
enum Block {
    /// Until this time.
    Backoff(Duration),
    /// Until this time.
    Open(Duration),
    /// Until somebody asks for a restart.
    Permanent,
}

impl Health {
    /// What the last failure blocks at `now`; `None` if there was none since the last start. Nothing is blocked any more if it
    /// is over, with `retry_in` 0.
    pub(super) fn block(&self, now: Duration) -> Option<Refusal> {
        let reason = self.last_error.clone().unwrap_or_else(|| "it failed".into());
        Some(match self.block? {
            Block::Backoff(until) => Refusal::BackingOff { reason, retry_in: until.saturating_sub(now) },
            Block::Open(until) => Refusal::Open { reason, retry_in: until.saturating_sub(now) },
            Block::Permanent => Refusal::Failed { reason },
        })
    }

    /// A start begins.
    pub(super) fn start(&mut self) {
        if let Some(Block::Open(_)) = self.block.take() {
            self.half_open = true;
        }
    }

    pub(super) fn start_failed(&mut self, rules: &Rules, now: Duration, random: f64, error: &StartError) {
        match error {
            StartError::Transient(reason) => self.failed(rules, now, random, reason.as_str().into()),
            StartError::Permanent(reason) => {
                self.last_error = Some(reason.as_str().into());
                self.block = Some(Block::Permanent);
            }
        }
    }

    /// A child that ran since `since` died.
    pub(super) fn died(
        &mut self,
        rules: &Rules,
        since: Duration,
        now: Duration,
        random: f64,
        why: &Arc<str>,
    ) {
        self.ran(rules, since, now);
        self.failed(rules, now, random, Arc::clone(why));
    }

    /// Forgets earlier failures if a child ran from `since` to `now` for long enough.
    pub(super) fn ran(&mut self, rules: &Rules, since: Duration, now: Duration) {
        if now.saturating_sub(since) >= rules.healthy {
            *self = Self::default();
        }
    }

    /// Counts a failure, which blocks the next start for a while.
    pub(super) fn failed(&mut self, rules: &Rules, now: Duration, random: f64, reason: Arc<str>) {
        self.failures.retain(|failure| now.saturating_sub(*failure) < rules.window);
        self.failures.push_back(now);
        self.last_error = Some(reason);
        let count = u32::try_from(self.failures.len()).unwrap_or(u32::MAX);
        self.block = Some(if self.half_open || count >= rules.failures {
            Block::Open(now.saturating_add(rules.open))
        } else {
            let wait = rules.first_backoff.saturating_mul(2_u32.saturating_pow(count - 1));
            // Between half of it and all of it.
            let wait = wait.min(rules.longest_backoff).mul_f64(0.5 + random / 2.0);
            Block::Backoff(now.saturating_add(wait))
        });
    }

    /// How long this matters; `None` if there is nothing to remember. [`Duration::MAX`]: until a restart.
    pub(super) fn remembered_until(&self, rules: &Rules) -> Option<Duration> {
        let until = match self.block {
            Some(Block::Backoff(until) | Block::Open(until)) => until,
            Some(Block::Permanent) => return Some(Duration::MAX),
            None => *self.failures.back()?,
        };
        Some(until.saturating_add(rules.window))
    }

    /// The state of a key without a child.
    pub(super) fn state(&self) -> State<Duration> {
        match self.block {
            Some(Block::Backoff(until)) => State::BackingOff { until },
            Some(Block::Open(until)) => State::Open { until },
            Some(Block::Permanent) => State::Failed,
            None => State::Stopped,
        }
    }

    pub(super) fn last_error(&self) -> Option<Arc<str>> {
        self.last_error.clone()
    }
}

//! What a tenant used of late: tokens within a minute, money within a day.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use playhouse_protocol::day::DAY;
use playhouse_protocol::ledger::day;
use playhouse_protocol::usage::Cost;
use playhouse_protocol::{Timestamp, Usage};
use rust_decimal::Decimal;

/// How long a token counts.
const MINUTE: Duration = Duration::from_secs(60);
/// Attempts that end so close together are remembered as one.
const GRAIN: Duration = Duration::from_secs(1);

/// What a tenant used of late.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    /// When tokens were used and how many, the oldest first.
    tokens: VecDeque<(Instant, u64)>,
    /// What was spent on the day of `clock`.
    spent: Decimal,
    /// Whether something was used on that day whose cost is not known.
    is_unknown: bool,
    /// The time of the last attempt by the calendar, and when that was.
    clock: Option<(Timestamp, Instant)>,
}

impl Budget {
    /// So much was spent on the day of `at` up to then, which is `now`, beside what was noted; nothing where that is not known.
    pub(crate) fn begin(&mut self, spent: Option<Cost>, at: Timestamp, now: Instant) {
        if self.clock.is_some_and(|(last, _)| day(last) > day(at)) {
            return;
        }
        self.on(at, now);
        self.add(spent);
    }

    /// It is `at` by the calendar.
    fn on(&mut self, at: Timestamp, now: Instant) {
        if self.clock.is_none_or(|(last, _)| day(last) < day(at)) {
            self.spent = Decimal::ZERO;
            self.is_unknown = false;
        }
        self.clock = Some((self.clock.map_or(at, |(last, _)| last.max(at)), now));
    }

    /// An attempt ended at `at`, which is `now`.
    pub(crate) fn note(&mut self, usage: &Usage, cost: Option<Cost>, at: Timestamp, now: Instant) {
        let used = usage.tokens.total();
        match self.tokens.back_mut() {
            Some((since, tokens)) if now.duration_since(*since) < GRAIN => {
                *tokens = tokens.saturating_add(used)
            }
            _ => self.tokens.push_back((now, used)),
        }
        while self.tokens.front().is_some_and(|(then, _)| now.duration_since(*then) >= MINUTE) {
            self.tokens.pop_front();
        }
        self.on(at, now);
        self.add(cost);
    }

    fn add(&mut self, cost: Option<Cost>) {
        self.spent = self.spent.saturating_add(cost.map_or(Decimal::ZERO, |cost| cost.0));
        self.is_unknown |= cost.is_none();
    }

    /// The tokens of the last minute, and how long it takes until they are fewer than `limit`.
    pub(crate) fn tokens(&self, limit: u64, now: Instant) -> (u64, Duration) {
        let recent = self.tokens.iter().filter(|(then, _)| now.duration_since(*then) < MINUTE);
        let mut left = recent.clone().fold(0_u64, |sum, (_, tokens)| sum.saturating_add(*tokens));
        let used = left;
        for (then, tokens) in recent {
            left = left.saturating_sub(*tokens);
            if left < limit {
                return (used, (*then + MINUTE).saturating_duration_since(now));
            }
        }
        (used, MINUTE)
    }

    /// What was spent on this day, and how long the day still is. Nothing where something has a cost that is not known: then it
    /// is at least as much as of the rest.
    pub(crate) fn spent(&self, now: Instant) -> (Option<Decimal>, Duration) {
        let Some((last, then)) = self.clock else { return (Some(Decimal::ZERO), Duration::ZERO) };
        let since = u64::try_from(now.duration_since(then).as_millis()).unwrap_or(u64::MAX);
        let time = last.as_millis().saturating_add(since);
        if time / DAY > day(last) {
            return (Some(Decimal::ZERO), Duration::ZERO);
        }
        ((!self.is_unknown).then_some(self.spent), Duration::from_millis(DAY - time % DAY))
    }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::usage::Tokens;

    use super::*;

    const FREE: Option<Cost> = Some(Cost::ZERO);
    const SECOND: Duration = Duration::from_secs(1);

    fn usage(tokens: u64) -> Usage {
        Usage { tokens: Tokens { output: tokens, ..Tokens::default() }, ..Usage::default() }
    }

    #[test]
    fn tokens_count_for_a_minute() {
        let (mut budget, start, at) = (Budget::default(), Instant::now(), Timestamp::from_millis(1));
        assert_eq!(budget.tokens(10, start).0, 0);
        budget.note(&usage(6), FREE, at, start);
        budget.note(&usage(1), FREE, at, start + SECOND / 2);
        budget.note(&usage(5), FREE, at, start + 20 * SECOND);
        assert_eq!(budget.tokens.len(), 2, "what is close together is one");
        assert_eq!(budget.tokens(10, start + 20 * SECOND), (12, 40 * SECOND));
        assert_eq!(budget.tokens(5, start + 20 * SECOND), (12, 60 * SECOND), "the first alone is not enough");
        assert_eq!(budget.tokens(10, start + 61 * SECOND).0, 5);
        budget.note(&usage(1), FREE, at, start + 100 * SECOND);
        assert_eq!((budget.tokens.len(), budget.tokens(10, start + 100 * SECOND).0), (1, 1));
    }

    #[test]
    fn money_counts_for_a_day() {
        let (mut budget, start) = (Budget::default(), Instant::now());
        let cost = |dollars: i64| Some(Cost(dollars.into()));
        let evening = Timestamp::from_millis(DAY - 60_000);
        budget.note(&usage(1), cost(2), evening, start);
        budget.note(&usage(1), cost(1), evening, start);
        budget.note(&usage(1), FREE, evening, start);
        assert_eq!(budget.spent(start), (Some(3.into()), 60 * SECOND));
        assert_eq!(budget.spent(start + 61 * SECOND).0, Some(0.into()), "the day is over");
        budget.note(&usage(1), cost(4), Timestamp::from_millis(DAY + 1), start + 61 * SECOND);
        // One that was late to be told.
        budget.note(&usage(1), cost(1), evening, start + 62 * SECOND);
        assert_eq!(budget.spent(start + 62 * SECOND).0, Some(5.into()));
    }

    #[test]
    fn what_is_not_known_is_not_nothing() {
        let (mut budget, start, at) = (Budget::default(), Instant::now(), Timestamp::from_millis(DAY));
        budget.note(&usage(1), Some(Cost(2.into())), at, start);
        budget.note(&usage(1), None, at, start);
        budget.note(&usage(1), Some(Cost(2.into())), at, start);
        assert_eq!(budget.spent(start).0, None);
        budget.note(&usage(1), FREE, Timestamp::from_millis(2 * DAY), start);
        assert_eq!(budget.spent(start).0, Some(0.into()), "that was yesterday");
        budget.begin(None, Timestamp::from_millis(2 * DAY), start);
        assert_eq!(budget.spent(start).0, None);
    }

    #[test]
    fn what_was_spent_before_counts_on_its_day() {
        let (start, noon) = (Instant::now(), Timestamp::from_millis(DAY / 2));
        let (two, cost) = (Cost(2.into()), Some(Cost(1.into())));
        let mut budget = Budget::default();
        budget.note(&usage(1), cost, noon, start);
        budget.begin(Some(two), noon, start);
        budget.note(&usage(1), cost, noon, start);
        assert_eq!(budget.spent(start).0, Some(4.into()));
        let mut late = Budget::default();
        late.note(&usage(1), cost, Timestamp::from_millis(DAY), start);
        late.begin(Some(two), noon, start);
        assert_eq!(late.spent(start).0, Some(1.into()), "that was yesterday");
        let mut early = Budget::default();
        early.note(&usage(1), cost, noon, start);
        early.begin(Some(two), Timestamp::from_millis(DAY), start);
        assert_eq!(early.spent(start).0, Some(2.into()));
    }
}

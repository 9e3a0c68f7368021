//! How far a sink is, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use playhouse_billing::export::{Delivery, Trouble};
use playhouse_protocol::Timestamp;
use playhouse_protocol::operator::ArchivedRows;

/// A sink at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkStatus {
    /// Its name.
    pub name: String,
    /// Where it leads, as it is written in the configuration.
    pub kind: &'static str,
    /// The number up to which everything is delivered or given up.
    pub settled: u64,
    /// Entries of the feed behind that: rows, and ends of turns.
    pub rows_behind: u64,
    /// The time of the first entry that waits; `None` where none does, or none was read yet.
    pub oldest: Option<Timestamp>,
    /// Letters that wait for people.
    pub dead_letters: u64,
    /// Entries that were delivered since the engine began, those that were sent again counted again.
    pub delivered: u64,
    /// What it never gets: it had left the ledger when the sink began with all of it.
    pub archived: Option<ArchivedRows>,
    /// Why nothing gets through, if nothing does.
    pub trouble: Option<Trouble>,
    /// When what failed is tried again, while that is waited for.
    pub waits_until: Option<Timestamp>,
}

impl SinkStatus {
    /// How old the first entry is that waits, in seconds; 0 where none does.
    pub fn seconds_behind(&self, now: Timestamp) -> f64 {
        let oldest = self.oldest.filter(|_| self.rows_behind > 0);
        oldest.map_or(0.0, |oldest| now.millis_since(oldest) as f64 / 1000.0)
    }
}

/// What a driver tells about itself, and others read.
#[derive(Debug, Default)]
pub(crate) struct Board {
    status: Mutex<SinkStatus>,
    /// The number up to which the shelf says that everything is settled.
    saved: AtomicU64,
}

/// Where a sink is at the beginning of a life.
#[derive(Clone, Debug, Default)]
pub(crate) struct Begun {
    pub(crate) settled: u64,
    pub(crate) oldest: Option<Timestamp>,
    pub(crate) dead_letters: u64,
    pub(crate) archived: Option<ArchivedRows>,
}

impl Board {
    pub(crate) fn new(name: &str, kind: &'static str) -> Self {
        let status = Mutex::new(SinkStatus { name: name.to_owned(), kind, ..SinkStatus::default() });
        Self { status, saved: AtomicU64::new(0) }
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut SinkStatus)) {
        change(&mut self.status.lock());
    }

    /// What the shelf says, before anything can fail.
    pub(crate) fn begin(&self, begun: Begun) {
        let Begun { settled, oldest, dead_letters, archived } = begun;
        self.change(|status| {
            status.settled = settled;
            status.oldest = oldest;
            status.dead_letters = dead_letters;
            status.archived = archived;
        });
        self.saved(settled);
    }

    /// The shelf says now that everything up to this number is settled.
    pub(crate) fn saved(&self, settled: u64) {
        self.saved.store(settled, Ordering::Relaxed);
    }

    /// A life ended in the middle: what was not saved is done again.
    pub(crate) fn fail(&self, trouble: Trouble, waits_until: Timestamp) {
        let settled = self.saved.load(Ordering::Relaxed);
        self.change(|status| {
            let since = status.trouble.as_ref().map_or(trouble.since, |old| old.since);
            status.trouble = Some(Trouble { since, ..trouble });
            status.waits_until = Some(waits_until);
            status.settled = settled;
        });
    }

    /// What the delivery says. Nothing is waited for.
    pub(crate) fn show(&self, delivery: &Delivery) {
        self.change(|status| {
            status.settled = delivery.done().settled;
            status.oldest = delivery.oldest();
            status.trouble = delivery.trouble().cloned();
            status.waits_until = None;
        });
    }

    /// The status, where the feed ends at `end`.
    pub(crate) fn read(&self, end: u64) -> SinkStatus {
        let mut status = self.status.lock().clone();
        status.rows_behind = end.saturating_sub(status.settled);
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_is_counted_from_the_first_that_waits() {
        let board = Board::new("a", "file");
        board.change(|status| {
            status.settled = 7;
            status.oldest = Some(Timestamp::from_millis(1_000));
        });
        let now = Timestamp::from_millis(3_500);
        let status = board.read(10);
        assert_eq!((status.rows_behind, status.seconds_behind(now)), (3, 2.5));
        assert_eq!(board.read(7).seconds_behind(now), 0.0);
    }
}

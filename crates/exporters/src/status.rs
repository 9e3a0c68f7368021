//! How far a sink is, for metrics.

use std::sync::{Mutex, PoisonError};

use playhouse_billing::export::{Delivery, Trouble};
use playhouse_protocol::Timestamp;

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
    /// Why nothing gets through, if nothing does.
    pub trouble: Option<Trouble>,
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
pub(crate) struct Board(Mutex<SinkStatus>);

impl Board {
    pub(crate) fn new(name: &str, kind: &'static str) -> Self {
        Self(Mutex::new(SinkStatus { name: name.to_owned(), kind, ..SinkStatus::default() }))
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut SinkStatus)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// What the delivery says.
    pub(crate) fn show(&self, delivery: &Delivery) {
        self.change(|status| {
            status.settled = delivery.done().settled;
            status.oldest = delivery.oldest();
            status.trouble = delivery.trouble().cloned();
        });
    }

    /// The status, where the feed ends at `end`.
    pub(crate) fn read(&self, end: u64) -> SinkStatus {
        let mut status = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
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

//! How much of what commands write is saved: a command may run for days, and a disk is not endless.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the output of one command that are saved.
pub const MOST_SAVED: u64 = 256_000_000;
/// Bytes of the output of all commands of a session that are saved, as long as its engine runs.
pub const MOST_SAVED_IN_ALL: u64 = 1_000_000_000;

/// How much may be saved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) command: u64,
    pub(super) session: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { command: MOST_SAVED, session: MOST_SAVED_IN_ALL }
    }
}

/// What is left for the output of one command.
pub(super) struct Budget {
    command: u64,
    session: Arc<AtomicU64>,
}

impl Budget {
    /// That of a new command, with what is left for its session.
    pub(super) fn new(command: u64, session: Arc<AtomicU64>) -> Self {
        Self { command, session }
    }

    /// How many of the next `wanted` bytes are saved. After fewer than these, none is: what is saved is the beginning.
    pub(super) fn take(&mut self, wanted: usize) -> usize {
        let most = self.command.min(wanted as u64);
        // Always `Some`, so what comes back is what was there before.
        let take = |left: u64| Some(left.saturating_sub(most));
        let before = match self.session.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(before) | Err(before) => before,
        };
        let taken = most.min(before);
        self.command = if taken < wanted as u64 { 0 } else { self.command - taken };
        usize::try_from(taken).unwrap_or(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_the_beginning_of_each() {
        let session = Arc::new(AtomicU64::new(25));
        let budget = || Budget::new(10, Arc::clone(&session));
        let (mut one, mut two, mut three) = (budget(), budget(), budget());
        assert_eq!([one.take(4), one.take(5), one.take(3), one.take(1)], [4, 5, 1, 0]);
        assert_eq!([two.take(10), two.take(1)], [10, 0]);
        assert_eq!([three.take(3), three.take(3), three.take(1)], [3, 2, 0]);
        assert_eq!(budget().take(1), 0);
    }
}

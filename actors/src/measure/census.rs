//! How many there are of what goes up and down. Counted where it changes, so that nobody has to look through sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a session does that has a place in memory, in the order of `SESSION_STATES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    Idle,
    Running,
    Asking,
    Waking,
    Parked,
    Asleep,
    Suspended,
}

impl Doing {
    pub(crate) const ALL: [Self; 7] =
        [Self::Idle, Self::Running, Self::Asking, Self::Waking, Self::Parked, Self::Asleep, Self::Suspended];
}

/// What else is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// Requests for consent that wait for people.
    Consents,
    /// Requests with questions that wait for people.
    Questions,
    /// Messages that the supervisor has not begun with.
    Supervisor,
    /// Messages that the metering actor has not begun with.
    Metering,
    /// Requests that wait for the limits of their provider.
    ProviderWaiting,
}

/// All counts of an engine. Nothing depends on them, so they need no order among each other.
#[derive(Debug, Default)]
pub(crate) struct Census {
    doing: [AtomicUsize; 7],
    counts: [AtomicUsize; 5],
}

impl Census {
    pub(crate) fn doing(&self, doing: Doing) -> usize {
        self.doing[doing as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self, count: Count) -> usize {
        self.counts[count as usize].load(Ordering::Relaxed)
    }

    /// One more, taken back with [`Census::leave`].
    pub(crate) fn enter(&self, count: Count) {
        self.counts[count as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// One less. More leave than entered only where a message was not counted when it was sent: that is no message less.
    pub(crate) fn leave(&self, count: Count) {
        let counter = &self.counts[count as usize];
        let less = |now: usize| now.checked_sub(1);
        // At 0 it stays.
        let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// One more, until what is returned is dropped.
    pub(crate) fn counted(self: &Arc<Self>, count: Count) -> Counted {
        self.enter(count);
        Counted { census: Arc::clone(self), count }
    }

    /// A session that does this, until what is returned is dropped.
    pub(crate) fn standing(self: &Arc<Self>, doing: Doing) -> Standing {
        self.doing[doing as usize].fetch_add(1, Ordering::Relaxed);
        Standing { census: Arc::clone(self), doing, consents: 0, questions: 0 }
    }

    fn change(&self, count: Count, before: usize, now: usize) {
        let counter = &self.counts[count as usize];
        if now > before {
            counter.fetch_add(now - before, Ordering::Relaxed);
        } else {
            counter.fetch_sub(before - now, Ordering::Relaxed);
        }
    }
}

/// One of something. It is counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    census: Arc<Census>,
    count: Count,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.census.leave(self.count);
    }
}

/// What one session does. It is counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Standing {
    census: Arc<Census>,
    doing: Doing,
    consents: usize,
    questions: usize,
}

impl Standing {
    /// It does this now, and so many requests of it wait for people.
    pub(crate) fn set(&mut self, doing: Doing, consents: usize, questions: usize) {
        if self.doing != doing {
            self.census.doing[self.doing as usize].fetch_sub(1, Ordering::Relaxed);
            self.census.doing[doing as usize].fetch_add(1, Ordering::Relaxed);
            self.doing = doing;
        }
        if self.consents != consents {
            self.census.change(Count::Consents, self.consents, consents);
            self.consents = consents;
        }
        if self.questions != questions {
            self.census.change(Count::Questions, self.questions, questions);
            self.questions = questions;
        }
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.set(self.doing, 0, 0);
        self.census.doing[self.doing as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::metric::SESSION_STATES;

    use super::*;

    #[test]
    fn what_is_dropped_counts_no_more() {
        let census = Arc::<Census>::default();
        let (mut one, two) = (census.standing(Doing::Idle), census.standing(Doing::Waking));
        one.set(Doing::Asking, 2, 1);
        assert_eq!(Doing::ALL.map(|doing| census.doing(doing)), [0, 0, 1, 1, 0, 0, 0]);
        assert_eq!((census.count(Count::Consents), census.count(Count::Questions)), (2, 1));
        one.set(Doing::Asking, 1, 1);
        let waits = census.counted(Count::ProviderWaiting);
        assert_eq!((census.count(Count::Consents), census.count(Count::ProviderWaiting)), (1, 1));
        drop((one, two, waits));
        assert_eq!(Doing::ALL.map(|doing| census.doing(doing)), [0; 7]);
        assert_eq!(census.counts.each_ref().map(|count| count.load(Ordering::Relaxed)), [0; 5]);
    }

    #[test]
    fn a_message_too_many_is_none_less() {
        let census = Census::default();
        census.enter(Count::Metering);
        census.leave(Count::Metering);
        census.leave(Count::Metering);
        assert_eq!(census.count(Count::Metering), 0);
    }

    #[test]
    fn states_are_named_in_order() {
        let names = Doing::ALL.map(|doing| format!("{doing:?}").to_lowercase());
        assert_eq!(names, SESSION_STATES);
    }
}

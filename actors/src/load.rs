//! How much waits in an engine.

use crate::engine::Engine;
use crate::measure::Count;

/// What waits in an engine now. Each of it is short-lived where there is enough of processor and disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Writes that the store has not begun with.
    pub writes: usize,
    /// Pieces of the engine's own work, such as waking a session, that wait for a thread.
    pub work: usize,
    /// Messages that the supervisor has not begun with.
    pub messages: usize,
}

impl Engine {
    /// What waits now. Asks nobody, so it answers at once whatever the engine does.
    pub fn load(&self) -> Load {
        let shared = &self.shared;
        Load {
            writes: shared.store.log.waiting(),
            work: shared.pool.waiting(),
            messages: shared.measures.census.count(Count::Supervisor),
        }
    }
}

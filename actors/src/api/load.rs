//! How much waits in an engine.

use playhouse_store::Suspended;

use crate::api::engine::Engine;
use crate::measure::{Count, Doing};

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
    /// How many sessions are in memory. Those that wake, are parked or sleep are not.
    pub fn in_memory(&self) -> usize {
        let census = &self.shared.measures.census;
        [Doing::Idle, Doing::Running, Doing::Asking].map(|doing| census.doing(doing)).into_iter().sum()
    }

    /// Why the store takes no writes just now; `None` while it does. Asks nobody.
    pub fn suspended(&self) -> Option<Suspended> {
        self.shared.store.log.health()
    }

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

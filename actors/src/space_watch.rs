//! Looks at the free space of the data directory, as long as an engine runs.

use std::sync::Arc;
use std::time::Duration;

use playhouse_tools::storage::FreeSpace;
use ractor::ActorRef;

use crate::context::EngineContext;
use crate::mailbox::SupervisorMessage;
use crate::measure::Count;
use crate::space::LITTLE;
use crate::storage::repeat;

/// The time between two looks at the free space.
const PERIOD: Duration = Duration::from_secs(1);

/// Looks at the free space as long as the engine runs.
pub(crate) fn keep_looking(shared: &Arc<EngineContext>, supervisor: ActorRef<SupervisorMessage>) {
    repeat(shared, PERIOD, move |shared| {
        let supervisor = supervisor.clone();
        async move {
            let data = shared.homes.clone();
            let Some(now) = shared.pool.run(move || FreeSpace::at(&data)).await else { return };
            let usages = if now.is_below(LITTLE) { shared.storage.usages() } else { Vec::new() };
            if shared.space.note(now, &usages).is_some() {
                shared.measures.census.enter(Count::Supervisor);
                // A supervisor that is gone has no sessions.
                drop(supervisor.send_message(SupervisorMessage::SuspendTenants));
            }
        }
    });
}

//! Looks at the free space of the data directory, as long as an engine runs.

use std::sync::Arc;
use std::time::Duration;

use playhouse_tools::storage::FreeSpace;
use ractor::ActorRef;
use tokio::time::MissedTickBehavior;

use crate::context::EngineContext;
use crate::mailbox::SupervisorMessage;
use crate::measure::Count;
use crate::space::LITTLE;

/// How often it is looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// Looks at the free space as long as the engine runs.
pub(crate) fn keep_looking(shared: &Arc<EngineContext>, supervisor: ActorRef<SupervisorMessage>) {
    let (weak, cancel) = (Arc::downgrade(shared), shared.sweeper.token());
    // Not awaited: it is over soon after the engine has stopped.
    drop(tokio::spawn(async move {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let Some(shared) = weak.upgrade() else { return };
            let data = shared.homes.clone();
            let Some(now) = shared.pool.run(move || FreeSpace::at(&data)).await else { continue };
            let usages = if now.is_below(LITTLE) { shared.storage.usages() } else { Vec::new() };
            if shared.space.note(now, &usages).is_some() {
                shared.measures.census.enter(Count::Supervisor);
                // A supervisor that is gone has no sessions.
                drop(supervisor.send_message(SupervisorMessage::SuspendTenants));
            }
        }
    }));
}

//! What calls wrote that were cut off: told once nothing can be written any more.

use std::sync::Arc;

use playhouse_protocol::id::PartId;
use ractor::ActorRef;

use super::SessionState;
use super::live::LiveCall;
use crate::base::spawn;
use crate::journal::Images;
use crate::mailbox::SessionMessage;

impl SessionState {
    /// Waits beside the session until a call that was cut off can write nothing any more, and has the session told of what
    /// it wrote. The session stays in memory meanwhile. `is_told`: its log has a change set of it that says that this was all.
    pub(super) fn await_writes(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        call: PartId,
        live: &LiveCall,
        is_told: bool,
    ) {
        let Some(place) = self.place.as_ref().ok().filter(|_| live.executes) else { return };
        let (writes, workspace) = (live.writes.clone(), Arc::clone(&place.workspace));
        let images = Images { shared: Arc::clone(&self.shared), tenant: Arc::clone(&self.tenant) };
        let (pool, myself) = (self.shared.pool.clone(), myself.clone());
        let child = self.shared.children.enter();
        self.writes_awaited += 1;
        spawn(async move {
            writes.closed().await;
            // The call's actor may have been killed between taking them out and its report.
            writes.put_back();
            let drained = writes.drain();
            // Where somebody watches, that nothing was written is told as well: a log that says nothing was cut off.
            let set = match drained.is_nothing() && (is_told || !writes.is_watched()) {
                true => None,
                false => Some(Box::new(pool.run(move || images.change_set(workspace.root(), drained)).await)),
            };
            // A session that is gone says so when its next owner reads the log.
            drop(myself.send_message(SessionMessage::Wrote(call, set)));
            drop(child);
        });
    }
}

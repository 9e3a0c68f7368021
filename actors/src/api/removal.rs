//! Removing a session, with all sessions below it.
//!
//! Its last record says that it is deleted: from then on it is gone for everybody. What hangs on it goes behind that: the
//! sessions below it, each in the same way, its programs, its outputs, and in the end its log. Whatever cuts this off, the log
//! is still there, ends with that record, and stands in the index of unfinished sessions: the next engine finishes it. Until
//! then no session below it goes on ([`crate::wake`]), and none is made there.
//!
//! A session that is parked takes no records. It goes as it is, behind those below it: where that is cut off, it is still there
//! for whoever asks again.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use playhouse_protocol::operator::BY_HAND_TENANT;
use playhouse_protocol::{CommandError, SessionId};
use playhouse_store::{Kin, ListQuery, StoreError};
use ractor::ActorRef;
use tokio::sync::oneshot;

use crate::api::handle::SessionHandle;
use crate::context::EngineContext;
use crate::mailbox::SupervisorMessage;
use crate::measure::Count;

/// So many sessions below one are removed at once. What runs in one may take a moment to end.
const AT_ONCE: usize = 8;
/// So many of them are read from the list at once.
const PAGE: usize = 500;

/// Removes sessions.
pub(crate) struct Remover {
    pub(crate) shared: Arc<EngineContext>,
    pub(crate) supervisor: ActorRef<SupervisorMessage>,
}

impl Remover {
    /// Removes a session: what runs in it is aborted first.
    ///
    /// # Errors
    /// There is none with this id, or the store failed.
    pub(crate) fn remove(self, session: SessionId) -> BoxFuture<'static, Result<(), CommandError>> {
        let handle = SessionHandle::new(session, Arc::clone(&self.shared), self.supervisor.clone());
        async move {
            match handle.delete().await {
                Err(CommandError::Parked { .. }) => {
                    self.finish(session).await?;
                    self.tell(session, true);
                    Ok(())
                }
                other => other,
            }
        }
        .boxed()
    }

    /// Removes what hangs on a session, and then its log.
    ///
    /// # Errors
    /// The store failed, or one below it could not be removed: the log is still there.
    pub(crate) async fn finish(&self, session: SessionId) -> Result<(), CommandError> {
        // They write to its outputs.
        self.shared.processes.of(session.as_str()).end().await;
        let log = Arc::clone(&self.shared.store.log);
        let summary = self.shared.pool.run(move || log.summary(session)).await?;
        let tenant = summary.map(|summary| summary.tenant);
        self.remove_below(session, tenant.clone()).await?;
        // What was too long to print for calls by hand was named: it stays as long as other outputs do.
        if tenant.as_deref() != Some(BY_HAND_TENANT) {
            self.shared.forget_outputs(session).await;
        }
        let (done, flushed) = oneshot::channel();
        // A caller that went away wants no answer.
        self.shared.store.log.delete(session, Box::new(move |result| drop(done.send(result))));
        match flushed.await.unwrap_or(Err(StoreError::Closed)) {
            // Somebody else finished it.
            Ok(_) | Err(StoreError::Missing(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the sessions directly below one. All that can go do, also where one cannot.
    async fn remove_below(&self, session: SessionId, tenant: Option<String>) -> Result<(), CommandError> {
        let mut query =
            ListQuery { tenant, kin: Some(Kin::ChildrenOf(session)), limit: PAGE, ..ListQuery::default() };
        let mut all = Ok(());
        loop {
            let (log, wanted) = (Arc::clone(&self.shared.store.log), query.clone());
            let page = self.shared.pool.run(move || log.list(&wanted)).await?;
            let removed = stream::iter(page.sessions).map(|below| {
                let remover = Self { shared: Arc::clone(&self.shared), supervisor: self.supervisor.clone() };
                remover.remove(below.id)
            });
            let removed: Vec<_> = removed.buffer_unordered(AT_ONCE).collect().await;
            let failed = removed.into_iter().find(|removed| {
                // Somebody else removed it.
                !matches!(removed, Ok(()) | Err(CommandError::NotFound(_)))
            });
            all = all.and(failed.unwrap_or(Ok(())));
            query.after = page.next;
            if query.after.is_none() {
                return all;
            }
        }
    }

    /// Tells the supervisor what became of a session that is deleted.
    pub(crate) fn tell(&self, session: SessionId, is_removed: bool) {
        self.shared.measures.census.enter(Count::Supervisor);
        let message = match is_removed {
            true => SupervisorMessage::Removed(session),
            false => SupervisorMessage::NotRemoved(session),
        };
        drop(self.supervisor.send_message(message));
    }
}

//! Going on with what an engine before this one left unfinished.
//!
//! The index of unfinished sessions says which they are, so no log is read to find them. They are woken at a bounded rate, a
//! few at a time: an engine that starts with thousands of them answers its clients meanwhile.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use playhouse_protocol::operator::Resumed;
use playhouse_protocol::summary::SessionState;
use playhouse_protocol::{CommandError, SessionId, SessionSummary};
use playhouse_store::StoreError;
use tokio::time::{MissedTickBehavior, interval};

use crate::api::engine::Engine;
use crate::base::spawn;
use crate::limits::Resume;

/// One session is begun with after another, so long apart in the mean: where reading one took longer, the next ones follow
/// the faster.
const APART: Duration = Duration::from_millis(1);
/// So many are on their way at once: where each has to wait for work of others at several places, as many wait together. How
/// many are read from their logs at once is the pool's bound.
const AT_ONCE: usize = 32;

impl Engine {
    /// Makes a session go on with what is unfinished. One that is parked gets another chance: how often it crashed is forgotten.
    /// On return it is in memory. Whether it had something unfinished.
    ///
    /// # Errors
    /// There is none with this id; its log cannot be trusted: then it is parked, with the reason; or nothing can be done where its unfinished
    /// turn works, as that directory is not there.
    pub async fn resume(&self, id: SessionId) -> Result<bool, CommandError> {
        let summary = self.summary(id).await?;
        let unfinished = summary.is_unfinished();
        let session = self.handle(id);
        session.resume().await?;
        // How else it fares from here on its events say.
        if unfinished && let Err(missing @ CommandError::Invalid(_)) = session.place().await {
            return Err(missing);
        }
        Ok(unfinished)
    }

    /// Makes these sessions go on, at a bounded rate. Those that cannot are told with the reason, and said in the log.
    pub async fn resume_each(&self, sessions: Vec<SessionId>) -> Resumed {
        self.resume_all(sessions, |session| self.resume(session)).await
    }

    /// The same, by `resume`.
    async fn resume_all<F: Future<Output = Result<bool, CommandError>>>(
        &self,
        sessions: Vec<SessionId>,
        resume: impl Fn(SessionId) -> F,
    ) -> Resumed {
        let resume = &resume;
        let mut pace = interval(APART);
        pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let resumed = stream::iter(sessions)
            .zip(stream::unfold(pace, |mut pace| async move {
                pace.tick().await;
                Some(((), pace))
            }))
            .map(|(session, ())| async move {
                let resumed = resume(session).await;
                if let Err(error) = &resumed
                    && !matches!(error, CommandError::NotFound(_))
                {
                    tracing::warn!(%session, %error, "cannot go on with what is unfinished");
                }
                (session, resumed)
            });
        let mut told = Resumed::default();
        let resumed: Vec<_> = resumed.buffer_unordered(AT_ONCE).collect().await;
        for (session, resumed) in resumed {
            match resumed {
                Ok(true) => told.sessions.push(session),
                // Its end came in between, or that of the session.
                Ok(false) | Err(CommandError::NotFound(_)) => {}
                Err(CommandError::Parked { reason, .. }) => {
                    told.passed_over.insert(session, reason);
                }
                Err(error) => {
                    told.passed_over.insert(session, error.to_string());
                }
            }
        }
        told
    }

    /// Whether it goes on by itself with what an engine before it left unfinished, so that nobody else has to see to that.
    pub fn resumes_by_itself(&self) -> bool {
        self.shared.resume == Resume::Auto
    }

    /// Does so with all that are unfinished, behind the caller's back, where the engine is to do that when it starts. Where
    /// turns wait for somebody, only what is no turn's is finished: attempts beside them, and removals.
    pub(crate) fn resume_by_itself(&self) {
        if self.shared.resume == Resume::OnDemand {
            return;
        }
        let engine = self.clone();
        spawn(async move {
            match engine.unfinished_by_itself().await {
                Ok(sessions) if sessions.is_empty() => {}
                Ok(sessions) => {
                    let count = sessions.len();
                    tracing::info!(count, "sessions go on with what is unfinished");
                    // The index has just said that they are unfinished.
                    let resume = |session| {
                        let handle = engine.handle(session);
                        async move { handle.resume().await.map(|()| true) }
                    };
                    let resumed = engine.resume_all(sessions, resume).await.sessions.len();
                    tracing::info!(resumed, of = count, "all sessions that were unfinished are looked after");
                }
                Err(error) => tracing::error!(%error, "what is unfinished cannot be looked for"),
            }
        });
    }

    /// Those that need nobody to say that they shall go on.
    async fn unfinished_by_itself(&self) -> Result<Vec<SessionId>, CommandError> {
        if self.shared.resume.by_itself() {
            return self.unfinished().await;
        }
        let log = Arc::clone(&self.shared.store.log);
        let find = move || {
            let mut found = Vec::new();
            for session in log.unfinished()? {
                let summary = log.summary(session)?;
                let waits = |summary: SessionSummary| {
                    summary.open_turns > 0 && summary.state != SessionState::Deleted
                };
                if !summary.is_some_and(waits) {
                    found.push(session);
                }
            }
            Ok::<_, StoreError>(found)
        };
        self.shared.pool.run(find).await.map_err(CommandError::from)
    }
}

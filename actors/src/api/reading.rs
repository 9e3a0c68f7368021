//! Reading sessions for clients: one that is parked is read from its log, up to where that is good, and it is said where
//! that is.

use std::collections::HashSet;
use std::sync::Arc;

use futures::{StreamExt as _, stream};
use playhouse_protocol::command::{MessagePage, MessagesQuery, Snapshot};
use playhouse_protocol::summary::SessionState;
use playhouse_protocol::{
    Command, CommandError, ConsentAsked, Damage, Reply, Seq, SessionId, SessionSummary,
    question::QuestionAsked,
};
use playhouse_session::Session;
use playhouse_store::LogRead;

use crate::api::engine::{Engine, fold};
use crate::api::handle::unexpected;

/// Sessions that are asked at once.
const ASKED_AT_ONCE: usize = 32;

/// What waits for an answer of the people behind a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// The session.
    pub session: SessionId,
    /// Requests for consent.
    pub consents: Vec<ConsentAsked>,
    /// Requests with questions.
    pub questions: Vec<QuestionAsked>,
}

/// That something is not there, of a session whose log cannot be read from `damage` on: it may be behind that.
pub(crate) fn past(missing: String, damage: Option<&Damage>) -> String {
    match damage {
        Some(damage) => format!("{missing}, as far as its log can be read ({damage})"),
        None => missing,
    }
}

impl Engine {
    /// A session as it stands, without its messages. Of one that is parked what its log says up to there.
    ///
    /// # Errors
    /// There is none with this id, or the store failed.
    pub async fn outline(&self, id: SessionId) -> Result<Snapshot, CommandError> {
        match self.handle(id).command(Command::Outline).await {
            Ok(Reply::Snapshot(snapshot)) => Ok(*snapshot),
            Ok(other) => Err(unexpected(&other)),
            Err(parked @ CommandError::Parked { .. }) => {
                let outline = |session: &Session, damage| Ok(Snapshot { damage, ..session.outline() });
                self.readable(id, parked, outline).await
            }
            Err(error) => Err(error),
        }
    }

    /// Some of the messages of a session. Of one that is parked those that its log has up to there.
    ///
    /// # Errors
    /// There is no session with this id, a message is named that there is not, or the store failed.
    pub async fn messages(&self, id: SessionId, query: MessagesQuery) -> Result<MessagePage, CommandError> {
        match self.handle(id).command(Command::Messages(query)).await {
            Ok(Reply::Messages(page)) => Ok(page),
            Ok(other) => Err(unexpected(&other)),
            Err(parked @ CommandError::Parked { .. }) => {
                let page = move |session: &Session, damage: Option<Damage>| {
                    let told = |error: String| CommandError::Invalid(past(error, damage.as_ref()));
                    let page = session.page(&query).map_err(told)?;
                    Ok(MessagePage { damage, ..page })
                };
                self.readable(id, parked, page).await
            }
            Err(error) => Err(error),
        }
    }

    /// Reads something of a session that cannot be woken: as far as its log can be read, and where that stops before its end.
    async fn readable<T: Send + 'static>(
        &self,
        id: SessionId,
        parked: CommandError,
        read: impl FnOnce(&Session, Option<Damage>) -> Result<T, CommandError> + Send + 'static,
    ) -> Result<T, CommandError> {
        let log = Arc::clone(&self.shared.store.log);
        let work = move || {
            let LogRead { entries, damage } = log.read(id, Seq::START, usize::MAX)?;
            let (session, misfit) = fold(&entries);
            // Where not even the first record is good there is nothing to read.
            let Some(mut session) = session else { return Err(parked) };
            if session.summary.id != id {
                // Only records are good that it shares, and they are another session's.
                let summary = log.summary(id)?;
                session.summary = summary.ok_or(CommandError::NotFound(id))?;
            }
            read(&session, misfit.or(damage))
        };
        self.shared.pool.run(work).await
    }

    /// Why a session is parked, if it is. One that nobody asked anything of since the engine started is not known to be.
    pub fn parked(&self, id: SessionId) -> Option<Arc<str>> {
        self.shared.parked.reason(id)
    }

    /// The sessions of a tenant, or of all, with turns that run or wait, in no order. Those that are parked are not: nothing runs there,
    /// and nothing will.
    ///
    /// # Errors
    /// The store failed.
    pub async fn busy<'a>(
        &self,
        tenant: impl Into<Option<&'a str>>,
    ) -> Result<Vec<SessionSummary>, CommandError> {
        let (shared, tenant) = (Arc::clone(&self.shared), tenant.into().map(str::to_owned));
        let work = move || {
            let log = &shared.store.log;
            let unfinished = match &tenant {
                Some(tenant) => log.unfinished_of(tenant)?,
                None => log.unfinished()?,
            };
            let is_wanted = |of: &str| tenant.as_ref().is_none_or(|tenant| tenant == of);
            let unfinished = unfinished.into_iter().filter(|id| shared.parked.reason(*id).is_none());
            let of_tenant = unfinished.map(|id| log.summary(id)).filter_map(|summary| match summary {
                Ok(Some(summary)) if !is_wanted(&summary.tenant) || summary.state != SessionState::Busy => {
                    None
                }
                summary => summary.transpose(),
            });
            of_tenant.collect::<Result<Vec<_>, _>>()
        };
        self.shared.pool.run(work).await.map_err(CommandError::from)
    }

    /// The open requests in the sessions of one tenant, or of all tenants, in the order of session ids.
    ///
    /// # Errors
    /// The store failed, or the engine stops.
    pub async fn waiting<'a>(
        &self,
        tenant: impl Into<Option<&'a str>>,
    ) -> Result<Vec<Waiting>, CommandError> {
        let tenant = tenant.into();
        let busy = self.busy(tenant).await?;
        let mut ids: HashSet<SessionId> = busy.into_iter().map(|summary| summary.id).collect();
        ids.extend(self.shared.grants.ahead(tenant));
        let asked = ids.into_iter().map(|id| async move {
            match self.outline(id).await {
                Ok(Snapshot { consents, questions, .. }) => Ok(Waiting { session: id, consents, questions }),
                // It was removed meanwhile, or nobody can answer it.
                Err(CommandError::NotFound(_) | CommandError::Parked { .. }) => {
                    Ok(Waiting { session: id, consents: Vec::new(), questions: Vec::new() })
                }
                Err(error) => Err(error),
            }
        });
        let mut asked = stream::iter(asked).buffer_unordered(ASKED_AT_ONCE);
        let mut waiting = Vec::new();
        while let Some(found) = asked.next().await {
            let found = found?;
            if !found.consents.is_empty() || !found.questions.is_empty() {
                waiting.push(found);
            }
        }
        waiting.sort_by_key(|waiting| waiting.session);
        Ok(waiting)
    }
}

//! What is done for each request, in whichever process.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use playhouse_actors::{Engine, ForkAt, try_blocking};
use playhouse_protocol::CommandError;
use playhouse_protocol::ledger::{ArchivePage, ArchiveQuery};
use playhouse_protocol::operator::{
    ListPlace, ListSessions, OperatorReply, OperatorRequest, Resumed, SessionList, SessionLog, StoreRequest,
};
use playhouse_store::{Cursor, Kin, ListQuery, Page, Upkeep};

use super::Operations;
use crate::keys::{KeyError, Keys};

impl From<KeyError> for CommandError {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Name(_) | KeyError::Root(_) | KeyError::Missing(_) => Self::Invalid(error.to_string()),
            KeyError::Store(_) | KeyError::Random(_) => Self::Store(error.to_string()),
        }
    }
}

/// Does what the operator's commands ask of an engine in this process. Cheap to clone.
#[derive(Clone)]
pub struct Operator {
    engine: Engine,
    keys: Arc<Keys>,
    operations: Arc<dyn Operations>,
}

impl Operator {
    /// Over this engine and the keys of the same store.
    pub fn new(engine: Engine, keys: Arc<Keys>, operations: Arc<dyn Operations>) -> Self {
        Self { engine, keys, operations }
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Does what is asked.
    ///
    /// # Errors
    /// Why it was not done.
    pub async fn answer(&self, request: OperatorRequest) -> Result<OperatorReply, CommandError> {
        match self.carry_out(request).await {
            Err(CommandError::NotFound(session)) => Err(self.engine.missing(session).await),
            result => result,
        }
    }

    async fn carry_out(&self, request: OperatorRequest) -> Result<OperatorReply, CommandError> {
        let engine = &self.engine;
        Ok(match request {
            OperatorRequest::Hello => OperatorReply::Engine(self.operations.engine()),
            // Who asks this of an engine in the same process needs no answer to hold it.
            OperatorRequest::Stay => OperatorReply::Done,
            OperatorRequest::Leave => {
                return Err(CommandError::Invalid("the engine does not end by itself".into()));
            }
            OperatorRequest::Create(new) => OperatorReply::Created(engine.create(new).await?.id()),
            OperatorRequest::Fork { session, before, readable } => {
                let at = ForkAt::new(before, readable)?;
                OperatorReply::Created(engine.fork(session, at).await?.id())
            }
            OperatorRequest::Command { session, command } => {
                OperatorReply::Session(engine.session(session).await?.command(command).await?)
            }
            OperatorRequest::List(sessions) => {
                OperatorReply::Sessions(list(engine, engine.list(query(sessions)).await?))
            }
            OperatorRequest::Summary(session) => {
                OperatorReply::Summary(Box::new(engine.summary(session).await?))
            }
            OperatorRequest::Read(session) => {
                let (entries, damage) = engine.read(session).await?;
                OperatorReply::Log(SessionLog { entries, damage: damage.map(|damage| damage.to_string()) })
            }
            OperatorRequest::Delete(session) => {
                engine.delete(session).await?;
                OperatorReply::Done
            }
            OperatorRequest::Resume(Some(session)) => {
                let goes_on = engine.resume(session).await?;
                let sessions = goes_on.then_some(session).into_iter().collect();
                OperatorReply::Resumed(Resumed { sessions, ..Resumed::default() })
            }
            OperatorRequest::Resume(None) => {
                let unfinished = engine.unfinished().await?;
                OperatorReply::Resumed(engine.resume_each(unfinished).await)
            }
            OperatorRequest::Grants(tenant) => OperatorReply::Grants(engine.grants(tenant.as_deref()).await?),
            OperatorRequest::Revoke { tenant, grant } => {
                OperatorReply::Revoked(engine.revoke(tenant.as_deref(), &grant).await?)
            }
            OperatorRequest::StoreBlob { tenant, content } => {
                let content = STANDARD
                    .decode(content)
                    .map_err(|error| CommandError::Invalid(format!("the content is not base64: {error}")))?;
                OperatorReply::Stored(engine.store_blob(&tenant, content.into()).await?)
            }
            OperatorRequest::Usage(query) => OperatorReply::Usage(engine.usage_by(query).await?),
            OperatorRequest::Rows(query) => OperatorReply::Rows(engine.rows(query).await?),
            OperatorRequest::Archivable(query) => OperatorReply::Archivable(self.archivable(query).await?),
            OperatorRequest::Archive { before, numbers } => {
                self.check_exported(&numbers).await?;
                OperatorReply::Archived(engine.archive(before, numbers).await?)
            }
            OperatorRequest::Billing(request) => self.operations.billing(request).await?,
            OperatorRequest::Store(request) => {
                let upkeep = self.operations.upkeep();
                let done = try_blocking(move || answer_store(&*upkeep, request)).await;
                done.map_err(|error| CommandError::Store(format!("the store could not be read: {error}")))??
            }
            OperatorRequest::Script(calls) => OperatorReply::Scripted(self.operations.script(&calls)?),
            OperatorRequest::Key(request) => {
                let keys = Arc::clone(&self.keys);
                let done = try_blocking(move || keys.answer(request)).await;
                done.map_err(|error| CommandError::Store(format!("the keys could not be read: {error}")))??
            }
        })
    }

    /// What may be written away: what every sink has.
    async fn archivable(&self, mut query: ArchiveQuery) -> Result<ArchivePage, CommandError> {
        let exported = self.operations.exported().await?;
        let last = exported.iter().map(|(_, number)| *number).min();
        query.up_to = query.up_to.into_iter().chain(last).min();
        let mut page = self.engine.archivable(query).await?;
        if page.kept > 0 {
            let behind = exported.into_iter().filter(|(_, number)| Some(*number) == last);
            page.behind = behind.map(|(name, _)| name).collect();
        }
        Ok(page)
    }

    /// # Errors
    /// A sink still needs one of these entries.
    async fn check_exported(&self, numbers: &[u64]) -> Result<(), CommandError> {
        let exported = self.operations.exported().await?;
        let needed = exported.iter().find_map(|(name, last)| {
            let number = numbers.iter().find(|number| *number > last)?;
            Some(format!(
                "entry {number} of the ledger stays: the sink {name} has exported up to {last} only; see \
                 `playhouse billing status`"
            ))
        });
        needed.map_or(Ok(()), |needed| Err(CommandError::Invalid(needed)))
    }

    /// Tells the recorder of metrics what the engine does not know.
    pub(crate) fn observe(&self) {
        self.operations.observe();
    }
}

/// Does what is asked about the upkeep of a store. It may block for long.
///
/// # Errors
/// The store failed.
pub fn answer_store(upkeep: &dyn Upkeep, request: StoreRequest) -> Result<OperatorReply, CommandError> {
    Ok(match request {
        StoreRequest::Check => OperatorReply::Checked(upkeep.check()?),
        StoreRequest::Compact => OperatorReply::Reclaimed(upkeep.reclaim()?),
    })
}

/// What a store is asked for that shall list these.
fn query(list: ListSessions) -> ListQuery {
    let ListSessions { tenant, workspace, after, limit, roots } = list;
    let after = after.map(|ListPlace { created, session }| Cursor { created, session });
    ListQuery { tenant, workspace, after, limit, kin: roots.then_some(Kin::Roots), ..ListQuery::default() }
}

/// What it found.
fn list(engine: &Engine, page: Page) -> SessionList {
    let next = page.next.map(|Cursor { created, session }| ListPlace { created, session });
    let ids = page.sessions.iter().map(|summary| summary.id);
    let parked = ids.filter_map(|id| Some((id, engine.parked(id)?.to_string()))).collect();
    SessionList { sessions: page.sessions, next, parked }
}

//! The engine that a command works with: one in this process, or one that another process runs and that is asked over the
//! socket in the data directory. Commands do not know which. Both carry the same requests to the same code.

mod background;
mod open;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use playhouse_actors::{Published, Stopped, Subscription};
use playhouse_protocol::command::{Reply, Snapshot};
use playhouse_protocol::consent::Grant;
use playhouse_protocol::ledger::{ArchivePage, ArchiveQuery, RowPage, RowQuery, UsagePage, UsageQuery};
use playhouse_protocol::message::BlobRef;
use playhouse_protocol::operator::{
    BillingRequest, LetterPage, LetterPlace, ListSessions, OperatorReply, OperatorRequest, Resent, Resumed,
    ScriptedCall, SessionList, SessionLog, SinkFacts,
};
use playhouse_protocol::{
    Accepted, Command, CommandError, ModelRef, NewSession, Prompt, Seq, SessionId, SessionSummary, Timestamp,
};
use playhouse_server::{Operator, OperatorClient, OperatorError, OperatorEvents};

use super::Failure;
use crate::client::Client;
use crate::house::House;

pub(super) use background::keep_log_short;
pub(super) use open::{
    SOCKET, any_or_start, ask_key, ask_store, make_way, open, or_start, outside_if_fit, running, salvage,
};

/// How long sinks may deliver what there is when a command ends: nobody shall notice. What is left goes out the next time.
const DELIVERY: Duration = Duration::from_millis(250);

/// An engine. Cheap to clone.
#[derive(Clone)]
pub(super) struct Reach(Carrier);

#[derive(Clone)]
enum Carrier {
    Inside(Operator),
    Outside(OperatorClient),
}

/// An engine that is held for a command, until it is closed.
pub(super) struct Held {
    reach: Reach,
    engine: HeldEngine,
}

/// Where it runs.
enum HeldEngine {
    Here(Box<House>),
    InAnotherProcess(OperatorClient),
}

impl From<OperatorError> for Failure {
    fn from(error: OperatorError) -> Self {
        match error {
            OperatorError::Refused(error) => error.into(),
            OperatorError::Gone(text) => Self::failed(text),
        }
    }
}

impl Held {
    /// This house.
    pub(super) fn inside(house: House) -> Self {
        Self { reach: Reach(Carrier::Inside(house.operator())), engine: HeldEngine::Here(Box::new(house)) }
    }

    fn outside(client: OperatorClient) -> Self {
        Self { reach: Reach(Carrier::Outside(client.clone())), engine: HeldEngine::InAnotherProcess(client) }
    }

    /// The engine.
    pub(super) fn reach(&self) -> &Reach {
        &self.reach
    }

    /// Its operations, as a client asks for them.
    pub(super) fn client(&self) -> Client {
        match &self.engine {
            HeldEngine::Here(house) => house.client(),
            HeldEngine::InAnotherProcess(client) => Client::Outside(client.clone()),
        }
    }

    /// Lets go of it, which ends it where it runs in this process.
    pub(super) async fn close(self) -> Stopped {
        match self.engine {
            HeldEngine::Here(house) => house.shutdown_within(DELIVERY).await,
            HeldEngine::InAnotherProcess(_) => Stopped::default(),
        }
    }
}

/// Events of a session.
pub(super) enum Events {
    Inside(Box<Subscription>),
    Outside(Box<OperatorEvents>),
}

impl Events {
    /// The next one; `None` when the session was removed or the engine stopped. May be dropped and called again.
    pub(super) async fn next(&mut self) -> Result<Option<Arc<Published>>, OperatorError> {
        match self {
            Self::Inside(events) => Ok(events.next().await?),
            Self::Outside(events) => events.next().await,
        }
    }
}

/// Asks, and takes the answer apart.
macro_rules! ask {
    ($reach:expr, $request:expr, $answer:pat => $value:expr) => {
        match $reach.ask($request).await? {
            $answer => Ok($value),
            other => Err(unexpected(&other)),
        }
    };
}

impl Reach {
    async fn ask(&self, request: OperatorRequest) -> Result<OperatorReply, OperatorError> {
        match &self.0 {
            Carrier::Inside(operator) => Ok(Box::pin(operator.answer(request)).await?),
            Carrier::Outside(client) => Box::pin(client.ask(&request)).await,
        }
    }

    /// The process that runs it, where that is another one.
    pub(super) fn process(&self) -> Option<u32> {
        match &self.0 {
            Carrier::Inside(_) => None,
            Carrier::Outside(client) => Some(client.facts().pid),
        }
    }

    pub(super) async fn create(&self, new: NewSession) -> Result<SessionId, OperatorError> {
        ask!(self, OperatorRequest::Create(new), OperatorReply::Created(session) => session)
    }

    /// A fork of all that is settled in a session by now. `readable`: of all that can be read, where its log is damaged.
    pub(super) async fn fork(&self, session: SessionId, readable: bool) -> Result<SessionId, OperatorError> {
        let request = OperatorRequest::Fork { session, before: None, readable };
        ask!(self, request, OperatorReply::Created(fork) => fork)
    }

    pub(super) async fn command(&self, session: SessionId, command: Command) -> Result<Reply, OperatorError> {
        ask!(self, OperatorRequest::Command { session, command }, OperatorReply::Session(reply) => reply)
    }

    pub(super) async fn prompt(&self, session: SessionId, prompt: Prompt) -> Result<Accepted, OperatorError> {
        self.accepted(session, Command::Prompt(prompt)).await
    }

    /// Asks for something that is answered with the turn that it begins.
    pub(super) async fn accepted(
        &self,
        session: SessionId,
        command: Command,
    ) -> Result<Accepted, OperatorError> {
        match self.command(session, command).await? {
            Reply::Accepted(accepted) => Ok(accepted),
            other => Err(unexpected(&other)),
        }
    }

    /// The session without its messages.
    pub(super) async fn outline(&self, session: SessionId) -> Result<Snapshot, OperatorError> {
        match self.command(session, Command::Outline).await? {
            Reply::Snapshot(snapshot) => Ok(*snapshot),
            other => Err(unexpected(&other)),
        }
    }

    /// Every durable event after `after`, the open parts, then live ones.
    pub(super) async fn events(&self, session: SessionId, after: Seq) -> Result<Events, OperatorError> {
        Ok(match &self.0 {
            Carrier::Inside(operator) => {
                let handle = operator.engine().session(session).await?;
                Events::Inside(Box::new(handle.events(Some(after)).await?))
            }
            Carrier::Outside(client) => Events::Outside(Box::new(client.events(session, after).await?)),
        })
    }

    pub(super) async fn list(&self, sessions: ListSessions) -> Result<SessionList, OperatorError> {
        ask!(self, OperatorRequest::List(sessions), OperatorReply::Sessions(list) => list)
    }

    pub(super) async fn summary(&self, session: SessionId) -> Result<SessionSummary, OperatorError> {
        ask!(self, OperatorRequest::Summary(session), OperatorReply::Summary(summary) => *summary)
    }

    pub(super) async fn read(&self, session: SessionId) -> Result<SessionLog, OperatorError> {
        ask!(self, OperatorRequest::Read(session), OperatorReply::Log(log) => log)
    }

    pub(super) async fn delete(&self, session: SessionId) -> Result<(), OperatorError> {
        ask!(self, OperatorRequest::Delete(session), OperatorReply::Done => ())
    }

    /// Lets a session go on with what is unfinished, or all that have something.
    pub(super) async fn resume(&self, session: Option<SessionId>) -> Result<Resumed, OperatorError> {
        ask!(self, OperatorRequest::Resume(session), OperatorReply::Resumed(resumed) => resumed)
    }

    pub(super) async fn usage(&self, query: UsageQuery) -> Result<UsagePage, OperatorError> {
        ask!(self, OperatorRequest::Usage(query), OperatorReply::Usage(page) => page)
    }

    pub(super) async fn rows(&self, query: RowQuery) -> Result<RowPage, OperatorError> {
        ask!(self, OperatorRequest::Rows(query), OperatorReply::Rows(page) => page)
    }

    pub(super) async fn archivable(&self, query: ArchiveQuery) -> Result<ArchivePage, OperatorError> {
        ask!(self, OperatorRequest::Archivable(query), OperatorReply::Archivable(page) => page)
    }

    pub(super) async fn archive(&self, before: Timestamp, numbers: Vec<u64>) -> Result<u64, OperatorError> {
        ask!(self, OperatorRequest::Archive { before, numbers }, OperatorReply::Archived(rows) => rows)
    }

    pub(super) async fn sinks(&self) -> Result<Vec<SinkFacts>, OperatorError> {
        ask!(self, OperatorRequest::Billing(BillingRequest::Status), OperatorReply::Sinks(sinks) => sinks)
    }

    /// A page of what sinks refused.
    pub(super) async fn letters(
        &self,
        sink: Option<String>,
        after: Option<LetterPlace>,
    ) -> Result<LetterPage, OperatorError> {
        let request = OperatorRequest::Billing(BillingRequest::Letters { sink, after, limit: 0 });
        ask!(self, request, OperatorReply::Letters(page) => page)
    }

    /// Sends some of that once more.
    pub(super) async fn resend(
        &self,
        sink: String,
        id: Option<String>,
        after: Option<LetterPlace>,
    ) -> Result<Resent, OperatorError> {
        let request = OperatorRequest::Billing(BillingRequest::Resend { sink, id, after });
        ask!(self, request, OperatorReply::Resent(resent) => resent)
    }

    /// Removes what is kept of a sink that is not configured. How much it had refused.
    pub(super) async fn forget_sink(&self, sink: String, letters: bool) -> Result<u64, OperatorError> {
        let request = OperatorRequest::Billing(BillingRequest::Forget { sink, letters });
        ask!(self, request, OperatorReply::SinkForgotten(letters) => letters)
    }

    pub(super) async fn grants(&self, tenant: Option<String>) -> Result<Vec<Grant>, OperatorError> {
        ask!(self, OperatorRequest::Grants(tenant), OperatorReply::Grants(grants) => grants)
    }

    pub(super) async fn revoke(&self, tenant: Option<String>, grant: String) -> Result<Grant, OperatorError> {
        ask!(self, OperatorRequest::Revoke { tenant, grant }, OperatorReply::Revoked(grant) => grant)
    }

    pub(super) async fn store_blob(&self, tenant: &str, content: Bytes) -> Result<BlobRef, OperatorError> {
        match &self.0 {
            Carrier::Inside(operator) => Ok(operator.engine().store_blob(tenant, content).await?),
            Carrier::Outside(client) => client.store_blob(tenant, &content).await,
        }
    }

    /// A model that makes these calls, one a step.
    pub(super) async fn script(&self, calls: Vec<ScriptedCall>) -> Result<ModelRef, OperatorError> {
        ask!(self, OperatorRequest::Script(calls), OperatorReply::Scripted(model) => model)
    }
}

fn unexpected(reply: &impl std::fmt::Debug) -> OperatorError {
    let text: String = format!("{reply:?}").chars().take(200).collect();
    CommandError::Store(format!("the engine answered something else than was asked: {text}")).into()
}

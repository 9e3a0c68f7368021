//! Many clients, over streamable HTTP. Older revisions of the protocol have sessions, which belong to whoever began them.

use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt as _, Stream, StreamExt as _};
use http::{Request, Response};
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use parking_lot::Mutex;
use rmcp::model::{ClientJsonRpcMessage, ProtocolVersion, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError,
};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId, SessionManager};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::handler::McpServer;
use crate::native::CallSession;

/// The most sessions of the protocol that a tenant may have open at once.
pub const MOST_HTTP_SESSIONS: usize = 64;
/// The header that names the revision of a request. Those from 2026-07-28 on have no sessions of the protocol.
const REVISION: &str = "mcp-protocol-version";
/// After this time without a request and without an open answer, a session of the protocol ends.
const IDLE: Duration = Duration::from_secs(30 * 60);

/// The answer to a request.
pub type Answer = Response<BoxBody<Bytes, Infallible>>;
/// The body of a request.
pub type Body = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// Whose a session of the protocol is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The tenant.
    pub tenant: Arc<str>,
    /// The key; `None` without one.
    pub key: Option<Arc<str>>,
}

/// The tenant has as many sessions of the protocol as it may have, and an answer to each of them is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there are {MOST_HTTP_SESSIONS} sessions of this protocol already, and all of them are in use: end one with DELETE"
)]
pub struct Full;

/// The sessions of the protocol that are open.
#[derive(Debug)]
pub struct HttpSessions {
    local: LocalSessionManager,
    known: Mutex<HashMap<SessionId, Known>>,
    /// Where calls of native tools run whose requests belong to no session of the protocol. An owner is a tenant or a key.
    calls: Mutex<HashMap<Owner, CallSession>>,
    /// Ends all of them.
    closing: CancellationToken,
    /// How often an open answer says that the server lives.
    heartbeat: Duration,
    /// The most bytes of a request.
    body: usize,
}

#[derive(Debug)]
struct Known {
    owner: Owner,
    /// When it was used last.
    used: Instant,
    /// Answers that are open.
    open: usize,
}

impl HttpSessions {
    /// None. Each ends with `closing`.
    pub fn new(closing: CancellationToken, heartbeat: Duration, body: usize) -> Self {
        let mut local = LocalSessionManager::default();
        // What is idle is told here: a turn may say nothing for an hour while its client waits.
        local.session_config.keep_alive = None;
        Self { local, known: Mutex::default(), calls: Mutex::default(), closing, heartbeat, body }
    }

    /// The answer to a request of `owner`, for which `server` does the work. Who asks, and by which host and origin, has been
    /// checked.
    ///
    /// # Errors
    /// It would begin a session where there are too many.
    pub fn answer(
        self: Arc<Self>,
        owner: Owner,
        server: McpServer,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Answer, Full>> {
        // The body of an async function is compiled by whoever awaits it; behind a box, it is compiled here.
        self.answered(owner, server, request).boxed()
    }

    async fn answered(
        self: Arc<Self>,
        owner: Owner,
        server: McpServer,
        request: Request<Body>,
    ) -> Result<Answer, Full> {
        let revision = request.headers().get(REVISION).and_then(|value| value.to_str().ok());
        let server = match revision {
            Some(revision) if revision >= ProtocolVersion::V_2026_07_28.as_str() => {
                let mut calls = self.calls.lock();
                server.calling_in(calls.entry(owner.clone()).or_default().clone())
            }
            _ => server,
        };
        let mut config = StreamableHttpServerConfig::default()
            .with_cancellation_token(self.closing.clone())
            .disable_allowed_hosts();
        config.sse_keep_alive = Some(self.heartbeat);
        config.max_request_body_bytes = self.body;
        let sessions = Arc::new(OfOwner { all: self, owner, is_full: AtomicBool::new(false) });
        if request.method() == http::Method::POST {
            // What is answered at once needs no place to come back to: the answer comes first.
            config.sse_retry = None;
        }
        let service = StreamableHttpService::new(move || Ok(server.clone()), Arc::clone(&sessions), config);
        let response = service.handle(request).await;
        if sessions.is_full.load(Ordering::Relaxed) { Err(Full) } else { Ok(response) }
    }

    /// Ends a session when nobody has used it for long.
    async fn watch(self: Arc<Self>, id: SessionId) {
        loop {
            let until = match self.known.lock().get(&id) {
                None => return,
                Some(known) if known.open > 0 => Instant::now() + IDLE,
                Some(known) => known.used + IDLE,
            };
            if until <= Instant::now() {
                break;
            }
            tokio::select! {
                () = self.closing.cancelled() => return,
                () = tokio::time::sleep_until(until) => {}
            }
        }
        self.close(&id).await;
    }

    async fn close(&self, id: &SessionId) {
        self.known.lock().remove(id);
        if let Err(error) = self.local.close_session(id).await {
            tracing::debug!(%error, "a session of the protocol did not close");
        }
    }

    /// An answer to a session is open until what is returned is dropped.
    fn hold(self: &Arc<Self>, id: &SessionId) -> Open {
        if let Some(known) = self.known.lock().get_mut(id) {
            known.open += 1;
            known.used = Instant::now();
        }
        Open { all: Arc::clone(self), id: id.clone() }
    }
}

/// An open answer.
struct Open {
    all: Arc<HttpSessions>,
    id: SessionId,
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(known) = self.all.known.lock().get_mut(&self.id) {
            known.open = known.open.saturating_sub(1);
            known.used = Instant::now();
        }
    }
}

/// The sessions of one owner: nobody else's are there.
struct OfOwner {
    all: Arc<HttpSessions>,
    owner: Owner,
    /// A session was wanted that there may not be.
    is_full: AtomicBool,
}

impl OfOwner {
    fn check(&self, id: &SessionId) -> Result<(), LocalSessionManagerError> {
        match self.all.known.lock().get_mut(id) {
            Some(known) if known.owner == self.owner => {
                known.used = Instant::now();
                Ok(())
            }
            _ => Err(LocalSessionManagerError::SessionNotFound(id.clone())),
        }
    }

    /// A session that makes room for another one; `None` where there is room. An error where there is none.
    fn room(&self) -> Result<Option<SessionId>, Full> {
        let known = self.all.known.lock();
        let of_tenant = || known.iter().filter(|(_, known)| known.owner.tenant == self.owner.tenant);
        if of_tenant().count() < MOST_HTTP_SESSIONS {
            return Ok(None);
        }
        let idlest = of_tenant().filter(|(_, known)| known.open == 0).min_by_key(|(_, known)| known.used);
        idlest.map(|(id, _)| Some(id.clone())).ok_or(Full)
    }
}

impl SessionManager for OfOwner {
    type Error = LocalSessionManagerError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        match self.room() {
            Ok(None) => {}
            Ok(Some(id)) => self.all.close(&id).await,
            Err(Full) => {
                self.is_full.store(true, Ordering::Relaxed);
                return Err(LocalSessionManagerError::SessionNotFound("".into()));
            }
        }
        let (id, transport) = self.all.local.create_session().await?;
        let known = Known { owner: self.owner.clone(), used: Instant::now(), open: 0 };
        self.all.known.lock().insert(id.clone(), known);
        tokio::spawn(Arc::clone(&self.all).watch(id.clone()));
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.check(id)?;
        self.all.local.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        Ok(self.check(id).is_ok() && self.all.local.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        if self.check(id).is_ok() {
            self.all.close(id).await;
        }
        Ok(())
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.check(id)?;
        let open = self.all.hold(id);
        let stream = self.all.local.create_stream(id, message).await?;
        Ok(held(stream, open))
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        self.check(id)?;
        self.all.local.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.check(id)?;
        let open = self.all.hold(id);
        Ok(held(self.all.local.create_standalone_stream(id).await?, open))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.check(id)?;
        let open = self.all.hold(id);
        Ok(held(self.all.local.resume(id, last_event_id).await?, open))
    }
}

/// The stream, which holds its session.
fn held<S>(stream: S, open: Open) -> impl Stream<Item = ServerSseMessage> + Send + Sync + 'static
where
    S: Stream<Item = ServerSseMessage> + Send + Sync + 'static,
{
    stream.map(move |message| {
        let _held = &open;
        message
    })
}

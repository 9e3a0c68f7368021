//! Requests: sent, waited for, and given up.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use playhouse_protocol::SessionId;
use playhouse_tools::Host;
use rmcp::model::{
    CancelledNotificationParam, ClientRequest, CustomRequest, CustomResult, ErrorData, InputRequest,
    InputRequiredResult, ProgressToken, RequestId, ServerResult,
};
use rmcp::service::{PeerRequestOptions, RequestHandle, ServiceError};
use serde_json::{Map, Value};
use thiserror::Error;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::asking::Asker;
use super::handler::{Handler, answered, nobody, question};
use super::{Connection, Link, MESSAGE, ProgressSink, reason_of, unauthorized};
use crate::result::CallResult;
use crate::text::cut;

/// How often a server may answer a request with questions.
const ROUNDS: usize = 10;
/// How long is waited for the reason of a server's end.
const REASON: Duration = Duration::from_secs(1);

/// A call of a tool.
#[derive(Clone)]
pub struct CallRequest {
    /// Whose call it is.
    pub session: SessionId,
    /// The server's own name of the tool.
    pub tool: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// Ends it.
    pub cancel: CancellationToken,
    /// Upper bound, from the moment at which it is sent; that of the entry if `None`. It begins anew when somebody has answered
    /// a question of the server.
    pub timeout: Option<Duration>,
    /// Where its progress is told.
    pub progress: Option<ProgressSink>,
    /// Who puts questions of the server to people; it is told that there is nobody if `None`.
    pub host: Option<Arc<dyn Host>>,
}

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CallError {
    /// It was cancelled; the server was told.
    #[error("cancelled")]
    Cancelled,
    /// There was no answer in time; the server was told that none is wanted any more.
    #[error("no answer within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The server ended, with the reason.
    #[error("the server ended: {0}")]
    Ended(Arc<str>),
    /// The server answered with an error.
    #[error("the server answered with an error: {0}")]
    Refused(String),
    /// The request did not reach the server, or its answer did not come back.
    #[error("{0}")]
    Failed(String),
    /// The address of the server, or one that it leads to, may not be reached.
    #[error("{0}")]
    Blocked(String),
    /// The server wants an authorization that it was not given.
    #[error("{}", unauthorized(.challenge.as_deref()))]
    Unauthorized {
        /// What it wants, in the words of `WWW-Authenticate`.
        challenge: Option<String>,
    },
    /// Somebody has to log in to the server first, or to grant it more. A text for users.
    #[error("{0}")]
    Login(String),
    /// The answer is not one that the protocol has, or one that is not understood.
    #[error("the answer of the server was not understood: {0}")]
    Malformed(String),
}

/// What bounds a request.
pub(super) struct Bounds<'a> {
    pub(super) timeout: Duration,
    pub(super) cancel: Option<&'a CancellationToken>,
    /// Whose it is.
    pub(super) session: Option<SessionId>,
    /// Who is asked what the server wants to know.
    pub(super) asker: Option<&'a Asker>,
    pub(super) progress: Option<&'a ProgressSink>,
}

impl Bounds<'_> {
    pub(super) async fn cancelled(&self) {
        match self.cancel {
            Some(cancel) => cancel.cancelled().await,
            None => std::future::pending().await,
        }
    }
}

impl Connection {
    /// Calls a tool. Waits for its turn first: see the page of this module.
    ///
    /// # Errors
    /// There is no result. A tool that failed has one, with [`CallResult::is_error`].
    pub async fn call(&self, request: CallRequest) -> Result<CallResult, CallError> {
        let CallRequest { session, tool, arguments, cancel, timeout, progress, host } = request;
        let _turn = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(CallError::Cancelled),
            reason = reason_of(self.ended.clone()) => return Err(CallError::Ended(reason)),
            turn = self.handler.turns.take(session) => turn,
            // A server that waits for somebody holds up the others no longer than that.
            () = tokio::time::sleep(timeout.unwrap_or(self.timeout)) => {
                return Err(CallError::TimedOut(timeout.unwrap_or(self.timeout)));
            }
        };
        let asker = host.map(Asker::new);
        let _calling = asker.as_ref().map(|asker| self.handler.calling(session, asker));
        let is_task = self.tasks.lock().contains(&tool);
        let params =
            Map::from_iter([("name".to_owned(), tool.into()), ("arguments".to_owned(), arguments.into())]);
        let bounds = Bounds {
            timeout: timeout.unwrap_or(self.timeout),
            cancel: Some(&cancel),
            session: Some(session),
            asker: asker.as_deref(),
            progress: progress.as_ref(),
        };
        let result = match is_task {
            true => self.call_as_task(params, bounds).await?,
            false => self.request("tools/call", params, &bounds).await?,
        };
        CallResult::read(result).map_err(CallError::Malformed)
    }

    /// Makes a request, and answers what the server wants to know before it answers.
    pub(super) async fn request(
        &self,
        method: &str,
        params: Map<String, Value>,
        bounds: &Bounds<'_>,
    ) -> Result<Value, CallError> {
        let mut again = params.clone();
        for _ in 0..ROUNDS {
            let result = self.round(method, again, bounds).await?;
            match result.get("resultType").and_then(Value::as_str) {
                Some("input_required") => {}
                Some("task") => {
                    return Err(CallError::Malformed(
                        "it makes a task of it, which is not supported".to_owned(),
                    ));
                }
                _ => return Ok(result),
            }
            let wanted: InputRequiredResult =
                serde_json::from_value(result).map_err(|error| CallError::Malformed(error.to_string()))?;
            let answers = tokio::select! {
                biased;
                () = bounds.cancelled() => return Err(CallError::Cancelled),
                reason = reason_of(self.ended.clone()) => return Err(CallError::Ended(reason)),
                answers = self.answers(wanted.input_requests.unwrap_or_default(), bounds) => answers?,
            };
            again = params.clone();
            if !answers.is_empty() {
                again.insert("inputResponses".to_owned(), Value::from_iter(answers));
            }
            if let Some(state) = wanted.request_state {
                again.insert("requestState".to_owned(), state.into());
            }
        }
        Err(CallError::Malformed(format!("it asked {ROUNDS} times before it answered")))
    }

    /// Answers the questions that a request depends on, one after another.
    async fn answers(
        &self,
        questions: BTreeMap<String, InputRequest>,
        bounds: &Bounds<'_>,
    ) -> Result<BTreeMap<String, Value>, CallError> {
        let mut answers = BTreeMap::new();
        for (key, request) in questions {
            let answer = match request {
                InputRequest::ListRoots(_) => serde_json::to_value(self.handler.roots()),
                InputRequest::Elicitation(request) => {
                    let answer = match (question(request.params), bounds.session, bounds.asker) {
                        (Some(question), Some(session), Some(asker)) => {
                            self.handler.ask(session, asker, question).await
                        }
                        _ => nobody(),
                    };
                    serde_json::to_value(answered(answer))
                }
                InputRequest::CreateMessage(_) => {
                    return Err(CallError::Malformed(
                        "it wants to use the model, which is not supported".to_owned(),
                    ));
                }
                _ => return Err(CallError::Malformed("it asks for something that is not known".to_owned())),
            };
            answers.insert(key, answer.map_err(|error| CallError::Malformed(error.to_string()))?);
        }
        Ok(answers)
    }

    /// Sends a request and waits for what the server answers.
    async fn round(
        &self,
        method: &str,
        params: Map<String, Value>,
        bounds: &Bounds<'_>,
    ) -> Result<Value, CallError> {
        let request = ClientRequest::CustomRequest(CustomRequest::new(method, Some(Value::Object(params))));
        let sent = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
        let RequestHandle { mut rx, id, progress_token, .. } = match sent {
            Ok(handle) => handle,
            Err(_) => return Err(self.gone().await),
        };
        let failed = id.clone();
        let mut pending = Pending { connection: self, id: Some(id) };
        let _watched = bounds.progress.map(|sink| {
            self.handler.watch(progress_token.clone(), Arc::clone(sink));
            Watched(&self.handler, progress_token)
        });
        let mut cancelled = pin!(bounds.cancelled());
        let mut deadline = Instant::now() + bounds.timeout;
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut rx => break answer,
                () = &mut cancelled => return Err(CallError::Cancelled),
                () = sleep_until(deadline) => {
                    // As long as people are asked, the server cannot answer.
                    let Some(session) = bounds.session.filter(|session| self.is_asking(*session)) else {
                        return Err(CallError::TimedOut(bounds.timeout));
                    };
                    let mut asking = self.handler.asking.subscribe();
                    let asked = async { drop(asking.wait_for(|asking| !asking.contains_key(&session)).await) };
                    tokio::select! {
                        biased;
                        answer = &mut rx => break answer,
                        () = &mut cancelled => return Err(CallError::Cancelled),
                        () = asked => {}
                    }
                    deadline = Instant::now() + bounds.timeout;
                }
            }
        };
        pending.id = None;
        match answer {
            Ok(Ok(ServerResult::CustomResult(CustomResult(result)))) => Ok(result),
            Ok(Ok(_)) => Err(CallError::Malformed("it is of another kind".to_owned())),
            Ok(Err(ServiceError::McpError(error))) => {
                Err(self.link.failure_of(&failed).unwrap_or_else(|| CallError::Refused(refusal(&error))))
            }
            Ok(Err(ServiceError::Cancelled { .. })) => Err(CallError::Cancelled),
            Ok(Err(_)) | Err(_) => Err(self.gone().await),
        }
    }

    pub(super) fn is_asking(&self, session: SessionId) -> bool {
        self.handler.asking.borrow().contains_key(&session)
    }

    /// Why the server is gone.
    pub(super) async fn gone(&self) -> CallError {
        let reason = timeout(REASON, reason_of(self.ended.clone())).await;
        CallError::Ended(reason.unwrap_or_else(|_| "it closed the connection".into()))
    }
}

impl Link {
    /// Why a request failed that has no answer of the server.
    fn failure_of(&self, id: &RequestId) -> Option<CallError> {
        match self {
            Self::Program(_) => None,
            Self::Web(remote) => remote.failure(id),
        }
    }

    /// Ends what waits for the answer of a request.
    fn abandon(&self, id: &RequestId) {
        if let Self::Web(remote) = self {
            remote.abandon(id);
        }
    }
}

/// The text of an error of a server.
fn refusal(error: &ErrorData) -> String {
    let message = cut(&error.message, MESSAGE);
    match &error.data {
        None | Some(Value::Null) => message,
        Some(data) => format!("{message} ({})", cut(&data.to_string(), MESSAGE)),
    }
}

/// A request that the server may still work on: it is told when nobody wants the answer any more.
struct Pending<'a> {
    connection: &'a Connection,
    id: Option<RequestId>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        // Outside of a runtime the connection ends as well.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        self.connection.link.abandon(&id);
        let peer = self.connection.peer.clone();
        runtime.spawn(async move {
            let reason = Some("nobody waits for the answer any more".to_owned());
            let params = CancelledNotificationParam::new(Some(id), reason);
            // A connection that is closed needs no notice.
            drop(peer.notify_cancelled(params).await);
        });
    }
}

/// Progress that is told to a sink, until this is dropped.
struct Watched<'a>(&'a Handler, ProgressToken);

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.0.unwatch(&self.1);
    }
}

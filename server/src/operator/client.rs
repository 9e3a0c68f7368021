//! The other end: asks an engine over its socket.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use playhouse_protocol::message::BlobRef;
use playhouse_protocol::operator::{EngineFacts, OPERATOR_PROTOCOL, OperatorReply, OperatorRequest};
use playhouse_protocol::{CommandError, Seq, SessionId, json};
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::api::ask;
use super::events::OperatorEvents;
use super::{LARGEST, PATH};
use crate::app::App;
use crate::connection::Carrier;
use crate::router::router;
use crate::socket;

/// How long an engine may take to say who it is.
const HELLO_WAIT: Duration = Duration::from_secs(10);

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OperatorError {
    /// The engine did not do it.
    #[error(transparent)]
    Refused(#[from] CommandError),
    /// The engine went away, or cannot be understood; what became of the request is not known.
    #[error("{0}")]
    Gone(String),
}

/// An engine that another process runs. Cheap to clone. The engine does not end for want of work as long as this lives.
#[derive(Clone, Debug)]
pub struct OperatorClient(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    facts: EngineFacts,
    /// Ends the request that holds the engine, on the connection on which it said who it is.
    _stay: DropGuard,
}

impl OperatorClient {
    /// The engine that serves the socket at `path`; `None` where nobody does. It may be ending: its facts say so.
    ///
    /// # Errors
    /// Somebody else serves it, or an engine that this cannot talk with; the socket cannot be opened.
    pub async fn connect(path: &Path) -> Result<Option<Self>, OperatorError> {
        let mut sender = match open(path).await {
            Ok(sender) => sender,
            Err(error) if is_nobody(&error) => return Ok(None),
            // No socket has such a path.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(None),
            Err(error) => {
                let text = format!("failed to connect to the engine at {}: {error}", path.display());
                return Err(OperatorError::Gone(text));
            }
        };
        let hello = async {
            if sender.ready().await.is_err() {
                return Ok(None);
            }
            let answer = sender.send_request(request(&OperatorRequest::Hello)?).await.ok();
            let Some(answer) = answer else { return Ok(None) };
            let body = whole(answer).await?;
            // Those of another version say something else beside this.
            let reply: Value = parse(&body)?;
            let facts = &reply["data"];
            if reply["reply"] == "engine" && facts["protocol"] != OPERATOR_PROTOCOL {
                return Err(OperatorError::Gone(format!(
                    "the engine in process {} is Playhouse {}, which this one does not understand: stop it with \
                     `kill {0}` first",
                    facts["pid"],
                    facts["version"].as_str().unwrap_or("of another version"),
                )));
            }
            parse(&body).map(Some)
        };
        let stuck = |_| {
            let path = path.display();
            OperatorError::Gone(format!(
                "whoever serves {path} does not answer within {HELLO_WAIT:?}: end it"
            ))
        };
        match tokio::time::timeout(HELLO_WAIT, hello).await.map_err(stuck)? {
            // It closed between the two, as an engine does that ends.
            Ok(None) => Ok(None),
            Ok(Some(OperatorReply::Engine(facts))) => {
                let _stay = stay(sender, request(&OperatorRequest::Stay)?);
                Ok(Some(Self(Arc::new(Inner { path: path.to_owned(), facts, _stay }))))
            }
            Ok(Some(other)) => Err(unexpected(&other)),
            Err(error) => Err(error),
        }
    }

    /// Who it is, as it said when this connected.
    pub fn facts(&self) -> &EngineFacts {
        &self.0.facts
    }

    /// Asks for something.
    ///
    /// # Errors
    /// The engine did not do it, or went away.
    pub async fn ask(&self, asked: &OperatorRequest) -> Result<OperatorReply, OperatorError> {
        match read(self.send(request(asked)?).await?).await? {
            OperatorReply::Failed(error) => Err(error.into()),
            reply => Ok(reply),
        }
    }

    /// Keeps content outside the log.
    ///
    /// # Errors
    /// As for [`OperatorClient::ask`].
    pub async fn store_blob(&self, tenant: &str, content: &[u8]) -> Result<BlobRef, OperatorError> {
        let (tenant, content) = (tenant.to_owned(), STANDARD.encode(content));
        match self.ask(&OperatorRequest::StoreBlob { tenant, content }).await? {
            OperatorReply::Stored(blob) => Ok(blob),
            other => Err(unexpected(&other)),
        }
    }

    /// The events of a session of the local tenant after `after`, as a handle in process gives them.
    ///
    /// # Errors
    /// There is no such session, it is parked, or the engine went away.
    pub async fn events(&self, session: SessionId, after: Seq) -> Result<OperatorEvents, OperatorError> {
        let body = self.stream(session, after).await?;
        Ok(OperatorEvents::new(self.clone(), session, after, body))
    }

    /// The answer of an operation of the native API, to `GET path`, or to `METHOD path` with a body of JSON.
    ///
    /// # Errors
    /// The engine refused it, or went away.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, OperatorError> {
        decode(self.send(operation(method, path, body)?.map(Full::new)).await?).await
    }

    async fn stream(&self, session: SessionId, after: Seq) -> Result<Incoming, OperatorError> {
        let path = format!("/v1/sessions/{session}/events?after={after}");
        let asked = Request::builder().uri(path).header(HOST, "localhost").body(Full::default());
        let answer = self.send(asked.map_err(|error| gone(&error))?).await?;
        if answer.status() != StatusCode::OK {
            return Err(refused(answer).await);
        }
        Ok(answer.into_body())
    }

    /// The events after `after` once more, from the same engine.
    pub(super) async fn stream_again(
        &self,
        session: SessionId,
        after: Seq,
    ) -> Result<Incoming, OperatorError> {
        let now = Box::pin(Self::connect(&self.0.path)).await?;
        let who = |facts: &EngineFacts| (facts.pid, facts.generation);
        if now.is_none_or(|now| who(now.facts()) != who(self.facts())) {
            return Err(gone(&"nobody serves its socket any more"));
        }
        self.stream(session, after).await
    }

    /// Sends a request on a connection of its own.
    async fn send(&self, asked: Request<Full<Bytes>>) -> Result<Response<Incoming>, OperatorError> {
        let mut sender = open(&self.0.path).await.map_err(|error| gone(&error))?;
        sender.ready().await.map_err(|error| gone(&error))?;
        sender.send_request(asked).await.map_err(|error| gone(&error))
    }
}

/// Asks the engine to stay until what is returned is dropped. An idle connection it would close.
fn stay(mut sender: SendRequest<Full<Bytes>>, asked: Request<Full<Bytes>>) -> DropGuard {
    let end = CancellationToken::new();
    let ended = end.clone();
    tokio::spawn(async move {
        let asks = async {
            // The connection may not have come round yet to the end of the request before.
            sender.ready().await?;
            sender.send_request(asked).await
        };
        tokio::select! {
            () = ended.cancelled() => {}
            // It is answered when the engine ends, whom nobody holds then.
            answer = asks => drop(answer),
        }
    });
    end.drop_guard()
}

/// Whether an error says that nobody serves a socket.
fn is_nobody(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotConnected, NotFound};
    matches!(error.kind(), NotFound | ConnectionRefused | ConnectionReset | BrokenPipe | NotConnected)
}

async fn open(path: &Path) -> io::Result<SendRequest<Full<Bytes>>> {
    let stream = socket::connect(path).await?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // It ends with the sender, or with the engine.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

fn request(asked: &OperatorRequest) -> Result<Request<Full<Bytes>>, OperatorError> {
    let body = serde_json::to_vec(asked).map_err(|error| gone(&error))?;
    if body.len() > LARGEST {
        return Err(OperatorError::Refused(CommandError::Invalid(format!(
            "that is too large: {} bytes, and at most {LARGEST} go to an engine at once; put it into files of the workspace and \
             name them",
            body.len()
        ))));
    }
    let request = Request::builder().method(Method::POST).uri(PATH).header(HOST, "localhost");
    let request = request.header(CONTENT_TYPE, "application/json").body(Full::from(body));
    request.map_err(|error| gone(&error))
}

/// The native API of an engine in this process, asked as the operator: by the same routes as over the socket.
#[derive(Clone, Debug)]
pub struct DirectClient(Router);

impl DirectClient {
    /// Over this engine. `app` serves nobody else.
    pub fn new(app: App) -> Self {
        Self(router(app).layer(Extension(Carrier::Unix)))
    }

    /// As [`OperatorClient::call`].
    ///
    /// # Errors
    /// It was refused.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, OperatorError> {
        ask(&self.0, None, method, path, body).await
    }

    pub(super) fn routes(&self) -> &Router {
        &self.0
    }
}

/// A request for an operation of the native API.
pub(super) fn operation(
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Request<Bytes>, OperatorError> {
    let request = Request::builder().method(method).uri(path).header(HOST, "localhost");
    let request = match body {
        Some(body) => request.header(CONTENT_TYPE, "application/json").body(body.to_string().into()),
        None => request.body(Bytes::new()),
    };
    request.map_err(|error| gone(&error))
}

/// What an operation answered; `null` where it answered nothing.
pub(super) async fn decode<B>(answer: Response<B>) -> Result<Value, OperatorError>
where
    B: hyper::body::Body<Error: std::fmt::Display>,
{
    let status = answer.status();
    let body = answer.into_body().collect().await.map_err(|error| gone(&error))?.to_bytes();
    if !status.is_success() {
        return Err(problem_of(status, &body));
    }
    if body.is_empty() {
        return Ok(Value::Null);
    }
    parse(&body)
}

async fn read<T: DeserializeOwned>(answer: Response<Incoming>) -> Result<T, OperatorError> {
    parse(&whole(answer).await?)
}

/// Reads JSON as the store does: readers that were compiled for the store are used here, too.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, OperatorError> {
    let text = str::from_utf8(body).map_err(serde::de::Error::custom);
    text.and_then(json::parse).map_err(|error| not_understood(&error))
}

/// The body of an answer that is not an error.
async fn whole(answer: Response<Incoming>) -> Result<Bytes, OperatorError> {
    if answer.status() != StatusCode::OK {
        return Err(refused(answer).await);
    }
    Ok(answer.into_body().collect().await.map_err(|error| gone(&error))?.to_bytes())
}

fn not_understood(error: &serde_json::Error) -> OperatorError {
    OperatorError::Gone(format!("the engine answers what this one does not understand: {error}"))
}

/// What a problem document says.
pub(super) async fn refused<B>(answer: Response<B>) -> OperatorError
where
    B: hyper::body::Body<Error: std::fmt::Display>,
{
    let status = answer.status();
    match answer.into_body().collect().await {
        Ok(body) => problem_of(status, &body.to_bytes()),
        Err(error) => gone(&error),
    }
}

fn problem_of(status: StatusCode, body: &[u8]) -> OperatorError {
    match serde_json::from_slice(body) {
        Ok(problem) => told(&problem).into(),
        Err(_) => OperatorError::Gone(format!("the engine answers with the status {status}")),
    }
}

/// The error of a problem document.
pub(super) fn told(problem: &Value) -> CommandError {
    let detail = problem["detail"].as_str().unwrap_or("the engine does not say why").to_owned();
    match problem["type"].as_str().and_then(|kind| kind.rsplit(':').next()) {
        Some("invalid" | "not-found" | "too-large" | "forbidden") => CommandError::Invalid(detail),
        Some("suspended") => CommandError::Suspended(detail),
        _ => CommandError::Store(detail),
    }
}

/// The engine went away.
pub(super) fn gone(error: &dyn std::fmt::Display) -> OperatorError {
    OperatorError::Gone(format!("the engine went away: {error}"))
}

fn unexpected(reply: &OperatorReply) -> OperatorError {
    let text = format!("{reply:?}").chars().take(200).collect::<String>();
    OperatorError::Gone(format!("the engine answered something else than was asked: {text}"))
}

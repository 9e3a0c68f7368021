//! The other end: asks an engine over its socket.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

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
use playhouse_protocol::{CommandError, Seq, SessionId};
use serde_json::Value;
use thiserror::Error;
use tokio::net::UnixStream;

use super::PATH;
use super::events::OperatorEvents;

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
    /// The connection on which the engine said who it is.
    _held: SendRequest<Full<Bytes>>,
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
            Err(_) if std::os::unix::net::SocketAddr::from_pathname(path).is_err() => return Ok(None),
            Err(error) => {
                let text = format!("failed to connect to the engine at {}: {error}", path.display());
                return Err(OperatorError::Gone(text));
            }
        };
        let hello = async {
            let answer = sender.send_request(request(&OperatorRequest::Hello)?).await.ok();
            let Some(answer) = answer else { return Ok(None) };
            read(answer).await.map(Some)
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
            Ok(Some(OperatorReply::Engine(facts))) if facts.protocol == OPERATOR_PROTOCOL => {
                Ok(Some(Self(Arc::new(Inner { path: path.to_owned(), facts, _held: sender }))))
            }
            Ok(Some(OperatorReply::Engine(facts))) => Err(OperatorError::Gone(format!(
                "the engine in process {} is Playhouse {}, which this one does not understand: stop it with \
                 `kill {0}` first",
                facts.pid, facts.version,
            ))),
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
        let reply = read(self.send(request(asked)?).await?).await?;
        match reply {
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
        let path = format!("/v1/sessions/{session}/events?after={after}");
        let asked = Request::builder().uri(path).header(HOST, "localhost").body(Full::default());
        let answer = self.send(asked.map_err(|error| gone(&error))?).await?;
        if answer.status() != StatusCode::OK {
            return Err(refused(answer).await);
        }
        Ok(OperatorEvents::new(answer.into_body()))
    }

    /// Sends a request on a connection of its own.
    async fn send(&self, asked: Request<Full<Bytes>>) -> Result<Response<Incoming>, OperatorError> {
        let mut sender = open(&self.0.path).await.map_err(|error| gone(&error))?;
        sender.send_request(asked).await.map_err(|error| gone(&error))
    }
}

/// Whether an error says that nobody serves a socket.
fn is_nobody(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotConnected, NotFound};
    matches!(error.kind(), NotFound | ConnectionRefused | ConnectionReset | BrokenPipe | NotConnected)
}

async fn open(path: &Path) -> io::Result<SendRequest<Full<Bytes>>> {
    let stream = UnixStream::connect(path).await?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // It ends with the sender, or with the engine.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

fn request(asked: &OperatorRequest) -> Result<Request<Full<Bytes>>, OperatorError> {
    let body = serde_json::to_vec(asked).map_err(|error| gone(&error))?;
    let request = Request::builder().method(Method::POST).uri(PATH).header(HOST, "localhost");
    let request = request.header(CONTENT_TYPE, "application/json").body(Full::from(body));
    request.map_err(|error| gone(&error))
}

async fn read(answer: Response<Incoming>) -> Result<OperatorReply, OperatorError> {
    if answer.status() != StatusCode::OK {
        return Err(refused(answer).await);
    }
    let body = answer.into_body().collect().await.map_err(|error| gone(&error))?.to_bytes();
    serde_json::from_slice(&body).map_err(|error| {
        OperatorError::Gone(format!("the engine answers what this one does not understand: {error}"))
    })
}

/// What a problem document says.
async fn refused(answer: Response<Incoming>) -> OperatorError {
    let status = answer.status();
    match answer.into_body().collect().await {
        Ok(body) => match serde_json::from_slice(&body.to_bytes()) {
            Ok(problem) => told(&problem).into(),
            Err(_) => OperatorError::Gone(format!("the engine answers with the status {status}")),
        },
        Err(error) => gone(&error),
    }
}

/// The error of a problem document.
pub(super) fn told(problem: &Value) -> CommandError {
    let detail = problem["detail"].as_str().unwrap_or("the engine does not say why").to_owned();
    match problem["type"].as_str().and_then(|kind| kind.rsplit(':').next()) {
        Some("invalid" | "not-found" | "too-large") => CommandError::Invalid(detail),
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

//! The exchanges with a server behind an address.

mod requests;
pub(super) use requests::header_text;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use playhouse_tools::web::{Answer, Door, HeaderMap, HeaderName, HeaderValue, Method, Share, Url};
use rmcp::model::{
    ClientJsonRpcMessage, ErrorCode, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage, ServerResult,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::body::{Body, is_stream};
use super::mirror::{Mirrored, headers, of_tools};
use super::sse::{Event, Events};
use crate::connection::messages::{Messages, Noise};
use crate::connection::{CallError, Place};
use crate::list::ListedTool;
use crate::oauth::Authorizer;

/// Upper bound of a message that wants no answer, and of the end of a session.
const TELL: Duration = Duration::from_secs(30);
const END: Duration = Duration::from_secs(5);
/// The pause before a stream is opened again, unless the server says another, and its bounds.
const PAUSE: Duration = Duration::from_secs(1);
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How often in a row a stream is resumed without an event in between.
const RESUMES: u32 = 5;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// A message that is sent.
#[derive(Clone)]
pub(super) struct Outgoing {
    /// Of a request.
    pub(super) id: Option<RequestId>,
    pub(super) body: Bytes,
    pub(super) share: Share,
    /// It is `initialize`.
    pub(super) greets: bool,
    pub(super) method: Option<String>,
    /// What it names: a tool, a prompt, a resource.
    pub(super) name: Option<String>,
    /// Arguments of a call that are headers as well.
    pub(super) mirrored: Vec<(HeaderName, HeaderValue)>,
    /// The version of the protocol that it says.
    pub(super) version: Option<String>,
}

/// What the server knows the client by.
#[derive(Clone, Default)]
struct Session {
    id: Option<HeaderValue>,
    /// Counts sessions.
    number: u64,
    version: Option<String>,
    /// With which it is begun.
    greeting: Option<Outgoing>,
}

/// A server behind an address.
pub(in crate::connection) struct Remote {
    door: Door,
    authorizer: Option<Authorizer>,
    url: Url,
    headers: HeaderMap,
    session: Mutex<Session>,
    /// Held while a session is begun anew.
    renewing: tokio::sync::Mutex<()>,
    messages: Mutex<Messages>,
    incoming: mpsc::Sender<ServerJsonRpcMessage>,
    /// Arguments that are headers as well, by tool.
    tools: Mutex<HashMap<String, Vec<Mirrored>>>,
    /// Requests without an answer yet. Cancelling one ends its exchange.
    pending: Mutex<HashMap<RequestId, CancellationToken>>,
    /// Why requests have no answer of the server, until somebody looks.
    failures: Mutex<HashMap<RequestId, CallError>>,
    close: CancellationToken,
}

impl Remote {
    pub(super) fn new(
        place: &Place,
        url: Url,
        headers: HeaderMap,
        noise: Arc<Noise>,
        incoming: mpsc::Sender<ServerJsonRpcMessage>,
    ) -> Arc<Self> {
        Arc::new(Self {
            door: place.door.clone(),
            authorizer: place.authorizer.clone(),
            url,
            headers,
            session: Mutex::default(),
            renewing: tokio::sync::Mutex::default(),
            messages: Mutex::new(Messages::new(noise)),
            incoming,
            tools: Mutex::default(),
            pending: Mutex::default(),
            failures: Mutex::default(),
            close: CancellationToken::new(),
        })
    }

    /// Takes note of a message that is about to be sent.
    pub(super) fn sent(&self, message: &ClientJsonRpcMessage) {
        self.messages.lock().sent(message);
    }

    /// Takes note of the tools of the server.
    pub(in crate::connection) fn knows(&self, tools: &[ListedTool]) {
        *self.tools.lock() = of_tools(tools);
    }

    /// The arguments of a call that are headers as well.
    pub(super) fn mirrored(&self, tool: &str, arguments: &Value) -> Vec<(HeaderName, HeaderValue)> {
        self.tools.lock().get(tool).map(|mirrored| headers(mirrored, arguments)).unwrap_or_default()
    }

    /// Why a request failed that has no answer of the server.
    pub(in crate::connection) fn failure(&self, id: &RequestId) -> Option<CallError> {
        self.failures.lock().remove(id)
    }

    /// Why a connection could not be opened, if that was for no answer of the server.
    pub(in crate::connection) fn any_failure(&self) -> Option<CallError> {
        self.failures.lock().drain().next().map(|(_, failure)| failure)
    }

    /// Ends the exchange of a request whose answer nobody wants any more.
    pub(in crate::connection) fn abandon(&self, id: &RequestId) {
        if let Some(exchange) = self.pending.lock().remove(id) {
            exchange.cancel();
        }
        self.failures.lock().remove(id);
    }

    /// Ends all exchanges.
    pub(super) fn stop(&self) {
        self.close.cancel();
    }

    /// Ends all exchanges, and the session at the server if there is one.
    pub(in crate::connection) async fn end(&self) {
        self.stop();
        let session = std::mem::take(&mut *self.session.lock());
        if session.id.is_none() {
            return;
        }
        let request = self.request_with(&session, Method::DELETE, Share::Exchange);
        // A server that forbids it, or is gone, forgets the session by itself.
        drop(timeout(END, self.send(request)).await);
    }

    /// Sends a request in the background.
    pub(super) fn request(self: &Arc<Self>, outgoing: Outgoing) {
        let Some(id) = outgoing.id.clone() else { return };
        let cancel = self.close.child_token();
        self.pending.lock().insert(id.clone(), cancel.clone());
        let remote = Arc::clone(self);
        tokio::spawn(async move {
            let exchanged = tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                exchanged = remote.exchange(&outgoing) => exchanged,
            };
            let was_pending = remote.pending.lock().remove(&id).is_some();
            let Err(failure) = exchanged else { return };
            if was_pending {
                let message = failure.to_string();
                remote.failures.lock().insert(id.clone(), failure);
                remote.refuse(id, ErrorData::new(ErrorCode::INTERNAL_ERROR, message, None)).await;
            }
        });
    }

    /// Sends a message that wants no answer.
    pub(super) async fn tell(self: &Arc<Self>, outgoing: Outgoing) -> io::Result<()> {
        let begins = outgoing.method.as_deref() == Some("notifications/initialized");
        let told = tokio::select! {
            biased;
            () = self.close.cancelled() => return Ok(()),
            told = timeout(TELL, self.exchange(&outgoing)) => told,
        };
        match told {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(io::Error::other(error)),
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
        if begins {
            self.listen();
        }
        Ok(())
    }

    /// Sends a message, and hands on what the server answers. A request has been answered when this returns.
    async fn exchange(self: &Arc<Self>, outgoing: &Outgoing) -> Result<(), CallError> {
        let mut session = self.session.lock().clone();
        let mut answer = self.post(&session, outgoing).await?;
        if answer.status == 404 && session.id.is_some() && !outgoing.greets {
            self.renew(session.number).await?;
            session = self.session.lock().clone();
            answer = self.post(&session, outgoing).await?;
        }
        if outgoing.greets && is_good(&answer) {
            let mut session = self.session.lock();
            session.id = header_of(&answer);
            session.greeting = Some(outgoing.clone());
        }
        let answer = match self.accepted(answer).await {
            Ok(answer) => answer,
            Err(Rejected::Answer(error)) => {
                if let Some(id) = outgoing.id.clone().filter(|id| self.pending.lock().remove(id).is_some()) {
                    self.refuse(id, error).await;
                }
                return Ok(());
            }
            Err(Rejected::Failure(failure)) => return Err(failure),
        };
        match &outgoing.id {
            Some(id) => self.read(id, answer).await,
            None => Ok(()),
        }
    }

    /// Reads messages until a request is answered.
    async fn read(&self, id: &RequestId, answer: Answer) -> Result<(), CallError> {
        if matches!(answer.status, 202 | 204) {
            return Err(CallError::Malformed(format!("it answers {} without an answer", answer.status)));
        }
        let mut body = Body::new(answer);
        let mut resumed = 0;
        loop {
            let cut = loop {
                match body.next().await {
                    Ok(Some(event)) => {
                        resumed = 0;
                        self.deliver(event).await;
                        if !self.pending.lock().contains_key(id) {
                            return Ok(());
                        }
                    }
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            };
            if !body.is_stream {
                return Err(cut.map_or_else(
                    || CallError::Malformed("it answers something else than was asked".to_owned()),
                    |error| self.failed(error),
                ));
            }
            let last = body.events.last_id.clone().filter(|_| resumed < RESUMES);
            let Some(last) = last else {
                let cut = cut.map_or_else(|| "the stream ended".to_owned(), |error| error.to_string());
                return Err(CallError::Failed(format!(
                    "{cut}, before the answer came; it may have been made all the same"
                )));
            };
            sleep(pause(body.events.retry, resumed)).await;
            resumed += 1;
            match self.accepted(self.get(Some(&last)).await?).await {
                Ok(answer) if is_stream(&answer) => body = Body::resumed(answer, body.events),
                Ok(_) => return Err(CallError::Malformed("it does not resume its stream".to_owned())),
                Err(Rejected::Answer(error)) => return Err(CallError::Failed(error.message.into_owned())),
                Err(Rejected::Failure(failure)) => return Err(failure),
            }
        }
    }

    /// Hands on the messages of an event.
    async fn deliver(&self, event: Event) {
        let read: Vec<ServerJsonRpcMessage> = {
            let mut messages = self.messages.lock();
            match event {
                Event::Data(text) => messages.read(&text),
                Event::TooLong { bytes, answers } => messages.drop_long(bytes, answers.as_ref()),
            }
            std::iter::from_fn(|| messages.next()).collect()
        };
        for message in read {
            match &message {
                JsonRpcMessage::Response(response) => {
                    if let ServerResult::InitializeResult(result) = &response.result {
                        self.session.lock().version = Some(result.protocol_version.as_str().to_owned());
                    }
                    self.pending.lock().remove(&response.id);
                }
                JsonRpcMessage::Error(error) => {
                    error.id.as_ref().and_then(|id| self.pending.lock().remove(id));
                }
                _ => {}
            }
            // Nobody reads any more when the connection ends.
            drop(self.incoming.send(message).await);
        }
    }

    async fn refuse(&self, id: RequestId, error: ErrorData) {
        drop(self.incoming.send(JsonRpcMessage::error(error, Some(id))).await);
    }

    /// Begins a session anew, unless somebody else has since the one of this number.
    async fn renew(self: &Arc<Self>, number: u64) -> Result<(), CallError> {
        let _one = self.renewing.lock().await;
        let session = self.session.lock().clone();
        if session.number != number {
            return Ok(());
        }
        let expired = || CallError::Failed("the server has forgotten the session".to_owned());
        let greeting = session.greeting.clone().ok_or_else(expired)?;
        let blank = Session::default();
        let answer = match self.accepted(self.post(&blank, &greeting).await?).await {
            Ok(answer) => answer,
            Err(Rejected::Answer(error)) => return Err(CallError::Refused(error.message.into_owned())),
            Err(Rejected::Failure(failure)) => return Err(failure),
        };
        let id = header_of(&answer);
        let mut messages = Messages::default();
        messages.typed.extend(greeting.id.clone());
        let mut body = Body::new(answer);
        let version = loop {
            let Some(event) = body.next().await.map_err(|error| self.failed(error))? else {
                return Err(expired());
            };
            if let Event::Data(text) = event {
                messages.read(&text);
            }
            let greeted = std::iter::from_fn(|| messages.next()).find_map(|message| match message {
                JsonRpcMessage::Response(response) => match response.result {
                    ServerResult::InitializeResult(result) => {
                        Some(Ok(result.protocol_version.as_str().to_owned()))
                    }
                    _ => None,
                },
                JsonRpcMessage::Error(error) => {
                    Some(Err(CallError::Refused(error.error.message.into_owned())))
                }
                _ => None,
            });
            if let Some(greeted) = greeted {
                break greeted?;
            }
        };
        let renewed =
            Session { id, number: number + 1, version: Some(version), greeting: Some(greeting.clone()) };
        let method = "notifications/initialized".to_owned();
        let body = json!({"jsonrpc": "2.0", "method": method}).to_string();
        let initialized =
            Outgoing { id: None, body: body.into(), greets: false, method: Some(method), ..greeting };
        self.post(&renewed, &initialized).await?;
        *self.session.lock() = renewed;
        self.listen();
        Ok(())
    }

    /// Reads what the server says by itself, in the background and as long as the session is the same.
    fn listen(self: &Arc<Self>) {
        let remote = Arc::clone(self);
        let number = self.session.lock().number;
        tokio::spawn(async move {
            let close = remote.close.clone();
            tokio::select! {
                biased;
                () = close.cancelled() => {}
                () = remote.listening(number) => {}
            }
        });
    }

    async fn listening(&self, number: u64) {
        let (mut events, mut failed) = (Events::new(), 0);
        while self.session.lock().number == number {
            match self.get(events.last_id.as_deref()).await {
                Ok(answer) if is_good(&answer) && is_stream(&answer) => {
                    let mut body = Body::resumed(answer, events);
                    while let Ok(Some(event)) = body.next().await {
                        failed = 0;
                        self.deliver(event).await;
                    }
                    events = body.events;
                }
                // It has none, or does not know the session any more: then the next request begins one.
                Ok(answer) if answer.status < 500 && answer.status != 429 => return,
                Err(CallError::Blocked(_)) => return,
                _ => {}
            }
            sleep(pause(events.retry, failed)).await;
            failed += 1;
        }
    }
}

/// An answer that is an error.
enum Rejected {
    /// What the server says about the request.
    Answer(ErrorData),
    Failure(CallError),
}

fn is_good(answer: &Answer) -> bool {
    (200..300).contains(&answer.status)
}

/// The session that an answer begins.
fn header_of(answer: &Answer) -> Option<HeaderValue> {
    let mut id = answer.header(SESSION.as_str()).and_then(|id| HeaderValue::from_str(id).ok())?;
    id.set_sensitive(true);
    Some(id)
}

/// The pause before a stream is opened again, after so many failures.
fn pause(wanted: Option<Duration>, failed: u32) -> Duration {
    let first = wanted.unwrap_or(PAUSE).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
    first.saturating_mul(1 << failed.min(10)).min(LONGEST_PAUSE)
}

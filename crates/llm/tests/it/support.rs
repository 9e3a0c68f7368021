//! A server in the same process, and what tests read of an answer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, StreamExt};
use playhouse_llm::{
    Answer, AnswerStream, DialectKind, Endpoint, HttpRequest, HttpResponse, Limits, StreamEvent, Transport,
    send,
};
use playhouse_protocol::message::BlobRef;
use playhouse_protocol::{AttemptId, ErrorInfo};
use secrecy::ExposeSecret;

use crate::{anthropic, gemini, openai_chat, openai_responses};

pub(crate) const MODEL: &str = "acme-1";

pub(crate) const ALL: [DialectKind; 4] =
    [DialectKind::Anthropic, DialectKind::OpenaiChat, DialectKind::OpenaiResponses, DialectKind::Gemini];

/// A whole answer of each dialect: reasoning, text and two calls.
pub(crate) fn everything(dialect: DialectKind) -> String {
    match dialect {
        DialectKind::Anthropic => anthropic::everything(),
        DialectKind::OpenaiChat => openai_chat::everything(),
        DialectKind::OpenaiResponses => openai_responses::everything(),
        DialectKind::Gemini => gemini::everything(),
    }
}

/// What [`everything`] says.
pub(crate) fn everything_decoded(dialect: DialectKind) -> Vec<StreamEvent> {
    match dialect {
        DialectKind::Anthropic => anthropic::everything_decoded(),
        DialectKind::OpenaiChat => openai_chat::everything_decoded(),
        DialectKind::OpenaiResponses => openai_responses::everything_decoded(),
        DialectKind::Gemini => gemini::everything_decoded(),
    }
}

/// Bounds a test that hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const KEY: &str = "sk-very-secret-0123456789";

/// What the server does after the last chunk.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Then {
    /// It ends the body.
    End,
    /// It stays silent for ever.
    Hang,
    /// It ends the body; and each chunk comes alone, however soon it is asked for.
    Slowly,
    /// Ends the body after its chunks, with this pause before each chunk.
    Every(Duration),
}

/// A server that gives one answer, whatever it is asked.
pub(crate) struct Scripted {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) chunks: Vec<Bytes>,
    pub(crate) then: Then,
    /// Addresses, headers and bodies of the requests.
    pub(crate) asked: Arc<Mutex<Vec<Asked>>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl Scripted {
    pub(crate) fn stream<C: Into<Bytes>>(chunks: impl IntoIterator<Item = C>) -> Self {
        Self {
            status: 200,
            headers: vec![("content-type".into(), "text/event-stream; charset=utf-8".into())],
            chunks: chunks.into_iter().map(Into::into).collect(),
            then: Then::End,
            asked: Arc::default(),
        }
    }

    pub(crate) fn refusal(status: u16, headers: &[(&str, &str)], body: &str) -> Self {
        let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Self { status, headers, ..Self::stream([body.to_owned()]) }
    }
}

impl Transport for Scripted {
    fn send(&self, request: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, ErrorInfo>> {
        let headers = request.headers.iter();
        let headers = headers.map(|(name, value)| (name.clone(), value.expose_secret().to_owned())).collect();
        self.asked.lock().unwrap().push(Asked { url: request.url, headers });
        let chunks = stream::iter(self.chunks.clone().into_iter().map(Ok));
        let body = match self.then {
            Then::End => chunks.boxed(),
            Then::Slowly => chunks.then(|chunk| tokio::task::yield_now().map(|()| chunk)).boxed(),
            Then::Every(pause) => {
                let paused = move |(number, chunk)| async move {
                    if number > 0 {
                        tokio::time::sleep(pause).await;
                    }
                    chunk
                };
                chunks.enumerate().then(paused).boxed()
            }
            Then::Hang => chunks.chain(stream::pending()).boxed(),
        };
        let response = HttpResponse { status: self.status, headers: self.headers.clone(), body };
        async move { Ok(response) }.boxed()
    }
}

pub(crate) fn endpoint(dialect: DialectKind) -> Endpoint {
    Endpoint {
        key: Some(KEY.into()),
        key_variable: Some("ACME_API_KEY".into()),
        ..Endpoint::new("acme", dialect, "https://api.acme.test/v1")
    }
}

pub(crate) fn attempt() -> AttemptId {
    AttemptId::parse("att_00000000000012345678901234").unwrap()
}

pub(crate) async fn ask(dialect: DialectKind, server: &Scripted) -> Result<AnswerStream, ErrorInfo> {
    ask_within(dialect, server, Limits { silence: PATIENCE, ..Limits::default() }).await
}

/// The same, within these limits.
pub(crate) async fn ask_within(
    dialect: DialectKind,
    server: &Scripted,
    limits: Limits,
) -> Result<AnswerStream, ErrorInfo> {
    send(server, &endpoint(dialect), MODEL, attempt(), Bytes::from_static(b"{}"), limits).await
}

/// Reads an answer to its end: its pieces by batch, and how it ended.
pub(crate) async fn read(mut answer: AnswerStream) -> (Vec<Vec<StreamEvent>>, Result<Answer, ErrorInfo>) {
    let mut batches = Vec::new();
    loop {
        let mut batch = Vec::new();
        let more = answer.next(&mut batch).await;
        batches.push(batch);
        match more {
            Ok(true) => {}
            Ok(false) => return (batches, answer.finish()),
            Err(error) => return (batches, Err(error)),
        }
    }
}

/// Asks and reads.
pub(crate) async fn run(
    dialect: DialectKind,
    server: Scripted,
) -> (Vec<StreamEvent>, Result<Answer, ErrorInfo>) {
    match ask(dialect, &server).await {
        Ok(answer) => {
            let (batches, end) = read(answer).await;
            (merge(batches.concat()), end)
        }
        Err(error) => (Vec::new(), Err(error)),
    }
}

/// The pieces with neighbouring deltas of one part made one, as if all had come at once.
pub(crate) fn merge(events: Vec<StreamEvent>) -> Vec<StreamEvent> {
    let mut merged: Vec<StreamEvent> = Vec::new();
    for event in events {
        match (merged.last_mut(), &event) {
            (Some(StreamEvent::Text(text)), StreamEvent::Text(more)) => text.push_str(more),
            (Some(StreamEvent::Reasoning(text)), StreamEvent::Reasoning(more)) => text.push_str(more),
            (
                Some(StreamEvent::CallArguments { call, text }),
                StreamEvent::CallArguments { call: same, text: more },
            ) if call == same => text.push_str(more),
            _ => merged.push(event),
        }
    }
    merged
}

pub(crate) fn blob(hash: &str, size: u64) -> BlobRef {
    BlobRef { hash: hash.into(), size }
}

pub(crate) fn text(text: &str) -> StreamEvent {
    StreamEvent::Text(text.into())
}

pub(crate) fn reasoning(text: &str) -> StreamEvent {
    StreamEvent::Reasoning(text.into())
}

pub(crate) fn call(id: &str, name: &str) -> StreamEvent {
    StreamEvent::CallStart { id: id.into(), name: name.into() }
}

pub(crate) fn arguments(call: usize, text: &str) -> StreamEvent {
    StreamEvent::CallArguments { call, text: text.into() }
}

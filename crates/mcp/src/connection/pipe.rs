//! Messages over the standard input and output of a server.
//!
//! - A line that is no message is skipped, counted, and kept for diagnosis if it is among the first.
//! - A message that is too long, or an answer that is malformed, becomes an error of the request that it answers.
//! - Answers to requests of ours are handed on as they are written ([`CustomResult`]): the library would tell what they are by
//!   their fields, which servers choose. Only those of the handshake and of subscriptions are read by it.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, CustomResult, ErrorCode, ErrorData, JsonRpcMessage, RequestId,
    ServerJsonRpcMessage, ServerResult,
};
use rmcp::service::RoleClient;
use rmcp::transport::Transport;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use super::lines::{LONGEST, Line, Lines};
use super::scan::Scan;
use crate::text::line;

/// Number of skipped lines that are kept.
const KEPT: usize = 5;
/// The longest part of a skipped line that is kept, in bytes.
const KEPT_BYTES: usize = 200;
/// Number of messages in one line.
const BATCH: usize = 1_000;

/// What a server wrote that is no message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnosis {
    /// Number of lines that are no messages.
    pub skipped: u64,
    /// The first of them, cut.
    pub first: Vec<String>,
    /// Number of messages that were dropped since they were longer than 16 MB.
    pub too_long: u64,
}

/// A [`Diagnosis`] that grows.
#[derive(Debug, Default)]
pub(super) struct Noise(Mutex<Diagnosis>);

impl Noise {
    pub(super) fn known(&self) -> Diagnosis {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut Diagnosis)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The messages of a server that reads `W` and writes `R`.
pub(super) struct Pipe<R, W> {
    lines: Lines<R>,
    input: Arc<tokio::sync::Mutex<Option<W>>>,
    /// Requests whose answers the library reads.
    typed: HashSet<RequestId>,
    /// Messages that were read and not handed on.
    ready: VecDeque<ServerJsonRpcMessage>,
    noise: Arc<Noise>,
}

impl<R: AsyncRead + Unpin, W> Pipe<R, W> {
    pub(super) fn new(output: R, input: W, noise: Arc<Noise>) -> Self {
        let input = Arc::new(tokio::sync::Mutex::new(Some(input)));
        Self { lines: Lines::new(output), input, typed: HashSet::new(), ready: VecDeque::new(), noise }
    }

    fn read(&mut self, text: &Bytes) {
        if text.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        // Protocol versions up to 2025-03-26 may send several messages in one line.
        if text.first() == Some(&b'[')
            && let Ok(messages) = serde_json::from_slice::<Vec<Value>>(text)
            && messages.len() <= BATCH
        {
            for message in messages {
                self.read_one(message.to_string().as_bytes());
            }
            return;
        }
        self.read_one(text);
    }

    fn read_one(&mut self, text: &[u8]) {
        let envelope = serde_json::from_slice::<Envelope>(text).ok();
        let Some(Envelope { id, method, result, error }) = envelope else { return self.fail_or_skip(text) };
        let is_answer = method.is_none() && (result.is_some() || error.is_some());
        let id = id.filter(|_| is_answer);
        let is_typed = id.as_ref().is_some_and(|id| self.typed.remove(&number(id)));
        if !is_typed
            && error.is_none()
            && let (Some(id), Some(result)) = (&id, result)
        {
            let result = ServerResult::CustomResult(CustomResult(result));
            return self.ready.push_back(JsonRpcMessage::response(result, number(id)));
        }
        match (serde_json::from_slice::<ServerJsonRpcMessage>(text), id) {
            (Ok(message), _) => self.ready.push_back(message),
            (Err(_), Some(id)) => {
                let said = error
                    .map_or_else(|| String::from_utf8_lossy(text).into_owned(), |error| error.to_string());
                self.fail(&id, format!("the answer is malformed: {}", line(&said, KEPT_BYTES)));
            }
            (Err(_), None) => self.skip(text),
        }
    }

    /// Answers a request with an error.
    fn fail(&mut self, id: &RequestId, message: String) {
        let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, message, None);
        self.ready.push_back(JsonRpcMessage::error(error, Some(number(id))));
    }

    /// Takes a line that is not JSON, or not as far as it is read: it may have been meant as an answer.
    fn fail_or_skip(&mut self, text: &[u8]) {
        let mut scan = Scan::default();
        scan.feed(text);
        match scan.answers() {
            Some(id) => self.fail(&id, "the answer is no valid JSON".to_owned()),
            None => self.skip(text),
        }
    }

    fn skip(&self, text: &[u8]) {
        self.noise.change(|noise| {
            noise.skipped += 1;
            if noise.first.len() < KEPT {
                let beginning = &text[..text.len().min(KEPT_BYTES * 2)];
                noise.first.push(line(&String::from_utf8_lossy(beginning), KEPT_BYTES));
            }
        });
    }

    fn drop_long(&mut self, bytes: u64, answers: Option<&RequestId>) {
        self.noise.change(|noise| noise.too_long += 1);
        if let Some(id) = answers {
            self.typed.remove(&number(id));
            self.fail(
                id,
                format!("the answer of {bytes} bytes is longer than {} MB and was dropped", LONGEST >> 20),
            );
        }
    }
}

/// Ids of ours are numbers, which some servers send back as texts.
fn number(id: &RequestId) -> RequestId {
    match id {
        RequestId::String(text) => text.parse().map_or_else(|_| id.clone(), RequestId::Number),
        RequestId::Number(_) => id.clone(),
    }
}

/// The fields of a message that tell what it is.
#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    id: Option<RequestId>,
    #[serde(default, deserialize_with = "present")]
    method: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    result: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    error: Option<Value>,
}

/// A field that is `null` is there.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl<R, W> Transport<RoleClient> for Pipe<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        if let JsonRpcMessage::Request(request) = &message
            && let ClientRequest::InitializeRequest(_)
            | ClientRequest::DiscoverRequest(_)
            | ClientRequest::SubscriptionsListenRequest(_) = &request.request
        {
            self.typed.insert(request.id.clone());
        }
        let input = Arc::clone(&self.input);
        async move {
            let mut text = serde_json::to_vec(&message)?;
            text.push(b'\n');
            let mut input = input.lock().await;
            let closed = || io::Error::new(io::ErrorKind::BrokenPipe, "the connection was closed");
            let input = input.as_mut().ok_or_else(closed)?;
            input.write_all(&text).await?;
            input.flush().await
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Some(message);
            }
            // An error of a pipe is its end.
            match self.lines.next().await.ok().flatten()? {
                Line::Whole(text) => self.read(&text),
                Line::TooLong { bytes, answers } => self.drop_long(bytes, answers.as_ref()),
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        // One that writes ends when its task does, or when nobody reads any more.
        if let Ok(mut input) = self.input.try_lock() {
            input.take();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use rmcp::model::{InitializeRequest, InitializeRequestParams};

    use super::*;

    /// What a server that writes this is understood to say, by the names of messages.
    fn said(text: &str, typed: &[i64]) -> (Vec<String>, Diagnosis) {
        let noise = Arc::new(Noise::default());
        let mut pipe = Pipe::new(text.as_bytes(), Vec::new(), Arc::clone(&noise));
        pipe.typed.extend(typed.iter().map(|&id| RequestId::Number(id)));
        let mut said = Vec::new();
        while let Some(message) = block_on(pipe.receive()) {
            said.push(match message {
                JsonRpcMessage::Request(request) => format!("{:?}", request.request),
                JsonRpcMessage::Response(answer) => match answer.result {
                    ServerResult::CustomResult(result) => format!("{} {}", answer.id, result.0),
                    ServerResult::InitializeResult(_) => format!("{} initialized", answer.id),
                    other => format!("{other:?}"),
                },
                JsonRpcMessage::Notification(_) => "notification".to_owned(),
                JsonRpcMessage::Error(error) => format!("{:?} error {}", error.id, error.error.message),
            });
        }
        (said, noise.known())
    }

    #[test]
    fn answers_are_handed_on_as_they_are_written() {
        // The library would take the one for a list of tools, and the other for nothing at all.
        let text = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[],"content":[]}}
            {"jsonrpc":"2.0","id":"2","result":null}
            [{"jsonrpc":"2.0","id":3,"result":1},{"jsonrpc":"2.0","id":4,"result":2}]"#
            .replace("\n            ", "\n");
        let (said, noise) = said(&text, &[]);
        assert_eq!(said, [r#"1 {"tools":[],"content":[]}"#, "2 null", "3 1", "4 2"]);
        assert_eq!(noise, Diagnosis::default());
    }

    #[test]
    fn the_handshake_is_read_by_the_library() {
        let text = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"a","version":"1"}}}"#;
        assert_eq!(said(text, &[0]).0, ["0 initialized"]);
    }

    #[test]
    fn noise_is_skipped_and_counted() {
        let text = "hello\n{\n{}\n[1]\n{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":1}}\n1\n2\n";
        let (said, noise) = said(text, &[]);
        assert_eq!(said, ["notification"]);
        assert_eq!((noise.skipped, noise.first.len()), (6, KEPT));
        assert_eq!(noise.first[..2], ["hello", "{"]);
    }

    #[test]
    fn a_malformed_answer_fails_its_request() {
        let text =
            "{\"jsonrpc\":\"2.0\",\"id\":5,\"error\":\"oh no\"}\n{\"id\":6,\"result\":{},\"error\":{}}";
        let (said, _) = said(text, &[]);
        assert_eq!(said[0], "Some(Number(5)) error the answer is malformed: \"oh no\"");
        assert!(said[1].starts_with("Some(Number(6)) error"), "{said:?}");
        // Deeper than is read, not text, and cut off.
        let deep = format!("{{\"id\":7,\"result\":{}{}}}\n", "[".repeat(1000), "]".repeat(1000));
        assert_eq!(self::said(&deep, &[]).0, ["Some(Number(7)) error the answer is no valid JSON"]);
        for text in [r#"{"id":8,"result":"\ud800"}"#, r#"{"id":8,"result":{"a":"#] {
            assert_eq!(self::said(text, &[]).0, ["Some(Number(8)) error the answer is no valid JSON"]);
        }
    }

    #[test]
    fn an_answer_that_is_too_long_fails_its_request() {
        let text = format!(
            "{{\"result\":\"{}\",\"id\":7}}\n{{\"jsonrpc\":\"2.0\",\"id\":8,\"result\":1}}",
            "x".repeat(LONGEST)
        );
        let (said, noise) = said(&text, &[]);
        assert_eq!(
            said[0],
            "Some(Number(7)) error the answer of 16777236 bytes is longer than 16 MB and was dropped"
        );
        assert_eq!((said[1].as_str(), noise.too_long, noise.skipped), ("8 1", 1, 0));
    }

    #[test]
    fn a_message_is_one_line() {
        let mut pipe = Pipe::new(&b""[..], Vec::new(), Arc::default());
        let request = InitializeRequest::new(InitializeRequestParams::default());
        let message =
            JsonRpcMessage::request(ClientRequest::InitializeRequest(request), RequestId::Number(0));
        block_on(pipe.send(message)).unwrap();
        let written = block_on(pipe.input.lock()).take().unwrap();
        assert_eq!(written.iter().filter(|&&byte| byte == b'\n').count(), 1);
        assert!(written.ends_with(b"\n") && pipe.typed.contains(&RequestId::Number(0)));
    }
}

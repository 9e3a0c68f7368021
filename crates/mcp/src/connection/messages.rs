//! The messages that a server writes, as far as they are understood.
//!
//! - Text that is no message is skipped, counted, and kept for diagnosis if it is among the first.
//! - A message that is too long, or an answer that is malformed, becomes an error of the request that it answers.
//! - Answers to requests of ours are handed on as they are written ([`CustomResult`]): the library would tell what they are by
//!   their fields, which servers choose. Only those of the handshake and of subscriptions are read by it.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, CustomResult, ErrorCode, ErrorData, JsonRpcMessage, RequestId,
    ServerJsonRpcMessage, ServerResult,
};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::scan::Scan;
use crate::text::line;

/// The longest message that is held, in bytes: a longer one is dropped.
pub(super) const LONGEST: usize = 16 << 20;
/// Number of skipped lines that are kept.
pub(super) const KEPT: usize = 5;
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
        self.0.lock().clone()
    }

    fn change(&self, change: impl FnOnce(&mut Diagnosis)) {
        change(&mut self.0.lock());
    }
}

/// Reads messages.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// Requests whose answers the library reads.
    pub(super) typed: HashSet<RequestId>,
    /// Messages that were read and not handed on.
    ready: VecDeque<ServerJsonRpcMessage>,
    noise: Arc<Noise>,
}

impl Messages {
    pub(super) fn new(noise: Arc<Noise>) -> Self {
        Self { noise, ..Self::default() }
    }

    /// Takes note of a message that is sent.
    pub(super) fn sent(&mut self, message: &ClientJsonRpcMessage) {
        if let JsonRpcMessage::Request(request) = message
            && let ClientRequest::InitializeRequest(_)
            | ClientRequest::DiscoverRequest(_)
            | ClientRequest::SubscriptionsListenRequest(_) = &request.request
        {
            self.typed.insert(request.id.clone());
        }
    }

    /// The next message that was read.
    pub(super) fn next(&mut self) -> Option<ServerJsonRpcMessage> {
        self.ready.pop_front()
    }

    /// Takes a text: a message, or several in a list.
    pub(super) fn read(&mut self, text: &[u8]) {
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
    pub(super) fn fail(&mut self, id: &RequestId, message: String) {
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

    /// Takes a message that was too long, of which it may be known what it answers.
    pub(super) fn drop_long(&mut self, bytes: u64, answers: Option<&RequestId>) {
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

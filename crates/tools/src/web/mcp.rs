//! Searching with a server of MCP: `tools/call` of JSON-RPC over streamable HTTP, answered as JSON or as a stream of events.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use reqwest::Method;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::charset::essence;
use super::door::{Answer, Door, Request, Share, shown};
use super::events::Events;
use super::search::{CodeQuery, Endpoint, SearchBackend, SearchError, WebQuery};
use crate::files::document::cut_characters;

/// The largest answer that is read, in bytes.
const LARGEST: usize = 5_000_000;
/// Of the body of an error, this many bytes are read and this many characters are shown.
const ERROR_BYTES: usize = 16 * 1024;
const ERROR_CHARACTERS: usize = 500;
/// The id of the one request of each exchange.
const ID: u64 = 1;
/// The version of the protocol that is spoken in a session.
const VERSION: &str = "2025-06-18";
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// A server of MCP that has a tool for searching. A session is begun only with servers that want one.
#[derive(Debug)]
pub struct McpSearch {
    name: &'static str,
    endpoint: Endpoint,
    /// What its tools are called.
    web: Option<String>,
    code: Option<String>,
    door: Door,
    /// The session that the server wanted, if it wanted one.
    session: Mutex<Option<Arc<str>>>,
}

/// What a server answered.
enum Outcome {
    Text(String),
    /// It may want a session, or have forgotten that of the request.
    NoSession(SearchError),
}

#[derive(Deserialize)]
struct Message {
    id: Option<Value>,
    result: Option<Value>,
    error: Option<RpcError>,
}

#[derive(Deserialize)]
struct RpcError {
    #[serde(default)]
    code: i64,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallResult {
    content: Vec<Block>,
    #[serde(default)]
    is_error: bool,
}

/// What is no text has none.
#[derive(Deserialize)]
struct Block {
    text: Option<String>,
}

impl McpSearch {
    /// The server at `endpoint`, which is called `name`, with the names of its tools; `None` for a search that it has not.
    pub fn new(name: &'static str, endpoint: Endpoint, web: Option<String>, code: Option<String>) -> Self {
        Self { name, endpoint, web, code, door: Door::for_the_operator(), session: Mutex::new(None) }
    }

    async fn call(
        &self,
        tool: Option<&str>,
        kind: &str,
        query: &impl Serialize,
    ) -> Result<String, SearchError> {
        let Some(tool) = tool else {
            let message = format!("{} has no search for {kind}: no tool is configured for it", self.name);
            return Err(SearchError::Unavailable(message));
        };
        let arguments = serde_json::to_value(query).map_err(|error| self.bad(&error.to_string()))?;
        let params = json!({"name": tool, "arguments": arguments});
        let body = json!({"jsonrpc": "2.0", "id": ID, "method": "tools/call", "params": params});
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let first = match self.exchange(&body, session.as_deref()).await? {
            Outcome::Text(text) => return Ok(text),
            Outcome::NoSession(error) => error,
        };
        // A server without sessions meant what it said.
        let Some(session) = self.open().await.ok().flatten() else { return Err(first) };
        match self.exchange(&body, Some(&session)).await? {
            Outcome::Text(text) => Ok(text),
            Outcome::NoSession(error) => Err(error),
        }
    }

    /// Begins a session; `None` for a server that has none.
    async fn open(&self) -> Result<Option<Arc<str>>, SearchError> {
        let client = json!({"name": "playhouse", "version": env!("CARGO_PKG_VERSION")});
        let params = json!({"protocolVersion": VERSION, "capabilities": {}, "clientInfo": client});
        let body = json!({"jsonrpc": "2.0", "id": ID, "method": "initialize", "params": params});
        let answer = self.post(&body, None).await?;
        let session: Option<Arc<str>> = answer.header(SESSION.as_str()).map(Arc::from);
        if !is_good(answer.status) {
            return Err(self.status(answer).await);
        }
        self.read(answer).await?;
        let body = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let answer = self.post(&body, session.as_deref()).await?;
        if !is_good(answer.status) {
            return Err(self.status(answer).await);
        }
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&session);
        Ok(session)
    }

    async fn post(&self, body: &Value, session: Option<&str>) -> Result<Answer, SearchError> {
        let mut headers = self.endpoint.headers().map_err(|error| self.bad(&error.to_string()))?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        if let Some(session) = session {
            let value = HeaderValue::from_str(session).map_err(|error| self.bad(&error.to_string()))?;
            headers.insert(SESSION, value);
            headers.insert(PROTOCOL, HeaderValue::from_static(VERSION));
        }
        let body = Some(Bytes::from(body.to_string()));
        let request = Request {
            url: self.endpoint.url.clone(),
            headers,
            method: Method::POST,
            body,
            follow: false,
            share: Share::Fetch,
        };
        Ok(self.door.send(request).await?)
    }

    async fn exchange(&self, body: &Value, session: Option<&str>) -> Result<Outcome, SearchError> {
        let answer = self.post(body, session).await?;
        match answer.status {
            // What servers answer who want a session.
            400 | 404 | 422 => return Ok(Outcome::NoSession(self.status(answer).await)),
            status if !is_good(status) => return Err(self.status(answer).await),
            _ => {}
        }
        let message = self.read(answer).await?;
        if let Some(RpcError { code, message }) = message.error {
            return Err(self.bad(&format!("{} (error {code})", self.cleaned(&message))));
        }
        let result: CallResult = serde_json::from_value(message.result.unwrap_or_default())
            .map_err(|error| self.bad(&format!("its result is not that of a tool ({error})")))?;
        let texts: Vec<String> = result.content.into_iter().filter_map(|block| block.text).collect();
        let text = texts.join("\n\n");
        if result.is_error {
            return Err(self.bad(&self.cleaned(&text)));
        }
        Ok(Outcome::Text(text))
    }

    /// The answer to the request, without waiting for the end of a stream that goes on.
    async fn read(&self, mut answer: Answer) -> Result<Message, SearchError> {
        let kind = answer.content_type.as_deref().map(essence).unwrap_or_default();
        if kind != "text/event-stream" {
            let body = answer.body(LARGEST).await?;
            return serde_json::from_slice(&body)
                .map_err(|error| self.bad(&format!("its answer is not JSON-RPC ({error})")));
        }
        let (mut events, mut size) = (Events::default(), 0);
        // Other messages may come before: news of progress, requests.
        let ours = |data: &str| {
            let message: Message = serde_json::from_str(data).ok()?;
            let answers = message.result.is_some() || message.error.is_some();
            (answers && message.id == Some(Value::from(ID))).then_some(message)
        };
        while let Some(chunk) = answer.chunk().await? {
            size += chunk.len();
            if size > LARGEST {
                return Err(self.bad(&format!("its answer is larger than {LARGEST} bytes")));
            }
            if let Some(message) = events.push(&chunk, ours) {
                return Ok(message);
            }
        }
        events.end(ours).ok_or_else(|| self.bad("its stream ended without an answer"))
    }

    async fn status(&self, answer: Answer) -> SearchError {
        let status = answer.status;
        let body = answer.beginning(ERROR_BYTES).await;
        self.bad(&format!("it answers {status}: {}", self.cleaned(&String::from_utf8_lossy(&body))))
    }

    /// What a server wrote about an error: short, and without keys.
    fn cleaned(&self, text: &str) -> String {
        cut_characters(self.endpoint.without_keys(text).trim(), ERROR_CHARACTERS).0.to_owned()
    }

    fn bad(&self, what: &str) -> SearchError {
        SearchError::Answer(format!("{} at {}: {what}", self.name, shown(&self.endpoint.url)))
    }
}

fn is_good(status: u16) -> bool {
    (200..300).contains(&status)
}

impl SearchBackend for McpSearch {
    fn name(&self) -> &str {
        self.name
    }

    fn has_web(&self) -> bool {
        self.web.is_some()
    }

    fn has_code(&self) -> bool {
        self.code.is_some()
    }

    fn web<'a>(&'a self, query: &'a WebQuery) -> BoxFuture<'a, Result<String, SearchError>> {
        self.call(self.web.as_deref(), "the web", query).boxed()
    }

    fn code<'a>(&'a self, query: &'a CodeQuery) -> BoxFuture<'a, Result<String, SearchError>> {
        self.call(self.code.as_deref(), "code", query).boxed()
    }
}

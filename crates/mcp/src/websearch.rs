//! A server of tools that searches for `websearch` and `codesearch`.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_protocol::{IdGenerator, SessionId, Timestamp};
use playhouse_sandbox::Walls;
use playhouse_sandbox::process::Scope;
use playhouse_tools::web::{CodeQuery, Endpoint, SearchBackend, SearchError, SearchOptions, WebQuery};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::connection::{CallError, CallRequest, Connection, Place};
use crate::entry::{ServerEntry, Transport};
use crate::result::Content;
use crate::text::cut;

/// Where Exa's server is.
pub const EXA: &str = "https://mcp.exa.ai/mcp";
/// What Exa's tools are called: for the web, and for code.
const EXA_TOOLS: [&str; 2] = ["web_search_exa", "get_code_context_exa"];
/// How long a search may take. Whoever searches gives up before.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest words of an error, in bytes.
const ERROR: usize = 600;

/// A server of MCP that has a tool for searching. One connection to it is shared by all searches, and made when it is needed.
pub struct SearchServer {
    name: &'static str,
    endpoint: Endpoint,
    entry: ServerEntry,
    place: Place,
    /// What its tools are called.
    web: Option<String>,
    code: Option<String>,
    /// The server shares its attention between sessions: all searches are of one.
    session: SessionId,
    connection: Mutex<Option<Arc<Connection>>>,
}

impl SearchServer {
    /// The server at `endpoint`, which the operator configured, with the names of its tools; `None` for a search that it has not.
    pub fn options(endpoint: Endpoint, web: Option<String>, code: Option<String>) -> SearchOptions {
        SearchOptions::Backend(Arc::new(Self::new("mcp", endpoint, web, code)))
    }

    /// Exa, or a server with its tools.
    pub fn exa(endpoint: Endpoint) -> SearchOptions {
        let [web, code] = EXA_TOOLS.map(|tool| Some(tool.to_owned()));
        SearchOptions::Backend(Arc::new(Self::new("exa", endpoint, web, code)))
    }

    fn new(name: &'static str, endpoint: Endpoint, web: Option<String>, code: Option<String>) -> Self {
        let mut entry = ServerEntry::http(name, endpoint.url().as_str());
        if let Transport::Http(http) = &mut entry.transport {
            http.headers = endpoint.headers().to_vec();
        }
        (entry.start_timeout, entry.timeout) = (TIMEOUT, TIMEOUT);
        let place = Place {
            workdir: "/".into(),
            roots: Vec::new(),
            scope: Scope::new(),
            walls: Walls::open(),
            door: endpoint.door(),
            authorizer: None,
        };
        // It is none of the engine's sessions, and nobody else sees it.
        let session = IdGenerator::new(|bytes| bytes.fill(0)).next(Timestamp::default());
        Self { name, endpoint, entry, place, web, code, session, connection: Mutex::default() }
    }

    async fn call(
        &self,
        tool: Option<&str>,
        kind: &str,
        query: &(impl Serialize + Sync),
    ) -> Result<String, SearchError> {
        let Some(tool) = tool else {
            let message = format!("{} has no search for {kind}: no tool is configured for it", self.name);
            return Err(SearchError::Unavailable(message));
        };
        let arguments = match serde_json::to_value(query) {
            Ok(Value::Object(arguments)) => arguments,
            _ => return Err(self.bad("the query cannot be written as JSON")),
        };
        let mut ended = None;
        // A connection may have ended since it was used last: a search changes nothing, and is made again.
        for _ in 0..2 {
            let connection = self.connected(ended.take()).await?;
            let request = CallRequest {
                session: self.session,
                tool: tool.to_owned(),
                arguments: arguments.clone(),
                cancel: CancellationToken::new(),
                timeout: None,
                progress: None,
                host: None,
            };
            match connection.call(request).await {
                Ok(result) => {
                    let texts = result.content.into_iter().filter_map(|part| match part {
                        Content::Text(text) => Some(text),
                        _ => None,
                    });
                    let text = texts.collect::<Vec<_>>().join("\n\n");
                    return if result.is_error { Err(self.bad(&text)) } else { Ok(text) };
                }
                Err(CallError::Ended(_)) => ended = Some(connection),
                Err(error) => return Err(self.bad(&error.to_string())),
            }
        }
        Err(self.bad("it ends each connection"))
    }

    /// The connection; a new one where there is none, or only the one that `ended`.
    async fn connected(&self, ended: Option<Arc<Connection>>) -> Result<Arc<Connection>, SearchError> {
        let mut kept = self.connection.lock().await;
        if let (Some(old), Some(ended)) = (&*kept, &ended)
            && Arc::ptr_eq(old, ended)
        {
            *kept = None;
        }
        if let Some(connection) = &*kept {
            return Ok(Arc::clone(connection));
        }
        let opened = Connection::open(&self.entry, &self.place).await;
        let (connection, _) = opened.map_err(|error| self.bad(&error.to_string()))?;
        let connection = Arc::new(connection);
        *kept = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// What a server said of an error: short, and without keys.
    fn bad(&self, what: &str) -> SearchError {
        let what = cut(self.endpoint.without_keys(what).trim(), ERROR);
        SearchError::Answer(format!("{} at {}: {what}", self.name, self.endpoint.shown()))
    }
}

impl SearchBackend for SearchServer {
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

//! The MCP server over streamable HTTP. Its tools ask the native API in process, as who asks them.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Method;
use axum::response::Response;
use axum::routing::get;
use axum::{BoxError, Router};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use http_body_util::BodyExt as _;
use playhouse_mcp_server::{
    Api, ApiError, Events, HttpSessions, MOST_HTTP_SESSIONS, McpServer, NativeTools, Owner,
};
use playhouse_protocol::limit::{Amount, LimitScope, LimitUnit};
use playhouse_protocol::{Limit, Seq, SessionId};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::operator;
use crate::principal::Principal;
use crate::problem::{Kind, Problem};

/// The route. It speaks JSON-RPC, of which the description of the API says nothing.
const PATH: &str = "/v1/mcp";

/// What all requests share.
#[derive(Clone)]
struct Face {
    app: App,
    sessions: Arc<HttpSessions>,
    tools: NativeTools,
    /// The native API, behind the check of keys.
    api: Router,
}

pub(crate) fn router<S: Clone + Send + Sync + 'static>(app: &App) -> Router<S> {
    let options = app.options();
    let sessions = HttpSessions::new(app.closing().clone(), options.heartbeat, options.body);
    let api = super::router().with_state(app.clone());
    let tools = native_tools(app).unwrap_or_else(|error| {
        tracing::error!(%error, "clients of MCP get no native tools");
        NativeTools::default()
    });
    let face = Face { app: app.clone(), sessions: Arc::new(sessions), tools, api };
    Router::new().route(PATH, get(answer).post(answer).delete(answer)).with_state(face)
}

/// The native tools that clients may call.
///
/// # Errors
/// There is no native tool of a name.
pub(crate) fn native_tools(app: &App) -> Result<NativeTools, ApiError> {
    let names = &app.options().mcp_tools;
    if names.is_empty() {
        return Ok(NativeTools::default());
    }
    NativeTools::choose(json!({"tools": app.facts().tools()}), names)
}

async fn answer(
    State(face): State<Face>,
    principal: Principal,
    request: Request,
) -> Result<Response, Problem> {
    let Face { app, sessions, tools, api } = face;
    // A stream of what the server says by itself is one of events, and counts as one.
    let held = match request.method() {
        &Method::GET => Some(app.admit_stream(&principal).await?),
        _ => None,
    };
    let ended = match (&held, &principal.key) {
        (Some(admitted), _) => admitted.ended.clone(),
        (None, Some(key)) => app.keys().watch(key),
        (None, None) => CancellationToken::new(),
    };
    let owner = Owner { tenant: Arc::clone(&principal.tenant), key: principal.key.clone() };
    // Its tools are for the sessions of one tenant.
    let principal = Principal { all: false, ..principal };
    let server = McpServer::new(Arc::new(Scoped { api, principal })).with_tools(tools);
    let answered = sessions.answer(owner, server, request.map(boxed)).await;
    let answer = answered.map_err(|full| {
        let most = MOST_HTTP_SESSIONS as u64;
        let limit = Limit::of_count("mcp_sessions", LimitScope::Tenant, LimitUnit::Count, most);
        let limit = Limit { needed: Some(Amount::Count(1)), ..limit.used(Amount::Count(most)) };
        Problem::new(Kind::Limited, full.to_string()).of_limit(limit)
    })?;
    Ok(answer.map(|body| {
        let chunks = Body::new(body).into_data_stream().take_until(ended.cancelled_owned());
        Body::from_stream(chunks.inspect(move |_| {
            let _held = &held;
        }))
    }))
}

/// A body as the server of the protocol takes it.
fn boxed(body: Body) -> playhouse_mcp_server::Body {
    body.map_err(BoxError::from).boxed_unsync()
}

/// The native API, as one principal.
#[derive(Debug)]
struct Scoped {
    api: Router,
    principal: Principal,
}

impl Api for Scoped {
    fn get<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Value, ApiError>> {
        async move { Ok(operator::ask(&self.api, Some(&self.principal), Method::GET, path, None).await?) }
            .boxed()
    }

    fn post<'a>(&'a self, path: &'a str, body: &'a Value) -> BoxFuture<'a, Result<Value, ApiError>> {
        async move { Ok(operator::ask(&self.api, Some(&self.principal), Method::POST, path, Some(body)).await?) }.boxed()
    }

    fn events(&self, session: SessionId, after: Seq) -> BoxFuture<'_, Result<Events, ApiError>> {
        operator::events(&self.api, Some(&self.principal), session, after).boxed()
    }
}

//! The native API as the tools of the MCP server ask it: of an engine in this process, or over its socket.

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use playhouse_mcp_server::{Api, ApiError, Events};
use playhouse_protocol::{Seq, SessionId};
use serde_json::Value;
use tower::ServiceExt as _;

use super::client::{DirectClient, OperatorClient, OperatorError, decode, operation, refused};
use super::events::read_stream;
use crate::principal::Principal;

impl From<OperatorError> for ApiError {
    fn from(error: OperatorError) -> Self {
        Self(error.to_string())
    }
}

/// The answer of routes in this process, as who `principal` is, where these do not find that out themselves.
pub(crate) async fn ask(
    routes: &Router,
    principal: Option<&Principal>,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, OperatorError> {
    let request = operation(method, path, body)?.map(Body::from);
    decode(send(routes, principal, request).await).await
}

/// The events that routes in this process answer with.
pub(crate) async fn events(
    routes: &Router,
    principal: Option<&Principal>,
    session: SessionId,
    after: Seq,
) -> Result<Events, ApiError> {
    let path = format!("/v1/sessions/{session}/events?after={after}");
    let request = operation(Method::GET, &path, None)?.map(Body::from);
    let answer = send(routes, principal, request).await;
    if answer.status() != StatusCode::OK {
        return Err(refused(answer).await.into());
    }
    Ok(read_stream(answer.into_body()).map(|event| event.map_err(ApiError::from)).boxed())
}

async fn send(
    routes: &Router,
    principal: Option<&Principal>,
    mut request: Request<Body>,
) -> axum::response::Response {
    if let Some(principal) = principal {
        request.extensions_mut().insert(principal.clone());
    }
    match routes.clone().oneshot(request).await {
        Ok(answer) => answer,
        Err(never) => match never {},
    }
}

impl Api for DirectClient {
    fn get<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Value, ApiError>> {
        async move { Ok(self.call(Method::GET, path, None).await?) }.boxed()
    }

    fn post<'a>(&'a self, path: &'a str, body: &'a Value) -> BoxFuture<'a, Result<Value, ApiError>> {
        async move { Ok(self.call(Method::POST, path, Some(body)).await?) }.boxed()
    }

    fn events(&self, session: SessionId, after: Seq) -> BoxFuture<'_, Result<Events, ApiError>> {
        events(self.routes(), None, session, after).boxed()
    }
}

impl Api for OperatorClient {
    fn get<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Value, ApiError>> {
        async move { Ok(self.call(Method::GET, path, None).await?) }.boxed()
    }

    fn post<'a>(&'a self, path: &'a str, body: &'a Value) -> BoxFuture<'a, Result<Value, ApiError>> {
        async move { Ok(self.call(Method::POST, path, Some(body)).await?) }.boxed()
    }

    fn events(&self, session: SessionId, after: Seq) -> BoxFuture<'_, Result<Events, ApiError>> {
        async move {
            let events = Self::events(self, session, after).await?;
            let next = async |mut events: super::OperatorEvents| match events.next().await {
                Ok(Some(event)) => Ok(Some((event.event().clone(), events))),
                Ok(None) => Ok(None),
                Err(error) => Err(ApiError::from(error)),
            };
            Ok(stream::try_unfold(events, next).boxed())
        }
        .boxed()
    }
}

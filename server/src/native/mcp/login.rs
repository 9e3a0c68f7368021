//! Logins at servers of tools: begun, ended and forgotten. Each tenant has its own.

use axum::Json;
use axum::extract::{Path, State};
use playhouse_actors::{LoginBegun, LoginFailure, McpServers, Redirected};
use schemars::JsonSchema;
#[cfg(test)]
use schemars::SchemaGenerator;
use serde::{Deserialize, Serialize};

use super::{McpServerView, servers, view};
use crate::app::App;
use crate::native::extract::Body;
#[cfg(test)]
use crate::native::openapi::operation::Operation;
use crate::principal::Principal;
use crate::problem::{Kind, Problem};

/// How a login is begun.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpLoginWish {
    /// Where the browser is sent when the login is done: an address of the client, which hands on what it brings. Without it the
    /// engine waits for the browser at a port of its own machine, and ends the login by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect_uri: Option<String>,
}

/// A login that waits for somebody.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct McpLogin {
    /// The address that they have to open in a browser, within ten minutes.
    pub authorization_url: String,
    /// Where the browser is sent when they are done.
    pub redirect_uri: String,
    /// Which login it is, in what the browser brings back.
    pub state: String,
}

/// What a browser brought back from a login.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpLoginEnd {
    /// Its `code`.
    pub code: String,
    /// Its `state`.
    pub state: String,
    /// Its `iss`, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iss: Option<String>,
}

/// `POST /v1/mcp-servers/{name}/auth`, as `openapi.json` describes it.
#[cfg(test)]
pub(crate) const BEGIN: Operation = Operation {
    method: "post",
    path: "/v1/mcp-servers/{name}/auth",
    id: "beginMcpLogin",
    summary: "Begin a login at a server of tools (OAuth), and get the address that somebody has to open.",
    ids: &[("name", SchemaGenerator::subschema_for::<String>)],
    query: None,
    body: Some(SchemaGenerator::subschema_for::<McpLoginWish>),
    answer: (200, "It waits for somebody.", Some(SchemaGenerator::subschema_for::<McpLogin>)),
    problems: &[(Kind::NotFound, "There is no such server.")],
};

/// `POST /v1/mcp-servers/{name}/auth/callback`, as `openapi.json` describes it.
#[cfg(test)]
pub(crate) const END: Operation = Operation {
    method: "post",
    path: "/v1/mcp-servers/{name}/auth/callback",
    id: "endMcpLogin",
    summary: "End a login at a server of tools with what the browser brought back.",
    ids: &[("name", SchemaGenerator::subschema_for::<String>)],
    query: None,
    body: Some(SchemaGenerator::subschema_for::<McpLoginEnd>),
    answer: (200, "It is logged in to.", Some(SchemaGenerator::subschema_for::<McpServerView>)),
    problems: &[(Kind::NotFound, "There is no such server.")],
};

/// `DELETE /v1/mcp-servers/{name}/auth`, as `openapi.json` describes it.
#[cfg(test)]
pub(crate) const FORGET: Operation = Operation {
    method: "delete",
    path: "/v1/mcp-servers/{name}/auth",
    id: "forgetMcpLogin",
    summary: "Forget the login at a server of tools.",
    ids: &[("name", SchemaGenerator::subschema_for::<String>)],
    query: None,
    body: None,
    answer: (200, "There is none any more.", Some(SchemaGenerator::subschema_for::<McpServerView>)),
    problems: &[(Kind::NotFound, "There is no such server.")],
};

/// `POST /v1/mcp-servers/{name}/auth`
pub(crate) async fn begin(
    State(app): State<App>,
    principal: Principal,
    Path(name): Path<String>,
    Body(wish): Body<McpLoginWish>,
) -> Result<Json<McpLogin>, Problem> {
    let begun = begun(&app, &principal, &name, wish.redirect_uri.as_deref()).await?;
    let LoginBegun { url, redirect, state } = begun;
    Ok(Json(McpLogin { authorization_url: url, redirect_uri: redirect, state }))
}

/// `POST /v1/mcp-servers/{name}/auth/callback`
pub(crate) async fn end(
    State(app): State<App>,
    principal: Principal,
    Path(name): Path<String>,
    Body(end): Body<McpLoginEnd>,
) -> Result<Json<McpServerView>, Problem> {
    let McpLoginEnd { code, state, iss } = end;
    ended(&app, &principal, &name, Redirected { code, state, issuer: iss }).await.map(Json)
}

/// `DELETE /v1/mcp-servers/{name}/auth`
pub(crate) async fn forget(
    State(app): State<App>,
    principal: Principal,
    Path(name): Path<String>,
) -> Result<Json<McpServerView>, Problem> {
    forgotten(&app, &principal, &name).await.map(Json)
}

/// Begins a login of the tenant of `principal`.
pub(crate) async fn begun(
    app: &App,
    principal: &Principal,
    name: &str,
    redirect: Option<&str>,
) -> Result<LoginBegun, Problem> {
    let servers = may_log_in(app, principal, name)?;
    if redirect.is_none() && principal.key.is_some() {
        let detail = "a client with a key names the `redirect_uri` to which the browser comes back: it would not reach a port of this machine";
        return Err(Problem::invalid(detail));
    }
    servers.begin_login(name, &principal.tenant, redirect).await.map_err(problem)
}

/// Ends a login of the tenant of `principal`.
pub(crate) async fn ended(
    app: &App,
    principal: &Principal,
    name: &str,
    redirected: Redirected,
) -> Result<McpServerView, Problem> {
    let servers = may_log_in(app, principal, name)?;
    servers.finish_login(name, &principal.tenant, redirected).await.map_err(problem)?;
    view(app, principal, name, None).await
}

/// Forgets the login of the tenant of `principal`.
pub(crate) async fn forgotten(
    app: &App,
    principal: &Principal,
    name: &str,
) -> Result<McpServerView, Problem> {
    may_log_in(app, principal, name)?.logout(name, &principal.tenant).await.map_err(problem)?;
    view(app, principal, name, None).await
}

/// A login is used by all sessions of a tenant: a key for some directories does not change it.
fn may_log_in<'a>(app: &'a App, principal: &Principal, name: &str) -> Result<&'a McpServers, Problem> {
    if principal.roots.is_some() {
        let detail =
            "all sessions of the tenant use a login: a key with roots may not begin, end or forget it";
        return Err(Problem::new(Kind::Forbidden, detail));
    }
    servers(app, name)
}

fn problem(failure: LoginFailure) -> Problem {
    match failure {
        LoginFailure::NoServer(detail) => Problem::not_found(detail),
        LoginFailure::Unsupported(detail)
        | LoginFailure::Registration(detail)
        | LoginFailure::Failed(detail) => Problem::invalid(detail),
    }
}

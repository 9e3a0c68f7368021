//! Servers of tools (MCP): which there are, how they stand, and starting and stopping them.

pub(crate) mod login;

use std::path::Path as FilePath;

use axum::Json;
use axum::extract::{Path, State};
use playhouse_actors::{McpServers, McpState, McpStatus};
use schemars::JsonSchema;
#[cfg(test)]
use schemars::SchemaGenerator;
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::native::extract::{Body, Search};
#[cfg(test)]
use crate::native::openapi::operation::Operation;
use crate::native::sessions::blocking;
use crate::principal::Principal;
use crate::problem::{Kind, Problem};

/// How a server stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpStanding {
    /// It runs.
    Connected,
    /// It is being started.
    Starting,
    /// It failed.
    Failed,
    /// It is switched off.
    Disabled,
    /// It does not run, and starts when it is needed.
    Stopped,
    /// A workspace declares it, and a person must agree before it is started.
    Asks,
    /// A workspace declares it, and it may not be used.
    Refused,
    /// Somebody has to log in to it first.
    NeedsAuth,
    /// A client has to be registered at its authorization server first.
    NeedsClientRegistration,
}

/// A server of tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct McpServerView {
    /// Its name.
    pub name: String,
    /// Its command or its address, without the values of its environment and its headers; only for clients without a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Whether the workspace declares it, and not the operator.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_workspace: bool,
    /// How it stands.
    pub status: McpStanding,
    /// Why it failed, or is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its processes.
    pub running: usize,
    /// Sessions that use them now.
    pub sessions: usize,
    /// The names of its tools; absent where nothing is known of them yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Tools that are set aside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedTool>,
}

/// A tool that is set aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedTool {
    /// Its name at the server.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// The servers of tools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct McpServerList {
    /// In the order of their names.
    pub servers: Vec<McpServerView>,
}

/// Which servers are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpSearch {
    /// A directory, whose own servers are listed as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

/// Where a server is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpPlace {
    /// The directory of the sessions that shall use it.
    pub workspace: String,
}

/// `GET /v1/mcp-servers`, as `openapi.json` describes it.
#[cfg(test)]
pub(crate) const LIST: Operation = Operation {
    method: "get",
    path: "/v1/mcp-servers",
    id: "listMcpServers",
    summary: "List the servers of tools (MCP) and how they stand.",
    ids: &[],
    query: Some(McpSearch::json_schema),
    body: None,
    answer: (200, "It worked.", Some(SchemaGenerator::subschema_for::<McpServerList>)),
    problems: &[(Kind::Forbidden, "The directory lies below no root.")],
};

/// `POST /v1/mcp-servers/{name}/connect`, as `openapi.json` describes it.
#[cfg(test)]
pub(crate) const CONNECT: Operation = Operation {
    method: "post",
    path: "/v1/mcp-servers/{name}/connect",
    id: "connectMcpServer",
    summary: "Start a server of tools, or try again one that failed, and list its tools.",
    ids: &[("name", SchemaGenerator::subschema_for::<String>)],
    query: None,
    body: Some(SchemaGenerator::subschema_for::<McpPlace>),
    answer: (200, "It runs, or says why it failed.", Some(SchemaGenerator::subschema_for::<McpServerView>)),
    problems: &[(Kind::NotFound, "There is no such server.")],
};

/// `POST /v1/mcp-servers/{name}/disconnect`, as `openapi.json` describes it.
#[cfg(test)]
pub(crate) const DISCONNECT: Operation = Operation {
    method: "post",
    path: "/v1/mcp-servers/{name}/disconnect",
    id: "disconnectMcpServer",
    summary: "Stop a server of tools, and do not start it again until it is connected.",
    ids: &[("name", SchemaGenerator::subschema_for::<String>)],
    query: None,
    body: None,
    answer: (200, "It is switched off.", Some(SchemaGenerator::subschema_for::<McpServerView>)),
    problems: &[(Kind::NotFound, "There is no such server.")],
};

/// `GET /v1/mcp-servers`
pub(crate) async fn list(
    State(app): State<App>,
    principal: Principal,
    Search(search): Search<McpSearch>,
) -> Result<Json<McpServerList>, Problem> {
    let workspace = match search.workspace {
        None => None,
        Some(written) => Some(admitted(&app, &principal, written).await?),
    };
    let servers = views(&app, &principal, workspace.as_deref()).await?;
    Ok(Json(McpServerList { servers }))
}

/// The directory that a client named, if it may work there.
pub(crate) async fn admitted(app: &App, principal: &Principal, written: String) -> Result<String, Problem> {
    let (app, principal) = (app.clone(), principal.clone());
    let admitted = blocking(move || app.admit_directory(&principal, &written)).await??;
    Ok(admitted.to_string_lossy().into_owned())
}

/// `POST /v1/mcp-servers/{name}/connect`
pub(crate) async fn connect(
    State(app): State<App>,
    principal: Principal,
    Path(name): Path<String>,
    Body(place): Body<McpPlace>,
) -> Result<Json<McpServerView>, Problem> {
    may_switch(&principal)?;
    let workspace = admitted(&app, &principal, place.workspace).await?;
    connect_in(&app, &principal, &name, &workspace).await.map(Json)
}

/// `POST /v1/mcp-servers/{name}/disconnect`
pub(crate) async fn disconnect(
    State(app): State<App>,
    principal: Principal,
    Path(name): Path<String>,
) -> Result<Json<McpServerView>, Problem> {
    may_switch(&principal)?;
    disconnect_in(&app, &principal, &name, None).await.map(Json)
}

/// Servers are shared by tenants: those of one do not stop them for others.
pub(crate) fn may_switch(principal: &Principal) -> Result<(), Problem> {
    if principal.reads_all() {
        return Ok(());
    }
    Err(Problem::new(Kind::Forbidden, "servers of tools are started and stopped by the operator"))
}

/// Starts the server of this name for sessions of `principal` in `workspace`. Why it failed stands in the answer.
pub(crate) async fn connect_in(
    app: &App,
    principal: &Principal,
    name: &str,
    workspace: &str,
) -> Result<McpServerView, Problem> {
    // Reads what the workspace declares.
    view(app, principal, name, Some(workspace)).await?;
    set_enabled(app, name, Some(workspace), true)?;
    let connected = app.engine().connect_mcp(name, &principal.tenant, workspace).await;
    let view = view(app, principal, name, Some(workspace)).await?;
    Ok(match connected {
        Ok(()) => view,
        Err(_)
            if matches!(
                view.status,
                McpStanding::Refused | McpStanding::NeedsAuth | McpStanding::NeedsClientRegistration
            ) =>
        {
            view
        }
        Err(error) => McpServerView { status: McpStanding::Failed, error: Some(error), ..view },
    })
}

/// Switches the server of this name off: one of the operator, or of this workspace.
pub(crate) async fn disconnect_in(
    app: &App,
    principal: &Principal,
    name: &str,
    workspace: Option<&str>,
) -> Result<McpServerView, Problem> {
    view(app, principal, name, workspace).await?;
    set_enabled(app, name, workspace, false)?;
    view(app, principal, name, workspace).await
}

/// One that is refused is switched neither on nor off.
fn set_enabled(app: &App, name: &str, workspace: Option<&str>, enabled: bool) -> Result<(), Problem> {
    if let Some(servers) = app.engine().mcp() {
        drop(servers.set_enabled(name, workspace.map(FilePath::new), enabled));
    }
    Ok(())
}

/// All servers, as far as they are the business of `principal`, and what this workspace declares.
pub(crate) async fn views(
    app: &App,
    principal: &Principal,
    workspace: Option<&str>,
) -> Result<Vec<McpServerView>, Problem> {
    let Some(servers) = app.engine().mcp() else { return Ok(Vec::new()) };
    let reads_all = principal.reads_all();
    let tenant = (!reads_all).then_some(&*principal.tenant);
    let status = app.engine().mcp_status(tenant, workspace).await?;
    let viewed = |status| viewed(servers, status, reads_all, workspace);
    let mut views: Vec<_> = status.into_iter().map(viewed).collect();
    views.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(views)
}

fn viewed(
    servers: &McpServers,
    status: McpStatus,
    reads_all: bool,
    workspace: Option<&str>,
) -> McpServerView {
    let McpStatus { name, command, of_workspace, state, running, sessions, tools: _, refused } = status;
    let (status, error) = match state {
        McpState::Connected => (McpStanding::Connected, None),
        McpState::Starting => (McpStanding::Starting, None),
        McpState::Failed(why) => (McpStanding::Failed, Some(why.to_string())),
        McpState::Disabled => (McpStanding::Disabled, None),
        McpState::Stopped => (McpStanding::Stopped, None),
        McpState::Asks => (McpStanding::Asks, None),
        McpState::Refused(why) => (McpStanding::Refused, Some(why.to_string())),
        McpState::NeedsLogin(why) => (McpStanding::NeedsAuth, Some(why.to_string())),
        McpState::NeedsRegistration(why) => (McpStanding::NeedsClientRegistration, Some(why.to_string())),
    };
    let tools = servers.offered(&name, workspace.map(FilePath::new));
    let command = reads_all.then_some(command).filter(|command| !command.is_empty());
    let refused = refused.into_iter().map(|(name, reason)| RefusedTool { name, reason }).collect();
    McpServerView { name, command, of_workspace, status, error, running, sessions, tools, refused }
}

/// The servers, if the operator declares one of this name.
pub(crate) fn servers<'a>(app: &'a App, name: &str) -> Result<&'a McpServers, Problem> {
    let status = app.engine().mcp().map(|servers| servers.status(None, None)).unwrap_or_default();
    let known: Vec<String> = status.into_iter().map(|status| status.name).collect();
    match app.engine().mcp() {
        Some(servers) if known.iter().any(|known| known == name) => Ok(servers),
        _ => Err(missing(name, &known)),
    }
}

fn missing(name: &str, known: &[String]) -> Problem {
    let name: String = name.chars().take(64).collect();
    let all = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Problem::not_found(format!("there is no server of tools \"{}\"; there are: {all}", name.escape_debug()))
}

async fn view(
    app: &App,
    principal: &Principal,
    name: &str,
    workspace: Option<&str>,
) -> Result<McpServerView, Problem> {
    let views = views(app, principal, workspace).await?;
    let known: Vec<String> = views.iter().map(|view| view.name.clone()).collect();
    views.into_iter().find(|view| view.name == name).ok_or_else(|| missing(name, &known))
}

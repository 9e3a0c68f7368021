//! Language servers: which there are, how they stand, and what they say of a session's files.

use std::path::Path as FilePath;

use axum::Json;
use axum::extract::State;
use playhouse_actors::{LspKnown, LspState, LspStatus};
use playhouse_protocol::SessionId;
use schemars::JsonSchema;
#[cfg(test)]
use schemars::SchemaGenerator;
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::native::extract::{Ids, Search};
use crate::native::mcp::admitted;
#[cfg(test)]
use crate::native::openapi::operation::Operation;
use crate::native::sessions::blocking;
use crate::principal::Principal;
#[cfg(test)]
use crate::problem::Kind;
use crate::problem::Problem;

/// How a language server stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LspStanding {
    /// It runs.
    Connected,
    /// It is being started, or stopped.
    Starting,
    /// It failed.
    Failed,
    /// It does not run, and starts when it is needed.
    Stopped,
}

/// A language server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LspServerView {
    /// Its name.
    pub name: String,
    /// Its program; only for clients without a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// The folder of its project; the workspace where it does not run.
    pub root: String,
    /// How it stands.
    pub status: LspStanding,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Files that it was shown.
    pub files: usize,
}

/// The language servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LspServerList {
    /// In the order of their names.
    pub servers: Vec<LspServerView>,
}

/// Which servers are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LspSearch {
    /// A directory: then its servers are listed, running or not. Else those that run or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LspSeverity {
    /// An error.
    Error,
    /// A warning.
    Warning,
    /// Information, or a hint.
    Hint,
}

/// Something that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LspProblem {
    /// The line, from 1.
    pub line: u32,
    /// The character of the line, from 1.
    pub character: u32,
    /// How bad it is.
    pub severity: LspSeverity,
    /// What is wrong.
    pub message: String,
    /// Its code at the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// What a server says of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LspDiagnosed {
    /// The file, from the workspace.
    pub path: String,
    /// The server.
    pub server: String,
    /// What is wrong with it; absent where that is not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problems: Option<Vec<LspProblem>>,
    /// Whether the server does not say of which content it speaks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unverified: bool,
}

/// What is wrong with the files that the servers of a session's workspace were shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LspDiagnosis {
    /// By server, in the order of their paths.
    pub files: Vec<LspDiagnosed>,
}

/// `GET /v1/lsp-servers`, as `openapi.json` describes it.
#[cfg(test)]
pub(crate) const LIST: Operation = Operation {
    method: "get",
    path: "/v1/lsp-servers",
    id: "listLspServers",
    summary: "List the language servers and how they stand.",
    ids: &[],
    query: Some(LspSearch::json_schema),
    body: None,
    answer: (200, "It worked.", Some(SchemaGenerator::subschema_for::<LspServerList>)),
    problems: &[(Kind::Forbidden, "The directory lies below no root.")],
};

/// `GET /v1/sessions/{session}/lsp`, as `openapi.json` describes it.
#[cfg(test)]
pub(crate) const DIAGNOSE: Operation = Operation {
    method: "get",
    path: "/v1/sessions/{session}/lsp",
    id: "sessionDiagnostics",
    summary: "What language servers say of the files of a session's workspace that they were shown.",
    ids: &[("session", SchemaGenerator::subschema_for::<SessionId>)],
    query: None,
    body: None,
    answer: (200, "It worked.", Some(SchemaGenerator::subschema_for::<LspDiagnosis>)),
    problems: &[(Kind::NotFound, "There is no such session for this tenant.")],
};

/// `GET /v1/lsp-servers`
pub(crate) async fn list(
    State(app): State<App>,
    principal: Principal,
    Search(search): Search<LspSearch>,
) -> Result<Json<LspServerList>, Problem> {
    let workspace = match search.workspace {
        None => None,
        Some(written) => Some(admitted(&app, &principal, written).await?),
    };
    Ok(Json(LspServerList { servers: views(&app, &principal, workspace).await? }))
}

/// `GET /v1/sessions/{session}/lsp`
pub(crate) async fn diagnose(
    State(app): State<App>,
    principal: Principal,
    Ids(id): Ids<SessionId>,
) -> Result<Json<LspDiagnosis>, Problem> {
    let summary = app.summary(&principal, id).await?;
    let Some(servers) = app.engine().lsp() else { return Ok(Json(LspDiagnosis::default())) };
    let workspace = FilePath::new(&summary.workspace);
    let told = servers.diagnostics(&summary.tenant, workspace).await;
    let file = |file: playhouse_actors::LspFile| {
        let path = file.path.strip_prefix(workspace).unwrap_or(&file.path).display().to_string();
        let (problems, unverified) = match file.known {
            LspKnown::NotYet => (None, false),
            LspKnown::Found { problems, is_verified } => {
                (Some(problems.into_iter().map(problem).collect()), !is_verified)
            }
        };
        LspDiagnosed { path, server: file.server, problems, unverified }
    };
    Ok(Json(LspDiagnosis { files: told.into_iter().map(file).collect() }))
}

fn problem(problem: playhouse_actors::LspProblem) -> LspProblem {
    LspProblem {
        line: problem.spot.line,
        character: problem.spot.column,
        severity: match problem.severity {
            playhouse_actors::LspSeverity::Error => LspSeverity::Error,
            playhouse_actors::LspSeverity::Warning => LspSeverity::Warning,
            playhouse_actors::LspSeverity::Hint => LspSeverity::Hint,
        },
        message: problem.message,
        code: problem.code,
    }
}

/// The servers, as far as they are the business of `principal`.
pub(crate) async fn views(
    app: &App,
    principal: &Principal,
    workspace: Option<String>,
) -> Result<Vec<LspServerView>, Problem> {
    let Some(servers) = app.engine().lsp().cloned() else { return Ok(Vec::new()) };
    let reads_all = principal.reads_all();
    let tenant = (!reads_all).then(|| principal.tenant.to_string());
    let status =
        blocking(move || servers.status(tenant.as_deref(), workspace.as_deref().map(FilePath::new))).await?;
    Ok(status.into_iter().map(|status| viewed(status, reads_all)).collect())
}

fn viewed(status: LspStatus, reads_all: bool) -> LspServerView {
    let LspStatus { name, program, root, state, files } = status;
    let (status, error) = match state {
        LspState::Connected => (LspStanding::Connected, None),
        LspState::Starting => (LspStanding::Starting, None),
        LspState::Stopped => (LspStanding::Stopped, None),
        LspState::Failed(why) => (LspStanding::Failed, Some(why.to_string())),
    };
    let program = reads_all.then(|| program.display().to_string());
    LspServerView { name, program, root: root.display().to_string(), status, error, files }
}

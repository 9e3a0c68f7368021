//! Sessions: made, listed, read, changed, removed.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use playhouse_actors::{ForkAt, try_blocking};
use playhouse_protocol::command::Snapshot;
use playhouse_protocol::message::Changed;
use playhouse_protocol::question::Todo;
use playhouse_protocol::record::SessionChanged;
use playhouse_protocol::summary::SessionState;
use playhouse_protocol::upkeep::SalvagedSession;
use playhouse_protocol::usage::Totals;
use playhouse_protocol::{
    Command, Damage, MessageId, ModelRef, NewSession, PermissionRule, Seq, SessionId, SessionSummary,
    Timestamp, WallsAllowed,
};
use playhouse_session::FileChange;
use playhouse_store::{Cursor, Kin, ListQuery};
use schemars::JsonSchema;
#[cfg(test)]
use schemars::SchemaGenerator;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::extract::{Body, Ids, Search, given};
use super::messages::folded;
#[cfg(test)]
use super::openapi::operation::Operation;
use crate::app::App;
use crate::principal::Principal;
use crate::problem::Problem;

/// Sessions of a page that names no limit, and the most of any.
const USUAL_PAGE: usize = 50;
const LARGEST_PAGE: usize = 500;
/// The longest title, in characters.
const LONGEST_TITLE: usize = 1_000;

/// A session, as clients see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "their names say it")]
pub struct SessionView {
    pub id: SessionId,
    /// The tenant that it belongs to; only in lists of the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The directory that it works in.
    pub workspace: String,
    pub title: String,
    /// The agent of prompts that name none.
    pub agent: String,
    /// The model of prompts that name none.
    pub model: ModelRef,
    /// The session that started this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionId>,
    /// The session that this one is a fork of. It may be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<SessionId>,
    pub created: Timestamp,
    /// Time of the last record.
    pub updated: Timestamp,
    pub state: Stands,
    /// Why it is parked; absent when it is not, or when nobody asked anything of it since the engine started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<String>,
    /// Why it may not be all that it was; absent unless the store was salvaged from damage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salvaged: Option<SalvagedSession>,
    /// Turns that run or wait.
    pub open_turns: u32,
    /// Turns that are over.
    pub turns: u32,
    /// Attempts and what they used.
    pub totals: Totals,
    /// What its turns changed in files, up to the last one that is over, as the results of their calls tell; absent where
    /// they changed nothing.
    #[serde(default, skip_serializing_if = "Changed::is_nothing")]
    pub changed: Changed,
    /// Place of the last record: events after it are new to whoever read this.
    pub head: Seq,
    /// What its clients keep with it: at most 16 KB of JSON.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// When it was put aside; absent when it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived: Option<Timestamp>,
}

/// What a session does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stands {
    /// Nothing.
    Idle,
    /// A turn runs or waits.
    Busy,
    /// It cannot go on, whatever it had begun: `parked` says why.
    Parked,
    /// It is being removed.
    Deleted,
}

impl SessionView {
    fn new(app: &App, summary: SessionSummary) -> Self {
        let parked = app.engine().parked(summary.id);
        Self {
            state: match summary.state {
                SessionState::Deleted => Stands::Deleted,
                _ if parked.is_some() => Stands::Parked,
                SessionState::Busy => Stands::Busy,
                SessionState::Idle => Stands::Idle,
            },
            parked: parked.map(|reason| reason.to_string()),
            salvaged: app.engine().salvaged(&summary),
            totals: summary.totals(),
            id: summary.id,
            tenant: None,
            workspace: summary.workspace,
            title: summary.title,
            agent: summary.agent,
            model: summary.model,
            parent: summary.parent,
            forked_from: summary.forked_from,
            created: summary.created,
            updated: summary.updated,
            open_turns: summary.open_turns,
            turns: summary.turns,
            changed: summary.changed,
            head: summary.head,
            metadata: summary.metadata,
            archived: summary.archived,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewBody {
    /// The directory that it works in; absent for the server's first root.
    workspace: Option<String>,
    title: Option<String>,
    agent: Option<String>,
    model: Option<ModelRef>,
    #[serde(default)]
    permissions: Vec<PermissionRule>,
    #[serde(default)]
    unattended: bool,
    walls: Option<WallsAllowed>,
    /// The only tools that there are in it and in its sub-sessions; absent for all.
    tools: Option<Vec<String>>,
    parent: Option<SessionId>,
    /// What its system prompts end with.
    system: Option<String>,
    #[serde(default)]
    metadata: Map<String, Value>,
}

pub(crate) fn check_title(title: Option<&String>) -> Result<(), Problem> {
    match title {
        Some(title) if title.chars().count() > LONGEST_TITLE => {
            Err(Problem::invalid(format!("the title is longer than {LONGEST_TITLE} characters")))
        }
        _ => Ok(()),
    }
}

/// `POST /v1/sessions`
pub(crate) async fn create(
    State(app): State<App>,
    principal: Principal,
    Body(new): Body<NewBody>,
) -> Result<Response, Problem> {
    let _permit = app.admit_session(&principal).await?;
    check_title(new.title.as_ref())?;
    let workspace = admit_workspace(&app, &principal, new.workspace).await?;
    if let Some(parent) = new.parent {
        app.summary(&principal, parent).await?;
    }
    let session = app
        .engine()
        .create(NewSession {
            title: new.title,
            agent: new.agent,
            model: new.model,
            permissions: new.permissions,
            unattended: new.unattended,
            walls: new.walls,
            tools: new.tools,
            parent: new.parent,
            system: new.system,
            metadata: new.metadata,
            ..NewSession::new(&*principal.tenant, workspace)
        })
        .await?;
    made(&app, &principal, session.id()).await
}

/// A session that was made, and where it is.
async fn made(app: &App, principal: &Principal, id: SessionId) -> Result<Response, Problem> {
    let view = SessionView::new(app, app.summary(principal, id).await?);
    let place = format!("/v1/sessions/{id}");
    Ok((StatusCode::CREATED, [(LOCATION, place)], Json(view)).into_response())
}

/// The directory that a client named, if it lies below a root; else the first root.
async fn admit_workspace(
    app: &App,
    principal: &Principal,
    written: Option<String>,
) -> Result<String, Problem> {
    let (admitting, principal) = (app.clone(), principal.clone());
    let admitted = blocking(move || match written {
        Some(written) => admitting.admit_directory(&principal, &written),
        None => {
            let missing = || Problem::invalid("the body names no workspace, and this server has no root");
            admitting.roots_of(&principal).first().map(std::path::Path::to_owned).ok_or_else(missing)
        }
    });
    let admitted = admitted.await??;
    admitted.into_os_string().into_string().map_err(|path| {
        Problem::invalid(format!("the path \"{}\" is not UTF-8: sessions cannot work there", path.display()))
    })
}

/// Runs what may wait for the disk.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    Ok(try_blocking(work).await?)
}

/// A directory as sessions know theirs: links resolved, where it exists.
pub(super) async fn resolved(directory: String) -> Result<String, Problem> {
    blocking(move || match fs_err::canonicalize(&directory) {
        Ok(resolved) => resolved.into_os_string().into_string().unwrap_or(directory),
        Err(_) => directory,
    })
    .await
}

/// Which sessions are listed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListSearch {
    /// Only those that work in this directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Only those directly below this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionId>,
    /// Only those with none above them.
    #[serde(default)]
    pub roots: bool,
    /// Only those with this in their title, in upper or lower case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Only those that changed at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_since: Option<Timestamp>,
    /// Only those that are put aside, or only those that are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archived: Option<bool>,
    /// The cursor of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// At most so many.
    #[schemars(range(min = 1, max = LARGEST_PAGE), extend("default" = USUAL_PAGE))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// A page of sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionPage {
    /// Newest first.
    pub sessions: Vec<SessionView>,
    /// Asks for the next page; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// `GET /v1/sessions`, as `openapi.json` describes it.
#[cfg(test)]
pub(crate) const LIST: Operation = Operation {
    method: "get",
    path: "/v1/sessions",
    id: "listSessions",
    summary: "List sessions, newest first.",
    ids: &[],
    query: Some(ListSearch::json_schema),
    body: None,
    answer: (200, "It worked.", Some(SchemaGenerator::subschema_for::<SessionPage>)),
    problems: &[],
};

/// `GET /v1/sessions`
pub(crate) async fn list(
    State(app): State<App>,
    principal: Principal,
    Search(search): Search<ListSearch>,
) -> Result<Json<SessionPage>, Problem> {
    let kin = match (search.parent, search.roots) {
        (Some(_), true) => {
            return Err(Problem::invalid(
                "the query does not fit: \"parent\" and \"roots\" exclude each other",
            ));
        }
        (Some(parent), false) => Some(Kin::ChildrenOf(parent)),
        (None, roots) => roots.then_some(Kin::Roots),
    };
    let workspace = match search.workspace {
        Some(written) => Some(resolved(written).await?),
        None => None,
    };
    let query = ListQuery {
        tenant: principal.whose().map(str::to_owned),
        workspace,
        kin,
        title: search.title,
        updated_since: search.updated_since,
        archived: search.archived,
        after: search.cursor.as_deref().map(parse_cursor).transpose()?,
        limit: page_size(search.limit, USUAL_PAGE, LARGEST_PAGE)?,
    };
    let page = app.list(&principal, query).await?;
    let cursor = page.next.map(|cursor| format!("{}-{}", cursor.created.as_millis(), cursor.session));
    let view = |summary: SessionSummary| {
        let tenant = principal.is_operator.then(|| summary.tenant.clone());
        SessionView { tenant, ..SessionView::new(&app, summary) }
    };
    let sessions = page.sessions.into_iter().map(view).collect();
    Ok(Json(SessionPage { sessions, cursor }))
}

fn parse_cursor(text: &str) -> Result<Cursor, Problem> {
    let cursor = text.split_once('-').and_then(|(created, session)| {
        let created = Timestamp::from_millis(created.parse().ok()?);
        Some(Cursor { created, session: SessionId::parse(session).ok()? })
    });
    cursor.ok_or_else(|| Problem::invalid("the query does not fit: the cursor is not one that a page gave"))
}

/// How many a page shall have.
pub(super) fn page_size(wanted: Option<usize>, usual: usize, largest: usize) -> Result<usize, Problem> {
    match wanted {
        None => Ok(usual),
        Some(size) if (1..=largest).contains(&size) => Ok(size),
        Some(size) => Err(Problem::invalid(format!(
            "the query does not fit: the limit is {size}, and must be from 1 to {largest}"
        ))),
    }
}

/// `GET /v1/sessions/{session}`
pub(crate) async fn read(
    State(app): State<App>,
    principal: Principal,
    Ids(id): Ids<SessionId>,
) -> Result<Json<SessionView>, Problem> {
    let summary = app.summary(&principal, id).await?;
    Ok(Json(SessionView::new(&app, summary)))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangeBody {
    title: Option<String>,
    agent: Option<String>,
    model: Option<ModelRef>,
    permissions: Option<Vec<PermissionRule>>,
    metadata: Option<Map<String, Value>>,
    /// When it is put aside; `null` takes it back.
    #[serde(default, deserialize_with = "given")]
    archived: Option<Option<Timestamp>>,
}

/// `PATCH /v1/sessions/{session}`
pub(crate) async fn change(
    State(app): State<App>,
    principal: Principal,
    Ids(id): Ids<SessionId>,
    Body(change): Body<ChangeBody>,
) -> Result<Json<SessionView>, Problem> {
    check_title(change.title.as_ref())?;
    let ChangeBody { title, agent, model, permissions, metadata, archived } = change;
    let session = app.session(&principal, id).await?;
    let changed = SessionChanged { title, agent, model, permissions, metadata, archived };
    session.command(Command::Change(changed)).await?;
    let summary = app.summary(&principal, id).await?;
    Ok(Json(SessionView::new(&app, summary)))
}

/// `DELETE /v1/sessions/{session}`
pub(crate) async fn remove(
    State(app): State<App>,
    principal: Principal,
    Ids(id): Ids<SessionId>,
) -> Result<StatusCode, Problem> {
    app.summary(&principal, id).await?;
    app.engine().delete(id).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForkBody {
    /// The message before which the new session leaves the old one; absent for all that is settled by now.
    message: Option<MessageId>,
    /// Without a message: all that can be read is enough, where the log is damaged.
    #[serde(default)]
    readable: bool,
}

/// `POST /v1/sessions/{session}/fork`
pub(crate) async fn fork(
    State(app): State<App>,
    principal: Principal,
    Ids(id): Ids<SessionId>,
    Body(fork): Body<ForkBody>,
) -> Result<Response, Problem> {
    app.summary(&principal, id).await?;
    let at = ForkAt::new(fork.message, fork.readable)?;
    let _permit = app.admit_session(&principal).await?;
    let session = app.engine().fork(id, at).await?;
    made(&app, &principal, session.id()).await
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Todos {
    todos: Vec<Todo>,
    /// Where the session's log stops to be readable; absent where it does not. What comes after that is missing here.
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<Damage>,
}

/// `GET /v1/sessions/{session}/todos`
pub(crate) async fn todos(
    State(app): State<App>,
    principal: Principal,
    Ids(id): Ids<SessionId>,
) -> Result<Json<Todos>, Problem> {
    app.summary(&principal, id).await?;
    let Snapshot { todos, damage, .. } = app.engine().outline(id).await?;
    Ok(Json(Todos { todos, damage }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiffSearch {
    /// Only what was changed for this prompt.
    prompt: Option<MessageId>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Diff {
    files: Vec<FileChange>,
    /// Where the session's log stops to be readable, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<Damage>,
}

/// `GET /v1/sessions/{session}/diff`
pub(crate) async fn diff(
    State(app): State<App>,
    principal: Principal,
    Ids(id): Ids<SessionId>,
    Search(search): Search<DiffSearch>,
) -> Result<Json<Diff>, Problem> {
    app.summary(&principal, id).await?;
    let (session, damage) = folded(&app, id).await?;
    if let Some(prompt) = search.prompt.filter(|prompt| !session.knows_prompt(*prompt)) {
        return Err(Problem::invalid(format!("there is no prompt {prompt} in this session")));
    }
    let files = app.engine().diff(session, search.prompt).await?;
    Ok(Json(Diff { files, damage }))
}

#[derive(Debug, Serialize)]
pub(crate) struct UsageView {
    totals: Totals,
    /// By model.
    models: BTreeMap<String, Totals>,
}

/// `GET /v1/sessions/{session}/usage`
pub(crate) async fn usage(
    State(app): State<App>,
    principal: Principal,
    Ids(id): Ids<SessionId>,
) -> Result<Json<UsageView>, Problem> {
    let summary = app.summary(&principal, id).await?;
    Ok(Json(UsageView { totals: summary.totals(), models: summary.usage }))
}

//! Sessions.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use playhouse_protocol::record::SessionChanged;
use playhouse_protocol::revert::TAKEN_BACK;
use playhouse_protocol::{
    Command, CommandError, MessageId, ModelRef, NewSession, PartId, PermissionRule, RevertRequest, SessionId,
    SessionSummary, Timestamp, UnrevertRequest,
};
use playhouse_store::{Kin, ListQuery};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::native::extract::given;
use crate::native::sessions::check_title;
use crate::problem::Problem;
use crate::wire::asked::{Asked, Body, session};
use crate::wire::failure::{Failure, Named};
use crate::wire::place::Place;
use crate::wire::shapes::{GlobalSession, ProjectSummary, Session};
use crate::wire::translate;

/// The sessions that are looked at for a list, newest first.
const LOOKED_AT: usize = 2_000;
/// Sessions that are read from the store at once.
const PAGE: usize = 500;
/// Sessions of a list that names no limit, and the most of any.
const USUAL: usize = 100;
const MOST: usize = 1_000;
/// The latest time that JavaScript knows, in milliseconds since the epoch.
const LATEST: f64 = 8.64e15;
/// Where the page before this one begins.
const NEXT: HeaderName = HeaderName::from_static("x-next-cursor");

/// Sessions in the wire's words; each directory is looked at once.
async fn shown(asked: &Asked, summaries: Vec<SessionSummary>) -> Result<Vec<Session>, Failure> {
    let mut places: HashMap<String, Arc<Place>> = HashMap::new();
    let mut shown = Vec::with_capacity(summaries.len());
    for summary in summaries {
        let place = match places.get(&summary.workspace) {
            Some(place) => Arc::clone(place),
            None => {
                let place = asked.place_of(&summary.workspace).await?;
                places.insert(summary.workspace.clone(), Arc::clone(&place));
                place
            }
        };
        shown.push(translate::session(&summary, &place, asked.app.facts().version(), None));
    }
    Ok(shown)
}

async fn one(
    asked: &Asked,
    id: SessionId,
    permissions: Option<&[PermissionRule]>,
) -> Result<Json<Session>, Failure> {
    let summary = asked.app.summary(&asked.principal, id).await?;
    let place = asked.place_of(&summary.workspace).await?;
    Ok(Json(translate::session(&summary, &place, asked.app.facts().version(), permissions)))
}

#[derive(Deserialize)]
struct ListSearch {
    /// `project` for all of the project, else those of the directory.
    scope: Option<String>,
    /// Those of this directory, from the project's own on, and of all below it.
    path: Option<String>,
    roots: Option<bool>,
    /// Milliseconds since the epoch.
    start: Option<f64>,
    search: Option<String>,
    limit: Option<f64>,
}

/// `GET /session`: those that changed last come first.
pub(crate) async fn list(asked: Asked) -> Result<Json<Vec<Session>>, Named> {
    let ListSearch { scope, path, roots, start, search, limit } = asked.query()?;
    let place = asked.place().await?;
    let whole = scope.as_deref() == Some("project") || path.is_some();
    let above = std::path::Path::new(&*place.worktree).join(path.unwrap_or_default().trim_start_matches('/'));
    let query = ListQuery {
        tenant: Some(asked.principal.tenant.to_string()),
        workspace: (!whole).then(|| place.directory.to_string()),
        kin: roots.unwrap_or(false).then_some(Kin::Roots),
        title: search.filter(|search| !search.is_empty()),
        updated_since: start.map(time),
        limit: PAGE,
        ..ListQuery::default()
    };
    let inside =
        |summary: &SessionSummary| !whole || std::path::Path::new(&summary.workspace).starts_with(&above);
    let mut found = newest(&asked, query, inside).await?;
    found.truncate(most(limit));
    Ok(Json(shown(&asked, found).await?))
}

/// Milliseconds since the epoch. What is no time is before all times.
fn time(written: f64) -> Timestamp {
    Timestamp::from_millis(written.max(0.0) as u64)
}

/// How many sessions a list has.
fn most(limit: Option<f64>) -> usize {
    limit.map_or(USUAL, |limit| limit.clamp(0.0, MOST as f64) as usize)
}

/// The sessions that are `wanted` of those looked at: those that changed last come first.
async fn newest(
    asked: &Asked,
    mut query: ListQuery,
    wanted: impl Fn(&SessionSummary) -> bool,
) -> Result<Vec<SessionSummary>, Problem> {
    let mut found = Vec::new();
    while found.len() < LOOKED_AT {
        let page = asked.app.list(&asked.principal, query.clone()).await?;
        found.extend(page.sessions.into_iter().filter(&wanted));
        let Some(next) = page.next else { break };
        query.after = Some(next);
    }
    found.sort_by_key(|summary| std::cmp::Reverse((summary.updated, std::cmp::Reverse(summary.id))));
    Ok(found)
}

#[derive(Deserialize)]
struct GlobalSearch {
    /// Those of this directory only.
    directory: Option<String>,
    roots: Option<bool>,
    start: Option<f64>,
    /// Only those that changed before this time.
    cursor: Option<f64>,
    search: Option<String>,
    limit: Option<f64>,
    /// Also those that are put aside.
    archived: Option<bool>,
}

/// `GET /experimental/session`: those of all directories.
pub(crate) async fn everywhere(asked: Asked) -> Result<(HeaderMap, Json<Vec<GlobalSession>>), Named> {
    let GlobalSearch { directory, roots, start, cursor, search, limit, archived } = asked.query()?;
    let workspace = match directory {
        Some(directory) if !directory.is_empty() => Some(asked.place().await?.directory.to_string()),
        _ => None,
    };
    let query = ListQuery {
        tenant: Some(asked.principal.tenant.to_string()),
        workspace,
        kin: roots.unwrap_or(false).then_some(Kin::Roots),
        title: search.filter(|search| !search.is_empty()),
        updated_since: start.map(time),
        archived: (!archived.unwrap_or(false)).then_some(false),
        limit: PAGE,
        ..ListQuery::default()
    };
    let before = cursor.map(time);
    let wanted = |summary: &SessionSummary| before.is_none_or(|before| summary.updated < before);
    let mut found = newest(&asked, query, wanted).await?;
    let limit = most(limit);
    let mut headers = HeaderMap::new();
    if found.len() > limit {
        found.truncate(limit);
        if let Some(last) = found.last() {
            headers.insert(NEXT, HeaderValue::from(last.updated.as_millis()));
        }
    }
    let mut all = Vec::with_capacity(found.len());
    for (summary, session) in found.iter().zip(shown(&asked, found.clone()).await?) {
        let place = asked.place_of(&summary.workspace).await?;
        let project = ProjectSummary { id: session.project.clone(), worktree: place.worktree.to_string() };
        all.push(GlobalSession { session, project });
    }
    Ok((headers, Json(all)))
}

#[derive(Deserialize)]
struct ModelBody {
    id: String,
    #[serde(rename = "providerID")]
    provider: String,
}

#[derive(Deserialize)]
pub(crate) struct NewBody {
    #[serde(rename = "parentID")]
    parent: Option<SessionId>,
    title: Option<String>,
    agent: Option<String>,
    model: Option<ModelBody>,
    #[serde(default)]
    metadata: Map<String, Value>,
    #[serde(default)]
    permission: Vec<PermissionRule>,
}

/// `POST /session`
pub(crate) async fn create(asked: Asked, Body(new): Body<NewBody>) -> Result<Json<Session>, Failure> {
    let _permit = asked.app.admit_session(&asked.principal).await?;
    check_title(new.title.as_ref())?;
    let parent = match new.parent {
        Some(parent) => Some(asked.app.summary(&asked.principal, parent).await?),
        None => None,
    };
    let workspace = match (asked.named_place().await?, parent) {
        (Some(place), _) => place.directory.to_string(),
        // A sub-session works where its parent does, unless something else was said.
        (None, Some(parent)) => parent.workspace,
        (None, None) => asked.place().await?.directory.to_string(),
    };
    let made = asked.app.engine().create(NewSession {
        title: new.title,
        agent: new.agent,
        model: new.model.map(|model| ModelRef::new(model.provider, model.id)),
        permissions: new.permission.clone(),
        parent: new.parent,
        metadata: new.metadata,
        ..NewSession::new(&*asked.principal.tenant, workspace)
    });
    let made = made.await?;
    one(&asked, made.id(), Some(&new.permission)).await
}

/// `GET /session/{sessionID}`
pub(crate) async fn read(asked: Asked, Path(id): Path<String>) -> Result<Json<Session>, Failure> {
    one(&asked, session(&id)?, None).await
}

#[derive(Deserialize)]
pub(crate) struct ChangeBody {
    title: Option<String>,
    metadata: Option<Map<String, Value>>,
    permission: Option<Vec<PermissionRule>>,
    time: Option<TimeBody>,
}

#[derive(Deserialize)]
struct TimeBody {
    /// When the session is put aside; `null` takes it back.
    #[serde(default, deserialize_with = "given")]
    archived: Option<Option<f64>>,
}

/// `PATCH /session/{sessionID}`
pub(crate) async fn change(
    asked: Asked,
    Path(id): Path<String>,
    Body(change): Body<ChangeBody>,
) -> Result<Json<Session>, Failure> {
    let id = session(&id)?;
    check_title(change.title.as_ref())?;
    let archived = change.time.and_then(|time| time.archived);
    if archived.flatten().is_some_and(|at| !(0.0..=LATEST).contains(&at)) {
        return Err(Failure::invalid(
            "`time.archived` is no time: give milliseconds since 1970, or `null` to take the session back",
        ));
    }
    let handle = asked.app.session(&asked.principal, id).await?;
    let permissions = change.permission;
    let changed = SessionChanged {
        title: change.title,
        permissions: permissions.clone(),
        metadata: change.metadata,
        archived: archived.map(|at| at.map(time)),
        ..SessionChanged::default()
    };
    if changed != SessionChanged::default() {
        handle.command(Command::Change(changed)).await?;
    }
    one(&asked, id, permissions.as_deref()).await
}

/// `DELETE /session/{sessionID}`
pub(crate) async fn remove(asked: Asked, Path(id): Path<String>) -> Result<Json<bool>, Failure> {
    let id = session(&id)?;
    asked.app.summary(&asked.principal, id).await?;
    asked.app.engine().delete(id).await?;
    Ok(Json(true))
}

/// `GET /session/{sessionID}/children`
pub(crate) async fn children(asked: Asked, Path(id): Path<String>) -> Result<Json<Vec<Session>>, Failure> {
    let id = session(&id)?;
    asked.app.summary(&asked.principal, id).await?;
    let query = ListQuery {
        tenant: Some(asked.principal.tenant.to_string()),
        kin: Some(Kin::ChildrenOf(id)),
        limit: MOST,
        ..ListQuery::default()
    };
    let page = asked.app.list(&asked.principal, query).await?;
    Ok(Json(shown(&asked, page.sessions).await?))
}

/// `POST /session/{sessionID}/abort`
pub(crate) async fn abort(asked: Asked, Path(id): Path<String>) -> Result<Json<bool>, Failure> {
    asked.app.session(&asked.principal, session(&id)?).await?.abort().await?;
    Ok(Json(true))
}

#[derive(Deserialize)]
pub(crate) struct SummarizeBody {
    #[serde(rename = "providerID")]
    provider: String,
    #[serde(rename = "modelID")]
    model: String,
}

/// `POST /session/{sessionID}/summarize`
pub(crate) async fn summarize(
    asked: Asked,
    Path(id): Path<String>,
    Body(SummarizeBody { provider, model }): Body<SummarizeBody>,
) -> Result<Json<bool>, Failure> {
    let model = Some(ModelRef::new(&provider, &model)).filter(|_| !provider.is_empty() && !model.is_empty());
    asked.app.session(&asked.principal, session(&id)?).await?.compact(model).await?;
    Ok(Json(true))
}

#[derive(Deserialize)]
pub(crate) struct RevertBody {
    #[serde(rename = "messageID")]
    message: MessageId,
    #[serde(rename = "partID")]
    part: Option<PartId>,
}

/// `POST /session/{sessionID}/revert`
pub(crate) async fn revert(
    asked: Asked,
    Path(id): Path<String>,
    Body(RevertBody { message, part }): Body<RevertBody>,
) -> Result<Json<Session>, Failure> {
    let id = session(&id)?;
    let handle = asked.app.session(&asked.principal, id).await?;
    let to = match part {
        Some(part) => part.to_string(),
        // An answer is taken back with its prompt.
        None => handle.prompt_of(message).await?.to_string(),
    };
    let request = RevertRequest { to: Some(to), ..RevertRequest::default() };
    if let Err(error) = handle.revert(request.clone()).await {
        // What lies behind the point of an earlier revert is done again first.
        let is_behind = matches!(&error, CommandError::Invalid(why) if why == TAKEN_BACK)
            && asked.app.summary(&asked.principal, id).await?.reverted.is_some();
        if !is_behind {
            return Err(error.into());
        }
        handle.unrevert(UnrevertRequest::default()).await?;
        handle.revert(request).await?;
    }
    one(&asked, id, None).await
}

/// `POST /session/{sessionID}/unrevert`
pub(crate) async fn unrevert(asked: Asked, Path(id): Path<String>) -> Result<Json<Session>, Failure> {
    let id = session(&id)?;
    let handle = asked.app.session(&asked.principal, id).await?;
    // Nothing to do again is no error on this wire.
    if asked.app.summary(&asked.principal, id).await?.reverted.is_some() {
        handle.unrevert(UnrevertRequest::default()).await?;
    }
    one(&asked, id, None).await
}

#[derive(Deserialize)]
pub(crate) struct ForkBody {
    #[serde(rename = "messageID")]
    message: Option<MessageId>,
}

/// `POST /session/{sessionID}/fork`
pub(crate) async fn fork(
    asked: Asked,
    Path(id): Path<String>,
    Body(fork): Body<ForkBody>,
) -> Result<Json<Session>, Failure> {
    let id = session(&id)?;
    asked.app.summary(&asked.principal, id).await?;
    let _permit = asked.app.admit_session(&asked.principal).await?;
    let made = asked.app.engine().fork(id, fork.message).await?;
    one(&asked, made.id(), None).await
}

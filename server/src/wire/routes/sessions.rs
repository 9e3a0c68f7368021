//! Sessions.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::Path;
use playhouse_protocol::record::SessionChanged;
use playhouse_protocol::{
    Command, ModelRef, NewSession, PermissionRule, SessionId, SessionSummary, Timestamp,
};
use playhouse_store::{Kin, ListQuery};
use serde::Deserialize;
use serde_json::Value;

use crate::native::sessions::check_title;
use crate::wire::asked::{Asked, Body, session};
use crate::wire::failure::{Failure, Named};
use crate::wire::place::Place;
use crate::wire::shapes::Session;
use crate::wire::translate;

/// The sessions that are looked at for a list, newest first.
const LOOKED_AT: usize = 2_000;
/// Sessions that are read from the store at once.
const PAGE: usize = 500;
/// Sessions of a list that names no limit, and the most of any.
const USUAL: usize = 100;
const MOST: usize = 1_000;

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
    roots: Option<bool>,
    /// Milliseconds since the epoch.
    start: Option<f64>,
    search: Option<String>,
    limit: Option<f64>,
}

/// `GET /session`: those that changed last come first.
pub(crate) async fn list(asked: Asked) -> Result<Json<Vec<Session>>, Named> {
    let ListSearch { scope, roots, start, search, limit } = asked.query()?;
    let place = asked.place().await?;
    let whole = scope.as_deref() == Some("project");
    let mut query = ListQuery {
        tenant: Some(asked.principal.tenant.to_string()),
        workspace: (!whole).then(|| place.directory.to_string()),
        kin: roots.unwrap_or(false).then_some(Kin::Roots),
        title: search.filter(|search| !search.is_empty()),
        // What is no time is before all times.
        updated_since: start.map(|start| Timestamp::from_millis(start.max(0.0) as u64)),
        after: None,
        limit: PAGE,
    };
    let mut found = Vec::new();
    while found.len() < LOOKED_AT {
        let page = asked.app.engine().list(query.clone()).await?;
        let inside = |summary: &SessionSummary| {
            !whole || std::path::Path::new(&summary.workspace).starts_with(&*place.worktree)
        };
        found.extend(page.sessions.into_iter().filter(inside));
        let Some(next) = page.next else { break };
        query.after = Some(next);
    }
    found.sort_by_key(|summary| std::cmp::Reverse((summary.updated, std::cmp::Reverse(summary.id))));
    let limit = limit.map_or(USUAL, |limit| limit.clamp(1.0, MOST as f64) as usize);
    found.truncate(limit);
    Ok(Json(shown(&asked, found).await?))
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
    metadata: Option<Value>,
    #[serde(default)]
    permission: Vec<PermissionRule>,
}

fn no_metadata(metadata: Option<&Value>) -> Result<(), Failure> {
    match metadata.and_then(Value::as_object).is_some_and(|metadata| !metadata.is_empty()) {
        true => Err(Failure::not_built("sessions keep no metadata yet: leave `metadata` out")),
        false => Ok(()),
    }
}

/// `POST /session`
pub(crate) async fn create(asked: Asked, Body(new): Body<NewBody>) -> Result<Json<Session>, Failure> {
    let _permit = asked.app.admit_session(&asked.principal).await?;
    check_title(new.title.as_ref())?;
    no_metadata(new.metadata.as_ref())?;
    let workspace = match (asked.named_place().await?, new.parent) {
        (Some(place), _) => place.directory.to_string(),
        // A sub-session works where its parent does, unless something else was said.
        (None, Some(parent)) => asked.app.summary(&asked.principal, parent).await?.workspace,
        (None, None) => asked.place().await?.directory.to_string(),
    };
    let made = asked.app.engine().create(NewSession {
        tenant: asked.principal.tenant.to_string(),
        workspace,
        title: new.title,
        agent: new.agent,
        model: new.model.map(|model| ModelRef::new(model.provider, model.id)),
        permissions: new.permission.clone(),
        unattended: false,
        walls: None,
        parent: new.parent,
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
    metadata: Option<Value>,
    permission: Option<Vec<PermissionRule>>,
    time: Option<TimeBody>,
}

#[derive(Deserialize)]
struct TimeBody {
    archived: Option<f64>,
}

/// `PATCH /session/{sessionID}`
pub(crate) async fn change(
    asked: Asked,
    Path(id): Path<String>,
    Body(change): Body<ChangeBody>,
) -> Result<Json<Session>, Failure> {
    let id = session(&id)?;
    check_title(change.title.as_ref())?;
    no_metadata(change.metadata.as_ref())?;
    if change.time.is_some_and(|time| time.archived.is_some()) {
        return Err(Failure::not_built("sessions cannot be archived yet"));
    }
    let handle = asked.app.session(&asked.principal, id).await?;
    let (title, permissions) = (change.title, change.permission);
    if title.is_some() || permissions.is_some() {
        let changed = SessionChanged { title, permissions: permissions.clone(), ..SessionChanged::default() };
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
    let page = asked.app.engine().list(ListQuery {
        tenant: Some(asked.principal.tenant.to_string()),
        kin: Some(Kin::ChildrenOf(id)),
        limit: MOST,
        ..ListQuery::default()
    });
    let page = page.await?;
    Ok(Json(shown(&asked, page.sessions).await?))
}

/// `POST /session/{sessionID}/abort`
pub(crate) async fn abort(asked: Asked, Path(id): Path<String>) -> Result<Json<bool>, Failure> {
    asked.app.session(&asked.principal, session(&id)?).await?.abort().await?;
    Ok(Json(true))
}

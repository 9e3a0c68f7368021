//! Events: of one session, and of all sessions of the tenant.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use playhouse_protocol::{EventId, SessionId};
use serde::Deserialize;

use super::extract::{Ids, Search};
use super::sessions::resolved;
use crate::app::App;
use crate::principal::Principal;
use crate::problem::{Kind, Problem};
use crate::stream::many::{Many, ManyPlace};
use crate::stream::one::One;
use crate::stream::sse;

/// The header in which a client that comes back says how far it was.
const LAST: &str = "last-event-id";

/// The form of a stream.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Format {
    #[default]
    Json,
    Tags,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OneSearch {
    /// The place behind which it begins; absent for now.
    after: Option<EventId>,
    #[serde(default)]
    format: Format,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ManySearch {
    /// The place behind which it begins; absent for now.
    after: Option<ManyPlace>,
    /// Only sessions that work in this directory.
    directory: Option<String>,
    #[serde(default)]
    format: Format,
}

/// `GET /v1/sessions/{session}/events`
pub(crate) async fn of_one(
    State(app): State<App>,
    principal: Principal,
    Ids(id): Ids<SessionId>,
    headers: HeaderMap,
    Search(search): Search<OneSearch>,
) -> Result<Response, Problem> {
    check_format(search.format)?;
    // A client that comes back asks with the address that it began with: where it was comes first.
    let after = last(&headers)?.or(search.after);
    let session = app.session(&principal, id).await?;
    let permit = app.limits().subscribe(&principal)?;
    let events = session.events(after.map(|after| after.seq)).await?;
    Ok(sse::answer(&app, One(events), permit))
}

/// `GET /v1/events`
pub(crate) async fn of_many(
    State(app): State<App>,
    principal: Principal,
    headers: HeaderMap,
    Search(search): Search<ManySearch>,
) -> Result<Response, Problem> {
    check_format(search.format)?;
    let after: Option<ManyPlace> = last(&headers)?.or(search.after);
    let directory = match search.directory {
        Some(written) => Some(resolved(written).await?),
        None => None,
    };
    let permit = app.limits().subscribe(&principal)?;
    let after = after.map(|place| (place.generation, place.position));
    let listener = app.engine().hub().listen(&principal.tenant, after, move |owner| {
        directory.as_ref().is_none_or(|directory| **directory == *owner.workspace)
    });
    Ok(sse::answer(&app, Many(listener), permit))
}

fn check_format(format: Format) -> Result<(), Problem> {
    match format {
        Format::Json => Ok(()),
        Format::Tags => Err(Problem::new(
            Kind::NotBuilt,
            "events as tags are not built here: `playhouse run --format tags` writes them",
        )),
    }
}

/// How far a client was that comes back.
fn last<T: std::str::FromStr<Err = String>>(headers: &HeaderMap) -> Result<Option<T>, Problem> {
    let Some(written) = headers.get(LAST).filter(|written| !written.is_empty()) else { return Ok(None) };
    let written = String::from_utf8_lossy(written.as_bytes());
    let parsed = written.parse().map_err(|error: String| {
        let error: String = error.chars().take(400).collect();
        Problem::invalid(format!("the header \"{LAST}\" does not fit: {error}"))
    });
    parsed.map(Some)
}

//! Events: of one session, and of all sessions of the tenant, or of all tenants.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use playhouse_actors::Owner;
use playhouse_protocol::operator::BY_HAND_TENANT;
use playhouse_protocol::{CommandError, EventId, SessionId};
use playhouse_session::tags::TagPlace;
use serde::Deserialize;

use super::extract::{Ids, Search};
use super::sessions::{blocking, resolved};
use crate::app::{Admitted, App};
use crate::principal::Principal;
use crate::problem::Problem;
use crate::stream::many::{Many, ManyPlace};
use crate::stream::one::One;
use crate::stream::sse;
use crate::stream::tags::Tags;

/// The header in which a client that comes back says how far it was.
const LAST: &str = "last-event-id";

/// The form of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
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
    after: Option<String>,
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
    // A client that comes back asks with the address that it began with: where it was comes first.
    let header = last_written(&headers);
    let (written, place_of) = match header {
        Some(written) => (Some(written), format!("the header \"{LAST}\" does not fit")),
        None => (search.after, "the query does not fit".to_owned()),
    };
    let misfit = |error: String| Problem::invalid(format!("{place_of}: {error}"));
    let tags = match search.format {
        Format::Json => None,
        Format::Tags => Some(written.as_deref().map(str::parse::<TagPlace>).transpose().map_err(misfit)?),
    };
    let after = match (&tags, written) {
        (None, Some(written)) => Some(written.parse::<EventId>().map_err(misfit)?.seq),
        (Some(place), _) => place.map(|place| place.seq),
        (None, None) => None,
    };
    let summary = app.summary(&principal, id).await?;
    let session = app.engine().session(id).await?;
    let by_hand = (summary.tenant == BY_HAND_TENANT).then(|| ByHand { app: app.clone(), session: id });
    let Admitted { held, ended, reads_all } = app.admit_stream(&principal).await?;
    let admitted = Admitted { held: (held, by_hand), ended, reads_all };
    let events = session.events(after).await?;
    let Some(place) = tags else { return Ok(sse::answer(&app, One(events), admitted)) };
    // Nobody can have read what is not there yet.
    let seq = events.place();
    let place = place.filter(|place| place.seq == seq).unwrap_or(TagPlace { seq, text: 0 });
    let (before, _) = app.engine().read(id).await?;
    let tags = blocking(move || Tags::new(events, place, &before)).await?;
    Ok(sse::answer(&app, tags, admitted))
}

/// A session of calls by hand. It is of no use without the command that makes them, whose connection this goes with.
struct ByHand {
    app: App,
    session: SessionId,
}

impl Drop for ByHand {
    fn drop(&mut self) {
        let (engine, session) = (self.app.engine().clone(), self.session);
        // Without a runtime the engine ends, and the next one removes it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            match engine.delete(session).await {
                // The command was quicker.
                Ok(()) | Err(CommandError::NotFound(_)) => {}
                Err(error) => tracing::warn!(%session, %error, "calls by hand cannot be removed"),
            }
        });
    }
}

/// `GET /v1/events`
pub(crate) async fn of_many(
    State(app): State<App>,
    principal: Principal,
    headers: HeaderMap,
    Search(search): Search<ManySearch>,
) -> Result<Response, Problem> {
    if search.format == Format::Tags {
        let detail = "the query does not fit: the text of several sessions in one stream would be no text; follow each of them";
        return Err(Problem::invalid(detail));
    }
    let after: Option<ManyPlace> = last(&headers)?.or(search.after);
    let directory = match search.directory {
        Some(written) => Some(resolved(written).await?),
        None => None,
    };
    let admitted = app.admit_stream(&principal).await?;
    if let Some(place) = after.filter(|place| place.all != principal.all) {
        let detail = format!(
            "\"{place}\" is a place in the events of {}: begin without a place here, or ask for those events",
            if place.all { "all tenants" } else { "one tenant" }
        );
        return Err(Problem::invalid(detail));
    }
    let after = after.map(|place| (place.generation, place.position));
    let (reached, of) = (app.clone(), principal.clone());
    let wanted = move |owner: &Owner| {
        directory.as_ref().is_none_or(|directory| **directory == *owner.workspace)
            && reached.reaches(&of, &owner.workspace)
    };
    let hub = app.engine().hub();
    let listener = if principal.all {
        hub.listen_to_all(after, move |owner| *owner.tenant != *BY_HAND_TENANT && wanted(owner))
    } else {
        hub.listen(&principal.tenant, after, wanted)
    };
    Ok(sse::answer(&app, Many { listener, all: principal.all }, admitted))
}

/// How far a client was that comes back, as it writes it.
fn last_written(headers: &HeaderMap) -> Option<String> {
    let written = headers.get(LAST).filter(|written| !written.is_empty())?;
    Some(String::from_utf8_lossy(written.as_bytes()).chars().take(400).collect())
}

/// How far a client was that comes back.
fn last<T: std::str::FromStr<Err = String>>(headers: &HeaderMap) -> Result<Option<T>, Problem> {
    let Some(written) = last_written(headers) else { return Ok(None) };
    let parsed = written.parse().map_err(|error: String| {
        let error: String = error.chars().take(400).collect();
        Problem::invalid(format!("the header \"{LAST}\" does not fit: {error}"))
    });
    parsed.map(Some)
}

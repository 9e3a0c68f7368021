//! Streams of events, and what sessions do now.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::response::Response;

use crate::wire::asked::Asked;
use crate::wire::failure::{Failure, Named};
use crate::wire::feed::Reader;
use crate::wire::shapes::Status;

/// How far a client was that comes back.
const LAST: &str = "last-event-id";

/// `GET /event`
pub(crate) async fn of_directory(asked: Asked) -> Result<Response, Named> {
    let place = asked.place().await?;
    Ok(stream(&asked, Some(Arc::clone(&place.directory))).await?)
}

/// `GET /global/event`
pub(crate) async fn of_all(asked: Asked) -> Result<Response, Named> {
    Ok(stream(&asked, None).await?)
}

async fn stream(asked: &Asked, directory: Option<Arc<str>>) -> Result<Response, Failure> {
    let admitted = asked.app.admit_stream(&asked.principal).await?;
    let feed = asked.feed().await;
    let last = asked.headers.get(LAST).filter(|last| !last.is_empty());
    let last = last.map(|last| String::from_utf8_lossy(last.as_bytes()));
    Ok(Reader::new(asked, feed, directory, last.as_deref(), admitted).answer())
}

/// `GET /session/status`: the sessions that do something.
pub(crate) async fn status(asked: Asked) -> Result<Json<BTreeMap<String, Status>>, Failure> {
    let place = asked.place().await?;
    let feed = asked.feed().await;
    let busy = asked.app.engine().busy(&*asked.principal.tenant).await?.into_iter();
    let here = busy.filter(|summary| *summary.workspace == *place.directory);
    let status = here.map(|summary| {
        // What the feed knows is newer where it is more, and older where it has not heard of the turn.
        let status = feed.status(summary.id).filter(|status| *status != Status::Idle);
        (summary.id.to_string(), status.unwrap_or(Status::Busy))
    });
    Ok(Json(status.collect()))
}

//! The messages of a session, in pages.

use axum::Json;
use axum::extract::State;
use playhouse_protocol::command::{MessagePage, MessagesQuery};
use playhouse_protocol::{MessageId, SessionId};
use serde::Deserialize;

use super::extract::{Ids, Search};
use super::sessions::page_size;
use crate::app::App;
use crate::principal::Principal;
use crate::problem::Problem;

/// Messages of a page that names no limit, and the most of any.
const USUAL_PAGE: usize = 50;
const LARGEST_PAGE: usize = 500;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageSearch {
    before: Option<MessageId>,
    after: Option<MessageId>,
    limit: Option<usize>,
}

/// `GET /v1/sessions/{session}/messages`
pub(crate) async fn page(
    State(app): State<App>,
    principal: Principal,
    Ids(id): Ids<SessionId>,
    Search(search): Search<PageSearch>,
) -> Result<Json<MessagePage>, Problem> {
    app.summary(&principal, id).await?;
    let limit = page_size(search.limit, USUAL_PAGE, LARGEST_PAGE)?;
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    let query = MessagesQuery { before: search.before, after: search.after, limit };
    Ok(Json(app.engine().messages(id, query).await?))
}

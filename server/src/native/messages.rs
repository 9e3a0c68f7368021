//! The messages of a session, in pages, and the files that belong to them.

use std::borrow::Cow;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse as _, Response};
use playhouse_actors::fold;
use playhouse_protocol::command::{MessagePage, MessagesQuery};
use playhouse_protocol::message::{Attachment, CallPart, CallState, Message};
use playhouse_protocol::{Damage, MessageId, Part, SessionId};
use playhouse_session::Session;
use serde::Deserialize;

use super::extract::{Ids, Search};
use super::sessions::{blocking, page_size};
use crate::app::App;
use crate::discreet;
use crate::principal::Principal;
use crate::problem::{Kind, Problem};

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
    let mut page = app.engine().messages(id, query).await?;
    if !principal.reads_all()
        && let Cow::Owned(told) = discreet::messages(&page.messages)
    {
        page.messages = told;
    }
    Ok(Json(page))
}

/// A session as its log says it, with all of its messages; and where that log stops to be readable, if it does.
pub(crate) async fn folded(app: &App, id: SessionId) -> Result<(Session, Option<Damage>), Problem> {
    let (entries, damage) = app.engine().read(id).await?;
    let (folded, misfit) = blocking(move || fold(&entries)).await?;
    let unreadable = || Problem::new(Kind::Parked, format!("nothing of the log of session {id} can be read"));
    Ok((folded.ok_or_else(unreadable)?, misfit.or(damage)))
}

/// That something is not there, in a session whose log cannot be read from `damage` on.
pub(crate) fn missing(what: String, damage: Option<&Damage>) -> Problem {
    match damage {
        None => Problem::not_found(what),
        Some(damage) => {
            let detail = format!("{what}, as far as its log can be read ({damage})");
            Problem::new(Kind::Parked, detail)
        }
    }
}

/// The file with this content that a message names.
fn attachment(messages: &[Message], hash: &str) -> Option<Attachment> {
    let of_part = |part: &Part| -> Vec<Attachment> {
        match part {
            Part::File { file, .. } => vec![file.clone()],
            Part::Call(CallPart { state: CallState::Settled(result), .. }) => result.attachments.clone(),
            _ => Vec::new(),
        }
    };
    let parts = messages.iter().flat_map(|message| match message {
        Message::User(message) => &message.parts,
        Message::Assistant(message) => &message.parts,
    });
    parts.flat_map(of_part).find(|file| file.blob.hash == hash)
}

/// `GET /v1/sessions/{session}/attachments/{hash}`
pub(crate) async fn attached(
    State(app): State<App>,
    principal: Principal,
    Ids((id, hash)): Ids<(SessionId, String)>,
) -> Result<Response, Problem> {
    app.summary(&principal, id).await?;
    let (session, damage) = folded(&app, id).await?;
    let file = blocking(move || attachment(&session.all_messages(), &hash)).await?;
    let none = || format!("no message of session {id} has a file with this content");
    let file = file.ok_or_else(|| missing(none(), damage.as_ref()))?;
    let name = disposition(&file.filename);
    let content = app.engine().blob(&principal.tenant, file.blob).await?;
    let kind = HeaderValue::from_str(&file.mime);
    let headers = [
        (CONTENT_TYPE, kind.unwrap_or(HeaderValue::from_static("application/octet-stream"))),
        (CONTENT_DISPOSITION, name),
        // It came from anyone: nothing in it is run, whatever it says it is.
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox")),
        // The address names the content.
        (CACHE_CONTROL, HeaderValue::from_static("private, max-age=31536000, immutable")),
    ];
    Ok((headers, content).into_response())
}

/// Says that it is a file, and what it is called, as RFC 6266 has it.
fn disposition(name: &str) -> HeaderValue {
    let plain: String = name
        .chars()
        .map(|character| match character {
            '"' | '\\' | '/' => '_',
            ' '..='~' => character,
            _ => '_',
        })
        .collect();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escaped: String = name
        .bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    let text = format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{escaped}");
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("attachment"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_break_no_header() {
        for (name, header) in [
            ("a b.png", "attachment; filename=\"a b.png\"; filename*=UTF-8''a%20b.png"),
            ("é\"\r\n.x", "attachment; filename=\"____.x\"; filename*=UTF-8''%C3%A9%22%0D%0A.x"),
        ] {
            assert_eq!(disposition(name), header);
        }
    }
}

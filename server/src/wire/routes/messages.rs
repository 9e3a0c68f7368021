//! Messages, and what is made from them.

use std::borrow::Cow;

use axum::Json;
use axum::extract::Path;
use axum::http::header::LINK;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use playhouse_protocol::command::{MessagesQuery, Snapshot};
use playhouse_protocol::message::Message;
use playhouse_protocol::question::Todo;
use playhouse_protocol::summary::SessionState;
use playhouse_protocol::{Damage, MessageId, SessionId, SessionSummary};
use playhouse_session::Session;
use serde::Deserialize;

use crate::discreet;
use crate::native::messages::missing;
use crate::wire::asked::{Asked, session};
use crate::wire::failure::{Failure, Named};
use crate::wire::inline;
use crate::wire::shapes::{FileDiff, MessageWithParts};
use crate::wire::translate::{self, Scene};

/// The most messages of an answer.
const MOST: u32 = 1_000;
/// Where the session's log stops to be readable.
const DAMAGE: HeaderName = HeaderName::from_static("x-playhouse-damage");
/// Where the page before this one begins.
const NEXT: HeaderName = HeaderName::from_static("x-next-cursor");

#[derive(Deserialize)]
struct PageSearch {
    limit: Option<u32>,
    /// As `X-Next-Cursor` said it.
    before: Option<String>,
}

/// `GET /session/{sessionID}/message`: the last messages, or those before a place, oldest first.
pub(crate) async fn list(
    asked: Asked,
    Path(id): Path<String>,
) -> Result<(HeaderMap, Json<Vec<MessageWithParts>>), Failure> {
    let id = session(&id)?;
    let PageSearch { limit, before } = asked.query()?;
    let before = before.filter(|before| !before.is_empty());
    let before = before.as_deref().map(MessageId::parse).transpose()?;
    let limit = limit.filter(|limit| *limit > 0).unwrap_or(MOST).min(MOST);
    let summary = asked.app.summary(&asked.principal, id).await?;
    let query = MessagesQuery { before, after: None, limit };
    let page = asked.app.engine().messages(id, query).await?;
    let mut headers = told(page.damage.as_ref());
    // Damage that is known by its place says more.
    if let Some(salvaged) = asked.app.engine().salvaged(&summary).filter(|_| page.damage.is_none())
        && let Ok(reason) = HeaderValue::from_str(&salvaged.reason)
    {
        headers.insert(DAMAGE, reason);
    }
    if let Some(before) = page.before {
        let link = format!("<{}?limit={limit}&before={before}>; rel=\"next\"", asked.path());
        let header = |text: &str| HeaderValue::from_str(text);
        if let (Ok(cursor), Ok(link)) = (header(before.as_str()), header(&link)) {
            headers.insert(NEXT, cursor);
            headers.insert(LINK, link);
        }
    }
    let at_end = page.after.is_none();
    let behind = if at_end { Vec::new() } else { behind(&asked, id, &page.messages).await? };
    let mut messages = shown(&asked, &summary, &page.messages, &behind, at_end).await?;
    if let Some(damage) = page.damage.filter(|_| at_end) {
        let place = asked.place_of(&summary.workspace).await?;
        let last = page.messages.last().map(|message| match message {
            Message::User(prompt) => (prompt.id, prompt.id),
            Message::Assistant(answer) => (answer.id, answer.parent),
        });
        messages.push(translate::cut_off(Scene { session: id, place: &place }, &summary, last, &damage));
    }
    Ok((headers, Json(messages)))
}

/// What comes behind a page and belongs to a turn whose prompt is in it: the prompt tells all that was changed for it.
async fn behind(asked: &Asked, id: SessionId, page: &[Message]) -> Result<Vec<Message>, Failure> {
    let mut behind: Vec<Message> = Vec::new();
    let (turn, last) = match page.last() {
        Some(Message::Assistant(last)) => (last.parent, last.id),
        Some(Message::User(last)) => (last.id, last.id),
        None => return Ok(behind),
    };
    if !page.iter().any(|message| message.id() == turn) {
        return Ok(behind);
    }
    let mut after = Some(last);
    while after.is_some() {
        let query = MessagesQuery { before: None, after, limit: MOST };
        let next = asked.app.engine().messages(id, query).await?;
        let mut of_turn = next.messages;
        // Turns come one after the other: behind the last answer of this one there is none.
        let end = of_turn
            .iter()
            .rposition(|message| matches!(message, Message::Assistant(answer) if answer.parent == turn));
        let goes_on = end.is_some_and(|end| end + 1 == of_turn.len());
        of_turn.truncate(end.map_or(0, |end| end + 1));
        behind.append(&mut of_turn);
        after = next.after.filter(|_| goes_on);
    }
    Ok(behind)
}

/// Says where the session's log stops to be readable, where the form of the answer has no place for that.
fn told(damage: Option<&Damage>) -> HeaderMap {
    let text = damage
        .map(|damage| damage.to_string().replace(|character: char| !matches!(character, ' '..='~'), "?"));
    let value = text.and_then(|text| HeaderValue::from_str(&text).ok());
    value.map(|value| (DAMAGE, value)).into_iter().collect()
}

/// Messages in the wire's words, the one under way with all that it streamed.
async fn shown(
    asked: &Asked,
    summary: &SessionSummary,
    messages: &[Message],
    behind: &[Message],
    at_end: bool,
) -> Result<Vec<MessageWithParts>, Failure> {
    let place = asked.place_of(&summary.workspace).await?;
    let scene = Scene { session: summary.id, place: &place };
    let messages = match asked.principal.reads_all() {
        true => Cow::Borrowed(messages),
        false => discreet::messages(messages),
    };
    let last = messages.iter().rev().find_map(|message| match message {
        Message::Assistant(answer) => Some(answer.id),
        Message::User(_) => None,
    });
    let runs = summary.state == SessionState::Busy && asked.app.engine().parked(summary.id).is_none();
    let running = last.filter(|_| at_end && runs);
    let mut shown: Vec<MessageWithParts> = translate::history(scene, &messages, behind, running).collect();
    if let Some(running) = running
        && let Some(current) = asked.feed().await.current(summary.id)
        && let Some(message) = shown.iter_mut().find(|message| message.info.id() == running)
        && current.info.id() == running
        // What was read from the session may be newer than what was heard of it.
        && current.parts.len() >= message.parts.len()
    {
        *message = current;
    }
    inline::messages(&asked.app, &asked.principal.tenant, &mut shown).await;
    Ok(shown)
}

async fn folded(asked: &Asked, id: SessionId) -> Result<(Session, Option<Damage>), Failure> {
    Ok(crate::native::messages::folded(&asked.app, id).await?)
}

/// `GET /session/{sessionID}/message/{messageID}`
pub(crate) async fn read(
    asked: Asked,
    Path((id, message)): Path<(String, String)>,
) -> Result<Json<MessageWithParts>, Failure> {
    let (id, message) = (session(&id)?, MessageId::parse(&message)?);
    let summary = asked.app.summary(&asked.principal, id).await?;
    let (session, damage) = folded(&asked, id).await?;
    let messages = session.all_messages();
    let place = messages.iter().position(|of| of.id() == message);
    let found = match place {
        Some(place) => {
            let at_end = place + 1 == messages.len();
            let (shown_one, behind) = messages[place..].split_at(1);
            shown(&asked, &summary, shown_one, behind, at_end).await?.pop()
        }
        None => None,
    };
    let none = || format!("there is no message {message} in session {id}");
    Ok(Json(found.ok_or_else(|| missing(none(), damage.as_ref()))?))
}

/// A message that was just admitted; `None` if it is gone.
pub(super) async fn message_of(
    asked: &Asked,
    id: SessionId,
    message: MessageId,
) -> Result<Option<MessageWithParts>, Failure> {
    let summary = asked.app.summary(&asked.principal, id).await?;
    let page = asked.app.engine().messages(id, MessagesQuery::default()).await?;
    let found = match page.messages.into_iter().rfind(|of| of.id() == message) {
        Some(found) => Some(found),
        // The same prompt was admitted long ago.
        None => folded(asked, id).await?.0.all_messages().into_iter().rfind(|of| of.id() == message),
    };
    let Some(found) = found else { return Ok(None) };
    Ok(shown(asked, &summary, &[found], &[], false).await?.pop())
}

/// The answer with which a turn ended, if it came so far.
pub(super) async fn answer_of(
    asked: &Asked,
    id: SessionId,
    turn: MessageId,
) -> Result<Option<MessageWithParts>, Failure> {
    let summary = asked.app.summary(&asked.principal, id).await?;
    let of_turn = |message: &Message| matches!(message, Message::Assistant(answer) if answer.parent == turn);
    let page = asked.app.engine().messages(id, MessagesQuery::default()).await?;
    let found = match page.messages.into_iter().rfind(of_turn) {
        Some(found) => Some(found),
        // Much was said since.
        None => folded(asked, id).await?.0.messages.into_iter().rfind(of_turn),
    };
    let Some(found) = found else { return Ok(None) };
    Ok(shown(asked, &summary, &[found], &[], false).await?.pop())
}

/// `GET /session/{sessionID}/todo`
pub(crate) async fn todo(
    asked: Asked,
    Path(id): Path<String>,
) -> Result<(HeaderMap, Json<Vec<Todo>>), Failure> {
    let id = session(&id)?;
    asked.app.summary(&asked.principal, id).await?;
    let Snapshot { todos, damage, .. } = asked.app.engine().outline(id).await?;
    Ok((told(damage.as_ref()), Json(todos)))
}

#[derive(Deserialize)]
struct DiffSearch {
    #[serde(rename = "messageID")]
    message: Option<String>,
}

/// `GET /session/{sessionID}/diff`: what was changed for a prompt; nothing without one.
pub(crate) async fn diff(
    asked: Asked,
    Path(id): Path<String>,
) -> Result<(HeaderMap, Json<Vec<FileDiff>>), Named> {
    let id = session(&id)?;
    let DiffSearch { message } = asked.query()?;
    let message = message.filter(|message| !message.is_empty());
    let turn = message.as_deref().map(MessageId::parse).transpose()?;
    asked.app.summary(&asked.principal, id).await?;
    let (session, damage) = folded(&asked, id).await?;
    let files = match turn {
        Some(turn) => asked.app.engine().diff(session, Some(turn)).await?,
        // As the original answers.
        None => Vec::new(),
    };
    Ok((told(damage.as_ref()), Json(files.into_iter().map(FileDiff::from).collect())))
}

//! `session_status`: what a session does, what it said last, and what waits for an answer.

use std::collections::{BTreeMap, BTreeSet};

use playhouse_protocol::command::MessagePage;
use playhouse_protocol::question::QuestionAsked;
use playhouse_protocol::{ConsentAsked, Message, Part, SessionId};
use serde::Deserialize;

use crate::api::{Api, ApiError, is_below, read, session};
use crate::ask::{Asked, Request};
use crate::tools::{LastAnswer, Status};

/// Messages that are looked at for the last answer.
const LAST_MESSAGES: u32 = 20;

/// A request, and the session that asks.
#[derive(Deserialize)]
struct Of<T> {
    session: SessionId,
    #[serde(flatten)]
    asked: T,
}

#[derive(Deserialize)]
struct Consents {
    consents: Vec<Of<ConsentAsked>>,
}

#[derive(Deserialize)]
struct Questions {
    questions: Vec<Of<QuestionAsked>>,
}

/// The requests that wait for an answer: of one session, or of all.
///
/// # Errors
/// The engine refused it.
pub(crate) async fn open_requests(api: &dyn Api, of: Option<SessionId>) -> Result<Vec<Request>, ApiError> {
    let query = of.map(|session| format!("?session={session}")).unwrap_or_default();
    let consents: Consents = read(api.get(&format!("/v1/consents{query}")).await?)?;
    let questions: Questions = read(api.get(&format!("/v1/questions{query}")).await?)?;
    let consents = consents
        .consents
        .into_iter()
        .map(|Of { session, asked }| Request { session, asked: Asked::Consent(Box::new(asked)) });
    let questions = questions
        .questions
        .into_iter()
        .map(|Of { session, asked }| Request { session, asked: Asked::Questions(asked) });
    Ok(consents.chain(questions).collect())
}

/// How a session stands.
///
/// # Errors
/// The engine refused it.
pub(crate) async fn status(api: &dyn Api, id: SessionId) -> Result<Status, ApiError> {
    let facts = session(api, id).await?;
    let path = format!("/v1/sessions/{id}/messages?limit={LAST_MESSAGES}");
    let page: MessagePage = read(api.get(&path).await?)?;
    let mut waits = Vec::new();
    let mut below = BTreeMap::from([(id, true)]);
    let top = BTreeSet::from([id]);
    // What is asked about no call waits without a turn as well.
    for request in open_requests(api, None).await? {
        let is_below = match below.get(&request.session) {
            Some(known) => *known,
            // It may have ended meanwhile.
            None => is_below(api, request.session, &top, None).await.unwrap_or(false),
        };
        below.insert(request.session, is_below);
        if is_below {
            waits.push(request.waits());
        }
    }
    Ok(Status {
        session: facts.id,
        state: facts.state,
        parked: facts.parked,
        title: facts.title,
        workspace: facts.workspace,
        open_turns: facts.open_turns,
        turns: facts.turns,
        last: last(&page),
        waits,
    })
}

fn last(page: &MessagePage) -> Option<LastAnswer> {
    let answer = page.messages.iter().rev().find_map(|message| match message {
        Message::Assistant(answer) if !answer.unread => Some(answer),
        _ => None,
    })?;
    let texts: Vec<&str> = answer
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::Text { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    let finish = answer.finish.and_then(|finish| serde_json::to_value(finish).ok());
    Some(LastAnswer {
        turn: answer.parent,
        text: texts.join("\n"),
        finish: finish.and_then(|finish| finish.as_str().map(str::to_owned)),
        error: answer.error.as_ref().map(|error| error.message.clone()),
    })
}

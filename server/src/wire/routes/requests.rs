//! Requests to the people behind sessions, and their answers.

use axum::Json;
use axum::extract::Path;
use playhouse_actors::SessionHandle;
use playhouse_protocol::{CommandError, ConsentAnswer, ConsentId, QuestionId, SessionId};
use serde::Deserialize;

use crate::native::asked::check_message;
use crate::problem::{Kind, Problem};
use crate::wire::asked::{Asked, Body, session};
use crate::wire::failure::{Failure, Named};
use crate::wire::shapes::{PermissionRequest, QuestionRequest};

/// `GET /permission`
pub(crate) async fn permissions(asked: Asked) -> Result<Json<Vec<PermissionRequest>>, Named> {
    let place = asked.place().await?;
    Ok(Json(asked.feed().await.permissions(Some(&place.directory))))
}

/// `GET /question`
pub(crate) async fn questions(asked: Asked) -> Result<Json<Vec<QuestionRequest>>, Named> {
    let place = asked.place().await?;
    Ok(Json(asked.feed().await.questions(Some(&place.directory))))
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Reply {
    Once,
    Always,
    Reject,
}

impl Reply {
    fn answer(self, message: Option<String>) -> ConsentAnswer {
        match self {
            Self::Once => ConsentAnswer::Once,
            Self::Always => ConsentAnswer::Always,
            Self::Reject => ConsentAnswer::Decline { message: message.filter(|message| !message.is_empty()) },
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct ReplyBody {
    reply: Reply,
    message: Option<String>,
}

/// `POST /permission/{requestID}/reply`
pub(crate) async fn reply(
    asked: Asked,
    Path(request): Path<String>,
    Body(ReplyBody { reply, message }): Body<ReplyBody>,
) -> Result<Json<bool>, Failure> {
    check_message(message.as_deref())?;
    answer(&asked, &request, reply.answer(message)).await
}

#[derive(Deserialize)]
pub(crate) struct RespondBody {
    response: Reply,
}

/// `POST /session/{sessionID}/permissions/{permissionID}`: the older way. The session is the one that clients show it on.
pub(crate) async fn respond(
    asked: Asked,
    Path((shown_on, request)): Path<(String, String)>,
    Body(RespondBody { response }): Body<RespondBody>,
) -> Result<Json<bool>, Failure> {
    asked.app.summary(&asked.principal, session(&shown_on)?).await?;
    answer(&asked, &request, response.answer(None)).await
}

async fn answer(asked: &Asked, request: &str, answer: ConsentAnswer) -> Result<Json<bool>, Failure> {
    let missing = || Failure::no_permission(request);
    let consent = ConsentId::parse(request).map_err(|_| missing())?;
    let of = match asked.feed().await.of_permission(consent) {
        Some(session) => Some(session),
        None => {
            waiting(asked, |waiting| waiting.consents.iter().any(|asked| asked.consent == consent)).await?
        }
    };
    let handle = of_request(asked, of, missing).await?;
    settle(handle.answer(consent, answer).await, missing)
}

#[derive(Deserialize)]
pub(crate) struct AnswersBody {
    answers: Vec<Vec<String>>,
}

/// `POST /question/{requestID}/reply`
pub(crate) async fn reply_question(
    asked: Asked,
    Path(request): Path<String>,
    Body(AnswersBody { answers }): Body<AnswersBody>,
) -> Result<Json<bool>, Failure> {
    answer_question(&asked, &request, Some(answers)).await
}

/// `POST /question/{requestID}/reject`
pub(crate) async fn reject_question(
    asked: Asked,
    Path(request): Path<String>,
) -> Result<Json<bool>, Failure> {
    answer_question(&asked, &request, None).await
}

async fn answer_question(
    asked: &Asked,
    request: &str,
    answers: Option<Vec<Vec<String>>>,
) -> Result<Json<bool>, Failure> {
    let missing = || Failure::no_question(request);
    let question = QuestionId::parse(request).map_err(|_| missing())?;
    let of = match asked.feed().await.of_question(question) {
        Some(session) => Some(session),
        None => {
            waiting(asked, |waiting| waiting.questions.iter().any(|asked| asked.question == question)).await?
        }
    };
    let handle = of_request(asked, of, missing).await?;
    settle(handle.answer_question(question, answers).await, missing)
}

/// The session of a request. Where it is not the client's to use, there is no such request for it.
async fn of_request(
    asked: &Asked,
    session: Option<SessionId>,
    missing: impl Fn() -> Failure,
) -> Result<SessionHandle, Failure> {
    let session = session.ok_or_else(&missing)?;
    match asked.app.session(&asked.principal, session).await {
        Err(problem) if problem.kind == Kind::NotFound => Err(missing()),
        found => Ok(found?),
    }
}

/// The session of a request that the feed has not heard of yet.
async fn waiting(
    asked: &Asked,
    is_it: impl Fn(&playhouse_actors::Waiting) -> bool,
) -> Result<Option<SessionId>, Failure> {
    let waiting = asked.app.engine().waiting(&*asked.principal.tenant).await?;
    Ok(waiting.into_iter().find(is_it).map(|waiting| waiting.session))
}

/// A request that is settled already is one that there is not, as the wire has it.
fn settle(done: Result<(), CommandError>, missing: impl Fn() -> Failure) -> Result<Json<bool>, Failure> {
    match done.map_err(Problem::from) {
        Ok(()) => Ok(Json(true)),
        Err(problem) if matches!(problem.kind, Kind::Settled | Kind::NotFound) => Err(missing()),
        Err(problem) => Err(problem.into()),
    }
}

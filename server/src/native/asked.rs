//! What the people behind a session are asked: requests for consent, and requests with questions.

use std::collections::HashSet;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use playhouse_actors::Waiting;
use playhouse_protocol::question::QuestionAsked;
use playhouse_protocol::{ConsentAnswer, ConsentAsked, ConsentId, QuestionId, SessionId};
use serde::{Deserialize, Serialize};

use super::extract::{Body, Ids, Search};
use crate::app::App;
use crate::principal::Principal;
use crate::problem::Problem;

/// The most characters that say why something is declined.
const LONGEST_MESSAGE: usize = 10_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OfSearch {
    /// Only those of this session.
    session: Option<SessionId>,
}

/// A request, and the session whose it is.
#[derive(Debug, Serialize)]
struct Of<T> {
    session: SessionId,
    #[serde(flatten)]
    asked: T,
}

#[derive(Debug, Serialize)]
pub(crate) struct Consents {
    consents: Vec<Of<ConsentAsked>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Questions {
    questions: Vec<Of<QuestionAsked>>,
}

async fn waiting(app: &App, principal: &Principal, search: OfSearch) -> Result<Vec<Waiting>, Problem> {
    let Some(session) = search.session else {
        let mut waiting = app.engine().waiting(principal.whose()).await?;
        let mut reached = HashSet::new();
        for of in waiting.iter().map(|waiting| waiting.session) {
            // One that ended meanwhile waits for nobody.
            if app.summary(principal, of).await.is_ok() {
                reached.insert(of);
            }
        }
        waiting.retain(|waiting| reached.contains(&waiting.session));
        return Ok(waiting);
    };
    app.summary(principal, session).await?;
    let outline = app.engine().outline(session).await?;
    Ok(vec![Waiting { session, consents: outline.consents, questions: outline.questions }])
}

/// `GET /v1/consents`
pub(crate) async fn consents(
    State(app): State<App>,
    principal: Principal,
    Search(search): Search<OfSearch>,
) -> Result<Json<Consents>, Problem> {
    let waiting = waiting(&app, &principal, search).await?.into_iter();
    let of = |Waiting { session, consents, .. }| {
        let of = move |asked| Of { session, asked };
        consents.into_iter().map(of)
    };
    Ok(Json(Consents { consents: waiting.flat_map(of).collect() }))
}

/// `GET /v1/questions`
pub(crate) async fn questions(
    State(app): State<App>,
    principal: Principal,
    Search(search): Search<OfSearch>,
) -> Result<Json<Questions>, Problem> {
    let waiting = waiting(&app, &principal, search).await?.into_iter();
    let of = |Waiting { session, questions, .. }| {
        let of = move |asked| Of { session, asked };
        questions.into_iter().map(of)
    };
    Ok(Json(Questions { questions: waiting.flat_map(of).collect() }))
}

/// What a person may say to a request for consent.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Say {
    Once,
    Always,
    Decline,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConsentBody {
    answer: Say,
    /// What the model shall read, with `decline`.
    message: Option<String>,
}

/// Refuses a longer text about why something is declined than a model shall read.
pub(crate) fn check_message(message: Option<&str>) -> Result<(), Problem> {
    match message {
        Some(message) if message.chars().nth(LONGEST_MESSAGE).is_some() => Err(Problem::invalid(format!(
            "the message has more than {LONGEST_MESSAGE} characters: send it as a prompt"
        ))),
        _ => Ok(()),
    }
}

/// `POST /v1/sessions/{session}/consents/{consent}`
pub(crate) async fn answer_consent(
    State(app): State<App>,
    principal: Principal,
    Ids((id, consent)): Ids<(SessionId, ConsentId)>,
    Body(ConsentBody { answer, message }): Body<ConsentBody>,
) -> Result<StatusCode, Problem> {
    check_message(message.as_deref())?;
    let answer = match (answer, message) {
        (Say::Once, None) => ConsentAnswer::Once,
        (Say::Always, None) => ConsentAnswer::Always,
        (Say::Decline, message) => ConsentAnswer::Decline { message },
        (_, Some(_)) => return Err(Problem::invalid("only \"decline\" has a message: send it as a prompt")),
    };
    app.session(&principal, id).await?.answer(consent, answer).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuestionBody {
    /// One list for each question, in order: labels that are chosen, or words of one's own.
    answers: Option<Vec<Vec<String>>>,
    /// Says that nobody will answer.
    #[serde(default)]
    reject: bool,
}

/// `POST /v1/sessions/{session}/questions/{question}`
pub(crate) async fn answer_question(
    State(app): State<App>,
    principal: Principal,
    Ids((id, question)): Ids<(SessionId, QuestionId)>,
    Body(QuestionBody { answers, reject }): Body<QuestionBody>,
) -> Result<StatusCode, Problem> {
    if answers.is_some() == reject {
        return Err(Problem::invalid("the body needs \"answers\", or \"reject\": true, and not both"));
    }
    app.session(&principal, id).await?.answer_question(question, answers).await?;
    Ok(StatusCode::NO_CONTENT)
}

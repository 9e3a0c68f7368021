//! `session_prompt`: begins a turn and waits for its end; what the turn asks goes to the people behind the client.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use futures::future::{AbortHandle, Abortable, Aborted};
use futures::stream::FuturesUnordered;
use playhouse_protocol::{Accepted, SessionId};
use rmcp::RoleServer;
use rmcp::model::{
    ElicitRequest, ElicitResult, InputRequest, InputRequests, InputRequiredResult, InputResponses,
    ProgressNotificationParam, ProgressToken,
};
use rmcp::service::Peer;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, ApiError, Events, is_below, read, session};
use crate::ask::{Key, Reply, Request};
use crate::status::open_requests;
use crate::tools::PromptArguments;
use crate::turn::{Ended, Told, Turn};

/// What a declined request of a turn says whose caller cannot be asked.
const NOBODY: &str = "the calling agent offers no way to ask the people behind it";

/// How the people behind the caller are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asking {
    /// Not at all: what asks is declined.
    Nobody,
    /// By requests to the client.
    Peer,
    /// By results that the client answers with the next request.
    Rounds,
}

/// Who waits for the turn.
pub(crate) struct Caller {
    pub(crate) peer: Peer<RoleServer>,
    pub(crate) progress: Option<ProgressToken>,
    pub(crate) asking: Asking,
    /// The request was cancelled.
    pub(crate) cancelled: CancellationToken,
    /// The client is gone.
    pub(crate) gone: CancellationToken,
}

/// What became of the request.
pub(crate) enum Finished {
    /// The turn is over.
    Ended(Box<Ended>),
    /// The client has to answer first.
    Asks(Box<InputRequiredResult>),
    /// The turn was aborted, since nobody waits for it any more.
    Cancelled,
}

/// Begins a turn.
///
/// # Errors
/// The engine refused it, or its events ended.
pub(crate) async fn begin(
    api: &dyn Api,
    caller: &Caller,
    arguments: PromptArguments,
) -> Result<Finished, ApiError> {
    let PromptArguments { session: id, text, agent, model, output } = arguments;
    let head = session(api, id).await?.head;
    // Open before the turn begins: requests of sessions below are not in this one's log.
    let events = api.events(id, head).await?;
    let unattended = caller.asking == Asking::Nobody;
    let mut body = json!({"text": text, "unattended": unattended});
    let members = [("agent", json!(agent)), ("model", json!(model)), ("output", json!(output))];
    for (name, value) in members.into_iter().filter(|(_, value)| !value.is_null()) {
        body[name] = value;
    }
    let accepted: Accepted = read(api.post(&format!("/v1/sessions/{id}/prompts"), &body).await?)?;
    follow(api, caller, Turn::new(id, accepted.turn, head), events).await
}

/// Goes on with a turn that had asked something.
///
/// # Errors
/// `state` is none that was returned, or not for the session `of`; the engine refused something; the turn's events ended.
pub(crate) async fn go_on(
    api: &dyn Api,
    caller: &Caller,
    of: Option<SessionId>,
    state: &str,
    answers: InputResponses,
) -> Result<Finished, ApiError> {
    let is_its = |turn: &Turn| of.is_none_or(|of| turn.session == of);
    let turn = serde_json::from_str(state).ok().filter(is_its);
    let mut turn: Turn = turn.ok_or_else(|| {
        ApiError("the request state is none that was returned for this tool and session".to_owned())
    })?;
    let events = api.events(turn.session, turn.after).await?;
    let mut sessions: Vec<SessionId> = turn.open.iter().map(|key| key.session).collect();
    sessions.dedup();
    for session in sessions {
        for request in open_requests(api, Some(session)).await? {
            let key = request.key();
            if !turn.open.contains(&key) {
                continue;
            }
            turn.requests.insert(key.clone(), request.clone());
            let answer = answers.get(&key.name()).cloned();
            let answer = answer.and_then(|answer| serde_json::from_value::<ElicitResult>(answer).ok());
            answer_request(api, &request, answer.as_ref()).await;
        }
    }
    follow(api, caller, turn, events).await
}

/// Says to the engine what the people answered; nothing that can be read is a refusal.
async fn answer_request(api: &dyn Api, request: &Request, answer: Option<&ElicitResult>) {
    let reply = match answer {
        Some(answer) => request.reply(answer),
        None => request.refusal(NOBODY),
    };
    let Reply { path, body } = reply;
    let Err(error) = api.post(&path, &body).await else { return };
    // Somebody else may have answered. If not, the answer does not fit, and nothing is to wait for ever.
    tracing::debug!(%error, path, "an answer was not taken");
    let Reply { path, body } = request.refusal("the answer did not fit");
    drop(api.post(&path, &body).await);
}

/// Waits for the end of a turn, of which `events` are those since before it began.
pub(crate) async fn follow(
    api: &dyn Api,
    caller: &Caller,
    mut turn: Turn,
    mut events: Events,
) -> Result<Finished, ApiError> {
    let mut asked = FuturesUnordered::new();
    let mut asking: BTreeMap<Key, AbortHandle> = BTreeMap::new();
    let mut told = 0.0;
    loop {
        let event = tokio::select! {
            biased;
            () = caller.is_gone() => {
                let path = format!("/v1/sessions/{}/abort", turn.session);
                if let Err(error) = api.post(&path, &json!({"turn": turn.turn})).await {
                    tracing::warn!(session = %turn.session, %error, "a turn that nobody waits for cannot be aborted");
                }
                return Ok(Finished::Cancelled);
            }
            Some(answered) = asked.next(), if !asked.is_empty() => {
                // Aborted ones were settled by others.
                let answered: Result<(Request, Option<ElicitResult>), Aborted> = answered;
                if let Ok((request, answer)) = answered {
                    asking.remove(&request.key());
                    answer_request(api, &request, answer.as_ref()).await;
                }
                continue;
            }
            event = events.next() => event,
        };
        let event = event.ok_or_else(|| {
            ApiError("the session was removed or the engine stopped before the turn ended".to_owned())
        })??;
        match turn.on(&event) {
            Told::Nothing => {}
            Told::Progress(text) => {
                told += 1.0;
                caller.report(told, text).await;
            }
            Told::Asks(request) => {
                let is_own = request.session == turn.session
                    || is_below(api, request.session, &turn.children, Some(turn.session)).await?;
                if !is_own {
                    turn.forget(&request.key());
                    continue;
                }
                match caller.asking {
                    Asking::Nobody => answer_request(api, &request, None).await,
                    Asking::Rounds => return rounds(&turn),
                    Asking::Peer => {
                        let (handle, registration) = AbortHandle::new_pair();
                        asking.insert(request.key(), handle);
                        asked.push(Abortable::new(ask(&caller.peer, request), registration));
                    }
                }
            }
            Told::Settled(key) => {
                if let Some(handle) = asking.remove(&key) {
                    handle.abort();
                }
            }
            Told::Ended(ended) => return Ok(Finished::Ended(Box::new(turn.result(*ended)))),
            Told::Parked(reason) => return Err(ApiError(format!("the session is parked: {reason}"))),
        }
    }
}

/// Asks the people behind the client.
async fn ask(peer: &Peer<RoleServer>, request: Request) -> (Request, Option<ElicitResult>) {
    let answer = match request.elicitation() {
        Some(elicitation) => match peer.create_elicitation(elicitation).await {
            Ok(answer) => Some(answer),
            Err(error) => {
                tracing::debug!(%error, "the client did not answer an elicitation");
                None
            }
        },
        None => None,
    };
    (request, answer)
}

/// The result that asks the client everything that the turn waits for.
fn rounds(turn: &Turn) -> Result<Finished, ApiError> {
    let asked = turn.requests.iter().filter_map(|(key, request)| {
        let request = ElicitRequest::new(request.elicitation()?);
        Some((key.name(), InputRequest::Elicitation(request)))
    });
    let asked: InputRequests = asked.collect();
    let state = serde_json::to_string(turn).map_err(|error| ApiError(error.to_string()))?;
    Ok(Finished::Asks(Box::new(InputRequiredResult::new(Some(asked), Some(state)))))
}

impl Caller {
    /// Waits until nobody waits for the result any more.
    async fn is_gone(&self) {
        tokio::select! {
            () = self.cancelled.cancelled() => {}
            () = self.gone.cancelled() => {}
        }
    }

    /// Says how far the turn is, to a client that wants to know.
    async fn report(&self, count: f64, text: String) {
        let Some(token) = &self.progress else { return };
        let progress = ProgressNotificationParam::new(token.clone(), count).with_message(text);
        tokio::select! {
            () = self.is_gone() => {}
            sent = self.peer.notify_progress(progress) => {
                if let Err(error) = sent {
                    tracing::debug!(%error, "progress was not sent");
                }
            }
        }
    }
}

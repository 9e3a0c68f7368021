//! What those with keys are not told: how the operator's providers are reached, and what these said.
//!
//! Records hold errors as they came. What leaves the server for a tenant has what
//! [`for_tenant`](playhouse_protocol::ErrorInfo::for_tenant) leaves of them.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use axum::http::header::CONTENT_LENGTH;
use axum::response::Response;
use playhouse_protocol::event::Provisional;
use playhouse_protocol::record::{AttemptEnded, AttemptOutcome};
use playhouse_protocol::{ErrorInfo, Event, EventBody, Message, Record, Usage};

use crate::principal::Principal;
use crate::problem::InFull;

/// The event as a tenant is told of it; `None` where nothing is left out.
pub(crate) fn event(event: &Event) -> Option<Event> {
    let body = match &event.body {
        EventBody::Durable(record) => EventBody::Durable(Arc::new(self::record(record)?)),
        EventBody::Provisional(Provisional::StepRetry { step, attempt_number, attempts, at, error }) => {
            let error = error.for_tenant();
            let (step, attempt_number, attempts, at) = (*step, *attempt_number, *attempts, *at);
            EventBody::Provisional(Provisional::StepRetry { step, attempt_number, attempts, at, error })
        }
        EventBody::Provisional(_) => return None,
    };
    Some(Event { body, ..event.clone() })
}

/// The record as a tenant is told of it; `None` where nothing is left out.
pub(crate) fn record(record: &Record) -> Option<Record> {
    let told = |error: &mut Option<ErrorInfo>| *error = error.as_ref().map(ErrorInfo::for_tenant);
    match record {
        Record::AttemptEnded(ended) => {
            let has_cost = ended.usage.as_ref().is_some_and(|usage| usage.provider_cost.is_some());
            let outcome = match &ended.outcome {
                AttemptOutcome::Failed { error } => AttemptOutcome::Failed { error: error.for_tenant() },
                _ if !has_cost => return None,
                outcome => outcome.clone(),
            };
            // What a provider takes is the operator's. Its own words have it as well.
            let usage = ended.usage.clone().map(|usage| match usage.provider_cost {
                Some(_) => Usage { provider_cost: None, raw: None, ..usage },
                None => usage,
            });
            Some(Record::AttemptEnded(AttemptEnded { outcome, usage, ..ended.clone() }))
        }
        Record::StepFinished(finished) if finished.error.is_some() => {
            let mut finished = finished.clone();
            told(&mut finished.error);
            Some(Record::StepFinished(finished))
        }
        Record::TurnEnded(ended) if ended.error.is_some() => {
            let mut ended = ended.clone();
            told(&mut ended.error);
            Some(Record::TurnEnded(ended))
        }
        _ => None,
    }
}

/// The answer as `principal` is to read it: a problem leaves out what is not for tenants, and is told in full to the others.
pub(crate) fn answer(mut response: Response, principal: &Principal) -> Response {
    let in_full = response.extensions_mut().remove::<InFull>();
    if let Some(InFull(body)) = in_full.filter(|_| principal.reads_all()) {
        response.headers_mut().remove(CONTENT_LENGTH);
        *response.body_mut() = Body::from(body);
    }
    response
}

/// Messages as a tenant is told of them.
pub(crate) fn messages(messages: &[Message]) -> Cow<'_, [Message]> {
    let has_error =
        |message: &Message| matches!(message, Message::Assistant(answer) if answer.error.is_some());
    if !messages.iter().any(has_error) {
        return Cow::Borrowed(messages);
    }
    let mut messages = messages.to_vec();
    for message in &mut messages {
        if let Message::Assistant(answer) = message {
            answer.error = answer.error.as_ref().map(ErrorInfo::for_tenant);
        }
    }
    Cow::Owned(messages)
}

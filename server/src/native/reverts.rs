//! Taking changes of files back, and doing them again.

use axum::Json;
use axum::extract::State;
use playhouse_protocol::{RevertReport, RevertRequest, SessionId, UnrevertRequest};
#[cfg(test)]
use schemars::SchemaGenerator;

use super::extract::{Body, Ids};
#[cfg(test)]
use super::openapi::operation::Operation;
use crate::app::App;
use crate::principal::Principal;
#[cfg(test)]
use crate::problem::Kind;
use crate::problem::Problem;

#[cfg(test)]
const RUNS: (Kind, &str) = (Kind::Busy, "Something of the session runs; the detail says what to stop.");
#[cfg(test)]
const NO_SESSION: (Kind, &str) = (Kind::NotFound, "There is no such session for this tenant.");

#[cfg(test)]
pub(crate) const REVERT: Operation = Operation {
    method: "post",
    path: "/v1/sessions/{session}/revert",
    id: "revertSession",
    summary: "Takes back what the session changed in files since a message or a call.",
    ids: &[("session", SchemaGenerator::subschema_for::<SessionId>)],
    query: None,
    body: Some(SchemaGenerator::subschema_for::<RevertRequest>),
    answer: (200, "It was done, or shown.", Some(SchemaGenerator::subschema_for::<RevertReport>)),
    problems: &[
        NO_SESSION,
        (Kind::Invalid, "There is no such message or call, or nothing to take back."),
        RUNS,
    ],
};

/// `POST /v1/sessions/{session}/revert`
pub(crate) async fn revert(
    State(app): State<App>,
    principal: Principal,
    Ids(id): Ids<SessionId>,
    Body(request): Body<RevertRequest>,
) -> Result<Json<RevertReport>, Problem> {
    Ok(Json(app.session(&principal, id).await?.revert(request).await?))
}

#[cfg(test)]
pub(crate) const UNREVERT: Operation = Operation {
    method: "post",
    path: "/v1/sessions/{session}/unrevert",
    id: "unrevertSession",
    summary: "Does again what was taken back since the last prompt.",
    ids: &[("session", SchemaGenerator::subschema_for::<SessionId>)],
    query: None,
    body: Some(SchemaGenerator::subschema_for::<UnrevertRequest>),
    answer: (200, "It was done, or shown.", Some(SchemaGenerator::subschema_for::<RevertReport>)),
    problems: &[NO_SESSION, (Kind::Invalid, "Nothing is taken back."), RUNS],
};

/// `POST /v1/sessions/{session}/unrevert`
pub(crate) async fn unrevert(
    State(app): State<App>,
    principal: Principal,
    Ids(id): Ids<SessionId>,
    Body(request): Body<UnrevertRequest>,
) -> Result<Json<RevertReport>, Problem> {
    Ok(Json(app.session(&principal, id).await?.unrevert(request).await?))
}

//! What capture tools kept in a session.

use axum::Json;
use axum::extract::State;
use playhouse_actors::StoredArtifact;
use playhouse_protocol::record::also_null;
use playhouse_protocol::{Damage, PartId, SessionId, Timestamp};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::extract::Ids;
use super::messages::missing;
#[cfg(test)]
use super::openapi::operation::Operation;
use crate::app::App;
use crate::principal::Principal;
#[cfg(test)]
use crate::problem::Kind;
use crate::problem::Problem;

/// A value that a capture tool kept.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ArtifactView {
    /// The call that captured it.
    pub call: PartId,
    /// The tool's name.
    pub name: String,
    /// `sha256:` and the SHA-256 of the value as compact JSON, in hexadecimal digits.
    pub hash: String,
    /// Size of that JSON, in bytes.
    pub bytes: u64,
    /// The value. Lists leave out one of more than 65,536 bytes, and all behind 4 MiB of values; the artifact itself has it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "also_null")]
    #[schemars(schema_with = "anything")]
    pub value: Option<Value>,
    /// When it was captured.
    pub at: Timestamp,
}

fn anything(_: &mut SchemaGenerator) -> Schema {
    Schema::default()
}

/// The artifacts of a session, in the order in which they were captured.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Artifacts {
    /// The artifacts.
    pub artifacts: Vec<ArtifactView>,
    /// Where the session's log stops to be readable; absent where it does not. What comes after that is missing here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<Damage>,
}

impl ArtifactView {
    fn new(StoredArtifact { captured, bytes, at }: StoredArtifact) -> Self {
        Self {
            call: captured.call,
            name: captured.name,
            hash: captured.hash,
            bytes,
            value: captured.value,
            at,
        }
    }
}

#[cfg(test)]
pub(crate) const LIST: Operation = Operation {
    method: "get",
    path: "/v1/sessions/{session}/artifacts",
    id: "listArtifacts",
    summary: "What capture tools kept in the session.",
    ids: &[("session", SchemaGenerator::subschema_for::<SessionId>)],
    query: None,
    body: None,
    answer: (200, "It worked.", Some(SchemaGenerator::subschema_for::<Artifacts>)),
    problems: &[(Kind::NotFound, "There is no such session for this tenant.")],
};

/// `GET /v1/sessions/{session}/artifacts`
pub(crate) async fn list(
    State(app): State<App>,
    principal: Principal,
    Ids(id): Ids<SessionId>,
) -> Result<Json<Artifacts>, Problem> {
    app.summary(&principal, id).await?;
    let (artifacts, damage) = app.engine().artifacts(id).await?;
    Ok(Json(Artifacts { artifacts: artifacts.into_iter().map(ArtifactView::new).collect(), damage }))
}

#[cfg(test)]
pub(crate) const READ: Operation = Operation {
    method: "get",
    path: "/v1/sessions/{session}/artifacts/{call}",
    id: "readArtifact",
    summary: "What one call of a capture tool kept, with its value.",
    ids: &[
        ("session", SchemaGenerator::subschema_for::<SessionId>),
        ("call", SchemaGenerator::subschema_for::<PartId>),
    ],
    query: None,
    body: None,
    answer: (200, "It worked.", Some(SchemaGenerator::subschema_for::<ArtifactView>)),
    problems: &[(Kind::NotFound, "There is no such session for this tenant, or its call kept nothing.")],
};

/// `GET /v1/sessions/{session}/artifacts/{call}`
pub(crate) async fn read(
    State(app): State<App>,
    principal: Principal,
    Ids((id, call)): Ids<(SessionId, PartId)>,
) -> Result<Json<ArtifactView>, Problem> {
    app.summary(&principal, id).await?;
    let (artifact, damage) = app.engine().artifact(id, call).await?;
    let none = || missing(format!("no artifact of call {call} is in session {id}"), damage.as_ref());
    Ok(Json(ArtifactView::new(artifact.ok_or_else(none)?)))
}

//! Calls of single tools that clients make, in turns without a model.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use playhouse_protocol::{Accepted, MessageId, SessionId, ToolCommand, WhenBusy};
use schemars::JsonSchema;
#[cfg(test)]
use schemars::SchemaGenerator;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::extract::{Body, Ids};
#[cfg(test)]
use super::openapi::operation::Operation;
use super::prompts::name;
use crate::app::App;
use crate::principal::Principal;
#[cfg(test)]
use crate::problem::Kind;
use crate::problem::Problem;

/// A call of one tool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolCallBody {
    /// The call's id, which names its turn; the same again is the same call, made once. The header `idempotency-key` says the
    /// same.
    message: Option<MessageId>,
    /// The name of the tool.
    tool: String,
    /// The arguments. At most 1 MiB.
    #[serde(default)]
    input: Map<String, Value>,
    /// The agent whose rules hold; absent for the session's.
    agent: Option<String>,
    /// What happens when the session is busy.
    #[serde(default)]
    when_busy: WhenCallBusy,
    /// Whether nobody answers requests for consent: what asks is declined.
    #[serde(default)]
    unattended: bool,
}

/// What happens to a call when the session is busy.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WhenCallBusy {
    /// It waits until the running turn and those queued before it are over.
    #[default]
    Queue,
    /// It is refused with 409.
    Reject,
    /// The running turn and the queued ones are aborted, and it is made.
    Interrupt,
}

impl From<WhenCallBusy> for WhenBusy {
    fn from(when: WhenCallBusy) -> Self {
        match when {
            WhenCallBusy::Queue => Self::Queue,
            WhenCallBusy::Reject => Self::Reject,
            WhenCallBusy::Interrupt => Self::Interrupt,
        }
    }
}

#[cfg(test)]
pub(crate) const CALL: Operation = Operation {
    method: "post",
    path: "/v1/sessions/{session}/calls",
    id: "callTool",
    summary: "Call one tool: a turn without a model. It is judged and agreed to as any call of the agent is.",
    ids: &[("session", SchemaGenerator::subschema_for::<SessionId>)],
    query: None,
    body: Some(SchemaGenerator::subschema_for::<ToolCallBody>),
    answer: (
        202,
        "It is durable. Its `call.settled` has the result.",
        Some(SchemaGenerator::subschema_for::<Accepted>),
    ),
    problems: &[
        (Kind::Invalid, "The session has no such tool or agent, or the arguments are too large."),
        (Kind::NotFound, "There is no such session for this tenant."),
        (Kind::Busy, "The session is busy; or a prompt with other content was sent under this id before."),
        (Kind::Limited, "A limit of the tenant or of the session is reached."),
    ],
};

/// `POST /v1/sessions/{session}/calls`
pub(crate) async fn call(
    State(app): State<App>,
    principal: Principal,
    Ids(id): Ids<SessionId>,
    headers: HeaderMap,
    Body(body): Body<ToolCallBody>,
) -> Result<(StatusCode, Json<Accepted>), Problem> {
    let message = name(&headers, body.message)?;
    let session = app.session(&principal, id).await?;
    let _permit = app.admit_turn(&principal, id, message).await?;
    let ToolCallBody { tool, input, agent, when_busy, unattended, .. } = body;
    let when_busy = when_busy.into();
    let call = ToolCommand { message, tool, input, agent, when_busy, unattended };
    Ok((StatusCode::ACCEPTED, Json(session.call_tool(call).await?)))
}

//! Command templates.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use playhouse_protocol::template::TemplateList;
use playhouse_protocol::{Accepted, MessageId, ModelRef, Prompt, SessionId, TemplateCommand, WhenBusy};
use serde::Deserialize;

use super::extract::{Body, Ids, Search};
use super::prompts::name;
use super::sessions::blocking;
use crate::app::App;
use crate::principal::Principal;
use crate::problem::Problem;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Where {
    /// The directory whose own commands are listed as well.
    workspace: String,
}

/// `GET /v1/commands`
pub(crate) async fn list(
    State(app): State<App>,
    principal: Principal,
    Search(place): Search<Where>,
) -> Result<Json<TemplateList>, Problem> {
    let (admitted, tenant) = (app.clone(), Arc::clone(&principal.tenant));
    let workspace = blocking(move || admitted.admit_directory(&principal, &place.workspace)).await??;
    Ok(Json(app.engine().templates(&tenant, &workspace).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandBody {
    /// The id of the prompt that it becomes; the same again is the same prompt.
    message: Option<MessageId>,
    /// The command's name, without a `/`.
    name: String,
    /// What is typed behind it.
    #[serde(default)]
    arguments: String,
    agent: Option<String>,
    model: Option<ModelRef>,
    steps: Option<u32>,
    #[serde(default)]
    when_busy: WhenBusy,
    #[serde(default)]
    unattended: bool,
}

/// `POST /v1/sessions/{session}/command`: answered when its shell blocks ran, and the prompt is durable.
pub(crate) async fn run(
    State(app): State<App>,
    principal: Principal,
    Ids(id): Ids<SessionId>,
    headers: HeaderMap,
    Body(body): Body<CommandBody>,
) -> Result<(StatusCode, Json<Accepted>), Problem> {
    let message = self::name(&headers, body.message)?;
    let session = app.session(&principal, id).await?;
    let _permit = app.admit_turn(&principal, id, message).await?;
    let CommandBody { name, arguments, agent, model, steps, when_busy, unattended, .. } = body;
    let prompt = Prompt {
        message,
        agent,
        model,
        steps,
        when_busy,
        unattended,
        attribution: principal.attribution(),
        ..Prompt::default()
    };
    let accepted = session.template(TemplateCommand { name, arguments, prompt }).await?;
    Ok((StatusCode::ACCEPTED, Json(accepted)))
}

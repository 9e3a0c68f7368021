//! Command templates that are run.

use axum::Json;
use axum::extract::Path;
use playhouse_protocol::{MessageId, ModelRef, Prompt, TemplateCommand, WhenBusy};
use serde::Deserialize;

use super::messages::answer_of;
use super::prompts::{PartBody, Parts, given, unanswered};
use crate::problem::{Kind, Problem};
use crate::wire::asked::{Asked, Body, session};
use crate::wire::failure::Failure;
use crate::wire::shapes::MessageWithParts;

#[derive(Deserialize)]
pub(crate) struct CommandBody {
    #[serde(rename = "messageID")]
    message: Option<String>,
    agent: Option<String>,
    /// `PROVIDER/MODEL`, unlike everywhere else.
    model: Option<String>,
    command: String,
    arguments: String,
    #[serde(default)]
    parts: Vec<PartBody>,
}

/// `POST /session/{sessionID}/command`: answered when its turn is over.
pub(crate) async fn run(
    asked: Asked,
    Path(id): Path<String>,
    Body(body): Body<CommandBody>,
) -> Result<Json<MessageWithParts>, Failure> {
    let id = session(&id)?;
    let CommandBody { message, agent, model, command, arguments, parts } = body;
    let message = message.as_deref().map(MessageId::parse).transpose()?;
    let model = model.filter(|model| !model.is_empty()).map(|model| model.parse::<ModelRef>());
    let model = model.transpose().map_err(|error| Failure::invalid(error.to_string()))?;
    let _permit = asked.app.admit_turn(&asked.principal, id, message).await?;
    let handle = asked.app.session(&asked.principal, id).await?;
    let Parts { texts: _, files, paths } = given(&asked, parts).await?;
    let prompt = Prompt {
        message,
        files,
        paths,
        agent: agent.filter(|agent| !agent.is_empty()),
        model,
        when_busy: WhenBusy::Steer,
        attribution: asked.principal.attribution(),
        ..Prompt::default()
    };
    let finished = handle.run_template(TemplateCommand { name: command, arguments, prompt }).await?;
    let answer = answer_of(&asked, id, finished.ended.turn).await?;
    let none = || Problem::new(Kind::Busy, "the prompt was taken back before anything answered it");
    answer.map(Json).ok_or_else(|| unanswered(&finished.ended, none()))
}

//! Prompts, and what ends them.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use playhouse_protocol::message::{Attachment, ToolSwitches};
use playhouse_protocol::output::WantedOutput;
use playhouse_protocol::{Accepted, MessageId, ModelRef, Prompt, SessionId, ShellCommand, WhenBusy};
use serde::{Deserialize, Serialize};

use super::extract::{Body, Ids};
use crate::app::App;
use crate::principal::Principal;
use crate::problem::Problem;

/// The header that names a prompt, so that it is admitted once however often it is sent.
const KEY: &str = "idempotency-key";
/// The most files of a prompt.
const MOST_FILES: usize = 100;
/// The longest name of a file and of a media type, in bytes.
const LONGEST_NAME: usize = 512;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PromptBody {
    /// The prompt's id; the same again is the same prompt.
    message: Option<MessageId>,
    #[serde(default)]
    text: String,
    #[serde(default)]
    files: Vec<FileBody>,
    /// Whether an `@` in the text is only text, and attaches nothing.
    #[serde(default)]
    plain: bool,
    agent: Option<String>,
    model: Option<ModelRef>,
    steps: Option<u32>,
    #[serde(default)]
    when_busy: WhenBusy,
    #[serde(default)]
    unattended: bool,
    /// Whether a turn answers it; else it is kept, and read with the next prompt.
    #[serde(default = "yes")]
    reply: bool,
    /// What the model is told beside it, for its turn only.
    system: Option<String>,
    /// Tools that are turned off for its turn.
    #[serde(default)]
    tools: ToolSwitches,
    /// The answer that is wanted.
    output: Option<Box<WantedOutput>>,
}

fn yes() -> bool {
    true
}

/// An attached file: its content as text or in base64.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileBody {
    mime: String,
    filename: String,
    text: Option<String>,
    base64: Option<String>,
}

impl FileBody {
    /// Its content.
    fn content(self) -> Result<(String, String, Bytes), Problem> {
        let Self { mime, filename, text, base64 } = self;
        for (what, name) in [("filename", &filename), ("mime", &mime)] {
            if name.trim().is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
                return Err(Problem::invalid(format!(
                    "the {what} of a file is empty, longer than {LONGEST_NAME} bytes, or has control characters"
                )));
            }
        }
        let wrong = |why: &str| Problem::invalid(format!("the file \"{}\" {why}", filename.escape_debug()));
        let content = match (text, base64) {
            (Some(text), None) => Bytes::from(text),
            (None, Some(base64)) => {
                let decoded = STANDARD.decode(base64);
                Bytes::from(decoded.map_err(|error| wrong(&format!("is no good base64: {error}")))?)
            }
            _ => return Err(wrong("needs its content as \"text\" or as \"base64\", one of them")),
        };
        Ok((mime, filename, content))
    }
}

/// `POST /v1/sessions/{session}/prompts`
pub(crate) async fn prompt(
    State(app): State<App>,
    principal: Principal,
    Ids(id): Ids<SessionId>,
    headers: HeaderMap,
    Body(body): Body<PromptBody>,
) -> Result<(StatusCode, Json<Accepted>), Problem> {
    let message = name(&headers, body.message)?;
    let session = app.session(&principal, id).await?;
    let _permit = match body.reply {
        true => app.admit_turn(&principal, id, message).await?,
        // It takes none of what a turn needs.
        false => app.admit().map(|()| None)?,
    };
    if body.files.len() > MOST_FILES {
        return Err(Problem::invalid(format!("a prompt has at most {MOST_FILES} files")));
    }
    let files: Vec<_> = body.files.into_iter().map(FileBody::content).collect::<Result<_, _>>()?;
    let mut attachments = Vec::with_capacity(files.len());
    for (mime, filename, content) in files {
        let blob = app.engine().store_blob(&principal.tenant, content).await?;
        attachments.push(Attachment::new(mime, filename, blob));
    }
    let prompt = Prompt {
        message,
        text: body.text,
        texts: Vec::new(),
        files: attachments,
        paths: Vec::new(),
        plain: body.plain,
        agent: body.agent,
        model: body.model,
        steps: body.steps,
        when_busy: body.when_busy,
        unattended: body.unattended,
        note: !body.reply,
        system: body.system,
        tools: body.tools,
        output: body.output,
        handed: None,
        attribution: principal.attribution(),
    };
    Ok((StatusCode::ACCEPTED, Json(session.prompt(prompt).await?)))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShellBody {
    /// The command's id; the same again is the same command, run once.
    message: Option<MessageId>,
    command: String,
    /// How long it may run, in milliseconds.
    timeout: Option<u64>,
    agent: Option<String>,
    model: Option<ModelRef>,
}

/// `POST /v1/sessions/{session}/shell`
pub(crate) async fn shell(
    State(app): State<App>,
    principal: Principal,
    Ids(id): Ids<SessionId>,
    headers: HeaderMap,
    Body(body): Body<ShellBody>,
) -> Result<(StatusCode, Json<Accepted>), Problem> {
    let message = name(&headers, body.message)?;
    let session = app.session(&principal, id).await?;
    let _permit = app.admit_turn(&principal, id, message).await?;
    let ShellBody { command, timeout, agent, model, .. } = body;
    let shell = ShellCommand { message, command, timeout, agent, model, block: None };
    Ok((StatusCode::ACCEPTED, Json(session.shell(shell).await?)))
}

/// The id of a prompt, which the body or the header may say.
pub(super) fn name(headers: &HeaderMap, message: Option<MessageId>) -> Result<Option<MessageId>, Problem> {
    let Some(written) = headers.get(KEY) else { return Ok(message) };
    let written = String::from_utf8_lossy(written.as_bytes());
    let key = MessageId::parse(&written).map_err(|error| {
        Problem::invalid(format!(
            "the header \"{KEY}\" must be a message id that you made, of \"msg_\", 12 lower-case hex digits and 14 letters or \
             digits: {error}"
        ))
    })?;
    match message {
        Some(message) if message != key => Err(Problem::invalid(format!(
            "the header \"{KEY}\" names {key}, and the body {message}: a prompt has one id"
        ))),
        _ => Ok(Some(key)),
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Aborted {
    /// Turns that were ended, running and waiting ones.
    turns: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AbortBody {
    /// The only turn to end; absent for the running one and those that wait.
    turn: Option<MessageId>,
}

/// `POST /v1/sessions/{session}/abort`
pub(crate) async fn abort(
    State(app): State<App>,
    principal: Principal,
    Ids(id): Ids<SessionId>,
    Body(AbortBody { turn }): Body<AbortBody>,
) -> Result<Json<Aborted>, Problem> {
    let session = app.session(&principal, id).await?;
    let turns = match turn {
        Some(turn) => u32::from(session.abort_turn(turn).await?),
        None => session.abort().await?,
    };
    Ok(Json(Aborted { turns }))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompactBody {
    /// The model that writes the summary; absent for the one of the agent `compaction`, or the session's.
    model: Option<ModelRef>,
}

/// `POST /v1/sessions/{session}/compact`
pub(crate) async fn compact(
    State(app): State<App>,
    principal: Principal,
    Ids(id): Ids<SessionId>,
    Body(CompactBody { model }): Body<CompactBody>,
) -> Result<StatusCode, Problem> {
    app.session(&principal, id).await?.compact(model).await?;
    Ok(StatusCode::ACCEPTED)
}

#[derive(Debug, Serialize)]
pub(crate) struct Resumed {
    /// Whether there was something unfinished, with which the session goes on.
    resumed: bool,
}

/// Nothing can be said of it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResumeBody {}

/// `POST /v1/sessions/{session}/resume`
pub(crate) async fn resume(
    State(app): State<App>,
    principal: Principal,
    Ids(id): Ids<SessionId>,
    Body(ResumeBody {}): Body<ResumeBody>,
) -> Result<Json<Resumed>, Problem> {
    app.summary(&principal, id).await?;
    let _permit = app.admit_turn(&principal, id, None).await?;
    Ok(Json(Resumed { resumed: app.engine().resume(id).await? }))
}

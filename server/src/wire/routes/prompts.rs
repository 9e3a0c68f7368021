//! Prompts.

use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use playhouse_protocol::message::{Attachment, TextMarks, ToolSwitches};
use playhouse_protocol::output::WantedOutput;
use playhouse_protocol::record::TurnEnded;
use playhouse_protocol::{
    CommandError, MessageId, ModelRef, PartId, PathMention, Prompt, PromptText, SessionId, ShellCommand,
    WhenBusy,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::messages::{answer_of, message_of};
use crate::problem::{Kind, Problem};
use crate::wire::asked::{Asked, Body, session, unescaped_bytes};
use crate::wire::failure::Failure;
use crate::wire::shapes::{FileSource, MessageWithParts};

/// The most parts of a prompt.
const MOST_PARTS: usize = 100;
/// The longest name of a file and of a media type, in bytes.
const LONGEST_NAME: usize = 512;

#[derive(Deserialize)]
pub(crate) struct PromptBody {
    #[serde(rename = "messageID")]
    message: Option<String>,
    model: Option<ModelBody>,
    agent: Option<String>,
    #[serde(rename = "noReply", default)]
    no_reply: bool,
    #[serde(default)]
    tools: ToolSwitches,
    format: Option<FormatBody>,
    system: Option<String>,
    parts: Vec<PartBody>,
}

#[derive(Deserialize)]
struct ModelBody {
    #[serde(rename = "providerID")]
    provider: String,
    #[serde(rename = "modelID")]
    model: String,
}

#[derive(Deserialize)]
struct FormatBody {
    #[serde(rename = "type")]
    kind: String,
    schema: Option<Value>,
}

impl FormatBody {
    /// The answer that is wanted; `None` for a text.
    fn output(self) -> Result<Option<Box<WantedOutput>>, Failure> {
        match (self.kind.as_str(), self.schema) {
            ("text", _) => Ok(None),
            ("json_schema", Some(schema)) => Ok(Some(Box::new(WantedOutput { schema }))),
            ("json_schema", None) => {
                Err(Failure::invalid("`format` of type \"json_schema\" needs a `schema`".to_owned()))
            }
            (other, _) => {
                let other = other.escape_debug();
                Err(Failure::invalid(format!(
                    "`format` has the type \"{other}\": there are \"text\" and \"json_schema\""
                )))
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum PartBody {
    Text {
        id: Option<String>,
        text: String,
        synthetic: Option<bool>,
        ignored: Option<bool>,
        metadata: Option<Map<String, Value>>,
    },
    File {
        id: Option<String>,
        mime: String,
        filename: Option<String>,
        url: String,
        source: Option<Value>,
    },
    Agent {
        name: String,
    },
    Subtask {},
}

/// `POST /session/{sessionID}/message`: answered when its turn is over, or at once where it has none.
pub(crate) async fn prompt(
    asked: Asked,
    Path(id): Path<String>,
    Body(body): Body<PromptBody>,
) -> Result<Json<MessageWithParts>, Failure> {
    let id = session(&id)?;
    let taken_back = || Problem::new(Kind::Busy, "the prompt was taken back before anything answered it");
    if body.no_reply {
        let message = note(&asked, id, body).await?;
        return Ok(Json(message_of(&asked, id, message).await?.ok_or_else(taken_back)?));
    }
    let message = body.message.as_deref().map(MessageId::parse).transpose()?;
    let _permit = asked.app.admit_turn(&asked.principal, id, message).await?;
    let handle = asked.app.session(&asked.principal, id).await?;
    let prompt = read(&asked, body).await?;
    let finished = handle.run(prompt).await?;
    let answer = answer_of(&asked, id, finished.ended.turn).await?;
    answer.map(Json).ok_or_else(|| unanswered(&finished.ended, taken_back()))
}

/// Why a turn has no answer: what it failed for before the first one, or that somebody took it back.
pub(super) fn unanswered(ended: &TurnEnded, taken_back: Problem) -> Failure {
    match &ended.error {
        Some(error) => Failure::invalid(error.for_tenant().message),
        None => taken_back.into(),
    }
}

/// Keeps a prompt that nothing answers. It takes none of what a turn needs.
async fn note(asked: &Asked, id: SessionId, body: PromptBody) -> Result<MessageId, Failure> {
    asked.app.admit()?;
    let handle = asked.app.session(&asked.principal, id).await?;
    let prompt = read(asked, body).await?;
    Ok(handle.prompt(prompt).await?.turn)
}

#[derive(Deserialize)]
pub(crate) struct ShellBody {
    #[serde(rename = "messageID")]
    message: Option<String>,
    agent: Option<String>,
    model: Option<ModelBody>,
    command: String,
}

/// `POST /session/{sessionID}/shell`: answered when the command is over.
pub(crate) async fn shell(
    asked: Asked,
    Path(id): Path<String>,
    Body(body): Body<ShellBody>,
) -> Result<Json<MessageWithParts>, Failure> {
    let id = session(&id)?;
    let ShellBody { message, agent, model, command } = body;
    let message = message.as_deref().map(MessageId::parse).transpose()?;
    let _permit = asked.app.admit_turn(&asked.principal, id, message).await?;
    let handle = asked.app.session(&asked.principal, id).await?;
    let shell = ShellCommand {
        message,
        command,
        timeout: None,
        agent: agent.filter(|agent| !agent.is_empty()),
        model: model.map(|model| ModelRef::new(model.provider, model.model)),
        block: None,
    };
    let finished = handle.run_shell(shell).await.map_err(|error| match error {
        CommandError::Busy => Failure::busy(id),
        error => error.into(),
    })?;
    let answer = answer_of(&asked, id, finished.ended.turn).await?;
    let none = || Problem::new(Kind::Busy, "the command was taken back before it ran");
    Ok(Json(answer.ok_or_else(none)?))
}

/// `POST /session/{sessionID}/prompt_async`: answered when it is durable.
pub(crate) async fn prompt_async(
    asked: Asked,
    Path(id): Path<String>,
    Body(body): Body<PromptBody>,
) -> Result<StatusCode, Failure> {
    let id = session(&id)?;
    if body.no_reply {
        note(&asked, id, body).await?;
        return Ok(StatusCode::NO_CONTENT);
    }
    let message = body.message.as_deref().map(MessageId::parse).transpose()?;
    let _permit = asked.app.admit_turn(&asked.principal, id, message).await?;
    let handle = asked.app.session(&asked.principal, id).await?;
    let prompt = read(&asked, body).await?;
    handle.prompt(prompt).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The prompt that a body means.
async fn read(asked: &Asked, body: PromptBody) -> Result<Prompt, Failure> {
    let PromptBody { message, model, agent, no_reply, tools, format, system, parts } = body;
    if parts.iter().any(|part| matches!(part, PartBody::Subtask {})) {
        return Err(Failure::not_built(
            "this is not built: prompts that are subtasks: send the text as a prompt of its own, to a session with this one as its `parentID`".to_owned(),
        ));
    }
    let output = format.map(FormatBody::output).transpose()?.flatten();
    let Parts { texts, files, paths } = given(asked, parts).await?;
    Ok(Prompt {
        message: message.as_deref().map(MessageId::parse).transpose()?,
        text: String::new(),
        texts,
        files,
        paths,
        plain: false,
        agent,
        model: model.map(|model| ModelRef::new(model.provider, model.model)),
        steps: None,
        // As the original does it: the running turn reads it with its next step.
        when_busy: WhenBusy::Steer,
        unattended: false,
        note: no_reply,
        system,
        tools,
        output,
        handed: None,
        attribution: asked.principal.attribution(),
    })
}

/// What the parts of a prompt say.
pub(super) struct Parts {
    pub(super) texts: Vec<PromptText>,
    pub(super) files: Vec<Attachment>,
    pub(super) paths: Vec<PathMention>,
}

pub(super) async fn given(asked: &Asked, parts: Vec<PartBody>) -> Result<Parts, Failure> {
    if parts.len() > MOST_PARTS {
        return Err(Failure::invalid(format!("a prompt has at most {MOST_PARTS} parts")));
    }
    let mut texts: Vec<PromptText> = Vec::new();
    let (mut files, mut paths) = (Vec::new(), Vec::new());
    let mut mentions: Vec<String> = Vec::new();
    for part in parts {
        match part {
            PartBody::Subtask {} => {}
            PartBody::Text { id, text, synthetic, ignored, metadata } => {
                let marks = TextMarks {
                    synthetic: synthetic.unwrap_or_default(),
                    ignored: ignored.unwrap_or_default(),
                    metadata: metadata.unwrap_or_default(),
                };
                let marks = (marks != TextMarks::default()).then(|| Box::new(marks));
                texts.push(PromptText { part: part_id(id), text, marks });
            }
            PartBody::Agent { name } => mentions.push(format!("@{name}")),
            PartBody::File { id, mime, filename, url, source } => {
                let shown = source.as_ref().and_then(|source| source["text"]["value"].as_str());
                let shown = shown.map(str::to_owned);
                let (part, source) = (part_id(id), source.and_then(source_of));
                match file(asked, mime, filename, &url).await? {
                    Given::Content(file) => files.push(Attachment { part, source, ..file }),
                    Given::Path(path) => {
                        mentions.push(shown.unwrap_or_else(|| path.path.clone()));
                        paths.push(PathMention { part, source, ..path });
                    }
                }
            }
        }
    }
    // Clients write what they mention into the text as well; what is not there yet is added, since what cannot be attached
    // stays a mention.
    let is_there = |mention: &String| texts.iter().any(|text| text.is_said() && text.text.contains(mention));
    mentions.retain(|mention| !is_there(mention));
    if !mentions.is_empty() {
        // What the client wrote stays as it is.
        let marks = TextMarks { synthetic: true, ..TextMarks::default() };
        let (text, marks) = (mentions.join("\n"), Some(Box::new(marks)));
        texts.push(PromptText { part: None, text, marks });
    }
    Ok(Parts { texts, files, paths })
}

/// The id that a client gave a part; none where it is not of the form of ours, as its part may have a new one.
fn part_id(id: Option<String>) -> Option<PartId> {
    PartId::parse(&id?).ok()
}

/// Where a file of a prompt comes from, if it is of the form that other clients trust in.
fn source_of(source: Value) -> Option<Box<Value>> {
    let source: FileSource = serde_json::from_value(source).ok()?;
    serde_json::to_value(source).ok().map(Box::new)
}

/// What a file of a prompt becomes.
enum Given {
    Content(Attachment),
    /// A file or a directory of the workspace.
    Path(PathMention),
}

async fn file(asked: &Asked, mime: String, filename: Option<String>, url: &str) -> Result<Given, Failure> {
    let is_name = |name: &str| {
        !name.trim().is_empty() && name.len() <= LONGEST_NAME && !name.chars().any(char::is_control)
    };
    if !is_name(&mime) || filename.as_deref().is_some_and(|name| !is_name(name)) {
        return Err(Failure::invalid(format!(
            "the name or the type of a file is empty, longer than {LONGEST_NAME} bytes, or has control characters"
        )));
    }
    if let Some(path) = url.strip_prefix("file://") {
        // The name of the host is this one's, or left out.
        let path = path.strip_prefix("localhost").filter(|path| path.starts_with('/')).unwrap_or(path);
        return Ok(Given::Path(mention(path)));
    }
    let Some(data) = url.strip_prefix("data:") else {
        return Err(Failure::invalid("the address of a file begins with `data:` or `file://`"));
    };
    let blob = asked.app.engine().store_blob(&asked.principal.tenant, data_url(data)?).await?;
    let filename = filename.unwrap_or_else(|| "file".to_owned());
    Ok(Given::Content(Attachment::new(mime, filename, blob)))
}

/// The path of a `file://` address, without its scheme, and the lines that its query wants.
fn mention(address: &str) -> PathMention {
    let address = address.split('#').next().unwrap_or_default();
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    let line = |name: &str| {
        let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
        value.parse::<u64>().ok().filter(|line| *line > 0)
    };
    let path = crate::wire::asked::unescaped(path.as_bytes());
    PathMention { path, first: line("start"), last: line("end"), ..PathMention::default() }
}

/// The content of a `data:` address, without its scheme: base64, or text that is escaped as in other addresses (RFC 2397).
fn data_url(data: &str) -> Result<Bytes, Failure> {
    let wrong = "a `data:` address is neither of the form `data:TYPE;base64,CONTENT` nor `data:TYPE,CONTENT`";
    let (head, content) = data.split_once(',').ok_or_else(|| Failure::invalid(wrong))?;
    if !head.to_ascii_lowercase().ends_with(";base64") {
        return Ok(unescaped_bytes(content.as_bytes()).into());
    }
    let decoded = STANDARD.decode(content);
    decoded.map(Bytes::from).map_err(|error| Failure::invalid(format!("a file is no good base64: {error}")))
}

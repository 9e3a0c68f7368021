//! Requests for consent and with questions.

use std::path::Path;

use playhouse_policy::{DOOM_LOOP, EXTERNAL_DIRECTORY};
use playhouse_protocol::consent::ConsentAnswer;
use playhouse_protocol::message::CallInput;
use playhouse_protocol::question::QuestionAsked;
use playhouse_protocol::{ConsentAsked, SessionId, Want};
use serde_json::{Map, Value, json};

use crate::wire::shapes::{PermissionRequest, QuestionRequest, ToolOf};

/// The permission of tools that change files.
const EDIT: &str = "edit";

/// A request for consent in `directory`, shown on `session`. `tool` and `input` are those of its call, where that is known.
pub(super) fn permission(
    asked: &ConsentAsked,
    directory: &str,
    session: SessionId,
    tool: Option<ToolOf>,
    input: Option<&CallInput>,
) -> PermissionRequest {
    // The wire knows one permission for each request: the tool's own, rather than what comes with it.
    let beside = |want: &&Want| want.permission == EXTERNAL_DIRECTORY || want.permission == DOOM_LOOP;
    let main = asked.wants.iter().find(|want| !beside(want)).or(asked.wants.first());
    let permission = main.map_or(asked.tool.as_str(), |want| want.permission.as_str()).to_owned();
    let of_main = || asked.wants.iter().filter(|want| want.permission == permission);
    let patterns: Vec<String> = of_main().map(|want| want.subject.clone()).collect();
    let rules = asked.always();
    let always = rules.iter().filter(|rule| rule.permission == permission).map(|rule| rule.pattern.clone());
    let metadata = metadata(asked, directory, &permission, patterns.first(), input);
    PermissionRequest {
        id: asked.consent,
        session,
        always: always.collect(),
        permission,
        patterns,
        metadata,
        tool,
    }
}

/// What dialogs show.
fn metadata(
    asked: &ConsentAsked,
    directory: &str,
    permission: &str,
    subject: Option<&String>,
    input: Option<&CallInput>,
) -> Map<String, Value> {
    let argument = |name: &str| match input {
        Some(CallInput::Object(object)) => object.get(name).and_then(Value::as_str),
        _ => None,
    };
    let mut metadata = Map::new();
    let mut tell = |name: &str, value: Value| drop(metadata.insert(name.to_owned(), value));
    tell("reason", asked.reason.clone().into());
    if asked.diff || permission == EDIT {
        let path = argument("filePath").or(argument("file_path")).or(subject.map(String::as_str));
        // Clients show no relative path.
        let path = path.map(|path| Path::new(directory).join(path));
        tell("filepath", path.unwrap_or_default().to_string_lossy().into());
    }
    if asked.diff {
        tell("diff", asked.preview.clone().into());
    } else if permission == "bash" {
        tell("command", argument("command").unwrap_or(&asked.preview).into());
    } else {
        tell("preview", asked.preview.clone().into());
    }
    if permission == EXTERNAL_DIRECTORY {
        let subject = subject.map_or("", String::as_str);
        tell("filepath", subject.into());
        // One file, or all below a directory.
        let parent = match subject.strip_suffix('*') {
            Some(directory) => Path::new(directory),
            None => Path::new(subject).parent().unwrap_or(Path::new("/")),
        };
        let parent = parent.to_string_lossy();
        tell("parentDir", if parent == "/" { "/" } else { parent.trim_end_matches('/') }.into());
    }
    let beside = asked.wants.iter().filter(|want| want.permission != permission);
    let beside: Vec<Value> =
        beside.map(|want| json!({"permission": want.permission, "pattern": want.subject})).collect();
    if !beside.is_empty() {
        tell("alsoWanted", beside.into());
    }
    metadata
}

/// How a request for consent ended, in the wire's three words.
pub(super) fn reply(answer: &ConsentAnswer) -> &'static str {
    match answer {
        ConsentAnswer::Once => "once",
        ConsentAnswer::Always | ConsentAnswer::Covered { .. } => "always",
        ConsentAnswer::Decline { .. }
        | ConsentAnswer::TimedOut
        | ConsentAnswer::Unattended
        | ConsentAnswer::Withdrawn => "reject",
    }
}

/// A request with questions, shown on `session`.
pub(crate) fn questions(asked: &QuestionAsked, session: SessionId, tool: Option<ToolOf>) -> QuestionRequest {
    QuestionRequest { id: asked.question, session, questions: asked.questions.clone(), tool }
}

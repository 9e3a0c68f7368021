//! Requests of Gemini.

use playhouse_protocol::chat::{AssistantPart, ChatMessage, ResultPart, ToolSpec, UserPart};
use playhouse_protocol::message::Attachment;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{schema, wants_signatures};
use crate::call_ids::clean_name;
use crate::dialect::{Context, DialectKind};
use crate::head::{Head, Reasoning, Words};
use crate::json::{append, field};
use crate::media::{self, Media, is_blank, output_or_note};

/// What the provider documents for calls that another model made, and that have no signature of its own.
const FOREIGN_CALL: &str = "skip_thought_signature_validator";

#[derive(Serialize)]
struct Content<'a> {
    role: &'static str,
    parts: Vec<Part<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    thought: bool,
    #[serde(flatten)]
    data: Piece<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Piece<'a> {
    Text(&'a str),
    #[serde(rename = "text")]
    Note(String),
    #[serde(rename_all = "camelCase")]
    InlineData {
        mime_type: &'static str,
        data: String,
    },
    FunctionCall {
        id: String,
        name: String,
        args: &'a Map<String, Value>,
    },
    FunctionResponse {
        id: String,
        name: String,
        response: Response<'a>,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Response<'a> {
    Output(&'a str),
    Error(&'a str),
}

impl<'a> From<Piece<'a>> for Part<'a> {
    fn from(data: Piece<'a>) -> Self {
        Self { thought: false, data, thought_signature: None }
    }
}

#[derive(Serialize)]
struct Instruction<'a> {
    parts: [Part<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tools<'a> {
    function_declarations: Vec<Function<'a>>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: String,
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Value>,
}

impl<'a> Function<'a> {
    fn new(spec: &'a ToolSpec) -> Self {
        Self {
            name: function_name(&spec.name),
            description: &spec.description,
            parameters: schema::parameters(&spec.parameters),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Generation {
    max_output_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_config: Option<Thinking>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Thinking {
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_level: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_budget: Option<u64>,
    include_thoughts: bool,
}

impl Thinking {
    /// Levels are known since the third generation.
    fn of(head: &Head) -> Option<Self> {
        let words = if wants_signatures(&head.model) { Words::Both } else { Words::BudgetsFirst };
        let (thinking_level, thinking_budget) = match head.told_reasoning(words)? {
            Reasoning::Effort(effort) => (Some(effort.name()), None),
            Reasoning::Budget(tokens) => (None, Some(tokens)),
        };
        Some(Self { thinking_level, thinking_budget, include_thoughts: true })
    }
}

pub(super) fn write_head(head: &Head, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"generationConfig":"#);
    let [(_, temperature), (_, top_p)] = head.sampling(None);
    let generation = Generation {
        max_output_tokens: head.max_output,
        temperature,
        top_p,
        thinking_config: Thinking::of(head),
    };
    append(out, &generation);
    if !is_blank(&head.system) {
        field(out, "systemInstruction", &Instruction { parts: [Piece::Text(&head.system).into()] });
    }
    if !head.tools.is_empty() {
        out.extend_from_slice(br#","tools":"#);
        let write = |tools: &[ToolSpec], out: &mut Vec<u8>| {
            let function_declarations = tools.iter().map(Function::new).collect();
            append(out, &[Tools { function_declarations }]);
        };
        out.extend_from_slice(head.tools.written(DialectKind::Gemini, write));
    }
    out.extend_from_slice(br#","contents":["#);
}

pub(super) fn write_message(message: &ChatMessage, context: &mut Context<'_>, out: &mut Vec<u8>) {
    let (role, parts) = match message {
        ChatMessage::User { parts } => {
            ("user", parts.iter().filter_map(|part| user_part(part, context)).collect())
        }
        ChatMessage::Assistant { parts } => ("model", answer(parts, context)),
        ChatMessage::Results { results } => ("user", responses(results, context)),
    };
    let content = Content { role, parts };
    if !content.parts.is_empty() {
        append(out, &content);
    }
}

fn user_part<'a>(part: &'a UserPart, context: &Context<'_>) -> Option<Part<'a>> {
    match part {
        UserPart::Text { text } => (!is_blank(text)).then(|| Piece::Text(text).into()),
        UserPart::File(file) => Some(file_part(file, context)),
    }
}

fn file_part<'a>(file: &'a Attachment, context: &Context<'_>) -> Part<'a> {
    let data = match media::load(file, context) {
        Media::Image { mime: "image/gif", .. } => Piece::Note(media::note(file, media::WRONG_TYPE)),
        Media::Image { mime: mime_type, data } => Piece::InlineData { mime_type, data },
        Media::Pdf { data, .. } => Piece::InlineData { mime_type: media::PDF, data },
        Media::Text(text) => Piece::Note(text),
    };
    data.into()
}

/// What the model said. Signatures go back on the part that they came with: a call's stands before it, a text's after it.
fn answer<'a>(parts: &'a [AssistantPart], context: &mut Context<'_>) -> Vec<Part<'a>> {
    context.ids.begin_message();
    let mut written: Vec<Part<'a>> = Vec::with_capacity(parts.len());
    let mut signature = None;
    let mut calls = 0;
    for part in parts {
        match part {
            AssistantPart::Text { text, .. } if !is_blank(text) => written.push(Piece::Text(text).into()),
            AssistantPart::Text { .. } => {}
            AssistantPart::Reasoning { text, opaque, .. } => {
                let field = |name| opaque.as_ref()?.get(name)?.as_str();
                let Some(value) = field("thought_signature") else { continue };
                match (field("on").unwrap_or_default(), written.last_mut()) {
                    ("call", _) => signature = Some(value),
                    ("text", Some(last)) if matches!(last.data, Piece::Text(_)) && !last.thought => {
                        last.thought_signature = Some(value);
                    }
                    ("text", _) => {
                        let data = Piece::Text("");
                        written.push(Part { thought: false, data, thought_signature: Some(value) });
                    }
                    _ => {
                        let data = Piece::Text(text);
                        written.push(Part { thought: true, data, thought_signature: Some(value) });
                    }
                }
            }
            AssistantPart::Call { id, name, input, .. } => {
                let (id, name) = (context.ids.call(id), function_name(name));
                // Of calls side by side, only the first has one.
                let stand_in = (calls == 0 && wants_signatures(context.model)).then_some(FOREIGN_CALL);
                let thought_signature = signature.take().or(stand_in);
                let data = Piece::FunctionCall { id, name, args: input };
                written.push(Part { thought: false, data, thought_signature });
                calls += 1;
            }
        }
    }
    written
}

/// The results, and after them their attachments, since results hold text only.
fn responses<'a>(results: &'a [ResultPart], context: &Context<'_>) -> Vec<Part<'a>> {
    let mut parts: Vec<Part<'a>> = Vec::with_capacity(results.len());
    let mut files = Vec::new();
    for result in results {
        let id = context.ids.result(&result.id);
        for file in &result.attachments {
            let text = format!("\"{}\", from the call {id} of {}:", file.filename, result.name);
            files.push(Piece::Note(text).into());
            files.push(file_part(file, context));
        }
        let output = output_or_note(&result.output);
        let response = if result.ok { Response::Output(output) } else { Response::Error(output) };
        parts.push(Piece::FunctionResponse { id, name: function_name(&result.name), response }.into());
    }
    parts.append(&mut files);
    parts
}

/// A function's name: it must not begin with a digit or a hyphen here.
fn function_name(name: &str) -> String {
    let clean = clean_name(name);
    if clean.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') {
        return clean;
    }
    let mut name = format!("_{clean}");
    name.truncate(64);
    name
}

//! Requests of Chat Completions.

use playhouse_protocol::capability::ReasoningField;
use playhouse_protocol::chat::{AssistantPart, ChatMessage, ResultPart, ToolSpec, UserPart};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::details;
use crate::call_ids::clean_name;
use crate::dialect::{Context, DialectKind};
use crate::head::{Head, OutputLimitField, Reasoning, ReasoningWords, Words};
use crate::json::{append, field, written};
use crate::media::{self, Media, is_blank, output_or_note};
use crate::members;

/// What stands between the texts of one message: servers of this dialect take one text more gladly than several.
const BETWEEN_TEXTS: &str = "\n\n";
/// What the model says between results and the user, where a server wants that it says something.
const BRIDGE: &str = "I have the results.";

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum Message<'a> {
    System {
        content: &'a str,
    },
    User {
        content: Content,
    },
    Assistant {
        content: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_content: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Call>,
        #[serde(flatten)]
        members: Map<String, Value>,
    },
    Tool {
        tool_call_id: String,
        content: &'a str,
    },
}

impl Message<'_> {
    /// An answer of text alone.
    fn said(text: &str) -> Self {
        Self::Assistant {
            content: Some(text.to_owned()),
            reasoning_content: None,
            tool_calls: Vec::new(),
            members: Map::new(),
        }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Pieces(Vec<Piece>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Piece {
    Text { text: String },
    ImageUrl { image_url: ImageUrl },
    File { file: File },
}

#[derive(Serialize)]
struct ImageUrl {
    url: String,
}

#[derive(Serialize)]
struct File {
    filename: String,
    file_data: String,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "function")]
struct Call {
    id: String,
    function: CalledFunction,
    #[serde(flatten)]
    members: Map<String, Value>,
}

#[derive(Serialize)]
struct CalledFunction {
    name: String,
    arguments: String,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "function")]
struct Tool<'a> {
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    parameters: &'a Value,
}

impl<'a> Tool<'a> {
    fn new(spec: &'a ToolSpec) -> Self {
        let ToolSpec { name, description, parameters } = spec;
        Self { function: Function { name, description, parameters } }
    }
}

pub(super) fn write_head(head: &Head, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"model":"#);
    append(out, &head.model);
    out.extend_from_slice(match head.chat.output_limit_field {
        OutputLimitField::MaxTokens => br#","max_tokens":"#,
        OutputLimitField::MaxCompletionTokens => br#","max_completion_tokens":"#,
    });
    append(out, &head.max_output);
    let told = told_reasoning(head);
    for (name, value) in head.sampling(told) {
        if let Some(value) = value {
            field(out, name, &value);
        }
    }
    write_reasoning(head, told, out);
    if let Some(key) = &head.cache_key {
        field(out, "prompt_cache_key", key);
    }
    out.extend_from_slice(br#","stream":true"#);
    if head.chat.stream_options {
        out.extend_from_slice(br#","stream_options":{"include_usage":true}"#);
    }
    if !head.tools.is_empty() {
        out.extend_from_slice(br#","tools":"#);
        let write = |tools: &[ToolSpec], out: &mut Vec<u8>| {
            append(out, &tools.iter().map(Tool::new).collect::<Vec<_>>());
        };
        out.extend_from_slice(head.tools.written(DialectKind::OpenaiChat, write));
    }
    out.extend_from_slice(br#","messages":["#);
    if !is_blank(&head.system) {
        append(out, &Message::System { content: &head.system });
    }
}

fn told_reasoning(head: &Head) -> Option<Reasoning> {
    head.told_reasoning(match head.chat.reasoning_words {
        ReasoningWords::Effort => Words::Efforts,
        ReasoningWords::Object => Words::Both,
        ReasoningWords::ThinkingBudget => Words::Budgets,
    })
}

fn write_reasoning(head: &Head, told: Option<Reasoning>, out: &mut Vec<u8>) {
    match (told, head.chat.reasoning_words) {
        (Some(Reasoning::Effort(effort)), ReasoningWords::Object) => {
            field(out, "reasoning", &json!({"effort": effort.name()}));
        }
        (Some(Reasoning::Budget(tokens)), ReasoningWords::Object) => {
            field(out, "reasoning", &json!({"max_tokens": tokens}));
        }
        (Some(Reasoning::Effort(effort)), _) => field(out, "reasoning_effort", effort.name()),
        (Some(Reasoning::Budget(0)), _) => field(out, "enable_thinking", &false),
        (Some(Reasoning::Budget(tokens)), _) => {
            field(out, "enable_thinking", &true);
            field(out, "thinking_budget", &tokens);
        }
        (None, _) => {}
    }
}

pub(super) fn write_message(message: &ChatMessage, context: &mut Context<'_>, out: &mut Vec<u8>) {
    match message {
        ChatMessage::User { parts } => {
            let pieces = parts.iter().filter_map(|part| user_piece(part, context)).collect();
            if let Some(content) = content(pieces) {
                let bridge = *context.after_results && !context.chat.user_after_results;
                write_user(content, bridge, out);
                *context.after_results = false;
            }
        }
        ChatMessage::Assistant { parts } => {
            context.ids.begin_message();
            if let Some(message) = assistant(parts, context) {
                append(out, &message);
                *context.after_results = false;
            }
        }
        ChatMessage::Results { results } => write_results(results, context, out),
    }
}

/// `bridge`: whether an answer of the model must stand before it.
fn write_user(content: Content, bridge: bool, out: &mut Vec<u8>) {
    if bridge {
        append(out, &Message::said(BRIDGE));
        out.push(b',');
    }
    append(out, &Message::User { content });
}

/// Texts alone as one text, anything else as it is; `None` where there is nothing.
fn content(pieces: Vec<Piece>) -> Option<Content> {
    if pieces.is_empty() {
        return None;
    }
    let mut texts = Vec::with_capacity(pieces.len());
    for piece in &pieces {
        match piece {
            Piece::Text { text } => texts.push(text.as_str()),
            _ => return Some(Content::Pieces(pieces)),
        }
    }
    Some(Content::Text(texts.join(BETWEEN_TEXTS)))
}

fn user_piece(part: &UserPart, context: &Context<'_>) -> Option<Piece> {
    match part {
        UserPart::Text { text } => (!is_blank(text)).then(|| Piece::Text { text: text.clone() }),
        UserPart::File(file) => Some(file_piece(media::load(file, context))),
    }
}

fn file_piece(media: Media<'_>) -> Piece {
    match media {
        Media::Image { mime, data } => {
            Piece::ImageUrl { image_url: ImageUrl { url: format!("data:{mime};base64,{data}") } }
        }
        Media::Pdf { filename, data } => {
            let file_data = format!("data:{};base64,{data}", media::PDF);
            Piece::File { file: File { filename: filename.to_owned(), file_data } }
        }
        Media::Text(text) => Piece::Text { text },
    }
}

fn assistant(parts: &[AssistantPart], context: &mut Context<'_>) -> Option<Message<'static>> {
    let mut texts = Vec::new();
    let mut thoughts = Vec::new();
    let mut members = Map::new();
    let mut tool_calls = Vec::new();
    for part in parts {
        match part {
            AssistantPart::Text { text, .. } if !is_blank(text) => texts.push(text.as_str()),
            AssistantPart::Call { id, name, input, opaque } => {
                let arguments = written(input);
                let function = CalledFunction { name: clean_name(name), arguments };
                let members = members::back(opaque.as_ref(), &members::OF_CALL);
                tool_calls.push(Call { id: context.ids.call(id), function, members });
            }
            AssistantPart::Reasoning { text, opaque, stale } => {
                if !is_blank(text) {
                    thoughts.push(text.as_str());
                }
                members.extend(members::back(opaque.as_ref(), &members::OF_TEXT));
                // They are signed: after another history they do not hold.
                if !stale {
                    for (name, list) in members::back(opaque.as_ref(), &[details::DETAILS, details::BLOCKS]) {
                        match (members.get_mut(&name), list) {
                            (Some(Value::Array(all)), Value::Array(list)) => all.extend(list),
                            (_, list) => members.extend([(name, list)]),
                        }
                    }
                }
            }
            AssistantPart::Text { .. } => {}
        }
    }
    let content = (!texts.is_empty()).then(|| texts.join(BETWEEN_TEXTS));
    let wanted = |field| context.chat.reasoning_field == Some(field);
    // A space where there are no thoughts: servers that ask for the field refuse an empty one.
    let thoughts = if thoughts.is_empty() { " ".to_owned() } else { thoughts.join(BETWEEN_TEXTS) };
    let reasoning_content = wanted(ReasoningField::ReasoningContent).then_some(thoughts);
    if wanted(ReasoningField::ReasoningContent) {
        members.remove(details::DETAILS);
    }
    (content.is_some() || !tool_calls.is_empty()).then_some(Message::Assistant {
        content,
        reasoning_content,
        tool_calls,
        members,
    })
}

/// A message for each result; their attachments follow in one message of the user, since results hold text only here.
fn write_results(results: &[ResultPart], context: &mut Context<'_>, out: &mut Vec<u8>) {
    let mut pieces = Vec::new();
    for (index, result) in results.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let tool_call_id = context.ids.result(&result.id);
        for file in &result.attachments {
            let text = format!("\"{}\", from the call {tool_call_id} of {}:", file.filename, result.name);
            pieces.push(Piece::Text { text });
            pieces.push(file_piece(media::load(file, context)));
        }
        append(out, &Message::Tool { tool_call_id, content: output_or_note(&result.output) });
    }
    *context.after_results |= !results.is_empty();
    if let Some(content) = content(pieces) {
        out.push(b',');
        write_user(content, !context.chat.user_after_results, out);
        *context.after_results = false;
    }
}

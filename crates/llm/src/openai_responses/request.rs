//! Requests of Responses.

use playhouse_protocol::chat::{AssistantPart, ChatMessage, ResultPart, ToolSpec, UserPart};
use playhouse_protocol::message::Attachment;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::adjust::Parameter;
use crate::call_ids::clean_name;
use crate::dialect::{Context, DialectKind};
use crate::head::{Head, Reasoning, Words};
use crate::json::{append, field, written};
use crate::media::{self, Media, is_blank, output_or_note};
use crate::{members, search};

/// Element of the conversation.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item<'a> {
    Message {
        role: &'static str,
        content: Vec<Piece<'a>>,
        #[serde(flatten)]
        members: Map<String, Value>,
    },
    Reasoning {
        #[serde(skip_serializing_if = "str::is_empty")]
        id: &'a str,
        summary: Vec<Piece<'a>>,
        encrypted_content: &'a str,
    },
    FunctionCall {
        call_id: String,
        name: String,
        arguments: String,
        #[serde(flatten)]
        members: Map<String, Value>,
    },
    FunctionCallOutput {
        call_id: String,
        output: Output<'a>,
    },
    /// As it came.
    #[serde(untagged)]
    Kept(&'a Value),
}

#[derive(Serialize)]
#[serde(untagged)]
enum Output<'a> {
    Text(&'a str),
    Pieces(Vec<Piece<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Piece<'a> {
    InputText {
        text: &'a str,
    },
    #[serde(rename = "input_text")]
    Note {
        text: String,
    },
    InputImage {
        image_url: String,
    },
    InputFile {
        filename: &'a str,
        file_data: String,
    },
    OutputText {
        text: &'a str,
    },
    SummaryText {
        text: &'a str,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "function")]
struct Tool<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    parameters: &'a Value,
    /// The provider's default is `true`, which takes few schemas.
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    defer_loading: bool,
}

impl<'a> Tool<'a> {
    fn new(spec: &'a ToolSpec, strict: Option<bool>, defer_loading: bool) -> Self {
        let ToolSpec { name, description, parameters } = spec;
        Self { name, description, parameters, strict, defer_loading }
    }
}

#[derive(Serialize)]
struct ReasoningOptions {
    effort: &'static str,
    summary: &'static str,
}

pub(super) fn write_head(head: &Head, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"model":"#);
    append(out, &head.model);
    out.extend_from_slice(br#","store":false,"stream":true"#);
    field(out, "max_output_tokens", &head.max_output);
    let told = head.told_reasoning(Words::Efforts);
    for (name, value) in head.sampling(told) {
        if let Some(value) = value {
            field(out, name, &value);
        }
    }
    if let Some(Reasoning::Effort(effort)) = told {
        field(out, "reasoning", &ReasoningOptions { effort: effort.name(), summary: "auto" });
    }
    // Models that reason do so unasked, too.
    let reasons = head.reasons || head.reasoning.is_some();
    if reasons && !head.adjustments.omits(Parameter::Include) {
        field(out, "include", &["reasoning.encrypted_content"]);
    }
    if let Some(key) = &head.cache_key {
        field(out, "prompt_cache_key", key);
    }
    let in_input = head.rules.system_in_input;
    if !is_blank(&head.system) && !in_input {
        field(out, "instructions", &head.system);
    }
    if !head.tools.is_empty() {
        out.extend_from_slice(br#","tools":"#);
        let write = |tools: &[ToolSpec], out: &mut Vec<u8>| {
            let strict = (!head.adjustments.omits(Parameter::Strict)).then_some(false);
            let tool = |spec| Tool::new(spec, strict, head.tools.is_deferred(&spec.name));
            append(out, &tools.iter().map(tool).collect::<Vec<_>>());
            if head.tools.are_searched() {
                out.pop();
                out.extend_from_slice(br#",{"type":"tool_search"}]"#);
            }
        };
        out.extend_from_slice(head.tools.written(DialectKind::OpenaiResponses, write));
    }
    out.extend_from_slice(br#","input":["#);
    if !is_blank(&head.system) && in_input {
        append(
            out,
            &Item::Message {
                role: "developer",
                content: vec![Piece::InputText { text: &head.system }],
                members: Map::new(),
            },
        );
    }
}

pub(super) fn write_message(message: &ChatMessage, context: &mut Context<'_>, out: &mut Vec<u8>) {
    let items: Vec<Item<'_>> = match message {
        ChatMessage::User { parts } => {
            let content: Vec<_> = parts.iter().filter_map(|part| user_piece(part, context)).collect();
            let message =
                (!content.is_empty()).then_some(Item::Message { role: "user", content, members: Map::new() });
            message.into_iter().collect()
        }
        ChatMessage::Assistant { parts } => {
            context.ids.begin_message();
            let searched = search::RESPONSES.whole(parts);
            let item = |(at, part)| match searched.get(&at) {
                Some(item) => Some(Item::Kept(item)),
                None => assistant_item(part, context),
            };
            let mut items: Vec<_> = parts.iter().enumerate().filter_map(item).collect();
            // An answer that was stopped while it thought: reasoning is refused without what it led to.
            while matches!(items.last(), Some(Item::Reasoning { .. })) {
                items.pop();
            }
            items
        }
        ChatMessage::Results { results } => {
            results.iter().map(|result| result_item(result, context)).collect()
        }
    };
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        append(out, item);
    }
}

fn user_piece<'a>(part: &'a UserPart, context: &Context<'_>) -> Option<Piece<'a>> {
    match part {
        UserPart::Text { text } => (!is_blank(text)).then_some(Piece::InputText { text }),
        UserPart::File(file) => Some(file_piece(file, context)),
    }
}

fn file_piece<'a>(file: &'a Attachment, context: &Context<'_>) -> Piece<'a> {
    match media::load(file, context) {
        Media::Image { mime, data } => Piece::InputImage { image_url: format!("data:{mime};base64,{data}") },
        Media::Pdf { filename, data } => {
            Piece::InputFile { filename, file_data: format!("data:{};base64,{data}", media::PDF) }
        }
        Media::Text(text) => Piece::Note { text },
    }
}

fn assistant_item<'a>(part: &'a AssistantPart, context: &mut Context<'_>) -> Option<Item<'a>> {
    match part {
        AssistantPart::Text { text, opaque } => {
            let content = vec![Piece::OutputText { text }];
            let members = members::back(opaque.as_ref(), &members::OF_TEXT);
            (!is_blank(text)).then_some(Item::Message { role: "assistant", content, members })
        }
        AssistantPart::Reasoning { stale: true, .. } => None,
        AssistantPart::Reasoning { text, opaque, .. } => {
            let field = |name| opaque.as_ref()?.get(name)?.as_str();
            let encrypted_content = field("encrypted_content")?;
            let summary = if text.is_empty() { Vec::new() } else { vec![Piece::SummaryText { text }] };
            Some(Item::Reasoning {
                id: field("reasoning_id").unwrap_or_default(),
                summary,
                encrypted_content,
            })
        }
        AssistantPart::Call { id, name, input, opaque } => Some(Item::FunctionCall {
            call_id: context.ids.call(id),
            name: clean_name(name),
            arguments: written(input),
            members: members::back(opaque.as_ref(), &members::OF_CALL),
        }),
    }
}

fn result_item<'a>(result: &'a ResultPart, context: &Context<'_>) -> Item<'a> {
    let text = output_or_note(&result.output);
    let output = if result.attachments.is_empty() {
        Output::Text(text)
    } else {
        let files = result.attachments.iter().map(|file| file_piece(file, context));
        Output::Pieces(std::iter::once(Piece::InputText { text }).chain(files).collect())
    };
    Item::FunctionCallOutput { call_id: context.ids.result(&result.id), output }
}

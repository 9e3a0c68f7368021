//! Requests of Anthropic Messages.

use playhouse_protocol::capability::{Effort, Thinking as Thinks};
use playhouse_protocol::chat::{AssistantPart, ChatMessage, ResultPart, ToolSpec, UserPart};
use playhouse_protocol::message::Attachment;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::adjust::Parameter;
use crate::call_ids::clean_name;
use crate::dialect::{Context, DialectKind, Wire};
use crate::head::{Head, Reasoning, Words};
use crate::json::{append, field};
use crate::media::{self, Media, is_blank, output_or_note};
use crate::{members, search};

const LEAST_TOP_P_WITH_THINKING: f64 = 0.95;

/// How a model is told to think: newer ones refuse a budget, older ones know nothing else.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Thinking {
    Enabled {
        budget_tokens: u64,
    },
    Adaptive {
        /// Without it these models keep what they think to themselves.
        display: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        block_binding: Option<BlockBinding>,
    },
    Disabled,
}

/// What becomes of thinking that was made after something else than what stands before it now.
#[derive(Serialize)]
struct BlockBinding {
    prefix_mismatch_behavior: &'static str,
}

#[derive(Serialize)]
struct OutputConfig {
    effort: &'static str,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: &'a str,
    },
    #[serde(rename = "text")]
    Note {
        text: String,
    },
    Image {
        source: Source,
    },
    Document {
        source: Source,
        title: &'a str,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    RedactedThinking {
        data: &'a str,
    },
    ToolUse {
        id: String,
        name: String,
        input: &'a Map<String, Value>,
        #[serde(flatten)]
        members: Map<String, Value>,
    },
    ToolResult {
        tool_use_id: String,
        content: ResultContent<'a>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    /// As it came.
    #[serde(untagged)]
    Kept(&'a Value),
}

#[derive(Serialize)]
#[serde(untagged)]
enum ResultContent<'a> {
    Text(&'a str),
    Blocks(Vec<Block<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "base64")]
struct Source {
    media_type: &'static str,
    data: String,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    input_schema: &'a Value,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    defer_loading: bool,
}

impl<'a> Tool<'a> {
    fn new(spec: &'a ToolSpec, defer_loading: bool) -> Self {
        let ToolSpec { name, description, parameters } = spec;
        Self { name, description, input_schema: parameters, defer_loading }
    }
}

/// The provider's tool that searches the deferred ones.
const SEARCH_TOOL: &str = r#",{"type":"tool_search_tool_regex_20251119","name":"tool_search_tool_regex"}"#;

/// The last field of a block up to which a provider may keep what it read.
pub(super) const CACHE_MARKER: &str = r#","cache_control":{"type":"ephemeral"}"#;

pub(super) fn write_head(head: &Head, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(br#"{"model":"#);
    append(bytes, &head.model);
    bytes.extend_from_slice(br#","max_tokens":"#);
    append(bytes, &head.max_output);
    write_sampling(head, bytes);
    bytes.extend_from_slice(br#","stream":true"#);
    if !is_blank(&head.system) {
        bytes.extend_from_slice(br#","system":["#);
        append(bytes, &Block::Text { text: &head.system });
        end_marked(head, bytes, "}]");
    }
    if !head.tools.is_empty() {
        bytes.extend_from_slice(br#","tools":"#);
        let write = |tools: &[ToolSpec], out: &mut Vec<u8>| {
            let tool = |spec| Tool::new(spec, head.tools.is_deferred(&spec.name));
            append(out, &tools.iter().map(tool).collect::<Vec<_>>());
            out.pop();
            if head.tools.are_searched() {
                // Behind the others: the marker may not stand at a deferred one.
                out.extend_from_slice(SEARCH_TOOL.as_bytes());
            }
            end_marked(head, out, "}]");
        };
        bytes.extend_from_slice(head.tools.written(DialectKind::Anthropic, write));
    }
    bytes.extend_from_slice(br#","messages":["#);
}

/// Puts a cache marker behind the last field of a block that was written whole, and ends with `end`.
fn end_marked(head: &Head, bytes: &mut Vec<u8>, end: &str) {
    bytes.pop();
    if !head.adjustments.omits(Parameter::CacheControl) {
        bytes.extend_from_slice(CACHE_MARKER.as_bytes());
    }
    bytes.extend_from_slice(end.as_bytes());
}

/// Thinking excludes a temperature and most of top-p, and newer models take one of the two only.
fn write_sampling(head: &Head, bytes: &mut Vec<u8>) {
    let (thinking, effort) = thinking(head);
    let thinks = matches!(thinking, Some(Thinking::Enabled { .. } | Thinking::Adaptive { .. }));
    let [(_, temperature), (_, top_p)] = head.sampling(None);
    let temperature = temperature.filter(|_| !thinks);
    let top_p = top_p.filter(|top_p| match thinks {
        true => *top_p >= LEAST_TOP_P_WITH_THINKING,
        false => temperature.is_none(),
    });
    for (name, value) in [("temperature", temperature), ("top_p", top_p)] {
        if let Some(value) = value {
            field(bytes, name, &value);
        }
    }
    if let Some(thinking) = thinking {
        field(bytes, "thinking", &thinking);
    }
    if let Some(effort) = effort {
        field(bytes, "output_config", &OutputConfig { effort: effort.name() });
    }
}

/// Whether and how much the model is told to think. One that thinks unasked is told how to show it.
fn thinking(head: &Head) -> (Option<Thinking>, Option<Effort>) {
    let adaptive = || {
        let drop =
            head.drop_stale_reasoning.then_some(BlockBinding { prefix_mismatch_behavior: "drop_block" });
        Some(Thinking::Adaptive { display: "summarized", block_binding: drop })
    };
    if head.adjustments.omits(Parameter::Reasoning) {
        return (None, None);
    }
    let off = head.reasoning == Some(Reasoning::Effort(Effort::None));
    // Models that think unasked refuse budgets.
    let words = if head.rules.thinking == Thinks::OnRequest { Words::BudgetsFirst } else { Words::Efforts };
    match (head.rules.thinking, head.told_reasoning(words)) {
        (Thinks::OnRequest, _) if off => (None, None),
        (Thinks::ByDefault, _) if off => (Some(Thinking::Disabled), None),
        (_, Some(Reasoning::Budget(budget_tokens))) => (Some(Thinking::Enabled { budget_tokens }), None),
        (_, Some(Reasoning::Effort(effort))) => (adaptive(), Some(effort)),
        (Thinks::OnRequest, None) => (None, None),
        (Thinks::ByDefault | Thinks::Always, None) => (adaptive(), None),
    }
}

pub(super) fn write_message(message: &ChatMessage, context: &mut Context<'_>, out: &mut Wire) {
    let message = match message {
        ChatMessage::User { parts } => {
            user(parts.iter().filter_map(|part| user_block(part, context)).collect())
        }
        ChatMessage::Results { results } => {
            user(results.iter().map(|result| result_block(result, context)).collect())
        }
        ChatMessage::Assistant { parts } => {
            context.ids.begin_message();
            let searched = search::ANTHROPIC.whole(parts);
            let block = |(at, part)| match searched.get(&at) {
                Some(block) => Some(Block::Kept(block)),
                None => assistant_block(part, context),
            };
            let mut content: Vec<_> = parts.iter().enumerate().filter_map(block).collect();
            // An answer that was stopped while it thought: the provider refuses thinking at the end of a message.
            while matches!(content.last(), Some(Block::Thinking { .. } | Block::RedactedThinking { .. })) {
                content.pop();
            }
            Message { role: "assistant", content }
        }
    };
    if message.content.is_empty() {
        return;
    }
    append(&mut out.bytes, &message);
    if message.role == "user" {
        // Before what ends the last block, the list of blocks, and the message: `}]}`.
        out.marks.push(out.bytes.len() - 3);
    }
}

fn user(content: Vec<Block<'_>>) -> Message<'_> {
    Message { role: "user", content }
}

fn user_block<'a>(part: &'a UserPart, context: &Context<'_>) -> Option<Block<'a>> {
    match part {
        UserPart::Text { text } => (!is_blank(text)).then_some(Block::Text { text }),
        UserPart::File(file) => Some(file_block(file, context)),
    }
}

fn file_block<'a>(file: &'a Attachment, context: &Context<'_>) -> Block<'a> {
    match media::load(file, context) {
        Media::Image { mime, data } => Block::Image { source: Source { media_type: mime, data } },
        Media::Pdf { filename, data } => {
            Block::Document { source: Source { media_type: media::PDF, data }, title: filename }
        }
        Media::Text(text) => Block::Note { text },
    }
}

fn assistant_block<'a>(part: &'a AssistantPart, context: &mut Context<'_>) -> Option<Block<'a>> {
    match part {
        AssistantPart::Text { text, .. } => (!is_blank(text)).then_some(Block::Text { text }),
        AssistantPart::Reasoning { stale: true, .. } => None,
        AssistantPart::Reasoning { text, opaque, .. } => {
            let field = |name| opaque.as_ref()?.get(name)?.as_str();
            if let Some(data) = field("redacted") {
                return Some(Block::RedactedThinking { data });
            }
            field("signature").map(|signature| Block::Thinking { thinking: text, signature })
        }
        AssistantPart::Call { id, name, input, opaque } => {
            let members = members::back(opaque.as_ref(), &members::OF_CALL);
            Some(Block::ToolUse { id: context.ids.call(id), name: clean_name(name), input, members })
        }
    }
}

fn result_block<'a>(result: &'a ResultPart, context: &Context<'_>) -> Block<'a> {
    let text = output_or_note(&result.output);
    let content = if result.attachments.is_empty() {
        ResultContent::Text(text)
    } else {
        let files = result.attachments.iter().map(|file| file_block(file, context));
        ResultContent::Blocks(std::iter::once(Block::Text { text }).chain(files).collect())
    };
    Block::ToolResult { tool_use_id: context.ids.result(&result.id), content, is_error: !result.ok }
}

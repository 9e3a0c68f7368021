//! Anthropic Messages.

use std::borrow::Cow;

use playhouse_protocol::Tokens;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::content::{Content, has_tools};
use super::frame::{Frame, Mark};
use super::{
    About, Asked, Dialect, Encode, Ending, PartKind, Rejected, Wants, Wire, mark, push_json, read_json,
};
use crate::conversation::{Heard, MayCall, Place, Said, check_results, place};
use crate::fault::Rejection;
use crate::script::Finish;
use crate::usage;

/// The wire format.
pub(super) struct Anthropic;

/// The context of the models that a conversation is too long for, in tokens.
const CONTEXT: u64 = 200_000;
const NO_CREDIT: &str = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to \
    upgrade or purchase credits.";
const RATE_LIMITED: &str = "This request would exceed the rate limit for your organization of 50,000 input tokens per \
    minute.";

/// Where a model of this provider signs its reasoning: base64 of no meaning.
const SIGNATURE: &str = "bW9jay1yZWFzb25pbmctc2lnbmF0dXJl";

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
    max_tokens: u64,
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    tools: Option<Vec<IgnoredAny>>,
    #[serde(default, borrow)]
    tool_choice: Option<ToolChoice<'a>>,
}

#[derive(Deserialize)]
struct ToolChoice<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow)]
    content: Content<'a>,
}

impl Wire for Anthropic {
    fn dialect(&self) -> Dialect {
        Dialect::Anthropic
    }

    fn serves(&self, path: &str) -> bool {
        path.ends_with("/messages")
    }

    fn read(&self, _path: &str, _query: &str, body: &[u8]) -> Result<Asked, String> {
        let request: Request<'_> = read_json(body)?;
        if request.max_tokens == 0 {
            return Err("max_tokens: must be at least 1".to_owned());
        }
        if request.messages.is_empty() {
            return Err("messages: at least one message is required".to_owned());
        }
        let has_tools = has_tools(&request.tools);
        let may_call = match &request.tool_choice {
            _ if !has_tools => MayCall::NoTools,
            Some(choice) if choice.kind == "none" => MayCall::Forbidden,
            _ => MayCall::Yes,
        };
        let mut prompt = String::new();
        let mut heard = Vec::with_capacity(request.messages.len());
        for (number, message) in request.messages.into_iter().enumerate() {
            let Message { role, content } = message;
            check_content(&content).map_err(|error| format!("messages.{number}: {error}"))?;
            let said = match &*role {
                "assistant" => Said::Answer,
                "user" if !content.results.is_empty() => Said::Results,
                "user" => {
                    // Only the last one is asked for, and prompts are few beside results.
                    prompt = content.text();
                    Said::Prompt
                }
                role => {
                    return Err(format!(
                        "messages.{number}: role \"{role}\" is not \"user\" or \"assistant\""
                    ));
                }
            };
            heard.push(Heard { said, calls: content.calls, results: content.results });
        }
        check_results(&heard).map_err(|unmatched| unmatched.to_string())?;
        let said: Vec<Said> = heard.iter().map(|message| message.said).collect();
        Ok(Asked {
            model: request.model.into_owned(),
            stream: request.stream,
            wants: Wants { stream_usage: true, ..Wants::default() },
            place: place(&said, may_call),
            may_call: may_call == MayCall::Yes,
            prompt,
        })
    }

    fn error(&self, status: u16, message: &str) -> Vec<u8> {
        let kind = match status {
            400 | 422 => "invalid_request_error",
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            529 => "overloaded_error",
            500..=599 => "api_error",
            _ => "invalid_request_error",
        };
        error_value(kind, message).to_string().into_bytes()
    }

    fn reject(&self, rejection: Rejection, about: &About, _is_stream: bool) -> Rejected {
        let tokens = about.input.all_input();
        let (status, kind, message) = match rejection {
            Rejection::ContextOverflow => {
                let words =
                    format!("prompt is too long: {} tokens > {CONTEXT} maximum", CONTEXT.max(tokens) + 1);
                (400, "invalid_request_error", words)
            }
            Rejection::QuotaUsedUp => (400, "invalid_request_error", NO_CREDIT.to_owned()),
            Rejection::RateLimited => (429, "rate_limit_error", RATE_LIMITED.to_owned()),
            Rejection::Overloaded => (529, "overloaded_error", "Overloaded".to_owned()),
            Rejection::BadKey => (401, "authentication_error", "invalid x-api-key".to_owned()),
            Rejection::Forbidden => {
                let words = "Your API key does not have permission to use the specified resource.";
                (403, "permission_error", words.to_owned())
            }
            Rejection::NoSuchModel => (404, "not_found_error", format!("model: {}", about.model)),
            Rejection::TooLarge => (413, "request_too_large", "Request exceeds the maximum size".to_owned()),
            Rejection::ContentFilter => {
                let words = "Output blocked by content filtering policy";
                (400, "invalid_request_error", words.to_owned())
            }
        };
        Rejected { status, body: error_value(kind, &message).to_string().into_bytes(), is_stream: false }
    }

    fn call_id(&self, place: Place, number: usize) -> String {
        format!("toolu_mock_{}_{}_{number}", place.turn, place.step)
    }

    fn stream(&self, about: About) -> Box<dyn Encode> {
        Box::new(Stream { about, index: 0, signature: None, before: Vec::new() })
    }

    fn whole(&self, about: &About, parts: &[(PartKind, String)], ending: &Ending) -> Vec<u8> {
        let content: Vec<Value> = parts
            .iter()
            .map(|(kind, text)| match kind {
                PartKind::Text | PartKind::Refusal => json!({"type": "text", "text": text}),
                PartKind::Reasoning { signature } => {
                    let signature = signature.as_deref().unwrap_or(SIGNATURE);
                    json!({"type": "thinking", "thinking": text, "signature": signature})
                }
                PartKind::Redacted { data } => json!({"type": "redacted_thinking", "data": data}),
                PartKind::Block { block } => block.clone(),
                PartKind::Call { id, name } => {
                    // This format has arguments as JSON here; what is not JSON can only be a string.
                    let input: Value = serde_json::from_str(text).unwrap_or_else(|_| json!(text));
                    json!({"type": "tool_use", "id": id, "name": name, "input": input})
                }
            })
            .collect();
        let usage = usage::whole(self, ending).map(|(object, _)| object);
        let mut message = message(about, content, &usage.unwrap_or_default());
        message["stop_reason"] = json!(stop_reason(&ending.finish));
        message.to_string().into_bytes()
    }

    fn reported(&self, tokens: Tokens) -> Tokens {
        Tokens {
            input: tokens.input + tokens.cache_write_30m + tokens.cache_write_12h,
            cache_write_30m: 0,
            cache_write_12h: 0,
            output: tokens.output + tokens.reasoning,
            reasoning: 0,
            ..tokens
        }
    }

    fn usage(&self, tokens: Tokens, _total: u64) -> Value {
        json!({
            "input_tokens": tokens.input,
            "cache_creation_input_tokens": tokens.cache_write_5m + tokens.cache_write_1h,
            "cache_read_input_tokens": tokens.cache_read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": tokens.cache_write_5m,
                "ephemeral_1h_input_tokens": tokens.cache_write_1h,
            },
            "output_tokens": tokens.output,
        })
    }
}

fn check_content(content: &Content<'_>) -> Result<(), String> {
    if content.is_empty_list {
        return Err("content must not be empty".to_owned());
    }
    if content.texts.iter().any(|text| text.is_empty()) {
        return Err("text must not be empty".to_owned());
    }
    if content.searches != content.found {
        return Err("content: each `server_tool_use` needs its `tool_search_tool_result`".to_owned());
    }
    if let Some((number, field)) = content.unsigned {
        return Err(format!("content.{number}.{field}: field required"));
    }
    let in_id = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if let Some(id) = content.calls.iter().find(|id| id.is_empty() || !id.bytes().all(in_id)) {
        return Err(format!("the id \"{id}\" of a call must have letters, digits, _ and - only"));
    }
    Ok(())
}

fn error_value(kind: &str, message: &str) -> Value {
    json!({"type": "error", "error": {"type": kind, "message": message}})
}

fn stop_reason(finish: &Finish) -> &str {
    match finish {
        Finish::Stop => "end_turn",
        Finish::ToolCalls => "tool_use",
        Finish::Length => "max_tokens",
        Finish::ContentFilter | Finish::Refusal => "refusal",
        Finish::Other(words) => words,
    }
}

fn message(about: &About, content: Vec<Value>, usage: &Value) -> Value {
    let mut message = json!({
        "id": format!("msg_mock_{}_{}", about.place.turn, about.place.step),
        "type": "message",
        "role": "assistant",
        "model": about.model,
        "content": content,
        "stop_reason": null,
        "stop_sequence": null,
        "usage": usage,
    });
    if !about.transformations.is_empty() {
        message["input_transformations"] = json!(about.transformations);
    }
    message
}

/// The events of one answer.
struct Stream {
    about: About,
    /// The number of the block under way.
    index: usize,
    /// What signs the block under way.
    signature: Option<String>,
    /// What every delta of the block begins with, up to the token.
    before: Vec<u8>,
}

fn write(frame: &mut Frame, mark: Mark, name: &str, data: &Value) {
    frame.event(mark, |out| out.extend_from_slice(format!("event: {name}\ndata: {data}\n\n").as_bytes()));
}

impl Encode for Stream {
    fn start(&mut self, frame: &mut Frame) {
        // The provider counts the first token of the output here, and counts it again at the end.
        let tokens = Anthropic.reported(Tokens { output: 1, ..self.about.input });
        let (usage, mark) = match self.about.is_early {
            true => (Anthropic.usage(tokens, tokens.total()), Mark::Usage(tokens)),
            false => (json!({"output_tokens": 1}), Mark::Structure),
        };
        let data = json!({"type": "message_start", "message": message(&self.about, Vec::new(), &usage)});
        write(frame, mark, "message_start", &data);
        write(frame, Mark::Structure, "ping", &json!({"type": "ping"}));
    }

    fn begin(&mut self, part: &PartKind, frame: &mut Frame) {
        self.signature = None;
        let (block, delta) = match part {
            PartKind::Text | PartKind::Refusal => {
                (json!({"type": "text", "text": ""}), r#""text_delta","text":"#)
            }
            PartKind::Reasoning { signature } => {
                self.signature = Some(signature.as_deref().unwrap_or(SIGNATURE).to_owned());
                (
                    json!({"type": "thinking", "thinking": "", "signature": ""}),
                    r#""thinking_delta","thinking":"#,
                )
            }
            // It has no deltas.
            PartKind::Redacted { data } => (json!({"type": "redacted_thinking", "data": data}), ""),
            PartKind::Block { block } => {
                let mut begun = block.clone();
                if let Some(input) = begun.get_mut("input") {
                    *input = json!({});
                }
                (begun, r#""input_json_delta","partial_json":"#)
            }
            PartKind::Call { id, name } => (
                json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
                r#""input_json_delta","partial_json":"#,
            ),
        };
        let index = self.index;
        self.before = format!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":{index},\"delta\":{{\"type\":{delta}"
        )
        .into_bytes();
        let data = json!({"type": "content_block_start", "index": index, "content_block": block});
        write(frame, Mark::Structure, "content_block_start", &data);
    }

    fn delta(&mut self, token: &str, frame: &mut Frame) {
        frame.event(Mark::Token, |out| {
            out.extend_from_slice(&self.before);
            push_json(out, token);
            out.extend_from_slice(b"}}\n\n");
        });
    }

    fn end(&mut self, frame: &mut Frame) {
        let index = self.index;
        if let Some(signature) = &self.signature {
            let delta = json!({"type": "signature_delta", "signature": signature});
            let data = json!({"type": "content_block_delta", "index": index, "delta": delta});
            write(frame, Mark::Structure, "content_block_delta", &data);
        }
        let data = json!({"type": "content_block_stop", "index": index});
        write(frame, Mark::Structure, "content_block_stop", &data);
        self.index += 1;
    }

    fn finish(&mut self, ending: &Ending, frame: &mut Frame) {
        let mut reports = usage::reports(&Anthropic, ending);
        let last = reports.pop();
        for (usage, says) in reports {
            let delta = json!({"stop_reason": null, "stop_sequence": null});
            let data = json!({"type": "message_delta", "delta": delta, "usage": usage});
            write(frame, mark(says), "message_delta", &data);
        }
        let mut data = json!({
            "type": "message_delta",
            "delta": {"stop_reason": stop_reason(&ending.finish), "stop_sequence": null},
        });
        let mut marked = Mark::Structure;
        if let Some((usage, says)) = last {
            data["usage"] = usage;
            marked = mark(says);
        }
        write(frame, marked, "message_delta", &data);
        write(frame, Mark::Structure, "message_stop", &json!({"type": "message_stop"}));
    }

    fn error(&mut self, kind: &str, message: &str, frame: &mut Frame) {
        let kind = if kind.is_empty() { "overloaded_error" } else { kind };
        write(frame, Mark::Structure, "error", &error_value(kind, message));
    }
}

//! OpenAI Responses.
//!
//! An answer does not repeat the request's instructions and tools, as the provider's does.

mod request;
mod stream;

use playhouse_protocol::Tokens;
use serde_json::{Value, json};

use self::stream::Stream;
use super::openai_chat::{CREATED, OpenaiChat, write_writes};
use super::openai_error::{self, Api};
use super::{About, Asked, Dialect, Encode, Ending, PartKind, Rejected, Wire};
use crate::conversation::Place;
use crate::fault::Rejection;
use crate::rules::Refusal;
use crate::script::Finish;
use crate::usage;

/// The wire format.
pub(super) struct OpenaiResponses;

/// Where a model of this provider encrypts its reasoning: base64 of no meaning.
const ENCRYPTED: &str = "bW9jay1lbmNyeXB0ZWQtcmVhc29uaW5n";

impl Wire for OpenaiResponses {
    fn dialect(&self) -> Dialect {
        Dialect::OpenaiResponses
    }

    fn serves(&self, path: &str) -> bool {
        path.ends_with("/responses")
    }

    fn read(&self, _path: &str, _query: &str, body: &[u8]) -> Result<Asked, String> {
        request::read(body)
    }

    fn error(&self, status: u16, message: &str) -> Vec<u8> {
        openai_error::error(status, message)
    }

    fn refuse(&self, refusal: &Refusal) -> Vec<u8> {
        openai_error::refuse(refusal)
    }

    fn reject(&self, rejection: Rejection, about: &About, _is_stream: bool) -> Rejected {
        openai_error::reject(rejection, about, Api::Responses)
    }

    fn call_id(&self, place: Place, number: usize) -> String {
        OpenaiChat.call_id(place, number)
    }

    fn stream(&self, about: About) -> Box<dyn Encode> {
        Box::new(Stream::new(about))
    }

    fn whole(&self, about: &About, parts: &[(PartKind, String)], ending: &Ending) -> Vec<u8> {
        let items = parts.iter().enumerate();
        let output =
            items.map(|(index, (kind, text))| item(about, index, kind, Progress::Done(text))).collect();
        response(about, output, Some(ending)).to_string().into_bytes()
    }

    fn reported(&self, tokens: Tokens) -> Tokens {
        OpenaiChat.reported(tokens)
    }

    fn usage(&self, tokens: Tokens, total: u64) -> Value {
        let mut usage = json!({
            "input_tokens": tokens.all_input(),
            "input_tokens_details": {"cached_tokens": tokens.cache_read, "cache_write_tokens": 0},
            "output_tokens": tokens.output + tokens.reasoning,
            "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
            "total_tokens": total,
        });
        write_writes(&mut usage["input_tokens_details"], tokens);
        usage
    }
}

/// How far an item is.
#[derive(Clone, Copy)]
enum Progress<'a> {
    /// It begins.
    Begun,
    /// It has all of its text.
    Done(&'a str),
}

/// The id of item `index`, which begins with what kind of item it is.
fn item_id(about: &About, index: usize, kind: &PartKind) -> String {
    let prefix = match kind {
        PartKind::Text | PartKind::Refusal => "msg",
        PartKind::Reasoning { .. } | PartKind::Redacted { .. } => "rs",
        PartKind::Call { .. } => "fc",
        PartKind::Block { .. } => "tsc",
    };
    format!("{prefix}_mock_{}_{}_{index}", about.place.turn, about.place.step)
}

/// Item `index` of the output.
fn item(about: &About, index: usize, kind: &PartKind, progress: Progress<'_>) -> Value {
    let id = item_id(about, index, kind);
    let (status, text) = match progress {
        Progress::Begun => ("in_progress", None),
        Progress::Done(text) => ("completed", Some(text)),
    };
    match kind {
        PartKind::Text | PartKind::Refusal => {
            let content: Vec<Value> = text.map(|text| content_part(kind, text)).into_iter().collect();
            json!({"id": id, "type": "message", "status": status, "content": content, "role": "assistant"})
        }
        PartKind::Reasoning { .. } | PartKind::Redacted { .. } => {
            let is_told = matches!(kind, PartKind::Reasoning { .. });
            let summary: Vec<Value> = text.filter(|_| is_told).map(summary_part).into_iter().collect();
            let mut item = json!({"id": id, "type": "reasoning", "summary": summary});
            if about.wants.encrypted_reasoning {
                item["encrypted_content"] = json!(encrypted(kind));
            }
            item
        }
        PartKind::Call { id: call, name } => json!({
            "id": id, "type": "function_call", "status": status,
            "arguments": text.unwrap_or(""), "call_id": call, "name": name,
        }),
        PartKind::Block { block } => block.clone(),
    }
}

fn encrypted(kind: &PartKind) -> &str {
    match kind {
        PartKind::Reasoning { signature: Some(signature) } => signature,
        PartKind::Redacted { data } => data,
        _ => ENCRYPTED,
    }
}

fn summary_part(text: &str) -> Value {
    json!({"type": "summary_text", "text": text})
}

fn content_part(kind: &PartKind, text: &str) -> Value {
    match kind {
        PartKind::Refusal => json!({"type": "refusal", "refusal": text}),
        _ => json!({"type": "output_text", "annotations": [], "logprobs": [], "text": text}),
    }
}

/// Why an answer is incomplete.
fn incomplete(finish: &Finish) -> Option<&str> {
    match finish {
        Finish::Stop | Finish::ToolCalls | Finish::Refusal => None,
        Finish::Length => Some("max_output_tokens"),
        Finish::ContentFilter => Some("content_filter"),
        Finish::Other(words) => Some(words),
    }
}

/// The whole answer, under way or ended.
fn response(about: &About, output: Vec<Value>, ending: Option<&Ending>) -> Value {
    let reason = ending.and_then(|ending| incomplete(&ending.finish));
    let status = match (ending, reason) {
        (None, _) => "in_progress",
        (Some(_), None) => "completed",
        (Some(_), Some(_)) => "incomplete",
    };
    let reported = ending.and_then(|ending| usage::whole(&OpenaiResponses, ending));
    let mut response = json!({
        "id": format!("resp_mock_{}_{}", about.place.turn, about.place.step),
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "background": false,
        "error": null,
        "incomplete_details": reason.map(|reason| json!({"reason": reason})),
        "instructions": null,
        "max_output_tokens": null,
        "model": about.model,
        "output": output,
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "reasoning": {"effort": null, "summary": null},
        "store": false,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": reported.map(|(usage, _)| usage),
        "user": null,
        "metadata": {},
    });
    if let Some(tier) = ending.and_then(|ending| ending.reports.tier.as_ref()) {
        response["service_tier"] = json!(tier);
    }
    if !about.transformations.is_empty() {
        response["input_transformations"] = json!(about.transformations);
    }
    response
}

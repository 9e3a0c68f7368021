//! OpenAI Chat Completions. Reasoning is in `reasoning_content`, as compatible servers have it.

use std::borrow::Cow;

use playhouse_protocol::Tokens;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::content::{Content, carries_results, has_tools};
use super::frame::{Frame, Mark};
use super::openai_error::{self, Api};
use super::{
    About, Asked, Dialect, Encode, Ending, PartKind, Rejected, Wants, Wire, mark, push_json, read_json,
};
use crate::conversation::{Heard, MayCall, Place, Said, check_results, place};
use crate::fault::Rejection;
use crate::rules::Refusal;
use crate::script::Finish;
use crate::usage;

/// The wire format.
pub(super) struct OpenaiChat;

/// When every answer says it was made (seconds since the epoch), so that the same request gets the same bytes.
pub(super) const CREATED: u64 = 1_735_689_600;

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    tools: Option<Vec<IgnoredAny>>,
    #[serde(default)]
    tool_choice: Option<Value>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow, default)]
    content: Content<'a>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<Call<'a>>>,
    #[serde(borrow, default)]
    tool_call_id: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
}

impl Wire for OpenaiChat {
    fn dialect(&self) -> Dialect {
        Dialect::OpenaiChat
    }

    fn serves(&self, path: &str) -> bool {
        path.ends_with("/chat/completions")
    }

    fn read(&self, _path: &str, _query: &str, body: &[u8]) -> Result<Asked, String> {
        let request: Request<'_> = read_json(body)?;
        if request.messages.is_empty() {
            return Err("messages: at least one message is required".to_owned());
        }
        let has_tools = has_tools(&request.tools);
        if !has_tools && request.tool_choice.as_ref().is_some_and(|choice| !choice.is_null()) {
            return Err("tool_choice: is only allowed when tools are given".to_owned());
        }
        let may_call = match &request.tool_choice {
            _ if !has_tools => MayCall::NoTools,
            Some(choice) if choice == "none" => MayCall::Forbidden,
            _ => MayCall::Yes,
        };
        let mut prompt = String::new();
        let mut heard: Vec<Heard<'_>> = Vec::with_capacity(request.messages.len());
        for (number, message) in request.messages.into_iter().enumerate() {
            let read = read_message(message, &heard, &mut prompt)
                .map_err(|error| format!("messages.{number}: {error}"))?;
            heard.push(read);
        }
        check_results(&heard).map_err(|unmatched| unmatched.to_string())?;
        let said: Vec<Said> = heard.iter().map(|message| message.said).collect();
        Ok(Asked {
            model: request.model.into_owned(),
            stream: request.stream.unwrap_or(false),
            wants: Wants {
                stream_usage: request.stream_options.is_some_and(|options| options.include_usage),
                ..Wants::default()
            },
            place: place(&said, may_call),
            may_call: may_call == MayCall::Yes,
            prompt,
        })
    }

    fn error(&self, status: u16, message: &str) -> Vec<u8> {
        openai_error::error(status, message)
    }

    fn refuse(&self, refusal: &Refusal) -> Vec<u8> {
        openai_error::refuse(refusal)
    }

    fn reject(&self, rejection: Rejection, about: &About, _is_stream: bool) -> Rejected {
        openai_error::reject(rejection, about, Api::Chat)
    }

    fn call_id(&self, place: Place, number: usize) -> String {
        format!("call_mock_{}_{}_{number}", place.turn, place.step)
    }

    fn stream(&self, about: About) -> Box<dyn Encode> {
        let chunk = format!(
            r#"data: {{"id":"{}","object":"chat.completion.chunk","created":{CREATED},"model":{},"choices":["#,
            id(&about),
            json!(about.model)
        );
        Box::new(Stream {
            stream_usage: about.wants.stream_usage,
            chunk: chunk.into_bytes(),
            calls: 0,
            before: Vec::new(),
            after: b"",
        })
    }

    fn whole(&self, about: &About, parts: &[(PartKind, String)], ending: &Ending) -> Vec<u8> {
        let mut content = String::new();
        let mut reasoning = String::new();
        let mut refusal = String::new();
        let mut calls = Vec::new();
        for (kind, text) in parts {
            match kind {
                PartKind::Text => content.push_str(text),
                PartKind::Reasoning { .. } => reasoning.push_str(text),
                PartKind::Redacted { .. } | PartKind::Block { .. } => {}
                PartKind::Refusal => refusal.push_str(text),
                PartKind::Call { id, name } => calls.push(json!({
                    "id": id, "type": "function", "function": {"name": name, "arguments": text},
                })),
            }
        }
        let has_content = !content.is_empty() || (calls.is_empty() && refusal.is_empty());
        let mut message = json!({"role": "assistant", "content": has_content.then_some(content)});
        if !reasoning.is_empty() {
            message["reasoning_content"] = json!(reasoning);
        }
        if !refusal.is_empty() {
            message["refusal"] = json!(refusal);
        }
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        let mut answer = json!({
            "id": id(about),
            "object": "chat.completion",
            "created": CREATED,
            "model": about.model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish_reason(&ending.finish)}],
        });
        if let Some((usage, _)) = usage::whole(self, ending) {
            answer["usage"] = usage;
        }
        if let Some(tier) = &ending.reports.tier {
            answer["service_tier"] = json!(tier);
        }
        answer.to_string().into_bytes()
    }

    fn reported(&self, tokens: Tokens) -> Tokens {
        Tokens {
            input: tokens.input + tokens.cache_write_5m + tokens.cache_write_1h,
            cache_write_5m: 0,
            cache_write_1h: 0,
            ..tokens
        }
    }

    fn usage(&self, tokens: Tokens, total: u64) -> Value {
        let mut usage = json!({
            "prompt_tokens": tokens.all_input(),
            "completion_tokens": tokens.output + tokens.reasoning,
            "total_tokens": total,
            "prompt_tokens_details": {"cached_tokens": tokens.cache_read},
            "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
        });
        write_writes(&mut usage["prompt_tokens_details"], tokens);
        usage
    }
}

fn read_message<'a>(
    message: Message<'a>,
    before: &[Heard<'a>],
    prompt: &mut String,
) -> Result<Heard<'a>, String> {
    let content = message.content;
    Ok(match &*message.role {
        "system" | "developer" => Heard::plain(Said::Other),
        "user" if carries_results(&content, before) => Heard::plain(Said::Other),
        "user" => {
            *prompt = content.text();
            Heard::plain(Said::Prompt)
        }
        "assistant" => {
            let calls = message.tool_calls.unwrap_or_default();
            Heard { calls: calls.into_iter().map(|call| call.id).collect(), ..Heard::plain(Said::Answer) }
        }
        "tool" => {
            let id = message.tool_call_id.ok_or("a tool's message needs tool_call_id")?;
            Heard { results: vec![id], ..Heard::plain(Said::Results) }
        }
        role => {
            let known = "\"system\", \"developer\", \"user\", \"assistant\" or \"tool\"";
            return Err(format!("role \"{role}\" is not {known}"));
        }
    })
}

fn id(about: &About) -> String {
    format!("chatcmpl-mock-{}-{}", about.place.turn, about.place.step)
}

fn finish_reason(finish: &Finish) -> &str {
    match finish {
        // Who declines says so in a field of its own.
        Finish::Stop | Finish::Refusal => "stop",
        Finish::ToolCalls => "tool_calls",
        Finish::Length => "length",
        Finish::ContentFilter => "content_filter",
        Finish::Other(words) => words,
    }
}

/// What was written to caches, where something was: OpenAI's names.
pub(super) fn write_writes(details: &mut Value, tokens: Tokens) {
    if tokens.cache_writes() > 0 {
        details["cache_write_tokens"] = json!(tokens.cache_writes());
        details["cache_write_tokens_details"] =
            json!({"ttl_30m_tokens": tokens.cache_write_30m, "ttl_12h_tokens": tokens.cache_write_12h});
    }
}

/// The events of one answer.
struct Stream {
    stream_usage: bool,
    /// What every chunk begins with, up to its choices.
    chunk: Vec<u8>,
    /// Calls that began.
    calls: usize,
    /// What every delta of the part under way begins with, up to the token, and what follows it.
    before: Vec<u8>,
    after: &'static [u8],
}

impl Stream {
    fn choice(&self, frame: &mut Frame, delta: &Value, finish: Option<&str>) {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        frame.event(Mark::Structure, |out| {
            out.extend_from_slice(&self.chunk);
            out.extend_from_slice(choice.to_string().as_bytes());
            out.extend_from_slice(b"]}\n\n");
        });
    }

    fn delta_begins(&mut self, opening: &str, after: &'static [u8]) {
        self.before.clone_from(&self.chunk);
        self.before.extend_from_slice(br#"{"index":0,"delta":{"#);
        self.before.extend_from_slice(opening.as_bytes());
        self.after = after;
    }
}

impl Encode for Stream {
    fn start(&mut self, frame: &mut Frame) {
        self.choice(frame, &json!({"role": "assistant", "content": ""}), None);
    }

    fn begin(&mut self, part: &PartKind, frame: &mut Frame) {
        const AFTER_TEXT: &[u8] = b"},\"finish_reason\":null}]}\n\n";
        const AFTER_ARGUMENTS: &[u8] = b"}}]},\"finish_reason\":null}]}\n\n";
        match part {
            PartKind::Text => self.delta_begins(r#""content":"#, AFTER_TEXT),
            PartKind::Refusal => self.delta_begins(r#""refusal":"#, AFTER_TEXT),
            PartKind::Reasoning { .. } => self.delta_begins(r#""reasoning_content":"#, AFTER_TEXT),
            PartKind::Redacted { .. } | PartKind::Block { .. } => {}
            PartKind::Call { id, name } => {
                let index = self.calls;
                self.calls += 1;
                let function = json!({"name": name, "arguments": ""});
                let call = json!({"index": index, "id": id, "type": "function", "function": function});
                self.choice(frame, &json!({"tool_calls": [call]}), None);
                let opening = format!(r#""tool_calls":[{{"index":{index},"function":{{"arguments":"#);
                self.delta_begins(&opening, AFTER_ARGUMENTS);
            }
        }
    }

    fn delta(&mut self, token: &str, frame: &mut Frame) {
        frame.event(Mark::Token, |out| {
            out.extend_from_slice(&self.before);
            push_json(out, token);
            out.extend_from_slice(self.after);
        });
    }

    fn end(&mut self, _frame: &mut Frame) {}

    fn finish(&mut self, ending: &Ending, frame: &mut Frame) {
        self.choice(frame, &json!({}), Some(finish_reason(&ending.finish)));
        let reports = if self.stream_usage { usage::reports(&OpenaiChat, ending) } else { Vec::new() };
        let tier = ending.reports.tier.as_ref().map(|tier| format!(",\"service_tier\":{}", json!(tier)));
        let tier = tier.unwrap_or_default();
        for (usage, says) in reports {
            frame.event(mark(says), |out| {
                out.extend_from_slice(&self.chunk);
                out.extend_from_slice(format!("],\"usage\":{usage}{tier}}}\n\n").as_bytes());
            });
        }
        frame.event(Mark::Structure, |out| out.extend_from_slice(b"data: [DONE]\n\n"));
    }

    fn error(&mut self, kind: &str, message: &str, frame: &mut Frame) {
        let kind = if kind.is_empty() { "server_error" } else { kind };
        let data = openai_error::value(kind, None, None, message);
        frame.event(Mark::Structure, |out| out.extend_from_slice(format!("data: {data}\n\n").as_bytes()));
    }
}

//! OpenAI Chat Completions. Reasoning is in `reasoning_content`, as compatible servers have it.

use std::borrow::Cow;

use playhouse_protocol::Tokens;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::content::{Content, has_tools};
use super::frame::{Frame, Mark};
use super::{About, Asked, Dialect, Encode, Ending, PartKind, Wire, push_json, read_json};
use crate::conversation::{Heard, MayCall, Place, Said, check_results, place};
use crate::script::Finish;

/// The wire format.
pub(super) struct OpenaiChat;

/// When every answer says it was made (seconds since the epoch), so that the same request gets the same bytes.
const CREATED: u64 = 1_735_689_600;

/// Shorter ids of calls may stand in any text by chance.
const SHORTEST_NAMED_ID: usize = 6;

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

    fn read(&self, body: &[u8]) -> Result<Asked, String> {
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
        check_results(&heard)?;
        let said: Vec<Said> = heard.iter().map(|message| message.said).collect();
        Ok(Asked {
            model: request.model.into_owned(),
            stream: request.stream.unwrap_or(false),
            stream_usage: request.stream_options.is_some_and(|options| options.include_usage),
            place: place(&said, may_call),
            may_call: may_call == MayCall::Yes,
            prompt,
        })
    }

    fn error(&self, status: u16, message: &str) -> Vec<u8> {
        let (kind, code) = match status {
            401 => ("invalid_request_error", Some("invalid_api_key")),
            404 => ("invalid_request_error", Some("model_not_found")),
            429 => ("requests", Some("rate_limit_exceeded")),
            500..=599 => ("server_error", None),
            _ => ("invalid_request_error", None),
        };
        error_value(kind, code, message).to_string().into_bytes()
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
            stream_usage: about.stream_usage,
            chunk: chunk.into_bytes(),
            calls: 0,
            before: Vec::new(),
            after: b"",
        })
    }

    fn whole(&self, about: &About, parts: &[(PartKind, String)], ending: &Ending) -> Vec<u8> {
        let mut content = String::new();
        let mut reasoning = String::new();
        let mut calls = Vec::new();
        for (kind, text) in parts {
            match kind {
                PartKind::Text => content.push_str(text),
                PartKind::Reasoning => reasoning.push_str(text),
                PartKind::Call { id, name } => calls.push(json!({
                    "id": id, "type": "function", "function": {"name": name, "arguments": text},
                })),
            }
        }
        let has_content = !content.is_empty() || calls.is_empty();
        let mut message = json!({"role": "assistant", "content": has_content.then_some(content)});
        if !reasoning.is_empty() {
            message["reasoning_content"] = json!(reasoning);
        }
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        json!({
            "id": id(about),
            "object": "chat.completion",
            "created": CREATED,
            "model": about.model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish_reason(&ending.finish)}],
            "usage": usage(self.reported(ending.tokens)),
        })
        .to_string()
        .into_bytes()
    }

    fn reported(&self, tokens: Tokens) -> Tokens {
        Tokens {
            input: tokens.input + tokens.cache_write_5m + tokens.cache_write_1h,
            cache_write_5m: 0,
            cache_write_1h: 0,
            ..tokens
        }
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

/// Whether a user's message only brings the files of the results before it, which cannot hold them: it has no text of its
/// own, or its text names one of their calls.
fn carries_results(content: &Content<'_>, before: &[Heard<'_>]) -> bool {
    let mut results = before.iter().rev().take_while(|message| message.said == Said::Results).peekable();
    if results.peek().is_none() {
        return false;
    }
    let mut ids = results.flat_map(|message| &message.results).filter(|id| id.len() >= SHORTEST_NAMED_ID);
    content.texts.is_empty() || ids.any(|id| content.texts.iter().any(|text| text.contains(&**id)))
}

fn id(about: &About) -> String {
    format!("chatcmpl-mock-{}-{}", about.place.turn, about.place.step)
}

fn error_value(kind: &str, code: Option<&str>, message: &str) -> Value {
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

fn finish_reason(finish: &Finish) -> &str {
    match finish {
        Finish::Stop => "stop",
        Finish::ToolCalls => "tool_calls",
        Finish::Length => "length",
        Finish::ContentFilter => "content_filter",
        Finish::Other(words) => words,
    }
}

fn usage(tokens: Tokens) -> Value {
    let prompt = tokens.input + tokens.cache_read;
    let completion = tokens.output + tokens.reasoning;
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": tokens.cache_read},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
    })
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
            PartKind::Reasoning => self.delta_begins(r#""reasoning_content":"#, AFTER_TEXT),
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
        if self.stream_usage {
            let tokens = OpenaiChat.reported(ending.tokens);
            frame.event(Mark::Usage(tokens), |out| {
                out.extend_from_slice(&self.chunk);
                out.extend_from_slice(format!("],\"usage\":{}}}\n\n", usage(tokens)).as_bytes());
            });
        }
        frame.event(Mark::Structure, |out| out.extend_from_slice(b"data: [DONE]\n\n"));
    }

    fn error(&mut self, kind: &str, message: &str, frame: &mut Frame) {
        let data = error_value(kind, None, message);
        frame.event(Mark::Structure, |out| out.extend_from_slice(format!("data: {data}\n\n").as_bytes()));
    }
}

//! Requests, and answers read to their end.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use mock_llm::{Mock, MockResponse};
use serde_json::{Value, json};

/// Bounds a test that hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const MESSAGES: &str = "/v1/messages";
pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const RESPONSES: &str = "/v1/responses";

/// Where a stream is asked for in the Gemini format.
pub(crate) fn gemini_path(model: &str) -> String {
    format!("/v1beta/models/{model}:streamGenerateContent?alt=sse")
}

/// A streaming request in the Responses format, with a tool.
pub(crate) fn responses(model: &str, input: Value) -> Value {
    json!({"model": model, "stream": true, "include": ["reasoning.encrypted_content"],
        "tools": [{"type": "function", "name": "read"}], "input": input})
}

/// A request in the Gemini format, with a tool.
pub(crate) fn gemini(contents: Value) -> Value {
    json!({"tools": [{"functionDeclarations": [{"name": "read"}]}], "contents": contents})
}

/// A conversation of one prompt in the Gemini format.
pub(crate) fn gemini_prompt() -> Value {
    json!([{"role": "user", "parts": [{"text": "Fix the test."}]}])
}

/// The answers to one prompt in every format: Anthropic, Chat Completions, Responses, Gemini.
pub(crate) async fn ask_all(mock: &Mock, model: &str) -> [Answer; 4] {
    [
        ask(mock, MESSAGES, &messages(model, prompt())).await,
        ask(mock, CHAT, &chat(model, prompt())).await,
        ask(mock, RESPONSES, &responses(model, prompt())).await,
        ask(mock, &gemini_path(model), &gemini(gemini_prompt())).await,
    ]
}

/// The same, each in one piece.
pub(crate) async fn ask_all_whole(mock: &Mock, model: &str) -> [Answer; 4] {
    let whole = |mut request: Value| {
        request["stream"] = json!(false);
        request
    };
    let path = format!("/v1beta/models/{model}:generateContent");
    [
        ask(mock, MESSAGES, &whole(messages(model, prompt()))).await,
        ask(mock, CHAT, &whole(chat(model, prompt()))).await,
        ask(mock, RESPONSES, &whole(responses(model, prompt()))).await,
        ask(mock, &path, &gemini(gemini_prompt())).await,
    ]
}

/// A streaming request in the Anthropic format, with a tool.
pub(crate) fn messages(model: &str, messages: Value) -> Value {
    json!({"model": model, "max_tokens": 100, "stream": true, "tools": [{"name": "read"}], "messages": messages})
}

/// A streaming request in the OpenAI format, with a tool.
pub(crate) fn chat(model: &str, messages: Value) -> Value {
    json!({"model": model, "stream": true, "stream_options": {"include_usage": true},
        "tools": [{"type": "function", "function": {"name": "read"}}], "messages": messages})
}

/// A conversation of one prompt.
pub(crate) fn prompt() -> Value {
    json!([{"role": "user", "content": "Fix the test."}])
}

/// An answer that was read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) text: String,
    pub(crate) frames: usize,
    pub(crate) error: Option<io::Error>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The data of each event that is JSON.
    pub(crate) fn events(&self) -> Vec<Value> {
        let data = self.text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    /// How many events there are, whole ones only.
    pub(crate) fn event_count(&self) -> usize {
        self.text.replace("\r\n", "\n").matches("\n\n").count()
    }

    /// The text that the events carry, in any format.
    pub(crate) fn said(&self) -> String {
        let deltas = self.events();
        let texts = deltas.iter().filter_map(|event| {
            let part = &event["candidates"][0]["content"]["parts"][0];
            let is_text = event["type"] == "response.output_text.delta";
            event["delta"]["text"]
                .as_str()
                .or_else(|| event["choices"][0]["delta"]["content"].as_str())
                .or_else(|| event["delta"].as_str().filter(|_| is_text))
                .or_else(|| part["text"].as_str().filter(|_| part["thought"] != true))
        });
        texts.collect()
    }

    /// Each tool that the events call, with the id of the call and its arguments, in any format.
    pub(crate) fn whole_calls(&self) -> Vec<(String, String, String)> {
        let mut calls: Vec<(String, String, String)> = Vec::new();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for event in self.events() {
            let delta = &event["choices"][0]["delta"]["tool_calls"][0];
            let call = &event["candidates"][0]["content"]["parts"][0]["functionCall"];
            let begins = [&event["content_block"], delta, &event["item"]]
                .into_iter()
                .find(|begin| begin["name"].is_string() || begin["function"]["name"].is_string())
                .filter(|_| event["type"] != "response.output_item.done");
            if let Some(begin) = begins {
                let name =
                    if begin["name"].is_string() { &begin["name"] } else { &begin["function"]["name"] };
                let id = if begin["call_id"].is_string() { &begin["call_id"] } else { &begin["id"] };
                calls.push((text(name), text(id), String::new()));
            }
            if call.is_object() {
                calls.push((text(&call["name"]), text(&call["id"]), call["args"].to_string()));
            }
            let piece = event["delta"]["partial_json"]
                .as_str()
                .or_else(|| delta["function"]["arguments"].as_str())
                .or_else(|| event["delta"].as_str())
                .filter(|_| event["type"] != "response.output_text.delta");
            if let (Some(piece), Some(call)) = (piece, calls.last_mut()) {
                call.2.push_str(piece);
            }
        }
        calls
    }

    /// Names of the tools that the events call, in any format.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.whole_calls().into_iter().map(|(name, ..)| name).collect()
    }
}

pub(crate) async fn read(response: MockResponse) -> Answer {
    let MockResponse { status, headers, mut body } = response;
    let mut answer = Answer { status, headers, text: String::new(), frames: 0, error: None };
    let mut bytes = Vec::new();
    while let Some(frame) = body.next().await {
        match frame {
            Ok(frame) => {
                assert!(!frame.is_empty(), "an empty frame");
                bytes.extend_from_slice(&frame);
                answer.frames += 1;
            }
            Err(error) => answer.error = Some(error),
        }
    }
    answer.text = String::from_utf8(bytes).unwrap();
    answer
}

pub(crate) async fn ask(mock: &Mock, path: &str, request: &Value) -> Answer {
    read(mock.respond(path, &[], Bytes::from(request.to_string())).await).await
}

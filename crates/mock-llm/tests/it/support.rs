//! Requests, and answers read to their end.

use std::io;

use bytes::Bytes;
use futures::StreamExt;
use mock_llm::{Mock, MockResponse};
use serde_json::{Value, json};

pub(crate) const MESSAGES: &str = "/v1/messages";
pub(crate) const CHAT: &str = "/v1/chat/completions";

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

    /// The text that the events carry, in either format.
    pub(crate) fn said(&self) -> String {
        let deltas = self.events();
        let texts = deltas.iter().filter_map(|event| {
            event["delta"]["text"].as_str().or_else(|| event["choices"][0]["delta"]["content"].as_str())
        });
        texts.collect()
    }

    /// Names of the tools that the events call, in either format.
    pub(crate) fn calls(&self) -> Vec<String> {
        let events = self.events();
        let names = events.iter().filter_map(|event| {
            event["content_block"]["name"]
                .as_str()
                .or_else(|| event["choices"][0]["delta"]["tool_calls"][0]["function"]["name"].as_str())
        });
        names.map(str::to_owned).collect()
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

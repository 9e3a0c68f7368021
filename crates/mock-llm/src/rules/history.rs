//! A request's conversation as a sequence of pieces, in every wire format.

use serde_json::Value;

use super::canonical::{hash_json, hash_of, mix, text_blocks};
use super::gemini::{SKIP_SIGNATURE, either, signature};
use super::refusal::{given, list};
use crate::wire::Dialect;

/// A conversation.
#[derive(Debug)]
pub(super) struct History<'a> {
    /// The hash of what stands before all messages: tools, instructions.
    pub(super) base: u64,
    /// The pieces, in order.
    pub(super) pieces: Vec<Piece<'a>>,
}

/// A piece of a conversation.
#[derive(Debug)]
pub(super) enum Piece<'a> {
    /// A piece that the model did not say.
    Asked(u64),
    /// A piece that the model said.
    Said {
        hash: u64,
        /// The id (or name, without ids) of the call that it is.
        call: Option<&'a str>,
        /// The text that it is.
        text: Option<&'a str>,
    },
    /// Reasoning.
    Thought(Thought<'a>),
}

/// A block of reasoning in a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thought<'a> {
    /// The number of its message, or of its item.
    pub(super) message: usize,
    /// Its number in the message.
    pub(super) content: usize,
    /// Its type or its id, as errors name it.
    pub(super) name: &'a str,
    /// Its signature; absent where the format has none.
    pub(super) signature: Option<&'a str>,
    /// Its text, where that must come back unchanged.
    pub(super) text: Option<&'a str>,
}

impl<'a> History<'a> {
    /// Reads a request. `binds_instructions` is whether `instructions` of Responses count.
    pub(super) fn read(dialect: Dialect, request: &'a Value, binds_instructions: bool) -> Self {
        match dialect {
            Dialect::Anthropic => anthropic(request),
            Dialect::OpenaiChat => chat(request),
            Dialect::OpenaiResponses => responses(request, binds_instructions),
            Dialect::Gemini => gemini(request),
        }
    }
}

/// The hash of a field of the request; absent, null and an empty list are the same.
fn field(request: &Value, name: &str) -> u64 {
    match given(request, name) {
        Some(Value::String(text)) => hash_json(&text_blocks(text), &[]),
        Some(value) => hash_json(value, &[]),
        None => hash_json(&Value::Array(Vec::new()), &[]),
    }
}

fn anthropic(request: &Value) -> History<'_> {
    let base = mix(field(request, "system"), field(request, "tools"));
    let mut pieces = Vec::new();
    for (message, value) in list(request, "messages").iter().enumerate() {
        let role = value["role"].as_str().unwrap_or_default();
        let is_said = role == "assistant";
        let role = hash_of(role);
        if let Some(text) = value["content"].as_str() {
            let block = hash_json(&serde_json::json!({"type": "text", "text": text}), &[]);
            pieces.push(piece(is_said, mix(role, block), None, Some(text)));
        }
        for (content, block) in list(value, "content").iter().enumerate() {
            let text = |name: &str| block.get(name).and_then(Value::as_str);
            let kind = text("type").unwrap_or_default();
            if is_said && matches!(kind, "thinking" | "redacted_thinking") {
                pieces.push(Piece::Thought(Thought {
                    message,
                    content,
                    name: kind,
                    signature: text("signature").or(text("data")),
                    text: text("thinking"),
                }));
                continue;
            }
            let call = text("id").filter(|_| kind == "tool_use");
            let hash = mix(role, hash_json(block, &[]));
            pieces.push(piece(is_said, hash, call, text("text").filter(|_| kind == "text")));
        }
    }
    History { base, pieces }
}

fn piece<'a>(is_said: bool, hash: u64, call: Option<&'a str>, text: Option<&'a str>) -> Piece<'a> {
    if is_said { Piece::Said { hash, call, text } } else { Piece::Asked(hash) }
}

/// Reasoning here has no signature, and is no part of what stands before later reasoning.
fn chat(request: &Value) -> History<'_> {
    let base = field(request, "tools");
    let mut pieces = Vec::new();
    for (message, value) in list(request, "messages").iter().enumerate() {
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        let hash = hash_json(value, &["reasoning_content"]);
        if text("role") != Some("assistant") {
            pieces.push(Piece::Asked(hash));
            continue;
        }
        if let Some(reasoning) = text("reasoning_content").filter(|text| !text.trim().is_empty()) {
            let name = "reasoning_content";
            let text = Some(reasoning);
            pieces.push(Piece::Thought(Thought { message, content: 0, name, signature: None, text }));
        }
        pieces.push(Piece::Said { hash, call: None, text: text("content") });
        for call in list(value, "tool_calls") {
            pieces.push(Piece::Said { hash: 0, call: call["id"].as_str(), text: None });
        }
    }
    History { base, pieces }
}

fn responses(request: &Value, binds_instructions: bool) -> History<'_> {
    // What a provider fills in where it is absent is not a change.
    let plain = serde_json::json!({"type": "text"});
    let format = given(&request["text"], "format").unwrap_or(&plain);
    let mut base = mix(field(request, "tools"), hash_json(format, &[]));
    if binds_instructions {
        base = mix(base, field(request, "instructions"));
    }
    let mut pieces = Vec::new();
    if let Some(text) = request["input"].as_str() {
        let item = serde_json::json!({"role": "user", "content": text});
        pieces.push(Piece::Asked(item_hash(&item)));
    }
    for (message, item) in list(request, "input").iter().enumerate() {
        let text = |name: &str| item.get(name).and_then(Value::as_str);
        match text("type").unwrap_or("message") {
            "reasoning" => pieces.push(Piece::Thought(Thought {
                message,
                content: 0,
                name: text("id").unwrap_or_default(),
                signature: text("encrypted_content"),
                text: None,
            })),
            "function_call" => {
                pieces.push(Piece::Said { hash: item_hash(item), call: text("call_id"), text: None });
            }
            "message" if text("role") == Some("assistant") => {
                pieces.push(Piece::Said { hash: item_hash(item), call: None, text: text("content") });
                for part in list(item, "content") {
                    pieces.push(Piece::Said { hash: 0, call: None, text: part["text"].as_str() });
                }
            }
            _ => pieces.push(Piece::Asked(item_hash(item))),
        }
    }
    History { base, pieces }
}

/// The hash of an item of Responses. Its id, its status and the parts that a provider fills in do not count.
fn item_hash(item: &Value) -> u64 {
    const FILLED_IN: [&str; 5] = ["id", "status", "phase", "content", "type"];
    let content = match item.get("content") {
        Some(Value::String(text)) => mix(1, hash_of(text.as_str())),
        Some(Value::Array(parts)) => parts.iter().fold(1, |hash, part| match part["text"].as_str() {
            Some(text) => mix(hash, hash_of(text)),
            None => mix(hash, hash_json(part, &[])),
        }),
        _ => 0,
    };
    let kind = item["type"].as_str().unwrap_or("message");
    mix(mix(hash_of(kind), hash_json(item, &FILLED_IN)), content)
}

fn gemini(request: &Value) -> History<'_> {
    let instruction = either(request, "systemInstruction", "system_instruction").unwrap_or(&Value::Null);
    let base = mix(hash_json(instruction, &[]), field(request, "tools"));
    let mut pieces = Vec::new();
    for (message, value) in list(request, "contents").iter().enumerate() {
        let is_said = value["role"] == "model";
        for (content, part) in list(value, "parts").iter().enumerate() {
            if let Some(signature) = signature(part).filter(|signature| *signature != SKIP_SIGNATURE) {
                let (name, signature) = ("thought", Some(signature));
                pieces.push(Piece::Thought(Thought { message, content, name, signature, text: None }));
            }
            let text = part["text"].as_str();
            if part["thought"] == true || text.is_some_and(str::is_empty) {
                continue;
            }
            let call = either(part, "functionCall", "function_call").and_then(|call| call["name"].as_str());
            let hash = hash_json(part, &["thoughtSignature", "thought_signature"]);
            pieces.push(piece(is_said, mix(u64::from(is_said), hash), call, text));
        }
    }
    History { base, pieces }
}

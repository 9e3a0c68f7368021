//! Answers of Gemini. Every chunk is a whole answer as far as its form goes: parts, and perhaps a reason.

use playhouse_protocol::error::ErrorCode;
use playhouse_protocol::message::FinishReason;
use playhouse_protocol::{ErrorInfo, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::decode::{Answer, Batch, Decode, Parts, Removals, bad, cut, is_done, is_nothing, parse};
use crate::failure;
use crate::json::{Text, fitting, text};
use crate::repair::Repair;
use crate::usage::{Reported, UsageConvention};

/// The state of an answer under way.
pub(super) struct Decoder {
    /// What is being said.
    current: Current,
    /// The signature of the text that is being said.
    signature: Option<String>,
    /// What was said so far.
    parts: Parts,
    /// Why the answer ended, in the provider's word.
    finish_reason: Option<String>,
    /// Whether more came after that, so that it says nothing about what may follow.
    went_on: bool,
    /// What the provider said about it.
    finish_message: Option<String>,
    /// Whether `[DONE]` came, which is no part of this dialect.
    done: bool,
    /// Whether that is why the prompt was not answered at all.
    blocked: bool,
    /// What was reported so far.
    usage: Reported,
    /// Whether figures came with the end: earlier ones are totals up to there.
    usage_is_final: bool,
    /// The model that says it answers.
    model: Option<String>,
}

#[derive(Clone, Copy, PartialEq)]
enum Current {
    Nothing,
    Text,
    Thought,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chunk<'a> {
    #[serde(borrow)]
    candidates: Option<Vec<Candidate<'a>>>,
    #[serde(borrow)]
    prompt_feedback: Option<Feedback<'a>>,
    #[serde(default, deserialize_with = "fitting")]
    usage_metadata: Option<Map<String, Value>>,
    #[serde(borrow, default, deserialize_with = "fitting")]
    model_version: Option<Text<'a>>,
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback<'a> {
    #[serde(borrow)]
    block_reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(default, deserialize_with = "fitting")]
    index: Option<u64>,
    #[serde(borrow)]
    content: Option<Content<'a>>,
    #[serde(borrow)]
    finish_reason: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "fitting")]
    finish_message: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    parts: Option<Vec<Part<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(default, deserialize_with = "fitting")]
    thought: Option<bool>,
    #[serde(borrow, default, deserialize_with = "fitting")]
    thought_signature: Option<Text<'a>>,
    #[serde(borrow)]
    function_call: Option<FunctionCall<'a>>,
}

#[derive(Deserialize)]
struct FunctionCall<'a> {
    #[serde(borrow, default, deserialize_with = "fitting")]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
}

impl Decode for Decoder {
    fn event(&mut self, name: &str, data: &str, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        if is_done(data) {
            self.done = true;
            self.close(batch);
            return Ok(());
        }
        if name == "error" {
            let error = if is_nothing(data) { Value::Null } else { parse(name, data)? };
            return Err(failure::in_stream(&error));
        }
        if is_nothing(data) {
            return Ok(());
        }
        let chunk: Chunk<'_> = parse("chunk", data)?;
        if let Some(error) = chunk.error {
            return Err(failure::in_stream(&error));
        }
        if self.model.is_none() {
            self.model = chunk.model_version.map(|model| model.to_string());
        }
        for candidate in chunk.candidates.into_iter().flatten() {
            if candidate.index.unwrap_or(0) == 0 {
                self.candidate(&candidate, batch)?;
            }
        }
        let blocked = chunk.prompt_feedback.and_then(|feedback| feedback.block_reason);
        if let Some(reason) = blocked.filter(|reason| !reason.is_empty()) {
            self.close(batch);
            self.finish_reason = Some(reason.to_string());
            self.blocked = true;
        }
        if let Some(usage) = chunk.usage_metadata {
            self.usage_is_final |= self.finish_reason.is_some() && !usage.is_empty();
            self.usage.add(&usage);
        }
        Ok(())
    }

    /// The dialect has no marker: the body ends.
    fn is_complete(&self) -> bool {
        self.done
    }

    fn is_whole(&self) -> bool {
        self.done || (self.finish_reason.is_some() && !self.went_on)
    }

    fn end(&mut self, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        if self.finish_reason.is_some() {
            self.close(batch);
        }
        Ok(())
    }

    fn usage(&self) -> Option<Usage> {
        self.usage.usage(self.model.as_deref())
    }

    fn usage_reports(&self) -> u64 {
        self.usage.reports()
    }

    fn finish(&mut self) -> Result<Answer, ErrorInfo> {
        let reported = match self.finish_reason.as_deref() {
            Some(reported) => reported,
            None if self.done => {
                self.parts.note(Repair::HalfAnEnd);
                DONE
            }
            None => return Err(cut("finishReason")),
        };
        let finish = match reported {
            DONE => FinishReason::Stop,
            _ if self.blocked => FinishReason::ContentFilter,
            "STOP" => FinishReason::Stop,
            "MAX_TOKENS" => FinishReason::Length,
            "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII"
            | "IMAGE_SAFETY" | "MODEL_ARMOR" => FinishReason::ContentFilter,
            "MALFORMED_FUNCTION_CALL"
            | "UNEXPECTED_TOOL_CALL"
            | "TOO_MANY_TOOL_CALLS"
            | "MISSING_THOUGHT_SIGNATURE" => {
                let said = self.finish_message.as_deref().unwrap_or("no more was said");
                let what = format!("the model's call could not be read ({reported}): {said}");
                return Err(ErrorInfo::new(ErrorCode::BadAnswer, what));
            }
            _ => FinishReason::Other,
        };
        let finish = self.parts.settle(finish, reported)?;
        let usage = self.usage.usage(self.model.as_deref()).filter(|_| self.usage_is_final);
        let (model, repairs) = (self.model.take(), self.parts.take_repairs());
        Ok(Answer { finish, usage, model, repairs, removals: Removals::default() })
    }
}

impl Decoder {
    pub(super) fn new(usage: UsageConvention) -> Self {
        Self {
            current: Current::Nothing,
            signature: None,
            parts: Parts::default(),
            finish_reason: None,
            went_on: false,
            finish_message: None,
            done: false,
            blocked: false,
            usage: Reported::new(usage),
            usage_is_final: false,
            model: None,
        }
    }

    fn candidate(&mut self, candidate: &Candidate<'_>, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        let parts = candidate.content.as_ref().and_then(|content| content.parts.as_ref());
        for part in parts.into_iter().flatten() {
            self.part(part, batch)?;
        }
        if let Some(reason) = candidate.finish_reason.as_deref().filter(|reason| !reason.is_empty()) {
            self.finish_reason = Some(reason.to_owned());
            self.finish_message = candidate.finish_message.as_deref().map(str::to_owned);
        }
        Ok(())
    }

    fn part(&mut self, part: &Part<'_>, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        let signature = text(&part.thought_signature);
        if let Some(call) = &part.function_call {
            return self.call(call, signature, batch);
        }
        let piece = text(&part.text);
        if self.finish_reason.is_some() && !piece.is_empty() {
            self.go_on();
        }
        let kind = if part.thought == Some(true) { Current::Thought } else { Current::Text };
        if !piece.is_empty() || (kind == Current::Thought && !signature.is_empty()) {
            self.begin(kind, batch);
        }
        match kind {
            Current::Thought => self.parts.reasoning(piece, batch),
            _ => self.parts.text(piece, batch),
        }
        match kind {
            _ if signature.is_empty() => {}
            Current::Thought => self.parts.opaque(signed(signature, "thought"), batch),
            // It stands after the text, which may still go on.
            _ => self.signature = Some(signature.to_owned()),
        }
        Ok(())
    }

    fn call(
        &mut self,
        call: &FunctionCall<'_>,
        signature: &str,
        batch: &mut Batch<'_>,
    ) -> Result<(), ErrorInfo> {
        let name = text(&call.name);
        if name.is_empty() {
            return Err(bad("a call has no name"));
        }
        if self.finish_reason.is_some() {
            self.go_on();
        }
        self.close(batch);
        if !signature.is_empty() {
            self.parts.opaque(signed(signature, "call"), batch);
            self.parts.end(batch);
        }
        let number = self.parts.call(text(&call.id), name, batch);
        let arguments = call.args.map_or("", RawValue::get);
        // Some servers send the text of an object, as other dialects have it.
        let inner: Option<String> = serde_json::from_str(arguments).ok();
        let arguments = match &inner {
            Some(inner) if inner.trim_start().starts_with('{') => inner,
            _ if arguments == "null" => "",
            _ => arguments,
        };
        self.parts.arguments(number, arguments, batch);
        self.parts.end(batch);
        Ok(())
    }

    /// More came after the reason.
    fn go_on(&mut self) {
        if !self.went_on {
            self.went_on = true;
            self.parts.note(Repair::OutOfOrder);
        }
    }

    /// Ends the part under way where another kind of part begins.
    fn begin(&mut self, kind: Current, batch: &mut Batch<'_>) {
        if self.current != kind {
            self.close(batch);
            self.current = kind;
        }
    }

    /// Ends the part under way, with its signature after it.
    fn close(&mut self, batch: &mut Batch<'_>) {
        self.parts.end(batch);
        self.current = Current::Nothing;
        if let Some(signature) = self.signature.take() {
            self.parts.opaque(signed(&signature, "text"), batch);
            self.parts.end(batch);
        }
    }
}

/// Stands for the reason of an answer that has none.
const DONE: &str = "[DONE]";

/// A signature, and what it goes back on.
fn signed(signature: &str, on: &str) -> Value {
    json!({"thought_signature": signature, "on": on})
}

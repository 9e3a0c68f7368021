//! Answers of Chat Completions.

use playhouse_protocol::error::ErrorCode;
use playhouse_protocol::message::FinishReason;
use playhouse_protocol::{ErrorInfo, Usage};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::calls::{Calls, Piece};
use super::content::Content;
use super::details::{self, Details, List};
use crate::decode::{Answer, Batch, Decode, Parts, Removals, cut, is_done, is_nothing, parse};
use crate::failure;
use crate::form::Form;
use crate::json::{Arguments, Text, arguments, fitting, text};
use crate::members;
use crate::repair::Repair;
use crate::usage::{Reported, UsageConvention};

/// The state of an answer under way.
pub(super) struct Decoder {
    /// What stands around the text of events that are nothing but more of what is being said.
    form: Form,
    /// What is being said.
    current: Current,
    /// What was said so far.
    parts: Parts,
    /// The calls, in the order in which they began.
    calls: Calls,
    /// Reasoning that goes back as it came.
    details: Details,
    /// Whether the model refused in words.
    refused: bool,
    /// Why the answer ended, in the provider's word.
    finish_reason: Option<String>,
    /// Whether more came after that, so that it says nothing about what may follow.
    went_on: bool,
    /// Whether `[DONE]` came.
    done: bool,
    /// What was reported so far.
    usage: Reported,
    /// The model that says it answers.
    model: Option<String>,
}

#[derive(Clone, Copy, PartialEq)]
enum Current {
    Nothing,
    Text,
    Reasoning,
    Call,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default, deserialize_with = "fitting")]
    model: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "fitting")]
    object: Option<Text<'a>>,
    #[serde(borrow)]
    choices: Option<Vec<Choice<'a>>>,
    usage: Option<Value>,
    /// Where Groq puts figures as well.
    #[serde(default, deserialize_with = "fitting")]
    x_groq: Option<Members>,
    #[serde(borrow, default, deserialize_with = "fitting")]
    service_tier: Option<Text<'a>>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Members {
    usage: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default, deserialize_with = "fitting")]
    index: Option<u64>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    /// All of it at once, from a server that does not stream.
    #[serde(borrow, default, deserialize_with = "fitting")]
    message: Option<Delta<'a>>,
    #[serde(borrow, default, deserialize_with = "fitting")]
    finish_reason: Option<Text<'a>>,
    /// Where Moonshot puts figures as well.
    #[serde(default, deserialize_with = "fitting")]
    usage: Option<Map<String, Value>>,
}

#[derive(Default, Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<Content<'a>>,
    #[serde(borrow, default, deserialize_with = "fitting")]
    refusal: Option<Text<'a>>,
    // Reasoning has two names, by server.
    #[serde(borrow, default, deserialize_with = "fitting")]
    reasoning_content: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "fitting")]
    reasoning: Option<Text<'a>>,
    #[serde(default, deserialize_with = "fitting")]
    reasoning_details: Option<List>,
    #[serde(default, deserialize_with = "fitting")]
    thinking_blocks: Option<List>,
    // What goes back with the message.
    #[serde(default, deserialize_with = "fitting")]
    extra_content: Option<Value>,
    #[serde(default, deserialize_with = "fitting")]
    provider_specific_fields: Option<Value>,
    #[serde(default, deserialize_with = "fitting")]
    reasoning_opaque: Option<Value>,
    #[serde(borrow)]
    tool_calls: Option<Vec<CallDelta<'a>>>,
}

#[derive(Deserialize)]
struct CallDelta<'a> {
    #[serde(default, deserialize_with = "fitting")]
    index: Option<u64>,
    #[serde(borrow, default, deserialize_with = "fitting")]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    function: Option<FunctionDelta<'a>>,
    // What goes back with the call.
    #[serde(default, deserialize_with = "fitting")]
    extra_content: Option<Value>,
    #[serde(default, deserialize_with = "fitting")]
    provider_specific_fields: Option<Value>,
    #[serde(default, deserialize_with = "fitting")]
    thought_signature: Option<Value>,
}

#[derive(Deserialize)]
struct FunctionDelta<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    arguments: Option<Arguments<'a>>,
}

impl Delta<'_> {
    fn take_lists(&mut self) -> (List, List) {
        let mut list = |list: fn(&mut Self) -> &mut Option<List>| list(self).take().unwrap_or_default();
        (list(|delta| &mut delta.reasoning_details), list(|delta| &mut delta.thinking_blocks))
    }

    /// What goes back with the message.
    fn members(&self) -> Option<Value> {
        members::kept([
            ("extra_content", &self.extra_content),
            ("provider_specific_fields", &self.provider_specific_fields),
            ("reasoning_opaque", &self.reasoning_opaque),
        ])
    }
}

impl CallDelta<'_> {
    /// What goes back with the call.
    fn members(&self) -> Option<Value> {
        members::kept([
            ("extra_content", &self.extra_content),
            ("provider_specific_fields", &self.provider_specific_fields),
            ("thought_signature", &self.thought_signature),
        ])
    }
}

impl Choice<'_> {
    /// The text or the reasoning that this adds to what is being said, if that is all of it.
    fn only_piece(&self) -> Option<&str> {
        let delta = self.delta.as_ref()?;
        let has_more = !text(&self.finish_reason).is_empty()
            || !text(&delta.refusal).is_empty()
            || delta.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty());
        if has_more {
            return None;
        }
        let said = match &delta.content {
            Some(Content::Text(said)) => &**said,
            Some(Content::Pieces(_)) => return None,
            None => "",
        };
        match (said, text(&delta.reasoning_content), text(&delta.reasoning)) {
            (said, "", "") if !said.is_empty() => Some(said),
            ("", "", thought) | ("", thought, "") if !thought.is_empty() => Some(thought),
            _ => None,
        }
    }
}

impl Decode for Decoder {
    fn event(&mut self, name: &str, data: &str, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        if let Some(piece) = self.form.piece(name, data) {
            match self.current {
                Current::Reasoning => self.thought(piece, batch),
                _ => self.said(piece, batch),
            }
            return Ok(());
        }
        self.form.forget(name);
        if is_done(data) {
            self.close(batch)?;
            self.done = true;
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
        if text(&chunk.object) == "error" {
            return Err(failure::in_stream(&parse(name, data)?));
        }
        if self.model.is_none() {
            self.model = chunk.model.filter(|model| !model.is_empty()).map(|model| model.to_string());
        }
        if let Some(tier) = &chunk.service_tier {
            self.usage.tier(tier);
        }
        let elsewhere = chunk.choices.iter().flatten().find_map(|choice| choice.usage.as_ref());
        let elsewhere = elsewhere.or(chunk.x_groq.as_ref().and_then(|members| members.usage.as_ref()));
        let is_elsewhere = elsewhere.is_some();
        if let Some(usage) = elsewhere {
            self.usage.add(usage);
        }
        let has_figures = chunk.usage.is_some();
        if let Some(Value::Object(usage)) = chunk.usage
            // Some servers end with an empty one, which takes nothing back.
            && !usage.is_empty()
        {
            self.usage.add(&usage);
        }
        // Figures by themselves follow the answer.
        if self.finish_reason.is_some() && has_figures && chunk.choices.as_ref().is_none_or(Vec::is_empty) {
            self.close(batch)?;
        }
        let is_all =
            !has_figures && !is_elsewhere && chunk.choices.as_ref().is_some_and(|choices| choices.len() == 1);
        for mut choice in chunk.choices.into_iter().flatten() {
            if choice.index.unwrap_or(0) == 0 {
                if let Some(message) = choice.message.take().filter(|_| !self.has_any()) {
                    choice.delta = Some(message);
                }
                let lists = choice.delta.as_mut().map(Delta::take_lists).unwrap_or_default();
                let is_plain = is_all && lists.0.is_empty() && lists.1.is_empty();
                let piece = choice.only_piece().filter(|_| is_plain);
                self.choice(&choice, lists, batch)?;
                if let Some(piece) = piece {
                    self.form.learn(data, piece);
                }
            }
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.done
    }

    fn is_whole(&self) -> bool {
        self.done || (self.finish_reason.is_some() && !self.went_on)
    }

    fn end(&mut self, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        if self.finish_reason.is_some() { self.close(batch) } else { Ok(()) }
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
            None if self.done && self.parts.are_calls_whole() => {
                self.parts.note(Repair::HalfAnEnd);
                DONE
            }
            None => return Err(cut("finish_reason")),
        };
        let finish = match reported {
            "stop" | DONE if self.refused => FinishReason::ContentFilter,
            "stop" => self.parts.stopped(),
            DONE => FinishReason::Stop,
            "tool_calls" | "function_call" => FinishReason::ToolCalls,
            "length" | "model_length" => FinishReason::Length,
            "error" | "abort" | "insufficient_system_resource" => {
                let what = format!("the server gave up in the middle of the answer (\"{reported}\")");
                return Err(ErrorInfo::new(ErrorCode::ProviderUnavailable, what));
            }
            "content_filter" => FinishReason::ContentFilter,
            _ => FinishReason::Other,
        };
        let finish = self.parts.settle(finish, reported)?;
        let usage = self.usage();
        let (model, repairs) = (self.model.take(), self.parts.take_repairs());
        Ok(Answer { finish, usage, model, repairs, removals: Removals::default() })
    }
}

impl Decoder {
    pub(super) fn new(usage: UsageConvention) -> Self {
        Self {
            form: Form::default(),
            current: Current::Nothing,
            parts: Parts::default(),
            calls: Calls::default(),
            details: Details::default(),
            refused: false,
            finish_reason: None,
            went_on: false,
            done: false,
            usage: Reported::new(usage),
            model: None,
        }
    }

    fn choice(
        &mut self,
        choice: &Choice<'_>,
        (details, blocks): (List, List),
        batch: &mut Batch<'_>,
    ) -> Result<(), ErrorInfo> {
        if let Some(delta) = &choice.delta {
            match (text(&delta.reasoning_content), text(&delta.reasoning)) {
                ("", "") if !details.is_empty() => self.thought(&details::text(&details), batch),
                ("", "") if !blocks.is_empty() => self.thought(&details::text(&blocks), batch),
                ("", reasoning) | (reasoning, _) => self.thought(reasoning, batch),
            }
            self.details.add(details, blocks, delta.members());
            let refusal = text(&delta.refusal);
            self.refused |= !refusal.is_empty();
            if let Some(content) = &delta.content {
                content.each(|piece, thought| match thought {
                    true => self.thought(piece, batch),
                    false => self.said(piece, batch),
                });
            }
            self.said(refusal, batch);
            for call in delta.tool_calls.iter().flatten() {
                let function = call.function.as_ref();
                let piece = Piece {
                    index: call.index,
                    id: text(&call.id),
                    name: function.map_or("", |function| text(&function.name)),
                    arguments: function.map_or("", |function| arguments(&function.arguments)),
                    members: call.members(),
                };
                if self.calls.is_another(&piece) {
                    self.begin(Current::Nothing, batch);
                    self.begin(Current::Call, batch);
                }
                self.calls.add(piece, &mut self.parts, batch)?;
            }
        }
        if let Some(reason) = choice.finish_reason.as_deref().filter(|reason| !reason.is_empty()) {
            self.finish_reason = Some(reason.to_owned());
        }
        Ok(())
    }

    /// Whether anything was said.
    fn has_any(&self) -> bool {
        self.parts.has_any() || self.current != Current::Nothing
    }

    /// Ends what is under way.
    fn close(&mut self, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        self.begin(Current::Nothing, batch);
        self.calls.check()?;
        // They are of the answer as a whole: a signature may come after the text that it signs has ended.
        if let Some(details) = self.details.take() {
            self.parts.opaque(details, batch);
            self.parts.end(batch);
        }
        Ok(())
    }

    fn said(&mut self, piece: &str, batch: &mut Batch<'_>) {
        if !piece.is_empty() {
            self.begin(Current::Text, batch);
            self.parts.text(piece, batch);
        }
    }

    fn thought(&mut self, piece: &str, batch: &mut Batch<'_>) {
        if !piece.is_empty() {
            self.begin(Current::Reasoning, batch);
            self.parts.reasoning(piece, batch);
        }
    }

    /// Ends the part under way where another kind of part begins.
    fn begin(&mut self, kind: Current, batch: &mut Batch<'_>) {
        if self.finish_reason.is_some() && kind != Current::Nothing && !self.went_on {
            self.went_on = true;
            self.parts.note(Repair::OutOfOrder);
        }
        if self.current == kind {
            return;
        }
        self.calls.tell(&mut self.parts, batch);
        self.parts.end(batch);
        self.current = kind;
    }
}

/// Stands for the reason of an answer that has none.
const DONE: &str = "[DONE]";

//! Answers of Chat Completions.

use playhouse_protocol::error::ErrorCode;
use playhouse_protocol::message::FinishReason;
use playhouse_protocol::{ErrorInfo, Usage};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::content::Content;
use super::details::{self, Details};
use crate::decode::{Answer, Batch, Decode, Parts, Removals, bad, cut, parse};
use crate::failure;
use crate::form::Form;
use crate::json::{Text, text};
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
    /// Index and id of the call that began last.
    call: Option<(u64, String)>,
    /// Reasoning that goes back as it came.
    details: Details,
    /// Whether the model refused in words.
    refused: bool,
    /// Why the answer ended, in the provider's word.
    finish_reason: Option<String>,
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
    #[serde(borrow)]
    model: Option<Text<'a>>,
    #[serde(borrow)]
    choices: Option<Vec<Choice<'a>>>,
    usage: Option<Value>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    finish_reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<Content<'a>>,
    #[serde(borrow)]
    refusal: Option<Text<'a>>,
    // Reasoning has two names, by server.
    #[serde(borrow)]
    reasoning_content: Option<Text<'a>>,
    #[serde(borrow)]
    reasoning: Option<Text<'a>>,
    reasoning_details: Option<Vec<Map<String, Value>>>,
    #[serde(borrow)]
    tool_calls: Option<Vec<CallDelta<'a>>>,
}

#[derive(Deserialize)]
struct CallDelta<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    function: Option<FunctionDelta<'a>>,
}

#[derive(Deserialize)]
struct FunctionDelta<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    arguments: Option<Text<'a>>,
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
            return match self.current {
                Current::Reasoning => self.thought(piece, batch),
                _ => self.said(piece, batch),
            };
        }
        self.form.forget(name);
        if data.trim_start().starts_with("[DONE]") {
            self.done = true;
            return Ok(());
        }
        if name == "error" {
            return Err(failure::in_stream(&parse(name, data)?));
        }
        let chunk: Chunk<'_> = parse("chunk", data)?;
        if let Some(error) = chunk.error {
            return Err(failure::in_stream(&error));
        }
        if self.model.is_none() {
            self.model = chunk.model.filter(|model| !model.is_empty()).map(|model| model.to_string());
        }
        let has_figures = chunk.usage.is_some();
        if let Some(Value::Object(usage)) = chunk.usage
            // Some servers end with an empty one, which takes nothing back.
            && !usage.is_empty()
        {
            self.usage.replace(usage);
        }
        let is_all = !has_figures && chunk.choices.as_ref().is_some_and(|choices| choices.len() == 1);
        for mut choice in chunk.choices.into_iter().flatten() {
            if choice.index.unwrap_or(0) == 0 {
                let details = choice.delta.as_mut().and_then(|delta| delta.reasoning_details.take());
                let details = details.unwrap_or_default();
                let piece = choice.only_piece().filter(|_| is_all && details.is_empty());
                self.choice(&choice, details, batch)?;
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
        self.done || self.finish_reason.is_some()
    }

    fn usage(&self) -> Option<Usage> {
        self.usage.usage()
    }

    fn usage_reports(&self) -> u64 {
        self.usage.reports()
    }

    fn finish(&mut self) -> Result<Answer, ErrorInfo> {
        let Some(reported) = self.finish_reason.as_deref() else { return Err(cut("finish_reason")) };
        let finish = match reported {
            "stop" if self.refused => FinishReason::ContentFilter,
            "stop" => self.parts.stopped(),
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
        let (model, repairs) = (self.model.take(), self.parts.take_repairs());
        Ok(Answer { finish, usage: self.usage(), model, repairs, removals: Removals::default() })
    }
}

impl Decoder {
    pub(super) fn new(usage: UsageConvention) -> Self {
        Self {
            form: Form::default(),
            current: Current::Nothing,
            parts: Parts::default(),
            call: None,
            details: Details::default(),
            refused: false,
            finish_reason: None,
            done: false,
            usage: Reported::new(usage),
            model: None,
        }
    }

    fn choice(
        &mut self,
        choice: &Choice<'_>,
        details: Vec<Map<String, Value>>,
        batch: &mut Batch<'_>,
    ) -> Result<(), ErrorInfo> {
        if let Some(delta) = &choice.delta {
            match (text(&delta.reasoning_content), text(&delta.reasoning)) {
                ("", "") if !details.is_empty() => self.thought(&details::text(&details), batch)?,
                ("", reasoning) | (reasoning, _) => self.thought(reasoning, batch)?,
            }
            self.details.add(details);
            let refusal = text(&delta.refusal);
            self.refused |= !refusal.is_empty();
            if let Some(content) = &delta.content {
                content.each(|piece, thought| match thought {
                    true => self.thought(piece, batch),
                    false => self.said(piece, batch),
                })?;
            }
            self.said(refusal, batch)?;
            for call in delta.tool_calls.iter().flatten() {
                self.call_delta(call, batch)?;
            }
        }
        if let Some(reason) = choice.finish_reason.as_deref().filter(|reason| !reason.is_empty()) {
            self.finish_reason = Some(reason.to_owned());
            self.begin(Current::Nothing, batch)?;
            // They are of the answer as a whole: a signature may come after the text that it signs has ended.
            if let Some(details) = self.details.take() {
                self.parts.opaque(details, batch);
                self.parts.end(batch);
            }
        }
        Ok(())
    }

    fn said(&mut self, piece: &str, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        if !piece.is_empty() {
            self.begin(Current::Text, batch)?;
            self.parts.text(piece, batch);
        }
        Ok(())
    }

    fn thought(&mut self, piece: &str, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        if !piece.is_empty() {
            self.begin(Current::Reasoning, batch)?;
            self.parts.reasoning(piece, batch);
        }
        Ok(())
    }

    /// Ends the part under way where another kind of part begins.
    fn begin(&mut self, kind: Current, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        if self.current == kind {
            return Ok(());
        }
        if self.finish_reason.is_some() && kind != Current::Nothing {
            return Err(bad("more of the answer came after its finish_reason"));
        }
        self.parts.end(batch);
        self.current = kind;
        Ok(())
    }

    fn call_delta(&mut self, delta: &CallDelta<'_>, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        let id = text(&delta.id);
        let name = delta.function.as_ref().map_or("", |function| text(&function.name));
        if self.is_another_call(delta.index, id, name)? {
            self.begin(Current::Nothing, batch)?;
            self.begin(Current::Call, batch)?;
            let last = self.call.as_ref().map(|(last, _)| *last);
            if delta.index.is_none() || delta.index == last {
                self.parts.note(Repair::CallIndex);
            }
            let index = delta.index.unwrap_or_else(|| last.map_or(0, |last| last + 1));
            self.call = Some((index, id.to_owned()));
            self.parts.call(id, name, batch);
        }
        self.parts.arguments(delta.function.as_ref().map_or("", |function| text(&function.arguments)), batch);
        Ok(())
    }

    /// Whether a piece begins a call. The index should say so; but some servers leave it out, give every call the index
    /// 0, or repeat id and name with each piece.
    fn is_another_call(&self, index: Option<u64>, id: &str, name: &str) -> Result<bool, ErrorInfo> {
        let another = match (&self.call, index) {
            (None, _) => true,
            (Some((last, _)), Some(index)) if index < *last => {
                return Err(bad(format!("more of call {index} came after call {last} began")));
            }
            (Some((last, _)), Some(index)) if index > *last => true,
            (Some((_, last_id)), Some(_)) => !name.is_empty() && !id.is_empty() && id != last_id,
            (Some((_, last_id)), None) => !name.is_empty() && (id.is_empty() || id != last_id),
        };
        match self.call.as_ref().map(|(last, _)| last) {
            _ if another && name.is_empty() => Err(bad("a call began without a name")),
            Some(last) if !another && self.current != Current::Call => {
                Err(bad(format!("more of call {last} came after it had ended")))
            }
            _ => Ok(another),
        }
    }
}

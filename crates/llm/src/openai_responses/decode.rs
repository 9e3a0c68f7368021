//! Answers of Responses.

use playhouse_protocol::message::FinishReason;
use playhouse_protocol::{ErrorInfo, Usage};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::decode::{Answer, Batch, Decode, Parts, Removals, bad, cut, parse};
use crate::failure;
use crate::json::{Text, text};
use crate::usage::{Reported, UsageConvention};

/// What stands between the sections of a summary of reasoning.
const BETWEEN_SECTIONS: &str = "\n\n";

/// The state of an answer under way.
pub(super) struct Decoder {
    /// The item under way.
    item: Option<Item>,
    /// The least index that the next item may have.
    next_index: u64,
    /// What was said so far.
    parts: Parts,
    /// Whether the model refused in words.
    refused: bool,
    /// Why the answer ended, in the provider's words.
    ended: Option<String>,
    /// What was reported so far.
    usage: Reported,
    /// The model that says it answers.
    model: Option<String>,
    /// What the provider changed in the request.
    transformations: Vec<Value>,
}

struct Item {
    index: u64,
    kind: Kind,
    /// Whether any of it came in pieces. If not, it comes with the item's end.
    streamed: bool,
}

enum Kind {
    Message,
    /// `section`: the section of the summary that is being said.
    Reasoning {
        section: Option<u64>,
    },
    Call,
    /// Of a kind that is not known here.
    Other,
}

#[derive(Deserialize)]
struct Typed<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    output_index: u64,
    #[serde(borrow)]
    delta: Text<'a>,
    summary_index: Option<u64>,
    content_index: Option<u64>,
}

#[derive(Deserialize)]
struct ItemEvent<'a> {
    output_index: u64,
    #[serde(borrow)]
    item: ItemData<'a>,
}

#[derive(Deserialize)]
struct ItemData<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    call_id: Option<Text<'a>>,
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    arguments: Option<Text<'a>>,
    #[serde(borrow)]
    encrypted_content: Option<Text<'a>>,
    #[serde(borrow)]
    content: Option<Vec<Piece<'a>>>,
    #[serde(borrow)]
    summary: Option<Vec<Piece<'a>>>,
}

#[derive(Deserialize)]
struct Piece<'a> {
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    refusal: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct ResponseEvent {
    response: Response,
}

#[derive(Deserialize)]
struct Response {
    model: Option<String>,
    usage: Option<Map<String, Value>>,
    error: Option<Value>,
    incomplete_details: Option<IncompleteDetails>,
    input_transformations: Option<Vec<Value>>,
}

#[derive(Deserialize)]
struct IncompleteDetails {
    reason: Option<String>,
}

impl Decode for Decoder {
    fn event(&mut self, name: &str, data: &str, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        match name {
            "response.output_text.delta" => self.said(&parse(name, data)?, batch),
            "response.function_call_arguments.delta" => self.arguments(&parse(name, data)?, batch),
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.thought(&parse(name, data)?, batch)
            }
            "response.refusal.delta" => {
                self.refused = true;
                self.said(&parse(name, data)?, batch)
            }
            "response.output_item.added" => self.begin(&parse(name, data)?, batch),
            "response.output_item.done" => self.end(&parse(name, data)?, batch),
            "response.completed" | "response.incomplete" | "response.failed" => {
                let event: ResponseEvent = parse(name, data)?;
                self.finished(name, event.response, batch)
            }
            "error" => Err(failure::in_stream(&parse(name, data)?)),
            // A server that leaves out the names of events.
            "message" if data.trim_start().starts_with("[DONE]") => Ok(()),
            "message" => match parse::<Typed<'_>>(name, data) {
                Ok(event) if &*event.kind != "message" => self.event(&event.kind, data, batch),
                Ok(_) => Err(bad("the data of an event is a message without a type that is known here")),
                // An error in the form of the other dialects.
                Err(error) => match parse::<Value>(name, data) {
                    Ok(value) if value.get("error").is_some() => Err(failure::in_stream(&value)),
                    _ => Err(error),
                },
            },
            // What repeats what was streamed, and what newer servers add.
            _ => Ok(()),
        }
    }

    fn is_complete(&self) -> bool {
        self.ended.is_some()
    }

    fn usage(&self) -> Option<Usage> {
        self.usage.usage()
    }

    fn usage_reports(&self) -> u64 {
        self.usage.reports()
    }

    fn finish(&mut self) -> Result<Answer, ErrorInfo> {
        let Some(reported) = self.ended.as_deref() else { return Err(cut("response.completed")) };
        let finish = match reported {
            "completed" if self.refused => FinishReason::ContentFilter,
            "completed" => FinishReason::Stop,
            "max_output_tokens" => FinishReason::Length,
            "content_filter" => FinishReason::ContentFilter,
            _ => FinishReason::Other,
        };
        let finish = self.parts.settle(finish, reported)?;
        let (model, repairs) = (self.model.take(), self.parts.take_repairs());
        let removals = Removals::read(&self.transformations);
        Ok(Answer { finish, usage: self.usage.usage(), model, repairs, removals })
    }
}

impl Decoder {
    pub(super) fn new(usage: UsageConvention) -> Self {
        Self {
            item: None,
            next_index: 0,
            parts: Parts::default(),
            refused: false,
            ended: None,
            usage: Reported::new(usage),
            model: None,
            transformations: Vec::new(),
        }
    }

    /// The item under way, if it is the one with this index.
    fn open(item: &mut Option<Item>, index: u64) -> Result<&mut Item, ErrorInfo> {
        match item {
            Some(item) if item.index == index => Ok(item),
            _ => Err(bad(format!("more of output item {index} came while that was not open"))),
        }
    }

    fn said(&mut self, event: &Delta<'_>, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        let item = Self::open(&mut self.item, event.output_index)?;
        match item.kind {
            Kind::Message => {
                item.streamed = true;
                self.parts.text(&event.delta, batch);
                Ok(())
            }
            Kind::Other => Ok(()),
            Kind::Reasoning { .. } | Kind::Call => Err(misfit("text", event.output_index)),
        }
    }

    fn thought(&mut self, event: &Delta<'_>, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        let item = Self::open(&mut self.item, event.output_index)?;
        match &mut item.kind {
            Kind::Reasoning { section } => {
                let next = event.summary_index.or(event.content_index).unwrap_or(0);
                if section.replace(next).is_some_and(|last| last != next) {
                    self.parts.reasoning(BETWEEN_SECTIONS, batch);
                }
                item.streamed = true;
                self.parts.reasoning(&event.delta, batch);
                Ok(())
            }
            Kind::Other => Ok(()),
            Kind::Message | Kind::Call => Err(misfit("reasoning", event.output_index)),
        }
    }

    fn arguments(&mut self, event: &Delta<'_>, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        let item = Self::open(&mut self.item, event.output_index)?;
        match item.kind {
            Kind::Call => {
                item.streamed |= !event.delta.is_empty();
                self.parts.arguments(&event.delta, batch);
                Ok(())
            }
            Kind::Other => Ok(()),
            Kind::Message | Kind::Reasoning { .. } => Err(misfit("arguments", event.output_index)),
        }
    }

    fn begin(&mut self, event: &ItemEvent<'_>, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        let index = event.output_index;
        if let Some(open) = &self.item {
            return Err(bad(format!("output item {index} began before item {} ended", open.index)));
        }
        if index < self.next_index {
            return Err(bad(format!("output item {index} came twice or out of order")));
        }
        self.next_index = index.saturating_add(1);
        let kind = match &*event.item.kind {
            "message" => Kind::Message,
            "reasoning" => Kind::Reasoning { section: None },
            "function_call" => {
                let name = text(&event.item.name);
                if name.is_empty() {
                    return Err(bad(format!("the call in output item {index} has no name")));
                }
                self.parts.call(text(&event.item.call_id), name, batch);
                Kind::Call
            }
            _ => Kind::Other,
        };
        self.item = Some(Item { index, kind, streamed: false });
        Ok(())
    }

    fn end(&mut self, event: &ItemEvent<'_>, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        let Some(open) = self.item.take_if(|open| open.index == event.output_index) else {
            return Err(bad(format!("output item {} ended while it was not open", event.output_index)));
        };
        let item = &event.item;
        match open.kind {
            Kind::Message if !open.streamed => {
                for piece in item.content.iter().flatten() {
                    self.refused |= piece.refusal.is_some();
                    self.parts.text(text(&piece.text), batch);
                    self.parts.text(text(&piece.refusal), batch);
                }
            }
            Kind::Call if !open.streamed => self.parts.arguments(text(&item.arguments), batch),
            Kind::Reasoning { .. } => {
                if !open.streamed {
                    let sections = item.summary.iter().flatten().map(|piece| text(&piece.text));
                    let sections: Vec<&str> = sections.filter(|section| !section.is_empty()).collect();
                    self.parts.reasoning(&sections.join(BETWEEN_SECTIONS), batch);
                }
                let encrypted = text(&item.encrypted_content);
                if !encrypted.is_empty() {
                    let opaque = json!({"reasoning_id": text(&item.id), "encrypted_content": encrypted});
                    self.parts.opaque(opaque, batch);
                }
            }
            Kind::Message | Kind::Call | Kind::Other => {}
        }
        self.parts.end(batch);
        Ok(())
    }

    fn finished(&mut self, event: &str, response: Response, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        self.usage.merge(response.usage.unwrap_or_default());
        self.model = response.model;
        self.transformations = response.input_transformations.unwrap_or_default();
        if event == "response.failed" {
            return Err(failure::in_stream(&response.error.unwrap_or_default()));
        }
        let incomplete = event == "response.incomplete";
        if let Some(open) = self.item.as_ref().filter(|_| !incomplete) {
            return Err(bad(format!("{event} came before output item {} ended", open.index)));
        }
        self.parts.end(batch);
        let reason = response.incomplete_details.and_then(|details| details.reason);
        self.ended = Some(match (incomplete, reason) {
            (false, _) => "completed".to_owned(),
            (true, Some(reason)) => reason,
            (true, None) => "incomplete".to_owned(),
        });
        Ok(())
    }
}

fn misfit(what: &str, index: u64) -> ErrorInfo {
    bad(format!("a piece of {what} does not fit output item {index}"))
}

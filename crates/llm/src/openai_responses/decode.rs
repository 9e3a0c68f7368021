//! Answers of Responses.

use std::collections::HashMap;

use playhouse_protocol::message::FinishReason;
use playhouse_protocol::{ErrorInfo, Usage};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::item::{BETWEEN_SECTIONS, Item, ItemData, Kind, KindName};
use crate::decode::{
    Answer, Batch, Decode, Parts, Removals, bad, check_count, cut, is_done, is_nothing, parse,
};
use crate::failure;
use crate::json::{Arguments, Text, arguments, fitting, text};
use crate::members::merge;
use crate::repair::Repair;
use crate::search;
use crate::usage::{Reported, UsageConvention};

/// The state of an answer under way.
pub(super) struct Decoder {
    /// The items so far, in the order in which they began.
    items: Vec<Item>,
    /// The item whose part is under way.
    current: Option<usize>,
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

#[derive(Deserialize)]
struct Typed<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
}

/// A piece of an item. One that ends a text has all of it.
#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(default, deserialize_with = "fitting")]
    output_index: Option<u64>,
    #[serde(borrow, default, deserialize_with = "fitting")]
    item_id: Option<Text<'a>>,
    #[serde(borrow)]
    delta: Option<Arguments<'a>>,
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    refusal: Option<Text<'a>>,
    #[serde(borrow)]
    arguments: Option<Arguments<'a>>,
    #[serde(default, deserialize_with = "fitting")]
    summary_index: Option<u64>,
    #[serde(default, deserialize_with = "fitting")]
    content_index: Option<u64>,
}

#[derive(Deserialize)]
struct ItemEvent<'a> {
    #[serde(default, deserialize_with = "fitting")]
    output_index: Option<u64>,
    #[serde(borrow)]
    item: ItemData<'a>,
}

/// An [`ItemEvent`], with its item as it came.
#[derive(Deserialize)]
struct RawItem {
    item: Value,
}

/// A [`ResponseEvent`], with its items as they came.
#[derive(Deserialize)]
struct RawEvent {
    response: RawResponse,
}

#[derive(Deserialize)]
struct RawResponse {
    output: Vec<Value>,
}

#[derive(Deserialize)]
struct ResponseEvent<'a> {
    #[serde(borrow, default)]
    response: Response<'a>,
}

#[derive(Default, Deserialize)]
struct Response<'a> {
    #[serde(default, deserialize_with = "fitting")]
    model: Option<String>,
    #[serde(default, deserialize_with = "fitting")]
    usage: Option<Map<String, Value>>,
    #[serde(default, deserialize_with = "fitting")]
    service_tier: Option<String>,
    error: Option<Value>,
    #[serde(default, deserialize_with = "fitting")]
    incomplete_details: Option<IncompleteDetails>,
    #[serde(default, deserialize_with = "fitting")]
    input_transformations: Option<Vec<Value>>,
    #[serde(borrow, default, deserialize_with = "fitting")]
    output: Option<Vec<ItemData<'a>>>,
}

#[derive(Deserialize)]
struct IncompleteDetails {
    reason: Option<String>,
}

impl Decode for Decoder {
    fn event(&mut self, name: &str, data: &str, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        if is_done(data) {
            return self.done(batch);
        }
        if is_nothing(data) && name != "error" {
            return Ok(());
        }
        match name {
            "response.output_text.delta" | "response.output_text.done" => {
                self.piece(KindName::Message, name, &parse(name, data)?, batch)
            }
            "response.function_call_arguments.delta" | "response.function_call_arguments.done" => {
                self.piece(KindName::Call, name, &parse(name, data)?, batch)
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.piece(KindName::Reasoning, name, &parse(name, data)?, batch)
            }
            "response.refusal.delta" | "response.refusal.done" => {
                self.refused = true;
                self.piece(KindName::Message, name, &parse(name, data)?, batch)
            }
            "response.output_item.added" => {
                let ItemEvent { output_index, item } = parse(name, data)?;
                match self.find_item(output_index, &item).map(|place| &self.items[place]) {
                    Some(known) if known.is_again(&item) => self.parts.note(Repair::OutOfOrder),
                    _ => drop(self.begin(output_index, &item, batch)?),
                }
                Ok(())
            }
            "response.output_item.done" => {
                let ItemEvent { output_index, mut item } = parse(name, data)?;
                if item.kind_name() == KindName::Search {
                    item.raw = Some(parse::<RawItem>(name, data)?.item);
                }
                let known = self.find_item(output_index, &item);
                let known = known.filter(|place| self.items[*place].is_of(&item));
                let place = match known {
                    Some(place) => place,
                    None => self.begin(output_index, &item, batch)?,
                };
                self.finish_item(place, &item, batch)
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                let mut event: ResponseEvent<'_> = parse(name, data)?;
                let items = event.response.output.as_deref_mut().unwrap_or_default();
                if items.iter().any(|item| item.kind_name() == KindName::Search) {
                    let raw = parse::<RawEvent>(name, data)?.response.output;
                    items.iter_mut().zip(raw).for_each(|(item, raw)| item.raw = Some(raw));
                }
                self.finished(name, event.response, batch)
            }
            "error" if is_nothing(data) => Err(failure::in_stream(&Value::Null)),
            "error" => Err(failure::in_stream(&parse(name, data)?)),
            _ => match parse::<Typed<'_>>(name, data) {
                Ok(event) if &*event.kind == "message" => {
                    Err(bad("the data of an event is a message without a type that is known here"))
                }
                // A server that leaves out the names of events, or has others.
                Ok(event) if &*event.kind != name => self.event(&event.kind, data, batch),
                // An error in the form of the other dialects.
                Err(error) if name == "message" => match parse::<Value>(name, data) {
                    Ok(value) if value.get("error").is_some() => Err(failure::in_stream(&value)),
                    _ => Err(error),
                },
                // What newer servers add.
                _ => Ok(()),
            },
        }
    }

    fn is_complete(&self) -> bool {
        self.ended.is_some()
    }

    fn usage(&self) -> Option<Usage> {
        self.usage.usage(self.model.as_deref())
    }

    fn usage_reports(&self) -> u64 {
        self.usage.reports()
    }

    fn finish(&mut self) -> Result<Answer, ErrorInfo> {
        let Some(reported) = self.ended.as_deref() else { return Err(cut("response.completed")) };
        let finish = match reported {
            "completed" | DONE if self.refused => FinishReason::ContentFilter,
            "completed" | DONE => FinishReason::Stop,
            "max_output_tokens" => FinishReason::Length,
            "content_filter" => FinishReason::ContentFilter,
            _ => FinishReason::Other,
        };
        let finish = self.parts.settle(finish, reported)?;
        let usage = self.usage();
        let (model, repairs) = (self.model.take(), self.parts.take_repairs());
        let removals = Removals::read(&self.transformations);
        Ok(Answer { finish, usage, model, repairs, removals })
    }
}

impl Decoder {
    pub(super) fn new(usage: UsageConvention) -> Self {
        Self {
            items: Vec::new(),
            current: None,
            parts: Parts::default(),
            refused: false,
            ended: None,
            usage: Reported::new(usage),
            model: None,
            transformations: Vec::new(),
        }
    }

    /// The item with this index or, where there is none, with this id. Of several the last: some servers give all items one
    /// index.
    fn find(&self, index: Option<u64>, id: &str) -> Option<usize> {
        let by_index = index.and_then(|index| self.items.iter().rposition(|item| item.index == Some(index)));
        by_index.or_else(|| self.items.iter().rposition(|item| !id.is_empty() && item.id == id))
    }

    /// The item that an event of a whole item is about. What has neither index nor id is about the last one of its kind that
    /// is open.
    fn find_item(&self, index: Option<u64>, data: &ItemData<'_>) -> Option<usize> {
        let by_index = index.and_then(|index| self.items.iter().rposition(|item| item.index == Some(index)));
        let id = data.id();
        let is_named = |item: &Item| item.id == id && !id.is_empty();
        let is_open = |item: &Item| !item.ended && item.is_of(data);
        // Two indexes are two items, whatever their ids.
        let is_unnumbered = |item: &Item| index.is_none() || item.index.is_none();
        let unnumbered = |fits: &dyn Fn(&Item) -> bool| {
            self.items.iter().rposition(|item| is_unnumbered(item) && fits(item))
        };
        by_index
            .or_else(|| unnumbered(&is_named))
            .or_else(|| unnumbered(&is_open).filter(|_| index.is_none()))
    }

    /// The item that a piece of this kind belongs to; one whose beginning did not come is begun.
    fn target(&mut self, kind: KindName, event: &Delta<'_>) -> Result<usize, ErrorInfo> {
        let is_fit = |item: &Item| item.kind.name() == kind || item.kind.name() == KindName::Other;
        let named = self.find(event.output_index, text(&event.item_id));
        if let Some(place) = named.filter(|place| is_fit(&self.items[*place])) {
            return Ok(place);
        }
        let open = self.items.iter().rposition(|item| !item.ended && item.kind.name() == kind);
        if let Some(place) = open {
            return Ok(place);
        }
        let what = match kind {
            KindName::Message => Kind::Message,
            KindName::Reasoning => Kind::Reasoning { section: None },
            KindName::Call | KindName::Search | KindName::Other => {
                let index = event.output_index.map_or_else(String::new, |index| format!(" {index}"));
                return Err(bad(format!("a piece of arguments does not fit output item{index}")));
            }
        };
        self.parts.note(Repair::OutOfOrder);
        check_count(self.items.len())?;
        self.items.push(Item::new(event.output_index, text(&event.item_id), what));
        Ok(self.items.len() - 1)
    }

    /// Makes the part of this item the one under way.
    fn switch(&mut self, place: usize, batch: &mut Batch<'_>) {
        if self.current != Some(place) {
            self.end_current(batch);
            self.current = Some(place);
        }
    }

    /// Ends the part under way.
    fn end_current(&mut self, batch: &mut Batch<'_>) {
        if let Some(Item { kind: Kind::Message, members: Some(members), .. }) =
            self.current.take().map(|place| &self.items[place])
        {
            self.parts.text_opaque(members.clone(), batch);
        }
        self.parts.end(batch);
    }

    /// Takes a piece of an item, or at its end all of it: that counts if no pieces came.
    fn piece(
        &mut self,
        kind: KindName,
        name: &str,
        event: &Delta<'_>,
        batch: &mut Batch<'_>,
    ) -> Result<(), ErrorInfo> {
        let is_end = name.ends_with(".done");
        if is_end && self.find(event.output_index, text(&event.item_id)).is_none() && !self.items.is_empty() {
            return Ok(());
        }
        let piece = match is_end {
            false => arguments(&event.delta),
            true => match kind {
                KindName::Call => arguments(&event.arguments),
                _ if event.refusal.is_some() => text(&event.refusal),
                _ => text(&event.text),
            },
        };
        let place = self.target(kind, event)?;
        let item = &mut self.items[place];
        if (is_end && item.streamed) || piece.is_empty() {
            return Ok(());
        }
        match &mut item.kind {
            Kind::Message => {
                item.streamed = true;
                self.switch(place, batch);
                self.parts.text(piece, batch);
            }
            Kind::Reasoning { section } => {
                let next = event.summary_index.or(event.content_index).unwrap_or(0);
                let another = section.replace(next).is_some_and(|last| last != next);
                item.streamed = true;
                self.switch(place, batch);
                self.parts.reasoning(if another { BETWEEN_SECTIONS } else { "" }, batch);
                self.parts.reasoning(piece, batch);
            }
            Kind::Call { number: Some(number), .. } => {
                item.streamed = true;
                self.parts.arguments(*number, piece, batch);
            }
            // Its name comes later.
            Kind::Call { held, .. } => held.push_str(piece),
            Kind::Search | Kind::Other => {}
        }
        Ok(())
    }

    fn begin(
        &mut self,
        index: Option<u64>,
        data: &ItemData<'_>,
        batch: &mut Batch<'_>,
    ) -> Result<usize, ErrorInfo> {
        check_count(self.items.len())?;
        let kind = match &*data.kind {
            "message" => Kind::Message,
            "reasoning" => Kind::Reasoning { section: None },
            "function_call" => Kind::Call { number: None, held: String::new() },
            kind if search::RESPONSES.is_half(kind, None) => Kind::Search,
            _ => Kind::Other,
        };
        self.items.push(Item::new(index, data.id(), kind));
        let place = self.items.len() - 1;
        self.items[place].members = data.members();
        self.tell_call(place, data, batch);
        Ok(place)
    }

    /// Tells a call that is not told yet, if its name is there.
    fn tell_call(&mut self, place: usize, data: &ItemData<'_>, batch: &mut Batch<'_>) {
        let name = text(&data.name);
        if !matches!(self.items[place].kind, Kind::Call { number: None, .. }) || name.is_empty() {
            return;
        }
        self.switch(place, batch);
        let item = &mut self.items[place];
        let Kind::Call { number, held } = &mut item.kind else { return };
        let told = self.parts.call(text(&data.call_id), name, batch);
        *number = Some(told);
        item.streamed = !held.is_empty();
        self.parts.arguments(told, &std::mem::take(held), batch);
    }

    /// Ends an item; `data` has what did not come in pieces.
    fn finish_item(
        &mut self,
        place: usize,
        data: &ItemData<'_>,
        batch: &mut Batch<'_>,
    ) -> Result<(), ErrorInfo> {
        if std::mem::replace(&mut self.items[place].ended, true) {
            self.parts.note(Repair::OutOfOrder);
            return Ok(());
        }
        self.tell_call(place, data, batch);
        merge(&mut self.items[place].members, data.members());
        let Item { index, streamed, ref kind, ref members, .. } = self.items[place];
        if let Kind::Call { number: Some(number), .. } = kind {
            self.parts.call_opaque(*number, members.clone(), batch);
        }
        match kind {
            Kind::Message if !streamed => {
                self.switch(place, batch);
                for piece in data.content.iter().flatten() {
                    self.refused |= piece.refusal.is_some();
                    self.parts.text(text(&piece.text), batch);
                    self.parts.text(text(&piece.refusal), batch);
                }
            }
            Kind::Call { number: Some(number), .. } if !streamed => {
                self.parts.arguments(*number, data.arguments(), batch);
            }
            Kind::Call { number: None, .. } => {
                let index = index.map_or_else(String::new, |index| format!(" in output item {index}"));
                return Err(bad(format!("the call{index} has no name")));
            }
            Kind::Reasoning { .. } => {
                let opaque = data.opaque();
                if !streamed || opaque.is_some() {
                    self.switch(place, batch);
                }
                if !streamed {
                    self.parts.reasoning(&data.thoughts(), batch);
                }
                if let Some(opaque) = opaque {
                    self.parts.opaque(opaque, batch);
                }
            }
            Kind::Search => {
                if let Some(raw) = &data.raw {
                    self.switch(place, batch);
                    self.parts.opaque(search::kept(raw.clone()), batch);
                }
            }
            Kind::Message | Kind::Call { .. } | Kind::Other => {}
        }
        if self.current == Some(place) {
            self.end_current(batch);
        }
        Ok(())
    }

    fn finished(
        &mut self,
        event: &str,
        response: Response<'_>,
        batch: &mut Batch<'_>,
    ) -> Result<(), ErrorInfo> {
        self.usage.add(&response.usage.unwrap_or_default());
        if let Some(tier) = &response.service_tier {
            self.usage.tier(tier);
        }
        self.model = response.model;
        self.transformations = response.input_transformations.unwrap_or_default();
        if event == "response.failed" {
            return Err(failure::in_stream(&response.error.unwrap_or_default()));
        }
        // What did not come before: by kind, since indexes and ids need not be those of the stream.
        let mut seen: HashMap<KindName, usize> = HashMap::new();
        for data in response.output.iter().flatten() {
            let before = seen.entry(data.kind_name()).or_default();
            let mut of_kind =
                (0..self.items.len()).filter(|place| self.items[*place].kind.name() == data.kind_name());
            let known = of_kind.nth(*before);
            *before += 1;
            match known {
                Some(place) if self.items[place].ended => {}
                Some(place) => self.finish_item(place, data, batch)?,
                None => {
                    self.parts.note(Repair::OutOfOrder);
                    let place = self.begin(None, data, batch)?;
                    self.finish_item(place, data, batch)?;
                }
            }
        }
        let incomplete = event == "response.incomplete";
        if !incomplete {
            self.check_names()?;
            if self.items.iter().any(|item| !item.ended) {
                self.parts.note(Repair::OutOfOrder);
            }
        }
        self.end_current(batch);
        let reason = response.incomplete_details.and_then(|details| details.reason);
        self.ended = Some(match (incomplete, reason) {
            (false, _) => "completed".to_owned(),
            (true, Some(reason)) => reason,
            (true, None) => "incomplete".to_owned(),
        });
        Ok(())
    }

    /// Takes the end marker of other dialects. Without the event of this one it ends an answer whose calls are whole.
    fn done(&mut self, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        self.check_names()?;
        self.end_current(batch);
        if self.parts.are_calls_whole() {
            self.parts.note(Repair::HalfAnEnd);
            self.ended = Some(DONE.to_owned());
        }
        Ok(())
    }

    /// Checks that every call has a name, once no more can come.
    fn check_names(&self) -> Result<(), ErrorInfo> {
        match self.items.iter().any(|item| matches!(item.kind, Kind::Call { number: None, .. })) {
            true => Err(bad("a call has no name")),
            false => Ok(()),
        }
    }
}

/// Stands for the reason of an answer that has none.
const DONE: &str = "[DONE]";

//! Answers of Anthropic Messages.

use playhouse_protocol::message::FinishReason;
use playhouse_protocol::{ErrorInfo, Usage};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::decode::{
    Answer, Batch, Decode, Parts, Removals, bad, check_count, cut, is_done, is_nothing, parse,
};
use crate::failure;
use crate::form::Form;
use crate::json::{Arguments, Text, arguments, fitting, text};
use crate::repair::Repair;
use crate::usage::{Reported, UsageConvention};
use crate::{members, search};

/// The state of an answer under way.
pub(super) struct Decoder {
    /// Whether any block began.
    begun: bool,
    /// Whether `message_stop` came.
    stopped: bool,
    /// What stands around the text of events that are nothing but more of the block under way.
    form: Form,
    /// The block under way.
    block: Option<Block>,
    /// Indexes and numbers of the calls, for servers that mix blocks.
    calls: Vec<(Option<u64>, usize)>,
    /// What was said so far.
    parts: Parts,
    /// What was reported so far.
    usage: Reported,
    /// Whether figures came with the end: those of the beginning are without the output.
    usage_is_final: bool,
    /// Why the answer ended, in the provider's word.
    stop_reason: Option<String>,
    /// Whether a block began behind the reason: then that was not the end.
    went_on: bool,
    /// The model that says it answers.
    model: Option<String>,
    /// What the provider changed in the request.
    transformations: Vec<Value>,
}

struct Block {
    index: Option<u64>,
    kind: Kind,
    /// Whether anything came for it behind its beginning.
    went_on: bool,
}

#[derive(PartialEq)]
enum Kind {
    Text,
    Thinking,
    /// `initial`: arguments that came with the beginning, for the case that no others come.
    ToolUse {
        id: String,
        number: usize,
        initial: Option<String>,
    },
    /// Half of a search of tools by the provider. `input`: arguments, which come in pieces.
    Search {
        block: Value,
        input: String,
    },
    /// Complete with its beginning, or of a kind that is not known here.
    Other,
}

#[derive(Deserialize)]
struct Typed<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
}

#[derive(Deserialize)]
struct MessageStart {
    #[serde(default, deserialize_with = "fitting")]
    message: Option<StartedMessage>,
}

#[derive(Default, Deserialize)]
struct StartedMessage {
    #[serde(default, deserialize_with = "fitting")]
    model: Option<String>,
    #[serde(default, deserialize_with = "fitting")]
    usage: Option<Map<String, Value>>,
    #[serde(default, deserialize_with = "fitting")]
    input_transformations: Option<Vec<Value>>,
}

/// A whole message as the data of one event, from a server that does not stream.
#[derive(Deserialize)]
struct WholeMessage<'a> {
    #[serde(borrow)]
    content: Vec<StartedBlock<'a>>,
    #[serde(default, deserialize_with = "fitting")]
    stop_reason: Option<String>,
}

/// The same, with its blocks as they came.
#[derive(Deserialize)]
struct RawMessage {
    content: Vec<Value>,
}

/// A [`BlockStart`], with its block as it came.
#[derive(Deserialize)]
struct RawStart {
    content_block: Value,
}

#[derive(Deserialize)]
struct BlockStart<'a> {
    #[serde(default, deserialize_with = "fitting")]
    index: Option<u64>,
    #[serde(borrow)]
    content_block: StartedBlock<'a>,
}

#[derive(Deserialize)]
struct StartedBlock<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow, default, deserialize_with = "fitting")]
    text: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "fitting")]
    thinking: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "fitting")]
    signature: Option<Text<'a>>,
    #[serde(borrow)]
    data: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "fitting")]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    name: Option<Text<'a>>,
    input: Option<Value>,
    #[serde(default, deserialize_with = "fitting")]
    caller: Option<Value>,
    #[serde(default, deserialize_with = "fitting")]
    thought_signature: Option<Value>,
    #[serde(default, deserialize_with = "fitting")]
    extra_content: Option<Value>,
    #[serde(default, deserialize_with = "fitting")]
    provider_specific_fields: Option<Value>,
    /// All of it, for a block that goes back as it came.
    #[serde(skip)]
    raw: Option<Value>,
}

impl StartedBlock<'_> {
    /// Whether it is half of a search of tools, which later requests repeat unchanged.
    fn is_search(&self) -> bool {
        search::ANTHROPIC.is_half(&self.kind, self.name.as_deref())
    }

    /// What goes back with a call.
    fn members(&self) -> Option<Value> {
        let signature = self.signature.as_deref().map(Value::from);
        members::kept([
            ("caller", &self.caller),
            ("signature", &signature),
            ("thought_signature", &self.thought_signature),
            ("extra_content", &self.extra_content),
            ("provider_specific_fields", &self.provider_specific_fields),
        ])
    }
}

#[derive(Deserialize)]
struct BlockDelta<'a> {
    #[serde(default, deserialize_with = "fitting")]
    index: Option<u64>,
    #[serde(borrow)]
    delta: Delta<'a>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    thinking: Option<Text<'a>>,
    #[serde(borrow)]
    signature: Option<Text<'a>>,
    #[serde(borrow)]
    partial_json: Option<Arguments<'a>>,
}

#[derive(Deserialize)]
struct BlockStop {
    #[serde(default, deserialize_with = "fitting")]
    index: Option<u64>,
}

#[derive(Deserialize)]
struct MessageDelta {
    #[serde(default, deserialize_with = "fitting")]
    delta: Option<StopDelta>,
    #[serde(default, deserialize_with = "fitting")]
    usage: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
struct StopDelta {
    stop_reason: Option<String>,
}

impl Decode for Decoder {
    fn event(&mut self, name: &str, data: &str, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        if let Some(piece) = self.form.piece(name, data) {
            self.more(piece, batch);
            return Ok(());
        }
        self.form.forget(name);
        if is_done(data) {
            if self.stop_reason.is_none() {
                self.parts.note(Repair::HalfAnEnd);
            }
            self.close(batch);
            self.stopped = self.stop_reason.is_some() || self.parts.are_calls_whole();
            return Ok(());
        }
        // These need no data.
        if is_nothing(data) && !matches!(name, "message_stop" | "content_block_stop" | "error") {
            return Ok(());
        }
        self.any(name, data, batch)
    }

    fn is_complete(&self) -> bool {
        self.stopped
    }

    fn is_whole(&self) -> bool {
        self.stopped || (self.stop_reason.is_some() && !self.went_on)
    }

    fn end(&mut self, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        if self.is_whole() {
            self.parts.note(Repair::HalfAnEnd);
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
        if !self.is_whole() {
            return Err(cut("message_stop"));
        }
        let reported = self.stop_reason.as_deref().unwrap_or(NO_REASON);
        let finish = match reported {
            NO_REASON => FinishReason::Stop,
            "end_turn" | "stop_sequence" => self.parts.stopped(),
            "tool_use" => FinishReason::ToolCalls,
            "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
            "refusal" => FinishReason::ContentFilter,
            _ => FinishReason::Other,
        };
        let finish = self.parts.settle(finish, reported)?;
        let usage = self.usage.usage(self.model.as_deref()).filter(|_| self.usage_is_final);
        let (model, repairs) = (self.model.take(), self.parts.take_repairs());
        Ok(Answer { finish, usage, model, repairs, removals: Removals::read(&self.transformations) })
    }
}

impl Decoder {
    pub(super) fn new(usage: UsageConvention) -> Self {
        Self {
            begun: false,
            stopped: false,
            form: Form::default(),
            block: None,
            calls: Vec::new(),
            parts: Parts::default(),
            usage: Reported::new(usage),
            usage_is_final: false,
            stop_reason: None,
            went_on: false,
            model: None,
            transformations: Vec::new(),
        }
    }

    /// Takes an event of any form.
    fn any(&mut self, name: &str, data: &str, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        match name {
            "content_block_delta" => {
                let event = parse(name, data)?;
                if let Some(piece) = self.block_delta(&event, batch)? {
                    self.more(piece, batch);
                    self.form.learn(data, piece);
                }
                Ok(())
            }
            "content_block_start" => {
                let mut start: BlockStart<'_> = parse(name, data)?;
                if start.content_block.is_search() {
                    start.content_block.raw = Some(parse::<RawStart>(name, data)?.content_block);
                }
                self.block_start(start, batch)
            }
            "content_block_stop" => {
                let index = if is_nothing(data) { None } else { parse::<BlockStop>(name, data)?.index };
                // An end that comes twice, or late, ends nothing.
                if self.block.as_ref().is_some_and(|open| index.is_none() || open.index == index) {
                    self.close(batch);
                } else if index.is_some() {
                    self.parts.note(Repair::OutOfOrder);
                }
                Ok(())
            }
            "message_start" => self.message_start(parse::<MessageStart>(name, data)?.message),
            "message_delta" => {
                self.message_delta(parse(name, data)?);
                Ok(())
            }
            "message_stop" => {
                if self.block.is_some() {
                    self.parts.note(Repair::OutOfOrder);
                }
                if self.stop_reason.is_none() {
                    self.parts.note(Repair::HalfAnEnd);
                }
                self.close(batch);
                self.stopped = true;
                Ok(())
            }
            "error" if is_nothing(data) => Err(failure::in_stream(&Value::Null)),
            "error" => Err(failure::in_stream(&parse(name, data)?)),
            _ => match parse::<Typed<'_>>(name, data) {
                // A server that leaves out the names of events, or has others.
                Ok(event) if &*event.kind == "message" => self.whole_message(data, batch),
                Ok(event) if &*event.kind != name => self.any(&event.kind, data, batch),
                Err(error) if name == "message" => match parse::<Value>(name, data) {
                    // An error in the form of the other dialects.
                    Ok(value) if value.get("error").is_some() => Err(failure::in_stream(&value)),
                    _ => Err(error),
                },
                // `ping`, and what newer servers add.
                _ => Ok(()),
            },
        }
    }

    fn message_start(&mut self, start: Option<StartedMessage>) -> Result<(), ErrorInfo> {
        if self.begun {
            return Err(bad("message_start came twice"));
        }
        let start = start.unwrap_or_default();
        self.model = start.model;
        self.transformations = start.input_transformations.unwrap_or_default();
        self.usage.add(&start.usage.unwrap_or_default());
        Ok(())
    }

    fn whole_message(&mut self, data: &str, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        let whole: WholeMessage<'_> = parse("message", data)?;
        let message: StartedMessage = parse("message", data)?;
        self.usage_is_final = message.usage.is_some();
        self.message_start(Some(message))?;
        let raw = match whole.content.iter().any(StartedBlock::is_search) {
            true => parse::<RawMessage>("message", data)?.content,
            false => Vec::new(),
        };
        let mut raw = raw.into_iter();
        for mut content_block in whole.content {
            content_block.raw = raw.next();
            self.block_start(BlockStart { index: None, content_block }, batch)?;
            self.close(batch);
        }
        self.stop_reason = whole.stop_reason;
        self.stopped = true;
        Ok(())
    }

    fn block_start(&mut self, start: BlockStart<'_>, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        let BlockStart { index, content_block: block } = start;
        if self.repeats(index, &block) {
            self.parts.note(Repair::OutOfOrder);
            return Ok(());
        }
        self.end_open(batch);
        self.begun = true;
        let is_search = block.is_search();
        let kind = match &*block.kind {
            "text" => {
                self.parts.text(text(&block.text), batch);
                Kind::Text
            }
            "thinking" => {
                self.parts.reasoning(text(&block.thinking), batch);
                let signature = text(&block.signature);
                if !signature.is_empty() {
                    self.parts.opaque(json!({"signature": signature}), batch);
                }
                Kind::Thinking
            }
            "redacted_thinking" => {
                self.parts.opaque(json!({"redacted": text(&block.data)}), batch);
                Kind::Other
            }
            "tool_use" => {
                let (id, name) = (text(&block.id), text(&block.name));
                if name.is_empty() {
                    return Err(bad(format!("the call in content block {} has no name", shown(index))));
                }
                let number = self.parts.call(id, name, batch);
                self.parts.call_opaque(number, block.members(), batch);
                self.calls.push((index, number));
                check_count(self.calls.len())?;
                let initial = match block.input {
                    Some(Value::Object(input)) if !input.is_empty() => Some(Value::Object(input).to_string()),
                    Some(Value::String(input)) if !input.is_empty() => Some(input),
                    _ => None,
                };
                Kind::ToolUse { id: id.to_owned(), number, initial }
            }
            _ => match block.raw.filter(|_| is_search) {
                Some(block) => Kind::Search { block, input: String::new() },
                None => Kind::Other,
            },
        };
        self.went_on |= self.stop_reason.is_some();
        self.block = Some(Block { index, kind, went_on: false });
        Ok(())
    }

    /// Whether the beginning of a block is that of the block under way, once more.
    fn repeats(&self, index: Option<u64>, block: &StartedBlock<'_>) -> bool {
        let Some(open) = self.block.as_ref().filter(|open| index.is_some() && open.index == index) else {
            return false;
        };
        match (&open.kind, &*block.kind) {
            // What begins with text is another one.
            (Kind::Text, "text") => text(&block.text).is_empty(),
            (Kind::Thinking, "thinking") => text(&block.thinking).is_empty(),
            (Kind::ToolUse { id, .. }, "tool_use") => id == text(&block.id) && !open.went_on,
            _ => false,
        }
    }

    /// Begins a block whose beginning did not come.
    fn begin(&mut self, index: Option<u64>, kind: Kind, batch: &mut Batch<'_>) {
        self.end_open(batch);
        self.parts.note(Repair::OutOfOrder);
        self.begun = true;
        self.went_on |= self.stop_reason.is_some();
        self.block = Some(Block { index, kind, went_on: true });
    }

    /// Ends the block under way, where another one begins before its end came.
    fn end_open(&mut self, batch: &mut Batch<'_>) {
        if self.block.is_some() {
            self.parts.note(Repair::OutOfOrder);
            self.close(batch);
        }
    }

    /// Ends the block under way.
    fn close(&mut self, batch: &mut Batch<'_>) {
        let Some(open) = self.block.take() else { return };
        match open.kind {
            Kind::ToolUse { number, initial: Some(arguments), .. } => {
                self.parts.arguments(number, &arguments, batch);
            }
            Kind::Search { block, input } => {
                if let Some(block) = search::with_input(block, &input) {
                    self.parts.opaque(search::kept(block), batch);
                }
            }
            _ => {}
        }
        self.parts.end(batch);
    }

    /// The piece that an event adds to the block under way, if it does. Text and reasoning of another block begin that.
    fn block_delta<'a>(
        &mut self,
        event: &'a BlockDelta<'_>,
        batch: &mut Batch<'_>,
    ) -> Result<Option<&'a str>, ErrorInfo> {
        let BlockDelta { index, delta } = event;
        let open = self.block.as_ref().filter(|open| index.is_none() || open.index == *index);
        let kind = open.map(|open| &open.kind);
        match &*delta.kind {
            "text_delta" | "thinking_delta" | "signature_delta" | "input_json_delta"
                if kind == Some(&Kind::Other) =>
            {
                Ok(None)
            }
            "text_delta" => {
                if kind != Some(&Kind::Text) {
                    self.begin(*index, Kind::Text, batch);
                }
                Ok(Some(text(&delta.text)))
            }
            "thinking_delta" => {
                if kind != Some(&Kind::Thinking) {
                    self.begin(*index, Kind::Thinking, batch);
                }
                Ok(Some(text(&delta.thinking)))
            }
            "signature_delta" => {
                if kind != Some(&Kind::Thinking) {
                    self.begin(*index, Kind::Thinking, batch);
                }
                self.parts.opaque(json!({"signature": text(&delta.signature)}), batch);
                Ok(None)
            }
            "input_json_delta" => {
                let piece = arguments(&delta.partial_json);
                if matches!(kind, Some(Kind::ToolUse { .. } | Kind::Search { .. })) {
                    return Ok(Some(piece));
                }
                let earlier = self.calls.iter().rev().find(|(of, _)| index.is_none() || of == index);
                match earlier {
                    Some((_, number)) => {
                        self.parts.note(Repair::OutOfOrder);
                        self.parts.arguments(*number, piece, batch);
                        Ok(None)
                    }
                    None => Err(bad(format!("content block {} has arguments and is no call", shown(*index)))),
                }
            }
            // Citations, and what newer servers add.
            _ => Ok(None),
        }
    }

    /// Adds a piece to the block under way.
    fn more(&mut self, piece: &str, batch: &mut Batch<'_>) {
        let Some(open) = self.block.as_mut() else { return };
        open.went_on |= !piece.is_empty();
        match &mut open.kind {
            Kind::Text => self.parts.text(piece, batch),
            Kind::Thinking => self.parts.reasoning(piece, batch),
            Kind::ToolUse { number, initial, .. } => {
                if !piece.is_empty() {
                    *initial = None;
                }
                self.parts.arguments(*number, piece, batch);
            }
            Kind::Search { input, .. } => input.push_str(piece),
            Kind::Other => {}
        }
    }

    fn message_delta(&mut self, event: MessageDelta) {
        let usage = event.usage.unwrap_or_default();
        self.usage_is_final |= !usage.is_empty();
        self.usage.add(&usage);
        let reason = event.delta.and_then(|delta| delta.stop_reason);
        if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
            self.stop_reason = Some(reason);
        }
    }
}

/// Stands for the reason of an answer that has none.
const NO_REASON: &str = "no reason";

/// An index for messages.
fn shown(index: Option<u64>) -> String {
    index.map_or_else(|| "without an index".to_owned(), |index| index.to_string())
}

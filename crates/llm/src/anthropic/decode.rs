//! Answers of Anthropic Messages.

use playhouse_protocol::message::FinishReason;
use playhouse_protocol::{ErrorInfo, Usage};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::decode::{Answer, Batch, Decode, Parts, Removals, bad, cut, parse};
use crate::failure;
use crate::form::Form;
use crate::json::{Text, text};
use crate::usage::{Reported, UsageConvention};

/// The state of an answer under way.
pub(super) struct Decoder {
    /// Whether `message_start` came.
    started: bool,
    /// Whether `message_stop` came.
    stopped: bool,
    /// What stands around the text of events that are nothing but more of the block under way.
    form: Form,
    /// The block under way.
    block: Option<Block>,
    /// The least index that the next block may have.
    next_index: u64,
    /// What was said so far.
    parts: Parts,
    /// What was reported so far.
    usage: Reported,
    /// Whether figures came with the end: those of the beginning are without the output.
    usage_is_final: bool,
    /// Why the answer ended, in the provider's word.
    stop_reason: Option<String>,
    /// The model that says it answers.
    model: Option<String>,
    /// What the provider changed in the request.
    transformations: Vec<Value>,
}

struct Block {
    index: u64,
    kind: Kind,
}

enum Kind {
    Text,
    Thinking,
    /// `initial`: arguments that came with the beginning, for the case that no others come.
    ToolUse {
        initial: Option<String>,
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
    message: StartedMessage,
}

#[derive(Deserialize)]
struct StartedMessage {
    model: Option<String>,
    usage: Option<Map<String, Value>>,
    input_transformations: Option<Vec<Value>>,
}

#[derive(Deserialize)]
struct BlockStart<'a> {
    index: u64,
    #[serde(borrow)]
    content_block: StartedBlock<'a>,
}

#[derive(Deserialize)]
struct StartedBlock<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    thinking: Option<Text<'a>>,
    #[serde(borrow)]
    data: Option<Text<'a>>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    name: Option<Text<'a>>,
    input: Option<Value>,
}

#[derive(Deserialize)]
struct BlockDelta<'a> {
    index: u64,
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
    partial_json: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct BlockStop {
    index: u64,
}

#[derive(Deserialize)]
struct MessageDelta {
    delta: StopDelta,
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
        self.any(name, data, batch)
    }

    fn is_complete(&self) -> bool {
        self.stopped
    }

    fn usage(&self) -> Option<Usage> {
        self.usage.usage()
    }

    fn usage_reports(&self) -> u64 {
        self.usage.reports()
    }

    fn finish(&mut self) -> Result<Answer, ErrorInfo> {
        if !self.stopped {
            return Err(cut("message_stop"));
        }
        let reported = self.stop_reason.as_deref().unwrap_or("no reason");
        let finish = match reported {
            "end_turn" | "stop_sequence" => self.parts.stopped(),
            "tool_use" => FinishReason::ToolCalls,
            "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
            "refusal" => FinishReason::ContentFilter,
            _ => FinishReason::Other,
        };
        let finish = self.parts.settle(finish, reported)?;
        let usage = self.usage.usage().filter(|_| self.usage_is_final);
        let (model, repairs) = (self.model.take(), self.parts.take_repairs());
        Ok(Answer { finish, usage, model, repairs, removals: Removals::read(&self.transformations) })
    }
}

impl Decoder {
    pub(super) fn new(usage: UsageConvention) -> Self {
        Self {
            started: false,
            stopped: false,
            form: Form::default(),
            block: None,
            next_index: 0,
            parts: Parts::default(),
            usage: Reported::new(usage),
            usage_is_final: false,
            stop_reason: None,
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
            "content_block_start" => self.block_start(parse(name, data)?, batch),
            "content_block_stop" => self.block_stop(&parse(name, data)?, batch),
            "message_start" => self.message_start(parse(name, data)?),
            "message_delta" => self.message_delta(parse(name, data)?),
            "message_stop" => self.message_stop(),
            "error" => Err(failure::in_stream(&parse(name, data)?)),
            // A server that leaves out the names of events.
            "message" => match &*parse::<Typed<'_>>(name, data)?.kind {
                "message" => Err(bad("the data of an event is a whole message: the server does not stream")),
                kind => self.any(kind, data, batch),
            },
            // `ping`, and what newer servers add.
            _ => Ok(()),
        }
    }

    fn message_start(&mut self, start: MessageStart) -> Result<(), ErrorInfo> {
        if std::mem::replace(&mut self.started, true) {
            return Err(bad("message_start came twice"));
        }
        self.model = start.message.model;
        self.transformations = start.message.input_transformations.unwrap_or_default();
        self.usage.merge(start.message.usage.unwrap_or_default());
        Ok(())
    }

    fn block_start(&mut self, start: BlockStart<'_>, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        let index = start.index;
        if !self.started {
            return Err(bad(format!("content block {index} began before message_start")));
        }
        if let Some(open) = &self.block {
            return Err(bad(format!("content block {index} began before block {} ended", open.index)));
        }
        if index < self.next_index {
            return Err(bad(format!("content block {index} came twice or out of order")));
        }
        self.next_index = index.saturating_add(1);
        let block = start.content_block;
        let kind = match &*block.kind {
            "text" => {
                self.parts.text(text(&block.text), batch);
                Kind::Text
            }
            "thinking" => {
                self.parts.reasoning(text(&block.thinking), batch);
                Kind::Thinking
            }
            "redacted_thinking" => {
                self.parts.opaque(json!({"redacted": text(&block.data)}), batch);
                Kind::Other
            }
            "tool_use" => {
                if text(&block.name).is_empty() {
                    return Err(bad(format!("the call in content block {index} has no name")));
                }
                self.parts.call(text(&block.id), text(&block.name), batch);
                let is_given = |input: &Value| input.as_object().is_some_and(|input| !input.is_empty());
                Kind::ToolUse { initial: block.input.filter(is_given).map(|input| input.to_string()) }
            }
            _ => Kind::Other,
        };
        self.block = Some(Block { index, kind });
        Ok(())
    }

    /// The piece that an event adds to the block under way, if it does.
    fn block_delta<'a>(
        &mut self,
        event: &'a BlockDelta<'_>,
        batch: &mut Batch<'_>,
    ) -> Result<Option<&'a str>, ErrorInfo> {
        let BlockDelta { index, delta } = event;
        let kind = match &self.block {
            Some(open) if open.index == *index => &open.kind,
            _ => return Err(bad(format!("more of content block {index} came while that was not open"))),
        };
        match (&*delta.kind, kind) {
            ("text_delta", Kind::Text) => Ok(Some(text(&delta.text))),
            ("thinking_delta", Kind::Thinking) => Ok(Some(text(&delta.thinking))),
            ("input_json_delta", Kind::ToolUse { .. }) => Ok(Some(text(&delta.partial_json))),
            ("signature_delta", Kind::Thinking) => {
                self.parts.opaque(json!({"signature": text(&delta.signature)}), batch);
                Ok(None)
            }
            (piece @ ("text_delta" | "thinking_delta" | "signature_delta" | "input_json_delta"), kind)
                if !matches!(kind, Kind::Other) =>
            {
                Err(bad(format!("a {piece} does not fit content block {index}")))
            }
            // Citations, and what newer servers add.
            _ => Ok(None),
        }
    }

    /// Adds a piece to the block under way.
    fn more(&mut self, piece: &str, batch: &mut Batch<'_>) {
        match self.block.as_mut().map(|block| &mut block.kind) {
            Some(Kind::Text) => self.parts.text(piece, batch),
            Some(Kind::Thinking) => self.parts.reasoning(piece, batch),
            Some(Kind::ToolUse { initial }) => {
                if !piece.is_empty() {
                    *initial = None;
                }
                self.parts.arguments(piece, batch);
            }
            Some(Kind::Other) | None => {}
        }
    }

    fn block_stop(&mut self, stop: &BlockStop, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        match self.block.take() {
            Some(open) if open.index == stop.index => {
                if let Kind::ToolUse { initial: Some(arguments) } = open.kind {
                    self.parts.arguments(&arguments, batch);
                }
                self.parts.end(batch);
                Ok(())
            }
            _ => Err(bad(format!("content block {} ended while it was not open", stop.index))),
        }
    }

    fn message_delta(&mut self, event: MessageDelta) -> Result<(), ErrorInfo> {
        if !self.started {
            return Err(bad("message_delta came before message_start"));
        }
        let usage = event.usage.unwrap_or_default();
        self.usage_is_final |= !usage.is_empty();
        self.usage.merge(usage);
        if event.delta.stop_reason.is_some() {
            self.stop_reason = event.delta.stop_reason;
        }
        Ok(())
    }

    fn message_stop(&mut self) -> Result<(), ErrorInfo> {
        if !self.started {
            return Err(bad("message_stop came before message_start"));
        }
        if let Some(open) = &self.block {
            return Err(bad(format!("message_stop came before content block {} ended", open.index)));
        }
        self.stopped = true;
        Ok(())
    }
}

//! From the events of a stream to the pieces and the end of an answer.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use playhouse_protocol::error::ErrorCode;
use playhouse_protocol::message::FinishReason;
use playhouse_protocol::{ErrorInfo, Usage};
use serde_json::Value;

use crate::extent::Extent;
use crate::repair::{Repair, Repairs};

/// A piece of an answer. Deltas are never empty.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamEvent {
    /// More text.
    Text(String),
    /// More reasoning.
    Reasoning(String),
    /// What belongs to the reasoning before it and goes back unchanged. Where no reasoning came before it in this part,
    /// it is a reasoning part without readable text.
    ReasoningOpaque(serde_json::Value),
    /// Members that came with the text before it, and go back with it.
    TextOpaque(serde_json::Value),
    /// A call begins. Calls are numbered from 0 in the order in which they begin.
    CallStart {
        /// The provider's id; empty when it gave none.
        id: String,
        /// The tool.
        name: String,
    },
    /// More of a call's arguments (JSON text).
    CallArguments {
        /// The call's number.
        call: usize,
        /// The piece.
        text: String,
    },
    /// Members that came with a call, and go back with it. What came before with the same call is replaced.
    CallOpaque {
        /// The call's number.
        call: usize,
        /// An object.
        members: serde_json::Value,
    },
    /// The part under way is complete: what follows belongs to another one. Comes once for every part of an answer that
    /// ended well, and never for a part that had nothing. Arguments of an earlier call may follow, if a server mixes calls.
    PartEnd,
}

impl StreamEvent {
    /// What it holds, in bytes, with something for the event itself: an answer of a million empty calls is large too.
    pub(crate) fn size(&self) -> u64 {
        const EACH: usize = 16;
        let held = match self {
            Self::Text(text) | Self::Reasoning(text) | Self::CallArguments { text, .. } => text.len(),
            Self::ReasoningOpaque(value)
            | Self::TextOpaque(value)
            | Self::CallOpaque { members: value, .. } => value.to_string().len(),
            Self::CallStart { id, name } => id.len() + name.len(),
            Self::PartEnd => 0,
        };
        (held + EACH) as u64
    }
}

/// What is known when an answer is complete.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Why it ended.
    pub finish: FinishReason,
    /// What it used, where the provider said so at the end. Figures from its beginning are not all of it
    /// ([`usage_so_far`](crate::AnswerStream::usage_so_far) has them).
    pub usage: Option<Usage>,
    /// The model that says it answered.
    pub model: Option<String>,
    /// What was made good in it: to be logged.
    pub repairs: Repairs,
    /// What the provider left out of the request before the model read it, in its own words: to be logged.
    pub removals: Removals,
}

/// What a provider left out of a request, by kind and reason, and how often.
///
/// ```
/// use playhouse_llm::Removals;
/// let told = serde_json::json!([
///     {"type": "thinking_dropped", "reason": "prefix_binding_mismatch"},
///     {"type": "reasoning", "action": "removed", "reason": "prefix_mismatch", "id": "rs_1"},
///     {"type": "reasoning", "action": "removed", "reason": "prefix_mismatch", "id": "rs_2"},
///     3,
/// ]);
/// let removals = Removals::read(told.as_array().unwrap());
/// assert_eq!(removals.to_string(), "reasoning (prefix_mismatch) × 2, thinking_dropped (prefix_binding_mismatch) × 1");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removals(BTreeMap<(String, String), u32>);

impl Removals {
    /// Reads the member `input_transformations` of an answer. Entries of another shape are left out.
    pub fn read(transformations: &[Value]) -> Self {
        let mut removals = BTreeMap::new();
        for entry in transformations {
            let text = |name: &str| entry[name].as_str().map(str::to_owned);
            let Some(kind) = text("type") else { continue };
            *removals.entry((kind, text("reason").unwrap_or_default())).or_insert(0) += 1;
        }
        Self(removals)
    }

    /// Whether nothing was left out.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Removals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, ((kind, reason), times)) in self.0.iter().enumerate() {
            let before = if index == 0 { "" } else { ", " };
            write!(f, "{before}{kind} ({reason}) × {times}")?;
        }
        Ok(())
    }
}

/// An attempt that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Why.
    pub error: ErrorInfo,
    /// What the provider reported until then.
    pub usage: Option<Usage>,
}

/// Reads the events of one answer. Errors are fragments without the provider's name, which the caller knows.
pub(crate) trait Decode: Send {
    /// Takes one event: its name (`message` where the server gave none) and its data.
    fn event(&mut self, name: &str, data: &str, batch: &mut Batch<'_>) -> Result<(), ErrorInfo>;

    /// Whether the end marker came: what follows is of no interest.
    fn is_complete(&self) -> bool;

    /// Whether the answer is whole, and only figures or an end marker may follow, which some servers never send.
    fn is_whole(&self) -> bool {
        self.is_complete()
    }

    /// The stream ended without an end marker: ends what is under way, if the reason came.
    fn end(&mut self, _batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        Ok(())
    }

    /// What the provider reported so far.
    fn usage(&self) -> Option<Usage>;

    /// How often usage was reported so far.
    fn usage_reports(&self) -> u64;

    /// What is known now that the stream has ended.
    fn finish(&mut self) -> Result<Answer, ErrorInfo>;
}

/// The pieces that came with one read of the network. Neighbouring deltas of one part become one.
pub(crate) struct Batch<'a> {
    /// Where the pieces go; the first `before` are somebody else's.
    out: &'a mut Vec<StreamEvent>,
    /// Length of `out` when the batch began.
    before: usize,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(out: &'a mut Vec<StreamEvent>) -> Self {
        let before = out.len();
        Self { out, before }
    }

    fn last(&mut self) -> Option<&mut StreamEvent> {
        self.out[self.before..].last_mut()
    }

    fn text(&mut self, piece: &str) {
        match self.last() {
            Some(StreamEvent::Text(text)) => text.push_str(piece),
            _ => self.out.push(StreamEvent::Text(piece.to_owned())),
        }
    }

    fn reasoning(&mut self, piece: &str) {
        match self.last() {
            Some(StreamEvent::Reasoning(text)) => text.push_str(piece),
            _ => self.out.push(StreamEvent::Reasoning(piece.to_owned())),
        }
    }

    fn arguments(&mut self, number: usize, piece: &str) {
        match self.last() {
            Some(StreamEvent::CallArguments { call, text }) if *call == number => text.push_str(piece),
            _ => self.out.push(StreamEvent::CallArguments { call: number, text: piece.to_owned() }),
        }
    }
}

/// The parts of an answer as they come: keeps what was said, and ends parts.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// Calls that began, with how far their arguments have come.
    calls: Vec<Extent>,
    /// Their ids.
    ids: HashSet<String>,
    /// What was made good.
    repairs: Repairs,
    /// Whether any text was more than white space.
    said: bool,
    /// Whether there was any reasoning.
    thought: bool,
    /// Whether a part had something and has not ended.
    open: bool,
}

impl Parts {
    pub(crate) fn text(&mut self, piece: &str, batch: &mut Batch<'_>) {
        if !piece.is_empty() {
            self.said = self.said || !piece.trim_start().is_empty();
            self.open = true;
            batch.text(piece);
        }
    }

    pub(crate) fn reasoning(&mut self, piece: &str, batch: &mut Batch<'_>) {
        if !piece.is_empty() {
            self.thought = self.thought || !piece.trim_start().is_empty();
            self.open = true;
            batch.reasoning(piece);
        }
    }

    pub(crate) fn opaque(&mut self, value: serde_json::Value, batch: &mut Batch<'_>) {
        self.thought = true;
        self.open = true;
        batch.out.push(StreamEvent::ReasoningOpaque(value));
    }

    /// Members of the text under way.
    pub(crate) fn text_opaque(&mut self, members: serde_json::Value, batch: &mut Batch<'_>) {
        batch.out.push(StreamEvent::TextOpaque(members));
    }

    /// Members of the call with this number.
    pub(crate) fn call_opaque(
        &mut self,
        call: usize,
        members: Option<serde_json::Value>,
        batch: &mut Batch<'_>,
    ) {
        batch.out.extend(members.map(|members| StreamEvent::CallOpaque { call, members }));
    }

    /// A call begins; returns its number.
    pub(crate) fn call(&mut self, id: &str, name: &str, batch: &mut Batch<'_>) -> usize {
        self.calls.push(Extent::default());
        self.open = true;
        if !id.is_empty() && !self.ids.insert(id.to_owned()) {
            self.note(Repair::RepeatedCallId);
        }
        batch.out.push(StreamEvent::CallStart { id: id.to_owned(), name: name.to_owned() });
        self.calls.len() - 1
    }

    /// More arguments of the call with this number.
    pub(crate) fn arguments(&mut self, call: usize, piece: &str, batch: &mut Batch<'_>) {
        if let Some(extent) = self.calls.get_mut(call).filter(|_| !piece.is_empty()) {
            extent.push(piece);
            batch.arguments(call, piece);
        }
    }

    /// Whether the arguments of all calls are whole, as far as that can be seen.
    pub(crate) fn are_calls_whole(&self) -> bool {
        self.calls.iter().all(Extent::is_whole)
    }

    /// Whether anything came: a part that began, whether it has ended or not.
    pub(crate) fn has_any(&self) -> bool {
        self.open || self.said || self.thought || !self.calls.is_empty()
    }

    pub(crate) fn end(&mut self, batch: &mut Batch<'_>) {
        if std::mem::take(&mut self.open) {
            batch.out.push(StreamEvent::PartEnd);
        }
    }

    pub(crate) fn note(&mut self, repair: Repair) {
        self.repairs.note(repair);
    }

    /// What was made good, once the answer is complete.
    pub(crate) fn take_repairs(&mut self) -> Repairs {
        std::mem::take(&mut self.repairs)
    }

    /// The dialect has another word for the end of an answer with calls.
    pub(crate) fn stopped(&mut self) -> FinishReason {
        if !self.calls.is_empty() {
            self.note(Repair::StoppedWithCalls);
        }
        FinishReason::Stop
    }

    /// The reason that fits what came. `reported`: the provider's own word, for messages.
    pub(crate) fn settle(&self, finish: FinishReason, reported: &str) -> Result<FinishReason, ErrorInfo> {
        match finish {
            FinishReason::ToolCalls if self.calls.is_empty() => Err(bad(format!(
                "the answer ended with \"{reported}\" and holds no call; if this goes on, the server's tool parser does \
                 not fit the model"
            ))),
            // Some servers say that the model stopped whatever it did.
            FinishReason::Stop if !self.calls.is_empty() => Ok(FinishReason::ToolCalls),
            // What follows from reasoning alone is for the caller to say.
            FinishReason::Stop | FinishReason::Other
                if self.calls.is_empty() && !self.said && !self.thought =>
            {
                Err(ErrorInfo::new(
                    ErrorCode::EmptyAnswer,
                    format!("the answer (ended with \"{reported}\") holds neither text nor a call"),
                ))
            }
            finish => Ok(finish),
        }
    }
}

/// An answer that is not what the dialect says.
pub(crate) fn bad(what: impl Into<String>) -> ErrorInfo {
    ErrorInfo::new(ErrorCode::BadAnswer, what)
}

/// An answer that stopped before `marker`.
pub(crate) fn cut(marker: &str) -> ErrorInfo {
    ErrorInfo::new(ErrorCode::StreamCut, format!("the answer stopped before its end ({marker} did not come)"))
}

/// The most calls, or items of any kind, that an answer is read with. Each is looked for among all.
const MOST_ITEMS: usize = 10_000;

/// Refuses an answer of too many calls or items.
pub(crate) fn check_count(items: usize) -> Result<(), ErrorInfo> {
    match items > MOST_ITEMS {
        true => {
            Err(bad(format!("the answer holds more than {MOST_ITEMS} parts: nothing this large is read")))
        }
        false => Ok(()),
    }
}

/// Whether the data of an event says nothing: it is empty, or a comment that somebody sent as data.
pub(crate) fn is_nothing(data: &str) -> bool {
    matches!(data.trim_start().as_bytes().first(), None | Some(b':'))
}

/// Whether the data of an event is the end marker that servers of any dialect may send.
pub(crate) fn is_done(data: &str) -> bool {
    data.trim_start().starts_with("[DONE]")
}

/// Reads the data of an event named `what`.
pub(crate) fn parse<'a, T: serde::Deserialize<'a>>(what: &str, data: &'a str) -> Result<T, ErrorInfo> {
    serde_json::from_str(data).map_err(|error| {
        let beginning: String = data.chars().take(120).collect();
        bad(format!("the data of a \"{what}\" event is not what the dialect says ({error}): {beginning}"))
    })
}

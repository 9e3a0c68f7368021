//! What a model reads of a history that would not fit its window any more.
//!
//! The history itself never changes. Two kinds of records say what is left out of it: outputs that are cleared or
//! shortened, and a summary or a mark in place of the oldest messages. [`Context`] is the fold of these. From it follow
//! the conversation that is sent ([`Session::read`](crate::Session::read)), its size ([`gauge`]), and what is done when
//! that is too large ([`plan`]).

mod digest;
mod gauge;
mod plan;
mod standing;
#[cfg(test)]
mod tests;
mod texts;
mod view;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use playhouse_protocol::id::{MessageId, PartId};
use playhouse_protocol::message::{CallResult, CompactionKind};
use playhouse_protocol::record::ContextCleared;
use playhouse_protocol::{ModelRef, Seq};

pub(crate) use digest::{beginning, digest, digest_of_turn};
pub use gauge::Fit;
pub(crate) use gauge::{Calibration, Gauge};
pub(crate) use plan::{Plan, Room, plan, plan_by_hand, write};
pub(crate) use texts::{cut, refused};

use crate::chat::Thoughts;
use crate::fold::FILE_BYTES;

/// What a line in place of an output counts as, in bytes.
pub(crate) const LINE_BYTES: u64 = 200;

/// How much of an output a model reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// All.
    Whole,
    /// So many bytes at its beginning.
    Beginning(u64),
    /// A line that says that it was there.
    Line,
}

/// What models read in place of older messages.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Compacted {
    /// What the text is.
    pub(crate) how: CompactionKind,
    /// The text.
    pub(crate) text: String,
    /// The place of the first message, where it stays.
    pub(crate) first: Option<usize>,
    /// The place of the prompt that stays.
    pub(crate) prompt: Option<usize>,
    /// The place of the first message at the end that stays.
    pub(crate) from: usize,
}

/// Bytes of conversation of requests to a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// The largest that was accepted.
    pub(crate) accepted: u64,
    /// The smallest that was refused as too long, where none that is as large was accepted since.
    pub(crate) refused: Option<u64>,
}

/// What is left out of a history: the fold of what was cleared and compacted, and of what providers said of sizes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Context {
    outputs: HashMap<PartId, Shown>,
    /// Attached files that the provider of a model refused, and calls whose files it refused.
    refused: HashSet<(String, PartId)>,
    pub(crate) compacted: Option<Compacted>,
    /// The record that changed last what is read of the history.
    pub(crate) revision: Seq,
    /// Places of answers whose reasoning was made before something in front of it changed, in ranges.
    stale: Vec<Range<usize>>,
    /// Answers that were asked for with the text of the step limit.
    reminded: Vec<MessageId>,
    /// By model.
    calibrations: BTreeMap<String, Calibration>,
    /// By model.
    sizes: BTreeMap<String, Sizes>,
    /// How often room was made since an answer came.
    pub(crate) in_a_row: u32,
    /// How many summaries failed since one was written, or since the turn began.
    pub(crate) failed_summaries: u32,
}

impl Context {
    /// How much of a call's output is read.
    pub(crate) fn shown(&self, call: PartId) -> Shown {
        self.outputs.get(&call).copied().unwrap_or(Shown::Whole)
    }

    /// Whether the provider of `model` refused this file, or the files of this call.
    pub(crate) fn is_refused(&self, model: &ModelRef, file: PartId) -> bool {
        !self.refused.is_empty() && self.refused.contains(&(model.to_string(), file))
    }

    /// A provider accepted a request to `model` whose conversation had so many bytes.
    pub(crate) fn accept(&mut self, model: &ModelRef, bytes: u64) {
        let sizes = self.sizes.entry(model.to_string()).or_default();
        sizes.accepted = sizes.accepted.max(bytes);
        sizes.refused = sizes.refused.filter(|refused| *refused > bytes);
    }

    /// It refused one as too long.
    pub(crate) fn refuse(&mut self, model: &ModelRef, bytes: u64) {
        let sizes = self.sizes.entry(model.to_string()).or_default();
        sizes.refused = Some(sizes.refused.map_or(bytes, |refused| refused.min(bytes)));
    }

    /// What is known of the sizes of requests to `model`.
    pub(crate) fn sizes(&self, model: &ModelRef) -> Sizes {
        self.sizes.get(&model.to_string()).copied().unwrap_or_default()
    }

    /// About how many bytes a result adds to a request.
    pub(crate) fn result_bytes(&self, call: PartId, result: &CallResult) -> u64 {
        let whole = result.output.len() as u64;
        let files = result.attachments.len() as u64 * FILE_BYTES;
        match self.shown(call) {
            Shown::Whole => whole + files,
            Shown::Beginning(bytes) => whole.min(bytes + LINE_BYTES) + files,
            Shown::Line => (whole + files).min(LINE_BYTES),
        }
    }

    /// The first message at the end that is read, and the first that is not left out.
    pub(crate) fn begins_at(&self) -> usize {
        self.compacted.as_ref().map_or(0, |compacted| compacted.from)
    }

    /// Whether the reasoning of the answer at this place holds.
    pub(crate) fn thoughts(&self, place: usize) -> Thoughts {
        let is_stale = self.stale.iter().any(|range| range.contains(&place));
        if is_stale { Thoughts::Stale } else { Thoughts::Fresh }
    }

    /// Records that what is read in front of the answers at these places changed.
    pub(crate) fn outdate(&mut self, answers: Range<usize>) {
        self.stale.retain(|range| range.start < answers.start || range.end > answers.end);
        if !answers.is_empty() {
            self.stale.push(answers);
        }
    }

    /// Whether this answer was asked for with the text of the step limit.
    pub(crate) fn is_reminded(&self, answer: MessageId) -> bool {
        self.reminded.contains(&answer)
    }

    pub(crate) fn remind(&mut self, answer: MessageId) {
        self.reminded.push(answer);
    }

    /// `model`: the one whose provider refused what is named as refused.
    pub(crate) fn clear(&mut self, cleared: &ContextCleared, model: &ModelRef, at: Seq) {
        let lines = cleared.calls.iter().map(|call| (*call, Shown::Line));
        let beginnings = cleared.shortened.iter().map(|short| (short.call, Shown::Beginning(short.bytes)));
        self.outputs.extend(beginnings.chain(lines));
        self.refused.extend(cleared.files.iter().map(|file| (model.to_string(), *file)));
        self.made_room(at);
    }

    pub(crate) fn compact(&mut self, compacted: Compacted, at: Seq) {
        self.compacted = Some(compacted);
        self.failed_summaries = 0;
        self.made_room(at);
    }

    /// The messages from `place` on are dropped; `compacted`: what tells of the last compaction is among them.
    pub(crate) fn rewind(&mut self, place: usize, compacted: bool, at: Seq) {
        if compacted {
            self.compacted = None;
        }
        self.stale.retain(|range| range.start < place);
        self.stale.iter_mut().for_each(|range| range.end = range.end.min(place));
        self.revision = at;
    }

    fn made_room(&mut self, at: Seq) {
        self.revision = at;
        self.in_a_row += 1;
    }

    /// A request whose conversation had so many bytes was of so many tokens, as its provider says.
    pub(crate) fn calibrate(&mut self, model: &ModelRef, bytes: u64, tokens: u64) {
        self.calibrations.insert(model.to_string(), Calibration { bytes, tokens });
    }

    /// Tells whether a request to `model` with so many bytes of conversation has room within so many tokens.
    pub(crate) fn fit(&self, model: &ModelRef, bytes: u64, room: u64) -> Fit {
        Fit { bytes, room, calibration: self.calibrations.get(&model.to_string()).copied() }
    }

    /// What is known of the size of requests to `model`, before which stand so many tokens of prompt and tools.
    pub(crate) fn gauge(&self, model: &ModelRef, overhead: u64) -> Gauge {
        Gauge::new(overhead, self.calibrations.get(&model.to_string()).copied())
    }
}

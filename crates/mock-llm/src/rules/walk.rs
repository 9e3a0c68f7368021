//! The check of the reasoning in a conversation against what stood before it when it was made.

use super::canonical::{hash_of, mix};
use super::history::{History, Piece, Thought};
use super::memory::{Answers, key};
use super::seal::Seal;

/// The finding about a block of reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// As it was handed out, after what stood before it then.
    Valid(u64),
    /// As it was handed out, after something else.
    Stale(u64),
    /// Another model's.
    Foreign(u64),
    /// With another text than it was handed out with.
    Modified,
    /// Never handed out.
    Forged,
}

/// The outcome of a check.
#[derive(Debug, Default)]
pub(super) struct Walked<'a> {
    /// Each block with a signature, in order.
    pub(super) verdicts: Vec<(Thought<'a>, Verdict)>,
    /// Blocks without signatures that came back as they were handed out.
    pub(super) returned: Vec<u64>,
    /// Blocks that could have come back and did not.
    pub(super) missing: Vec<u64>,
    /// The hash of the conversation without the blocks that are not valid.
    pub(super) end: u64,
}

/// The check of a model's conversations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walker<'m> {
    /// The hash of the model's name.
    pub(super) model: u64,
    /// Whether reasoning is bound to what stood before it.
    pub(super) is_bound: bool,
    /// The answers with reasoning.
    pub(super) answers: &'m Answers,
}

/// An answer under way: pieces of the model without another's between them.
#[derive(Default)]
struct Run<'a> {
    /// The hash of what stands before it.
    start: u64,
    /// What the next block of it is bound to.
    bound: u64,
    /// The ids of its blocks.
    ids: Vec<u64>,
    /// The hashes of the texts of its blocks without signatures.
    bare: Vec<u64>,
    calls: Vec<&'a str>,
    text: String,
}

/// The number that the next block is bound to after a block `id`, and `bound` before that.
pub(super) fn after(bound: u64, id: u64) -> u64 {
    mix(bound, id)
}

impl Walker<'_> {
    /// Checks a conversation.
    pub(super) fn walk<'a>(self, history: &History<'a>) -> Walked<'a> {
        let mut walked = Walked { end: history.base, ..Walked::default() };
        let mut run: Option<Run<'a>> = None;
        for piece in &history.pieces {
            let begin = || Run { start: walked.end, bound: walked.end, ..Run::default() };
            match piece {
                Piece::Asked(hash) => {
                    self.close(run.take(), &mut walked);
                    walked.end = mix(walked.end, *hash);
                }
                Piece::Said { hash, call, text } => {
                    let run = run.get_or_insert_with(begin);
                    run.calls.extend(call);
                    run.text.push_str(text.unwrap_or_default());
                    // A part of the piece before it.
                    if *hash != 0 {
                        walked.end = mix(walked.end, *hash);
                    }
                }
                Piece::Thought(thought) => {
                    let current = run.get_or_insert_with(begin);
                    let Some(signature) = thought.signature else {
                        current.bare.push(hash_of(thought.text.unwrap_or_default()));
                        continue;
                    };
                    let verdict = self.judge(signature, *thought, current.bound, walked.end);
                    if let Verdict::Valid(id) = verdict {
                        let seal = Seal::parse(signature);
                        // Another answer begins here, with nothing between it and the one before.
                        if seal.is_some_and(|seal| seal.prefix == walked.end && seal.prefix != current.bound)
                        {
                            self.close(run.take(), &mut walked);
                        }
                        let start = walked.end;
                        let current =
                            run.get_or_insert_with(|| Run { start, bound: start, ..Run::default() });
                        current.bound = after(current.bound, id);
                        walked.end = mix(walked.end, id);
                    }
                    if let (Verdict::Valid(id) | Verdict::Stale(id), Some(current)) = (verdict, &mut run) {
                        current.ids.push(id);
                    }
                    walked.verdicts.push((*thought, verdict));
                }
            }
        }
        self.close(run, &mut walked);
        walked
    }

    /// Judges a block of an answer whose next block is bound to `bound`; `end` is the hash of all before the block.
    fn judge(self, signature: &str, thought: Thought<'_>, bound: u64, end: u64) -> Verdict {
        let Some(seal) = Seal::parse(signature) else { return Verdict::Forged };
        if thought.text.is_some_and(|text| hash_of(text) != seal.text) {
            return Verdict::Modified;
        }
        if seal.model != self.model {
            return Verdict::Foreign(seal.id());
        }
        if !self.is_bound || seal.prefix == bound || seal.prefix == end {
            return Verdict::Valid(seal.id());
        }
        Verdict::Stale(seal.id())
    }

    /// Ends an answer: looks for blocks that it was handed out with.
    fn close(self, run: Option<Run<'_>>, walked: &mut Walked<'_>) {
        let Some(run) = run else { return };
        let Some(key) = key(self.model, run.start, run.calls.iter().copied(), &run.text) else { return };
        for block in self.answers.get(key) {
            if run.bare.contains(&block.text) {
                walked.returned.push(block.id);
            } else if !run.ids.contains(&block.id) {
                walked.missing.push(block.id);
            }
        }
    }
}

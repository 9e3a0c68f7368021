//! A block whose first and last line are those of the wanted text, and that is much like it in between.

use std::ops::Range;

use super::fit::Shared;
use super::likeness::Likeness;
use super::lines::Lines;
use super::strategy::{Found, Place, Search, Strategy};
use super::trimmed::{confused, place, without_blank_ends};

/// Likeness from which a block is taken, in percent.
const SURE: usize = 75;

/// Likeness from which it is worth telling of.
const LIKELY: usize = 40;

/// A second block must be at least so much less alike.
const APART: usize = 15;

/// Blocks that are compared in detail.
const COMPARED: usize = 16;

/// Pairs of first and last lines that are looked at.
const PAIRS: usize = 100_000;

/// Lines of blocks that are compared as wholes.
const LINES: usize = 20_000_000;

/// The first and the last line are there, and what is between them is like what was wanted.
pub(super) struct BlockAnchor;

impl Strategy for BlockAnchor {
    fn name(&self) -> &'static str {
        "block-anchor"
    }

    fn difference(&self) -> &'static str {
        "only the first and the last line are the same, and the lines between them are similar"
    }

    fn find(&self, search: &Search<'_>) -> Found {
        let (wanted, new) = without_blank_ends(search.wanted, search.new);
        let search = search.with(wanted, new);
        let block = search.wanted_lines();
        let height = block.count();
        if height < 3 {
            return Found::Nothing;
        }
        let lines = search.lines();
        let pairs = Pairs::of(lines.trimmed(), block.trimmed());
        let Some(candidates) = pairs.candidates() else {
            return Found::TooAlike(pairs.some().map(|at| Place::plain(lines.bytes(&at))).collect());
        };
        if candidates.is_empty() {
            return pairs.over_wide().map_or(Found::Nothing, |at| Found::Doubt {
                reason: format!(
                    "only its first and last line are those of oldString, and it has {} lines instead of {height}",
                    at.len()
                ),
                range: lines.bytes(&at),
            });
        }
        if candidates.len() * height > LINES {
            let some = candidates.iter().take(COMPARED);
            return Found::TooAlike(some.map(|at| Place::plain(lines.bytes(at))).collect());
        }
        judge(&search, candidates)
    }
}

/// Takes the block that is like the wanted one, if there is only one such.
fn judge(search: &Search<'_>, candidates: Vec<Range<usize>>) -> Found {
    let (lines, block) = (search.lines(), search.wanted_lines());
    let mut counted = most_equal(lines, block, candidates);
    // More that are equally good at first sight than can be looked at closely.
    if counted.get(COMPARED).is_some_and(|next| next.0 == counted[0].0) {
        let some = counted[..COMPARED].iter();
        return Found::TooAlike(some.map(|(_, at)| Place::plain(lines.bytes(at))).collect());
    }
    counted.truncate(COMPARED);
    let mut likeness = Likeness::new();
    let mut judged: Vec<(usize, Range<usize>)> = counted
        .into_iter()
        .map(|(_, at)| at)
        .map(|at| (percent(&mut likeness, lines, block, &at), at))
        .collect();
    judged.sort_by_key(|(percent, at)| (std::cmp::Reverse(*percent), at.len().abs_diff(block.count())));
    let Some((best, at)) = judged.first() else { return Found::Nothing };
    if *best < LIKELY {
        return Found::Nothing;
    }
    if *best < SURE {
        let reason = format!(
            "only its first and last line are those of oldString, and the lines between them are only {best}% alike"
        );
        return Found::Doubt { range: lines.bytes(at), reason };
    }
    let rivals = judged.iter().take_while(|(percent, _)| percent + APART > *best).count();
    if rivals > 1 {
        let mut rivals: Vec<_> = judged[..rivals].iter().map(|(_, at)| lines.bytes(at)).collect();
        rivals.sort_by_key(|range| range.start);
        return Found::TooAlike(rivals.into_iter().map(Place::plain).collect());
    }
    let shared = if at.len() == block.count() { Shared::all(at.len()) } else { Shared { head: 1, tail: 1 } };
    match place(search, search.wanted, at, shared) {
        Some(place) => Found::Places(vec![place]),
        None => confused(lines.bytes(at)),
    }
}

/// The candidates with how many of their lines are equal to the wanted ones, the most first.
fn most_equal(
    lines: &Lines<'_>,
    block: &Lines<'_>,
    candidates: Vec<Range<usize>>,
) -> Vec<(usize, Range<usize>)> {
    let equal = |at: &Range<usize>| {
        let (found, wanted) = (&lines.trimmed()[at.clone()], block.trimmed());
        let front = found.iter().zip(wanted).filter(|(found, wanted)| found == wanted).count();
        let back =
            found.iter().rev().zip(wanted.iter().rev()).filter(|(found, wanted)| found == wanted).count();
        front.max(back)
    };
    let mut counted: Vec<_> = candidates.into_iter().map(|at| (equal(&at), at)).collect();
    counted.sort_by_key(|(equal, at)| (std::cmp::Reverse(*equal), at.start));
    counted
}

/// How alike the lines between the first and the last one are.
fn percent(likeness: &mut Likeness, lines: &Lines<'_>, block: &Lines<'_>, at: &Range<usize>) -> usize {
    likeness.restart();
    let (inner, wanted) = (at.start + 1..at.end - 1, 1..block.count() - 1);
    if inner.len() == wanted.len() {
        for (found, wanted) in inner.zip(wanted) {
            likeness.compare(lines.line(found).trim_ascii(), block.line(wanted).trim_ascii());
        }
    } else {
        let joined = |lines: &Lines<'_>, at: Range<usize>| {
            lines.slice(at).into_iter().map(<[u8]>::trim_ascii).collect::<Vec<_>>().join(&b'\n')
        };
        likeness.compare(&joined(lines, inner), &joined(block, wanted));
    }
    likeness.percent()
}

/// Where the first and the last line of the wanted text are in the file, and how far they may be apart.
struct Pairs {
    firsts: Vec<usize>,
    lasts: Vec<usize>,
    height: usize,
    more: usize,
}

impl Pairs {
    fn of(lines: &[u64], block: &[u64]) -> Self {
        let (first, last) = (block.first().copied(), block.last().copied());
        let at = |wanted: Option<u64>| {
            let same = lines.iter().enumerate().filter(|(_, line)| Some(**line) == wanted);
            same.map(|(index, _)| index).collect::<Vec<_>>()
        };
        let height = block.len();
        // As many lines more or less as can still be a slip.
        Self { firsts: at(first), lasts: at(last), height, more: (height / 5).clamp(1, 50) }
    }

    /// The last lines that may belong to the first line at `first`.
    fn ends(&self, first: usize) -> &[usize] {
        let least = first + (self.height - 1).saturating_sub(self.more).max(1);
        let most = first + self.height - 1 + self.more;
        let start = self.lasts.partition_point(|last| *last < least);
        let end = self.lasts.partition_point(|last| *last <= most);
        &self.lasts[start..end]
    }

    fn blocks(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.firsts.iter().flat_map(|first| self.ends(*first).iter().map(move |last| *first..last + 1))
    }

    /// The blocks of the right height, or else those of nearly that height; `None` when there are too many.
    fn candidates(&self) -> Option<Vec<Range<usize>>> {
        let right = |first: &usize| self.lasts.binary_search(&(first + self.height - 1)).is_ok();
        let exact: Vec<_> = self
            .firsts
            .iter()
            .filter(|first| right(first))
            .map(|first| *first..first + self.height)
            .collect();
        if !exact.is_empty() {
            return (exact.len() <= PAIRS).then_some(exact);
        }
        let near: Vec<_> = self.blocks().take(PAIRS + 1).collect();
        (near.len() <= PAIRS).then_some(near)
    }

    /// Some blocks, for telling of them.
    fn some(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.blocks().take(COMPARED)
    }

    /// The only block that begins with the first line, when it is far too high.
    fn over_wide(&self) -> Option<Range<usize>> {
        let [first] = self.firsts[..] else { return None };
        let last = *self.lasts.get(self.lasts.partition_point(|last| *last <= first + self.height))?;
        Some(first..last + 1)
    }
}

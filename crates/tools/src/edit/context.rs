//! The lines around a change, which are there, with something else between them than the wanted text has.

use std::ops::Range;

use super::fit::Shared;
use super::likeness::Likeness;
use super::lines::{is_blank, occurrences};
use super::strategy::{Found, MOST, Place, Search, Strategy};
use super::trimmed::{confused, place, without_blank_ends};

/// Lines with content that the context must have.
const LEAST: usize = 3;

/// Likeness of what is between from which the place is taken, in percent.
const SURE: usize = 50;

/// The lines that the old and the new text have in common are there, and what is between them is not too different.
pub(super) struct ContextAware;

impl Strategy for ContextAware {
    fn name(&self) -> &'static str {
        "context-aware"
    }

    fn difference(&self) -> &'static str {
        "the lines around the change are the same, and the changed ones are only similar"
    }

    fn find(&self, search: &Search<'_>) -> Found {
        let (wanted, new) = without_blank_ends(search.wanted, search.new);
        let search = search.with(wanted, new);
        let Some(context) = Context::of(&search) else { return Found::Nothing };
        let lines = search.lines();
        let block = search.wanted_lines();
        let (changed, height) = (context.changed.clone(), block.count());
        let before = occurrences(lines.trimmed(), &block.trimmed()[..changed.start], true, MOST);
        let after = occurrences(lines.trimmed(), &block.trimmed()[changed.end..], true, MOST);
        let more = (changed.len() / 4).max(1);
        let mut blocks: Vec<Range<usize>> = Vec::new();
        let mut wide = None;
        for start in &before {
            let from = start + changed.start;
            let Some(end) = after.get(after.partition_point(|at| *at < from)) else { break };
            let found = *start..end + height - changed.end;
            if (end - from).abs_diff(changed.len()) <= more {
                blocks.push(found);
            } else if end - from > changed.len() {
                wide = wide.or(Some(found));
            }
        }
        match &blocks[..] {
            [] => wide.map_or(Found::Nothing, |at| Found::Doubt {
                reason: format!(
                    "only the lines around the change are those of oldString, and it has {} lines instead of {height}",
                    at.len()
                ),
                range: lines.bytes(&at),
            }),
            [only] => context.judge(&search, only),
            several => Found::TooAlike(several.iter().take(20).map(|at| Place::plain(lines.bytes(at))).collect()),
        }
    }
}

/// What of the wanted lines changes. The rest is the context, which is not empty on either side.
struct Context {
    changed: Range<usize>,
}

impl Context {
    fn of(search: &Search<'_>) -> Option<Self> {
        let old = search.wanted_lines();
        let new: Vec<&[u8]> = search.new.split(|byte| *byte == b'\n').collect();
        let new = if search.new.ends_with(b"\n") { &new[..new.len() - 1] } else { &new[..] };
        let most = old.count().min(new.len());
        let head = (0..most).take_while(|at| old.line(*at) == new[*at]).count();
        let same = |at: &usize| old.line(old.count() - 1 - at) == new[new.len() - 1 - at];
        let tail = (0..most - head).take_while(same).count();
        let changed = head..old.count() - tail;
        let told = (0..head).chain(changed.end..old.count()).filter(|at| !is_blank(old.line(*at))).count();
        (head > 0 && tail > 0 && told >= LEAST).then_some(Self { changed })
    }

    fn judge(&self, search: &Search<'_>, at: &Range<usize>) -> Found {
        let (lines, block) = (search.lines(), search.wanted_lines());
        let tail = block.count() - self.changed.end;
        let found = &search.text[lines.bytes(&(at.start + self.changed.start..at.end - tail))];
        let wanted = &search.wanted[block.bytes(&self.changed)];
        let mut likeness = Likeness::new();
        likeness.compare(found.trim_ascii(), wanted.trim_ascii());
        let percent = likeness.percent();
        if percent < SURE || self.changed.is_empty() {
            let reason = format!(
                "only the lines around the change are those of oldString, and what is between them is only {percent}% alike"
            );
            return Found::Doubt { range: lines.bytes(at), reason };
        }
        match place(search, search.wanted, at, Shared { head: self.changed.start, tail }) {
            Some(place) => Found::Places(vec![place]),
            None => confused(lines.bytes(at)),
        }
    }
}

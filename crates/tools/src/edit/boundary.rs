//! The wanted text with more or less white space at its two ends than the file has.

use std::ops::Range;

use memchr::memchr;

use super::exact;
use super::strategy::{Found, Gathered, MOST, Place, Search, Strategy};
use super::trimmed::{IndentationFlexible, LineTrimmed, without_blank_ends};
use super::whitespace::is_whole;

/// White space at the beginning and the end of the whole text may differ.
pub(super) struct TrimmedBoundary;

impl Strategy for TrimmedBoundary {
    fn name(&self) -> &'static str {
        "trimmed-boundary"
    }

    fn difference(&self) -> &'static str {
        "white space before or after the whole text differs"
    }

    fn find(&self, search: &Search<'_>) -> Found {
        let core = search.wanted.trim_ascii();
        if core.is_empty() {
            return Found::Nothing;
        }
        // Where lines begin or end in either text, only whole lines are what was meant: in the middle of a line of the file
        // the new text would join it, or stand at the wrong depth.
        let within_a_line = !has_break(search.wanted) && !has_break(search.new);
        if core.len() < search.wanted.len() && within_a_line {
            let mut places = exact::occurrences(search.text, core, search.all);
            // White space around a word is not part of a longer one.
            places.retain(|place| is_whole(search.text, place));
            if !places.is_empty() {
                if places.len() > MOST || (places.len() > 1 && !search.all) {
                    return Found::Places(places.into_iter().map(Place::plain).collect());
                }
                return widened(search, places);
            }
        }
        let (wanted, new) = without_blank_ends(search.wanted, search.new);
        if wanted.len() == search.wanted.len() {
            return Found::Nothing;
        }
        let search = search.with(wanted, new);
        match LineTrimmed.find(&search) {
            Found::Nothing => IndentationFlexible.find(&search),
            found => found,
        }
    }
}

/// The places of the core, with as much of the white space around it as the file has. There are no line breaks in either
/// text.
fn widened(search: &Search<'_>, cores: Vec<Range<usize>>) -> Found {
    let blank_before = search.wanted.len() - search.wanted.trim_ascii_start().len();
    let (before, rest) = search.wanted.split_at(blank_before);
    let after = &rest[rest.trim_ascii_end().len()..];
    let mut gathered = Gathered::default();
    // Two places must not take the same white space.
    let mut free = 0;
    for (index, core) in cores.iter().enumerate() {
        let limit = cores.get(index + 1).map_or(search.text.len(), |next| next.start);
        let left = common_end(before, &search.text[free..core.start]);
        let right = common_start(after, &search.text[core.end..limit]);
        free = core.end + right;
        let place = core.start - left..free;

        let (missing_before, missing_after) = (&before[..before.len() - left], &after[right..]);
        let new = &search.new[common_start(missing_before, search.new)..];
        let new = &new[..new.len() - common_end(missing_after, new)];
        if !gathered.take(Place { range: place, new: Some(new.into()) }) {
            break;
        }
    }
    gathered.found()
}

fn has_break(text: &[u8]) -> bool {
    memchr(b'\n', text).is_some()
}

fn common_start(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

fn common_end(one: &[u8], other: &[u8]) -> usize {
    one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count()
}

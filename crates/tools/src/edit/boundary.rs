//! The wanted text with more or less white space at its two ends than the file has.

use std::ops::Range;

use memchr::{memchr, memrchr};

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
        if core.len() < search.wanted.len() {
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

/// The places of the core, with as much of the white space around it as the file has.
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
        let mut place = core.start - left..free;

        let (missing_before, missing_after) = (&before[..before.len() - left], &after[right..]);
        let mut new = search.new;
        new =
            without_front(new, common_start(missing_before, new), has_break(&before[before.len() - left..]));
        new = without_back(new, common_end(missing_after, new), has_break(&after[..right]));
        keep_breaks(search.text, core, &mut place, new);
        if !gathered.take(Place { range: place, new: Some(new.into()) }) {
            break;
        }
    }
    gathered.found()
}

/// Takes a line break out of `place`, around `core`, where `new` has none: the lines around the place stay lines.
fn keep_breaks(text: &[u8], core: &Range<usize>, place: &mut Range<usize>, new: &[u8]) {
    let front = &new[..new.len() - new.trim_ascii_start().len()];
    let back = &new[new.trim_ascii_end().len()..];
    let ends_line = |at: usize| text.get(at).is_none_or(|byte| *byte == b'\n');
    // A line that is taken out takes one of its breaks with it.
    if let Some(at) = memchr(b'\n', &text[place.start..core.start])
        && !has_break(front)
        && !(new.is_empty() && ends_line(place.end))
    {
        place.start += at + 1;
    }
    let begins_line = |at: usize| at == 0 || text[at - 1] == b'\n';
    if let Some(at) = memrchr(b'\n', &text[core.end..place.end])
        && !has_break(back)
        && !(new.is_empty() && begins_line(place.start))
    {
        place.end = core.end + at;
    }
}

/// `new` without its first `count` bytes, which are white space; the last break in front of its words stays on demand.
fn without_front(new: &[u8], count: usize, keeps: bool) -> &[u8] {
    let blank = &new[..new.len() - new.trim_ascii_start().len()];
    match memrchr(b'\n', blank) {
        Some(at) if keeps => &new[count.min(at)..],
        _ => &new[count..],
    }
}

/// `new` without its last `count` bytes, which are white space; the first break after its words stays on demand.
fn without_back(new: &[u8], count: usize, keeps: bool) -> &[u8] {
    let bare = new.trim_ascii_end().len();
    let end = new.len() - count;
    match memchr(b'\n', &new[bare..]) {
        Some(at) if keeps => &new[..end.max(bare + at + 1)],
        _ => &new[..end],
    }
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

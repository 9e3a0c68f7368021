//! The replacement itself: bytes in, bytes out.

use std::borrow::Cow;
use std::ops::Range;

use memchr::{memchr, memchr_iter, memmem};

use super::nearest::{Excerpt, excerpt, nearest};
use super::strategy::{Found, MOST, Place, STRATEGIES, Search, Strategy};
use crate::files::document::{Endings, Unified, is_numbered, line_count, split_mark, with_ending};
use crate::files::endings::Mixed;
use crate::files::seen::LARGEST;

/// Places that are told of in a refusal.
const TOLD: usize = 10;

/// Lines of a doubtful place that are told of.
const SHOWN: usize = 12;

/// Bytes of a new text from which it is no accident that the file has it already.
const TELLING: usize = 8;

/// The largest text, in bytes, in which other than exact occurrences are looked for: their strategies take memory for each line.
const APPROXIMATE: usize = 20_000_000;

/// A changed content.
#[derive(Debug)]
pub(super) struct Edited {
    /// All of it.
    pub(super) bytes: Vec<u8>,
    /// The lines that hold each replacement now, from 1. Never empty.
    pub(super) lines: Vec<Lines>,
    /// How the text was found.
    pub(super) strategy: &'static str,
    /// What differed, unless the text was found exactly.
    pub(super) difference: Option<&'static str>,
}

/// First and last line of a place, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lines {
    /// The first.
    pub(super) start: usize,
    /// The last; the same where a text was only taken out.
    pub(super) end: usize,
}

/// Why nothing was changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The text is not there.
    Absent {
        /// What is there instead.
        nearest: Option<String>,
        /// What is probably wrong with the text.
        hint: Option<&'static str>,
    },
    /// It is there more than once, and one was meant.
    Ambiguous {
        /// What differs in each of them, unless they are exact.
        difference: Option<&'static str>,
        /// The first lines that they begin in, ascending.
        places: Vec<Excerpt>,
        /// How many lines they begin in.
        lines: usize,
        /// How many there are.
        count: usize,
    },
    /// There is one place, which is too doubtful.
    Doubtful {
        /// How it was found.
        strategy: &'static str,
        /// The place.
        place: Excerpt,
        /// Why it is not taken.
        reason: String,
    },
    /// It is there too often to replace it everywhere.
    TooMany {
        /// How often it may be there.
        most: usize,
    },
    /// The result would be too large.
    TooLarge {
        /// Its size.
        bytes: u64,
    },
}

/// Puts `new` in the place of `old` in `bytes`: of its only occurrence, or of `all`.
///
/// Line endings of the file count as `\n`, whichever they are. Lines that stay keep their own, and new ones get that of the
/// file, or, where its lines do not all end alike, that of their neighbours ([`Mixed`]). No other byte outside of the
/// replaced places changes.
pub(super) fn replace(bytes: &[u8], old: &str, new: &str, all: bool) -> Result<Edited, Refusal> {
    let (_, body) = split_mark(bytes);
    let mark = bytes.len() - body.len();
    let (_, old) = split_mark(old.as_bytes());
    let wanted = with_ending(old, b"\n");
    let plain = with_ending(new.as_bytes(), b"\n");
    let unified = Unified::of(body);
    let (strategy, places) = find(&Search::new(&unified.text, &wanted, &plain, all))?;

    let endings = Endings::of(body);
    let mixed = Mixed::of(body, &unified, endings);
    let ending = endings.most();
    let replacement = ending.map_or(new.as_bytes().into(), |ending| with_ending(new.as_bytes(), ending));
    let patches: Vec<Patch<'_>> = places
        .iter()
        .enumerate()
        .map(|(index, place)| {
            if let Some(mixed) = &mixed {
                let from = index.checked_sub(1).map_or(0, |before| places[before].range.end);
                let to = places.get(index + 1).map_or(unified.text.len(), |next| next.range.start);
                let fitted = mixed.put(&place.range, &(from..to), place.new.as_deref().unwrap_or(&plain));
                let range = fitted.range.start + mark..fitted.range.end + mark;
                return Patch { range, new: Cow::Owned(fitted.bytes) };
            }
            let range = unified.original(&place.range);
            let new = match (&place.new, ending) {
                (None, _) => Cow::Borrowed(&*replacement),
                (Some(own), Some(ending)) => with_ending(own, ending),
                (Some(own), None) => Cow::Borrowed(&**own),
            };
            Patch { range: range.start + mark..range.end + mark, new }
        })
        .collect();
    let removed: usize = patches.iter().map(|patch| patch.range.len()).sum();
    let added: u64 = patches.iter().map(|patch| patch.new.len() as u64).sum();
    let size = (bytes.len() - removed) as u64 + added;
    if size > LARGEST {
        return Err(Refusal::TooLarge { bytes: size });
    }
    Ok(splice(bytes, &patches, strategy))
}

/// The places to replace, by the first strategy that is sure of any.
fn find(search: &Search<'_>) -> Result<(&'static dyn Strategy, Vec<Place>), Refusal> {
    let large = search.text.len() > APPROXIMATE;
    let mut doubt = None;
    let tried = if search.wanted.is_empty() {
        0
    } else if large {
        1
    } else {
        STRATEGIES.len()
    };
    for strategy in &STRATEGIES[..tried] {
        match strategy.find(search) {
            Found::Nothing => {}
            Found::Places(places) if search.all && places.len() > MOST => {
                return Err(Refusal::TooMany { most: MOST });
            }
            Found::Places(places) if search.all || places.len() == 1 => return Ok((*strategy, places)),
            Found::Places(places) | Found::TooAlike(places) => {
                return Err(ambiguous(search.text, *strategy, &places));
            }
            Found::Doubt { range, reason } => doubt = doubt.or(Some((strategy.name(), range, reason))),
        }
    }
    if let Some((strategy, range, reason)) = doubt {
        return Err(Refusal::Doubtful { strategy, place: excerpt(search.text, &range, SHOWN), reason });
    }
    Err(Refusal::Absent { nearest: nearest(search.text, search.wanted), hint: hint(search, large) })
}

fn ambiguous(text: &[u8], strategy: &dyn Strategy, places: &[Place]) -> Refusal {
    let mut starts: Vec<usize> = places.iter().map(|place| place.range.start).collect();
    starts.sort_unstable();
    let mut from = 0;
    // One for each line: a start belongs to the line of the one before it where no line ends between them.
    starts.retain(|start| {
        let further = from == 0 || memchr(b'\n', &text[from - 1..*start]).is_some();
        from = start + 1;
        further
    });
    let told = starts.iter().take(TOLD).map(|start| excerpt(text, &(*start..start + 1), 1)).collect();
    Refusal::Ambiguous {
        difference: difference(strategy),
        places: told,
        lines: starts.len(),
        count: places.len(),
    }
}

fn difference(strategy: &dyn Strategy) -> Option<&'static str> {
    (strategy.name() != STRATEGIES[0].name()).then(|| strategy.difference())
}

/// What models are known to do wrong.
fn hint(search: &Search<'_>, large: bool) -> Option<&'static str> {
    let wanted = search.wanted;
    if is_numbered(wanted) {
        Some("Leave out the line numbers and the tab after them, which only read adds.")
    } else if String::from_utf8_lossy(wanted).contains('\u{fffd}') {
        Some("Leave out \u{fffd}, which stands for bytes that are not UTF-8.")
    } else if search.new.trim_ascii().len() >= TELLING && memmem::find(search.text, search.new).is_some() {
        Some("newString is in the file already: maybe this was done before.")
    } else if large {
        Some("In a file of this size only exactly this text is looked for.")
    } else {
        None
    }
}

/// Bytes of the file, and what is put in their place.
struct Patch<'a> {
    range: Range<usize>,
    new: Cow<'a, [u8]>,
}

fn splice(bytes: &[u8], patches: &[Patch<'_>], strategy: &dyn Strategy) -> Edited {
    let added: usize = patches.iter().map(|patch| patch.new.len()).sum();
    let mut made = Vec::with_capacity(bytes.len() + added);
    let mut lines = Vec::with_capacity(patches.len());
    let (mut line, mut from) = (1, 0);
    for Patch { range, new } in patches {
        let kept = &bytes[from..range.start];
        line += memchr_iter(b'\n', kept).count();
        lines.push(Lines { start: line, end: line + line_count(new).max(1) - 1 });
        line += memchr_iter(b'\n', new).count();
        made.extend_from_slice(kept);
        made.extend_from_slice(new);
        from = range.end;
    }
    made.extend_from_slice(&bytes[from..]);
    Edited { bytes: made, lines, strategy: strategy.name(), difference: difference(strategy) }
}

#[cfg(test)]
mod tests;

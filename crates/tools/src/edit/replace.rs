//! The replacement itself: bytes in, bytes out.

use std::ops::Range;

use memchr::memchr_iter;

use super::nearest::nearest;
use super::strategy::STRATEGIES;
use crate::files::document::{Endings, Unified, line_count, split_mark, with_ending};
use crate::files::seen::LARGEST;

/// Occurrences whose lines are counted for a refusal.
const TOLD: usize = 10;

/// Places that are replaced in one call: each takes memory of its own.
const MOST: usize = 1_000_000;

/// A changed content.
#[derive(Debug)]
pub(super) struct Edited {
    /// All of it.
    pub(super) bytes: Vec<u8>,
    /// The lines that hold each replacement now, from 1. Never empty.
    pub(super) lines: Vec<Lines>,
    /// How the text was found.
    pub(super) strategy: &'static str,
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
        /// The lines of the first ones.
        lines: Vec<usize>,
        /// How many there are.
        count: usize,
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
/// Line endings of the file count as `\n`, whichever they are, and new lines get the file's own. No byte outside of
/// the replaced places changes.
pub(super) fn replace(bytes: &[u8], old: &str, new: &str, all: bool) -> Result<Edited, Refusal> {
    let (_, body) = split_mark(bytes);
    let mark = bytes.len() - body.len();
    let (_, old) = split_mark(old.as_bytes());
    let wanted = with_ending(old, b"\n");
    let unified = Unified::of(body);
    let (strategy, places) = find(&unified.text, &wanted, all)?;

    let replacement = match Endings::of(body).most() {
        Some(ending) => with_ending(new.as_bytes(), ending),
        None => new.as_bytes().into(),
    };
    let places: Vec<Range<usize>> = places
        .iter()
        .map(|place| unified.original(place))
        .map(|place| place.start + mark..place.end + mark)
        .collect();
    let removed: usize = places.iter().map(Range::len).sum();
    let size = (bytes.len() - removed) as u64 + places.len() as u64 * replacement.len() as u64;
    if size > LARGEST {
        return Err(Refusal::TooLarge { bytes: size });
    }
    Ok(splice(bytes, &places, &replacement, strategy))
}

/// The places to replace, by the first strategy that finds any.
fn find(text: &[u8], wanted: &[u8], all: bool) -> Result<(&'static str, Vec<Range<usize>>), Refusal> {
    for strategy in STRATEGIES {
        let places = strategy.find(text, wanted, MOST + 1);
        match (&places[..], all) {
            ([], _) => {}
            (_, true) if places.len() > MOST => return Err(Refusal::TooMany { most: MOST }),
            (_, true) => return Ok((strategy.name(), places)),
            ([only], false) => {
                return match strategy.another(text, wanted, only) {
                    None => Ok((strategy.name(), places)),
                    Some(other) => Err(ambiguous(text, &[only.clone(), other])),
                };
            }
            (_, false) => return Err(ambiguous(text, &places)),
        }
    }
    Err(Refusal::Absent { nearest: nearest(text, wanted), hint: hint(wanted) })
}

fn ambiguous(text: &[u8], places: &[Range<usize>]) -> Refusal {
    let mut lines = Vec::new();
    let (mut line, mut from) = (1, 0);
    for place in places.iter().take(TOLD) {
        line += memchr_iter(b'\n', &text[from..place.start]).count();
        from = place.start;
        lines.push(line);
    }
    Refusal::Ambiguous { lines, count: places.len() }
}

/// What models are known to do wrong.
fn hint(wanted: &[u8]) -> Option<&'static str> {
    let numbered = |line: &[u8]| {
        let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
        digits > 0 && line.get(digits) == Some(&b'\t')
    };
    let mut lines = wanted.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).peekable();
    if lines.peek().is_some() && lines.all(numbered) {
        Some("Leave out the line numbers and the tab after them, which only read adds.")
    } else if String::from_utf8_lossy(wanted).contains('\u{fffd}') {
        Some("Leave out \u{fffd}, which stands for bytes that are not UTF-8.")
    } else {
        None
    }
}

fn splice(bytes: &[u8], places: &[Range<usize>], replacement: &[u8], strategy: &'static str) -> Edited {
    let mut made = Vec::with_capacity(bytes.len() + places.len() * replacement.len());
    let mut lines = Vec::with_capacity(places.len());
    let height = line_count(replacement).max(1);
    let breaks = memchr_iter(b'\n', replacement).count();
    let (mut line, mut from) = (1, 0);
    for place in places {
        let kept = &bytes[from..place.start];
        line += memchr_iter(b'\n', kept).count();
        lines.push(Lines { start: line, end: line + height - 1 });
        line += breaks;
        made.extend_from_slice(kept);
        made.extend_from_slice(replacement);
        from = place.end;
    }
    made.extend_from_slice(&bytes[from..]);
    Edited { bytes: made, lines, strategy }
}

#[cfg(test)]
mod tests;

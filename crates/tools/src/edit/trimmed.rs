//! Whole lines that differ only in the white space around them.

use std::ops::Range;

use super::fit::{Shared, fit};
use super::lines::{is_blank, occurrences};
use super::strategy::{Found, Gathered, MOST, Place, Search, Strategy};

/// White space at the ends of lines may differ.
pub(super) struct LineTrimmed;

/// The indentation may differ, and the new text gets that of the file.
pub(super) struct IndentationFlexible;

impl Strategy for LineTrimmed {
    fn name(&self) -> &'static str {
        "line-trimmed"
    }

    fn difference(&self) -> &'static str {
        "white space at the ends of lines differs"
    }

    fn find(&self, search: &Search<'_>) -> Found {
        let (lines, wanted) = (search.lines(), search.wanted_lines());
        if wanted.trimmed().iter().all(|line| *line == 0) {
            return Found::Nothing;
        }
        places(search, &occurrences(lines.ended(), wanted.ended(), !search.all, MOST + 1))
    }
}

impl Strategy for IndentationFlexible {
    fn name(&self) -> &'static str {
        "indentation-flexible"
    }

    fn difference(&self) -> &'static str {
        "the indentation differs, and newString was indented as the file is"
    }

    fn find(&self, search: &Search<'_>) -> Found {
        let (lines, wanted) = (search.lines(), search.wanted_lines());
        if wanted.trimmed().iter().all(|line| *line == 0) {
            return Found::Nothing;
        }
        places(search, &occurrences(lines.trimmed(), wanted.trimmed(), !search.all, MOST + 1))
    }
}

/// The places of the wanted lines where they begin at these `starts`.
fn places(search: &Search<'_>, starts: &[usize]) -> Found {
    let (lines, wanted) = (search.lines(), search.wanted_lines());
    let height = wanted.count();
    if starts.len() > MOST || (starts.len() > 1 && !search.all) {
        let plain = |start: &usize| Place::plain(lines.bytes(&(*start..start + height)));
        return Found::Places(starts.iter().map(plain).collect());
    }
    let mut gathered = Gathered::default();
    for start in starts {
        let indices = *start..start + height;
        let same = (0..height).all(|at| lines.line(start + at).trim_ascii() == wanted.line(at).trim_ascii());
        if !same {
            continue;
        }
        match place(search, search.wanted, &indices, Shared::all(height)) {
            Some(place) => {
                if !gathered.take(place) {
                    break;
                }
            }
            None => return confused(lines.bytes(&indices)),
        }
    }
    gathered.found()
}

/// A place in which it is not clear how the new text is to be indented.
pub(super) fn confused(range: Range<usize>) -> Found {
    let reason = "lines that oldString indents alike are indented differently there, so it is not clear how newString is to be indented".to_owned();
    Found::Doubt { range, reason }
}

/// The lines at `indices` as a place for the new text, fitted to them; `None` when it cannot be fitted.
pub(super) fn place(
    search: &Search<'_>,
    wanted: &[u8],
    indices: &Range<usize>,
    shared: Shared,
) -> Option<Place> {
    let lines = search.lines();
    let mut range = lines.bytes(indices);
    let mut new = search.new;
    let ends = wanted.ends_with(b"\n");
    let mut tail: &[u8] = b"";
    if ends {
        if search.text.get(range.end) == Some(&b'\n') {
            // A new text that does not end its last line does not take the ending of the old one either.
            if let Some(body) = new.strip_suffix(b"\n") {
                range.end += 1;
                (new, tail) = (body, b"\n");
            } else if new.is_empty() {
                range.end += 1;
            }
        } else {
            // The last line of the file has no ending, and keeps having none.
            new = new.strip_suffix(b"\n").unwrap_or(new);
        }
    }
    if new.is_empty() && tail.is_empty() {
        return Some(Place { range, new: Some([].into()) });
    }
    let wanted = wanted.strip_suffix(b"\n").unwrap_or(wanted);
    let wanted: Vec<&[u8]> = wanted.split(|byte| *byte == b'\n').collect();
    let new: Vec<&[u8]> = new.split(|byte| *byte == b'\n').collect();
    let file = lines.slice(indices.clone());
    let mut made = fit(&file, &wanted, &new, &shared.pairs(&file, &wanted))?;
    made.extend_from_slice(tail);
    Some(Place { range, new: Some(made.into()) })
}

/// `wanted` and `new` without the blank lines at the ends of `wanted`; of `new`, as many are left out, if it has them.
pub(super) fn without_blank_ends<'a>(mut wanted: &'a [u8], mut new: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    while let Some(rest) = after_blank_line(wanted) {
        wanted = rest;
        new = after_blank_line(new).unwrap_or(new);
    }
    while let Some(rest) = before_blank_line(wanted) {
        wanted = rest;
        new = before_blank_line(new).unwrap_or(new);
    }
    (wanted, new)
}

fn after_blank_line(text: &[u8]) -> Option<&[u8]> {
    let end = memchr::memchr(b'\n', text)?;
    is_blank(&text[..end]).then(|| &text[end + 1..])
}

/// The text up to the ending of the line before the last one, which is blank.
fn before_blank_line(text: &[u8]) -> Option<&[u8]> {
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let start = memchr::memrchr(b'\n', body)? + 1;
    is_blank(&body[start..]).then(|| &text[..start])
}

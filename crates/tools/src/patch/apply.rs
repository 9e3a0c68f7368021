//! Putting hunks into the content of a file.

mod locate;
mod misfit;

use std::collections::HashSet;
use std::ops::Range;

use memchr::memchr_iter;

use super::effort::{Effort, Exhausted};
use super::seek::{Pass, line_at};
use super::{Hunk, Line, Sign};
use crate::files::document::{Endings, Unified, split_mark};
use locate::{Locator, Place};

/// A content with its hunks in it.
#[derive(Debug)]
pub(crate) struct Applied {
    /// All of it.
    pub(crate) bytes: Vec<u8>,
    /// The hunks that do not stand in the file as they are written, and those that fit more than one place.
    pub(crate) loose: Vec<Loose>,
}

/// A hunk whose lines were only found by looking away, or that fits another place as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loose {
    /// Which one, from 1.
    pub(crate) hunk: usize,
    /// The line of the file where it begins, from 1, before any change.
    pub(crate) line: usize,
    /// How it was compared.
    pub(crate) pass: Pass,
    /// Another line where it fits as well, and that no later hunk takes.
    pub(crate) also: Option<usize>,
}

/// Why hunks were not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// One of them does not fit: which one, and why.
    Misfit(String),
    /// Finding their places would take too long.
    TooMuch,
    /// Nobody wants the result any more.
    Cancelled,
}

impl From<Exhausted> for Stop {
    fn from(exhausted: Exhausted) -> Self {
        match exhausted {
            Exhausted::Cancelled => Self::Cancelled,
            Exhausted::TooMuch => Self::TooMuch,
        }
    }
}

/// Puts `hunks` into `bytes`. No line that they do not remove changes.
///
/// # Errors
/// When one of them does not fit, or the effort does not suffice.
pub(crate) fn apply(bytes: &[u8], hunks: &[Hunk], effort: &Effort<'_>) -> Result<Applied, Stop> {
    let (_, body) = split_mark(bytes);
    let unified = Unified::of(body);
    let text = &unified.text[..];
    let mut locator = Locator::new(text, effort);
    let mut changes = Changes::default();
    let mut places = Vec::with_capacity(hunks.len());
    for (index, hunk) in hunks.iter().enumerate() {
        let place = locator.locate(index + 1, hunk)?;
        changes.take(text, hunk, &place);
        places.push(place);
    }
    let loose = loose(text, &places);
    let mark = &bytes[..bytes.len() - body.len()];
    let ending = Endings::of(body).most().unwrap_or(b"\n");
    let ends = hunks.iter().rev().find_map(|hunk| hunk.ending);
    let ends = ends.unwrap_or(text.is_empty() || text.ends_with(b"\n"));
    Ok(Applied { bytes: changes.write(mark, body, &unified, ending, ends), loose })
}

/// What is to be told of the `places` of the hunks of `text`.
fn loose(text: &[u8], places: &[Place]) -> Vec<Loose> {
    let starts: HashSet<usize> = places.iter().map(|place| place.range.start).collect();
    let newlines = |range: Range<usize>| memchr_iter(b'\n', &text[range]).count();
    let (mut line, mut counted) = (1, 0);
    let mut loose = Vec::new();
    for (index, place) in places.iter().enumerate() {
        let (start, pass) = (place.range.start, place.pass);
        let also = place.also.filter(|also| *also > start && !starts.contains(also));
        if pass != Pass::Exact || also.is_some() {
            // Places ascend, so that each line is counted once.
            line += newlines(counted..start);
            counted = start;
            let also = also.map(|also| line + newlines(start..also));
            loose.push(Loose { hunk: index + 1, line, pass, also });
        }
    }
    loose
}

/// Lines in the place of others.
struct Change<'a> {
    /// The lines that go, in the unified text.
    range: Range<usize>,
    /// Those that come.
    lines: Vec<&'a str>,
}

/// All that changes, in the order of the text.
#[derive(Default)]
struct Changes<'a> {
    inner: Vec<Change<'a>>,
    /// Lines that come after everything else.
    appended: Vec<&'a str>,
}

impl<'a> Changes<'a> {
    fn take(&mut self, text: &[u8], hunk: &'a Hunk, place: &Place) {
        let lines = &hunk.lines[..place.lines];
        if place.appends {
            self.appended.extend(lines.iter().map(|line| line.text.as_str()));
            return;
        }
        let mut at = place.range.start;
        let mut change = Change { range: at..at, lines: Vec::new() };
        for Line { sign, text: line } in lines {
            if *sign == Sign::Added {
                change.lines.push(line);
                continue;
            }
            at = line_at(text, at).map_or(text.len(), |(_, next)| next);
            if *sign == Sign::Removed {
                change.range.end = at;
            } else {
                self.push(change);
                change = Change { range: at..at, lines: Vec::new() };
            }
        }
        self.push(change);
    }

    fn push(&mut self, change: Change<'a>) {
        if !change.range.is_empty() || !change.lines.is_empty() {
            self.inner.push(change);
        }
    }

    /// The new content. `ends` says whether it ends in a line ending.
    fn write(
        self,
        mark: &[u8],
        body: &[u8],
        unified: &Unified<'_>,
        ending: &'static [u8],
        ends: bool,
    ) -> Vec<u8> {
        let added: usize =
            self.inner.iter().flat_map(|change| &change.lines).map(|line| line.len() + 2).sum();
        let mut writer = Writer { made: Vec::with_capacity(mark.len() + body.len() + added), ending };
        let mut from = 0;
        for change in &self.inner {
            writer.piece(&body[unified.original(&(from..change.range.start))]);
            change.lines.iter().for_each(|line| writer.line(line));
            from = change.range.end;
        }
        writer.piece(&body[unified.original(&(from..unified.text.len()))]);
        self.appended.iter().for_each(|line| writer.line(line));
        writer.finish(ends);
        if !mark.is_empty() {
            writer.made.splice(..0, mark.iter().copied());
        }
        writer.made
    }
}

/// Writes lines that all end, the last one aside.
struct Writer {
    made: Vec<u8>,
    ending: &'static [u8],
}

impl Writer {
    /// Lines of the file as they are.
    fn piece(&mut self, piece: &[u8]) {
        if !piece.is_empty() {
            self.end_line();
            self.made.extend_from_slice(piece);
        }
    }

    fn line(&mut self, line: &str) {
        self.end_line();
        // A patch may bring the line ending of the file with it.
        let line = if self.ending == b"\r\n" { line.strip_suffix('\r').unwrap_or(line) } else { line };
        self.made.extend_from_slice(line.as_bytes());
        self.made.extend_from_slice(self.ending);
    }

    /// The last line of a file may have no ending, and be the last one no more.
    fn end_line(&mut self) {
        if !self.made.is_empty() && !self.made.ends_with(b"\n") {
            self.made.extend_from_slice(self.ending);
        }
    }

    fn finish(&mut self, ends: bool) {
        if ends {
            self.end_line();
        } else if let Some(rest) = self.made.strip_suffix(b"\n") {
            let rest = rest.strip_suffix(b"\r").unwrap_or(rest);
            // Without its ending, an empty last line would be no line at all.
            if !rest.is_empty() && !rest.ends_with(b"\n") {
                self.made.truncate(rest.len());
            }
        }
    }
}

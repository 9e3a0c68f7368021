//! What a model is told of a hunk that does not fit.

use std::fmt::Write as _;

use memchr::memchr_iter;

use super::super::effort::{Effort, Exhausted};
use super::super::seek::seek;
use super::super::{Hunk, Sign};
use super::locate::{Missing, expected};
use crate::edit::nearest::nearest;
use crate::files::document::{cut_characters, is_numbered};

/// Lines that are shown of those that were looked for.
const SHOWN: usize = 12;

/// Characters of a line that are shown.
const WIDTH: usize = 200;

/// A hunk that does not fit.
pub(super) struct Refused<'a> {
    /// The text of the file.
    pub(super) text: &'a [u8],
    /// Where the hunk before it ends.
    pub(super) last: usize,
    /// Which one it is.
    pub(super) number: usize,
    /// The hunk.
    pub(super) hunk: &'a Hunk,
}

impl Refused<'_> {
    /// What is wrong, and what to do.
    pub(super) fn explain(&self, missing: Missing, effort: &Effort<'_>) -> Result<String, Exhausted> {
        let (lines, from, own) = match missing {
            Missing::Context(index, from) => (vec![self.hunk.contexts[index].as_bytes()], from, false),
            Missing::Lines(from) => (expected(self.hunk, self.hunk.lines.len()), from, true),
        };
        let what = match &lines[..] {
            _ if !own => "the line of its @@ is",
            [_] => "this line is",
            _ => "these lines are",
        };
        let place = match from {
            _ if own && self.hunk.at_end => "at the end of the file".to_owned(),
            0 => "in the file".to_owned(),
            _ if from == self.last => {
                format!("in the file after line {}, where the hunk before it ends", self.line(from) - 1)
            }
            _ if own => format!("in the file after line {}, the line of its @@", self.line(from) - 1),
            _ => format!("in the file after line {}, the line of the @@ before it", self.line(from) - 1),
        };
        let mut text = format!(
            "hunk {} (line {} of the patch) does not fit: {what} not {place}:\n",
            self.number, self.hunk.number
        );
        shown(&mut text, &lines);
        text.push_str(&self.advice(&lines, own, effort)?);
        Ok(text)
    }

    fn advice(&self, lines: &[&[u8]], own: bool, effort: &Effort<'_>) -> Result<String, Exhausted> {
        if is_numbered(&lines.join(&b'\n')) {
            return Ok("Leave out the line numbers and the tab after them, which only read adds".into());
        }
        if let Some(found) = seek(self.text, lines, 0, effort)? {
            let there = if lines.len() == 1 { "It is" } else { "They are" };
            let advice = match found.range.start < self.last {
                _ if own && self.hunk.at_end => "leave out \"*** End of File\", or add the lines that follow",
                true => "put the hunks in the order of the file",
                false => "name another line after @@, or none",
            };
            return Ok(format!("{there} at line {}: {advice}", self.line(found.range.start)));
        }
        if own && self.hunk.lines.iter().any(|line| line.sign == Sign::Removed) {
            let new = self.hunk.lines.iter().filter(|line| line.sign != Sign::Removed);
            let new: Vec<_> = new.map(|line| line.text.as_bytes()).collect();
            if let Some(found) = seek(self.text, &new, 0, effort)? {
                let line = self.line(found.range.start);
                return Ok(format!(
                    "What the hunk makes of them is at line {line} already: was the patch applied before?"
                ));
            }
        }
        Ok(match nearest(self.text, &lines.join(&b'\n')) {
            Some(nearest) => format!("The nearest lines are:\n{nearest}"),
            None => "Nothing in the file is like it: read the file again".to_owned(),
        })
    }

    /// The number of the line at `place`, from 1.
    fn line(&self, place: usize) -> usize {
        memchr_iter(b'\n', &self.text[..place]).count() + 1
    }
}

fn shown(text: &mut String, lines: &[&[u8]]) {
    for line in lines.iter().take(SHOWN) {
        let line = String::from_utf8_lossy(line);
        let (shown, cut) = cut_characters(&line, WIDTH);
        let _ = writeln!(text, "{shown}{}", if cut { "…" } else { "" });
    }
    if lines.len() > SHOWN {
        let _ = writeln!(text, "(and {} more)", lines.len() - SHOWN);
    }
}

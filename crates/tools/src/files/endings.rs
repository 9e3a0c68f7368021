//! Endings of lines that come in the place of others, in a text whose lines do not all end alike.
//!
//! Lines that stay keep their endings. Lines that replace as many others, or fewer, get the endings of those. Every other
//! new line gets that of the line before it, and the first one of a text that of the line after it.

use std::ops::Range;
use std::time::{Duration, Instant};

use memchr::{memchr, memrchr};
use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

use super::document::{Endings, Unified};

/// How long lines that stay are looked for in one change. After that, some of them count as new.
const PATIENCE: Duration = Duration::from_millis(500);

/// A text in which some lines end in `\n` and others in `\r\n`.
pub(crate) struct Mixed<'a> {
    body: &'a [u8],
    unified: &'a Unified<'a>,
    most: &'static [u8],
    deadline: Instant,
}

/// Bytes of the original text, and what is put in their place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fitted {
    /// Its bytes in the original.
    pub(crate) range: Range<usize>,
    /// What is put there.
    pub(crate) bytes: Vec<u8>,
}

impl<'a> Mixed<'a> {
    /// The text `body`; `None` where no line has an ending, or all have the same.
    pub(crate) fn of(body: &'a [u8], unified: &'a Unified<'a>, endings: Endings) -> Option<Self> {
        match (endings.most(), endings.only()) {
            (Some(most), None) => Some(Self { body, unified, most, deadline: Instant::now() + PATIENCE }),
            _ => None,
        }
    }

    /// Puts `new`, whose lines end in `\n`, in the place of `place` of the unified text. `free` is `place` with what lies
    /// around it up to the next changes.
    ///
    /// Where a line that stays comes to the end of the place, the range also has the ending behind it.
    pub(crate) fn put(&self, place: &Range<usize>, free: &Range<usize>, new: &[u8]) -> Fitted {
        let text = &*self.unified.text;
        if memchr(b'\n', new).is_none() && memchr(b'\n', &text[place.clone()]).is_none() {
            return Fitted { range: self.unified.original(place), bytes: new.to_vec() };
        }
        let start = memrchr(b'\n', &text[..place.start]).map_or(0, |at| at + 1).max(free.start);
        let (prefix, rest) = (&text[start..place.start], &text[place.end..free.end]);
        let ends = if new.is_empty() { prefix.is_empty() } else { new.ends_with(b"\n") };
        let whole = ends && text[..place.end].ends_with(b"\n");
        let suffix = match memchr(b'\n', rest) {
            _ if whole => &rest[..0],
            Some(at) => &rest[..=at],
            None => rest,
        };
        let end = place.end + suffix.len();
        let made = [prefix, new, suffix].concat();
        let endings = self.endings(&(start..end), &made, !suffix.is_empty());
        let mut bytes = Vec::with_capacity(made.len() + endings.len());
        for (line, ending) in lines(&made).into_iter().zip(endings) {
            match line.strip_suffix(b"\n") {
                Some(line) => bytes.extend([line, ending].concat()),
                None => bytes.extend_from_slice(line),
            }
        }
        let mut range = self.unified.original(&(start..end));
        range.start += prefix.len();
        bytes.drain(..prefix.len());
        let behind = &self.body[self.unified.original(&(place.end..end))];
        if bytes.ends_with(behind) {
            bytes.truncate(bytes.len() - behind.len());
            range.end -= behind.len();
        }
        Fitted { range, bytes }
    }

    /// The ending of each line of `made`, which comes in the place of the lines in `range`. `joined`: the last line of both
    /// ends in the same bytes.
    fn endings(&self, range: &Range<usize>, made: &[u8], joined: bool) -> Vec<&'static [u8]> {
        let text = &*self.unified.text;
        let (old, new) = (lines(&text[range.clone()]), lines(made));
        let mut at = range.start;
        let own: Vec<Option<&'static [u8]>> = old
            .iter()
            .map(|line| {
                at += line.len();
                line.ends_with(b"\n").then(|| self.unified.ending(at - 1))
            })
            .collect();
        let ops =
            capture_diff_slices_deadline(Algorithm::Myers, &bare(&old), &bare(&new), Some(self.deadline));
        let mut known: Vec<Option<&'static [u8]>> = vec![None; new.len()];
        for op in ops {
            let (from, to) = (op.old_range(), op.new_range());
            let pairs = match op {
                DiffOp::Equal { .. } => true,
                DiffOp::Replace { .. } => from.len() <= to.len(),
                DiffOp::Insert { .. } | DiffOp::Delete { .. } => false,
            };
            if pairs {
                known[to.start..][..from.len()].copy_from_slice(&own[from]);
            }
        }
        if let (true, Some(last)) = (joined, known.last_mut()) {
            *last = last.or(own.last().copied().flatten());
        }
        let before = memrchr(b'\n', &text[..range.start]).map(|at| self.unified.ending(at));
        let after = memchr(b'\n', &text[range.end..]).map(|at| self.unified.ending(range.end + at));
        let next = known.iter().flatten().next().copied().or(after).unwrap_or(self.most);
        let mut last = before.unwrap_or(next);
        let each = known.into_iter().map(|ending| {
            last = ending.unwrap_or(last);
            last
        });
        each.collect()
    }
}

/// The lines without their `\n`.
fn bare<'a>(lines: &[&'a [u8]]) -> Vec<&'a [u8]> {
    lines.iter().map(|line| line.strip_suffix(b"\n").unwrap_or(line)).collect()
}

fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

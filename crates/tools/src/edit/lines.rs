//! A text as lines that can be compared at once.

use std::cell::OnceCell;
use std::hash::{DefaultHasher, Hasher as _};
use std::ops::Range;
use std::rc::Rc;

use memchr::memchr_iter;

/// The lines of a text. A line ending at its end begins no further line.
///
/// Lines are compared by hash, so that a comparison costs the same however long they are; a place that matters is
/// compared by its bytes afterwards.
#[derive(Clone, Debug)]
pub(super) struct Lines<'a> {
    text: &'a [u8],
    starts: Rc<[u32]>,
    trimmed: OnceCell<Rc<[u64]>>,
    ended: OnceCell<Rc<[u64]>>,
}

impl<'a> Lines<'a> {
    /// The lines of `text`, which has less than 4 GB.
    pub(super) fn of(text: &'a [u8]) -> Self {
        let begins = memchr_iter(b'\n', text).map(|at| at + 1).filter(|at| *at < text.len());
        let first = (!text.is_empty()).then_some(0);
        let starts = first.into_iter().chain(begins).filter_map(|at| u32::try_from(at).ok()).collect();
        Self { text, starts, trimmed: OnceCell::new(), ended: OnceCell::new() }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.starts.len()
    }

    /// The line at `index`, from 0, without its ending.
    pub(super) fn line(&self, index: usize) -> &'a [u8] {
        let line = &self.text[self.start(index)..self.start(index + 1)];
        line.strip_suffix(b"\n").unwrap_or(line)
    }

    /// The lines at `indices`, without their endings.
    pub(super) fn slice(&self, indices: Range<usize>) -> Vec<&'a [u8]> {
        indices.map(|index| self.line(index)).collect()
    }

    /// The bytes of the lines at `indices`, without the ending of the last.
    pub(super) fn bytes(&self, indices: &Range<usize>) -> Range<usize> {
        let (start, end) = (self.start(indices.start), self.start(indices.end));
        let ended = end > start && self.text[end - 1] == b'\n';
        start..end - usize::from(ended)
    }

    fn start(&self, index: usize) -> usize {
        self.starts.get(index).map_or(self.text.len(), |start| *start as usize)
    }

    /// Hashes of the lines without the white space around them.
    pub(super) fn trimmed(&self) -> &[u64] {
        self.trimmed.get_or_init(|| self.hashes(<[u8]>::trim_ascii))
    }

    /// Hashes of the lines without the white space at their ends.
    pub(super) fn ended(&self) -> &[u64] {
        self.ended.get_or_init(|| self.hashes(<[u8]>::trim_ascii_end))
    }

    fn hashes(&self, part: impl Fn(&[u8]) -> &[u8]) -> Rc<[u64]> {
        (0..self.count()).map(|index| hash(part(self.line(index)))).collect()
    }
}

fn hash(line: &[u8]) -> u64 {
    if line.is_empty() {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    hasher.write(line);
    hasher.finish()
}

/// Where `needle` begins in `hay`, at most `most` times; with `overlapping`, also where it begins in itself.
///
/// By Knuth, Morris and Pratt: linear, whatever repeats itself in either.
pub(super) fn occurrences(hay: &[u64], needle: &[u64], overlapping: bool, most: usize) -> Vec<usize> {
    let mut found = Vec::new();
    if needle.is_empty() || needle.len() > hay.len() {
        return found;
    }
    let borders = borders(needle);
    let mut matched = 0;
    for (index, item) in hay.iter().enumerate() {
        while matched > 0 && (matched == needle.len() || needle[matched] != *item) {
            matched = borders[matched - 1];
        }
        matched += usize::from(needle[matched] == *item);
        if matched == needle.len() {
            found.push(index + 1 - matched);
            if found.len() == most {
                break;
            }
            if !overlapping {
                matched = 0;
            }
        }
    }
    found
}

/// For each beginning of `needle`, how long the longest shorter one is that it ends with.
fn borders(needle: &[u64]) -> Vec<usize> {
    let mut borders = vec![0; needle.len()];
    let mut matched = 0;
    for index in 1..needle.len() {
        while matched > 0 && needle[matched] != needle[index] {
            matched = borders[matched - 1];
        }
        matched += usize::from(needle[matched] == needle[index]);
        borders[index] = matched;
    }
    borders
}

/// The white space that a line begins with.
pub(super) fn indent(line: &[u8]) -> &[u8] {
    &line[..line.len() - line.trim_ascii_start().len()]
}

/// Whether a line has only white space.
pub(super) fn is_blank(line: &[u8]) -> bool {
    line.trim_ascii().is_empty()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_are_where_they_are() {
        let lines = Lines::of(b"a\n\n  b \nc");
        assert_eq!(lines.slice(0..lines.count()), [&b"a"[..], b"", b"  b ", b"c"]);
        assert_eq!((lines.bytes(&(1..3)), lines.bytes(&(3..4))), (2..7, 8..9));
        assert_eq!(Lines::of(b"a\n").count(), 1);
        assert_eq!(Lines::of(b"").count(), 0);
        assert_eq!(Lines::of(b" x").trimmed(), Lines::of(b"x  ").trimmed());
        assert_ne!(Lines::of(b" x").ended(), Lines::of(b"x").ended());
    }

    proptest! {
        #[test]
        fn occurrences_are_what_a_window_finds(
            hay in prop::collection::vec(0_u64..3, 0..40),
            needle in prop::collection::vec(0_u64..3, 1..5),
        ) {
            let slow: Vec<usize> =
                hay.windows(needle.len()).enumerate().filter(|(_, w)| *w == needle).map(|(i, _)| i).collect();
            prop_assert_eq!(occurrences(&hay, &needle, true, usize::MAX), slow.clone());
            let mut apart: Vec<usize> = Vec::new();
            for at in slow {
                if apart.last().is_none_or(|last| last + needle.len() <= at) {
                    apart.push(at);
                }
            }
            prop_assert_eq!(occurrences(&hay, &needle, false, usize::MAX), apart);
        }
    }
}

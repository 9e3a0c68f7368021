//! What a file has, in place of or where the text of an edit was looked for, shown as `read` shows it.

use std::fmt::Write as _;
use std::ops::Range;

use memchr::{memchr, memchr_iter, memrchr};

use crate::files::document::cut_characters;

/// Lines that are compared with the wanted one; a longer file is looked at only up to here.
const LINES: usize = 50_000;

/// Bytes of a line that are compared.
const WIDTH: usize = 200;

/// Lines that are shown.
const SHOWN: usize = 12;

/// Shared pairs of bytes that make a line worth showing, in percent.
const ENOUGH: usize = 50;

/// The lines of `text` that look most like `wanted`, numbered as `read` numbers them; `None` when nothing does.
///
/// The most telling line of `wanted` (its longest) is compared with each line of the file by the pairs of bytes that
/// both have, so the cost is linear in the file.
pub(crate) fn nearest(text: &[u8], wanted: &[u8]) -> Option<String> {
    let wanted: Vec<&[u8]> = lines(wanted).collect();
    let (place, telling) = wanted.iter().enumerate().max_by_key(|(_, line)| line.trim_ascii().len())?;
    let telling = Pairs::of(telling);
    let (mut best, mut line) = (ENOUGH - 1, None);
    for (index, candidate) in lines(text).take(LINES).enumerate() {
        let likeness = telling.likeness(candidate);
        if likeness > best {
            (best, line) = (likeness, Some(index));
        }
    }
    let first = line?.saturating_sub(place);
    let mut shown = String::new();
    for (index, line) in lines(text).enumerate().skip(first).take(wanted.len().min(SHOWN)) {
        show(&mut shown, index + 1, line);
    }
    Some(shown)
}

/// The lines that hold the beginning of `range` in `text`, at most `most` of them, numbered as `read` numbers them.
pub(super) fn excerpt(text: &[u8], range: &Range<usize>, most: usize) -> Excerpt {
    let start = memrchr(b'\n', &text[..range.start]).map_or(0, |at| at + 1);
    let before = memchr_iter(b'\n', &text[..start]).count();
    let last = before + 1 + memchr_iter(b'\n', &text[start..range.end.max(start + 1) - 1]).count();
    let mut shown = String::new();
    let mut rest = &text[start..];
    for number in before + 1..=last.min(before + most.min(SHOWN)) {
        let end = memchr(b'\n', rest).unwrap_or(rest.len());
        show(&mut shown, number, &rest[..end]);
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    if last > before + SHOWN && most > 1 {
        let _ = writeln!(shown, "({} more lines)", last - before - SHOWN);
    }
    Excerpt { first: before + 1, last, shown }
}

/// Lines of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Excerpt {
    /// Number of the first, from 1.
    pub(super) first: usize,
    /// Number of the last.
    pub(super) last: usize,
    /// Their text, each line with its number.
    pub(super) shown: String,
}

fn show(shown: &mut String, number: usize, line: &[u8]) {
    // A character has at most four bytes, so what is cut off here would not be shown anyway.
    let line = String::from_utf8_lossy(&line[..line.len().min(4 * WIDTH)]);
    let _ = writeln!(shown, "{number}\t{}", cut_characters(&line, WIDTH).0);
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.strip_suffix(b"\n").unwrap_or(text).split(|byte| *byte == b'\n')
}

/// The pairs of neighbouring bytes in a line, white space around it aside.
struct Pairs {
    set: Vec<bool>,
    count: usize,
}

impl Pairs {
    fn of(line: &[u8]) -> Self {
        let mut pairs = Self { set: vec![false; 1 << 16], count: 0 };
        for pair in trimmed(line).windows(2) {
            pairs.set[usize::from(pair[0]) << 8 | usize::from(pair[1])] = true;
            pairs.count += 1;
        }
        pairs
    }

    /// From 0 to 100: the share of pairs in both lines that the other one has too.
    fn likeness(&self, line: &[u8]) -> usize {
        let line = trimmed(line);
        let count = line.len().saturating_sub(1);
        if count == 0 || self.count == 0 {
            return 0;
        }
        let common =
            line.windows(2).filter(|pair| self.set[usize::from(pair[0]) << 8 | usize::from(pair[1])]).count();
        (200 * common.min(self.count) / (count + self.count)).min(100)
    }
}

fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.trim_ascii();
    &line[..line.len().min(WIDTH)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_looks_alike_is_shown_with_what_is_around_it() {
        let text = b"fn main() {\n    let total = add(1, 2);\n    println!(\"{total}\");\n}\n";
        let shown = nearest(text, b"fn main() {\n\tlet total = add(1, 3);\n}").unwrap();
        assert_eq!(shown, "1\tfn main() {\n2\t    let total = add(1, 2);\n3\t    println!(\"{total}\");\n");
    }

    #[test]
    fn nothing_alike_is_nothing() {
        assert_eq!(nearest(b"abc\ndef\n", b"0123456789"), None);
        assert_eq!(nearest(b"", b"x"), None);
        assert_eq!(nearest(b"\n\n", b"\n"), None);
    }
}

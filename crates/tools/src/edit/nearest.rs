//! What a file has instead of the text that an edit did not find.

use std::fmt::Write as _;

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
pub(super) fn nearest(text: &[u8], wanted: &[u8]) -> Option<String> {
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
        let line = String::from_utf8_lossy(&line[..line.len().min(4 * WIDTH)]);
        let _ = writeln!(shown, "{}\t{}", index + 1, cut_characters(&line, WIDTH).0);
    }
    Some(shown)
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

//! Places in texts: lines and characters from 1 for people, from 0 and in units of an encoding for servers.

use serde::{Deserialize, Serialize};

/// In which units a server counts within a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// Bytes.
    Utf8,
    /// Units of UTF-16: what servers do that say nothing.
    #[default]
    Utf16,
    /// Characters.
    Utf32,
}

impl Encoding {
    /// As it is named in the protocol.
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "utf-8" => Self::Utf8,
            "utf-32" => Self::Utf32,
            _ => Self::Utf16,
        }
    }

    fn width(self, character: char) -> usize {
        match self {
            Self::Utf8 => character.len_utf8(),
            Self::Utf16 => character.len_utf16(),
            Self::Utf32 => 1,
        }
    }

    /// Where in the line so many units are over, in bytes: at its end where it has fewer.
    fn byte(self, line: &str, units: u32) -> usize {
        let mut left = usize::try_from(units).unwrap_or(usize::MAX);
        for (byte, character) in line.char_indices() {
            if left == 0 {
                return byte;
            }
            left = left.saturating_sub(self.width(character));
        }
        line.len()
    }
}

/// A place in a text: line and character, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spot {
    /// The line.
    pub line: u32,
    /// The character of the line.
    pub column: u32,
}

/// A place in a text as servers count: line and character, both from 0, the latter in units of the [`Encoding`].
///
/// Its name and its fields are those of the Language Server Protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// Units of its characters before the place.
    pub character: u32,
}

/// From a place to another one, exclusive, as a server counts: `Range` of the Language Server Protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Where it begins.
    pub start: Position,
    /// Where it ends.
    pub end: Position,
}

/// Where the lines of a text begin and end, in bytes, their ends left out. `\n`, `\r\n` and `\r` end a line.
fn spans(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let mut rest = Some(0);
    std::iter::from_fn(move || {
        let start = rest?;
        let Some(length) = text[start..].find(['\n', '\r']) else {
            rest = None;
            return Some((start, text.len()));
        };
        let end = start + length;
        rest = Some(end + if text[end..].starts_with("\r\n") { 2 } else { 1 });
        Some((start, end))
    })
}

/// The lines of a text as servers count them, without their ends.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = &str> {
    spans(text).map(|(start, end)| &text[start..end])
}

/// A line of a text, from 0, without its end.
pub fn line_of(text: &str, number: u32) -> Option<&str> {
    lines(text).nth(usize::try_from(number).ok()?)
}

impl Spot {
    /// The place as a server counts; the text tells how wide its characters are.
    pub(crate) fn told(self, text: &str, encoding: Encoding) -> Position {
        let line = self.line.saturating_sub(1);
        let before = usize::try_from(self.column.saturating_sub(1)).unwrap_or(usize::MAX);
        let units: usize =
            line_of(text, line).unwrap_or_default().chars().take(before).map(|it| encoding.width(it)).sum();
        Position { line, character: u32::try_from(units).unwrap_or(u32::MAX) }
    }

    /// The place that a server means. Without the line, its units are taken for characters.
    pub(crate) fn heard(position: Position, line: Option<&str>, encoding: Encoding) -> Self {
        let column = match line {
            Some(line) => {
                let byte = encoding.byte(line, position.character);
                u32::try_from(line[..byte].chars().count()).unwrap_or(u32::MAX - 1)
            }
            None => position.character,
        };
        Self { line: position.line.saturating_add(1), column: column.saturating_add(1) }
    }
}

/// The text after these edits; `None` where they overlap or begin behind its end.
pub fn apply(text: &str, edits: &[(Span, String)], encoding: Encoding) -> Option<String> {
    let lines: Vec<(usize, usize)> = spans(text).collect();
    let byte = |position: Position| -> Option<usize> {
        let line = usize::try_from(position.line).ok()?;
        // One line more than there are is the end.
        let Some((start, end)) = lines.get(line) else { return (line == lines.len()).then_some(text.len()) };
        Some(start + encoding.byte(&text[*start..*end], position.character))
    };
    let mut placed = Vec::new();
    for (span, new) in edits {
        let (from, to) = (byte(span.start)?, byte(span.end)?);
        placed.push((from, to, new));
    }
    placed.sort_by_key(|(from, to, _)| (*from, *to));
    let (mut out, mut done) = (String::with_capacity(text.len()), 0);
    for (from, to, new) in placed {
        if from < done || to < from {
            return None;
        }
        out.push_str(&text[done..from]);
        out.push_str(new);
        done = to;
    }
    out.push_str(&text[done..]);
    Some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(line: u32, character: u32) -> Position {
        Position { line, character }
    }

    #[test]
    fn characters_are_as_wide_as_the_encoding_says() {
        let text = "a\nä𝄞x\r\n";
        let third = Spot { line: 2, column: 3 };
        for (encoding, units) in [(Encoding::Utf8, 6), (Encoding::Utf16, 3), (Encoding::Utf32, 2)] {
            assert_eq!(third.told(text, encoding), at(1, units));
            assert_eq!(Spot::heard(at(1, units), Some("ä𝄞x"), encoding), third);
        }
        assert_eq!(Spot { line: 9, column: 9 }.told(text, Encoding::Utf8), at(8, 0));
        assert_eq!(Spot::heard(at(1, 99), Some("ä𝄞x"), Encoding::Utf16), Spot { line: 2, column: 4 });
    }

    #[test]
    fn a_carriage_return_ends_a_line_too() {
        assert_eq!(lines("a\rb\r\nc\n\rd").collect::<Vec<_>>(), ["a", "b", "c", "", "d"]);
        assert_eq!(lines("a\n").collect::<Vec<_>>(), ["a", ""]);
        assert_eq!(lines("").collect::<Vec<_>>(), [""]);
        let edit = (Span { start: at(1, 0), end: at(1, 1) }, "x".to_owned());
        assert_eq!(apply("a\rb\rc", &[edit], Encoding::Utf16).unwrap(), "a\rx\rc");
    }

    #[test]
    fn edits_are_applied_from_the_original_text() {
        let edit = |a, b, new: &str| (Span { start: a, end: b }, new.to_owned());
        let text = "one two\r\none\n";
        let edits =
            [edit(at(1, 0), at(1, 3), "1"), edit(at(0, 0), at(0, 3), "1"), edit(at(2, 0), at(2, 0), "end")];
        assert_eq!(apply(text, &edits, Encoding::Utf16).unwrap(), "1 two\r\n1\nend");
        let overlapping = [edit(at(0, 0), at(0, 3), "x"), edit(at(0, 2), at(0, 4), "y")];
        assert_eq!(apply(text, &overlapping, Encoding::Utf16), None);
        assert_eq!(apply(text, &[edit(at(7, 0), at(7, 1), "x")], Encoding::Utf16), None);
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "[aä𝄞\r\n]{0,20}", a in (0_u32..5, 0_u32..9), b in (0_u32..5, 0_u32..9)) {
            for encoding in [Encoding::Utf8, Encoding::Utf16, Encoding::Utf32] {
                let span = Span { start: at(a.0, a.1), end: at(b.0, b.1) };
                apply(&text, &[(span, "new".to_owned())], encoding);
                Spot { line: a.0, column: a.1 }.told(&text, encoding);
            }
        }
    }
}

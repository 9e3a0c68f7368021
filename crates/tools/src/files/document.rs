//! What the bytes of a file are: text or not, with which mark at the front and which line endings.

use std::borrow::Cow;
use std::ops::Range;

use memchr::{memchr, memchr_iter, memmem};

/// The byte order mark that some editors put in front of UTF-8.
pub(crate) const MARK: &[u8] = b"\xEF\xBB\xBF";

/// How many bytes from the front tell whether a file is text.
pub(crate) const SAMPLE: usize = 8 * 1024;

/// Up to this size, in bytes, a few accents are many of all bytes, and what is no UTF-8 is judged by its control
/// characters alone.
const SMALL: usize = 512;

/// What a file holds, judged by its first [`SAMPLE`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// UTF-8.
    Text,
    /// Mostly readable, with bytes that are not UTF-8 (Latin-1 and its relatives).
    Lossy,
    /// Not for reading.
    Binary,
}

/// Judges `sample`, the beginning of a file. A character cut at its end does not count against it.
pub(crate) fn classify(sample: &[u8]) -> Content {
    let sample = &sample[..sample.len().min(SAMPLE)];
    if memchr(0, sample).is_some() {
        return Content::Binary;
    }
    let control = sample.iter().filter(|byte| is_unreadable(**byte)).count();
    let invalid: usize = sample.utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
    let cut = cut_at_end(sample);
    let invalid = invalid - cut.min(invalid);
    // Of Latin-1 and its relatives, these are the control characters.
    let strange = if sample.len() <= SMALL {
        let bytes = sample.utf8_chunks().flat_map(|chunk| chunk.invalid());
        bytes.filter(|byte| matches!(byte, 0x80..=0x9f)).count()
    } else {
        invalid
    };
    // One byte in ten still is a text with some terminal codes or accents; more of them is noise to a reader.
    if (control + strange) * 10 > sample.len() {
        Content::Binary
    } else if invalid > 0 {
        Content::Lossy
    } else {
        Content::Text
    }
}

fn is_unreadable(byte: u8) -> bool {
    matches!(byte, 0..=6 | 14..=26 | 28..=31 | 127)
}

/// Length of the unfinished character at the end of `sample`.
fn cut_at_end(sample: &[u8]) -> usize {
    match std::str::from_utf8(sample) {
        Ok(_) => 0,
        Err(_) => {
            let last = sample.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
            // Only a sequence that could still be completed is a cut one.
            if sample.ends_with(last)
                && std::str::from_utf8(last).is_err_and(|error| error.error_len().is_none())
            {
                last.len()
            } else {
                0
            }
        }
    }
}

/// The content without its byte order mark, and whether it had one.
pub(crate) fn split_mark(bytes: &[u8]) -> (bool, &[u8]) {
    match bytes.strip_prefix(MARK) {
        Some(rest) => (true, rest),
        None => (false, bytes),
    }
}

/// How the lines of a file end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endings {
    /// Lines that end in `\n` alone.
    pub(crate) lf: usize,
    /// Lines that end in `\r\n`.
    pub(crate) crlf: usize,
}

impl Endings {
    /// Counts the line endings of `bytes`.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let crlf = memmem::find_iter(bytes, b"\r\n").count();
        Self { lf: memchr_iter(b'\n', bytes).count() - crlf, crlf }
    }

    /// The ending of new lines: that of most lines, and `None` where the file has no line ending at all.
    pub(crate) fn most(self) -> Option<&'static [u8]> {
        match (self.lf, self.crlf) {
            (0, 0) => None,
            (lf, crlf) if crlf > lf => Some(b"\r\n"),
            _ => Some(b"\n"),
        }
    }

    /// The ending of all lines, where they agree.
    pub(crate) fn only(self) -> Option<&'static [u8]> {
        match (self.lf, self.crlf) {
            (0, 0) => None,
            (0, _) => Some(b"\r\n"),
            (_, 0) => Some(b"\n"),
            _ => None,
        }
    }
}

/// `text` with every line ending written as `ending`.
pub(crate) fn with_ending<'a>(text: &'a [u8], ending: &[u8]) -> Cow<'a, [u8]> {
    let unified = Unified::of(text);
    if ending == b"\n" {
        return unified.text;
    }
    if memchr(b'\n', &unified.text).is_none() {
        return unified.text;
    }
    let mut written = Vec::with_capacity(text.len() + text.len() / 16);
    for (index, line) in unified.text.split(|byte| *byte == b'\n').enumerate() {
        if index > 0 {
            written.extend_from_slice(ending);
        }
        written.extend_from_slice(line);
    }
    Cow::Owned(written)
}

/// A text whose lines all end in `\n`, and the way back to the bytes it was made from.
#[derive(Debug)]
pub(crate) struct Unified<'a> {
    /// The text.
    pub(crate) text: Cow<'a, [u8]>,
    /// Places in `text` of the `\n` that had a `\r` before them, ascending.
    shortened: Vec<usize>,
}

impl<'a> Unified<'a> {
    /// Reads `bytes` with every `\r\n` as `\n`. A `\r` alone stays.
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        let mut places = memmem::find_iter(bytes, b"\r\n").peekable();
        if places.peek().is_none() {
            return Self { text: Cow::Borrowed(bytes), shortened: Vec::new() };
        }
        let mut text = Vec::with_capacity(bytes.len());
        let mut shortened = Vec::new();
        let mut from = 0;
        for place in places {
            text.extend_from_slice(&bytes[from..place]);
            shortened.push(text.len());
            from = place + 1;
        }
        text.extend_from_slice(&bytes[from..]);
        Self { text: Cow::Owned(text), shortened }
    }

    /// The bytes that `range` of the text was made from.
    pub(crate) fn original(&self, range: &Range<usize>) -> Range<usize> {
        self.place(range.start)..self.place(range.end)
    }

    /// The ending that the `\n` at `at` of the text was.
    pub(crate) fn ending(&self, at: usize) -> &'static [u8] {
        if self.shortened.binary_search(&at).is_ok() { b"\r\n" } else { b"\n" }
    }

    fn place(&self, at: usize) -> usize {
        at + self.shortened.partition_point(|shortened| *shortened < at)
    }
}

/// How many lines `bytes` has. A last line without an ending counts.
pub(crate) fn line_count(bytes: &[u8]) -> usize {
    memchr_iter(b'\n', bytes).count() + usize::from(!bytes.is_empty() && !bytes.ends_with(b"\n"))
}

/// Whether the lines of `text` all begin with a number and a tab, as `read` shows them; empty lines do not count.
pub(crate) fn is_numbered(text: &[u8]) -> bool {
    let numbered = |line: &[u8]| {
        let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
        digits > 0 && line.get(digits) == Some(&b'\t')
    };
    let mut lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).peekable();
    lines.peek().is_some() && lines.all(numbered)
}

/// At most `limit` characters from the front of `text`, and whether that is less than all.
pub(crate) fn cut_characters(text: &str, limit: usize) -> (&str, bool) {
    match text.char_indices().nth(limit) {
        Some((at, _)) => (&text[..at], true),
        None => (text, false),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_is_told_from_noise() {
        assert_eq!(classify(b""), Content::Text);
        assert_eq!(classify("grüße\n".as_bytes()), Content::Text);
        assert_eq!(classify(b"\x1b[31mred\x1b[0m\n"), Content::Text);
        assert_eq!(classify(b"gr\xfc\xdfe aus einem alten Editor\n"), Content::Lossy);
        assert_eq!(classify(b"x = 'caf\xe9'\n"), Content::Lossy);
        assert_eq!(classify(b"\xe9\n"), Content::Lossy);
        assert_eq!(classify(&[0xe9; SMALL + 1]), Content::Binary);
        assert_eq!(classify(b"\xff\x01\x80\x90\xe9ab"), Content::Binary);
        assert_eq!(classify(b"a\0b"), Content::Binary);
        assert_eq!(classify(&[0x80; 100]), Content::Binary);
        assert_eq!(classify(b"\x7fELF\x02\x01\x01"), Content::Binary);
    }

    #[test]
    fn a_character_cut_by_the_sample_is_not_held_against_the_file() {
        let mut bytes = vec![b'a'; SAMPLE - 1];
        bytes.extend_from_slice("ü".as_bytes());
        assert_eq!(classify(&bytes), Content::Text);
    }

    #[test]
    fn a_last_line_without_an_ending_counts() {
        assert_eq!(
            (line_count(b""), line_count(b"a"), line_count(b"a\n"), line_count(b"a\nb")),
            (0, 1, 1, 2)
        );
    }

    #[test]
    fn lines_with_the_numbers_of_read_are_told() {
        assert!(is_numbered(b"1\tone\n\n12\ttwo\n"));
        assert!(!is_numbered(b"1\tone\ntwo\n") && !is_numbered(b"\n") && !is_numbered(b"\tx"));
    }

    proptest! {
        #[test]
        fn a_unified_range_leads_back_to_its_bytes(parts in prop::collection::vec("a|b|\r|\n|\r\n", 0..30)) {
            let bytes = parts.concat().into_bytes();
            let unified = Unified::of(&bytes);
            prop_assert_eq!(unified.text.to_vec(), bytes_of(&bytes));
            for start in 0..=unified.text.len() {
                for end in start..=unified.text.len() {
                    let original = unified.original(&(start..end));
                    prop_assert_eq!(bytes_of(&bytes[original]), &unified.text[start..end]);
                }
            }
        }

        #[test]
        fn rewriting_endings_keeps_the_lines(text in "[ab\n]{0,40}") {
            let crlf = with_ending(text.as_bytes(), b"\r\n").into_owned();
            prop_assert_eq!(Endings::of(&crlf).lf, 0);
            prop_assert_eq!(&*with_ending(&crlf, b"\n"), text.as_bytes());
        }
    }

    fn bytes_of(bytes: &[u8]) -> Vec<u8> {
        String::from_utf8(bytes.to_vec()).unwrap().replace("\r\n", "\n").into_bytes()
    }
}

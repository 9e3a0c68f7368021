//! Finding lines in a text, in passes of which each is looser than the one before.

use std::borrow::Cow;
use std::ops::Range;

use memchr::{memchr, memrchr};

use super::effort::{Effort, Exhausted};

/// Bytes between two looks at whether the search is still wanted.
const STRETCH: usize = 1 << 20;

/// How lines are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Byte for byte.
    Exact,
    /// Without the white space at their end.
    TrailingSpace,
    /// Without the white space around them.
    SurroundingSpace,
    /// The same, with typographic dashes, quotes, dots and spaces as their plain relatives.
    Punctuation,
}

impl Pass {
    /// The passes, in the order in which they are tried.
    const ALL: [Self; 4] = [Self::Exact, Self::TrailingSpace, Self::SurroundingSpace, Self::Punctuation];

    /// What this pass does not look at; `None` where it looks at everything.
    pub(crate) fn ignores(self) -> Option<&'static str> {
        match self {
            Self::Exact => None,
            Self::TrailingSpace => Some("white space at the end of lines"),
            Self::SurroundingSpace => Some("indentation"),
            Self::Punctuation => Some("indentation and typographic punctuation"),
        }
    }

    /// What of `line` is compared.
    fn key(self, line: &[u8]) -> Cow<'_, [u8]> {
        match self {
            Self::Exact => Cow::Borrowed(line),
            Self::TrailingSpace => Cow::Borrowed(line.trim_ascii_end()),
            Self::SurroundingSpace => Cow::Borrowed(line.trim_ascii()),
            Self::Punctuation => plain(line),
        }
    }
}

/// `line` with plain punctuation, and without the white space around it.
fn plain(line: &[u8]) -> Cow<'_, [u8]> {
    if line.is_ascii() {
        return Cow::Borrowed(line.trim_ascii());
    }
    let mut made = Vec::with_capacity(line.len());
    for chunk in line.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\u{2010}'..='\u{2015}' | '\u{2212}' => made.push(b'-'),
                '\u{2018}'..='\u{201B}' => made.push(b'\''),
                '\u{201C}'..='\u{201F}' => made.push(b'"'),
                '\u{2026}' => made.extend_from_slice(b"..."),
                '\u{A0}' | '\u{2000}'..='\u{200A}' | '\u{202F}' | '\u{205F}' | '\u{3000}' => made.push(b' '),
                other => made.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        made.extend_from_slice(chunk.invalid());
    }
    Cow::Owned(made.trim_ascii().to_vec())
}

/// Lines that were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Where they are, the ending of the last one included.
    pub(crate) range: Range<usize>,
    /// How they were compared.
    pub(crate) pass: Pass,
}

/// The first place at or after `from`, the start of a line of `text`, where the lines `wanted` stand; by the strictest
/// pass that finds any. The work is linear in `text` and `wanted`, whatever they hold.
///
/// # Errors
/// When the effort does not suffice.
pub(crate) fn seek(
    text: &[u8],
    wanted: &[&[u8]],
    from: usize,
    effort: &Effort<'_>,
) -> Result<Option<Found>, Exhausted> {
    if wanted.is_empty() {
        return Ok(None);
    }
    for pass in Pass::ALL {
        if let Some(range) = Scan::new(wanted, pass).run(text, from, effort)? {
            return Ok(Some(Found { range, pass }));
        }
    }
    Ok(None)
}

/// The lines `wanted` at `from`, the start of a line of `text`, if they stand there.
///
/// # Errors
/// When the effort does not suffice.
pub(crate) fn fits(
    text: &[u8],
    wanted: &[&[u8]],
    from: usize,
    effort: &Effort<'_>,
) -> Result<Option<Found>, Exhausted> {
    for pass in Pass::ALL {
        let mut at = from;
        let fit = wanted.iter().all(|wanted| {
            let Some((line, next)) = line_at(text, at) else { return false };
            at = next;
            pass.key(wanted) == pass.key(line)
        });
        effort.spend(at - from)?;
        if fit {
            return Ok(Some(Found { range: from..at, pass }));
        }
    }
    Ok(None)
}

/// The line of `text` at `at` without its ending, and where the next one begins; `None` at the end.
pub(crate) fn line_at(text: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
    Some(match memchr(b'\n', rest) {
        Some(end) => (&rest[..end], at + end + 1),
        None => (rest, text.len()),
    })
}

/// Where the line begins that is `count` lines before the place `end`, which is the end of a line or of the text; `None`
/// when there are not so many.
pub(crate) fn lines_before(text: &[u8], end: usize, count: usize) -> Option<usize> {
    let mut at = end;
    for _ in 0..count {
        if at == 0 {
            return None;
        }
        // The ending of this very line does not count.
        let inner = if text[at - 1] == b'\n' { at - 1 } else { at };
        at = memrchr(b'\n', &text[..inner]).map_or(0, |end| end + 1);
    }
    Some(at)
}

/// A search that looks at each line once (after Knuth, Morris and Pratt, with lines for letters).
struct Scan<'a> {
    pass: Pass,
    wanted: Vec<Cow<'a, [u8]>>,
    /// For each count of matched lines, less one: how many of them remain matched when the next one does not fit.
    fallback: Vec<usize>,
}

impl<'a> Scan<'a> {
    fn new(wanted: &[&'a [u8]], pass: Pass) -> Self {
        let wanted: Vec<_> = wanted.iter().map(|line| pass.key(line)).collect();
        let mut fallback = vec![0; wanted.len()];
        let mut matched = 0;
        for at in 1..wanted.len() {
            while matched > 0 && wanted[matched] != wanted[at] {
                matched = fallback[matched - 1];
            }
            matched += usize::from(wanted[matched] == wanted[at]);
            fallback[at] = matched;
        }
        Self { pass, wanted, fallback }
    }

    fn run(&self, text: &[u8], from: usize, effort: &Effort<'_>) -> Result<Option<Range<usize>>, Exhausted> {
        let (mut at, mut accounted, mut matched) = (from, from, 0);
        while let Some((line, next)) = line_at(text, at) {
            let key = self.pass.key(line);
            while matched > 0 && self.wanted[matched] != key {
                matched = self.fallback[matched - 1];
            }
            matched += usize::from(self.wanted[matched] == key);
            at = next;
            if matched == self.wanted.len() {
                effort.spend(at - accounted)?;
                return Ok(lines_before(text, at, matched).map(|start| start..at));
            }
            if at - accounted >= STRETCH {
                effort.spend(at - accounted)?;
                accounted = at;
            }
        }
        effort.spend(at - accounted)?;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn find(text: &str, wanted: &[&str], from: usize) -> Option<(Range<usize>, Pass)> {
        let wanted: Vec<_> = wanted.iter().map(|line| line.as_bytes()).collect();
        seek(text.as_bytes(), &wanted, from, &Effort::new(&|| false))
            .unwrap()
            .map(|found| (found.range, found.pass))
    }

    #[test]
    fn the_strictest_pass_that_finds_anything_decides() {
        assert_eq!(find(" a\na \na\n", &["a"], 0), Some((6..8, Pass::Exact)));
        assert_eq!(find(" a\na \n", &["a"], 0), Some((3..6, Pass::TrailingSpace)));
        assert_eq!(find("b\n\ta", &["a"], 0), Some((2..4, Pass::SurroundingSpace)));
        let typographic = "x\n\u{a0}say \u{201c}it\u{2019}s\u{201d}\u{2026} \u{2013}\n";
        let found = find(typographic, &["say \"it's\"... -"], 0);
        assert_eq!(found, Some((2..typographic.len(), Pass::Punctuation)));
        assert_eq!(find("abc\n", &["a"], 0), None);
        assert_eq!(find("a\nb\n", &["a"], 2), None);
    }

    #[test]
    fn work_is_bounded_and_ends_when_it_is_not_wanted() {
        let text = "a\n".repeat(1000);
        let effort = Effort::limited(3000, &|| false);
        assert_eq!(seek(text.as_bytes(), &[b"b"], 0, &effort), Err(Exhausted::TooMuch));
        let effort = Effort::new(&|| true);
        assert_eq!(seek(text.as_bytes(), &[b"b"], 0, &effort), Err(Exhausted::Cancelled));
    }

    #[test]
    fn a_million_equal_lines_are_scanned_once_in_each_pass() {
        let text = "same\n".repeat(1_000_000);
        let mut wanted = vec![&b"same"[..]; 5000];
        wanted.push(b"other");
        let effort = Effort::limited(4 * text.len() as u64, &|| false);
        assert_eq!(seek(text.as_bytes(), &wanted, 0, &effort), Ok(None));
    }

    proptest! {
        /// Against the plain way to do it.
        #[test]
        fn what_is_found_is_the_first_place(
            text in prop::collection::vec("[ab]{0,1}", 0..20),
            wanted in prop::collection::vec("[ab]{0,1}", 1..4),
        ) {
            let body: String = text.iter().map(|line| format!("{line}\n")).collect();
            let first = text.windows(wanted.len()).position(|lines| lines == wanted);
            let expected = first.map(|first| {
                let start = text[..first].iter().map(|line| line.len() + 1).sum::<usize>();
                start..start + wanted.iter().map(|line| line.len() + 1).sum::<usize>()
            });
            let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
            prop_assert_eq!(find(&body, &wanted, 0), expected.clone().map(|range| (range, Pass::Exact)));
            if let Some(range) = expected {
                let lines: Vec<_> = wanted.iter().map(|line| line.as_bytes()).collect();
                let effort = Effort::new(&|| false);
                let fit = fits(body.as_bytes(), &lines, range.start, &effort).unwrap().unwrap();
                prop_assert_eq!(fit.range, range);
            }
        }
    }
}

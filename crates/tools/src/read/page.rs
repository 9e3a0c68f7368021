//! A page of numbered lines out of a file that may be of any size.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, BufRead};

use memchr::memchr;

use crate::files::document::{MARK, cut_characters};

/// Characters of a line that are shown.
pub(super) const LINE: usize = 2_000;

/// Bytes of a page. Below the cap on all outputs, so that the note after the page fits too.
pub(super) const BYTES: usize = 49 * 1024;

/// How far the end of an overlong line is looked for. A file of one endless line must not be read to its end.
const SKIPPED: u64 = 1024 * 1024;

/// How far the first line that is asked for is looked for, in bytes: there is no other way to it than counting lines.
pub(super) const FAR: u64 = 250_000_000;

/// Lines that are passed between two looks at whether the call was cancelled.
const BETWEEN_LOOKS: u64 = 4096;

/// Why a page ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The file is over; it has this many lines.
    File {
        /// All lines of the file.
        lines: u64,
    },
    /// As many lines as were asked for are shown.
    Lines,
    /// As many bytes as a page holds are shown.
    Bytes,
    /// The last shown line is so long that its end was not looked for.
    LongLine,
    /// The first line was not found within [`FAR`] bytes.
    TooFar {
        /// Lines that were passed.
        lines: u64,
    },
    /// The call was cancelled.
    Cancelled,
}

/// Lines of a file.
#[derive(Debug)]
pub(super) struct Page {
    /// Each line as its number, a tab, its text.
    pub(super) text: String,
    /// How many lines are shown.
    pub(super) lines: u64,
    /// Lines that were cut.
    pub(super) cut: u64,
    /// Whether bytes that are not UTF-8 were replaced.
    pub(super) lossy: bool,
    /// Why it ended.
    pub(super) end: End,
}

/// Reads `limit` lines from the 1-based line `first` on. Asks `cancelled` often.
pub(super) fn page(
    mut reader: impl BufRead,
    first: u64,
    limit: u64,
    cancelled: &dyn Fn() -> bool,
) -> io::Result<Page> {
    let mut page = Page { text: String::new(), lines: 0, cut: 0, lossy: false, end: End::Lines };
    let mut left = FAR;
    for line in 1..first {
        if line % BETWEEN_LOOKS == 0 && cancelled() {
            return Ok(Page { end: End::Cancelled, ..page });
        }
        match skip_line(&mut reader, &mut left, cancelled)? {
            Skip::Line => {}
            Skip::Last => return Ok(Page { end: End::File { lines: line }, ..page }),
            Skip::Nothing => return Ok(Page { end: End::File { lines: line - 1 }, ..page }),
            Skip::GaveUp if cancelled() => return Ok(Page { end: End::Cancelled, ..page }),
            Skip::GaveUp => return Ok(Page { end: End::TooFar { lines: line - 1 }, ..page }),
        }
    }
    let mut bytes = Vec::new();
    while page.lines < limit {
        let number = first + page.lines;
        let rest = take_line(&mut reader, &mut bytes, cancelled)?;
        if cancelled() {
            return Ok(Page { end: End::Cancelled, ..page });
        }
        if bytes.is_empty() && rest == Skip::Nothing {
            return Ok(Page { end: End::File { lines: number - 1 }, ..page });
        }
        if !page.push(number, &bytes) {
            page.end = End::Bytes;
            return Ok(page);
        }
        match rest {
            Skip::Line => {}
            Skip::Last | Skip::Nothing => return Ok(Page { end: End::File { lines: number }, ..page }),
            Skip::GaveUp => return Ok(Page { end: End::LongLine, ..page }),
        }
    }
    if reader.fill_buf()?.is_empty() {
        page.end = End::File { lines: first + page.lines - 1 };
    }
    Ok(page)
}

impl Page {
    /// Adds a line, unless it does not fit any more.
    fn push(&mut self, number: u64, bytes: &[u8]) -> bool {
        let bytes = if number == 1 { bytes.strip_prefix(MARK).unwrap_or(bytes) } else { bytes };
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let line = String::from_utf8_lossy(bytes);
        let (shown, cut) = if line.len() <= LINE { (&*line, false) } else { cut_characters(&line, LINE) };
        if !self.text.is_empty() && self.text.len() + shown.len() + 24 > BYTES {
            return false;
        }
        let _ = write!(self.text, "{number}\t");
        // Some providers refuse a request with a NUL in it.
        match memchr(0, shown.as_bytes()) {
            None => self.text.push_str(shown),
            Some(_) => self.text.push_str(&shown.replace('\0', "␀")),
        }
        self.text.push_str(if cut { "… (line cut)\n" } else { "\n" });
        self.lines += 1;
        self.cut += u64::from(cut);
        self.lossy |= matches!(line, Cow::Owned(_)) && !cut;
        true
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Skip {
    /// A line and its ending were passed.
    Line,
    /// The rest of the file, without a line ending, was passed.
    Last,
    /// The file was over.
    Nothing,
    /// Too far, or cancelled.
    GaveUp,
}

/// Reads to the end of the line and keeps of it what can be shown.
fn take_line(
    reader: &mut impl BufRead,
    line: &mut Vec<u8>,
    cancelled: &dyn Fn() -> bool,
) -> io::Result<Skip> {
    line.clear();
    // A character has at most four bytes; one more tells that there is more than can be shown.
    let wanted = 4 * LINE + MARK.len() + 4;
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(if line.is_empty() { Skip::Nothing } else { Skip::Last });
        }
        let end = memchr(b'\n', buffer).map(|at| at + 1);
        let length = end.unwrap_or(buffer.len()).min(wanted - line.len());
        line.extend_from_slice(&buffer[..length]);
        reader.consume(length);
        if end == Some(length) {
            return Ok(Skip::Line);
        }
        if line.len() == wanted {
            return match skip_line(reader, &mut { SKIPPED }, cancelled)? {
                Skip::Nothing => Ok(Skip::Last),
                other => Ok(other),
            };
        }
    }
}

/// Passes the rest of a line. Gives up when that takes more than about `left` bytes, of which it takes what it passed.
fn skip_line(reader: &mut impl BufRead, left: &mut u64, cancelled: &dyn Fn() -> bool) -> io::Result<Skip> {
    let mut passed = false;
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(if passed { Skip::Last } else { Skip::Nothing });
        }
        let end = memchr(b'\n', buffer).map(|at| at + 1);
        let length = end.unwrap_or(buffer.len());
        reader.consume(length);
        passed = true;
        *left = left.saturating_sub(length as u64);
        if *left == 0 || (end.is_none() && cancelled()) {
            return Ok(Skip::GaveUp);
        }
        if end.is_some() {
            return Ok(Skip::Line);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use proptest::prelude::*;

    use super::*;

    fn read(text: &[u8], first: u64, limit: u64) -> Page {
        page(BufReader::with_capacity(7, text), first, limit, &|| false).unwrap()
    }

    #[test]
    fn lines_are_numbered() {
        let page = read(b"one\r\n\ntwo\tx\nlast", 1, 10);
        assert_eq!(page.text, "1\tone\n2\t\n3\ttwo\tx\n4\tlast\n");
        assert_eq!(page.end, End::File { lines: 4 });
        assert_eq!(read(b"", 1, 10).end, End::File { lines: 0 });
        assert_eq!(read(b"a\n", 1, 1).end, End::File { lines: 1 });
        assert_eq!(read(b"a\nb", 1, 1).end, End::Lines);
        assert_eq!(read(b"a\nb", 9, 1).end, End::File { lines: 2 });
        assert_eq!(read(b"a\nb\n", 9, 1).end, End::File { lines: 2 });
        assert_eq!(read(b"\xEF\xBB\xBFa\n", 1, 1).text, "1\ta\n");
    }

    #[test]
    fn a_long_line_is_cut_and_the_next_one_is_found() {
        let text = format!("{}\nnext\n", "ü".repeat(2_001));
        let page = read(text.as_bytes(), 1, 10);
        assert_eq!(page.text, format!("1\t{}… (line cut)\n2\tnext\n", "ü".repeat(2_000)));
        assert_eq!((page.cut, page.lossy, page.end), (1, false, End::File { lines: 2 }));
        let exact = read("ü".repeat(2_000).as_bytes(), 1, 10);
        assert_eq!((exact.cut, exact.end), (0, End::File { lines: 1 }));
    }

    #[test]
    fn the_end_of_an_endless_line_is_not_looked_for() {
        let endless = io::Read::chain(&b"x\n"[..], io::repeat(b'y'));
        let page = page(BufReader::new(endless), 1, 10, &|| false).unwrap();
        assert_eq!((page.lines, page.end), (2, End::LongLine));
    }

    #[test]
    fn a_page_is_bounded_in_bytes_and_the_next_one_goes_on() {
        let text = format!("{}\n", "x".repeat(999)).repeat(200);
        let page = read(text.as_bytes(), 1, 2_000);
        assert_eq!(page.end, End::Bytes);
        assert!(page.text.len() <= BYTES && page.text.len() > BYTES - 1_100);
        let next = read(text.as_bytes(), page.lines + 1, 1);
        assert!(next.text.starts_with(&format!("{}\t", page.lines + 1)));
    }

    #[test]
    fn an_endless_file_ends_when_the_call_is_cancelled() {
        let page = super::page(BufReader::new(io::repeat(b'y')), 2, 1, &|| true).unwrap();
        assert_eq!(page.end, End::Cancelled);
        let lines = super::page(BufReader::new(io::repeat(b'\n')), u64::MAX, 1, &|| true).unwrap();
        assert_eq!(lines.end, End::Cancelled);
    }

    #[test]
    #[ignore = "slow: scripts/slow runs it"]
    fn a_line_that_lies_too_far_is_not_looked_for() {
        let one = super::page(BufReader::new(io::repeat(b'y')), 2, 1, &|| false).unwrap();
        assert_eq!(one.end, End::TooFar { lines: 0 });
        let text = io::Read::chain(&b"a\nb\n"[..], io::repeat(b'y'));
        assert_eq!(super::page(BufReader::new(text), 9, 1, &|| false).unwrap().end, End::TooFar { lines: 2 });
    }

    #[test]
    fn what_is_not_utf8_is_replaced_and_told() {
        let page = read(b"gr\xfc\xdfe\0\n", 1, 1);
        assert_eq!((page.text.as_str(), page.lossy), ("1\tgr\u{fffd}\u{fffd}e␀\n", true));
    }

    proptest! {
        #[test]
        fn pages_put_together_are_the_file(text in "[a\u{fc}\n]{0,200}", limit in 1_u64..5) {
            let mut first = 1;
            let mut whole = String::new();
            loop {
                let page = read(text.as_bytes(), first, limit);
                for line in page.text.lines() {
                    whole.push_str(line.split_once('\t').unwrap().1);
                    whole.push('\n');
                }
                first += page.lines;
                if let End::File { lines } = page.end {
                    prop_assert_eq!(lines as usize, text.lines().count());
                    break;
                }
            }
            let expected: String = text.lines().flat_map(|line| [line, "\n"]).collect();
            prop_assert_eq!(whole, expected);
        }
    }
}

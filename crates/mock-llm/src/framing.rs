//! How the bytes of an answer are carried: all of it is allowed, and none of it is usual.

use std::io::Write;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

/// How the bytes of an answer are carried. The default is as the provider does it.
///
/// What concerns lines (the first five fields) only holds for streams of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Framing {
    /// What ends a line; absent for what the provider uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line_end: Option<LineEnd>,
    /// Whether a byte order mark comes first.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub bom: bool,
    /// Whether comments stand before and in each event.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub comments: bool,
    /// Whether the data of an event is spread over several lines.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub multi_line: bool,
    /// Whether the space after a field's colon is missing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_space: bool,
    /// Bytes in each write, wherever that splits them; absent for as many as there are. 0 counts as 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<usize>,
    /// Milliseconds between two writes.
    #[serde(skip_serializing_if = "playhouse_protocol::is_default")]
    pub every_ms: u64,
    /// Whether the body is compressed (`content-encoding: gzip`), whatever the client accepts. What is said is
    /// flushed at once, as it is without.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gzip: bool,
    /// Whether the body stays open after its last byte, until the client goes away.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub never_ends: bool,
}

/// What ends a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineEnd {
    /// A line feed.
    Lf,
    /// A carriage return and a line feed.
    Crlf,
    /// A carriage return.
    Cr,
}

impl Framing {
    /// Writes of so many bytes, which split characters too.
    pub fn split(bytes: usize) -> Self {
        Self { split: Some(bytes), ..Self::default() }
    }

    /// One byte a write, and so many milliseconds between two.
    pub fn slow(every_ms: u64) -> Self {
        Self { split: Some(1), every_ms, ..Self::default() }
    }

    /// Lines that end in this.
    pub fn line_end(line_end: LineEnd) -> Self {
        Self { line_end: Some(line_end), ..Self::default() }
    }

    /// Whether it is as the provider does it.
    pub(crate) fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    fn changes_lines(&self) -> bool {
        self.line_end.is_some() || self.bom || self.comments || self.multi_line || self.no_space
    }

    /// The time between two writes.
    pub(crate) fn pause(&self) -> Duration {
        Duration::from_millis(self.every_ms)
    }
}

/// Frames one body.
pub(crate) struct Framer {
    framing: Framing,
    lines: Option<Lines>,
    gzip: Option<GzEncoder<Vec<u8>>>,
    /// Bytes that are framed and not yet written.
    rest: Bytes,
}

impl Framer {
    /// For a body that is a stream of events, or another one.
    pub(crate) fn new(framing: Framing, is_events: bool) -> Self {
        Self {
            framing,
            lines: (is_events && framing.changes_lines()).then(|| Lines::new(framing)),
            gzip: framing.gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast())),
            rest: Bytes::new(),
        }
    }

    /// Frames the next bytes; what was put in before must have been taken.
    pub(crate) fn put(&mut self, bytes: Bytes) {
        let bytes = match &mut self.lines {
            Some(lines) => Bytes::from(lines.change(&bytes)),
            None => bytes,
        };
        self.rest = match &mut self.gzip {
            Some(gzip) => {
                // Writing to a vector does not fail.
                let _ = gzip.write_all(&bytes).and_then(|()| gzip.flush());
                Bytes::from(std::mem::take(gzip.get_mut()))
            }
            None => bytes,
        };
    }

    /// Frames what comes after the last bytes; false when that is nothing.
    pub(crate) fn finish(&mut self) -> bool {
        let trailer = self.gzip.take().and_then(|gzip| gzip.finish().ok()).unwrap_or_default();
        self.rest = Bytes::from(trailer);
        !self.rest.is_empty()
    }

    /// Takes the bytes of the next write, and says whether they are the last of what was put in.
    pub(crate) fn take(&mut self) -> Option<(Bytes, bool)> {
        if self.rest.is_empty() {
            return None;
        }
        let count = self.framing.split.map_or(self.rest.len(), |split| split.clamp(1, self.rest.len()));
        let bytes = self.rest.split_to(count);
        Some((bytes, self.rest.is_empty()))
    }

    /// Whether more comes after the last bytes.
    pub(crate) fn has_trailer(&self) -> bool {
        self.gzip.is_some()
    }

    /// How the bytes are carried.
    pub(crate) fn framing(&self) -> Framing {
        self.framing
    }
}

fn push_all(out: &mut Vec<u8>, pieces: &[&[u8]]) {
    pieces.iter().for_each(|piece| out.extend_from_slice(piece));
}

/// Changes the lines of a stream of events.
struct Lines {
    framing: Framing,
    /// Whether nothing was written.
    is_first: bool,
    /// Whether the next line begins an event.
    at_event: bool,
    /// Whether the last line has no end yet.
    is_open: bool,
}

impl Lines {
    fn new(framing: Framing) -> Self {
        Self { framing, is_first: true, at_event: true, is_open: false }
    }

    fn change(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 4);
        if std::mem::take(&mut self.is_first) && self.framing.bom {
            out.extend_from_slice("\u{feff}".as_bytes());
        }
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, usual_end): (&[u8], &[u8]) = match line {
                [text @ .., b'\r', b'\n'] => (text, b"\r\n"),
                [text @ .., b'\n'] => (text, b"\n"),
                text => (text, b""),
            };
            let end = match self.framing.line_end {
                _ if usual_end.is_empty() => usual_end,
                Some(LineEnd::Lf) => b"\n",
                Some(LineEnd::Crlf) => b"\r\n",
                Some(LineEnd::Cr) => b"\r",
                None => usual_end,
            };
            self.line(text, end, &mut out);
        }
        out
    }

    fn line(&mut self, text: &[u8], end: &[u8], out: &mut Vec<u8>) {
        let continues = std::mem::replace(&mut self.is_open, end.is_empty());
        if continues {
            push_all(out, &[text, end]);
            return;
        }
        if self.framing.comments && self.at_event && !text.is_empty() {
            push_all(out, &[b": keep-alive", end, end, b":in the event: {\"data\": 1}", end]);
        }
        self.at_event = text.is_empty();
        let mut field = |name: &[u8], value: &[u8]| {
            let colon: &[u8] = if self.framing.no_space { b":" } else { b": " };
            push_all(out, &[name, colon, value, end]);
        };
        let split = text.iter().position(|byte| *byte == b':');
        match split.map(|at| (&text[..at], text[at + 1..].trim_ascii_start())) {
            Some((b"data", [b'{', inner @ .., b'}'])) if self.framing.multi_line => {
                for value in [b"{", inner, b"}"] {
                    field(b"data", value);
                }
            }
            Some((name, value)) => field(name, value),
            None => {
                push_all(out, &[text, end]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    const EVENTS: &str = "event: a\ndata: {\"b\":\"é: {}\"}\n\ndata: [DONE]\n\n";

    fn framed(framing: Framing, pieces: &[&str]) -> Vec<Vec<u8>> {
        let mut framer = Framer::new(framing, true);
        let mut writes = Vec::new();
        for piece in pieces {
            framer.put(Bytes::copy_from_slice(piece.as_bytes()));
            while let Some((bytes, _)) = framer.take() {
                writes.push(bytes.to_vec());
            }
        }
        if framer.finish() {
            while let Some((bytes, _)) = framer.take() {
                writes.push(bytes.to_vec());
            }
        }
        writes
    }

    #[track_caller]
    fn check(framing: Framing, expected: &str) {
        assert_eq!(String::from_utf8(framed(framing, &[EVENTS]).concat()).unwrap(), expected);
    }

    #[test]
    fn lines_are_changed_and_data_is_not() {
        let plain = Framing::default();
        check(plain, EVENTS);
        check(Framing::line_end(LineEnd::Crlf), &EVENTS.replace('\n', "\r\n"));
        check(Framing::line_end(LineEnd::Cr), &EVENTS.replace('\n', "\r"));
        check(Framing { bom: true, ..plain }, &format!("\u{feff}{EVENTS}"));
        let no_space = "event:a\ndata:{\"b\":\"é: {}\"}\n\ndata:[DONE]\n\n";
        check(Framing { no_space: true, ..plain }, no_space);
        let many = "event: a\ndata: {\ndata: \"b\":\"é: {}\"\ndata: }\n\ndata: [DONE]\n\n";
        check(Framing { multi_line: true, ..plain }, many);
        let comment = ": keep-alive\n\n:in the event: {\"data\": 1}\n";
        let expected = EVENTS.replace("event: a", &format!("{comment}event: a"));
        let expected = expected.replace("data: [DONE]", &format!("{comment}data: [DONE]"));
        check(Framing { comments: true, ..plain }, &expected);
    }

    #[test]
    fn usual_ends_are_kept_and_can_be_replaced() {
        let crlf = EVENTS.replace('\n', "\r\n");
        let bom = framed(Framing { bom: true, ..Framing::default() }, &[&crlf]).concat();
        assert_eq!(bom, format!("\u{feff}{crlf}").as_bytes());
        assert_eq!(framed(Framing::line_end(LineEnd::Lf), &[&crlf]).concat(), EVENTS.as_bytes());
    }

    #[test]
    fn an_event_in_two_pieces_stays_whole() {
        let (first, second) = EVENTS.split_at(20);
        let all = Framing { comments: true, multi_line: true, ..Framing::default() };
        let whole = framed(Framing { comments: true, ..Framing::default() }, &[EVENTS]).concat();
        assert_eq!(framed(all, &[first, second]).concat(), whole);
    }

    #[test]
    fn writes_are_as_small_as_asked() {
        for count in [1, 3, 1000] {
            let writes = framed(Framing::split(count), &[EVENTS]);
            assert!(writes.iter().all(|write| write.len() <= count));
            let splits_a_character = writes.iter().any(|write| std::str::from_utf8(write).is_err());
            assert!(count > 1 || splits_a_character, "no character was split");
            assert_eq!(writes.concat(), EVENTS.as_bytes());
        }
        assert_eq!(framed(Framing::split(0), &["ab"]), [b"a", b"b"]);
    }

    #[test]
    fn what_is_compressed_is_flushed_and_ends_well() {
        let gzip = Framing { gzip: true, split: Some(7), ..Framing::default() };
        let writes = framed(gzip, &["one ", "two"]).concat();
        let mut text = String::new();
        flate2::read::GzDecoder::new(writes.as_slice()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "one two");
        let mut framer = Framer::new(Framing { gzip: true, ..Framing::default() }, false);
        framer.put(Bytes::from_static(b"one"));
        let (bytes, _) = framer.take().unwrap();
        let mut some = [0; 3];
        flate2::read::GzDecoder::new(&*bytes).read_exact(&mut some).unwrap();
        assert_eq!(&some, b"one");
    }
}

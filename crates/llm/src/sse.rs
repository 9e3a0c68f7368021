//! Cuts a stream of bytes into server-sent events.
//!
//! The crate `eventsource-stream` reads the format. It scans what it holds again with each chunk, and moves the rest of
//! its buffer with each line: so it is given whole events only, line by line, which keeps the work linear. It copies each
//! line several times; events of the form that almost all have, a name and one line of data, are therefore read where they
//! lie, and what begins with any other goes to the crate.

use std::convert::Infallible;

use eventsource_stream::EventStream;
use futures::{FutureExt, StreamExt, stream};
use playhouse_protocol::ErrorInfo;

use crate::decode::bad;

/// The largest event, in bytes.
pub(crate) const EVENT_LIMIT: usize = 16 << 20;

/// The bytes of an event that is not whole yet.
#[derive(Debug)]
pub(crate) struct EventReader {
    /// The bytes. Begins where an event begins.
    pending: Vec<u8>,
    /// Where the last line in `pending` begins.
    line: usize,
    /// Up to where `pending` was searched for line ends.
    searched: usize,
    /// The largest event, in bytes.
    limit: usize,
    /// Whether events were read: a byte order mark may stand before the first only.
    begun: bool,
}

impl EventReader {
    pub(crate) fn new(limit: usize) -> Self {
        Self { pending: Vec::new(), line: 0, searched: 0, limit, begun: false }
    }

    /// Takes what one read brought, and hands name and data of each event that is now whole to `each`.
    pub(crate) fn push(
        &mut self,
        chunk: &[u8],
        each: impl FnMut(&str, &str) -> Result<(), ErrorInfo>,
    ) -> Result<(), ErrorInfo> {
        // What begins with an event and ends with one, as most of what is read does, is taken where it lies.
        if self.pending.is_empty() && chunk.len() <= self.limit && chunk.ends_with(b"\n\n") {
            return dispatch(chunk, !std::mem::replace(&mut self.begun, true), each);
        }
        self.pending.extend_from_slice(chunk);
        let mut whole = 0;
        let mut too_large = Ok(());
        for end in memchr::memchr_iter(b'\n', &self.pending[self.searched..]) {
            let end = self.searched + end + 1;
            if matches!(&self.pending[self.line..end], b"\n" | b"\r\n") {
                too_large = self.check_size(end - whole);
                if too_large.is_err() {
                    break;
                }
                whole = end;
            }
            self.line = end;
        }
        if whole > 0 {
            dispatch(&self.pending[..whole], !std::mem::replace(&mut self.begun, true), each)?;
            self.pending.drain(..whole);
            self.line -= whole;
        }
        too_large?;
        self.searched = self.pending.len();
        self.check_size(self.pending.len())
    }

    /// Takes the end of the stream: what is pending counts as an event, since some servers leave out the last blank line.
    pub(crate) fn end(
        &mut self,
        each: impl FnMut(&str, &str) -> Result<(), ErrorInfo>,
    ) -> Result<(), ErrorInfo> {
        let mut rest = std::mem::take(&mut self.pending);
        (self.line, self.searched) = (0, 0);
        if rest.is_empty() {
            return Ok(());
        }
        rest.extend_from_slice(b"\n\n");
        dispatch(&rest, !self.begun, each)
    }

    /// Whether a line has begun that is no comment.
    pub(crate) fn is_inside_data(&self) -> bool {
        self.pending.get(self.line).is_some_and(|first| *first != b':')
    }

    fn check_size(&self, size: usize) -> Result<(), ErrorInfo> {
        if size <= self.limit {
            return Ok(());
        }
        Err(bad(format!(
            "an event of the answer is larger than {} bytes: nothing this large is read",
            self.limit
        )))
    }
}

/// Reads whole events. `first`: whether they are the first of the stream.
fn dispatch(
    events: &[u8],
    first: bool,
    each: impl FnMut(&str, &str) -> Result<(), ErrorInfo>,
) -> Result<(), ErrorInfo> {
    match std::str::from_utf8(events) {
        Ok(events) => read_text(events, first, each),
        Err(error) => {
            // The events before the one that is no text are as good as if they had come alone.
            let good = std::str::from_utf8(&events[..error.valid_up_to()]).unwrap_or_default();
            let end =
                ["\n\n", "\n\r\n"].iter().filter_map(|blank| Some(good.rfind(blank)? + blank.len())).max();
            read_text(&good[..end.unwrap_or(0)], first, each)?;
            Err(bad(format!("the answer is not UTF-8 ({error})")))
        }
    }
}

fn read_text(
    events: &str,
    first: bool,
    mut each: impl FnMut(&str, &str) -> Result<(), ErrorInfo>,
) -> Result<(), ErrorInfo> {
    let mut events = if first { events.trim_start_matches('\u{feff}') } else { events };
    while let Some((name, data, rest)) = usual(events) {
        each(name, data)?;
        events = rest;
    }
    if events.is_empty() { Ok(()) } else { read_any(events, each) }
}

/// Name and data of the first event, and what follows it, where it has the usual form: one line of data, at most a name
/// before it, and line feeds behind both.
fn usual(events: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = field(events, "event:").unwrap_or(("", events));
    let (data, rest) = field(rest, "data:")?;
    let name = if name.is_empty() { "message" } else { name };
    Some((name, data, rest.strip_prefix('\n')?))
}

/// The value of a field that is the first line of `text`, and the lines behind it. A line that carriage returns end is
/// none of its lines.
fn field<'a>(text: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    let value = text.strip_prefix(name)?;
    let end = memchr::memchr2(b'\n', b'\r', value.as_bytes())?;
    let (value, rest) = (&value[..end], value[end..].strip_prefix('\n')?);
    Some((value.strip_prefix(' ').unwrap_or(value), rest))
}

/// Reads whole events of any form.
fn read_any(
    events: &str,
    mut each: impl FnMut(&str, &str) -> Result<(), ErrorInfo>,
) -> Result<(), ErrorInfo> {
    // The crate panics at a byte order mark, which it takes for one byte. Behind a blank line it does not look for one.
    let blank = events.starts_with('\u{feff}').then_some("\n");
    let lines = blank.into_iter().chain(events.split_inclusive('\n')).map(Ok::<_, Infallible>);
    let mut events = EventStream::new(stream::iter(lines));
    // Every line is there already, so nothing ever has to be waited for.
    while let Some(Some(event)) = events.next().now_or_never() {
        let event = event.map_err(|error| bad(format!("the answer is not a stream of events ({error})")))?;
        each(&event.event, &event.data)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::error::ErrorCode;

    use super::*;

    fn read(chunks: &[&[u8]], limit: usize) -> Result<Vec<(String, String)>, ErrorInfo> {
        let mut reader = EventReader::new(limit);
        let mut events = Vec::new();
        let mut each = |name: &str, data: &str| {
            events.push((name.to_owned(), data.to_owned()));
            Ok(())
        };
        for chunk in chunks {
            reader.push(chunk, &mut each)?;
        }
        reader.end(&mut each)?;
        Ok(events)
    }

    fn message(data: &str) -> (String, String) {
        ("message".into(), data.into())
    }

    #[test]
    fn names_comments_and_data_of_several_lines() {
        let stream =
            b"\xef\xbb\xbf: c\n\nevent: a\ndata: 1\ndata:2\ndata:  3\n\nid: x\n\ndata\n\ndata: last\n\n";
        let events = read(&[stream], 1000).unwrap();
        assert_eq!(events, vec![("a".into(), "1\n2\n 3".into()), message(""), message("last")]);
    }

    #[test]
    fn a_last_event_without_its_blank_line_counts() {
        assert_eq!(read(&[b"data: 1\n\ndata: 2"], 1000).unwrap(), vec![message("1"), message("2")]);
        assert_eq!(read(&[b"data: 1\n\ndata: 2\n"], 1000).unwrap(), vec![message("1"), message("2")]);
        assert_eq!(read(&[b"data: 1\n\nevent: x\n"], 1000).unwrap(), vec![message("1")]);
    }

    #[test]
    fn an_event_is_given_when_it_is_whole_and_not_before() {
        let mut reader = EventReader::new(1000);
        let mut count = 0;
        for (chunk, expected) in
            [("data: 1", 0), ("\n", 0), ("\n", 1), ("\r\ndata: 2\r", 1), ("\n\r", 1), ("\n", 2)]
        {
            let taken = reader.push(chunk.as_bytes(), |_, _| {
                count += 1;
                Ok(())
            });
            assert_eq!((taken, count), (Ok(()), expected), "after {chunk:?}");
        }
        assert!(reader.pending.is_empty());
    }

    #[test]
    fn an_event_over_the_limit_is_refused_whether_whole_or_not() {
        let whole = [b"data: ".as_slice(), &[b'x'; 100], b"\n\n"].concat();
        let unfinished = &whole[..whole.len() - 2];
        let many_lines = b"data: x\n".repeat(20);
        for stream in [&whole, unfinished, &many_lines] {
            let error = read(&[stream], 64).unwrap_err();
            assert_eq!(error.code, ErrorCode::BadAnswer);
            assert!(error.message.contains("larger than 64 bytes"), "{error}");
        }
        let many = whole.repeat(50);
        assert_eq!(read(&[&many], 200).unwrap().len(), 50, "the limit is for one event, not for a chunk");
    }

    #[test]
    fn an_unfinished_line_is_not_searched_again() {
        let mut reader = EventReader::new(EVENT_LIMIT);
        let none = |_: &str, _: &str| Ok(());
        for _ in 0..100 {
            reader.push(b"data", none).unwrap();
            assert_eq!(reader.searched, reader.pending.len());
        }
        reader.push(b"\n", none).unwrap();
        assert_eq!((reader.line, reader.searched), (401, 401));
    }

    /// However the stream is cut, what stands before the fault is read.
    #[test]
    fn events_before_one_that_is_refused_are_read() {
        let too_large = b"data: x\ndata: x\ndata: x\ndata: x\n\n";
        for (fault, what) in [(b"data: \xff\n\n".as_slice(), "UTF-8"), (too_large, "larger than 24")] {
            let stream = [b"data: 1\n\ndata: 2\r\n\r\n", fault, b"data: 3\n\n"].concat();
            for size in 1..=stream.len() {
                let mut reader = EventReader::new(24);
                let mut seen = Vec::new();
                let mut chunks = stream.chunks(size).map(|chunk| {
                    reader.push(chunk, |_, data| {
                        seen.push(data.to_owned());
                        Ok(())
                    })
                });
                let error = chunks.find_map(Result::err).unwrap();
                assert!(error.message.contains(what), "{error}");
                assert_eq!(seen, ["1", "2"], "in pieces of {size}");
            }
        }
    }

    /// Every sequence of a few lines of all kinds is read as the crate reads it.
    #[test]
    fn events_of_the_usual_form_are_read_like_all_others() {
        const LINES: [&str; 12] = [
            "\n",
            "\r\n",
            "data: one\n",
            "data:  two\n",
            "data:\n",
            "data\n",
            "data: a\rdata: b\n",
            "event: name\n",
            "event:\n",
            "event:x\r\n",
            ": comment\n",
            "id: 7\n",
        ];
        let mut usual_ones = 0;
        for number in 0..LINES.len().pow(4) {
            let lines = (0..4).map(|at| LINES[number / LINES.len().pow(at) % LINES.len()]);
            let text = lines.chain(["\n"]).collect::<String>();
            usual_ones += usize::from(usual(&text).is_some());
            let (mut quick, mut whole) = (Vec::new(), Vec::new());
            let mut each = |name: &str, data: &str| {
                quick.push((name.to_owned(), data.to_owned()));
                Ok(())
            };
            read_text(&text, false, &mut each).unwrap();
            let mut each = |name: &str, data: &str| {
                whole.push((name.to_owned(), data.to_owned()));
                Ok(())
            };
            read_any(&text, &mut each).unwrap();
            assert_eq!(quick, whole, "{text:?}");
        }
        assert!(usual_ones > 100, "{usual_ones} began with an event of the usual form");
    }

    #[test]
    fn a_byte_order_mark_counts_at_the_beginning_only() {
        let stream = "\u{feff}data: 1\n\n\u{feff}data: 2\n\ndata: 3\n\n".as_bytes();
        for size in 1..=stream.len() {
            let chunks: Vec<&[u8]> = stream.chunks(size).collect();
            assert_eq!(read(&chunks, 1000).unwrap(), vec![message("1"), message("3")], "in pieces of {size}");
        }
    }

    #[test]
    fn an_error_of_the_reader_stops_the_reading() {
        let mut reader = EventReader::new(1000);
        let mut seen = 0;
        let taken = reader.push(b"data: 1\n\ndata: 2\n\n", |_, _| {
            seen += 1;
            Err(bad("no"))
        });
        assert_eq!((taken.unwrap_err().message.as_str(), seen), ("no", 1));
    }
}

//! The lines that a server writes, with a bound on what is held of one.

use std::io;

use bytes::{Bytes, BytesMut};
use memchr::memchr;
use rmcp::model::RequestId;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::messages::LONGEST;
use super::scan::Scan;

/// Room that is made for one read, in bytes.
const READ: usize = 64 * 1024;

/// A line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Its bytes, without the newline.
    Whole(Bytes),
    /// It was longer than [`LONGEST`], and nothing of it is held.
    TooLong {
        /// Its length in bytes.
        bytes: u64,
        /// The request that it answers.
        answers: Option<RequestId>,
    },
}

/// Reads lines. The last one need not end with a newline.
#[derive(Debug)]
pub(super) struct Lines<R> {
    input: R,
    buffer: BytesMut,
    /// So much of the buffer holds no newline.
    searched: usize,
    /// What is known of a line that is too long, and its bytes so far.
    long: Option<(Scan, u64)>,
    longest: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self::up_to(input, LONGEST)
    }

    fn up_to(input: R, longest: usize) -> Self {
        Self { input, buffer: BytesMut::new(), searched: 0, long: None, longest }
    }

    /// The next line; `None` at the end. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            if let Some(end) = memchr(b'\n', &self.buffer[self.searched..]) {
                let line = self.buffer.split_to(self.searched + end + 1);
                return Ok(Some(self.line(&line[..line.len() - 1])));
            }
            self.searched = self.buffer.len();
            if self.searched > self.longest || self.long.is_some() {
                let (scan, bytes) = self.long.get_or_insert_default();
                scan.feed(&self.buffer);
                *bytes += self.searched as u64;
                // A new buffer: the old one was as large as the longest line.
                self.buffer = BytesMut::new();
                self.searched = 0;
            }
            self.buffer.reserve(READ);
            if self.input.read_buf(&mut self.buffer).await? == 0 {
                let rest = self.buffer.split();
                let is_line = !rest.is_empty() || self.long.is_some();
                return Ok(is_line.then(|| self.line(&rest)));
            }
        }
    }

    /// The line that ends with `last`.
    fn line(&mut self, last: &[u8]) -> Line {
        self.searched = 0;
        let long = self.long.take().or_else(|| (last.len() > self.longest).then(Default::default));
        let Some((mut scan, bytes)) = long else {
            return Line::Whole(Bytes::copy_from_slice(last.strip_suffix(b"\r").unwrap_or(last)));
        };
        scan.feed(last);
        Line::TooLong { bytes: bytes + last.len() as u64, answers: scan.answers() }
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    fn lines(text: &[u8], longest: usize) -> Vec<Line> {
        let mut lines = Lines::up_to(text, longest);
        let mut read = Vec::new();
        while let Some(line) = block_on(lines.next()).unwrap() {
            read.push(line);
        }
        read
    }

    fn whole(text: &'static str) -> Line {
        Line::Whole(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn lines_end_with_a_newline_or_with_the_stream() {
        assert_eq!(lines(b"one\r\n\ntwo", 10), [whole("one"), whole(""), whole("two")]);
        assert_eq!(lines(b"", 10), []);
    }

    #[test]
    fn a_line_that_is_too_long_is_dropped_and_the_next_is_read() {
        let long = r#"{"id":3,"result":"xxxxxxxxxxxxxx"}"#;
        let read = lines(format!("{long}\nshort\n").as_bytes(), 20);
        let too_long = Line::TooLong { bytes: long.len() as u64, answers: Some(RequestId::Number(3)) };
        assert_eq!(read, [too_long, whole("short")]);
    }

    #[test]
    fn of_a_line_that_is_too_long_nothing_is_held() {
        let zeros = tokio::io::repeat(b'x').take(50 << 20);
        let mut lines = Lines::new(zeros);
        let line = block_on(lines.next()).unwrap();
        assert_eq!(line, Some(Line::TooLong { bytes: 50 << 20, answers: None }));
        assert!(lines.buffer.capacity() <= 1 << 20);
    }

    proptest! {
        #[test]
        fn no_byte_is_lost(lengths in prop::collection::vec(0_usize..60, 0..20), longest in 1_usize..50) {
            let text: Vec<u8> = lengths.iter().flat_map(|&length| [vec![b'x'; length], vec![b'\n']].concat()).collect();
            let read: Vec<u64> = lines(&text, longest)
                .into_iter()
                .map(|line| match line {
                    Line::Whole(line) => line.len() as u64,
                    Line::TooLong { bytes, .. } => bytes,
                })
                .collect();
            prop_assert_eq!(read, lengths.iter().map(|&length| length as u64).collect::<Vec<_>>());
        }
    }
}

//! Server-sent events, with a bound on what is held of one.

use std::time::Duration;

use memchr::memchr2;
use rmcp::model::RequestId;

use crate::connection::messages::LONGEST;
use crate::connection::scan::Scan;

/// The longest id of an event that is kept, in bytes.
const ID: usize = 1_024;
/// The longest line that is no data, in bytes.
const FIELD: usize = 64 * 1024;

/// The data of an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    Data(Vec<u8>),
    /// It was longer than the bound, and nothing of it is held.
    TooLong {
        bytes: u64,
        answers: Option<RequestId>,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rest {
    #[default]
    Held,
    /// It is data that is too long.
    Scanned,
    /// It is no data, and too long.
    Skipped,
}

/// Reads events from pieces of a stream. The work is linear in what comes.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// A line that is not whole yet.
    line: Vec<u8>,
    /// What becomes of the rest of this line.
    rest: Rest,
    after_return: bool,
    /// The data of an event that is not whole yet.
    data: Vec<u8>,
    begun: bool,
    /// What is known of an event whose data is too long.
    long: Option<(Scan, u64)>,
    longest: usize,
    /// The id of the last event that was whole.
    pub(super) last_id: Option<String>,
    id: Option<String>,
    /// How long to wait before the stream is opened again, if the server says it.
    pub(super) retry: Option<Duration>,
}

impl Events {
    pub(super) fn new() -> Self {
        Self::up_to(LONGEST)
    }

    fn up_to(longest: usize) -> Self {
        Self { longest, ..Self::default() }
    }

    /// The same place in a stream that is opened again.
    pub(super) fn resumed(self) -> Self {
        let Self { longest, last_id, retry, .. } = self;
        Self { id: last_id.clone(), last_id, retry, ..Self::up_to(longest) }
    }

    /// Takes a piece, and hands on each event that is whole.
    pub(super) fn push(&mut self, mut piece: &[u8], mut each: impl FnMut(Event)) {
        while !piece.is_empty() {
            if std::mem::take(&mut self.after_return) && piece[0] == b'\n' {
                piece = &piece[1..];
                continue;
            }
            let end = memchr2(b'\n', b'\r', piece);
            self.extend(&piece[..end.unwrap_or(piece.len())]);
            let Some(end) = end else { return };
            self.after_return = piece[end] == b'\r';
            piece = &piece[end + 1..];
            if let Some(event) = self.end_line() {
                each(event);
            }
        }
    }

    fn extend(&mut self, part: &[u8]) {
        match (self.rest, self.long.as_mut()) {
            (Rest::Held, _) => {}
            (Rest::Scanned, Some((scan, bytes))) => {
                scan.feed(part);
                *bytes += part.len() as u64;
                return;
            }
            _ => return,
        }
        self.line.extend_from_slice(part);
        let is_data = self.line.starts_with(b"data:");
        if is_data && self.line.len() + self.data.len() > self.longest {
            let line = std::mem::take(&mut self.line);
            self.lengthen();
            self.add(&line[b"data:".len()..]);
            self.rest = Rest::Scanned;
        } else if !is_data && self.line.len() > FIELD {
            self.line = Vec::new();
            self.rest = Rest::Skipped;
        }
    }

    /// From here on the data of the event is only scanned.
    fn lengthen(&mut self) {
        let (scan, bytes) = self.long.get_or_insert_default();
        let data = std::mem::take(&mut self.data);
        scan.feed(&data);
        *bytes += data.len() as u64;
    }

    /// Adds a value to the data of the event.
    fn add(&mut self, value: &[u8]) {
        if self.data.len() + value.len() >= self.longest {
            self.lengthen();
        }
        match self.long.as_mut() {
            Some((scan, bytes)) => {
                scan.feed(value);
                *bytes += value.len() as u64;
            }
            None => {
                if std::mem::replace(&mut self.begun, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
        }
    }

    fn end_line(&mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.rest) != Rest::Held {
            return None;
        }
        if line.is_empty() {
            self.begun = false;
            self.last_id.clone_from(&self.id);
            let data = std::mem::take(&mut self.data);
            return match self.long.take() {
                Some((scan, bytes)) => Some(Event::TooLong { bytes, answers: scan.answers() }),
                None if data.is_empty() => None,
                None => Some(Event::Data(data)),
            };
        }
        let colon = line.iter().position(|&byte| byte == b':');
        let (field, value) = match colon {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (&line[..], &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = || std::str::from_utf8(value).ok();
        match field {
            b"data" => self.add(value),
            b"id" => {
                let is_usable = value.len() <= ID && !value.contains(&0);
                self.id = text().filter(|id| is_usable && !id.is_empty()).map(str::to_owned);
            }
            b"retry" => {
                self.retry =
                    text().and_then(|text| text.parse().ok()).map(Duration::from_millis).or(self.retry);
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], size: usize, longest: usize) -> (Vec<Event>, Events) {
        let (mut events, mut found) = (Events::up_to(longest), Vec::new());
        text.chunks(size).for_each(|piece| events.push(piece, |event| found.push(event)));
        (found, events)
    }

    #[test]
    fn events_are_read_however_they_are_cut() {
        let text = b": hello\nevent: message\ndata: {\"a\":\ndata:1}\n\nid: 7\r\ndata: b\r\n\r\nretry: 20\n\nid: 8\ndata: not whole";
        for size in [1, 2, 3, 7, 1_000] {
            let (found, events) = read(text, size, 100);
            assert_eq!(found, [Event::Data(b"{\"a\":\n1}".to_vec()), Event::Data(b"b".to_vec())], "{size}");
            assert_eq!(
                (events.last_id.as_deref(), events.retry),
                (Some("7"), Some(Duration::from_millis(20)))
            );
        }
    }

    #[test]
    fn data_that_is_too_long_is_not_held() {
        let long = format!("data: {{\"id\":3,\"result\":\"{}\"}}\n\ndata: x\n\n", "x".repeat(1_000));
        let lines = format!("data: {{\"id\":3,\"result\":\"{}\ndata: \"}}\n\ndata: x\n\n", "x".repeat(90));
        for text in [long, lines] {
            for size in [1, 10, 2_000] {
                let (found, events) = read(text.as_bytes(), size, 100);
                let [Event::TooLong { bytes, answers }, Event::Data(rest)] = &found[..] else {
                    panic!("{found:?}")
                };
                assert_eq!((answers, rest.as_slice()), (&Some(RequestId::Number(3)), &b"x"[..]));
                assert!(*bytes > 100 && events.data.capacity() < 200);
            }
        }
        let mut noise = vec![b'n'; 200_000];
        noise.extend_from_slice(b"\ndata: y\n\n");
        assert_eq!(read(&noise, 1_000, 100).0, [Event::Data(b"y".to_vec())]);
    }
}

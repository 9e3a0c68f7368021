//! The bytes of a stream that go out together.

use bytes::Bytes;
use playhouse_protocol::Tokens;

/// Bytes that make a frame full.
const FULL: usize = 16 * 1024;

/// What an event was.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    /// Neither of the others.
    Structure,
    /// It carried a token.
    Token,
    /// It reported these counts.
    Usage(Tokens),
    /// It carried a token and reported these counts.
    TokenAndUsage(Tokens),
}

/// What was put in.
#[derive(Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    counts: Counts,
}

/// What is counted of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Events.
    pub(crate) events: u64,
    /// Events that carry a token.
    pub(crate) tokens: u64,
    /// Bytes.
    pub(crate) bytes: u64,
    /// The last counts that were reported.
    pub(crate) reported: Option<Tokens>,
}

impl Counts {
    /// Adds what came later.
    pub(crate) fn add(&mut self, later: Self) {
        self.events += later.events;
        self.tokens += later.tokens;
        self.bytes += later.bytes;
        self.reported = later.reported.or(self.reported);
    }

    fn mark(&mut self, mark: Mark) {
        self.events += 1;
        match mark {
            Mark::Structure => {}
            Mark::Token => self.tokens += 1,
            Mark::Usage(tokens) => self.reported = Some(tokens),
            Mark::TokenAndUsage(tokens) => {
                self.tokens += 1;
                self.reported = Some(tokens);
            }
        }
    }
}

/// Collects events until they are sent together. A gate can hold back what comes after so many events.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    ready: Content,
    held: Content,
    /// Events that may still pass; `None` without a gate.
    pass: Option<u64>,
    /// What happens to the next event.
    next: Mishap,
}

/// What happens to an event as it is written.
#[derive(Debug, Default, PartialEq, Eq)]
enum Mishap {
    #[default]
    None,
    /// The gate shuts after these bytes in it, or in its middle when it does not hold them.
    ShutInside(Vec<u8>),
    /// Half of its data is missing.
    Mangle,
}

impl Frame {
    /// An empty frame through which only `pass` events may go, where that is given.
    pub(crate) fn new(pass: Option<u64>) -> Self {
        Self { pass, ..Self::default() }
    }

    /// Writes one event.
    pub(crate) fn event(&mut self, mark: Mark, write: impl FnOnce(&mut Vec<u8>)) {
        if self.next != Mishap::None {
            let mut event = Vec::new();
            write(&mut event);
            return self.spoiled(mark, &event);
        }
        self.sound(mark, write);
    }

    fn sound(&mut self, mark: Mark, write: impl FnOnce(&mut Vec<u8>)) {
        let content = match &mut self.pass {
            Some(0) => &mut self.held,
            Some(pass) => {
                *pass -= 1;
                &mut self.ready
            }
            None => &mut self.ready,
        };
        if content.bytes.capacity() == 0 {
            content.bytes.reserve(FULL / 16);
        }
        write(&mut content.bytes);
        content.counts.mark(mark);
    }

    #[cold]
    fn spoiled(&mut self, mark: Mark, event: &[u8]) {
        match std::mem::take(&mut self.next) {
            Mishap::None => self.sound(mark, |out| out.extend_from_slice(event)),
            Mishap::ShutInside(after) => {
                let found = event.windows(after.len().max(1)).position(|window| window == after);
                let (first, second) = event.split_at(found.map_or(event.len() / 2, |at| at + after.len()));
                self.ready.bytes.extend_from_slice(first);
                self.pass = Some(0);
                self.sound(mark, |out| out.extend_from_slice(second));
            }
            Mishap::Mangle => {
                let end = event.iter().rposition(|byte| !byte.is_ascii_whitespace()).map_or(0, |at| at + 1);
                let start = event.windows(5).position(|window| window == b"data:").map_or(0, |at| at + 5);
                let middle = start + end.saturating_sub(start) / 2;
                self.sound(mark, |out| {
                    out.extend_from_slice(&event[..middle]);
                    out.extend_from_slice(&event[end..]);
                });
            }
        }
    }

    /// Shuts the gate now.
    pub(crate) fn shut(&mut self) {
        self.pass = Some(0);
    }

    /// Shuts the gate in the next event, after `text` in it.
    pub(crate) fn shut_inside_next(&mut self, text: &str) {
        self.next = Mishap::ShutInside(text.as_bytes().to_vec());
    }

    /// Leaves out half of the next event's data.
    pub(crate) fn mangle_next(&mut self) {
        self.next = Mishap::Mangle;
    }

    /// Events that are ready or held back.
    pub(crate) fn events(&self) -> u64 {
        self.ready.counts.events + self.held.counts.events
    }

    /// Writes the events that another frame has ready.
    pub(crate) fn append(&mut self, other: &Self) {
        let content = if self.is_shut() { &mut self.held } else { &mut self.ready };
        content.bytes.extend_from_slice(&other.ready.bytes);
        content.counts.add(other.ready.counts);
    }

    /// Whether the gate is shut.
    pub(crate) fn is_shut(&self) -> bool {
        self.pass == Some(0)
    }

    /// Takes the gate away and lets out what it held back.
    pub(crate) fn open(&mut self) {
        self.pass = None;
        let held = std::mem::take(&mut self.held);
        self.ready.bytes.extend_from_slice(&held.bytes);
        self.ready.counts.add(held.counts);
    }

    /// Takes the gate away and drops what it held back.
    pub(crate) fn drop_held(&mut self) {
        self.pass = None;
        self.held = Content::default();
    }

    /// Whether nothing is ready.
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.bytes.is_empty()
    }

    /// Whether it is time to send.
    pub(crate) fn is_full(&self) -> bool {
        self.ready.bytes.len() >= FULL
    }

    /// Takes what is ready.
    pub(crate) fn take(&mut self) -> (Bytes, Counts) {
        let ready = std::mem::take(&mut self.ready);
        if ready.bytes.len() >= FULL {
            // Another one of this size is likely.
            self.ready.bytes.reserve(FULL + FULL / 8);
        }
        let counts = Counts { bytes: ready.bytes.len() as u64, ..ready.counts };
        (Bytes::from(ready.bytes), counts)
    }

    /// Has what is ready read, in place of taking it: what holds it is used again.
    pub(crate) fn take_with(&mut self, read: impl FnOnce(&[u8])) -> Counts {
        read(&self.ready.bytes);
        let counts = Counts { bytes: self.ready.bytes.len() as u64, ..self.ready.counts };
        self.ready.bytes.clear();
        self.ready.counts = Counts::default();
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(frame: &mut Frame, mark: Mark, text: &str) {
        frame.event(mark, |out| out.extend_from_slice(text.as_bytes()));
    }

    #[test]
    fn a_gate_holds_back_events_and_their_counts() {
        let usage = Tokens { input: 3, ..Tokens::default() };
        let mut frame = Frame::new(Some(1));
        put(&mut frame, Mark::Token, "a");
        assert!(frame.is_shut());
        put(&mut frame, Mark::Usage(usage), "b");
        let (bytes, counts) = frame.take();
        assert_eq!(bytes, "a");
        assert_eq!(counts, Counts { events: 1, tokens: 1, bytes: 1, reported: None });
        frame.open();
        put(&mut frame, Mark::Structure, "c");
        let (bytes, counts) = frame.take();
        assert_eq!(bytes, "bc");
        assert_eq!(counts, Counts { events: 2, tokens: 0, bytes: 2, reported: Some(usage) });
    }

    #[test]
    fn an_event_can_be_split_by_the_gate() {
        let mut frame = Frame::default();
        for (after, first, second) in [("ab", "ab", "cdef"), ("x", "abc", "def"), ("", "abc", "def")] {
            frame.shut_inside_next(after);
            put(&mut frame, Mark::Token, "abcdef");
            assert!(frame.is_shut());
            let (bytes, counts) = frame.take();
            assert_eq!((bytes.as_ref(), counts.events), (first.as_bytes(), 0));
            frame.open();
            assert_eq!(frame.take().0, second);
        }
    }

    #[test]
    fn an_event_can_lose_half_of_its_data() {
        for (event, mangled) in [
            ("event: a\ndata:{\"b\":1}\n\n", "event: a\ndata:{\"b\n\n"),
            ("data:1234\r\n\r\n", "data:12\r\n\r\n"),
        ] {
            let mut frame = Frame::default();
            frame.mangle_next();
            put(&mut frame, Mark::Token, event);
            put(&mut frame, Mark::Token, event);
            assert_eq!(frame.take().0, format!("{mangled}{event}"));
        }
    }

    #[test]
    fn what_was_held_back_can_be_dropped() {
        let mut frame = Frame::new(Some(0));
        put(&mut frame, Mark::Structure, "a");
        assert!(frame.is_empty());
        frame.drop_held();
        put(&mut frame, Mark::Structure, "b");
        assert_eq!(frame.take().0, "b");
    }
}

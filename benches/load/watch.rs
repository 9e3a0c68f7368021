//! What the clients see: tokens, steps and turns are counted, and nothing is lost or comes twice.
//!
//! Events are not parsed: what matters of them is found by its bytes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Read;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use memchr::memmem::{self, Finder};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::Result;
use crate::body::Body;
use crate::histogram::Histogram;
use crate::streams::{Client, Streams};

/// Digits of a time that the model tells.
const DIGITS: usize = 16;
/// What comes before the kind of an event.
const TYPE: &[u8] = b"\"type\":\"";
/// Failures whose words are kept.
const KEPT: usize = 20;

/// Whose events a stream carries.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Feed {
    /// Those of one session.
    Of(usize),
    /// Those of many, which are told apart by their ids.
    Shared,
}

/// One client: what it reads, and how far it is.
pub(crate) struct Reader {
    feed: Feed,
    /// By the number of the session (of one that follows one session only: in the first place), the latest time that was told.
    last: Vec<u64>,
}

impl Reader {
    pub(crate) fn of(feed: Feed) -> Self {
        Self { feed, last: Vec::new() }
    }

    /// The latest time that was told by a session.
    fn last(&mut self, number: usize) -> &mut u64 {
        let place = match self.feed {
            Feed::Of(_) => 0,
            Feed::Shared => number,
        };
        if self.last.len() <= place {
            self.last.resize(place + 1, 0);
        }
        &mut self.last[place]
    }
}

/// What was seen of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Tokens that told a time.
    pub(crate) tokens: u64,
    /// Steps that ended.
    pub(crate) steps: u64,
    /// Turns that ended.
    pub(crate) turns: u64,
    /// Whether a prompt was sent whose turn has not ended.
    pub(crate) is_busy: bool,
    /// Tokens before the turn.
    before: u64,
}

/// What was seen, by all clients.
pub(crate) struct Watch {
    /// By the number of the session.
    pub(crate) sessions: Vec<Seen>,
    numbers: HashMap<Vec<u8>, usize>,
    /// How long tokens were under way.
    pub(crate) latency: Histogram,
    /// The same of the sessions from this number on, so that some can be told from others.
    pub(crate) others: Histogram,
    /// Where the others begin.
    pub(crate) others_from: usize,
    /// Whether times are kept.
    pub(crate) is_watched: bool,
    /// Tokens that told a time.
    pub(crate) tokens: u64,
    /// Events that carried text.
    pub(crate) deltas: u64,
    /// Reads that brought text.
    pub(crate) reads: u64,
    /// Bytes that came.
    pub(crate) bytes: u64,
    /// Sessions at work.
    pub(crate) busy: usize,
    /// Why something failed, the first of them.
    pub(crate) failures: Vec<String>,
    /// How much failed.
    pub(crate) failed: usize,
    /// Whether turns may end without being completed.
    pub(crate) may_abort: bool,
    /// Tokens that tell a time in each turn, where all have as many: other counts are failures.
    pub(crate) of_a_turn: Option<u64>,
    /// Those who read.
    pub(crate) clients: Vec<Client>,
    /// What they read; absent before the first.
    pub(crate) streams: Option<Rc<Streams>>,
    changed: Rc<Notify>,
    kind: Finder<'static>,
}

/// A [`Watch`] that all tasks of the thread share.
pub(crate) type Shared = Rc<RefCell<Watch>>;

/// Microseconds since the epoch.
pub(crate) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            sessions: Vec::new(),
            numbers: HashMap::new(),
            latency: Histogram::default(),
            others: Histogram::default(),
            others_from: usize::MAX,
            is_watched: true,
            tokens: 0,
            deltas: 0,
            reads: 0,
            bytes: 0,
            busy: 0,
            failures: Vec::new(),
            failed: 0,
            may_abort: false,
            of_a_turn: None,
            clients: Vec::new(),
            streams: None,
            changed: Rc::default(),
            kind: Finder::new(TYPE),
        }
    }
}

impl Watch {
    /// Nothing seen yet.
    pub(crate) fn shared() -> Shared {
        Rc::default()
    }

    /// A session more; its number.
    pub(crate) fn session(&mut self, id: &str) -> usize {
        let number = self.sessions.len();
        self.sessions.push(Seen::default());
        self.numbers.insert(id.as_bytes().to_vec(), number);
        number
    }

    /// A prompt goes to a session.
    pub(crate) fn begin(&mut self, number: usize) {
        let session = &mut self.sessions[number];
        session.before = session.tokens;
        if !std::mem::replace(&mut session.is_busy, true) {
            self.busy += 1;
        }
    }

    /// Forgets what was counted, and looks from here on.
    pub(crate) fn look(&mut self) {
        self.latency = Histogram::default();
        self.others = Histogram::default();
        (self.tokens, self.deltas, self.reads, self.bytes) = (0, 0, 0, 0);
    }

    /// Something went wrong.
    pub(crate) fn fail(&mut self, why: String) {
        self.failed += 1;
        if self.failures.len() < KEPT {
            self.failures.push(why);
        }
        self.changed.notify_one();
    }

    /// Counts what a piece of a body says; whether the body goes on.
    pub(crate) fn take(&mut self, body: &mut Body, reader: &mut Reader, bytes: &[u8]) -> bool {
        let now = now();
        let mut brought_text = false;
        self.bytes += bytes.len() as u64;
        let goes_on = body.read(bytes, |line| brought_text |= self.line(reader, line, now));
        self.reads += u64::from(brought_text);
        goes_on
    }

    /// Counts what a line says; whether it carries text.
    fn line(&mut self, reader: &mut Reader, line: &[u8], now: u64) -> bool {
        // All that is counted stands in the data of events.
        if line.first() != Some(&b'd') {
            return false;
        }
        let Some(at) = self.kind.find(line) else { return false };
        let rest = &line[at + TYPE.len()..];
        let kind = &rest[..memchr::memchr(b'"', rest).unwrap_or(0)];
        let number = match reader.feed {
            Feed::Of(number) => number,
            Feed::Shared => match self.whose(rest) {
                Some(number) => number,
                None => return false,
            },
        };
        match kind {
            // The engine's own events, those of the v1 wire, and those of the model, which the forwarder hands on.
            b"part.delta" | b"message.part.delta" | b"content_block_delta" => {
                self.deltas += 1;
                self.times(reader, number, rest, now);
                return true;
            }
            b"step.finished" => self.step(number),
            b"message.part.updated" if memmem::find(rest, b"\"type\":\"step-finish\"").is_some() => {
                self.step(number);
            }
            b"turn.ended" => {
                if memmem::find(rest, b"\"outcome\":\"completed\"").is_none() && !self.may_abort {
                    self.fail(String::from_utf8_lossy(line).into_owned());
                }
                self.end(number);
            }
            b"session.error" => {
                let is_abort = memmem::find(rest, b"MessageAbortedError").is_some();
                if !(is_abort && self.may_abort) {
                    self.fail(String::from_utf8_lossy(line).into_owned());
                }
            }
            b"session.idle" | b"message_stop" => self.end(number),
            b"resync" => self.fail("a client fell behind".to_owned()),
            _ => {}
        }
        false
    }

    fn whose(&self, line: &[u8]) -> Option<usize> {
        const NAME: &[u8] = b"\"sessionID\":\"";
        let id = &line[memmem::find(line, NAME)? + NAME.len()..];
        self.numbers.get(&id[..memchr::memchr(b'"', id)?]).copied()
    }

    fn step(&mut self, number: usize) {
        self.sessions[number].steps += 1;
        self.changed.notify_one();
    }

    fn end(&mut self, number: usize) {
        let session = &mut self.sessions[number];
        session.turns += 1;
        let said = session.tokens - session.before;
        if std::mem::take(&mut session.is_busy) {
            self.busy -= 1;
            if let Some(wanted) = self.of_a_turn.filter(|wanted| *wanted != said) {
                self.fail(format!("session {number} said {said} tokens in a turn of {wanted}"));
            }
        }
        self.changed.notify_one();
    }

    fn times(&mut self, reader: &mut Reader, number: usize, line: &[u8], now: u64) {
        let mut at = 0;
        while let Some(found) = memchr::memchr(b'@', &line[at..]) {
            at += found + 1;
            let Some(time) = line.get(at..at + DIGITS).and_then(digits) else { continue };
            at += DIGITS;
            self.tokens += 1;
            self.sessions[number].tokens += 1;
            // The model never tells a time twice.
            let last = reader.last(number);
            if time <= *last {
                let last = *last;
                self.fail(format!("session {number}: the token of {time} came after that of {last}"));
                continue;
            }
            *last = time;
            if self.is_watched {
                let delay = now.saturating_sub(time);
                match number < self.others_from {
                    true => self.latency.add(delay),
                    false => self.others.add(delay),
                }
            }
        }
    }
}

/// The number that these digits say.
fn digits(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.wrapping_sub(b'0');
        (digit < 10).then(|| number * 10 + u64::from(digit))
    })
}

/// Waits until `is_so`, at most for so long; says whether it came.
pub(crate) async fn until(watch: &Shared, most: Duration, is_so: impl Fn(&Watch) -> bool) -> bool {
    let begun = Instant::now();
    let changed = Rc::clone(&watch.borrow().changed);
    while !is_so(&watch.borrow()) {
        let left = most.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return false;
        }
        // Also without a change: tokens tell nobody.
        drop(tokio::time::timeout(left.min(Duration::from_millis(200)), changed.notified()).await);
    }
    true
}

/// Reads a stream to its end, on a thread of its own, and looks at nothing.
pub(crate) fn unheard(stream: TcpStream) -> Result<()> {
    let mut stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    std::thread::spawn(move || {
        let mut buffer = vec![0; 256 * 1024];
        while stream.read(&mut buffer).is_ok_and(|count| count > 0) {}
    });
    Ok(())
}

//! What the clients see: one thread reads all streams of events, and counts.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::io::Read;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, ready};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use memchr::memmem;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::Result;
use crate::body::Body;
use crate::histogram::Histogram;

/// Digits of a time that the model tells.
const DIGITS: usize = 16;
/// What is read at once at most, in bytes.
const READ: usize = 64 * 1024;
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
}

/// What was seen, by all clients.
#[derive(Default)]
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
    /// Tasks that read, each of which is a client.
    pub(crate) clients: Vec<AbortHandle>,
    changed: Rc<Notify>,
    buffer: Vec<u8>,
}

/// A [`Watch`] that all tasks of the thread share.
pub(crate) type Shared = Rc<RefCell<Watch>>;

/// Microseconds since the epoch.
pub(crate) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

impl Watch {
    /// Nothing seen yet.
    pub(crate) fn shared() -> Shared {
        Rc::new(RefCell::new(Self {
            buffer: vec![0; READ],
            is_watched: true,
            others_from: usize::MAX,
            ..Self::default()
        }))
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

    fn line(&mut self, feed: Feed, line: &[u8], now: u64) -> bool {
        let Some(at) = memmem::find(line, b"\"type\":\"") else { return false };
        let rest = &line[at + 8..];
        let kind = &rest[..memchr::memchr(b'"', rest).unwrap_or(0)];
        let number = match feed {
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
                self.times(number, rest, now);
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
        if std::mem::take(&mut session.is_busy) {
            self.busy -= 1;
        }
        self.changed.notify_one();
    }

    fn times(&mut self, number: usize, line: &[u8], now: u64) {
        let mut at = 0;
        while let Some(found) = memchr::memchr(b'@', &line[at..]) {
            let digits = at + found + 1;
            let Some(time) = line.get(digits..digits + DIGITS) else { return };
            at = digits;
            let time = std::str::from_utf8(time).ok().and_then(|time| time.parse::<u64>().ok());
            let Some(time) = time else { continue };
            at += DIGITS;
            self.tokens += 1;
            self.sessions[number].tokens += 1;
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

/// Reads a stream until it is dropped, on the runtime's local tasks.
pub(crate) async fn follow(stream: TcpStream, begun: Vec<u8>, feed: Feed, watch: Shared) {
    if let Err(error) = read(stream, begun, feed, &watch).await {
        watch.borrow_mut().fail(error.to_string());
    }
}

/// Reads a stream to its end.
pub(crate) async fn read(mut stream: TcpStream, begun: Vec<u8>, feed: Feed, watch: &Shared) -> Result<()> {
    let mut body = Body::default();
    let mut goes_on = take(&mut watch.borrow_mut(), &mut body, &begun, feed);
    drop(begun);
    while goes_on {
        goes_on = poll_fn(|context| {
            let mut watch = watch.borrow_mut();
            // One buffer for all, so that a stream costs no more than its lines.
            let mut buffer = std::mem::take(&mut watch.buffer);
            let mut into = ReadBuf::new(&mut buffer);
            let poll = Pin::new(&mut stream).poll_read(context, &mut into);
            let is_over = into.filled().is_empty();
            let goes_on = poll.is_ready() && !is_over && take(&mut watch, &mut body, into.filled(), feed);
            watch.buffer = buffer;
            ready!(poll)?;
            if is_over {
                return Poll::Ready(Err("a stream ended early".into()));
            }
            Poll::Ready(Ok::<_, crate::Failure>(goes_on))
        })
        .await?;
    }
    Ok(())
}

/// Reads a stream to its end, on a thread of its own, and looks at nothing.
pub(crate) fn unheard(stream: TcpStream) -> Result<()> {
    let mut stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    std::thread::spawn(move || {
        let mut buffer = vec![0; 4 * READ];
        while stream.read(&mut buffer).is_ok_and(|count| count > 0) {}
    });
    Ok(())
}

fn take(watch: &mut Watch, body: &mut Body, bytes: &[u8], feed: Feed) -> bool {
    let now = now();
    let mut brought_text = false;
    watch.bytes += bytes.len() as u64;
    let goes_on = body.read(bytes, |line| brought_text |= watch.line(feed, line, now));
    watch.reads += u64::from(brought_text);
    goes_on
}

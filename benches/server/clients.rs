//! Clients that read streams of events.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::Result;

/// Digits of a time that the model tells.
const DIGITS: usize = 16;

/// What clients that read times have seen.
#[derive(Default)]
pub(crate) struct Seen {
    /// How long tokens were under way, in microseconds, while somebody looks.
    pub(crate) delays: Vec<f64>,
    /// Whether somebody looks.
    pub(crate) is_watched: bool,
    /// Tokens, watched or not.
    pub(crate) count: u64,
    /// Why a client ended.
    pub(crate) failures: Vec<String>,
}

/// Microseconds since the epoch.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

/// Reads a stream of times until it is dropped, on the runtime's local tasks.
pub(crate) async fn watch(mut stream: TcpStream, seen: Rc<RefCell<Seen>>) {
    let mut buffer: Vec<u8> = Vec::with_capacity(64 * 1024);
    loop {
        let read = stream.read_buf(&mut buffer).await;
        let now = now();
        let mut seen = seen.borrow_mut();
        match read {
            Ok(0) => return seen.failures.push("a stream ended".to_owned()),
            Err(error) => return seen.failures.push(error.to_string()),
            Ok(_) => {}
        }
        let mut at = 0;
        while let Some(found) = memchr::memchr(b'@', &buffer[at..]) {
            let digits = at + found + 1;
            let Some(time) = buffer.get(digits..digits + DIGITS) else { break };
            at = digits;
            let time = std::str::from_utf8(time).ok().and_then(|time| time.parse::<u64>().ok());
            if let Some(time) = time {
                seen.count += 1;
                if seen.is_watched {
                    seen.delays.push(now.saturating_sub(time) as f64);
                }
                at += DIGITS;
            }
        }
        // What is not complete yet is looked at again.
        let keep = buffer.len().saturating_sub(DIGITS).max(at);
        buffer.drain(..keep);
    }
}

/// Reads a stream until `end` stands in it; how many bytes came.
pub(crate) async fn read_until(mut stream: TcpStream, begun: Vec<u8>, end: &str) -> Result<usize> {
    let (finder, mut buffer) = (memchr::memmem::Finder::new(end), begun);
    let mut count = buffer.len();
    loop {
        if finder.find(&buffer).is_some() {
            return Ok(count);
        }
        let keep = buffer.len().saturating_sub(end.len());
        buffer.drain(..keep);
        match stream.read_buf(&mut buffer).await? {
            0 => return Err("a stream ended early".into()),
            more => count += more,
        }
    }
}

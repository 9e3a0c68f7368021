//! What the model reads is capped, in bytes and in lines. The one mechanism for it.
//!
//! Text that is too long is written to a file as a whole; the model gets its beginning and its end, how much is left out,
//! and where it can look it up.

pub(crate) mod cut;
mod save;

use std::path::PathBuf;

use futures::FutureExt;
use futures::future::BoxFuture;
use playhouse_sandbox::process::Receive;
use playhouse_workspace::Pool;

use crate::CallContext;
use crate::storage::SessionStorage;
pub(crate) use cut::clean;
pub(crate) use save::{Saved, Saver};

/// The most that a model reads of one result, in bytes.
pub const MAX_BYTES: usize = 50 * 1024;
/// The most that a model reads of one result, in lines.
pub const MAX_LINES: usize = 2000;
/// Lines beyond [`MAX_LINES`] for the notes of a tool that pages by itself.
const NOTE_LINES: usize = 5;
/// The most of one result that is kept on disk, in bytes. What a command writes beyond that is only counted.
pub const MAX_FILE_BYTES: u64 = 1024 * 1024 * 1024;

/// Room for the notes of a long text, where there is much of it.
const NOTES: Room = Room { bytes: 4096, lines: 20 };
/// Texts go through the buffer in pieces of this size.
const PIECE: usize = 64 * 1024;

/// How much a text may take of what a model reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) bytes: usize,
    pub(crate) lines: usize,
}

impl Room {
    /// That of a result.
    pub(crate) const WHOLE: Self = Self { bytes: MAX_BYTES, lines: MAX_LINES };

    /// How much is shown of the beginning of a text that is too long, and of its end.
    fn side(self) -> Self {
        Self {
            bytes: (self.bytes - NOTES.bytes.min((self.bytes / 12).max(1024)).min(self.bytes / 2)) / 2,
            lines: (self.lines - NOTES.lines.min(self.lines / 3)) / 2,
        }
    }
}

/// A text that a model can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capped {
    /// At most [`MAX_BYTES`] and [`MAX_LINES`], notes included.
    pub text: String,
    /// Whether something was left out.
    pub truncated: bool,
    /// Size of the whole, in bytes.
    pub bytes: u64,
    /// Lines of the whole; the last one counts without its line break, too.
    pub lines: u64,
    /// The file that holds the whole.
    pub file: Option<PathBuf>,
}

/// Caps a text that is in memory. A tool that shows [`MAX_LINES`] by itself may say in a few more how to go on.
pub async fn cap(text: String, context: &CallContext) -> Capped {
    cap_within(text, Room::WHOLE, context).await
}

/// The same with less room.
pub(crate) async fn cap_within(text: String, room: Room, context: &CallContext) -> Capped {
    let lines = line_count(&text) as u64;
    if text.len() <= room.bytes && lines <= (room.lines + NOTE_LINES) as u64 {
        return Capped { bytes: text.len() as u64, lines, text, truncated: false, file: None };
    }
    let mut buffer = CappedBuffer::of(context);
    buffer.room = room;
    for piece in text.as_bytes().chunks(PIECE) {
        buffer.push(piece).await;
    }
    buffer.finish().await
}

/// Caps output that comes in pieces, however much comes: it holds some 400 KB at most. Pieces are written to the file
/// on the pool, as soon as the cap is passed.
pub struct CappedBuffer {
    /// All of it, until it is too long; then its beginning.
    head: Vec<u8>,
    /// The end, when it is too long; up to twice of what is shown.
    tail: Vec<u8>,
    bytes: u64,
    newlines: u64,
    ends_with_newline: bool,
    holds_nul: bool,
    /// The file, when it is too long.
    saver: Option<Saver>,
    file: PathBuf,
    storage: SessionStorage,
    pool: Pool,
    /// How much of it is shown.
    room: Room,
}

impl CappedBuffer {
    /// An empty buffer that saves to the output file of a call when it has to.
    pub fn of(context: &CallContext) -> Self {
        Self::new(context.output_file.clone(), context.storage.clone(), context.pool.clone())
    }

    /// An empty buffer that saves to `file` when it has to.
    pub fn new(file: PathBuf, storage: SessionStorage, pool: Pool) -> Self {
        Self {
            head: Vec::new(),
            tail: Vec::new(),
            bytes: 0,
            newlines: 0,
            ends_with_newline: false,
            holds_nul: false,
            saver: None,
            file,
            storage,
            pool,
            room: Room::WHOLE,
        }
    }

    /// Adds a piece. Waits while earlier ones are written. If the future is dropped, the piece is in all the same.
    pub async fn push(&mut self, piece: &[u8]) {
        let Some(last) = piece.last() else { return };
        self.bytes += piece.len() as u64;
        self.newlines += count(piece);
        self.ends_with_newline = *last == b'\n';
        self.holds_nul |= memchr::memchr(0, piece).is_some();
        match &mut self.saver {
            None => {
                self.head.extend_from_slice(piece);
                if self.head.len() > self.room.bytes || self.lines() > self.room.lines as u64 {
                    self.overflow();
                }
            }
            Some(saver) => {
                saver.add(piece);
                self.tail.extend_from_slice(piece);
                let side = self.room.side().bytes;
                if self.tail.len() > PIECE + 2 * side {
                    self.tail.drain(..self.tail.len() - 2 * side);
                }
            }
        }
        if let Some(saver) = &mut self.saver {
            saver.write_when_full().await;
        }
    }

    /// Whether anything came.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The end of what came, at most `most` bytes of it: for a glance.
    pub fn last(&self, most: usize) -> String {
        let whole = if self.saver.is_some() { &self.tail } else { &self.head };
        cut::clean(cut::end(whole, most, usize::MAX))
    }

    /// What the model reads of it.
    pub async fn finish(mut self) -> Capped {
        if self.saver.is_none() {
            let text = cut::clean(&self.head);
            if text.len() <= self.room.bytes {
                return self.capped(text, None);
            }
            // Bytes that are no text take more room once they are made readable.
            self.overflow();
        }
        let saved = match self.saver.take() {
            Some(saver) => saver.finish().await,
            None => Ok(Saved { bytes: 0, bound: None }),
        };
        let text = if self.holds_nul {
            format!("[binary output of {} bytes is not shown]\n{}", self.bytes, self.advice(&saved))
        } else {
            self.excerpt(&saved)
        };
        let file = saved.as_ref().is_ok_and(|saved| saved.bytes > 0).then(|| self.file.clone());
        let mut capped = self.capped(text, file);
        capped.truncated = true;
        capped
    }

    fn overflow(&mut self) {
        let mut saver = Saver::new(self.file.clone(), &self.storage, self.pool.clone());
        saver.add(&self.head);
        let side = self.room.side();
        let head = cut::beginning(&self.head, side.bytes, side.lines).len();
        self.tail = self.head.split_off(head);
        self.saver = Some(saver);
    }

    fn excerpt(&self, saved: &Result<Saved, String>) -> String {
        let side = self.room.side();
        let head = cut::clean(&self.head);
        let end = cut::end(&self.tail, side.bytes, side.lines);
        let tail = cut::clean(end);
        let shown = (self.head.len() + end.len()) as u64;
        let hidden_lines = self.newlines.saturating_sub(count(&self.head) + count(end));
        let hidden = format!("[… {} left out …]", amount(hidden_lines, self.bytes.saturating_sub(shown)));
        // Readable text may be longer than the bytes that it stands for.
        let head =
            String::from_utf8_lossy(cut::beginning(head.as_bytes(), side.bytes, side.lines)).into_owned();
        let tail = String::from_utf8_lossy(cut::end(tail.as_bytes(), side.bytes, side.lines)).into_owned();
        let (head, tail) = (head.trim_end_matches('\n'), tail.trim_end_matches('\n'));
        format!("{head}\n\n{hidden}\n\n{tail}\n\n{}", self.advice(saved))
    }

    fn advice(&self, saved: &Result<Saved, String>) -> String {
        let whole = amount(self.lines(), self.bytes);
        let kept = match saved {
            Ok(Saved { bytes: 0, bound: Some(bound) }) => {
                return format!("[This was {whole}; nothing of it is kept: {bound}]");
            }
            Ok(Saved { bytes, .. }) if *bytes < self.bytes => format!("its first {bytes} bytes are"),
            Ok(_) => "the whole of it is".to_owned(),
            Err(error) => return format!("[This was {whole}; the whole could not be saved: {error}]"),
        };
        let cut = match saved {
            Ok(Saved { bytes, bound: Some(bound) }) => {
                format!("{bytes} of {} bytes are kept, the rest was not: {bound}. ", self.bytes)
            }
            _ => String::new(),
        };
        let file = self.file.display();
        format!(
            "[This was {whole}; {kept} in {file}. {cut}Search it with grep, or read a part of it with offset and limit, \
             rather than reading all of it]"
        )
    }

    fn capped(self, text: String, file: Option<PathBuf>) -> Capped {
        Capped { text, truncated: false, bytes: self.bytes, lines: self.lines(), file }
    }

    fn lines(&self) -> u64 {
        lines(self.newlines, self.ends_with_newline, self.bytes)
    }
}

impl Receive for CappedBuffer {
    fn receive<'a>(&'a mut self, chunk: &'a [u8]) -> BoxFuture<'a, ()> {
        self.push(chunk).boxed()
    }
}

fn count(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

fn lines(newlines: u64, ends_with_newline: bool, bytes: u64) -> u64 {
    newlines + u64::from(bytes > 0 && !ends_with_newline)
}

/// The lines of a text; the last one counts without its line break, too.
pub(crate) fn line_count(text: &str) -> usize {
    let bytes = text.as_bytes();
    usize::try_from(lines(count(bytes), text.ends_with('\n'), bytes.len() as u64)).unwrap_or(usize::MAX)
}

fn amount(lines: u64, bytes: u64) -> String {
    match lines {
        0 => format!("{bytes} bytes"),
        1 => format!("1 line, {bytes} bytes"),
        lines => format!("{lines} lines, {bytes} bytes"),
    }
}

#[cfg(test)]
mod tests;

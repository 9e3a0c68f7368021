//! The journal's file, written by a thread of its own.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use super::Entry;

/// Entries that may wait for the thread; whoever ends one more waits until there is room, so that none is lost.
const WAITING: usize = 1024;

enum Message {
    Append(Box<Entry>),
    Flush(SyncSender<io::Result<()>>),
}

/// Takes entries and writes them, one a line.
pub(super) struct JournalFile {
    sender: Option<SyncSender<Message>>,
    thread: Option<JoinHandle<()>>,
}

impl JournalFile {
    /// Begins the file anew.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = fs_err::File::create(path)?;
        let (sender, receiver) = sync_channel(WAITING);
        let thread = std::thread::Builder::new()
            .name("mock-llm-journal".to_owned())
            .spawn(move || write_all(&receiver, &mut BufWriter::new(file)))?;
        Ok(Self { sender: Some(sender), thread: Some(thread) })
    }

    /// Writes an entry soon.
    pub(super) fn append(&self, entry: Entry) {
        if let Some(sender) = &self.sender {
            // Fails only when the thread is gone, which `flush` reports.
            let _ = sender.send(Message::Append(Box::new(entry)));
        }
    }

    /// Waits until what was appended is written.
    pub(super) fn flush(&self) -> io::Result<()> {
        let gone = || io::Error::other("the thread that writes the journal is gone");
        let (sender, receiver) = sync_channel(1);
        let queue = self.sender.as_ref().ok_or_else(gone)?;
        queue.send(Message::Flush(sender)).map_err(|_| gone())?;
        receiver.recv().map_err(|_| gone())?
    }
}

impl Drop for JournalFile {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Writes until every sender is gone. What waits is written together, and flushed when nothing more waits.
fn write_all(receiver: &Receiver<Message>, out: &mut impl Write) {
    // The first error is kept: what follows a lost line cannot make the file right again.
    let mut failed: Option<io::Error> = None;
    let mut keep_first = |result: io::Result<()>| -> io::Result<()> {
        if let (Err(error), None) = (result, &failed) {
            failed = Some(error);
        }
        failed.as_ref().map_or(Ok(()), |error| Err(io::Error::new(error.kind(), error.to_string())))
    };
    while let Ok(first) = receiver.recv() {
        let mut next = Ok(first);
        while let Ok(message) = next {
            match message {
                Message::Append(entry) => {
                    let _ = keep_first(write_line(out, &entry));
                }
                Message::Flush(reply) => {
                    let _ = reply.send(keep_first(out.flush()));
                }
            }
            next = receiver.try_recv();
        }
        let _ = keep_first(out.flush());
        if matches!(next, Err(TryRecvError::Disconnected)) {
            return;
        }
    }
}

fn write_line(out: &mut impl Write, entry: &Entry) -> io::Result<()> {
    serde_json::to_writer(&mut *out, entry)?;
    out.write_all(b"\n")
}

//! The journal: what was asked, what was answered, and which usage was reported.

mod file;

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use parking_lot::Mutex;
use playhouse_protocol::{Timestamp, Tokens};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use tokio::sync::watch;

use self::file::JournalFile;
use crate::rules::RuleNote;
use crate::usage::Reports;
use crate::wire::{Asked, Counts, Dialect};

/// What a journal keeps.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// The most requests that are kept in memory; older ones are forgotten. Default: 10,000.
    pub entries: usize,
    /// The most bytes of request bodies that are kept in memory: beyond it older requests are forgotten, and a larger
    /// body is not kept at all. 0 keeps no bodies, in memory or in the file. Default: 64 MiB.
    pub body_bytes: usize,
    /// A file that gets one line of JSON for each request when it is over. It is begun anew. Default: none.
    pub file: Option<PathBuf>,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self { entries: 10_000, body_bytes: 64 << 20, file: None }
    }
}

/// How an answer came out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is under way.
    #[default]
    Open,
    /// All of it was handed over, whatever its status.
    Complete,
    /// A fault of the script ended it.
    Cut,
    /// The client went away before its end.
    ClientGone,
}

/// A request and its answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Entry {
    /// Its number, from 1.
    pub number: u64,
    /// When it came, in milliseconds since the epoch.
    pub at: Timestamp,
    /// When its first bytes could be read, before any of it was, in microseconds since the epoch; on a connection of HTTP/2 when its
    /// head was read. In process: when it came.
    pub arrived_us: u64,
    /// When the last bytes of its answer so far were handed over, in microseconds since the epoch; 0 before the first.
    pub sent_us: u64,
    /// The number of the connection that it came on, from 1 for each server; absent in process.
    pub connection: Option<u64>,
    /// Whether it was a stream of a connection of HTTP/2.
    pub http2: bool,
    /// Where it was sent.
    pub path: String,
    /// Its wire format; absent when no wire format has that path.
    pub dialect: Option<Dialect>,
    /// The value of `x-playhouse-attempt`.
    pub attempt: Option<String>,
    /// The model, where the request could be read.
    pub model: Option<String>,
    /// Prompts before the one that it is about, where the request could be read.
    pub turn: Option<usize>,
    /// Answers since that prompt.
    pub step: Option<usize>,
    /// A number that stands for the text of that prompt: the same text has the same one. Where every session has a text of
    /// its own, it tells sessions apart without keeping what they ask.
    pub prompt: Option<u64>,
    /// Whether it asked for a stream.
    pub stream: bool,
    /// The size of its body.
    pub request_bytes: u64,
    /// Its body, where bodies are kept. In the file it is JSON where that fits on a line, else a string.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "json_or_text")]
    pub body: Option<Bytes>,
    /// The status of the answer; 0 until it has one.
    pub status: u16,
    /// How the answer came out.
    pub outcome: Outcome,
    /// Bytes that were handed over.
    pub bytes: u64,
    /// Events that were handed over; 0 for an answer in one piece.
    pub events: u64,
    /// Events among them that carried a token.
    pub tokens: u64,
    /// The usage that the client was last told, in exclusive classes; absent when it was told none.
    pub reported: Option<Tokens>,
    /// How it reports its usage at its end, where that is more than counts, once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reports: Option<Box<Reports>>,
    /// The findings of the rules; absent where there are none or the mock enforces none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<RuleNote>,
}

fn json_or_text<S: Serializer>(body: &Option<Bytes>, serializer: S) -> Result<S::Ok, S::Error> {
    let body = body.as_deref().unwrap_or_default();
    let on_a_line = !body.contains(&b'\n') && !body.contains(&b'\r');
    match serde_json::from_slice::<&RawValue>(body) {
        Ok(json) if on_a_line => json.serialize(serializer),
        _ => serializer.serialize_str(&String::from_utf8_lossy(body)),
    }
}

/// When and how a request came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// [`Entry::arrived_us`].
    pub(crate) at: SystemTime,
    /// [`Entry::connection`].
    pub(crate) connection: Option<u64>,
    /// [`Entry::http2`].
    pub(crate) http2: bool,
}

impl Arrival {
    /// Now, in this process.
    pub(crate) fn in_process() -> Self {
        Self { at: SystemTime::now(), connection: None, http2: false }
    }
}

/// The requests that a mock was asked, oldest first. A clone is another handle of the same journal.
#[derive(Clone)]
pub struct Journal {
    shared: Arc<Shared>,
}

struct Shared {
    entries: usize,
    body_bytes: usize,
    kept: Mutex<Kept>,
    file: Option<JournalFile>,
    /// Changes when a request comes and when one is over.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct Kept {
    /// Requests that came, forgotten ones too.
    count: u64,
    entries: VecDeque<Arc<Mutex<Entry>>>,
    body_bytes: usize,
}

/// Microseconds since the epoch.
fn micros(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

impl Journal {
    /// A journal.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub(crate) fn new(options: JournalOptions) -> io::Result<Self> {
        let file = options.file.map(|path| JournalFile::create(&path)).transpose()?;
        Ok(Self::with(options.entries, options.body_bytes, file))
    }

    /// A journal in memory, with the default limits.
    pub(crate) fn in_memory() -> Self {
        let JournalOptions { entries, body_bytes, .. } = JournalOptions::default();
        Self::with(entries, body_bytes, None)
    }

    fn with(entries: usize, body_bytes: usize, file: Option<JournalFile>) -> Self {
        let changes = watch::Sender::new(0);
        Self { shared: Arc::new(Shared { entries, body_bytes, kept: Mutex::default(), file, changes }) }
    }

    /// How many requests came, forgotten ones too.
    pub fn count(&self) -> u64 {
        self.shared.kept.lock().count
    }

    /// The requests that are kept, as they stand, oldest first.
    pub fn entries(&self) -> Vec<Entry> {
        self.shared.kept.lock().entries.iter().map(|entry| entry.lock().clone()).collect()
    }

    /// Waits until `is_so` holds for the requests that are kept. It is asked again when a request comes or is over.
    pub async fn wait_until(&self, mut is_so: impl FnMut(&[Entry]) -> bool) -> Vec<Entry> {
        let mut changes = self.shared.changes.subscribe();
        loop {
            changes.mark_unchanged();
            let entries = self.entries();
            // The sender lives in this journal, so the wait itself cannot fail.
            if is_so(&entries) || changes.changed().await.is_err() {
                return entries;
            }
        }
    }

    /// Waits until all requests that are over are in the file. It blocks: never call it on a busy runtime.
    ///
    /// # Errors
    /// The first error that writing the file met.
    pub fn flush(&self) -> io::Result<()> {
        self.shared.file.as_ref().map_or(Ok(()), JournalFile::flush)
    }

    /// Begins the entry of a request.
    pub(crate) fn begin(
        &self,
        arrival: Arrival,
        path: &str,
        attempt: Option<String>,
        body: &Bytes,
    ) -> Record {
        let kept_body =
            (body.len() <= self.shared.body_bytes && self.shared.body_bytes > 0).then(|| body.clone());
        let mut entry = Entry {
            at: Timestamp::from_millis(micros(arrival.at) / 1000),
            arrived_us: micros(arrival.at),
            connection: arrival.connection,
            http2: arrival.http2,
            path: path.to_owned(),
            attempt,
            request_bytes: body.len() as u64,
            body: kept_body,
            ..Entry::default()
        };
        let mut kept = self.shared.kept.lock();
        kept.count += 1;
        entry.number = kept.count;
        kept.body_bytes += entry.body.as_ref().map_or(0, Bytes::len);
        let entry = Arc::new(Mutex::new(entry));
        kept.entries.push_back(Arc::clone(&entry));
        while kept.entries.len() > self.shared.entries || kept.body_bytes > self.shared.body_bytes {
            let Some(oldest) = kept.entries.pop_front() else { break };
            kept.body_bytes -= oldest.lock().body.as_ref().map_or(0, Bytes::len);
        }
        drop(kept);
        self.changed();
        Record { journal: self.clone(), entry, outcome: Outcome::ClientGone }
    }

    fn changed(&self) {
        self.shared.changes.send_modify(|changes| *changes += 1);
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("count", &self.count()).finish_non_exhaustive()
    }
}

/// The entry of a request under way. It is over when this is dropped: as [`Outcome::ClientGone`], unless another
/// outcome was set.
pub(crate) struct Record {
    journal: Journal,
    entry: Arc<Mutex<Entry>>,
    outcome: Outcome,
}

impl Record {
    /// The request could be read so far.
    pub(crate) fn dialect(&self, dialect: Dialect) {
        self.entry.lock().dialect = Some(dialect);
    }

    /// The request could be read.
    pub(crate) fn asked(&self, asked: &Asked) {
        let mut hasher = DefaultHasher::new();
        asked.prompt.hash(&mut hasher);
        let mut entry = self.entry.lock();
        entry.model = Some(asked.model.clone());
        entry.turn = Some(asked.place.turn);
        entry.step = Some(asked.place.step);
        entry.prompt = Some(hasher.finish());
        entry.stream = asked.stream;
    }

    /// Sets the findings of the rules.
    pub(crate) fn rules(&self, note: RuleNote) {
        self.entry.lock().rules = (note != RuleNote::default()).then_some(note);
    }

    /// How usage is to be reported.
    pub(crate) fn reports(&self, reports: &Reports) {
        self.entry.lock().reports = (*reports != Reports::default()).then(|| Box::new(reports.clone()));
    }

    /// The answer has this status.
    pub(crate) fn status(&self, status: u16) {
        self.entry.lock().status = status;
    }

    /// This much was handed over.
    pub(crate) fn sent(&self, counts: Counts) {
        let mut entry = self.entry.lock();
        entry.sent_us = micros(SystemTime::now());
        entry.bytes += counts.bytes;
        entry.events += counts.events;
        entry.tokens += counts.tokens;
        entry.reported = counts.reported.or(entry.reported);
    }

    /// How it will have come out when it is over.
    pub(crate) fn outcome(&mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let mut entry = self.entry.lock();
        entry.outcome = self.outcome;
        if let Some(file) = &self.journal.shared.file {
            file.append(entry.clone());
        }
        drop(entry);
        self.journal.changed();
    }
}

//! The events of one session, for its subscribers.
//!
//! The session actor publishes durable events after the flush; during a step the step actor, and during a call the call
//! actor, write provisional ones straight into the ring. It keeps the newest events up to a number of bytes; each event is
//! made once for all subscribers, and serialized once, when the first of them asks for it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use playhouse_protocol::event::{OpenPartKind, Provisional};
use playhouse_protocol::id::{AttemptId, MessageId, PartId};
use playhouse_protocol::{CommandError, Entry, Event, EventBody, EventId, Record, Seq, SessionId, Timestamp};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::shared::now;

/// Bytes that an event counts beside its text.
const EVENT_OVERHEAD: usize = 160;

/// An event, with its JSON made when it is first wanted.
#[derive(Debug)]
pub struct Published {
    event: Event,
    json: OnceLock<Bytes>,
}

impl Published {
    pub(crate) fn new(event: Event) -> Arc<Self> {
        Arc::new(Self { event, json: OnceLock::new() })
    }

    /// The event.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// The event as one line of JSON, without a line break. Made once for all subscribers.
    pub fn json(&self) -> Bytes {
        self.json.get_or_init(|| Bytes::from(serde_json::to_vec(&self.event).unwrap_or_default())).clone()
    }
}

/// A part that is being streamed.
#[derive(Clone, Debug)]
pub(crate) struct OpenPart {
    pub(crate) step: MessageId,
    pub(crate) attempt: AttemptId,
    pub(crate) part: PartId,
    pub(crate) kind: OpenPartKind,
    pub(crate) text: String,
}

/// The newest events of one session, up to a number of bytes, for its subscribers.
#[derive(Debug)]
pub struct Ring {
    session: SessionId,
    generation: u64,
    limit: usize,
    inner: Mutex<Inner>,
    wake: Notify,
}

#[derive(Debug)]
struct Inner {
    events: VecDeque<(Arc<Published>, usize)>,
    /// Position of the first event in `events`; positions count up from 0.
    first: u64,
    bytes: usize,
    /// The last durable event.
    durable: Seq,
    /// Provisional events since then.
    provisional: u64,
    open: Vec<OpenPart>,
    /// Nothing more will come; the error that is the reason, if it is one.
    closed: Option<Option<CommandError>>,
}

/// Where a new subscriber begins.
pub(crate) struct Join {
    /// Position of the next live event.
    pub(crate) position: u64,
    /// The last durable event before it.
    pub(crate) durable: Seq,
    /// The parts that are open there.
    pub(crate) snapshots: Vec<Arc<Published>>,
}

/// What a subscriber finds at a position.
pub(crate) enum Next {
    Event(Arc<Published>),
    /// Nothing yet.
    Wait,
    /// The event is gone already.
    Behind,
    /// Nothing more will come: the session left, or this is wrong with it.
    Closed(Option<CommandError>),
}

impl Ring {
    pub(crate) fn new(session: SessionId, generation: u64, limit: usize, durable: Seq) -> Self {
        let inner = Inner {
            events: VecDeque::new(),
            first: 0,
            bytes: 0,
            durable,
            provisional: 0,
            open: Vec::new(),
            closed: None,
        };
        Self { session, generation, limit, inner: Mutex::new(inner), wake: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic elsewhere leaves no half-written event: the lock's data is good.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, inner: &mut Inner, id: EventId, at: Timestamp, body: EventBody, bytes: usize) {
        let event = Event { id, generation: self.generation, session: self.session, at, body };
        let bytes = bytes + EVENT_OVERHEAD;
        inner.events.push_back((Published::new(event), bytes));
        inner.bytes += bytes;
        while inner.bytes > self.limit && inner.events.len() > 1 {
            if let Some((_, bytes)) = inner.events.pop_front() {
                inner.bytes -= bytes;
                inner.first += 1;
            }
        }
    }

    fn push_provisional(&self, inner: &mut Inner, body: Provisional, bytes: usize) {
        inner.provisional += 1;
        let id = EventId { seq: inner.durable, provisional: inner.provisional };
        self.push(inner, id, now(), EventBody::Provisional(body), bytes);
    }

    /// Publishes records that are flushed.
    pub(crate) fn publish(&self, entries: impl IntoIterator<Item = Entry>) {
        {
            let mut inner = self.lock();
            for Entry { seq, at, record } in entries {
                let bytes = record_bytes(&record);
                inner.durable = seq;
                inner.provisional = 0;
                self.push(&mut inner, EventId::durable(seq), at, EventBody::Durable(Arc::new(record)), bytes);
            }
        }
        self.wake.notify_waiters();
    }

    /// Writes what one read of the network brought: `write` is called once, under the ring's lock, and subscribers are
    /// woken once afterwards.
    pub(crate) fn write<T>(&self, write: impl FnOnce(&mut Writer<'_>) -> T) -> T {
        let result = {
            let mut inner = self.lock();
            write(&mut Writer { ring: self, inner: &mut inner })
        };
        self.wake.notify_waiters();
        result
    }

    /// Takes the parts that an attempt streamed, in order. They are open no more.
    pub(crate) fn take(&self, attempt: AttemptId) -> Vec<OpenPart> {
        let mut inner = self.lock();
        let (taken, left) =
            std::mem::take(&mut inner.open).into_iter().partition(|part| part.attempt == attempt);
        inner.open = left;
        taken
    }

    /// A new actor takes the session up, whose log ends at `head`. Whoever streamed the open parts is gone. Where the actor
    /// before it did not publish all that was flushed, every subscriber falls behind, and so reads the log.
    pub(crate) fn take_over(&self, head: Seq) {
        {
            let mut inner = self.lock();
            inner.open.clear();
            if inner.durable != head {
                // One more than there were, for the subscribers that have read them all.
                inner.first += inner.events.len() as u64 + 1;
                inner.events.clear();
                inner.bytes = 0;
                inner.durable = head;
                inner.provisional = 0;
            }
        }
        self.wake.notify_waiters();
    }

    /// Tells all subscribers that nothing more will come, and why if something is wrong.
    pub(crate) fn close(&self, error: Option<CommandError>) {
        self.lock().closed.get_or_insert(error);
        self.wake.notify_waiters();
    }

    pub(crate) fn join(&self) -> Join {
        let inner = self.lock();
        let id = EventId { seq: inner.durable, provisional: inner.provisional.max(1) };
        let snapshots = inner.open.iter().map(|open| {
            let body = EventBody::Provisional(Provisional::PartSnapshot {
                step: open.step,
                attempt: open.attempt,
                part: open.part,
                kind: open.kind.clone(),
                text: open.text.clone(),
            });
            Published::new(Event { id, generation: self.generation, session: self.session, at: now(), body })
        });
        Join {
            position: inner.first + inner.events.len() as u64,
            durable: inner.durable,
            snapshots: snapshots.collect(),
        }
    }

    pub(crate) fn at(&self, position: u64) -> Next {
        let inner = self.lock();
        if position < inner.first {
            return Next::Behind;
        }
        let index = usize::try_from(position - inner.first).unwrap_or(usize::MAX);
        match inner.events.get(index) {
            Some((event, _)) => Next::Event(Arc::clone(event)),
            None => inner.closed.clone().map_or(Next::Wait, Next::Closed),
        }
    }

    /// A future that ends with the next write. Ask [`Self::at`] again after it is made, before it is awaited.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.wake.notified()
    }

    pub(crate) fn session(&self) -> SessionId {
        self.session
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }
}

/// Writes provisional events.
pub(crate) struct Writer<'a> {
    ring: &'a Ring,
    inner: &'a mut Inner,
}

impl Writer<'_> {
    /// Announces a part.
    pub(crate) fn begin(&mut self, step: MessageId, attempt: AttemptId, part: PartId, kind: OpenPartKind) {
        self.inner.open.push(OpenPart { step, attempt, part, kind: kind.clone(), text: String::new() });
        self.ring.push_provisional(self.inner, Provisional::PartStarted { step, attempt, part, kind }, 0);
    }

    /// More of an announced part.
    pub(crate) fn delta(&mut self, part: PartId, text: String) {
        let Some(open) = self.inner.open.iter_mut().rev().find(|open| open.part == part) else { return };
        let offset = open.text.len() as u64;
        open.text.push_str(&text);
        let bytes = text.len();
        self.ring.push_provisional(self.inner, Provisional::PartDelta { part, offset, text }, bytes);
    }

    /// Something that belongs to no part.
    pub(crate) fn notice(&mut self, notice: Provisional) {
        self.ring.push_provisional(self.inner, notice, 256);
    }

    /// More output of a call.
    pub(crate) fn call_output(&mut self, call: PartId, offset: u64, text: String) {
        let bytes = text.len();
        self.ring.push_provisional(self.inner, Provisional::CallOutput { call, offset, text }, bytes);
    }
}

/// About how much memory a record takes.
fn record_bytes(record: &Record) -> usize {
    use playhouse_protocol::record::StepPart;
    match record {
        Record::StepFinished(finished) => finished
            .parts
            .iter()
            .map(|part| match part {
                StepPart::Text { text, .. } | StepPart::Reasoning { text, .. } => text.len() + 64,
                StepPart::Call { .. } => 32,
            })
            .sum(),
        Record::CallSettled { result, .. } => result.output.len() + 512,
        Record::PromptAdmitted(prompt) => prompt.parts.iter().map(part_bytes).sum::<usize>() + 256,
        Record::CallProposed(proposed) => 256 + input_bytes(&proposed.input),
        _ => 512,
    }
}

fn part_bytes(part: &playhouse_protocol::Part) -> usize {
    match part {
        playhouse_protocol::Part::Text { text, .. } => text.len() + 64,
        _ => 256,
    }
}

fn input_bytes(input: &playhouse_protocol::message::CallInput) -> usize {
    match input {
        playhouse_protocol::message::CallInput::Malformed(text) => text.len(),
        playhouse_protocol::message::CallInput::Object(object) => {
            object.values().map(|value| value.as_str().map_or(16, str::len)).sum()
        }
    }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::IdGenerator;

    use super::*;

    #[test]
    fn whoever_read_everything_is_behind_when_flushed_records_were_not_published() {
        let ring = Ring::new(IdGenerator::new(|_| {}).next(now()), 1, 1_024, Seq(3));
        let reader = ring.join().position;
        ring.take_over(Seq(3));
        assert!(matches!(ring.at(reader), Next::Wait), "nothing was missed");
        ring.take_over(Seq(5));
        assert!(matches!(ring.at(reader), Next::Behind));
        let join = ring.join();
        assert_eq!(join.durable, Seq(5));
        assert!(matches!(ring.at(join.position), Next::Wait));
    }
}

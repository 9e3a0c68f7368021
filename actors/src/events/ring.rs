//! The events of one session, for its subscribers.
//!
//! The session actor publishes durable events after the flush; during a step the step actor, and during a call the call
//! actor, write provisional ones straight into the ring. It keeps the newest events that one of its subscribers has not read
//! (and a few more), up to a number of bytes; each event is made once for all subscribers, and serialized once, when the first of them asks for it. The same events go into the
//! engine's hub, in the same order.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use playhouse_protocol::event::{OpenPartKind, Provisional};
use playhouse_protocol::id::{AttemptId, MessageId, PartId};
use playhouse_protocol::{
    CallAnswer, CommandError, Entry, Event, EventBody, EventId, Record, Seq, SessionId, Timestamp,
};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::base::now;
use crate::events::hub::Outlet;
use crate::events::published::Published;

/// Bytes that an event counts beside its text.
const EVENT_OVERHEAD: usize = 160;
/// As often as so many bytes of events came, those are let go that all subscribers have read.
const LOOK: usize = 16 * 1024;
/// While its session sleeps a ring keeps at most such a part of what it may keep, for subscribers that have not read it yet.
const ASLEEP: usize = 64;
/// The most open requests of sub-sessions that are kept for later subscribers; the oldest make room.
const MOST_REQUESTS: usize = 256;

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
    /// Where the hub takes them. A ring that is there for the requests of sub-sessions only has none.
    outlet: OnceLock<Outlet>,
}

#[derive(Debug)]
struct Inner {
    events: VecDeque<(Arc<Published>, usize)>,
    /// What the hub has not been given yet.
    fresh: Vec<(Arc<Published>, usize)>,
    /// Position of the first event in `events`; positions count up from 0.
    first: u64,
    bytes: usize,
    /// Bytes of events that came since it was looked what all subscribers have read.
    unlooked: usize,
    /// The last durable event.
    durable: Seq,
    /// Provisional events since then.
    provisional: u64,
    open: Vec<OpenPart>,
    /// Requests of sub-sessions that wait for an answer.
    requests: Vec<(SessionId, Record)>,
    /// Where its subscribers are: see [`Join::reader`].
    readers: Vec<Weak<AtomicU64>>,
    /// Nothing more will come; the error that is the reason, if it is one.
    closed: Option<Option<CommandError>>,
}

/// Where a new subscriber begins.
#[derive(Debug)]
pub(crate) struct Join {
    /// Position of the next live event.
    pub(crate) position: u64,
    /// The last durable event before it.
    pub(crate) durable: Seq,
    /// The parts that are open there, and the requests of sub-sessions.
    pub(crate) snapshots: Vec<Arc<Published>>,
    /// The subscriber keeps here up to which position it has read: what all have read goes while the session rests.
    pub(crate) reader: Arc<AtomicU64>,
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
            fresh: Vec::new(),
            first: 0,
            bytes: 0,
            unlooked: 0,
            durable,
            provisional: 0,
            open: Vec::new(),
            requests: Vec::new(),
            readers: Vec::new(),
            closed: None,
        };
        let (inner, wake, outlet) = (Mutex::new(inner), Notify::new(), OnceLock::new());
        Self { session, generation, limit, inner, wake, outlet }
    }

    /// Gives the hub all events from now on.
    pub(crate) fn report_to(&self, outlet: impl FnOnce() -> Outlet) {
        self.outlet.get_or_init(outlet);
    }

    /// Gives the hub what is new. Under the ring's lock, so that the order is the same there.
    fn report(&self, inner: &mut Inner) {
        if let Some(outlet) = self.outlet.get() {
            outlet.write(inner.fresh.drain(..));
        }
        inner.fresh.clear();
    }

    fn push(&self, inner: &mut Inner, id: EventId, at: Timestamp, body: EventBody, bytes: usize) {
        let event = Event { id, generation: self.generation, session: self.session, at, body };
        let bytes = bytes + EVENT_OVERHEAD;
        let event = Published::new(event);
        inner.fresh.push((Arc::clone(&event), bytes));
        inner.events.push_back((event, bytes));
        inner.bytes += bytes;
        inner.unlooked += bytes;
        if inner.unlooked >= LOOK {
            Self::forget_read(inner);
        }
        Self::trim(inner, self.limit);
    }

    /// Lets the oldest events go that do not fit into so many bytes.
    fn trim(inner: &mut Inner, limit: usize) {
        while inner.bytes > limit && inner.events.len() > 1 {
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
            let mut inner = self.inner.lock();
            for Entry { seq, at, record } in entries {
                let record = record.into_event();
                let bytes = record_bytes(&record);
                inner.durable = seq;
                inner.provisional = 0;
                self.push(&mut inner, EventId::durable(seq), at, EventBody::Durable(Arc::new(record)), bytes);
            }
            self.report(&mut inner);
        }
        self.wake.notify_waiters();
    }

    /// Waits until the records up to `seq` are published, after which comes what belongs to them: for ever, if the session ends before.
    /// Whoever waits ends with it.
    pub(crate) async fn has_published(&self, seq: Seq) {
        loop {
            let mut changed = pin!(self.wake.notified());
            changed.as_mut().enable();
            if self.inner.lock().durable >= seq {
                return;
            }
            changed.await;
        }
    }

    /// Writes what one read of the network brought: `write` is called once, under the ring's lock, and subscribers are
    /// woken once afterwards.
    pub(crate) fn write<T>(&self, write: impl FnOnce(&mut Writer<'_>) -> T) -> T {
        let result = {
            let mut inner = self.inner.lock();
            let result = write(&mut Writer { ring: self, inner: &mut inner });
            self.report(&mut inner);
            result
        };
        self.wake.notify_waiters();
        result
    }

    /// Takes the parts that an attempt streamed, in order. They are open no more.
    pub(crate) fn take(&self, attempt: AttemptId) -> Vec<OpenPart> {
        let mut inner = self.inner.lock();
        let (taken, left) =
            std::mem::take(&mut inner.open).into_iter().partition(|part| part.attempt == attempt);
        inner.open = left;
        taken
    }

    /// A request of a sub-session was asked or settled. One that is asked is told to later subscribers as well, until it is
    /// settled; asking it again changes nothing.
    pub(crate) fn request(&self, session: SessionId, record: Record) {
        {
            let mut inner = self.inner.lock();
            let Some((request, is_open)) = request_of(&record) else { return };
            let known = inner.requests.iter().position(|(of, open)| {
                *of == session && request_of(open).is_some_and(|(id, _)| id == request)
            });
            match (is_open, known) {
                (true, Some(_)) => return,
                (true, None) => {
                    if inner.requests.len() == MOST_REQUESTS {
                        inner.requests.remove(0);
                    }
                    inner.requests.push((session, record.clone()));
                }
                (false, Some(known)) => drop(inner.requests.remove(known)),
                (false, None) => {}
            }
            let bytes = record_bytes(&record);
            let body = Provisional::DescendantRequest { session, record: Box::new(record) };
            self.push_provisional(&mut inner, body, bytes);
            // The sub-session's own events tell it there.
            inner.fresh.clear();
        }
        self.wake.notify_waiters();
    }

    /// Forgets the requests of a sub-session that does not come back.
    pub(crate) fn forget_requests(&self, session: SessionId) {
        self.inner.lock().requests.retain(|(of, _)| *of != session);
    }

    /// Whether requests of sub-sessions wait.
    pub(crate) fn has_requests(&self) -> bool {
        !self.inner.lock().requests.is_empty()
    }

    /// A new actor takes the session up, whose log ends at `head`. Whoever streamed the open parts is gone. Where the actor
    /// before it did not publish all that was flushed, every subscriber falls behind, and so reads the log.
    pub(crate) fn take_over(&self, head: Seq) {
        {
            let mut inner = self.inner.lock();
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

    /// The session leaves memory, and those who follow it wait: keeps the newest events only, up to a part of the limit.
    /// Whoever has not read the others by now reads them from the log.
    pub(crate) fn shrink(&self) {
        let mut inner = self.inner.lock();
        let limit = self.limit / ASLEEP;
        Self::trim(&mut inner, limit);
        Self::let_go(&mut inner);
    }

    /// The session rests: keeps no events that all its subscribers have read. Whoever comes later reads the log.
    pub(crate) fn settle(&self) {
        Self::let_go(&mut self.inner.lock());
    }

    fn let_go(inner: &mut Inner) {
        Self::forget_read(inner);
        inner.events.shrink_to_fit();
        inner.fresh = Vec::new();
    }

    /// Forgets what all subscribers have read: whoever comes later begins behind it.
    fn forget_read(inner: &mut Inner) {
        inner.unlooked = 0;
        let mut read = inner.first + inner.events.len() as u64;
        inner.readers.retain(|reader| {
            let Some(reader) = reader.upgrade() else { return false };
            read = read.min(reader.load(Ordering::Relaxed));
            true
        });
        while inner.first < read
            && let Some((_, bytes)) = inner.events.pop_front()
        {
            inner.bytes -= bytes;
            inner.first += 1;
        }
    }

    /// Tells all subscribers that nothing more will come, and why if something is wrong.
    pub(crate) fn close(&self, error: Option<CommandError>) {
        {
            let mut inner = self.inner.lock();
            // Those who watch many sessions have no other end of this one.
            if let (None, Some(CommandError::Parked { reason, .. })) = (&inner.closed, &error) {
                let (reason, bytes) = (reason.clone(), reason.len());
                inner.open.clear();
                self.push_provisional(&mut inner, Provisional::SessionParked { reason }, bytes);
                self.report(&mut inner);
            }
            inner.closed.get_or_insert(error);
        }
        self.wake.notify_waiters();
    }

    pub(crate) fn join(&self) -> Join {
        let mut inner = self.inner.lock();
        let id = EventId { seq: inner.durable, provisional: inner.provisional.max(1) };
        let parts = inner.open.iter().map(|open| Provisional::PartSnapshot {
            step: open.step,
            attempt: open.attempt,
            part: open.part,
            kind: open.kind.clone(),
            text: open.text.clone(),
        });
        let requests = inner.requests.iter().map(|(session, record)| Provisional::DescendantRequest {
            session: *session,
            record: Box::new(record.clone()),
        });
        let snapshots = parts.chain(requests).map(|snapshot| {
            let body = EventBody::Provisional(snapshot);
            Published::new(Event { id, generation: self.generation, session: self.session, at: now(), body })
        });
        let (snapshots, position) = (snapshots.collect(), inner.first + inner.events.len() as u64);
        let reader = Arc::new(AtomicU64::new(position));
        if inner.readers.len() == inner.readers.capacity() {
            inner.readers.retain(|reader| reader.strong_count() > 0);
        }
        inner.readers.push(Arc::downgrade(&reader));
        Join { position, durable: inner.durable, snapshots, reader }
    }

    pub(crate) fn at(&self, position: u64) -> Next {
        let inner = self.inner.lock();
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
        let bytes = match &notice {
            Provisional::FileChanged(changed) => changed.files.iter().map(|file| file.path.len() + 64).sum(),
            _ => 0,
        };
        self.ring.push_provisional(self.inner, notice, bytes + 256);
    }

    /// More output of a call.
    pub(crate) fn call_output(&mut self, call: PartId, offset: u64, text: String) {
        let bytes = text.len();
        self.ring.push_provisional(self.inner, Provisional::CallOutput { call, offset, text }, bytes);
    }
}

/// The request that a record asks or settles, and whether it asks it.
fn request_of(record: &Record) -> Option<(&str, bool)> {
    match record {
        Record::ConsentAsked(asked) => Some((asked.consent.as_str(), true)),
        Record::ConsentSettled { consent, .. } => Some((consent.as_str(), false)),
        Record::QuestionAsked(asked) => Some((asked.question.as_str(), true)),
        Record::QuestionSettled { question, .. } => Some((question.as_str(), false)),
        _ => None,
    }
}

/// Bytes of one file of a change set, about.
const CHANGED_FILE: usize = 512;

/// About how much memory a record takes.
pub(crate) fn record_bytes(record: &Record) -> usize {
    use playhouse_protocol::record::{Forked, SessionChanged, SessionCreated, StepPart};
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
        Record::WorkspaceChanged(changed) => changed.set.changes.len() * CHANGED_FILE + 256,
        Record::Reverted(reverted) => (reverted.set.changes.len() + reverted.left.len()) * CHANGED_FILE + 256,
        Record::CallOffered(offered) => input_bytes(&offered.input) + 256,
        Record::CallAnswered { answer, .. } => match answer {
            CallAnswer::Output { output: text } | CallAnswer::Error { error: text } => text.len() + 256,
            CallAnswer::TimedOut => 256,
        },
        Record::ConsentAsked(asked) => asked.preview.len() + asked.wants.len() * 256 + 512,
        Record::PromptAdmitted(prompt) => {
            let system = prompt.system.as_ref().map_or(0, String::len);
            prompt.parts.iter().map(part_bytes).sum::<usize>() + system + 256
        }
        // What clients keep with it is small by itself, and there may be many such records.
        Record::SessionCreated(SessionCreated { metadata, .. })
        | Record::Forked(Forked { metadata, .. })
        | Record::SessionChanged(SessionChanged { metadata: Some(metadata), .. }) => {
            512 + json_bytes(metadata)
        }
        Record::ContextCompacted(compacted) => compacted.text.len() + 512,
        Record::ContextCleared(cleared) => (cleared.calls.len() + cleared.shortened.len()) * 48 + 256,
        // Its text is left out.
        Record::SystemSettled(settled) => 96 + settled.text.len(),
        Record::ToolsSettled(settled) => 96 + settled.tools.len() * 64,
        Record::CallProposed(proposed) => 256 + input_bytes(&proposed.input),
        _ => 512,
    }
}

fn part_bytes(part: &playhouse_protocol::Part) -> usize {
    match part {
        playhouse_protocol::Part::Text { text, marks, .. } => {
            let kept = marks.as_ref().map_or(0, |marks| json_bytes(&marks.metadata));
            text.len() + kept + 64
        }
        playhouse_protocol::Part::File { file, .. } => file.source.as_ref().map_or(0, json_bytes) + 256,
        _ => 256,
    }
}

fn json_bytes(value: &impl serde::Serialize) -> usize {
    serde_json::to_string(value).map_or(0, |written| written.len())
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

    #[test]
    fn a_ring_at_rest_keeps_what_a_subscriber_has_not_read_and_nothing_else() {
        let mut ids = IdGenerator::new(|_| {});
        let ring = Ring::new(ids.next(now()), 1, 1 << 20, Seq(0));
        let (part, step, attempt) = (ids.next(now()), ids.next(now()), ids.next(now()));
        ring.write(|writer| writer.begin(step, attempt, part, OpenPartKind::Text));
        let (quick, slow) = (ring.join(), ring.join());
        ring.write(|writer| (0..9).for_each(|_| writer.delta(part, "word ".to_owned())));
        let held = || {
            let inner = ring.inner.lock();
            (inner.events.len(), inner.bytes)
        };
        let all = held();
        assert_eq!(all.0, 10);
        quick.reader.store(quick.position + 9, Ordering::Relaxed);
        slow.reader.store(slow.position + 4, Ordering::Relaxed);
        ring.settle();
        assert_eq!(held().0, 5, "what one of them has not read is there");
        assert!(matches!(ring.at(slow.position + 4), Next::Event(_)));
        assert!(matches!(ring.at(slow.position + 3), Next::Behind));
        drop(slow);
        ring.settle();
        assert_eq!(held(), (0, 0));
        assert!(matches!(ring.at(quick.position + 9), Next::Wait));
        ring.write(|writer| writer.delta(part, "more".to_owned()));
        assert!(matches!(ring.at(quick.position + 9), Next::Event(_)));
        assert_eq!(ring.inner.lock().readers.len(), 1, "those that went away are forgotten");
    }

    #[test]
    fn a_ring_at_work_keeps_little_of_what_everybody_has_read() {
        let mut ids = IdGenerator::new(|_| {});
        let ring = Ring::new(ids.next(now()), 1, 1 << 20, Seq(0));
        let (part, step, attempt) = (ids.next(now()), ids.next(now()), ids.next(now()));
        ring.write(|writer| writer.begin(step, attempt, part, OpenPartKind::Text));
        let speak = || ring.write(|writer| writer.delta(part, "x".repeat(840)));
        let held = || ring.inner.lock().bytes;
        (0..1_000).for_each(|_| speak());
        assert!(held() < 2 * LOOK, "nobody reads: {}", held());
        let (quick, slow) = (ring.join(), ring.join());
        for count in 1..=100 {
            speak();
            quick.reader.store(quick.position + count, Ordering::Relaxed);
        }
        assert!(held() >= 100_000, "one of them has read nothing: {}", held());
        assert!(matches!(ring.at(slow.position), Next::Event(_)));
        slow.reader.store(slow.position + 100, Ordering::Relaxed);
        (0..20).for_each(|_| speak());
        assert!(held() < 2 * LOOK + 20_000, "{}", held());
        assert!(matches!(ring.at(slow.position + 100), Next::Event(_)));
        assert!(matches!(ring.at(quick.position + 100), Next::Event(_)));
    }

    #[test]
    fn a_late_subscriber_is_told_of_the_requests_that_are_open() {
        let mut ids = IdGenerator::new(|_| {});
        let ring = Ring::new(ids.next(now()), 1, 1 << 20, Seq(3));
        let (child, other, call): (SessionId, SessionId, PartId) =
            (ids.next(now()), ids.next(now()), ids.next(now()));
        let mut ask = |ring: &Ring, session| {
            let question: playhouse_protocol::QuestionId = ids.next(now());
            let asked = playhouse_protocol::question::QuestionAsked { question, call, questions: Vec::new() };
            ring.request(session, Record::QuestionAsked(asked.clone()));
            ring.request(session, Record::QuestionAsked(asked));
            question
        };
        let (one, _, _) = (ask(&ring, child), ask(&ring, child), ask(&ring, other));
        let live = ring.join().position;
        assert_eq!(live, 3, "asking again is not told again");
        let answer = playhouse_protocol::question::QuestionAnswer::Rejected;
        ring.request(child, Record::QuestionSettled { question: one, answer });
        assert!(matches!(ring.at(live), Next::Event(_)));
        assert_eq!(ring.join().snapshots.len(), 2);
        ring.take_over(Seq(9));
        assert_eq!(ring.join().snapshots.len(), 2, "they outlive the session's actor");
        ring.forget_requests(other);
        assert_eq!(ring.join().snapshots.len(), 1);
        assert!(ring.has_requests());
    }
}

//! The newest events of a tenant's sessions in the wire's words, made once for all who read them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use playhouse_protocol::PartId;
use tokio::sync::Notify;

use crate::wire::ids;
use crate::wire::place::Place;
use crate::wire::shapes::{Envelope, WireEvent};

/// Bytes of events that are kept for each tenant.
const KEPT: usize = 4 * 1024 * 1024;
/// What an event takes beside its text, in bytes.
const OVERHEAD: usize = 160;
/// Before the text of a delta. What comes before it in the event are ids, which hold no quotes.
const DELTA: &[u8] = b",\"delta\":\"";
/// What stands behind an event.
const BEHIND: &[u8] = b"\n\n";
/// After the text of a delta.
pub(super) const DELTA_END: usize = "\"}}".len();

/// An event, with what its readers need to know of it.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) position: u64,
    pub(super) place: Arc<Place>,
    /// The event as it stands in the stream of a directory: `id: 5-17`, then `data: ` with its JSON, then a blank line.
    pub(super) frame: Bytes,
    /// Where the JSON begins in that.
    begin: usize,
    /// Of a delta: the part, and where its text begins in the JSON.
    pub(super) delta: Option<(PartId, usize)>,
}

impl Made {
    /// The event as JSON.
    pub(super) fn json(&self) -> &[u8] {
        self.frame.get(self.begin..self.frame.len() - BEHIND.len()).unwrap_or_default()
    }
}

/// The newest events.
#[derive(Debug)]
pub(super) struct Ring {
    generation: u64,
    limit: usize,
    inner: Mutex<Inner>,
    wake: Notify,
}

#[derive(Debug)]
struct Inner {
    events: VecDeque<Made>,
    /// Position of the first of them.
    first: u64,
    bytes: usize,
    /// Where something changed last in each directory.
    changed: HashMap<Arc<str>, u64>,
    closed: bool,
}

/// What a reader finds.
pub(super) enum Found {
    /// Events, and the position behind them.
    Events(Vec<Made>, u64),
    /// Events were missed, in these directories; it goes on at this position.
    Behind(Vec<Arc<str>>, u64),
    /// Nothing new of what is wanted up to this position.
    Nothing(u64),
    /// Nothing more will come.
    Closed,
}

impl Ring {
    pub(super) fn new(generation: u64) -> Self {
        Self::with_limit(generation, KEPT)
    }

    fn with_limit(generation: u64, limit: usize) -> Self {
        let inner =
            Inner { events: VecDeque::new(), first: 1, bytes: 0, changed: HashMap::new(), closed: false };
        Self { generation, limit, inner: Mutex::new(inner), wake: Notify::new() }
    }

    /// The run of the engine to which its positions belong.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// The position of the next event.
    pub(super) fn next(&self) -> u64 {
        self.inner.lock().next()
    }

    /// Adds events of a session in `place`.
    pub(super) fn write(&self, place: &Arc<Place>, events: Vec<WireEvent>) {
        if events.is_empty() {
            return;
        }
        {
            let mut inner = self.inner.lock();
            for event in events {
                let position = inner.next();
                let part = match &event {
                    WireEvent::PartDelta { part, .. } => Some(*part),
                    _ => None,
                };
                let mut frame = format!("id: {}-{position}\ndata: ", self.generation).into_bytes();
                let begin = frame.len();
                let id = ids::event(self.generation, position, 0);
                // Plain data: it always has a JSON form.
                let _ = serde_json::to_writer(&mut frame, &Envelope { id, event });
                let delta = part.and_then(|part| Some((part, text_of_delta(&frame[begin..])?)));
                frame.extend_from_slice(BEHIND);
                inner.bytes += frame.len() + OVERHEAD;
                // No longer than what is counted.
                let frame = Bytes::from(frame.into_boxed_slice());
                inner.events.push_back(Made { position, place: Arc::clone(place), frame, begin, delta });
            }
            let last = inner.next() - 1;
            inner.changed.insert(Arc::clone(&place.directory), last);
            while inner.bytes > self.limit && inner.events.len() > 1 {
                if let Some(gone) = inner.events.pop_front() {
                    inner.bytes -= gone.frame.len() + OVERHEAD;
                    inner.first += 1;
                }
            }
        }
        self.wake.notify_waiters();
    }

    /// Ends all readers.
    pub(super) fn close(&self) {
        self.inner.lock().closed = true;
        self.wake.notify_waiters();
    }

    /// Waits until there may be something at `position`.
    pub(super) async fn changed(&self, position: u64) {
        let written = self.wake.notified();
        let (next, closed) = {
            let inner = self.inner.lock();
            (inner.next(), inner.closed)
        };
        if position >= next && !closed {
            written.await;
        }
    }

    /// What is there from `position` on, up to about `bytes`, of the directories that are wanted.
    pub(super) fn read(&self, position: u64, wanted: impl Fn(&str) -> bool, bytes: usize) -> Found {
        let inner = self.inner.lock();
        if position < inner.first {
            let changed = inner.changed.iter().filter(|(changed, at)| **at >= position && wanted(changed));
            return Found::Behind(changed.map(|(changed, _)| Arc::clone(changed)).collect(), inner.first);
        }
        let from = usize::try_from(position - inner.first).unwrap_or(usize::MAX);
        let (mut found, mut taken, mut next) = (Vec::new(), 0, position);
        for made in inner.events.range(from.min(inner.events.len())..) {
            if taken >= bytes {
                break;
            }
            next = made.position + 1;
            if wanted(&made.place.directory) {
                taken += made.frame.len();
                found.push(made.clone());
            }
        }
        match found.is_empty() {
            false => Found::Events(found, next),
            true if inner.closed => Found::Closed,
            true => Found::Nothing(next),
        }
    }
}

/// Where the text of a delta begins.
fn text_of_delta(json: &[u8]) -> Option<usize> {
    memchr::memmem::find(json, DELTA).map(|found| found + DELTA.len())
}

impl Inner {
    fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::{IdGenerator, SessionId, Timestamp};

    use super::*;

    fn event() -> WireEvent {
        let session: SessionId = IdGenerator::new(|_| {}).next(Timestamp::from_millis(1));
        WireEvent::SessionIdle { session }
    }

    fn place(directory: &str) -> Arc<Place> {
        Arc::new(Place::new(directory, directory, false, 0))
    }

    #[test]
    fn readers_of_a_directory_see_its_events_and_those_that_are_behind_are_told() {
        let ring = Ring::with_limit(7, 1_000);
        let (one, other) = (place("/one"), place("/other"));
        ring.write(&one, vec![event(), event()]);
        ring.write(&other, vec![event()]);
        let Found::Events(all, 4) = ring.read(1, |_| true, 10_000) else { panic!("three events") };
        assert_eq!(all.len(), 3);
        let Found::Events(some, 4) = ring.read(1, |of| of == "/other", 10_000) else { panic!("one event") };
        assert_eq!((some.len(), some[0].position), (1, 3));
        let Found::Events(few, 2) = ring.read(1, |_| true, 1) else { panic!("at least one at once") };
        assert_eq!(few.len(), 1);
        assert!(matches!(ring.read(4, |_| true, 10_000), Found::Nothing(4)));
        for _ in 0..10 {
            ring.write(&other, vec![event()]);
        }
        let Found::Behind(changed, first) = ring.read(2, |_| true, 10_000) else { panic!("it is behind") };
        assert_eq!(changed.len(), 2);
        assert!(first > 4);
        let Found::Behind(changed, _) = ring.read(3, |of| of == "/one", 10_000) else {
            panic!("it is behind")
        };
        assert!(changed.is_empty(), "nothing that it wants was missed");
        ring.close();
        assert!(matches!(ring.read(ring.next(), |_| true, 10_000), Found::Closed));
    }
}

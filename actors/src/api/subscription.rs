//! Reading a session's events: those in its log first, then its open parts, then live ones.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use playhouse_protocol::event::Provisional;
use playhouse_protocol::{CommandError, Event, EventBody, EventId, Seq};

use crate::base::now;
use crate::context::EngineContext;
use crate::events::published::Published;
use crate::events::ring::{Next, Ring};
use crate::measure;

/// Entries that are read from the log at once.
const REPLAY_PAGE: usize = 256;

/// A reader of a session's events. It costs the session nothing: a slow reader only falls behind, is told so with one
/// `resync` event, and goes on from the log.
pub struct Subscription {
    shared: Arc<EngineContext>,
    ring: Arc<Ring>,
    /// Position of the next live event.
    position: u64,
    /// The same, for the ring.
    reader: Arc<AtomicU64>,
    /// The last durable event that was given out.
    given: Seq,
    /// Up to here the log is read; live events follow.
    replay_until: Seq,
    /// What comes before the live events.
    waiting: VecDeque<Arc<Published>>,
    /// Open parts, given out when the log is read.
    snapshots: Vec<Arc<Published>>,
}

impl Subscription {
    /// Every durable event after `after`, then the open parts, then live events. `None` leaves out the past.
    pub(crate) fn new(shared: Arc<EngineContext>, ring: Arc<Ring>, after: Option<Seq>) -> Self {
        let join = ring.join();
        Self {
            shared,
            position: join.position,
            reader: join.reader,
            // Nobody can have read what is not there yet.
            given: after.map_or(join.durable, |after| after.min(join.durable)),
            replay_until: join.durable,
            waiting: VecDeque::new(),
            snapshots: join.snapshots,
            ring,
        }
    }

    /// Says first that events which the subscriber has are not in the log: it named a place behind the end.
    pub(crate) fn begin_with_resync(&mut self) {
        let resync = self.resync();
        self.waiting.push_back(resync);
    }

    /// The last durable event that was given out, or behind which this began.
    pub fn place(&self) -> Seq {
        self.given
    }

    /// The next event; `None` when the session was removed or the engine stopped.
    ///
    /// # Errors
    /// The log could not be read, or the session is parked: nothing more will come.
    pub async fn next(&mut self) -> Result<Option<Arc<Published>>, CommandError> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Ok(Some(event));
            }
            if self.given < self.replay_until {
                self.read_log().await?;
                continue;
            }
            if !self.snapshots.is_empty() {
                self.waiting.extend(self.snapshots.drain(..));
                continue;
            }
            let ring = Arc::clone(&self.ring);
            let changed = ring.changed();
            match ring.at(self.position) {
                Next::Event(event) => return Ok(Some(self.give(event))),
                Next::Wait => changed.await,
                Next::Closed(None) => return Ok(None),
                Next::Closed(Some(error)) => return Err(error),
                Next::Behind => return Ok(Some(self.resync())),
            }
        }
    }

    /// An event that is there already; `None` when the next one would have to be waited for or read from the log.
    pub fn try_next(&mut self) -> Option<Arc<Published>> {
        if let Some(event) = self.waiting.pop_front() {
            return Some(event);
        }
        if self.given < self.replay_until || !self.snapshots.is_empty() {
            return None;
        }
        let Next::Event(event) = self.ring.at(self.position) else { return None };
        Some(self.give(event))
    }

    /// Moves on past a live event.
    fn give(&mut self, event: Arc<Published>) -> Arc<Published> {
        self.position += 1;
        self.reader.store(self.position, Ordering::Relaxed);
        if event.event().id.is_durable() {
            self.given = event.event().id.seq;
        }
        event
    }

    /// Says that events were missed, and goes on from the log.
    fn resync(&mut self) -> Arc<Published> {
        measure::resync("session");
        let join = self.ring.join();
        (self.position, self.reader) = (join.position, join.reader);
        self.replay_until = join.durable;
        self.snapshots = join.snapshots;
        let id = EventId { seq: self.given, provisional: 1 };
        let body = EventBody::Provisional(Provisional::Resync { after: self.given });
        let (generation, session) = (self.ring.generation(), self.ring.session());
        Published::new(Event { id, generation, session, at: now(), body })
    }

    async fn read_log(&mut self) -> Result<(), CommandError> {
        let log = Arc::clone(&self.shared.store.log);
        let (session, after) = (self.ring.session(), self.given);
        let read = self.shared.pool.run(move || log.read(session, after, REPLAY_PAGE)).await;
        let read = read?;
        if read.entries.is_empty() {
            let reason = match read.damage {
                Some(damage) => damage.to_string(),
                None => format!("record {} is missing", after.next()),
            };
            return Err(CommandError::Parked { session, reason });
        }
        for entry in read.entries {
            if entry.seq > self.replay_until {
                break;
            }
            self.given = entry.seq;
            let event = Event {
                id: EventId::durable(entry.seq),
                generation: self.ring.generation(),
                session,
                at: entry.at,
                body: EventBody::Durable(Arc::new(entry.record.into_event())),
            };
            self.waiting.push_back(Published::new(event));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription")
            .field("session", &self.ring.session())
            .field("given", &self.given)
            .finish_non_exhaustive()
    }
}

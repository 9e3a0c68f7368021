//! The events of all sessions of an engine, for those who watch many at once.
//!
//! Every session's ring writes its events into the hub as well: the same ones, made and serialized once. The hub keeps
//! the newest of each tenant up to a number of bytes, apart from those of other tenants, so that a busy one neither wakes
//! nor outruns the readers of another. All tenants together have a budget too: when it is used up, those that were silent
//! for the longest time keep no events. Nobody keeps them for longer than some seconds, and a tenant whose events nobody reads,
//! or did within these seconds, keeps none. A place in it is a generation of the engine and a position; a reader that falls
//! behind is told which sessions changed meanwhile, and reads those from their logs.
//!
//! From the first reader of all tenants on, events are kept in one more lane for such readers, with places of its own.
//!
//! Requests of sub-sessions are not told twice: here the sub-session's own events tell them.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use playhouse_protocol::{SessionId, SessionSummary};
use tokio::sync::Notify;

use crate::events::published::Published;
use crate::measure;

/// All tenants together may keep so many times what one may.
const BUDGET: usize = 8;

/// For how long events are kept at least, where there is room: readers that come back later are told which sessions changed.
const KEPT: Duration = Duration::from_secs(30);
/// How exactly that is known.
const KEPT_TO: Duration = Duration::from_secs(5);

/// So many sessions of a tenant are remembered for readers that fall behind.
const REMEMBERED: usize = 50_000;

/// Whose an event is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Who pays.
    pub tenant: Arc<str>,
    /// The session's directory: absolute, links resolved.
    pub workspace: Arc<str>,
}

impl Owner {
    /// Of the session with this summary.
    pub(crate) fn of(summary: &SessionSummary) -> Self {
        Self { tenant: summary.tenant.as_str().into(), workspace: summary.workspace.as_str().into() }
    }
}

/// An event of some session.
#[derive(Clone, Debug)]
pub struct Shout {
    /// Its place: counts up from 1 in each generation of the engine, for each tenant.
    pub position: u64,
    /// Whose it is.
    pub owner: Arc<Owner>,
    /// The event.
    pub event: Arc<Published>,
}

/// What a reader finds next.
#[derive(Clone, Debug)]
pub enum Heard {
    /// An event.
    Event(Shout),
    /// Events were missed. Reading goes on behind `position`.
    Behind {
        /// The last place that was missed.
        position: u64,
        /// The sessions that changed since; `None` when it is not known, and so any may have.
        changed: Option<Vec<SessionId>>,
    },
}

/// The newest events of all sessions, by tenant.
#[derive(Debug)]
pub struct Hub {
    generation: u64,
    lanes: Arc<Lanes>,
}

/// The lanes of all tenants.
#[derive(Debug)]
struct Lanes {
    /// Bytes of events that are kept for each tenant.
    limit: usize,
    /// Bytes of events that are kept for all.
    bytes: AtomicUsize,
    /// Counts what is written, for all tenants.
    writes: AtomicU64,
    /// By tenant, and `None` for all of them. A lane is never removed: the positions of its events must go on counting up.
    tenants: Mutex<HashMap<Option<Arc<str>>, Arc<Lane>>>,
    /// The lane of all tenants, from its first reader on.
    all: OnceLock<Arc<Lane>>,
}

/// The newest events of one tenant, or of all.
#[derive(Debug)]
pub(crate) struct Lane {
    inner: Mutex<Inner>,
    wake: Notify,
}

#[derive(Debug)]
struct Inner {
    events: VecDeque<(Shout, usize)>,
    /// Position of the first of them.
    first: u64,
    bytes: usize,
    /// Positions of events that were next at a time, oldest first.
    ages: VecDeque<(Instant, u64)>,
    /// Where each session changed last, and whose it is.
    changed: HashMap<SessionId, Arc<Mark>>,
    /// So many sessions fit into `changed`.
    remembered: usize,
    /// Changes before this position are not all in `changed`.
    floor: u64,
    /// The number of the last write among those of all tenants.
    written: u64,
    /// How many readers there are.
    readers: usize,
    /// When the last of them went away, until that is so long ago that nothing is kept for it.
    left: Option<Instant>,
    /// Somebody read here, and may come back.
    was_read: bool,
    closed: bool,
}

/// Where one session writes.
#[derive(Debug)]
pub(crate) struct Outlet {
    lanes: Arc<Lanes>,
    lane: Arc<Lane>,
    mark: Arc<Mark>,
    /// The mark in the lane of all tenants.
    among_all: Arc<Mark>,
}

/// Where a session changed last. Its outlet keeps it, so that nothing is looked up for an event.
#[derive(Debug)]
struct Mark {
    session: SessionId,
    /// One for all its events.
    owner: Arc<Owner>,
    /// 0 while the lane does not know this mark. Changed under the lane's lock only.
    position: AtomicU64,
}

impl Outlet {
    /// Adds events, with about how many bytes each takes.
    pub(crate) fn write(&self, events: impl IntoIterator<Item = (Arc<Published>, usize)>) {
        let Some(all) = self.lanes.all.get() else {
            return self.lanes.write(&self.lane, &self.mark, events);
        };
        let events: Vec<(Arc<Published>, usize)> = events.into_iter().collect();
        self.lanes.write(all, &self.among_all, events.iter().cloned());
        self.lanes.write(&self.lane, &self.mark, events);
    }
}

impl Hub {
    /// A hub that keeps up to `limit` bytes of events for each tenant.
    pub(crate) fn new(generation: u64, limit: usize) -> Self {
        let (bytes, writes) = (AtomicUsize::new(0), AtomicU64::new(0));
        let lanes = Lanes { limit, bytes, writes, tenants: Mutex::default(), all: OnceLock::new() };
        Self { generation, lanes: Arc::new(lanes) }
    }

    /// The generation of the engine, which a place in the hub belongs to.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    fn lane(&self, tenant: Option<&Arc<str>>) -> Arc<Lane> {
        let mut tenants = self.lanes.tenants.lock();
        Arc::clone(tenants.entry(tenant.cloned()).or_insert_with(|| Arc::new(Lane::new())))
    }

    /// Where a session of this owner writes.
    pub(crate) fn outlet(&self, session: SessionId, owner: Owner) -> Outlet {
        let lane = self.lane(Some(&owner.tenant));
        let owner = Arc::new(owner);
        let mark = || Arc::new(Mark { session, owner: Arc::clone(&owner), position: AtomicU64::new(0) });
        Outlet { lanes: Arc::clone(&self.lanes), lane, mark: mark(), among_all: mark() }
    }

    /// Whether it keeps no events.
    pub(crate) fn is_empty(&self) -> bool {
        self.lanes.bytes.load(Relaxed) == 0
    }

    /// Forgets the events that are too old by `now`. To be called from time to time.
    pub(crate) fn age(&self, now: Instant) {
        for lane in self.lanes.tenants.lock().values() {
            self.lanes.bytes.fetch_sub(lane.inner.lock().age(now), Relaxed);
        }
    }

    /// Ends all readers.
    pub(crate) fn close(&self) {
        for lane in self.lanes.tenants.lock().values() {
            lane.inner.lock().closed = true;
            lane.wake.notify_waiters();
        }
    }

    /// A reader of a tenant's events, from behind the place `after` (generation and position) on, or from now on. It is
    /// given the events of those owners that are `wanted`.
    ///
    /// Of a place in another generation nothing is left, and one that is not there yet was never given out: such a reader is behind
    /// at once.
    pub fn listen(
        &self,
        tenant: &Arc<str>,
        after: Option<(u64, u64)>,
        wanted: impl Fn(&Owner) -> bool + Send + Sync + 'static,
    ) -> Listener {
        self.join(self.lane(Some(tenant)), after, Box::new(wanted))
    }

    /// A reader of the events of all tenants. `after` is a place in this stream; one in the stream of a tenant does not fit.
    pub fn listen_to_all(
        &self,
        after: Option<(u64, u64)>,
        wanted: impl Fn(&Owner) -> bool + Send + Sync + 'static,
    ) -> Listener {
        let lane = self.lanes.all.get_or_init(|| self.lane(None));
        self.join(Arc::clone(lane), after, Box::new(wanted))
    }

    fn join(
        &self,
        lane: Arc<Lane>,
        after: Option<(u64, u64)>,
        wanted: Box<dyn Fn(&Owner) -> bool + Send + Sync>,
    ) -> Listener {
        let next = {
            let mut inner = lane.inner.lock();
            inner.readers += 1;
            (inner.left, inner.was_read) = (None, true);
            inner.next()
        };
        let (position, lost) = match after {
            None => (next, false),
            Some((generation, position)) if generation == self.generation && position < next => {
                (position + 1, false)
            }
            Some(_) => (next, true),
        };
        Listener { lane, generation: self.generation, position, lost, wanted }
    }
}

impl Inner {
    fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Forgets the half of the sessions that changed longest ago.
    fn forget(&mut self) {
        let mut positions: Vec<u64> = self.changed.values().map(|mark| mark.position.load(Relaxed)).collect();
        let middle = positions.len() / 2;
        let (_, floor, _) = positions.select_nth_unstable(middle);
        self.floor = *floor;
        let floor = self.floor;
        self.changed.retain(|_, mark| {
            let stays = mark.position.load(Relaxed) >= floor;
            if !stays {
                mark.position.store(0, Relaxed);
            }
            stays
        });
    }

    /// A session changed at `position`. Of too many those that changed longest ago are forgotten.
    fn note(&mut self, mark: &Arc<Mark>, position: u64) {
        self.mark(mark, position);
        if self.changed.len() > self.remembered {
            self.forget();
        }
    }

    /// The newest change of a session was at `position`.
    fn mark(&mut self, mark: &Arc<Mark>, position: u64) {
        if mark.position.swap(position, Relaxed) == 0
            && let Some(other) = self.changed.insert(mark.session, Arc::clone(mark))
        {
            other.position.store(0, Relaxed);
        }
    }

    /// Forgets the events that are too old by `now`; how many bytes that were.
    fn age(&mut self, now: Instant) -> usize {
        let (before, mut gone) = (self.bytes, 0);
        if self.left.take_if(|left| now.duration_since(*left) >= KEPT).is_some() {
            gone = self.next();
            self.ages.clear();
        }
        while let Some((at, position)) = self.ages.front()
            && now.duration_since(*at) >= KEPT
        {
            gone = *position;
            self.ages.pop_front();
        }
        while self.first < gone
            && let Some((_, bytes)) = self.events.pop_front()
        {
            self.bytes -= bytes;
            self.first += 1;
        }
        if self.events.len() < self.events.capacity() / 4 {
            self.events.shrink_to(self.events.len() * 2);
        }
        let is_known = self.ages.back().is_some_and(|(at, _)| now.duration_since(*at) < KEPT_TO);
        if !is_known && !self.events.is_empty() {
            self.ages.push_back((now, self.next()));
        }
        before - self.bytes
    }

    /// Whether events are kept: for those who read, and for those who did so lately.
    fn keeps(&self) -> bool {
        self.readers > 0 || self.left.is_some()
    }

    /// Forgets all events, and which sessions changed; how many bytes that were.
    fn clear(&mut self) -> usize {
        self.first = self.next();
        self.floor = self.first;
        self.events = VecDeque::new();
        self.changed.drain().for_each(|(_, mark)| mark.position.store(0, Relaxed));
        self.changed.shrink_to_fit();
        std::mem::take(&mut self.bytes)
    }
}

impl Lane {
    fn new() -> Self {
        let inner = Inner {
            events: VecDeque::new(),
            first: 1,
            bytes: 0,
            ages: VecDeque::new(),
            changed: HashMap::new(),
            remembered: REMEMBERED,
            floor: 0,
            written: 0,
            readers: 0,
            left: None,
            was_read: false,
            closed: false,
        };
        Self { inner: Mutex::new(inner), wake: Notify::new() }
    }
}

impl Lanes {
    fn write(
        &self,
        lane: &Lane,
        mark: &Arc<Mark>,
        events: impl IntoIterator<Item = (Arc<Published>, usize)>,
    ) {
        {
            let mut inner = lane.inner.lock();
            if !inner.keeps() {
                // Nobody reads, and for those who did long ago it is enough which sessions changed.
                let count = events.into_iter().count() as u64;
                inner.first += count;
                let last = inner.first - 1;
                if !inner.was_read {
                    inner.floor = inner.first;
                } else if count > 0 {
                    inner.note(mark, last);
                }
                return;
            }
            let (before, mut last) = (inner.bytes, None);
            for (event, bytes) in events {
                let position = inner.next();
                last = Some(position);
                inner.events.push_back((Shout { position, owner: Arc::clone(&mark.owner), event }, bytes));
                inner.bytes += bytes;
            }
            let Some(last) = last else { return };
            inner.note(mark, last);
            while inner.bytes > self.limit && inner.events.len() > 1 {
                if let Some((_, bytes)) = inner.events.pop_front() {
                    inner.bytes -= bytes;
                    inner.first += 1;
                }
            }
            inner.written = self.writes.fetch_add(1, Relaxed);
            // Wraps around where there is less than before.
            self.bytes.fetch_add(inner.bytes.wrapping_sub(before), Relaxed);
        }
        lane.wake.notify_waiters();
        if self.bytes.load(Relaxed) > self.limit.saturating_mul(BUDGET) {
            self.make_room();
        }
    }

    /// Clears those lanes that were written to the longest ago, until there is room for some time.
    fn make_room(&self) {
        let tenants = self.tenants.lock();
        let enough = self.limit.saturating_mul(BUDGET) / 4 * 3;
        let mut lanes: Vec<(u64, &Lane)> =
            tenants.values().map(|lane| (lane.inner.lock().written, &**lane)).collect();
        lanes.sort_unstable_by_key(|(written, _)| *written);
        // The last one is at work.
        lanes.pop();
        for (_, lane) in lanes {
            if self.bytes.load(Relaxed) <= enough {
                return;
            }
            let mut inner = lane.inner.lock();
            self.bytes.fetch_sub(inner.clear(), Relaxed);
        }
    }
}

/// Reads a hub. Costs it nothing: a slow one falls behind, and is told so.
pub struct Listener {
    lane: Arc<Lane>,
    generation: u64,
    /// Of the next event.
    position: u64,
    /// It comes from another generation, of which nothing is left.
    lost: bool,
    wanted: Box<dyn Fn(&Owner) -> bool + Send + Sync>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("position", &self.position).finish_non_exhaustive()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut inner = self.lane.inner.lock();
        inner.readers -= 1;
        if inner.readers == 0 {
            inner.left = Some(Instant::now());
        }
    }
}

impl Listener {
    /// The place up to which everything was read, as `(generation, position)`: listening behind it later misses nothing
    /// that is still kept.
    pub fn place(&self) -> (u64, u64) {
        (self.generation, self.position - 1)
    }

    /// What is next; `None` when the engine stopped. May be dropped and called again.
    pub async fn next(&mut self) -> Option<Heard> {
        loop {
            let lane = Arc::clone(&self.lane);
            let written = lane.wake.notified();
            match self.look() {
                Looked::Heard(heard) => return Some(heard),
                Looked::Closed => return None,
                Looked::Nothing => written.await,
            }
        }
    }

    /// What is there already; `None` when there is nothing.
    pub fn try_next(&mut self) -> Option<Heard> {
        match self.look() {
            Looked::Heard(heard) => Some(heard),
            Looked::Closed | Looked::Nothing => None,
        }
    }

    fn look(&mut self) -> Looked {
        let inner = self.lane.inner.lock();
        if self.lost {
            self.lost = false;
            self.position = inner.next();
            measure::resync("tenant");
            return Looked::Heard(Heard::Behind { position: self.position - 1, changed: None });
        }
        if self.position < inner.first {
            let missed = self.position;
            self.position = inner.first;
            measure::resync("tenant");
            let changed = (missed >= inner.floor).then(|| {
                let changed = inner.changed.values().filter(|mark| mark.position.load(Relaxed) >= missed);
                let wanted = changed.filter(|mark| (self.wanted)(&mark.owner));
                let mut sessions: Vec<SessionId> = wanted.map(|mark| mark.session).collect();
                sessions.sort_unstable();
                sessions
            });
            return Looked::Heard(Heard::Behind { position: self.position - 1, changed });
        }
        let from = usize::try_from(self.position - inner.first).unwrap_or(usize::MAX);
        for (shout, _) in inner.events.range(from.min(inner.events.len())..) {
            self.position = shout.position + 1;
            if (self.wanted)(&shout.owner) {
                return Looked::Heard(Heard::Event(shout.clone()));
            }
        }
        if inner.closed { Looked::Closed } else { Looked::Nothing }
    }
}

enum Looked {
    Heard(Heard),
    Nothing,
    Closed,
}

#[cfg(test)]
mod tests;

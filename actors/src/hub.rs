//! The events of all sessions of an engine, for those who watch many at once.
//!
//! Every session's ring writes its events into the hub as well: the same ones, made and serialized once. The hub keeps
//! the newest of each tenant up to a number of bytes, apart from those of other tenants, so that a busy one neither wakes
//! nor outruns the readers of another. All tenants together have a budget too: when it is used up, those that were silent
//! for the longest time keep no events. Nobody keeps them for longer than some seconds. A place in it is a generation of the engine and a position; a reader that falls
//! behind is told which sessions changed meanwhile, and reads those from their logs.
//!
//! Requests of sub-sessions are not told twice: here the sub-session's own events tell them.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use playhouse_protocol::SessionId;
use tokio::sync::Notify;

use crate::measure;
use crate::published::Published;

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
    /// A lane is never removed: the positions of its tenant's events must go on counting up.
    tenants: Mutex<HashMap<Arc<str>, Arc<Lane>>>,
}

/// The newest events of one tenant.
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
    closed: bool,
}

/// Where one session writes.
#[derive(Debug)]
pub(crate) struct Outlet {
    lanes: Arc<Lanes>,
    lane: Arc<Lane>,
    mark: Arc<Mark>,
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
        self.lanes.write(&self.lane, &self.mark, events);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves nothing half-written.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    /// A hub that keeps up to `limit` bytes of events for each tenant.
    pub(crate) fn new(generation: u64, limit: usize) -> Self {
        let (bytes, writes) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self { generation, lanes: Arc::new(Lanes { limit, bytes, writes, tenants: Mutex::default() }) }
    }

    /// The generation of the engine, which a place in the hub belongs to.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    fn lane(&self, tenant: &Arc<str>) -> Arc<Lane> {
        let mut tenants = lock(&self.lanes.tenants);
        Arc::clone(tenants.entry(Arc::clone(tenant)).or_insert_with(|| Arc::new(Lane::new())))
    }

    /// Where a session of this owner writes.
    pub(crate) fn outlet(&self, session: SessionId, owner: Owner) -> Outlet {
        let lane = self.lane(&owner.tenant);
        let mark = Arc::new(Mark { session, owner: Arc::new(owner), position: AtomicU64::new(0) });
        Outlet { lanes: Arc::clone(&self.lanes), lane, mark }
    }

    /// Whether it keeps no events.
    pub(crate) fn is_empty(&self) -> bool {
        self.lanes.bytes.load(Relaxed) == 0
    }

    /// Forgets the events that are too old by `now`. To be called from time to time.
    pub(crate) fn age(&self, now: Instant) {
        for lane in lock(&self.lanes.tenants).values() {
            self.lanes.bytes.fetch_sub(lock(&lane.inner).age(now), Relaxed);
        }
    }

    /// Ends all readers.
    pub(crate) fn close(&self) {
        for lane in lock(&self.lanes.tenants).values() {
            lock(&lane.inner).closed = true;
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
        let lane = self.lane(tenant);
        let next = lock(&lane.inner).next();
        let (position, lost) = match after {
            None => (next, false),
            Some((generation, position)) if generation == self.generation && position < next => {
                (position + 1, false)
            }
            Some(_) => (next, true),
        };
        Listener { lane, generation: self.generation, position, lost, wanted: Box::new(wanted) }
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

    /// A session changed at `position`.
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
            let mut inner = lock(&lane.inner);
            let (before, mut last) = (inner.bytes, None);
            for (event, bytes) in events {
                let position = inner.next();
                last = Some(position);
                inner.events.push_back((Shout { position, owner: Arc::clone(&mark.owner), event }, bytes));
                inner.bytes += bytes;
            }
            let Some(last) = last else { return };
            inner.mark(mark, last);
            if inner.changed.len() > inner.remembered {
                inner.forget();
            }
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
        let tenants = lock(&self.tenants);
        let enough = self.limit.saturating_mul(BUDGET) / 4 * 3;
        let mut lanes: Vec<(u64, &Lane)> =
            tenants.values().map(|lane| (lock(&lane.inner).written, &**lane)).collect();
        lanes.sort_unstable_by_key(|(written, _)| *written);
        // The last one is at work.
        lanes.pop();
        for (_, lane) in lanes {
            if self.bytes.load(Relaxed) <= enough {
                return;
            }
            let mut inner = lock(&lane.inner);
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
        let inner = lock(&self.lane.inner);
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
mod tests {
    use playhouse_protocol::event::Provisional;
    use playhouse_protocol::{Event, EventBody, IdGenerator, Seq, Timestamp};

    use super::*;

    fn owner(tenant: &str, workspace: &str) -> Owner {
        Owner { tenant: tenant.into(), workspace: workspace.into() }
    }

    fn sessions(count: usize) -> Vec<SessionId> {
        let mut ids = IdGenerator::new(|_| {});
        (0..count).map(|_| ids.next(Timestamp::from_millis(1))).collect()
    }

    fn event(session: SessionId) -> (Arc<Published>, usize) {
        let body = EventBody::Provisional(Provisional::Resync { after: Seq(1) });
        let (id, at) = ("1.1".parse().unwrap(), Timestamp::from_millis(1));
        (Published::new(Event { id, generation: 7, session, at, body }), 100)
    }

    fn position(heard: Option<Heard>) -> Option<u64> {
        match heard? {
            Heard::Event(shout) => Some(shout.position),
            Heard::Behind { .. } => panic!("it is behind"),
        }
    }

    #[test]
    fn a_reader_is_given_what_is_its_tenants_and_wanted() {
        let (hub, ids) = (Hub::new(7, 10_000), sessions(3));
        let (here, there, foreign) = (owner("a", "/here"), owner("a", "/there"), owner("b", "/here"));
        let mut all = hub.listen(&here.tenant, None, |_| true);
        let mut some = hub.listen(&here.tenant, None, |owner| &*owner.workspace == "/there");
        for (owner, id) in [(&here, ids[0]), (&there, ids[1]), (&foreign, ids[2])] {
            hub.outlet(id, owner.clone()).write([event(id)]);
        }
        assert_eq!((position(all.try_next()), position(all.try_next())), (Some(1), Some(2)));
        assert!(all.try_next().is_none());
        assert_eq!(position(some.try_next()), Some(2));
        assert!(some.try_next().is_none());
        assert_eq!(some.place(), (7, 2));
    }

    #[test]
    fn a_reader_that_comes_back_goes_on_or_hears_what_changed() {
        let (hub, ids) = (Hub::new(7, 250), sessions(3));
        let mine = owner("a", "/a");
        for id in &ids {
            hub.outlet(*id, mine.clone()).write([event(*id)]);
        }
        let mut back = hub.listen(&mine.tenant, Some((7, 2)), |_| true);
        assert_eq!(position(back.try_next()), Some(3));
        assert!(back.try_next().is_none());
        let mut behind = hub.listen(&mine.tenant, Some((7, 0)), |_| true);
        let Some(Heard::Behind { position: 1, changed: Some(changed) }) = behind.try_next() else {
            panic!("the first event is gone")
        };
        let mut expected = ids.clone();
        expected.sort_unstable();
        assert_eq!(changed, expected);
        assert_eq!(position(behind.try_next()), Some(2));
        let mut lost = hub.listen(&mine.tenant, Some((6, 2)), |_| true);
        assert!(matches!(lost.try_next(), Some(Heard::Behind { position: 3, changed: None })));
        assert!(lost.try_next().is_none());
        let mut future = hub.listen(&mine.tenant, Some((7, u64::MAX)), |_| true);
        assert!(matches!(future.try_next(), Some(Heard::Behind { position: 3, changed: None })));
        assert!(future.try_next().is_none());
    }

    #[test]
    fn what_is_not_remembered_any_more_is_not_told_as_unchanged() {
        let (hub, ids) = (Hub::new(1, 1), sessions(5));
        let mine = owner("a", "/a");
        lock(&hub.lane(&mine.tenant).inner).remembered = 4;
        for id in &ids {
            hub.outlet(*id, mine.clone()).write([event(*id)]);
        }
        let heard = |after| hub.listen(&mine.tenant, Some((1, after)), |_| true).try_next();
        assert!(matches!(heard(0), Some(Heard::Behind { changed: None, .. })));
        let Some(Heard::Behind { changed: Some(changed), .. }) = heard(2) else { panic!("it is known") };
        assert_eq!(changed.len(), 3);
    }

    #[test]
    fn a_session_that_was_forgotten_or_has_two_outlets_is_told_when_it_changes_again() {
        let (hub, ids) = (Hub::new(1, 1), sessions(5));
        let mine = owner("a", "/a");
        lock(&hub.lane(&mine.tenant).inner).remembered = 4;
        let outlets: Vec<Outlet> = ids.iter().map(|id| hub.outlet(*id, mine.clone())).collect();
        let again = hub.outlet(ids[0], mine.clone());
        let changed_after = |after| {
            let heard = hub.listen(&mine.tenant, Some((1, after)), |_| true).try_next();
            let Some(Heard::Behind { changed: Some(changed), .. }) = heard else { panic!("it is known") };
            changed
        };
        let write = |outlet: &Outlet| outlet.write([event(outlet.mark.session)]);
        outlets.iter().for_each(write);
        // The first two were forgotten by now.
        write(&outlets[0]);
        write(&outlets[1]);
        let mut expected = vec![ids[0], ids[1], ids[4]];
        expected.sort_unstable();
        assert_eq!(changed_after(4), expected);
        write(&again);
        write(&outlets[0]);
        write(&outlets[1]);
        assert_eq!(changed_after(8).len(), 2);
        assert_eq!(lock(&outlets[0].lane.inner).changed.len(), 3);
    }

    #[test]
    fn nobody_keeps_old_events() {
        let (hub, ids) = (Hub::new(1, 10_000), sessions(2));
        let (mine, began) = (owner("a", "/a"), Instant::now());
        let outlet = hub.outlet(ids[0], mine.clone());
        let kept = || lock(&hub.lane(&mine.tenant).inner).events.len();
        hub.age(began);
        outlet.write([event(ids[0]), event(ids[0])]);
        hub.age(began + KEPT_TO);
        hub.outlet(ids[1], mine.clone()).write([event(ids[1])]);
        hub.age(began + KEPT_TO * 2);
        hub.age(began + KEPT + KEPT_TO - Duration::from_millis(1));
        assert_eq!(kept(), 3);
        hub.age(began + KEPT + KEPT_TO);
        assert_eq!(kept(), 1);
        let mut behind = hub.listen(&mine.tenant, Some((1, 0)), |_| true);
        let Some(Heard::Behind { position: 2, changed: Some(changed) }) = behind.try_next() else {
            panic!("it is told which changed")
        };
        assert_eq!(changed.len(), 2);
        assert_eq!(position(behind.try_next()), Some(3));
        hub.age(began + KEPT * 2);
        assert!(hub.is_empty());
        assert_eq!(kept(), 0);
        outlet.write([event(ids[0])]);
        assert_eq!(position(behind.try_next()), Some(4), "who has read all misses nothing");
    }

    #[test]
    fn all_tenants_together_keep_what_the_budget_allows() {
        let (hub, ids) = (Hub::new(1, 1_000), sessions(1));
        let tenants: Vec<Owner> = (0..100).map(|number| owner(&format!("t{number}"), "/a")).collect();
        for mine in &tenants {
            let outlet = hub.outlet(ids[0], mine.clone());
            (0..20).for_each(|_| outlet.write([event(ids[0])]));
            let kept = |owner: &Owner| lock(&hub.lane(&owner.tenant).inner).bytes;
            let sum: usize = tenants.iter().map(kept).sum();
            assert_eq!(sum, hub.lanes.bytes.load(Relaxed));
            assert!(sum <= 8 * 1_000, "{sum}");
            assert_eq!(kept(mine), 1_000, "who is at work keeps what one may");
        }
        // Places go on counting up, and who comes back is told that anything may have changed.
        let first = &tenants[0];
        let mut behind = hub.listen(&first.tenant, Some((1, 15)), |_| true);
        assert!(matches!(behind.try_next(), Some(Heard::Behind { position: 20, changed: None })));
        hub.outlet(ids[0], first.clone()).write([event(ids[0])]);
        assert_eq!(position(behind.try_next()), Some(21));
    }

    #[tokio::test]
    async fn a_reader_that_waits_is_woken_and_ends_with_the_engine() {
        let (hub, ids) = (Arc::new(Hub::new(1, 1_000)), sessions(1));
        let mine = owner("a", "/a");
        let mut reader = hub.listen(&mine.tenant, None, |_| true);
        let waiting = tokio::spawn(async move { (reader.next().await, reader.next().await) });
        tokio::task::yield_now().await;
        hub.outlet(ids[0], mine).write([event(ids[0])]);
        hub.close();
        let (event, end) = waiting.await.unwrap();
        assert_eq!(position(event), Some(1));
        assert!(end.is_none());
    }
}

//! The task that translates.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use playhouse_actors::{Heard, Listener, LspServers, Published};
use playhouse_protocol::event::{ChangeAuthor, FilesChanged, Provisional};
use playhouse_protocol::{Entry, Event, EventBody, Record, Seq, SessionId, Timestamp};
use playhouse_session::Session;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Feed;
use super::load::{live, load};
use crate::app::App;
use crate::discreet;
use crate::wire::inline;
use crate::wire::shapes::WireEvent;
use crate::wire::translate::Live;

/// Sessions without work that are remembered.
const REMEMBERED: usize = 256;
/// Directories of which it is known which change of files was told last.
const MOST_BATCHES: usize = 4_096;
/// How often output of running calls is looked for that nobody saw.
const TICK: Duration = Duration::from_millis(250);

/// Translates until the engine or the server ends.
pub(super) async fn run(work: Work, mut listener: Listener, ready: watch::Sender<bool>) {
    work.seed().await;
    ready.send_replace(true);
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut servers = work.app.engine().lsp().map(LspServers::changes);
    let mut writing = Writing { sessions: HashSet::new(), last: (Timestamp::default(), Instant::now()) };
    loop {
        tokio::select! {
            biased;
            () = work.app.closing().cancelled() => break,
            heard = listener.next() => match heard {
                Some(Heard::Event(shout)) => {
                    let event = shout.event.event();
                    work.event(event).await;
                    let may_wait = match &event.body {
                        EventBody::Provisional(provisional) => matches!(provisional, Provisional::CallOutput { .. }),
                        EventBody::Durable(record) => matches!(**record, Record::TurnEnded(_)),
                    };
                    if may_wait && work.waits(event.session) {
                        writing.sessions.insert(event.session);
                        writing.last = (event.at, Instant::now());
                    }
                }
                Some(Heard::Behind { changed, .. }) => work.behind(changed).await,
                None => break,
            },
            () = changed(&mut servers) => work.servers_changed(),
            _ = tick.tick(), if !writing.sessions.is_empty() => work.tick(&mut writing),
        }
        // One busy tenant leaves the worker to the others now and then.
        tokio::task::consume_budget().await;
    }
    work.feed.ring.close();
}

/// Waits until a language server starts or ends; for ever where there are none.
async fn changed(servers: &mut Option<watch::Receiver<u64>>) {
    if let Some(changes) = servers
        && changes.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Sessions of which something is told later, as of calls that write.
struct Writing {
    sessions: HashSet<SessionId>,
    /// When the last of them wrote, by the clock of events and by that of this task.
    last: (Timestamp, Instant),
}

impl Writing {
    /// What the clock of events says now.
    fn now(&self) -> Timestamp {
        let (at, heard) = self.last;
        let since = u64::try_from(heard.elapsed().as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_millis(at.as_millis().saturating_add(since))
    }
}

/// What is translated, and where to.
pub(super) struct Work {
    pub(super) app: App,
    pub(super) tenant: Arc<str>,
    pub(super) feed: Arc<Feed>,
    /// Whether errors are told as they came.
    pub(super) reads_all: bool,
}

impl Work {
    /// Learns of the sessions that have work.
    async fn seed(&self) {
        let busy = match self.app.engine().busy(&*self.tenant).await {
            Ok(busy) => busy,
            Err(error) => {
                tracing::warn!(tenant = %self.tenant, %error, "the sessions with work cannot be listed");
                return;
            }
        };
        for summary in busy {
            self.reload(summary.id).await;
        }
    }

    /// Tells it in the directories of the sessions that are known.
    fn servers_changed(&self) {
        let mut places: Vec<_> =
            self.feed.lives.lock().values().map(|live| Arc::clone(live.place())).collect();
        places.sort_by(|one, other| one.directory.cmp(&other.directory));
        places.dedup_by(|one, other| one.directory == other.directory);
        places.iter().for_each(|place| self.feed.ring.write(place, vec![WireEvent::LspUpdated {}]));
    }

    /// Whether something of a session is to be told later.
    fn waits(&self, id: SessionId) -> bool {
        self.feed.lives.lock().get(&id).is_some_and(Live::waits)
    }

    async fn event(&self, event: &Event) {
        if self.is_told(event) {
            return;
        }
        let told = if self.reads_all { None } else { discreet::event(event) };
        let event = told.as_ref().unwrap_or(event);
        let id = event.session;
        let mut out = Vec::new();
        let told = {
            let mut lives = self.feed.lives.lock();
            lives.get_mut(&id).map(|live| (live.on(event, &mut out), Arc::clone(live.place())))
        };
        match told {
            Some((Ok(()), place)) => {
                inline::events(&self.app, &self.tenant, &mut out).await;
                self.feed.ring.write(&place, out);
                self.forget(event);
            }
            Some((Err(lost), _)) => {
                tracing::debug!(session = %id, ?lost, "events of a session were missed");
                self.behind(Some(vec![id])).await;
            }
            None => self.first(event).await,
        }
    }

    /// Whether another session of the directory told the same change of files already.
    fn is_told(&self, event: &Event) -> bool {
        let EventBody::Provisional(Provisional::FileChanged(FilesChanged { batch, by, .. })) = &event.body
        else {
            return false;
        };
        let directory =
            self.feed.lives.lock().get(&event.session).map(|live| Arc::clone(&live.place().directory));
        let (Some(directory), ChangeAuthor::Outside | ChangeAuthor::Unclear) = (directory, by) else {
            return false;
        };
        let mut batches = self.feed.batches.lock();
        if batches.len() > MOST_BATCHES {
            batches.clear();
        }
        let last = batches.entry((directory, *by)).or_default();
        std::mem::replace(last, (*last).max(*batch)) >= *batch
    }

    /// Takes the first event of a session that is not known, or was forgotten.
    async fn first(&self, event: &Event) {
        let record = match &event.body {
            EventBody::Durable(record) => Some(&**record),
            // It adds nothing to what is read when the next record comes.
            EventBody::Provisional(Provisional::DescendantRequest { .. } | Provisional::Resync { .. }) => {
                return;
            }
            EventBody::Provisional(_) => None,
        };
        let is_new = matches!(record, Some(Record::SessionCreated(_) | Record::Forked(_)));
        let known = match record {
            Some(record @ Record::SessionCreated(_)) => {
                let entry = Entry { seq: event.id.seq, at: event.at, record: record.clone() };
                match Session::begin(&entry) {
                    Ok(session) => live(&self.app, session).await,
                    Err(_) => None,
                }
            }
            // It is another session before this record, the one that it shares the rest with.
            Some(Record::Forked(_)) => load(self, event.session, Some(event.id.seq)).await,
            _ => {
                // The event itself is told after it is known what came before it.
                let before = if event.id.is_durable() { Seq(event.id.seq.0 - 1) } else { event.id.seq };
                load(self, event.session, Some(before)).await
            }
        };
        let Some(mut known) = known else { return };
        let mut out = Vec::new();
        if is_new {
            let (session, info) = (event.session, Box::new(known.info()));
            out.push(WireEvent::SessionCreated { session, info: info.clone() });
            // The terminal client learns of new sessions by their changes only.
            out.push(WireEvent::SessionUpdated { session, info });
        } else {
            self.open_parts(event.session, &mut known, &mut out).await;
            if known.on(event, &mut out).is_err() {
                out.clear();
                known.announce(&mut out);
            }
        }
        let place = Arc::clone(known.place());
        self.feed.lives.lock().insert(event.session, known);
        inline::events(&self.app, &self.tenant, &mut out).await;
        self.feed.ring.write(&place, out);
        self.forget(event);
    }

    /// Reads a session as it stands, with what streams, and tells it.
    async fn reload(&self, id: SessionId) {
        self.feed.lives.lock().remove(&id);
        let Some(mut known) = load(self, id, None).await else { return };
        let mut out = Vec::new();
        self.open_parts(id, &mut known, &mut out).await;
        out.clear();
        known.announce(&mut out);
        let place = Arc::clone(known.place());
        self.feed.lives.lock().insert(id, known);
        inline::events(&self.app, &self.tenant, &mut out).await;
        self.feed.ring.write(&place, out);
    }

    /// Adds the parts that stream now.
    async fn open_parts(&self, id: SessionId, known: &mut Live, out: &mut Vec<WireEvent>) {
        if known.is_idle() {
            return;
        }
        let Ok(session) = self.app.engine().session(id).await else { return };
        let Ok(mut events) = session.events(None).await else { return };
        let mut next = || events.next().now_or_never().and_then(Result::ok).flatten();
        while let Some(event) = next() {
            let event = Published::event(&event);
            // Snapshots come first; what comes after them comes through the hub as well.
            if !matches!(&event.body, EventBody::Provisional(Provisional::PartSnapshot { .. })) {
                break;
            }
            // Snapshots always fit.
            let _ = known.on(event, out);
        }
    }

    /// Events were missed: clients are told to read everything again in the directories where something changed.
    async fn behind(&self, changed: Option<Vec<SessionId>>) {
        let known: Vec<SessionId> = {
            let lives = self.feed.lives.lock();
            let changed = |id: &SessionId| changed.as_ref().is_none_or(|changed| changed.contains(id));
            lives.keys().filter(|id| changed(id)).copied().collect()
        };
        let mut stale: BTreeSet<SessionId> = known.into_iter().collect();
        stale.extend(changed.into_iter().flatten());
        let busy = self.app.engine().busy(&*self.tenant).await.unwrap_or_default();
        stale.extend(busy.into_iter().map(|summary| summary.id));
        let mut told = BTreeSet::new();
        for id in stale {
            self.reload(id).await;
            let place = self.feed.lives.lock().get(&id).map(|live| Arc::clone(live.place()));
            let Some(place) = place else { continue };
            if told.insert(Arc::clone(&place.directory)) {
                let directory = place.directory.to_string();
                let disposed = WireEvent::Disposed { directory };
                self.feed.ring.write(&place, vec![disposed]);
            }
        }
    }

    /// Forgets what is gone, and sessions without work when there are many.
    fn forget(&self, event: &Event) {
        let mut lives = self.feed.lives.lock();
        if matches!(&event.body, EventBody::Durable(record) if matches!(**record, Record::Deleted {})) {
            lives.remove(&event.session);
        }
        if lives.len() > 2 * REMEMBERED {
            let mut idle: Vec<(Timestamp, SessionId)> = lives
                .iter()
                .filter(|(_, live)| live.is_idle())
                .map(|(id, live)| (live.summary().updated, *id))
                .collect();
            idle.sort_unstable();
            let many = idle.len().saturating_sub(REMEMBERED);
            idle.iter().take(many).for_each(|(_, id)| drop(lives.remove(id)));
        }
    }

    /// Tells the output that nobody saw of these sessions, and leaves out those whose calls are over.
    fn tick(&self, writing: &mut Writing) {
        let now = writing.now();
        let mut told = Vec::new();
        let mut lives = self.feed.lives.lock();
        writing.sessions.retain(|id| {
            let Some(live) = lives.get_mut(id) else { return false };
            let mut out = Vec::new();
            live.tick(now, &mut out);
            told.push((Arc::clone(live.place()), out));
            live.waits()
        });
        drop(lives);
        for (place, out) in told {
            self.feed.ring.write(&place, out);
        }
    }
}

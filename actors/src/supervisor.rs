//! The supervisor: owns the table of sessions. It wakes a session from its log when somebody asks for it, respawns one
//! that crashed, and parks one that crashed too often or whose log cannot be trusted.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use playhouse_protocol::{CommandError, Metric, Record, Seq, SessionId, SessionSummary};
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};

use crate::engine::Stopped;
use crate::hub::Owner;
use crate::measure::{self, Count, Doing, Standing};
use crate::metering::MeteringMessage;
use crate::ring::Ring;
use crate::session::{SessionActor, SessionArguments, SessionMessage};
use crate::shared::Shared;
use crate::wake::{Loaded, load};

/// More crashes than this within [`CRASH_WINDOW`] park a session.
const CRASH_LIMIT: usize = 3;
const CRASH_WINDOW: Duration = Duration::from_secs(60);
/// Wait before the first respawn; it doubles with each further crash in the window.
const RESPAWN_WAIT: Duration = Duration::from_millis(100);
/// Why the actor of a session stops that was removed from the store.
pub(crate) const REMOVED: &str = "the session was removed";
/// How long a session may take to stop at shutdown.
const STOP_WAIT: Duration = Duration::from_secs(2);

/// A session in memory.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) actor: ActorRef<SessionMessage>,
    pub(crate) ring: Arc<Ring>,
}

type FindPort = RpcReplyPort<Result<Live, CommandError>>;

pub(crate) enum SupervisorMessage {
    /// Give me this session; wake it if it sleeps.
    Find(SessionId, FindPort),
    /// A session was read from its log, or could not be.
    Woken(SessionId, Result<Box<Loaded>, CommandError>),
    /// The wait before a respawn is over.
    Respawn(SessionId),
    /// A sub-session below `root` asked its people something, or that was settled.
    Request { root: SessionId, session: SessionId, record: Box<Record> },
    /// A session was removed from the store.
    Removed(SessionId),
    /// Stop all sessions.
    Stop(RpcReplyPort<Stopped>),
}

#[derive(Default)]
struct Slot {
    stage: Stage,
    /// When it crashed lately.
    crashes: VecDeque<Instant>,
    /// Kept over a crash, so that subscribers go on. There is also one for a session that sleeps while requests of
    /// sub-sessions wait for its clients.
    ring: Option<Arc<Ring>>,
    /// The session at the top, for a sub-session that was woken.
    root: Option<SessionId>,
}

impl Slot {
    /// Tells the subscribers that it does not come back, and why: they would wait for ever.
    fn close(&self, error: &CommandError) {
        if let Some(ring) = &self.ring {
            ring.close(Some(error.clone()));
        }
    }
}

#[derive(Default)]
enum Stage {
    /// Not in memory.
    #[default]
    Asleep,
    /// It is being read, or waits for its respawn; these callers wait for it.
    Waking(Vec<FindPort>, #[allow(dead_code, reason = "held for its count")] Standing),
    Live(Live),
    /// It cannot go on.
    Parked(String, #[allow(dead_code, reason = "held for its count")] Standing),
}

pub(crate) struct SupervisorState {
    shared: Arc<Shared>,
    sessions: HashMap<SessionId, Slot>,
    /// Which session an actor is.
    actors: HashMap<ActorId, SessionId>,
    stopping: bool,
}

pub(crate) struct Supervisor;

impl Actor for Supervisor {
    type Msg = SupervisorMessage;
    type State = SupervisorState;
    type Arguments = Arc<Shared>;

    async fn pre_start(
        &self,
        _: ActorRef<SupervisorMessage>,
        shared: Arc<Shared>,
    ) -> Result<SupervisorState, ActorProcessingErr> {
        Ok(SupervisorState { shared, sessions: HashMap::new(), actors: HashMap::new(), stopping: false })
    }

    async fn handle(
        &self,
        myself: ActorRef<SupervisorMessage>,
        message: SupervisorMessage,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        state.shared.measures.census.leave(Count::Supervisor);
        match message {
            SupervisorMessage::Find(session, port) => state.find(&myself, session, port),
            SupervisorMessage::Woken(session, woken) => Box::pin(state.woken(&myself, session, woken)).await,
            SupervisorMessage::Respawn(session) => state.wake(&myself, session),
            SupervisorMessage::Request { root, session, record } => state.request(root, session, *record),
            SupervisorMessage::Removed(session) => state.forget(session),
            SupervisorMessage::Stop(port) => Box::pin(state.stop(port)).await,
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<SupervisorMessage>,
        event: SupervisionEvent,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(who, why) => state.crashed(&myself, who.get_id(), &why.to_string()),
            SupervisionEvent::ActorTerminated(who, _, why) => {
                if let Some(session) = state.actors.get(&who.get_id())
                    && let Some(Slot { stage: Stage::Live(live), .. }) = state.sessions.get(session)
                    && live.actor.get_id() == who.get_id()
                    && !state.stopping
                {
                    if why.as_deref() == Some(REMOVED) {
                        // What it said of that comes later: the end of an actor is told before messages.
                        let session = *session;
                        state.forget(session);
                        return Ok(());
                    }
                    let why = why.unwrap_or_else(|| "it stopped".into());
                    state.crashed(&myself, who.get_id(), &why);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl SupervisorState {
    fn find(&mut self, myself: &ActorRef<SupervisorMessage>, session: SessionId, port: FindPort) {
        if self.stopping {
            drop(port.send(Err(CommandError::NotAccepted("the engine stops".into()))));
            return;
        }
        let slot = self.sessions.entry(session).or_default();
        match &mut slot.stage {
            Stage::Live(live) => drop(port.send(Ok(live.clone()))),
            Stage::Waking(waiting, _) => waiting.push(port),
            Stage::Parked(reason, _) => {
                drop(port.send(Err(CommandError::Parked { session, reason: reason.clone() })));
            }
            Stage::Asleep => {
                let standing = self.shared.measures.census.standing(Doing::Waking);
                slot.stage = Stage::Waking(vec![port], standing);
                self.wake(myself, session);
            }
        }
    }

    /// Reads a session from its log, away from this actor.
    fn wake(&mut self, myself: &ActorRef<SupervisorMessage>, session: SessionId) {
        if self.stopping || !self.sessions.contains_key(&session) {
            return;
        }
        let (shared, myself) = (Arc::clone(&self.shared), myself.clone());
        let began = Instant::now();
        tokio::spawn(async move {
            let (pool, census) = (shared.pool.clone(), Arc::clone(&shared.measures.census));
            let woken = pool.run(move || load(&shared, session)).await;
            if woken.is_ok() {
                measure::took(Metric::WakeDuration, began.elapsed());
            }
            census.enter(Count::Supervisor);
            // A supervisor that is gone wakes nobody.
            drop(myself.send_message(SupervisorMessage::Woken(session, woken.map(Box::new))));
        });
    }

    async fn woken(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        session: SessionId,
        woken: Result<Box<Loaded>, CommandError>,
    ) {
        let Some(slot) = self.sessions.get_mut(&session) else { return };
        let Stage::Waking(waiting, _) = std::mem::take(&mut slot.stage) else { return };
        let result = match woken {
            Ok(loaded) if !self.stopping => {
                slot.root = loaded.root;
                let head = loaded.session.summary.head;
                let owner = owner(&loaded.session.summary);
                let (generation, limit) = (self.shared.generation, self.shared.ring_bytes);
                let ring =
                    slot.ring.get_or_insert_with(|| Arc::new(Ring::new(session, generation, limit, head)));
                ring.report_to(|| self.shared.hub.outlet(session, owner));
                ring.take_over(head);
                let arguments = SessionArguments {
                    loaded: *loaded,
                    ring: Arc::clone(ring),
                    shared: Arc::clone(&self.shared),
                    supervisor: myself.clone(),
                };
                let ring = Arc::clone(ring);
                Actor::spawn_linked(None, SessionActor, Box::new(arguments), myself.get_cell())
                    .await
                    .map(|(actor, _)| Live { actor, ring })
                    .map_err(|error| CommandError::NotAccepted(error.to_string()))
            }
            Ok(_) => Err(CommandError::NotAccepted("the engine stops".into())),
            Err(error) => Err(error),
        };
        match &result {
            Ok(live) => {
                self.actors.insert(live.actor.get_id(), session);
                if live.actor.send_message(SessionMessage::Resume).is_ok() {
                    slot.stage = Stage::Live(live.clone());
                }
            }
            Err(error) => {
                slot.close(error);
                match error {
                    CommandError::Parked { reason, .. } => {
                        tracing::error!(%session, %reason, "parked");
                        let standing = self.shared.measures.census.standing(Doing::Parked);
                        slot.stage = Stage::Parked(reason.clone(), standing);
                        self.shared.purses.abandon(session);
                    }
                    _ => drop(self.sessions.remove(&session)),
                }
            }
        }
        for port in waiting {
            // A caller that went away needs no answer.
            drop(port.send(result.clone()));
        }
    }

    /// A session's actor crashed: it comes back from its log after a wait, or is parked.
    fn crashed(&mut self, myself: &ActorRef<SupervisorMessage>, actor: ActorId, why: &str) {
        let Some(session) = self.actors.remove(&actor) else { return };
        let Some(slot) = self.sessions.get_mut(&session) else { return };
        let now = Instant::now();
        slot.crashes.retain(|crash| now.duration_since(*crash) < CRASH_WINDOW);
        slot.crashes.push_back(now);
        let count = slot.crashes.len();
        tracing::error!(%session, why, count, "a session's actor crashed");
        measure::happened(Metric::SessionCrashes);
        let census = Arc::clone(&self.shared.measures.census);
        if count > CRASH_LIMIT {
            let reason = format!("it crashed {count} times within a minute, last with: {why}");
            slot.close(&CommandError::Parked { session, reason: reason.clone() });
            slot.stage = Stage::Parked(reason, census.standing(Doing::Parked));
            self.shared.purses.abandon(session);
            if let Some(root) = slot.root {
                // Nobody can answer them any more.
                self.forget_requests(root, session);
            }
            return;
        }
        slot.stage = Stage::Waking(Vec::new(), census.standing(Doing::Waking));
        let doublings = u32::try_from(count - 1).unwrap_or(u32::MAX);
        let wait = RESPAWN_WAIT.saturating_mul(2_u32.saturating_pow(doublings));
        let respawn = move || {
            census.enter(Count::Supervisor);
            SupervisorMessage::Respawn(session)
        };
        drop(myself.send_after(wait, respawn));
    }

    /// Tells the clients of the session at the top of a request of one below it.
    fn request(&mut self, root: SessionId, session: SessionId, record: Record) {
        if self.stopping {
            return;
        }
        let slot = self.sessions.entry(root).or_default();
        let (generation, limit) = (self.shared.generation, self.shared.ring_bytes);
        // One that sleeps gets its place in the log when it wakes.
        let new = || Arc::new(Ring::new(root, generation, limit, Seq::START));
        slot.ring.get_or_insert_with(new).request(session, record);
        self.drop_idle(root);
    }

    fn forget_requests(&mut self, root: SessionId, session: SessionId) {
        if let Some(ring) = self.sessions.get(&root).and_then(|slot| slot.ring.as_ref()) {
            ring.forget_requests(session);
        }
        self.drop_idle(root);
    }

    /// Forgets a session that was never woken and for whose clients nothing waits.
    fn drop_idle(&mut self, session: SessionId) {
        let Some(Slot { stage: Stage::Asleep, ring: Some(ring), .. }) = self.sessions.get(&session) else {
            return;
        };
        if !ring.has_requests() {
            self.sessions.remove(&session);
        }
    }

    fn forget(&mut self, session: SessionId) {
        if let Some(Slot { stage: Stage::Live(live), .. }) = self.sessions.remove(&session) {
            self.actors.remove(&live.actor.get_id());
        }
        self.shared.measures.census.enter(Count::Metering);
        drop(self.shared.metering.send_message(MeteringMessage::Forget(session)));
    }

    async fn stop(&mut self, port: RpcReplyPort<Stopped>) {
        self.stopping = true;
        self.shared.hub.close();
        let mut stopped = Stopped::default();
        let mut ended = Vec::new();
        for (session, slot) in std::mem::take(&mut self.sessions) {
            if let Some(ring) = &slot.ring {
                ring.close(None);
            }
            match slot.stage {
                Stage::Live(live) => ended.push(async move {
                    // Its children end with it.
                    let in_time = live.actor.stop_and_wait(None, Some(STOP_WAIT)).await.is_ok();
                    (session, in_time)
                }),
                Stage::Waking(waiting, _) => {
                    for port in waiting {
                        drop(port.send(Err(CommandError::NotAccepted("the engine stops".into()))));
                    }
                }
                Stage::Asleep | Stage::Parked(..) => {}
            }
        }
        for (session, in_time) in futures::future::join_all(ended).await {
            stopped.sessions += 1;
            if !in_time {
                stopped.stragglers.push(format!("session {session}"));
            }
        }
        self.actors.clear();
        drop(port.send(stopped));
    }
}

/// Whose the events of the session with this summary are.
pub(crate) fn owner(summary: &SessionSummary) -> Owner {
    Owner { tenant: summary.tenant.as_str().into(), workspace: summary.workspace.as_str().into() }
}

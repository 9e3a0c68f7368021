//! The supervisor: owns the table of sessions. It wakes a session from its log when somebody asks for it, lets it leave
//! memory when it rests, respawns one that crashed, and parks one that crashed too often or whose log cannot be trusted.

mod memory;
mod sleep;
mod slot;
mod suspended;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use playhouse_protocol::{CommandError, Metric, Record, Seq, SessionId};
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};

use self::slot::{Slot, Stage};
use self::suspended::HeldUp;
use crate::api::removal::Remover;
use crate::base::gate::Gate;
use crate::base::{begins, panic_text, spawn};
use crate::context::EngineContext;
use crate::events::hub::Owner;
use crate::events::ring::Ring;
use crate::mailbox::{
    FindPort, Found, HELD_UP, LEFT, Live, REMOVED, RUNTIME_ENDS, SessionMessage, Stopped, SupervisorMessage,
    UNSURE,
};
use crate::measure::{self, Count, Doing};
use crate::metering::MeteringMessage;
use crate::session::{SessionActor, SessionArguments};
use crate::wake::{Loaded, Read, load};

/// More crashes than this within [`CRASH_WINDOW`] park a session.
const CRASH_LIMIT: usize = 3;
const CRASH_WINDOW: Duration = Duration::from_secs(60);
/// Wait before the first respawn; it doubles with each further crash in the window.
const RESPAWN_WAIT: Duration = Duration::from_millis(100);
/// What the end of a session's actor is called in traces.
const ENDED: &str = "ended";
/// How long a session may take to stop at shutdown.
const STOP_WAIT: Duration = Duration::from_secs(2);

pub(crate) struct SupervisorState {
    shared: Arc<EngineContext>,
    sessions: HashMap<SessionId, Slot>,
    /// Which session an actor is: those in memory.
    actors: HashMap<ActorId, SessionId>,
    /// Sessions that the store held up.
    held_up: HashMap<SessionId, HeldUp>,
    /// [`SupervisorMessage::GoOn`] is on its way.
    going_on: bool,
    /// [`SupervisorMessage::Sweep`] is on its way.
    sweeping: bool,
    /// [`SupervisorMessage::MakeRoom`] is on its way.
    making_room: bool,
    /// Sessions that left since memory was given back.
    left: memory::Left,
    stopping: bool,
}

pub(crate) struct Supervisor;

impl Actor for Supervisor {
    type Msg = SupervisorMessage;
    type State = SupervisorState;
    type Arguments = Arc<EngineContext>;

    async fn pre_start(
        &self,
        _: ActorRef<SupervisorMessage>,
        shared: Arc<EngineContext>,
    ) -> Result<SupervisorState, ActorProcessingErr> {
        Ok(SupervisorState {
            shared,
            sessions: HashMap::new(),
            actors: HashMap::new(),
            held_up: HashMap::new(),
            going_on: false,
            sweeping: false,
            making_room: false,
            left: memory::Left::default(),
            stopping: false,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<SupervisorMessage>,
        message: SupervisorMessage,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        state.shared.measures.census.leave(Count::Supervisor);
        let (session, name) = (message.of(), message.name());
        // With it all sessions would end: a bug costs one message.
        let taken = AssertUnwindSafe(Box::pin(state.take(&myself, message))).catch_unwind().await;
        if let Err(panic) = taken {
            state.panicked(&myself, session, name, panic_text(&*panic));
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<SupervisorMessage>,
        event: SupervisionEvent,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        let (who, why) = match event {
            SupervisionEvent::ActorFailed(who, why) => (who, why.to_string()),
            SupervisionEvent::ActorTerminated(_, _, Some(why)) if why == RUNTIME_ENDS => return Ok(()),
            SupervisionEvent::ActorTerminated(who, left_over, why) => {
                // What it held of its session's events counts no more.
                drop(left_over);
                (who, why.unwrap_or_else(|| "it stopped".into()))
            }
            _ => return Ok(()),
        };
        if state.stopping {
            return Ok(());
        }
        // One that is not known here failed to start, or was removed.
        let Some(session) = state.actors.remove(&who.get_id()) else { return Ok(()) };
        let taken = catch_unwind(AssertUnwindSafe(|| state.ended(&myself, session, who.get_id(), &why)));
        if let Err(panic) = taken {
            state.panicked(&myself, Some(session), ENDED, panic_text(&*panic));
        }
        Ok(())
    }
}

impl SupervisorState {
    async fn take(&mut self, myself: &ActorRef<SupervisorMessage>, message: SupervisorMessage) {
        begins("supervisor", message.name(), message.of());
        match message {
            SupervisorMessage::Find(session, port) => self.find(myself, session, port),
            SupervisorMessage::Resume(session, port) => self.resume(myself, session, port),
            SupervisorMessage::Woken(session, woken) => self.woken(myself, session, woken).await,
            SupervisorMessage::Respawn(session) => self.wake(myself, session),
            SupervisorMessage::Request { root, session, record } => {
                self.request(myself, root, session, *record)
            }
            SupervisorMessage::Removed(session) => self.forget(session),
            SupervisorMessage::NotRemoved(session) => self.not_removed(myself, session),
            SupervisorMessage::Sweep => self.sweep(myself),
            SupervisorMessage::MakeRoom => self.make_room(myself),
            SupervisorMessage::GoOn => self.go_on(myself),
            SupervisorMessage::SuspendTenants => self.suspend_tenants(),
            SupervisorMessage::Stop(port) => self.stop(port).await,
        }
    }

    /// A session's actor ended.
    fn ended(&mut self, myself: &ActorRef<SupervisorMessage>, session: SessionId, who: ActorId, why: &str) {
        begins("supervisor", ENDED, Some(session));
        let now = self.sessions.get(&session).and_then(|slot| match &slot.stage {
            Stage::Live(live) | Stage::Leaving(live, _) => Some(live.actor.get_id()),
            Stage::Asleep | Stage::Waking(..) | Stage::Parked(..) => None,
        });
        if now.is_some_and(|now| now != who) {
            // Another one has its place already.
            return;
        }
        match why {
            // What it said of that comes later: the end of an actor is told before messages.
            REMOVED => self.forget(session),
            LEFT => self.left(myself, session),
            UNSURE => self.read_again(myself, session),
            HELD_UP => self.suspended(myself, session),
            why => self.crashed(myself, session, why),
        }
    }

    /// A message about this session was lost in the middle. What was under way with it is begun anew.
    fn panicked(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        session: Option<SessionId>,
        message: &str,
        panic: &str,
    ) {
        let about = session.map(tracing::field::display);
        tracing::error!(session = about, message, panic, "the supervisor panicked: a message is lost");
        // What comes again by itself still does.
        self.sweeping &= message != "sweep";
        self.making_room &= message != "make-room";
        self.going_on &= message != "go-on";
        self.keep_sweeping(myself);
        self.watch_room(myself);
        self.keep_going_on(myself);
        let Some(session) = session else { return };
        let lives = match self.sessions.get(&session).map(|slot| &slot.stage) {
            Some(Stage::Live(live) | Stage::Leaving(live, _)) => {
                self.actors.contains_key(&live.actor.get_id())
            }
            Some(Stage::Waking(..)) => false,
            Some(Stage::Asleep | Stage::Parked(..)) | None => return,
        };
        if !lives {
            self.crashed(myself, session, &format!("the supervisor panicked: {panic}"));
        }
    }

    fn find(&mut self, myself: &ActorRef<SupervisorMessage>, session: SessionId, port: FindPort) {
        if self.stopping {
            drop(port.send(Err(CommandError::NotAccepted("the engine stops".into()))));
            return;
        }
        let slot = self.sessions.entry(session).or_default();
        match std::mem::take(&mut slot.stage) {
            Stage::Live(live) => match slot.events.ring().zip(live.gate.enter()) {
                Some((ring, caller)) => {
                    // A caller that went away needs no answer.
                    drop(port.send(Ok(Found { live: live.clone(), ring, caller })));
                    slot.stage = Stage::Live(live);
                }
                None => slot.stage = Stage::Leaving(live, vec![port]),
            },
            Stage::Leaving(live, mut waiting) => {
                waiting.push(port);
                slot.stage = Stage::Leaving(live, waiting);
            }
            Stage::Waking(mut waiting, standing) => {
                waiting.push(port);
                slot.stage = Stage::Waking(waiting, standing);
            }
            Stage::Parked(parking) => {
                drop(port.send(Err(parking.error())));
                slot.stage = Stage::Parked(parking);
            }
            Stage::Asleep => {
                let standing = self.shared.measures.census.standing(Doing::Waking);
                slot.stage = Stage::Waking(vec![port], standing);
                self.wake(myself, session);
                self.keep_sweeping(myself);
            }
        }
    }

    /// Wakes a session to go on with what is unfinished. One that is parked gets another chance.
    fn resume(&mut self, myself: &ActorRef<SupervisorMessage>, session: SessionId, port: FindPort) {
        let slot = self.sessions.entry(session).or_default();
        slot.goes_on = true;
        match &slot.stage {
            Stage::Parked(..) => {
                tracing::info!(%session, "resumed by hand");
                slot.stage = Stage::Asleep;
                slot.crashes.clear();
            }
            // One that goes on already does nothing with it.
            Stage::Live(live) if !slot.doomed => drop(live.actor.send_message(SessionMessage::Resume)),
            Stage::Asleep | Stage::Waking(..) | Stage::Live(_) | Stage::Leaving(..) => {}
        }
        self.find(myself, session, port);
    }

    /// Reads a session from its log, away from this actor.
    fn wake(&mut self, myself: &ActorRef<SupervisorMessage>, session: SessionId) {
        let Some(slot) = self.sessions.get(&session).filter(|_| !self.stopping) else { return };
        let before = slot.gate.clone();
        let (shared, myself) = (Arc::clone(&self.shared), myself.clone());
        let began = Instant::now();
        spawn(async move {
            if let Some(gate) = before {
                // What an actor that was stopped or crashed gave to the store comes into the log after its end.
                gate.written().await;
            }
            let (pool, remover) = (shared.pool.clone(), Remover { shared, supervisor: myself });
            let shared = Arc::clone(&remover.shared);
            let reading = AssertUnwindSafe(pool.run(move || load(&shared, session)));
            let read = reading.catch_unwind().await.unwrap_or_else(|panic| {
                let reason = format!("a bug in the engine: reading it panicked: {}", panic_text(&*panic));
                Err(CommandError::Parked { session, reason })
            });
            let (mut is_left, mut woken) = (false, Err(CommandError::NotFound(session)));
            match read {
                Ok(Read::Session(loaded)) => woken = Ok(loaded),
                // What removed it was cut off.
                Ok(Read::Deleted) => {
                    if let Err(error) = remover.finish(session).await {
                        (is_left, woken) = (true, Err(error));
                    }
                }
                Err(error) => woken = Err(error),
            }
            if woken.is_ok() {
                measure::took(Metric::WakeDuration, began.elapsed());
            }
            remover.shared.measures.census.enter(Count::Supervisor);
            // A supervisor that is gone wakes nobody.
            drop(remover.supervisor.send_message(SupervisorMessage::Woken(session, woken)));
            if is_left {
                remover.tell(session, false);
            }
        });
    }

    async fn woken(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        session: SessionId,
        woken: Result<Box<Loaded>, CommandError>,
    ) {
        let Some(slot) = self.sessions.get_mut(&session) else { return };
        let waiting = match std::mem::take(&mut slot.stage) {
            Stage::Waking(waiting, _) => waiting,
            other => {
                slot.stage = other;
                return;
            }
        };
        let result = match woken {
            Ok(loaded) if !self.stopping => match self.spawn(myself, *loaded).await {
                Ok(spawned) => Ok(spawned),
                Err(error) => Err(self.not_woken(myself, session, error)),
            },
            Ok(_) => Err(CommandError::NotAccepted("the engine stops".into())),
            Err(error) => Err(self.not_woken(myself, session, error)),
        };
        for port in waiting {
            let found = result.clone().and_then(|(live, ring)| {
                let gone = || CommandError::NotAccepted(format!("session {session} is gone again"));
                let caller = live.gate.enter().ok_or_else(gone)?;
                Ok(Found { live, ring, caller })
            });
            // A caller that went away needs no answer.
            drop(port.send(found));
        }
        self.watch_room(myself);
    }

    /// Starts the actor of a session that was read.
    async fn spawn(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        loaded: Loaded,
    ) -> Result<(Live, Arc<Ring>), CommandError> {
        let summary = &loaded.session.summary;
        let (session, head, owner) = (summary.id, summary.head, Owner::of(summary));
        let unfinished = !loaded.session.is_idle();
        let slot = self.sessions.entry(session).or_default();
        slot.root = loaded.root;
        let wanted = self.shared.resume.by_itself() || slot.goes_on;
        (slot.unsure, slot.doomed) = (loaded.unsure, loaded.doomed);
        slot.tenant = Some(Arc::clone(&owner.tenant));
        let is_held = self.shared.space.allows(&owner.tenant).is_err();
        let mut goes_on = (wanted || !unfinished) && !loaded.unsure && !loaded.doomed && !is_held;
        // Its turns would only fail, and a volume may be mounted late.
        if let (true, true, Err(reason)) = (goes_on, unfinished, &loaded.place) {
            tracing::warn!(%session, reason, "what is unfinished waits until somebody resumes it");
            goes_on = false;
        }
        let ring = slot.events.hold(session, self.shared.generation, self.shared.limits.ring_bytes, head);
        ring.report_to(|| self.shared.hub.outlet(session, owner));
        ring.take_over(head);
        let gate = Gate::new();
        slot.gate = Some(Arc::clone(&gate));
        let arguments = SessionArguments {
            loaded,
            ring: Arc::clone(&ring),
            gate: Arc::clone(&gate),
            goes_on,
            shared: Arc::clone(&self.shared),
            supervisor: myself.clone(),
        };
        let (actor, _) = Actor::spawn_linked(None, SessionActor, Box::new(arguments), myself.get_cell())
            .await
            .map_err(|error| CommandError::NotAccepted(error.to_string()))?;
        self.actors.insert(actor.get_id(), session);
        // One that is gone already is told by its end.
        drop(actor.send_message(SessionMessage::Awake));
        let live = Live { actor, gate };
        if let Some(slot) = self.sessions.get_mut(&session) {
            slot.stage = Stage::Live(live.clone());
            if slot.unsure || (is_held && unfinished) {
                self.hold(myself, session, wanted && unfinished);
            }
        }
        Ok((live, ring))
    }

    /// A session could not be woken; what those are told who wait for it.
    fn not_woken(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        session: SessionId,
        error: CommandError,
    ) -> CommandError {
        let Some(slot) = self.sessions.get_mut(&session) else { return error };
        if let (CommandError::Parked { .. } | CommandError::Store(_), Err(suspended)) =
            (&error, self.shared.takes_writes())
        {
            // A store that failed in the middle of a write shows what is not so.
            let wanted = slot.goes_on;
            self.rest_again(session);
            if wanted {
                self.hold_up(myself, session);
            }
            return suspended;
        }
        slot.close(&error);
        match &error {
            CommandError::Parked { reason, .. } => {
                tracing::error!(%session, %reason, "parked");
                let standing = self.shared.measures.census.standing(Doing::Parked);
                slot.stage = Stage::Parked(self.shared.parked.park(session, reason, standing));
                self.shared.purses.abandon(session);
            }
            _ => drop(self.sessions.remove(&session)),
        }
        error
    }

    /// A session's actor crashed: it comes back from its log after a wait, or is parked.
    fn crashed(&mut self, myself: &ActorRef<SupervisorMessage>, session: SessionId, why: &str) {
        let Some(slot) = self.sessions.get_mut(&session) else { return };
        let now = Instant::now();
        slot.crashes.retain(|crash| now.duration_since(*crash) < CRASH_WINDOW);
        slot.crashes.push_back(now);
        let count = slot.crashes.len();
        tracing::error!(%session, why, count, "a session's actor crashed");
        measure::happened(Metric::SessionCrashes);
        let census = Arc::clone(&self.shared.measures.census);
        // What it had begun goes on, whoever had wanted that.
        slot.goes_on = true;
        let waiting = match std::mem::take(&mut slot.stage) {
            Stage::Leaving(_, waiting) | Stage::Waking(waiting, _) => waiting,
            _ => Vec::new(),
        };
        if count > CRASH_LIMIT {
            let reason = format!("it crashed {count} times within a minute, last with: {why}");
            let parking = self.shared.parked.park(session, &reason, census.standing(Doing::Parked));
            let parked = parking.error();
            slot.close(&parked);
            slot.stage = Stage::Parked(parking);
            self.shared.purses.abandon(session);
            for port in waiting {
                drop(port.send(Err(parked.clone())));
            }
            if let Some(root) = slot.root {
                // Nobody can answer them any more.
                self.forget_requests(root, session);
            }
            return;
        }
        slot.stage = Stage::Waking(waiting, census.standing(Doing::Waking));
        let doublings = u32::try_from(count - 1).unwrap_or(u32::MAX);
        let wait = RESPAWN_WAIT.saturating_mul(2_u32.saturating_pow(doublings));
        self.tell_later(myself, wait, SupervisorMessage::Respawn(session));
    }

    /// Tells the clients of the session at the top of a request of one below it.
    fn request(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        root: SessionId,
        session: SessionId,
        record: Record,
    ) {
        if self.stopping {
            return;
        }
        let slot = self.sessions.entry(root).or_default();
        // One that sleeps gets its place in the log when it wakes.
        let ring = slot.events.hold(root, self.shared.generation, self.shared.limits.ring_bytes, Seq::START);
        ring.request(session, record);
        drop(ring);
        self.rest_again(root);
        self.keep_sweeping(myself);
    }

    fn forget_requests(&mut self, root: SessionId, session: SessionId) {
        if let Some(ring) = self.sessions.get(&root).and_then(|slot| slot.events.ring()) {
            ring.forget_requests(session);
        }
        self.rest_again(root);
    }

    fn forget(&mut self, session: SessionId) {
        self.held_up.remove(&session);
        if let Some(slot) = self.sessions.remove(&session) {
            let waiting = match slot.stage {
                Stage::Live(live) => {
                    self.actors.remove(&live.actor.get_id());
                    Vec::new()
                }
                Stage::Leaving(live, waiting) => {
                    self.actors.remove(&live.actor.get_id());
                    waiting
                }
                Stage::Waking(waiting, _) => waiting,
                Stage::Asleep | Stage::Parked(..) => Vec::new(),
            };
            for port in waiting {
                drop(port.send(Err(CommandError::NotFound(session))));
            }
        }
        self.shared.measures.census.enter(Count::Metering);
        drop(self.shared.metering.send_message(MeteringMessage::Forget(session)));
    }

    /// A session is deleted, and its log is still there: it is tried again, as long as this engine runs.
    fn not_removed(&mut self, myself: &ActorRef<SupervisorMessage>, session: SessionId) {
        let has_actor = self.sessions.get(&session).is_some_and(|slot| match &slot.stage {
            Stage::Live(_) | Stage::Leaving(..) => true,
            Stage::Asleep | Stage::Waking(..) | Stage::Parked(..) => false,
        });
        if has_actor {
            self.forget(session);
        }
        self.hold_up(myself, session);
    }

    async fn stop(&mut self, port: RpcReplyPort<Stopped>) {
        self.stopping = true;
        self.held_up.clear();
        self.shared.hub.close();
        let mut stopped = Stopped::default();
        let mut ended = Vec::new();
        for (session, slot) in std::mem::take(&mut self.sessions) {
            if let Some(ring) = slot.events.ring() {
                ring.close(None);
            }
            match slot.stage {
                Stage::Live(live) if live.gate.is_closed() => {}
                Stage::Live(live) => ended.push(async move {
                    // It writes down what its answer has used so far; its children end with it.
                    let told = live.actor.send_message(SessionMessage::Stop).is_ok();
                    let in_time = told && live.actor.wait(Some(STOP_WAIT)).await.is_ok()
                        || live.actor.stop_and_wait(None, Some(STOP_WAIT)).await.is_ok();
                    // One that leaves by itself in this moment cannot be told to.
                    (session, in_time || live.gate.is_closed())
                }),
                Stage::Waking(waiting, _) | Stage::Leaving(_, waiting) => {
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
#[cfg(test)]
mod tests;

//! Sessions that rest leave memory: those that did so for a while, and those that rested longest where there are too many.
//!
//! The supervisor asks, and the session's actor decides, since only it knows what it has under way: see
//! [`crate::session`]. Its [gate](crate::gate) keeps commands out while it goes. Whoever asks for it meanwhile waits until
//! it is gone, and then it is woken again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use playhouse_protocol::SessionId;
use ractor::ActorRef;

use super::SupervisorState;
use super::slot::{Slot, Stage};
use crate::mailbox::{SessionMessage, SupervisorMessage};
use crate::measure::{Count, Doing, Leaving};
use crate::metering::MeteringMessage;

/// How often the table is looked through: so many times within the time after which sessions leave, within these bounds.
const SWEEPS: u32 = 4;
const SHORTEST_SWEEP: Duration = Duration::from_millis(1);
const LONGEST_SWEEP: Duration = Duration::from_secs(15);
/// Where there are too many sessions, one of so many leaves beside those that are too many: then not each that wakes needs a
/// look through all of them.
const SPARE: usize = 64;
/// When it is looked again whether there are too many: while some leave, and where all of them were at work.
const SOON: Duration = Duration::from_millis(20);
const LATER: Duration = Duration::from_secs(1);

impl SupervisorState {
    /// Looks through the table from time to time, while there is somebody in it, or something in the hub, or memory to give back.
    pub(super) fn keep_sweeping(&mut self, myself: &ActorRef<SupervisorMessage>) {
        let is_empty = self.sessions.is_empty() && self.shared.hub.is_empty() && !self.left.are_some();
        if self.sweeping || self.stopping || is_empty {
            return;
        }
        self.sweeping = true;
        let idle_after = self.shared.limits.idle_after.unwrap_or(LONGEST_SWEEP);
        let wait =
            (idle_after / SWEEPS).min(self.shared.limits.settle_after).clamp(SHORTEST_SWEEP, LONGEST_SWEEP);
        self.tell_later(myself, wait, SupervisorMessage::Sweep);
    }

    /// Asks the sessions to leave that rested long enough, and forgets those that sleep and that nobody follows any more, and
    /// events that nobody waits for.
    pub(super) fn sweep(&mut self, myself: &ActorRef<SupervisorMessage>) {
        self.sweeping = false;
        self.sessions.retain(|_, slot| !slot.is_blank());
        // After many left, their places go as well.
        if self.sessions.len() < self.sessions.capacity() / 4 {
            self.sessions.shrink_to(self.sessions.len() * 2);
            self.actors.shrink_to(self.actors.len() * 2);
        }
        for slot in self.sessions.values().filter(|slot| slot.rests()) {
            if let Some(ring) = slot.events.ring() {
                ring.settle();
            }
            if let Stage::Live(live) = &slot.stage
                && rested(slot).is_some_and(|rested| rested >= self.shared.limits.settle_after)
                && live.gate.settle()
            {
                // One that is gone already is told by its end.
                drop(live.actor.send_message(SessionMessage::Settle));
            }
        }
        let now = Instant::now();
        self.shared.hub.age(now);
        self.left.give_back(now, self.actors.len());
        if let Some(idle_after) = self.shared.limits.idle_after {
            for slot in self.sessions.values() {
                if rested(slot).is_some_and(|rested| rested >= idle_after) {
                    ask_to_leave(slot, Leaving::Idle);
                }
            }
        }
        self.keep_sweeping(myself);
    }

    /// Sees that there are not more sessions in memory than there may be.
    pub(super) fn watch_room(&mut self, myself: &ActorRef<SupervisorMessage>) {
        if !self.making_room && self.actors.len() > self.shared.limits.max_live {
            self.making_room = true;
            self.tell_later(myself, Duration::ZERO, SupervisorMessage::MakeRoom);
        }
    }

    /// Asks those to leave that rested longest. Those at work stay, however many there are.
    pub(super) fn make_room(&mut self, myself: &ActorRef<SupervisorMessage>) {
        self.making_room = false;
        let most = self.shared.limits.max_live;
        if self.actors.len() <= most {
            return;
        }
        let about_to = |slot: &Slot| match &slot.stage {
            Stage::Live(live) => live.gate.is_asked(),
            Stage::Leaving(..) => true,
            Stage::Asleep | Stage::Waking(..) | Stage::Parked(..) => false,
        };
        let leaving_already = self.sessions.values().filter(|slot| about_to(slot)).count();
        let surplus = self.actors.len().saturating_sub(most + leaving_already);
        let resting = self.sessions.iter().filter(|(_, slot)| surplus > 0 && !about_to(slot));
        let resting = resting.filter_map(|(session, slot)| Some((rested(slot)?, *session)));
        let mut resting: Vec<(Duration, SessionId)> = resting.collect();
        let leaving = (surplus + most / SPARE).min(resting.len());
        if leaving > 0 && leaving < resting.len() {
            // The longest first.
            resting.select_nth_unstable_by(leaving - 1, |one, other| other.cmp(one));
        }
        for (_, session) in &resting[..leaving] {
            if let Some(slot) = self.sessions.get(session) {
                ask_to_leave(slot, Leaving::Room);
            }
        }
        self.making_room = true;
        let wait = if leaving + leaving_already == 0 { LATER } else { SOON };
        self.tell_later(myself, wait, SupervisorMessage::MakeRoom);
    }

    /// A session's actor left. If somebody wanted it in the meantime, it wakes again.
    pub(super) fn left(&mut self, myself: &ActorRef<SupervisorMessage>, session: SessionId) {
        let Some(slot) = self.sessions.get_mut(&session) else { return };
        let census = &self.shared.measures.census;
        let waiting = match std::mem::take(&mut slot.stage) {
            Stage::Leaving(_, waiting) => waiting,
            _ => Vec::new(),
        };
        self.left.one();
        census.enter(Count::Metering);
        // Without the metering actor nobody asks for totals.
        drop(self.shared.metering.send_message(MeteringMessage::Forget(session)));
        if !waiting.is_empty() {
            slot.stage = Stage::Waking(waiting, census.standing(Doing::Waking));
            self.wake(myself, session);
            return;
        }
        self.rest_again(session);
    }

    /// The events of a session that sleeps were used for requests of sub-sessions: without those nobody but subscribers holds
    /// them.
    pub(super) fn rest_again(&mut self, session: SessionId) {
        let Some(slot) = self.sessions.get_mut(&session) else { return };
        if matches!(slot.stage, Stage::Asleep) {
            let census = &self.shared.measures.census;
            slot.events.let_go(|| census.standing(Doing::Asleep));
            if slot.is_blank() {
                self.sessions.remove(&session);
            }
        }
    }

    pub(super) fn tell_later(
        &self,
        myself: &ActorRef<SupervisorMessage>,
        wait: Duration,
        message: SupervisorMessage,
    ) {
        let census = Arc::clone(&self.shared.measures.census);
        // The timer ends with the actor.
        drop(myself.send_after(wait, move || {
            census.enter(Count::Supervisor);
            message
        }));
    }
}

/// For how long a session in memory has rested.
fn rested(slot: &Slot) -> Option<Duration> {
    match &slot.stage {
        Stage::Live(live) => live.gate.rested(),
        _ => None,
    }
}

fn ask_to_leave(slot: &Slot, why: Leaving) {
    if let Stage::Live(live) = &slot.stage
        && live.gate.ask()
    {
        // One that is gone already is told by its end.
        drop(live.actor.send_message(SessionMessage::Leave(why)));
    }
}

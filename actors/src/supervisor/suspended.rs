//! Sessions that the store holds up: it takes no writes, as the disk is full, for example.
//!
//! The actor of a session that cannot append stops, with what ran in it, as after a crash; but that counts as none, and
//! whoever follows its events still does. When the store takes writes again the sessions are read from their logs and go
//! on, a few at a time. One that is held up again and again waits longer each time: every new beginning may cost a request
//! to a model.
//!
//! A session that is read in the meantime can be looked at and does nothing. What it was read from may be gone when the
//! store was opened again, so it is read once more then.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use playhouse_protocol::SessionId;
use ractor::ActorRef;

use super::SupervisorState;
use super::slot::Stage;
use crate::mailbox::{SessionMessage, SupervisorMessage, UNSURE};
use crate::measure::{Doing, Standing};

/// How often it is looked whether sessions can go on, and how many do at once.
const LOOK: Duration = Duration::from_millis(100);
const AT_ONCE: usize = 8;
/// How long one waits at least that was held up, for the first time and at most. It doubles each time.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// After so long without it is forgotten how often a session was held up.
const FORGOTTEN: Duration = Duration::from_secs(5 * 60);

/// What is known of a session that was held up.
pub(super) struct HeldUp {
    times: u32,
    last: Instant,
    /// `None` when it went on since.
    waits: Option<Waits>,
    /// While this one is suspended for lack of space, the session is.
    tenant: Option<Arc<str>>,
}

struct Waits {
    not_before: Instant,
    /// Whether it goes on with what is unfinished; one that was only looked at is read again at most.
    goes_on: bool,
    #[allow(dead_code, reason = "held for its count")]
    standing: Standing,
}

impl SupervisorState {
    /// A session's actor stopped because it could not append.
    pub(super) fn suspended(&mut self, myself: &ActorRef<SupervisorMessage>, session: SessionId) {
        tracing::info!(%session, "suspended until the store takes writes, or there is space for its tenant");
        self.hold_up(myself, session);
        self.ended_for_now(myself, session, false);
    }

    /// A session's actor was stopped that was read while the store took no writes.
    pub(super) fn read_again(&mut self, myself: &ActorRef<SupervisorMessage>, session: SessionId) {
        let wanted = self.sessions.get(&session).is_some_and(|slot| slot.goes_on);
        self.ended_for_now(myself, session, wanted);
    }

    /// Its actor is gone. It wakes again if somebody waits for it, or `wakes`.
    fn ended_for_now(&mut self, myself: &ActorRef<SupervisorMessage>, session: SessionId, wakes: bool) {
        let Some(slot) = self.sessions.get_mut(&session) else { return };
        let waiting = match std::mem::take(&mut slot.stage) {
            Stage::Leaving(_, waiting) | Stage::Waking(waiting, _) => waiting,
            Stage::Asleep | Stage::Live(_) | Stage::Parked(..) => Vec::new(),
        };
        if wakes || !waiting.is_empty() {
            slot.stage = Stage::Waking(waiting, self.shared.measures.census.standing(Doing::Waking));
            self.wake(myself, session);
        } else {
            self.rest_again(session);
        }
    }

    /// A session goes on when the store takes writes again, and when it has waited longer than the last time.
    pub(super) fn hold_up(&mut self, myself: &ActorRef<SupervisorMessage>, session: SessionId) {
        let now = Instant::now();
        let times = match self.held_up.get(&session) {
            Some(held) if now.duration_since(held.last) < FORGOTTEN => held.times.saturating_add(1),
            _ => 1,
        };
        let waits = self.waits(now + wait_after(times), true);
        let tenant = self.tenant_of(session);
        self.held_up.insert(session, HeldUp { times, last: now, waits: Some(waits), tenant });
        self.keep_going_on(myself);
    }

    /// A session that was read while the store took no writes is read again when it does.
    pub(super) fn hold(&mut self, myself: &ActorRef<SupervisorMessage>, session: SessionId, goes_on: bool) {
        let now = Instant::now();
        let waits = self.waits(now, goes_on);
        let tenant = self.tenant_of(session);
        let held = self.held_up.entry(session).or_insert(HeldUp { times: 0, last: now, waits: None, tenant });
        match &mut held.waits {
            Some(before) => before.goes_on |= goes_on,
            none => *none = Some(waits),
        }
        self.keep_going_on(myself);
    }

    /// Sessions of tenants that are suspended for lack of space stop, if something runs in them.
    pub(super) fn suspend_tenants(&self) {
        let space = &self.shared.space;
        for slot in self.sessions.values() {
            let is_held = slot.tenant.as_ref().is_some_and(|tenant| space.allows(tenant).is_err());
            if let (true, Stage::Live(live)) = (is_held, &slot.stage) {
                // One that is gone does nothing any more.
                drop(live.actor.send_message(SessionMessage::Suspend));
            }
        }
    }

    fn tenant_of(&self, session: SessionId) -> Option<Arc<str>> {
        self.sessions.get(&session)?.tenant.clone()
    }

    fn waits(&self, not_before: Instant, goes_on: bool) -> Waits {
        Waits { not_before, goes_on, standing: self.shared.measures.census.standing(Doing::Suspended) }
    }

    /// Looks from time to time, while sessions wait.
    pub(super) fn keep_going_on(&mut self, myself: &ActorRef<SupervisorMessage>) {
        if self.going_on || self.stopping || !self.held_up.values().any(|held| held.waits.is_some()) {
            return;
        }
        self.going_on = true;
        self.tell_later(myself, LOOK, SupervisorMessage::GoOn);
    }

    /// Lets some of the sessions go on that wait, if the store takes writes.
    pub(super) fn go_on(&mut self, myself: &ActorRef<SupervisorMessage>) {
        self.going_on = false;
        let now = Instant::now();
        if self.shared.takes_writes().is_ok() {
            let space = &self.shared.space;
            let may_go_on =
                |held: &HeldUp| held.tenant.as_ref().is_none_or(|tenant| space.allows(tenant).is_ok());
            for session in due(&self.held_up, now, may_go_on) {
                self.let_go_on(myself, session, now);
            }
        }
        self.held_up.retain(|_, held| held.waits.is_some() || now.duration_since(held.last) < FORGOTTEN);
        self.keep_going_on(myself);
    }

    fn let_go_on(&mut self, myself: &ActorRef<SupervisorMessage>, session: SessionId, now: Instant) {
        let Some(held) = self.held_up.get_mut(&session) else { return };
        let Some(waits) = held.waits.take() else { return };
        if !waits.goes_on && !self.sessions.contains_key(&session) {
            return;
        }
        let slot = self.sessions.entry(session).or_default();
        slot.goes_on |= waits.goes_on;
        match &slot.stage {
            Stage::Asleep if waits.goes_on => self.ended_for_now(myself, session, true),
            Stage::Live(live) if slot.unsure => live.actor.stop(Some(UNSURE.to_owned())),
            // Somebody woke it a moment ago.
            Stage::Live(live) if waits.goes_on => drop(live.actor.send_message(SessionMessage::Resume)),
            // What becomes of it is not known yet.
            Stage::Waking(..) | Stage::Leaving(..) => {
                held.waits = Some(Waits { not_before: now + LOOK, ..waits });
            }
            Stage::Asleep | Stage::Live(_) | Stage::Parked(..) => {}
        }
        self.keep_sweeping(myself);
    }
}

/// How long a session waits that is held up for the so-manieth time.
fn wait_after(times: u32) -> Duration {
    let doublings = times.saturating_sub(1).min(16);
    FIRST_WAIT.saturating_mul(1 << doublings).min(LONGEST_WAIT)
}

/// Those that have waited long enough: the longest first, and not too many at once.
fn due(
    held_up: &HashMap<SessionId, HeldUp>,
    now: Instant,
    may_go_on: impl Fn(&HeldUp) -> bool,
) -> Vec<SessionId> {
    let waiting = held_up
        .iter()
        .filter(|(_, held)| may_go_on(held))
        .filter_map(|(session, held)| Some((held.waits.as_ref()?.not_before, *session)));
    let mut due: Vec<(Instant, SessionId)> = waiting.filter(|(not_before, _)| *not_before <= now).collect();
    if due.len() > AT_ONCE {
        due.select_nth_unstable(AT_ONCE - 1);
        due.truncate(AT_ONCE);
    }
    due.into_iter().map(|(_, session)| session).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_held_up_again_waits_longer_and_not_for_ever() {
        let waits = [1, 2, 3, 7, 8, 30, u32::MAX].map(|times| wait_after(times).as_millis());
        assert_eq!(waits, [500, 1_000, 2_000, 32_000, 60_000, 60_000, 60_000]);
    }
}

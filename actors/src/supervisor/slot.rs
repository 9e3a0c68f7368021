//! What the supervisor knows of one session.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Instant;

use playhouse_protocol::{CommandError, Seq, SessionId};

use crate::base::gate::Gate;
use crate::events::ring::Ring;
use crate::mailbox::{FindPort, Live};
use crate::measure::Standing;
use crate::parked::Parking;

/// A session with a place in the table. One that sleeps has none, unless somebody follows it.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) stage: Stage,
    /// When it crashed lately.
    pub(super) crashes: VecDeque<Instant>,
    pub(super) events: Events,
    /// The session at the top, for a sub-session that was woken.
    pub(super) root: Option<SessionId>,
    /// Its tenant, once it was woken.
    pub(super) tenant: Option<Arc<str>>,
    /// Somebody wants it to go on with what is unfinished.
    pub(super) goes_on: bool,
    /// It was read while the store took no writes: it is to be read again.
    pub(super) unsure: bool,
    /// A session above it is being removed: it does not go on.
    pub(super) doomed: bool,
    /// The gate of its last actor, for what the store may still have in hand of it.
    pub(super) gate: Option<Arc<Gate>>,
}

#[derive(Default)]
pub(super) enum Stage {
    /// Not in memory.
    #[default]
    Asleep,
    /// It is being read, or waits for its respawn; these callers wait for it.
    Waking(Vec<FindPort>, #[allow(dead_code, reason = "held for its count")] Standing),
    Live(Live),
    /// It takes nothing any more, and is gone in a moment; these callers want it back.
    Leaving(Live, Vec<FindPort>),
    /// It cannot go on.
    Parked(Parking),
}

/// The events of a session, kept over a crash and over sleep, so that subscribers go on.
#[derive(Default)]
pub(super) enum Events {
    #[default]
    None,
    /// It is in memory, or requests of sub-sessions wait for its clients.
    Held(Arc<Ring>),
    /// It sleeps, and has its events as long as somebody follows them.
    Followed(Weak<Ring>, #[allow(dead_code, reason = "held for its count")] Standing),
}

impl Events {
    pub(super) fn ring(&self) -> Option<Arc<Ring>> {
        match self {
            Self::None => None,
            Self::Held(ring) => Some(Arc::clone(ring)),
            Self::Followed(ring, _) => ring.upgrade(),
        }
    }

    /// The ring from now on: the one that there is, or a new one behind the place `durable`.
    pub(super) fn hold(
        &mut self,
        session: SessionId,
        generation: u64,
        limit: usize,
        durable: Seq,
    ) -> Arc<Ring> {
        let ring = self.ring().unwrap_or_else(|| Arc::new(Ring::new(session, generation, limit, durable)));
        *self = Self::Held(Arc::clone(&ring));
        ring
    }

    /// The session sleeps: nobody but subscribers keeps its events, unless requests wait in them.
    pub(super) fn let_go(&mut self, standing: impl FnOnce() -> Standing) {
        let Some(ring) = self.ring() else {
            *self = Self::None;
            return;
        };
        if ring.has_requests() {
            *self = Self::Held(ring);
            return;
        }
        let followed = Arc::downgrade(&ring);
        drop(ring);
        // What stood here was perhaps the last that held it.
        *self = Self::None;
        if let Some(ring) = followed.upgrade() {
            ring.shrink();
            *self = Self::Followed(followed, standing());
        }
    }
}

impl Slot {
    /// Tells the subscribers that it does not come back, and why: they would wait for ever.
    pub(super) fn close(&mut self, error: &CommandError) {
        if let Some(ring) = self.events.ring() {
            ring.close(Some(error.clone()));
        }
        // Whoever comes later, when the session can be woken again, gets another one.
        self.events = Events::None;
    }

    /// Whether it sleeps, or has nothing to do.
    pub(super) fn rests(&self) -> bool {
        match &self.stage {
            Stage::Asleep => true,
            Stage::Live(live) => live.gate.rested().is_some(),
            Stage::Waking(..) | Stage::Leaving(..) | Stage::Parked(..) => false,
        }
    }

    /// Whether there is nothing to know of it.
    pub(super) fn is_blank(&self) -> bool {
        matches!(self.stage, Stage::Asleep) && self.events.ring().is_none()
    }
}

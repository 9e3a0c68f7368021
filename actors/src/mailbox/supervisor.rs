//! What the supervisor is told, and what it answers.

use std::sync::Arc;

use playhouse_protocol::{CommandError, Record, SessionId};
use ractor::{ActorRef, RpcReplyPort};

use super::SessionMessage;
use crate::base::gate::{Caller, Gate};
use crate::events::ring::Ring;
use crate::wake::Loaded;

/// What a shutdown ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// Sessions that were in memory.
    pub sessions: usize,
    /// What did not end in time, by name.
    pub stragglers: Vec<String>,
}

/// A session in memory.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) actor: ActorRef<SessionMessage>,
    pub(crate) gate: Arc<Gate>,
}

/// A session in memory, which stays there as long as this does.
pub(crate) struct Found {
    pub(crate) live: Live,
    pub(crate) ring: Arc<Ring>,
    pub(crate) caller: Caller,
}

pub(crate) type FindPort = RpcReplyPort<Result<Found, CommandError>>;

pub(crate) enum SupervisorMessage {
    /// Give me this session; wake it if it sleeps.
    Find(SessionId, FindPort),
    /// The same, and it shall go on with what is unfinished, also if it was parked.
    Resume(SessionId, FindPort),
    /// A session was read from its log, or could not be.
    Woken(SessionId, Result<Box<Loaded>, CommandError>),
    /// The wait before a respawn is over.
    Respawn(SessionId),
    /// A sub-session below `root` asked its people something, or that was settled.
    Request { root: SessionId, session: SessionId, record: Box<Record> },
    /// A session was removed from the store.
    Removed(SessionId),
    /// A session is deleted and could not be removed from the store.
    NotRemoved(SessionId),
    /// Time to look for sessions that rest.
    Sweep,
    /// There may be too many sessions in memory.
    MakeRoom,
    /// The store may take writes again.
    GoOn,
    /// Tenants were suspended for lack of space: their sessions stop.
    SuspendTenants,
    /// Stop all sessions.
    Stop(RpcReplyPort<Stopped>),
}

impl SupervisorMessage {
    /// The session that it is about.
    pub(crate) const fn of(&self) -> Option<SessionId> {
        match self {
            Self::Find(session, _)
            | Self::Resume(session, _)
            | Self::Woken(session, _)
            | Self::Respawn(session)
            | Self::Request { root: session, .. }
            | Self::Removed(session)
            | Self::NotRemoved(session) => Some(*session),
            Self::Sweep | Self::MakeRoom | Self::GoOn | Self::SuspendTenants | Self::Stop(_) => None,
        }
    }

    /// For traces.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Find(..) => "find",
            Self::Resume(..) => "resume",
            Self::Woken(..) => "woken",
            Self::Respawn(_) => "respawn",
            Self::Request { .. } => "request",
            Self::Removed(_) => "removed",
            Self::NotRemoved(_) => "not-removed",
            Self::Sweep => "sweep",
            Self::MakeRoom => "make-room",
            Self::GoOn => "go-on",
            Self::SuspendTenants => "suspend-tenants",
            Self::Stop(_) => "stop",
        }
    }
}

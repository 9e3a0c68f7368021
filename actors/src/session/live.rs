//! What is under way for a session.

use playhouse_protocol::id::AttemptId;
use playhouse_protocol::message::CallOutcome;
use playhouse_session::CallReport;
use playhouse_tools::WriteLogReader;
use ractor::ActorRef;
use tokio_util::sync::CancellationToken;

use crate::call::{Call, CallMessage};
use crate::step::StepMessage;
use crate::step::aside::AsideMessage;

/// What is said of a call whose tool panicked.
pub(super) fn crashed_with(why: &str) -> CallReport {
    CallReport::text(CallOutcome::Crashed, format!("the tool crashed: {why}"))
}

/// A step actor at work.
pub(super) struct LiveStep {
    pub(super) attempt: AttemptId,
    pub(super) actor: ActorRef<StepMessage>,
    pub(super) cancel: CancellationToken,
}

/// An actor at work on an attempt beside the steps of turns.
pub(super) struct LiveAside {
    pub(super) attempt: AttemptId,
    pub(super) actor: ActorRef<AsideMessage>,
    pub(super) cancel: CancellationToken,
}

/// A call under way.
pub(super) struct LiveCall {
    pub(super) carrier: Carrier,
    pub(super) cancel: CancellationToken,
    /// What it wrote.
    pub(super) writes: WriteLogReader,
    /// Whether it does what was prepared.
    pub(super) executes: bool,
}

/// Who keeps a call that is under way.
pub(super) enum Carrier {
    /// The session, as it waited for nothing until now; nobody while a phase is begun, and after a crash.
    Session(Option<Box<Call>>),
    /// An actor of its own.
    Actor(ActorRef<CallMessage>),
}

impl LiveCall {
    pub(super) fn actor(&self) -> Option<&ActorRef<CallMessage>> {
        match &self.carrier {
            Carrier::Session(_) => None,
            Carrier::Actor(actor) => Some(actor),
        }
    }
}

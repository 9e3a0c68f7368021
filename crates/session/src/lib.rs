//! A session as pure code: no I/O, no clock, no runtime, no ids of its own making.
//!
//! - [`Session`] is the fold of a log: replay of its records, and nothing else, gives it back.
//! - [`Machine`] decides. It takes an [`Input`] (a command, what a step or a call reported, a deadline that passed) and
//!   returns [`Effect`]s (append these records, start this attempt, prepare or execute this call, cancel, reply, arm a
//!   deadline). Whoever owns it carries them out in order; nothing else decides what happens next, live or after a crash.
//! - [`ForkPoint`] finds where a log is cut for a fork, and [`fork`] makes the fork's first records.
//! - [`chat`] translates messages into what a model reads; [`Session::read`] does so for a history, without what is left out
//!   of it to make room.
//! - [`tags`] makes one text of a session's events, for renderers; [`about`] says what a call is about.
//!
//! ```
//! use playhouse_protocol::record::{Record, SessionCreated};
//! use playhouse_protocol::{Entry, IdGenerator, ModelRef, Seq, Timestamp};
//! use playhouse_session::Session;
//!
//! let now = Timestamp::from_millis(1);
//! let created = SessionCreated {
//!     session: IdGenerator::new(|bytes| bytes.fill(1)).next(now),
//!     tenant: "local".into(),
//!     workspace: "/repo".into(),
//!     title: "a title".into(),
//!     agent: "sisyphus".into(),
//!     model: ModelRef::new("mock", "m"),
//!     parent: None,
//!     root: None,
//!     parent_step: None,
//!     permissions: Vec::new(),
//!     unattended: false,
//!     walls: None,
//!     system: None,
//!     metadata: Default::default(),
//! };
//! let log = [Entry { seq: Seq(1), at: now, record: Record::SessionCreated(created) }];
//! let session = Session::replay(log.iter()).unwrap();
//! assert!(session.is_idle());
//! ```

pub mod about;
pub mod chat;
mod context;
mod effect;
mod fold;
mod fork;
mod machine;
mod retry;
mod settle;
pub mod tags;

pub use effect::{
    AsideOrder, AttemptOrder, AttemptReport, CallReport, Deadline, Effect, Facts, FailedAttempt, Input,
    NewPrompt, PreparedCall, ProposedCall, Stamp, StepAnswer, Ticket,
};
pub use fold::{
    CallPhase, FoldError, OpenAside, OpenAttempt, OpenCall, OpenConsent, OpenQuestion, QueuedPrompt, Session,
    Step, StepPhase, Turn, rules_in,
};
pub use fork::{ForkOrder, ForkPoint, fork, fork_title};
pub use machine::Machine;
pub use retry::RetryPolicy;

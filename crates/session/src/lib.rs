//! A session as pure code: no I/O, no clock, no runtime, no ids of its own making.
//!
//! - [`Session`] is the fold of a log: replay of its records, and nothing else, gives it back.
//! - [`Machine`] decides. It takes an [`Input`] (a command, what a step or a call reported, a deadline that passed) and
//!   returns [`Effect`]s (append these records, start this attempt, prepare or execute this call, cancel, reply, arm a
//!   deadline). Whoever owns it carries them out in order; nothing else decides what happens next, live or after a crash.
//! - [`ForkPoint`] finds where a log is cut for a fork, and [`fork`] makes the fork's first records.
//! - [`chat`] translates messages into what a model reads; [`Session::read`] does so for a history, without what is left out
//!   of it to make room.
//! - [`Changes`] says what calls changed in files, as their results tell.
//! - [`tags`] makes one text of a session's events, for renderers; [`about`] says what a call is about.
//!
//! ```
//! use playhouse_protocol::record::{Record, SessionCreated};
//! use playhouse_protocol::{Entry, IdGenerator, ModelRef, Seq, Timestamp};
//! use playhouse_session::Session;
//!
//! let now = Timestamp::from_millis(1);
//! let id = IdGenerator::new(|bytes| bytes.fill(1)).next(now);
//! let created = SessionCreated::new(id, "local", "/repo", "sisyphus", ModelRef::new("mock", "m"));
//! let log = [Entry { seq: Seq(1), at: now, record: Record::SessionCreated(created) }];
//! let session = Session::replay(log.iter()).unwrap();
//! assert!(session.is_idle());
//! ```

pub mod about;
mod attribution;
mod changes;
pub mod chat;
mod context;
mod effect;
mod fold;
mod fork;
mod machine;
mod retry;
mod settle;
pub mod tags;

pub use changes::{Changes, FileChange};
pub use context::Fit;
pub use effect::{
    AsideOrder, AttemptOrder, AttemptReport, CallReport, ConsentAhead, Deadline, Effect, Facts,
    FailedAttempt, Input, ModelDirectory, NewPrompt, PreparedCall, ProposedCall, Stamp, StepAnswer,
    SystemMade, Ticket,
};
pub use fold::{
    CallPhase, FoldError, OpenAside, OpenAttempt, OpenCall, OpenConsent, OpenQuestion, OpenRevert, Pricing,
    QueuedPrompt, Session, Step, StepPhase, Turn, rules_in,
};
pub use fork::{ForkOrder, ForkPoint, fork, fork_title};
pub use machine::Machine;
pub use retry::RetryPolicy;
pub use settle::estimated_tokens;

//! The words that every part of Playhouse shares: serde types without I/O and without a runtime.
//!
//! - [`id`]: the identifiers of sessions, messages, parts, attempts and requests, and the generator that makes them.
//! - [`ledger`]: the rows from which bills are made.
//! - [`message`]: what a client sees: user messages, assistant messages (one per step) and their parts.
//! - [`record`]: what a session's log holds. Replay of its records, and nothing else, gives the session back.
//! - [`event`]: what a subscriber reads: records that became durable, and provisional pieces of a step under way.
//! - [`command`]: what can be asked of a session, and what it answers.
//! - [`capability`]: what a model can do, as far as requests depend on it.
//! - [`changes`]: what calls changed in files.
//! - [`chat`]: a conversation as a model reads it, free of any provider's wire format.
//! - [`delegate`]: work that one session hands over to another.
//! - [`question`]: questions for people, and the things to do of a session.
//! - [`usage`]: token counts, prices and costs.
//! - [`ledger`]: rows of what was used, from which bills are made; [`day`]: the days that they are of.
//! - [`operator`]: what the operator's commands ask of an engine that another process runs.
//! - [`revert`]: taking changes of files back.
//! - [`summary`]: the projection of a log that lists and totals are made from.
//! - [`metric`]: the names of what is measured.
//! - [`error`]: errors as data, for records, events and replies.
//! - [`nearest`](mod@nearest): the names that a mistyped one was probably meant to be, for error messages.
//!
//! Every type here is plain data: two carriers (in process, and over a socket) move the same values.
//!
//! ```
//! use playhouse_protocol::id::{IdGenerator, SessionId};
//! use playhouse_protocol::time::Timestamp;
//!
//! let mut ids = IdGenerator::new(|bytes| bytes.fill(7));
//! let session: SessionId = ids.next(Timestamp::from_millis(1_800_000_000_000));
//! assert!(session.as_str().starts_with("ses_"));
//! assert_eq!(SessionId::parse(session.as_str()), Ok(session));
//! ```

/// Conversions by which serde reads and writes a type as its text.
macro_rules! as_text {
    ($type:ty) => {
        impl TryFrom<String> for $type {
            type Error = <Self as std::str::FromStr>::Err;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    };
}

pub(crate) use as_text;

pub mod attribution;
pub mod capability;
pub mod changes;
pub mod chat;
pub mod command;
pub mod consent;
pub mod damage;
pub mod day;
pub mod delegate;
pub mod error;
pub mod event;
pub mod id;
pub mod json;
pub mod ledger;
pub mod limit;
pub mod message;
pub mod metric;
pub mod model;
pub mod nearest;
pub mod offer;
pub mod operator;
pub mod output;
pub mod price;
pub mod question;
pub mod record;
pub mod revert;
pub mod summary;
pub mod template;
pub mod time;
pub mod tool;
pub mod upkeep;
pub mod usage;
pub mod walls;

pub use attribution::{Attribution, KeyRef, Labels};
pub use changes::{
    ChangeSet, ChangedFile, ChangedFolder, FileBefore, FileContent, FileImage, TouchedFile, WorkspaceChanged,
};
pub use command::{
    Accepted, Command, CommandError, NewSession, PathMention, Prompt, PromptText, Reply, ShellBlock,
    ShellCommand, TemplateCommand, ToolCommand, WhenBusy,
};
pub use consent::{ConsentAnswer, ConsentAsked, PermissionRule, Want};
pub use damage::Damage;
pub use day::Day;
pub use delegate::{Delegate, Delegation, HandedOver, Mandate, tools_of};
pub use error::{EndOfLife, ErrorCode, ErrorInfo, ProviderWords};
pub use event::{Event, EventBody, EventId};
pub use id::{AttemptId, ConsentId, IdGenerator, MessageId, PartId, QuestionId, SessionId};
pub use ledger::LedgerRow;
pub use limit::Limit;
pub use message::{Message, Part, PromptKind};
pub use metric::Metric;
pub use model::ModelRef;
pub use offer::{CallAnswer, CallOffered};
pub use record::{Entry, Record, Seq};
pub use revert::{LeftFile, RevertPoint, RevertReport, RevertRequest, SessionReverted, UnrevertRequest};
pub use summary::SessionSummary;
pub use time::Timestamp;
pub use usage::{Cost, PriceList, Prices, Tokens, Usage};
pub use walls::{Sandbox, WallsAllowed, WallsInForce};

/// Whether a value is the default one, which is left out where it is written.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

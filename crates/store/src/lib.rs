//! The logs of sessions, their projections, the shelf and the blobs.
//!
//! - [`Log`]: append-only logs of records, one per session, with summaries as their projection.
//! - [`Ledger`]: rows of what attempts used, with sums, as another projection of the logs.
//! - [`Shelf`]: a small key-value store with compare-and-set, for what belongs to no session.
//! - [`Blobs`]: content by hash, kept per tenant.
//! - [`Store`]: these together: on disk ([`Store::open`]) or in memory ([`Store::memory`]).
//! - [`frame`]: the stored form of a record, with its versions and its checksum.
//!
//! One append to one session's log is the only atomic unit. An append that is reported as done is flushed; the appends
//! of all sessions share flushes. Reads block: call them from a thread that may. They see what was written, which may
//! be a moment before it is flushed.
//!
//! A backend is an ordered table with atomic batches (`table`), before which a journal stands (`journaled`, `journal`). All else is there once, for every backend: where things
//! stand in the table (`keys`), the one thread that writes (`writer`), what it checks and stages (`round`, and `draft` for
//! what one request changes), reading and folding logs (`projection`), logs that share records (`lineage`), the lists by
//! tenant (`index`), what was used (`ledger`), and the traits on top (`logs`). `open` opens, `format` refuses what is not
//! ours and `lock` keeps other processes out. Blobs are files of their own (`blobs`). `health` says what happens when the
//! disk takes no writes, and `veil` what readers see of what is not durable.
//!
//! Space comes back while the store is in use: the table is copied to a fresh one (`compact` says when, `switch` how, `site`
//! where), and blobs that no record names are swept (`sweep`, `janitor`; `in_hand` spares those that are about to be named).
//!
//! ```
//! use std::sync::mpsc::sync_channel;
//!
//! use playhouse_protocol::record::SessionCreated;
//! use playhouse_protocol::{Entry, ModelRef, Record, Seq, SessionId, Timestamp};
//! use playhouse_store::{Append, Store};
//!
//! let store = Store::memory()?;
//! let session = SessionId::parse("ses_0123456789abABCDEFGHIJKLMN").unwrap();
//! let model = ModelRef::new("mock", "demo");
//! let created =
//!     Record::SessionCreated(SessionCreated::new(session, "acme", "/home/ada/project", "build", model));
//! let entries = vec![Entry { seq: Seq(1), at: Timestamp::from_millis(1_800_000_000_000), record: created }];
//!
//! let (sender, receiver) = sync_channel(1);
//! let append = Append { session, tenant: "acme".into(), expected: Seq::START, entries };
//! store.log.append(append, Box::new(move |end| sender.send(end).unwrap()));
//! assert_eq!(receiver.recv().unwrap()?, Seq(1)); // Now it is durable.
//!
//! assert_eq!(store.log.read(session, Seq::START, 100)?.entries.len(), 1);
//! assert_eq!(store.log.summary(session)?.unwrap().agent, "build");
//! # Ok::<(), playhouse_store::StoreError>(())
//! ```

/// A place at which tests make the store fail, by a constant of `fail`. Nothing in a release.
#[cfg(any(debug_assertions, feature = "failpoints"))]
macro_rules! fail_point {
    ($point:ident) => {
        crate::fail::come(crate::fail::$point)?
    };
}
#[cfg(not(any(debug_assertions, feature = "failpoints")))]
macro_rules! fail_point {
    ($point:ident) => {};
}

mod blobs;
mod check;
mod compact;
mod draft;
#[cfg(any(debug_assertions, feature = "failpoints"))]
pub mod fail;
mod format;
pub mod frame;
mod handle;
mod health;
mod in_hand;
mod index;
mod janitor;
mod journal;
mod journaled;
mod keys;
mod ledger;
mod lineage;
mod lock;
mod logs;
mod losses;
mod marker;
mod memory;
mod open;
mod projection;
mod redb_table;
mod round;
mod salvage;
mod site;
mod sled_log;
mod sled_table;
mod sweep;
mod switch;
mod table;
mod value;
mod veil;
mod witness;
mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use playhouse_protocol::message::BlobRef;
use playhouse_protocol::upkeep::{Reclaimed, StoreReport};
use playhouse_protocol::{CommandError, Entry, Seq, SessionId, SessionSummary, Timestamp};
use thiserror::Error;

pub use format::Backend;
pub use health::{Suspended, SuspensionReason};
pub use ledger::{FeedFollower, Ledger};
pub use losses::{Losses, reason_of_missing};
pub use open::{OnDamage, Reclaim, StoreOptions};
pub use playhouse_protocol::Damage;

/// What goes wrong in a store.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Another owner appended to this session's log. The caller must stop, not retry.
    #[error("conflict in session {session}: expected its log to end at {expected}, it ends at {found}")]
    Conflict {
        /// The session.
        session: SessionId,
        /// Where the caller thought that the log ended.
        expected: Seq,
        /// Where it ends.
        found: Seq,
    },
    /// There is no such session.
    #[error("there is no session {0}")]
    Missing(SessionId),
    /// Another process has the store open.
    #[error(
        "the store in {path} is in use by {holder}: wait until that ends, or name another directory with --data"
    )]
    Locked {
        /// The data directory.
        path: PathBuf,
        /// The process: its id and command line.
        holder: String,
    },
    /// The directory holds something else, or a store that this engine cannot read.
    #[error("{path} {found}; this engine reads {known}. Nothing was changed")]
    Format {
        /// The data directory.
        path: PathBuf,
        /// What is there.
        found: String,
        /// What this engine reads.
        known: String,
    },
    /// A newer engine wrote something that this one cannot read. It is left as it is.
    #[error("{what} was written by a newer engine: use that one, or a later one. Nothing was changed")]
    Newer {
        /// What it is, and where.
        what: String,
    },
    /// What is stored is not what was written: a file was changed or cut, or a disk lost something. What else is there can be
    /// read, unless this was said when the store was opened.
    #[error(
        "{what} is damaged: {found}. `playhouse store check` says what can still be read, and `playhouse store salvage` goes on \
         with that; what cannot be read comes back with a copy of the data directory"
    )]
    Damaged {
        /// A file or directory, or a part of what is in it.
        what: String,
        /// What is wrong with it.
        found: String,
    },
    /// A blob is not there, or is not what its hash says.
    #[error("blob {hash}: {reason}")]
    Blob {
        /// The hash by which it was asked for.
        hash: String,
        /// What is wrong.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The backend failed.
    #[error("the store failed: {0}")]
    Backend(String),
    /// No writes are taken just now, because one failed. It is tried again by itself. What was acknowledged is kept, and
    /// can be read.
    #[error(
        "the store takes no writes for now, and goes on by itself when it can: {reason}. What was acknowledged is kept"
    )]
    Suspended {
        /// Why.
        reason: SuspensionReason,
    },
    /// The data directory was removed, moved or replaced while it was open. Nothing more is written: what is written now would be lost.
    #[error(
        "the data directory {path} is not the one that was opened: it was removed, moved or replaced. Stop the engine that had it \
         open, and start another one"
    )]
    Replaced {
        /// The data directory.
        path: PathBuf,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

impl From<StoreError> for CommandError {
    fn from(error: StoreError) -> Self {
        match (error.suspension(), error) {
            // Without the path of a file: clients read it.
            (Some(reason), _) => Self::Suspended(StoreError::Suspended { reason }.to_string()),
            (None, StoreError::Missing(session)) => Self::NotFound(session),
            // Whoever has it ends.
            (None, StoreError::Closed) => Self::NotAccepted("the engine stops".into()),
            (None, error) => Self::Store(error.to_string()),
        }
    }
}

/// Part of a log.
#[derive(Debug, Default)]
pub struct LogRead {
    /// Good entries, in order.
    pub entries: Vec<Entry>,
    /// The record at which reading stopped because it cannot be trusted.
    pub damage: Option<Damage>,
}

/// One atomic append.
#[derive(Debug)]
pub struct Append {
    /// The session.
    pub session: SessionId,
    /// Its tenant: who owns blobs that large records are moved to. The same as in its `SessionCreated`.
    pub tenant: Arc<str>,
    /// Where the log ends now. 0 for a new session, whose first record must be `SessionCreated`; for a new fork see
    /// [`Log::fork`].
    pub expected: Seq,
    /// Records with the sequence numbers that follow, without a gap.
    pub entries: Vec<Entry>,
}

/// Called once, when an append is flushed or has failed: with the new end of the log (for a delete: the end that it
/// had). It runs on the writer's thread, or, for a request that does not fit in the queue any more ("overloaded") or that
/// a suspended store refuses, on the caller's before [`Log::append`] returns. It must not block, and a panic in it harms nobody else.
pub type Done = Box<dyn FnOnce(Result<Seq, StoreError>) + Send>;

/// Which sessions to list: newest first.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    /// Only this tenant's.
    pub tenant: Option<String>,
    /// Only those of this directory.
    pub workspace: Option<String>,
    /// Only these relatives.
    pub kin: Option<Kin>,
    /// Only those with this in their title, in upper or lower case.
    pub title: Option<String>,
    /// Only those that changed at this time or later.
    pub updated_since: Option<Timestamp>,
    /// Only those that are put aside, or only those that are not.
    pub archived: Option<bool>,
    /// Where the page before ended.
    pub after: Option<Cursor>,
    /// At most so many; 0 stands for 50.
    pub limit: usize,
}

/// Sessions by the one above them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kin {
    /// Those with none above them.
    Roots,
    /// Those directly below this one.
    ChildrenOf(SessionId),
}

/// A place in the list of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// When the last session of the page was created.
    pub created: Timestamp,
    /// That session.
    pub session: SessionId,
}

/// A page of sessions.
#[derive(Debug, Default)]
pub struct Page {
    /// Newest (by creation) first.
    pub sessions: Vec<SessionSummary>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<Cursor>,
}

/// Append-only logs, one per session, and their projections.
pub trait Log: Send + Sync {
    /// Queues an append and returns at once. Appends of one caller to one session are carried out in order.
    ///
    /// `done` gets [`StoreError::Conflict`] where the log ends elsewhere (a session that is not there ends at 0), and
    /// [`StoreError::Backend`] where the append is malformed (not a record, a gap, another tenant, a first record that
    /// is not this session's `SessionCreated`), where the log is damaged, and where the queue is full. Where writing failed,
    /// this and all that follow get [`StoreError::Suspended`], until [`Log::health`] is well again: what was refused so may
    /// have become durable all the same.
    fn append(&self, append: Append, done: Done);

    /// Entries after `after`, at most `limit` of them. Reading stops at the first record that cannot be trusted or is
    /// missing, and [`LogRead::damage`] says so; a session without a log is [`StoreError::Missing`].
    fn read(&self, session: SessionId, after: Seq, limit: usize) -> Result<LogRead, StoreError>;

    /// The summary, written in the same batch as the records it is made from; `None` for a session that is not there.
    /// One that is missing or damaged is made from the good part of the log.
    fn summary(&self, session: SessionId) -> Result<Option<SessionSummary>, StoreError>;

    /// A page of sessions, newest first.
    fn list(&self, query: &ListQuery) -> Result<Page, StoreError>;

    /// How many writes wait to be begun with. Fast; 0 where that cannot be known.
    fn waiting(&self) -> usize {
        0
    }

    /// Why no writes are taken just now; `None` while they are. Fast.
    fn health(&self) -> Option<Suspended> {
        None
    }

    /// Looks whether what is written is still found where it was opened. A write tells that too.
    ///
    /// # Errors
    /// [`StoreError::Replaced`]: the data directory was removed, moved or replaced.
    fn check_place(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// All sessions with work ([`SessionSummary::is_unfinished`]), from an index (no log is read).
    fn unfinished(&self) -> Result<Vec<SessionId>, StoreError>;

    /// The sessions of `tenant` with work, from an index.
    fn unfinished_of(&self, tenant: &str) -> Result<Vec<SessionId>, StoreError>;

    /// How many sessions `tenant` has, from an index. Those whose removal has begun count until they are gone.
    fn count(&self, tenant: &str) -> Result<u64, StoreError>;

    /// Queues a new session that is a fork: its log shares records of another one, and goes on by itself. No record is
    /// copied. The first of the `entries` is the fork's [`playhouse_protocol::Record::Forked`], which says which session
    /// it is made from, and `expected` is the last place that the two share.
    ///
    /// `done` gets [`StoreError::Missing`] where the other session is not there, [`StoreError::Conflict`] where the new one
    /// is there already, and [`StoreError::Backend`] as with [`Log::append`], and also where the other session has no such
    /// record, or belongs to another tenant, and after a thousand forks of forks.
    fn fork(&self, fork: Append, done: Done);

    /// Removes a session's log and summary, damaged or not. Records that forks of it share stay until the last of those is
    /// gone; nobody else can read them. Its blobs are swept later. Queued like an append; a session that is
    /// not there is [`StoreError::Missing`].
    fn delete(&self, session: SessionId, done: Done);
}

/// A small key-value store with compare-and-set.
pub trait Shelf: Send + Sync {
    /// The value of `key`.
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Sets `key` to `new` (`None` removes it) if its value is `expected`; true when it was set. Flushed on return.
    /// It waits for the writer, so it cannot be called from a [`Done`].
    fn compare_and_set(
        &self,
        key: &str,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool, StoreError>;

    /// All keys that begin with `prefix`, with their values, in order.
    fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError>;
}

/// Content by hash, kept per tenant.
pub trait Blobs: Send + Sync {
    /// Stores content. On return it is synced, so that a record may name it.
    fn put(&self, tenant: &str, content: &[u8]) -> Result<BlobRef, StoreError>;

    /// The content; checked against its hash.
    fn get(&self, tenant: &str, blob: &BlobRef) -> Result<Vec<u8>, StoreError>;

    /// Whether the tenant has this content already, so that storing it takes up no more.
    fn holds(&self, tenant: &str, content: &[u8]) -> Result<bool, StoreError>;

    /// Bytes of all content of a tenant, without images. Looks at each.
    fn size(&self, tenant: &str) -> Result<u64, StoreError>;

    /// Stores the content of a file as it was before or after a change: an *image*, which may go again by
    /// [`Blobs::trim_images`] although a record names it. On return it is synced.
    fn put_image(&self, tenant: &str, content: &[u8]) -> Result<BlobRef, StoreError>;

    /// An image, checked against its hash; `None` where the tenant has no such content (any more). Images of older versions stand
    /// among the other content, and are found there.
    fn get_image(&self, tenant: &str, blob: &BlobRef) -> Result<Option<Vec<u8>>, StoreError>;

    /// Removes images of a tenant, those that were stored first before the others, until they have at most so many bytes. Those
    /// that were stored a short while ago stay, as in a sweep. Looks at each. How many bytes they have then.
    fn trim_images(&self, tenant: &str, most: u64) -> Result<u64, StoreError>;
}

/// The upkeep of a store.
pub trait Upkeep: Send + Sync {
    /// Copies the database to a fresh one without what was removed, and removes blobs that no record names: what else
    /// happens by itself, some time after enough was removed. Appends and reads go on meanwhile. Returns when the space is
    /// back. It waits for the writer, so it cannot be called from a [`Done`].
    ///
    /// # Errors
    /// The store failed, or is closed; it is as it was.
    fn reclaim(&self) -> Result<Reclaimed, StoreError>;

    /// Reads everything: records, summaries, lists, links of forks, the ledger and blobs. Says what is wrong where. Changes
    /// nothing. It may take long.
    ///
    /// # Errors
    /// The store cannot be read at all.
    fn check(&self) -> Result<StoreReport, StoreError>;

    /// How many bytes of keys and values were handed to the backend since this store was opened, by kind of key (see the
    /// page of `keys`): what logs and their projections cost. Copies of a compaction do not count.
    fn written(&self) -> BTreeMap<char, u64>;
}

/// Everything that an engine keeps.
#[derive(Clone)]
pub struct Store {
    /// The logs.
    pub log: Arc<dyn Log>,
    /// What was used, and what it cost.
    pub ledger: Arc<dyn Ledger>,
    /// The shelf.
    pub shelf: Arc<dyn Shelf>,
    /// The blobs.
    pub blobs: Arc<dyn Blobs>,
    /// What gives space back, and looks for damage.
    pub upkeep: Arc<dyn Upkeep>,
    /// How many times this store was opened, this time included: 1 for a new one. Never the same twice.
    pub generation: u64,
    /// What was lost when it was salvaged from damage, if it ever was.
    pub losses: Option<Arc<Losses>>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("generation", &self.generation).finish_non_exhaustive()
    }
}

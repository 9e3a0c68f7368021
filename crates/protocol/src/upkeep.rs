//! What is said of the upkeep of a store: the space that came back, and what is wrong with it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::SessionId;
use crate::time::Timestamp;

/// What a compaction and a sweep of blobs gave back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reclaimed {
    /// What the database took up before, in bytes on the disk; 0 for a store in memory.
    pub before: u64,
    /// What it takes up now.
    pub after: u64,
    /// How many blobs were removed that no record names.
    pub blobs: u64,
    /// Their size in bytes.
    pub blob_bytes: u64,
    /// How many more are named by no record, and stay until the grace of the last who named them is over (ten minutes).
    #[serde(default)]
    pub waiting_blobs: u64,
}

/// What was looked at in a store, and what is wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreReport {
    /// Sessions that can be read and listed.
    pub sessions: u64,
    /// How many of these are being removed: their last record says so. An engine that has the store open finishes that; one that
    /// was cut off is finished by the next.
    #[serde(default)]
    pub removals: u64,
    /// Records, each counted once however many forks share it.
    pub records: u64,
    /// Rows of the ledger.
    pub rows: u64,
    /// Blobs that records name or are in, each counted once for its tenant.
    pub blobs: u64,
    /// What is wrong, in the order of the store; the first thousand.
    pub problems: Vec<StoreProblem>,
    /// How many more there are.
    pub more: u64,
}

/// What could be saved of a store whose database cannot be opened any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Salvaged {
    /// Sessions that can be read now. Where the log of one of them is damaged further on is told when the store is checked.
    pub sessions: u64,
    /// Sessions that the old database names somewhere and that are not there now: lost, or deleted before. The first thousand.
    pub not_there: Vec<SessionId>,
    /// How many more there are.
    pub more_not_there: u64,
    /// Sessions whose log ends before the end that the old database knew of. The first thousand.
    #[serde(default)]
    pub shorter: Vec<SessionId>,
    /// How many more there are.
    #[serde(default)]
    pub more_shorter: u64,
    /// What was written last is gone, and nobody knows of which sessions: any of them may be shorter than it was.
    #[serde(default)]
    pub end_lost: bool,
    /// The directory in which the old database is kept, with its blobs.
    pub kept: String,
    /// What could not be read of it.
    pub problems: Vec<StoreProblem>,
}

/// The last salvage of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SalvageNote {
    /// When.
    pub at: Timestamp,
    /// What was wrong with the old database.
    pub reason: String,
    /// The directory in which that is kept.
    pub kept: String,
    /// See [`Salvaged::end_lost`].
    pub end_lost: bool,
}

/// What a damaged database still said of a session that is missing since it was salvaged, or shorter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionLoss {
    /// When the store was salvaged.
    pub at: Timestamp,
    /// The directory in which the damaged database is kept.
    pub kept: String,
    /// Records that it had, as far as that was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub had: Option<u64>,
    /// Records that are left.
    pub left: u64,
    /// Turns of it that were over, as far as that was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// Whose it was, where that was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The directory that it worked in, where that was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

/// Why a session may not be all that it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SalvagedSession {
    /// When the store was salvaged from damage.
    pub at: Timestamp,
    /// What is missing of the session, as far as that is known.
    pub reason: String,
}

/// Something that is wrong with a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreProblem {
    /// Where: a session and its record, a key, a blob.
    pub place: String,
    /// What is wrong there, and what follows from that.
    pub what: String,
}

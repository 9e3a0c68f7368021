//! What is said of the upkeep of a store: the space that came back, and what is wrong with it.

use serde::{Deserialize, Serialize};

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
    pub not_there: Vec<crate::SessionId>,
    /// How many more there are.
    pub more_not_there: u64,
    /// The directory in which the old database is kept, with its blobs.
    pub kept: String,
    /// What could not be read of it.
    pub problems: Vec<StoreProblem>,
}

/// Something that is wrong with a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreProblem {
    /// Where: a session and its record, a key, a blob.
    pub place: String,
    /// What is wrong there, and what follows from that.
    pub what: String,
}

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

/// Something that is wrong with a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreProblem {
    /// Where: a session and its record, a key, a blob.
    pub place: String,
    /// What is wrong there, and what follows from that.
    pub what: String,
}

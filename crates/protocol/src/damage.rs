//! Where a session's log stops to be readable.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::record::Seq;

/// A record of a session's log that cannot be trusted: it fails its checksum, is of a version that this engine does not know,
/// or does not fit what comes before it. All before it is good, and nothing from it on is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Damage {
    /// Its place.
    pub seq: Seq,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {}: {}", self.seq, self.reason)
    }
}

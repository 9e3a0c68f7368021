//! What was lost when a store was salvaged from damage, as the fresh database keeps it on its shelf.
//!
//! ```text
//! salvage                  the last salvage: a SalvageNote
//! salvage/missing/SESSION  a session that the damaged database named and that is not there: a SessionLoss
//! salvage/shorter/SESSION  one whose log ends before its known end: a SessionLoss
//! ```
//!
//! They are written into the fresh database before it counts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use playhouse_protocol::upkeep::{SalvageNote, SalvagedSession, SessionLoss};
use playhouse_protocol::{SessionId, SessionSummary};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::table::Batch;
use crate::{Shelf, StoreError, keys};

const NOTE: &str = "salvage";
const MISSING: &str = "salvage/missing/";
const SHORTER: &str = "salvage/shorter/";

/// What was lost of a store that was salvaged.
pub struct Losses {
    /// The last salvage.
    pub note: SalvageNote,
    shorter: BTreeMap<SessionId, SessionLoss>,
    shelf: Arc<dyn Shelf>,
}

impl fmt::Debug for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Losses").field("note", &self.note).finish_non_exhaustive()
    }
}

impl Losses {
    /// Reads what the shelf has of it; `None` for a store that never was salvaged.
    pub(crate) fn read(shelf: &Arc<dyn Shelf>) -> Result<Option<Self>, StoreError> {
        let Some(note) = shelf.get(NOTE)?.and_then(|value| parse(NOTE, &value)) else { return Ok(None) };
        let shorter = shelf.scan(SHORTER)?.into_iter().filter_map(|(key, value)| {
            let session = SessionId::parse(key.strip_prefix(SHORTER)?).ok()?;
            Some((session, parse(&key, &value)?))
        });
        Ok(Some(Self { note, shorter: shorter.collect(), shelf: Arc::clone(shelf) }))
    }

    /// What is known of a session that the damaged database named and that is missing since then.
    ///
    /// # Errors
    /// The store failed.
    pub fn missing(&self, session: SessionId) -> Result<Option<SessionLoss>, StoreError> {
        let key = missing(session);
        Ok(self.shelf.get(&key)?.and_then(|value| parse(&key, &value)))
    }

    /// Why a session that is there may not be all that it was.
    pub fn of(&self, summary: &SessionSummary) -> Option<SalvagedSession> {
        if let Some(SessionLoss { at, had, left, .. }) = self.shorter.get(&summary.id) {
            let of = had.map_or_else(String::new, |had| format!(" of {had}"));
            let reason = format!(
                "the store was damaged and salvaged at {at}: the first {left}{of} records of this session could be saved"
            );
            return Some(SalvagedSession { at: *at, reason });
        }
        let at = self.note.at;
        let reason = format!(
            "the store was damaged and salvaged at {at}: what was written last is gone, and this session may be shorter than it was"
        );
        (self.note.end_lost && summary.created <= at).then_some(SalvagedSession { at, reason })
    }
}

/// The reason that is given for a session that is missing.
pub fn reason_of_missing(session: SessionId, loss: &SessionLoss) -> String {
    let had = match (loss.had, loss.turns) {
        (Some(records), Some(turns)) => {
            format!(" It had {records} records and {turns} turns that were over.")
        }
        (Some(records), None) => format!(" It had {records} records."),
        (None, _) => String::new(),
    };
    format!(
        "session {session} is lost: the store was damaged and salvaged at {}, and of this session only its name could be read, unless \
         it had been deleted before.{had}",
        loss.at
    )
    .trim_end_matches('.')
    .to_owned()
}

/// Of one that cannot be read nothing is said.
fn parse<T: DeserializeOwned>(key: &str, value: &[u8]) -> Option<T> {
    let parsed = serde_json::from_slice(value);
    parsed.inspect_err(|error| tracing::warn!(%error, key, "what was noted of a salvage cannot be read")).ok()
}

pub(crate) fn missing(session: SessionId) -> String {
    format!("{MISSING}{session}")
}

/// What writes the note of a salvage.
pub(crate) fn note(note: &SalvageNote) -> Result<Batch, StoreError> {
    one(NOTE, note)
}

/// What writes that a session is missing, where `left` is 0, or shorter.
pub(crate) fn loss(session: SessionId, loss: &SessionLoss) -> Result<Batch, StoreError> {
    match loss.left {
        0 => one(&missing(session), loss),
        _ => one(&format!("{SHORTER}{session}"), loss),
    }
}

fn one(key: &str, value: &impl Serialize) -> Result<Batch, StoreError> {
    let value = serde_json::to_vec(value).map_err(|error| StoreError::Backend(error.to_string()))?;
    Ok(Batch::from([(keys::shelf(key), Some(value))]))
}

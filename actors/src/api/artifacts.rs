//! What capture tools kept, read from the logs of sessions without waking them.

use std::collections::HashMap;
use std::sync::Arc;

use playhouse_protocol::record::ArtifactCaptured;
use playhouse_protocol::{CommandError, Damage, PartId, Record, Seq, SessionId, Timestamp};
use playhouse_store::{Log, LogRead};
use serde_json::Value;

use crate::api::engine::Engine;
use crate::wake::PAGE;

/// So much of values is in the artifacts of one answer, in bytes of JSON. Of those beyond it the value is left out.
const MOST_VALUES: u64 = 4 * 1024 * 1024;

/// An artifact of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredArtifact {
    /// The record.
    pub captured: ArtifactCaptured,
    /// Size of the value, in bytes of compact JSON.
    pub bytes: u64,
    /// When it was captured.
    pub at: Timestamp,
}

impl StoredArtifact {
    fn new(captured: ArtifactCaptured, at: Timestamp) -> Self {
        let of_value = |value: &Value| value.to_string().len() as u64;
        let bytes = captured.value.as_ref().map_or(0, of_value);
        let bytes = captured.blob.as_ref().map_or(bytes, |blob| blob.size);
        Self { captured, bytes, at }
    }
}

/// Shows each artifact in the log of a session; where that stops to be readable, if it does. Blocks.
fn each(
    log: &dyn Log,
    id: SessionId,
    mut show: impl FnMut(ArtifactCaptured, Timestamp),
) -> Result<Option<Damage>, CommandError> {
    let mut after = Seq::START;
    loop {
        let LogRead { entries, damage } = log.read(id, after, PAGE)?;
        let Some(end) = entries.last().map(|entry| entry.seq) else { return Ok(damage) };
        after = end;
        for entry in entries {
            if let Record::ArtifactCaptured(captured) = entry.record {
                show(captured, entry.at);
            }
        }
        if damage.is_some() {
            return Ok(damage);
        }
    }
}

impl Engine {
    /// The artifacts of a session, in order, and where its log stops to be readable, if it does. A value is left out where a blob
    /// holds it, and where those before it take up 4 MiB.
    ///
    /// # Errors
    /// There is no session with this id, or the store failed.
    pub async fn artifacts(
        &self,
        id: SessionId,
    ) -> Result<(Vec<StoredArtifact>, Option<Damage>), CommandError> {
        let log = Arc::clone(&self.shared.store.log);
        let work = move || {
            let mut last: HashMap<PartId, usize> = HashMap::new();
            let mut found: Vec<Option<StoredArtifact>> = Vec::new();
            let mut values = 0;
            let damage = each(&*log, id, |captured, at| {
                let mut artifact = StoredArtifact::new(captured, at);
                if artifact.captured.value.is_some() {
                    values += artifact.bytes;
                    artifact.captured.value.take_if(|_| values > MOST_VALUES);
                }
                // A call that ran again after a crash captured again.
                if let Some(earlier) = last.insert(artifact.captured.call, found.len()) {
                    found[earlier] = None;
                }
                found.push(Some(artifact));
            })?;
            Ok::<_, CommandError>((found.into_iter().flatten().collect(), damage))
        };
        self.shared.pool.run(work).await
    }

    /// The artifact of one call with its value; `None` where the call has none, and where the log stops to be readable then.
    ///
    /// # Errors
    /// There is no session with this id, the value is not there any more, or the store failed.
    pub async fn artifact(
        &self,
        id: SessionId,
        call: PartId,
    ) -> Result<(Option<StoredArtifact>, Option<Damage>), CommandError> {
        let shared = Arc::clone(&self.shared);
        let work = move || {
            let mut found = None;
            let damage = each(&*shared.store.log, id, |captured, at| {
                if captured.call == call {
                    found = Some(StoredArtifact::new(captured, at));
                }
            })?;
            if let Some(artifact) = &mut found
                && let Some(blob) = &artifact.captured.blob
            {
                let summary = shared.store.log.summary(id)?.ok_or(CommandError::NotFound(id))?;
                let json = shared.store.blobs.get(&summary.tenant, blob)?;
                let value = serde_json::from_slice(&json);
                let wrong =
                    |error| CommandError::Store(format!("the artifact of call {call} is not JSON: {error}"));
                artifact.captured.value = Some(value.map_err(wrong)?);
            }
            Ok::<_, CommandError>((found, damage))
        };
        self.shared.pool.run(work).await
    }
}

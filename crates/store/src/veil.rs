//! What readers see while a round is written, and after one that failed: what was durable before it.
//!
//! A batch is in the table before it is durable, and after a write that failed it may stay there until the table is opened
//! again, although everybody was told that it was refused. So each round leaves here what was there before it: how its sessions
//! stood, and the values that it changes on the shelf. A session reads as far as it was durable, and one that is new is not
//! there. The writer lifts the veil when the round is durable, or when the table was opened again: what is there then is so.
//!
//! Readers read the table first and look here then: what they find is of before the round, or durable, whenever it ended.
//!
//! A log whose removal failed is not shown again: its last record says that it is deleted, or it is damaged.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::RwLock;
use playhouse_protocol::{Seq, SessionId, SessionSummary};

use crate::{LogRead, StoreError, keys};

/// What was durable before a round, of that which the round changes.
#[derive(Debug, Default)]
pub(crate) struct Before {
    /// How sessions stood; `None` for one that was not there.
    sessions: HashMap<SessionId, Option<SessionSummary>>,
    /// Values of the shelf, by their keys in the table.
    shelf: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl Before {
    /// A session is appended to. The first time counts.
    pub(crate) fn session(&mut self, session: SessionId, stood: Option<SessionSummary>) {
        self.sessions.entry(session).or_insert(stood);
    }

    /// A log is removed.
    pub(crate) fn removed(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    /// A value of the shelf is changed. The first time counts.
    pub(crate) fn shelf(&mut self, key: &[u8], value: Option<&[u8]>) {
        if !self.shelf.contains_key(key) {
            self.shelf.insert(key.to_vec(), value.map(<[u8]>::to_vec));
        }
    }
}

/// See the page.
#[derive(Default)]
pub(crate) struct Veil(RwLock<Option<Arc<Before>>>);

impl Veil {
    /// A round comes into the table from now on.
    pub(crate) fn fall(&self, before: Before) {
        self.set(Some(Arc::new(before)));
    }

    /// What is in the table is durable.
    pub(crate) fn lift(&self) {
        self.set(None);
    }

    fn set(&self, before: Option<Arc<Before>>) {
        *self.0.write() = before;
    }

    fn before(&self) -> Option<Arc<Before>> {
        self.0.read().clone()
    }

    /// The durable part of what was read of a log.
    pub(crate) fn log(
        &self,
        session: SessionId,
        read: Result<LogRead, StoreError>,
    ) -> Result<LogRead, StoreError> {
        let mut read = read?;
        let Some(before) = self.before() else { return Ok(read) };
        let end = match before.sessions.get(&session) {
            None => return Ok(read),
            Some(None) => return Err(StoreError::Missing(session)),
            Some(Some(stood)) => stood.head,
        };
        let is_durable = |seq: Seq| seq <= end;
        read.entries.retain(|entry| is_durable(entry.seq));
        read.damage = read.damage.filter(|damage| is_durable(damage.seq));
        Ok(read)
    }

    /// The durable summary, where this one was read.
    pub(crate) fn summary(&self, session: SessionId, read: Option<SessionSummary>) -> Option<SessionSummary> {
        match self.before().as_ref().and_then(|before| before.sessions.get(&session)) {
            Some(stood) => stood.clone(),
            None => read,
        }
    }

    /// The sessions with work, where these were read from the index: those of `tenant`, if one is named.
    pub(crate) fn unfinished(&self, tenant: Option<&str>, read: Vec<SessionId>) -> Vec<SessionId> {
        let Some(before) = self.before() else { return read };
        let mut found: Vec<SessionId> =
            read.into_iter().filter(|session| !before.sessions.contains_key(session)).collect();
        let stood = before.sessions.values().flatten().filter(|stood| stood.is_unfinished());
        found.extend(
            stood.filter(|stood| tenant.is_none_or(|tenant| stood.tenant == tenant)).map(|stood| stood.id),
        );
        found
    }

    /// The durable value of a key of the shelf, where this one was read.
    pub(crate) fn value(&self, key: &[u8], read: Option<Vec<u8>>) -> Option<Vec<u8>> {
        match self.before().as_ref().and_then(|before| before.shelf.get(key)) {
            Some(value) => value.clone(),
            None => read,
        }
    }

    /// The durable values of keys of the shelf that begin with `prefix`, where these were read, in order.
    pub(crate) fn values(&self, prefix: &[u8], read: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<(Vec<u8>, Vec<u8>)> {
        let before = self.before();
        let Some(before) = before.filter(|before| !before.shelf.is_empty()) else { return read };
        let mut found: BTreeMap<Vec<u8>, Vec<u8>> = read.into_iter().collect();
        for (key, value) in before.shelf.range(prefix.to_vec()..keys::end_of(prefix)) {
            match value {
                Some(value) => drop(found.insert(key.clone(), value.clone())),
                None => drop(found.remove(key)),
            }
        }
        found.into_iter().collect()
    }
}

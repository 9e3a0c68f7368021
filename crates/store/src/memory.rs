//! A store without a disk, for tests and for engines that need not remember.
//!
//! Frames, projections and the writer's thread are those of every backend; only the table and the blobs are other ones.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use playhouse_protocol::message::BlobRef;

use crate::blobs::{check_content, named};
use crate::in_hand::{Digest, InHand, digest};
use crate::sweep::{Stored, Sweepable, size_of};
use crate::table::{Batch, Pair, Table, take};
use crate::{Blobs, StoreError};

/// A table in memory.
#[derive(Default)]
pub(crate) struct MemoryTable {
    pairs: RwLock<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl Table for MemoryTable {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.pairs.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned())
    }

    fn page(&self, from: &[u8], to: &[u8], limit: usize, bytes: usize) -> Result<Vec<Pair>, StoreError> {
        if from >= to {
            return Ok(Vec::new());
        }
        let pairs = self.pairs.read().unwrap_or_else(PoisonError::into_inner);
        let range = pairs.range(from.to_vec()..to.to_vec());
        take(range.map(|(key, value)| Ok((key.clone(), value.clone()))), limit, bytes)
    }

    fn last_key(&self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        if from >= to {
            return Ok(None);
        }
        let pairs = self.pairs.read().unwrap_or_else(PoisonError::into_inner);
        Ok(pairs.range(from.to_vec()..to.to_vec()).next_back().map(|(key, _)| key.clone()))
    }

    fn apply(&self, batch: Batch) -> Result<(), StoreError> {
        let mut pairs = self.pairs.write().unwrap_or_else(PoisonError::into_inner);
        for (key, value) in batch {
            match value {
                Some(value) => pairs.insert(key, value),
                None => pairs.remove(&key),
            };
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// There is nothing that could fail, and nothing to open.
    fn reopen(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Blobs in memory, by tenant and hash.
pub(crate) struct MemoryBlobs {
    contents: Mutex<HashMap<String, HashMap<Digest, Vec<u8>>>>,
    in_hand: Arc<InHand>,
}

impl MemoryBlobs {
    pub(crate) fn new(in_hand: Arc<InHand>) -> Self {
        Self { contents: Mutex::default(), in_hand }
    }
}

impl Blobs for MemoryBlobs {
    fn put(&self, tenant: &str, content: &[u8]) -> Result<BlobRef, StoreError> {
        let (blob, digest) = named(content);
        self.in_hand.hold(digest);
        self.in_hand.hold_named_in(content);
        let mut contents = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        contents.entry(tenant.to_owned()).or_default().entry(digest).or_insert_with(|| content.to_vec());
        Ok(blob)
    }

    fn get(&self, tenant: &str, blob: &BlobRef) -> Result<Vec<u8>, StoreError> {
        let contents = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        let digest = digest(blob.hash.as_bytes());
        let content = digest.and_then(|digest| contents.get(tenant)?.get(&digest).cloned());
        let Some(content) = content else {
            return Err(StoreError::Blob {
                hash: blob.hash.clone(),
                reason: format!("tenant \"{tenant}\" has no such content"),
            });
        };
        check_content(blob, &content)?;
        Ok(content)
    }

    fn holds(&self, tenant: &str, content: &[u8]) -> Result<bool, StoreError> {
        let contents = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(contents.get(tenant).is_some_and(|contents| contents.contains_key(&named(content).1)))
    }

    fn size(&self, tenant: &str) -> Result<u64, StoreError> {
        size_of(self, tenant)
    }
}

impl Sweepable for MemoryBlobs {
    fn owner(&self, tenant: &str) -> String {
        tenant.to_owned()
    }

    fn owners(&self) -> Result<Vec<String>, StoreError> {
        Ok(self.contents.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect())
    }

    fn each(&self, owner: &str, each: &mut dyn FnMut(Stored)) -> Result<(), StoreError> {
        let contents = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        for (digest, content) in contents.get(owner).into_iter().flatten() {
            each(Stored { digest: *digest, size: content.len() as u64, settled: true });
        }
        Ok(())
    }

    fn remove(&self, owner: &str, digest: &Digest) -> Result<bool, StoreError> {
        let removed = self.in_hand.unless_held(digest, || {
            let mut contents = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(contents) = contents.get_mut(owner) {
                contents.remove(digest);
            }
        });
        Ok(removed.is_some())
    }
}

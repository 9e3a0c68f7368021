//! A store without a disk, for tests and for engines that need not remember.
//!
//! Frames, projections and the writer's thread are those of every backend; only the table and the blobs are other ones.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError, RwLock};

use playhouse_protocol::message::BlobRef;

use crate::blobs::{check_content, reference};
use crate::table::{Batch, Pair, Table};
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

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, StoreError> {
        if from >= to {
            return Ok(Vec::new());
        }
        let pairs = self.pairs.read().unwrap_or_else(PoisonError::into_inner);
        let range = pairs.range(from.to_vec()..to.to_vec());
        Ok(range.take(limit).map(|(key, value)| (key.clone(), value.clone())).collect())
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
}

/// Blobs in memory, by tenant and hash.
#[derive(Default)]
pub(crate) struct MemoryBlobs {
    contents: Mutex<HashMap<(String, String), Vec<u8>>>,
}

impl Blobs for MemoryBlobs {
    fn put(&self, tenant: &str, content: &[u8]) -> Result<BlobRef, StoreError> {
        let blob = reference(content);
        let mut contents = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        contents.entry((tenant.to_owned(), blob.hash.clone())).or_insert_with(|| content.to_vec());
        Ok(blob)
    }

    fn get(&self, tenant: &str, blob: &BlobRef) -> Result<Vec<u8>, StoreError> {
        let contents = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        let content = contents.get(&(tenant.to_owned(), blob.hash.clone())).cloned();
        let Some(content) = content else {
            return Err(StoreError::Blob {
                hash: blob.hash.clone(),
                reason: format!("tenant \"{tenant}\" has no such content"),
            });
        };
        check_content(blob, &content)?;
        Ok(content)
    }
}

//! A store without a disk, for tests and for engines that need not remember.
//!
//! Frames, projections and the writer's thread are those of every backend; only the table and the blobs are other ones.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use playhouse_protocol::message::BlobRef;

use crate::blobs::{check_content, missing, named};
use crate::in_hand::{Digest, InHand, digest};
use crate::sweep::{Stored, Sweepable, images_of, size_of, trim_images};
use crate::table::{Batch, Pair, Table, take};
use crate::{Blobs, StoreError};

/// A table in memory.
#[derive(Default)]
pub(crate) struct MemoryTable {
    pairs: RwLock<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl Table for MemoryTable {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.pairs.read().get(key).cloned())
    }

    fn page(&self, from: &[u8], to: &[u8], limit: usize, bytes: usize) -> Result<Vec<Pair>, StoreError> {
        if from >= to {
            return Ok(Vec::new());
        }
        let pairs = self.pairs.read();
        let range = pairs.range(from.to_vec()..to.to_vec());
        take(range.map(|(key, value)| Ok((key.clone(), value.clone()))), limit, bytes)
    }

    fn last_key(&self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        if from >= to {
            return Ok(None);
        }
        let pairs = self.pairs.read();
        Ok(pairs.range(from.to_vec()..to.to_vec()).next_back().map(|(key, _)| key.clone()))
    }

    fn apply(&self, batch: Batch) -> Result<(), StoreError> {
        let mut pairs = self.pairs.write();
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

/// Blobs in memory, by owner and hash.
pub(crate) struct MemoryBlobs {
    contents: Mutex<HashMap<String, HashMap<Digest, Content>>>,
    in_hand: Arc<InHand>,
    /// How many were stored.
    count: AtomicU64,
}

struct Content {
    bytes: Vec<u8>,
    /// How many were stored before.
    at: u64,
}

impl MemoryBlobs {
    pub(crate) fn new(in_hand: Arc<InHand>) -> Self {
        Self { contents: Mutex::default(), in_hand, count: AtomicU64::default() }
    }

    fn put_for(&self, owner: String, content: &[u8]) -> BlobRef {
        let (blob, digest) = named(content);
        self.in_hand.hold(digest);
        self.in_hand.hold_named_in(content);
        let content = Content { bytes: content.to_vec(), at: self.count.fetch_add(1, Ordering::Relaxed) };
        self.contents.lock().entry(owner).or_default().insert(digest, content);
        blob
    }

    fn get_for(&self, owner: &str, blob: &BlobRef) -> Result<Option<Vec<u8>>, StoreError> {
        let digest = digest(blob.hash.as_bytes());
        let content =
            digest.and_then(|digest| Some(self.contents.lock().get(owner)?.get(&digest)?.bytes.clone()));
        content.map(|content| check_content(blob, &content).map(|()| content)).transpose()
    }
}

impl Blobs for MemoryBlobs {
    fn put(&self, tenant: &str, content: &[u8]) -> Result<BlobRef, StoreError> {
        Ok(self.put_for(self.owner(tenant), content))
    }

    fn get(&self, tenant: &str, blob: &BlobRef) -> Result<Vec<u8>, StoreError> {
        self.get_for(&self.owner(tenant), blob)?.ok_or_else(|| missing(tenant, blob))
    }

    fn holds(&self, tenant: &str, content: &[u8]) -> Result<bool, StoreError> {
        let contents = self.contents.lock();
        Ok(contents.get(&self.owner(tenant)).is_some_and(|contents| contents.contains_key(&named(content).1)))
    }

    fn size(&self, tenant: &str) -> Result<u64, StoreError> {
        size_of(self, tenant)
    }

    fn put_image(&self, tenant: &str, content: &[u8]) -> Result<BlobRef, StoreError> {
        Ok(self.put_for(images_of(&self.owner(tenant)), content))
    }

    fn get_image(&self, tenant: &str, blob: &BlobRef) -> Result<Option<Vec<u8>>, StoreError> {
        self.get_for(&images_of(&self.owner(tenant)), blob)
    }

    fn trim_images(&self, tenant: &str, most: u64) -> Result<u64, StoreError> {
        trim_images(self, tenant, most)
    }
}

impl Sweepable for MemoryBlobs {
    fn owner(&self, tenant: &str) -> String {
        tenant.to_owned()
    }

    fn owners(&self) -> Result<Vec<String>, StoreError> {
        Ok(self.contents.lock().keys().cloned().collect())
    }

    fn each(&self, owner: &str, each: &mut dyn FnMut(Stored)) -> Result<(), StoreError> {
        for (digest, content) in self.contents.lock().get(owner).into_iter().flatten() {
            let (size, at) = (content.bytes.len() as u64, content.at.into());
            each(Stored { digest: *digest, size, settled: true, at });
        }
        Ok(())
    }

    fn remove(&self, owner: &str, digest: &Digest) -> Result<bool, StoreError> {
        let removed = self.in_hand.unless_held(digest, || {
            if let Some(contents) = self.contents.lock().get_mut(owner) {
                contents.remove(digest);
            }
        });
        Ok(removed.is_some())
    }
}

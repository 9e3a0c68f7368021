//! Removes blobs that no record names: mark and sweep over the logs.
//!
//! Every frame is read, of forks and of what was kept for them too, in whatever version and damaged or not, and large
//! records in blobs as well where it matters. What is named is kept. Of the rest goes what was stored or named longer ago
//! than the grace (`in_hand`), and only after everything that was seen is durable: a deletion that a crash takes back must
//! find its blobs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use playhouse_protocol::SessionId;
use playhouse_protocol::message::BlobRef;

use crate::frame::{self, Spilled};
use crate::in_hand::{Digest, digest, named_in};
use crate::switch::Switch;
use crate::table::Table;
use crate::{Blobs, StoreError, keys};

/// The most blobs that one sweep considers. What is more waits for the next one.
const MOST: usize = 1_000_000;

/// After how many bytes, and for how long, a sweep rests: it is not in a hurry.
const REST_AFTER: usize = 1024 * 1024;
const REST: Duration = Duration::from_millis(1);

/// A blob that is stored.
pub(crate) struct Stored {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    /// Whether it was stored longer ago than the grace.
    pub(crate) settled: bool,
    /// Larger than that of those that were stored before it.
    pub(crate) at: u128,
}

/// Blobs that can be looked through. An owner is what the blobs of a tenant are kept under.
pub(crate) trait Sweepable: Blobs {
    /// What the blobs of this tenant are kept under.
    fn owner(&self, tenant: &str) -> String;

    /// All who own blobs.
    fn owners(&self) -> Result<Vec<String>, StoreError>;

    /// Calls `each` with the blobs of an owner.
    fn each(&self, owner: &str, each: &mut dyn FnMut(Stored)) -> Result<(), StoreError>;

    /// Removes a blob, unless somebody has it in hand. Whether it was removed.
    fn remove(&self, owner: &str, digest: &Digest) -> Result<bool, StoreError>;
}

/// What the images of an owner are kept under, which is the owner of nothing else: see `folder_of_tenant`.
pub(crate) fn images_of(owner: &str) -> String {
    format!("{owner}%images")
}

/// See [`Blobs::trim_images`].
pub(crate) fn trim_images(blobs: &impl Sweepable, tenant: &str, most: u64) -> Result<u64, StoreError> {
    let owner = images_of(&blobs.owner(tenant));
    let mut all = Vec::new();
    blobs.each(&owner, &mut |stored| all.push(stored))?;
    all.sort_unstable_by_key(|stored| stored.at);
    let mut size: u64 = all.iter().map(|stored| stored.size).sum();
    for stored in all.iter().filter(|stored| stored.settled) {
        if size <= most {
            break;
        }
        if blobs.remove(&owner, &stored.digest)? {
            size -= stored.size;
        }
    }
    Ok(size)
}

/// Bytes of all blobs of a tenant.
pub(crate) fn size_of(blobs: &impl Sweepable, tenant: &str) -> Result<u64, StoreError> {
    let mut size = 0;
    blobs.each(&blobs.owner(tenant), &mut |stored| size += stored.size)?;
    Ok(size)
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Swept {
    /// How many blobs were removed.
    pub(crate) removed: u64,
    /// Their size in bytes.
    pub(crate) bytes: u64,
    /// How many that nobody names were left for a later sweep: their grace is not over, or somebody has them in hand.
    pub(crate) waiting: u64,
    /// Whether some that may be named by nobody were left for a later sweep.
    pub(crate) spared: bool,
}

/// Removes what nobody names.
pub(crate) fn sweep(
    switch: &Switch,
    blobs: &dyn Sweepable,
    closing: &AtomicBool,
) -> Result<Swept, StoreError> {
    let mut sweep = Sweep { blobs, closing, unnamed: HashMap::new(), spilled: Vec::new() };
    let reopened = switch.reopened();
    let spared = sweep.collect()?;
    if sweep.unnamed.values().all(HashMap::is_empty) {
        return Ok(Swept::default());
    }
    sweep.mark(switch)?;
    sweep.mark_spilled()?;
    fail_point!(SWEEP_MARKED);
    switch.wait_until_durable(reopened, closing)?;
    let mut swept = Swept::default();
    for (owner, unnamed) in &sweep.unnamed {
        for (digest, found) in unnamed {
            sweep.check_closing()?;
            if found.settled && blobs.remove(owner, digest)? {
                fail_point!(SWEEP_REMOVED);
                swept.removed += 1;
                swept.bytes += found.size;
            } else {
                swept.waiting += 1;
            }
        }
    }
    Ok(Swept { spared: spared || swept.waiting > 0, ..swept })
}

struct Sweep<'a> {
    blobs: &'a dyn Sweepable,
    closing: &'a AtomicBool,
    /// Blobs that no record was found to name, by owner.
    unnamed: HashMap<String, Unnamed>,
    /// Large records that lie in blobs.
    spilled: Vec<Spilled>,
}

type Unnamed = HashMap<Digest, Stored>;

/// Whose the records of a log are.
enum Owner {
    Known(String),
    /// Its first record cannot be read: what it names is kept for everybody.
    Anybody,
}

impl Sweep<'_> {
    fn check_closing(&self) -> Result<(), StoreError> {
        match self.closing.load(Ordering::Relaxed) {
            true => Err(StoreError::Closed),
            false => Ok(()),
        }
    }

    /// Finds the blobs. Whether there are more than one sweep considers.
    fn collect(&mut self) -> Result<bool, StoreError> {
        let (mut count, mut left) = (0, false);
        for owner in self.blobs.owners()? {
            self.check_closing()?;
            let mut unnamed = HashMap::new();
            self.blobs.each(&owner, &mut |stored| {
                if count < MOST {
                    count += 1;
                    unnamed.insert(stored.digest, stored);
                } else {
                    left = true;
                }
            })?;
            self.unnamed.insert(owner, unnamed);
        }
        Ok(left)
    }

    /// Takes out what frames name.
    fn mark(&mut self, table: &dyn Table) -> Result<(), StoreError> {
        let mut log: (Option<SessionId>, Owner) = (None, Owner::Anybody);
        let mut since_rest = 0;
        table.visit(keys::LOGS.to_vec(), &keys::end_of(keys::LOGS), &mut |key, frame| {
            self.check_closing()?;
            since_rest += frame.len();
            if since_rest > REST_AFTER {
                since_rest = 0;
                thread::sleep(REST);
            }
            let session = keys::session_of_frame(key);
            if session.is_none() || session != log.0 {
                log = (session, self.owner_of(frame));
            }
            for digest in named_in(frame) {
                keep(&mut self.unnamed, &log.1, &digest);
            }
            self.spilled.extend(frame::spilled(frame));
            Ok(true)
        })
    }

    /// Whose the log is that begins with this frame.
    fn owner_of(&self, first: &[u8]) -> Owner {
        let fetch = |spilled: &Spilled| self.blobs.get(&spilled.tenant, &spilled.blob);
        match frame::tenant_of_first(first, fetch) {
            Some(tenant) => Owner::Known(self.blobs.owner(&tenant)),
            None => Owner::Anybody,
        }
    }

    /// Takes out what large records name, where there is still something to take out.
    fn mark_spilled(&mut self) -> Result<(), StoreError> {
        for Spilled { tenant, blob } in std::mem::take(&mut self.spilled) {
            self.check_closing()?;
            let owner = self.blobs.owner(&tenant);
            // The blob itself, also where the first record of its log has another tenant.
            let known = Owner::Known(owner.clone());
            if let Some(digest) = digest(blob.hash.as_bytes()) {
                keep(&mut self.unnamed, &known, &digest);
            }
            let is_done = |owner: &str| self.unnamed.get(owner).is_none_or(HashMap::is_empty);
            if is_done(&owner) && is_done(&images_of(&owner)) {
                continue;
            }
            match self.blobs.get(&tenant, &blob) {
                Ok(content) => {
                    for digest in named_in(&content) {
                        keep(&mut self.unnamed, &known, &digest);
                    }
                }
                Err(error) => self.spare(&owner, &blob, &error),
            }
        }
        Ok(())
    }

    /// What a record that cannot be read names is not known: everything is kept.
    fn spare(&mut self, owner: &str, blob: &BlobRef, error: &StoreError) {
        tracing::warn!(
            blob = %blob.hash, %error,
            "a record in a blob cannot be read, so no blob of its tenant is removed; `playhouse store check` tells whose it is"
        );
        for owner in [owner, &images_of(owner)] {
            if let Some(unnamed) = self.unnamed.get_mut(owner) {
                unnamed.clear();
            }
        }
    }
}

fn keep(unnamed: &mut HashMap<String, Unnamed>, owner: &Owner, digest: &Digest) {
    match owner {
        Owner::Known(owner) => {
            for owner in [owner, &images_of(owner)] {
                if let Some(unnamed) = unnamed.get_mut(owner) {
                    unnamed.remove(digest);
                }
            }
        }
        Owner::Anybody => {
            for unnamed in unnamed.values_mut() {
                unnamed.remove(digest);
            }
        }
    }
}

//! Looking after the homes of commands, which fill them without asking.

use std::time::{Duration, Instant};

use playhouse_workspace::Pool;

use super::{Account, FreeSpace, SessionStorage, StorageBound, walk};

/// How often homes are looked at while a command runs.
const PERIOD: Duration = Duration::from_secs(1);
/// The same where the tenant is above its bound already.
const SOON: Duration = Duration::from_millis(100);
/// Between two walks at least so many times as long as the last one took.
const REST: u32 = 10;
/// Changes of free space that are not looked into when a command has ended, in bytes.
const LITTLE: u64 = 256 * 1024;

impl SessionStorage {
    /// Completes when the tenant is above its bound and the homes of the session have grown since this was called: whoever
    /// runs a command ends it then. Costs a question for free space each second, and a walk where that has changed.
    pub(crate) async fn home_is_full(&self, pool: &Pool) -> StorageBound {
        let part = &self.0;
        if part.homes.is_empty() || part.storage.0.limits.tenant.is_none() {
            return std::future::pending().await;
        }
        let (mut baseline, mut free) = (self.known_homes(), None);
        let mut pause = if part.storage.passed(&part.tenant).is_some() { SOON } else { PERIOD };
        loop {
            tokio::time::sleep(pause).await;
            let (session, before) = (self.clone(), free);
            let look = move || {
                let now = session.free();
                (now, (before.is_none() || now != before).then(|| session.count_homes()))
            };
            let begun = Instant::now();
            let (now, counted) = pool.run(look).await;
            free = now;
            pause = pause.max(begun.elapsed().saturating_mul(REST));
            let Some(bytes) = counted else { continue };
            let grown = bytes > *baseline.get_or_insert(bytes);
            if let Some(bound) = part.storage.passed(&part.tenant).filter(|_| grown) {
                return bound;
            }
        }
    }

    /// Free bytes where the homes are, to be compared after a command; `None` where nothing bounds them.
    pub(crate) async fn free_before(&self, pool: &Pool) -> Option<u64> {
        if self.0.homes.is_empty() || self.0.storage.0.limits.tenant.is_none() {
            return None;
        }
        let session = self.clone();
        let look = move || {
            if !session.knows_homes() {
                session.count_homes();
            }
            session.free()
        };
        pool.run(look).await
    }

    /// Has the homes counted anew if a command may have left much in them. Returns at once.
    pub(crate) fn count_homes_later(&self, free_before: Option<u64>, pool: &Pool) {
        let Some(before) = free_before else { return };
        let (session, pool) = (self.clone(), pool.clone());
        let look = move || {
            let less = session.free().is_some_and(|now| now.saturating_add(LITTLE) < before);
            if less && session.has_rested() {
                session.count_homes();
            }
        };
        // What it counts is noted, whoever waits for it.
        tokio::spawn(async move { pool.run(look).await });
    }

    fn free(&self) -> Option<u64> {
        let home = self.0.homes.first()?;
        Some(FreeSpace::at(home)?.free)
    }

    /// Whether the last walk is so long ago that walks take little of a processor.
    fn has_rested(&self) -> bool {
        let part = &self.0;
        part.storage.with(&part.tenant, |account| {
            let mut counted = part.homes.iter().filter_map(|home| account.homes.get(home));
            counted.all(|home| home.rests_until.is_none_or(|until| until <= Instant::now()))
        })
    }

    /// Counts what lies in the homes. Blocks.
    fn count_homes(&self) -> u64 {
        let part = &self.0;
        let count = |home: &std::path::PathBuf| {
            let begun = Instant::now();
            let bytes = walk::allocated(home);
            part.storage.note_home(&part.tenant, home, bytes);
            let rests_until = Instant::now() + begun.elapsed().saturating_mul(REST);
            part.storage.with(&part.tenant, |account| {
                account.homes.entry(home.clone()).or_default().rests_until = Some(rests_until);
            });
            bytes
        };
        part.homes.iter().map(count).sum()
    }

    fn knows_homes(&self) -> bool {
        let part = &self.0;
        let is_known = |account: &mut Account| part.homes.iter().all(|home| account.homes.contains_key(home));
        part.storage.with(&part.tenant, is_known)
    }

    /// What was counted before, if anything was.
    fn known_homes(&self) -> Option<u64> {
        let part = &self.0;
        part.storage.with(&part.tenant, |account| {
            let known = part.homes.iter().filter_map(|home| account.homes.get(home));
            known.map(|home| home.bytes).reduce(|sum, bytes| sum + bytes)
        })
    }
}

//! The free space of the data directory: where little is left, the tenants that take up most are suspended first.
//!
//! A suspended tenant's sessions stop as when the store takes no writes, and its prompts are refused; what frees space
//! (removal, aborts) goes on, and so do all other tenants until the disk is full. When space is back its sessions go on.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use playhouse_protocol::CommandError;
use playhouse_protocol::operator::{BY_HAND_TENANT, LOCAL_TENANT};
use playhouse_tools::storage::{FreeSpace, StorageUse};

/// Percent of the file system: with less free, tenants are suspended.
pub(crate) const LITTLE: u64 = 5;
/// Percent of the file system: with so much free again, they go on.
const ENOUGH: u64 = 6;
/// A tenant is suspended that takes up more than one part in so many of what all take up.
const PARTS: u64 = 10;

/// The tenant that what belongs to this one is counted for. Calls by hand are the operator's.
pub(crate) fn payer(tenant: &str) -> &str {
    if tenant == BY_HAND_TENANT { LOCAL_TENANT } else { tenant }
}

/// Free space, and the tenants that are suspended since there is little of it.
#[derive(Debug, Default)]
pub(crate) struct Space(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    now: Option<FreeSpace>,
    /// Free bytes when a tenant was suspended last.
    free_then: u64,
    /// With what they took up then.
    suspended: HashMap<Arc<str>, u64>,
}

impl Space {
    /// As it was looked at last.
    pub(crate) fn get(&self) -> Option<FreeSpace> {
        self.0.lock().now
    }

    /// Number of suspended tenants.
    pub(crate) fn suspended(&self) -> usize {
        self.0.lock().suspended.len()
    }

    /// Checks that a tenant is not suspended.
    ///
    /// # Errors
    /// The tenant is suspended, for this reason.
    pub(crate) fn allows(&self, tenant: &str) -> Result<(), CommandError> {
        let state = self.0.lock();
        let Some(bytes) = state.suspended.get(payer(tenant)) else { return Ok(()) };
        Err(CommandError::Suspended(format!(
            "less than {LITTLE} % of the disk of the data directory is free, and this tenant takes up {} MB of it: what runs \
             is suspended, and goes on by itself when there is space again. Delete sessions that are not needed any more",
            bytes >> 20
        )))
    }

    /// Takes over what is free now. Gives back the tenant that is suspended from now on.
    pub(crate) fn note(&self, now: FreeSpace, usages: &[(Arc<str>, StorageUse)]) -> Option<Arc<str>> {
        let mut state = self.0.lock();
        state.now = Some(now);
        if !now.is_below(ENOUGH) && !state.suspended.is_empty() {
            tracing::info!(free = now.free, "tenants go on that were suspended: there is space again");
            state.suspended.clear();
        }
        // One after the other: the next one only if the space went on shrinking without it.
        if !now.is_below(LITTLE) || (!state.suspended.is_empty() && now.free >= state.free_then) {
            return None;
        }
        let others = usages.iter().filter(|(tenant, _)| !state.suspended.contains_key(tenant));
        let all: u64 = usages.iter().map(|(_, usage)| usage.total()).sum();
        // The last one has nobody to make way for.
        let (tenant, bytes) = (others.clone().count() > 1).then(|| {
            others.map(|(tenant, usage)| (tenant, usage.total())).max_by_key(|(_, bytes)| *bytes)
        })??;
        if bytes <= all / PARTS {
            return None;
        }
        tracing::warn!(%tenant, bytes, free = now.free, "a tenant is suspended: there is little space on the disk");
        state.free_then = now.free;
        state.suspended.insert(Arc::clone(tenant), bytes);
        Some(Arc::clone(tenant))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usages(bytes: &[(&str, u64)]) -> Vec<(Arc<str>, StorageUse)> {
        let usage = |bytes| StorageUse { outputs: bytes, ..StorageUse::default() };
        bytes.iter().map(|(tenant, bytes)| ((*tenant).into(), usage(*bytes))).collect()
    }

    fn note(space: &Space, free: u64, bytes: &[(&str, u64)]) -> Option<String> {
        space.note(FreeSpace { free, size: 1_000 }, &usages(bytes)).map(|tenant| tenant.to_string())
    }

    #[test]
    fn the_largest_goes_first_and_the_next_one_only_if_space_goes_on_shrinking() {
        let space = Space::default();
        let bytes = [("a", 50), ("b", 300), ("c", 200), ("d", 10)];
        assert_eq!(note(&space, 50, &bytes), None);
        assert_eq!(note(&space, 49, &bytes).as_deref(), Some("b"));
        assert!(space.allows("b").is_err() && space.allows("c").is_ok());
        assert_eq!(note(&space, 49, &bytes), None);
        assert_eq!(note(&space, 48, &bytes).as_deref(), Some("c"));
        // The others hold less than a tenth.
        assert_eq!((note(&space, 10, &bytes), space.suspended()), (None, 2));
        assert_eq!((note(&space, 55, &bytes), space.suspended()), (None, 2));
        assert_eq!((note(&space, 60, &bytes), space.suspended()), (None, 0));
        assert!(space.allows("b").is_ok());
    }

    #[test]
    fn one_that_is_alone_and_tenants_that_hold_nothing_go_on() {
        let space = Space::default();
        assert_eq!(note(&space, 1, &[("a", 500)]), None);
        assert_eq!(note(&space, 1, &[("a", 0), ("b", 0)]), None);
    }
}

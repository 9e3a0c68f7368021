//! For whom people agreed to programs that workspaces bring.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use playhouse_protocol::SessionId;
use playhouse_tools::{Agreed, ToolScope};

/// Number of sessions of which is known what people agreed to for them alone.
const MOST_SESSIONS: usize = 4_096;

/// What people agreed to, by the hashes of what is started.
#[derive(Default)]
pub(super) struct Consents {
    /// By tenant, what may serve all its sessions in their workspace.
    always: HashMap<Arc<str>, HashSet<String>>,
    /// What may serve one session, with its tenant.
    once: HashMap<SessionId, (Arc<str>, HashSet<String>)>,
}

impl Consents {
    /// Whether people agreed to this for a session.
    pub(super) fn is_agreed(&self, scope: &ToolScope, hash: &str) -> bool {
        let holds = |hashes: Option<&HashSet<String>>| hashes.is_some_and(|hashes| hashes.contains(hash));
        holds(self.always.get(&scope.tenant))
            || holds(self.once.get(&scope.session).map(|(_, hashes)| hashes))
    }

    /// Whether people agreed to it for any session of a tenant.
    pub(super) fn serves_any(&self, tenant: &str, hash: &str) -> bool {
        let of_tenant = self.always.get(tenant).is_some_and(|hashes| hashes.contains(hash));
        let once = self.once.values().filter(|(of, _)| **of == *tenant);
        of_tenant || once.into_iter().any(|(_, hashes)| hashes.contains(hash))
    }

    /// Notes for whom people agreed. Whether that is more or less than before.
    pub(super) fn agree(&mut self, scope: &ToolScope, hash: &str, to: Agreed) -> bool {
        if self.once.len() >= MOST_SESSIONS && !self.once.contains_key(&scope.session) {
            // What was agreed to stands in the logs of the sessions, and is told again with their next prompt.
            self.once.clear();
        }
        let always = self.always.entry(Arc::clone(&scope.tenant)).or_default();
        let always =
            if to == Agreed::Workspace { always.insert(hash.to_owned()) } else { always.remove(hash) };
        let fresh = || (Arc::clone(&scope.tenant), HashSet::new());
        let (_, once) = self.once.entry(scope.session).or_insert_with(fresh);
        let changed = if to == Agreed::Session { once.insert(hash.to_owned()) } else { once.remove(hash) };
        if once.is_empty() {
            self.once.remove(&scope.session);
        }
        always || changed
    }
}

//! The servers that are declared: the operator's, and those of workspaces, each with who may use it.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use playhouse_mcp::names::mixes_up;
use playhouse_mcp::{MOST_CONTENT, ServerEntry, Transport, WORKSPACE_FILE, WorkspaceServer, declared_in};
use playhouse_protocol::operator::{BY_HAND_TENANT, LOCAL_TENANT};
use playhouse_tools::{Agreed, ToolScope};

use crate::shared::consents::Consents;

/// Number of workspaces whose servers are known.
const MOST_WORKSPACES: usize = 4_096;
/// Why sessions of clients with keys use no program that a workspace declares.
const OPERATORS_ONLY: &str =
    "refused: where clients have keys, servers that are programs come only from the operator's configuration";

/// An entry with its hash.
#[derive(Debug)]
pub(super) struct Declared {
    pub(super) entry: ServerEntry,
    /// That of the entry; of a workspace's server its identity.
    pub(super) hash: String,
    /// The workspace's server that it is, if it is not the operator's.
    pub(super) of: Option<WorkspaceServer>,
}

impl Declared {
    /// A server of the operator's.
    fn own(entry: ServerEntry) -> Self {
        Self { hash: entry.hash(), entry, of: None }
    }

    /// Whether it still is what people agreed to. Blocks.
    pub(super) fn is_unchanged(&self) -> bool {
        self.of.as_ref().is_none_or(|server| server.identity().is_ok_and(|identity| identity == self.hash))
    }

    /// Why sessions of a tenant may not use it, whatever anybody agreed to.
    fn refused_to(&self, tenant: &str) -> Option<&'static str> {
        let is_program = matches!(self.entry.transport, Transport::Stdio(_));
        let is_keyed = tenant != LOCAL_TENANT && tenant != BY_HAND_TENANT;
        (self.of.is_some() && is_program && is_keyed).then_some(OPERATORS_ONLY)
    }
}

/// What a workspace declares.
#[derive(Default)]
pub(super) struct Found {
    pub(super) servers: Vec<Arc<Declared>>,
    /// By name, with the reason.
    pub(super) refused: Vec<(String, String)>,
}

impl Found {
    fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.refused.is_empty()
    }

    fn is_as(&self, other: &Self) -> bool {
        let hashes = |found: &Self| found.servers.iter().map(|one| one.hash.clone()).collect::<Vec<_>>();
        self.refused == other.refused && hashes(self) == hashes(other)
    }
}

/// All that is declared, and what people agreed to of it.
pub(super) struct Declarations {
    /// The operator's, in their order.
    pub(super) own: Vec<Arc<Declared>>,
    workspaces: Mutex<HashMap<Arc<Path>, Arc<Found>>>,
    agreed: Mutex<Consents>,
}

impl Declarations {
    /// Of two of the operator's with the same name the first counts.
    pub(super) fn new(entries: Vec<ServerEntry>) -> Self {
        let mut names = HashSet::new();
        let own = entries.into_iter().filter(|entry| names.insert(entry.name.clone()));
        let own = own.map(|entry| Arc::new(Declared::own(entry))).collect();
        Self { own, workspaces: Mutex::default(), agreed: Mutex::default() }
    }

    /// Reads what a workspace declares. Whether that is something else than before. Blocks.
    pub(super) fn look(&self, workspace: &Arc<Path>) -> bool {
        let found = self.read(workspace);
        let mut workspaces = self.workspaces.lock();
        let changed =
            !workspaces.get(workspace).map_or_else(|| found.is_empty(), |known| known.is_as(&found));
        if found.is_empty() {
            workspaces.remove(workspace);
        } else if changed {
            if workspaces.len() >= MOST_WORKSPACES {
                // They are read again when a session wakes there.
                workspaces.clear();
            }
            workspaces.insert(Arc::clone(workspace), Arc::new(found));
        }
        changed
    }

    fn read(&self, workspace: &Path) -> Found {
        let (mut found, mut left) = (Found::default(), MOST_CONTENT);
        let declared = declared_in(workspace).unwrap_or_else(|error| {
            found.refused.push((WORKSPACE_FILE.to_owned(), error));
            Vec::new()
        });
        for (name, server) in declared {
            let taken = |own: &&Arc<Declared>| own.entry.name == name || mixes_up(&own.entry.name, &name);
            let mixed = |other: &&Arc<Declared>| mixes_up(&other.entry.name, &name);
            let made = server.and_then(|server| {
                if let Some(own) = self.own.iter().find(taken) {
                    return Err(format!(
                        "refused: the operator declares \"{}\", whose tools could have the same names",
                        own.entry.name
                    ));
                }
                if let Some(other) = found.servers.iter().find(mixed) {
                    return Err(format!(
                        "refused: the tools of \"{}\" could have the same names",
                        other.entry.name
                    ));
                }
                let hash = server.identity_within(&mut left).map_err(|error| format!("refused: {error}"))?;
                Ok(Declared { entry: server.entry.clone(), hash, of: Some(server) })
            });
            match made {
                Ok(declared) => found.servers.push(Arc::new(declared)),
                Err(reason) => found.refused.push((name, reason)),
            }
        }
        found
    }

    /// What was found in a workspace when it was read last.
    pub(super) fn found(&self, workspace: &Path) -> Arc<Found> {
        self.workspaces.lock().get(workspace).map(Arc::clone).unwrap_or_default()
    }

    /// The servers of a workspace that people are asked about, for sessions of a tenant.
    pub(super) fn of_workspace(&self, tenant: &str, workspace: &Path) -> Vec<Arc<Declared>> {
        let found = self.found(workspace);
        let usable = found.servers.iter().filter(|declared| declared.refused_to(tenant).is_none());
        usable.map(Arc::clone).collect()
    }

    /// What of a workspace is refused, for sessions of a tenant.
    pub(super) fn refused(&self, tenant: &str, workspace: &Path) -> Vec<(String, String)> {
        let found = self.found(workspace);
        let servers = found.servers.iter().filter_map(|declared| {
            let reason = declared.refused_to(tenant)?;
            Some((declared.entry.name.clone(), reason.to_owned()))
        });
        found.refused.iter().cloned().chain(servers).collect()
    }

    /// The servers that a session may use: those of the operator, and those of its workspace that people agreed to.
    pub(super) fn of(&self, scope: &ToolScope) -> Vec<Arc<Declared>> {
        let mut all = self.own.clone();
        let of_workspace = self.of_workspace(&scope.tenant, &scope.workspace);
        all.extend(of_workspace.into_iter().filter(|declared| self.is_agreed(scope, &declared.hash)));
        all
    }

    /// The one of a hash, as long as it is declared.
    pub(super) fn by_hash(&self, hash: &str) -> Option<Arc<Declared>> {
        let is_it = |declared: &&Arc<Declared>| declared.hash == hash;
        let own = self.own.iter().find(is_it).map(Arc::clone);
        own.or_else(|| {
            let workspaces = self.workspaces.lock();
            workspaces.values().find_map(|found| found.servers.iter().find(is_it).map(Arc::clone))
        })
    }

    /// Whether people agreed to a workspace's server for this session.
    pub(super) fn is_agreed(&self, scope: &ToolScope, hash: &str) -> bool {
        self.agreed.lock().is_agreed(scope, hash)
    }

    /// Whether people agreed to it for any session of a tenant.
    pub(super) fn serves_any(&self, tenant: &str, hash: &str) -> bool {
        self.agreed.lock().serves_any(tenant, hash)
    }

    /// Notes for whom people agreed to a workspace's server. Whether that is more or less than before.
    pub(super) fn agree(&self, scope: &ToolScope, hash: &str, to: Agreed) -> bool {
        self.agreed.lock().agree(scope, hash, to)
    }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::Timestamp;

    use super::*;
    use crate::base::Ids;

    fn scope(tenant: &str, workspace: &Path) -> ToolScope {
        let session = Ids::after(Timestamp::default()).next();
        ToolScope { tenant: tenant.into(), workspace: workspace.into(), session }
    }

    fn names(declared: &[Arc<Declared>]) -> Vec<&str> {
        declared.iter().map(|declared| declared.entry.name.as_str()).collect()
    }

    #[test]
    fn a_workspaces_servers_serve_whom_people_agreed_for() {
        let folder = tempfile::tempdir().unwrap();
        let workspace: Arc<Path> = fs_err::canonicalize(folder.path()).unwrap().into();
        let entries = vec![ServerEntry::stdio("own", "p", Vec::new())];
        let declarations = Declarations::new(entries);
        assert!(!declarations.look(&workspace), "there is none");
        let text = r#"{"mcpServers": {"a": {"command": "p"}, "b": {"url": "https://b.example"}, "own": {"command": "p"}, "own_x": {"command": "p"}}}"#;
        fs_err::write(workspace.join(WORKSPACE_FILE), text).unwrap();
        assert!(declarations.look(&workspace) && !declarations.look(&workspace));
        let (one, other, keyed) =
            (scope("local", &workspace), scope("local", &workspace), scope("acme", &workspace));
        assert_eq!(names(&declarations.of_workspace("local", &workspace)), ["a", "b"]);
        assert_eq!(names(&declarations.of_workspace("acme", &workspace)), ["b"]);
        let refused: Vec<String> =
            declarations.refused("acme", &workspace).into_iter().map(|one| one.0).collect();
        assert_eq!(refused, ["own", "own_x", "a"]);
        assert_eq!(names(&declarations.of(&one)), ["own"]);
        let hash = declarations.of_workspace("local", &workspace)[0].hash.clone();
        assert!(declarations.agree(&one, &hash, Agreed::Session));
        assert_eq!(
            (names(&declarations.of(&one)), names(&declarations.of(&other))),
            (vec!["own", "a"], vec!["own"])
        );
        assert!(
            declarations.agree(&one, &hash, Agreed::Workspace)
                && !declarations.agree(&other, &hash, Agreed::Workspace)
        );
        assert_eq!(
            (names(&declarations.of(&other)), names(&declarations.of(&keyed))),
            (vec!["own", "a"], vec!["own"])
        );
        assert!(declarations.agree(&other, &hash, Agreed::No));
        assert_eq!(names(&declarations.of(&one)), ["own"]);
        assert!(declarations.by_hash(&hash).is_some_and(|declared| declared.is_unchanged()));
        fs_err::remove_file(workspace.join(WORKSPACE_FILE)).unwrap();
        assert!(declarations.look(&workspace) && declarations.by_hash(&hash).is_none());
    }
}

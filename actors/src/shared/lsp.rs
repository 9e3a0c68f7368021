//! Language servers of sessions: what is wrong with files after an edit, and the tool `lsp`.
//!
//! - A server starts at the first edit of a file of its language, or the first call of the tool; sessions of a tenant share it
//!   for the same project in the same workspace.
//! - An [`LspObserver`] of a call shows a server what was written, and tells the model which errors are new.
//! - How servers start, rest and fail is up to [`Leases`].

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use playhouse_lsp::{ServerEntry, Touch};
use playhouse_protocol::SessionId;
use playhouse_protocol::operator::{BY_HAND_TENANT, LOCAL_TENANT};
use playhouse_protocol::walls::{Sandbox, Strength};
use playhouse_sandbox::blocking;
use playhouse_tools::{Agreed, StartRequest, Tool, ToolScope, ToolSource, Typed};
use tokio::runtime::Handle;
use tokio::sync::watch;

mod found;
mod kind;
mod observer;
mod report;
mod running;
mod status;
mod tool;

use super::consents::Consents;
use super::{Lease, Leases, Rules, State};
use crate::base::spawn_on;
use found::{FoundServer, found, root_of};
use kind::{Ground, START, ServerKey, Servers, Trust, key_of};
pub(crate) use observer::LspObserver;
pub use status::{LspFile, LspFound, LspState, LspStatus, LspSymbol};
use tool::LspTool;

/// Number of workspaces whose servers are known.
const MOST_WORKSPACES: usize = 4_096;
/// Number of sessions of which something is remembered.
const MOST_SESSIONS: usize = 4_096;
/// Texts that wait for one session.
const MOST_NOTES: usize = 8;
/// Characters of one of them.
const LONGEST_NOTE: usize = 4_000;
/// How long a stop of all servers may take.
const STOP: Duration = Duration::from_secs(12);
/// Deaths of a server, within the window of the rules, after which it is not started for a while.
const DEATHS: u32 = 3;

/// What language servers may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LspLimits {
    /// Servers of a tenant that run at once.
    pub servers_per_tenant: usize,
    /// Memory of one, in bytes.
    pub memory: u64,
    /// Memory of all, in bytes, above which no further one is started.
    pub total_memory: u64,
}

/// What language servers stand on.
pub struct LspOptions {
    /// The servers that may be used. Of two for the same files the first that is found counts.
    pub entries: Vec<ServerEntry>,
    /// Folder of the engine's own for their homes.
    pub folder: PathBuf,
    /// Where work goes on that nobody waits for.
    pub runtime: Handle,
    /// Whether there must be walls around them.
    pub sandbox: Sandbox,
    /// What walls hide: the engine's own directories and files.
    pub hidden: Vec<PathBuf>,
    /// Directories of the operator's below which the git directory of a worktree may lie.
    pub roots: Vec<PathBuf>,
    /// What they may use.
    pub limits: LspLimits,
}

/// All language servers of an engine. Clones are the same.
#[derive(Clone)]
pub struct LspServers(Arc<Inner>);

struct Inner {
    ground: Arc<Ground>,
    leases: Leases<Servers>,
    runtime: Handle,
    /// The servers that were found, by workspace.
    workspaces: Mutex<HashMap<Arc<Path>, FoundServers>>,
    /// What people agreed to.
    agreed: Mutex<Consents>,
    /// What is to be told with the next result.
    notes: Mutex<HashMap<SessionId, Vec<String>>>,
    /// Counts changes of what is offered.
    offered: watch::Sender<u64>,
    /// Counts starts and ends.
    states: Arc<watch::Sender<u64>>,
    /// Whether full walls can be built here.
    has_full_walls: OnceLock<bool>,
    /// The tool of each session, with the number of changes at which it was offered or not.
    remembered: Mutex<HashMap<SessionId, (u64, Tools)>>,
}

type FoundServers = Arc<[Arc<FoundServer>]>;
type Tools = Arc<[Arc<dyn Tool>]>;

/// Files of one server in one project.
struct Job {
    server: Arc<FoundServer>,
    key: ServerKey,
    paths: Vec<PathBuf>,
}

/// Whether a server can be asked.
enum Standing {
    /// It runs.
    Warm,
    /// It is started, or was not needed yet.
    Cold,
    /// It failed: a lease says why.
    Failed,
}

impl LspServers {
    /// The servers, none of which runs.
    pub fn new(options: LspOptions) -> Self {
        let LspOptions { entries, folder, runtime, sandbox, hidden, roots, limits } = options;
        let states = Arc::new(watch::Sender::new(0));
        let told = Arc::clone(&states);
        let ground = Arc::new(Ground {
            entries,
            folder,
            sandbox,
            hidden,
            roots,
            limits,
            running: Mutex::default(),
            changed: Arc::new(move || told.send_modify(|count| *count += 1)),
        });
        let rules = Rules { failures: DEATHS, start_deadline: START, ..Rules::default() };
        Self(Arc::new(Inner {
            leases: Leases::new(Servers(Arc::clone(&ground)), rules),
            ground,
            runtime,
            workspaces: Mutex::default(),
            agreed: Mutex::default(),
            notes: Mutex::default(),
            offered: watch::Sender::new(0),
            states,
            has_full_walls: OnceLock::new(),
            remembered: Mutex::default(),
        }))
    }

    /// Observes one call of a session.
    pub(crate) fn observer(&self, scope: ToolScope) -> LspObserver {
        LspObserver::new(Arc::clone(&self.0), scope)
    }
}

impl LspServers {
    /// Tells all servers that run which files changed below their workspaces, whoever did that.
    pub(crate) fn tell_all(&self, changes: Vec<(PathBuf, Touch)>) {
        if !changes.is_empty() && !self.0.ground.running().is_empty() {
            let inner = Arc::clone(&self.0);
            spawn_on(&self.0.runtime, async move { inner.tell(&changes, |_| true).await });
        }
    }

    /// Tells the servers of a tenant that run in a workspace which files others changed there.
    pub(crate) async fn hear(&self, tenant: &str, workspace: &Path, changes: &[(PathBuf, Touch)]) {
        for (key, server) in self.0.ground.running() {
            if *key.tenant == *tenant && *key.workspace == *workspace {
                server.hear(changes).await;
            }
        }
    }
}

impl fmt::Debug for LspServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.ground.entries.iter().map(|entry| entry.name.as_str()).collect();
        f.debug_tuple("LspServers").field(&names).finish()
    }
}

impl ToolSource for LspServers {
    fn tools(&self, scope: &ToolScope) -> Arc<[Arc<dyn Tool>]> {
        let inner = &self.0;
        // Looked at before: what changes meanwhile is looked at again.
        let changes = *inner.offered.borrow();
        if let Some((_, tools)) = inner.remembered.lock().get(&scope.session).filter(|(at, _)| *at == changes)
        {
            return Arc::clone(tools);
        }
        let found = inner.known(&scope.workspace);
        let is_offered = |server: &Arc<FoundServer>| server.is_wanted && inner.trust(server, scope).is_some();
        let tools: Tools = match found.iter().any(is_offered) {
            true => {
                let tool = LspTool { servers: Arc::downgrade(inner), scope: scope.clone() };
                Arc::new([Arc::new(Typed::new(tool)) as Arc<dyn Tool>])
            }
            false => Arc::new([]),
        };
        let mut remembered = inner.remembered.lock();
        if remembered.len() >= MOST_SESSIONS {
            remembered.clear();
        }
        remembered.insert(scope.session, (changes, Arc::clone(&tools)));
        tools
    }

    fn load(&self, scope: &ToolScope) {
        self.0.look(&scope.workspace);
    }

    fn starts(&self, scope: &ToolScope) -> Vec<StartRequest> {
        if is_keyed(&scope.tenant) || *self.0.has_full_walls.get().unwrap_or(&false) {
            return Vec::new();
        }
        let found = self.0.known(&scope.workspace);
        let asked = found.iter().filter(|server| server.is_wanted).filter_map(|server| {
            Some(StartRequest {
                subject: subject(server, server.hash.as_ref()?),
                name: format!("lsp_{}", server.entry.name),
                reason: format!(
                    "the program of the language server \"{}\" lies in the workspace, and would be started without full walls",
                    server.entry.name
                ),
                preview: std::iter::once(server.program.display().to_string())
                    .chain(server.entry.command.iter().skip(1).cloned())
                    .collect::<Vec<_>>()
                    .join(" "),
            })
        });
        asked.collect()
    }

    fn agreed(&self, scope: &ToolScope, of: &str, agreed: Agreed) {
        let found = self.0.known(&scope.workspace);
        let is_it =
            |server: &&Arc<FoundServer>| server.hash.as_ref().is_some_and(|hash| subject(server, hash) == of);
        let Some(hash) = found.iter().find(is_it).and_then(|server| server.hash.as_ref()) else { return };
        if self.0.agreed.lock().agree(scope, hash, agreed) {
            self.0.offered.send_modify(|count| *count += 1);
            if agreed == Agreed::No && !self.0.agreed.lock().serves_any(&scope.tenant, hash) {
                // What nobody agrees to any more does not run on.
                let is_unwanted = |key: &ServerKey| {
                    key.tenant == scope.tenant && key.trust == Trust::Agreed(hash.as_str().into())
                };
                let own = self.0.leases.status().into_iter().filter(|child| is_unwanted(&child.key));
                own.for_each(|child| self.0.leases.restart(&child.key));
            }
        }
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.0.offered.subscribe()
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let left = self.0.leases.stop_all(STOP).await.len();
            if left > 0 {
                tracing::warn!(left, "language servers did not stop in time");
            }
        })
    }
}

/// What people agree to, as text: the server's name and the hash of its program.
fn subject(server: &FoundServer, hash: &str) -> String {
    format!("lsp {} {hash}", server.entry.name)
}

/// Whether sessions of a tenant are those of clients with keys.
fn is_keyed(tenant: &str) -> bool {
    tenant != LOCAL_TENANT && tenant != BY_HAND_TENANT
}

impl Inner {
    /// The servers of a workspace as it was looked at last.
    fn known(&self, workspace: &Path) -> FoundServers {
        self.workspaces.lock().get(workspace).map_or_else(|| Arc::new([]), Arc::clone)
    }

    /// Looks which servers there are for a workspace. Blocks.
    fn look(&self, workspace: &Arc<Path>) -> FoundServers {
        let now: FoundServers = found(&self.ground.entries, workspace).into();
        if now.iter().any(|server| server.hash.is_some()) {
            self.has_full_walls.get_or_init(|| {
                let home = self.ground.folder.join("probe");
                let made = fs_err::create_dir_all(home.join("output"));
                let walls = made
                    .map_err(|error| error.to_string())
                    .and_then(|()| self.ground.walls(Sandbox::Required, &home, workspace, Vec::new()));
                walls.is_ok_and(|walls| walls.known().is_some_and(|walls| walls.strength == Strength::Full))
            });
        }
        let identities = |servers: &[Arc<FoundServer>]| -> Vec<_> {
            servers.iter().map(|one| (one.program.clone(), one.hash.clone(), one.is_wanted)).collect()
        };
        let mut workspaces = self.workspaces.lock();
        let is_known = workspaces.get(workspace).is_some_and(|known| identities(known) == identities(&now));
        if !is_known {
            if workspaces.len() >= MOST_WORKSPACES {
                // They are looked at again when a session wakes there.
                workspaces.clear();
            }
            workspaces.insert(Arc::clone(workspace), Arc::clone(&now));
            self.offered.send_modify(|count| *count += 1);
        }
        now
    }

    /// Why a session may use a server; `None` if it may not.
    fn trust(&self, server: &FoundServer, scope: &ToolScope) -> Option<Trust> {
        let Some(hash) = &server.hash else { return Some(Trust::Operator) };
        if self.agreed.lock().is_agreed(scope, hash) {
            return Some(Trust::Agreed(hash.as_str().into()));
        }
        let is_full = *self.has_full_walls.get().unwrap_or(&false);
        is_full.then(|| Trust::Walls(hash.as_str().into()))
    }

    /// Who is asked of these files: by server and project. Files without a server are left out.
    async fn jobs(&self, scope: &ToolScope, paths: impl IntoIterator<Item = PathBuf>) -> Vec<Job> {
        let found = self.known(&scope.workspace);
        let usable = |path: PathBuf| {
            let name = path.file_name()?.to_str()?;
            let server = found.iter().find(|server| server.entry.takes(name))?;
            let trust = self.trust(server, scope)?;
            path.starts_with(&scope.workspace).then(|| (Arc::clone(server), trust, path))
        };
        let usable: Vec<_> = paths.into_iter().filter_map(usable).collect();
        if usable.is_empty() {
            return Vec::new();
        }
        let scope = scope.clone();
        blocking(move || {
            let mut jobs: Vec<Job> = Vec::new();
            for (server, trust, path) in usable {
                let root = root_of(&path, &scope.workspace, &server.entry.root_markers);
                let key = key_of(&server, &scope.tenant, &scope.workspace, &root, trust);
                match jobs.iter_mut().find(|job| job.key == key) {
                    Some(job) => job.paths.push(path),
                    None => jobs.push(Job { server, key, paths: vec![path] }),
                }
            }
            jobs
        })
        .await
    }

    /// Tells servers of other sessions what one changed, as far as they work in another workspace, or for another tenant.
    fn tell_other_workspaces(self: &Arc<Self>, scope: &ToolScope, changes: Vec<(PathBuf, Touch)>) {
        let is_other = |key: &ServerKey, scope: &ToolScope| {
            key.tenant != scope.tenant || *key.workspace != *scope.workspace
        };
        let running = self.ground.running();
        if changes.is_empty() || !running.iter().any(|(key, _)| is_other(key, scope)) {
            return;
        }
        let (inner, scope) = (Arc::clone(self), scope.clone());
        spawn_on(&self.runtime, async move { inner.tell(&changes, |key| is_other(key, &scope)).await });
    }

    /// Tells servers that run which files changed below their workspaces.
    async fn tell(&self, changes: &[(PathBuf, Touch)], is_told: impl Fn(&ServerKey) -> bool) {
        let running = self.ground.running().into_iter().filter(|(key, _)| is_told(key));
        let heard = running.map(async |(key, server)| {
            let own = changes.iter().filter(|(path, _)| path.starts_with(&key.workspace));
            let own: Vec<_> = own.cloned().collect();
            if !own.is_empty() {
                server.hear(&own).await;
            }
        });
        join_all(heard).await;
    }

    fn standing(&self, key: &ServerKey) -> Standing {
        let status = self.leases.status();
        match status.iter().find(|child| child.key == *key).map(|child| child.state) {
            Some(State::Running { .. } | State::Idle { .. }) => Standing::Warm,
            Some(State::BackingOff { .. } | State::Open { .. } | State::Failed) => Standing::Failed,
            Some(State::Starting | State::Stopping | State::Stopped) | None => Standing::Cold,
        }
    }

    /// Leases a server, and starts it if it does not run. Of a tenant that has as many as it may, the one stops that rests for
    /// the longest time.
    async fn lease(&self, key: &ServerKey, session: SessionId) -> Result<Lease<Servers>, String> {
        let status = self.leases.status();
        let is_up = |state| {
            matches!(state, State::Starting | State::Running { .. } | State::Idle { .. } | State::Stopping)
        };
        let own: Vec<_> =
            status.iter().filter(|child| child.key.tenant == key.tenant && is_up(child.state)).collect();
        let most = self.ground.limits.servers_per_tenant;
        if own.len() >= most && !own.iter().any(|child| child.key == *key) {
            let since = |state| match state {
                State::Idle { since } => Some(since),
                _ => None,
            };
            let resting = own.iter().filter_map(|child| Some((since(child.state)?, &child.key)));
            match resting.min_by_key(|(since, _)| *since) {
                Some((_, oldest)) => self.leases.restart(oldest),
                None => {
                    return Err(format!(
                        "language server {key} is not started: {most} run already (`lsp.servers_per_tenant`), and all are at work; try again later"
                    ));
                }
            }
        }
        self.leases.lease(key, session).await.map_err(|error| error.to_string())
    }

    /// Has a text told with the next result of a session.
    fn note(&self, session: SessionId, text: String) {
        let mut notes = self.notes.lock();
        if notes.len() >= MOST_SESSIONS && !notes.contains_key(&session) {
            notes.clear();
        }
        let own = notes.entry(session).or_default();
        if own.contains(&text) {
            return;
        }
        let text = match text.char_indices().nth(LONGEST_NOTE) {
            Some((end, _)) => format!("{}\n(cut: ask the tool lsp for the rest)", &text[..end]),
            None => text,
        };
        if own.len() >= MOST_NOTES {
            own.remove(0);
        }
        own.push(text);
    }
}

#[cfg(test)]
mod tests;

//! Servers of tools (MCP) as a source of tools for sessions.
//!
//! - A server starts when a call needs it, or when nothing is known of its tools; sessions share it as far as its entry says.
//! - Tools come from the list that was seen last, which is kept on disk: a session begins with them without waiting for a server.
//! - How servers start, rest and fail is up to [`Leases`]; how calls share a server, to
//!   [`Connection`](playhouse_mcp::Connection).

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use playhouse_mcp::{
    Caller, Connection, KeptLists, McpResource, McpTool, OfferedTool, ResourceServer, ServerEntry,
    WORKSPACE_FILE, pass_on,
};
use playhouse_protocol::SessionId;
use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::operator::LOCAL_TENANT;
use playhouse_protocol::walls::Sandbox;
use playhouse_tools::web::Door;
use playhouse_tools::{Agreed, MCP_PREFIX, StartRequest, Tool, ToolScope, ToolSource};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

mod caller;
mod declared;
mod key;
mod kind;
mod known;
mod login;
mod measure;
mod prompts;

use super::{Lease, LeaseError, Leases, Rules, State};
use crate::base::spawn_on;
use caller::SessionCaller;
use declared::{Declarations, Declared};
use key::ServerKey;
use kind::{Ground, Running, Servers};
use known::Known;
use login::Logins;
pub use login::{LoginBegun, LoginFailure};
pub use playhouse_mcp::Redirected;
pub(crate) use prompts::ServerPrompt;

/// Deaths of a server, within the window of the rules, after which it is not started for a while.
const DEATHS: u32 = 3;
/// How much longer than its greeting a start may take: until its tools are listed.
const LISTING: Duration = Duration::from_secs(30);
/// How long a workspace's server may take to start.
const WORKSPACE_START: Duration = Duration::from_secs(30);
/// Number of sessions whose tools are remembered. Beyond it all are made anew.
const REMEMBERED: usize = 4_096;
/// How long a session waits for the tools of servers of which nothing is known.
const READY: Duration = Duration::from_millis(800);
/// What metrics call all servers that workspaces declare.
const OF_WORKSPACES: &str = "workspace";
/// How long a stop of all servers may take.
const STOP: Duration = Duration::from_secs(12);

/// What servers of tools stand on.
pub struct McpOptions {
    /// The servers. Of two with the same name the first counts.
    pub entries: Vec<ServerEntry>,
    /// Folder of the engine's own for their lists, homes and working directories.
    pub folder: PathBuf,
    /// Where servers are started that nobody waits for.
    pub runtime: Handle,
    /// Whether there must be walls around those whose entries want some.
    pub sandbox: Sandbox,
    /// What walls hide: the engine's own directories and files.
    pub hidden: Vec<PathBuf>,
    /// Directories of the operator's below which the git directory of a worktree may lie.
    pub roots: Vec<PathBuf>,
    /// The way to servers that are addresses: to the public Internet, and to what the operator allowed beside it.
    pub door: Door,
}

/// The state of a server, over all who share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum McpState {
    /// It runs.
    Connected,
    /// It is being started.
    Starting,
    /// It failed, with the reason. It may be tried again.
    Failed(Arc<str>),
    /// It was switched off.
    Disabled,
    /// A workspace declares it, and people must agree before it is started.
    Asks,
    /// A workspace declares it, and it may not be used, with the reason.
    Refused(Arc<str>),
    /// It does not run, and starts when it is needed.
    Stopped,
    /// Somebody has to log in to it first, with what to do.
    NeedsLogin(Arc<str>),
    /// A client has to be registered at its authorization server first, with what to do.
    NeedsRegistration(Arc<str>),
}

/// A server in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpStatus {
    /// Its name.
    pub name: String,
    /// Its command without the values of its environment, or its address without those of its headers.
    pub command: String,
    /// Whether the workspace declares it, and not the operator.
    pub of_workspace: bool,
    /// Its state.
    pub state: McpState,
    /// Number of its processes or connections.
    pub running: usize,
    /// Number of sessions that use them now.
    pub sessions: usize,
    /// Number of its tools that are shown; `None` if nothing is known of them yet.
    pub tools: Option<usize>,
    /// Tools that are set aside, by name and with the reason.
    pub refused: Vec<(String, String)>,
}

/// All servers of tools of an engine. Clones are the same.
#[derive(Clone)]
pub struct McpServers(Arc<Inner>);

struct Inner {
    declared: Arc<Declarations>,
    known: Arc<Known>,
    leases: Leases<Servers>,
    logins: Arc<Logins>,
    running: Arc<Running>,
    runtime: Handle,
    remembered: Mutex<HashMap<SessionId, Remembered>>,
    /// Servers that are being asked for their tools since nothing is known of them, and whether a session waited for them in
    /// vain: the next ones do not.
    asked: watch::Sender<HashMap<ServerKey, bool>>,
    /// Servers that did not answer, or not in time, when they were asked last: no session waits for them until they have.
    silent: Mutex<HashSet<ServerKey>>,
    /// By their hashes.
    disabled: Mutex<HashSet<String>>,
}

/// The tools of a session.
struct Remembered {
    /// Number of changes at which they were made.
    changes: u64,
    tools: Arc<[Arc<dyn Tool>]>,
}

/// A server that is used. It may stop once this is dropped.
pub struct LeasedServer(Lease<Servers>);

impl LeasedServer {
    /// Waits until the server is gone, and says why.
    pub fn gone(&self) -> impl Future<Output = Arc<str>> + Send + 'static {
        self.0.gone()
    }
}

impl Deref for LeasedServer {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.0.child()
    }
}

impl fmt::Debug for LeasedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LeasedServer").field(&**self).finish()
    }
}

impl McpServers {
    /// The servers, none of which runs. Reads the lists that are kept of them: blocks for as long as that takes.
    pub fn new(options: McpOptions) -> Self {
        Self::with(options, Rules::default())
    }

    fn with(options: McpOptions, rules: Rules) -> Self {
        let McpOptions { entries, folder, runtime, sandbox, hidden, roots, door } = options;
        let declared = Arc::new(Declarations::new(entries));
        let longest = declared.own.iter().map(|declared| declared.entry.start_timeout).max();
        let longest = longest.unwrap_or_default().max(WORKSPACE_START);
        let rules = Rules { failures: DEATHS, start_deadline: longest.saturating_add(LISTING), ..rules };
        let known = Known::load(KeptLists::new(folder.join("lists")), &declared.own);
        let logins = Arc::new(Logins::new(folder.join("logins"), door.clone()));
        for declared in &declared.own {
            // So that it is told how the operator's own logins stand before a server is asked.
            drop(logins.of(&declared.entry, LOCAL_TENANT));
        }
        let running = Arc::<Running>::default();
        let servers = Servers {
            declared: Arc::clone(&declared),
            ground: Arc::new(Ground {
                folder: folder.join("servers"),
                sandbox,
                hidden,
                roots,
                door,
                logins: Arc::clone(&logins),
            }),
            known: Arc::clone(&known),
            running: Arc::clone(&running),
        };
        Self(Arc::new(Inner {
            running,
            declared,
            known,
            leases: Leases::new(servers, rules),
            logins,
            runtime,
            remembered: Mutex::default(),
            asked: watch::Sender::new(HashMap::new()),
            silent: Mutex::default(),
            disabled: Mutex::default(),
        }))
    }

    /// Leases a server for a session, and starts it if it does not run.
    ///
    /// # Errors
    /// There is no such server, it is switched off, or it cannot be had now: a text for users.
    pub async fn lease(&self, name: &str, scope: &ToolScope) -> Result<LeasedServer, String> {
        let declared = self.0.usable(name, scope)?;
        let lease = self.0.leases.lease(&ServerKey::new(&declared, scope), scope.session).await;
        lease.map(LeasedServer).map_err(|error| error.to_string())
    }

    /// Starts a server for a session, if it does not run. One that failed is tried again at once.
    ///
    /// # Errors
    /// As [`lease`](Self::lease) has them.
    pub async fn connect(&self, name: &str, scope: &ToolScope) -> Result<(), String> {
        let key = ServerKey::new(&*self.0.usable(name, scope)?, scope);
        let status = self.0.leases.status();
        let failed = |state| matches!(state, State::BackingOff { .. } | State::Open { .. } | State::Failed);
        if status.iter().any(|child| child.key == key && failed(child.state)) {
            self.0.leases.restart(&key);
        }
        self.lease(name, scope).await.map(drop)
    }

    /// Switches a server on or off: one of the operator, or of this workspace. Switched off, it is stopped, and its tools are not
    /// shown.
    ///
    /// # Errors
    /// There is no such server.
    pub fn set_enabled(&self, name: &str, workspace: Option<&Path>, enabled: bool) -> Result<(), String> {
        let declared = self.0.declared(name, workspace)?;
        let changed = {
            let mut disabled = self.0.disabled.lock();
            if enabled { disabled.remove(&declared.hash) } else { disabled.insert(declared.hash.clone()) }
        };
        if changed {
            let of_it = self.0.leases.status().into_iter().filter(|child| *child.key.hash == declared.hash);
            of_it.filter(|_| !enabled).for_each(|child| self.0.leases.restart(&child.key));
            self.0.known.change();
        }
        Ok(())
    }

    /// The names of the tools of a server that are offered, as they are at the server; `None` where nothing is known of them yet.
    pub fn offered(&self, name: &str, workspace: Option<&Path>) -> Option<Vec<String>> {
        let seen = self.0.known.of(&self.0.declared(name, workspace).ok()?.hash)?;
        let named = |offered: &Arc<OfferedTool>| offered.name().to_owned();
        Some(seen.offered.iter().map(named).collect())
    }

    /// Reads what a workspace declares. Blocks.
    pub fn look(&self, workspace: &Path) {
        if self.0.declared.look(&workspace.into()) {
            self.0.known.change();
        }
    }

    /// The hashes of a workspace's servers, as people agree to them.
    pub(crate) fn identities(&self, tenant: &str, workspace: &Path) -> Vec<String> {
        let declared = self.0.declared.of_workspace(tenant, workspace);
        declared.iter().map(|declared| subject(declared)).collect()
    }

    /// Like [`ToolSource::agreed`], but starts nothing.
    pub(crate) fn note_agreed(&self, scope: &ToolScope, subject: &str, agreed: Agreed) {
        self.0.note_agreed(scope, subject, agreed);
    }

    /// All servers of the operator, in the order in which they are declared, and those of a workspace as it was when it was
    /// [looked at](Self::look) last. For a `tenant`, only what is its own is counted and told.
    pub fn status(&self, tenant: Option<&str>, workspace: Option<&Path>) -> Vec<McpStatus> {
        self.status_with(tenant, workspace, &|_| None)
    }

    /// The same with the tools that providers refused: `refusal` says why.
    pub(crate) fn status_with(
        &self,
        tenant: Option<&str>,
        workspace: Option<&Path>,
        refusal: &dyn Fn(&ToolSpec) -> Option<String>,
    ) -> Vec<McpStatus> {
        let children = self.0.leases.status();
        let disabled = self.0.disabled.lock().clone();
        let tenant_here = tenant.unwrap_or(LOCAL_TENANT);
        let of_workspace = workspace.map(|workspace| self.0.declared.of_workspace(tenant_here, workspace));
        let all = self.0.declared.own.iter().cloned().chain(of_workspace.into_iter().flatten());
        let status = all.map(|declared| {
            let is_own = |key: &ServerKey| tenant.is_none_or(|tenant| tenant == &*key.tenant);
            let own = children.iter().filter(|child| *child.key.hash == declared.hash);
            let own: Vec<_> = own.filter(|child| is_own(&child.key)).collect();
            let running = |state| matches!(state, State::Running { .. } | State::Idle { .. });
            let count = own.iter().filter(|child| running(child.state)).count();
            let seen = self.0.known.of(&declared.hash);
            let failed = own.iter().find_map(|child| {
                let failed = matches!(
                    child.state,
                    State::BackingOff { .. } | State::Open { .. } | State::Failed | State::Stopped
                );
                child.last_error.clone().filter(|_| failed && !self.0.logins.has_changed(&child.key))
            });
            let state = if disabled.contains(&declared.hash) {
                McpState::Disabled
            } else if declared.of.is_some() && !self.0.declared.serves_any(tenant_here, &declared.hash) {
                McpState::Asks
            } else if let Some(needs) = self.0.logins.needs(&declared.entry, Some(tenant_here)) {
                needs
            } else if count > 0 {
                McpState::Connected
            } else if own.iter().any(|child| child.state == State::Starting) {
                McpState::Starting
            } else {
                failed.map_or(McpState::Stopped, McpState::Failed)
            };
            McpStatus {
                name: declared.entry.name.clone(),
                command: declared.entry.shown(),
                of_workspace: declared.of.is_some(),
                state,
                running: count,
                sessions: own.iter().map(|child| child.holders).sum(),
                tools: seen.as_ref().map(|seen| seen.offered.len()),
                refused: seen.map(|seen| seen.refused_with(refusal)).unwrap_or_default(),
            }
        });
        let refused = workspace.map(|workspace| self.0.declared.refused(tenant_here, workspace));
        let refused = refused.into_iter().flatten().map(|(name, reason)| McpStatus {
            name,
            command: String::new(),
            of_workspace: true,
            state: McpState::Refused(reason.into()),
            running: 0,
            sessions: 0,
            tools: None,
            refused: Vec::new(),
        });
        status.chain(refused).collect()
    }

    /// Stops all servers, and starts none from now on. Returns how many were not done within the deadline; those end in the
    /// background.
    pub async fn stop_all(&self, deadline: Duration) -> usize {
        self.0.leases.stop_all(deadline).await.len()
    }
}

impl fmt::Debug for McpServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            self.0.declared.own.iter().map(|declared| declared.entry.name.as_str()).collect();
        f.debug_tuple("McpServers").field(&names).finish()
    }
}

impl ToolSource for McpServers {
    fn tools(&self, scope: &ToolScope) -> Arc<[Arc<dyn Tool>]> {
        let inner = &self.0;
        // Looked at before: what changes meanwhile makes them anew.
        let changes = *inner.known.changed.borrow();
        if let Some(remembered) = inner.remembered.lock().get(&scope.session)
            && remembered.changes == changes
        {
            return Arc::clone(&remembered.tools);
        }
        let disabled = inner.disabled.lock().clone();
        let (mut tools, mut with_resources) = (Vec::<Arc<dyn Tool>>::new(), Vec::new());
        let usable = inner.declared.of(scope);
        for declared in usable.iter().filter(|declared| !disabled.contains(&declared.hash)) {
            let key = ServerKey::new(declared, scope);
            let Some(seen) = inner.known.of_key(&key) else {
                inner.ask(key, scope.session);
                continue;
            };
            let caller: Arc<dyn Caller> =
                Arc::new(SessionCaller { servers: Arc::downgrade(inner), key, session: scope.session });
            if seen.listing.has_resources {
                with_resources.push(ResourceServer::new(&declared.entry, Arc::clone(&caller)));
            }
            let offered =
                seen.offered.iter().map(|offered| McpTool::new(Arc::clone(offered), Arc::clone(&caller)));
            tools.extend(offered.map(|tool| Arc::new(tool) as Arc<dyn Tool>));
        }
        if !tools.is_empty() {
            let own: Arc<[Arc<dyn Tool>]> = tools.as_slice().into();
            tools.extend(pass_on(&own));
        }
        tools.extend(McpResource::new(with_resources).map(|tool| Arc::new(tool) as Arc<dyn Tool>));
        let tools: Arc<[Arc<dyn Tool>]> = tools.into();
        let mut remembered = inner.remembered.lock();
        if remembered.len() >= REMEMBERED {
            remembered.clear();
        }
        remembered.insert(scope.session, Remembered { changes, tools: Arc::clone(&tools) });
        tools
    }

    fn load(&self, scope: &ToolScope) {
        self.look(&scope.workspace);
    }

    fn starts(&self, scope: &ToolScope) -> Vec<StartRequest> {
        let declared = self.0.declared.of_workspace(&scope.tenant, &scope.workspace);
        let asked = declared.iter().map(|declared| {
            let name = &declared.entry.name;
            StartRequest {
                subject: subject(declared),
                name: format!("{MCP_PREFIX}{name}"),
                reason: format!(
                    "the workspace's file {WORKSPACE_FILE} declares the server of tools \"{name}\", which would be used from now on"
                ),
                preview: declared.entry.shown_in_full(),
            }
        });
        asked.collect()
    }

    fn agreed(&self, scope: &ToolScope, subject: &str, agreed: Agreed) {
        let Some(declared) = self.0.note_agreed(scope, subject, agreed) else { return };
        if agreed != Agreed::No {
            self.0.ask(ServerKey::new(&declared, scope), scope.session);
        }
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.0.known.changed.subscribe()
    }

    fn ready<'a>(&'a self, scope: &'a ToolScope) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut asked = self.0.asked.subscribe();
            // Asks servers of which nothing is known.
            drop(self.tools(scope));
            let own = self.0.declared.of(scope);
            let own: Vec<ServerKey> = own.iter().map(|declared| ServerKey::new(declared, scope)).collect();
            let known = asked.wait_for(|asked| !own.iter().any(|key| asked.get(key) == Some(&false)));
            // What is not known in time comes later.
            if timeout(READY, known).await.map(drop).is_err() {
                self.0.asked.send_modify(|asked| {
                    for key in own {
                        if let Some(waited) = asked.get_mut(&key) {
                            *waited = true;
                            self.0.note_silent(key, true);
                        }
                    }
                });
            }
        })
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let left = self.stop_all(STOP).await;
            if left > 0 {
                tracing::warn!(left, "servers of tools did not stop in time");
            }
        })
    }
}

/// What a person agrees to, as text: the server's name and the hash of its entry and files.
fn subject(declared: &Declared) -> String {
    format!("mcp {} {}", declared.entry.name, declared.hash)
}

impl Inner {
    fn declared(&self, name: &str, workspace: Option<&Path>) -> Result<Arc<Declared>, String> {
        let is_it = |declared: &&Arc<Declared>| declared.entry.name == name;
        let own = self.declared.own.iter().find(is_it).map(Arc::clone);
        let found =
            own.or_else(|| self.declared.found(workspace?).servers.iter().find(is_it).map(Arc::clone));
        found.ok_or_else(|| format!("there is no server of tools named \"{name}\""))
    }

    /// The server of this name that a session may use.
    fn usable(&self, name: &str, scope: &ToolScope) -> Result<Arc<Declared>, String> {
        let declared = self.declared(name, Some(&scope.workspace))?;
        if self.disabled.lock().contains(&declared.hash) {
            return Err(format!("the server of tools {name} is switched off; switch it on first"));
        }
        let refused = self.declared.refused(&scope.tenant, &scope.workspace);
        if let Some((_, reason)) =
            refused.into_iter().find(|(refused, _)| declared.of.is_some() && refused == name)
        {
            return Err(reason);
        }
        if declared.of.is_some() && !self.declared.is_agreed(scope, &declared.hash) {
            return Err(format!(
                "the server of tools {name} is declared by the workspace, and people must agree before it is started: a session there asks them with its next prompt"
            ));
        }
        Ok(declared)
    }

    /// Notes for whom people agreed to a workspace's server, which is given back if that is another answer than before.
    fn note_agreed(&self, scope: &ToolScope, subject_of: &str, agreed: Agreed) -> Option<Arc<Declared>> {
        let all = self.declared.of_workspace(&scope.tenant, &scope.workspace);
        let declared = all.into_iter().find(|declared| subject(declared) == subject_of)?;
        if !self.declared.agree(scope, &declared.hash, agreed) {
            return None;
        }
        self.known.change();
        if agreed == Agreed::No {
            // What nobody agrees to any more does not run on.
            let own = self
                .leases
                .status()
                .into_iter()
                .filter(|child| *child.key.hash == declared.hash && child.key.tenant == scope.tenant);
            let unwanted = !self.declared.serves_any(&scope.tenant, &declared.hash);
            own.filter(|_| unwanted).for_each(|child| self.leases.restart(&child.key));
        }
        Some(declared)
    }

    /// Notes whether sessions wait for a server.
    fn note_silent(&self, key: ServerKey, is_silent: bool) {
        let mut silent = self.silent.lock();
        if !is_silent {
            silent.remove(&key);
            return;
        }
        if silent.len() >= REMEMBERED {
            silent.clear();
        }
        silent.insert(key);
    }

    /// Starts a server in the background, so that its tools are known.
    fn ask(self: &Arc<Self>, key: ServerKey, session: SessionId) {
        let is_silent = self.silent.lock().contains(&key);
        let insert = |asked: &mut HashMap<ServerKey, bool>| match asked.entry(key.clone()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(is_silent);
                true
            }
        };
        if !self.asked.send_if_modified(insert) {
            return;
        }
        let inner = Arc::clone(self);
        spawn_on(&self.runtime, async move {
            let answered = inner.leases.lease(&key, session).await;
            if let Err(error) = &answered {
                tracing::warn!(%error, "the tools of a server are not known");
            }
            inner.note_silent(key.clone(), answered.is_err());
            inner.asked.send_if_modified(|asked| asked.remove(&key).is_some());
        });
    }
}

#[cfg(test)]
mod tests;

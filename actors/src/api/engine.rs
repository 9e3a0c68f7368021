//! The engine: starts the actors, and hands out sessions.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use playhouse_billing::budget::Budgets;
use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::consent::Grant;
use playhouse_protocol::operator::{BY_HAND_TENANT, LOCAL_TENANT};
use playhouse_protocol::summary::SessionState;
use playhouse_protocol::upkeep::SalvagedSession;
use playhouse_protocol::{CommandError, Damage, Entry, MessageId, Seq, SessionId, SessionSummary, Timestamp};
use playhouse_session::{FileChange, Session};
use playhouse_store::{ListQuery, Page, Store, StoreError, reason_of_missing};
use playhouse_tools::{Agreed, Registry, ToolScope, ToolSource};
use playhouse_workspace::tree::TreeLimits;
use ractor::ActorRef;

use crate::api::handle::SessionHandle;
use crate::api::removal::Remover;
use crate::base::Ids;
use crate::bounds::Within;
use crate::context::EngineContext;
use crate::directory::Directory;
use crate::events::hub::Hub;
use crate::formatter::Formatter;
use crate::grants::{self, START, want_start};
use crate::host_tools::HostTools;
use crate::limits::EngineLimits;
use crate::limits::Resume;
use crate::mailbox::{Stopped, SupervisorMessage, ask};
use crate::measure::Count;
use crate::metering::{MeteringMessage, UsageReport};
use crate::revert::diff;
use crate::shared::lsp::LspServers;
use crate::shared::mcp::{McpServers, McpStatus};
/// How long steps, calls and writes to the log may take to be over after their sessions are.
const CHILDREN_WAIT: Duration = Duration::from_secs(2);

/// What an engine is made of.
pub struct EngineOptions {
    /// Where everything is kept.
    pub store: Store,
    /// Agents and models.
    pub directory: Arc<dyn Directory>,
    /// The native tools, and those that the program that embeds the engine brings.
    pub tools: Registry,
    /// Where other tools come from. They are stopped with the engine.
    pub sources: Vec<Arc<dyn ToolSource>>,
    /// Servers of tools (MCP): one more source.
    pub mcp: Option<McpServers>,
    /// Language servers: one more source.
    pub lsp: Option<LspServers>,
    /// Programs that format what file tools have edited. For each file the first that is for it runs.
    pub formatters: Vec<Formatter>,
    /// Tools that platforms register: one more source. `None` if none can be registered.
    pub host_tools: Option<HostTools>,
    /// Folder in which long outputs are kept, one folder per session.
    pub outputs: PathBuf,
    /// Folder in which each tenant's programs have a HOME per workspace. Made when it is needed.
    pub homes: PathBuf,
    /// What no call may touch and no program sees, wherever it lies: the data directory, the operator's configuration.
    pub hidden: Vec<PathBuf>,
    /// What `~` and `$HOME` in the rules of sessions stand for.
    pub user_home: Option<String>,
    /// Limits of what is scanned and copied so that changes of commands can be undone.
    pub snapshots: TreeLimits,
    /// Limits and waiting times of the engine.
    pub limits: EngineLimits,
    /// Whether metrics tell what is spent by tenant, too: one more label on a few of them.
    pub tenant_metrics: bool,
    /// Names of labels of usage that metrics of tokens and cost have as well, as `label_NAME`. The first 100 sets of values have
    /// series of their own; all others share one.
    pub label_metrics: Vec<String>,
    /// What turns, sessions and tenants may use.
    pub budgets: Budgets,
    /// Whether sessions go on by themselves with what the engine before this one left unfinished.
    pub resume: Resume,
}

impl EngineOptions {
    /// The usual options: homes are beside the outputs, `~` is the HOME of this process, and nothing is hidden.
    pub fn new(store: Store, directory: Arc<dyn Directory>, outputs: PathBuf) -> Self {
        Self {
            store,
            directory,
            tools: Registry::native(),
            sources: Vec::new(),
            mcp: None,
            lsp: None,
            formatters: Vec::new(),
            host_tools: None,
            homes: outputs.with_file_name("homes"),
            outputs,
            hidden: Vec::new(),
            user_home: None,
            snapshots: TreeLimits::default(),
            limits: EngineLimits::default(),
            tenant_metrics: false,
            label_metrics: Vec::new(),
            budgets: Budgets::default(),
            resume: Resume::OnDemand,
        }
    }
}

/// Runs sessions. Cheap to clone. Several may live in one process.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<EngineContext>,
    pub(crate) supervisor: ActorRef<SupervisorMessage>,
    pub(crate) ids: Ids,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("generation", &self.shared.generation).finish_non_exhaustive()
    }
}

impl Engine {
    /// Removes what an engine before this one left of calls by hand, without waking it. What was too long to print is kept
    /// as other outputs are.
    pub(crate) async fn forget_by_hand(&self) {
        let log = Arc::clone(&self.shared.store.log);
        let forget = move || -> Result<(), StoreError> {
            let mut after = None;
            loop {
                let tenant = Some(BY_HAND_TENANT.to_owned());
                let page = log.list(&ListQuery { tenant, after, ..ListQuery::default() })?;
                for session in page.sessions {
                    let told = move |removed: Result<_, StoreError>| {
                        if let Err(error) = removed {
                            tracing::warn!(session = %session.id, %error, "calls by hand cannot be removed");
                        }
                    };
                    log.delete(session.id, Box::new(told));
                }
                after = page.next;
                if after.is_none() {
                    return Ok(());
                }
            }
        };
        if let Err(error) = self.shared.pool.run(forget).await {
            tracing::warn!(%error, "calls by hand that were left cannot be looked for");
        }
    }

    /// Bounds the paths that calls touch from now on, whatever rules and people say. Sessions that are awake obey as well.
    pub fn bound(&self, within: Within) {
        self.shared.bounds.set(within);
    }

    pub(crate) fn handle(&self, id: SessionId) -> SessionHandle {
        SessionHandle::new(id, Arc::clone(&self.shared), self.supervisor.clone())
    }

    /// A session that exists; it is woken, and goes on with what it had not finished.
    ///
    /// # Errors
    /// There is none with this id, or it is parked.
    pub async fn session(&self, id: SessionId) -> Result<SessionHandle, CommandError> {
        let handle = self.handle(id);
        handle.wake().await?;
        Ok(handle)
    }

    /// Looks whether the data directory is still the one that was opened. While it is not, nothing can be kept.
    ///
    /// # Errors
    /// [`StoreError::Replaced`]
    pub fn check_place(&self) -> Result<(), StoreError> {
        self.shared.store.log.check_place()
    }

    /// The servers of tools (MCP), where there are some.
    pub fn mcp(&self) -> Option<&McpServers> {
        self.shared.mcp.as_ref()
    }

    /// The language servers, where some may be used.
    pub fn lsp(&self) -> Option<&LspServers> {
        self.shared.lsp.as_ref()
    }

    /// The programs that format what file tools have edited.
    pub fn formatters(&self) -> &[Formatter] {
        &self.shared.formatters
    }

    /// The tools that platforms registered, where some can be.
    pub fn host_tools(&self) -> Option<&HostTools> {
        self.shared.host_tools.as_ref()
    }

    /// Starts a server of tools for sessions of `tenant` in `workspace`, or tries again one that failed. It is nobody's then, and
    /// rests until somebody uses it.
    ///
    /// # Errors
    /// There is none of this name, or it cannot be started: a text for users.
    pub async fn connect_mcp(&self, name: &str, tenant: &str, workspace: &str) -> Result<(), String> {
        let servers = self.shared.mcp.as_ref().ok_or("there are no servers of tools")?;
        let scope = nobody(tenant, workspace);
        look_for_servers(&self.shared, &scope).await.map_err(|error| error.to_string())?;
        servers.connect(name, &scope).await
    }

    /// The servers of tools: the operator's, and what `workspace` (absolute, links resolved) declares now. For a `tenant`, only what is
    /// its own is counted and told.
    ///
    /// # Errors
    /// The engine stops.
    pub async fn mcp_status(
        &self,
        tenant: Option<&str>,
        workspace: Option<&str>,
    ) -> Result<Vec<McpStatus>, CommandError> {
        let Some(servers) = &self.shared.mcp else { return Ok(Vec::new()) };
        if let Some(workspace) = workspace {
            look_for_servers(&self.shared, &nobody(tenant.unwrap_or(LOCAL_TENANT), workspace)).await?;
        }
        let refusal = |tool: &ToolSpec| self.shared.directory.tool_refusal(tool);
        Ok(servers.status_with(tenant, workspace.map(Path::new), &refusal))
    }

    /// The events of all sessions, for those who watch many at once.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.shared.hub
    }

    /// A page of sessions, newest first. Those of calls by hand are in it only where they are asked for.
    ///
    /// # Errors
    /// The store failed.
    pub async fn list(&self, query: ListQuery) -> Result<Page, CommandError> {
        let log = Arc::clone(&self.shared.store.log);
        let all_tenants = query.tenant.is_none();
        let page = self.shared.pool.run(move || log.list(&query)).await;
        let mut page = page?;
        // One whose removal was interrupted is gone for everybody; it is removed when somebody asks for it.
        page.sessions.retain(|summary| {
            summary.state != SessionState::Deleted && !(all_tenants && summary.tenant == BY_HAND_TENANT)
        });
        Ok(page)
    }

    /// How many sessions a tenant has.
    ///
    /// # Errors
    /// The store failed.
    pub async fn count(&self, tenant: &str) -> Result<u64, CommandError> {
        let (log, tenant) = (Arc::clone(&self.shared.store.log), tenant.to_owned());
        let count = self.shared.pool.run(move || log.count(&tenant)).await;
        count.map_err(CommandError::from)
    }

    /// Facts and totals of a session, without waking it.
    ///
    /// # Errors
    /// There is none with this id, or the store failed.
    pub async fn summary(&self, id: SessionId) -> Result<SessionSummary, CommandError> {
        let log = Arc::clone(&self.shared.store.log);
        let summary = self.shared.pool.run(move || log.summary(id)).await;
        summary?.ok_or(CommandError::NotFound(id))
    }

    /// The error for a session that does not exist. If the store was salvaged, it says whether the session may have been lost.
    pub async fn missing(&self, id: SessionId) -> CommandError {
        let Some(losses) = self.shared.store.losses.clone() else { return CommandError::NotFound(id) };
        let salvaged = losses.note.at;
        match self.shared.pool.run(move || losses.missing(id)).await {
            Ok(Some(loss)) => {
                let reason = reason_of_missing(id, &loss);
                CommandError::Lost { session: id, reason, loss: Box::new(loss) }
            }
            Ok(None) => CommandError::NotFoundSince { session: id, salvaged },
            Err(error) => error.into(),
        }
    }

    /// Why a session may not be all that it was, where the store was salvaged from damage.
    pub fn salvaged(&self, summary: &SessionSummary) -> Option<SalvagedSession> {
        self.shared.store.losses.as_ref()?.of(summary)
    }

    /// The sessions with a turn that runs, waits, or was suspended when the engine stopped, without waking them.
    ///
    /// # Errors
    /// The store failed.
    pub async fn unfinished(&self) -> Result<Vec<SessionId>, CommandError> {
        let log = Arc::clone(&self.shared.store.log);
        let unfinished = self.shared.pool.run(move || log.unfinished()).await;
        unfinished.map_err(CommandError::from)
    }

    /// The records of a session up to the first that cannot be trusted, without waking it.
    ///
    /// # Errors
    /// There is none with this id, or the store failed.
    pub async fn read(&self, id: SessionId) -> Result<(Vec<Entry>, Option<Damage>), CommandError> {
        let log = Arc::clone(&self.shared.store.log);
        match self.shared.pool.run(move || log.read(id, Seq::START, usize::MAX)).await {
            Ok(read) => Ok((read.entries, read.damage)),
            Err(error) => Err(error.into()),
        }
    }

    /// The files that differ on the whole from what they were before the calls of a folded session, as far as those are not
    /// taken back; with `turn`, only those of that prompt.
    ///
    /// # Errors
    /// The log cannot be read.
    pub async fn diff(
        &self,
        session: Session,
        turn: Option<MessageId>,
    ) -> Result<Vec<FileChange>, CommandError> {
        let shared = Arc::clone(&self.shared);
        self.shared.pool.run(move || diff(&shared, &session, turn)).await
    }

    /// Removes a session with all sessions below it: what runs in them is aborted first. One that is parked is removed as it is.
    /// What it used stays in the ledger.
    ///
    /// # Errors
    /// There is none with this id, or the store failed.
    pub async fn delete(&self, id: SessionId) -> Result<(), CommandError> {
        Remover { shared: Arc::clone(&self.shared), supervisor: self.supervisor.clone() }.remove(id).await
    }

    /// What people allowed for always: to one tenant, or to all.
    ///
    /// # Errors
    /// The store failed.
    pub async fn grants(&self, tenant: Option<&str>) -> Result<Vec<Grant>, CommandError> {
        let (shelf, tenant) = (Arc::clone(&self.shared.store.shelf), tenant.map(str::to_owned));
        self.shared.pool.run(move || grants::list(&*shelf, tenant.as_deref())).await
    }

    /// Withdraws what was allowed for always, by its name. On return that is durable, and holds for the next call of every
    /// session. With a tenant, only what that one allowed.
    ///
    /// # Errors
    /// There is nothing of this name, or the store failed.
    pub async fn revoke(&self, tenant: Option<&str>, id: &str) -> Result<Grant, CommandError> {
        let (shared, tenant, id) = (Arc::clone(&self.shared), tenant.map(str::to_owned), id.to_owned());
        let revoke = move || shared.grants.revoke(&*shared.store.shelf, tenant.as_deref(), &id);
        let revoked = self.shared.pool.run(revoke).await?;
        if revoked.rule.permission == START {
            look_for_servers(&self.shared, &nobody(&revoked.tenant, &revoked.workspace)).await?;
        }
        Ok(revoked)
    }

    /// What the sessions used since this engine started.
    ///
    /// # Errors
    /// The engine stops.
    pub async fn usage(&self) -> Result<UsageReport, CommandError> {
        self.shared.measures.census.enter(Count::Metering);
        ask(&self.shared.metering, MeteringMessage::Report).await
    }

    /// What one session used since it was woken, by model. Its summary has what it used altogether.
    ///
    /// # Errors
    /// The engine stops.
    pub async fn session_usage(
        &self,
        id: SessionId,
    ) -> Result<
        std::collections::BTreeMap<playhouse_protocol::ModelRef, playhouse_protocol::usage::Totals>,
        CommandError,
    > {
        self.shared.measures.census.enter(Count::Metering);
        ask(&self.shared.metering, |port| MeteringMessage::Session(id, port)).await
    }

    /// Keeps content outside the log, for an attachment of a prompt.
    ///
    /// # Errors
    /// The tenant takes up as much storage as it may, or the store failed.
    pub async fn store_blob(
        &self,
        tenant: &str,
        content: bytes::Bytes,
    ) -> Result<playhouse_protocol::message::BlobRef, CommandError> {
        let (shared, tenant) = (Arc::clone(&self.shared), tenant.to_owned());
        self.shared.pool.run(move || shared.put_blob(&tenant, &content)).await
    }

    /// Stops all sessions and their children, and waits until the store has taken what they appended, or refused it. Turns that
    /// run go on when their session is woken again.
    pub async fn shutdown(&self) -> Stopped {
        self.shared.sweeper.stop();
        let stop = || {
            self.shared.measures.census.enter(Count::Supervisor);
            ask(&self.supervisor, SupervisorMessage::Stop)
        };
        let stopped = match stop().await {
            // A bug costs one message.
            Err(_) => stop().await,
            stopped => stopped,
        };
        let mut stopped = stopped.unwrap_or_else(|error| Stopped {
            sessions: 0,
            stragglers: vec![format!("supervisor: {error}")],
        });
        let deadline = tokio::time::Instant::now() + CHILDREN_WAIT;
        let EngineContext { children, appends, .. } = &*self.shared;
        while children.count() + appends.count() > 0 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for (count, what) in [(children.count(), "steps or calls"), (appends.count(), "writes to the log")] {
            if count > 0 {
                stopped.stragglers.push(format!("{count} {what}"));
            }
        }
        // Nothing starts any more.
        tokio::join!(self.shared.processes.end(), self.shared.tools.stop());
        // Whoever opens the store again right after this finds it free, as far as these two hold it.
        let (supervisor, metering) = tokio::join!(
            self.supervisor.stop_and_wait(None, Some(CHILDREN_WAIT)),
            self.shared.metering.stop_and_wait(None, Some(CHILDREN_WAIT)),
        );
        for (name, ended) in [("supervisor", supervisor.is_ok()), ("metering", metering.is_ok())] {
            if !ended {
                stopped.stragglers.push(name.to_owned());
            }
        }
        stopped
    }
}

/// The session that a log makes, up to the first record that does not fit, which is given as well.
pub fn fold(entries: &[Entry]) -> (Option<Session>, Option<Damage>) {
    let mut session: Option<Session> = None;
    for entry in entries {
        let applied = match &mut session {
            Some(session) => session.apply(entry),
            None => Session::begin(entry).map(|begun| session = Some(begun)),
        };
        if let Err(error) = applied {
            return (session, Some(error.into()));
        }
    }
    (session, None)
}

/// Reads what a workspace declares, and what people agreed to of it for always.
pub(super) async fn look_for_servers(of: &Arc<EngineContext>, scope: &ToolScope) -> Result<(), CommandError> {
    let (shared, scope) = (Arc::clone(of), scope.clone());
    let work = move || {
        let Some(servers) = &shared.mcp else { return Ok(()) };
        servers.look(&scope.workspace);
        let subjects = servers.identities(&scope.tenant, &scope.workspace);
        if subjects.is_empty() {
            return Ok(());
        }
        let workspace = scope.workspace.to_string_lossy();
        let book = shared.grants.book(&*shared.store.shelf, &scope.tenant, &workspace);
        for subject in subjects {
            let granted = book.grants(&want_start(&subject));
            let agreed = if granted { Agreed::Workspace } else { Agreed::No };
            servers.note_agreed(&scope, &subject, agreed);
        }
        Ok::<_, CommandError>(())
    };
    of.pool.run(work).await
}

/// The scope of somebody who has no session.
pub(super) fn nobody(tenant: &str, workspace: &str) -> ToolScope {
    let session = Ids::after(Timestamp::default()).next();
    ToolScope { tenant: tenant.into(), workspace: Path::new(workspace).into(), session }
}

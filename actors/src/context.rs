//! State and settings that all actors of one engine share.

use std::path::PathBuf;
use std::sync::Arc;

use playhouse_protocol::{CommandError, SessionId};
use playhouse_sandbox::Processes;
use playhouse_store::{Store, StoreError, Suspended};
use playhouse_tools::storage::Storage;
use playhouse_tools::{ToolSources, outputs};
use playhouse_workspace::{PathLocks, Pool};
use ractor::ActorRef;

use crate::base::Children;
use crate::bounds::Bounds;
use crate::budget::{Books, Purses};
use crate::directory::Directory;
use crate::events::hub::Hub;
use crate::events::telling::Pace;
use crate::figures::NamedFigures;
use crate::formatter::Formatter;
use crate::grants::Grants;
use crate::host_tools::HostTools;
use crate::limits::EngineLimits;
use crate::limits::Resume;
use crate::listening::Listeners;
use crate::measure::Measures;
use crate::metering::MeteringMessage;
use crate::parked::ParkedSessions;
use crate::seen::Seen;
use crate::shared::lsp::LspServers;
use crate::shared::mcp::McpServers;
use crate::space::Space;
use crate::sweeper::Sweeper;
use crate::tracker::Trees;

/// State and settings that all actors of one engine share.
pub(crate) struct EngineContext {
    pub(crate) store: Store,
    /// The run of the engine: it grows with every start.
    pub(crate) generation: u64,
    pub(crate) directory: Arc<dyn Directory>,
    /// The native tools, and those from outside.
    pub(crate) tools: ToolSources,
    /// The servers of tools (MCP), which are one of these sources.
    pub(crate) mcp: Option<McpServers>,
    /// The language servers, which are another one.
    pub(crate) lsp: Option<LspServers>,
    /// Programs that format what file tools have edited.
    pub(crate) formatters: Arc<[Formatter]>,
    /// Tools that platforms registered, where some can be.
    pub(crate) host_tools: Option<HostTools>,
    pub(crate) locks: Arc<PathLocks>,
    /// Commands that run in the background.
    pub(crate) processes: Processes,
    /// Where the engine's own blocking work runs.
    pub(crate) pool: Pool,
    /// Where the blocking work of tools runs: slow calls hold up calls, never the engine.
    pub(crate) tool_pool: Pool,
    /// Folder with one folder of saved outputs per session.
    pub(crate) outputs: PathBuf,
    /// Folder with one HOME per tenant and workspace, for programs.
    pub(crate) homes: PathBuf,
    /// Counts the bytes on disk of each tenant.
    pub(crate) storage: Storage,
    /// Free space of the data directory, and tenants that are suspended for lack of it.
    pub(crate) space: Space,
    /// The engine's own files: no call may touch them, and no program sees them.
    pub(crate) hidden: Vec<PathBuf>,
    /// Directories that calls never leave, whatever rules and people say.
    pub(crate) bounds: Bounds,
    /// The directory that `~` stands for in rules of sessions.
    pub(crate) user_home: Option<String>,
    /// The file indexes of the workspaces in which commands run.
    pub(crate) trees: Arc<Trees>,
    /// Sessions that hear of changes of their workspaces.
    pub(crate) listeners: Arc<Listeners>,
    /// Calls that people allowed for always.
    pub(crate) grants: Grants,
    /// Removes old outputs.
    pub(crate) sweeper: Sweeper,
    /// Limits and waiting times of the engine.
    pub(crate) limits: EngineLimits,
    /// When sessions continue turns that an earlier engine left unfinished.
    pub(crate) resume: Resume,
    /// File contents seen by sessions that have left memory.
    pub(crate) seen: Seen,
    /// The sessions that are parked.
    pub(crate) parked: ParkedSessions,
    /// The events of all sessions.
    pub(crate) hub: Arc<Hub>,
    pub(crate) metering: ActorRef<MeteringMessage>,
    /// Spent and reserved amounts of budgets.
    pub(crate) purses: Arc<Purses>,
    /// Held by whoever prices rows of the ledger anew.
    pub(crate) repricing: tokio::sync::Mutex<()>,
    /// Step and call actors at work.
    pub(crate) children: Children,
    /// Records of sessions that are on their way into the store.
    pub(crate) appends: Children,
    /// Number of answers that are streaming.
    pub(crate) pace: Pace,
    /// Labels and counters of metrics.
    pub(crate) measures: Measures,
    /// Counts of providers that are not known and were named in the log.
    pub(crate) figures: NamedFigures,
}

impl EngineContext {
    /// Prices, ledger and pool, as budgets need them.
    pub(crate) fn books(&self) -> Books<'_> {
        Books { directory: &*self.directory, ledger: &self.store.ledger, pool: &self.pool }
    }

    /// Checks that the store takes writes.
    ///
    /// # Errors
    /// The store takes no writes, and why.
    pub(crate) fn takes_writes(&self) -> Result<(), CommandError> {
        match self.store.log.health() {
            None => Ok(()),
            Some(Suspended { reason, .. }) => Err(StoreError::Suspended { reason }.into()),
        }
    }

    /// Removes what was saved for a session that is deleted. Blocks. What stays behind goes when it is old.
    pub(crate) fn remove_outputs(&self, session: SessionId) {
        if let Err(error) = outputs::remove(&self.outputs, session) {
            tracing::warn!(%session, %error, "the outputs of a deleted session cannot be removed");
        }
        self.storage.forget_outputs(&self.outputs.join(session.as_str()));
    }

    /// [`remove_outputs`](Self::remove_outputs) on the pool.
    pub(crate) async fn forget_outputs(self: &Arc<Self>, session: SessionId) {
        let shared = Arc::clone(self);
        self.pool.run(move || shared.remove_outputs(session)).await;
    }
}

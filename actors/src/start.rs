//! The start of an engine: the one place that knows all of its actors.

use std::path::PathBuf;
use std::sync::Arc;

use playhouse_protocol::CommandError;
use playhouse_sandbox::Processes;
use playhouse_tools::storage::Storage;
use playhouse_tools::{ToolSource, ToolSources};
use playhouse_workspace::{PathLocks, Pool};
use ractor::Actor;

use crate::api::engine::{Engine, EngineOptions};
use crate::base::{Children, Ids, now, spawn};
use crate::bounds::Bounds;
use crate::budget::Purses;
use crate::context::EngineContext;
use crate::events::hub::Hub;
use crate::events::telling::Pace;
use crate::figures::NamedFigures;
use crate::grants::Grants;
use crate::listening::Listeners;
use crate::measure::Measures;
use crate::metering::Metering;
use crate::parked::ParkedSessions;
use crate::seen::Seen;
use crate::space::Space;
use crate::space_watch;
use crate::storage;
use crate::supervisor::Supervisor;
use crate::sweeper::Sweeper;
use crate::tracker::Trees;
use crate::wake::DEEPEST;

impl Engine {
    /// Starts an engine in the current tokio runtime.
    ///
    /// # Errors
    /// The actors could not be started.
    pub async fn start(options: EngineOptions) -> Result<Self, CommandError> {
        let EngineOptions {
            store,
            directory,
            tools,
            mut sources,
            mcp,
            lsp,
            formatters,
            host_tools,
            outputs,
            homes,
            hidden,
            user_home,
            snapshots,
            mut limits,
            tenant_metrics,
            label_metrics,
            budgets,
            resume,
        } = options;
        limits.tasks.depth = limits.tasks.depth.min(DEEPEST);
        // Nothing that a workspace declares takes the place of a registered tool.
        sources.splice(0..0, host_tools.clone().map(|tools| Arc::new(tools) as Arc<dyn ToolSource>));
        sources.extend(lsp.clone().map(|servers| Arc::new(servers) as Arc<dyn ToolSource>));
        sources.extend(mcp.clone().map(|servers| Arc::new(servers) as Arc<dyn ToolSource>));
        let tool_pool = Pool::new(limits.threads);
        let not_started = |error: ractor::SpawnErr| CommandError::NotAccepted(error.to_string());
        let measures = Measures::new(tenant_metrics, label_metrics);
        let census = Arc::clone(&measures.census);
        let (metering, _) = Actor::spawn(None, Metering, census).await.map_err(not_started)?;
        let own = hidden.iter().chain([&outputs, &homes]).cloned().collect();
        let trees = Trees::new(snapshots, homes.clone(), user_home.clone().map(PathBuf::from), own);
        let listeners = Arc::new(Listeners::new(tool_pool.clone(), lsp.clone()));
        let shared = Arc::new(EngineContext {
            listeners,
            generation: store.generation,
            hub: Arc::new(Hub::new(store.generation, limits.hub_bytes)),
            store,
            directory,
            mcp,
            lsp,
            formatters: formatters.into(),
            host_tools,
            tools: ToolSources::new(Arc::new(tools), sources),
            locks: PathLocks::of_this_process(),
            processes: Processes::new(),
            pool: Pool::new(limits.threads),
            sweeper: Sweeper::start(outputs.clone(), limits.keep_outputs, tool_pool.clone()),
            tool_pool,
            outputs,
            homes,
            storage: Storage::new(limits.storage),
            space: Space::default(),
            hidden,
            bounds: Bounds::default(),
            trees: Arc::new(trees),
            user_home,
            grants: Grants::default(),
            limits,
            metering,
            resume,
            seen: Seen::default(),
            parked: ParkedSessions::default(),
            purses: Purses::new(budgets),
            repricing: tokio::sync::Mutex::default(),
            children: Children::default(),
            appends: Children::default(),
            pace: Pace::new(playhouse_llm::carriers()),
            measures,
            figures: NamedFigures::default(),
        });
        let (supervisor, _) =
            Actor::spawn(None, Supervisor, Arc::clone(&shared)).await.map_err(not_started)?;
        let engine = Self { shared, supervisor, ids: Ids::after(now()) };
        engine.forget_by_hand().await;
        let pool = engine.shared.pool.clone();
        // Nothing waits for it.
        spawn(async move {
            let removed = pool.run(playhouse_sandbox::walls::remove_leftovers).await;
            if removed > 0 {
                tracing::info!(
                    removed,
                    "folders were removed that killed processes left in the directory for temporary files"
                );
            }
        });
        storage::keep_counting(&engine.shared);
        space_watch::keep_looking(&engine.shared, engine.supervisor.clone());
        engine.resume_by_itself();
        Ok(engine)
    }
}

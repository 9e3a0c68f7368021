//! Starting an engine from settings.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use playhouse_actors::{
    Engine, EngineOptions, HostTools, LspLimits, LspOptions, LspServers, McpOptions, McpServers, Resume,
    Stopped,
};
use playhouse_llm::Credentials;
use playhouse_protocol::upkeep::Salvaged;
use playhouse_protocol::{CommandError, Day, Sandbox};
use playhouse_server::{App, DirectClient, Facts, Keys, Operations, Operator, ServerOptions};
use playhouse_store::{OnDamage, Shelf, Store, StoreError, StoreOptions, SuspensionReason, Upkeep};
use playhouse_tools::web::Door;
use playhouse_tools::{Registry, RegistryError, Tool};
use thiserror::Error;

use crate::capture::CaptureSource;
use crate::client::Client;
use crate::clock::now;
use crate::config::{ConfigError, Settings};
use crate::directory::{SettingsDirectory, Variables};
use crate::operations::HouseOperations;
use crate::sinks::Sinks;

/// How long sinks may deliver what there is when a house ends.
const DELIVERY: Duration = Duration::from_secs(3);

/// Why a house could not be started.
#[derive(Debug, Error)]
pub enum HouseError {
    /// The data directory could not be opened.
    #[error(transparent)]
    Store(StoreError),
    /// The disk of the data directory takes no writes. What there is to do comes first.
    #[error("{reason}. It said: {error}")]
    Disk {
        /// Why it takes none.
        reason: SuspensionReason,
        /// What failed.
        error: StoreError,
    },
    /// What is configured cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Two tools have one name.
    #[error(transparent)]
    Tool(#[from] RegistryError),
    /// A folder for outputs could not be made.
    #[error("{0}")]
    Io(std::io::Error),
    /// The actors could not be started.
    #[error(transparent)]
    Engine(#[from] CommandError),
}

impl From<StoreError> for HouseError {
    fn from(error: StoreError) -> Self {
        match error.suspension() {
            Some(reason) => Self::Disk { reason, error },
            None => Self::Store(error),
        }
    }
}

impl From<std::io::Error> for HouseError {
    fn from(error: std::io::Error) -> Self {
        match Self::from(StoreError::from(error)) {
            Self::Store(StoreError::Io(error)) => Self::Io(error),
            other => other,
        }
    }
}

/// What a house is made of. See [`House::builder`].
pub struct HouseBuilder {
    settings: Settings,
    variables: Variables,
    credentials: Option<Arc<dyn Credentials>>,
    data: Option<PathBuf>,
    outputs: Option<PathBuf>,
    tools: Vec<Arc<dyn Tool>>,
    script: mock_llm::Script,
    attempts: Option<u32>,
    sandbox: Option<Sandbox>,
    network: Option<bool>,
    sinks: bool,
    salvages: bool,
    resumes: bool,
    summaries: bool,
}

/// An engine with everything that it stands on.
pub struct House {
    engine: Engine,
    directory: Arc<SettingsDirectory>,
    shelf: Arc<dyn Shelf>,
    upkeep: Arc<dyn Upkeep>,
    registry: Vec<String>,
    /// What its ledger is exported to.
    sinks: Arc<Sinks>,
    /// The run of the engine.
    generation: u64,
    /// Where outputs and the homes of programs are kept when there is no data directory.
    _scratch: Option<tempfile::TempDir>,
}

impl fmt::Debug for House {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("House").field("engine", &self.engine).finish_non_exhaustive()
    }
}

impl House {
    /// A house with these settings. Without a data directory everything is kept in memory.
    pub fn builder(settings: Settings) -> HouseBuilder {
        HouseBuilder {
            settings,
            variables: Arc::new(|name| std::env::var(name).ok()),
            credentials: None,
            data: None,
            outputs: None,
            tools: Vec::new(),
            script: mock_llm::Script::new(),
            attempts: None,
            sandbox: None,
            network: None,
            sinks: true,
            resumes: false,
            salvages: false,
            summaries: false,
        }
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What clients may know of its agents, tools and models.
    pub fn facts(&self) -> Arc<dyn Facts> {
        Arc::clone(&self.directory) as _
    }

    /// The keys with which clients of its tenants prove who they are.
    pub fn keys(&self) -> Keys {
        Keys::new(Arc::clone(&self.shelf))
    }

    /// What the operator's commands need of it beside the rest: for a server.
    pub fn operations(&self) -> Arc<dyn Operations> {
        let (directory, sinks) = (Arc::clone(&self.directory), Arc::clone(&self.sinks));
        Arc::new(HouseOperations::new(directory, sinks, Arc::clone(&self.upkeep), self.generation))
    }

    /// Does what the operator's commands ask, in this process.
    pub fn operator(&self) -> Operator {
        Operator::new(self.engine.clone(), Arc::new(self.keys()), self.operations())
    }

    /// The typed client of `/v1`, by the same routes as over HTTP, in this process.
    pub(crate) fn client(&self) -> Client {
        // Nothing listens, so its options bound only how large a body is and how many requests there are.
        let app =
            App::without_roots(self.engine.clone(), self.facts(), self.keys(), ServerOptions::default());
        Client::Inside(DirectClient::new(app.operated(self.operations())))
    }

    /// The names of the tools, in order.
    pub fn tool_names(&self) -> &[String] {
        &self.registry
    }

    /// Stops all sessions, and then the sinks, which may deliver for 3 seconds what there is. What was not finished goes on
    /// when its session is woken the next time, and what was not delivered goes out after the next start.
    pub async fn shutdown(self) -> Stopped {
        self.shutdown_within(DELIVERY).await
    }

    /// The same, where sinks have so long to deliver.
    pub(crate) async fn shutdown_within(self, delivery: Duration) -> Stopped {
        let stopped = self.engine.shutdown().await;
        self.sinks.stop(delivery).await;
        stopped
    }

    /// Stops the sinks of a house whose sessions are stopped.
    pub(crate) async fn stop_sinks(&self) {
        self.sinks.stop(DELIVERY).await;
    }
}

impl HouseBuilder {
    /// Keeps everything in this directory; it is made if it is not there.
    #[must_use]
    pub fn data(mut self, directory: impl Into<PathBuf>) -> Self {
        self.data = Some(directory.into());
        self
    }

    /// Keeps long outputs in this directory, also where the rest is kept in memory.
    #[must_use]
    pub fn outputs(mut self, directory: impl Into<PathBuf>) -> Self {
        self.outputs = Some(directory.into());
        self
    }

    /// Adds a tool of your own.
    #[must_use]
    pub fn tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// What the models of the provider `mock` say.
    #[must_use]
    pub fn mock(mut self, script: mock_llm::Script) -> Self {
        self.script = script;
        self
    }

    /// Reads variables (keys, base URLs) from here instead of the process's environment.
    #[must_use]
    pub fn variables(mut self, read: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        self.variables = Arc::new(read);
        self
    }

    /// Gives each tenant keys of its own, instead of those that the environment holds. They go out in the header of the
    /// provider's dialect.
    #[must_use]
    pub fn credentials(mut self, credentials: Arc<dyn Credentials>) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// The most attempts of one step, whatever the settings say; 1 means that a failed request is not made again.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = Some(attempts);
        self
    }

    /// Whether there must be walls around the programs of sessions, whatever the settings say.
    #[must_use]
    pub fn sandbox(mut self, sandbox: Sandbox) -> Self {
        self.sandbox = Some(sandbox);
        self
    }

    /// Whether programs of sessions reach the network, whatever the settings say.
    #[must_use]
    pub fn network(mut self, network: bool) -> Self {
        self.network = Some(network);
        self
    }

    /// Whether it drives the sinks that are configured, as it does unless it is told not to. One that keeps everything in
    /// memory never does: nobody would know later what was delivered.
    #[must_use]
    pub fn sinks(mut self, driven: bool) -> Self {
        self.sinks = driven;
        self
    }

    /// Whether it salvages a store that is damaged where its settings say so. Usually it does not: programs that embed it decide.
    #[must_use]
    pub fn salvages(mut self, salvages: bool) -> Self {
        self.salvages = salvages;
        self
    }

    /// Whether it goes on by itself with what an engine before it left unfinished, unless its settings leave that to people. It
    /// does not unless it is told to: then a session goes on when it is woken.
    #[must_use]
    pub fn resumes(mut self, resumes: bool) -> Self {
        self.resumes = resumes;
        self
    }

    /// Whether the small model of the settings says in a few sentences what came of each turn that changed files; else no turn
    /// gets such a summary. It comes after the turn, so it is of use to an engine that stays.
    #[must_use]
    pub fn summaries(mut self, summaries: bool) -> Self {
        self.summaries = summaries;
        self
    }

    /// Starts the engine in the current tokio runtime. Opening a data directory blocks for a few milliseconds.
    ///
    /// # Errors
    /// The data directory is in use, or holds something else; two tools have one name; a rule is about a permission that
    /// there is not; the key of a sink cannot be used.
    pub async fn start(self) -> Result<House, HouseError> {
        let Self {
            mut settings,
            variables,
            credentials,
            data,
            outputs,
            tools,
            script,
            attempts,
            sandbox,
            network,
            sinks,
            salvages,
            resumes,
            summaries,
        } = self;
        settings.sandbox = sandbox.unwrap_or(settings.sandbox);
        settings.walls.network = network.unwrap_or(settings.walls.network);
        tell_of_missing(&settings);
        tell_of_endings(&settings);
        let store = match &data {
            Some(data) => {
                let options = StoreOptions { backend: settings.store, ..StoreOptions::default() };
                match settings.store_on_damage {
                    OnDamage::Salvage if salvages => open_or_salvage(data, &options)?,
                    OnDamage::Salvage | OnDamage::Refuse => Store::open_with(data, &options)?,
                }
            }
            None => Store::memory()?,
        };
        let (in_memory, kept) = (data.is_none(), data.clone());
        let Places { outputs, homes, hidden, scratch } = Places::new(data, outputs, &settings.own)?;
        let user_home = settings.home.clone();
        let mut registry = Registry::native_with(settings.native_tools(&*variables)?);
        for tool in tools {
            registry.add(tool)?;
        }
        let folder =
            kept.or_else(|| scratch.as_ref().map(|folder| folder.path().to_owned())).unwrap_or_default();
        let mcp = servers_of_tools(&settings, &*variables, folder.join("mcp"), &hidden);
        let lsp = language_servers(&settings, &*variables, folder.join("lsp"), &hidden);
        let names = registry.iter().map(|tool| tool.spec().name.clone()).collect();
        let mock = mock_llm::Mock::new(script);
        let formatters = settings.formatters.clone();
        let limits = settings.engine;
        let snapshots = settings.snapshots.clone();
        let resume = match settings.resume {
            Resume::Auto if !resumes => Resume::OnDemand,
            resume => resume,
        };
        let (tenant_metrics, label_metrics) = (settings.metrics.by_tenant, settings.metrics.labels.clone());
        let budgets = settings.budgets.budgets();
        let (configured, read) = (settings.sinks.clone(), Arc::clone(&variables));
        let captures = std::mem::take(&mut settings.captures);
        let captures = CaptureSource::new(&registry, captures, &settings.capture_examples);
        let host_tools = HostTools::open(
            Arc::clone(&store.shelf),
            captures.taken().clone(),
            folder.join("host-tools"),
            Door::new(settings.web.allow_private.clone()),
        )?;
        let directory = SettingsDirectory::new(settings, variables, credentials, mock, registry.clone())?;
        let directory = directory.with_summaries(summaries);
        let (directory, shelf) = (Arc::new(directory), Arc::clone(&store.shelf));
        let upkeep = Arc::clone(&store.upkeep);
        let generation = store.generation;
        let sinks = Arc::new(Sinks::new(configured, read, &store, sinks && !in_memory)?);
        let mut options = EngineOptions::new(store, Arc::clone(&directory) as _, outputs);
        options.tools = registry;
        options.sources = vec![Arc::new(captures)];
        options.mcp = Some(mcp);
        options.lsp = lsp;
        options.formatters = formatters;
        options.host_tools = Some(host_tools);
        options.homes = homes;
        options.hidden = hidden;
        options.user_home = user_home;
        options.limits = limits;
        options.snapshots = snapshots;
        options.resume = resume;
        options.tenant_metrics = tenant_metrics;
        options.label_metrics = label_metrics;
        options.budgets = budgets;
        if let Some(attempts) = attempts {
            options.limits.retry.attempts = attempts;
        }
        let engine = Engine::start(options).await?;
        Ok(House { engine, directory, shelf, upkeep, registry: names, sinks, generation, _scratch: scratch })
    }
}

/// The servers of tools that are configured. Reads what is kept of them.
fn servers_of_tools(
    settings: &Settings,
    variables: &dyn Fn(&str) -> Option<String>,
    folder: PathBuf,
    hidden: &[PathBuf],
) -> McpServers {
    let entries = settings.mcp.iter().map(|(name, server)| {
        let (entry, missing) = server.entry(variables);
        for variable in missing.iter().filter(|_| server.enabled) {
            tracing::warn!(server = %name, %variable, "a server of tools is started without a variable that is not set");
        }
        entry
    });
    let servers = McpServers::new(McpOptions {
        entries: entries.collect(),
        folder,
        runtime: tokio::runtime::Handle::current(),
        sandbox: settings.sandbox,
        hidden: hidden.to_vec(),
        roots: settings.roots.clone(),
        door: Door::new(settings.web.allow_private.clone()),
    });
    for (name, _) in settings.mcp.iter().filter(|(_, server)| !server.enabled) {
        // It is there: it was declared above.
        drop(servers.set_enabled(name, None, false));
    }
    servers
}

/// The language servers that may be used; `None` if none may.
fn language_servers(
    settings: &Settings,
    variables: &dyn Fn(&str) -> Option<String>,
    folder: PathBuf,
    hidden: &[PathBuf],
) -> Option<LspServers> {
    let entries = settings.lsp.entries(variables);
    let options = LspOptions {
        entries,
        folder,
        runtime: tokio::runtime::Handle::current(),
        sandbox: settings.sandbox,
        hidden: hidden.to_vec(),
        roots: settings.roots.clone(),
        limits: LspLimits {
            servers_per_tenant: settings.lsp.servers_per_tenant,
            memory: settings.lsp.memory,
            total_memory: settings.lsp.total_memory,
        },
    };
    (!options.entries.is_empty()).then(|| LspServers::new(options))
}

/// Where a house keeps what is not in its store.
struct Places {
    outputs: PathBuf,
    homes: PathBuf,
    hidden: Vec<PathBuf>,
    /// Removed with the house.
    scratch: Option<tempfile::TempDir>,
}

impl Places {
    /// Makes the folders. `own` belongs to the operator.
    fn new(data: Option<PathBuf>, outputs: Option<PathBuf>, own: &[PathBuf]) -> std::io::Result<Self> {
        let mut scratch = None;
        let data = match data {
            Some(data) => data,
            None => {
                let folder = tempfile::Builder::new().prefix("playhouse-").tempdir()?;
                scratch.insert(folder).path().to_owned()
            }
        };
        let data = absolute(&data)?;
        let outputs = absolute(&outputs.unwrap_or_else(|| data.join("output")))?;
        let homes = absolute(&data.join("homes"))?;
        // A session's own outputs and its home lie in what is hidden: they are looked for before it.
        let mut hidden = vec![data];
        hidden.extend((!outputs.starts_with(&hidden[0])).then(|| outputs.clone()));
        hidden.extend(own.iter().map(|path| resolved(path)));
        Ok(Self { outputs, homes, hidden, scratch })
    }
}

/// `path` with the links resolved of as much of it as is there.
pub(crate) fn resolved(path: &Path) -> PathBuf {
    for there in path.ancestors() {
        if let (Ok(resolved), Ok(rest)) = (fs_err::canonicalize(there), path.strip_prefix(there)) {
            // Joining an empty rest would add a slash.
            return if rest.as_os_str().is_empty() { resolved } else { resolved.join(rest) };
        }
    }
    path.to_owned()
}

/// Opens a store, salvages it first if it is damaged, and says what became of that.
fn open_or_salvage(data: &Path, options: &StoreOptions) -> Result<Store, StoreError> {
    let (store, salvaged) = Store::open_or_salvage(data, options, now())?;
    if let Some(Salvaged {
        sessions, not_there, more_not_there, shorter, more_shorter, end_lost, kept, ..
    }) = salvaged
    {
        let missing = not_there.len() as u64 + more_not_there;
        let shorter = shorter.len() as u64 + more_shorter;
        tracing::error!(
            sessions,
            missing,
            shorter,
            end_lost,
            kept,
            "the store was damaged, and was salvaged: look at the disk. What was there is kept"
        );
    }
    Ok(store)
}

/// Names the models of the configuration that end soon or have ended.
fn tell_of_endings(settings: &Settings) {
    for ending in settings.endings(Day::of(now())) {
        tracing::warn!("{ending}: name another model in the configuration");
    }
}

/// Directories that are not there are left out by the walls: perhaps somebody misspelt them.
fn tell_of_missing(settings: &Settings) {
    let walls = settings.walls.read.iter().chain(&settings.walls.write).map(PathBuf::from);
    for directory in walls.chain(settings.roots.iter().cloned()).filter(|directory| !directory.is_dir()) {
        tracing::warn!(directory = %directory.display(), "configured in [walls], and not a directory");
    }
}

/// Outputs are compared with resolved paths: the folder must be one.
fn absolute(folder: &Path) -> Result<PathBuf, std::io::Error> {
    fs_err::create_dir_all(folder)?;
    fs_err::canonicalize(folder)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_hidden_has_its_links_resolved_whether_it_is_there_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs_err::canonicalize(folder.path()).unwrap();
        fs_err::create_dir(root.join("real")).unwrap();
        symlink(root.join("real"), root.join("link")).unwrap();
        let own = [root.join("link/etc/config.toml"), root.join("link")];
        let Places { outputs, homes, hidden, scratch } =
            Places::new(Some(root.join("link/data")), None, &own).unwrap();
        let real = |path: &str| root.join("real").join(path);
        assert!(scratch.is_none());
        assert_eq!((outputs, homes), (real("data/output"), real("data/homes")));
        assert_eq!(hidden, [real("data"), real("etc/config.toml"), root.join("real")]);
    }

    #[test]
    fn a_house_in_memory_hides_what_it_keeps_on_disk() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs_err::canonicalize(folder.path()).unwrap();
        let places = Places::new(None, Some(root.join("out")), &[]).unwrap();
        let scratch = fs_err::canonicalize(places.scratch.as_ref().unwrap().path()).unwrap();
        assert_eq!((&places.outputs, &places.homes), (&root.join("out"), &scratch.join("homes")));
        assert_eq!(places.hidden, [scratch.clone(), root.join("out")]);
        drop(places);
        assert!(!scratch.exists());
    }

    #[tokio::test]
    async fn a_rule_about_nothing_stops_the_house_from_starting() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        fs_err::write(&file, "permissions.bahs = \"deny\"").unwrap();
        let settings = Settings::load(Some(&file), &|_| None).unwrap();
        let error = House::builder(settings).start().await.unwrap_err().to_string();
        assert!(error.contains("config.toml:1: `permissions.bahs` names no tool"), "{error}");
    }

    #[test]
    fn what_becomes_of_sessions_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        let read = |text: &str| {
            fs_err::write(&file, text).unwrap();
            Settings::load(Some(&file), &|_| None)
        };
        let usual = read("").unwrap();
        assert_eq!((usual.resume, usual.engine.max_live), (Resume::Auto, 10_000));
        assert_eq!(usual.engine.idle_after, Some(Duration::from_secs(300)));
        let text = "resume = \"manual\"\nsessions.idle_after_ms = 0\nsessions.max_live = 7";
        let chosen = read(text).unwrap();
        assert_eq!(
            (chosen.resume, chosen.engine.max_live, chosen.engine.idle_after),
            (Resume::Manual, 7, None)
        );
        for (wrong, said) in [
            ("resume = \"always\"", "`resume`: is \"always\", expected auto or manual"),
            ("sessions.max_live = 0", "`sessions.max_live`: is 0, expected a whole number from 1"),
        ] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}

//! Starting an engine from settings.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use playhouse_actors::{Engine, EngineOptions, Stopped};
use playhouse_llm::Credentials;
use playhouse_protocol::CommandError;
use playhouse_store::{Store, StoreError};
use playhouse_tools::{Registry, RegistryError, Tool};
use thiserror::Error;

use crate::config::{ConfigError, Settings};
use crate::directory::{SettingsDirectory, Variables};

/// Why a house could not be started.
#[derive(Debug, Error)]
pub enum HouseError {
    /// The data directory could not be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What is configured cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Two tools have one name.
    #[error(transparent)]
    Tool(#[from] RegistryError),
    /// A folder for outputs could not be made.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The actors could not be started.
    #[error(transparent)]
    Engine(#[from] CommandError),
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
}

/// An engine with everything that it stands on.
pub struct House {
    engine: Engine,
    registry: Vec<String>,
    /// Where long outputs are kept when there is no data directory.
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
        }
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The names of the tools, in order.
    pub fn tool_names(&self) -> &[String] {
        &self.registry
    }

    /// Stops all sessions. What was not finished goes on when its session is woken the next time.
    pub async fn shutdown(self) -> Stopped {
        self.engine.shutdown().await
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

    /// Starts the engine in the current tokio runtime. Opening a data directory blocks for a few milliseconds.
    ///
    /// # Errors
    /// The data directory is in use, or holds something else; two tools have one name.
    pub async fn start(self) -> Result<House, HouseError> {
        let Self { settings, variables, credentials, data, outputs, tools, script, attempts } = self;
        let store = match &data {
            Some(data) => Store::open(data)?,
            None => Store::memory()?,
        };
        let mut scratch = None;
        let outputs = match (outputs, &data) {
            (Some(outputs), _) => outputs,
            (None, Some(data)) => data.join("output"),
            (None, None) => {
                let folder = tempfile::Builder::new().prefix("playhouse-").tempdir()?;
                scratch.insert(folder).path().to_owned()
            }
        };
        let outputs = absolute(&outputs)?;
        let mut registry = Registry::native_with(settings.native_tools(&*variables)?);
        for tool in tools {
            registry.add(tool)?;
        }
        let names = registry.iter().map(|tool| tool.spec().name.clone()).collect();
        let mock = mock_llm::Mock::new(script);
        let (retry, question_wait, keep_outputs) =
            (settings.retry, settings.question_wait, settings.keep_outputs);
        let directory =
            SettingsDirectory::new(settings, variables, credentials, mock, |allowed| registry.specs(allowed));
        let mut options = EngineOptions::new(store, Arc::new(directory), outputs);
        options.tools = registry;
        options.retry = retry;
        options.question_wait = question_wait;
        options.keep_outputs = keep_outputs;
        if let Some(attempts) = attempts {
            options.retry.attempts = attempts;
        }
        let engine = Engine::start(options).await?;
        Ok(House { engine, registry: names, _scratch: scratch })
    }
}

/// Outputs are compared with resolved paths: the folder must be one.
fn absolute(folder: &Path) -> Result<PathBuf, std::io::Error> {
    fs_err::create_dir_all(folder)?;
    fs_err::canonicalize(folder)
}

//! The result of all configuration.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use playhouse_actors::{EngineLimits, Formatter, Moderate, Resume};
use playhouse_catalogue::ModelFacts;
use playhouse_llm::{ChatFacts, Connections, Endpoint, Limits, Quota};
use playhouse_policy::{Policy, Rules};
use playhouse_prompts::{Agent, AgentPart, Agents, PromptError, Reasoning, RulesFile};
use playhouse_protocol::consent::PermissionRule;
use playhouse_protocol::nearest::did_you_mean;
use playhouse_protocol::{ModelRef, Sandbox, WallsAllowed};
use playhouse_store::{Backend, OnDamage};
use playhouse_tools::NativeOptions;
use playhouse_tools::capture::CaptureTool;
use playhouse_workspace::tree::TreeLimits;
use secrecy::SecretString;

use super::billing::BillingSettings;
use super::budgets::BudgetSettings;
use super::catalogue::LiveCatalogue;
use super::credentials::{self, ProviderKey};
use super::error::ConfigError;
use super::fingerprint;
use super::lsp::LspSettings;
use super::mcp::McpSettings;
use super::metrics::MetricsSettings;
use super::permission_names::{PermissionName, WrongRule};
use super::provider::{self, HeaderSource, ProviderSettings};
use super::server::ServerSettings;
use super::sinks::SinkSettings;
use super::web::WebSettings;
use super::written::WrittenKey;
use super::{builtin, catalogue, operator, permissions, workspace};
use crate::mock;

/// Gives the value of an environment variable.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// All that is configured. Holds no key: those are read when a model is resolved.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The operator's file, where there is one.
    pub file: Option<PathBuf>,
    /// The keys that it sets, in their order.
    pub written: Arc<[WrittenKey]>,
    /// The model of sessions that name none.
    pub model: Option<ModelRef>,
    /// The model that writes titles.
    pub small_model: Option<ModelRef>,
    /// How much of a model's window is kept for the answer, in percent.
    pub context_keep: u64,
    /// The agent of sessions that name none; one of `agents`.
    pub agent: Option<String>,
    /// Built-in and configured providers by name.
    pub providers: BTreeMap<String, ProviderSettings>,
    /// Built-in, loaded and configured models.
    pub catalogue: LiveCatalogue,
    /// What is wanted of single models.
    pub preferences: BTreeMap<ModelRef, ModelPreferences>,
    /// How much the engine takes on, and how long it waits.
    pub engine: EngineLimits,
    /// Limits of what is scanned and copied so that changes of commands can be undone.
    pub snapshots: TreeLimits,
    /// How long a connection to a provider may take to be made.
    pub connect: Duration,
    /// How long a provider may take to answer.
    pub limits: Limits,
    /// What becomes of turns that an engine before left unfinished: by themselves, or by hand.
    pub resume: Resume,
    /// How the native tools work, those that reach out excepted.
    pub tools: NativeOptions,
    /// How those work that reach out.
    pub web: WebSettings,
    /// The operator's capture tools, by name.
    pub captures: Vec<Arc<CaptureTool>>,
    /// The examples of capture tools that all sessions have.
    pub capture_examples: Vec<String>,
    /// Built-in agents and the operator's.
    pub agents: Arc<Agents>,
    /// The operator's rules, in order, with the home directory filled in.
    pub permissions: Rules,
    /// The workspace's own rules, none of which allows anything.
    pub workspace_permissions: Rules,
    /// Where the names of permissions stand in both.
    pub(crate) permission_names: Vec<PermissionName>,
    /// What holds for tools that reach out, where no rule speaks.
    pub moderate: Moderate,
    /// What a new data directory keeps sessions in.
    pub store: Backend,
    /// What becomes of a store that is found damaged.
    pub store_on_damage: OnDamage,
    /// Whether there must be walls around programs.
    pub sandbox: Sandbox,
    /// Whether somebody decided on that.
    pub(crate) sandbox_is_set: bool,
    /// What the walls let through beside the workspace.
    pub walls: WallsAllowed,
    /// Directories below which the git directory of a worktree or a submodule may lie: absolute.
    pub roots: Vec<PathBuf>,
    /// What belongs to the operator, whether it is there or not: absolute. No session may touch it.
    pub(crate) own: Vec<PathBuf>,
    /// The home directory that `~` stands for.
    pub(crate) home: Option<String>,
    /// How the server works.
    pub server: ServerSettings,
    /// What is told of what is measured.
    pub metrics: MetricsSettings,
    /// How what is used is charged for.
    pub billing: BillingSettings,
    /// What turns, sessions and tenants may use.
    pub budgets: BudgetSettings,
    /// Where the ledger is exported to, by name.
    pub sinks: BTreeMap<String, SinkSettings>,
    /// Servers of tools (MCP), by name.
    pub mcp: BTreeMap<String, McpSettings>,
    /// Language servers.
    pub lsp: LspSettings,
    /// Programs that format what file tools have edited, by name.
    pub formatters: Vec<Formatter>,
    /// Stands for what belongs to the operator: equal for equal configurations.
    pub(crate) fingerprint: String,
    /// What system prompts hold: the operator's rules, then the workspace's own, then those that it names.
    pub rules: Vec<RulesFile>,
    /// Why rules of the workspace are left out that nobody named.
    pub(crate) left_out: Vec<PromptError>,
    /// What system prompts end with.
    pub append: Option<String>,
    /// The folder of the operator's commands, whether it is there or not.
    pub commands: Option<PathBuf>,
}

/// What an operator wants of a model, where an agent wants nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModelPreferences {
    /// How much it thinks.
    pub reasoning: Option<Reasoning>,
    /// Sampling temperature, 0 to 2.
    pub temperature: Option<f64>,
    /// Nucleus sampling: the share of probability that is sampled from.
    pub top_p: Option<f64>,
}

/// A model that can be asked.
#[derive(Clone, Debug)]
pub struct ResolvedModel {
    /// The model.
    pub model: ModelRef,
    /// Where it is, with the key.
    pub endpoint: Endpoint,
    /// What its server takes, if it is one of Chat Completions.
    pub chat: ChatFacts,
    /// Whether its server takes a key by which requests that begin alike find the same cache.
    pub cache_key: bool,
    /// What may be sent to its server with one key.
    pub quota: Quota,
    /// How long its server may take.
    pub limits: Limits,
    /// What is known of it.
    pub facts: ModelFacts,
    /// What is wanted of it.
    pub preferences: ModelPreferences,
}

impl Settings {
    /// Where the operator's configuration file is or would be; `None` for a user without a home.
    pub fn place(config_flag: Option<&Path>, variables: Variables<'_>) -> Option<PathBuf> {
        operator::locate(config_flag, variables).map(|location| location.file)
    }

    /// Reads the operator's configuration: the file `config_flag`, else the usual ones.
    ///
    /// # Errors
    /// A file that was named does not exist; a file, an agent, a rules file or the catalogue that was loaded is wrong. An
    /// address in a variable (as `OPENAI_BASE_URL`) that is wrong counts when a model of its provider is resolved.
    ///
    /// ```
    /// use playhouse::config::Settings;
    /// let nothing = |_: &str| None;
    /// let settings = Settings::load(None, &nothing).unwrap();
    /// assert_eq!(settings.providers["openai"].base_url, "https://api.openai.com/v1");
    /// let error = settings.resolve_model(&"openai/gpt-5".parse().unwrap(), &nothing).unwrap_err();
    /// assert!(error.to_string().starts_with("no key for provider openai: OPENAI_API_KEY is not set"));
    /// ```
    pub fn load(config_flag: Option<&Path>, variables: Variables<'_>) -> Result<Self, ConfigError> {
        let kept = Self::catalogue_file(config_flag, variables);
        let mut settings = Self {
            file: None,
            written: Arc::default(),
            model: None,
            small_model: None,
            context_keep: 30,
            agent: None,
            providers: builtin::providers(variables),
            catalogue: LiveCatalogue::load(kept)?,
            preferences: BTreeMap::new(),
            engine: EngineLimits::default(),
            snapshots: TreeLimits::default(),
            connect: Connections::default().connect,
            limits: Limits::default(),
            resume: Resume::Auto,
            tools: NativeOptions::default(),
            web: WebSettings::default(),
            captures: Vec::new(),
            capture_examples: Vec::new(),
            agents: Arc::new(Agents::builtin()),
            permissions: Rules::new(),
            workspace_permissions: Rules::new(),
            permission_names: Vec::new(),
            moderate: Moderate::default(),
            store: Backend::default(),
            store_on_damage: OnDamage::default(),
            sandbox: Sandbox::default(),
            sandbox_is_set: false,
            walls: WallsAllowed::default(),
            roots: Vec::new(),
            own: Vec::new(),
            server: ServerSettings::default(),
            metrics: MetricsSettings::default(),
            billing: BillingSettings::default(),
            budgets: BudgetSettings::default(),
            sinks: BTreeMap::new(),
            mcp: BTreeMap::new(),
            lsp: LspSettings::default(),
            formatters: Vec::new(),
            home: variables("HOME").filter(|home| home.starts_with('/')),
            rules: Vec::new(),
            left_out: Vec::new(),
            append: None,
            commands: None,
            fingerprint: String::new(),
        };
        if let Some(location) = operator::locate(config_flag, variables) {
            settings.own = location.own();
            operator::apply(&location, variables, &mut settings)?;
        }
        settings.fingerprint = fingerprint::fingerprint(&settings, variables);
        Ok(settings)
    }

    /// The same with what the workspace `root` chose in its `.playhouse/config.toml`, and with its rules. Reads files. Borrowed where it
    /// chose nothing and has no rules.
    ///
    /// # Errors
    /// The workspace sets what it may not, chooses what there is not, or its files are wrong or lead out of it.
    pub fn with_workspace(&self, root: &Path) -> Result<Cow<'_, Self>, ConfigError> {
        let mut settings = Cow::Borrowed(self);
        workspace::apply(root, &mut settings)?;
        Ok(settings)
    }

    /// The agents that there are in the workspace `root`; `None` where it has none of its own, and no file that cannot be used as
    /// one. `check` says what is wrong with one's rules. Reads files.
    pub(crate) fn agents_in(
        &self,
        root: &Path,
        check: &dyn Fn(&Agent) -> Result<(), WrongRule>,
    ) -> Option<Agents> {
        self.agents.with_workspace(root, |agent| {
            if let Some(model) = &agent.model {
                self.facts(model).map_err(|error| {
                    let note = "a workspace's agents may choose among the models that the operator has";
                    (AgentPart::Key("model"), format!("`model`: {error} ({note})"))
                })?;
            }
            agent
                .permissions
                .iter()
                .enumerate()
                .try_for_each(|(index, rule)| {
                    permissions::expanded(rule, self.home.as_deref()).map(drop).map_err(|message| {
                        (index, format!("`permission`, \"{}\": {message}", rule.pattern.escape_debug()))
                    })
                })
                .and_then(|()| check(agent))
                .map_err(|(rule, message)| (AgentPart::Rule(rule), message))
        })
    }

    /// Where a catalogue of models is kept that was loaded: beside the file `config_flag`, else beside the usual one;
    /// `None` for a user without a home.
    pub fn catalogue_file(config_flag: Option<&Path>, variables: Variables<'_>) -> Option<PathBuf> {
        catalogue::locate(config_flag, variables)
    }

    /// Where `model` is, with the key from the environment, which is read now.
    ///
    /// # Errors
    /// Provider or model are not known, or the key or a header is missing.
    pub fn resolve_model(
        &self,
        model: &ModelRef,
        variables: Variables<'_>,
    ) -> Result<ResolvedModel, ConfigError> {
        let (provider, _) = self.facts(model)?;
        let key = credentials::find(&model.provider, &provider.keys, variables)?;
        self.resolve_with(model, key, variables)
    }

    /// Where `model` is, with this key.
    ///
    /// # Errors
    /// Provider or model are not known, or a header is missing.
    pub fn resolve_with(
        &self,
        model: &ModelRef,
        key: Option<ProviderKey>,
        variables: Variables<'_>,
    ) -> Result<ResolvedModel, ConfigError> {
        let (provider, mut facts) = self.facts(model)?;
        let dialect = provider.dialect_for(&facts);
        let mut endpoint = Endpoint::new(&model.provider, dialect, &provider.base_url);
        // What the vendor's own server does others may refuse.
        let is_known = facts.rules.tool_search && endpoint.offers_tool_search();
        facts.rules.tool_search = provider.deferred_tools.unwrap_or(is_known) && dialect.searches_tools();
        endpoint.usage = provider.usage.unwrap_or(endpoint.usage);
        endpoint.connections = Connections { connect: self.connect, ..provider.connections };
        endpoint.key_variable = provider.keys.first().map(|key| key.name.clone());
        endpoint.headers = headers(&model.provider, &provider.headers, variables)?;
        if let Some(key) = key {
            endpoint.key_variable = key.variable;
            match key.bearer {
                // What is configured stands before it.
                Some(_) if provider.headers.contains_key("authorization") => {}
                Some(bearer) => endpoint.headers.push(("authorization".to_owned(), bearer)),
                None => endpoint.key = Some(key.secret),
            }
        }
        Ok(ResolvedModel {
            model: model.clone(),
            endpoint,
            chat: provider.chat,
            cache_key: provider.cache_key.contains(&dialect),
            quota: provider.quota,
            limits: self.limits,
            facts,
            preferences: self.preferences.get(model).copied().unwrap_or_default(),
        })
    }

    /// Whether there is this model.
    ///
    /// # Errors
    /// Provider or model are not known: with what was probably meant.
    pub(crate) fn check_model(&self, model: &ModelRef) -> Result<(), ConfigError> {
        if model.provider == mock::PROVIDER { Ok(()) } else { self.facts(model).map(drop) }
    }

    /// How all native tools work, with the keys that `variables` hold now.
    ///
    /// # Errors
    /// A header of the server that searches is missing.
    pub fn native_tools(&self, variables: Variables<'_>) -> Result<NativeOptions, ConfigError> {
        Ok(NativeOptions { web: self.web.options(variables)?, ..self.tools.clone() })
    }

    /// The provider of a model and what is known of it, or what was probably meant.
    pub(super) fn facts(&self, model: &ModelRef) -> Result<(&ProviderSettings, ModelFacts), ConfigError> {
        let Some(provider) = self.providers.get(&model.provider) else {
            let names = || self.providers.keys().map(String::as_str);
            return Err(ConfigError::UnknownProvider {
                provider: model.provider.escape_debug().to_string(),
                known: names().collect::<Vec<_>>().join(", "),
                meant: did_you_mean(&model.provider, names()),
            });
        };
        if let Some(error) = &provider.wrong_address {
            return Err(error.clone());
        }
        let catalogue = self.catalogue.now();
        let facts = catalogue.find(model).map(|known| known.facts.into_owned()).ok_or_else(|| {
            let nearest = catalogue.nearest(model);
            let meant = did_you_mean(&model.to_string(), nearest.iter().map(String::as_str));
            ConfigError::UnknownModel {
                model: model.to_string().escape_debug().to_string(),
                advice: format!(
                    "; a model that is not known needs `context` and `output` in [providers.{}.models.\"{}\"]{meant}",
                    model.provider.escape_debug(),
                    model.model.escape_debug()
                ),
            }
        })?;
        if facts.context == 0 || facts.output == 0 {
            return Err(ConfigError::UnknownModel {
                model: model.to_string().escape_debug().to_string(),
                advice: format!(
                    ": the catalogue does not tell how much it reads or writes; set `context` and `output` in \
                     [providers.{}.models.\"{}\"]",
                    model.provider.escape_debug(),
                    model.model.escape_debug()
                ),
            });
        }
        if !facts.text {
            return Err(ConfigError::UnknownModel {
                model: model.to_string().escape_debug().to_string(),
                advice: ": it does not answer in text; choose another one".to_owned(),
            });
        }
        Ok((provider, facts))
    }

    /// What is known of what `agent` may do before there is a call, in a session with the rules `session`. What people
    /// allowed for always is not in it.
    pub(crate) fn policy(&self, agent: &str, session: Rules) -> Policy {
        let agent = self.agents.get(agent).map(|agent| self.expanded(&agent.permissions));
        Policy {
            configuration: self.permissions.clone(),
            agent: agent.unwrap_or_default(),
            session,
            workspace: self.workspace_permissions.clone(),
            moderate: self.moderate.into(),
            ..Policy::default()
        }
    }

    /// `rules` with the home directory filled in, as far as it is known.
    pub(crate) fn expanded(&self, rules: &[PermissionRule]) -> Rules {
        let rules: Rules = rules.iter().collect();
        match &self.home {
            Some(home) => rules.expanded(home),
            None => rules,
        }
    }

    /// `name`, where there is an agent of that name.
    pub(super) fn known_agent(&self, name: &str) -> Result<String, String> {
        if self.agents.get(name).is_some() {
            return Ok(name.to_owned());
        }
        let people = self.agents.iter().filter(|agent| !agent.hidden);
        let names: Vec<&str> = people.map(|agent| agent.name.as_str()).collect();
        let meant = did_you_mean(name, names.iter().copied());
        Err(format!(
            "`agent`: there is no agent \"{}\"; there are {}{meant}",
            name.escape_debug(),
            names.join(", ")
        ))
    }
}

/// The configured headers of a server, with the values that variables hold now.
pub(super) fn headers(
    name: &str,
    sources: &BTreeMap<String, HeaderSource>,
    variables: Variables<'_>,
) -> Result<Vec<(String, SecretString)>, ConfigError> {
    let value = |header: &String, source: &HeaderSource| -> Result<SecretString, ConfigError> {
        let variable = match source {
            HeaderSource::Text(value) => return Ok(value.clone()),
            HeaderSource::Variable(variable) => variable,
        };
        let missing = |reason| ConfigError::MissingHeader {
            provider: name.to_owned(),
            header: header.clone(),
            variable: variable.clone(),
            reason,
        };
        let value = variables(variable).ok_or_else(|| missing("is not set"))?;
        provider::check_header_value(&value).map_err(missing)?;
        Ok(SecretString::from(value.trim()))
    };
    sources.iter().map(|(header, source)| Ok((header.clone(), value(header, source)?))).collect()
}

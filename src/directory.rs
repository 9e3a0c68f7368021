//! The engine's view of the settings: which agents and models there are, and what a request to one is made of.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use jiff::tz::TimeZone;
use playhouse_actors::{Choice, Directory, Ground, Profile, ProfileRequest};
use playhouse_catalogue::ModelFacts;
use playhouse_llm::{
    ChatFacts, Credentials, Endpoint, Head, HttpTransport, Limiters, Limits, Quota, Reasoning, Transport,
};
use playhouse_policy::{Policy, Rules};
use playhouse_prompts::{self as prompts, Agent, Agents, Environment, MAX_STEPS, system_prompt};
use playhouse_protocol::capability::{Effort, Modalities};
use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::ledger::Tier;
use playhouse_protocol::nearest::did_you_mean;
use playhouse_protocol::{CommandError, ErrorCode, ErrorInfo, ModelRef, PriceList, Timestamp};
use playhouse_tools::{Registry, Tool};

use crate::config::{
    ConfigError, EnvironmentCredentials, ModelPreferences, ProviderKey, ResolvedModel, Settings,
    check_agents, check_names,
};
use crate::mock::{self, ByHand, MockTransport};

/// Reads the process's environment, or a test's.
pub(crate) type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Where keys come from.
enum Keys {
    /// From the environment: at once, and the same for all tenants.
    Environment(EnvironmentCredentials),
    /// From the platform, which may take its time to find them.
    Platform(Arc<dyn Credentials>),
}

pub(crate) struct SettingsDirectory {
    pub(crate) settings: Settings,
    variables: Variables,
    keys: Keys,
    http: Arc<dyn Transport>,
    mock: Arc<MockTransport>,
    /// Models of the same provider that make calls by hand.
    pub(crate) by_hand: ByHand,
    limiters: Limiters,
    /// All tools.
    pub(crate) tools: Registry,
    /// What the operator's rules and those of each agent leave of the tools that it may use.
    shown: BTreeMap<String, Arc<[ToolSpec]>>,
    /// The rules of each agent that brings some.
    agent_rules: BTreeMap<String, Rules>,
}

/// A model, its server, and how to reach it.
struct Server {
    endpoint: Endpoint,
    transport: Arc<dyn Transport>,
    chat: ChatFacts,
    cache_key: bool,
    quota: Quota,
    limits: Limits,
    facts: ModelFacts,
    preferences: ModelPreferences,
}

impl SettingsDirectory {
    /// # Errors
    /// A rule of the operator's or of an agent is about a permission that there is not.
    pub(crate) fn new(
        settings: Settings,
        variables: Variables,
        credentials: Option<Arc<dyn Credentials>>,
        mock: mock_llm::Mock,
        tools: Registry,
    ) -> Result<Self, ConfigError> {
        check_names(&settings.permission_names, &tools)?;
        check_agents(&settings.agents, &tools)?;
        let agent_rules: BTreeMap<String, Rules> = settings
            .agents
            .iter()
            .filter(|agent| !agent.permissions.is_empty())
            .map(|agent| (agent.name.clone(), settings.expanded(&agent.permissions)))
            .collect();
        let read = Arc::clone(&variables);
        let keys = credentials.map_or_else(
            || Keys::Environment(EnvironmentCredentials::new(&settings, move |name: &str| read(name))),
            Keys::Platform,
        );
        let mut directory = Self {
            settings,
            variables,
            keys,
            http: Arc::new(HttpTransport::new()),
            mock: Arc::new(MockTransport(Arc::new(mock))),
            by_hand: ByHand::default(),
            limiters: Limiters::default(),
            tools,
            shown: BTreeMap::new(),
            agent_rules,
        };
        let shown = directory.settings.agents.iter().map(|agent| {
            let policy = directory.settings.policy(&agent.name, Rules::new());
            (agent.name.clone(), directory.shown_by(agent, &policy))
        });
        directory.shown = shown.collect();
        Ok(directory)
    }

    /// What `agent` is shown of the tools: those that it may use and that `policy` does not deny altogether.
    fn shown_by(&self, agent: &Agent, policy: &Policy) -> Arc<[ToolSpec]> {
        let shown = |tool: &&Arc<dyn Tool>| {
            agent.tools.allows(&tool.spec().name) && !policy.is_hidden(tool.permission())
        };
        self.tools.iter().filter(shown).map(|tool| tool.spec().clone()).collect()
    }

    /// Whether a request to `model` could be made, as far as that is known at once.
    fn check(&self, model: &ModelRef) -> Result<(), ConfigError> {
        if model.provider == mock::PROVIDER {
            return Ok(());
        }
        // Names the model before the key: a provider that does not exist lacks no key.
        self.settings.resolve_with(model, None, &*self.variables)?;
        match &self.keys {
            Keys::Environment(keys) => keys.of(&model.provider).map(drop),
            Keys::Platform(_) => Ok(()),
        }
    }

    /// Whether there is a key for `provider`, or none is needed. Where each tenant has its own, that is not known before.
    pub(crate) fn has_key(&self, provider: &str) -> bool {
        match &self.keys {
            Keys::Environment(keys) => keys.of(provider).is_ok(),
            Keys::Platform(_) => true,
        }
    }

    /// How `tenant` reaches `model`. May block.
    fn server(&self, tenant: &str, model: &ModelRef) -> Result<Server, ErrorInfo> {
        if model.provider == mock::PROVIDER {
            return Ok(Server {
                endpoint: mock::endpoint(),
                transport: self.by_hand.get(&model.model).unwrap_or_else(|| Arc::clone(&self.mock)),
                chat: ChatFacts::default(),
                cache_key: false,
                quota: Quota::default(),
                limits: Limits::default(),
                facts: mock::facts(),
                preferences: ModelPreferences::default(),
            });
        }
        self.check(model).map_err(|error| unusable(&error))?;
        let key = self.key(tenant, &model.provider)?;
        let resolved = self.settings.resolve_with(model, key, &*self.variables);
        let ResolvedModel { endpoint, chat, cache_key, quota, limits, facts, preferences, .. } =
            resolved.map_err(|error| unusable(&error))?;
        let transport = Arc::clone(&self.http);
        Ok(Server { endpoint, transport, chat, cache_key, quota, limits, facts, preferences })
    }

    fn key(&self, tenant: &str, provider: &str) -> Result<Option<ProviderKey>, ErrorInfo> {
        let credentials = match &self.keys {
            Keys::Environment(keys) => return keys.of(provider).map_err(|error| unusable(&error)),
            Keys::Platform(credentials) => credentials,
        };
        let key = credentials.key(tenant, provider)?;
        let needed = self.settings.providers.get(provider).is_some_and(|known| !known.keys.is_empty());
        if key.is_none() && needed {
            return Err(ErrorInfo::new(
                ErrorCode::Authentication,
                format!("no key for provider {provider}: tenant \"{}\" has none", tenant.escape_debug()),
            ));
        }
        Ok(key.map(ProviderKey::new))
    }

    fn agent(&self, name: &str) -> Result<&Agent, String> {
        self.settings.agents.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.settings.agents.iter().map(|agent| agent.name.as_str()).collect();
            let meant = did_you_mean(name, names.iter().copied());
            format!("unknown agent \"{}\"; there are {}{meant}", name.escape_debug(), names.join(", "))
        })
    }

    /// The settings with what the workspace `root` chose. Reads files.
    fn settings_in(&self, root: &Path) -> Result<Settings, ConfigError> {
        let settings = self.settings.with_workspace(root)?;
        check_names(&settings.permission_names, &self.tools)?;
        Ok(settings)
    }

    /// What `model` reads beside text.
    fn modalities(&self, model: &ModelRef) -> Modalities {
        if model.provider == mock::PROVIDER {
            return mock::facts().modalities;
        }
        self.settings.catalogue.get(model).map(|facts| facts.modalities).unwrap_or_default()
    }
}

/// Why a model cannot be chosen: one that there is not is named to everybody, how it is reached to the operator only.
fn refused(error: &ConfigError, model: &ModelRef) -> CommandError {
    match error {
        ConfigError::UnknownProvider { .. } | ConfigError::UnknownModel { .. } => {
            CommandError::Invalid(error.to_string())
        }
        _ => {
            let error = ErrorInfo { model: Some(model.clone()), ..unusable(error) };
            CommandError::Unusable(Box::new(error))
        }
    }
}

impl Directory for SettingsDirectory {
    fn defaults(&self, workspace: &Path) -> Result<(Option<String>, Option<ModelRef>), String> {
        let settings = self.settings_in(workspace).map_err(|error| error.to_string())?;
        Ok((settings.agent, settings.model))
    }

    fn ground(&self, _tenant: &str, workspace: &Path) -> Result<Ground, String> {
        let settings = self.settings_in(workspace).map_err(|error| error.to_string())?;
        Ok(Ground {
            configuration: settings.permissions,
            workspace: settings.workspace_permissions,
            moderate: settings.moderate,
            sandbox: settings.sandbox,
            walls: settings.walls,
            // What lies below them is found with its links resolved.
            roots: settings.roots.iter().filter_map(|root| fs_err::canonicalize(root).ok()).collect(),
        })
    }

    fn agent_rules(&self, agent: &str) -> Rules {
        self.agent_rules.get(agent).cloned().unwrap_or_default()
    }

    fn choose(
        &self,
        agent: Option<&str>,
        model: Option<&ModelRef>,
        fallback_agent: Option<&str>,
        fallback_model: Option<&ModelRef>,
    ) -> Result<Choice, CommandError> {
        let name = agent.or(fallback_agent).or(self.settings.agent.as_deref()).unwrap_or(Agents::DEFAULT);
        let chosen = self.agent(name).map_err(CommandError::Invalid)?;
        // An agent that was asked for by name brings its model; a session's own model stands before its agent's.
        let of_agent = chosen.model.as_ref();
        let wanted = match agent {
            Some(_) => model.or(of_agent).or(fallback_model),
            None => model.or(fallback_model).or(of_agent),
        };
        let model = wanted.or(self.settings.model.as_ref()).ok_or_else(|| {
            CommandError::Invalid(
                "no model is chosen: name one with -m PROVIDER/MODEL, or set `model` in the configuration"
                    .into(),
            )
        })?;
        self.check(model).map_err(|error| refused(&error, model))?;
        Ok(Choice {
            agent: chosen.name.clone(),
            model: model.clone(),
            step_limit: chosen.steps,
            modalities: self.modalities(model),
        })
    }

    fn allows(&self, agent: &str, tool: &str) -> bool {
        self.settings.agents.get(agent).is_some_and(|agent| agent.tools.allows(tool))
    }

    fn prices(&self, model: &ModelRef) -> PriceList {
        if model.provider == mock::PROVIDER {
            return mock::facts_of(&model.model).price_list();
        }
        self.settings.catalogue.get(model).map(ModelFacts::price_list).unwrap_or_default()
    }

    fn tier(&self, model: &ModelRef) -> Tier {
        self.settings.billing.tier(model)
    }

    fn catalogue(&self, model: &ModelRef) -> Option<String> {
        self.settings.catalogue.version_for(model)
    }

    fn window(&self, model: &ModelRef) -> Option<u64> {
        if model.provider == mock::PROVIDER {
            return Some(mock::facts().context);
        }
        let facts = self.settings.catalogue.get(model)?;
        Some(facts.input.unwrap_or(facts.context)).filter(|tokens| *tokens > 0)
    }

    fn overhead_tokens(&self, agent: &str) -> u64 {
        let tools: usize = self
            .shown
            .get(agent)
            .into_iter()
            .flat_map(|tools| tools.iter())
            .map(|tool| tool.name.len() + tool.description.len() + tool.parameters.to_string().len())
            .sum();
        let rules: usize = self.settings.rules.iter().map(|rules| rules.text.len()).sum();
        let prompt = self.settings.agents.get(agent).and_then(|agent| agent.prompt.as_ref());
        (tools + rules + prompt.map_or(2_000, String::len)) as u64 / 4
    }

    fn profile(&self, request: &ProfileRequest) -> Result<Profile, ErrorInfo> {
        let root = Path::new(&request.workspace);
        let server = self.server(&request.tenant, &request.model)?;
        let settings = self
            .settings_in(root)
            .map_err(|error| ErrorInfo::new(ErrorCode::BadRequest, error.to_string()))?;
        let agent =
            self.agent(&request.agent).map_err(|error| ErrorInfo::new(ErrorCode::BadRequest, error))?;
        let session = self.settings.expanded(&request.permissions);
        let environment = Environment {
            workspace: request.workspace.clone(),
            platform: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            git: root.ancestors().any(|folder| folder.join(".git").exists()),
            date: date(request.created),
            model: request.model.clone(),
        };
        let Server { facts, preferences, .. } = server;
        // What is known of the server stands before what its models want on other servers.
        let reasoning_field = server.chat.reasoning_field.or(facts.reasoning_field);
        let (limiter, limits) = (self.limiters.of(&server.endpoint, server.quota), server.limits);
        let thinks = agent.reasoning.or(preferences.reasoning).filter(|_| facts.reasoning);
        // A server that refuses a temperature refuses the other one too.
        let sampling = |number: Option<f64>| number.filter(|_| facts.temperature);
        let head = Head {
            model: request.model.model.clone(),
            system: system_prompt(agent, &environment, &settings.rules),
            tools: self.shown_by(agent, &settings.policy(&agent.name, session)),
            max_output: facts.answer_limit(),
            chat: ChatFacts { reasoning_field, ..server.chat },
            modalities: facts.modalities,
            temperature: sampling(agent.temperature.or(preferences.temperature)),
            top_p: sampling(agent.top_p.or(preferences.top_p)),
            reasons: facts.reasoning,
            reasoning: thinks.map(reasoning),
            reasoning_form: facts.reasoning_form,
            cache_key: server.cache_key.then(|| request.session.to_string()),
        };
        Ok(Profile {
            endpoint: server.endpoint,
            transport: server.transport,
            limiter,
            limits,
            head,
            prefill: facts.prefill,
            max_steps: MAX_STEPS.trim_end().to_owned(),
        })
    }
}

/// What a provider's wire is told.
fn reasoning(wanted: prompts::Reasoning) -> Reasoning {
    match wanted {
        prompts::Reasoning::Low => Reasoning::Effort(Effort::Low),
        prompts::Reasoning::Medium => Reasoning::Effort(Effort::Medium),
        prompts::Reasoning::High => Reasoning::Effort(Effort::High),
        prompts::Reasoning::Budget(tokens) => Reasoning::Budget(tokens.get()),
    }
}

/// Why a turn has no model to ask.
fn unusable(error: &ConfigError) -> ErrorInfo {
    let code = match error {
        ConfigError::MissingKey { .. } | ConfigError::MissingHeader { .. } => ErrorCode::Authentication,
        ConfigError::Variable { .. } => ErrorCode::Misconfigured,
        _ => ErrorCode::UnknownModel,
    };
    ErrorInfo::new(code, error.to_string())
}

/// The day of `time` where this machine is, as in `2026-07-04`.
fn date(time: Timestamp) -> String {
    let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    match jiff::Timestamp::from_millisecond(millis) {
        Ok(time) => time.to_zoned(TimeZone::system()).date().to_string(),
        Err(_) => "unknown".to_owned(),
    }
}

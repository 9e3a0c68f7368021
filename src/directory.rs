//! The engine's view of the settings: which agents and models there are, and what a request to one is made of.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use playhouse_actors::{
    AgentDirectory, Aside, Choice, Directory, FilledTemplate, Ground, ModelDirectory, Profile,
    ProfileDirectory, ProfileRequest, TemplateDirectory, WorkspaceDirectory,
};
use playhouse_catalogue::ModelFacts;
use playhouse_llm::{
    Adjustments, ChatFacts, Credentials, Endpoint, Findings, Head, HttpTransport, Limiters, Limits, Quota,
    Reasoning, Toolset, Transport,
};
use playhouse_policy::{Policy, Rules};
use playhouse_prompts::command::CommandFault;
use playhouse_prompts::{self as prompts, Agent, Agents, Family, Origin, lists_skills};
use playhouse_protocol::capability::Modalities;
use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::ledger::{Purpose, Tier};
use playhouse_protocol::message::CallInput;
use playhouse_protocol::nearest::did_you_mean;
use playhouse_protocol::operator::LOCAL_TENANT;
use playhouse_protocol::template::TemplateList;
use playhouse_protocol::{
    CommandError, Day, EndOfLife, ErrorCode, ErrorInfo, IdGenerator, Labels, ModelRef, PriceList,
};
use playhouse_tools::{Registry, Tool};

use crate::clock::now;
use crate::config::{
    ConfigError, EnvironmentCredentials, ModelPreferences, ProviderKey, ResolvedModel, Settings, check_agent,
    check_agents, check_names,
};
use crate::labels::Labelling;
use crate::mock::{self, ByHand, MockTransport};
use crate::shown::Shown;
use crate::system::{self, SKILL, System};
use crate::templates;

/// Reads the process's environment, or a test's.
pub(crate) type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Where keys come from.
enum Keys {
    /// From the environment: at once, and the same for all tenants.
    Environment(EnvironmentCredentials),
    /// From the platform, which may take its time to find them.
    Platform(Arc<dyn Credentials>),
}

/// The agents and models of an engine, or of those of its sessions whose workspace has agents of its own.
pub(crate) struct SettingsDirectory {
    resources: Arc<Resources>,
    set: Arc<AgentSet>,
    /// Whether the small model is asked what came of turns.
    summaries: bool,
}

/// What is the same wherever a session works.
pub(crate) struct Resources {
    pub(crate) settings: Settings,
    variables: Variables,
    keys: Keys,
    http: Arc<dyn Transport>,
    mock: Arc<MockTransport>,
    /// Models of the same provider that make calls by hand.
    pub(crate) by_hand: ByHand,
    limiters: Limiters,
    pub(crate) findings: Arc<Findings>,
    /// All tools.
    pub(crate) tools: Registry,
    labelling: Labelling,
}

impl Deref for SettingsDirectory {
    type Target = Resources;

    fn deref(&self) -> &Resources {
        &self.resources
    }
}

/// The agents that there are.
struct AgentSet {
    agents: Agents,
    /// What models are told of the tools; `None` for the agents of a workspace, of which each session has a set: it would stay in
    /// memory with the session, which needs it once.
    shown: Option<Shown>,
    /// How many bytes that is of those that the operator's rules and those of each agent leave of what it may use: counted once,
    /// since every step asks.
    shown_bytes: BTreeMap<String, u64>,
    /// The rules of each agent that brings some.
    rules: BTreeMap<String, Rules>,
    /// Those of agents that come from a workspace, and can only make things stricter.
    restrictions: BTreeMap<String, Rules>,
}

/// What a session would be told.
pub(crate) struct Preview {
    pub(crate) agent: String,
    pub(crate) model: ModelRef,
    pub(crate) system: System,
    pub(crate) tools: Toolset,
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
        let agents = Agents::clone(&settings.agents);
        let read = Arc::clone(&variables);
        let keys = credentials.map_or_else(
            || Keys::Environment(EnvironmentCredentials::new(&settings, move |name: &str| read(name))),
            Keys::Platform,
        );
        let resources = Resources {
            settings,
            variables,
            keys,
            http: Arc::new(HttpTransport::new()),
            mock: Arc::new(MockTransport(Arc::new(mock))),
            by_hand: ByHand::default(),
            limiters: Limiters::default(),
            findings: Arc::default(),
            tools,
            labelling: Labelling::default(),
        };
        let set = AgentSet::empty(Agents::clone(&agents));
        let directory = Self { resources: Arc::new(resources), set: Arc::new(set), summaries: false };
        Ok(directory.with_agents(agents, Some(Shown::default())))
    }

    /// The same, where the small model is asked what came of turns, or not.
    pub(crate) fn with_summaries(self, summaries: bool) -> Self {
        Self { summaries, ..self }
    }

    /// The same with these agents: those that there are, and perhaps more. What models are told of tools is kept in `shown`.
    fn with_agents(&self, agents: Agents, shown: Option<Shown>) -> Self {
        let mut set = self.set.with(agents, shown);
        let is_new = |agent: &&Agent| !set.shown_bytes.contains_key(&agent.name);
        let all: Vec<Agent> = set.agents.iter().filter(is_new).cloned().collect();
        for agent in all.iter().filter(|agent| !agent.permissions.is_empty()) {
            let rules = self.settings.expanded(&agent.permissions);
            let is_local = matches!(set.agents.origin(&agent.name), Origin::Workspace(_));
            let kept = if is_local { &mut set.restrictions } else { &mut set.rules };
            kept.insert(agent.name.clone(), rules);
        }
        for agent in &all {
            let policy = self.settings.policy(&agent.name, Rules::new());
            let bytes = self.made(&set, &self.shown_by(&set, agent, &policy)).bytes();
            set.shown_bytes.insert(agent.name.clone(), bytes);
        }
        Self { resources: Arc::clone(&self.resources), set: Arc::new(set), summaries: self.summaries }
    }

    /// What `agent` of `set` is shown of the tools, by their numbers: those that can be used, that it may use, and that
    /// `policy` does not deny altogether.
    fn shown_by(&self, set: &AgentSet, agent: &Agent, policy: &Policy) -> Vec<usize> {
        let restricted = set
            .restrictions
            .get(&agent.name)
            .map(|restrictions| Policy { workspace: restrictions.clone(), ..policy.clone() });
        let hides = |permission: &str| {
            let restricted = restricted.as_ref();
            policy.is_hidden(permission) || restricted.is_some_and(|policy| policy.is_hidden(permission))
        };
        let shown = |tool: &dyn Tool| {
            agent.tools.allows(&tool.spec().name) && !hides(tool.permission()) && tool.unavailable().is_none()
        };
        self.tools
            .iter()
            .enumerate()
            .filter(|(_, tool)| shown(tool.as_ref()))
            .map(|(number, _)| number)
            .collect()
    }

    /// What models are told of the tools with these numbers, made anew.
    fn made(&self, set: &AgentSet, numbers: &[usize]) -> Toolset {
        let tool = |number: &usize| self.tools.iter().nth(*number);
        numbers.iter().filter_map(tool).filter_map(|tool| spec_of(set, tool.as_ref())).collect()
    }

    /// What models are told of the tools with these numbers.
    fn toolset(&self, set: &AgentSet, numbers: Vec<usize>) -> Toolset {
        match &set.shown {
            Some(shown) => shown.toolset(numbers, |numbers| self.made(set, numbers)),
            None => self.made(set, &numbers),
        }
    }

    /// The agents that there are in the workspace `root`, where it has some of its own or files that cannot be used as one.
    /// Reads files.
    pub(crate) fn agents_in(&self, root: &Path) -> Option<Agents> {
        self.settings.agents_in(root, &|agent| check_agent(agent, &self.tools))
    }

    /// The agents that there are.
    pub(crate) fn agents(&self) -> &Agents {
        &self.set.agents
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
        self.set.agents.find(name)
    }

    /// The settings with what the workspace `root` chose. Reads files.
    fn settings_in(&self, root: &Path) -> Result<Cow<'_, Settings>, ConfigError> {
        let settings = self.settings.with_workspace(root)?;
        check_names(&settings.permission_names, &self.tools)?;
        Ok(settings)
    }

    /// The system prompt and the tools of `agent` in a session. Reads files, unless the prompt is settled.
    fn told(&self, request: &ProfileRequest, agent: &Agent, settings: &Settings) -> (System, Toolset) {
        let session = self.settings.expanded(&request.permissions);
        let names: Vec<&str> = self.tools.iter().map(|tool| tool.spec().name.as_str()).collect();
        let mut shown = self.shown_by(&self.set, agent, &settings.policy(&agent.name, session));
        shown.retain(|number| request.withheld.iter().all(|withheld| withheld != names[*number]));
        let skill = shown.iter().copied().find(|number| names[*number] == SKILL);
        let system = match &request.settled {
            Some(text) => System { text: text.clone(), problems: Vec::new() },
            None => system::make(request, agent, &self.settings, settings, skill.is_some()),
        };
        // The one that loads skills is not shown where the system prompt lists none.
        if skill.is_some() && !lists_skills(&system.text) {
            shown.retain(|number| Some(*number) != skill);
        }
        (system, self.toolset(&self.set, shown))
    }

    /// What a new session of the operator's in `root` is told: its agent and model, the system prompt with what was left out and
    /// why, and the tools. No key is needed for it. Reads files.
    ///
    /// # Errors
    /// What is wrong with the workspace's configuration, with the agent, or with the model.
    pub(crate) fn preview(
        &self,
        root: &Path,
        agent: Option<&str>,
        model: Option<&ModelRef>,
    ) -> Result<Preview, String> {
        let local = self.agents_in(root).map(|agents| self.with_agents(agents, None));
        let directory = local.as_ref().unwrap_or(self);
        let settings = self.settings_in(root).map_err(|error| error.to_string())?;
        let named = directory.named(agent, model, settings.agent.as_deref(), settings.model.as_ref());
        let (agent, model) = named?;
        if model.provider != mock::PROVIDER {
            self.settings.resolve_with(model, None, &*self.variables).map_err(|error| error.to_string())?;
        }
        let created = now();
        let request = ProfileRequest {
            session: IdGenerator::new(|bytes| bytes.fill(0)).next(created),
            tenant: LOCAL_TENANT.to_owned(),
            workspace: root.to_string_lossy().into_owned(),
            agent: agent.name.clone(),
            model: model.clone(),
            created,
            permissions: Vec::new(),
            system: None,
            settled: None,
            withheld: self.tools.unneeded(root, |_| false),
            kept_to: None,
        };
        let (system, tools) = directory.told(&request, agent, &settings);
        Ok(Preview { agent: request.agent, model: request.model, system, tools })
    }

    /// The agent and the model of which [`ProfileDirectory::choose`] makes a choice, whether the model can be used or not.
    fn named<'a>(
        &'a self,
        agent: Option<&str>,
        model: Option<&'a ModelRef>,
        fallback_agent: Option<&str>,
        fallback_model: Option<&'a ModelRef>,
    ) -> Result<(&'a Agent, &'a ModelRef), String> {
        let name = agent.or(fallback_agent).or(self.settings.agent.as_deref()).unwrap_or(Agents::DEFAULT);
        let chosen = self.agent(name)?;
        // An agent that was asked for by name brings its model; a session's own model stands before its agent's.
        let of_agent = chosen.model.as_ref();
        let wanted = match agent {
            Some(_) => model.or(of_agent).or(fallback_model),
            None => model.or(fallback_model).or(of_agent),
        };
        let model = wanted.or(self.settings.model.as_ref()).ok_or(
            "no model is chosen: name one with -m PROVIDER/MODEL, or set `model` in the configuration",
        )?;
        Ok((chosen, model))
    }

    /// What `model` reads beside text.
    fn modalities(&self, model: &ModelRef) -> Modalities {
        if model.provider == mock::PROVIDER {
            return mock::facts().modalities;
        }
        self.settings.catalogue.now().find(model).map(|known| known.facts.modalities).unwrap_or_default()
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

/// Whether an agent may be handed work by others.
fn takes_tasks(agent: &Agent) -> bool {
    agent.mode.takes_tasks() && !agent.hidden
}

/// What a model is told of a tool; of one that hands work over also to whom of `set`. `None` where nobody takes any.
fn spec_of(set: &AgentSet, tool: &dyn Tool) -> Option<ToolSpec> {
    let spec = tool.spec().clone();
    if tool.delegation(&CallInput::Object(serde_json::Map::new())).is_none() {
        return Some(spec);
    }
    let agents = &set.agents;
    let takers = agents.iter().filter(|agent| takes_tasks(agent));
    // A workspace's agents come last: they do not push the others out of a list that has its limits.
    let is_local = |agent: &Agent| matches!(agents.origin(&agent.name), Origin::Workspace(_));
    let (local, others): (Vec<&Agent>, Vec<&Agent>) = takers.partition(|agent| is_local(agent));
    let named = |agent: &&Agent| {
        let changes = if agent.read_only { " (changes nothing)" } else { "" };
        format!("{}{changes}", agent.name)
    };
    let takers: Vec<&Agent> = others.into_iter().chain(local).collect();
    let names: Vec<String> = takers.iter().map(named).collect();
    let items = names.iter().zip(&takers).map(|(name, agent)| (name.as_str(), agent.description.as_str()));
    (!names.is_empty()).then(|| ToolSpec {
        description: format!(
            "{}\n\nThe agents:\n{}",
            spec.description.trim_end(),
            prompts::list_of(items, "further ones")
        ),
        ..spec
    })
}

impl AgentSet {
    /// With what is made of none of them yet.
    fn empty(agents: Agents) -> Self {
        Self {
            agents,
            shown: None,
            shown_bytes: BTreeMap::new(),
            rules: BTreeMap::new(),
            restrictions: BTreeMap::new(),
        }
    }

    /// These agents, with what is known of those that were there. What models are told of tools names agents, so that is another.
    fn with(&self, agents: Agents, shown: Option<Shown>) -> Self {
        let (rules, restrictions) = (self.rules.clone(), self.restrictions.clone());
        Self { shown, shown_bytes: self.shown_bytes.clone(), rules, restrictions, ..Self::empty(agents) }
    }
}

impl WorkspaceDirectory for SettingsDirectory {
    fn local(self: Arc<Self>, workspace: &Path) -> Result<Arc<dyn Directory>, String> {
        Ok(match self.agents_in(workspace) {
            Some(agents) => Arc::new(self.with_agents(agents, None)),
            None => self,
        })
    }

    fn defaults(&self, workspace: &Path) -> Result<(Option<String>, Option<ModelRef>), String> {
        let settings = self.settings_in(workspace).map_err(|error| error.to_string())?;
        Ok((settings.agent.clone(), settings.model.clone()))
    }

    fn ground(&self, _tenant: &str, workspace: &Path) -> Result<Ground, String> {
        let settings = self.settings_in(workspace).map_err(|error| error.to_string())?;
        Ok(Ground {
            configuration: settings.permissions.clone(),
            workspace: settings.workspace_permissions.clone(),
            moderate: settings.moderate,
            sandbox: settings.sandbox,
            walls: settings.walls.clone(),
            // What lies below them is found with its links resolved.
            roots: settings.roots.iter().filter_map(|root| fs_err::canonicalize(root).ok()).collect(),
        })
    }
}

impl AgentDirectory for SettingsDirectory {
    fn agent_rules(&self, agent: &str) -> Rules {
        self.set.rules.get(agent).cloned().unwrap_or_default()
    }

    fn agent_restrictions(&self, agent: &str) -> Rules {
        self.set.restrictions.get(agent).cloned().unwrap_or_default()
    }

    fn is_read_only(&self, agent: &str) -> bool {
        self.set.agents.get(agent).is_some_and(|agent| agent.read_only)
    }

    fn takes_tasks(&self, name: &str) -> Result<(), String> {
        let agents = &self.set.agents;
        let refused = agents.refused().iter().find(|refused| refused.name == name);
        if let (None, Some(refused)) = (agents.get(name), refused) {
            return Err(format!("the agent \"{}\" cannot be used: {}", name.escape_debug(), refused.error));
        }
        if agents.get(name).is_some_and(takes_tasks) {
            return Ok(());
        }
        let takers: Vec<&str> =
            agents.iter().filter(|agent| takes_tasks(agent)).map(|agent| agent.name.as_str()).collect();
        let meant = did_you_mean(name, takers.iter().copied());
        let shown: String = name.chars().take(64).collect();
        Err(format!(
            "no agent \"{}\" takes tasks; there are {}{meant}",
            shown.escape_debug(),
            takers.join(", ")
        ))
    }

    fn allows(&self, agent: &str, tool: &str) -> bool {
        self.set.agents.get(agent).is_some_and(|agent| agent.tools.allows(tool))
    }

    fn overhead_tokens(&self, agent: &str) -> u64 {
        let tools = self.set.shown_bytes.get(agent).copied().unwrap_or_default();
        let rules: usize = self.settings.rules.iter().map(|rules| rules.text.len()).sum();
        let prompt = self.set.agents.get(agent).and_then(|agent| agent.prompt.as_ref());
        let append = self.settings.append.as_ref().map_or(0, String::len);
        let family = Family::Default.prompt().len();
        (tools + (rules + append + prompt.map_or(family, String::len)) as u64) / 4
    }
}

impl ModelDirectory for SettingsDirectory {
    fn prices(&self, model: &ModelRef) -> PriceList {
        if model.provider == mock::PROVIDER {
            return mock::facts_of(&model.model).prices;
        }
        self.settings.catalogue.now().find(model).map(|known| known.facts.prices.clone()).unwrap_or_default()
    }

    fn tier(&self, model: &ModelRef) -> Tier {
        self.settings.billing.tier(model)
    }

    fn labels(&self, metadata: &serde_json::Map<String, serde_json::Value>) -> Labels {
        self.labelling.labels(&self.settings.billing.labels, metadata)
    }

    fn catalogue(&self, model: &ModelRef) -> Option<String> {
        self.settings.catalogue.now().version_for(model)
    }

    fn window(&self, model: &ModelRef) -> Option<u64> {
        if model.provider == mock::PROVIDER {
            return Some(mock::facts().context);
        }
        let catalogue = self.settings.catalogue.now();
        let facts = catalogue.find(model)?.facts;
        let known = facts.input.unwrap_or(facts.context);
        let found = self.findings.of(model).window();
        Some(found.map_or(known, |found| found.min(known))).filter(|tokens| *tokens > 0)
    }

    fn room(&self, model: &ModelRef) -> Option<u64> {
        self.window(model).map(|window| {
            let kept = u128::from(window) * u128::from(self.settings.context_keep) / 100;
            window - u64::try_from(kept).unwrap_or(window)
        })
    }

    fn tool_refusal(&self, tool: &ToolSpec) -> Option<String> {
        self.findings
            .refusal_of(tool)
            .map(|(model, words)| format!("the provider of {model} refused it: {words}"))
    }
}

impl TemplateDirectory for SettingsDirectory {
    fn words(&self, typed: &str, most: usize) -> Vec<String> {
        playhouse_prompts::command::words(typed, most)
    }

    fn templates(&self, workspace: &Path) -> TemplateList {
        templates::list(&templates::read(&self.settings, workspace), CommandFault::told)
    }

    fn template(&self, workspace: &Path, name: &str, arguments: &str) -> Result<FilledTemplate, String> {
        let commands = templates::read(&self.settings, workspace);
        let local = self.agents_in(workspace);
        let agents = local.as_ref().unwrap_or(self.agents());
        templates::fill(&commands, agents, &self.settings, name, arguments).map_err(|fault| {
            if fault.is_operators() {
                tracing::warn!(command = name, %fault, "a command of the operator's cannot be run");
            }
            fault.told()
        })
    }
}

impl ProfileDirectory for SettingsDirectory {
    fn choose(
        &self,
        agent: Option<&str>,
        model: Option<&ModelRef>,
        fallback_agent: Option<&str>,
        fallback_model: Option<&ModelRef>,
    ) -> Result<Choice, CommandError> {
        let named = self.named(agent, model, fallback_agent, fallback_model);
        let (chosen, model) = named.map_err(CommandError::Invalid)?;
        self.check(model).map_err(|error| refused(&error, model))?;
        Ok(Choice {
            agent: chosen.name.clone(),
            model: model.clone(),
            step_limit: chosen.steps,
            modalities: self.modalities(model),
        })
    }

    fn aside(&self, purpose: Purpose, model: &ModelRef) -> Option<Aside> {
        let name = match purpose {
            Purpose::Title => "title",
            Purpose::Summary => "summary",
            Purpose::Compaction => "compaction",
            Purpose::Turn | Purpose::Subagent => return None,
        };
        if purpose == Purpose::Summary && !self.summaries {
            return None;
        }
        let agent = self.set.agents.get(name)?;
        // A conversation that goes on needs its summary; titles cost nothing unless somebody wants them.
        let usual = match purpose {
            Purpose::Compaction => Some(model),
            _ => self.settings.small_model.as_ref(),
        };
        let model = agent.model.as_ref().or(usual)?.clone();
        let system = agent.prompt.clone().unwrap_or_default();
        Some(Aside { agent: agent.name.clone(), model, system })
    }

    fn profile(&self, request: &ProfileRequest) -> Result<Profile, ErrorInfo> {
        let root = Path::new(&request.workspace);
        let server = self.server(&request.tenant, &request.model)?;
        let settings = self
            .settings_in(root)
            .map_err(|error| ErrorInfo::new(ErrorCode::BadRequest, error.to_string()))?;
        let agent =
            self.agent(&request.agent).map_err(|error| ErrorInfo::new(ErrorCode::BadRequest, error))?;
        let (system, tools) = self.told(request, agent, &settings);
        for problem in &system.problems {
            tracing::warn!(session = %request.session, %problem, "left out of a system prompt");
        }
        let Server { facts, preferences, .. } = server;
        let is_over = |on: &Day| *on <= Day::of(now());
        let successor = facts.successor.clone();
        let ended = facts.ends.filter(is_over).map(|on| EndOfLife { on, successor });
        // What is known of the server stands before what its models want on other servers.
        let reasoning_field = server.chat.reasoning_field.or(facts.reasoning_field);
        let (limiter, limits) = (self.limiters.of(&server.endpoint, server.quota), server.limits);
        let thinks = agent.reasoning.or(preferences.reasoning).filter(|_| facts.reasoning);
        let mut endpoint = server.endpoint;
        let head = Head {
            model: request.model.model.clone(),
            system: system.text,
            tools,
            max_output: facts.answer_limit(),
            chat: ChatFacts { reasoning_field, ..server.chat },
            modalities: facts.modalities,
            temperature: agent.temperature.or(preferences.temperature),
            top_p: agent.top_p.or(preferences.top_p),
            reasons: facts.reasoning,
            reasoning: thinks.map(reasoning),
            reasoning_form: facts.reasoning_form,
            rules: facts.rules,
            drop_stale_reasoning: facts.rules.prefix_check && endpoint.offers_drop(),
            adjustments: Adjustments::default(),
            cache_key: server.cache_key.then(|| request.session.to_string()),
        };
        if let Some((wanted, sent)) = head.mapped_effort(endpoint.dialect)
            && self.findings.is_first_mapping(&request.model, wanted)
        {
            let (model, wanted, sent) = (&request.model, wanted.name(), sent.name());
            tracing::warn!(%model, wanted, sent, "the model lacks this level of reasoning: the nearest is asked for");
        }
        let head = head.adjusted(self.findings.of(&request.model));
        if head.drop_stale_reasoning {
            endpoint.ask_for_drop();
        }
        let (transport, findings) = (server.transport, Arc::clone(&self.findings));
        Ok(Profile { endpoint, transport, limiter, limits, head, findings, ended })
    }
}

/// What a provider's wire is told.
fn reasoning(wanted: prompts::Reasoning) -> Reasoning {
    match wanted {
        prompts::Reasoning::Effort(effort) => Reasoning::Effort(effort),
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

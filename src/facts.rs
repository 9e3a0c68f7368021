//! What clients of the server may know of agents, tools and models.

use std::collections::BTreeMap;
use std::path::Path;

use playhouse_catalogue::ModelFacts;
use playhouse_prompts::{self as prompts, Agent, Agents, Origin, ToolFilter};
use playhouse_protocol::capability::Sampling;
use playhouse_protocol::consent::Action;
use playhouse_protocol::{ModelRef, PermissionRule};
use playhouse_server::{
    AgentFacts, AgentList, AgentMode, AgentOrigin, Facts, Found, ModelView, ProviderView, RefusedAgent,
    ToolView,
};

use crate::directory::SettingsDirectory;

impl SettingsDirectory {
    /// What clients may know of these agents, the usual one first.
    fn listed(&self, agents: &Agents) -> Vec<AgentFacts> {
        let usual = self.settings.agent.as_deref().unwrap_or(Agents::DEFAULT);
        let mut sorted: Vec<&Agent> = agents.iter().collect();
        // They come in the order of their names, which the others keep.
        sorted.sort_by_key(|agent| agent.name != usual);
        let listed = sorted.into_iter().map(|agent| AgentFacts {
            name: agent.name.clone(),
            description: agent.description.clone(),
            mode: mode(agent.mode),
            origin: match agents.origin(&agent.name) {
                Origin::Builtin => AgentOrigin::Builtin,
                Origin::Operator(_) => AgentOrigin::Operator,
                Origin::Workspace(_) => AgentOrigin::Workspace,
            },
            hidden: agent.hidden,
            color: agent.color.clone(),
            variant: agent.reasoning.map(|reasoning| reasoning.to_string()),
            read_only: agent.read_only,
            tools: match &agent.tools {
                ToolFilter::All => None,
                ToolFilter::Only(tools) => Some(tools.clone()),
            },
            model: agent.model.clone(),
            steps: agent.steps,
            permissions: rules(agent),
        });
        listed.collect()
    }
}

/// The rules that an agent brings, and what it cannot do whatever they say.
fn rules(agent: &Agent) -> Vec<PermissionRule> {
    let deny = |permission: &str| PermissionRule {
        permission: permission.to_owned(),
        pattern: "*".to_owned(),
        action: Action::Deny,
    };
    let own = agent.permissions.iter().map(|rule| PermissionRule {
        permission: rule.permission.as_str().to_owned(),
        pattern: rule.pattern.as_str().to_owned(),
        action: rule.action,
    });
    own.chain(agent.read_only.then(|| deny("edit"))).collect()
}

impl Facts for SettingsDirectory {
    fn agents(&self) -> Vec<AgentFacts> {
        self.listed(self.agents())
    }

    fn agents_in(&self, workspace: &Path) -> AgentList {
        let Some(agents) = SettingsDirectory::agents_in(self, workspace) else {
            return AgentList { agents: Facts::agents(self), ..AgentList::default() };
        };
        let refused = agents
            .refused()
            .iter()
            .map(|refused| RefusedAgent { name: refused.name.clone(), error: refused.error.to_string() });
        AgentList { agents: self.listed(&agents), refused: refused.collect() }
    }

    fn tools(&self) -> Vec<ToolView> {
        let view = |tool: &std::sync::Arc<dyn playhouse_tools::Tool>| ToolView {
            name: tool.spec().name.clone(),
            description: tool.spec().description.clone(),
            parameters: tool.spec().parameters.clone(),
            risk: tool.risk(),
            permission: tool.permission().to_owned(),
            source: None,
        };
        self.tools.iter().filter(|tool| tool.unavailable().is_none()).map(view).collect()
    }

    fn providers(&self) -> Vec<ProviderView> {
        let catalogue = self.settings.catalogue.now();
        let providers = self.settings.providers.iter().map(|(id, provider)| {
            let models: Vec<ModelView> = catalogue
                .models(id)
                .filter(|(_, facts)| facts.text && facts.context > 0 && facts.output > 0)
                .map(|(model, facts)| view(ModelRef::new(id, model), facts))
                .collect();
            // One without a model that can be chosen is of no use to anybody.
            let connected = provider.wrong_address.is_none() && !models.is_empty() && self.has_key(id);
            ProviderView { id: id.clone(), connected, models }
        });
        providers.collect()
    }

    fn findings(&self) -> BTreeMap<String, Vec<Found>> {
        let found = self.findings.all().into_iter().map(|(model, adjustments)| {
            let found = adjustments.iter().map(|finding| Found {
                finding: finding.to_string(),
                configuration: finding.configuration(&model),
            });
            (model.to_string(), found.collect())
        });
        found.collect()
    }

    fn default_model(&self) -> Option<ModelRef> {
        let usual = self.settings.agent.as_deref().unwrap_or(Agents::DEFAULT);
        let of_agent = self.settings.agents.get(usual).and_then(|agent| agent.model.clone());
        of_agent.or_else(|| self.settings.model.clone())
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }
}

fn mode(mode: prompts::AgentMode) -> AgentMode {
    match mode {
        prompts::AgentMode::Primary => AgentMode::Primary,
        prompts::AgentMode::Subagent => AgentMode::Subagent,
        prompts::AgentMode::All => AgentMode::All,
    }
}

fn view(model: ModelRef, facts: &ModelFacts) -> ModelView {
    ModelView {
        // The catalogue keeps no other name.
        name: model.model.clone(),
        model,
        context: facts.context,
        output: facts.output,
        reasoning: facts.reasoning,
        temperature: facts.rules.sampling != Sampling::Never,
        modalities: facts.modalities,
        prices: facts.prices.clone(),
        released: None,
    }
}

//! What clients of the server may know of agents, tools and models.

use playhouse_catalogue::ModelFacts;
use playhouse_prompts::{self as prompts, Agent, Agents};
use playhouse_protocol::ModelRef;
use playhouse_server::{AgentFacts, AgentMode, Facts, ModelView, ProviderView, ToolView};

use crate::directory::SettingsDirectory;

impl Facts for SettingsDirectory {
    fn agents(&self) -> Vec<AgentFacts> {
        let agents = &self.settings.agents;
        let usual = self.settings.agent.as_deref().unwrap_or(Agents::DEFAULT);
        let mut sorted: Vec<&Agent> = agents.iter().collect();
        // They come in the order of their names, which the others keep.
        sorted.sort_by_key(|agent| agent.name != usual);
        sorted
            .into_iter()
            .map(|agent| AgentFacts {
                name: agent.name.clone(),
                description: agent.description.clone(),
                mode: mode(agent.mode),
                native: agents.file(&agent.name).is_none(),
                hidden: false,
                color: None,
                variant: None,
                model: agent.model.clone(),
                steps: agent.steps,
            })
            .collect()
    }

    fn tools(&self) -> Vec<ToolView> {
        let view = |tool: &std::sync::Arc<dyn playhouse_tools::Tool>| ToolView {
            name: tool.spec().name.clone(),
            description: tool.spec().description.clone(),
            parameters: tool.spec().parameters.clone(),
            risk: tool.risk(),
            permission: tool.permission().to_owned(),
        };
        self.tools.iter().map(view).collect()
    }

    fn providers(&self) -> Vec<ProviderView> {
        let providers = self.settings.providers.iter().map(|(id, provider)| {
            let models: Vec<ModelView> = self
                .settings
                .catalogue
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
        temperature: facts.temperature,
        modalities: facts.modalities,
        prices: facts.price_list(),
        released: None,
    }
}

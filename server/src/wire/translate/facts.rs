//! Agents, providers and tools.

use std::collections::BTreeMap;

use playhouse_protocol::Prices;
use playhouse_protocol::template::{TemplateFacts, TemplateOwner};
use serde_json::Map;

use super::dollars;
use crate::facts::{AgentFacts, AgentOrigin, ModelView, ProviderView, ToolView};
use crate::wire::shapes::{
    Agent, AgentModel, Capabilities, Command, Limit, Model, ModelApi, ModelCache, ModelCost, ModelTier,
    Provider, Reads, Tier, ToolListItem,
};

pub(crate) fn agent(facts: AgentFacts) -> Agent {
    let AgentFacts { name, description, mode, origin, hidden, color, model, steps, permissions, .. } = facts;
    Agent {
        name,
        description,
        mode,
        native: origin == AgentOrigin::Builtin,
        hidden,
        color,
        permission: permissions,
        model: model.map(|model| AgentModel { provider: model.provider, model: model.model }),
        // Models have no variants on the wire that this could be one of.
        variant: None,
        options: Map::new(),
        steps,
    }
}

pub(crate) fn command(facts: TemplateFacts) -> Command {
    let TemplateFacts { name, description, agent, model, subtask, template, hints, owner } = facts;
    let model = model.map(|model| model.to_string());
    let source = match owner {
        TemplateOwner::Operator | TemplateOwner::Workspace => "command",
        TemplateOwner::Server => "mcp",
    };
    Command { name, description, agent, model, source, template, subtask, hints }
}

pub(crate) fn tool(view: ToolView) -> ToolListItem {
    ToolListItem { id: view.name, description: view.description, parameters: view.parameters }
}

/// A provider and its models; nothing of how it is reached.
pub(crate) fn provider(view: ProviderView) -> Provider {
    let models: BTreeMap<String, Model> =
        view.models.into_iter().map(|view| (view.model.model.clone(), model(view))).collect();
    Provider {
        name: view.id.clone(),
        id: view.id,
        source: "config",
        env: Vec::new(),
        options: Map::new(),
        models,
    }
}

fn model(view: ModelView) -> Model {
    let reads = Reads {
        text: true,
        audio: false,
        image: view.modalities.image,
        video: false,
        pdf: view.modalities.pdf,
    };
    let writes = Reads { text: true, audio: false, image: false, video: false, pdf: false };
    let (input, output, cache) = prices(&view.prices.usual);
    let tiers = view.prices.long.iter().map(|long| {
        let (input, output, cache) = prices(&long.prices);
        ModelTier { input, output, cache, tier: Tier { kind: "context", size: long.above } }
    });
    Model {
        api: ModelApi { id: view.model.model.clone(), url: String::new(), npm: String::new() },
        id: view.model.model,
        provider: view.model.provider,
        name: view.name,
        capabilities: Capabilities {
            temperature: view.temperature,
            reasoning: view.reasoning,
            attachment: view.modalities.image || view.modalities.pdf,
            toolcall: true,
            input: reads,
            output: writes,
            interleaved: false,
        },
        cost: ModelCost { input, output, cache, tiers: tiers.collect() },
        limit: Limit { context: view.context, output: view.output },
        status: "active",
        options: Map::new(),
        headers: Map::new(),
        release_date: view.released.unwrap_or_default(),
    }
}

/// What is unknown is 0: the wire has no other way to say it.
fn prices(prices: &Prices) -> (f64, f64, ModelCache) {
    let known = |price: Option<_>| price.map_or(0.0, dollars);
    let cache = ModelCache { read: known(prices.cache_read), write: known(prices.cache_write) };
    (known(prices.input), known(prices.output), cache)
}

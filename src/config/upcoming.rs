//! What is to be said of the models that a configuration names: ends that are near, and requests that will be refused.

use std::collections::BTreeMap;

use playhouse_llm::DialectKind;
use playhouse_protocol::{Day, EndOfLife, ModelRef};

use super::provider::ProviderSettings;
use super::settings::Settings;

/// How many days before its end a model is named.
pub(crate) const NOTICE: u64 = 30;

/// A model that the configuration names and that ends soon or has ended.
pub(crate) struct Ending {
    pub(crate) model: ModelRef,
    /// What names it: keys and agents.
    pub(crate) named_by: Vec<String>,
    pub(crate) end: EndOfLife,
    pub(crate) is_over: bool,
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verb = if self.is_over { "ended" } else { "ends" };
        write!(f, "{} ({}) {verb} {}", self.model, self.named_by.join(", "), self.end)
    }
}

impl Settings {
    /// Each model that the configuration names, with what names it.
    pub(crate) fn named_models(&self) -> BTreeMap<ModelRef, Vec<String>> {
        let keys = [("`model`", &self.model), ("`small_model`", &self.small_model)];
        let of_keys = keys.into_iter().filter_map(|(key, model)| Some((model.clone()?, key.to_owned())));
        let of_agents = self
            .agents
            .iter()
            .filter_map(|agent| Some((agent.model.clone()?, format!("agent {}", agent.name))));
        let sections = self.preferences.keys().map(|model| (model.clone(), "its section".to_owned()));
        let mut named: BTreeMap<ModelRef, Vec<String>> = BTreeMap::new();
        for (model, by) in of_keys.chain(of_agents).chain(sections) {
            named.entry(model).or_default().push(by);
        }
        named
    }

    /// The named models that have ended or end within [`NOTICE`] days.
    pub(crate) fn endings(&self, today: Day) -> Vec<Ending> {
        let catalogue = self.catalogue.now();
        let ending = |(model, named_by): (ModelRef, Vec<String>)| {
            let facts = catalogue.find(&model)?.facts;
            let on = facts.ends.filter(|on| on.0 <= today.0.saturating_add(NOTICE))?;
            let end = EndOfLife { on, successor: facts.successor.clone() };
            Some(Ending { model, named_by, end, is_over: on <= today })
        };
        self.named_models().into_iter().filter_map(ending).collect()
    }

    /// The providers whose lists of models tell limits, abilities or ends.
    pub(crate) fn listing_providers(&self) -> impl Iterator<Item = &str> {
        let lists = |(name, provider): &(&String, &ProviderSettings)| {
            provider.wrong_address.is_none()
                && (matches!(name.as_str(), "openai" | "anthropic")
                    || provider.is_openai()
                    || playhouse_llm::host(&provider.base_url) == "api.anthropic.com")
        };
        self.providers.iter().filter(lists).map(|(name, _)| name.as_str())
    }

    /// The models of each provider that refuse requests with tools in the dialect that the configuration names.
    pub(crate) fn refusing_dialects(&self) -> Vec<(String, Vec<String>)> {
        let catalogue = self.catalogue.now();
        let refuses = |name: &String| {
            let provider = &self.providers[name];
            let names = catalogue.models(name).filter(|(_, facts)| {
                provider.dialect_for(facts) == DialectKind::OpenaiChat
                    && (!facts.rules.chat || (facts.rules.responses && provider.is_openai()))
            });
            let names: Vec<String> = names.map(|(model, _)| model.to_owned()).collect();
            (!names.is_empty()).then(|| (name.clone(), names))
        };
        self.providers.keys().filter_map(refuses).collect()
    }
}

//! Facts of models: how much they read and write, what that costs, and what they can do.
//!
//! - [`ModelFacts`]: what is known of one model.
//! - [`Catalogue`]: all models that are known: those of the project's own file `models.toml`, which is part of the
//!   program and read when the first model is looked up, and those that an operator configured.
//!
//! A model that is not here is not an error of this crate: [`Catalogue::nearest`] helps to say what was probably meant.
//!
//! ```
//! use playhouse_catalogue::Catalogue;
//! use playhouse_protocol::ModelRef;
//!
//! let catalogue = Catalogue::builtin();
//! let facts = catalogue.get(&ModelRef::new("anthropic", "claude-sonnet-4-5")).unwrap();
//! assert_eq!(facts.context, 200_000);
//! assert!(facts.modalities.accepts("image/png"));
//!
//! let mistyped = ModelRef::new("anthropic", "claude-sonet-5");
//! assert_eq!(catalogue.nearest(&mistyped)[0], "anthropic/claude-sonnet-5");
//! ```

mod builtin;
mod facts;

use std::collections::{BTreeMap, BTreeSet};

use playhouse_protocol::ModelRef;
use playhouse_protocol::nearest::nearest;

pub use facts::{LongContext, Modalities, ModelFacts};

/// All models that are known. Cheap to make and to clone: the built-in models are shared, and read at the first look.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    /// Models of the operator's configuration. They stand before built-in ones of the same name.
    configured: BTreeMap<ModelRef, ModelFacts>,
}

impl Catalogue {
    /// The models that Playhouse knows by itself.
    pub fn builtin() -> Self {
        Self::default()
    }

    /// The state of the built-in facts, as `YYYY-MM`.
    pub fn version() -> &'static str {
        &builtin::builtin().version
    }

    /// What is known of `model`, by its own name or an alias.
    pub fn get(&self, model: &ModelRef) -> Option<&ModelFacts> {
        self.configured.get(model).or_else(|| builtin::builtin().models.get(model))
    }

    /// Adds a model, or replaces what was known of it.
    pub fn insert(&mut self, model: ModelRef, facts: ModelFacts) {
        self.configured.insert(model, facts);
    }

    /// The models of `provider` by name, in alphabetical order, aliases included.
    pub fn models(&self, provider: &str) -> impl Iterator<Item = (&str, &ModelFacts)> {
        let names: BTreeMap<&str, &ModelFacts> = builtin::builtin()
            .models
            .iter()
            .chain(&self.configured)
            .filter(|(model, _)| model.provider == provider)
            .map(|(model, facts)| (model.model.as_str(), facts))
            .collect();
        names.into_iter()
    }

    /// Up to three known models that `model` was probably meant to be, as `PROVIDER/MODEL`, the best first. Models of
    /// the same provider come before all others.
    pub fn nearest(&self, model: &ModelRef) -> Vec<String> {
        let siblings = nearest(&model.model, self.models(&model.provider).map(|(name, _)| name));
        if !siblings.is_empty() {
            return siblings.iter().map(|name| format!("{}/{name}", model.provider)).collect();
        }
        let all: BTreeSet<String> =
            builtin::builtin().models.keys().chain(self.configured.keys()).map(ModelRef::to_string).collect();
        nearest(&model.to_string(), all.iter().map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(context: u64) -> ModelFacts {
        ModelFacts { context, output: 1_000, ..ModelFacts::default() }
    }

    #[test]
    fn a_configured_model_stands_before_a_builtin_one() {
        let mut catalogue = Catalogue::builtin();
        let model = ModelRef::new("anthropic", "claude-sonnet-5");
        catalogue.insert(model.clone(), local(5_000));
        assert_eq!(catalogue.get(&model).unwrap().context, 5_000);
        let listed = catalogue.models("anthropic").find(|(name, _)| *name == "claude-sonnet-5").unwrap();
        assert_eq!(listed.1.context, 5_000);
        assert_eq!(Catalogue::builtin().get(&model).unwrap().context, 1_000_000);
    }

    #[test]
    fn models_lists_one_provider_in_order() {
        let mut catalogue = Catalogue::builtin();
        catalogue.insert(ModelRef::new("local", "b/2"), local(1));
        catalogue.insert(ModelRef::new("local", "a"), local(1));
        let names: Vec<&str> = catalogue.models("local").map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "b/2"]);
        assert_eq!(catalogue.models("nobody").count(), 0);
    }

    #[test]
    fn nearest_prefers_the_same_provider_and_finds_others() {
        let mut catalogue = Catalogue::builtin();
        catalogue.insert(ModelRef::new("local", "qwen3-coder"), local(1));
        let of = |text: &str| catalogue.nearest(&text.parse().unwrap());
        assert_eq!(of("local/qwen3-codr"), ["local/qwen3-coder"]);
        assert_eq!(of("antropic/claude-fable-5")[0], "anthropic/claude-fable-5");
        assert_eq!(of("openai/gpt-5.6")[0], "openai/gpt-5");
        assert!(of("zzz/000").is_empty());
    }
}

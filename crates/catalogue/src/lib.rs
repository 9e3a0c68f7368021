//! Facts of models: how much they read and write, what that costs, and what they can do.
//!
//! - [`ModelFacts`]: what is known of one model.
//! - [`Catalogue`]: all models that are known, in three layers: those of the project's own file `models.toml`, which is
//!   part of the program and read when the first model is looked up; before them a whole catalogue in the format of
//!   models.dev, where one was loaded ([`Catalogue::from_models_dev`]); before that what an operator configured.
//! - [`CatalogueError`]: what is wrong with a catalogue, and where in it.
//!
//! Inside, `entry` is a model as it stands in a file, `kept` the form in which a loaded catalogue is kept between runs.
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
mod entry;
mod error;
mod facts;
mod kept;
mod models_dev;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use playhouse_protocol::ModelRef;
use playhouse_protocol::capability::Sampling;
use playhouse_protocol::nearest::nearest;

pub use error::CatalogueError;
pub use facts::ModelFacts;
pub use playhouse_protocol::capability::Modalities;
pub use playhouse_protocol::usage::LongContext;

/// Where what is known of a model comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The operator's configuration.
    Configured,
    /// A catalogue that was loaded.
    Loaded,
    /// The program.
    Builtin,
}

/// All models that are known. Cheap to make and to clone: the built-in models are shared, and read at the first look; so
/// are those of a catalogue that was loaded, and configured ones until one is added.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    /// Models of the operator's configuration. They stand before all others of the same name.
    configured: Arc<BTreeMap<ModelRef, ModelFacts>>,
    /// Models of a catalogue that was loaded. They stand before built-in ones of the same name.
    loaded: Option<Arc<BTreeMap<ModelRef, ModelFacts>>>,
}

impl Catalogue {
    /// The models that Playhouse knows by itself.
    pub fn builtin() -> Self {
        Self::default()
    }

    /// The same with those of a whole catalogue in the format of models.dev (`api.json`). A model without prices has
    /// unknown ones. What that format does not tell of a model is taken from the built-in facts, where there are any.
    ///
    /// # Errors
    /// It is not JSON, or a value in it is not what it should be: the error says which.
    ///
    /// ```
    /// use playhouse_catalogue::Catalogue;
    /// let json = r#"{"acme": {"models": {"one": {"limit": {"context": 1000, "output": 100}}}}}"#;
    /// let catalogue = Catalogue::from_models_dev(json).unwrap();
    /// let facts = catalogue.get(&"acme/one".parse().unwrap()).unwrap();
    /// assert_eq!((facts.context, facts.prices.usual.input), (1_000, None));
    ///
    /// let error = Catalogue::from_models_dev(r#"{"acme": {"models": {"one": {"limit": 3}}}}"#).unwrap_err();
    /// assert_eq!(error.to_string(), "acme.models.one.limit: is the number 3, expected an object");
    /// ```
    pub fn from_models_dev(json: &str) -> Result<Self, CatalogueError> {
        models_dev::read(json).map(Self::with)
    }

    /// A loaded catalogue that was kept as [`Catalogue::keep`] gives it.
    ///
    /// # Errors
    /// It is not such a text, or one of another version.
    pub fn from_kept(text: &str) -> Result<Self, CatalogueError> {
        kept::read(text).map(Self::with)
    }

    /// The models that were loaded, in the order of their names.
    pub fn loaded(&self) -> impl Iterator<Item = (&ModelRef, &ModelFacts)> {
        self.loaded.iter().flat_map(|loaded| loaded.iter())
    }

    /// The models that were loaded, as a text that is read again several times as fast as the one they came from.
    pub fn keep(&self) -> String {
        kept::write(self.loaded.as_deref().unwrap_or(&BTreeMap::new()))
    }

    fn with(mut loaded: BTreeMap<ModelRef, ModelFacts>) -> Self {
        for (model, facts) in &mut loaded {
            if let Some(known) = builtin::builtin().models.get(model) {
                let sampling = facts.rules.sampling;
                facts.rules = known.rules;
                if known.rules.sampling == Sampling::Always {
                    facts.rules.sampling = sampling;
                }
                facts.ends = known.ends;
                facts.successor.clone_from(&known.successor);
                if facts.reasoning_form.is_none() {
                    facts.reasoning_form.clone_from(&known.reasoning_form);
                }
                // These go with the price of input, which that format tells.
                if facts.prices.usual.input == known.prices.usual.input {
                    let (prices, known) = (&mut facts.prices, &known.prices);
                    prices.usual.cache_write_30m = known.usual.cache_write_30m;
                    prices.usual.cache_write_1h = known.usual.cache_write_1h;
                    prices.usual.cache_write_12h = known.usual.cache_write_12h;
                    prices.multiples.clone_from(&known.multiples);
                    prices.off_peak.clone_from(&known.off_peak);
                }
            }
        }
        Self { configured: Arc::default(), loaded: Some(Arc::new(loaded)) }
    }

    /// The state of the built-in facts, as `YYYY-MM`.
    pub fn version() -> &'static str {
        &builtin::builtin().version
    }

    /// What is known of `model`, by its own name or an alias.
    pub fn get(&self, model: &ModelRef) -> Option<&ModelFacts> {
        self.layers().find_map(|(_, models)| models.get(model))
    }

    /// The version of the catalogue that what is known of `model` comes from: that of the program, or the one that was
    /// loaded; `None` for what the operator wrote, and for a model that is not known.
    pub fn version_for(&self, model: &ModelRef) -> Option<String> {
        match self.source(model)? {
            Source::Configured => None,
            Source::Loaded => Some("models.dev".to_owned()),
            Source::Builtin => Some(format!("builtin-{}", builtin::builtin().version)),
        }
    }

    /// Where that comes from.
    pub fn source(&self, model: &ModelRef) -> Option<Source> {
        self.layers().find(|(_, models)| models.contains_key(model)).map(|(source, _)| source)
    }

    /// Adds a model, or replaces what was known of it.
    pub fn insert(&mut self, model: ModelRef, facts: ModelFacts) {
        Arc::make_mut(&mut self.configured).insert(model, facts);
    }

    /// The names of all providers that have a model here.
    pub fn providers(&self) -> BTreeSet<&str> {
        self.layers().flat_map(|(_, models)| models.keys()).map(|model| model.provider.as_str()).collect()
    }

    /// The models of `provider` by name, in alphabetical order, aliases included. Those that no conversation can be held
    /// with ([`ModelFacts::converses`]) are left out.
    pub fn models(&self, provider: &str) -> impl Iterator<Item = (&str, &ModelFacts)> {
        let mut names: BTreeMap<&str, &ModelFacts> = BTreeMap::new();
        for (_, models) in self.layers() {
            // Models are ordered by provider first.
            let siblings = models.range(ModelRef::new(provider, "")..);
            for (model, facts) in siblings.take_while(|(model, _)| model.provider == provider) {
                names.entry(&model.model).or_insert(facts);
            }
        }
        names.into_iter().filter(|(_, facts)| facts.converses())
    }

    /// All models by layer; an earlier layer stands before a later one.
    fn layers(&self) -> impl Iterator<Item = (Source, &BTreeMap<ModelRef, ModelFacts>)> {
        let configured = (Source::Configured, &*self.configured);
        let loaded = self.loaded.as_deref().map(|loaded| (Source::Loaded, loaded));
        let builtin = std::iter::once_with(|| (Source::Builtin, &builtin::builtin().models));
        std::iter::once(configured).chain(loaded).chain(builtin)
    }

    /// Up to three known models that `model` was probably meant to be, as `PROVIDER/MODEL`, the best first. Models of
    /// the same provider come before all others.
    pub fn nearest(&self, model: &ModelRef) -> Vec<String> {
        let siblings = nearest(&model.model, self.models(&model.provider).map(|(name, _)| name));
        if !siblings.is_empty() {
            return siblings.iter().map(|name| format!("{}/{name}", model.provider)).collect();
        }
        let all: BTreeSet<String> = self
            .layers()
            .flat_map(|(_, models)| models)
            .filter(|(_, facts)| facts.converses())
            .map(|(model, _)| model.to_string())
            .collect();
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
    fn a_loaded_catalogue_stands_between_and_is_completed() {
        let json = r#"{"anthropic": {"models": {
            "claude-sonnet-4-5": {"limit": {"context": 7, "output": 5}, "cost": {"input": 3, "output": 15}},
            "claude-haiku-4-5": {"limit": {"context": 7, "output": 5}, "cost": {"input": 9, "output": 15}},
            "claude-next": {"limit": {"context": 7, "output": 5}}
        }}}"#;
        let loaded = Catalogue::from_models_dev(json).unwrap();
        for mut catalogue in [loaded.clone(), Catalogue::from_kept(&loaded.keep()).unwrap()] {
            let of = |name: &str| catalogue.get(&ModelRef::new("anthropic", name)).unwrap();
            let sonnet = of("claude-sonnet-4-5");
            assert_eq!((sonnet.context, sonnet.rules.prefill), (7, true));
            assert_eq!(sonnet.prices.usual.cache_write_1h, Some("6".parse().unwrap()));
            assert_eq!(
                of("claude-haiku-4-5").prices.usual.cache_write_1h,
                None,
                "that price went with another"
            );
            assert_eq!(
                (of("claude-next").prices.usual.input, of("claude-opus-4-5").context),
                (None, 200_000)
            );
            let source = |catalogue: &Catalogue, name| catalogue.source(&ModelRef::new("anthropic", name));
            assert_eq!(source(&catalogue, "claude-next"), Some(Source::Loaded));
            assert_eq!(source(&catalogue, "claude-opus-4-5"), Some(Source::Builtin));
            assert_eq!(source(&catalogue, "claude"), None);
            catalogue.insert(ModelRef::new("anthropic", "claude-next"), local(9));
            assert_eq!(source(&catalogue, "claude-next"), Some(Source::Configured));
            assert_eq!(catalogue.models("anthropic").filter(|(name, _)| *name == "claude-next").count(), 1);
            assert!(catalogue.providers().contains("openai"));
        }
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

//! Facts of models: how much they read and write, what that costs, and what they can do.
//!
//! - [`ModelFacts`]: what is known of one model.
//! - [`Catalogue`]: all models that are known, in three layers: those of the project's own file `models.toml`, which is
//!   part of the program and read when the first model is looked up; before them a whole catalogue that was loaded
//!   ([`Catalogue::read`]); before that what an operator configured.
//! - [`Listing`]: what a provider tells of its own models; it stands before a catalogue that was loaded.
//! - [`Known`]: the facts of a model, its own or those of the model that it follows ([`Catalogue::find`]).
//! - [`generate`]: makes `models.toml` from litellm's table and from `overlay.toml`, which is written by hand.
//! - [`CatalogueError`]: what is wrong with a catalogue, and where in it.
//!
//! Inside, `entry` is a model as it stands in a file, `family` reads names of models, `models_dev` and `litellm` read the
//! formats of others, and `kept` is the form in which a loaded catalogue is kept between runs.
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

mod at;
mod builtin;
mod entry;
mod error;
mod facts;
mod family;
pub mod generate;
mod kept;
mod litellm;
mod loaded;
mod models_dev;
mod told;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use playhouse_protocol::nearest::nearest;
use playhouse_protocol::{ModelRef, PriceList};

use crate::family::Family;
use crate::loaded::Loaded;

pub use error::CatalogueError;
pub use facts::ModelFacts;
pub use playhouse_protocol::capability::Modalities;
pub use playhouse_protocol::usage::LongContext;
pub use told::Listing;

/// Where what is known of a model comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The operator's configuration.
    Configured,
    /// The list of models of its provider.
    Provider,
    /// A catalogue that was loaded.
    Loaded,
    /// The program.
    Builtin,
}

/// The facts of a model, its own or inherited.
#[derive(Clone, Debug, PartialEq)]
pub struct Known<'a> {
    /// The facts.
    pub facts: Cow<'a, ModelFacts>,
    /// The model whose facts these are, where it is another one. Their prices are then unknown.
    pub inherited_from: Option<ModelRef>,
}

/// All models that are known. Cheap to make and to clone: the built-in models are shared, and read at the first look; so
/// are those of a catalogue that was loaded, and configured ones until one is added.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    /// Models of the operator's configuration. They stand before all others of the same name.
    configured: Arc<BTreeMap<ModelRef, ModelFacts>>,
    /// Models of a catalogue that was loaded. They stand before built-in ones of the same name.
    loaded: Option<Arc<Loaded>>,
    /// Models of which providers told something, with that. They stand before those that were loaded.
    told: Arc<BTreeMap<ModelRef, ModelFacts>>,
    /// Models that are not known, each with the one that it follows.
    followed: Arc<Mutex<HashMap<ModelRef, Option<ModelRef>>>>,
}

/// The most models of which it is kept what they follow.
const MOST_FOLLOWED: usize = 1_000;

impl Catalogue {
    /// The models that Playhouse knows by itself.
    pub fn builtin() -> Self {
        Self::default()
    }

    /// The same with those of a whole catalogue: `api.json` of models.dev, litellm's table of models, or a file in the form
    /// of our own `models.toml`. The format is recognised by its content. A model without prices has unknown ones. Facts
    /// that a format cannot tell are those of the built-in model, else those of the model that it follows.
    ///
    /// # Errors
    /// It has none of these formats, or a value in it is not what it should be: the error says which.
    ///
    /// ```
    /// use playhouse_catalogue::Catalogue;
    /// let json = r#"{"acme": {"models": {"one": {"limit": {"context": 1000, "output": 100}}}}}"#;
    /// let catalogue = Catalogue::read(json).unwrap();
    /// let model = "acme/one".parse().unwrap();
    /// let facts = catalogue.get(&model).unwrap();
    /// assert_eq!((facts.context, facts.prices.usual.input), (1_000, None));
    /// assert_eq!(catalogue.version_for(&model).unwrap(), "models.dev");
    ///
    /// let error = Catalogue::read(r#"{"acme": {"models": {"one": {"limit": 3}}}}"#).unwrap_err();
    /// assert_eq!(error.to_string(), "acme.models.one.limit: is the number 3, expected an object");
    /// ```
    pub fn read(text: &str) -> Result<Self, CatalogueError> {
        Loaded::read(text).map(Self::with)
    }

    /// A loaded catalogue that was kept as [`Catalogue::keep`] gives it.
    ///
    /// # Errors
    /// It is not such a text, or one of another version.
    pub fn from_kept(text: &str) -> Result<Self, CatalogueError> {
        let mut loaded = kept::read(text)?;
        loaded.complete();
        Ok(Self::with(loaded))
    }

    /// The models that were loaded, in the order of their names.
    pub fn loaded(&self) -> impl Iterator<Item = (&ModelRef, &ModelFacts)> {
        self.loaded.iter().flat_map(|loaded| &loaded.models)
    }

    /// The models that were loaded, as a text that is read again several times as fast as the one they came from.
    pub fn keep(&self) -> String {
        kept::write(self.loaded.as_deref().unwrap_or(&Loaded::default()))
    }

    fn with(loaded: Loaded) -> Self {
        let mut catalogue = Self { loaded: Some(Arc::new(loaded)), ..Self::default() };
        catalogue.apply_told();
        catalogue
    }

    /// Takes over limits, abilities and ends from the list of models of `provider`. Prices do not change. Models that are
    /// neither known nor follow a known one are skipped.
    #[must_use]
    pub fn told(self, provider: &str, listing: Listing) -> Self {
        let mut loaded = self.loaded.as_deref().cloned().unwrap_or_default();
        loaded.told.retain(|model, _| model.provider != provider);
        let told = listing.0.into_iter().filter(|(_, told)| !told.is_empty());
        loaded.told.extend(told.map(|(model, told)| (ModelRef::new(provider, model), told)));
        Self { configured: self.configured, ..Self::with(loaded) }
    }

    /// Takes over the providers' lists that `other` holds.
    #[must_use]
    pub fn told_as(self, other: &Self) -> Self {
        let mut loaded = self.loaded.as_deref().cloned().unwrap_or_default();
        loaded.told = other.loaded.as_deref().map(|other| other.told.clone()).unwrap_or_default();
        Self { configured: self.configured, ..Self::with(loaded) }
    }

    fn apply_told(&mut self) {
        let Some(loaded) = self.loaded.clone() else { return };
        let told = loaded.told.iter().filter_map(|(model, told)| {
            let mut facts = self.find(model)?.facts.into_owned();
            told.apply(&mut facts);
            Some((model.clone(), facts))
        });
        self.told = Arc::new(told.collect());
        self.followed = Arc::default();
    }

    /// The day of the state of the built-in facts, as `YYYY-MM-DD`.
    pub fn version() -> &'static str {
        &builtin::builtin().version
    }

    /// What is known of `model`, by its own name or an alias.
    pub fn get(&self, model: &ModelRef) -> Option<&ModelFacts> {
        self.layers().find_map(|(_, models)| models.get(model))
    }

    /// What is known of `model`, or of the model that it follows:
    ///
    /// - its own facts, by its name or by that of the model of which it is a dated snapshot;
    /// - else, at any provider, those of the vendor's model of the same name (after the last slash);
    /// - else those of the newest model of its family that is not newer than it, else of the newest one, of its tier if
    ///   there is one. Families are read from names: `claude-<tier>-<version>`, `gpt-<version>-<tier>`, and those of Gemini,
    ///   DeepSeek, Kimi, GLM, Qwen and Grok. A name that seems mistyped (`claude-sonet-5`) follows none, nor does one of a
    ///   model for embeddings, images or speech. Where anybody may serve the model (DeepSeek, Kimi, GLM, Qwen) and this is
    ///   not its vendor, its limits stay unknown (0).
    ///
    /// Facts of another model come without prices, which are unknown, and without an end.
    ///
    /// ```
    /// use playhouse_catalogue::Catalogue;
    /// let catalogue = Catalogue::builtin();
    /// let known = catalogue.find(&"gateway/anthropic/claude-opus-6".parse().unwrap()).unwrap();
    /// assert_eq!(known.inherited_from.unwrap().to_string(), "anthropic/claude-opus-5-5");
    /// assert!(known.facts.rules.prefix_check && known.facts.prices.usual.input.is_none());
    /// assert!(catalogue.find(&"gateway/llama-3".parse().unwrap()).is_none());
    /// ```
    pub fn find(&self, model: &ModelRef) -> Option<Known<'_>> {
        if let Some((source, facts)) = self.own(model) {
            let only_told = source == Source::Provider && self.source(model) == Some(Source::Provider);
            let inherited_from = only_told.then(|| self.followed(model)).flatten();
            return Some(Known { facts: Cow::Borrowed(facts), inherited_from });
        }
        let from = self.followed(model)?;
        let (_, facts) = self.own(&from)?;
        let mut facts = facts.clone();
        facts.prices = PriceList::default();
        (facts.ends, facts.successor) = (None, None);
        // A gateway need not take what the vendor takes.
        facts.rules.prefill &= model.provider == from.provider;
        if from.model != family::bare(&model.model) && family::has_own_limits(&model.model, &model.provider) {
            (facts.context, facts.input, facts.output) = (0, None, 0);
        }
        Some(Known { facts: Cow::Owned(facts), inherited_from: Some(from) })
    }

    /// The model that `model` follows. Looked for once: that reads the names of all models.
    fn followed(&self, model: &ModelRef) -> Option<ModelRef> {
        let lock = || self.followed.lock();
        if let Some(known) = lock().get(model) {
            return known.clone();
        }
        // One letter less or more than the name of a model of this provider; another number is another version.
        let letters = |name: &str| name.replace(|c: char| c.is_ascii_digit(), "");
        let is_mistyped = |sibling: &str| {
            family::is_mistyped(sibling, &model.model) && letters(sibling) != letters(&model.model)
        };
        let mistyped = || self.models(&model.provider).any(|(sibling, _)| is_mistyped(sibling));
        let from = self.vendors_own(model).or_else(|| self.predecessor(model).filter(|_| !mistyped()));
        let mut known = lock();
        // Whoever may name a model may name many.
        if known.len() >= MOST_FOLLOWED {
            known.clear();
        }
        known.insert(model.clone(), from.clone());
        from
    }

    /// The facts of `model` itself: by its own name, an alias, or the name of the model of which it is a dated snapshot.
    fn own(&self, model: &ModelRef) -> Option<(Source, &ModelFacts)> {
        let named =
            |model: &ModelRef| self.layers().find_map(|(source, models)| Some((source, models.get(model)?)));
        named(model).or_else(|| named(&ModelRef::new(&model.provider, family::undated(&model.model)?)))
    }

    /// The model of the same name at the vendor that makes it.
    fn vendors_own(&self, model: &ModelRef) -> Option<ModelRef> {
        let bare = family::bare(&model.model);
        // Gateways write the version of Claude with a dot.
        let dashed = bare.starts_with("claude-").then(|| bare.replace('.', "-"));
        [Some(bare), dashed.as_deref()].into_iter().flatten().find_map(|name| {
            let of = |vendor| ModelRef::new(vendor, name);
            family::vendors()
                .map(of)
                .find(|model| self.own(model).is_some_and(|(_, facts)| facts.converses()))
        })
    }

    /// The model of the same family whose rules `model` follows.
    fn predecessor(&self, model: &ModelRef) -> Option<ModelRef> {
        let wanted = Family::of(family::bare(&model.model))?;
        let known = self.layers().flat_map(|(_, models)| models).filter(|(_, facts)| facts.converses());
        let members: Vec<(Family, &ModelRef)> = family::members(known.map(|(model, _)| model)).collect();
        family::predecessor(&wanted, &members).cloned()
    }

    /// The version of the catalogue that what is known of `model` itself comes from: that of the program, or the name of
    /// the one that was loaded; `None` for what the operator wrote, and for a model that is not known.
    pub fn version_for(&self, model: &ModelRef) -> Option<String> {
        match self.source(model)? {
            Source::Configured | Source::Provider => None,
            Source::Loaded => self.loaded.as_deref().map(|loaded| loaded.source.clone()),
            Source::Builtin => Some(format!("builtin-{}", builtin::builtin().version)),
        }
    }

    /// Where that comes from, but for what its provider told ([`Catalogue::is_told`]): [`Source::Provider`] only where
    /// nobody else knows the model.
    pub fn source(&self, model: &ModelRef) -> Option<Source> {
        let named = |model: &ModelRef| {
            let mut layers = self.layers().filter(|(source, _)| *source != Source::Provider);
            layers.find_map(|(source, models)| models.contains_key(model).then_some(source))
        };
        named(model)
            .or_else(|| named(&ModelRef::new(&model.provider, family::undated(&model.model)?)))
            .or_else(|| self.is_told(model).then_some(Source::Provider))
    }

    /// Whether the provider's own list of models names this one.
    pub fn is_told(&self, model: &ModelRef) -> bool {
        self.told.contains_key(model)
    }

    /// Removes the models of the operator's configuration.
    #[must_use]
    pub fn without_configured(self) -> Self {
        Self { configured: Arc::default(), followed: Arc::default(), ..self }
    }

    /// Adds a model, or replaces what was known of it.
    pub fn insert(&mut self, model: ModelRef, facts: ModelFacts) {
        Arc::make_mut(&mut self.configured).insert(model, facts);
        self.followed = Arc::default();
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
        let told = (Source::Provider, &*self.told);
        let loaded = self.loaded.as_deref().map(|loaded| (Source::Loaded, &loaded.models));
        let builtin = std::iter::once_with(|| (Source::Builtin, &builtin::builtin().models));
        [configured, told].into_iter().chain(loaded).chain(builtin)
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
        let loaded = Catalogue::read(json).unwrap();
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
        assert_eq!(of("openai/gpt-4.1-mni")[0], "openai/gpt-4.1-mini");
        assert!(of("zzz/000").is_empty());
    }

    #[test]
    fn no_known_model_is_changed_by_families() {
        let catalogue = Catalogue::builtin();
        for provider in catalogue.providers() {
            for (name, facts) in catalogue.models(provider) {
                let known = catalogue.find(&ModelRef::new(provider, name)).unwrap();
                assert_eq!((known.facts.as_ref(), known.inherited_from), (facts, None), "{provider}/{name}");
            }
        }
    }

    #[test]
    fn every_model_behind_a_gateway_is_the_vendors_without_its_prices() {
        let catalogue = Catalogue::builtin();
        for vendor in family::vendors() {
            for (name, facts) in catalogue.models(vendor) {
                for name in [name.to_owned(), format!("some/{name}")] {
                    let known = catalogue.find(&ModelRef::new("gateway", &name)).unwrap();
                    assert_eq!(known.inherited_from.unwrap().provider, vendor, "{name}");
                    let (ours, theirs) = (known.facts.rules, facts.rules);
                    assert_eq!((ours.sampling, ours.thinking), (theirs.sampling, theirs.thinking), "{name}");
                    assert_eq!(
                        (known.facts.context, known.facts.output),
                        (facts.context, facts.output),
                        "{name}"
                    );
                    assert_eq!(known.facts.prices, PriceList::default(), "{name}");
                    assert_eq!((known.facts.ends, &known.facts.successor), (None, &None), "{name}");
                }
            }
        }
    }

    #[test]
    fn unknown_models_follow_the_newest_of_their_family() {
        let mut catalogue = Catalogue::builtin();
        let follows = |catalogue: &Catalogue, model: &str| {
            let known = catalogue.find(&model.parse().unwrap())?;
            Some(known.inherited_from.map_or("itself".to_owned(), |model| model.to_string()))
        };
        for (model, from) in [
            ("openai/gpt-6.3-sol", "openai/gpt-6.2-sol"),
            ("openai/gpt-7-nova", "openai/gpt-6.2-astra"),
            ("anthropic/claude-opus-6", "anthropic/claude-opus-5-5"),
            ("anthropic/claude-opus-5-20260301", "itself"),
            ("anthropic/claude-opus-6-20270301", "anthropic/claude-opus-5-5"),
            ("openrouter/anthropic/claude-opus-4.5", "anthropic/claude-opus-4-5"),
            ("openrouter/anthropic/claude-sonnet-5", "itself"),
            ("gateway/gpt-4o", "openai/gpt-4o"),
            ("google/gemini-4.5-argon", "google/gemini-4-argon"),
            ("deepseek/deepseek-v5-pro", "deepseek/deepseek-v4-pro"),
            ("local/kimi-k4", "moonshotai/kimi-k3"),
            ("zai/glm-6", "zai/glm-5.3"),
            ("alibaba/qwen4-max", "alibaba/qwen3.8-max"),
            ("xai/grok-5", "xai/grok-4.7"),
        ] {
            assert_eq!(follows(&catalogue, model).as_deref(), Some(from), "{model}");
        }
        for model in [
            "anthropic/claude-3-5-haiku-20241022",
            "local/llama-3",
            "groq/llama-4",
            "ollama/qwen3:8b",
            "openai/whisper",
            "a/b",
        ] {
            assert_eq!(follows(&catalogue, model), None, "{model}");
        }
        // What an operator knows stands before what is built in, and is followed too.
        catalogue.insert(ModelRef::new("openai", "gpt-6.3-sol"), local(5_000));
        assert_eq!(follows(&catalogue, "openai/gpt-6.4-sol").as_deref(), Some("openai/gpt-6.3-sol"));
        let known = catalogue.find(&"openai/gpt-6.4-sol".parse().unwrap()).unwrap();
        assert_eq!(known.facts.context, 5_000);
    }

    #[test]
    fn snapshots_come_from_where_their_model_does() {
        let catalogue = Catalogue::builtin();
        let snapshot = ModelRef::new("anthropic", "claude-opus-5-20260301");
        assert_eq!(catalogue.source(&snapshot), Some(Source::Builtin));
        assert_eq!(catalogue.version_for(&snapshot).unwrap(), format!("builtin-{}", Catalogue::version()));
        assert!(catalogue.find(&snapshot).unwrap().facts.prices.usual.input.is_some());
        assert_eq!(catalogue.version_for(&ModelRef::new("anthropic", "claude-opus-6")), None);
    }

    #[test]
    fn each_format_is_recognised_and_named() {
        let litellm = r#"{"gpt-6.3-sol": {"litellm_provider": "openai", "mode": "chat", "max_input_tokens": 922000,
            "max_output_tokens": 128000, "input_cost_per_token": 3e-06}}"#;
        let models_dev = r#"{"openai": {"models": {"gpt-6.3-sol": {"limit": {"context": 7, "output": 5}, "reasoning": true}}}}"#;
        let toml = "version = \"2026-11-26\"\n[models.openai.\"gpt-6.3-sol\"]\ncontext = 9\noutput = 5\n";
        let model = ModelRef::new("openai", "gpt-6.3-sol");
        for (text, name, follows) in [
            (litellm, "litellm", true),
            (models_dev, "models.dev", true),
            (toml, "models.toml 2026-11-26", false),
        ] {
            let read = Catalogue::read(text).unwrap();
            for catalogue in [read.clone(), Catalogue::from_kept(&read.keep()).unwrap()] {
                assert_eq!(catalogue.version_for(&model).as_deref(), Some(name));
                let rules = catalogue.get(&model).unwrap().rules;
                assert_eq!((rules.prefix_check, rules.responses), (follows, follows), "{name}");
            }
        }
        let own = Catalogue::read(include_str!("../models.toml")).unwrap();
        assert_eq!(own.loaded().count(), builtin::builtin().models.len());
        assert!(own.loaded().all(|(model, facts)| builtin::builtin().models[model] == *facts));
    }

    #[test]
    fn what_has_no_known_format_is_refused() {
        let error = |text: &str| Catalogue::read(text).unwrap_err().to_string();
        assert!(error("{\"a\": ").starts_with("not JSON: "));
        assert!(error("<html>").starts_with("not JSON: "));
        assert!(error(&"[".repeat(100_000)).starts_with("not JSON: "));
        assert_eq!(error("[]"), "the catalogue: is a list, expected an object");
        assert_eq!(error("{}"), "the catalogue: there is no model in it");
        let toml = "version = \"2026-11-26\"\n[models.a.b]\ncontext = 1\noutput = 1\n";
        assert_eq!(error(&format!("{toml}colour = 1\n")).split(':').next(), Some("line 5"));
        assert_eq!(error("version = \"1\"\n[models.a]\n"), "models: there is no model in it");
        let control = toml.replace("a.b", "a.\"\\u001b\"");
        assert!(error(&control).ends_with("a name must have 1 to 256 bytes and no control characters"));
    }
}

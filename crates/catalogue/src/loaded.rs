//! A whole catalogue that was loaded, in one of three formats.

use std::collections::BTreeMap;

use playhouse_protocol::capability::Sampling;
use playhouse_protocol::{ModelRef, Prices};
use serde_json::Value;

use crate::builtin::{self, builtin};
use crate::error::CatalogueError;
use crate::facts::ModelFacts;
use crate::family::{self, Family};
use crate::told::Told;
use crate::{litellm, models_dev};

/// The name of a catalogue in the format of models.dev.
pub(crate) const MODELS_DEV: &str = "models.dev";

/// The name of a table of litellm.
const LITELLM: &str = "litellm";

/// The name of a file in the form of our own, before its version.
const MODELS_TOML: &str = "models.toml";

/// The models of a catalogue that was loaded.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Loaded {
    /// The catalogue's name, and its version where it has one.
    pub(crate) source: String,
    pub(crate) models: BTreeMap<ModelRef, ModelFacts>,
    /// Entries of providers' own lists of models.
    pub(crate) told: BTreeMap<ModelRef, Told>,
}

impl Loaded {
    /// Reads a catalogue in any of the formats, which is recognised by its content. Facts that its format cannot tell are
    /// those of the built-in model, else those of the model that it follows.
    pub(crate) fn read(text: &str) -> Result<Self, CatalogueError> {
        if is_toml(text) {
            return Self::read_toml(text);
        }
        let root: Value =
            serde_json::from_str(text).map_err(|error| CatalogueError::Json(error.to_string()))?;
        let (source, models) = match root.as_object() {
            Some(rows) if litellm::recognises(rows) => (LITELLM, litellm::read(&root)?),
            _ => (MODELS_DEV, models_dev::read(&root)?),
        };
        let mut loaded = Self { source: source.to_owned(), models, told: BTreeMap::new() };
        loaded.follow();
        loaded.complete();
        Ok(loaded)
    }

    fn read_toml(text: &str) -> Result<Self, CatalogueError> {
        let file = builtin::read(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            CatalogueError::Toml { line, message: error.message().to_owned() }
        })?;
        let wrong = |path: &str, message: &str| CatalogueError::Value {
            path: path.escape_debug().to_string(),
            message: message.to_owned(),
        };
        let mut file = file;
        if file.version.contains(char::is_control) {
            return Err(wrong("version", "holds control characters"));
        }
        if file.models.is_empty() {
            return Err(wrong("models", "there is no model in it"));
        }
        for (model, facts) in &mut file.models {
            let name = model.to_string();
            if model.model.is_empty() || name.len() > 512 || name.contains(char::is_control) {
                return Err(wrong(&name, "a name must have 1 to 256 bytes and no control characters"));
            }
            if model.provider.is_empty() || model.provider.contains('/') {
                return Err(wrong(&name, "the name of a provider cannot be empty or hold a slash"));
            }
            if facts.successor.as_ref().is_some_and(|successor| successor.contains(char::is_control)) {
                return Err(wrong(&name, "`successor` holds control characters"));
            }
            if facts.output > facts.context || facts.input.is_some_and(|input| input > facts.context) {
                return Err(wrong(&name, "`input` or `output` is larger than `context`, which holds it"));
            }
            let lists =
                std::iter::once(&facts.prices.usual).chain(facts.prices.long.iter().map(|step| &step.prices));
            if lists.flat_map(Prices::known).any(|(_, price)| price.is_sign_negative()) {
                return Err(wrong(&name, "a price is below 0"));
            }
            facts.prices.long.sort_by_key(|step| step.above);
        }
        let source = format!("{MODELS_TOML} {}", file.version);
        Ok(Self { source, models: file.models, told: BTreeMap::new() })
    }

    /// Completes each model that is built in with what its format does not tell: its rules, and prices that go with the
    /// same price of input.
    pub(crate) fn complete(&mut self) {
        if self.source.starts_with(MODELS_TOML) {
            return;
        }
        for (model, facts) in &mut self.models {
            let Some(known) = builtin().models.get(model) else { continue };
            let sampling = facts.rules.sampling;
            facts.rules = known.rules;
            if known.rules.sampling == Sampling::Always {
                facts.rules.sampling = sampling;
            }
            facts.ends = facts.ends.or(known.ends);
            if facts.successor.is_none() {
                facts.successor.clone_from(&known.successor);
            }
            complete_reasoning(facts, known);
            let (prices, known) = (&mut facts.prices, &known.prices);
            if prices.usual.input == known.usual.input {
                if prices.multiples.is_empty() {
                    prices.multiples.clone_from(&known.multiples);
                    prices.off_peak.clone_from(&known.off_peak);
                }
                complete_prices(&mut prices.usual, &known.usual);
            }
            for step in &mut prices.long {
                if let Some(known) = known.long.iter().find(|known| known.above == step.above) {
                    complete_prices(&mut step.prices, &known.prices);
                }
            }
        }
    }

    /// Gives each model that is not built in the rules of the vendor's model that it is, or follows.
    fn follow(&mut self) {
        let known = &builtin().models;
        let members: Vec<(Family, &ModelRef)> = family::members(known.keys()).collect();
        for (model, facts) in &mut self.models {
            if known.contains_key(model) {
                continue;
            }
            let Some(wanted) = Family::of(family::bare(&model.model)) else { continue };
            let Some(followed) = family::predecessor(&wanted, &members) else { continue };
            let followed = &known[followed];
            let told = facts.rules;
            facts.rules = followed.rules;
            if told.sampling != Sampling::Always {
                facts.rules.sampling = told.sampling;
            }
            if self.source == LITELLM {
                // That table tells of the others.
                facts.rules = told;
                facts.rules.prefix_check |= followed.rules.prefix_check;
                facts.rules.system_in_input |= followed.rules.system_in_input;
                facts.rules.tool_search |= followed.rules.tool_search;
            }
            facts.rules.responses |= told.responses;
            facts.rules.chat &= told.chat;
            facts.rules.prefill &= model.provider == wanted.vendor;
            complete_reasoning(facts, followed);
        }
    }
}

/// Fills in how the model is told how much to reason.
fn complete_reasoning(facts: &mut ModelFacts, known: &ModelFacts) {
    match (&mut facts.reasoning_form, &known.reasoning_form) {
        (form @ None, known) if facts.reasoning => form.clone_from(known),
        // Only some formats tell of budgets.
        (Some(form), Some(known)) if form.budget.is_none() && form.efforts == known.efforts => {
            form.budget = known.budget;
        }
        _ => {}
    }
    facts.reasoning_field = facts.reasoning_field.or(known.reasoning_field);
}

/// Fills in classes that a format cannot tell, where the price of input is the same.
fn complete_prices(prices: &mut Prices, known: &Prices) {
    if prices.input == known.input {
        prices.cache_write_30m = prices.cache_write_30m.or(known.cache_write_30m);
        prices.cache_write_1h = prices.cache_write_1h.or(known.cache_write_1h);
        prices.cache_write_12h = prices.cache_write_12h.or(known.cache_write_12h);
    }
}

/// Whether a text is TOML of ours and not JSON: a line of it begins with the key `version` or a table of models.
fn is_toml(text: &str) -> bool {
    !text.trim_start().starts_with('{')
        && text.lines().any(|line| line.starts_with("version =") || line.starts_with("[models."))
}

//! What the operator's file says of single models, on top of what a catalogue knows of them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use playhouse_catalogue::{Catalogue, Modalities, ModelFacts};
use playhouse_prompts::Reasoning;
use playhouse_protocol::usage::LongContext;
use playhouse_protocol::{ModelRef, PriceList};
use rust_decimal::prelude::ToPrimitive as _;

use super::document::{Document, Section, Setting, Value, keyed};
use super::error::ConfigError;
use super::keys::KeyName;
use super::settings::ModelPreferences;

/// The path of all keys of models.
const PATH: &str = "providers.NAME.models.NAME";

/// The part of a document that is about models. Its facts depend on the catalogue, which may change while an engine runs.
#[derive(Debug, Default)]
pub(super) struct ConfiguredModels {
    file: PathBuf,
    sections: Vec<Section>,
    settings: Vec<Setting>,
}

/// A model as far as it is known so far.
#[derive(Default)]
struct ModelDraft {
    line: usize,
    facts: ModelFacts,
    /// The steps that the file sets. They hold whatever stands after them.
    long: Option<Vec<LongContext>>,
    preferences: ModelPreferences,
}

impl ConfiguredModels {
    pub(super) fn of(document: &Document) -> Self {
        Self {
            file: document.file.clone(),
            sections: document
                .sections
                .iter()
                .filter(|section| PATH.starts_with(&section.path) && section.names.len() == 2)
                .cloned()
                .collect(),
            settings: document
                .settings
                .iter()
                .filter(|setting| setting.key.path.starts_with(PATH))
                .cloned()
                .collect(),
        }
    }

    /// `catalogue` with these models.
    ///
    /// # Errors
    /// A value is not what its key takes, or a model lacks its limits.
    pub(super) fn apply(&self, mut catalogue: Catalogue) -> Result<Catalogue, ConfigError> {
        for (model, ModelDraft { line, mut facts, long, .. }) in self.drafts(&catalogue)? {
            if let Some(long) = long {
                facts.prices.long = long;
            }
            check_facts(&model, &facts).map_err(|message| ConfigError::line(&self.file, line, message))?;
            catalogue.insert(model, facts);
        }
        Ok(catalogue)
    }

    /// What the operator wants of each of these models.
    ///
    /// # Errors
    /// A value is not what its key takes.
    pub(super) fn preferences(&self) -> Result<BTreeMap<ModelRef, ModelPreferences>, ConfigError> {
        let drafts = self.drafts(&Catalogue::builtin())?;
        Ok(drafts.into_iter().map(|(model, draft)| (model, draft.preferences)).collect())
    }

    /// Each model with what `catalogue` knows of it and what the file sets.
    fn drafts(&self, catalogue: &Catalogue) -> Result<BTreeMap<ModelRef, ModelDraft>, ConfigError> {
        let mut drafts = BTreeMap::new();
        for section in &self.sections {
            let [provider, model] = section.names.as_slice() else { continue };
            if model.is_empty() || model.contains(char::is_control) {
                let message = "this is not a name for a model: it is empty or holds control characters";
                return Err(ConfigError::line(&self.file, section.line, message));
            }
            let model = ModelRef::new(provider, model);
            let known = catalogue.find(&model);
            let facts = known.map(|known| known.facts.into_owned()).unwrap_or_default();
            drafts.insert(model, ModelDraft { line: section.line, facts, ..ModelDraft::default() });
        }
        for setting in &self.settings {
            let [provider, model, rest @ ..] = setting.names.as_slice() else { continue };
            let draft: &mut ModelDraft = drafts.entry(ModelRef::new(provider, model)).or_default();
            match rest {
                [name] => set_multiple(name, &setting.value, &mut draft.facts.prices),
                _ => set_model(setting.key.name, &setting.value, draft),
            }
            .map_err(|message| ConfigError::line(&self.file, setting.line, keyed(setting, &message)))?;
        }
        Ok(drafts)
    }
}

fn set_model(key: KeyName, value: &Value, draft: &mut ModelDraft) -> Result<(), String> {
    let ModelDraft { facts, long, preferences, .. } = draft;
    match (key, value) {
        (KeyName::Context, Value::Whole(tokens)) => {
            facts.context = *tokens;
            // A limit of its own that is known of a built-in model need not hold for another window.
            facts.input = None;
        }
        (KeyName::Output, Value::Whole(tokens)) => facts.output = *tokens,
        (KeyName::Prefill, Value::Boolean(_)) => {}
        (KeyName::Attachments, Value::List(names)) => facts.modalities = modalities(names)?,
        (KeyName::ModelReasoning, Value::Text(_) | Value::Whole(_)) => {
            preferences.reasoning = Some(reasoning(value)?);
            // Whoever sets it knows that the model can.
            facts.reasoning = true;
        }
        (KeyName::Temperature, Value::Number(number)) => {
            let fits = number.to_f64().filter(|number| (0.0..=2.0).contains(number));
            preferences.temperature =
                Some(fits.ok_or_else(|| format!("is {number}, expected a number from 0 to 2"))?);
        }
        (KeyName::TopP, Value::Number(number)) => {
            let fits = number.to_f64().filter(|number| *number > 0.0 && *number <= 1.0);
            preferences.top_p =
                Some(fits.ok_or_else(|| format!("is {number}, expected a number above 0, up to 1"))?);
        }
        (KeyName::CostLong, Value::Steps(steps)) => *long = Some(steps.clone()),
        (_, Value::Number(price)) => {
            // The other classes and the steps stay as they are known.
            let prices = &mut facts.prices.usual;
            match key {
                KeyName::CostInput => prices.input = Some(*price),
                KeyName::CostOutput => prices.output = Some(*price),
                KeyName::CostCacheRead => prices.cache_read = Some(*price),
                KeyName::CostCacheWrite => prices.cache_write = Some(*price),
                KeyName::CostCacheWrite30m => prices.cache_write_30m = Some(*price),
                KeyName::CostCacheWrite1h => prices.cache_write_1h = Some(*price),
                KeyName::CostCacheWrite12h => prices.cache_write_12h = Some(*price),
                KeyName::CostReasoning => prices.reasoning = Some(*price),
                _ => return Err("does not belong here".to_owned()),
            }
        }
        _ => return Err("does not belong here".to_owned()),
    }
    Ok(())
}

/// A factor on all prices of requests that are served in the way called `name`.
fn set_multiple(name: &str, value: &Value, prices: &mut PriceList) -> Result<(), String> {
    let Value::Number(factor) = value else { return Err("does not belong here".to_owned()) };
    prices.multiples.insert(name.to_owned(), *factor);
    Ok(())
}

fn modalities(names: &[String]) -> Result<Modalities, String> {
    names.iter().try_fold(Modalities::default(), |modalities, name| {
        modalities.named(name).ok_or_else(|| {
            format!("unknown kind \"{}\"; there are {}", name.escape_debug(), Modalities::NAMES.join(", "))
        })
    })
}

fn reasoning(value: &Value) -> Result<Reasoning, String> {
    match value {
        Value::Text(text) => text.parse(),
        Value::Whole(tokens) => tokens.to_string().parse(),
        _ => Err("does not belong here".to_owned()),
    }
}

fn check_facts(model: &ModelRef, facts: &ModelFacts) -> Result<(), String> {
    for (key, tokens) in [("context", facts.context), ("output", facts.output)] {
        if tokens == 0 {
            return Err(format!("model \"{model}\" has no `{key}`: give it in tokens"));
        }
    }
    if facts.output > facts.context {
        return Err(format!(
            "model \"{model}\": `output` ({}) is larger than `context` ({}), which holds it",
            facts.output, facts.context
        ));
    }
    Ok(())
}

//! `playhouse config`: what the operator's file sets, and what the models that it names cost by that.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::Args;
use playhouse_catalogue::Source;
use playhouse_protocol::ModelRef;
use playhouse_protocol::usage::LongContext;
use serde_json::{Value, json};

use super::models::{price_gaps, source_name};
use super::sessions::ListFormat;
use super::{CommandResult, Common, Exit, print, variable};
use crate::config::{Settings, WrittenKey};
use crate::mock;

/// Options of `playhouse config`.
#[derive(Debug, Args)]
pub(super) struct ConfigArguments {
    /// How to print it
    #[arg(long, value_enum, default_value_t = ListFormat::Table)]
    format: ListFormat,
}

pub(super) fn config(common: &Common, arguments: &ConfigArguments) -> CommandResult {
    let settings = common.settings()?;
    let models = in_use(&settings);
    let prices: Vec<ModelPrices> =
        models.iter().map(|(model, used)| ModelPrices::of(&settings, model, used)).collect();
    print(&match arguments.format {
        ListFormat::Table => described(common, &settings, &prices),
        ListFormat::Json => {
            let keys = settings.written.iter();
            let keys: Vec<Value> = keys
                .map(|WrittenKey { path, line, value }| json!({"key": path, "value": value, "line": line}))
                .collect();
            let models: Vec<Value> = prices.iter().map(ModelPrices::object).collect();
            format!("{}\n", json!({"file": settings.file, "keys": keys, "models": models}))
        }
    })?;
    Ok(Exit::Completed)
}

/// The models that the configuration names, each with what names it.
fn in_use(settings: &Settings) -> BTreeMap<ModelRef, Vec<String>> {
    let mut used: BTreeMap<ModelRef, Vec<String>> = BTreeMap::new();
    let mut add = |model: &ModelRef, by: String| used.entry(model.clone()).or_default().push(by);
    settings.model.iter().for_each(|model| add(model, "model".to_owned()));
    settings.small_model.iter().for_each(|model| add(model, "small_model".to_owned()));
    for agent in settings.agents.iter() {
        agent.model.iter().for_each(|model| add(model, format!("agent {}", agent.name)));
    }
    settings.preferences.keys().for_each(|model| add(model, "own settings".to_owned()));
    used.retain(|model, _| model.provider != mock::PROVIDER);
    used
}

/// What a model costs.
struct ModelPrices {
    model: ModelRef,
    /// What names it in the configuration.
    used: Vec<String>,
    /// By class: the price as text, and where it stands.
    usual: Vec<(&'static str, String, &'static str)>,
    /// The steps of requests with more input, and where they stand.
    steps: (Vec<LongContext>, &'static str),
    /// Factors, each with where it stands.
    multiples: Vec<(String, String, &'static str)>,
    gaps: Vec<String>,
    /// What follows from the gaps, in words.
    lacks: Option<String>,
}

impl ModelPrices {
    fn of(settings: &Settings, model: &ModelRef, used: &[String]) -> Self {
        let catalogue = settings.catalogue.now();
        let prices = catalogue.find(model).map(|known| known.facts.prices.clone()).unwrap_or_default();
        let below = catalogue.clone().without_configured().source(model);
        let source = |price: &[&str]| {
            let path = WrittenKey::path_of_price(model, price);
            match settings.written.iter().any(|key| key.path == path) {
                true => source_name(Some(Source::Configured)),
                false => source_name(below),
            }
        };
        Self {
            model: model.clone(),
            used: used.to_vec(),
            usual: prices
                .usual
                .known()
                .map(|(class, price)| (class, price.normalize().to_string(), source(&[class])))
                .collect(),
            steps: (prices.long.clone(), source(&["long"])),
            multiples: prices
                .multiples
                .iter()
                .map(|(name, factor)| {
                    (name.clone(), factor.normalize().to_string(), source(&["multiples", name]))
                })
                .collect(),
            gaps: prices.gaps(),
            lacks: price_gaps(&prices),
        }
    }

    fn object(&self) -> Value {
        let Self { model, used, usual, steps: (steps, steps_source), multiples, gaps, .. } = self;
        let priced = |(price, source): (&String, &str)| json!({"price": price, "source": source});
        let usual: BTreeMap<&str, Value> =
            usual.iter().map(|(class, price, source)| (*class, priced((price, source)))).collect();
        let multiples: BTreeMap<&str, Value> = multiples
            .iter()
            .map(|(name, factor, source)| (name.as_str(), json!({"factor": factor, "source": source})))
            .collect();
        let long = (!steps.is_empty()).then(|| json!({"steps": steps, "source": steps_source}));
        json!({"model": model, "used": used, "prices": usual, "long": long, "multiples": multiples, "gaps": gaps})
    }

    fn describe(&self, out: &mut String) {
        let Self { model, used, usual, steps: (steps, steps_source), multiples, lacks, .. } = self;
        // Writing to a String cannot fail.
        let _ = writeln!(out, "  {model} ({})", used.join(", "));
        let mut line = |name: &str, value: &str, source: &str| {
            let _ = writeln!(out, "    {name:16} {value:>9}  {source}");
        };
        for (class, price, source) in usual {
            line(class, price, source);
        }
        for LongContext { above, prices } in steps {
            let prices: Vec<String> =
                prices.known().map(|(class, price)| format!("{class} {}", price.normalize())).collect();
            let _ = writeln!(out, "    above {above} tokens of input: {}  {steps_source}", prices.join(", "));
        }
        for (name, factor, source) in multiples {
            let _ = writeln!(out, "    {name}: times {factor}  {source}");
        }
        if let Some(lacks) = lacks {
            let _ = writeln!(out, "    {lacks}");
        }
    }
}

/// The keys and the prices, for people.
fn described(common: &Common, settings: &Settings, prices: &[ModelPrices]) -> String {
    let mut out = match &settings.file {
        Some(file) => format!("{}\n", file.display()),
        None => {
            let place = Settings::place(common.config.as_deref(), &variable);
            let place = place.map(|file| format!(" ({} is not there)", file.display())).unwrap_or_default();
            format!("no configuration file{place}: keys have their defaults\n")
        }
    };
    for WrittenKey { path, line, value } in settings.written.iter() {
        let _ = writeln!(out, "  {line:>4}  {path} = {value}");
    }
    if !settings.written.is_empty() {
        out.push_str("Keys that are not here have their defaults: see docs/reference/configuration.md.\n");
    }
    out.push_str(match prices.is_empty() {
        true => "\nNo model is named here. `playhouse models` has the prices of all.\n",
        false => "\nPrices in US dollars per million tokens, and the source of each\n",
    });
    prices.iter().for_each(|model| model.describe(&mut out));
    out
}

//! `playhouse models`: what is known of models, and loading a whole catalogue of them.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use clap::{Args, Subcommand};
use playhouse_catalogue::{Catalogue, LongContext, ModelFacts, Source};
use playhouse_llm::{address, fetch};
use playhouse_protocol::capability::Sampling;
use playhouse_protocol::nearest::did_you_mean;
use playhouse_protocol::{ModelRef, PriceList, Prices};
use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::sessions::ListFormat;
use super::{CommandResult, Common, Exit, Failure, print, variable};
use crate::config::{Settings, keep_catalogue};
use crate::mock;

/// The most bytes of a catalogue, in the format of models.dev.
const MOST_BYTES: usize = 64 << 20;

/// How long a catalogue may take to arrive.
const FETCH_TIME: Duration = Duration::from_secs(120);

/// Options of `playhouse models`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct ModelsArguments {
    #[command(subcommand)]
    command: Option<ModelsCommand>,
    /// Only those of this provider, which need not be configured
    provider: Option<String>,
    /// How to print them
    #[arg(long, value_enum, default_value_t = ListFormat::Table)]
    format: ListFormat,
}

#[derive(Debug, Subcommand)]
enum ModelsCommand {
    /// Load a whole catalogue in the format of models.dev, and keep it beside the configuration
    Update {
        /// The catalogue: a file, or an address as https://models.dev/api.json
        #[arg(value_name = "FILE|URL")]
        source: String,
    },
}

pub(super) async fn models(common: &Common, arguments: ModelsArguments) -> CommandResult {
    match arguments.command {
        Some(ModelsCommand::Update { source }) => update(common, &source).await,
        None => list(&common.settings()?, arguments.provider.as_deref(), arguments.format),
    }
}

/// Needs no configuration that can be read: it also mends a catalogue that cannot be.
async fn update(common: &Common, source: &str) -> CommandResult {
    let file = Settings::catalogue_file(common.config.as_deref(), &variable).ok_or_else(|| {
        Failure::usage(
            "there is no home directory: name a configuration file with --config, to keep it beside that",
        )
    })?;
    let text = if source.contains("://") {
        fetch(source, MOST_BYTES, FETCH_TIME).await.map_err(Failure::failed)?
    } else {
        read(Path::new(source))?
    };
    let catalogue =
        Catalogue::read(&text).map_err(|error| Failure::usage(format!("{}: {error}", shown(source))))?;
    keep_catalogue(&file, &catalogue)?;
    let loaded: Vec<(&ModelRef, &ModelFacts)> = catalogue.loaded().collect();
    let mut providers: Vec<&str> = loaded.iter().map(|(model, _)| model.provider.as_str()).collect();
    // They come in the order of their providers.
    providers.dedup();
    let unpriced = loaded.iter().filter(|(_, facts)| facts.prices == PriceList::default()).count();
    print(&format!(
        "kept {} models of {} providers in {}; {unpriced} of them have no price\n",
        loaded.len(),
        providers.len(),
        file.display()
    ))?;
    Ok(Exit::Completed)
}

/// An address without what may be secret in it.
fn shown(source: &str) -> String {
    if source.contains("://") { address(source) } else { source.to_owned() }
}

fn read(file: &Path) -> Result<String, Failure> {
    let unreadable = |error: std::io::Error| Failure::usage(error.to_string());
    let mut bytes = Vec::new();
    // The size of a device or a pipe is not known before it is read.
    let most = MOST_BYTES as u64 + 1;
    fs_err::File::open(file).map_err(unreadable)?.take(most).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > MOST_BYTES {
        let size = MOST_BYTES >> 20;
        return Err(Failure::usage(format!(
            "{} has more than {size} MB, the most of a catalogue",
            file.display()
        )));
    }
    String::from_utf8(bytes).map_err(|_| Failure::usage(format!("{} is not text in UTF-8", file.display())))
}

/// Whether there is a key for a provider; never the key.
enum KeyState {
    NotConfigured,
    NotNeeded,
    /// In this variable.
    Set(String),
    /// In none of these.
    Missing(Vec<String>),
}

impl KeyState {
    fn of(settings: &Settings, provider: &str) -> Self {
        let Some(provider) = settings.providers.get(provider) else { return Self::NotConfigured };
        let names = || provider.keys.iter().map(|key| key.name.clone());
        let set = |name: &String| variable(name).is_some_and(|value| !value.trim().is_empty());
        match names().find(set) {
            Some(name) => Self::Set(name),
            None if provider.keys.is_empty() => Self::NotNeeded,
            None => Self::Missing(names().collect()),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::NotConfigured => "not configured",
            Self::NotNeeded => "not needed",
            Self::Set(_) => "set",
            Self::Missing(_) => "missing",
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::NotConfigured => "not configured".to_owned(),
            Self::NotNeeded => "needs no key".to_owned(),
            Self::Set(name) => format!("key in {name}"),
            Self::Missing(names) => format!("no key: set {}", names.join(" or ")),
        }
    }
}

fn list(settings: &Settings, wanted: Option<&str>, format: ListFormat) -> CommandResult {
    let catalogue = &settings.catalogue;
    let providers: Vec<&str> = match wanted {
        None => settings.providers.keys().map(String::as_str).collect(),
        Some(wanted) if settings.providers.contains_key(wanted) => vec![wanted],
        Some(wanted) if catalogue.providers().contains(wanted) => vec![wanted],
        // It is there without being configured, and what it says is in the names.
        Some(mock::PROVIDER) => {
            return Err(Failure::usage(
                "the scripted models of `mock` are in no list: mock/echo repeats the prompt, mock/tokens-N says N tokens, and \
                 mock/tools-K-tokens-N calls `read` K times before that",
            ));
        }
        Some(wanted) => {
            let mut known = catalogue.providers();
            known.extend(settings.providers.keys().map(String::as_str));
            return Err(Failure::usage(format!(
                "unknown provider \"{}\"; there are {}{}",
                wanted.escape_debug(),
                settings.providers.keys().cloned().collect::<Vec<_>>().join(", "),
                did_you_mean(wanted, known)
            )));
        }
    };
    let mut out = String::new();
    if format == ListFormat::Table {
        out.push_str("Prices are US dollars per million tokens; - is not known.\n");
    }
    for provider in providers {
        let key = KeyState::of(settings, provider);
        match format {
            ListFormat::Table => table(catalogue, provider, &key, &mut out),
            ListFormat::Json => {
                for (name, facts) in catalogue.models(provider) {
                    let model = ModelRef::new(provider, name);
                    // Writing to a String cannot fail.
                    let _ = writeln!(out, "{}", object(&model, facts, catalogue.source(&model), &key));
                }
            }
        }
    }
    print(&out)?;
    Ok(Exit::Completed)
}

/// One provider with its models, for people.
fn table(catalogue: &Catalogue, provider: &str, key: &KeyState, out: &mut String) {
    let models: Vec<(&str, &ModelFacts)> = catalogue.models(provider).collect();
    let _ = writeln!(out, "\n{provider} ({})", key.describe());
    if models.is_empty() {
        let _ = writeln!(out, "  no model is known: configure one in [providers.{provider}.models.NAME]");
        return;
    }
    let width = models.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default().max(20);
    let _ = writeln!(
        out,
        "  {:width$}  {:>9}  {:>9}  {:>8}  {:>8}  {:>8}  {:>8}  {:9}  READS",
        "MODEL", "CONTEXT", "OUTPUT", "$ INPUT", "$ CACHED", "$ WRITE", "$ OUTPUT", "REASONING"
    );
    for (name, facts) in models {
        row(&facts.prices.usual, (name, width), Some(facts), out);
        for LongContext { above, prices } in &facts.prices.long {
            row(prices, (&format!("  above {} of input", thousands(*above)), width), None, out);
        }
    }
}

/// One line of a table; without `facts` it goes on about the line before.
fn row(prices: &Prices, (name, width): (&str, usize), facts: Option<&ModelFacts>, out: &mut String) {
    let price = |price: Option<Decimal>| price.map_or("-".to_owned(), |price| price.normalize().to_string());
    let tokens = |count: Option<u64>| match count {
        Some(0) => "-".to_owned(),
        Some(count) => thousands(count),
        None => String::new(),
    };
    let reads = |facts: &ModelFacts| {
        let kinds = std::iter::once("text").chain(facts.modalities.names());
        kinds.collect::<Vec<_>>().join(", ")
    };
    let line = format!(
        "  {name:width$}  {:>9}  {:>9}  {:>8}  {:>8}  {:>8}  {:>8}  {:9}  {}",
        tokens(facts.map(|facts| facts.context)),
        tokens(facts.map(|facts| facts.output)),
        price(prices.input),
        price(prices.cache_read),
        price(prices.cache_write),
        price(prices.output),
        facts.map_or("", |facts| if facts.reasoning { "yes" } else { "no" }),
        facts.map(reads).unwrap_or_default(),
    );
    let _ = writeln!(out, "{}", line.trim_end());
}

/// A count of tokens for people: `1,048,576`.
fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// One model, for programs.
fn object(model: &ModelRef, facts: &ModelFacts, source: Option<Source>, key: &KeyState) -> Value {
    json!({
        "provider": model.provider,
        "model": model.model,
        "source": match source {
            Some(Source::Configured) => "configured",
            Some(Source::Loaded) => "loaded",
            Some(Source::Builtin) | None => "built in",
        },
        "key": key.name(),
        "context": facts.context,
        "input": facts.input,
        "output": facts.output,
        "prices": facts.prices.usual,
        "long": facts.prices.long,
        "attachments": facts.modalities.names().collect::<Vec<_>>(),
        "reasoning": facts.reasoning,
        "temperature": facts.rules.sampling != Sampling::Never,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_by_thousands() {
        assert_eq!(
            [0, 999, 1_000, 131_072, 1_048_576].map(thousands).join(" "),
            "0 999 1,000 131,072 1,048,576"
        );
    }

    #[test]
    fn addresses_are_shown_without_their_secrets() {
        assert_eq!(shown("https://a.example/api.json?token=x"), "https://a.example/api.json");
        assert_eq!(shown("https://ada:pw@a.example/api.json"), "https://a.example/api.json");
        assert_eq!(shown("what?.json"), "what?.json");
    }
}

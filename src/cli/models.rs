//! `playhouse models`: what is known of models, of one model in full, and loading a whole catalogue of them.

pub(super) mod online;

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use playhouse_catalogue::{Catalogue, Known, LongContext, ModelFacts, Source};
use playhouse_llm::{address, fetch};
use playhouse_protocol::capability::{RequestRules, Sampling, Thinking};
use playhouse_protocol::nearest::did_you_mean;
use playhouse_protocol::{Day, ModelRef, PriceList, Prices};
use playhouse_server::Found;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::sessions::ListFormat;
use super::{CommandResult, Common, Exit, Failure, print, variable};
use crate::client::Client;
use crate::config::{NOTICE, Settings, keep_catalogue, load_catalogue};
use crate::{clock, mock};

/// The most bytes of a catalogue.
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
    /// Show all that is known of one model: limits, rules of its server, prices, where that comes from, and when it ends
    Show {
        /// The model, which need not be configured
        #[arg(value_name = "PROVIDER/MODEL")]
        model: ModelRef,
        /// How to print it
        #[arg(long, value_enum, default_value_t = ListFormat::Table)]
        format: ListFormat,
    },
    /// Load a whole catalogue, and keep it beside the configuration: api.json of models.dev, litellm's table of models, or a
    /// file as the project's models.toml
    Update {
        /// The catalogue: a file, or an address as https://models.dev/api.json
        #[arg(value_name = "FILE|URL", required_unless_present = "online")]
        source: Option<String>,
        /// Ask OpenAI and Anthropic, as far as their keys are set, for limits, abilities and ends of their models, and keep
        /// that beside the catalogue
        #[arg(long)]
        online: bool,
    },
}

pub(super) async fn models(common: &Common, arguments: ModelsArguments) -> CommandResult {
    match arguments.command {
        Some(ModelsCommand::Update { source, online }) => {
            if let Some(source) = &source {
                update(common, source).await?;
            }
            if online { update_online(common).await } else { Ok(Exit::Completed) }
        }
        Some(ModelsCommand::Show { model, format }) => show(common, &model, format).await,
        None => list(&common.settings()?, arguments.provider.as_deref(), arguments.format),
    }
}

/// Where a loaded catalogue is kept.
fn kept_file(common: &Common) -> Result<PathBuf, Failure> {
    Settings::catalogue_file(common.config.as_deref(), &variable).ok_or_else(|| {
        Failure::usage(
            "there is no home directory: name a configuration file with --config, to keep it beside that",
        )
    })
}

/// Asks the providers for what they tell of their models, and keeps that.
async fn update_online(common: &Common) -> CommandResult {
    let file = kept_file(common)?;
    let answers = online::ask(&common.settings()?, today()).await;
    if answers.is_empty() {
        return Err(Failure::usage(
            "there is no key of OpenAI or Anthropic: set OPENAI_API_KEY or ANTHROPIC_API_KEY",
        ));
    }
    let mut catalogue = load_catalogue(&file)?;
    let (mut told, mut failed) = (Vec::new(), Vec::new());
    for online::Told { provider, listing } in answers {
        match listing {
            Ok(listing) => {
                told.push(format!("{provider} lists {} models", listing.len()));
                catalogue = catalogue.told(&provider, listing);
            }
            Err(error) => failed.push(format!("{provider}: {error}")),
        }
    }
    if !told.is_empty() {
        keep_catalogue(&file, &catalogue)?;
        print(&format!("{}; kept what that tells in {}\n", told.join(", "), file.display()))?;
    }
    if failed.is_empty() { Ok(Exit::Completed) } else { Err(Failure::failed(failed.join("; "))) }
}

/// Needs no configuration that can be read: it also mends a catalogue that cannot be.
async fn update(common: &Common, source: &str) -> CommandResult {
    let file = kept_file(common)?;
    let text = if source.contains("://") {
        fetch(source, MOST_BYTES, FETCH_TIME).await.map_err(Failure::failed)?
    } else {
        read(Path::new(source))?
    };
    let catalogue =
        Catalogue::read(&text).map_err(|error| Failure::usage(format!("{}: {error}", shown(source))))?;
    // What providers told holds for any catalogue.
    let catalogue = match load_catalogue(&file) {
        Ok(before) => catalogue.told_as(&before),
        Err(_) => catalogue,
    };
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
    let catalogue = &settings.catalogue.now();
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
    let today = today();
    let mut out = String::new();
    if format == ListFormat::Table {
        out.push_str(
            "Prices are US dollars per million tokens, as built in unless a line says otherwise. - is a price that is not known:\n\
             without one of input or output nothing is, else a hit is taken to cost what input costs, a write 1.25 times that.\n",
        );
    }
    for provider in providers {
        let key = KeyState::of(settings, provider);
        match format {
            ListFormat::Table => table(catalogue, provider, &key, today, &mut out),
            ListFormat::Json => {
                for (name, facts) in current(catalogue, provider, today) {
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

/// The models of a provider that have not ended.
fn current<'a>(
    catalogue: &'a Catalogue,
    provider: &str,
    today: Day,
) -> impl Iterator<Item = (&'a str, &'a ModelFacts)> {
    catalogue.models(provider).filter(move |(_, facts)| facts.ends.is_none_or(|ends| ends > today))
}

/// One provider with its models, for people.
fn table(catalogue: &Catalogue, provider: &str, key: &KeyState, today: Day, out: &mut String) {
    let models: Vec<(&str, &ModelFacts)> = current(catalogue, provider, today).collect();
    let _ = writeln!(out, "\n{provider} ({})", key.describe());
    if models.is_empty() {
        let _ = writeln!(out, "  no model is known: configure one in [providers.{provider}.models.NAME]");
        return;
    }
    let steps = models.iter().flat_map(|(_, facts)| facts.prices.long.iter().map(|long| step(long.above)));
    let names = models.iter().map(|(name, _)| name.chars().count());
    let width = names.chain(steps.map(|step| step.len())).max().unwrap_or_default().max(20);
    let _ = writeln!(
        out,
        "  {:width$}  {:>9}  {:>9}  {:>8}  {:>8}  {:>8}  {:>8}  {:9}  READS",
        "MODEL", "CONTEXT", "OUTPUT", "$ INPUT", "$ CACHED", "$ WRITE", "$ OUTPUT", "REASONING"
    );
    for (name, facts) in models {
        let soon = facts.ends.filter(|ends| ends.0 <= today.0.saturating_add(NOTICE));
        let source = catalogue.source(&ModelRef::new(provider, name));
        let source = source
            .filter(|source| *source != Source::Builtin)
            .map(|source| source_name(Some(source)).to_owned());
        let notes = source.into_iter().chain(soon.map(|ends| end(ends, facts)));
        let note: String = notes.map(|note| format!("; {note}")).collect();
        row(&facts.prices.usual, (name, width), Some((facts, &note)), out);
        for LongContext { above, prices } in &facts.prices.long {
            row(prices, (&step(*above), width), None, out);
        }
    }
}

/// The name of the prices of requests with more input than `above`.
fn step(above: u64) -> String {
    format!("  above {} of input", thousands(above))
}

/// When a model ends, and which one is to be used then.
fn end(ends: Day, facts: &ModelFacts) -> String {
    let successor = facts.successor.as_ref().map(|successor| format!(": use {successor}"));
    let verb = if ends <= today() { "ended" } else { "ends" };
    format!("{verb} {ends}{}", successor.unwrap_or_default())
}

/// A price for people.
fn price(price: Option<Decimal>) -> String {
    price.map_or("-".to_owned(), |price| price.normalize().to_string())
}

/// One line of a table; without facts and a note it goes on about the line before.
fn row(prices: &Prices, (name, width): (&str, usize), facts: Option<(&ModelFacts, &str)>, out: &mut String) {
    let tokens = |count: Option<u64>| match count {
        Some(0) => "-".to_owned(),
        Some(count) => thousands(count),
        None => String::new(),
    };
    let line = format!(
        "  {name:width$}  {:>9}  {:>9}  {:>8}  {:>8}  {:>8}  {:>8}  {:9}  {}",
        tokens(facts.map(|(facts, _)| facts.context)),
        tokens(facts.map(|(facts, _)| facts.output)),
        price(prices.input),
        price(prices.cache_read),
        price(prices.cache_write.or(prices.cache_write_30m)),
        price(prices.output),
        facts.map_or("", |(facts, _)| if facts.reasoning { "yes" } else { "no" }),
        facts.map(|(facts, note)| format!("{}{note}", reads(facts))).unwrap_or_default(),
    );
    let _ = writeln!(out, "{}", line.trim_end());
}

/// The kinds of content that a model reads.
fn reads(facts: &ModelFacts) -> String {
    std::iter::once("text").chain(facts.modalities.names()).collect::<Vec<_>>().join(", ")
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
        "source": source_name(source),
        "key": key.name(),
        "context": facts.context,
        "input": facts.input,
        "output": facts.output,
        "prices": facts.prices.usual,
        "long": facts.prices.long,
        "multiples": facts.prices.multiples,
        "gaps": facts.prices.gaps(),
        "attachments": facts.modalities.names().collect::<Vec<_>>(),
        "reasoning": facts.reasoning,
        "temperature": facts.rules.sampling != Sampling::Never,
        "ends": facts.ends,
        "successor": facts.successor,
    })
}

pub(super) fn source_name(source: Option<Source>) -> &'static str {
    match source {
        Some(Source::Configured) => "configured",
        Some(Source::Loaded) => "loaded",
        Some(Source::Provider) => "told by its provider",
        Some(Source::Builtin) | None => "built in",
    }
}

/// Today, in UTC.
fn today() -> Day {
    Day::of(clock::now())
}

/// What a running engine found of the model's requests, where one serves the data directory.
async fn findings(common: &Common, model: &ModelRef) -> Vec<Found> {
    let Some(client) = super::reach::running(common).await else { return Vec::new() };
    // An older engine has no such member.
    let Ok(mut answer) = Client::Outside(client).models().await else { return Vec::new() };
    serde_json::from_value(answer["findings"][model.to_string()].take()).unwrap_or_default()
}

/// All that is known of one model.
async fn show(common: &Common, model: &ModelRef, format: ListFormat) -> CommandResult {
    let settings = &common.settings()?;
    let findings = findings(common, model).await;
    let catalogue = &settings.catalogue.now();
    let known = catalogue.find(model).ok_or_else(|| {
        let nearest = catalogue.nearest(model);
        Failure::usage(format!(
            "unknown model \"{}\"{}",
            model.to_string().escape_debug(),
            did_you_mean(&model.to_string(), nearest.iter().map(String::as_str))
        ))
    })?;
    let key = KeyState::of(settings, &model.provider);
    let of = known.inherited_from.as_ref().unwrap_or(model);
    let (source, version) = (catalogue.source(of), catalogue.version_for(of));
    let text = match format {
        ListFormat::Table => {
            described(model, &known, (source, version), catalogue.is_told(model), &key, &findings)
        }
        ListFormat::Json => {
            let facts = &known.facts;
            let mut shown = object(model, facts, source, &key);
            shown["version"] = json!(version);
            shown["told_by_provider"] = json!(catalogue.is_told(model));
            shown["findings"] = json!(findings);
            shown["inherited_from"] = json!(known.inherited_from.as_ref().map(ToString::to_string));
            shown["off_peak"] = json!(facts.prices.off_peak);
            shown["efforts"] = json!(facts.reasoning_form.as_ref().map(|form| &form.efforts));
            shown["budget"] = json!(facts.reasoning_form.as_ref().and_then(|form| form.budget));
            shown["reasoning_field"] = json!(facts.reasoning_field);
            let rules = rules(&facts.rules).map(|(name, value, _)| (name.to_owned(), value));
            shown["rules"] = Value::Object(rules.into_iter().collect());
            format!("{shown}\n")
        }
    };
    print(&text)?;
    Ok(Exit::Completed)
}

/// One model in full, for people.
fn described(
    model: &ModelRef,
    known: &Known<'_>,
    (source, version): (Option<Source>, Option<String>),
    is_told: bool,
    key: &KeyState,
    findings: &[Found],
) -> String {
    let facts = &known.facts;
    let mut out = format!("{model}\n");
    // Writing to a String cannot fail.
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(out, "  {name:15} {value}");
    };
    let version = version.map(|version| format!(" ({version})")).unwrap_or_default();
    let told = if is_told { "; limits, abilities or end as its provider lists them" } else { "" };
    line("source", &format!("{}{version}{told}", source_name(source)));
    if let Some(from) = &known.inherited_from {
        line("inherited from", &format!("{from}: all but its prices"));
    }
    line("key", &key.describe());
    line("context", &format!("{} tokens", thousands(facts.context)));
    if let Some(input) = facts.input {
        line("input", &format!("{} tokens at most", thousands(input)));
    }
    line("output", &format!("{} tokens at most", thousands(facts.output)));
    line("reads", &reads(facts));
    line("reasoning", &reasoning(facts));
    if let Some(ends) = facts.ends {
        line("end", &end(ends, facts));
    }
    let unusual = rules(&facts.rules).into_iter().filter_map(|(_, _, meaning)| meaning);
    for (index, meaning) in unusual.enumerate() {
        line(if index == 0 { "rules" } else { "" }, meaning);
    }
    for (index, Found { finding, configuration }) in findings.iter().enumerate() {
        let advice = configuration.as_ref().map(|line| format!("; to make this permanent, add: {line}"));
        line(if index == 0 { "found" } else { "" }, &format!("{finding}{}", advice.unwrap_or_default()));
    }
    price_table(&facts.prices, &mut out);
    if let Some(gaps) = price_gaps(&facts.prices).filter(|_| facts.prices != PriceList::default()) {
        let _ = writeln!(out, "  {gaps}.");
    }
    out
}

/// The usual prices of a model, and where they stand. Nothing for one that has none.
pub(super) fn usual_prices(prices: &PriceList, source: Option<Source>) -> Option<String> {
    let known: Vec<String> =
        prices.usual.known().map(|(class, price)| format!("{class} {}", price.normalize())).collect();
    let others =
        if prices.long.is_empty() && prices.multiples.is_empty() { "" } else { ", and others at times" };
    let source = source_name(source);
    (!known.is_empty())
        .then(|| format!("{} US dollars per million tokens ({source}){others}", known.join(", ")))
}

/// The prices that a model lacks, and what follows. Nothing for one that lacks none.
pub(super) fn price_gaps(prices: &PriceList) -> Option<String> {
    let gaps = prices.gaps();
    let (first, names) = (gaps.first()?, gaps.join(", "));
    Some(match first.starts_with("input") || first.starts_with("output") {
        true => format!("no price of {names}: what it costs is not known, and a limit in money refuses it"),
        false => {
            format!("no price of {names}: a hit is taken to cost what input costs, a write 1.25 times that")
        }
    })
}

/// How much a model can be told to reason.
fn reasoning(facts: &ModelFacts) -> String {
    let Some(form) = facts.reasoning_form.as_ref().filter(|_| facts.reasoning) else {
        return if facts.reasoning { "yes" } else { "no" }.to_owned();
    };
    let efforts: Vec<&str> = form.efforts.iter().map(|effort| effort.name()).collect();
    let budget = form.budget.map(|budget| match budget.max {
        Some(max) => format!("a budget of {} to {} tokens", thousands(budget.min), thousands(max)),
        None => format!("a budget from {} tokens", thousands(budget.min)),
    });
    let told: Vec<String> =
        Some(efforts.join(", ")).filter(|efforts| !efforts.is_empty()).into_iter().chain(budget).collect();
    if told.is_empty() { "yes, as much as it likes".to_owned() } else { format!("yes: {}", told.join("; ")) }
}

/// The prices by class, with steps and factors. Classes without a price are left out.
fn price_table(prices: &PriceList, out: &mut String) {
    let rows: Vec<(String, &Prices)> = std::iter::once(("usual".to_owned(), &prices.usual))
        .chain(prices.long.iter().map(|long| (step(long.above).trim_start().to_owned(), &long.prices)))
        .collect();
    let priced = |class: &&str| rows.iter().any(|(_, prices)| prices.known().any(|(name, _)| name == *class));
    let classes: Vec<&str> = CLASSES.into_iter().filter(priced).collect();
    if classes.is_empty() {
        out.push_str("\n  No price is known.\n");
        return;
    }
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let _ = write!(out, "\n  US dollars per million tokens\n  {:width$}", "");
    for class in &classes {
        let _ = write!(out, "  {class:>8}");
    }
    out.push('\n');
    for (name, prices) in &rows {
        let _ = write!(out, "  {name:width$}");
        for class in &classes {
            let known = prices.known().find(|(name, _)| name == class).map(|(_, price)| price);
            let _ = write!(out, "  {:>1$}", price(known), class.len().max(8));
        }
        out.push('\n');
    }
    for (name, factor) in &prices.multiples {
        let hours: Vec<String> = prices.off_peak.iter().map(ToString::to_string).collect();
        let hours = match name == PriceList::OFF_PEAK {
            true => format!(" ({} UTC)", hours.join(", ")),
            false => String::new(),
        };
        let _ = writeln!(out, "  {name}: times {}{hours}", factor.normalize());
    }
}

/// The classes of prices, in the order of their columns.
const CLASSES: [&str; 8] = [
    "input",
    "cache_read",
    "cache_write",
    "cache_write_30m",
    "cache_write_1h",
    "cache_write_12h",
    "output",
    "reasoning",
];

/// Each rule with its value, and with its meaning where it is not what most servers do.
fn rules(rules: &RequestRules) -> [(&'static str, Value, Option<&'static str>); 12] {
    let RequestRules {
        thinking,
        display,
        prefix_check,
        sampling,
        forced_tool_choice,
        prefill,
        parallel_calls,
        system_messages,
        responses,
        chat,
        system_in_input,
        tool_search,
    } = *rules;
    let thinks = match thinking {
        Thinking::OnRequest => None,
        Thinking::ByDefault => Some("thinks unless a request turns it off"),
        Thinking::Always => Some("always thinks"),
    };
    let samples = match sampling {
        Sampling::Always => None,
        Sampling::WithoutReasoning => Some("takes temperature and top_p only with the effort none"),
        Sampling::Never => Some("refuses temperature and top_p"),
    };
    [
        ("thinking", json!(thinking), thinks),
        ("display", json!(display), display.then_some("shows its thinking only if asked")),
        (
            "prefix_check",
            json!(prefix_check),
            prefix_check.then_some("refuses or drops thinking behind a change of what stood before it"),
        ),
        ("sampling", json!(sampling), samples),
        (
            "forced_tool_choice",
            json!(forced_tool_choice),
            (!forced_tool_choice).then_some("refuses a request that demands a call"),
        ),
        ("prefill", json!(prefill), prefill.then_some("goes on with an answer that the request begins")),
        ("parallel_calls", json!(parallel_calls), (!parallel_calls).then_some("makes one call at a time")),
        (
            "system_messages",
            json!(system_messages),
            system_messages.then_some("takes system messages in the middle of a conversation"),
        ),
        ("responses", json!(responses), responses.then_some("takes tools on OpenAI's Responses wire only")),
        ("chat", json!(chat), (!chat).then_some("does not answer on Chat Completions")),
        (
            "system_in_input",
            json!(system_in_input),
            system_in_input.then_some("caches a system prompt only at the head of the input"),
        ),
        ("tool_search", json!(tool_search), tool_search.then_some("searches deferred tools itself")),
    ]
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

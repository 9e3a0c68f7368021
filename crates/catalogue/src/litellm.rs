//! Reads litellm's table of models: an object of rows by name, with prices in US dollars per token.
//!
//! - Rows of the vendors themselves are read, for conversations only ([`VENDORS`]). Rows of resellers and of fine-tuned
//!   models are passed over, as are those without limits.
//! - Keys of prices have up to three suffixes: the lifetime of a cache, the threshold of a long request, and the way in
//!   which the request is served (`cache_creation_input_token_cost_above_12hr_above_272k_tokens_flex`).
//! - Cached reads and writes without a price stay unknown, also in steps; 0 is a price.

use std::collections::BTreeMap;

use playhouse_protocol::capability::{Effort, Modalities, ReasoningForm, RequestRules, Sampling, Thinking};
use playhouse_protocol::usage::{LongContext, OffPeak};
use playhouse_protocol::{Day, ModelRef, PriceList, Prices};
use rust_decimal::Decimal;
use serde_json::{Map, Value};

use crate::at::{At, check_name};
use crate::error::CatalogueError;
use crate::facts::ModelFacts;
use crate::family;

/// The key by which a row names its provider.
pub(crate) const PROVIDER: &str = "litellm_provider";

/// Names of vendors in the table, each with ours.
const VENDORS: [(&str, &str); 10] = [
    ("anthropic", "anthropic"),
    ("openai", "openai"),
    ("gemini", "google"),
    ("deepseek", "deepseek"),
    ("xai", "xai"),
    ("mistral", "mistral"),
    ("groq", "groq"),
    ("dashscope", "alibaba"),
    ("moonshot", "moonshotai"),
    ("zai", "zai"),
];

/// Values of `max_input_tokens` that are a whole window in rows of OpenAI's models from `gpt-5` on. In the other rows it is
/// the most input beside a full answer.
const WINDOWS: [u64; 3] = [128_000, 400_000, 1_050_000];

/// Reads all rows of conversations.
pub(crate) fn read(root: &Value) -> Result<BTreeMap<ModelRef, ModelFacts>, CatalogueError> {
    let root = At::root(root);
    let mut all = BTreeMap::new();
    let rows = root.object()?;
    for (key, value) in rows {
        let named = value.get(PROVIDER).and_then(Value::as_str);
        let Some((theirs, provider)) = VENDORS.into_iter().find(|(theirs, _)| named == Some(theirs)) else {
            continue;
        };
        let name = key.strip_prefix(theirs).and_then(|rest| rest.strip_prefix('/'));
        // Some models have a second row without a prefix, which lags behind.
        if name.is_none() && rows.contains_key(&format!("{theirs}/{key}")) {
            continue;
        }
        let name = name.unwrap_or(key);
        let at = root.field(key);
        check_name(&at, name)?;
        let mode = at.field("mode").text()?;
        if !matches!(mode, Some("chat" | "responses")) || name.starts_with("ft:") {
            continue;
        }
        if let Some(facts) = (Row { provider, prefix: theirs, name, at }).facts()? {
            all.insert(ModelRef::new(provider, name), facts);
        }
    }
    if all.is_empty() {
        return Err(root.wrong("there is no model of a known provider in it"));
    }
    Ok(all)
}

/// One row of the table.
struct Row<'a> {
    /// The provider's name, ours.
    provider: &'static str,
    /// The provider's name in keys of the table.
    prefix: &'static str,
    /// The model's name at its provider.
    name: &'a str,
    at: At<'a>,
}

impl Row<'_> {
    /// The facts of the row; `None` where it has no limits.
    fn facts(&self) -> Result<Option<ModelFacts>, CatalogueError> {
        let limit = |name| self.at.field(name).optional("a whole number from 0", whole);
        let (Some(input), Some(output)) = (limit("max_input_tokens")?, limit("max_output_tokens")?) else {
            return Ok(None);
        };
        let (context, input) = self.window(input, output);
        let reasoning = self.is("supports_reasoning")?;
        let efforts = self.efforts(reasoning)?;
        Ok(Some(ModelFacts {
            context,
            input,
            output: output.min(context),
            prices: self.prices()?,
            modalities: Modalities {
                image: self.is("supports_vision")?,
                pdf: self.is("supports_pdf_input")?,
            },
            text: self.answers_in_text()?,
            reasoning,
            rules: self.rules(reasoning, efforts.as_deref())?,
            reasoning_form: efforts.map(|efforts| ReasoningForm { efforts, budget: None }),
            reasoning_field: None,
            ends: self.ends()?,
            successor: self.at.field("successor_model").text()?.map(|name| self.bare(name).to_owned()),
        }))
    }

    /// The window, and the most input where that is less.
    fn window(&self, input: u64, output: u64) -> (u64, Option<u64>) {
        if self.provider != "openai" || !family::is_gpt_5_up(self.name) {
            return (input, None);
        }
        match input {
            128_000 => (input, None),
            _ if WINDOWS.contains(&input) => (input, input.checked_sub(output).filter(|most| *most > 0)),
            _ => (input.saturating_add(output), Some(input)),
        }
    }

    /// A name of a model without the prefix of its provider.
    fn bare<'n>(&self, name: &'n str) -> &'n str {
        name.strip_prefix(self.prefix).and_then(|rest| rest.strip_prefix('/')).unwrap_or(name)
    }

    fn flag(&self, name: &str) -> Result<Option<bool>, CatalogueError> {
        self.at.field(name).boolean()
    }

    fn is(&self, name: &str) -> Result<bool, CatalogueError> {
        Ok(self.flag(name)? == Some(true))
    }

    fn ends(&self) -> Result<Option<Day>, CatalogueError> {
        let at = self.at.field("deprecation_date");
        at.optional("a day as 2026-11-22", |value| value.as_str()?.parse().ok())
    }

    fn answers_in_text(&self) -> Result<bool, CatalogueError> {
        let named = |value: &Value| Some(value.as_array()?.iter().any(|kind| kind == "text"));
        let at = self.at.field("supported_output_modalities");
        Ok(at.optional("a list of texts", named)?.unwrap_or(true))
    }

    /// The levels of reasoning that the model takes; `None` where the row does not tell. `low`, `medium` and `high` are
    /// taken unless they are denied, the others only where they are named.
    fn efforts(&self, reasoning: bool) -> Result<Option<Vec<Effort>>, CatalogueError> {
        let levels = self.at.field("reasoning_effort_levels");
        if let Some(names) = levels.optional("a list", Value::as_array)? {
            let named = names.iter().filter_map(|name| Effort::named(name.as_str()?));
            return Ok(Some(named.collect()));
        }
        let levelled = match self.provider {
            "openai" => true,
            "anthropic" => self.is("supports_adaptive_thinking")?,
            // Gemini 2.5 takes budgets.
            "google" => self.name.starts_with("gemini-") && !self.name.starts_with("gemini-2"),
            _ => false,
        };
        if !reasoning || !levelled {
            return Ok(None);
        }
        let mut efforts = Vec::new();
        for effort in Effort::ALL {
            let usual = matches!(effort, Effort::Low | Effort::Medium | Effort::High);
            if self.flag(&format!("supports_{}_reasoning_effort", effort.name()))?.unwrap_or(usual) {
                efforts.push(effort);
            }
        }
        Ok(Some(efforts))
    }

    fn rules(&self, reasoning: bool, efforts: Option<&[Effort]>) -> Result<RequestRules, CatalogueError> {
        let openai = self.provider == "openai";
        let adaptive = self.provider == "anthropic" && self.is("supports_adaptive_thinking")?;
        let thinking = match adaptive {
            true if self.is("thinking_always_on")? => Thinking::Always,
            true if self.is("thinking_on_by_default")? => Thinking::ByDefault,
            _ => Thinking::OnRequest,
        };
        let sampling = match self.flag("supports_sampling_params")? {
            Some(false) => Sampling::Never,
            // The rows of OpenAI's reasoning models do not tell.
            None if openai && (reasoning || family::is_gpt_5_up(self.name)) => {
                let quiet = efforts.is_some_and(|efforts| efforts.contains(&Effort::None));
                if quiet { Sampling::WithoutReasoning } else { Sampling::Never }
            }
            _ => Sampling::Always,
        };
        let denied = |name| Ok::<_, CatalogueError>(self.flag(name)? == Some(false));
        let shaped = self.at.field("mode").text()? == Some("responses");
        Ok(RequestRules {
            thinking,
            display: adaptive,
            sampling,
            forced_tool_choice: !denied("supports_forced_tool_use")? && !denied("supports_tool_choice")?,
            // Elsewhere it takes a field of its own in the message.
            prefill: self.provider == "anthropic" && self.is("supports_assistant_prefill")?,
            parallel_calls: !denied("supports_parallel_function_calling")?,
            system_messages: self.is("supports_mid_conversation_system")?,
            responses: shaped || openai && family::needs_responses(self.name),
            chat: !shaped && (!openai || family::answers_on_chat(self.name)),
            ..RequestRules::default()
        })
    }

    fn prices(&self) -> Result<PriceList, CatalogueError> {
        let mut table = PriceTable::default();
        for key in self.at.object()?.keys() {
            if let Some(key) = PriceKey::of(key) {
                let price = self.at.field(key.text).price()?.map(per_million);
                let prices = table.0.entry((key.tier, key.above.unwrap_or(0))).or_default();
                *class(prices, self.provider, &key) = price;
            }
        }
        let tiered = self.at.field("tiered_pricing");
        for (index, value) in tiered.optional("a list", Value::as_array)?.into_iter().flatten().enumerate() {
            let tier = tiered.item(index, value);
            let above = tier.field("range").read("a list of two numbers", |range| whole(range.get(0)?))?;
            let prices = table.0.entry(("", above)).or_default();
            for key in tier.object()?.keys() {
                if let Some(key) = PriceKey::of(key).filter(|key| key.tier.is_empty() && key.above.is_none())
                {
                    *class(prices, self.provider, &key) = tier.field(key.text).price()?.map(per_million);
                }
            }
        }
        for prices in table.0.values_mut() {
            prices.reasoning = prices.reasoning.filter(|price| prices.output != Some(*price));
        }
        let usual = table.usual();
        let mut long: Vec<LongContext> = table.steps().collect();
        if self.provider == "xai" {
            // Steps of xAI begin at their threshold.
            long.iter_mut().for_each(|step| step.above = step.above.saturating_sub(1));
        }
        let mut list = PriceList { usual, long, multiples: table.multiples(), off_peak: Vec::new() };
        let entry = self.at.field("provider_specific_entry");
        for (name, value) in [
            ("us", entry.field("us")),
            ("fast", entry.field("fast")),
            ("us", self.at.field("regional_processing_uplift_multiplier_us")),
            ("eu", self.at.field("regional_processing_uplift_multiplier_eu")),
        ] {
            if let Some(factor) = value.price()? {
                list.multiples.insert(name.to_owned(), factor.normalize());
            }
        }
        if let Some((factor, hours)) = self.off_peak(&usual)? {
            list.multiples.insert(PriceList::OFF_PEAK.to_owned(), factor);
            list.off_peak = hours;
        }
        Ok(list)
    }

    /// The factor of quiet hours with these hours. `None` where it is not the same for all classes, or where hours have a
    /// form that is not known.
    fn off_peak(&self, usual: &Prices) -> Result<Option<(Decimal, Vec<OffPeak>)>, CatalogueError> {
        let Some(at) = self.at.field("off_peak_pricing").present() else { return Ok(None) };
        let mut quiet = Prices::default();
        for key in at.object()?.keys() {
            if let Some(key) = PriceKey::of(key).filter(|key| key.tier.is_empty() && key.above.is_none()) {
                *class(&mut quiet, self.provider, &key) = at.field(key.text).price()?.map(per_million);
            }
        }
        let Some(factor) = factor(usual, &quiet) else { return Ok(None) };
        let windows = at.field("windows");
        let mut hours = Vec::new();
        for (index, value) in windows.read("a list", Value::as_array)?.iter().enumerate() {
            let window = windows.item(index, value);
            let days = window.field("weekdays").read("a list of days from 1 to 7", days)?;
            let Some(times) = window.field("hours_utc").read("text or a list of texts", times)? else {
                return Ok(None);
            };
            for (first, last) in days {
                for time in &times {
                    let Ok(parsed) = format!("{first}-{last} {time}").parse() else { return Ok(None) };
                    hours.push(parsed);
                }
            }
        }
        Ok(Some((factor, hours)))
    }
}

/// Prices by the way in which a request is served (empty for the usual one) and the threshold of its input (0 for none).
#[derive(Default)]
struct PriceTable(BTreeMap<(&'static str, u64), Prices>);

impl PriceTable {
    fn usual(&self) -> Prices {
        self.0.get(&("", 0)).copied().unwrap_or_default()
    }

    fn steps(&self) -> impl Iterator<Item = LongContext> {
        let steps = self.0.iter().filter(|((tier, above), _)| tier.is_empty() && *above > 0);
        steps.map(|((_, above), prices)| LongContext { above: *above, prices: *prices })
    }

    fn multiples(&self) -> BTreeMap<String, Decimal> {
        let usual = self.usual();
        let served = self.0.iter().filter(|((tier, above), _)| !tier.is_empty() && *above == 0);
        served.filter_map(|((tier, _), prices)| Some(((*tier).to_owned(), factor(&usual, prices)?))).collect()
    }
}

/// The factor between two lists of prices; `None` where that of input is not that of output and of cached reads.
fn factor(usual: &Prices, other: &Prices) -> Option<Decimal> {
    let quotient =
        |usual: Option<Decimal>, other: Option<Decimal>| Some(other?.checked_div(usual?)?.round_dp(4));
    let factor = quotient(usual.input, other.input)?;
    if quotient(usual.output, other.output)? != factor {
        return None;
    }
    if let Some(read) = quotient(usual.cache_read, other.cache_read) {
        // The table rounds small prices up.
        let tolerance = factor.checked_mul(Decimal::new(5, 2))?;
        if (read - factor).abs() > tolerance {
            return None;
        }
    }
    Some(factor.normalize())
}

/// A key of a price, taken apart.
struct PriceKey<'a> {
    text: &'a str,
    class: Class,
    lifetime: Lifetime,
    /// The threshold of input tokens above which the price holds.
    above: Option<u64>,
    /// The way in which the request is served, by our name; empty for the usual one.
    tier: &'static str,
}

#[derive(Clone, Copy)]
enum Class {
    Input,
    Output,
    Reasoning,
    CacheRead,
    CacheWrite,
}

#[derive(Clone, Copy, PartialEq)]
enum Lifetime {
    Usual,
    Hour,
    TwelveHours,
}

impl<'a> PriceKey<'a> {
    const CLASSES: [(&'static str, Class); 5] = [
        ("input_cost_per_token", Class::Input),
        ("output_cost_per_token", Class::Output),
        ("output_cost_per_reasoning_token", Class::Reasoning),
        ("cache_read_input_token_cost", Class::CacheRead),
        ("cache_creation_input_token_cost", Class::CacheWrite),
    ];

    const TIERS: [(&'static str, &'static str); 5] = [
        ("", ""),
        ("_batches", "batch"),
        ("_flex", "flex"),
        ("_priority", "priority"),
        ("_ultrafast", "ultrafast"),
    ];

    /// `None` for keys that are no price, and for suffixes that are not known.
    fn of(text: &'a str) -> Option<Self> {
        let (mut rest, class) =
            Self::CLASSES.into_iter().find_map(|(name, class)| Some((text.strip_prefix(name)?, class)))?;
        let (mut lifetime, mut above) = (Lifetime::Usual, None);
        while let Some(suffix) = rest.strip_prefix("_above_") {
            if let Some(after) = suffix.strip_prefix("1hr") {
                (lifetime, rest) = (Lifetime::Hour, after);
            } else if let Some(after) = suffix.strip_prefix("12hr") {
                (lifetime, rest) = (Lifetime::TwelveHours, after);
            } else {
                let (thousands, after) = suffix.split_once("k_tokens")?;
                above = Some(thousands.parse::<u64>().ok()?.checked_mul(1_000)?);
                rest = after;
            }
        }
        let (_, tier) = Self::TIERS.into_iter().find(|(suffix, _)| *suffix == rest)?;
        Some(Self { text, class, lifetime, above, tier })
    }
}

/// The price that `key` tells of. The lifetime of a plain write is the provider's usual one: 30 minutes at OpenAI.
fn class<'p>(prices: &'p mut Prices, provider: &str, key: &PriceKey<'_>) -> &'p mut Option<Decimal> {
    match (key.class, key.lifetime) {
        (Class::Input, _) => &mut prices.input,
        (Class::Output, _) => &mut prices.output,
        (Class::Reasoning, _) => &mut prices.reasoning,
        (Class::CacheRead, _) => &mut prices.cache_read,
        (Class::CacheWrite, Lifetime::TwelveHours) => &mut prices.cache_write_12h,
        (Class::CacheWrite, Lifetime::Hour) => &mut prices.cache_write_1h,
        (Class::CacheWrite, Lifetime::Usual) if provider == "openai" => &mut prices.cache_write_30m,
        (Class::CacheWrite, Lifetime::Usual) => &mut prices.cache_write,
    }
}

/// A price per million tokens. Prices of the table are binary fractions of a dollar, so that they are rounded.
fn per_million(price: Decimal) -> Decimal {
    price.saturating_mul(Decimal::from(1_000_000)).round_dp(6).normalize()
}

/// A whole number, also where it is written as a fraction.
fn whole(value: &Value) -> Option<u64> {
    let number = value.as_number()?;
    number.as_u64().or_else(|| number.to_string().strip_suffix(".0")?.parse().ok())
}

/// Ranges of consecutive days of the week.
fn days(value: &Value) -> Option<Vec<(u64, u64)>> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for day in value.as_array()? {
        let day = day.as_u64().filter(|day| (1..=7).contains(day))?;
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == day => *last = day,
            _ => ranges.push((day, day)),
        }
    }
    Some(ranges)
}

/// Times of a day; the inner `None` where one does not end on the day on which it begins. An end of `00:00` is that of the
/// day.
fn times(value: &Value) -> Option<Option<Vec<String>>> {
    let texts: Vec<&str> = match value {
        Value::String(text) => vec![text],
        Value::Array(list) => list.iter().map(Value::as_str).collect::<Option<_>>()?,
        _ => return None,
    };
    let of_a_day = |text: &str| {
        let (from, until) = text.split_once('-')?;
        let until = if until == "00:00" { "24:00" } else { until };
        (from < until).then(|| format!("{from}-{until}"))
    };
    Some(texts.into_iter().map(of_a_day).collect())
}

/// Whether `rows` are such a table: some row names its provider as the table does.
pub(crate) fn recognises(rows: &Map<String, Value>) -> bool {
    rows.values().any(|row| row.get(PROVIDER).is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn facts(key: &str, row: Value) -> ModelFacts {
        let mut all = read(&json!({"sample_spec": {"max_tokens": "text"}, key: row})).unwrap();
        all.pop_first().unwrap().1
    }

    fn price(text: &str) -> Option<Decimal> {
        Some(text.parse().unwrap())
    }

    fn multiples(facts: &ModelFacts) -> Vec<String> {
        facts.prices.multiples.iter().map(|(name, factor)| format!("{name} {factor}")).collect()
    }

    #[test]
    fn a_row_of_openai_is_read() {
        let facts = facts(
            "gpt-6.1-sol",
            json!({
                "litellm_provider": "openai", "mode": "chat",
                "max_input_tokens": 922_000, "max_output_tokens": 128_000, "max_tokens": 4_096,
                "input_cost_per_token": 2e-06, "output_cost_per_token": 1e-05,
                "cache_read_input_token_cost": 1e-07,
                "cache_creation_input_token_cost": 2.5e-06,
                "cache_creation_input_token_cost_above_12hr": 5e-06,
                "input_cost_per_token_above_272k_tokens": 4e-06,
                "output_cost_per_token_above_272k_tokens": 1.5e-05,
                "cache_creation_input_token_cost_above_12hr_above_272k_tokens": 1e-05,
                "input_cost_per_token_above_272k_tokens_flex": 9e-06,
                "input_cost_per_token_batches": 1e-06, "output_cost_per_token_batches": 5e-06,
                "input_cost_per_token_priority": 4e-06, "output_cost_per_token_priority": 2e-05,
                "cache_read_input_token_cost_priority": 2.04e-07,
                "input_cost_per_token_ultrafast": 1.2e-05, "output_cost_per_token_ultrafast": 5e-05,
                "input_cost_per_token_flex": 1e-06, "output_cost_per_token_flex": 5e-06,
                "cache_read_input_token_cost_flex": 1e-07,
                "input_cost_per_token_decisions": 1e-06,
                "regional_processing_uplift_multiplier_eu": 1.1,
                "supports_reasoning": true, "supports_none_reasoning_effort": false,
                "supports_xhigh_reasoning_effort": true, "supports_max_reasoning_effort": true,
                "supports_vision": true, "supports_pdf_input": true,
                "deprecation_date": "2027-04-01", "successor_model": "gpt-6.2-sol",
            }),
        );
        assert_eq!((facts.context, facts.input, facts.output), (1_050_000, Some(922_000), 128_000));
        let usual = facts.prices.usual;
        assert_eq!((usual.input, usual.output, usual.cache_read), (price("2"), price("10"), price("0.1")));
        assert_eq!((usual.cache_write_30m, usual.cache_write_12h), (price("2.5"), price("5")));
        assert_eq!((usual.cache_write, usual.cache_write_1h), (None, None));
        let [step] = facts.prices.long.as_slice() else { panic!("{:?}", facts.prices.long) };
        assert_eq!((step.above, step.prices.input, step.prices.output), (272_000, price("4"), price("15")));
        assert_eq!((step.prices.cache_read, step.prices.cache_write_12h), (None, price("10")));
        // The factors of `ultrafast` differ, and so does the read of `flex`.
        assert_eq!(multiples(&facts), ["batch 0.5", "eu 1.1", "priority 2"]);
        let efforts = facts.reasoning_form.unwrap().efforts;
        assert_eq!(efforts, [Effort::Low, Effort::Medium, Effort::High, Effort::Xhigh, Effort::Max]);
        assert!(facts.rules.responses && facts.rules.sampling == Sampling::Never);
        assert!(facts.modalities.image && facts.modalities.pdf);
        assert_eq!(
            (facts.ends, facts.successor.as_deref()),
            ("2027-04-01".parse().ok(), Some("gpt-6.2-sol"))
        );
    }

    #[test]
    fn a_row_of_anthropic_is_read() {
        let facts = facts(
            "claude-haiku-5-5",
            json!({
                "litellm_provider": "anthropic", "mode": "chat",
                "max_input_tokens": 1_000_000, "max_output_tokens": 128_000,
                "input_cost_per_token": 1e-07, "output_cost_per_token": 5e-07,
                "cache_creation_input_token_cost": 1.25e-07, "cache_creation_input_token_cost_above_1hr": 2e-07,
                "input_cost_per_token_above_100k_tokens": 5e-07,
                "cache_creation_input_token_cost_above_1hr_above_100k_tokens": 1e-06,
                "supports_adaptive_thinking": true, "thinking_on_by_default": true, "thinking_always_on": false,
                "supports_mid_conversation_system": true, "supports_assistant_prefill": false,
                "supports_forced_tool_use": false, "supports_sampling_params": false,
                "supports_reasoning": true, "supports_max_reasoning_effort": true,
                "provider_specific_entry": {"us": 1.1, "fast": 2.0, "mars": 3},
            }),
        );
        assert_eq!((facts.context, facts.input), (1_000_000, None));
        let usual = facts.prices.usual;
        assert_eq!((usual.cache_write, usual.cache_write_1h), (price("0.125"), price("0.2")));
        assert_eq!(facts.prices.at(100_001).cache_write_1h, price("1"));
        assert_eq!(multiples(&facts), ["fast 2", "us 1.1"]);
        let expected = RequestRules {
            thinking: Thinking::ByDefault,
            display: true,
            sampling: Sampling::Never,
            forced_tool_choice: false,
            system_messages: true,
            ..RequestRules::default()
        };
        assert_eq!(facts.rules, expected);
    }

    #[test]
    fn windows_of_openai_are_told_from_input_limits() {
        let of = |key: &str, input: u64| {
            let row = json!({"litellm_provider": "openai", "mode": "chat", "max_input_tokens": input, "max_output_tokens": 16});
            let facts = facts(key, row);
            (facts.context, facts.input)
        };
        assert_eq!(of("gpt-5.4", 1_050_000), (1_050_000, Some(1_049_984)));
        assert_eq!(of("gpt-5.3-codex", 400_000), (400_000, Some(399_984)));
        assert_eq!(of("gpt-5", 272_000), (272_016, Some(272_000)));
        assert_eq!(of("gpt-4o", 128_000), (128_000, None));
        assert_eq!(of("o3", 200_000), (200_000, None));
    }

    #[test]
    fn steps_of_ranges_and_inclusive_ones_are_read() {
        let row = json!({
            "litellm_provider": "dashscope", "mode": "chat", "max_input_tokens": 1_000, "max_output_tokens": 10,
            "tiered_pricing": [
                {"range": [0, 32_000.0], "input_cost_per_token": 1e-06, "output_cost_per_token": 5e-06,
                 "output_cost_per_reasoning_token": 5e-06},
                {"range": [32_000.0, 1_000_000.0], "input_cost_per_token": 6e-06, "output_cost_per_token": 6e-05,
                 "output_cost_per_reasoning_token": 7e-05},
            ],
        });
        let qwen = facts("dashscope/qwen3-coder-plus", row);
        assert_eq!((qwen.prices.usual.input, qwen.prices.usual.reasoning), (price("1"), None));
        assert_eq!(
            (qwen.prices.at(32_001).output, qwen.prices.at(32_001).reasoning),
            (price("60"), price("70"))
        );
        assert_eq!(qwen.prices.at(32_000).output, price("5"));
        let row = json!({
            "litellm_provider": "xai", "mode": "responses", "max_input_tokens": 1_000, "max_output_tokens": 1_000,
            "input_cost_per_token": 2e-06, "input_cost_per_token_above_200k_tokens": 4e-06,
        });
        let grok = facts("xai/grok-4.7", row);
        assert_eq!((grok.prices.at(199_999).input, grok.prices.at(200_000).input), (price("2"), price("4")));
        assert!(grok.rules.responses);
    }

    #[test]
    fn quiet_hours_are_read_where_they_have_one_factor() {
        let row = |output: f64| {
            json!({
                "litellm_provider": "deepseek", "mode": "chat", "max_input_tokens": 1_000, "max_output_tokens": 10,
                "input_cost_per_token": 1.32e-06, "output_cost_per_token": 3.96e-06,
                "cache_creation_input_token_cost": 0.0,
                "off_peak_pricing": {
                    "input_cost_per_token": 6.6e-07, "output_cost_per_token": output,
                    "windows": [
                        {"hours_utc": ["04:00-06:00", "10:00-00:00"], "weekdays": [1, 2, 3, 4, 5]},
                        {"hours_utc": "00:00-00:00", "weekdays": [6, 7]},
                    ],
                },
            })
        };
        let pro = facts("deepseek/deepseek-v4-pro", row(1.98e-06));
        assert_eq!(multiples(&pro), ["off_peak 0.5"]);
        let hours: Vec<String> = pro.prices.off_peak.iter().map(ToString::to_string).collect();
        assert_eq!(hours, ["1-5 04:00-06:00", "1-5 10:00-24:00", "6-7 00:00-24:00"]);
        assert_eq!(pro.prices.usual.cache_write, Some(Decimal::ZERO), "0 is a price");
        let other = facts("deepseek/deepseek-v4-pro", row(1.5e-06));
        assert!(other.prices.multiples.is_empty() && other.prices.off_peak.is_empty());
    }

    #[test]
    fn rows_that_are_no_conversation_with_a_vendor_are_passed_over() {
        let row = |provider: &str, mode: &str| json!({"litellm_provider": provider, "mode": mode, "max_input_tokens": 9, "max_output_tokens": 3});
        let mut bare = row("deepseek", "chat");
        bare["max_input_tokens"] = 1.into();
        let all = read(&json!({
            "deepseek-x": bare,
            "deepseek/deepseek-x": row("deepseek", "chat"),
            "bedrock/claude": row("bedrock", "chat"),
            "gpt-image": row("openai", "image_generation"),
            "ft:gpt-4o": row("openai", "chat"),
            "gpt-unlimited": {"litellm_provider": "openai", "mode": "chat"},
        }))
        .unwrap();
        let names: Vec<String> = all.keys().map(ToString::to_string).collect();
        assert_eq!(names, ["deepseek/deepseek-x"]);
        assert_eq!(all.values().next().unwrap().context, 9);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let error = |change: &dyn Fn(&mut Value)| {
            let mut row = json!({"litellm_provider": "xai", "mode": "chat", "max_input_tokens": 9, "max_output_tokens": 3});
            change(&mut row);
            read(&json!({"xai/grok": row})).unwrap_err().to_string()
        };
        let path = "\"xai/grok\"";
        for (found, expected) in [
            (
                error(&|row| row["input_cost_per_token"] = "1".into()),
                "input_cost_per_token: is text, expected a number from 0",
            ),
            (
                error(&|row| row["max_input_tokens"] = json!(0.5)),
                "max_input_tokens: is the number 0.5, expected a whole number from 0",
            ),
            (error(&|row| row["mode"] = json!(1)), "mode: is the number 1, expected text"),
            (
                error(&|row| row["deprecation_date"] = "soon".into()),
                "deprecation_date: is text, expected a day as 2026-11-22",
            ),
            (
                error(&|row| row["supports_vision"] = "yes".into()),
                "supports_vision: is text, expected true or false",
            ),
            (
                error(&|row| row["tiered_pricing"] = json!([{"range": 3}])),
                "tiered_pricing[0].range: is the number 3, expected a list of two numbers",
            ),
            (
                error(&|row| row["off_peak_pricing"] = json!([])),
                "off_peak_pricing: is a list, expected an object",
            ),
        ] {
            assert_eq!(found, format!("{path}.{expected}"));
        }
        let none = read(&json!({"a": {"litellm_provider": "bedrock"}})).unwrap_err().to_string();
        assert_eq!(none, "the catalogue: there is no model of a known provider in it");
    }
}

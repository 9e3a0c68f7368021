//! The facts that are part of the program, read from `models.toml` when they are first needed.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use playhouse_protocol::ModelRef;
use serde::Deserialize;

use crate::entry::Entry;
use crate::facts::ModelFacts;

/// The built-in facts.
pub(crate) struct Builtin {
    /// The day of their state, as `YYYY-MM-DD`.
    pub(crate) version: String,
    /// Facts by name; an alias has an entry of its own.
    pub(crate) models: BTreeMap<ModelRef, ModelFacts>,
}

/// The built-in facts. The first call reads them, so that a command that needs no model does not pay for them.
pub(crate) fn builtin() -> &'static Builtin {
    static BUILTIN: LazyLock<Builtin> = LazyLock::new(|| {
        // The text is part of the program and a test reads it, so this cannot depend on anything outside.
        read(include_str!("../models.toml")).expect("models.toml is well formed")
    });
    &BUILTIN
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: String,
    models: BTreeMap<String, BTreeMap<String, Entry>>,
}

/// Reads a file in the form of `models.toml`.
pub(crate) fn read(text: &str) -> Result<Builtin, toml::de::Error> {
    let file: File = toml::from_str(text)?;
    let mut models = BTreeMap::new();
    for (provider, entries) in file.models {
        for (name, mut entry) in entries {
            let aliases = std::mem::take(&mut entry.aliases);
            let facts = ModelFacts::from(entry);
            for alias in aliases {
                models.insert(ModelRef::new(&provider, alias), facts.clone());
            }
            models.insert(ModelRef::new(&provider, name), facts);
        }
    }
    Ok(Builtin { version: file.version, models })
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::capability::{Effort, Sampling, Thinking};
    use playhouse_protocol::{Day, Tokens};

    use super::*;

    #[test]
    fn every_entry_is_sane() {
        let builtin = builtin();
        assert!(builtin.models.len() >= 100);
        let version: Day = builtin.version.parse().unwrap();
        for (model, facts) in &builtin.models {
            assert!((8_000..=2_000_000).contains(&facts.context), "{model}");
            assert!(facts.output >= 4_000 && facts.output <= facts.context, "{model}");
            assert!(facts.input.is_none_or(|input| input < facts.context), "{model}");
            assert!(facts.prices.long.is_sorted_by_key(|tier| tier.above), "{model}");
            assert!(facts.ends.is_none_or(|ends| ends > version), "{model} has ended");
            assert_eq!(facts.prices.multiples.contains_key("off_peak"), !facts.prices.off_peak.is_empty());
            for prices in
                std::iter::once(&facts.prices.usual).chain(facts.prices.long.iter().map(|tier| &tier.prices))
            {
                let (input, output) = (prices.input.unwrap(), prices.output.unwrap());
                assert!(input < output && prices.cache_read.is_none_or(|read| read < input), "{model}");
            }
        }
    }

    #[test]
    fn the_file_is_what_the_overlay_says() {
        #[derive(Deserialize)]
        struct Overlay {
            models: BTreeMap<String, BTreeMap<String, toml::Table>>,
        }
        let overlay: Overlay = toml::from_str(crate::generate::OVERLAY).unwrap();
        let file: toml::Table = toml::from_str(include_str!("../models.toml")).unwrap();
        let version: Day = builtin().version.parse().unwrap();
        for (provider, models) in overlay.models {
            for (name, mut over) in models {
                if over
                    .get("ends")
                    .is_some_and(|ends| ends.as_str().unwrap().parse::<Day>().unwrap() <= version)
                {
                    continue;
                }
                let Some(entry) = file["models"].get(&provider).and_then(|models| models.get(&name)) else {
                    panic!("{provider}/{name} is not in models.toml: run scripts/models-update");
                };
                over.remove("like");
                let rules = over.remove("rules");
                for (rule, value) in rules.iter().flat_map(|rules| rules.as_table().unwrap()) {
                    assert_eq!(entry["rules"].get(rule), Some(value), "{provider}/{name}");
                }
                for (key, value) in over {
                    assert_eq!(entry.get(&key), Some(&value), "{provider}/{name}");
                }
            }
        }
    }

    #[test]
    fn caches_have_the_lifetimes_of_their_providers() {
        for (model, facts) in &builtin().models {
            let prices = &facts.prices.usual;
            if model.provider == "anthropic" {
                let input = prices.input.unwrap();
                assert_eq!(prices.cache_write_1h.unwrap(), input + input, "{model}");
                assert!(prices.cache_write.unwrap() > input, "{model}");
            } else if model.provider == "openai" {
                assert_eq!((prices.cache_write, prices.cache_write_1h), (None, None), "{model}");
                assert_eq!(prices.cache_write_30m.is_some(), prices.cache_write_12h.is_some(), "{model}");
            }
        }
    }

    #[test]
    fn only_older_claudes_go_on_with_a_prefill() {
        for (model, facts) in &builtin().models {
            let old = ["claude-opus-4-5", "claude-sonnet-4-5", "claude-haiku-4-5"];
            let accepts = model.provider == "anthropic" && old.iter().any(|old| model.model.starts_with(old));
            assert_eq!(facts.rules.prefill, accepts, "{model}");
        }
    }

    #[test]
    fn models_of_the_responses_wire_are_openais_own() {
        let responses = |model: &str| builtin().models[&ModelRef::new("openai", model)].rules.responses;
        for model in
            ["gpt-5.3-codex", "gpt-5.2-pro", "gpt-5.4", "gpt-5.4-mini", "gpt-5.6-sol", "gpt-6.2-astra"]
        {
            assert!(responses(model), "{model}");
        }
        for model in ["gpt-5.2", "gpt-5", "gpt-4.1", "o3"] {
            assert!(!responses(model), "{model}");
        }
        assert!(
            builtin()
                .models
                .iter()
                .all(|(model, facts)| model.provider == "openai" || !facts.rules.responses)
        );
    }

    #[test]
    fn families_have_the_rules_of_their_servers() {
        let rules = |model: &str| builtin().models[&model.parse().unwrap()].rules;
        let sampling = |model: &str| rules(&format!("openai/{model}")).sampling;
        assert_eq!(sampling("gpt-5"), Sampling::Never);
        assert_eq!(sampling("gpt-5.1"), Sampling::WithoutReasoning);
        assert_eq!(sampling("gpt-6-sol"), Sampling::WithoutReasoning);
        for model in ["gpt-6-astra", "gpt-6.1-sol", "gpt-6.2-sol", "gpt-6.2-astra"] {
            assert_eq!(sampling(model), Sampling::Never, "{model}");
            let form = builtin().models[&ModelRef::new("openai", model)].reasoning_form.clone().unwrap();
            assert_eq!(form.efforts.first(), Some(&Effort::Low), "{model}");
            assert_eq!(
                rules(&format!("openai/{model}")).system_in_input,
                model.starts_with("gpt-6.2"),
                "{model}"
            );
        }
        let claude = |model: &str| rules(&format!("anthropic/{model}"));
        for (model, thinking, bound, forced) in [
            ("claude-opus-4-8", Thinking::OnRequest, false, true),
            ("claude-opus-5", Thinking::ByDefault, false, true),
            ("claude-haiku-5-5", Thinking::ByDefault, true, true),
            ("claude-fable-5", Thinking::Always, false, true),
            ("claude-sonnet-5-5", Thinking::Always, true, false),
            ("claude-opus-5-5", Thinking::Always, true, false),
            ("claude-fable-5-2", Thinking::Always, true, false),
        ] {
            let rules = claude(model);
            assert_eq!((rules.thinking, rules.prefix_check), (thinking, bound), "{model}");
            assert_eq!((rules.forced_tool_choice, rules.display), (forced, true), "{model}");
            assert_eq!(rules.sampling, Sampling::Never, "{model}");
        }
        assert!(!claude("claude-sonnet-4-5").display);
    }

    /// Prices as input, output, cached read, short write and long write.
    #[test]
    fn ten_current_models_have_the_published_prices() {
        for (model, expected) in [
            // https://developers.openai.com/api/docs/models/gpt-6.2-sol
            ("openai/gpt-6.2-sol", ["2", "10", "0.1", "2.5", "5"]),
            // https://developers.openai.com/api/docs/pricing
            ("openai/gpt-6-astra", ["10", "50", "1", "12.5", "25"]),
            ("openai/gpt-6-luna", ["0.1", "0.5", "0.01", "0.125", "0.25"]),
            ("openai/gpt-5.4", ["2.5", "15", "0.25", "", ""]),
            // https://platform.claude.com/docs/en/about-claude/pricing
            ("anthropic/claude-opus-5-5", ["4", "20", "0.2", "5", "8"]),
            ("anthropic/claude-haiku-5-5", ["0.1", "0.5", "0.01", "0.125", "0.2"]),
            // https://ai.google.dev/gemini-api/docs/pricing
            ("google/gemini-3.8-flash", ["0.75", "3.75", "0.075", "", ""]),
            // https://api-docs.deepseek.com/quick_start/pricing
            ("deepseek/deepseek-v4-pro", ["1.32", "3.96", "0.044", "0", ""]),
            // https://platform.kimi.ai/docs/pricing/chat-k3
            ("moonshotai/kimi-k3", ["3", "15", "0.3", "3", "6"]),
            // https://docs.z.ai/guides/overview/pricing
            ("zai/glm-5.3", ["1.4", "4.4", "0.26", "0", ""]),
        ] {
            let prices = builtin().models[&model.parse().unwrap()].prices.usual;
            let short = prices.cache_write.or(prices.cache_write_30m);
            let long = prices.cache_write_1h.or(prices.cache_write_12h);
            let found = [prices.input, prices.output, prices.cache_read, short, long];
            let found = found.map(|price| price.map_or(String::new(), |price| price.to_string()));
            assert_eq!(found, expected, "{model}");
        }
        let haiku = &builtin().models[&"anthropic/claude-haiku-5-5".parse().unwrap()].prices;
        assert_eq!(haiku.at(100_001).output, Some("2.5".parse().unwrap()));
        let qwen = &builtin().models[&"alibaba/qwen3-coder-plus".parse().unwrap()].prices;
        assert_eq!(qwen.at(256_001).output, Some("60".parse().unwrap()));
    }

    #[test]
    fn every_model_that_thinks_says_how_it_is_told_how_much() {
        for (model, facts) in &builtin().models {
            assert_eq!(facts.reasoning_form.is_some(), facts.reasoning, "{model}");
        }
        let form = |model: &str| builtin().models[&model.parse().unwrap()].reasoning_form.clone().unwrap();
        assert_eq!(form("anthropic/claude-opus-4-8").budget, None, "it refuses budgets");
        assert!(form("anthropic/claude-sonnet-4-5").efforts.is_empty(), "it knows nothing else");
        assert_eq!(form("mistral/mistral-small-latest").nearest(Effort::Low), Some(Effort::High));
    }

    #[test]
    fn an_unknown_key_in_the_file_is_an_error() {
        let text = "version = \"2026-01\"\n[models.a.b]\ncontext = 1\noutput = 1\nprices = {}\ncolour = 1\n";
        assert!(read(text).err().unwrap().message().contains("colour"));
    }

    /// Usage as providers report it, by class, and what that costs by their price lists.
    #[test]
    fn requests_cost_what_the_price_lists_say() {
        let none = Tokens::default();
        let opus = Tokens {
            input: 1_000,
            cache_read: 40_000,
            cache_write_5m: 3_000,
            cache_write_1h: 5_000,
            output: 500,
            ..none
        };
        let short = Tokens { input: 1_000, output: 500, ..none };
        for (model, tokens, served, dollars) in [
            (
                "openai/gpt-6.1-sol",
                vec![Tokens {
                    input: 10_000,
                    cache_read: 60_000,
                    cache_write_30m: 30_000,
                    output: 2_000,
                    ..none
                }],
                &[][..],
                "0.121",
            ),
            // Above 272,000 tokens of input, cached or not, each class costs more.
            (
                "openai/gpt-6.1-sol",
                vec![Tokens { input: 100_000, cache_read: 200_000, output: 1_000, ..none }],
                &[],
                "0.455",
            ),
            (
                "openai/gpt-6-luna",
                vec![Tokens {
                    input: 5_000,
                    cache_write_30m: 10_000,
                    cache_write_12h: 20_000,
                    output: 1_000,
                    ..none
                }],
                &[],
                "0.00725",
            ),
            (
                "openai/gpt-5.5",
                vec![Tokens { input: 20_000, cache_read: 80_000, output: 3_000, ..none }],
                &["flex"],
                "0.115",
            ),
            ("anthropic/claude-opus-5-5", vec![opus], &[], "0.077"),
            // A compaction inside of the answer is an iteration of its own.
            (
                "anthropic/claude-opus-5-5",
                vec![opus, Tokens { input: 20_000, output: 1_000, ..none }],
                &[],
                "0.177",
            ),
            ("anthropic/claude-opus-5-5", vec![short], &["fast", "us"], "0.0308"),
            (
                "anthropic/claude-haiku-5-5",
                vec![Tokens { input: 50_000, cache_read: 60_000, output: 1_000, ..none }],
                &["standard"],
                "0.0305",
            ),
            (
                "google/gemini-3.8-flash",
                vec![Tokens { input: 2_500, cache_read: 18_000, output: 800, reasoning: 300, ..none }],
                &[],
                "0.00735",
            ),
            (
                "deepseek/deepseek-v4-pro",
                vec![Tokens { input: 2_000, cache_read: 18_000, output: 1_000, ..none }],
                &[],
                "0.007392",
            ),
        ] {
            let prices = &builtin().models[&model.parse().unwrap()].prices;
            let served: Vec<String> = served.iter().map(|name| (*name).to_owned()).collect();
            let costs = tokens.iter().map(|tokens| prices.rate(tokens, &served).cost.unwrap().0);
            let sum: rust_decimal::Decimal = costs.sum();
            assert_eq!(sum.normalize().to_string(), dollars, "{model} {served:?}");
        }
    }
}

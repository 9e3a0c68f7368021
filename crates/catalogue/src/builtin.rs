//! The facts that are part of the program, read from `models.toml` when they are first needed.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use playhouse_protocol::ModelRef;
use serde::Deserialize;

use crate::entry::Entry;
use crate::facts::ModelFacts;

/// The built-in facts.
pub(crate) struct Builtin {
    /// Their state, as `YYYY-MM`.
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

fn read(text: &str) -> Result<Builtin, toml::de::Error> {
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
    use playhouse_protocol::capability::Effort;

    use super::*;

    #[test]
    fn every_entry_is_sane() {
        let builtin = builtin();
        assert!(builtin.models.len() >= 60);
        assert_eq!(builtin.version.len(), "2026-07".len());
        for (model, facts) in &builtin.models {
            assert!((8_000..=2_000_000).contains(&facts.context), "{model}");
            assert!(facts.output >= 4_000 && facts.output <= facts.context, "{model}");
            assert!(facts.input.is_none_or(|input| input < facts.context), "{model}");
            assert!(facts.prices.long.is_sorted_by_key(|tier| tier.above), "{model}");
            for prices in
                std::iter::once(&facts.prices.usual).chain(facts.prices.long.iter().map(|tier| &tier.prices))
            {
                let (input, output) = (prices.input.unwrap(), prices.output.unwrap());
                assert!(input < output && prices.cache_read.is_none_or(|read| read < input), "{model}");
            }
        }
    }

    #[test]
    fn anthropic_charges_for_both_caches_and_openai_for_none() {
        for (model, facts) in &builtin().models {
            let prices = &facts.prices.usual;
            if model.provider == "anthropic" {
                let input = prices.input.unwrap();
                assert_eq!(prices.cache_write_1h.unwrap(), input + input, "{model}");
                assert!(prices.cache_write.unwrap() > input, "{model}");
            } else if model.provider == "openai" {
                assert_eq!((prices.cache_write, prices.cache_write_1h), (None, None), "{model}");
            }
        }
    }

    #[test]
    fn models_that_refuse_a_prefill_say_so() {
        let refuse = [
            "claude-opus-4-6",
            "claude-opus-4-7",
            "claude-opus-4-8",
            "claude-sonnet-4-6",
            "claude-sonnet-5",
            "claude-fable-5",
        ];
        for (model, facts) in &builtin().models {
            let accepts = model.provider == "anthropic" && !refuse.contains(&model.model.as_str());
            assert_eq!(facts.rules.prefill, accepts, "{model}");
        }
        for model in refuse {
            assert!(builtin().models.contains_key(&ModelRef::new("anthropic", model)), "{model}");
        }
    }

    #[test]
    fn models_of_the_responses_wire_are_openais_own() {
        for (model, facts) in &builtin().models {
            let name = &model.model;
            let expected = model.provider == "openai" && (name.contains("codex") || name.ends_with("-pro"));
            assert_eq!(facts.rules.responses, expected, "{model}");
        }
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
}

//! Reads a catalogue in the format of models.dev: an object of providers by name, each with its `models` by name.

use std::collections::BTreeMap;

use playhouse_protocol::capability::{
    BudgetRange, Effort, Modalities, ReasoningField, ReasoningForm, RequestRules, Sampling,
};
use playhouse_protocol::usage::LongContext;
use playhouse_protocol::{ModelRef, PriceList, Prices};
use serde_json::Value;

use crate::at::{At, check_name};
use crate::error::CatalogueError;
use crate::facts::ModelFacts;
use crate::family;

/// The threshold of `context_over_200k`, the older form of `tiers`.
const OVER_200K: u64 = 200_000;

/// Reads all models. What has no price stays unknown; keys that are not known are passed over.
pub(crate) fn read(root: &Value) -> Result<BTreeMap<ModelRef, ModelFacts>, CatalogueError> {
    let root = At::root(root);
    let mut all = BTreeMap::new();
    for provider in root.object()?.keys() {
        let at = root.field(provider);
        check_name(&at, provider)?;
        if provider.contains('/') {
            return Err(at.wrong("the name of a provider cannot hold a slash"));
        }
        let models = at.field("models");
        for model in models.object()?.keys() {
            let at = models.field(model);
            check_name(&at, model)?;
            all.insert(ModelRef::new(provider, model), facts(provider, model, &at)?);
        }
    }
    if all.is_empty() {
        return Err(root.wrong("there is no model in it"));
    }
    Ok(all)
}

fn facts(provider: &str, model: &str, at: &At<'_>) -> Result<ModelFacts, CatalogueError> {
    at.object()?;
    let limit = at.field("limit");
    limit.object()?;
    let context = limit.field("context").whole()?;
    let input = limit.field("input").optional("a whole number from 0", Value::as_u64)?;
    let shape = at.field("provider").field("shape").text()?;
    let prices = at.field("cost").present().map(|cost| costs(&cost)).transpose()?.unwrap_or_default();
    let (shaped, openai) = (shape == Some("responses"), provider == "openai");
    let responses = shaped || (openai && family::needs_responses(model));
    let chat = !shaped && (!openai || family::answers_on_chat(model));
    let sampling = match at.field("temperature").boolean()? {
        Some(false) => Sampling::Never,
        _ => Sampling::Always,
    };
    Ok(ModelFacts {
        context,
        input: input.filter(|input| *input < context),
        output: limit.field("output").whole()?,
        prices,
        modalities: modalities(&at.field("modalities").field("input"))?,
        text: answers_in_text(&at.field("modalities").field("output"))?,
        reasoning: at.field("reasoning").boolean()?.unwrap_or(false),
        reasoning_form: reasoning_form(&at.field("reasoning_options"))?,
        // The other form of the field is `true`, which does not say how.
        reasoning_field: at.field("interleaved").field("field").text()?.and_then(ReasoningField::named),
        rules: RequestRules { sampling, responses, chat, ..RequestRules::default() },
        ends: None,
        successor: None,
    })
}

/// What is read beside text; kinds that the engine cannot send are passed over.
fn modalities(at: &At<'_>) -> Result<Modalities, CatalogueError> {
    let texts = |value: &Value| {
        value.as_array()?.iter().try_fold(Modalities::default(), |modalities, kind| {
            Some(modalities.named(kind.as_str()?).unwrap_or(modalities))
        })
    };
    Ok(at.optional("a list of texts", texts)?.unwrap_or_default())
}

fn answers_in_text(at: &At<'_>) -> Result<bool, CatalogueError> {
    let named = |value: &Value| Some(value.as_array()?.iter().any(|kind| kind == "text"));
    Ok(at.optional("a list of texts", named)?.unwrap_or(true))
}

/// In which words a model is told how much to think. Ways that are not known, as a mere switch, and levels that are not
/// are passed over.
fn reasoning_form(at: &At<'_>) -> Result<Option<ReasoningForm>, CatalogueError> {
    let Some(options) = at.optional("a list", Value::as_array)? else { return Ok(None) };
    let mut form = ReasoningForm::default();
    for (index, value) in options.iter().enumerate() {
        let option = at.item(index, value);
        match option.field("type").text()? {
            Some("effort") => {
                let names = option.field("values").optional("a list", Value::as_array)?;
                let named = |value: &Value| value.as_str().and_then(Effort::named);
                form.efforts = names.into_iter().flatten().filter_map(named).collect();
            }
            Some("budget_tokens") => {
                // A least or most budget of -1 leaves it to the model, which is said by no budget at all.
                let bound = |name| option.field(name).optional("a number", Value::as_number);
                let least = bound("min")?.and_then(serde_json::Number::as_u64).unwrap_or(0);
                let max = bound("max")?.and_then(serde_json::Number::as_u64).filter(|max| *max >= least);
                form.budget = Some(BudgetRange { min: least, max });
            }
            _ => {}
        }
    }
    Ok(Some(form))
}

/// The prices, and those of long requests. Thresholds of a kind that is not known make the prices unknown: they would be
/// wrong for some requests, and nobody could tell which.
fn costs(cost: &At<'_>) -> Result<PriceList, CatalogueError> {
    cost.object()?;
    let mut long = Vec::new();
    let tiers = cost.field("tiers");
    if let Some(list) = tiers.optional("a list", Value::as_array)? {
        for (index, value) in list.iter().enumerate() {
            let tier = tiers.item(index, value);
            let threshold = tier.field("tier");
            if threshold.field("type").text()?.is_some_and(|kind| kind != "context") {
                return Ok(PriceList::default());
            }
            long.push(LongContext { above: threshold.field("size").whole()?, prices: prices(&tier)? });
        }
        long.sort_by_key(|tier| tier.above);
    } else if let Some(over) = cost.field("context_over_200k").present() {
        over.object()?;
        long.push(LongContext { above: OVER_200K, prices: prices(&over)? });
    }
    Ok(PriceList { usual: prices(cost)?, long, ..PriceList::default() })
}

fn prices(cost: &At<'_>) -> Result<Prices, CatalogueError> {
    let price = |class| cost.field(class).price();
    Ok(Prices {
        input: price("input")?,
        output: price("output")?,
        cache_read: price("cache_read")?,
        cache_write: price("cache_write")?,
        reasoning: price("reasoning")?,
        ..Prices::default()
    })
}

#[cfg(test)]
mod tests {
    use rust_decimal::Decimal;
    use serde_json::json;

    use super::*;

    fn model(change: impl FnOnce(&mut Value)) -> Value {
        let mut model = json!({
            "id": "m-1",
            "reasoning": true,
            "reasoning_options": [
                {"type": "toggle"},
                {"type": "effort", "values": ["none", "low", "xhigh", "extreme", null]},
                {"type": "budget_tokens", "min": 128, "max": 4096},
            ],
            "interleaved": {"field": "reasoning_content"},
            "temperature": false,
            "modalities": {"input": ["text", "image", "video"], "output": ["text"]},
            "limit": {"context": 1000, "input": 800, "output": 100},
            "cost": {"input": 0.1, "output": 2, "cache_read": 3e-7, "tiers": [
                {"tier": {"type": "context", "size": 500}, "input": 4, "output": 5},
                {"tier": {"size": 200}, "input": 2, "output": 3},
            ]},
        });
        change(&mut model);
        json!({"acme": {"id": "acme", "env": ["ACME_KEY"], "models": {"m.1": model}}})
    }

    fn facts_of(change: impl FnOnce(&mut Value)) -> ModelFacts {
        let mut all = read(&model(change)).unwrap();
        all.remove(&ModelRef::new("acme", "m.1")).unwrap()
    }

    fn price(text: &str) -> Option<Decimal> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn a_model_is_read_exactly() {
        let facts = facts_of(|_| {});
        assert_eq!((facts.context, facts.input, facts.output), (1_000, Some(800), 100));
        assert!(facts.reasoning && !facts.rules.prefill && !facts.rules.responses);
        assert_eq!(facts.rules.sampling, Sampling::Never);
        assert_eq!(facts.modalities, Modalities { image: true, pdf: false });
        let budget = Some(BudgetRange { min: 128, max: Some(4_096) });
        let form = ReasoningForm { efforts: vec![Effort::None, Effort::Low, Effort::Xhigh], budget };
        assert_eq!(facts.reasoning_form, Some(form));
        assert_eq!(facts.reasoning_field, Some(ReasoningField::ReasoningContent));
        let prices = facts.prices.usual;
        assert_eq!((prices.input, prices.output), (price("0.1"), price("2")));
        assert_eq!((prices.cache_read, prices.cache_write), (price("0.0000003"), None));
        let thresholds: Vec<u64> = facts.prices.long.iter().map(|tier| tier.above).collect();
        assert_eq!(thresholds, [200, 500]);
        assert_eq!(facts.prices.at(501).input, price("4"));
    }

    #[test]
    fn what_is_not_told_is_unknown_and_not_nothing() {
        let facts = facts_of(|model| *model = json!({"limit": {"context": 10, "output": 5}, "cost": null}));
        assert_eq!(facts.prices, PriceList::default());
        assert!(facts.rules == RequestRules::default() && !facts.reasoning);
        let strange = facts_of(|model| model["cost"]["tiers"][0]["tier"]["type"] = "daytime".into());
        assert_eq!(strange.prices, PriceList::default(), "a threshold that nobody can apply");
    }

    #[test]
    fn the_older_form_of_long_requests_is_read() {
        let older = json!({"input": 1, "output": 2, "context_over_200k": {"input": 3, "output": 4}});
        let facts = facts_of(|model| model["cost"] = older);
        assert_eq!(facts.prices.at(200_001).input, price("3"));
    }

    #[test]
    fn a_model_that_cannot_be_told_how_much_to_think_is_no_unknown_one() {
        assert_eq!(facts_of(|model| model["reasoning_options"] = json!(null)).reasoning_form, None);
        let none = facts_of(|model| model["reasoning_options"] = json!([{"type": "toggle"}]));
        assert_eq!(none.reasoning_form, Some(ReasoningForm::default()));
        let odd =
            json!([{"type": "budget_tokens", "min": -1, "max": 7}, {"type": "effort"}, {"type": "mood"}]);
        let odd = facts_of(|model| model["reasoning_options"] = odd).reasoning_form.unwrap();
        assert_eq!((odd.efforts.len(), odd.budget), (0, Some(BudgetRange { min: 0, max: Some(7) })));
        assert_eq!(facts_of(|model| model["interleaved"] = json!(true)).reasoning_field, None);
    }

    #[test]
    fn a_model_without_text_or_room_is_none_to_converse_with() {
        assert!(facts_of(|_| {}).converses());
        let images = facts_of(|model| model["modalities"]["output"] = json!(["image"]));
        assert!(!images.text && !images.converses());
        assert!(facts_of(|model| model["modalities"]["output"] = json!(["image", "text"])).converses());
        assert!(!facts_of(|model| model["limit"]["output"] = json!(0)).converses());
    }

    #[test]
    fn models_of_the_responses_wire_are_known() {
        assert!(facts_of(|model| model["provider"] = json!({"shape": "responses"})).rules.responses);
        let mut all = model(|_| {});
        let models = all["acme"]["models"].take();
        let text = json!({"openai": {"models": {"gpt-5-codex": models["m.1"], "gpt-5": models["m.1"]}}});
        let all = read(&text).unwrap();
        let responses: Vec<bool> = all.values().map(|facts| facts.rules.responses).collect();
        assert_eq!(responses, [false, true]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let error = |value: Value| read(&value).unwrap_err().to_string();
        let set = |pointer: &str, value: Value| {
            let mut all = model(|_| {});
            *all.pointer_mut(&format!("/acme/models/m.1{pointer}")).unwrap() = value;
            error(all)
        };
        let path = "acme.models.\"m.1\"";
        for (found, expected) in [
            (error(json!([])), "the catalogue: is a list, expected an object".to_owned()),
            (error(json!({})), "the catalogue: there is no model in it".to_owned()),
            (error(json!({"a": 1})), "a.models: is missing".to_owned()),
            (error(json!({"a": {"models": 1}})), "a.models: is the number 1, expected an object".to_owned()),
            (error(json!({"a/b": {}})), "\"a/b\": the name of a provider cannot hold a slash".to_owned()),
            (set("", json!("x")), format!("{path}: is text, expected an object")),
            (set("/limit", json!(null)), format!("{path}.limit: is missing")),
            (
                set("/limit/context", json!("1000")),
                format!("{path}.limit.context: is text, expected a whole number from 0"),
            ),
            (
                set("/limit/output", json!(-1)),
                format!("{path}.limit.output: is the number -1, expected a whole number from 0"),
            ),
            (
                set("/cost/input", json!(-0.5)),
                format!("{path}.cost.input: is the number -0.5, expected a number from 0"),
            ),
            (
                set("/cost/tiers/1/tier/size", json!("big")),
                format!("{path}.cost.tiers[1].tier.size: is text, expected a whole number from 0"),
            ),
            (
                set("/modalities/input", json!(["text", 1])),
                format!("{path}.modalities.input: is a list, expected a list of texts"),
            ),
            (
                set("/reasoning_options", json!({})),
                format!("{path}.reasoning_options: is an object, expected a list"),
            ),
            (
                set("/reasoning_options/2/min", json!("1")),
                format!("{path}.reasoning_options[2].min: is text, expected a number"),
            ),
            (set("/reasoning", json!("yes")), format!("{path}.reasoning: is text, expected true or false")),
        ] {
            assert_eq!(found, expected);
        }
        let named = |name: &str| error(json!({"a": {"models": {name: {}}}}));
        assert!(named("").starts_with("a.models.\"\": a name must"));
        assert!(named("\u{1b}[2J").starts_with("a.models.\"\\u{1b}[2J\": a name must"));
    }
}

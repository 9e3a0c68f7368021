//! Reads a catalogue in the format of models.dev: an object of providers by name, each with its `models` by name.

use std::collections::BTreeMap;

use playhouse_protocol::capability::{
    BudgetRange, Effort, Modalities, ReasoningField, ReasoningForm, RequestRules, Sampling,
};
use playhouse_protocol::usage::LongContext;
use playhouse_protocol::{ModelRef, PriceList, Prices};
use rust_decimal::Decimal;
use serde_json::{Map, Value};

use crate::error::CatalogueError;
use crate::facts::ModelFacts;

/// The threshold of `context_over_200k`, the older form of `tiers`.
const OVER_200K: u64 = 200_000;

/// Reads all models. What has no price stays unknown; keys that are not known are passed over.
pub(crate) fn read(json: &str) -> Result<BTreeMap<ModelRef, ModelFacts>, CatalogueError> {
    let root: Value = serde_json::from_str(json).map_err(|error| CatalogueError::Json(error.to_string()))?;
    let root = At::root(&root);
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
    let responses = shape == Some("responses") || (provider == "openai" && answers_on_responses(model));
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
        rules: RequestRules { sampling, responses, chat: !responses, ..RequestRules::default() },
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
        let option = At { value: Some(value), path: format!("{}[{index}]", at.path) };
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

/// The format does not say it of OpenAI's own models; their names do.
fn answers_on_responses(model: &str) -> bool {
    model.ends_with("-pro") || model.contains("codex") || model.contains("deep-research")
}

/// The prices, and those of long requests. Thresholds of a kind that is not known make the prices unknown: they would be
/// wrong for some requests, and nobody could tell which.
fn costs(cost: &At<'_>) -> Result<PriceList, CatalogueError> {
    cost.object()?;
    let mut long = Vec::new();
    let tiers = cost.field("tiers");
    if let Some(list) = tiers.optional("a list", Value::as_array)? {
        for (index, value) in list.iter().enumerate() {
            let tier = At { value: Some(value), path: format!("{}[{index}]", tiers.path) };
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

/// Names go to terminals and into requests.
fn check_name(at: &At<'_>, name: &str) -> Result<(), CatalogueError> {
    if name.is_empty() || name.len() > 256 || name.contains(char::is_control) {
        return Err(at.wrong("a name must have 1 to 256 bytes and no control characters"));
    }
    Ok(())
}

/// A value, or the absence of one, and where it is.
struct At<'a> {
    /// `None` where there is nothing, or `null`.
    value: Option<&'a Value>,
    path: String,
}

impl<'a> At<'a> {
    fn root(value: &'a Value) -> Self {
        Self { value: Some(value), path: String::new() }
    }

    /// The value called `name` of an object; nothing for whatever has no fields.
    fn field(&self, name: &str) -> Self {
        let value = self.value.and_then(|value| value.get(name)).filter(|value| !value.is_null());
        let dot = if self.path.is_empty() { "" } else { "." };
        Self { value, path: format!("{}{dot}{}", self.path, shown(name)) }
    }

    /// The same, where it is there.
    fn present(self) -> Option<Self> {
        self.value.is_some().then_some(self)
    }

    fn wrong(&self, message: impl Into<String>) -> CatalogueError {
        let path = if self.path.is_empty() { "the catalogue" } else { &self.path };
        CatalogueError::Value { path: path.to_owned(), message: message.into() }
    }

    /// What `read` makes of the value, which must be there.
    fn read<T>(
        &self,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<T, CatalogueError> {
        let value = self.value.ok_or_else(|| self.wrong("is missing"))?;
        read(value).ok_or_else(|| self.wrong(format!("is {}, expected {expected}", found(value))))
    }

    /// The same, for a value that may be absent.
    fn optional<T>(
        &self,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, CatalogueError> {
        self.value.map(|_| self.read(expected, read)).transpose()
    }

    fn object(&self) -> Result<&'a Map<String, Value>, CatalogueError> {
        self.read("an object", Value::as_object)
    }

    fn whole(&self) -> Result<u64, CatalogueError> {
        self.read("a whole number from 0", Value::as_u64)
    }

    fn boolean(&self) -> Result<Option<bool>, CatalogueError> {
        self.optional("true or false", Value::as_bool)
    }

    fn text(&self) -> Result<Option<&'a str>, CatalogueError> {
        self.optional("text", Value::as_str)
    }

    fn price(&self) -> Result<Option<Decimal>, CatalogueError> {
        self.optional("a number from 0", |value| {
            let text = value.as_number()?.to_string();
            let price = text.parse().or_else(|_| Decimal::from_scientific(&text)).ok()?;
            (price >= Decimal::ZERO).then_some(price)
        })
    }
}

/// A name as it stands in a path: quoted where it holds more than letters, digits, `-` and `_`.
fn shown(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.is_empty() && name.chars().all(bare) {
        return name.to_owned();
    }
    let short: String = name.chars().take(128).collect();
    format!("\"{}\"", short.escape_debug())
}

/// What a value is, for people.
fn found(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(_) => "text".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
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
        let mut all = read(&model(change).to_string()).unwrap();
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
        let text = json!({"openai": {"models": {"gpt-9-codex": models["m.1"], "gpt-9": models["m.1"]}}});
        let all = read(&text.to_string()).unwrap();
        let responses: Vec<bool> = all.values().map(|facts| facts.rules.responses).collect();
        assert_eq!(responses, [false, true]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let error = |value: Value| read(&value.to_string()).unwrap_err().to_string();
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
        let cut = read("{\"a\": ").unwrap_err().to_string();
        assert!(cut.starts_with("not JSON: ") && cut.contains("line 1"), "{cut}");
        assert!(read(&"[".repeat(100_000)).is_err());
    }
}

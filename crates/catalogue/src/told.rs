//! What providers tell of their own models: the answers of Anthropic's and OpenAI's `GET /v1/models`.

use std::collections::BTreeMap;

use playhouse_protocol::Day;
use playhouse_protocol::capability::{BudgetRange, Effort, ReasoningForm, Thinking};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::at::{At, check_name};
use crate::error::CatalogueError;
use crate::facts::ModelFacts;

/// The models of one provider as it lists them, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing(pub(crate) BTreeMap<String, Told>);

/// What a provider tells of one of its models. Absent parts are not told.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Told {
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<u64>,
    /// How it thinks; `None` where that is not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<ToldThinking>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pdf: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<ToldEnd>,
}

/// How a model thinks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct ToldThinking {
    supported: bool,
    /// Whether it takes budgets.
    budgets: bool,
    /// Whether thinking can be turned off, where that is told.
    off: Option<bool>,
    /// The levels that it takes.
    efforts: Vec<Effort>,
}

/// When a model ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToldEnd {
    /// No end is announced, or it has passed and the model is still served.
    Open,
    /// On this day.
    On(Day),
}

impl Listing {
    /// Reads the answer of a provider on the day `today`.
    ///
    /// # Errors
    /// It is not JSON, has no list `data`, or a value in it is not what it should be: the error says which.
    ///
    /// ```
    /// use playhouse_catalogue::{Catalogue, Listing};
    /// let answer = r#"{"data": [{"id": "claude-opus-6", "max_input_tokens": 2000000, "lifecycle": "active"}]}"#;
    /// let listing = Listing::read(answer, "2026-11-27".parse().unwrap()).unwrap();
    /// let catalogue = Catalogue::builtin().told("anthropic", listing);
    /// assert_eq!(catalogue.find(&"anthropic/claude-opus-6".parse().unwrap()).unwrap().facts.context, 2_000_000);
    /// ```
    pub fn read(text: &str, today: Day) -> Result<Self, CatalogueError> {
        let root: Value =
            serde_json::from_str(text).map_err(|error| CatalogueError::Json(error.to_string()))?;
        let list = At::root(&root).field("data");
        let models = list.read("a list of models", Value::as_array)?;
        let mut listing = BTreeMap::new();
        for (index, value) in models.iter().enumerate() {
            let at = list.item(index, value);
            let id = at.field("id").read("a text", Value::as_str)?;
            check_name(&at.field("id"), id)?;
            listing.insert(id.to_owned(), Told::read(&at, today)?);
        }
        Ok(Self(listing))
    }

    /// Whether the provider lists the model.
    pub fn has(&self, model: &str) -> bool {
        self.0.contains_key(model)
    }

    /// How many models it lists.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it lists none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Told {
    fn read(at: &At<'_>, today: Day) -> Result<Self, CatalogueError> {
        let tokens = |name: &str| at.field(name).optional("a number of tokens", Value::as_u64);
        let capabilities = at.field("capabilities");
        let supports = |name: &str| supported(&capabilities.field(name));
        Ok(Self {
            context: tokens("max_input_tokens")?.filter(|tokens| *tokens > 0),
            output: tokens("max_tokens")?.filter(|tokens| *tokens > 0),
            thinking: ToldThinking::read(&capabilities),
            image: supports("image_input"),
            pdf: supports("pdf_input"),
            end: ToldEnd::read(at, today)?,
        })
    }

    /// Whether nothing is told.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Takes what is told over into what is known.
    pub(crate) fn apply(&self, facts: &mut ModelFacts) {
        if let Some(context) = self.context {
            facts.context = context;
            facts.input = facts.input.filter(|input| *input < context);
        }
        facts.output = self.output.unwrap_or(facts.output).min(facts.context);
        facts.modalities.image = self.image.unwrap_or(facts.modalities.image);
        facts.modalities.pdf = self.pdf.unwrap_or(facts.modalities.pdf);
        match &self.end {
            None => {}
            Some(ToldEnd::Open) => facts.ends = None,
            Some(ToldEnd::On(day)) => facts.ends = Some(*day),
        }
        let Some(thinking) = &self.thinking else { return };
        facts.reasoning = thinking.supported;
        if !thinking.supported {
            facts.reasoning_form = None;
            facts.rules.thinking = Thinking::OnRequest;
            return;
        }
        let form = facts.reasoning_form.get_or_insert_default();
        form.efforts.clone_from(&thinking.efforts);
        form.budget = match (thinking.budgets, form.budget) {
            (true, None) => Some(BudgetRange { min: LEAST_BUDGET, max: None }),
            (true, known) => known,
            (false, _) => None,
        };
        facts.rules.thinking = match (thinking.off, facts.rules.thinking) {
            (Some(false), _) => Thinking::Always,
            (Some(true), Thinking::Always) => Thinking::ByDefault,
            (_, known) => known,
        };
        if form.efforts.is_empty() && form.budget.is_none() {
            facts.reasoning_form = Some(ReasoningForm::default());
        }
    }
}

/// The least budget of thinking that Anthropic takes, in tokens.
const LEAST_BUDGET: u64 = 1_024;

impl ToldThinking {
    fn read(capabilities: &At<'_>) -> Option<Self> {
        let thinking = capabilities.field("thinking");
        let supported = self::supported(&thinking)?;
        let types = thinking.field("types");
        let has = |name: &str| self::supported(&types.field(name)).unwrap_or(false);
        let effort = capabilities.field("effort");
        let levels = Effort::ALL.into_iter().filter(|level| *level != Effort::None);
        let efforts = levels.filter(|level| self::supported(&effort.field(level.name())).unwrap_or(false));
        let off = self::supported(&types.field("disabled"));
        Some(Self { supported, budgets: has("enabled"), off, efforts: efforts.collect() })
    }
}

impl ToldEnd {
    fn read(at: &At<'_>, today: Day) -> Result<Option<Self>, CatalogueError> {
        let day = |name: &str| {
            at.field(name).optional("a day as 2026-11-30", |value| {
                value.as_str().and_then(|text| text.get(..10)).and_then(|day| day.parse::<Day>().ok())
            })
        };
        if let Some(day) = day("shutdown_date")? {
            return Ok(Some(Self::On(day)));
        }
        let Some(lifecycle) = at.field("lifecycle").optional("a text", Value::as_str)? else {
            return Ok(None);
        };
        let retires = day("retires_at")?;
        Ok(Some(match (lifecycle, retires) {
            ("retired", on) => Self::On(on.unwrap_or(today).min(today)),
            // One that has passed is overdue, not over.
            (_, Some(on)) if on > today => Self::On(on),
            _ => Self::Open,
        }))
    }
}

/// Whether a capability is supported: told as `{"supported": true}` or `true`.
fn supported(at: &At<'_>) -> Option<bool> {
    let read = |at: &At<'_>| at.optional("true or false", Value::as_bool).ok().flatten();
    read(&at.field("supported")).or_else(|| read(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Catalogue;

    fn day(text: &str) -> Day {
        text.parse().unwrap()
    }

    const ANTHROPIC: &str = r#"{"data": [
        {"id": "claude-opus-6", "type": "model", "display_name": "Claude Opus 6", "lifecycle": "active",
         "max_input_tokens": 2000000, "max_tokens": 256000, "retires_at": null, "capabilities": {
            "image_input": {"supported": true}, "pdf_input": {"supported": false},
            "effort": {"supported": true, "low": {"supported": true}, "medium": {"supported": true},
                "high": {"supported": true}, "max": {"supported": true}, "xhigh": {"supported": false}},
            "thinking": {"supported": true, "types": {"adaptive": {"supported": true},
                "disabled": {"supported": false}, "enabled": {"supported": false}}}}},
        {"id": "claude-sonnet-4-5", "lifecycle": "deprecated", "retires_at": "2026-12-15T00:00:00Z"},
        {"id": "claude-opus-4-5", "lifecycle": "deprecated", "retires_at": "2026-11-01T00:00:00Z"},
        {"id": "claude-fable-5", "lifecycle": "retired", "retires_at": "2026-08-05T00:00:00Z"},
        {"id": "claude-haiku-4-5", "lifecycle": "active"}
    ], "has_more": false}"#;

    #[test]
    fn limits_capabilities_and_ends_are_taken_and_prices_are_not() {
        let today = day("2026-11-27");
        let told = Catalogue::builtin().told("anthropic", Listing::read(ANTHROPIC, today).unwrap());
        for catalogue in [told.clone(), Catalogue::from_kept(&told.keep()).unwrap()] {
            let of =
                |name: &str| catalogue.find(&playhouse_protocol::ModelRef::new("anthropic", name)).unwrap();
            let new = of("claude-opus-6").facts.into_owned();
            assert_eq!((new.context, new.output), (2_000_000, 256_000));
            assert!(new.modalities.image && !new.modalities.pdf && new.rules.prefix_check);
            let form = new.reasoning_form.unwrap();
            assert_eq!(form.efforts, [Effort::Low, Effort::Medium, Effort::High, Effort::Max]);
            assert_eq!((form.budget, new.rules.thinking), (None, Thinking::Always));
            assert_eq!(new.prices.usual.input, None, "it is unpriced");
            assert_eq!(of("claude-sonnet-4-5").facts.ends, Some(day("2026-12-15")));
            assert!(of("claude-sonnet-4-5").facts.prices.usual.input.is_some());
            assert_eq!(of("claude-opus-4-5").facts.ends, None, "its end is overdue");
            assert_eq!(of("claude-fable-5").facts.ends, Some(day("2026-08-05")));
            let sonnet = playhouse_protocol::ModelRef::new("anthropic", "claude-sonnet-4-5");
            assert_eq!(catalogue.source(&sonnet), Some(crate::Source::Builtin), "its prices are");
        }
    }

    #[test]
    fn what_openai_tells_is_when_a_model_ends() {
        let list = r#"{"object": "list", "data": [
            {"id": "gpt-6-luna", "object": "model", "created": 1, "owned_by": "openai", "shutdown_date": "2027-02-01"},
            {"id": "gpt-5.5", "object": "model", "created": 1, "owned_by": "openai"},
            {"id": "whisper-2", "object": "model", "created": 1, "owned_by": "openai", "shutdown_date": "2027-02-01"}
        ]}"#;
        let listing = Listing::read(list, day("2026-11-27")).unwrap();
        assert!(listing.has("gpt-5.5") && listing.len() == 3);
        let catalogue = Catalogue::builtin().told("openai", listing);
        let ends = |name: &str| catalogue.get(&playhouse_protocol::ModelRef::new("openai", name))?.ends;
        assert_eq!(ends("gpt-6-luna"), Some(day("2027-02-01")));
        assert_eq!(ends("gpt-5.5"), None);
        assert_eq!(catalogue.models("openai").filter(|(name, _)| *name == "whisper-2").count(), 0);
    }

    #[test]
    fn what_is_not_a_listing_is_refused() {
        let error = |text: &str| Listing::read(text, day("2026-11-27")).unwrap_err().to_string();
        assert!(error("<html>").starts_with("not JSON"));
        assert_eq!(error("{}"), "data: is missing");
        assert_eq!(error(r#"{"data": [{"id": 3}]}"#), "data[0].id: is the number 3, expected a text");
        assert_eq!(
            error(r#"{"data": [{"id": "a", "shutdown_date": "soon"}]}"#),
            "data[0].shutdown_date: is text, expected a day as 2026-11-30"
        );
    }
}

//! What an answer reports of what it used: usage objects in every wire format, with all that providers put into them.

use playhouse_protocol::Tokens;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::wire::{Dialect, Ending, Wire};

/// How an answer reports its usage, where that is more than its counts, once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reports {
    /// Calls inside of the answer, each listed with counts of its own (`iterations`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<InnerCall>,
    /// The service tier that the answer says it got: `service_tier`, in Gemini's format `trafficType`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// The speed (`speed`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<String>,
    /// The region (`inference_geo`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// What is reported at the end of a stream, in order; nothing for the counts, once. Where there is something, nothing is
    /// reported earlier. Answers in one piece, and those in the Responses format, report the counts only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub told: Vec<Told>,
    /// The usage object as it is, in place of the one that the counts make: they say what it means. Nothing is reported
    /// earlier in the stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<Map<String, Value>>,
}

/// A call inside of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InnerCall {
    /// Its kind: `message`, whose counts are part of the answer's, `compaction`, `advisor_message`, `fallback_message`.
    pub kind: String,
    /// The model, where that is not the one that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What it used, in exclusive classes. Those that the format lacks are in others.
    pub tokens: Tokens,
}

/// One report of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// The counts.
    Counts,
    /// Half of each.
    Half,
    /// The same sums of input and output, without what is cached and what is reasoning.
    Unsplit,
    /// The counts, without a word for how long what was written to the cache is kept.
    NoLifetimes,
    /// 0 everywhere.
    Zeros,
    /// Null everywhere.
    Nulls,
}

/// Members that say for how long something is kept in a cache.
const LIFETIMES: [&str; 2] = ["cache_creation", "cache_write_tokens_details"];

impl Reports {
    /// Whether usage is reported before the end of a stream, in formats that do.
    pub(crate) fn is_early(&self) -> bool {
        self.told.is_empty() && self.object.is_none()
    }
}

/// The reports at the end of a stream, with the counts that each tells a client; `None` where it takes something back. Empty
/// where nothing is reported.
pub(crate) fn reports(wire: &dyn Wire, ending: &Ending) -> Vec<(Value, Option<Tokens>)> {
    let told: &[Told] = match ending.reports.told.as_slice() {
        [] => &[Told::Counts],
        _ if wire.dialect() == Dialect::OpenaiResponses => &[Told::Counts],
        told => told,
    };
    let told = if ending.is_reported { told } else { &[] };
    told.iter().map(|told| report(wire, ending, *told)).collect()
}

/// The one report of an answer in one piece.
pub(crate) fn whole(wire: &dyn Wire, ending: &Ending) -> Option<(Value, Tokens)> {
    let (object, says) = report(wire, ending, Told::Counts);
    says.filter(|_| ending.is_reported).map(|says| (object, says))
}

fn report(wire: &dyn Wire, ending: &Ending, told: Told) -> (Value, Option<Tokens>) {
    let tokens = wire.reported(ending.tokens);
    let of = |tokens: Tokens| (wire.usage(tokens, tokens.total()), Some(tokens));
    match told {
        Told::Counts => match &ending.reports.object {
            Some(object) => (Value::Object(object.clone()), Some(ending.tokens)),
            None => (counts(wire, ending, tokens), Some(tokens)),
        },
        Told::Half => of(half(tokens)),
        Told::Unsplit => of(Tokens {
            input: tokens.all_input(),
            output: tokens.output + tokens.reasoning,
            ..Tokens::default()
        }),
        Told::NoLifetimes => {
            let mut object = counts(wire, ending, tokens);
            without(&mut object, &LIFETIMES);
            (object, None)
        }
        Told::Zeros => (wire.usage(Tokens::default(), 0), None),
        Told::Nulls => {
            let mut object = counts(wire, ending, tokens);
            nullify(&mut object);
            (object, None)
        }
    }
}

/// The usage object with these counts, calls and ways of service.
fn counts(wire: &dyn Wire, ending: &Ending, tokens: Tokens) -> Value {
    let Reports { calls, tier, speed, region, .. } = &ending.reports;
    let mut object = wire.usage(tokens, ending.total());
    if !calls.is_empty() {
        let calls = calls.iter().map(|call| {
            let tokens = wire.reported(call.tokens);
            let mut object = wire.usage(tokens, tokens.total());
            object["type"] = json!(call.kind);
            if let Some(model) = &call.model {
                object["model"] = json!(model);
            }
            object
        });
        object["iterations"] = calls.collect();
    }
    match (wire.dialect(), tier) {
        (Dialect::Anthropic, Some(tier)) => object["service_tier"] = json!(tier),
        (Dialect::Gemini, Some(tier)) => {
            object["trafficType"] = json!(format!("ON_DEMAND_{}", tier.to_ascii_uppercase()));
        }
        // They name it beside their usage objects.
        _ => {}
    }
    for (name, value) in [("speed", speed), ("inference_geo", region)] {
        if let Some(value) = value {
            object[name] = json!(value);
        }
    }
    object
}

fn half(tokens: Tokens) -> Tokens {
    Tokens {
        input: tokens.input / 2,
        cache_read: tokens.cache_read / 2,
        cache_write_5m: tokens.cache_write_5m / 2,
        cache_write_30m: tokens.cache_write_30m / 2,
        cache_write_1h: tokens.cache_write_1h / 2,
        cache_write_12h: tokens.cache_write_12h / 2,
        output: tokens.output / 2,
        reasoning: tokens.reasoning / 2,
    }
}

/// Takes members of these names away, wherever they are.
fn without(value: &mut Value, names: &[&str]) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| !names.contains(&name.as_str()));
            members.values_mut().for_each(|value| without(value, names));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| without(item, names)),
        _ => {}
    }
}

/// Puts null in place of every number.
fn nullify(value: &mut Value) {
    match value {
        Value::Object(members) => members.values_mut().for_each(nullify),
        Value::Array(items) => items.iter_mut().for_each(nullify),
        Value::Number(_) => *value = Value::Null,
        _ => {}
    }
}

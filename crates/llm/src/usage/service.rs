//! How an answer says that it was served, and what its provider says that it cost.

use std::str::FromStr as _;

use playhouse_protocol::Cost;
use rust_decimal::Decimal;
use serde_json::{Map, Value};

/// Where a usage object names a tier, a speed or a region.
const NAMES: [&str; 5] = ["service_tier", "serviceTier", "speed", "inference_geo", "trafficType"];
/// Names of the usual service.
const USUAL: [&str; 10] = [
    "standard",
    "default",
    "auto",
    "on_demand",
    "global",
    "normal",
    "none",
    "not_available",
    "traffic_type_unspecified",
    "unspecified",
];
/// The longest name.
const LONGEST: usize = 40;
/// xAI counts costs in these.
const TICKS_PER_DOLLAR: Decimal = Decimal::from_parts(0x540b_e400, 2, 0, false, 0);

/// The name of a way of service that is not the usual one.
pub(super) fn unusual(name: &str) -> Option<String> {
    let name = name.trim().to_ascii_lowercase();
    // Gemini's kinds of traffic that is not paid in advance.
    let name = name.strip_prefix("on_demand_").unwrap_or(&name);
    let fits = name.len() <= LONGEST
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    (fits && !name.is_empty() && !USUAL.contains(&name)).then(|| name.to_owned())
}

/// The ways of service that a usage object names.
pub(super) fn of(raw: &Map<String, Value>) -> impl Iterator<Item = String> {
    NAMES.iter().filter_map(|name| unusual(raw.get(*name)?.as_str()?))
}

/// What the provider says that the answer cost.
pub(super) fn cost(raw: &Map<String, Value>) -> Option<Cost> {
    let own = match raw.get("cost") {
        Some(Value::Object(parts)) => parts.get("total_cost").and_then(dollars),
        cost => cost.and_then(dollars),
    };
    if let Some(ticks) = raw.get("cost_in_usd_ticks").and_then(dollars) {
        return own.or_else(|| ticks.checked_div(TICKS_PER_DOLLAR)).map(Cost);
    }
    // With a key of the operator's own, a router's part is beside what the provider takes.
    let is_own_key = raw.get("is_byok").and_then(Value::as_bool) == Some(true);
    let upstream = raw.get("cost_details").and_then(|details| details.get("upstream_inference_cost"));
    let upstream = upstream.filter(|_| is_own_key).and_then(dollars);
    let named =
        || ["response_cost", "total_cost", "estimated_cost"].iter().find_map(|name| dollars(raw.get(*name)?));
    let own = own.or_else(named)?;
    own.checked_add(upstream.unwrap_or_default()).map(|cost| Cost(cost).normalized())
}

/// An amount of dollars, as a number or as text.
fn dollars(value: &Value) -> Option<Decimal> {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => return None,
    };
    let amount = Decimal::from_str(&text).or_else(|_| Decimal::from_scientific(&text)).ok()?;
    (!amount.is_sign_negative()).then_some(amount)
}

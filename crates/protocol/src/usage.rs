//! Token counts and costs; prices are in [`crate::price`].
//!
//! Counts are *exclusive*: a token is in exactly one class, whatever the provider's own convention is. Money is decimal
//! US dollars, exact, and rounded only where it is shown.

use std::borrow::Cow;
use std::ops::{Add, AddAssign};

use rust_decimal::Decimal;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::price::{LongContext, OffPeak, PriceList, Prices, Rated};

/// Counts of tokens by class. Each token is in one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Tokens {
    /// Input that was neither read from nor written to a prompt cache.
    pub input: u64,
    /// Input that was read from a prompt cache.
    pub cache_read: u64,
    /// Input that was written to a cache that keeps it for five minutes (or for the provider's usual time).
    pub cache_write_5m: u64,
    /// Input that was written to a cache that keeps it for 30 minutes.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub cache_write_30m: u64,
    /// Input that was written to a cache that keeps it for an hour.
    pub cache_write_1h: u64,
    /// Input that was written to a cache that keeps it for twelve hours.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub cache_write_12h: u64,
    /// Output without reasoning, where the wire tells them apart.
    pub output: u64,
    /// Output that is reasoning.
    pub reasoning: u64,
}

impl Tokens {
    /// All tokens.
    pub fn total(&self) -> u64 {
        self.all_input().saturating_add(self.all_output())
    }

    /// All input, cached or not.
    pub fn all_input(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_writes())
    }

    /// All output, reasoning included.
    pub fn all_output(&self) -> u64 {
        self.output.saturating_add(self.reasoning)
    }

    /// Input written to caches of every lifetime.
    pub fn cache_writes(&self) -> u64 {
        [self.cache_write_5m, self.cache_write_30m, self.cache_write_1h, self.cache_write_12h]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

impl AddAssign for Tokens {
    /// Counts that a server made up must not end the engine: they end at the largest number.
    fn add_assign(&mut self, other: Self) {
        self.input = self.input.saturating_add(other.input);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_write_5m = self.cache_write_5m.saturating_add(other.cache_write_5m);
        self.cache_write_30m = self.cache_write_30m.saturating_add(other.cache_write_30m);
        self.cache_write_1h = self.cache_write_1h.saturating_add(other.cache_write_1h);
        self.cache_write_12h = self.cache_write_12h.saturating_add(other.cache_write_12h);
        self.output = self.output.saturating_add(other.output);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
    }
}

impl Add for Tokens {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

/// How far a usage record can be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quality {
    /// The provider reported it in full.
    #[default]
    Reported,
    /// The answer was cut: what was reported up to there, and an estimate of the rest.
    Estimated,
    /// The provider's own total does not match the sum of its classes; `raw` holds its figures.
    Unreconciled,
}

/// The usage of one attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Exclusive token counts.
    pub tokens: Tokens,
    /// How far they can be trusted.
    #[serde(default)]
    pub quality: Quality,
    /// The provider's own usage object, as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<Value>,
    /// How the answer says that it was served, where that is not the usual way: tier, speed, region. Names of factors of
    /// a [`PriceList`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub served: Vec<String>,
    /// What the provider says that the answer cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_cost: Option<Cost>,
    /// Calls inside of the answer that bill at models of their own. Not part of `tokens`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inner: Vec<InnerUsage>,
}

/// What a call inside of an answer used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InnerUsage {
    /// The model, as the provider names it; empty for the one that was asked. Its calls are priced each by itself and become
    /// part of its row.
    pub model: String,
    /// Exclusive token counts.
    pub tokens: Tokens,
    /// Whether it gave the answer, in place of the model that was asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub answers: bool,
}

/// An exact amount of US dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cost(pub Decimal);

impl Cost {
    /// Nothing.
    pub const ZERO: Self = Self(Decimal::ZERO);

    /// The same amount without zeros at the end: equal amounts are written the same.
    #[must_use]
    pub fn normalized(self) -> Self {
        Self(self.0.normalize())
    }

    /// Rounded to so many decimals; an amount that would be nothing then keeps two digits that are not 0.
    pub fn rounded(self, decimals: u32) -> Decimal {
        let rounded = self.0.round_dp(decimals);
        if rounded.is_zero() { self.0.round_sf(2).unwrap_or(self.0).normalize() } else { rounded }
    }
}

impl JsonSchema for Cost {
    fn schema_name() -> Cow<'static, str> {
        "Cost".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": r"^-?[0-9]+(\.[0-9]+)?$",
            "description": "US dollars, exact.",
        })
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }
}

impl std::fmt::Display for Cost {
    /// Rounded to a hundredth of a cent, and what is less to two digits: `$0.0123`, `$0.0000071`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rounded = self.rounded(4);
        match rounded.scale() {
            0..=4 => write!(f, "${rounded:.4}"),
            _ => write!(f, "${rounded}"),
        }
    }
}

/// A sum over attempts. `cost` adds up what is known; `unpriced` counts the attempts whose cost is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Totals {
    /// Tokens of all attempts.
    pub tokens: Tokens,
    /// Cost of the attempts that have a known cost.
    pub cost: Cost,
    /// Attempts that used or may have used tokens.
    pub attempts: u64,
    /// Attempts whose usage is an estimate.
    pub estimated: u64,
    /// Attempts whose cost is unknown.
    pub unpriced: u64,
}

impl Totals {
    /// Adds one attempt.
    pub fn add_attempt(&mut self, usage: &Usage, cost: Option<Cost>) {
        *self += Self {
            tokens: usage.tokens,
            cost: cost.unwrap_or_default(),
            attempts: 1,
            estimated: u64::from(usage.quality == Quality::Estimated),
            unpriced: u64::from(cost.is_none()),
        };
    }

    /// The cost, where that of every attempt is known.
    pub fn known_cost(&self) -> Option<Cost> {
        (self.unpriced == 0).then_some(self.cost)
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.cost += other.cost;
        self.attempts = self.attempts.saturating_add(other.attempts);
        self.estimated = self.estimated.saturating_add(other.estimated);
        self.unpriced = self.unpriced.saturating_add(other.unpriced);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_shown_as_nothing_only_where_it_is() {
        for (amount, shown) in [
            ("0", "$0.0000"),
            ("0.00", "$0.0000"),
            ("12", "$12.0000"),
            ("0.01234", "$0.0123"),
            ("0.00012345", "$0.0001"),
            ("0.00005", "$0.00005"),
            ("0.0000100", "$0.00001"),
            ("0.0000000712345", "$0.000000071"),
            ("-0.00000712345", "$-0.0000071"),
            ("0.0000000000000000000000000001", "$0.0000000000000000000000000001"),
        ] {
            assert_eq!(Cost(amount.parse().unwrap()).to_string(), shown, "{amount}");
        }
    }

    #[test]
    fn an_unknown_cost_is_counted_not_taken_for_zero() {
        let mut totals = Totals::default();
        totals.add_attempt(&Usage::default(), Some(Cost(Decimal::ONE)));
        totals.add_attempt(&Usage { quality: Quality::Estimated, ..Usage::default() }, None);
        assert_eq!(totals.known_cost(), None);
        assert_eq!((totals.attempts, totals.estimated, totals.unpriced), (2, 1, 1));
    }
}

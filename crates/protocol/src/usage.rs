//! Token counts, prices and costs.
//!
//! Counts are *exclusive*: a token is in exactly one class, whatever the provider's own convention is. Money is decimal
//! US dollars, exact, and rounded only where it is shown.

use std::ops::{Add, AddAssign};

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Counts of tokens by class. Each token is in one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tokens {
    /// Input that was neither read from nor written to a prompt cache.
    pub input: u64,
    /// Input that was read from a prompt cache.
    pub cache_read: u64,
    /// Input that was written to a cache that keeps it for five minutes (or for the provider's usual time).
    pub cache_write_5m: u64,
    /// Input that was written to a cache that keeps it for an hour.
    pub cache_write_1h: u64,
    /// Output without reasoning, where the wire tells them apart.
    pub output: u64,
    /// Output that is reasoning.
    pub reasoning: u64,
}

impl Tokens {
    /// All tokens.
    pub fn total(&self) -> u64 {
        self.all_input().saturating_add(self.output).saturating_add(self.reasoning)
    }

    /// All input, cached or not.
    pub fn all_input(&self) -> u64 {
        let written = self.cache_write_5m.saturating_add(self.cache_write_1h);
        self.input.saturating_add(self.cache_read).saturating_add(written)
    }
}

impl AddAssign for Tokens {
    /// Counts that a server made up must not end the engine: they end at the largest number.
    fn add_assign(&mut self, other: Self) {
        self.input = self.input.saturating_add(other.input);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_write_5m = self.cache_write_5m.saturating_add(other.cache_write_5m);
        self.cache_write_1h = self.cache_write_1h.saturating_add(other.cache_write_1h);
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
}

/// US dollars per million tokens, by class; `None` is unknown, which is not 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Prices {
    /// Uncached input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Decimal>,
    /// Output; also reasoning, where that has no price of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Decimal>,
    /// Input read from the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<Decimal>,
    /// Input written to the five-minute cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<Decimal>,
    /// Input written to the one-hour cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_1h: Option<Decimal>,
    /// Reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Decimal>,
}

impl Prices {
    /// What `tokens` cost. Unknown when a class that has tokens has no price.
    ///
    /// ```
    /// use playhouse_protocol::usage::{Prices, Tokens};
    /// let prices = Prices { input: Some("3".parse().unwrap()), ..Prices::default() };
    /// let cost = prices.cost(&Tokens { input: 1_000, ..Tokens::default() }).unwrap();
    /// assert_eq!(cost.to_string(), "$0.0030");
    /// assert_eq!(prices.cost(&Tokens { output: 1, ..Tokens::default() }), None);
    /// ```
    pub fn cost(&self, tokens: &Tokens) -> Option<Cost> {
        let classes = [
            (tokens.input, self.input),
            (tokens.cache_read, self.cache_read),
            (tokens.cache_write_5m, self.cache_write),
            (tokens.cache_write_1h, self.cache_write_1h),
            (tokens.output, self.output),
            (tokens.reasoning, self.reasoning.or(self.output)),
        ];
        classes.iter().filter(|(count, _)| *count > 0).try_fold(Cost::ZERO, |sum, (count, price)| {
            let millionths = Decimal::from(*count).checked_mul((*price)?)?;
            sum.0.checked_add(millionths.checked_div(Decimal::from(1_000_000))?).map(Cost)
        })
    }
}

/// What a request costs that has more input tokens than a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongContext {
    /// The threshold: these prices hold for more input tokens than this.
    pub above: u64,
    /// The prices, for the whole request.
    pub prices: Prices,
}

/// The prices of a model. Which of them hold is known when a request is over: they depend on the input that it had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PriceList {
    /// The prices of most requests.
    pub usual: Prices,
    /// The prices of long requests, by rising threshold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub long: Vec<LongContext>,
}

impl PriceList {
    /// The prices of a request with `input` input tokens (cached or not).
    pub fn at(&self, input: u64) -> &Prices {
        self.long.iter().rev().find(|tier| input > tier.above).map_or(&self.usual, |tier| &tier.prices)
    }

    /// What a request cost that had these tokens. Unknown when a class that has tokens has no price.
    ///
    /// ```
    /// use playhouse_protocol::usage::{LongContext, PriceList, Prices, Tokens};
    /// let input = |price: &str| Prices { input: Some(price.parse().unwrap()), ..Prices::default() };
    /// let long = vec![LongContext { above: 200_000, prices: input("4") }];
    /// let list = PriceList { usual: input("2"), long };
    /// let cost = |input| list.cost(&Tokens { input, ..Tokens::default() }).unwrap().to_string();
    /// assert_eq!((cost(200_000), cost(300_000)), ("$0.4000".to_owned(), "$1.2000".to_owned()));
    /// ```
    pub fn cost(&self, tokens: &Tokens) -> Option<Cost> {
        self.at(tokens.all_input()).cost(tokens)
    }
}

impl From<Prices> for PriceList {
    /// The same prices for every request.
    fn from(usual: Prices) -> Self {
        Self { usual, long: Vec::new() }
    }
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

    fn price(text: &str) -> Option<Decimal> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn a_cost_is_exact() {
        let prices = Prices {
            input: price("0.075"),
            output: price("0.3"),
            cache_read: price("0.0375"),
            ..Prices::default()
        };
        let tokens = Tokens { input: 1, output: 1, cache_read: 1, reasoning: 1, ..Tokens::default() };
        assert_eq!(prices.cost(&tokens), Some(Cost("0.0000007125".parse().unwrap())));
    }

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
    fn no_tokens_cost_nothing_even_without_prices() {
        assert_eq!(Prices::default().cost(&Tokens::default()), Some(Cost::ZERO));
    }

    #[test]
    fn the_highest_threshold_that_is_passed_counts() {
        let usual = |text: &str| Prices { input: price(text), ..Prices::default() };
        let tier = |above, text| LongContext { above, prices: usual(text) };
        let list = PriceList { usual: usual("1"), long: vec![tier(100, "2"), tier(200, "3")] };
        let at = |input| *list.at(input);
        assert_eq!([at(100), at(101), at(200), at(201)], [usual("1"), usual("2"), usual("2"), usual("3")]);
        let cached = Tokens { input: 50, cache_read: 51, ..Tokens::default() };
        assert_eq!(list.cost(&cached), None, "no price of the cache is known above 100");
    }

    #[test]
    fn counts_near_the_limit_do_not_panic() {
        let tokens = Tokens { input: u64::MAX, ..Tokens::default() };
        let prices = Prices { input: Some(Decimal::MAX), ..Prices::default() };
        assert_eq!(prices.cost(&tokens), None);
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

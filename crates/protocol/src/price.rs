//! Prices of models, and what tokens cost at them.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::Timestamp;
use crate::usage::{Cost, Tokens};

/// US dollars per million tokens, by class. An absent price is unknown, which is not 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Prices {
    /// Uncached input.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Cost>")]
    pub input: Option<Decimal>,
    /// Output; also reasoning, where that has no price of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Cost>")]
    pub output: Option<Decimal>,
    /// Input read from the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Cost>")]
    pub cache_read: Option<Decimal>,
    /// Input written to the five-minute cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Cost>")]
    pub cache_write: Option<Decimal>,
    /// Input written to the 30-minute cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Cost>")]
    pub cache_write_30m: Option<Decimal>,
    /// Input written to the one-hour cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Cost>")]
    pub cache_write_1h: Option<Decimal>,
    /// Input written to the twelve-hour cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Cost>")]
    pub cache_write_12h: Option<Decimal>,
    /// Reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Cost>")]
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
            (tokens.cache_write_30m, self.cache_write_30m),
            (tokens.cache_write_1h, self.cache_write_1h),
            (tokens.cache_write_12h, self.cache_write_12h),
            (tokens.output, self.output),
            (tokens.reasoning, self.reasoning.or(self.output)),
        ];
        classes.iter().filter(|(count, _)| *count > 0).try_fold(Cost::ZERO, |sum, (count, price)| {
            let millionths = Decimal::from(*count).checked_mul((*price)?)?;
            sum.0.checked_add(millionths.checked_div(Decimal::from(1_000_000))?).map(Cost)
        })
    }

    /// Each price that is known, by the name of its class.
    pub fn known(&self) -> impl Iterator<Item = (&'static str, Decimal)> {
        let Self {
            input,
            output,
            cache_read,
            cache_write,
            cache_write_30m,
            cache_write_1h,
            cache_write_12h,
            reasoning,
        } = *self;
        [
            ("input", input),
            ("output", output),
            ("cache_read", cache_read),
            ("cache_write", cache_write),
            ("cache_write_30m", cache_write_30m),
            ("cache_write_1h", cache_write_1h),
            ("cache_write_12h", cache_write_12h),
            ("reasoning", reasoning),
        ]
        .into_iter()
        .filter_map(|(name, price)| Some((name, price?)))
    }
}

/// The prices of requests that have more input tokens than a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LongContext {
    /// The threshold, exclusive: these prices hold for more input tokens than this. A step that begins *at* a number of
    /// tokens has that number less one.
    pub above: u64,
    /// The prices, for the whole request.
    pub prices: Prices,
}

/// The prices of a model. Which of them hold is known when a request is over: they depend on the input that it had, and on
/// how the provider served it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PriceList {
    /// The prices of most requests.
    pub usual: Prices,
    /// The prices of long requests, by rising threshold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub long: Vec<LongContext>,
    /// Factors on all of these prices, by the name of what makes a request cheaper or dearer: a service tier (`batch`,
    /// `flex`, `priority`), a speed (`fast`, `ultrafast`), a region (`us`, `eu`), or [`PriceList::OFF_PEAK`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub multiples: BTreeMap<String, Decimal>,
    /// When the factor [`PriceList::OFF_PEAK`] holds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub off_peak: Vec<OffPeak>,
}

impl PriceList {
    /// The name of the factor of requests that begin in the hours of [`PriceList::off_peak`].
    pub const OFF_PEAK: &'static str = "off_peak";

    /// The names of usual service, which has no factor.
    const USUAL: [&'static str; 5] = ["standard", "default", "auto", "on_demand", "global"];

    /// The prices of a request with `input` input tokens (cached or not).
    pub fn at(&self, input: u64) -> &Prices {
        self.long.iter().rev().find(|tier| input > tier.above).map_or(&self.usual, |tier| &tier.prices)
    }

    /// The cost of a request that had these tokens, in usual service. Unknown when a class that has tokens has no price.
    ///
    /// ```
    /// use playhouse_protocol::usage::{LongContext, PriceList, Prices, Tokens};
    /// let input = |price: &str| Prices { input: Some(price.parse().unwrap()), ..Prices::default() };
    /// let long = vec![LongContext { above: 200_000, prices: input("4") }];
    /// let list = PriceList { usual: input("2"), long, ..PriceList::default() };
    /// let cost = |input| list.cost(&Tokens { input, ..Tokens::default() }).unwrap().to_string();
    /// assert_eq!((cost(200_000), cost(300_000)), ("$0.4000".to_owned(), "$1.2000".to_owned()));
    /// ```
    pub fn cost(&self, tokens: &Tokens) -> Option<Cost> {
        self.at(tokens.all_input()).cost(tokens)
    }

    /// The cost of a request that had these tokens and was `served` in these ways (tier, speed, region, hours): the usual cost
    /// times the factor of each. Unknown also where a factor is.
    ///
    /// ```
    /// use playhouse_protocol::usage::{PriceList, Prices, Tokens};
    /// let usual = Prices { input: Some("2".parse().unwrap()), ..Prices::default() };
    /// let multiples = [("flex".to_owned(), "0.5".parse().unwrap())].into();
    /// let list = PriceList { usual, multiples, ..PriceList::default() };
    /// let tokens = Tokens { input: 1_000_000, ..Tokens::default() };
    /// assert_eq!(list.cost_served(&tokens, &["flex"]).unwrap().to_string(), "$1.0000");
    /// assert_eq!(list.cost_served(&tokens, &["standard"]), list.cost(&tokens));
    /// assert_eq!(list.cost_served(&tokens, &["priority"]), None);
    /// ```
    pub fn cost_served(&self, tokens: &Tokens, served: &[&str]) -> Option<Cost> {
        let factor = |name: &&&str| !Self::USUAL.contains(*name);
        served.iter().filter(factor).try_fold(self.cost(tokens)?, |cost, name| {
            cost.0.checked_mul(*self.multiples.get(*name)?).map(Cost)
        })
    }

    /// Whether a request that begins at `time` has the factor [`PriceList::OFF_PEAK`].
    pub fn is_off_peak(&self, time: Timestamp) -> bool {
        self.off_peak.iter().any(|hours| hours.holds(time))
    }
}

impl From<Prices> for PriceList {
    /// The same prices for every request.
    fn from(usual: Prices) -> Self {
        Self { usual, ..Self::default() }
    }
}

/// Hours of some days of the week, in UTC. Written `1-5 04:00-06:00`: days from Monday (1) to Sunday (7), then from the
/// first minute to the one before the last, `24:00` for the end of the day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OffPeak {
    first_day: u8,
    last_day: u8,
    from: u16,
    until: u16,
}

impl OffPeak {
    /// Whether `time` is in these hours.
    pub fn holds(self, time: Timestamp) -> bool {
        let minutes = time.as_millis() / 60_000;
        // The epoch was a Thursday.
        let (weekday, minute) = ((minutes / 1_440 + 3) % 7 + 1, minutes % 1_440);
        (u64::from(self.first_day)..=u64::from(self.last_day)).contains(&weekday)
            && (u64::from(self.from)..u64::from(self.until)).contains(&minute)
    }
}

impl fmt::Display for OffPeak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
        write!(f, "{}-{} {}-{}", self.first_day, self.last_day, clock(self.from), clock(self.until))
    }
}

impl From<OffPeak> for String {
    fn from(hours: OffPeak) -> Self {
        hours.to_string()
    }
}

impl TryFrom<String> for OffPeak {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for OffPeak {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let minute = |clock: &str| -> Option<u16> {
            let (hour, minute) = clock.split_once(':')?;
            let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
            (hour * 60 + minute <= 1_440 && hour <= 24 && minute < 60).then_some(hour * 60 + minute)
        };
        let read = || -> Option<Self> {
            let (days, hours) = text.split_once(' ')?;
            let ((first_day, last_day), (from, until)) = (days.split_once('-')?, hours.split_once('-')?);
            let (first_day, last_day) = (first_day.parse().ok()?, last_day.parse().ok()?);
            let (from, until) = (minute(from)?, minute(until)?);
            let fits = 1 <= first_day && first_day <= last_day && last_day <= 7 && from < until;
            fits.then_some(Self { first_day, last_day, from, until })
        };
        read().ok_or_else(|| {
            format!("\"{}\" is not a time of the week: write it as in 1-5 04:00-06:00", text.escape_debug())
        })
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
    fn no_tokens_cost_nothing_even_without_prices() {
        assert_eq!(Prices::default().cost(&Tokens::default()), Some(Cost::ZERO));
    }

    #[test]
    fn the_highest_threshold_that_is_passed_counts() {
        let usual = |text: &str| Prices { input: price(text), ..Prices::default() };
        let tier = |above, text| LongContext { above, prices: usual(text) };
        let long = vec![tier(100, "2"), tier(200, "3")];
        let list = PriceList { usual: usual("1"), long, ..PriceList::default() };
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
    fn factors_multiply_and_an_unknown_one_makes_the_cost_unknown() {
        let usual = Prices { input: price("4"), output: price("20"), ..Prices::default() };
        let multiples = [("fast", "2"), ("us", "1.1")];
        let multiples =
            multiples.map(|(name, factor)| (name.to_owned(), factor.parse().unwrap())).into_iter().collect();
        let list = PriceList { usual, multiples, ..PriceList::default() };
        let tokens = Tokens { input: 1_000, output: 500, ..Tokens::default() };
        let cost =
            |served: &[&str]| list.cost_served(&tokens, served).map(|cost| cost.0.normalize().to_string());
        assert_eq!(cost(&[]).unwrap(), "0.014");
        assert_eq!(cost(&["fast", "standard", "us"]).unwrap(), "0.0308");
        assert_eq!(cost(&["fast", "eu"]), None);
    }

    #[test]
    fn each_lifetime_of_a_cache_has_its_price() {
        let prices = Prices {
            cache_write: price("1"),
            cache_write_30m: price("10"),
            cache_write_1h: price("100"),
            cache_write_12h: price("1000"),
            ..Prices::default()
        };
        let tokens = Tokens {
            cache_write_5m: 1_000_000,
            cache_write_30m: 2_000_000,
            cache_write_1h: 3_000_000,
            cache_write_12h: 4_000_000,
            ..Tokens::default()
        };
        assert_eq!(prices.cost(&tokens), Some(Cost(Decimal::from(4_321))));
        assert_eq!((tokens.cache_writes(), tokens.total()), (10_000_000, 10_000_000));
    }

    #[test]
    fn hours_are_those_of_the_week_in_utc() {
        let hours: OffPeak = "1-5 04:00-06:00".parse().unwrap();
        // 2026-11-26 is a Thursday.
        let at = |day: u64, minute: u64| {
            let start = "2026-11-26".parse::<crate::day::Day>().unwrap().0 + day;
            hours.holds(Timestamp::from_millis((start * 1_440 + minute) * 60_000))
        };
        assert_eq!([at(0, 239), at(0, 240), at(0, 359), at(0, 360)], [false, true, true, false]);
        assert_eq!([at(1, 240), at(2, 240), at(3, 240), at(4, 240)], [true, false, false, true]);
        assert_eq!(hours.to_string(), "1-5 04:00-06:00");
        assert_eq!("6-7 00:00-24:00".parse::<OffPeak>().unwrap().to_string(), "6-7 00:00-24:00");
        for wrong in ["", "1-5", "5-1 00:00-01:00", "0-7 00:00-01:00", "1-5 06:00-04:00", "1-5 00:00-24:01"] {
            assert!(wrong.parse::<OffPeak>().is_err(), "{wrong}");
        }
    }
}

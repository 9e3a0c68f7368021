//! Prices of models, and what tokens cost at them.

use std::collections::{BTreeMap, BTreeSet};
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
            (tokens.cache_write_5m, self.cache_write.or(self.cache_write_30m)),
            (tokens.cache_write_30m, self.cache_write_30m.or(self.cache_write)),
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

    /// The classes that have tokens and no price, where one follows from the price of input ([`FALLBACKS`]).
    fn gaps(&self, tokens: &Tokens) -> Vec<String> {
        let missing = |class: &&Fallback| (class.tokens)(tokens) > 0 && self.price_of(class).is_none();
        let gaps = FALLBACKS.iter().filter(missing).map(|class| class.name.to_owned());
        if self.input.is_some() { gaps.collect() } else { Vec::new() }
    }

    /// The classes that may need a price and have none: input and output, hits, and writes for the usual time. Nothing where
    /// input costs nothing, as the rest then does.
    fn missing(&self) -> Vec<&'static str> {
        let (Some(input), Some(_)) = (self.input, self.output) else {
            let [input, output] = [("input", self.input), ("output", self.output)];
            return [input, output]
                .iter()
                .filter(|(_, price)| price.is_none())
                .map(|(name, _)| *name)
                .collect();
        };
        let usual = FALLBACKS.iter().filter(|class| matches!(class.name, "cache_read" | "cache_write"));
        let missing = usual.filter(|class| !input.is_zero() && self.price_of(class).is_none());
        missing.map(|class| class.name).collect()
    }

    /// The price of a class, as [`Prices::cost`] takes it.
    fn price_of(&self, class: &Fallback) -> Option<Decimal> {
        let own = *(class.price)(&mut { *self });
        match class.name {
            "cache_write" => own.or(self.cache_write_30m),
            "cache_write_30m" => own.or(self.cache_write),
            _ => own,
        }
    }

    /// The same prices, and for each of these classes without a price the one that follows from the price of input.
    #[must_use]
    pub fn assuming(mut self, classes: &[String]) -> Self {
        let Some(input) = self.input else { return self };
        for class in FALLBACKS.iter().filter(|class| classes.iter().any(|name| name == class.name)) {
            let price = (class.price)(&mut self);
            *price = price.or_else(|| input.checked_mul(class.factor).map(|price| price.normalize()));
        }
        self
    }

    /// All prices times a factor. A product that cannot be represented makes a price unknown.
    fn times(mut self, factor: Decimal) -> Self {
        let Self { input, output, cache_read, cache_write, cache_write_30m, cache_write_1h, .. } = &mut self;
        for price in [input, output, cache_read, cache_write, cache_write_30m, cache_write_1h] {
            *price = price.and_then(|price| price.checked_mul(factor)).map(|price| price.normalize());
        }
        for price in [&mut self.cache_write_12h, &mut self.reasoning] {
            *price = price.and_then(|price| price.checked_mul(factor)).map(|price| price.normalize());
        }
        self
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

/// A class of tokens of the cache, and what it costs where no price is known.
struct Fallback {
    /// The name of its price.
    name: &'static str,
    tokens: fn(&Tokens) -> u64,
    price: fn(&mut Prices) -> &mut Option<Decimal>,
    /// The price as a multiple of that of input. Not below what providers are known to take.
    factor: Decimal,
}

/// What classes cost that have no price of their own. A hit costs no more than input at any provider; writes cost the
/// multiples of Anthropic (five minutes, an hour) and `OpenAI` (30 minutes, twelve hours).
static FALLBACKS: [Fallback; 5] = [
    Fallback {
        name: "cache_read",
        tokens: |tokens| tokens.cache_read,
        price: |prices| &mut prices.cache_read,
        factor: Decimal::ONE,
    },
    Fallback {
        name: "cache_write",
        tokens: |tokens| tokens.cache_write_5m,
        price: |prices| &mut prices.cache_write,
        factor: Decimal::from_parts(125, 0, 0, false, 2),
    },
    Fallback {
        name: "cache_write_30m",
        tokens: |tokens| tokens.cache_write_30m,
        price: |prices| &mut prices.cache_write_30m,
        factor: Decimal::from_parts(125, 0, 0, false, 2),
    },
    Fallback {
        name: "cache_write_1h",
        tokens: |tokens| tokens.cache_write_1h,
        price: |prices| &mut prices.cache_write_1h,
        factor: Decimal::TWO,
    },
    Fallback {
        name: "cache_write_12h",
        tokens: |tokens| tokens.cache_write_12h,
        price: |prices| &mut prices.cache_write_12h,
        factor: Decimal::from_parts(25, 0, 0, false, 1),
    },
];

/// What one request costs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rated {
    /// The prices that hold for it, with its factors and with those that were assumed.
    pub prices: Prices,
    /// Names of what had no price or no factor, so that one was assumed: classes of tokens, then ways of service.
    pub assumed: Vec<String>,
    /// The cost. Unknown where input or output has tokens and no price.
    pub cost: Option<Cost>,
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
    const USUAL: [&'static str; 8] =
        ["standard", "default", "auto", "on_demand", "global", "not_available", "standard_only", "normal"];

    /// The prices of a request with `input` input tokens (cached or not).
    pub fn at(&self, input: u64) -> &Prices {
        self.long.iter().rev().find(|tier| input > tier.above).map_or(&self.usual, |tier| &tier.prices)
    }

    /// The cost of a request that had these tokens and was `served` in these ways (tier, speed, region).
    ///
    /// - The step that its input reaches holds for all of it.
    /// - A class of the cache without a price costs a multiple of input: hits 1, writes for 5 and 30 minutes 1.25, for an
    ///   hour 2, for twelve hours 2.5. It is named in [`Rated::assumed`], as is a way of service without a factor, which
    ///   counts as 1.
    /// - Reasoning without a price costs what output costs.
    ///
    /// ```
    /// use playhouse_protocol::usage::{LongContext, PriceList, Prices, Tokens};
    /// let prices = |input: &str| Prices { input: Some(input.parse().unwrap()), ..Prices::default() };
    /// let long = vec![LongContext { above: 200_000, prices: prices("4") }];
    /// let multiples = [("flex".to_owned(), "0.5".parse().unwrap())].into();
    /// let list = PriceList { usual: prices("2"), long, multiples, ..PriceList::default() };
    /// let cost = |input, served: &[&str]| {
    ///     let served: Vec<String> = served.iter().map(|name| (*name).to_owned()).collect();
    ///     list.rate(&Tokens { input, ..Tokens::default() }, &served).cost.unwrap().to_string()
    /// };
    /// assert_eq!((cost(200_000, &[]), cost(300_000, &[])), ("$0.4000".to_owned(), "$1.2000".to_owned()));
    /// assert_eq!((cost(200_000, &["flex"]), cost(200_000, &["standard"])), ("$0.2000".to_owned(), "$0.4000".to_owned()));
    ///
    /// let hits = list.rate(&Tokens { cache_read: 1_000_000, ..Tokens::default() }, &[]);
    /// assert_eq!((hits.cost.unwrap().to_string(), hits.assumed), ("$4.0000".to_owned(), vec!["cache_read".to_owned()]));
    /// ```
    pub fn rate(&self, tokens: &Tokens, served: &[String]) -> Rated {
        let held = self.held(tokens.all_input(), served);
        let mut assumed = held.gaps(tokens);
        let prices = held.assuming(&assumed);
        assumed.extend(served.iter().filter(|name| self.factor(name).is_none()).cloned());
        Rated { prices, assumed, cost: prices.cost(tokens) }
    }

    /// The same of an answer with several calls of the model inside, each by its own size. `tokens` are those of all together;
    /// `calls` is empty where there is no other call than the answer. The prices are those of the largest call.
    ///
    /// ```
    /// use playhouse_protocol::usage::{LongContext, PriceList, Prices, Tokens};
    /// let prices = |input: &str| Prices { input: Some(input.parse().unwrap()), ..Prices::default() };
    /// let long = vec![LongContext { above: 200_000, prices: prices("4") }];
    /// let list = PriceList { usual: prices("2"), long, ..PriceList::default() };
    /// let input = |input| Tokens { input, ..Tokens::default() };
    /// let rated = list.rate_calls(&input(250_000), &[input(150_000), input(100_000)], &[]);
    /// assert_eq!(rated.cost.unwrap().to_string(), "$0.5000");
    /// assert_eq!(list.rate_calls(&input(250_000), &[], &[]).cost.unwrap().to_string(), "$1.0000");
    /// ```
    pub fn rate_calls(&self, tokens: &Tokens, calls: &[Tokens], served: &[String]) -> Rated {
        let mut each = calls.iter().map(|call| (call.all_input(), self.rate(call, served)));
        let Some((mut largest, mut all)) = each.next() else { return self.rate(tokens, served) };
        for (size, rated) in each {
            all.cost = all.cost.zip(rated.cost).map(|(mut sum, cost)| {
                sum += cost;
                sum
            });
            all.assumed.extend(rated.assumed);
            if size > largest {
                (largest, all.prices) = (size, rated.prices);
            }
        }
        let mut seen = BTreeSet::new();
        all.assumed.retain(|name| seen.insert(name.clone()));
        all
    }

    /// The prices of a request with `input` input tokens (cached or not) that was `served` in these ways.
    pub fn held(&self, input: u64, served: &[String]) -> Prices {
        let factors = served.iter().filter_map(|name| self.factor(name));
        factors.filter(|factor| *factor != Decimal::ONE).fold(*self.at(input), Prices::times)
    }

    /// The factor of a way of service; `None` where it has none of its own and is not the usual one.
    fn factor(&self, served: &str) -> Option<Decimal> {
        let usual = Self::USUAL.contains(&served).then_some(Decimal::ONE);
        // OpenAI calls its service tier `priority` by this name as well.
        let other = if served == "fast" { self.multiples.get("priority") } else { None };
        self.multiples.get(served).or(other).copied().or(usual)
    }

    /// The classes that may need a price and have none, in each step: see [`PriceList::rate`] for what they cost. `input` and
    /// `output` are among them where a request has no known cost.
    ///
    /// ```
    /// use playhouse_protocol::usage::{LongContext, PriceList, Prices};
    /// let price = |text: &str| Some(text.parse().unwrap());
    /// let two = Prices { input: price("1"), output: price("2"), ..Prices::default() };
    /// let usual = Prices { cache_read: price("0.1"), ..two };
    /// let list = PriceList { usual, long: vec![LongContext { above: 5, prices: two }], ..PriceList::default() };
    /// assert_eq!(list.gaps(), ["cache_write", "cache_read above 5 tokens", "cache_write above 5 tokens"]);
    /// assert_eq!(PriceList::default().gaps(), ["input", "output"]);
    /// ```
    pub fn gaps(&self) -> Vec<String> {
        let usual = self.usual.missing().into_iter().map(str::to_owned);
        let of_step = |step: &LongContext| {
            let above = step.above;
            step.prices.missing().into_iter().map(move |class| format!("{class} above {above} tokens"))
        };
        usual.chain(self.long.iter().flat_map(of_step)).collect()
    }

    /// The prices of requests that are served in this way, such as in a region. One without a factor changes nothing.
    #[must_use]
    pub fn serving(mut self, way: &str) -> Self {
        if let Some(factor) = self.factor(way).filter(|factor| *factor != Decimal::ONE) {
            self.multiply(factor);
        }
        self
    }

    fn multiply(&mut self, factor: Decimal) {
        self.usual = self.usual.times(factor);
        for step in &mut self.long {
            step.prices = step.prices.times(factor);
        }
    }

    /// The prices of a request that begins at `time`: with [`PriceList::OFF_PEAK`] in them, if it holds then.
    #[must_use]
    pub fn beginning(mut self, time: Timestamp) -> Self {
        let holds = self.off_peak.iter().any(|hours| hours.holds(time));
        self.off_peak.clear();
        let factor = self.multiples.remove(Self::OFF_PEAK);
        if let Some(factor) = factor.filter(|_| holds) {
            self.multiply(factor);
        }
        self
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

crate::as_text!(OffPeak);

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
        let rated = list.rate(&cached, &[]);
        assert_eq!(
            (rated.cost.unwrap().0.normalize().to_string(), rated.assumed),
            ("0.000202".to_owned(), names(&["cache_read"]))
        );
    }

    #[test]
    fn counts_near_the_limit_do_not_panic() {
        let tokens = Tokens { input: u64::MAX, ..Tokens::default() };
        let prices = Prices { input: Some(Decimal::MAX), ..Prices::default() };
        assert_eq!(prices.cost(&tokens), None);
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn factors_multiply_and_an_unknown_one_is_named() {
        let usual = Prices { input: price("4"), output: price("20"), ..Prices::default() };
        let multiples = [("priority", "2"), ("us", "1.1")];
        let multiples =
            multiples.map(|(name, factor)| (name.to_owned(), factor.parse().unwrap())).into_iter().collect();
        let list = PriceList { usual, multiples, ..PriceList::default() };
        let tokens = Tokens { input: 1_000, output: 500, ..Tokens::default() };
        let rated = |served: &[&str]| {
            let rated = list.rate(&tokens, &names(served));
            (rated.cost.unwrap().0.normalize().to_string(), rated.assumed)
        };
        assert_eq!(rated(&[]), ("0.014".to_owned(), names(&[])));
        assert_eq!(rated(&["fast", "standard", "us"]), ("0.0308".to_owned(), names(&[])));
        assert_eq!(rated(&["priority", "eu"]), ("0.028".to_owned(), names(&["eu"])));
        assert_eq!(list.held(1_000, &names(&["us"])).input, price("4.4"));
        assert_eq!(list.clone().serving("us").usual.input, price("4.4"));
        assert_eq!(list.clone().serving("eu").usual.input, price("4"));
    }

    #[test]
    fn a_class_without_a_price_costs_a_multiple_of_input() {
        let of = |tokens: Tokens| {
            let usual = Prices { input: price("4"), output: price("20"), ..Prices::default() };
            let rated = PriceList::from(usual).rate(&tokens, &[]);
            assert_eq!(rated.cost, rated.prices.cost(&tokens), "the prices of the row give its cost");
            (rated.cost.unwrap().0.normalize().to_string(), rated.assumed)
        };
        let (none, million) = (Tokens::default(), 1_000_000);
        for (tokens, dollars, assumed) in [
            (Tokens { cache_read: million, ..none }, "4", "cache_read"),
            (Tokens { cache_write_5m: million, ..none }, "5", "cache_write"),
            (Tokens { cache_write_30m: million, ..none }, "5", "cache_write_30m"),
            (Tokens { cache_write_1h: million, ..none }, "8", "cache_write_1h"),
            (Tokens { cache_write_12h: million, ..none }, "10", "cache_write_12h"),
        ] {
            assert_eq!(of(tokens), (dollars.to_owned(), names(&[assumed])));
        }
        assert_eq!(of(Tokens { reasoning: million, ..none }), ("20".to_owned(), names(&[])));
        let usual = Prices { output: price("20"), ..Prices::default() };
        let rated = PriceList::from(usual).rate(&Tokens { cache_read: 1, ..none }, &[]);
        assert_eq!(
            (rated.cost, rated.assumed),
            (None, names(&[])),
            "nothing follows without a price of input"
        );
        let usual = Prices { input: price("1"), cache_write: price("3"), ..Prices::default() };
        let rated = PriceList::from(usual).rate(&Tokens { cache_write_30m: million, ..none }, &[]);
        assert_eq!(
            (rated.cost, rated.assumed),
            (Some(Cost(Decimal::from(3))), names(&[])),
            "the usual lifetime"
        );
    }

    #[test]
    fn prices_of_hours_are_those_of_the_beginning() {
        let usual = Prices { input: price("4"), ..Prices::default() };
        let long = vec![LongContext { above: 10, prices: Prices { input: price("8"), ..Prices::default() } }];
        let multiples = [("off_peak".to_owned(), "0.5".parse().unwrap())].into();
        let off_peak = vec!["1-7 00:00-01:00".parse().unwrap()];
        let list = PriceList { usual, long, multiples, off_peak };
        let at = |minute: u64| {
            let list = list.clone().beginning(Timestamp::from_millis(minute * 60_000));
            assert!(list.multiples.is_empty() && list.off_peak.is_empty());
            [list.at(1).input, list.at(11).input]
        };
        assert_eq!(at(30), [price("2"), price("4")]);
        assert_eq!(at(60), [price("4"), price("8")]);
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

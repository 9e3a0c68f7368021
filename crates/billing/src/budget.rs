//! Budgets: what a turn, a session and a tenant may use, in money and in tokens.
//!
//! Before a request leaves, its worst case is *reserved*; when it is over, what it used is *spent* and the rest is free again.
//! So many steps that run at once never use more together than their budget, as far as a worst case is one. A [`Book`] holds
//! what is spent and reserved for one tenant; it is arithmetic only: the day and what was spent before come from outside.
//!
//! - What fits is granted at once.
//! - What would fit if nothing else were reserved waits, in order, until enough of that is settled.
//! - What does not fit even then is refused.
//!
//! ```
//! use playhouse_billing::budget::{Account, Answer, Book, Charge, Limits, Per, Spent, Used, Worst};
//! use playhouse_protocol::{Day, IdGenerator, Timestamp};
//!
//! let mut ids = IdGenerator::new(|bytes| bytes.fill(1));
//! let (one, two) = (ids.next(Timestamp::from_millis(1)), ids.next(Timestamp::from_millis(1)));
//! let mut book = Book::new(Per::Ever, Day(0));
//! book.begin(Account::Tenant, Spent::default());
//! let limits = Limits { tokens: Some(100), ..Limits::default() };
//! let worst = Worst { tokens: 60, ..Worst::default() };
//! let charge = [Charge { account: Account::Tenant, limits }];
//! assert_eq!(book.reserve(one, &charge, worst), Answer::Granted);
//! assert!(matches!(book.reserve(two, &charge, worst), Answer::Waits(_)));
//! // The first one needed less: the second one goes on.
//! let used = Used::Known(Spent { tokens: 40, ..Spent::default() });
//! let decided = book.settle(one, &[Account::Tenant], used, Day(0));
//! assert_eq!((decided[0].attempt, decided[0].outcome.is_ok()), (two, true));
//! ```

mod book;
mod text;

use std::collections::BTreeMap;
use std::ops::AddAssign;

use playhouse_protocol::id::{MessageId, SessionId};
use playhouse_protocol::limit::LimitScope;
use playhouse_protocol::usage::{PriceList, Prices, Tokens, Totals};
use playhouse_protocol::{Cost, Day, Timestamp};

pub use book::{Answer, Book, Charge, Decision, Refusal, Wait};
pub use text::Short;

/// Whose use is added up, among what belongs to one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Account {
    /// The tenant, within the period that runs.
    Tenant,
    /// A session with those below it, named by the one at the top.
    Session(SessionId),
    /// A turn.
    Turn(MessageId),
}

impl Account {
    /// What kind of budget it has.
    pub const fn scope(&self) -> LimitScope {
        match self {
            Self::Tenant => LimitScope::Tenant,
            Self::Session(_) => LimitScope::Session,
            Self::Turn(_) => LimitScope::Turn,
        }
    }
}

/// The most that may be used. Nothing is set where there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// US dollars.
    pub cost: Option<Cost>,
    /// Tokens of all classes.
    pub tokens: Option<u64>,
}

impl Limits {
    /// What limits of budgets are called.
    pub const NAME: &'static str = "budget";

    /// Whether there is no limit.
    pub const fn is_none(&self) -> bool {
        self.cost.is_none() && self.tokens.is_none()
    }
}

/// For how long a tenant's use is added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Per {
    /// A day, in UTC.
    Day,
    /// A calendar month, in UTC.
    #[default]
    Month,
    /// For ever.
    Ever,
}

impl Per {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Day, Self::Month, Self::Ever];

    /// As it is configured.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
            Self::Ever => "ever",
        }
    }

    /// The number of the period that `day` is in. It grows with the day.
    pub const fn period(self, day: Day) -> u64 {
        match self {
            Self::Day => day.0,
            Self::Month => {
                let (year, month, _) = day.date();
                year * 12 + month
            }
            Self::Ever => 0,
        }
    }

    /// When the period of `day` began; nothing for one that always was.
    pub const fn start(self, day: Day) -> Option<Timestamp> {
        match self {
            Self::Day => Some(day.start()),
            Self::Month => {
                let (_, _, of_month) = day.date();
                Some(Day(day.0 - (of_month - 1)).start())
            }
            Self::Ever => None,
        }
    }

    /// When the period of `day` is over; nothing for one that always is.
    ///
    /// ```
    /// use playhouse_billing::budget::Per;
    /// let over = |per: Per, day: &str| per.end(day.parse().unwrap()).map(|end| end.to_string());
    /// assert_eq!(over(Per::Month, "2026-12-05").unwrap(), "2027-01-01T00:00:00Z");
    /// assert_eq!(over(Per::Day, "2028-02-28").unwrap(), "2028-02-29T00:00:00Z");
    /// assert_eq!(over(Per::Ever, "2026-12-05"), None);
    /// ```
    pub const fn end(self, day: Day) -> Option<Timestamp> {
        match self {
            Self::Day => Some(day.next().start()),
            Self::Month => {
                let mut next = day.next();
                while Self::Month.period(next) == Self::Month.period(day) {
                    next = next.next();
                }
                Some(next.start())
            }
            Self::Ever => None,
        }
    }
}

/// The budget of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantBudget {
    /// The most that may be used within a period.
    pub limits: Limits,
    /// The period.
    pub per: Per,
}

/// All budgets that are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budgets {
    /// Of each turn.
    pub turn: Limits,
    /// Of each session, with the sessions below it.
    pub session: Limits,
    /// Of each tenant that has none of its own.
    pub tenant: TenantBudget,
    /// Of single tenants, by name.
    pub tenants: BTreeMap<String, TenantBudget>,
}

impl Budgets {
    /// The budget of this tenant.
    pub fn of(&self, tenant: &str) -> TenantBudget {
        self.tenants.get(tenant).copied().unwrap_or(self.tenant)
    }
}

/// What was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// US dollars, as far as prices are known.
    pub cost: Cost,
    /// Tokens of all classes.
    pub tokens: u64,
}

impl Spent {
    /// The larger of both, in money and in tokens.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { cost: self.cost.max(other.cost), tokens: self.tokens.max(other.tokens) }
    }

    /// With rows of unknown cost beside it, each of which is taken to cost this much.
    #[must_use]
    pub fn with_unpriced(mut self, rows: u64, each: Cost) -> Self {
        self.cost += Cost(each.0.saturating_mul(rows.into()));
        self
    }
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        self.cost += other.cost;
        self.tokens = self.tokens.saturating_add(other.tokens);
    }
}

impl From<Totals> for Spent {
    fn from(totals: Totals) -> Self {
        Self { cost: totals.cost, tokens: totals.tokens.total() }
    }
}

/// What an attempt used that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Used {
    /// Nothing.
    Nothing,
    /// So much.
    Known(Spent),
    /// So much as is known, and beside it the cost of some rows: each is taken to cost what was reserved.
    Unpriced {
        /// The tokens of all rows, and the cost of those that have one.
        known: Spent,
        /// The number of rows without a cost.
        rows: u64,
    },
    /// That is not known: what was reserved is taken to be used.
    Unknown,
}

/// The most that a request may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Worst {
    /// US dollars; nothing where its model has no price.
    pub cost: Option<Cost>,
    /// Tokens, input and output.
    pub tokens: u64,
}

impl Worst {
    /// Of a request with at most so many tokens of input and output: all input in the dearest class, whichever of the
    /// prices holds that can hold for it.
    ///
    /// ```
    /// use playhouse_billing::budget::Worst;
    /// use playhouse_protocol::{PriceList, Prices};
    /// let price = |text: &str| Some(text.parse().unwrap());
    /// let prices = Prices { input: price("3"), cache_write: price("4"), output: price("15"), ..Prices::default() };
    /// let worst = Worst::of(&PriceList::from(prices), 1_000_000, 100_000);
    /// assert_eq!(worst.cost.unwrap().to_string(), "$5.5000");
    /// assert_eq!(Worst::of(&PriceList::default(), 1, 1).cost, None);
    /// ```
    pub fn of(prices: &PriceList, input: u64, output: u64) -> Self {
        let long = prices.long.iter().filter(|tier| input > tier.above).map(|tier| &tier.prices);
        let costs = std::iter::once(&prices.usual).chain(long).map(|prices| dearest(prices, input, output));
        let cost = costs.reduce(|worst, cost| Some(worst?.max(cost?))).flatten();
        Self { cost, tokens: input.saturating_add(output) }
    }
}

/// The most that so many tokens can cost; unknown without a price for input or for output.
fn dearest(prices: &Prices, input: u64, output: u64) -> Option<Cost> {
    // What the usual cache costs at most is known also without a price of its own.
    let prices = prices.assuming(&["cache_read", "cache_write", "cache_write_30m"].map(str::to_owned));
    // One more than none, so that a price that is missing is told from nothing to pay.
    let (all, none) = (input.max(1), Tokens::default());
    let of_input = prices.cost(&Tokens { input: all, ..none })?;
    let cached = [
        Tokens { cache_read: all, ..none },
        Tokens { cache_write_5m: all, ..none },
        Tokens { cache_write_30m: all, ..none },
        Tokens { cache_write_1h: all, ..none },
        Tokens { cache_write_12h: all, ..none },
    ];
    let mut cost = cached.iter().filter_map(|tokens| prices.cost(tokens)).fold(of_input, Cost::max);
    let all = output.max(1);
    let of_output = prices.cost(&Tokens { output: all, ..none })?;
    cost += prices.cost(&Tokens { reasoning: all, ..none }).map_or(of_output, |cost| cost.max(of_output));
    Some(cost)
}

#[cfg(test)]
mod tests;

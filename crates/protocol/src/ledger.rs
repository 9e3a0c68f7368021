//! The ledger: one row per attempt that used or may have used tokens, from which bills and dashboards are made.
//!
//! A row is a function of the session's log: it is made from the record of an attempt's end and from what its beginning
//! said ([`OpenAttempt`], kept in the session's summary). So it can be neither lost nor doubled: the store writes it in the
//! batch of the record. Rows are never changed; a correction is a new row that names the old one.

mod query;
mod reprice;
mod rows;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::attribution::{Attribution, KeyRef, Labels};
use crate::day::Day;
use crate::id::{AttemptId, MessageId, SessionId};
use crate::model::ModelRef;
use crate::record::AttemptStarted;
use crate::time::Timestamp;
use crate::usage::{Cost, PriceList, Prices, Quality, Tokens};

pub use query::{
    ArchivePage, ArchiveQuery, GroupBy, GroupByError, Grouping, ProviderSum, QueryError, RowPage, RowPlace,
    RowQuery, TreeUsage, UsageGroup, UsageKey, UsageLine, UsagePage, UsageQuery, UsageSum,
};
pub use reprice::{RepriceReport, RepriceRequest};

/// What a request to a model is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A step of a turn that a prompt began.
    #[default]
    Turn,
    /// A title for the session.
    Title,
    /// A summary for people.
    Summary,
    /// A summary that stands for older messages.
    Compaction,
    /// A step of a sub-session.
    Subagent,
}

impl Purpose {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Turn, Self::Title, Self::Summary, Self::Compaction, Self::Subagent];

    /// As it stands in rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Title => "title",
            Self::Summary => "summary",
            Self::Compaction => "compaction",
            Self::Subagent => "subagent",
        }
    }

    /// Whether its request is made beside the steps of turns: it answers no prompt, and begins no step.
    pub const fn is_aside(&self) -> bool {
        matches!(self, Self::Title | Self::Summary | Self::Compaction)
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The currency of all money.
pub const CURRENCY: &str = "USD";

/// How a platform charges for a model: by a rule of the operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// A small model.
    Light,
    /// Any other.
    #[default]
    Pro,
}

impl Tier {
    /// As it stands in rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Pro => "pro",
        }
    }
}

/// What is known of an attempt when its request leaves, and needed when it ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenAttempt {
    /// The turn.
    pub turn: MessageId,
    /// The step.
    pub step: MessageId,
    /// Number of the step within its turn, from 1.
    pub step_number: u32,
    /// Number of the attempt within its step, from 1.
    pub attempt_number: u32,
    /// The agent.
    pub agent: String,
    /// The model that is asked.
    pub model: ModelRef,
    /// What it is for.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub purpose: Purpose,
    /// How the platform charges for the model.
    #[serde(default)]
    pub tier: Tier,
    /// The version of the catalogue that the prices are from; absent for prices that the operator wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalogue: Option<String>,
    /// Prices at that time.
    #[serde(default)]
    pub prices: PriceList,
    /// Whom its usage is attributed to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribution: Option<Box<Attribution>>,
    /// When the request left.
    pub started: Timestamp,
}

impl OpenAttempt {
    /// What the record of an attempt's beginning says, which was made at `at`.
    pub fn new(started: &AttemptStarted, at: Timestamp) -> Self {
        Self {
            turn: started.turn,
            step: started.step,
            step_number: started.step_number,
            attempt_number: started.attempt_number,
            agent: started.agent.clone(),
            model: started.model.clone(),
            purpose: started.purpose,
            tier: started.tier,
            catalogue: started.catalogue.clone(),
            prices: started.price_list().beginning(at),
            attribution: started.attribution.clone(),
            started: at,
        }
    }
}

/// The id of a row: `row_` and what its attempt's id has behind the prefix, so that the same attempt always gives the same
/// row. A correction's ends in `.` and its number, that of a call inside of the answer in `+` and its number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RowId(pub String);

impl RowId {
    /// What all of them begin with.
    pub const PREFIX: &'static str = "row_";

    /// The id of the row of this attempt.
    pub fn of(attempt: AttemptId) -> Self {
        let text = attempt.as_str();
        Self([Self::PREFIX, text.split_once('_').map_or(text, |(_, rest)| rest)].concat())
    }

    /// The id of the row of a call inside of this attempt's answer, by its number from 1.
    pub fn of_inner(attempt: AttemptId, number: usize) -> Self {
        Self(format!("{}+{number}", Self::of(attempt)))
    }

    /// The id of a correction of this row, by its number from 1.
    #[must_use]
    pub fn correction(&self, number: u64) -> Self {
        Self(format!("{self}.{number}"))
    }
}

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Money by class, in US dollars; `None` is unknown, which is not 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostByClass {
    /// Uncached input.
    pub input: Option<Cost>,
    /// Input read from a cache.
    pub cache_read: Option<Cost>,
    /// Input written to the five-minute cache.
    pub cache_write_5m: Option<Cost>,
    /// Input written to the 30-minute cache.
    #[serde(default = "nothing", skip_serializing_if = "is_nothing")]
    pub cache_write_30m: Option<Cost>,
    /// Input written to the one-hour cache.
    pub cache_write_1h: Option<Cost>,
    /// Input written to the twelve-hour cache.
    #[serde(default = "nothing", skip_serializing_if = "is_nothing")]
    pub cache_write_12h: Option<Cost>,
    /// Output.
    pub output: Option<Cost>,
    /// Reasoning.
    pub reasoning: Option<Cost>,
}

/// The cost of a class without tokens.
#[expect(clippy::unnecessary_wraps, reason = "serde wants a value of the field")]
fn nothing() -> Option<Cost> {
    Some(Cost::ZERO)
}

#[expect(clippy::ref_option, reason = "serde calls it with a reference")]
fn is_nothing(cost: &Option<Cost>) -> bool {
    *cost == nothing()
}

impl CostByClass {
    /// What `tokens` cost at `prices`. A class without tokens costs nothing, whether its price is known or not.
    pub fn new(prices: &Prices, tokens: &Tokens) -> Self {
        let one = |tokens: Tokens| prices.cost(&tokens);
        let none = Tokens::default();
        Self {
            input: one(Tokens { input: tokens.input, ..none }),
            cache_read: one(Tokens { cache_read: tokens.cache_read, ..none }),
            cache_write_5m: one(Tokens { cache_write_5m: tokens.cache_write_5m, ..none }),
            cache_write_30m: one(Tokens { cache_write_30m: tokens.cache_write_30m, ..none }),
            cache_write_1h: one(Tokens { cache_write_1h: tokens.cache_write_1h, ..none }),
            cache_write_12h: one(Tokens { cache_write_12h: tokens.cache_write_12h, ..none }),
            output: one(Tokens { output: tokens.output, ..none }),
            reasoning: one(Tokens { reasoning: tokens.reasoning, ..none }),
        }
    }

    /// What the calls of an answer cost at these prices: see [`PriceList::rate_calls`].
    pub fn of_calls(list: &PriceList, tokens: &Tokens, calls: &[Tokens], served: &[String]) -> Self {
        let one = |call: &Tokens| Self::new(&list.rate(call, served).prices, call);
        let plus = |a: Cost, b: Cost| Cost(a.0.saturating_add(b.0));
        let (first, rest) = calls.split_first().unwrap_or((tokens, &[]));
        rest.iter().map(one).fold(one(first), |sum, call| sum.combined(&call, plus))
    }

    /// The sum or the difference of each class by `combine`; unknown where it is in one of the two.
    #[must_use]
    pub fn combined(&self, other: &Self, combine: impl Fn(Cost, Cost) -> Cost) -> Self {
        let one = |a: Option<Cost>, b: Option<Cost>| Some(combine(a?, b?).normalized());
        Self {
            input: one(self.input, other.input),
            cache_read: one(self.cache_read, other.cache_read),
            cache_write_5m: one(self.cache_write_5m, other.cache_write_5m),
            cache_write_30m: one(self.cache_write_30m, other.cache_write_30m),
            cache_write_1h: one(self.cache_write_1h, other.cache_write_1h),
            cache_write_12h: one(self.cache_write_12h, other.cache_write_12h),
            output: one(self.output, other.output),
            reasoning: one(self.reasoning, other.reasoning),
        }
    }
}

/// One row: an attempt that used or may have used tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LedgerRow {
    /// Its id.
    pub id: RowId,
    /// Who pays.
    pub tenant: String,
    /// The directory that the session works in.
    pub workspace: String,
    /// The session.
    pub session: SessionId,
    /// The session at the top of its tree: itself, for one that no other started.
    pub root: SessionId,
    /// The step whose call started the session, for a sub-session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_step: Option<MessageId>,
    /// The turn.
    pub turn: MessageId,
    /// The step.
    pub step: MessageId,
    /// Number of the step within its turn, from 1.
    pub step_number: u32,
    /// The attempt, whose id went out as the header `x-playhouse-attempt`.
    pub attempt: AttemptId,
    /// Number of the attempt within its step, from 1.
    pub attempt_number: u32,
    /// The agent.
    pub agent: String,
    /// What it was for.
    pub purpose: Purpose,
    /// The provider.
    pub provider: String,
    /// The model that was asked.
    pub model: String,
    /// The model that says it answered, where that is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    /// Exclusive token counts.
    pub tokens: Tokens,
    /// The same of each call of the model, where its answer had more than one inside: which prices hold goes by the size of
    /// each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Tokens>,
    /// How far they can be trusted.
    pub quality: Quality,
    /// The provider's own usage object, as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<Value>,
    /// The version of the catalogue that the prices are from; absent for prices that the operator wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalogue: Option<String>,
    /// The prices that held for this request, in US dollars per million tokens, with its factors and with those that were
    /// assumed. Of several calls: those of the largest.
    pub prices: Prices,
    /// What each class cost.
    pub costs: CostByClass,
    /// What it cost; absent when that is not known.
    pub cost: Option<Cost>,
    /// What had no price or no factor, so that one was assumed: classes by the names of their prices, then ways of service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assumed: Vec<String>,
    /// How the answer says that it was served, where that is not the usual way: tier, speed, region.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub served: Vec<String>,
    /// What the provider says that the answer cost. `cost` is what counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_cost: Option<Cost>,
    /// How the platform charges for the model.
    pub tier: Tier,
    /// The session's labels when the request left, in the tenant's own words.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The key of the prompt that began the turn; absent where the operator sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyRef>,
    /// When the request left.
    pub started: Timestamp,
    /// When it ended: the time of the row.
    pub ended: Timestamp,
    /// The row whose cost this one corrects: its own `cost` is the difference, and it has no tokens. It ended when the
    /// correction was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrects: Option<RowId>,
    /// Whether it came after sinks were told that the ledger is closed up to a later time than that of the row
    /// ([`LedgerClosed`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
}

/// The number of the day of `time`, in UTC: 0 for 1970-01-01.
pub const fn day(time: Timestamp) -> u64 {
    Day::of(time).0
}

/// What running aggregates are kept by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Grain {
    /// Who pays.
    pub tenant: String,
    /// The number of the day, in UTC.
    pub day: u64,
    /// The provider.
    pub provider: String,
    /// The model that was asked.
    pub model: String,
    /// What it was for.
    pub purpose: Purpose,
    /// The agent.
    pub agent: String,
    /// Labels and key, where there are some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribution: Option<Box<Attribution>>,
}

/// One entry of the feed: what sinks follow, in the order in which it became durable.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedItem {
    /// A row.
    Row(Box<LedgerRow>),
    /// A turn is over, and its rows stand before this entry.
    TurnEnded(TurnEnd),
    /// No earlier row is to be expected.
    Closed(LedgerClosed),
}

impl FeedItem {
    /// The time that it is of.
    pub const fn at(&self) -> Timestamp {
        match self {
            Self::Row(row) => row.ended,
            Self::TurnEnded(end) => end.at,
            Self::Closed(closed) => closed.until,
        }
    }
}

/// The ledger is closed up to a time: all rows that ended before it stand before this entry of the feed. One that comes
/// all the same says that it is [late](LedgerRow::late). Later entries of this kind have later times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LedgerClosed {
    /// The time before which it is closed.
    pub until: Timestamp,
}

/// The end of a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnEnd {
    /// Who pays.
    pub tenant: String,
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: MessageId,
    /// When it ended.
    pub at: Timestamp,
}

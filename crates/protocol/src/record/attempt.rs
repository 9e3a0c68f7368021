//! Attempts: requests to a model, from their beginning to their end.

use std::collections::BTreeMap;

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::attribution::Attribution;
use crate::error::ErrorInfo;
use crate::id::{AttemptId, MessageId};
use crate::ledger::{CostByClass, Purpose, RowId, Tier};
use crate::model::ModelRef;
use crate::time::Timestamp;
use crate::usage::{Cost, LongContext, OffPeak, PriceList, Prices, Tokens, Usage};

/// See [`Record::AttemptStarted`](super::Record::AttemptStarted).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptStarted {
    /// The attempt's id, which goes out as the header `x-playhouse-attempt`.
    pub attempt: AttemptId,
    /// The turn.
    pub turn: MessageId,
    /// The step: the id of the assistant message.
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
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub tier: Tier,
    /// The version of the catalogue that the prices are from; absent for prices that the operator wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalogue: Option<String>,
    /// Estimated input, in tokens.
    pub estimated_input: u64,
    /// Prices at this time.
    #[serde(default)]
    pub prices: Prices,
    /// Prices at this time of a request that turns out to be long, by rising threshold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub long_prices: Vec<LongContext>,
    /// Factors on all of these prices, by the way in which the request is served.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub multiples: BTreeMap<String, Decimal>,
    /// When the factor of quiet hours holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub off_peak: Vec<OffPeak>,
    /// Whom its usage is attributed to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribution: Option<Box<Attribution>>,
    /// Queued prompts that this step is the first to read (steering).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steered: Vec<MessageId>,
    /// Notes that came while the turn ran, and that this step is the first to read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<MessageId>,
    /// Whether this is the step at the limit, in which nothing more may be called.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
}

impl AttemptStarted {
    /// The first attempt of a turn's first step, of unknown size and without prices.
    pub fn new(
        attempt: AttemptId,
        turn: MessageId,
        step: MessageId,
        agent: impl Into<String>,
        model: ModelRef,
    ) -> Self {
        Self {
            attempt,
            turn,
            step,
            step_number: 1,
            attempt_number: 1,
            agent: agent.into(),
            model,
            purpose: Purpose::default(),
            tier: Tier::default(),
            catalogue: None,
            estimated_input: 0,
            prices: Prices::default(),
            long_prices: Vec::new(),
            multiples: BTreeMap::new(),
            off_peak: Vec::new(),
            attribution: None,
            steered: Vec::new(),
            notes: Vec::new(),
            last: false,
        }
    }

    /// All prices at this time.
    pub fn price_list(&self) -> PriceList {
        PriceList {
            usual: self.prices,
            long: self.long_prices.clone(),
            multiples: self.multiples.clone(),
            off_peak: self.off_peak.clone(),
        }
    }

    /// The same with these prices.
    #[must_use]
    pub fn priced(self, prices: PriceList) -> Self {
        let PriceList { usual: prices, long: long_prices, multiples, off_peak } = prices;
        Self { prices, long_prices, multiples, off_peak, ..self }
    }
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// The answer is complete.
    Finished,
    /// It failed; what it had streamed is withdrawn.
    Failed {
        /// Why.
        error: ErrorInfo,
    },
    /// The turn was aborted.
    Aborted,
    /// The process ended in the middle of it.
    Lost,
}

/// See [`Record::AttemptEnded`](super::Record::AttemptEnded).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptEnded {
    /// The attempt.
    pub attempt: AttemptId,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// What it used; absent when nothing was used (the request never reached a model).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// What it cost; absent when that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// What had no price or no factor, so that one was assumed for `cost`: see [`crate::usage::Rated::assumed`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assumed: Vec<String>,
    /// What each call of the model that was asked used, where its answer had more than one inside. `usage` has their sum.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Tokens>,
    /// What each class cost, where that does not follow from one list of prices: with `calls`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<Box<CostByClass>>,
    /// Calls inside of its answer that bill at models of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inner: Vec<InnerCall>,
    /// The model that says it answered, where that is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    /// When it ended by the clock of that moment. Absent where that is the time of the entry, which never goes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
}

impl AttemptEnded {
    /// Of an attempt that used nothing.
    pub fn new(attempt: AttemptId, outcome: AttemptOutcome) -> Self {
        Self {
            attempt,
            outcome,
            usage: None,
            cost: None,
            assumed: Vec::new(),
            calls: Vec::new(),
            costs: None,
            inner: Vec::new(),
            answered_by: None,
            ended: None,
        }
    }

    /// What the attempt used and what that cost, then the same of each call inside of its answer.
    pub fn charges(&self) -> impl Iterator<Item = (&Usage, Option<Cost>)> {
        let inner = self.inner.iter().map(|call| (&call.usage, call.cost));
        self.usage.iter().map(|usage| (usage, self.cost)).chain(inner)
    }
}

/// A call inside of an answer that bills at a model of its own, as an advisor of the model that answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InnerCall {
    /// Its row of the ledger.
    pub row: RowId,
    /// The model.
    pub model: ModelRef,
    /// What it used.
    pub usage: Usage,
    /// The version of the catalogue that the prices are from; absent for prices that the operator wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalogue: Option<String>,
    /// The prices that held for it.
    #[serde(default)]
    pub prices: Prices,
    /// What it cost; absent when that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// See [`AttemptEnded::assumed`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assumed: Vec<String>,
}

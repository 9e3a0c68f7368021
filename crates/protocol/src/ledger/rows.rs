//! The rows of an attempt, made of a session's summary and of the record of the attempt's end.

use super::{CostByClass, Grain, LedgerRow, RowId, UsageSum, day};
use crate::attribution::Attribution;
use crate::model::ModelRef;
use crate::operator::BY_HAND_TENANT;
use crate::record::AttemptEnded;
use crate::summary::SessionSummary;
use crate::time::Timestamp;
use crate::usage::{Quality, Tokens, Totals};

impl LedgerRow {
    /// The rows of an attempt of the session with this summary, which stands as before the record of its end: one for the
    /// attempt, then one for each call inside of its answer that bills at a model of its own. None for an attempt that used
    /// nothing, for one whose beginning is not known, and for calls by hand, which nobody pays for.
    pub fn of(summary: &SessionSummary, ended: &AttemptEnded, at: Timestamp) -> Vec<Self> {
        let Some(row) = Self::of_attempt(summary, ended, at) else { return Vec::new() };
        let inner = ended.inner.iter().map(|call| Self {
            id: call.row.clone(),
            costs: CostByClass::new(&call.prices, &call.usage.tokens),
            calls: Vec::new(),
            provider: call.model.provider.clone(),
            model: call.model.model.clone(),
            answered_by: None,
            tokens: call.usage.tokens,
            quality: call.usage.quality,
            raw: call.usage.raw.clone(),
            catalogue: call.catalogue.clone(),
            prices: call.prices,
            cost: call.cost,
            assumed: call.assumed.clone(),
            served: call.usage.served.clone(),
            provider_cost: None,
            ..row.clone()
        });
        let inner: Vec<Self> = inner.collect();
        std::iter::once(row).chain(inner).collect()
    }

    fn of_attempt(summary: &SessionSummary, ended: &AttemptEnded, at: Timestamp) -> Option<Self> {
        let usage = ended.usage.as_ref().filter(|_| summary.tenant != BY_HAND_TENANT)?;
        let open = summary.open_attempts.get(ended.attempt.as_str())?;
        let ModelRef { provider, model } = open.model.clone();
        let at = ended.ended.unwrap_or(at);
        let Attribution { labels, key } = open.attribution.as_deref().cloned().unwrap_or_default();
        let largest = ended.calls.iter().map(Tokens::all_input).max();
        let size = largest.unwrap_or_else(|| usage.tokens.all_input());
        let prices = open.prices.held(size, &usage.served).assuming(&ended.assumed);
        Some(Self {
            id: RowId::of(ended.attempt),
            tenant: summary.tenant.clone(),
            workspace: summary.workspace.clone(),
            session: summary.id,
            root: summary.root.unwrap_or(summary.id),
            parent_step: summary.parent_step,
            turn: open.turn,
            step: open.step,
            step_number: open.step_number,
            attempt: ended.attempt,
            attempt_number: open.attempt_number,
            agent: open.agent.clone(),
            purpose: open.purpose,
            provider,
            model,
            answered_by: ended.answered_by.clone(),
            tokens: usage.tokens,
            calls: ended.calls.clone(),
            quality: usage.quality,
            raw: usage.raw.clone(),
            catalogue: open.catalogue.clone(),
            prices,
            costs: ended
                .costs
                .as_deref()
                .copied()
                .unwrap_or_else(|| CostByClass::new(&prices, &usage.tokens)),
            cost: ended.cost,
            assumed: ended.assumed.clone(),
            served: usage.served.clone(),
            provider_cost: usage.provider_cost,
            tier: open.tier,
            labels,
            key,
            // The clock that told the beginning may have been ahead.
            started: open.started.min(at),
            ended: at,
            corrects: None,
            late: false,
        })
    }

    /// The key under which running sums count this row.
    pub fn grain(&self) -> Grain {
        Grain {
            tenant: self.tenant.clone(),
            day: day(self.ended),
            provider: self.provider.clone(),
            model: self.model.clone(),
            purpose: self.purpose,
            agent: self.agent.clone(),
            attribution: Attribution { labels: self.labels.clone(), key: self.key.clone() }.boxed(),
        }
    }
}

impl UsageSum {
    /// Over one row. A correction is money only: its attempt is counted by the row that it corrects.
    pub fn of(row: &LedgerRow) -> Self {
        let counted = |is_so: bool| u64::from(is_so && row.corrects.is_none());
        let totals = Totals {
            tokens: row.tokens,
            cost: row.cost.unwrap_or_default(),
            attempts: counted(true),
            estimated: counted(row.quality == Quality::Estimated),
            unpriced: counted(row.cost.is_none()),
        };
        Self {
            totals,
            unreconciled: counted(row.quality == Quality::Unreconciled),
            assumed: counted(!row.assumed.is_empty()),
            provider_cost: row.cost.and(row.provider_cost).unwrap_or_default(),
            provider_priced: row.provider_cost.and(row.cost).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribution::KeyRef;
    use crate::id::AttemptId;
    use crate::ledger::{Purpose, Tier};
    use crate::usage::{Cost, Prices};

    #[test]
    fn a_correction_is_money_only() {
        let id = |prefix: &str| format!("{prefix}_00000000000012345678901234");
        let prices = Prices { input: Some("3".parse().unwrap()), ..Prices::default() };
        let tokens = Tokens { input: 5, ..Tokens::default() };
        let attempt: AttemptId = id("att").parse().unwrap();
        let row = LedgerRow {
            id: RowId::of(attempt),
            tenant: "acme".to_owned(),
            workspace: "/w".to_owned(),
            session: id("ses").parse().unwrap(),
            root: id("ses").parse().unwrap(),
            parent_step: None,
            turn: id("msg").parse().unwrap(),
            step: id("msg").parse().unwrap(),
            step_number: 1,
            attempt,
            attempt_number: 2,
            agent: "build".to_owned(),
            purpose: Purpose::Title,
            provider: "p".to_owned(),
            model: "m".to_owned(),
            answered_by: Some("m-2".to_owned()),
            tokens,
            calls: vec![Tokens { input: 2, ..tokens }, Tokens { input: 3, ..tokens }],
            quality: Quality::Estimated,
            raw: Some(serde_json::json!({"input": 5})),
            catalogue: None,
            prices,
            costs: CostByClass::new(&prices, &tokens),
            cost: prices.cost(&tokens),
            assumed: vec!["eu".to_owned()],
            served: vec!["eu".to_owned()],
            provider_cost: Some(Cost::ZERO),
            tier: Tier::Light,
            labels: [("customer".to_owned(), "c-42".to_owned())].into(),
            key: Some(KeyRef { id: "key_1".to_owned(), name: "ci".to_owned() }),
            started: Timestamp::from_millis(1),
            ended: Timestamp::from_millis(2),
            corrects: None,
            late: true,
        };
        let other =
            LedgerRow { id: RowId("row_x.1".to_owned()), corrects: Some(row.id.clone()), ..row.clone() };
        let (own, correction) = (UsageSum::of(&row), UsageSum::of(&other).totals);
        assert_eq!((own.totals.attempts, own.totals.estimated, own.assumed), (1, 1, 1));
        assert_eq!((correction.attempts, correction.estimated, correction.unpriced), (0, 0, 0));
        assert_eq!((correction.cost, UsageSum::of(&other).assumed), (row.cost.unwrap(), 0));
    }
}

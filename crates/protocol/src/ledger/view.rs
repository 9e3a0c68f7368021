//! A row that is not copied yet: what it borrows from a session's summary and from the record of an attempt's end.

use serde_json::Value;

use super::{CostByClass, Grain, LedgerRow, Purpose, RowId, Tier, UsageSum, day};
use crate::attribution::{Attribution, KeyRef, Labels, NO_LABELS};
use crate::id::{AttemptId, MessageId, SessionId};
use crate::model::ModelRef;
use crate::operator::BY_HAND_TENANT;
use crate::record::AttemptEnded;
use crate::summary::SessionSummary;
use crate::time::Timestamp;
use crate::usage::{Cost, Prices, Quality, Tokens, Totals};

/// A row that borrows its texts. The fields are those of [`LedgerRow`], but for the first two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowView<'a> {
    /// The row's id, where it is not [`RowId::of`] the attempt.
    pub id: Option<&'a RowId>,
    /// What each class cost, where that is not [`CostByClass::new`] of `prices` and `tokens`.
    pub costs: Option<&'a CostByClass>,
    /// See [`LedgerRow::tenant`].
    pub tenant: &'a str,
    /// See [`LedgerRow::workspace`].
    pub workspace: &'a str,
    /// See [`LedgerRow::session`].
    pub session: SessionId,
    /// See [`LedgerRow::root`].
    pub root: SessionId,
    /// See [`LedgerRow::parent_step`].
    pub parent_step: Option<MessageId>,
    /// See [`LedgerRow::turn`].
    pub turn: MessageId,
    /// See [`LedgerRow::step`].
    pub step: MessageId,
    /// See [`LedgerRow::step_number`].
    pub step_number: u32,
    /// See [`LedgerRow::attempt`].
    pub attempt: AttemptId,
    /// See [`LedgerRow::attempt_number`].
    pub attempt_number: u32,
    /// See [`LedgerRow::agent`].
    pub agent: &'a str,
    /// See [`LedgerRow::purpose`].
    pub purpose: Purpose,
    /// See [`LedgerRow::provider`].
    pub provider: &'a str,
    /// See [`LedgerRow::model`].
    pub model: &'a str,
    /// See [`LedgerRow::answered_by`].
    pub answered_by: Option<&'a str>,
    /// See [`LedgerRow::tokens`].
    pub tokens: Tokens,
    /// See [`LedgerRow::calls`].
    pub calls: &'a [Tokens],
    /// See [`LedgerRow::quality`].
    pub quality: Quality,
    /// See [`LedgerRow::raw`].
    pub raw: Option<&'a Value>,
    /// See [`LedgerRow::catalogue`].
    pub catalogue: Option<&'a str>,
    /// See [`LedgerRow::prices`].
    pub prices: Prices,
    /// See [`LedgerRow::cost`].
    pub cost: Option<Cost>,
    /// See [`LedgerRow::assumed`].
    pub assumed: &'a [String],
    /// See [`LedgerRow::served`].
    pub served: &'a [String],
    /// See [`LedgerRow::provider_cost`].
    pub provider_cost: Option<Cost>,
    /// See [`LedgerRow::tier`].
    pub tier: Tier,
    /// See [`LedgerRow::labels`].
    pub labels: &'a Labels,
    /// See [`LedgerRow::key`].
    pub key: Option<&'a KeyRef>,
    /// See [`LedgerRow::started`].
    pub started: Timestamp,
    /// See [`LedgerRow::ended`].
    pub ended: Timestamp,
    /// See [`LedgerRow::corrects`].
    pub corrects: Option<&'a RowId>,
    /// See [`LedgerRow::late`].
    pub late: bool,
}

impl<'a> RowView<'a> {
    /// The rows of an attempt of the session with this summary, which stands as before the record of its end: one for the
    /// attempt, then one for each call inside of its answer that bills at a model of its own. None for an attempt that used
    /// nothing, for one whose beginning is not known, and for calls by hand, which nobody pays for.
    pub fn of(
        summary: &'a SessionSummary,
        ended: &'a AttemptEnded,
        at: Timestamp,
    ) -> impl Iterator<Item = Self> {
        let row = Self::of_attempt(summary, ended, at);
        let inner = ended.inner.iter().filter_map(move |call| {
            Some(Self {
                id: Some(&call.row),
                costs: None,
                calls: &[],
                provider: &call.model.provider,
                model: &call.model.model,
                answered_by: None,
                tokens: call.usage.tokens,
                quality: call.usage.quality,
                raw: call.usage.raw.as_ref(),
                catalogue: call.catalogue.as_deref(),
                prices: call.prices,
                cost: call.cost,
                assumed: &call.assumed,
                served: &call.usage.served,
                provider_cost: None,
                ..row?
            })
        });
        row.into_iter().chain(inner)
    }

    fn of_attempt(summary: &'a SessionSummary, ended: &'a AttemptEnded, at: Timestamp) -> Option<Self> {
        let usage = ended.usage.as_ref().filter(|_| summary.tenant != BY_HAND_TENANT)?;
        let open = summary.open_attempts.get(ended.attempt.as_str())?;
        let ModelRef { provider, model } = &open.model;
        let at = ended.ended.unwrap_or(at);
        let attribution = open.attribution.as_deref();
        let largest = ended.calls.iter().map(Tokens::all_input).max();
        let size = largest.unwrap_or_else(|| usage.tokens.all_input());
        Some(Self {
            id: None,
            costs: ended.costs.as_deref(),
            tenant: &summary.tenant,
            workspace: &summary.workspace,
            session: summary.id,
            root: summary.root.unwrap_or(summary.id),
            parent_step: summary.parent_step,
            turn: open.turn,
            step: open.step,
            step_number: open.step_number,
            attempt: ended.attempt,
            attempt_number: open.attempt_number,
            agent: &open.agent,
            purpose: open.purpose,
            provider,
            model,
            answered_by: ended.answered_by.as_deref(),
            tokens: usage.tokens,
            calls: &ended.calls,
            quality: usage.quality,
            raw: usage.raw.as_ref(),
            catalogue: open.catalogue.as_deref(),
            prices: open.prices.held(size, &usage.served).assuming(&ended.assumed),
            cost: ended.cost,
            assumed: &ended.assumed,
            served: &usage.served,
            provider_cost: usage.provider_cost,
            tier: open.tier,
            labels: attribution.map_or(&NO_LABELS, |attribution| &attribution.labels),
            key: attribution.and_then(|attribution| attribution.key.as_ref()),
            // The clock that told the beginning may have been ahead.
            started: open.started.min(at),
            ended: at,
            corrects: None,
            late: false,
        })
    }

    /// The id.
    pub fn row_id(&self) -> RowId {
        self.id.cloned().unwrap_or_else(|| RowId::of(self.attempt))
    }

    /// The row, with texts of its own.
    pub fn to_row(&self) -> LedgerRow {
        LedgerRow {
            id: self.row_id(),
            tenant: self.tenant.to_owned(),
            workspace: self.workspace.to_owned(),
            session: self.session,
            root: self.root,
            parent_step: self.parent_step,
            turn: self.turn,
            step: self.step,
            step_number: self.step_number,
            attempt: self.attempt,
            attempt_number: self.attempt_number,
            agent: self.agent.to_owned(),
            purpose: self.purpose,
            provider: self.provider.to_owned(),
            model: self.model.to_owned(),
            answered_by: self.answered_by.map(str::to_owned),
            tokens: self.tokens,
            calls: self.calls.to_vec(),
            quality: self.quality,
            raw: self.raw.cloned(),
            catalogue: self.catalogue.map(str::to_owned),
            prices: self.prices,
            costs: self.costs.copied().unwrap_or_else(|| CostByClass::new(&self.prices, &self.tokens)),
            cost: self.cost,
            assumed: self.assumed.to_vec(),
            served: self.served.to_vec(),
            provider_cost: self.provider_cost,
            tier: self.tier,
            labels: self.labels.clone(),
            key: self.key.cloned(),
            started: self.started,
            ended: self.ended,
            corrects: self.corrects.cloned(),
            late: self.late,
        }
    }

    /// What running aggregates count it under.
    pub fn grain(&self) -> Grain {
        Grain {
            tenant: self.tenant.to_owned(),
            day: day(self.ended),
            provider: self.provider.to_owned(),
            model: self.model.to_owned(),
            purpose: self.purpose,
            agent: self.agent.to_owned(),
            attribution: Attribution { labels: self.labels.clone(), key: self.key.cloned() }.boxed(),
        }
    }

    /// As a sum over one row. A correction is money only: its attempt is counted by the row that it corrects.
    pub fn sum(&self) -> UsageSum {
        let counted = |is_so: bool| u64::from(is_so && self.corrects.is_none());
        let totals = Totals {
            tokens: self.tokens,
            cost: self.cost.unwrap_or_default(),
            attempts: counted(true),
            estimated: counted(self.quality == Quality::Estimated),
            unpriced: counted(self.cost.is_none()),
        };
        UsageSum {
            totals,
            unreconciled: counted(self.quality == Quality::Unreconciled),
            assumed: counted(!self.assumed.is_empty()),
            provider_cost: self.cost.and(self.provider_cost).unwrap_or_default(),
            provider_priced: self.provider_cost.and(self.cost).unwrap_or_default(),
        }
    }
}

impl LedgerRow {
    /// The row as one that borrows.
    pub fn view(&self) -> RowView<'_> {
        RowView {
            id: (self.id != RowId::of(self.attempt)).then_some(&self.id),
            costs: Some(&self.costs),
            tenant: &self.tenant,
            workspace: &self.workspace,
            session: self.session,
            root: self.root,
            parent_step: self.parent_step,
            turn: self.turn,
            step: self.step,
            step_number: self.step_number,
            attempt: self.attempt,
            attempt_number: self.attempt_number,
            agent: &self.agent,
            purpose: self.purpose,
            provider: &self.provider,
            model: &self.model,
            answered_by: self.answered_by.as_deref(),
            tokens: self.tokens,
            calls: &self.calls,
            quality: self.quality,
            raw: self.raw.as_ref(),
            catalogue: self.catalogue.as_deref(),
            prices: self.prices,
            cost: self.cost,
            assumed: &self.assumed,
            served: &self.served,
            provider_cost: self.provider_cost,
            tier: self.tier,
            labels: &self.labels,
            key: self.key.as_ref(),
            started: self.started,
            ended: self.ended,
            corrects: self.corrects.as_ref(),
            late: self.late,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_of_a_row_gives_the_row_back() {
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
        assert_eq!(row.view().to_row(), row);
        let computed = RowView { costs: None, ..row.view() };
        assert_eq!(computed.to_row(), row);
        let other =
            LedgerRow { id: RowId("row_x.1".to_owned()), corrects: Some(row.id.clone()), ..row.clone() };
        assert_eq!(other.view().to_row(), other);
        let (own, correction) = (UsageSum::of(&row), UsageSum::of(&other).totals);
        assert_eq!((own.totals.attempts, own.totals.estimated, own.assumed), (1, 1, 1));
        assert_eq!((correction.attempts, correction.estimated, correction.unpriced), (0, 0, 0));
        assert_eq!((correction.cost, UsageSum::of(&other).assumed), (row.cost.unwrap(), 0));
        assert_eq!((row.view().grain(), row.view().sum()), (row.grain(), UsageSum::of(&row)));
    }
}

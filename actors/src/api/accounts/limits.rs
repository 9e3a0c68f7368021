//! What a tenant may use, and what it used of that.

use std::sync::Arc;

use playhouse_protocol::ledger::RowQuery;
use playhouse_protocol::limit::{Amount, LimitScope, LimitUnit};
use playhouse_protocol::{CommandError, Cost, Day, Limit, Timestamp};

use crate::api::engine::Engine;
use crate::base::now;
use crate::budget::{Limits, at_current_prices, spent_of_tenant, unpriced};

impl Engine {
    /// What a tenant spent on this day (UTC) up to now, and the time that is now. A row without a cost counts with what its
    /// model costs now; nothing is known where that model has no price.
    ///
    /// # Errors
    /// The store failed.
    pub async fn spent_today(&self, tenant: &str) -> Result<(Option<Cost>, Timestamp), CommandError> {
        let (used, at) = self.used_today(tenant).await?;
        let totals = used.totals;
        if totals.unpriced == 0 {
            return Ok((Some(totals.cost), at));
        }
        let day = Day::of(at);
        let query = RowQuery {
            tenant: Some(tenant.to_owned()),
            from: Some(day.start()),
            to: Some(day.next().start()),
            ..RowQuery::default()
        };
        let rows = self.ledger(move |ledger| unpriced(ledger, query, totals.unpriced)).await?;
        let cost = match at_current_prices(rows.as_deref(), &*self.shared.directory) {
            Ok(more) => {
                let mut cost = totals.cost;
                cost += more;
                Some(cost)
            }
            Err(unknown) => {
                tracing::warn!(tenant, hint = unknown.hint(), "what was spent today is not known");
                None
            }
        };
        Ok((cost, at))
    }

    /// The bound of what a tenant takes up on disk, if there is one.
    pub fn storage_limit(&self, tenant: &str) -> Option<Limit> {
        self.shared.storage_limit(tenant)
    }

    /// The budgets that hold for a tenant: its own with what is used and left, and those of each of its turns and sessions.
    ///
    /// # Errors
    /// The store failed.
    pub async fn budgets(&self, tenant: &str) -> Result<Vec<Limit>, CommandError> {
        let purses = Arc::clone(&self.shared.purses);
        let each =
            [(LimitScope::Turn, purses.budgets().turn), (LimitScope::Session, purses.budgets().session)];
        let mut listed: Vec<Limit> = each.into_iter().flat_map(|(scope, limits)| of(scope, limits)).collect();
        let budget = purses.budgets().of(tenant);
        if budget.limits.is_none() {
            return Ok(listed);
        }
        let day = Day::of(now());
        let (of_whom, from, money) = (tenant.to_owned(), budget.per.start(day), budget.limits.cost.is_some());
        let read = self.ledger(move |ledger| spent_of_tenant(ledger, of_whom, from, money)).await?;
        let (mut spent, rows) = read;
        let unknown = at_current_prices(rows.as_deref(), &*self.shared.directory)
            .map(|cost| spent.cost += cost)
            .is_err();
        // What is followed is never behind the ledger, but for rows that are on their way.
        let spent = purses.spent(tenant).map_or(spent, |followed| followed.max(spent));
        listed.extend(of(LimitScope::Tenant, budget.limits).map(|limit| {
            let used = match limit.unit {
                LimitUnit::Usd => (!unknown).then_some(Amount::Usd(spent.cost.normalized())),
                _ => Some(Amount::Count(spent.tokens)),
            };
            Limit { used, renews_at: budget.per.end(day), ..limit }.with_left()
        }));
        Ok(listed)
    }
}

fn of(scope: LimitScope, limits: Limits) -> impl Iterator<Item = Limit> {
    let cost = limits.cost.map(|max| Limit::of_money(Limits::NAME, scope, max));
    let tokens = limits.tokens.map(|max| Limit::of_count(Limits::NAME, scope, LimitUnit::Tokens, max));
    cost.into_iter().chain(tokens)
}

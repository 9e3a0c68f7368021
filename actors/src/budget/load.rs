//! Reading what was spent before.

use std::collections::HashSet;
use std::sync::Arc;

use playhouse_billing::budget::{Account, Spent};
use playhouse_protocol::ledger::{RowQuery, UsageQuery};
use playhouse_protocol::usage::Totals;
use playhouse_protocol::{Day, ErrorCode, ErrorInfo, SessionId, Timestamp};
use playhouse_store::{Ledger, StoreError};

use super::unpriced::{PAGE, Unpriced, at_current_prices, unpriced};
use super::{Books, Purse};
use crate::base::now;

impl Purse {
    /// Sees to it that what its session and its tenant use is followed.
    pub(super) async fn load(&self, books: Books<'_>) -> Result<(), ErrorInfo> {
        for account in self.accounts() {
            if self.with(|tenant| tenant.knows(account)) {
                continue;
            }
            // All sessions of a tenant may want it at once: one reads, and the others wait for it.
            let loading = self.with(|tenant| Arc::clone(tenant.loading.entry(account).or_default()));
            let held = loading.lock().await;
            self.load_account(books, account).await?;
            drop(held);
            self.with(|tenant| tenant.loading.remove(&account));
        }
        Ok(())
    }

    /// Reads until no row arrived meanwhile and none is on its way. No attempt that is charged to the account runs before,
    /// so that only the ends of those that were lost can come in between.
    async fn load_account(&self, books: Books<'_>, account: Account) -> Result<(), ErrorInfo> {
        loop {
            let arrived = self.purses.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            let day = Day::of(now());
            let (is_known, stir) = self.with(|tenant| {
                let decided = tenant.book.roll(day);
                tenant.tell(decided);
                let stir = tenant.stirs.get(&account).copied().unwrap_or_default();
                (tenant.knows(account), stir)
            });
            if is_known {
                return Ok(());
            }
            if stir.under_way > 0 {
                arrived.await;
                continue;
            }
            let spent = self.read(books, account, day).await?;
            let is_still = self.with(|tenant| {
                let now = tenant.stirs.get(&account).copied().unwrap_or_default();
                let is_still = now == stir && tenant.book.period() == self.of_tenant.per.period(day);
                if is_still {
                    tenant.book.begin(account, spent);
                    if tenant.stale.remove(&account) {
                        let decided = tenant.book.restate(account, spent);
                        tenant.tell(decided);
                    }
                }
                is_still
            });
            if is_still {
                return Ok(());
            }
        }
    }

    /// What the ledger says was spent. A row without a cost counts with what its model costs now.
    ///
    /// # Errors
    /// The ledger cannot be read, or the model of a row still has no price, and money is limited.
    async fn read(&self, books: Books<'_>, account: Account, day: Day) -> Result<Spent, ErrorInfo> {
        let ledger = Arc::clone(books.ledger);
        let (tenant, root) = (self.tenant.to_string(), self.root);
        let from = self.of_tenant.per.start(day);
        let limits_money = match account {
            Account::Tenant => self.of_tenant.limits.cost.is_some(),
            Account::Session(_) => self.session_limits.cost.is_some(),
            Account::Turn(_) => false,
        };
        let spent = books.pool.run(move || match account {
            Account::Tenant => spent_of_tenant(&*ledger, tenant, from, limits_money),
            Account::Session(_) => spent_of_tree(&*ledger, tenant, root, limits_money),
            // Turns say themselves what they used.
            Account::Turn(_) => Ok((Spent::default(), Some(Vec::new()))),
        });
        let (mut spent, rows): (Spent, Option<Vec<Unpriced>>) = spent.await.map_err(|error| {
            ErrorInfo::new(ErrorCode::Store, format!("what was spent of a budget cannot be read: {error}"))
        })?;
        spent.cost += at_current_prices(rows.as_deref(), books.directory).map_err(|unknown| {
            tracing::warn!(
                tenant = &*self.tenant,
                hint = unknown.hint(),
                "what was spent of a budget is not known"
            );
            let message = format!(
                "what was spent of a budget of money is not known, since {unknown}: ask the operator"
            );
            ErrorInfo::new(ErrorCode::Budget, message)
        })?;
        Ok(spent)
    }
}

/// What a tenant used from this time on; where money matters, also its rows without a cost.
pub(crate) fn spent_of_tenant(
    ledger: &dyn Ledger,
    tenant: String,
    from: Option<Timestamp>,
    limits_money: bool,
) -> Result<(Spent, Option<Vec<Unpriced>>), StoreError> {
    let tenant = Some(tenant);
    let page = ledger.usage(&UsageQuery { tenant: tenant.clone(), from, ..UsageQuery::default() })?;
    let totals = page.groups.first().map(|group| group.sum.totals).unwrap_or_default();
    let rows = match limits_money && totals.unpriced > 0 {
        true => unpriced(ledger, RowQuery { tenant, from, ..RowQuery::default() }, totals.unpriced)?,
        false => Some(Vec::new()),
    };
    Ok((totals.into(), rows))
}

/// The same for a session and its sub-sessions, from the sums of each, which include archived rows. A sub-session counts only
/// if the ledger still holds one of its rows.
fn spent_of_tree(
    ledger: &dyn Ledger,
    tenant: String,
    root: SessionId,
    limits_money: bool,
) -> Result<(Spent, Option<Vec<Unpriced>>), StoreError> {
    let mut sessions = HashSet::from([root]);
    let all = RowQuery { root: Some(root), limit: PAGE, ..RowQuery::default() };
    let mut query = all.clone();
    loop {
        let page = ledger.rows(&query)?;
        sessions.extend(page.rows.iter().map(|row| row.session));
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    let mut totals = Totals::default();
    for session in sessions {
        let query =
            UsageQuery { tenant: Some(tenant.clone()), session: Some(session), ..UsageQuery::default() };
        let page = ledger.usage(&query)?;
        totals += page.groups.first().map(|group| group.sum.totals).unwrap_or_default();
    }
    let rows = match limits_money && totals.unpriced > 0 {
        true => unpriced(ledger, all, totals.unpriced)?,
        false => Some(Vec::new()),
    };
    Ok((totals.into(), rows))
}

//! Reading what was spent before.

use std::sync::Arc;

use playhouse_billing::budget::{Account, Spent};
use playhouse_protocol::ledger::{RowQuery, UsageQuery};
use playhouse_protocol::{Day, ErrorCode, ErrorInfo, SessionId};
use playhouse_store::{Ledger, StoreError};

use super::Books;
use super::Purse;
use crate::base::now;

/// How many rows are read at once.
const PAGE: usize = 1_000;

impl Purse {
    /// Sees to it that what its session and its tenant use is followed. `own` is what the session used itself.
    pub(super) async fn load(&self, books: Books<'_>, own: Spent) -> Result<(), ErrorInfo> {
        for account in self.accounts() {
            if self.with(|tenant| tenant.book.knows(account)) {
                continue;
            }
            // All sessions of a tenant may want it at once: one reads, and the others wait for it.
            let loading = self.with(|tenant| Arc::clone(tenant.loading.entry(account).or_default()));
            let held = loading.lock().await;
            self.load_account(books, account, own).await?;
            drop(held);
            self.with(|tenant| tenant.loading.remove(&account));
        }
        Ok(())
    }

    /// Reads until no row arrived meanwhile and none is on its way. No attempt that is charged to the account runs before,
    /// so that only the ends of those that were lost can come in between.
    async fn load_account(&self, books: Books<'_>, account: Account, own: Spent) -> Result<(), ErrorInfo> {
        loop {
            let arrived = self.purses.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            let day = Day::of(now());
            let (is_known, stir) = self.with(|tenant| {
                let decided = tenant.book.roll(day);
                tenant.tell(decided);
                let stir = tenant.stirs.get(&account).copied().unwrap_or_default();
                (tenant.book.knows(account), stir)
            });
            if is_known {
                return Ok(());
            }
            if stir.under_way > 0 {
                arrived.await;
                continue;
            }
            let spent = self.read(books, account, own, day).await?;
            let is_still = self.with(|tenant| {
                let now = tenant.stirs.get(&account).copied().unwrap_or_default();
                let is_still = now == stir && tenant.book.period() == self.of_tenant.per.period(day);
                if is_still {
                    tenant.book.begin(account, spent);
                }
                is_still
            });
            if is_still {
                return Ok(());
            }
        }
    }

    /// What the ledger says was spent.
    async fn read(
        &self,
        books: Books<'_>,
        account: Account,
        own: Spent,
        day: Day,
    ) -> Result<Spent, ErrorInfo> {
        let ledger = Arc::clone(books.ledger);
        let (tenant, root) = (self.tenant.to_string(), self.root);
        let from = self.of_tenant.per.start(day);
        let spent = books.pool.run(move || match account {
            Account::Tenant => {
                of_tenant(&*ledger, UsageQuery { tenant: Some(tenant), from, ..UsageQuery::default() })
            }
            Account::Session(_) => of_tree(&*ledger, root),
            // Turns say themselves what they used.
            Account::Turn(_) => Ok(Spent::default()),
        });
        let spent = spent.await.map_err(|error| {
            ErrorInfo::new(ErrorCode::Store, format!("what was spent of a budget cannot be read: {error}"))
        })?;
        // Its oldest rows may have been archived; what the top of the tree used itself is known without them.
        let is_own = account == Account::Session(self.session);
        Ok(if is_own { spent.max(own) } else { spent })
    }
}

fn of_tenant(ledger: &dyn Ledger, query: UsageQuery) -> Result<Spent, StoreError> {
    let page = ledger.usage(&query)?;
    Ok(page.groups.first().map(|group| group.sum.totals.into()).unwrap_or_default())
}

/// What a session and those below it used.
fn of_tree(ledger: &dyn Ledger, root: SessionId) -> Result<Spent, StoreError> {
    let mut query = RowQuery { root: Some(root), limit: PAGE, ..RowQuery::default() };
    let mut spent = Spent::default();
    loop {
        let page = ledger.rows(&query)?;
        page.rows.iter().for_each(|row| spent += row.totals().into());
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(spent),
        }
    }
}

//! Budgets at work: an attempt reserves its worst case before its request leaves, and what it used is settled when the
//! record of its end is durable.
//!
//! One [`Book`] for each tenant that has a budget, while sessions of it are in memory. What was spent before is read once,
//! from the ledger, and followed from then on; nothing of it is stored. A row that is on its way to the ledger while that is
//! read would be counted twice or not at all, so it is read at a moment when there is none ([`Stir`]).

mod load;
mod unpriced;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use metrics::{counter, gauge};
use parking_lot::Mutex;
use playhouse_billing::budget::{
    Account, Answer, Book, Budgets, Charge, Decision, Refusal, Short, Spent, TenantBudget, Used, Wait, Worst,
};
use playhouse_protocol::id::{AttemptId, MessageId};
use playhouse_protocol::operator::BY_HAND_TENANT;
use playhouse_protocol::record::AttemptEnded;
use playhouse_protocol::usage::Totals;
use playhouse_protocol::{Day, Entry, ErrorCode, ErrorInfo, Metric, ModelRef, PriceList, Record, SessionId};
use playhouse_session::Session;
use playhouse_store::Ledger;
use playhouse_workspace::Pool;
use rust_decimal::prelude::ToPrimitive as _;
use tokio::sync::{Notify, oneshot};

pub(crate) use self::load::spent_of_tenant;
pub(crate) use self::unpriced::{at_current_prices, unpriced};
pub(crate) use playhouse_billing::budget::Limits;

use crate::base::now;
use crate::directory::Directory;

/// Where it stands what models cost, and what was spent before.
#[derive(Clone, Copy)]
pub(crate) struct Books<'a> {
    pub(crate) directory: &'a dyn Directory,
    pub(crate) ledger: &'a Arc<dyn Ledger>,
    pub(crate) pool: &'a Pool,
}

/// The books of all tenants of an engine that have a budget.
#[derive(Debug, Default)]
pub(crate) struct Purses {
    budgets: Budgets,
    tenants: Mutex<HashMap<Arc<str>, Tenant>>,
    /// Told when rows that were on their way have arrived.
    arrived: Notify,
}

/// One tenant with sessions in memory.
#[derive(Debug)]
struct Tenant {
    book: Book,
    /// Sessions in memory, by the one at the top of their tree.
    live: HashMap<SessionId, usize>,
    /// The attempts for which something is reserved, and their sessions.
    open: HashMap<AttemptId, SessionId>,
    /// Those that wait to be told.
    told: HashMap<AttemptId, (SessionId, oneshot::Sender<Result<(), Refusal>>)>,
    /// Rows on their way to the ledger, by what they are charged to.
    stirs: HashMap<Account, Stir>,
    /// Held by whoever reads what was spent before.
    loading: HashMap<Account, Arc<tokio::sync::Mutex<()>>>,
    /// Accounts that have to be read again, since rows of them were corrected, or came without a cost from a crash.
    stale: HashSet<Account>,
}

/// Rows on their way to the ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stir {
    /// Rows whose records were appended and are not known to be durable.
    under_way: u32,
    /// How many have arrived.
    arrived: u64,
}

/// What a session's attempts are charged to.
#[derive(Debug)]
pub(crate) struct Purse {
    purses: Arc<Purses>,
    tenant: Arc<str>,
    session: SessionId,
    /// The session at the top of its tree: whose budget it uses.
    root: SessionId,
    turn_limits: Limits,
    session_limits: Limits,
    of_tenant: TenantBudget,
    /// Its own rows on their way to the ledger.
    under_way: AtomicU32,
}

/// The most that a request and its answer can use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    /// Tokens of input.
    pub(crate) input: u64,
    /// Tokens of output.
    pub(crate) output: u64,
    /// The region that it is served in, where prices depend on it.
    pub(crate) region: Option<&'static str>,
}

/// What the turn of a session used before an attempt, as its log says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Before(Totals);

impl Before {
    pub(crate) fn new(session: &Session) -> Self {
        Self(session.turn.as_ref().map(|turn| turn.totals).unwrap_or_default())
    }
}

impl Purses {
    pub(crate) fn new(budgets: Budgets) -> Arc<Self> {
        Arc::new(Self { budgets, ..Self::default() })
    }

    /// The purse of a session that was woken. None where it has no budget.
    pub(crate) fn enter(self: &Arc<Self>, session: &Session, open: &[AttemptId]) -> Option<Arc<Purse>> {
        let summary = &session.summary;
        let (turn_limits, session_limits) = (self.budgets.turn, self.budgets.session);
        let of_tenant = self.budgets.of(&summary.tenant);
        let is_free = turn_limits.is_none() && session_limits.is_none() && of_tenant.limits.is_none();
        // Calls by hand ask no model that anybody pays.
        if is_free || summary.tenant == BY_HAND_TENANT {
            return None;
        }
        let purse = Purse {
            purses: Arc::clone(self),
            tenant: summary.tenant.as_str().into(),
            session: summary.id,
            root: summary.root.unwrap_or(summary.id),
            turn_limits,
            session_limits,
            of_tenant,
            under_way: AtomicU32::new(0),
        };
        let mut tenants = self.tenants.lock();
        let tenant = tenants.entry(Arc::clone(&purse.tenant)).or_insert_with(|| Tenant::new(of_tenant));
        *tenant.live.entry(purse.root).or_default() += 1;
        // The actor before this one crashed while the end of its attempt was on its way.
        for lost in tenant.reserved(purse.session).into_iter().filter(|lost| !open.contains(lost)) {
            tenant.settle(lost, &purse.accounts(), Used::Unknown, Day::of(now()));
        }
        Some(Arc::new(purse))
    }

    /// The budgets that are set.
    pub(crate) const fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// Rows of a tenant were corrected: what was spent of its accounts is read again before the next reservation.
    pub(crate) fn corrected(&self, tenant: &str) {
        let mut tenants = self.tenants.lock();
        let Some(tenant) = tenants.get_mut(tenant) else { return };
        let live = tenant.live.keys().map(|root| Account::Session(*root));
        for account in live.chain([Account::Tenant]) {
            // Whoever reads just now reads again.
            tenant.stirs.entry(account).or_default().arrived += 1;
        }
        // What a turn used is not read from the ledger.
        let read = tenant.book.accounts().filter(|account| !matches!(account, Account::Turn(_)));
        tenant.stale.extend(read);
    }

    /// What a tenant spent within the period that runs, where it is followed.
    pub(crate) fn spent(&self, tenant: &str) -> Option<Spent> {
        let mut tenants = self.tenants.lock();
        let tenant = tenants.get_mut(tenant).filter(|tenant| !tenant.stale.contains(&Account::Tenant))?;
        let decided = tenant.book.roll(Day::of(now()));
        tenant.tell(decided);
        tenant.book.spent(Account::Tenant)
    }

    /// A session cannot go on: what is reserved for it is free.
    pub(crate) fn abandon(&self, session: SessionId) {
        for tenant in self.tenants.lock().values_mut() {
            for attempt in tenant.reserved(session) {
                tenant.settle(attempt, &[], Used::Nothing, Day::of(now()));
            }
        }
    }

    /// Tells the recorder of metrics how much is reserved and how many wait.
    pub(crate) fn observe(&self) {
        let tenants = self.tenants.lock();
        let mut reserved = Spent::default();
        tenants.values().for_each(|tenant| reserved += tenant.book.reserved());
        let waiting: usize = tenants.values().map(|tenant| tenant.book.waiting()).sum();
        gauge!(Metric::BudgetReserved.name()).set(reserved.cost.0.to_f64().unwrap_or_default());
        #[allow(clippy::cast_precision_loss, reason = "a count may be off by one in 2^53")]
        gauge!(Metric::BudgetWaiting.name()).set(waiting as f64);
    }
}

impl Tenant {
    fn new(budget: TenantBudget) -> Self {
        Self {
            book: Book::new(budget.per, Day::of(now())),
            live: HashMap::new(),
            open: HashMap::new(),
            told: HashMap::new(),
            stirs: HashMap::new(),
            loading: HashMap::new(),
            stale: HashSet::new(),
        }
    }

    /// The attempts of a session for which something is reserved.
    fn reserved(&self, session: SessionId) -> Vec<AttemptId> {
        let mut open: Vec<AttemptId> =
            self.open.iter().filter(|(_, of)| **of == session).map(|(attempt, _)| *attempt).collect();
        open.sort_unstable();
        open
    }

    fn settle(&mut self, attempt: AttemptId, accounts: &[Account], used: Used, day: Day) {
        if self.open.remove(&attempt).is_none() && matches!(used, Used::Unpriced { .. } | Used::Unknown) {
            // It was lost in a crash, so that nothing was reserved which would say what it cost at most.
            let read = accounts.iter().filter(|account| !matches!(account, Account::Turn(_)));
            self.stale.extend(read.copied());
        }
        let decided = self.book.settle(attempt, accounts, used, day);
        self.stale.retain(|account| self.book.knows(*account));
        self.tell(decided);
    }

    /// Whether the use of this account is tracked, corrections included.
    fn knows(&self, account: Account) -> bool {
        self.book.knows(account) && !self.stale.contains(&account)
    }

    fn tell(&mut self, decided: Vec<Decision>) {
        for Decision { attempt, outcome } in decided {
            let Some((session, told)) = self.told.remove(&attempt) else { continue };
            if outcome.is_ok() {
                self.open.insert(attempt, session);
            }
            // One that was cancelled in this moment is settled when its end is durable.
            drop(told.send(outcome));
        }
    }

    /// One that waited does not want to any more.
    fn withdraw(&mut self, attempt: AttemptId) {
        self.told.remove(&attempt);
        let decided = self.book.withdraw(attempt);
        self.tell(decided);
    }
}

impl Purse {
    /// What every attempt of the session is charged to, beside its turn.
    fn accounts(&self) -> Vec<Account> {
        let of_session = (!self.session_limits.is_none()).then_some(Account::Session(self.root));
        let of_tenant = (!self.of_tenant.limits.is_none()).then_some(Account::Tenant);
        of_session.into_iter().chain(of_tenant).collect()
    }

    fn charges(&self, turn: Option<MessageId>) -> Vec<Charge> {
        let turn = turn.map(|turn| Charge { account: Account::Turn(turn), limits: self.turn_limits });
        let charges = [
            Charge { account: Account::Session(self.root), limits: self.session_limits },
            Charge { account: Account::Tenant, limits: self.of_tenant.limits },
        ];
        turn.into_iter().chain(charges).filter(|charge| !charge.limits.is_none()).collect()
    }

    /// Does something with the tenant's book. It is there as long as this is.
    fn with<T>(&self, act: impl FnOnce(&mut Tenant) -> T) -> T {
        let mut tenants = self.purses.tenants.lock();
        let new = || Tenant::new(self.of_tenant);
        act(tenants.entry(Arc::clone(&self.tenant)).or_insert_with(new))
    }

    /// These entries were given to the store.
    pub(crate) fn appended(&self, entries: &[Entry]) {
        let rows = entries.iter().filter(|entry| is_row(&entry.record)).count();
        let Some(rows) = u32::try_from(rows).ok().filter(|rows| *rows > 0) else { return };
        self.under_way.fetch_add(rows, Ordering::Relaxed);
        self.with(|tenant| {
            for account in self.accounts() {
                tenant.stirs.entry(account).or_default().under_way += rows;
            }
        });
    }

    /// An entry is durable.
    pub(crate) fn flushed(&self, entry: &Entry) {
        match &entry.record {
            Record::AttemptEnded(ended) => {
                self.with(|tenant| {
                    if is_row(&entry.record) {
                        self.under_way.fetch_sub(1, Ordering::Relaxed);
                        self.arrived(tenant, 1);
                    }
                    let (accounts, day) = (self.accounts(), Day::of(entry.at));
                    tenant.settle(ended.attempt, &accounts, used(ended), day);
                });
                self.purses.arrived.notify_waiters();
            }
            Record::TurnEnded(ended) => self.with(|tenant| tenant.book.forget(Account::Turn(ended.turn))),
            _ => {}
        }
    }

    fn arrived(&self, tenant: &mut Tenant, rows: u32) {
        for account in self.accounts() {
            let stir = tenant.stirs.entry(account).or_default();
            stir.under_way = stir.under_way.saturating_sub(rows);
            stir.arrived += u64::from(rows);
        }
    }

    /// Reserves what an attempt of `turn`, or of none, may use at most. Waits while that fits only without
    /// what others have reserved; `waits` is told so, once. It is settled when the end of the attempt is durable.
    ///
    /// # Errors
    /// A budget does not cover it, or what was spent before cannot be read.
    pub(crate) async fn reserve(
        &self,
        books: Books<'_>,
        (attempt, model, turn): (AttemptId, &ModelRef, Option<MessageId>),
        Before(used): Before,
        Most { input, output, region }: Most,
        waits: impl FnOnce(&Wait),
    ) -> Result<(), ErrorInfo> {
        let prices = books.directory.prices(model);
        let prices = region.into_iter().fold(prices, PriceList::serving);
        let worst = Worst::of(&prices, input, output);
        self.load(books).await?;
        let charges = self.charges(turn);
        let reserved = self.with(|tenant| {
            if let Some(turn) = turn.filter(|_| !self.turn_limits.is_none()) {
                // After a restart its rows without a cost count as they did before: with what a step may cost.
                let unpriced = used.unpriced;
                let spent = Spent::from(used).with_unpriced(unpriced, worst.cost.unwrap_or_default());
                tenant.book.begin(Account::Turn(turn), spent);
            }
            let decided = tenant.book.roll(Day::of(now()));
            tenant.tell(decided);
            match tenant.book.reserve(attempt, &charges, worst) {
                Answer::Granted => {
                    tenant.open.insert(attempt, self.session);
                    Ok(None)
                }
                Answer::Waits(wait) => {
                    let (told, decided) = oneshot::channel();
                    tenant.told.insert(attempt, (self.session, told));
                    Ok(Some((wait, decided)))
                }
                Answer::Refused(refusal) => Err(refusal),
            }
        });
        let outcome = match reserved {
            Ok(None) => Ok(()),
            Err(refusal) => Err(refusal),
            Ok(Some((wait, decided))) => {
                waits(&wait);
                let _waiting = Waiting { purse: self, attempt };
                match decided.await {
                    Ok(outcome) => outcome,
                    Err(_) => {
                        return Err(ErrorInfo::new(ErrorCode::Internal, "nobody decides on its budget"));
                    }
                }
            }
        };
        outcome.map_err(|refusal| refused(&refusal, model))
    }
}

impl Drop for Purse {
    /// The session left memory. What is reserved for it stays until it is settled: after a crash it comes back for that.
    fn drop(&mut self) {
        let mut tenants = self.purses.tenants.lock();
        let Some(tenant) = tenants.get_mut(&self.tenant) else { return };
        let under_way = self.under_way.load(Ordering::Relaxed);
        if under_way > 0 {
            self.arrived(tenant, under_way);
        }
        if let Some(live) = tenant.live.get_mut(&self.root) {
            *live -= 1;
            if *live == 0 {
                tenant.live.remove(&self.root);
                let account = Account::Session(self.root);
                tenant.book.forget(account);
                tenant.stirs.remove(&account);
                tenant.loading.remove(&account);
                // One that is still held stays to be read again.
                if !tenant.book.knows(account) {
                    tenant.stale.remove(&account);
                }
            }
        }
        if tenant.live.is_empty() && tenant.book.is_quiet() {
            tenants.remove(&self.tenant);
        }
        drop(tenants);
        self.purses.arrived.notify_waiters();
    }
}

/// One that waits, until it is told or dropped.
struct Waiting<'a> {
    purse: &'a Purse,
    attempt: AttemptId,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.purse.with(|tenant| tenant.withdraw(self.attempt));
    }
}

/// Whether a record makes a row of the ledger.
fn is_row(record: &Record) -> bool {
    matches!(record, Record::AttemptEnded(AttemptEnded { usage: Some(_), .. }))
}

fn used(ended: &AttemptEnded) -> Used {
    if ended.usage.is_none() {
        return Used::Nothing;
    }
    let mut totals = Totals::default();
    ended.charges().for_each(|(usage, cost)| totals.add_attempt(usage, cost));
    match totals.unpriced {
        0 => Used::Known(totals.into()),
        rows => Used::Unpriced { known: totals.into(), rows },
    }
}

/// How the operator gives a model a price.
pub(crate) fn price_hint(ModelRef { provider, model }: &ModelRef) -> String {
    format!(
        "set `input` and `output` in [providers.{provider}.models.\"{model}\".cost] (0 for one that costs nothing)"
    )
}

/// What the turn ends with.
fn refused(refusal: &Refusal, model: &ModelRef) -> ErrorInfo {
    counter!(Metric::BudgetRefusals.name(), "budget" => refusal.scope_name()).increment(1);
    let hint = match refusal.short {
        Short::Unpriced { .. } => price_hint(model),
        Short::Cost { .. } | Short::Tokens { .. } => refusal.hint(),
    };
    tracing::info!(%refusal, %model, hint, "a budget does not cover a step");
    let limit = Some(Box::new(refusal.limit(Day::of(now()))));
    let error = ErrorInfo::new(ErrorCode::Budget, refusal.to_string());
    ErrorInfo { limit, model: Some(model.clone()), ..error }
}

#[cfg(test)]
mod tests;

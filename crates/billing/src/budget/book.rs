//! What is spent and reserved for one tenant.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use playhouse_protocol::id::AttemptId;
use playhouse_protocol::limit::LimitScope;
use playhouse_protocol::{Cost, Day};

use super::text::Short;
use super::{Account, Limits, Per, Spent, Used, Worst};

/// A budget that a request is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Whose use is added up.
    pub account: Account,
    /// The most that may be used.
    pub limits: Limits,
}

/// What became of a wish to reserve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is reserved.
    Granted,
    /// It is decided when others settle: see [`Decision`].
    Waits(Wait),
    /// It does not fit, whatever the others use.
    Refused(Refusal),
}

/// Why something waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The budget that is reserved to its limit.
    pub scope: LimitScope,
    /// The limit that is in the way, with what is used and reserved of it.
    pub short: Short,
    /// How long a tenant's use is added up.
    pub per: Per,
    /// How many requests have reserved something of it, or waited before.
    pub others: usize,
}

/// Why something is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The budget that does not cover it.
    pub scope: LimitScope,
    /// The limit that is in the way.
    pub short: Short,
    /// How long a tenant's use is added up.
    pub per: Per,
}

/// What became of one that waited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The attempt.
    pub attempt: AttemptId,
    /// Whether it is reserved now.
    pub outcome: Result<(), Refusal>,
}

/// What is spent and reserved for one tenant. See the [module](super).
#[derive(Clone, Debug)]
pub struct Book {
    per: Per,
    /// The period that runs.
    period: u64,
    accounts: BTreeMap<Account, Entry>,
    /// What is reserved.
    open: BTreeMap<AttemptId, Open>,
    /// The first that came first. Whatever stands here does not fit now, or stands behind one that does not.
    waiting: VecDeque<Waiter>,
    /// The sum of what is reserved.
    reserved: Spent,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    spent: Spent,
    reserved: Spent,
    /// Reservations, and those that wait for one.
    holds: usize,
    /// Nobody will ask for it again.
    is_over: bool,
}

#[derive(Clone, Debug)]
struct Open {
    accounts: Vec<Account>,
    worst: Spent,
}

#[derive(Clone, Debug)]
struct Waiter {
    attempt: AttemptId,
    charges: Vec<Charge>,
    worst: Worst,
}

/// How something stands that wants to be reserved.
enum Look {
    Fits,
    /// It fits when others have settled.
    Tight(Account, Short),
    Refused(Refusal),
}

impl Book {
    /// An empty book, on this day.
    pub fn new(per: Per, day: Day) -> Self {
        Self {
            per,
            period: per.period(day),
            accounts: BTreeMap::new(),
            open: BTreeMap::new(),
            waiting: VecDeque::new(),
            reserved: Spent::default(),
        }
    }

    /// Whether it is followed what this account uses.
    pub fn knows(&self, account: Account) -> bool {
        self.accounts.contains_key(&account)
    }

    /// The accounts that are followed.
    pub fn accounts(&self) -> impl Iterator<Item = Account> {
        self.accounts.keys().copied()
    }

    /// The number of the period that runs.
    pub const fn period(&self) -> u64 {
        self.period
    }

    /// Follows an account from now on, of which so much is spent. One that is followed already stays as it is.
    pub fn begin(&mut self, account: Account, spent: Spent) {
        let entry = self.accounts.entry(account).or_insert_with(|| Entry { spent, ..Entry::default() });
        entry.is_over = false;
    }

    /// So much is spent of an account that is followed, whatever was known before.
    pub fn restate(&mut self, account: Account, spent: Spent) -> Vec<Decision> {
        if let Some(entry) = self.accounts.get_mut(&account) {
            entry.spent = spent;
        }
        self.decide()
    }

    /// Follows an account no longer than something is reserved of it.
    pub fn forget(&mut self, account: Account) {
        if let Some(entry) = self.accounts.get_mut(&account) {
            entry.is_over = true;
        }
        self.tidy(account);
    }

    /// It is this day: a tenant begins anew with a new period. Days do not go back.
    pub fn roll(&mut self, day: Day) -> Vec<Decision> {
        let period = self.per.period(day);
        if period <= self.period {
            return Vec::new();
        }
        self.period = period;
        if let Some(entry) = self.accounts.get_mut(&Account::Tenant) {
            entry.spent = Spent::default();
        }
        self.decide()
    }

    /// Reserves the worst case of an attempt in all budgets that it is charged to, or in none. Those that are named first
    /// are told of first. Accounts that are not known have spent nothing.
    pub fn reserve(&mut self, attempt: AttemptId, charges: &[Charge], worst: Worst) -> Answer {
        charges.iter().for_each(|charge| self.begin(charge.account, Spent::default()));
        let waiter = Waiter { attempt, charges: charges.to_vec(), worst };
        let tight = match self.look(&waiter) {
            Look::Refused(refusal) => return Answer::Refused(refusal),
            Look::Fits => None,
            Look::Tight(account, short) => Some((account, short)),
        };
        let before = self.waiting.len();
        self.hold(&waiter, true);
        self.waiting.push_back(waiter);
        // Those before it were decided on when something changed last: only the new one may go on.
        if self.decide().iter().any(|decision| decision.attempt == attempt) {
            return Answer::Granted;
        }
        let (account, short) = tight.unwrap_or_else(|| self.behind(charges, worst));
        let open = self.open.values().filter(|open| open.accounts.contains(&account)).count();
        let wait = Wait { scope: account.scope(), short, per: self.per, others: open + before };
        Answer::Waits(wait)
    }

    /// The budget for which one waits that would fit, but for those before it.
    fn behind(&self, charges: &[Charge], worst: Worst) -> (Account, Short) {
        let shared = |charge: &&Charge| {
            let others = self.waiting.iter().rev().skip(1);
            others.flat_map(|waiter| &waiter.charges).any(|other| other.account == charge.account)
        };
        // The widest that it shares with another.
        let charge = charges.iter().rev().find(shared).or(charges.last());
        let (account, limits) =
            charge.map_or((Account::Tenant, Limits::default()), |charge| (charge.account, charge.limits));
        let used = self.accounts.get(&account).map(Entry::taken).unwrap_or_default();
        let short = match (limits.cost, limits.tokens) {
            (Some(limit), _) => {
                Short::Cost { limit, used: used.cost, needed: worst.cost.unwrap_or_default() }
            }
            (None, limit) => {
                Short::Tokens { limit: limit.unwrap_or_default(), used: used.tokens, needed: worst.tokens }
            }
        };
        (account, short)
    }

    /// Whoever wanted this reserved does not want it any more. What is reserved already stays until it is settled.
    pub fn withdraw(&mut self, attempt: AttemptId) -> Vec<Decision> {
        let Some(place) = self.waiting.iter().position(|waiter| waiter.attempt == attempt) else {
            return Vec::new();
        };
        if let Some(waiter) = self.waiting.remove(place) {
            self.hold(&waiter, false);
        }
        self.decide()
    }

    /// An attempt ended on this day: what it used is spent, by whatever it was charged to and by `accounts`, and the rest
    /// is free. An attempt for which nothing was reserved is only added.
    pub fn settle(
        &mut self,
        attempt: AttemptId,
        accounts: &[Account],
        used: Used,
        day: Day,
    ) -> Vec<Decision> {
        let mut decided = self.roll(day);
        let mut charged: BTreeSet<Account> = accounts.iter().copied().collect();
        let open = self.open.remove(&attempt);
        let worst = open.as_ref().map(|open| open.worst).unwrap_or_default();
        if let Some(open) = &open {
            take(&mut self.reserved, open.worst);
            for account in &open.accounts {
                let Some(entry) = self.accounts.get_mut(account) else { continue };
                take(&mut entry.reserved, open.worst);
                entry.holds = entry.holds.saturating_sub(1);
            }
            charged.extend(&open.accounts);
        }
        let used = match used {
            Used::Nothing => Spent::default(),
            Used::Known(spent) => spent,
            Used::Unpriced { known, rows } => known.with_unpriced(rows, worst.cost),
            Used::Unknown => worst,
        };
        for account in charged {
            // What ended in a period that is over is of that one.
            let is_late = account == Account::Tenant && self.per.period(day) < self.period;
            if let Some(entry) = self.accounts.get_mut(&account).filter(|_| !is_late) {
                entry.spent += used;
            }
            self.tidy(account);
        }
        decided.extend(self.decide());
        decided
    }

    /// What is reserved, each attempt once.
    pub const fn reserved(&self) -> Spent {
        self.reserved
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing is reserved, and nobody waits.
    pub fn is_quiet(&self) -> bool {
        self.open.is_empty() && self.waiting.is_empty()
    }

    /// What is spent of an account.
    pub fn spent(&self, account: Account) -> Option<Spent> {
        self.accounts.get(&account).map(|entry| entry.spent)
    }

    fn look(&self, waiter: &Waiter) -> Look {
        let nothing = Entry::default();
        let entry = |account| self.accounts.get(account).unwrap_or(&nothing);
        for Charge { account, limits } in &waiter.charges {
            if let Some(short) = limits.short(entry(account).spent, waiter.worst) {
                return Look::Refused(Refusal { scope: account.scope(), short, per: self.per });
            }
        }
        for Charge { account, limits } in &waiter.charges {
            if let Some(short) = limits.short(entry(account).taken(), waiter.worst) {
                return Look::Tight(*account, short);
            }
        }
        Look::Fits
    }

    /// Decides on those that wait, in order. Nobody passes one that waits for the same budget, so that none waits for ever.
    fn decide(&mut self) -> Vec<Decision> {
        let mut decided = Vec::new();
        let mut full = BTreeSet::new();
        let mut place = 0;
        // If the tenant has a budget, everything is charged to it.
        while !full.contains(&Account::Tenant)
            && let Some(waiter) = self.waiting.get(place)
        {
            if waiter.charges.iter().any(|charge| full.contains(&charge.account)) {
                place += 1;
                continue;
            }
            let outcome = match self.look(waiter) {
                Look::Tight(account, _) => {
                    full.insert(account);
                    place += 1;
                    continue;
                }
                Look::Fits => Ok(()),
                Look::Refused(refusal) => Err(refusal),
            };
            let Some(waiter) = self.waiting.remove(place) else { break };
            match &outcome {
                Ok(()) => self.open(&waiter),
                Err(_) => self.hold(&waiter, false),
            }
            decided.push(Decision { attempt: waiter.attempt, outcome });
        }
        decided
    }

    /// Reserves what fits. It holds its accounts already.
    fn open(&mut self, waiter: &Waiter) {
        let worst = Spent { cost: waiter.worst.cost.unwrap_or_default(), tokens: waiter.worst.tokens };
        let accounts: Vec<Account> = waiter.charges.iter().map(|charge| charge.account).collect();
        for account in &accounts {
            if let Some(entry) = self.accounts.get_mut(account) {
                entry.reserved += worst;
            }
        }
        self.reserved += worst;
        self.open.insert(waiter.attempt, Open { accounts, worst });
    }

    /// Counts one that waits among those that need its accounts, or not any more.
    fn hold(&mut self, waiter: &Waiter, holds: bool) {
        for Charge { account, .. } in &waiter.charges {
            if let Some(entry) = self.accounts.get_mut(account) {
                entry.holds = if holds { entry.holds + 1 } else { entry.holds.saturating_sub(1) };
            }
            self.tidy(*account);
        }
    }

    /// Removes an account that nobody needs.
    fn tidy(&mut self, account: Account) {
        if self.accounts.get(&account).is_some_and(|entry| entry.is_over && entry.holds == 0) {
            self.accounts.remove(&account);
        }
    }
}

impl Entry {
    /// What is not to be had any more, for now.
    fn taken(&self) -> Spent {
        let mut taken = self.spent;
        taken += self.reserved;
        taken
    }
}

impl Limits {
    /// The limit that is passed where so much is used and so much more is needed. What needs nothing passes none.
    fn short(&self, used: Spent, worst: Worst) -> Option<Short> {
        if let Some(limit) = self.cost {
            let Some(needed) = worst.cost else { return Some(Short::Unpriced { limit }) };
            let mut sum = used.cost;
            sum += needed;
            if sum > limit && needed > Cost::ZERO {
                return Some(Short::Cost { limit, used: used.cost, needed });
            }
        }
        let limit = self.tokens?;
        let passes = used.tokens.saturating_add(worst.tokens) > limit && worst.tokens > 0;
        passes.then_some(Short::Tokens { limit, used: used.tokens, needed: worst.tokens })
    }
}

fn take(from: &mut Spent, amount: Spent) {
    from.cost = Cost(from.cost.0.saturating_sub(amount.cost.0));
    from.tokens = from.tokens.saturating_sub(amount.tokens);
}

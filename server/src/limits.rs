//! What each tenant has in use, against what it may have.
//!
//! Sessions and running turns are counted in the store, where they are; what is being admitted at the moment is reserved
//! here, so that many that come at once do not pass together. Streams of events are counted here. What a tenant uses of
//! tokens and money is heard from the engine, from its first prompt on; what it spent on that day before is in the ledger.

mod budget;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use playhouse_actors::{Heard, Hub};
use playhouse_protocol::limit::{Amount, LimitScope, LimitUnit};
use playhouse_protocol::{CommandError, Cost, Day, EventBody, Limit, Record, SessionId, Timestamp};
use rust_decimal::Decimal;
use rust_decimal::prelude::FromPrimitive as _;
use tokio::sync::{Notify, OnceCell, OwnedSemaphorePermit, Semaphore};

use self::budget::Budget;
use crate::metrics::refused;
use crate::options::TenantLimits;
use crate::principal::Principal;
use crate::problem::{Kind, Problem};

/// How soon a client may come back that has reached a limit of what is in use at once.
const SOON: Duration = Duration::from_secs(2);
/// Questions to git of one tenant that are under way at once: half of what is of all, so that others come through.
const QUESTIONS_AT_ONCE: usize = 2;
/// Questions to git of one tenant that are under way or wait.
const QUESTIONS: u64 = 16;
/// The same of all tenants.
const ALL_QUESTIONS: u64 = 128;

/// The limits of what was used of late, as metrics and configuration name them.
const TOKENS_PER_MINUTE: &str = "tokens_per_minute";
const SPEND_PER_DAY: &str = "spend_per_day";

/// What each tenant has in use, against what it may have. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Limits(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limits: TenantLimits,
    counts: Mutex<HashMap<Key, u64>>,
    /// What the tenants used that are heard.
    budgets: Mutex<HashMap<Arc<str>, Arc<Followed>>>,
    /// Questions to git that may be under way still, of each tenant that asked one.
    asking: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
    /// Of each tenant that makes sessions: held by who looks whether one more may be.
    doors: Mutex<HashMap<Arc<str>, Arc<tokio::sync::Mutex<()>>>>,
    /// A session that was being made is in the store, or was given up.
    made: Notify,
}

/// What a tenant uses, from the first time on that it matters.
#[derive(Debug, Default)]
struct Followed {
    budget: Mutex<Budget>,
    /// Whether what it spent before on this day is in the budget.
    begun: OnceCell<()>,
}

/// What is counted here, whose it is, and of which session, if it is of one.
type Key = (Counted, Arc<str>, Option<SessionId>);

/// What is counted here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Counted {
    /// Streams of events that are open.
    Streams,
    /// Sessions that are being made.
    Sessions,
    /// Turns that are being admitted.
    Turns,
    /// Questions to git, under way or waiting.
    Questions,
}

impl Counted {
    fn name(self) -> &'static str {
        match self {
            Self::Streams => "streams of events",
            Self::Sessions => "sessions",
            Self::Turns => "running turns",
            Self::Questions => "questions to git that wait",
        }
    }

    /// What to do about too many.
    fn advice(self) -> &'static str {
        match self {
            Self::Streams => "close one first",
            Self::Sessions => "delete one that is not needed any more first; a fork is a session, too",
            Self::Turns => "wait until one is over, or abort it",
            Self::Questions => "try again soon",
        }
    }

    /// When to come back, where waiting helps.
    const fn wait(self) -> Option<Duration> {
        match self {
            Self::Turns | Self::Questions => Some(SOON),
            Self::Streams | Self::Sessions => None,
        }
    }

    /// The limit, as metrics name it.
    const fn limit(self) -> &'static str {
        match self {
            Self::Streams => "subscribers",
            Self::Sessions => "sessions",
            Self::Turns => "running_turns",
            Self::Questions => "questions",
        }
    }
}

/// One of something that a tenant has. It is given back by being dropped.
#[derive(Debug)]
pub struct Permit {
    inner: Arc<Inner>,
    key: Key,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.inner.counts.lock();
        let Some(count) = counts.get_mut(&self.key) else { return };
        *count -= 1;
        if *count == 0 {
            counts.remove(&self.key);
        }
        drop(counts);
        if self.key.0 == Counted::Sessions {
            self.inner.made.notify_waiters();
        }
    }
}

impl Limits {
    /// These for each tenant.
    pub fn new(limits: TenantLimits) -> Self {
        Self(Arc::new(Inner {
            limits,
            counts: Mutex::default(),
            budgets: Mutex::default(),
            asking: Mutex::default(),
            doors: Mutex::default(),
            made: Notify::new(),
        }))
    }

    /// A stream of events more. It counts until what is returned is dropped.
    ///
    /// # Errors
    /// The tenant has as many as it may have.
    pub fn subscribe(&self, principal: &Principal) -> Result<Permit, Problem> {
        let (permit, others) = self.count((Counted::Streams, Arc::clone(&principal.tenant), None));
        within(Counted::Streams, self.0.limits.subscribers, others)?;
        Ok(permit)
    }

    /// Streams of events that are open, of all tenants.
    pub fn subscribers(&self) -> u64 {
        self.all(Counted::Streams)
    }

    /// How many there are, of all tenants.
    fn all(&self, of: Counted) -> u64 {
        let counts = self.0.counts.lock();
        counts.iter().filter(|((counted, ..), _)| *counted == of).map(|(_, count)| count).sum()
    }

    /// One more, and how many there were.
    fn count(&self, key: Key) -> (Permit, u64) {
        let mut counts = self.0.counts.lock();
        let count = counts.entry(key.clone()).or_default();
        *count += 1;
        (Permit { inner: Arc::clone(&self.0), key }, *count - 1)
    }

    /// A session more of the tenant's, which has `existing` in the store. It counts beside those until what is returned is
    /// dropped, which is to be kept until it is in the store itself. Where the limit is so near that it depends on sessions that
    /// are being made, it waits for these.
    ///
    /// # Errors
    /// The tenant has as many as it may have, or they cannot be counted.
    pub(crate) async fn session<F: Future<Output = Result<u64, CommandError>>>(
        &self,
        tenant: &Arc<str>,
        existing: impl Fn() -> F,
    ) -> Result<Permit, Problem> {
        let key = (Counted::Sessions, Arc::clone(tenant), None);
        let Some(most) = self.0.limits.sessions else { return Ok(self.count(key).0) };
        let door = Arc::clone(self.0.doors.lock().entry(Arc::clone(tenant)).or_default());
        // One after the other: whoever comes later finds this one reserved.
        let _door = door.lock().await;
        loop {
            let made = self.0.made.notified();
            // Before those in the store are counted: one that is in both by then is counted twice, and none is missed.
            let being_made = self.0.counts.lock().get(&key).copied().unwrap_or_default();
            let existing = existing().await?;
            within(Counted::Sessions, Some(most), existing)?;
            if existing.saturating_add(being_made) < most {
                return Ok(self.count(key).0);
            }
            // One that was made since it was counted is not waited for.
            if self.0.counts.lock().get(&key).copied().unwrap_or_default() == being_made
                && tokio::time::timeout(SOON, made).await.is_err()
            {
                let detail = format!(
                    "this tenant has {existing} sessions and is making {being_made}, and may have {most}: try again soon"
                );
                refused(Counted::Sessions.limit());
                let used = existing.saturating_add(being_made);
                let problem = Problem::new(Kind::Limited, detail).of_limit(of(Counted::Sessions, most, used));
                return Err(problem.after(SOON));
            }
        }
    }

    /// A turn more of the tenant's, whose sessions with turns in the store are `busy`. It counts beside those until what is
    /// returned is dropped, which is to be kept until the prompt is in the store. A prompt of a session that is busy only
    /// waits, and is never refused.
    ///
    /// # Errors
    /// The tenant has as many as it may have, or they cannot be counted.
    pub(crate) async fn turn(
        &self,
        tenant: &Arc<str>,
        session: SessionId,
        busy: impl AsyncFnOnce() -> Result<HashSet<SessionId>, CommandError>,
    ) -> Result<Permit, Problem> {
        let (permit, _) = self.count((Counted::Turns, Arc::clone(tenant), Some(session)));
        let Some(most) = self.0.limits.running_turns else { return Ok(permit) };
        let mut running = busy().await?;
        if !running.contains(&session) {
            for (counted, owner, reserved) in self.0.counts.lock().keys() {
                running.extend(reserved.filter(|_| *counted == Counted::Turns && owner == tenant));
            }
            running.remove(&session);
            within(Counted::Turns, Some(most), running.len() as u64)?;
        }
        Ok(permit)
    }

    /// A question to git more of the tenant's. It comes when few enough of its own are under way; what is returned is to be kept
    /// until it is answered.
    ///
    /// # Errors
    /// As many wait already as may, of this tenant or of all.
    pub(crate) async fn question(
        &self,
        tenant: &Arc<str>,
    ) -> Result<(Permit, OwnedSemaphorePermit), Problem> {
        let (permit, others) = self.count((Counted::Questions, Arc::clone(tenant), None));
        within(Counted::Questions, Some(QUESTIONS), others)?;
        let all = self.all(Counted::Questions);
        if all > ALL_QUESTIONS {
            refused(Counted::Questions.limit());
            let detail = format!("{all} questions to git wait: try again soon");
            return Err(Problem::new(Kind::Overloaded, detail).after(SOON));
        }
        let asking = {
            let mut asking = self.0.asking.lock();
            let new = || Arc::new(Semaphore::new(QUESTIONS_AT_ONCE));
            Arc::clone(asking.entry(Arc::clone(tenant)).or_insert_with(new))
        };
        let turn = asking.acquire_owned().await;
        let turn = turn.map_err(|error| Problem::new(Kind::Internal, error.to_string()))?;
        Ok((permit, turn))
    }

    /// Hears from now on what the tenant uses, if that is limited. `spent` tells what it spent on this day up to now, if that is
    /// known. An attempt that ends at that moment may be counted twice, and none is missed.
    ///
    /// # Errors
    /// What it spent cannot be told.
    pub(crate) async fn follow(
        &self,
        hub: &Hub,
        tenant: &Arc<str>,
        spent: impl AsyncFnOnce() -> Result<(Option<Cost>, Timestamp), CommandError>,
    ) -> Result<(), Problem> {
        let TenantLimits { tokens_per_minute, spend_per_day, .. } = self.0.limits;
        if tokens_per_minute.is_none() && spend_per_day.is_none() {
            return Ok(());
        }
        let followed = self.followed(hub, tenant);
        let begin = async || {
            if spend_per_day.is_some() {
                let (spent, at) = spent().await?;
                followed.budget.lock().begin(spent, at, Instant::now());
            }
            Ok::<_, CommandError>(())
        };
        followed.begun.get_or_try_init(begin).await?;
        Ok(())
    }

    /// What the tenant uses. It is listened to before the ledger is asked.
    fn followed(&self, hub: &Hub, tenant: &Arc<str>) -> Arc<Followed> {
        let mut budgets = self.0.budgets.lock();
        if let Some(followed) = budgets.get(tenant) {
            return Arc::clone(followed);
        }
        let followed = Arc::<Followed>::default();
        budgets.insert(Arc::clone(tenant), Arc::clone(&followed));
        let listening = Arc::clone(&followed);
        let inner = Arc::downgrade(&self.0);
        let (mut listener, tenant) = (hub.listen(tenant, None, |_| true), Arc::clone(tenant));
        tokio::spawn(async move {
            while let Some(heard) = listener.next().await {
                match heard {
                    Heard::Event(shout) => {
                        let event = shout.event.event();
                        if let EventBody::Durable(record) = &event.body
                            && let Record::AttemptEnded(ended) = record.as_ref()
                        {
                            let mut budget = listening.budget.lock();
                            for (usage, cost) in ended.charges() {
                                budget.note(usage, cost, event.at, Instant::now());
                            }
                        }
                    }
                    Heard::Behind { .. } => {
                        // The next prompt reads the ledger again.
                        tracing::warn!(%tenant, "some of what a tenant used was not heard");
                        if let Some(inner) = inner.upgrade() {
                            inner.budgets.lock().remove(&tenant);
                        }
                        return;
                    }
                }
            }
        });
        followed
    }

    /// Whether the tenant may begin a turn, by what it used of late.
    ///
    /// # Errors
    /// It used as much as it may.
    pub(crate) fn afford(&self, tenant: &Arc<str>) -> Result<(), Problem> {
        for limit in self.used_of_late(tenant) {
            if limit.used.is_some_and(|used| !used.reaches(limit.max)) {
                continue;
            }
            let name = if limit.unit == LimitUnit::Usd { SPEND_PER_DAY } else { TOKENS_PER_MINUTE };
            let detail = match (name, limit.used) {
                (TOKENS_PER_MINUTE, Some(used)) => {
                    format!(
                        "this tenant used {used} tokens within a minute, and may use {}: try again later",
                        limit.max
                    )
                }
                (_, Some(used)) => {
                    format!(
                        "this tenant spent {used} on this day (UTC), and may spend {}: try again tomorrow",
                        limit.max
                    )
                }
                (_, None) => {
                    tracing::info!(
                        %tenant,
                        "`spend_per_day` refuses every prompt: a model without a price was used on this day; give it one (0 if \
                         it costs nothing) and start again"
                    );
                    format!(
                        "this tenant may spend {} on a day (UTC), and used a model whose price is not known: ask the operator",
                        limit.max
                    )
                }
            };
            refused(name);
            let wait =
                limit.renews_at.map(|at| Duration::from_millis(at.millis_since(playhouse_actors::now())));
            let problem = Problem::new(Kind::Limited, detail).of_limit(limit);
            return Err(match wait {
                Some(wait) => problem.after(wait),
                None => problem,
            });
        }
        Ok(())
    }

    /// What the tenant used within a minute and on this day, as far as that is limited and it is followed. `used` is absent
    /// where that is not known.
    fn used_of_late(&self, tenant: &Arc<str>) -> Vec<Limit> {
        let Some(followed) = self.0.budgets.lock().get(tenant).cloned() else { return Vec::new() };
        let (budget, now, clock) = (followed.budget.lock(), Instant::now(), playhouse_actors::now());
        let after = |wait: Duration| {
            let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            Timestamp::from_millis(clock.as_millis().saturating_add(wait))
        };
        let tokens = self.0.limits.tokens_per_minute.map(|most| {
            let (used, wait) = budget.tokens(most, now);
            let limit = Limit::of_count(TOKENS_PER_MINUTE, LimitScope::Tenant, LimitUnit::Tokens, most);
            Limit { renews_at: (used > 0).then(|| after(wait)), ..limit.used(Amount::Count(used)) }
        });
        let spend = self.0.limits.spend_per_day.and_then(Decimal::from_f64).map(|most| {
            let (spent, _) = budget.spent(now);
            let limit = Limit::of_money(SPEND_PER_DAY, LimitScope::Tenant, Cost(most));
            let used = spent.map(|spent| Amount::Usd(Cost(spent).normalized()));
            Limit { used, renews_at: Some(Day::of(clock).next().start()), ..limit }
        });
        tokens.into_iter().chain(spend).collect()
    }

    /// The limits of a tenant that has so many sessions and running turns, with what is used of them.
    pub(crate) fn of(&self, tenant: &Arc<str>, sessions: u64, turns: u64) -> Vec<Limit> {
        let TenantLimits { sessions: most_sessions, running_turns, subscribers, .. } = self.0.limits;
        let streams = self.0.counts.lock().get(&(Counted::Streams, Arc::clone(tenant), None)).copied();
        let counted = [
            (Counted::Sessions, most_sessions, sessions),
            (Counted::Turns, running_turns, turns),
            (Counted::Streams, subscribers, streams.unwrap_or_default()),
        ];
        let counted = counted.into_iter().filter_map(|(counted, most, used)| Some(of(counted, most?, used)));
        counted.chain(self.used_of_late(tenant)).map(Limit::with_left).collect()
    }
}

fn of(counted: Counted, most: u64, used: u64) -> Limit {
    Limit::of_count(counted.limit(), LimitScope::Tenant, LimitUnit::Count, most).used(Amount::Count(used))
}

/// Refuses one more where `count` has reached `limit`.
fn within(counted: Counted, limit: Option<u64>, count: u64) -> Result<(), Problem> {
    match limit {
        Some(limit) if count >= limit => {
            refused(counted.limit());
            let what = counted.name();
            let advice = counted.advice();
            let detail = format!("this tenant has {count} {what}, and may have {limit}: {advice}");
            let problem = Problem::new(Kind::Limited, detail).of_limit(of(counted, limit, count));
            Err(match counted.wait() {
                Some(wait) => problem.after(wait),
                None => problem,
            })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures::FutureExt as _;
    use playhouse_protocol::{IdGenerator, Timestamp};

    use super::*;

    fn who(tenant: &str) -> Principal {
        Principal { tenant: tenant.into(), ..Principal::local() }
    }

    #[test]
    fn a_stream_counts_until_it_is_dropped_and_for_its_tenant_only() {
        let limits = Limits::new(TenantLimits { subscribers: Some(2), ..TenantLimits::default() });
        let (first, second) = (limits.subscribe(&who("a")).unwrap(), limits.subscribe(&who("a")).unwrap());
        let refused = limits.subscribe(&who("a")).unwrap_err();
        assert_eq!((refused.kind, refused.retry_after), (Kind::Limited, None), "waiting does not help");
        let limit = refused.limit.unwrap();
        assert_eq!(
            (&*limit.name, limit.max, limit.used),
            ("subscribers", Amount::Count(2), Some(Amount::Count(2)))
        );
        let other = limits.subscribe(&who("b")).unwrap();
        assert_eq!(limits.subscribers(), 3);
        drop(first);
        let third = limits.subscribe(&who("a")).unwrap();
        drop((second, third, other));
        assert_eq!(limits.subscribers(), 0);
    }

    #[tokio::test]
    async fn questions_of_one_tenant_wait_for_each_other_and_only_so_many() {
        let limits = Limits::new(TenantLimits::default());
        let (mine, theirs) = (who("a").tenant, who("b").tenant);
        let mut waiting: Vec<_> = (0..QUESTIONS).map(|_| Box::pin(limits.question(&mine))).collect();
        let mut under_way = Vec::new();
        for question in &mut waiting {
            under_way.extend(question.now_or_never());
        }
        assert_eq!(under_way.len(), QUESTIONS_AT_ONCE);
        let refused = limits.question(&mine).await.unwrap_err();
        assert_eq!((refused.kind, refused.retry_after), (Kind::Limited, Some(SOON)));
        assert!(limits.question(&theirs).await.is_ok(), "others do not wait");
        under_way.clear();
        let next = waiting.iter_mut().skip(QUESTIONS_AT_ONCE).filter_map(|question| question.now_or_never());
        assert!(next.map(Result::unwrap).count() >= QUESTIONS_AT_ONCE);
        drop(waiting);
        let others: Vec<_> = (0..ALL_QUESTIONS).map(|other| who(&format!("other {other}")).tenant).collect();
        let mut all = Vec::new();
        for other in &others {
            all.push(limits.question(other).await.unwrap());
        }
        assert_eq!(limits.question(&mine).await.unwrap_err().kind, Kind::Overloaded);
    }

    #[tokio::test]
    async fn what_is_being_admitted_counts_beside_what_is_there() {
        let limits = Limits::new(TenantLimits { sessions: Some(3), ..TenantLimits::default() });
        let tenant = who("a").tenant;
        let reserve = async |existing: u64| limits.session(&tenant, || ready(Ok(existing))).await;
        let first = reserve(1).await.unwrap();
        let second = reserve(1).await.unwrap();
        let begun = Instant::now();
        let refused = reserve(1).await.unwrap_err();
        assert_eq!(refused.kind, Kind::Limited, "they take too long");
        assert!(begun.elapsed() >= SOON, "it waits for them");
        assert!(refused.detail.contains("has 1 sessions and is making 2, and may have 3"), "{refused}");
        drop((first, second));
        assert!(reserve(2).await.is_ok());
        let refused = reserve(3).await.unwrap_err();
        assert!(refused.detail.contains("has 3 sessions, and may have 3: delete one"), "{refused}");
        let none = Limits::new(TenantLimits::default());
        let asked = none.session(&tenant, || ready(Err(CommandError::Busy))).await;
        assert!(asked.is_ok(), "nothing is counted where there is no limit");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn of_many_that_come_at_once_as_many_pass_as_may() {
        let limits = Limits::new(TenantLimits { sessions: Some(7), ..TenantLimits::default() });
        let tenant = who("a").tenant;
        let store = Arc::<AtomicU64>::default();
        let make = |(limits, tenant, store): (Limits, Arc<str>, Arc<AtomicU64>)| async move {
            let counted = Arc::clone(&store);
            let existing = || {
                let counted = Arc::clone(&counted);
                async move {
                    tokio::task::yield_now().await;
                    Ok(counted.load(Ordering::SeqCst))
                }
            };
            let permit = limits.session(&tenant, existing).await?;
            tokio::task::yield_now().await;
            store.fetch_add(1, Ordering::SeqCst);
            // It is in both for a moment.
            tokio::task::yield_now().await;
            drop(permit);
            Ok::<_, Problem>(())
        };
        let all =
            (0..40).map(|_| tokio::spawn(make((limits.clone(), Arc::clone(&tenant), Arc::clone(&store)))));
        let all = futures::future::join_all(all.collect::<Vec<_>>()).await;
        let refused: Vec<Problem> = all.into_iter().filter_map(|made| made.unwrap().err()).collect();
        assert_eq!((store.load(Ordering::SeqCst), refused.len()), (7, 33));
        for problem in refused {
            assert!(problem.detail.contains("has 7 sessions, and may have 7"), "{problem}");
        }
        assert!(limits.0.counts.lock().is_empty());
    }

    #[tokio::test]
    async fn a_session_that_is_busy_and_reserved_counts_once() {
        let limits = Limits::new(TenantLimits { running_turns: Some(2), ..TenantLimits::default() });
        let (tenant, other) = (who("a").tenant, who("b").tenant);
        let mut ids = IdGenerator::new(|_| {});
        let [a, b, c]: [SessionId; 3] = std::array::from_fn(|_| ids.next(Timestamp::from_millis(1)));
        let turn = async |tenant: &Arc<str>, session, busy: &[SessionId]| {
            limits.turn(tenant, session, async || Ok(busy.iter().copied().collect())).await
        };
        let first = turn(&tenant, a, &[]).await.unwrap();
        // It is in the store, and its permit is still kept.
        let second = turn(&tenant, b, &[a]).await.unwrap();
        assert_eq!(turn(&tenant, c, &[a]).await.unwrap_err().kind, Kind::Limited, "the second is reserved");
        assert!(turn(&tenant, a, &[a, b]).await.is_ok(), "it waits");
        assert!(turn(&other, c, &[]).await.is_ok());
        drop((first, second));
        assert!(turn(&tenant, c, &[a]).await.is_ok() && turn(&tenant, c, &[a, b]).await.is_err());
    }
}

//! Who may send a request now: one [`Limiter`] for each server and key, shared by all sessions that use them.
//!
//! It bounds the requests under way and, where they are known, requests and tokens a minute. When the server asks for
//! less traffic, one cool-down holds for everybody, and what follows begins slowly: a thousand sessions that each waited
//! for themselves would hammer one key. Those that wait are served in turn, tenant by tenant, so that one with a thousand
//! sessions does not starve one with a single session.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, VecDeque};
use std::hash::{Hash as _, Hasher as _};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use secrecy::ExposeSecret as _;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::Endpoint;

/// What a server allows for one key. `None` is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Requests under way at once.
    pub concurrent: usize,
    /// Requests a minute.
    pub requests_per_minute: Option<u32>,
    /// Input tokens a minute, by the estimates of the requests.
    pub tokens_per_minute: Option<u64>,
}

impl Default for Quota {
    /// 1,000 requests at once, no bound a minute.
    fn default() -> Self {
        Self { concurrent: 1_000, requests_per_minute: None, tokens_per_minute: None }
    }
}

/// Admits requests to one server with one key. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Limiter(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    quota: Quota,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Requests under way.
    under_way: usize,
    /// How many may be under way now: all that the quota allows, or less after a cool-down.
    window: usize,
    /// Nothing is sent before.
    cool_until: Option<Instant>,
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
    /// Tenants that wait, in turn.
    turns: VecDeque<Arc<str>>,
    waiting: HashMap<Arc<str>, VecDeque<Waiter>>,
    /// When the timer that is set will fire.
    timer: Option<Instant>,
}

#[derive(Debug)]
struct Waiter {
    tokens: u64,
    grant: oneshot::Sender<Permit>,
}

/// Refills evenly, up to a minute's worth.
#[derive(Debug)]
struct Bucket {
    per_minute: f64,
    level: f64,
    at: Instant,
}

impl Bucket {
    fn new(per_minute: f64) -> Self {
        Self { per_minute, level: per_minute, at: Instant::now() }
    }

    fn refill(&mut self, now: Instant) {
        let gained = now.duration_since(self.at).as_secs_f64() / 60.0 * self.per_minute;
        self.level = (self.level + gained).min(self.per_minute);
        self.at = now;
    }

    /// How long until `amount` is there. More than a full bucket counts as a full one: it could never be there.
    fn wait(&self, amount: f64) -> Option<Duration> {
        let missing = amount.min(self.per_minute) - self.level;
        (missing > 1e-9).then(|| Duration::from_secs_f64(missing / self.per_minute * 60.0))
    }
}

/// A request that may be sent. It counts as under way until this is dropped.
#[derive(Debug)]
pub struct Permit {
    limiter: Option<Weak<Shared>>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(shared) = self.limiter.take().and_then(|limiter| limiter.upgrade()) {
            let limiter = Limiter(shared);
            limiter.0.state.lock().under_way -= 1;
            limiter.dispatch();
        }
    }
}

impl Limiter {
    /// A limiter with this quota.
    pub fn new(quota: Quota) -> Self {
        let state = State {
            under_way: 0,
            window: quota.concurrent.max(1),
            cool_until: None,
            requests: quota.requests_per_minute.map(|count| Bucket::new(f64::from(count.max(1)))),
            #[allow(clippy::cast_precision_loss, reason = "a rate may be off by one in 2^53")]
            tokens: quota.tokens_per_minute.map(|count| Bucket::new(count.max(1) as f64)),
            turns: VecDeque::new(),
            waiting: HashMap::new(),
            timer: None,
        };
        Self(Arc::new(Shared { quota, state: Mutex::new(state) }))
    }

    /// A permit at once, if nobody waits and nothing speaks against it.
    pub fn try_acquire(&self, tokens: u64) -> Option<Permit> {
        let mut state = self.0.state.lock();
        let now = Instant::now();
        (state.turns.is_empty() && state.obstacle(tokens, now).is_none())
            .then(|| self.take(&mut state, tokens))
    }

    /// Waits for a permit, for a request of about `tokens` input tokens. Dropping the future gives the place up.
    pub async fn acquire(&self, tenant: &str, tokens: u64) -> Permit {
        let (grant, granted) = oneshot::channel();
        {
            let mut state = self.0.state.lock();
            let tenant: Arc<str> = tenant.into();
            let queue = state.waiting.entry(Arc::clone(&tenant)).or_default();
            queue.push_back(Waiter { tokens, grant });
            if queue.len() == 1 {
                state.turns.push_back(tenant);
            }
        }
        self.dispatch();
        // The sender is dropped only with the limiter, which `self` keeps.
        granted.await.unwrap_or(Permit { limiter: None })
    }

    /// How long nothing will be sent for sure, and how many wait: to be shown to people.
    pub fn outlook(&self) -> (Duration, usize) {
        let state = self.0.state.lock();
        let cool = state.cool_until.map_or(Duration::ZERO, |until| until.duration_since(Instant::now()));
        (cool, state.waiting.values().map(VecDeque::len).sum())
    }

    /// How long a request of about `tokens` input tokens will wait at least, where it waits for time to pass and not for
    /// others to end.
    pub fn least_wait(&self, tokens: u64) -> Option<Duration> {
        match self.0.state.lock().obstacle(tokens, Instant::now()) {
            Some(Obstacle::Time(wait)) => Some(wait),
            Some(Obstacle::Others) | None => None,
        }
    }

    /// The server asked for less traffic: nothing is sent for `wait`, and then slowly at first.
    pub fn cool_down(&self, wait: Duration) {
        let until = Instant::now() + wait;
        let mut state = self.0.state.lock();
        state.cool_until = Some(state.cool_until.map_or(until, |before| before.max(until)));
        state.window = 1;
        drop(state);
        self.dispatch();
    }

    /// The server answered well: more may be under way at once, up to the quota.
    pub fn succeeded(&self) {
        let mut state = self.0.state.lock();
        state.window = (state.window * 2).min(self.0.quota.concurrent.max(1));
        drop(state);
        self.dispatch();
    }

    fn take(&self, state: &mut State, tokens: u64) -> Permit {
        state.under_way += 1;
        if let Some(bucket) = &mut state.requests {
            bucket.level -= 1.0;
        }
        if let Some(bucket) = &mut state.tokens {
            // No more than a full one, which is all that was waited for: what comes next waits for a minute at most.
            bucket.level -= amount(tokens).min(bucket.per_minute);
        }
        Permit { limiter: Some(Arc::downgrade(&self.0)) }
    }

    /// Serves whoever may be served now, and sets a timer for the next one that only waits for time to pass.
    fn dispatch(&self) {
        loop {
            let mut state = self.0.state.lock();
            let Some(tenant) = state.turns.front().cloned() else { return };
            let now = Instant::now();
            let queue = state.waiting.entry(Arc::clone(&tenant)).or_default();
            while queue.front().is_some_and(|waiter| waiter.grant.is_closed()) {
                queue.pop_front();
            }
            let Some(tokens) = queue.front().map(|waiter| waiter.tokens) else {
                state.waiting.remove(&tenant);
                state.turns.pop_front();
                continue;
            };
            match state.obstacle(tokens, now) {
                None => {
                    let waiter = state.waiting.get_mut(&tenant).and_then(VecDeque::pop_front);
                    state.turns.pop_front();
                    if state.waiting.get(&tenant).is_some_and(|queue| !queue.is_empty()) {
                        state.turns.push_back(tenant);
                    } else {
                        state.waiting.remove(&tenant);
                    }
                    let Some(waiter) = waiter else { continue };
                    let permit = self.take(&mut state, tokens);
                    drop(state);
                    // Whoever went away meanwhile drops the permit, which gives its place back.
                    drop(waiter.grant.send(permit));
                }
                Some(Obstacle::Others) => return,
                Some(Obstacle::Time(wait)) => {
                    let at = now + wait;
                    if state.timer.is_none_or(|set| set > at || set <= now) {
                        state.timer = Some(at);
                        let limiter = Arc::downgrade(&self.0);
                        tokio::spawn(async move {
                            tokio::time::sleep_until(at).await;
                            if let Some(shared) = limiter.upgrade() {
                                let limiter = Self(shared);
                                limiter.0.state.lock().timer.take_if(|set| *set <= at);
                                limiter.dispatch();
                            }
                        });
                    }
                    return;
                }
            }
        }
    }
}

/// The limiters of all servers and keys that an engine uses. Keys are told apart by a hash; none is kept.
#[derive(Debug, Default)]
pub struct Limiters(Mutex<HashMap<(String, u64), Limiter>>);

impl Limiters {
    /// The limiter of `endpoint`: of its provider, its address, and whatever lets requests in (the key and the configured
    /// headers). `quota` counts when it is made.
    pub fn of(&self, endpoint: &Endpoint, quota: Quota) -> Limiter {
        let mut hasher = DefaultHasher::new();
        endpoint.base_url.hash(&mut hasher);
        if let Some(key) = &endpoint.key {
            key.expose_secret().hash(&mut hasher);
        }
        for (name, value) in &endpoint.headers {
            (name, value.expose_secret()).hash(&mut hasher);
        }
        let key = (endpoint.provider.clone(), hasher.finish());
        let mut limiters = self.0.lock();
        limiters.entry(key).or_insert_with(|| Limiter::new(quota)).clone()
    }
}

enum Obstacle {
    /// Until a request ends.
    Others,
    /// Until so much time has passed.
    Time(Duration),
}

impl State {
    fn obstacle(&mut self, tokens: u64, now: Instant) -> Option<Obstacle> {
        if let Some(until) = self.cool_until {
            if until > now {
                return Some(Obstacle::Time(until - now));
            }
            self.cool_until = None;
        }
        if self.under_way >= self.window {
            return Some(Obstacle::Others);
        }
        let mut wait: Option<Duration> = None;
        for (bucket, amount) in [(&mut self.requests, 1.0), (&mut self.tokens, amount(tokens))] {
            if let Some(bucket) = bucket {
                bucket.refill(now);
                wait = wait.max(bucket.wait(amount));
            }
        }
        wait.map(Obstacle::Time)
    }
}

#[allow(clippy::cast_precision_loss, reason = "an estimate")]
fn amount(tokens: u64) -> f64 {
    tokens as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(concurrent: usize) -> Limiter {
        Limiter::new(Quota { concurrent, ..Quota::default() })
    }

    #[tokio::test]
    async fn no_more_than_the_quota_are_under_way() {
        let limiter = limiter(2);
        let first = limiter.try_acquire(1).unwrap();
        let _second = limiter.acquire("a", 1).await;
        assert!(limiter.try_acquire(1).is_none());
        drop(first);
        assert!(limiter.try_acquire(1).is_some());
    }

    #[tokio::test]
    async fn tenants_are_served_in_turn() {
        let limiter = limiter(1);
        let held = limiter.try_acquire(1).unwrap();
        let (order, mut served) = tokio::sync::mpsc::channel(16);
        let mut tasks = Vec::new();
        for tenant in ["big", "big", "big", "big", "small"] {
            let (mine, order) = (limiter.clone(), order.clone());
            tasks.push(tokio::spawn(async move {
                let permit = mine.acquire(tenant, 1).await;
                order.send(tenant).await.unwrap();
                drop(permit);
            }));
            // Each takes its place before the next comes.
            while limiter.outlook().1 < tasks.len() {
                tokio::task::yield_now().await;
            }
        }
        drop(held);
        for task in tasks {
            task.await.unwrap();
        }
        let mut names = Vec::new();
        while let Ok(name) = served.try_recv() {
            names.push(name);
        }
        assert_eq!(names, ["big", "small", "big", "big", "big"]);
    }

    #[tokio::test]
    async fn a_cool_down_holds_for_everybody_and_ends_slowly() {
        let limiter = limiter(8);
        let begun = Instant::now();
        limiter.cool_down(Duration::from_millis(50));
        let permit = limiter.acquire("a", 1).await;
        assert!(begun.elapsed() >= Duration::from_millis(50));
        assert!(limiter.try_acquire(1).is_none(), "one at first");
        limiter.succeeded();
        let second = limiter.try_acquire(1);
        assert!(second.is_some() && limiter.try_acquire(1).is_none(), "then two");
        drop((permit, second));
    }

    #[tokio::test]
    async fn a_longer_cool_down_is_not_cut_short_by_a_shorter_one() {
        let limiter = limiter(8);
        let begun = Instant::now();
        limiter.cool_down(Duration::from_millis(100));
        limiter.cool_down(Duration::from_millis(10));
        drop(limiter.acquire("a", 1).await);
        assert!(begun.elapsed() >= Duration::from_millis(100));
    }

    #[tokio::test]
    async fn requests_and_tokens_a_minute_are_kept() {
        let quota = Quota { concurrent: 100, requests_per_minute: Some(60), tokens_per_minute: Some(6_000) };
        let limiter = Limiter::new(quota);
        let begun = Instant::now();
        // How many milliseconds a request waits that comes so many seconds after the beginning.
        let wait = |tokens, seconds| match limiter
            .0
            .state
            .lock()
            .obstacle(tokens, begun + Duration::from_secs(seconds))
        {
            Some(Obstacle::Time(wait)) => (wait.as_secs_f64() * 1_000.0).round() as u64,
            Some(Obstacle::Others) => panic!("nothing is under way"),
            None => 0,
        };
        let take = |tokens| {
            let permit = limiter.take(&mut limiter.0.state.lock(), tokens);
            drop(permit);
        };
        for _ in 0..60 {
            assert_eq!(wait(0, 0), 0, "a minute's worth at once");
            take(0);
        }
        assert_eq!([wait(0, 0), wait(0, 1)], [1_000, 0]);
        take(0);
        assert_eq!([wait(6_000, 1), wait(6_000, 2)], [1_000, 0]);
        take(6_000);
        assert_eq!(
            [wait(100_000, 2), wait(100_000, 62)],
            [60_000, 0],
            "more than a bucket waits for a full one"
        );
        take(100_000);
        assert_eq!(wait(6_000, 62), 60_000, "and takes no more than that");
    }

    #[tokio::test]
    async fn who_comes_after_a_minutes_worth_waits_for_it() {
        let limiter = Limiter::new(Quota { requests_per_minute: Some(1_200), ..Quota::default() });
        let begun = Instant::now();
        for _ in 0..1_200 {
            drop(limiter.acquire("a", 0).await);
        }
        for late in 1..=3 {
            drop(limiter.acquire("a", 0).await);
            let least = Duration::from_millis(50 * late) - Duration::from_micros(1);
            assert!(begun.elapsed() >= least, "{late}: {:?}", begun.elapsed());
        }
        let next = limiter.least_wait(0).unwrap_or_default() + begun.elapsed();
        assert!(next >= Duration::from_millis(199), "{next:?}");
    }

    #[test]
    fn whoever_has_a_key_of_their_own_has_a_limiter_of_their_own() {
        let endpoint = |key: Option<&str>, header: Option<&str>| Endpoint {
            key: key.map(Into::into),
            headers: header.map(|value| ("authorization".to_owned(), value.into())).into_iter().collect(),
            ..Endpoint::new("p", crate::DialectKind::Anthropic, "http://a")
        };
        let limiters = Limiters::default();
        let of = |endpoint: Endpoint| Arc::as_ptr(&limiters.of(&endpoint, Quota::default()).0);
        let acme = of(endpoint(Some("acme"), None));
        assert_eq!(acme, of(endpoint(Some("acme"), None)));
        let all = [
            acme,
            of(endpoint(Some("globex"), None)),
            of(endpoint(None, None)),
            of(endpoint(None, Some("Bearer acme"))),
            of(endpoint(None, Some("Bearer globex"))),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one), "{index}");
        }
    }

    #[tokio::test]
    async fn who_goes_away_leaves_no_hole() {
        let limiter = limiter(1);
        let held = limiter.try_acquire(1).unwrap();
        let gone = tokio::spawn({
            let limiter = limiter.clone();
            async move { drop(limiter.acquire("a", 1).await) }
        });
        while limiter.outlook().1 == 0 {
            tokio::task::yield_now().await;
        }
        gone.abort();
        assert!(gone.await.is_err());
        let waiting = limiter.acquire("b", 1);
        drop(held);
        drop(tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("it is served"));
        assert!(limiter.try_acquire(1).is_some());
    }
}

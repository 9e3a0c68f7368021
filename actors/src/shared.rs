//! Long-lived children that sessions lease, for example a server of tools or a language server.
//!
//! A child is started for its first lease, shared by all sessions that lease the same key, stopped when nobody held it for a
//! while, and started again, with backoff and a circuit that opens, when somebody leases it after its death.
//!
//! - [`Kind`] says how children of one kind are started and stopped; [`Rules`] say when.
//! - [`Leases`] has the children of one kind and hands out [`Lease`]s. Nothing is in memory for a key without a child, unless
//!   failures of it have to be remembered.
//! - A *keeper* actor per key owns the life cycle: a pure state machine, whose effects it carries out.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use playhouse_protocol::{SessionId, Timestamp};
use ractor::{ActorRef, ActorRuntime};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout};

mod consents;
mod keeper;
pub(crate) mod lsp;
mod machine;
pub(crate) mod mcp;

use crate::base;
use keeper::{KeeperActor, KeeperArguments, KeeperMessage};
use machine::{Input, LeaseId};

/// How much longer than a start the wait for a lease may take, so that the caller hears from the keeper why it failed.
const GRACE: Duration = Duration::from_secs(1);

/// How children of one kind are started and stopped. Panics in here count as failures of the child that they concern.
pub(crate) trait Kind: Send + Sync + 'static {
    /// What tells two children apart. Its text stands in errors and traces, so it holds no secrets.
    type Key: Clone + Eq + Hash + fmt::Debug + fmt::Display + Send + Sync + 'static;
    /// The handle that holders share. Dropping the last one releases everything, also if nobody called [`Kind::stop`].
    type Child: Send + Sync + 'static;
    /// A name for errors and traces, for example `language server`.
    const NAME: &'static str;

    /// Starts a child. Dropping the future, as at the deadline, releases everything.
    ///
    /// # Errors
    /// The child could not be started.
    fn start<'a>(&'a self, key: &'a Self::Key) -> BoxFuture<'a, Result<Started<Self::Child>, StartError>>;

    /// Stops a child, which may have died a moment ago and may still be shared by holders. Dropped at the deadline.
    fn stop(&self, child: Arc<Self::Child>) -> BoxFuture<'_, ()>;
}

/// A child that runs.
pub(crate) struct Started<C> {
    pub(crate) child: C,
    /// Ends when the child ends by itself, with the reason. It is polled until the child is stopped.
    pub(crate) ended: BoxFuture<'static, String>,
}

/// Why a child could not be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StartError {
    /// Another attempt may succeed.
    Transient(String),
    /// Another attempt fails, too, until somebody changes something: a missing program. Only [`Leases::restart`] allows one.
    Permanent(String),
}

/// When children are started and stopped. All children of one [`Leases`] have the same.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// Time without a holder after which a child is stopped.
    pub(crate) idle: Duration,
    /// Upper bound of a start, and of the wait for a lease, which may wait for a stop first.
    pub(crate) start_deadline: Duration,
    /// Upper bound of a stop. A stop that takes longer counts as a failure.
    pub(crate) stop_deadline: Duration,
    /// Backoff after the first failure. It doubles with each further one in the window; jitter takes off up to half.
    pub(crate) first_backoff: Duration,
    /// Upper bound of the backoff.
    pub(crate) longest_backoff: Duration,
    /// Number of failures within [`Rules::window`] that opens the circuit.
    pub(crate) failures: u32,
    /// Time for which a failure counts.
    pub(crate) window: Duration,
    /// Time for which the circuit stays open. Then one start is allowed; if that fails, the circuit opens again.
    pub(crate) open: Duration,
    /// A child that ran for this long has its earlier failures forgotten.
    pub(crate) healthy: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(600),
            start_deadline: Duration::from_secs(30),
            // Longer than a program has that is stopped in good order.
            stop_deadline: Duration::from_secs(10),
            first_backoff: Duration::from_secs(1),
            longest_backoff: Duration::from_secs(60),
            failures: 5,
            window: Duration::from_secs(300),
            open: Duration::from_secs(300),
            healthy: Duration::from_secs(60),
        }
    }
}

/// Why there is no lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The child failed lately; the next start is allowed after `retry_in`.
    BackingOff { reason: Arc<str>, retry_in: Duration },
    /// The child failed too often; the next start is allowed after `retry_in`.
    Open { reason: Arc<str>, retry_in: Duration },
    /// The child cannot start until somebody changes something and restarts it.
    Failed { reason: Arc<str> },
    /// The child was not ready within this time. Its start may still go on.
    Late(Duration),
    /// [`Leases::stop_all`] was called.
    Closed,
    /// The keeper ended unexpectedly.
    Crashed,
}

impl Refusal {
    /// Whether it still refuses: its time is not over.
    fn is_in_force(&self) -> bool {
        let (Self::BackingOff { retry_in, .. } | Self::Open { retry_in, .. }) = self else { return true };
        !retry_in.is_zero()
    }
}

/// A [`Refusal`] with the child that it is about, as a text for users.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{kind} {key} {refusal}")]
pub(crate) struct LeaseError {
    kind: &'static str,
    key: String,
    pub(crate) refusal: Refusal,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BackingOff { reason, retry_in } => {
                let seconds = retry_in.as_secs_f64();
                write!(f, "failed: {reason}; try again in {seconds:.1} s, or restart it")
            }
            Self::Open { reason, retry_in } => {
                let seconds = retry_in.as_secs_f64();
                write!(f, "keeps failing, last with: {reason}; try again in {seconds:.0} s, or restart it")
            }
            Self::Failed { reason } => write!(f, "cannot start: {reason}; correct that, then restart it"),
            Self::Late(deadline) => {
                write!(f, "was not ready within {:.0} s; try again later", deadline.as_secs_f64())
            }
            Self::Closed => f.write_str("is not available: the engine stops"),
            Self::Crashed => f.write_str("was lost to a bug in the engine; try again"),
        }
    }
}

/// State of a key, with times of type `T`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State<T = Timestamp> {
    Starting,
    /// Sessions hold it.
    Running {
        since: T,
    },
    /// It runs, and nobody holds it since then.
    Idle {
        since: T,
    },
    BackingOff {
        until: T,
    },
    /// The circuit is open.
    Open {
        until: T,
    },
    /// Only a restart allows another start.
    Failed,
    Stopping,
    /// No child; the next lease starts one. Listed as long as a failure is remembered.
    Stopped,
}

impl State<Duration> {
    /// The state at the time `now` of the same clock, in wall-clock time.
    fn at(self, now: Duration) -> State {
        let wall = |time: Duration| {
            let (now, wall) = (now.as_millis(), u128::from(base::now().as_millis()));
            let millis = (wall + time.as_millis()).saturating_sub(now);
            Timestamp::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
        };
        match self {
            Self::BackingOff { until } | Self::Open { until } if until <= now => State::Stopped,
            Self::BackingOff { until } => State::BackingOff { until: wall(until) },
            Self::Open { until } => State::Open { until: wall(until) },
            Self::Running { since } => State::Running { since: wall(since) },
            Self::Idle { since } => State::Idle { since: wall(since) },
            Self::Starting => State::Starting,
            Self::Failed => State::Failed,
            Self::Stopping => State::Stopping,
            Self::Stopped => State::Stopped,
        }
    }
}

/// One key in a listing.
#[derive(Clone, Debug)]
pub(crate) struct ChildStatus<Key> {
    pub(crate) key: Key,
    pub(crate) state: State,
    /// Number of sessions that hold the running child.
    pub(crate) holders: usize,
    /// The last failure, as long as it is remembered.
    pub(crate) last_error: Option<Arc<str>>,
}

/// What a keeper says of itself.
struct Published {
    state: State<Duration>,
    holders: usize,
    last_error: Option<Arc<str>>,
}

/// A child, held. Dropping it gives it back: that sends one message, in any context.
pub(crate) struct Lease<K: Kind> {
    child: Arc<K::Child>,
    /// Why the child is gone.
    gone: watch::Receiver<Option<Arc<str>>>,
    id: LeaseId,
    keeper: ActorRef<KeeperMessage<K>>,
}

impl<K: Kind> Lease<K> {
    /// The child. It stays the same one after its death.
    pub(crate) fn child(&self) -> &Arc<K::Child> {
        &self.child
    }

    /// Waits until the child is gone, and says why. Then a new lease gets another child.
    pub(crate) fn gone(&self) -> impl Future<Output = Arc<str>> + Send + 'static {
        let mut gone = self.gone.clone();
        async move {
            let reason = gone.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
            reason.unwrap_or_else(|| keeper::CRASHED.into())
        }
    }
}

impl<K: Kind> Drop for Lease<K> {
    fn drop(&mut self) {
        // A keeper that is gone has no child any more.
        drop(self.keeper.send_message(KeeperMessage::Input(Input::Release(self.id))));
    }
}

impl<K: Kind> fmt::Debug for Lease<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("kind", &K::NAME).field("id", &self.id).finish_non_exhaustive()
    }
}

/// The children of one kind. Dropping it stops them in the background.
pub(crate) struct Leases<K: Kind>(Arc<Inner<K>>);

/// What the keepers share.
struct Inner<K: Kind> {
    kind: K,
    rules: Rules,
    /// The moment that times of the state machines count from.
    epoch: Instant,
    table: Mutex<Table<K>>,
    /// Number of keepers, for those who wait for 0.
    keepers: watch::Sender<usize>,
}

struct Table<K: Kind> {
    keepers: HashMap<K::Key, Entry<K>>,
    /// No key is leased any more.
    closed: bool,
}

struct Entry<K: Kind> {
    keeper: ActorRef<KeeperMessage<K>>,
    /// Number of messages sent by way of the table. A keeper leaves only when it has handled them all.
    sent: u64,
    published: Arc<Mutex<Published>>,
}

impl<K: Kind> Leases<K> {
    pub(crate) fn new(kind: K, rules: Rules) -> Self {
        Self(Arc::new(Inner {
            kind,
            rules,
            epoch: Instant::now(),
            table: Mutex::new(Table { keepers: HashMap::new(), closed: false }),
            keepers: watch::Sender::new(0),
        }))
    }

    /// Leases the child of `key` to a session. Starts it if it does not run; concurrent callers share one start, which goes on
    /// if one of them is dropped.
    ///
    /// # Errors
    /// The child cannot be had now: see [`Refusal`]. Failures answer at once, the wait is at most [`Rules::start_deadline`] and a second.
    pub(crate) async fn lease(&self, key: &K::Key, holder: SessionId) -> Result<Lease<K>, LeaseError> {
        let (reply, answer) = oneshot::channel();
        let refusal = match self.0.send_lease(key, KeeperMessage::Lease(holder, reply)) {
            Err(refusal) => refusal,
            Ok(()) => match timeout(self.0.rules.start_deadline.saturating_add(GRACE), answer).await {
                Ok(Ok(Ok(lease))) => return Ok(lease),
                Ok(Ok(Err(refusal))) => refusal,
                Ok(Err(_)) => Refusal::Crashed,
                Err(_) => Refusal::Late(self.0.rules.start_deadline),
            },
        };
        Err(LeaseError { kind: K::NAME, key: key.to_string(), refusal })
    }

    /// Stops the child of `key`, or its start, and forgets its failures: its next lease gets a fresh one.
    pub(crate) fn restart(&self, key: &K::Key) {
        if let Some(entry) = self.0.table.lock().keepers.get_mut(key) {
            entry.tell(KeeperMessage::Input(Input::Restart));
        }
    }

    /// Every key that has a child or a failure to remember, in no order.
    pub(crate) fn status(&self) -> Vec<ChildStatus<K::Key>> {
        let (table, now) = (self.0.table.lock(), self.0.epoch.elapsed());
        let entries = table.keepers.iter().map(|(key, entry)| {
            let published = entry.published.lock();
            let Published { state, holders, last_error } = &*published;
            let (state, holders, last_error) = (state.at(now), *holders, last_error.clone());
            ChildStatus { key: key.clone(), state, holders, last_error }
        });
        entries.collect()
    }

    /// Stops all children and refuses all leases from now on. Returns the keys that were not done within `deadline`; their
    /// stops go on in the background.
    pub(crate) async fn stop_all(&self, deadline: Duration) -> Vec<K::Key> {
        self.0.close();
        let mut keepers = self.0.keepers.subscribe();
        // Whether in time or not, the table says who is left.
        drop(timeout(deadline, keepers.wait_for(|count| *count == 0)).await);
        self.0.table.lock().keepers.keys().cloned().collect()
    }
}

impl<K: Kind> Drop for Leases<K> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<K: Kind> Entry<K> {
    /// Sends a message that the keeper handles before it leaves. Returns whether it still runs.
    fn tell(&mut self, message: KeeperMessage<K>) -> bool {
        self.sent += 1;
        self.keeper.send_message(message).is_ok()
    }
}

impl<K: Kind> Inner<K> {
    /// Sends a lease to the keeper of `key`, which is spawned if there is none.
    fn send_lease(self: &Arc<Self>, key: &K::Key, lease: KeeperMessage<K>) -> Result<(), Refusal> {
        let mut table = self.table.lock();
        if table.closed {
            return Err(Refusal::Closed);
        }
        if !table.keepers.contains_key(key) {
            let first = Published { state: State::Starting, holders: 0, last_error: None };
            let published = Arc::new(Mutex::new(first));
            let arguments = KeeperArguments {
                shared: Arc::clone(self),
                key: key.clone(),
                published: Arc::clone(&published),
            };
            // Its mailbox takes messages at once.
            let (keeper, _) = ActorRuntime::spawn_instant(None, KeeperActor::default(), arguments)
                .map_err(|_| Refusal::Crashed)?;
            table.keepers.insert(key.clone(), Entry { keeper, sent: 0, published });
            self.keepers.send_replace(table.keepers.len());
        }
        let told = table.keepers.get_mut(key).is_some_and(|entry| entry.tell(lease));
        if told { Ok(()) } else { Err(Refusal::Crashed) }
    }

    /// Removes the keeper of `key` if it has handled all `sent` messages. Returns whether it has.
    fn leave(&self, key: &K::Key, handled: u64) -> bool {
        let mut table = self.table.lock();
        let done = table.keepers.get(key).is_none_or(|entry| entry.sent == handled);
        if done {
            table.keepers.remove(key);
            self.keepers.send_replace(table.keepers.len());
        }
        done
    }

    /// Removes the keeper of `key`, which ended.
    fn remove(&self, key: &K::Key) {
        let mut table = self.table.lock();
        table.keepers.remove(key);
        self.keepers.send_replace(table.keepers.len());
    }

    fn close(&self) {
        let mut table = self.table.lock();
        table.closed = true;
        for entry in table.keepers.values_mut() {
            // One that ended is being cleaned up.
            entry.tell(KeeperMessage::Input(Input::Close));
        }
    }
}

#[cfg(test)]
mod tests;

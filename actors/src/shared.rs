//! What all actors of one engine share.

use std::any::Any;
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use playhouse_protocol::id::Id;
use playhouse_protocol::{CommandError, IdGenerator, SessionId, Timestamp};
use playhouse_session::RetryPolicy;
use playhouse_store::{Store, StoreError, Suspended};
use playhouse_tools::{Registry, outputs};
use playhouse_workspace::{PathLocks, Pool, Processes};
use ractor::ActorRef;

use crate::bounds::Bounds;
use crate::budget::Purses;
use crate::directory::Directory;
use crate::grants::Grants;
use crate::hub::Hub;
use crate::measure::Measures;
use crate::metering::MeteringMessage;
use crate::parked::ParkedSessions;
use crate::resume::Resume;
use crate::seen::Seen;
use crate::sweeper::Sweeper;
use crate::tasks::TaskLimits;
use crate::telling::Pace;

/// What all actors of one engine share.
pub(crate) struct Shared {
    pub(crate) store: Store,
    /// The run of the engine: it grows with every start.
    pub(crate) generation: u64,
    pub(crate) directory: Arc<dyn Directory>,
    pub(crate) tools: Arc<Registry>,
    pub(crate) locks: Arc<PathLocks>,
    /// Commands that run in the background.
    pub(crate) processes: Processes,
    /// Where the engine's own blocking work runs.
    pub(crate) pool: Pool,
    /// Where the blocking work of tools runs: slow calls hold up calls, never the engine.
    pub(crate) tool_pool: Pool,
    /// Folder with one folder of saved outputs per session.
    pub(crate) outputs: PathBuf,
    /// Folder with one HOME per tenant and workspace, for programs.
    pub(crate) homes: PathBuf,
    /// What no call may touch, and no program sees: the engine's own files.
    pub(crate) hidden: Vec<PathBuf>,
    /// What calls never leave, whatever rules and people say.
    pub(crate) bounds: Bounds,
    /// What `~` in rules of sessions stands for.
    pub(crate) user_home: Option<String>,
    /// What people allowed for always.
    pub(crate) grants: Grants,
    /// Removes old outputs.
    pub(crate) sweeper: Sweeper,
    pub(crate) retry: RetryPolicy,
    /// How far and how widely work may be handed over.
    pub(crate) tasks: TaskLimits,
    /// How long a request for consent or with questions waits for an answer, in milliseconds.
    pub(crate) asking_wait_ms: u64,
    /// Bytes of events that each session keeps for its subscribers.
    pub(crate) ring_bytes: usize,
    /// For how long a session rests before it leaves memory; `None` for ever.
    pub(crate) idle_after: Option<Duration>,
    /// The most sessions in memory, if enough of them rest.
    pub(crate) max_live: usize,
    /// Whether sessions that wake go on with what is unfinished.
    pub(crate) resume: Resume,
    /// How long records wait for those that follow them.
    pub(crate) gathering: Duration,
    /// For how long a session rests before it lets go of what it can make again.
    pub(crate) settle_after: Duration,
    /// What sessions that left had seen of files.
    pub(crate) seen: Seen,
    /// The sessions that are parked.
    pub(crate) parked: ParkedSessions,
    /// The events of all sessions.
    pub(crate) hub: Arc<Hub>,
    pub(crate) metering: ActorRef<MeteringMessage>,
    /// What is spent and reserved of budgets.
    pub(crate) purses: Arc<Purses>,
    /// Step and call actors at work.
    pub(crate) children: Children,
    /// Records of sessions that are on their way into the store.
    pub(crate) appends: Children,
    /// How many answers come just now.
    pub(crate) pace: Pace,
    /// What metrics are made with.
    pub(crate) measures: Measures,
}

impl Shared {
    /// Whether anything can be written.
    ///
    /// # Errors
    /// The store takes no writes, and why.
    pub(crate) fn takes_writes(&self) -> Result<(), CommandError> {
        match self.store.log.health() {
            None => Ok(()),
            Some(Suspended { reason, .. }) => Err(StoreError::Suspended { reason }.into()),
        }
    }

    /// Removes what was saved for a session that is deleted. Blocks. What stays behind goes when it is old.
    pub(crate) fn remove_outputs(&self, session: SessionId) {
        if let Err(error) = outputs::remove(&self.outputs, session) {
            tracing::warn!(%session, %error, "the outputs of a deleted session cannot be removed");
        }
    }

    /// The same on the pool.
    pub(crate) async fn forget_outputs(self: &Arc<Self>, session: SessionId) {
        let shared = Arc::clone(self);
        self.pool.run(move || shared.remove_outputs(session)).await;
    }
}

/// Counts what is at work for sessions, so that a shutdown can tell when it is over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Children(Arc<()>);

/// One of them. Dropped with what it holds.
#[derive(Debug)]
pub(crate) struct Child(#[allow(dead_code, reason = "held for its count")] Arc<()>);

impl Children {
    pub(crate) fn enter(&self) -> Child {
        Child(Arc::clone(&self.0))
    }

    pub(crate) fn count(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

/// Wall-clock time.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// An actor begins with a message. Told at the level `trace`, of this target; tests make actors panic here.
pub(crate) fn begins(actor: &'static str, message: &'static str, session: Option<SessionId>) {
    let session = session.map(tracing::field::display);
    tracing::trace!(target: "playhouse::mailbox", actor, begins = message, session);
}

/// What somebody said who panicked.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no reason was given")
}

/// Random bytes of the system that a thread has for what it makes next: a step takes some of them seven times.
struct Entropy {
    bytes: [u8; 2048],
    /// How many of them were given away.
    used: usize,
}

thread_local! {
    static ENTROPY: RefCell<Entropy> = const { RefCell::new(Entropy { bytes: [0; 2048], used: 2048 }) };
}

/// Fills `out`, no longer than the stock, with bytes that nobody can foresee and nobody else is given.
fn random(out: &mut [u8]) -> Result<(), getrandom::Error> {
    ENTROPY.with_borrow_mut(|stock| {
        if stock.bytes.len() - stock.used < out.len() {
            // Until all of them came there are none.
            stock.used = stock.bytes.len();
            getrandom::fill(&mut stock.bytes)?;
            stock.used = 0;
        }
        let given = &mut stock.bytes[stock.used..][..out.len()];
        out.copy_from_slice(given);
        given.fill(0);
        stock.used += out.len();
        Ok(())
    })
}

/// A number from 0 to 1 that nobody can foresee.
pub(crate) fn random_fraction() -> f64 {
    let mut bytes = [0; 4];
    match random(&mut bytes) {
        Ok(()) => f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX),
        Err(_) => 0.5,
    }
}

/// The maker of a session's ids, shared by the actors of that session.
#[derive(Clone, Debug)]
pub(crate) struct Ids(Arc<Mutex<IdGenerator>>);

impl Ids {
    /// A maker whose ids sort after those made up to `time`.
    pub(crate) fn after(time: Timestamp) -> Self {
        let mut generator = IdGenerator::new(|bytes| {
            // Without randomness ids still ascend; they could only be guessed.
            if random(bytes).is_err() {
                tracing::error!("the system gives no random bytes: ids can be guessed");
            }
        });
        generator.advance_past(time);
        Self(Arc::new(Mutex::new(generator)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, IdGenerator> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn next<I: Id>(&self) -> I {
        self.lock().next(now())
    }
}

//! How much an engine takes on, and how long it waits.

use std::time::Duration;

use playhouse_session::RetryPolicy;
use playhouse_tools::storage::StorageLimits;

/// How much an engine takes on, and how long it waits. Read once, when the engine starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineLimits {
    /// When a failed attempt is made again.
    pub retry: RetryPolicy,
    /// How long a request for consent or with questions waits for an answer.
    pub asking_wait: Duration,
    /// How far and how widely sessions may hand work over to others.
    pub tasks: TaskLimits,
    /// How long outputs are kept on disk after they were saved; `None` keeps them for ever.
    pub keep_outputs: Option<Duration>,
    /// The most bytes on disk of the outputs of a session, and of everything of a tenant.
    pub storage: StorageLimits,
    /// Threads for the engine's own blocking work, and as many again for that of tools.
    pub threads: usize,
    /// Bytes of events that each session keeps for its subscribers.
    pub ring_bytes: usize,
    /// Bytes of events of all sessions that are kept for each tenant, for those who watch many sessions at once.
    pub hub_bytes: usize,
    /// For how long a session has nothing to do before it leaves memory; it comes back when somebody asks for it. `None` keeps
    /// all until there are too many.
    pub idle_after: Option<Duration>,
    /// The most sessions in memory: where there are more, those leave that had nothing to do for the longest time. Those at
    /// work stay, however many there are.
    pub max_live: usize,
    /// How long records that nobody waits for wait for those that follow them by themselves, to be written with them. Clients
    /// see the end of a step so much later at most. The default is what a call without effects needs on a machine that is not
    /// overloaded: then a step is written at once.
    pub gathering: Duration,
    /// For how long a session in memory has nothing to do before it lets go of what it can make again: its serialized
    /// conversation. The default is longer than people who read along mostly take for their next prompt.
    pub settle_after: Duration,
}

impl Default for EngineLimits {
    /// People who work with a session go away for a meal, and for a night: requests for consent wait for a day.
    fn default() -> Self {
        Self {
            retry: RetryPolicy::default(),
            asking_wait: Duration::from_secs(24 * 3_600),
            tasks: TaskLimits::default(),
            keep_outputs: Some(Duration::from_secs(24 * 3_600)),
            storage: StorageLimits::default(),
            threads: 8,
            ring_bytes: 1024 * 1024,
            hub_bytes: 8 * 1024 * 1024,
            idle_after: Some(Duration::from_secs(300)),
            max_live: 10_000,
            gathering: Duration::from_millis(2),
            settle_after: Duration::from_secs(15),
        }
    }
}

impl EngineLimits {
    pub(crate) fn asking_wait_ms(&self) -> u64 {
        u64::try_from(self.asking_wait.as_millis()).unwrap_or(u64::MAX)
    }
}

/// How far and how widely work may be handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskLimits {
    /// So many sessions may stand below each other, beside the one at the top: at most 8.
    pub depth: usize,
    /// So much work of one session may be under way at once.
    pub children: usize,
}

impl Default for TaskLimits {
    fn default() -> Self {
        Self { depth: 3, children: 8 }
    }
}

/// When sessions go on with what is unfinished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resume {
    /// By themselves, when the engine starts.
    Auto,
    /// When they are woken, by whatever wakes them.
    #[default]
    OnDemand,
    /// When somebody wants something of their turns, or says so. Who only reads one does not make it go on.
    Manual,
}

impl Resume {
    /// Whether a session that wakes goes on.
    pub(crate) fn by_itself(self) -> bool {
        self != Self::Manual
    }
}

//! How a server works.

use std::path::PathBuf;
use std::time::Duration;

use crate::metrics::MetricsOptions;

/// What one tenant may have. `None` is no limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TenantLimits {
    /// Sessions.
    pub sessions: Option<u64>,
    /// Turns that run at once.
    pub running_turns: Option<u64>,
    /// Tokens a minute, all classes together, as they are reported.
    pub tokens_per_minute: Option<u64>,
    /// US dollars a day (UTC).
    pub spend_per_day: Option<f64>,
    /// Streams of events at once.
    pub subscribers: Option<u64>,
}

/// The most bytes of a request's body, unless told otherwise: the largest attachment, in base64, and a prompt beside it.
pub(crate) const USUAL_BODY: usize = 8 * 1024 * 1024;

/// How a server works.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Directories below which sessions may work.
    pub roots: Vec<PathBuf>,
    /// What each tenant may have.
    pub limits: TenantLimits,
    /// The most bytes of a request's body, files in it included.
    pub body: usize,
    /// How long the head of a request may take to come.
    pub head_time: Duration,
    /// How long a client may take to read what was written to it.
    pub write_time: Duration,
    /// Connections at once; more wait in the system's queue.
    pub connections: usize,
    /// So much may wait in the engine, of each kind that [`Load`](playhouse_actors::Load) tells, before it counts as overloaded.
    pub waiting: usize,
    /// How often a stream without events says that it lives.
    pub heartbeat: Duration,
    /// How long running turns may go on after the server was told to end.
    pub grace: Duration,
    /// After how long without a client and without a turn it ends by itself; `None` for never.
    pub idle_exit: Option<Duration>,
    /// Whether it ends when the operator's next command asks it to and nobody needs it, as an engine does that a command
    /// started in the background.
    pub leaves: bool,
    /// What it tells of metrics, and to whom.
    pub metrics: MetricsOptions,
    /// Host names by which it may be called, beside addresses of its own and `localhost`.
    pub hosts: Vec<String>,
    /// Origins of pages that may call it: `https://example.org`.
    pub origins: Vec<String>,
    /// Names of native tools that clients of `/v1/mcp` may call.
    pub mcp_tools: Vec<String>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            roots: Vec::new(),
            limits: TenantLimits { subscribers: Some(2_000), ..TenantLimits::default() },
            body: USUAL_BODY,
            head_time: Duration::from_secs(10),
            write_time: Duration::from_secs(30),
            connections: 4_096,
            waiting: 1_000,
            heartbeat: Duration::from_secs(10),
            grace: Duration::from_secs(10),
            idle_exit: None,
            leaves: false,
            metrics: MetricsOptions::default(),
            hosts: Vec::new(),
            origins: Vec::new(),
            mcp_tools: Vec::new(),
        }
    }
}

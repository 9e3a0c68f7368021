//! What all routes share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use playhouse_actors::{Engine, SessionHandle};
use playhouse_protocol::{CommandError, SessionId, SessionSummary};
use playhouse_store::ListQuery;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::facts::Facts;
use crate::keys::Keys;
use crate::limits::{Limits, Permit};
use crate::options::ServerOptions;
use crate::principal::Principal;
use crate::problem::{Kind, Problem};
use crate::roots::Roots;

/// One of so many connections is kept free, or the server counts as overloaded.
const SPARE: usize = 16;

/// What all routes share. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    engine: Engine,
    facts: Arc<dyn Facts>,
    keys: Arc<Keys>,
    options: ServerOptions,
    roots: Roots,
    limits: Limits,
    /// One permit a connection.
    seats: Arc<Semaphore>,
    /// Whether requests from the network need a key.
    needs_key: AtomicBool,
    draining: AtomicBool,
    /// Streams of events end.
    closing: CancellationToken,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("options", &self.0.options).finish_non_exhaustive()
    }
}

impl App {
    /// Over this engine. Blocks for a moment.
    ///
    /// # Errors
    /// A root that does not exist.
    pub fn new(
        engine: Engine,
        facts: Arc<dyn Facts>,
        keys: Keys,
        options: ServerOptions,
    ) -> Result<Self, std::io::Error> {
        let roots = Roots::new(&options.roots)?;
        let limits = Limits::new(options.limits.clone());
        let seats = Arc::new(Semaphore::new(options.connections));
        Ok(Self(Arc::new(Inner {
            engine,
            facts,
            keys: Arc::new(keys),
            options,
            roots,
            limits,
            seats,
            needs_key: AtomicBool::new(true),
            draining: AtomicBool::new(false),
            closing: CancellationToken::new(),
        })))
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// What clients may know.
    pub fn facts(&self) -> &dyn Facts {
        self.0.facts.as_ref()
    }

    /// The keys.
    pub fn keys(&self) -> &Arc<Keys> {
        &self.0.keys
    }

    /// How it works.
    pub fn options(&self) -> &ServerOptions {
        &self.0.options
    }

    /// Where sessions may work.
    pub fn roots(&self) -> &Roots {
        &self.0.roots
    }

    /// What tenants have in use.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// One permit a connection.
    pub(crate) fn seats(&self) -> &Arc<Semaphore> {
        &self.0.seats
    }

    /// Whether requests from the network need a key.
    pub fn needs_key(&self) -> bool {
        self.0.needs_key.load(Ordering::Relaxed)
    }

    /// Says whether requests from the network need a key. Until then they do.
    pub(crate) fn need_key(&self, needs: bool) {
        self.0.needs_key.store(needs, Ordering::Relaxed);
    }

    /// Whether almost all connections are in use that there may be.
    pub fn is_overloaded(&self) -> bool {
        self.0.seats.available_permits() < self.0.options.connections.div_ceil(SPARE)
    }

    /// Cancelled when the server closes: whatever answers without an end has to end then.
    pub fn closing(&self) -> &CancellationToken {
        &self.0.closing
    }

    /// Whether it ends, so that no new work is taken.
    pub fn is_draining(&self) -> bool {
        self.0.draining.load(Ordering::Relaxed)
    }

    /// Takes no new work from now on.
    pub fn drain(&self) {
        self.0.draining.store(true, Ordering::Relaxed);
    }

    /// The summary of a session of `principal`'s tenant, without waking it. That of another tenant is not there.
    ///
    /// # Errors
    /// There is none, or the store failed.
    pub async fn summary(&self, principal: &Principal, id: SessionId) -> Result<SessionSummary, Problem> {
        match self.engine().summary(id).await {
            Ok(summary) if *summary.tenant == *principal.tenant => Ok(summary),
            Ok(_) => Err(CommandError::NotFound(id).into()),
            Err(error) => Err(error.into()),
        }
    }

    /// A session of `principal`'s tenant; it is woken.
    ///
    /// # Errors
    /// There is none, it is parked, or the store failed.
    pub async fn session(&self, principal: &Principal, id: SessionId) -> Result<SessionHandle, Problem> {
        self.summary(principal, id).await?;
        Ok(self.engine().session(id).await?)
    }

    /// Refuses new work while the server ends.
    ///
    /// # Errors
    /// It ends.
    pub fn admit(&self) -> Result<(), Problem> {
        if self.is_draining() {
            let problem = Problem::new(Kind::Overloaded, "the server is stopping: try again when it is back");
            return Err(problem.after(std::time::Duration::from_secs(5)));
        }
        Ok(())
    }

    /// Lets `principal` make one more session. What is returned is to be kept until the session is there.
    ///
    /// # Errors
    /// The server ends, the tenant has as many as it may have, or the store failed.
    pub async fn admit_session(&self, principal: &Principal) -> Result<Permit, Problem> {
        self.admit()?;
        let count = async |most| self.sessions_of(&principal.tenant, most).await;
        self.limits().session(&principal.tenant, count).await
    }

    /// Lets `principal` begin a turn in this session. What is returned is to be kept until the prompt is admitted. A prompt
    /// that waits for another turn of its session is none that runs.
    ///
    /// # Errors
    /// The server ends, the tenant has or used as much as it may, or the store failed.
    pub async fn admit_turn(&self, principal: &Principal, session: SessionId) -> Result<Permit, Problem> {
        self.admit()?;
        self.limits().follow(self.engine().hub(), &principal.tenant);
        self.limits().afford(&principal.tenant)?;
        let busy = async || {
            let busy = self.engine().busy(&principal.tenant).await?;
            Ok(busy.into_iter().map(|summary| summary.id).collect())
        };
        self.limits().turn(&principal.tenant, session, busy).await
    }

    /// How many sessions a tenant has, up to `most`.
    async fn sessions_of(&self, tenant: &str, most: u64) -> Result<u64, CommandError> {
        // 0 would stand for the usual page.
        let limit = usize::try_from(most).unwrap_or(usize::MAX).max(1);
        let query = ListQuery { tenant: Some(tenant.to_owned()), limit, ..ListQuery::default() };
        Ok(self.engine().list(query).await?.sessions.len() as u64)
    }
}

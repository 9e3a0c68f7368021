//! What all routes share.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use playhouse_actors::{Engine, Load, Others, SessionHandle, Within, fold};
use playhouse_protocol::operator::{BY_HAND_TENANT, LOCAL_TENANT};
use playhouse_protocol::upkeep::SessionLoss;
use playhouse_protocol::{CommandError, Limit, MessageId, SessionId, SessionSummary};
use playhouse_store::{ListQuery, Page};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::facts::Facts;
use crate::keys::{KeyError, Keys};
use crate::limits::{Limits, Permit};
use crate::native::sessions::blocking;
use crate::operator::{Operations, Operator};
use crate::options::ServerOptions;
use crate::principal::Principal;
use crate::problem::{Kind, Problem};
use crate::roots::{Roots, existing};

/// One of so many connections is kept free, or the server counts as overloaded.
const SPARE: usize = 16;
/// The sessions that are looked at for one page.
const LOOKED_AT: usize = 2_000;

/// What all routes share. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    engine: Engine,
    facts: Arc<dyn Facts>,
    keys: Arc<Keys>,
    options: ServerOptions,
    roots: Arc<Roots>,
    /// By tenant with a key: the roots of all of its keys.
    tenants: Mutex<HashMap<String, Arc<Roots>>>,
    limits: Limits,
    /// One permit a connection.
    seats: Arc<Semaphore>,
    /// Whether requests from the network need a key.
    needs_key: AtomicBool,
    /// Whether there was a key since the start.
    had_keys: AtomicBool,
    draining: AtomicBool,
    /// Does what the operator's commands ask; without it there is no place for them.
    operator: OnceLock<Operator>,
    /// How many requests the operator's commands made.
    operator_requests: AtomicU64,
    /// Somebody asked it to end as soon as nobody needs it.
    leaving: Notify,
    /// Streams of events end.
    closing: CancellationToken,
    /// Keys are needed: streams end that were opened without one.
    locked: CancellationToken,
}

/// A stream of events that may be open.
pub(crate) struct Admitted<T> {
    /// Kept while it is open.
    pub(crate) held: T,
    /// Cancelled when the key is withdrawn; for a client without a key when keys are needed.
    pub(crate) ended: CancellationToken,
    /// Whether its errors are told as they came.
    pub(crate) reads_all: bool,
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
        Ok(Self::rooted(engine, facts, keys, options, roots))
    }

    /// The same without any roots, whatever the options say: for who needs none.
    pub fn without_roots(engine: Engine, facts: Arc<dyn Facts>, keys: Keys, options: ServerOptions) -> Self {
        Self::rooted(engine, facts, keys, options, Roots::default())
    }

    fn rooted(
        engine: Engine,
        facts: Arc<dyn Facts>,
        keys: Keys,
        options: ServerOptions,
        roots: Roots,
    ) -> Self {
        let roots = Arc::new(roots);
        let limits = Limits::new(options.limits.clone());
        let seats = Arc::new(Semaphore::new(options.connections));
        Self(Arc::new(Inner {
            engine,
            facts,
            keys: Arc::new(keys),
            options,
            roots,
            tenants: Mutex::default(),
            limits,
            seats,
            needs_key: AtomicBool::new(true),
            had_keys: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            operator: OnceLock::new(),
            operator_requests: AtomicU64::new(0),
            leaving: Notify::new(),
            closing: CancellationToken::new(),
            locked: CancellationToken::new(),
        }))
    }

    /// Takes requests of the operator's own commands too, on the Unix socket.
    #[must_use]
    pub fn operated(self, operations: Arc<dyn Operations>) -> Self {
        let operator = Operator::new(self.engine().clone(), Arc::clone(self.keys()), operations);
        // The first one holds.
        drop(self.0.operator.set(operator));
        self
    }

    /// Does what the operator's commands ask.
    pub(crate) fn operator(&self) -> Option<&Operator> {
        self.0.operator.get()
    }

    /// One of the operator's commands asked something.
    pub(crate) fn note_operator(&self) {
        self.0.operator_requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Somebody asked it to end as soon as nobody needs it.
    pub(crate) fn leaving(&self) -> &Notify {
        &self.0.leaving
    }

    /// How often they did.
    pub(crate) fn operator_requests(&self) -> u64 {
        self.0.operator_requests.load(Ordering::Relaxed)
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

    /// Where sessions may work of those who have no roots of their own.
    pub fn roots(&self) -> &Roots {
        &self.0.roots
    }

    /// Where sessions of `principal` may work.
    pub(crate) fn roots_of(&self, principal: &Principal) -> Arc<Roots> {
        principal.roots.clone().unwrap_or_else(|| Arc::clone(&self.0.roots))
    }

    /// Where sessions of a tenant may work, whichever of its keys made them.
    pub(crate) fn roots_of_tenant(&self, tenant: &str) -> Arc<Roots> {
        let tenants = self.0.tenants.lock();
        tenants.get(tenant).unwrap_or(&self.0.roots).clone()
    }

    /// Whether `principal` may use what lies in this workspace. A key is kept to its roots, whatever others its tenant has.
    pub(crate) fn reaches(&self, principal: &Principal, workspace: &str) -> bool {
        principal.key.is_none() || self.roots_of(principal).hold(Path::new(workspace))
    }

    /// Sessions that `principal` may use, from the place of the query on: as many as it asks for, or fewer after a look at
    /// many that it may not use.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) async fn list(&self, principal: &Principal, mut query: ListQuery) -> Result<Page, Problem> {
        let (wanted, mut looked_at, mut found) = (query.limit, 0, Vec::new());
        loop {
            let page = self.engine().list(query.clone()).await?;
            looked_at += page.sessions.len();
            let reached = |summary: &SessionSummary| self.reaches(principal, &summary.workspace);
            found.extend(page.sessions.into_iter().filter(reached));
            query.limit = wanted.saturating_sub(found.len());
            query.after.clone_from(&page.next);
            if page.next.is_none() || query.limit == 0 || looked_at >= LOOKED_AT.max(wanted) {
                return Ok(Page { sessions: found, next: page.next });
            }
        }
    }

    /// The directory that a client named, links resolved: below a root unless the operator named it, and nothing of the
    /// engine's own. Blocks.
    ///
    /// # Errors
    /// It is not.
    pub(crate) fn admit_directory(&self, principal: &Principal, written: &str) -> Result<PathBuf, Problem> {
        let admitted = match principal.is_operator {
            true => existing(written)?,
            false => self.roots_of(principal).admit(written)?,
        };
        match self.engine().look(&admitted) {
            Ok(_) => Ok(admitted),
            Err(error) => Err(Problem::new(Kind::Forbidden, error.to_string())),
        }
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
        if needs {
            // Nobody is let in without one from here on, and keys are needed until the next start.
            self.0.locked.cancel();
        }
    }

    /// Reads which keys there are. From the first one on, the sessions of tenants with keys are kept to the roots of these,
    /// whatever rules they have and whatever their clients consent to; and those of tenants that have no key any more to their
    /// workspaces. The operator's are not. Returns whether there is any key. Blocks.
    ///
    /// # Errors
    /// The store failed: nobody but the operator leaves a workspace then.
    pub(crate) fn learn_keys(&self) -> Result<bool, KeyError> {
        // Held until the engine knows as well, so that what was read first is not told last.
        let mut tenants = self.0.tenants.lock();
        let keys = self.keys().list();
        tenants.clear();
        for key in keys.iter().flatten() {
            let own =
                Roots::of(key).map_or_else(|| Roots::clone(&self.0.roots), |own| own.within(&self.0.roots));
            let roots = tenants.entry(key.tenant.clone()).or_default();
            Arc::make_mut(roots).and(&own);
        }
        // Withdrawing the last one frees nobody: keys are needed until the next start.
        let is_open = keys.as_ref().is_ok_and(Vec::is_empty) && !self.0.had_keys.load(Ordering::Relaxed);
        if !is_open {
            self.0.had_keys.store(true, Ordering::Relaxed);
        }
        self.engine().bound(Within {
            tenants: tenants.iter().map(|(tenant, roots)| (tenant.clone(), roots.all().to_vec())).collect(),
            others: if is_open {
                Others::Free
            } else {
                Others::Kept { but: vec![LOCAL_TENANT.to_owned(), BY_HAND_TENANT.to_owned()] }
            },
        });
        keys.map(|keys| !keys.is_empty())
    }

    /// What there is too much of to welcome new work; nothing mostly. Whoever balances load goes elsewhere then.
    pub fn overloads(&self) -> Vec<String> {
        let options = &self.0.options;
        let mut told = Vec::new();
        // Whoever asks holds one, and it may be the only one.
        let spare = options.connections.div_ceil(SPARE).min(options.connections.saturating_sub(1));
        if self.0.seats.available_permits() < spare {
            told.push("almost all connections are in use that there may be".to_owned());
        }
        let Load { writes, work, messages } = self.engine().load();
        for (count, what) in [
            (writes, "writes wait for the disk"),
            (work, "pieces of work wait for a thread"),
            (messages, "messages wait for the supervisor"),
        ] {
            if count >= options.waiting {
                told.push(format!("{count} {what}"));
            }
        }
        told
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

    /// Takes new work again: it does not end after all.
    pub(crate) fn resume(&self) {
        self.0.draining.store(false, Ordering::Relaxed);
    }

    /// The summary of a session of `principal`'s tenant, without waking it. That of another tenant is not there, and neither is
    /// one that works outside of the key's roots.
    ///
    /// # Errors
    /// There is none, or the store failed.
    pub async fn summary(&self, principal: &Principal, id: SessionId) -> Result<SessionSummary, Problem> {
        match self.engine().summary(id).await {
            Ok(summary) if principal.sees(&summary.tenant) && self.reaches(principal, &summary.workspace) => {
                Ok(summary)
            }
            Ok(_) | Err(CommandError::NotFound(_)) => Err(match self.engine().missing(id).await {
                CommandError::Lost { loss, .. } if !self.may_know(principal, &loss) => {
                    CommandError::NotFoundSince { session: id, salvaged: loss.at }.into()
                }
                error => error.into(),
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a session that was lost was one that `principal` saw, as far as that is known.
    fn may_know(&self, principal: &Principal, loss: &SessionLoss) -> bool {
        loss.tenant.as_ref().is_none_or(|tenant| principal.sees(tenant))
            && loss.workspace.as_ref().is_none_or(|workspace| self.reaches(principal, workspace))
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

    /// Lets `principal` open a stream of events.
    ///
    /// # Errors
    /// The tenant has as many as it may have, the key was withdrawn meanwhile, or the store failed.
    pub(crate) async fn admit_stream(&self, principal: &Principal) -> Result<Admitted<Permit>, Problem> {
        let held = self.limits().subscribe(principal)?;
        let Some(key) = principal.key.clone() else {
            let ended = if principal.is_operator { CancellationToken::new() } else { self.0.locked.clone() };
            return Ok(Admitted { held, ended, reads_all: true });
        };
        let ended = self.keys().watch(&key);
        // One that was withdrawn between the check of the request and now would not be told.
        let keys = Arc::clone(self.keys());
        let holds = blocking(move || keys.holds(&key)).await?;
        match holds {
            Ok(true) => Ok(Admitted { held, ended, reads_all: principal.reads_all() }),
            Ok(false) => Err(Problem::new(Kind::Unauthorized, "the key was withdrawn")),
            Err(error) => Err(error.into()),
        }
    }

    /// Lets `principal` make one more session. What is returned is to be kept until the session is there.
    ///
    /// # Errors
    /// The server ends, the tenant has as many as it may have, or the store failed.
    pub async fn admit_session(&self, principal: &Principal) -> Result<Permit, Problem> {
        self.admit()?;
        let count = || self.engine().count(&principal.tenant);
        self.limits().session(&principal.tenant, count).await
    }

    /// Lets `principal` begin a turn in this session. What is returned is to be kept until the prompt is admitted. A prompt
    /// that waits for another turn of its session is none that runs. One that was admitted before, by the id `message`, is let
    /// through at every limit: no turn begins for it.
    ///
    /// # Errors
    /// The server ends, the tenant has or used as much as it may, or the store failed.
    pub async fn admit_turn(
        &self,
        principal: &Principal,
        session: SessionId,
        message: Option<MessageId>,
    ) -> Result<Option<Permit>, Problem> {
        self.admit()?;
        match self.turn(principal, session).await {
            Err(problem) if problem.kind == Kind::Limited => {
                let Some(message) = message else { return Err(problem) };
                self.summary(principal, session).await?;
                let (entries, _) = self.engine().read(session).await?;
                let knows = move || fold(&entries).0.is_some_and(|session| session.knows_prompt(message));
                if blocking(knows).await? { Ok(None) } else { Err(problem) }
            }
            turn => turn.map(Some),
        }
    }

    /// The limits of the caller's tenant, but for budgets.
    pub(crate) async fn limits_of(&self, principal: &Principal) -> Result<Vec<Limit>, Problem> {
        self.follow(principal).await?;
        let sessions = self.engine().count(&principal.tenant).await?;
        let busy = self.engine().busy(&*principal.tenant).await?.len();
        Ok(self.limits().of(&principal.tenant, sessions, u64::try_from(busy).unwrap_or(u64::MAX)))
    }

    /// Sees to it that what the tenant uses is followed, as far as that is limited.
    async fn follow(&self, principal: &Principal) -> Result<(), Problem> {
        let spent = async || self.engine().spent_today(&principal.tenant).await;
        self.limits().follow(self.engine().hub(), &principal.tenant, spent).await
    }

    async fn turn(&self, principal: &Principal, session: SessionId) -> Result<Permit, Problem> {
        self.follow(principal).await?;
        self.limits().afford(&principal.tenant)?;
        let busy = async || {
            let busy = self.engine().busy(&*principal.tenant).await?;
            Ok(busy.into_iter().map(|summary| summary.id).collect())
        };
        self.limits().turn(&principal.tenant, session, busy).await
    }
}

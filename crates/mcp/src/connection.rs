//! A server that is spoken to: a program over its standard input and output, or an address over HTTP.
//!
//! - [`Connection::open`] starts the program and greets it, or greets the server behind the address. [`Connection::call`] and
//!   the lists are requests.
//! - A connection is shared: calls of all sessions go through `turns`, which are fair and keep sessions apart where a server
//!   asks people something.
//! - Every request ends: with its answer, when it is cancelled, at its deadline, or with the server. A request that is given up
//!   is cancelled at the server, also if its future is dropped.
//! - Dropping the connection ends the program with all that descends from it, or the session at the address.

mod asking;
mod call;
mod handler;
mod http;
mod lines;
mod lists;
mod messages;
mod pipe;
mod scan;
mod task;
mod turns;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use playhouse_sandbox::Walls;
use playhouse_sandbox::process::{Program, Run, STOP_GRACE, Scope, Spec, start_apart};
use playhouse_tools::web::Door;
use rmcp::model::{ErrorCode, ProtocolVersion, ServerNotification, ServerPeerInfo, SubscriptionFilter};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, Peer, RoleClient, RunningService,
    serve_client_with_lifecycle_and_ct,
};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::entry::{Protocol, ServerEntry, Stdio, Transport};
use crate::oauth::Authorizer;
use crate::text::{cut, line};
pub use call::{CallError, CallRequest};
use handler::Handler;
pub use handler::{Progress, ProgressSink};
pub(crate) use http::mirrored;
use http::{Remote, Web};
pub use lists::{MessageOfPrompt, ResourceContent};
pub use messages::Diagnosis;
use messages::Noise;
use pipe::Pipe;
use turns::Turns;

/// A connection that is served.
type Service = RunningService<RoleClient, Arc<Handler>>;

/// How long a server that closed its output has to end by itself, so that its exit code can be told.
const LAST_BREATH: Duration = Duration::from_millis(500);
/// The longest part of a message of a server in an error, in bytes.
const MESSAGE: usize = 1_000;
/// What a shell, and what holds a program, tell by their exit code: there is no such program, or it cannot be started.
const NOT_STARTED: [i32; 2] = [126, 127];
/// Where a server runs.
#[derive(Clone)]
pub struct Place {
    /// The directory in which it starts, unless its entry names one: absolute, free of links.
    pub workdir: PathBuf,
    /// The directories that it is told of: the workspace.
    pub roots: Vec<PathBuf>,
    /// What its processes belong to: one of its own.
    pub scope: Scope,
    /// What holds it, built by the wishes of its entry.
    pub walls: Walls,
    /// The way to those that are addresses.
    pub door: Door,
    /// Who logs in to those that are addresses and want it.
    pub authorizer: Option<Authorizer>,
}

/// Why a server could not be started.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// Another attempt may succeed.
    #[error("{0}")]
    Transient(String),
    /// Another attempt fails, too, until somebody changes something: a missing program.
    #[error("{0}")]
    Permanent(String),
    /// The server wants an authorization that it was not given. Another attempt fails, too.
    #[error("{}", unauthorized(.challenge.as_deref()))]
    Unauthorized {
        /// What it wants, in the words of `WWW-Authenticate`.
        challenge: Option<String>,
    },
    /// Somebody has to log in to the server first. Another attempt fails, too. A text for users.
    #[error("{0}")]
    Login(String),
}

/// Tells that a server wants an authorization.
fn unauthorized(challenge: Option<&str>) -> String {
    let challenge = challenge.map(|text| format!(" (it wants: {text})")).unwrap_or_default();
    format!(
        "it answers 401: authorization is needed; configure a header for it, such as Authorization{challenge}"
    )
}

/// What leads to a server.
#[derive(Clone)]
enum Link {
    Program(Program),
    Web(Arc<Remote>),
}

/// A server that runs, or that is reached. Dropping it ends its processes.
pub struct Connection {
    server: String,
    timeout: Duration,
    peer: Peer<RoleClient>,
    handler: Arc<Handler>,
    info: Arc<ServerPeerInfo>,
    link: Link,
    noise: Arc<Noise>,
    /// Tools that are called as tasks only, as they were listed last.
    tasks: Mutex<HashSet<String>>,
    /// Why the server ended, once it has.
    ended: watch::Receiver<Option<Arc<str>>>,
    close: CancellationToken,
    _close: DropGuard,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("server", &self.server)
            .field("process", &self.process())
            .finish_non_exhaustive()
    }
}

/// How one attempt failed.
enum Failure {
    /// The server answered `initialize` with an error: it may want another greeting.
    Refused(String),
    Final(OpenError),
}

impl Connection {
    /// Starts a server and greets it. The second value ends when the server does, with the reason; it keeps nothing alive.
    ///
    /// The program gets what its entry declares of an environment, and of this process's own only where programs lie (`PATH`),
    /// the language, the time zone and the certificates of the machine.
    ///
    /// Dropping the future ends the program.
    ///
    /// # Errors
    /// The program cannot be started, ends, or does not answer in time or as the protocol has it. The error tells what it wrote
    /// to its standard error last.
    pub async fn open(
        entry: &ServerEntry,
        place: &Place,
    ) -> Result<(Self, BoxFuture<'static, String>), OpenError> {
        let late = || {
            let seconds = entry.start_timeout.as_secs_f64();
            OpenError::Transient(format!("it did not answer within {seconds} s of its start"))
        };
        let connected =
            timeout(entry.start_timeout, Self::greet(entry, place)).await.unwrap_or_else(|_| Err(late()));
        let connection = connected?;
        let ended = reason_of(connection.ended.clone());
        Ok((connection, Box::pin(async move { ended.await.to_string() })))
    }

    async fn greet(entry: &ServerEntry, place: &Place) -> Result<Self, OpenError> {
        let initialize = ClientLifecycleMode::Initialize;
        let discover =
            ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
        let first = if entry.protocol == Protocol::Discover { discover.clone() } else { initialize };
        let refused = match Self::attempt(entry, place, first).await {
            Ok(connection) => return Ok(connection),
            Err(Failure::Final(error)) => return Err(error),
            Err(Failure::Refused(reason)) => format!("it refuses the connection: {reason}"),
        };
        if entry.protocol != Protocol::Auto {
            return Err(OpenError::Transient(refused));
        }
        match Self::attempt(entry, place, discover).await {
            Ok(connection) => Ok(connection),
            Err(_) => Err(OpenError::Transient(refused)),
        }
    }

    async fn attempt(
        entry: &ServerEntry,
        place: &Place,
        lifecycle: ClientLifecycleMode,
    ) -> Result<Self, Failure> {
        let noise = Arc::new(Noise::default());
        let handler = Arc::new(Handler {
            server: entry.name.clone(),
            roots: place.roots.clone(),
            callers: Mutex::default(),
            turns: Turns::new(),
            changed: watch::Sender::new(0),
            asking: watch::Sender::new(HashMap::new()),
            progress: Mutex::default(),
        });
        let close = CancellationToken::new();
        let guard = close.clone().drop_guard();
        let (serving, link): (BoxFuture<'_, Result<Service, ClientInitializeError>>, Link) =
            match &entry.transport {
                Transport::Stdio(stdio) => {
                    let program = start(entry, stdio, place).await.map_err(Failure::Final)?;
                    let Some((output, input)) = program.take_output().zip(program.take_input()) else {
                        return Err(Failure::Final(OpenError::Transient("its pipes are gone".to_owned())));
                    };
                    let pipe = Pipe::new(output, input, Arc::clone(&noise));
                    let (handler, close) = (Arc::clone(&handler), close.clone());
                    let serving = serve_client_with_lifecycle_and_ct(handler, pipe, lifecycle, close);
                    (Box::pin(serving), Link::Program(program))
                }
                Transport::Http(http) => {
                    let web = Web::new(http, place, Arc::clone(&noise)).map_err(Failure::Final)?;
                    let remote = web.remote();
                    let (handler, close) = (Arc::clone(&handler), close.clone());
                    let serving = serve_client_with_lifecycle_and_ct(handler, web, lifecycle, close);
                    (Box::pin(serving), Link::Web(remote))
                }
            };
        let service = match serving.await {
            Ok(service) => service,
            Err(error) if let Some(failure) = link.failure(&error) => return Err(Failure::Final(failure)),
            Err(ClientInitializeError::JsonRpcError(error)) => {
                let reason = cut(&error.message, MESSAGE);
                return Err(match error.code {
                    // An answer of the server, and none that stands for one that could not be read.
                    ErrorCode::INTERNAL_ERROR => Failure::Final(OpenError::Transient(reason)),
                    _ => Failure::Refused(reason),
                });
            }
            Err(error) => return Err(Failure::Final(not_greeted(&error, &link, &noise).await)),
        };
        let peer = service.peer().clone();
        let info = peer
            .peer_info()
            .unwrap_or_else(|| Arc::new(ServerPeerInfo::new(ProtocolVersion::default(), Default::default())));
        let (sender, ended) = watch::channel(None);
        tokio::spawn(see_to_its_end(service, link.clone(), close.clone(), sender));
        let connection = Self {
            server: entry.name.clone(),
            timeout: entry.timeout,
            peer,
            handler,
            info,
            link,
            noise,
            tasks: Mutex::default(),
            ended,
            close,
            _close: guard,
        };
        connection.subscribe();
        Ok(connection)
    }

    /// Servers of 2026-07-28 tell of changes only to those who ask for it.
    fn subscribe(&self) {
        let capabilities = &self.info.capabilities;
        let tools = capabilities.tools.as_ref().and_then(|tools| tools.list_changed).unwrap_or_default();
        let prompts =
            capabilities.prompts.as_ref().and_then(|prompts| prompts.list_changed).unwrap_or_default();
        if self.info.protocol_version.has_initialize() || !(tools || prompts) {
            return;
        }
        let mut filter = SubscriptionFilter::new();
        filter.tools_list_changed = tools.then_some(true);
        filter.prompts_list_changed = prompts.then_some(true);
        let (peer, handler, close) = (self.peer.clone(), Arc::clone(&self.handler), self.close.clone());
        tokio::spawn(async move {
            let listen = async {
                let mut subscription = peer.listen(filter).await?;
                while let Some(notice) = subscription.next().await? {
                    if let ServerNotification::ToolListChangedNotification(_)
                    | ServerNotification::PromptListChangedNotification(_) = notice
                    {
                        handler.changed.send_modify(|changes| *changes += 1);
                    }
                }
                Ok::<_, rmcp::ServiceError>(())
            };
            let listened = tokio::select! {
                () = close.cancelled() => return,
                listened = listen => listened,
            };
            if let Err(error) = listened {
                tracing::debug!(server = handler.server, %error, "a server of tools tells of no changes");
            }
        });
    }

    /// The name and the version that the server gives itself.
    pub fn server_info(&self) -> Option<(&str, &str)> {
        self.info.server_info.as_ref().map(|info| (info.name.as_str(), info.version.as_str()))
    }

    /// The version of the protocol that is spoken.
    pub fn process(&self) -> Option<u32> {
        match &self.link {
            Link::Program(program) => Some(program.id()),
            Link::Web(_) => None,
        }
    }

    /// The version of the protocol that is spoken.
    pub fn protocol_version(&self) -> &str {
        self.info.protocol_version.as_str()
    }

    /// Counts the notices that a list of the server changed.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.handler.changed.subscribe()
    }

    /// What the server wrote that is no message.
    pub fn diagnosis(&self) -> Diagnosis {
        self.noise.known()
    }

    /// The end of what it wrote to its standard error: 8 KB at most. Empty for an address.
    pub fn last_words(&self) -> String {
        match &self.link {
            Link::Program(program) => program.last_words(),
            Link::Web(_) => String::new(),
        }
    }

    /// Why the server ended, once it has.
    pub fn end(&self) -> Option<Arc<str>> {
        self.ended.borrow().clone()
    }

    /// Stops the server in good order: its input ends, then it is told to end, then it is killed. At an address the session ends.
    /// Requests fail from now on.
    pub async fn shutdown(&self) {
        self.close.cancel();
        match &self.link {
            // However it ended, it has.
            Link::Program(program) => drop(program.stop(STOP_GRACE).await),
            Link::Web(remote) => remote.end().await,
        }
    }
}

impl Link {
    /// Why a server was not greeted, if that was for no answer of it.
    fn failure(&self, error: &ClientInitializeError) -> Option<OpenError> {
        let Self::Web(remote) = self else { return None };
        let failure = match error {
            ClientInitializeError::JsonRpcError(_) => remote.any_failure()?,
            // Of the notice that the greeting is over.
            ClientInitializeError::TransportError { error, .. } => CallError::Failed(error.error.to_string()),
            _ => return None,
        };
        Some(match failure {
            CallError::Unauthorized { challenge } => OpenError::Unauthorized { challenge },
            CallError::Login(reason) => OpenError::Login(reason),
            CallError::Blocked(reason) => OpenError::Permanent(reason),
            CallError::Failed(reason) => OpenError::Transient(reason),
            other => OpenError::Transient(other.to_string()),
        })
    }
}

/// Waits for the end of a server.
async fn reason_of(mut ended: watch::Receiver<Option<Arc<str>>>) -> Arc<str> {
    let reason = ended.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
    reason.unwrap_or_else(|| "the runtime was shut down".into())
}

async fn start(entry: &ServerEntry, stdio: &Stdio, place: &Place) -> Result<Program, OpenError> {
    let spec = Spec {
        run: Run::Words(stdio.words()),
        workdir: stdio.cwd.clone().unwrap_or_else(|| place.workdir.clone()),
        timeout: None,
        environment: stdio.environment(),
        scope: place.scope.clone(),
        limits: entry.limits,
        walls: place.walls.clone(),
    };
    start_apart(&spec).await.map_err(|error| {
        let is_lasting = error.is_lasting();
        let text = error.to_string();
        if is_lasting { OpenError::Permanent(text) } else { OpenError::Transient(text) }
    })
}

/// Why a server was not greeted.
async fn not_greeted(error: &ClientInitializeError, link: &Link, noise: &Noise) -> OpenError {
    let closed = matches!(
        error,
        ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::TransportError { .. }
    );
    if !closed {
        let error = if let ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } = error
        {
            let versions: Vec<&str> = server_supported.iter().map(ProtocolVersion::as_str).collect();
            return OpenError::Permanent(format!(
                "it speaks only other versions of the protocol: {}",
                versions.join(", ")
            ));
        } else {
            line(&error.to_string(), MESSAGE)
        };
        return OpenError::Transient(format!("it answered the greeting with something else: {error}"));
    }
    let Link::Program(program) = link else {
        return OpenError::Transient("the connection was closed".to_owned());
    };
    let exit = timeout(LAST_BREATH, program.ended()).await.ok();
    let mut reason = program.reason(exit.as_ref());
    if let Some(first) = noise.known().first.first() {
        reason = format!("{reason}; its output is no protocol, it begins with: {first}");
    }
    let code = exit.and_then(Result::ok).and_then(|exit| exit.code);
    if code.is_some_and(|code| NOT_STARTED.contains(&code)) {
        OpenError::Permanent(reason)
    } else {
        OpenError::Transient(reason)
    }
}

/// Waits for the end of a server, tells of it, and lets the program go. The end of the connection is one as well.
async fn see_to_its_end(
    service: Service,
    link: Link,
    close: CancellationToken,
    ended: watch::Sender<Option<Arc<str>>>,
) {
    let mut closed = Box::pin(service.waiting());
    let reason = match link {
        Link::Web(_) => tokio::select! {
            biased;
            () = close.cancelled() => "it was stopped".to_owned(),
            _ = &mut closed => "the connection was closed".to_owned(),
        },
        Link::Program(program) => tokio::select! {
            biased;
            () = close.cancelled() => "it was stopped".to_owned(),
            _ = &mut closed => program.reason(timeout(LAST_BREATH, program.ended()).await.ok().as_ref()),
            exit = program.ended() => {
                // What it wrote before is still read.
                drop(timeout(LAST_BREATH, &mut closed).await);
                program.reason(Some(&exit))
            }
        },
    };
    // What it started is of no use without it, nor is one that closed its output.
    close.cancel();
    ended.send_replace(Some(reason.into()));
}

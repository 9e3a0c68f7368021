//! Servers of tools as leased children: where each runs, and how it is started and stopped.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use playhouse_mcp::{Connection, OpenError, Place, ServerSandbox, Transport};
use playhouse_protocol::walls::{Sandbox, Strength};
use playhouse_sandbox::process::Scope;
use playhouse_sandbox::{Walls, WallsSpec, blocking};
use playhouse_tools::web::Door;
use sha2::{Digest as _, Sha256};

use super::OF_WORKSPACES;
use super::declared::{Declarations, Declared};
use super::key::ServerKey;
use super::known::Known;
use super::login::Logins;
use crate::base::spawn;
use crate::shared::{Kind, StartError, Started};

/// Time between two looks at the lists of a server that says that they change.
const LIST_PAUSE: Duration = Duration::from_millis(500);
/// Why a workspace's server does not start, although people agreed to one of its name.
const CHANGED: &str = "its entry in the workspace, or a file that its command names, has changed since people agreed to it; they are asked again with the next prompt";
/// Why a workspace's server does not start where walls are less than full.
const WEAK: &str = "what a workspace declares runs only in full walls, which cannot be built here: `playhouse doctor` says what is missing";
/// So many digits of a hash name a folder.
const FOLDER_DIGITS: usize = 24;

/// What servers run in.
pub(super) struct Ground {
    /// Folder of their homes and of their working directories, where they serve no workspace.
    pub(super) folder: PathBuf,
    /// Whether there must be walls around those that want some.
    pub(super) sandbox: Sandbox,
    /// What walls hide.
    pub(super) hidden: Vec<PathBuf>,
    /// Directories below which the git directory of a worktree may lie.
    pub(super) roots: Vec<PathBuf>,
    /// The way to those that are addresses.
    pub(super) door: Door,
    /// Logins at those.
    pub(super) logins: Arc<Logins>,
}

impl Ground {
    /// Where the server of a key runs. Blocks.
    fn place(&self, declared: &Declared, key: &ServerKey) -> Result<Place, StartError> {
        let entry = &declared.entry;
        if let Transport::Http(_) = entry.transport {
            // It runs elsewhere, and is told of no directory.
            let (workdir, door) = (self.folder.clone(), self.door.clone());
            let authorizer = self.logins.of_start(entry, key);
            let (scope, walls) = (Scope::new(), Walls::open());
            return Ok(Place { workdir, roots: Vec::new(), scope, walls, door, authorizer });
        }
        let own = self.folder.join(digits(&key.tenant)).join(&key.hash[..FOLDER_DIGITS.min(key.hash.len())]);
        let workdir = key.workspace.as_deref().map_or_else(|| own.join("work"), Path::to_owned);
        let failed = |error: std::io::Error| StartError::Transient(error.to_string());
        fs_err::create_dir_all(own.join("output")).map_err(failed)?;
        if key.workspace.is_none() {
            fs_err::create_dir_all(&workdir).map_err(failed)?;
        }
        // Walls and the sandbox take no path with links.
        let workdir = fs_err::canonicalize(workdir).map_err(failed)?;
        let walls = match entry.walls.sandbox {
            ServerSandbox::None => Walls::open(),
            ServerSandbox::Walls => {
                let spec = WallsSpec {
                    // What a workspace declares never runs without.
                    sandbox: if declared.of.is_some() { Sandbox::Required } else { self.sandbox },
                    allowed: entry.walls.allowed(),
                    workspace: workdir.clone(),
                    output: own.join("output"),
                    shared: Vec::new(),
                    home: own.join("home"),
                    hidden: self.hidden.clone(),
                    roots: self.roots.clone(),
                };
                let walls = Walls::build(&spec).map_err(|error| StartError::Permanent(error.to_string()))?;
                let is_full = walls.known().is_some_and(|walls| walls.strength == Strength::Full);
                if declared.of.is_some() && !is_full {
                    return Err(StartError::Permanent(WEAK.to_owned()));
                }
                walls
            }
        };
        let roots = key.workspace.iter().map(|_| workdir.clone()).collect();
        Ok(Place { workdir, roots, scope: Scope::new(), walls, door: self.door.clone(), authorizer: None })
    }
}

fn digits(text: &str) -> String {
    let hash = Sha256::digest(text);
    hash.iter().take(FOLDER_DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
}

/// The kind of children that servers of tools are.
pub(super) struct Servers {
    pub(super) declared: Arc<Declarations>,
    pub(super) ground: Arc<Ground>,
    pub(super) known: Arc<Known>,
    pub(super) running: Arc<Running>,
}

/// Servers that run, with what metrics call them.
pub(super) type Running = Mutex<Vec<(Arc<str>, Weak<Connection>)>>;

impl Kind for Servers {
    type Key = ServerKey;
    type Child = Arc<Connection>;
    const NAME: &'static str = "server of tools";

    fn start<'a>(
        &'a self,
        key: &'a ServerKey,
    ) -> BoxFuture<'a, Result<Started<Arc<Connection>>, StartError>> {
        Box::pin(async move {
            let Some(declared) = self.declared.by_hash(&key.hash) else {
                return Err(StartError::Permanent("it is not declared any more".to_owned()));
            };
            let (ground, of, to) = (Arc::clone(&self.ground), Arc::clone(&declared), key.clone());
            let (declarations, known) = (Arc::clone(&self.declared), Arc::clone(&self.known));
            let place = blocking(move || {
                if of.is_unchanged() {
                    return ground.place(&of, &to);
                }
                if to.workspace.as_ref().is_some_and(|workspace| declarations.look(workspace)) {
                    known.change();
                }
                Err(StartError::Permanent(CHANGED.to_owned()))
            });
            let place = place.await?;
            let (connection, ended) =
                Connection::open(&declared.entry, &place).await.map_err(|error| match error {
                    OpenError::Transient(reason) => StartError::Transient(reason),
                    OpenError::Permanent(reason) | OpenError::Login(reason) => StartError::Permanent(reason),
                    unauthorized @ OpenError::Unauthorized { .. } => {
                        StartError::Permanent(unauthorized.to_string())
                    }
                })?;
            let connection = Arc::new(connection);
            {
                // Those of workspaces may have any name: they are counted together.
                let label = declared.of.as_ref().map_or(declared.entry.name.as_str(), |_| OF_WORKSPACES);
                let mut running = self.running.lock();
                running.retain(|(_, connection)| connection.strong_count() > 0);
                running.push((label.into(), Arc::downgrade(&connection)));
            }
            // Seen from here, so that no change is missed.
            let changed = connection.changed();
            let listing = connection
                .listing()
                .await
                .map_err(|error| StartError::Transient(format!("its tools cannot be listed: {error}")))?;
            Arc::clone(&self.known).learn(Arc::clone(&declared), key.clone(), listing, true).await;
            let of = (declared, key.clone());
            spawn(follow(changed, Arc::downgrade(&connection), of, Arc::clone(&self.known)));
            Ok(Started { child: connection, ended })
        })
    }

    fn stop(&self, child: Arc<Arc<Connection>>) -> BoxFuture<'_, ()> {
        Box::pin(async move { child.shutdown().await })
    }
}

/// Asks for the lists of a server whenever it says that they changed, until it is gone.
async fn follow(
    mut changed: tokio::sync::watch::Receiver<u64>,
    connection: Weak<Connection>,
    (declared, key): (Arc<Declared>, ServerKey),
    known: Arc<Known>,
) {
    while changed.changed().await.is_ok() {
        let Some(connection) = connection.upgrade() else { return };
        match connection.listing().await {
            Ok(listing) => Arc::clone(&known).learn(Arc::clone(&declared), key.clone(), listing, false).await,
            Err(error) => {
                tracing::warn!(server = declared.entry.name, %error, "the tools of a server changed and cannot be listed");
            }
        }
        drop(connection);
        tokio::time::sleep(LIST_PAUSE).await;
    }
}

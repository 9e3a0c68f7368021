//! Language servers as leased children: where each runs, and how it is started and stopped.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use playhouse_lsp::{CLOSED, Client, ServerEntry, Start};
use playhouse_protocol::walls::{Sandbox, Strength, WallsAllowed};
use playhouse_sandbox::process::{
    Environment, Limits, Program, Run, STOP_GRACE, Scope, Spec, start_apart, use_of_groups,
};
use playhouse_sandbox::{Walls, WallsSpec, blocking};
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use super::LspLimits;
use super::found::{FoundServer, identity};
use super::running::Running;
use crate::shared::{Kind, StartError, Started};

/// Names of the environment of this process that every server gets.
const PASSED_DOWN: [&str; 8] =
    ["PATH", "LANG", "LANGUAGE", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "RUSTUP_HOME"];
/// How long a server may take until it knows its folder.
pub(super) const START: Duration = Duration::from_secs(45);
/// How long a server whose output ended may take to end.
const LAST_BREATH: Duration = Duration::from_secs(2);
/// How many processes and threads a server may have.
const TASKS: u32 = 1_024;
/// So many digits of a hash name a folder.
const FOLDER_DIGITS: usize = 24;
/// Why a program of a workspace does not start.
const CHANGED: &str = "its program lies in the workspace and has changed since it was looked at: it is looked at again with the next prompt";
const WEAK: &str = "its program lies in the workspace and starts unasked only in full walls, which cannot be built here: `playhouse doctor` says what is missing";

/// What tells two servers apart.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct ServerKey {
    pub(super) name: Arc<str>,
    /// Its program, links resolved.
    pub(super) program: Arc<Path>,
    pub(super) tenant: Arc<str>,
    /// What its walls show: the directory of the sessions.
    pub(super) workspace: Arc<Path>,
    /// The folder of the project.
    pub(super) root: Arc<Path>,
    pub(super) trust: Trust,
}

/// Why a program may be started.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Trust {
    /// It is the operator's.
    Operator,
    /// It lies in the workspace, with this hash, and runs in full walls.
    Walls(Arc<str>),
    /// It lies in the workspace, with this hash, and people agreed.
    Agreed(Arc<str>),
}

impl fmt::Display for ServerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for ServerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {:?} in {:?}", self.name, self.tenant, self.root)
    }
}

/// What servers run in.
pub(super) struct Ground {
    pub(super) entries: Vec<ServerEntry>,
    /// Folder of their homes.
    pub(super) folder: PathBuf,
    /// Whether there must be walls.
    pub(super) sandbox: Sandbox,
    /// What walls hide.
    pub(super) hidden: Vec<PathBuf>,
    /// Directories below which the git directory of a worktree may lie.
    pub(super) roots: Vec<PathBuf>,
    pub(super) limits: LspLimits,
    /// Servers that run.
    pub(super) running: Mutex<Vec<(ServerKey, Weak<Running>)>>,
    /// Called when one starts or ends.
    pub(super) changed: Arc<dyn Fn() + Send + Sync>,
}

impl Ground {
    /// The servers that run.
    pub(super) fn running(&self) -> Vec<(ServerKey, Arc<Running>)> {
        let mut running = self.running.lock();
        running.retain(|(_, server)| server.strong_count() > 0);
        let alive = running.iter().filter_map(|(key, server)| Some((key.clone(), server.upgrade()?)));
        alive.filter(|(_, server)| server.client.ended().is_none()).collect()
    }

    /// The walls around a server in a workspace. Blocks.
    pub(super) fn walls(
        &self,
        sandbox: Sandbox,
        home: &Path,
        workspace: &Path,
        read: Vec<String>,
    ) -> Result<Walls, String> {
        let spec = WallsSpec {
            sandbox,
            allowed: WallsAllowed { read, read_only: true, ..WallsAllowed::default() },
            workspace: workspace.to_owned(),
            output: home.join("output"),
            shared: Vec::new(),
            home: home.join("home"),
            hidden: self.hidden.clone(),
            roots: self.roots.clone(),
        };
        Walls::build(&spec).map_err(|error| error.to_string())
    }

    /// The folder of a server's own.
    pub(super) fn home(&self, tenant: &str, workspace: &Path, name: &str) -> PathBuf {
        let own = format!("{}\n{name}", workspace.display());
        self.folder.join(digits(tenant)).join(digits(&own))
    }

    /// What is started for a key. Blocks.
    fn spec(&self, key: &ServerKey) -> Result<(Spec, ServerEntry), StartError> {
        let permanent = |reason: &str| StartError::Permanent(reason.to_owned());
        let entry = self.entries.iter().find(|entry| *entry.name == *key.name);
        let entry = entry.ok_or_else(|| permanent("it is not configured any more"))?;
        let (sandbox, hash) = match &key.trust {
            Trust::Operator => (self.sandbox, None),
            Trust::Agreed(hash) => (self.sandbox, Some(hash)),
            Trust::Walls(hash) => (Sandbox::Required, Some(hash)),
        };
        if hash.is_some_and(|hash| identity(&key.program).as_deref() != Some(&**hash)) {
            return Err(permanent(CHANGED));
        }
        let running = self.running();
        let uses = use_of_groups(&running.iter().map(|(_, server)| server.program.id()).collect::<Vec<_>>());
        let used: u64 = uses.values().map(|used| used.resident_bytes).sum();
        if used >= self.limits.total_memory {
            return Err(StartError::Transient(format!(
                "the {} language servers that run use {} MB, and all together may use {} (`lsp.total_memory_mb`)",
                running.len(),
                used >> 20,
                self.limits.total_memory >> 20
            )));
        }
        let words = || entry.command.iter().skip(1);
        let walls = match sandbox {
            Sandbox::Off => Walls::open(),
            sandbox => {
                let home = self.home(&key.tenant, &key.workspace, &key.name);
                fs_err::create_dir_all(home.join("output"))
                    .map_err(|error| StartError::Transient(error.to_string()))?;
                let named = words().filter(|word| Path::new(word).is_absolute()).cloned();
                let read = package_of(&key.program).into_iter().chain(named).collect();
                self.walls(sandbox, &home, &key.workspace, read).map_err(StartError::Permanent)?
            }
        };
        let is_full = walls.known().is_some_and(|walls| walls.strength == Strength::Full);
        if matches!(key.trust, Trust::Walls(_)) && !is_full {
            return Err(permanent(WEAK));
        }
        let own = Environment::of_this_process();
        let passed = own.variables().filter(|(name, _)| PASSED_DOWN.iter().any(|passed| name == passed));
        let environment =
            passed.fold(Environment::empty(), |environment, (name, value)| environment.with(name, value));
        let environment = match sandbox {
            // Walls give it a HOME of its own.
            Sandbox::Off => own
                .variables()
                .filter(|(name, _)| *name == "HOME")
                .fold(environment, |all, (name, value)| all.with(name, value)),
            _ => environment,
        };
        let environment =
            entry.variables().fold(environment, |environment, (name, value)| environment.with(name, value));
        let program = std::iter::once(key.program.as_os_str().to_owned());
        let spec = Spec {
            run: Run::Words(program.chain(words().map(Into::into)).collect()),
            workdir: key.root.to_path_buf(),
            timeout: None,
            environment,
            scope: Scope::new(),
            limits: Limits { tasks: TASKS, memory: Some(self.limits.memory), ..Limits::default() },
            walls,
        };
        Ok((spec, entry.clone()))
    }
}

/// What a program needs beside the folders of `PATH`: the packages among which it lies.
fn package_of(program: &Path) -> Option<String> {
    let real = fs_err::canonicalize(program).ok()?;
    let packages = real.ancestors().filter(|folder| folder.ends_with("node_modules")).last();
    let environment = real.ancestors().skip(1).find(|folder| folder.join("pyvenv.cfg").is_file());
    let folder = packages.or(environment).or(real.parent())?;
    folder.to_str().map(str::to_owned)
}

fn digits(text: &str) -> String {
    let hash = Sha256::digest(text);
    hash.iter().take(FOLDER_DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
}

/// The key of a server for a project.
pub(super) fn key_of(
    server: &FoundServer,
    tenant: &Arc<str>,
    workspace: &Arc<Path>,
    root: &Path,
    trust: Trust,
) -> ServerKey {
    ServerKey {
        name: server.entry.name.as_str().into(),
        program: server.program.as_path().into(),
        tenant: Arc::clone(tenant),
        workspace: Arc::clone(workspace),
        root: root.into(),
        trust,
    }
}

/// The kind of children that language servers are.
pub(super) struct Servers(pub(super) Arc<Ground>);

impl Kind for Servers {
    type Key = ServerKey;
    type Child = Arc<Running>;
    const NAME: &'static str = "language server";

    fn start<'a>(&'a self, key: &'a ServerKey) -> BoxFuture<'a, Result<Started<Arc<Running>>, StartError>> {
        Box::pin(async move {
            let (ground, of) = (Arc::clone(&self.0), key.clone());
            let (spec, entry) = blocking(move || ground.spec(&of)).await?;
            let program = start_apart(&spec).await.map_err(|error| {
                let is_lasting = error.is_lasting();
                let text = error.to_string();
                if is_lasting { StartError::Permanent(text) } else { StartError::Transient(text) }
            })?;
            let (Some(to), Some(from)) = (program.take_input(), program.take_output()) else {
                return Err(StartError::Transient("it has no pipes".to_owned()));
            };
            let start =
                Start { root: key.root.to_path_buf(), initialization: entry.initialization, patience: START };
            let client = match Client::start(from, to, start).await {
                Ok(client) => client,
                Err(error) => {
                    let exit = timeout(LAST_BREATH, program.ended()).await.ok();
                    let reason = match exit {
                        Some(exit) => program.reason(Some(&exit)),
                        None => error.to_string(),
                    };
                    return Err(StartError::Transient(reason));
                }
            };
            let closed = client.gone();
            let running = Arc::new(Running::new(client, program.clone()));
            self.0.running.lock().push((key.clone(), Arc::downgrade(&running)));
            (self.0.changed)();
            let changed = Arc::clone(&self.0.changed);
            let ended = async move {
                let reason = end_of(&program, closed).await;
                changed();
                reason
            };
            Ok(Started { child: running, ended: Box::pin(ended) })
        })
    }

    fn stop(&self, child: Arc<Arc<Running>>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            child.client.shut_down().await;
            // How it ends is of no interest.
            drop(child.program.stop(STOP_GRACE).await);
            (self.0.changed)();
        })
    }
}

/// Waits for the end of a server, and says why it ended.
async fn end_of(program: &Program, closed: impl Future<Output = String>) -> String {
    let reason = tokio::select! {
        biased;
        reason = closed => reason,
        exit = program.ended() => return program.reason(Some(&exit)),
    };
    let exit = timeout(LAST_BREATH, program.ended()).await.ok();
    if exit.is_none() {
        // One that closed its output, or wrote what cannot be read, is of no use.
        drop(program.stop(Duration::ZERO).await);
    }
    // What it wrote is to blame where that could not be read, however it ended then.
    if reason == CLOSED { program.reason(exit.as_ref()) } else { reason }
}

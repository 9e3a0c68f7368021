//! How language servers stand, for people and clients.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use metrics::gauge;
use playhouse_lsp::{Answer, Known, Operation, Query, ServerEntry, Spot, uri_of};
use playhouse_protocol::metric::Metric;
use playhouse_sandbox::process::use_of_groups;
use tokio::time::{Duration, Instant};

use super::found::{FoundServer, found};
use super::{LspServers, State};

/// How long one server is asked for symbols, or for what is wrong.
const PATIENCE: Duration = Duration::from_secs(5);
/// Symbols that are found.
const MOST_SYMBOLS: usize = 100;

/// The state of a language server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LspState {
    /// It runs.
    Connected,
    /// It is being started, or stopped.
    Starting,
    /// It failed, with the reason.
    Failed(Arc<str>),
    /// It does not run, and starts when it is needed.
    Stopped,
}

/// A language server in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LspStatus {
    /// Its name.
    pub name: String,
    /// Its program.
    pub program: PathBuf,
    /// The folder of its project; the workspace where it does not run.
    pub root: PathBuf,
    /// Its state.
    pub state: LspState,
    /// Files that it was shown.
    pub files: usize,
}

/// What a server says of a file that it was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LspFile {
    /// The server.
    pub server: String,
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it, if that is known.
    pub known: Known,
}

/// A symbol that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LspSymbol {
    /// Its name, without its kind.
    pub name: String,
    /// The number of its kind in the protocol.
    pub kind: u64,
    /// The address of the file.
    pub uri: String,
    /// Where it begins, from 0: line and character.
    pub start: (u32, u32),
    /// Where it ends.
    pub end: (u32, u32),
}

/// A language server that may be used in a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LspFound {
    /// Its name.
    pub name: String,
    /// Its program.
    pub program: PathBuf,
    /// Whether there is such a program.
    pub is_there: bool,
    /// Whether it lies in the workspace.
    pub is_in_workspace: bool,
}

impl LspServers {
    /// The servers among `entries` that may be used in a workspace (absolute, links resolved). Starts none. Blocks.
    pub fn found(entries: &[ServerEntry], workspace: &Path) -> Vec<LspFound> {
        let found = found(entries, workspace);
        let one = |server: &Arc<FoundServer>| LspFound {
            name: server.entry.name.clone(),
            program: server.program.clone(),
            is_there: server.program.is_absolute() && server.program.is_file(),
            is_in_workspace: server.hash.is_some(),
        };
        found.iter().map(one).collect()
    }

    /// The servers of a workspace, running or not; for a `tenant` only its own are told to run. Without a workspace those that
    /// run or failed. Looks for programs: blocks.
    pub fn status(&self, tenant: Option<&str>, workspace: Option<&Path>) -> Vec<LspStatus> {
        let running = self.0.ground.running();
        let children = self.0.leases.status();
        let is_meant = |of: &str, at: &Path| {
            tenant.is_none_or(|tenant| tenant == of) && workspace.is_none_or(|workspace| workspace == at)
        };
        let own = children.iter().filter(|child| is_meant(&child.key.tenant, &child.key.workspace));
        let mut status: Vec<LspStatus> = own
            .map(|child| LspStatus {
                name: child.key.name.to_string(),
                program: child.key.program.to_path_buf(),
                root: child.key.root.to_path_buf(),
                state: match child.state {
                    State::Running { .. } | State::Idle { .. } => LspState::Connected,
                    State::Starting | State::Stopping => LspState::Starting,
                    State::BackingOff { .. } | State::Open { .. } | State::Failed | State::Stopped => {
                        child.last_error.clone().map_or(LspState::Stopped, LspState::Failed)
                    }
                },
                files: running
                    .iter()
                    .find(|(key, _)| *key == child.key)
                    .map_or(0, |(_, server)| server.client.shown().len()),
            })
            .collect();
        if let Some(workspace) = workspace {
            for server in self.0.look(&workspace.into()).iter().filter(|server| server.is_wanted) {
                if !status.iter().any(|known| known.name == server.entry.name) {
                    status.push(LspStatus {
                        name: server.entry.name.clone(),
                        program: server.program.clone(),
                        root: workspace.to_owned(),
                        state: LspState::Stopped,
                        files: 0,
                    });
                }
            }
        }
        status.sort_by(|one, other| (&one.name, &one.root).cmp(&(&other.name, &other.root)));
        status
    }

    /// What the servers of a tenant that run in a workspace say of the files that they were shown.
    pub async fn diagnostics(&self, tenant: &str, workspace: &Path) -> Vec<LspFile> {
        let mut files = Vec::new();
        for (key, server) in self.0.ground.running() {
            if *key.tenant != *tenant || *key.workspace != *workspace {
                continue;
            }
            let mut paths = server.client.shown();
            paths.sort_unstable();
            let said = server.diagnose(&paths, Instant::now() + PATIENCE).await;
            let told = paths.into_iter().zip(said);
            files.extend(told.map(|(path, known)| LspFile {
                server: key.name.to_string(),
                path,
                known: known.unwrap_or(Known::NotYet),
            }));
        }
        files
    }

    /// Symbols whose names hold a text, by the servers of a tenant that run in a workspace.
    pub async fn symbols(&self, tenant: &str, workspace: &Path, text: &str) -> Vec<LspSymbol> {
        let mut found = Vec::new();
        for (key, server) in self.0.ground.running() {
            if *key.tenant != *tenant || *key.workspace != *workspace {
                continue;
            }
            let spot = Spot { line: 1, column: 1 };
            let query = Query { operation: Operation::WorkspaceSymbol, path: &key.root, spot, words: text };
            // One that cannot say it has none.
            let Ok(Answer::Places(places)) = server.client.ask(&query, PATIENCE).await else { continue };
            let inside = places.into_iter().filter(|place| place.path.starts_with(workspace));
            found.extend(inside.filter_map(|place| {
                let symbol = place.symbol?;
                Some(LspSymbol {
                    name: symbol.name,
                    kind: symbol.kind,
                    uri: uri_of(&place.path)?,
                    start: (place.start.line, place.start.character),
                    end: (place.end.line, place.end.character),
                })
            }));
        }
        found.truncate(MOST_SYMBOLS);
        found
    }

    /// Counts starts and ends of servers.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.0.states.subscribe()
    }

    /// Tells the recorder how many servers run and what they use. Blocks.
    #[allow(clippy::cast_precision_loss, reason = "a count may be off by one in 2^53")]
    pub(crate) fn observe(&self) {
        let running = self.0.ground.running();
        let leaders: Vec<u32> = running.iter().map(|(_, server)| server.program.id()).collect();
        let uses = if leaders.is_empty() { Default::default() } else { use_of_groups(&leaders) };
        let names = self.0.ground.entries.iter().map(|entry| entry.name.as_str());
        let mut sums: BTreeMap<&str, (usize, u64)> = names.map(|name| (name, (0, 0))).collect();
        for ((key, _), leader) in running.iter().zip(&leaders) {
            let Some((count, memory)) = sums.get_mut(&*key.name) else { continue };
            *count += 1;
            *memory += uses.get(leader).map_or(0, |used| used.resident_bytes);
        }
        for (name, (count, memory)) in sums {
            let labels = [("server", name.to_owned())];
            gauge!(Metric::LspServers.name(), &labels).set(count as f64);
            gauge!(Metric::LspMemory.name(), &labels).set(memory as f64);
        }
    }
}

//! A server from its start to its end.
//!
//! The end comes in steps: first no new work is taken, and running turns may go on for a while; then nothing is accepted
//! any more and streams end; then the engine stops, which suspends what still runs, in the log; and last the connections
//! are cut that have not ended by themselves.

use std::collections::HashSet;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use playhouse_actors::{Stopped, try_blocking};
use playhouse_protocol::{CommandError, SessionId};
use thiserror::Error;
use tokio::net::{TcpListener, TcpSocket, UnixListener};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::App;
use crate::connection::{Connections, Listener, outer_seats};
use crate::native::mcp_server;
use crate::operator::idle;
use crate::router::router;
use crate::socket::{self, SocketFile};

/// How often it is looked whether turns still run, while the server ends.
const LOOK: Duration = Duration::from_millis(20);
/// How often it is looked whether the data directory is still there.
const LOOK_AROUND: Duration = Duration::from_secs(1);
/// How long connections may take to end when everything else has.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// An address of the network; port 0 takes any that is free.
    Tcp(SocketAddr),
    /// A socket in the file system, which only the operator's account can open.
    Unix(PathBuf),
}

/// Why a server could not be started.
#[derive(Debug, Error)]
pub enum ServerError {
    /// Others could reach it, and there is no key.
    #[error(
        "{0} can be reached from outside, and there are no keys: make one with \
         `playhouse keys create --tenant NAME --name NAME`, or listen on 127.0.0.1"
    )]
    Open(SocketAddr),
    /// The address cannot be listened on.
    #[error("failed to listen on {0}: {1}")]
    Address(SocketAddr, #[source] io::Error),
    /// The socket cannot be listened on.
    #[error("failed to listen on {}: {error}", path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The store failed.
    #[error("failed to read the keys: {0}")]
    Keys(String),
    /// A tool that clients of MCP shall have is none.
    #[error("server.mcp_tools: {0}")]
    Tools(String),
}

/// How a server ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Turns that ran when it was told to end, and ended in time.
    pub finished: usize,
    /// Turns that go on at the next start.
    pub suspended: usize,
    /// What the engine stopped.
    pub stopped: Stopped,
    /// Connections that were cut.
    pub cut: usize,
    /// Why it ended by itself, where the data directory is not the one any more that was opened.
    pub replaced: Option<String>,
}

/// A server that listens, and accepts nothing before it runs.
#[derive(Debug)]
pub struct Server {
    app: App,
    address: Option<SocketAddr>,
    networks: Vec<TcpListener>,
    sockets: Vec<(UnixListener, SocketFile)>,
}

impl Server {
    /// Listens. Clients that connect from now on are answered when the server runs.
    ///
    /// # Errors
    /// An address that others can reach while there are no keys; an address or a socket that cannot be listened on; a name of a
    /// tool that is none.
    pub async fn bind(app: App, listen: Listen) -> Result<Self, ServerError> {
        let learning = app.clone();
        let has_keys = match try_blocking(move || learning.learn_keys()).await {
            Ok(read) => read.map_err(|error| ServerError::Keys(error.to_string()))?,
            Err(error) => return Err(ServerError::Keys(error.to_string())),
        };
        app.need_key(has_keys);
        mcp_server::native_tools(&app).map_err(|error| ServerError::Tools(error.to_string()))?;
        let mut server = Self { app, address: None, networks: Vec::new(), sockets: Vec::new() };
        server.and_on(listen).await?;
        Ok(server)
    }

    /// Listens there too.
    ///
    /// # Errors
    /// As for [`Server::bind`].
    pub async fn and_on(&mut self, listen: Listen) -> Result<(), ServerError> {
        match listen {
            Listen::Tcp(address) => {
                if !self.app.needs_key() && !is_loopback(address.ip()) {
                    return Err(ServerError::Open(address));
                }
                let failed = |error| ServerError::Address(address, error);
                let listener = listen_on(address).map_err(failed)?;
                self.address = self.address.or(Some(listener.local_addr().map_err(failed)?));
                self.networks.push(listener);
            }
            Listen::Unix(path) => {
                let made = socket::listen(&path).await;
                self.sockets.push(made.map_err(|error| ServerError::Socket { path, error })?);
            }
        }
        Ok(())
    }

    /// The first address of the network on which it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The first socket in the file system on which it listens.
    pub fn socket(&self) -> Option<&Path> {
        self.sockets.first().map(|(_, file)| file.path())
    }

    /// What its routes share.
    pub fn app(&self) -> &App {
        &self.app
    }

    /// Answers requests until `stop` is over, or nobody needed it for as long as its options say, and then ends in good order: running turns may go on for a while, unless
    /// `hurry` is over too. The engine has stopped on return.
    pub async fn run(self, stop: impl Future<Output = ()>, hurry: impl Future<Output = ()>) -> Ended {
        let Self { app, networks, sockets, .. } = self;
        let options = app.options();
        let connections = Connections {
            router: router(app.clone()),
            seats: Arc::clone(app.seats()),
            outer_seats: Arc::new(Semaphore::new(outer_seats(options.connections))),
            head_time: options.head_time,
            write_time: options.write_time,
            tasks: TaskTracker::new(),
            closing: app.closing().clone(),
            cut: CancellationToken::new(),
        };
        let (tasks, cut) = (connections.tasks.clone(), connections.cut.clone());
        let accepting = TaskTracker::new();
        for listener in networks {
            accepting.spawn(connections.clone().accept(Listener::Tcp(listener)));
        }
        for (listener, file) in sockets {
            accepting.spawn(connections.clone().accept_at(listener, file));
        }
        accepting.close();
        let waking = tokio::spawn(wake(app.clone()));
        let unused = async {
            match options.idle_exit {
                Some(time) => idle(&app, &tasks, time).await,
                None => std::future::pending().await,
            }
        };
        let replaced = tokio::select! {
            () = stop => None,
            () = unused => None,
            why = replaced(&app) => Some(why),
        };
        waking.abort();
        app.drain();
        let stuck = stuck(&app).await;
        let before = running(&app, &stuck).await;
        tokio::select! {
            () = quiet(&app, &stuck) => {}
            () = tokio::time::sleep(options.grace) => {}
            () = hurry => {}
            // What turns do now is lost.
            () = std::future::ready(()), if replaced.is_some() => {}
        }
        app.closing().cancel();
        // The files of its sockets go with this.
        accepting.wait().await;
        let stopped = app.engine().shutdown().await;
        let suspended = running(&app, &stuck).await;
        tasks.close();
        let _ = timeout(LAST_WORDS, tasks.wait()).await;
        let left = tasks.len();
        cut.cancel();
        tasks.wait().await;
        Ended { finished: before.saturating_sub(suspended), suspended, stopped, cut: left, replaced }
    }
}

/// Waits until the data directory is not the one any more that was opened; what is said of that. Nothing can be kept then, and whoever opens
/// what lies in its place is not to find another engine there.
async fn replaced(app: &App) -> String {
    loop {
        tokio::time::sleep(LOOK_AROUND).await;
        if let Err(error) = app.engine().check_place() {
            tracing::error!(%error, "the server ends: nothing that is written now would be found again");
            return error.to_string();
        }
    }
}

/// Goes on with what was not finished when the engine stopped the last time, unless the engine does so itself.
async fn wake(app: App) {
    if app.engine().resumes_by_itself() {
        return;
    }
    for id in unfinished(&app).await {
        if let Err(error) = app.engine().session(id).await {
            tracing::warn!(session = %id, %error, "a session does not go on");
        }
    }
}

/// Sessions whose turns are not finished, and do not run either: they are parked.
async fn stuck(app: &App) -> HashSet<SessionId> {
    let mut stuck = HashSet::new();
    for id in unfinished(app).await {
        if let Err(CommandError::Parked { .. }) = app.engine().session(id).await {
            stuck.insert(id);
        }
    }
    stuck
}

/// How many sessions have a turn that runs or waits, without those that are `stuck`.
async fn running(app: &App, stuck: &HashSet<SessionId>) -> usize {
    unfinished(app).await.iter().filter(|id| !stuck.contains(*id)).count()
}

/// Sessions with a turn that is not over. Where the store cannot say, none is known.
async fn unfinished(app: &App) -> Vec<SessionId> {
    app.engine().unfinished().await.unwrap_or_else(|error| {
        tracing::error!(%error, "what is not finished cannot be read");
        Vec::new()
    })
}

/// Waits until no turn runs.
async fn quiet(app: &App, stuck: &HashSet<SessionId>) {
    while running(app, stuck).await > 0 {
        tokio::time::sleep(LOOK).await;
    }
}

/// Listens on an address of the network.
fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // The next server need not wait until the system has forgotten the connections of the last one.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(socket::BACKLOG)
}

/// Whether only this machine reaches `address`.
fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_machine_are_loopback() {
        let is = |text: &str| is_loopback(text.parse().unwrap());
        assert!(["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"].into_iter().all(is));
        assert!(!["0.0.0.0", "::", "192.168.0.1", "::ffff:10.0.0.1"].into_iter().any(is));
    }
}

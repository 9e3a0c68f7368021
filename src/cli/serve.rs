//! `playhouse serve`: the engine for any number of clients.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use playhouse_protocol::Sandbox;
use playhouse_sandbox::process::raise_open_files;
use playhouse_server::{App, Ended, Listen, MetricsAccess, MetricsOptions, Server};
use playhouse_store::StoreError;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::interrupt::{Endings, TERMINATE};
use super::reach::{SOCKET, make_way};
use super::{CommandResult, Common, Exit, Failure, WallsArguments, print, say, variable};
use crate::config::Settings;
use crate::exposition::Exposition;
use crate::house::{House, HouseError};
use crate::logging;

/// How long an engine in the background waits for the data directory, and how often it looks.
const LOCK_WAIT: Duration = Duration::from_secs(15);
const LOCK_AGAIN: Duration = Duration::from_millis(20);
/// How long the end may take in good order after the second signal: longer than closing takes when nothing is in the way.
const LAST_MOMENT: Duration = Duration::from_millis(500);

/// Options of `playhouse serve`.
#[derive(Debug, Args)]
pub(super) struct ServeArguments {
    /// Where to listen: ADDRESS:PORT, or unix:PATH for a socket that only you can open [default: as configured, else
    /// 127.0.0.1:4096]
    #[arg(long, value_name = "WHERE", conflicts_with_all = ["hostname", "port"])]
    listen: Option<String>,
    /// The address or the name of this machine to listen on
    #[arg(long, value_name = "HOST")]
    hostname: Option<String>,
    /// The port to listen on; 0 for any that is free
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// A directory below which the sessions of clients may work (may be repeated) [default: as configured, else the
    /// current one]
    #[arg(long = "root", value_name = "DIR")]
    roots: Vec<PathBuf>,
    /// The least that is worth a line of the log [default: as $PLAYHOUSE_LOG says, else info]
    // SDKs that start a server pass it on from their callers.
    #[arg(long, value_name = "LEVEL", ignore_case = true)]
    pub(super) log_level: Option<LogLevel>,
    #[command(flatten)]
    walls: WallsArguments,
    /// End after this time without a client and without a running turn: 30s, 5m, 500ms
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    idle_exit: Option<Duration>,
    /// Threads that carry sessions and connections; files, tools and the store have their own [default: as many as
    /// there are processors, 4 at most]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) threads: Option<u16>,
    /// Started by a command, for itself and for others: leaves the terminal, and waits while another has the data
    #[arg(long, hide = true)]
    pub(super) background: bool,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum LogLevel {
    Debug,
    Info,
    Warn,
    Error,
}

impl LogLevel {
    /// The same as directives of a filter. Libraries are not worth more than warnings.
    pub(super) fn directives(self) -> &'static str {
        match self {
            Self::Debug => "warn,playhouse=debug",
            Self::Info => "warn,playhouse=info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

pub(super) async fn serve(common: &Common, arguments: ServeArguments) -> CommandResult {
    let ServeArguments {
        listen,
        hostname,
        port,
        roots,
        walls,
        idle_exit,
        background,
        threads: _,
        log_level: _,
    } = arguments;
    if background {
        // Ctrl-C is for the command, and so is the end of its terminal. Who leads a group already has no terminal.
        let _ = rustix::process::setsid();
    }
    // Each client and each request to a model takes one.
    if let Err(error) = raise_open_files() {
        tracing::warn!(%error, "the server can open no more files than it was given");
    }
    let settings = common.settings()?;
    let data = common.data()?;
    let listen = match listen {
        Some(text) => parse(&text)?,
        None => Listen::Tcp(resolve(hostname.as_deref(), port, settings.server.listen).await?),
    };
    let mut options = settings.server.options();
    (options.idle_exit, options.leaves) = (idle_exit, background);
    if background {
        // Its clients name their directories, and nobody else reaches it.
    } else if !roots.is_empty() {
        options.roots = roots;
    } else if options.roots.is_empty() {
        options.roots.push(std::env::current_dir()?);
    }
    options.metrics = metrics(&settings)?;
    let signals = Signals::watch()?;
    let waits = background || make_way(&data).await?;
    let house = start(held(walls, &settings), settings, &data, waits).await?;
    super::opened();
    let app = App::new(house.engine().clone(), house.facts(), house.keys(), options);
    let app = app.map(|app| app.operated(house.operations()));
    let bound = match app {
        Ok(app) => bind(app, listen, &data).await,
        Err(error) => Err(Failure::usage(format!("failed to open a root: {error}"))),
    };
    let server = match bound {
        Ok(server) => server,
        Err(failure) => {
            house.shutdown().await;
            return Err(failure);
        }
    };
    // Clients that start this program wait for exactly this line.
    print(&format!("opencode server listening on {}\n", place(&server)))?;
    let hurry = signals.second.clone();
    let in_order = async {
        let ended = server.run(signals.first.cancelled_owned(), signals.second.cancelled_owned()).await;
        tokio::select! {
            () = house.stop_sinks() => {}
            () = hurry.cancelled() => {}
        }
        ended
    };
    let Some(ended) = unless_hurried(Box::pin(in_order), &hurry).await else {
        tell("stopped at once: what is left of it is cleared away by the next start");
        return Ok(Exit::Signal(TERMINATE));
    };
    tell(&told(&ended));
    match ended.replaced {
        Some(why) => Err(Failure::failed(why)),
        None => Ok(Exit::Completed),
    }
}

/// Waits for the end in good order; `None` when somebody hurries and it does not come within a moment.
async fn unless_hurried<T>(ended: impl Future<Output = T>, hurry: &CancellationToken) -> Option<T> {
    let hurried = async {
        hurry.cancelled().await;
        sleep(LAST_MOMENT).await;
    };
    tokio::select! {
        biased;
        ended = ended => Some(ended),
        () = hurried => None,
    }
}

/// Starts the engine, which `waits` while a command has the data directory to itself or another engine ends.
async fn start(
    walls: WallsArguments,
    settings: Settings,
    data: &Path,
    waits: bool,
) -> Result<House, HouseError> {
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        match walls.house(settings.clone()).data(data).resumes(true).summaries(true).start().await {
            Err(HouseError::Store(StoreError::Locked { .. })) if waits && Instant::now() < deadline => {
                sleep(LOCK_AGAIN).await;
            }
            result => return result,
        }
    }
}

/// A time, as `30s`.
fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
    let time = units.iter().find_map(|(unit, millis)| {
        let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
        count.checked_mul(*millis).filter(|millis| *millis > 0)
    });
    time.map(Duration::from_millis).ok_or_else(|| "write a number and ms, s, m or h, as in 30s".to_owned())
}

/// What is told of metrics, and to whom. From here on this process records them.
fn metrics(settings: &Settings) -> Result<MetricsOptions, Failure> {
    let metrics = &settings.metrics;
    let token = metrics.token(&variable).map_err(Failure::usage)?;
    let mut options = MetricsOptions { access: metrics.access, token, source: None };
    if metrics.access != MetricsAccess::Off {
        match Exposition::install(metrics.by_tenant) {
            Ok(exposition) => options.source = Some(Arc::new(exposition)),
            Err(error) => tracing::warn!(%error, "there are no metrics"),
        }
    }
    Ok(options)
}

/// What holds the commands of sessions. Whoever serves others is not there to watch what they do: where nobody decided on
/// the walls, there must be some.
fn held(walls: WallsArguments, settings: &Settings) -> WallsArguments {
    let usual = (!settings.sandbox_is_set).then_some(Sandbox::Required);
    WallsArguments { sandbox: walls.sandbox.or(usual), ..walls }
}

/// Where clients find the server.
fn place(server: &Server) -> String {
    match (server.address(), server.socket()) {
        (Some(address), _) => format!("http://{address}"),
        (None, Some(path)) => format!("unix:{}", path.display()),
        (None, None) => "nothing".to_owned(),
    }
}

async fn bind(app: App, listen: Listen, data: &Path) -> Result<Server, Failure> {
    let failed = |error: playhouse_server::ServerError| Failure::usage(error.to_string());
    let socket = Listen::Unix(data.join(SOCKET));
    let is_asked_for = listen == socket;
    let mut server = Server::bind(app, listen).await.map_err(failed)?;
    // The path of the data directory may be too long for a socket: clients find the server all the same.
    if !is_asked_for && let Err(error) = server.and_on(socket).await {
        tracing::warn!(%error, "the commands of this machine cannot find the server");
    }
    Ok(server)
}

/// What `--listen` says.
fn parse(text: &str) -> Result<Listen, Failure> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(Listen::Unix(std::path::absolute(path)?));
    }
    text.parse().map(Listen::Tcp).map_err(|_| {
        Failure::usage(format!(
            "\"{}\" is no place to listen: write ADDRESS:PORT, as 127.0.0.1:4096, or unix:PATH",
            text.escape_debug()
        ))
    })
}

/// The address that host and port say, `usual` where they say nothing.
async fn resolve(host: Option<&str>, port: Option<u16>, usual: SocketAddr) -> Result<SocketAddr, Failure> {
    let port = port.unwrap_or_else(|| usual.port());
    let Some(host) = host else { return Ok(SocketAddr::new(usual.ip(), port)) };
    let unknown = |reason: &dyn std::fmt::Display| {
        Failure::usage(format!("\"{}\" is no address of this machine: {reason}", host.escape_debug()))
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let found: Vec<SocketAddr> =
        tokio::net::lookup_host((host, port)).await.map_err(|error| unknown(&error))?.collect();
    // Clients that are given a name try this one first.
    let best = found.iter().find(|address| address.is_ipv4()).or(found.first());
    best.copied().ok_or_else(|| unknown(&"it has none"))
}

/// The signals that end the server: the first in good order, the second at once.
struct Signals {
    first: CancellationToken,
    second: CancellationToken,
}

impl Signals {
    fn watch() -> Result<Self, Failure> {
        let (mut endings, mut interrupt) = (Endings::watch(), signal(SignalKind::interrupt())?);
        // A file that grew to the most it may have fails the write, which is told, instead of ending the process without a word. What it
        // starts has the usual way again.
        let too_large = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?;
        let (first, second) = (CancellationToken::new(), CancellationToken::new());
        let signals = Self { first: first.clone(), second: second.clone() };
        tokio::spawn(async move {
            let _too_large = too_large;
            for (token, saying) in [
                (first, "stopping: running turns may go on for a while; once more to stop at once"),
                (second, "stopping at once"),
            ] {
                tokio::select! {
                    _ = endings.next() => {}
                    _ = interrupt.recv() => {}
                }
                tell(saying);
                token.cancel();
            }
        });
        Ok(signals)
    }
}

/// Says something to people; to programs where the log is one of objects, between whose lines it stands.
fn tell(text: &str) {
    match logging::Format::of(variable(logging::FORMAT).as_deref()) {
        Ok(logging::Format::Json) => tracing::info!("{text}"),
        Ok(logging::Format::Human) | Err(_) => say(text),
    }
}

/// How many of what ended how.
fn told(ended: &Ended) -> String {
    let Ended { finished, suspended, stopped, cut, replaced: _ } = ended;
    let mut text = format!(
        "stopped: {finished} turns finished, {suspended} suspended, {} sessions closed, {cut} connections cut, ",
        stopped.sessions
    );
    // Writing to a String cannot fail.
    let _ = match stopped.stragglers.as_slice() {
        [] => write!(text, "0 children left"),
        left => write!(text, "{} left behind: {}", left.len(), left.join(", ")),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_must_be_walls_where_nobody_decided() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        let held = |text: &str, sandbox| {
            fs_err::write(&file, text).unwrap();
            let settings = Settings::load(Some(&file), &|_| None).unwrap();
            held(WallsArguments { sandbox, network: false }, &settings).sandbox
        };
        assert_eq!(held("", None), Some(Sandbox::Required));
        assert_eq!(held("", Some(Sandbox::Off)), Some(Sandbox::Off));
        assert_eq!(held("sandbox = \"best-effort\"", None), None, "as configured");
    }

    #[tokio::test]
    async fn whoever_hurries_waits_for_a_moment_only() {
        let hurry = CancellationToken::new();
        assert_eq!(unless_hurried(sleep(LAST_MOMENT * 2), &hurry).await, Some(()), "nobody hurries");
        hurry.cancel();
        assert_eq!(unless_hurried(sleep(LAST_MOMENT / 10), &hurry).await, Some(()), "it ends in time");
        let began = Instant::now();
        let endless = unless_hurried(std::future::pending::<()>(), &hurry);
        let ended = tokio::time::timeout(Duration::from_secs(30), endless).await;
        assert_eq!(ended.expect("it is waited for a moment only"), None);
        assert!(began.elapsed() >= LAST_MOMENT);
    }

    #[test]
    fn a_time_has_a_unit() {
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7_200)));
        for wrong in
            ["", "30", "s", "0s", "-1s", "1.5s", "1d", "99999999999999999999s", "18446744073709551615h"]
        {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_place_is_a_host_and_a_port_or_a_socket() {
        assert_eq!(parse("127.0.0.1:80").unwrap(), Listen::Tcp("127.0.0.1:80".parse().unwrap()));
        assert_eq!(parse("unix:/a/b").unwrap(), Listen::Unix("/a/b".into()));
        assert!(parse("localhost").is_err());
        let usual = "127.0.0.1:4096".parse().unwrap();
        let resolved = async |host, port| resolve(host, port, usual).await.unwrap().to_string();
        assert_eq!(resolved(None, None).await, "127.0.0.1:4096");
        assert_eq!(resolved(Some("0.0.0.0"), Some(0)).await, "0.0.0.0:0");
        assert_eq!(resolved(Some("localhost"), Some(1)).await, "127.0.0.1:1");
        assert_eq!(resolved(Some("[::1]"), None).await, "[::1]:4096");
        assert!(resolve(Some("no such host"), None, usual).await.is_err());
    }
}

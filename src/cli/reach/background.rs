//! An engine in the background, started by a command for itself and for those that come after it.
//!
//! Of many commands that start at once one at a time may start it, and the others wait for the socket. Whether that
//! succeeded is told by the socket, or by the end of the process and the last lines of its log.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use fs_err::os::unix::fs::OpenOptionsExt as _;
use playhouse_protocol::Sandbox;
use playhouse_server::OperatorClient;
use playhouse_store::{Store, StoreError, StoreOptions};
use rustix::fs::{FlockOperation, flock};
use tokio::time::{Instant, sleep};

use super::super::{Common, Exit, Failure, WallsArguments};
use super::open::{SOCKET, connect};
use crate::config::Settings;

/// What an engine in the background says.
const LOG: &str = "engine.log";
/// Held by the command that starts one.
const TURN: &str = "engine.starting";
/// How long an engine stays that nobody needs, as `--idle-exit` has it.
const STAYS: &str = "30s";
/// How long it may take to start.
const START_WAIT: Duration = Duration::from_secs(60);
/// How often it is looked whether it is there.
const LOOK: Duration = Duration::from_millis(10);
/// The most bytes of the log, and of its end that an error shows.
const LONGEST_LOG: u64 = 1024 * 1024;
const SHOWN: usize = 2_000;

/// How an engine is to be started.
pub(super) struct Plan {
    data: PathBuf,
    config: Option<PathBuf>,
    sandbox: Sandbox,
    network: bool,
    /// What the data directory gets if it is new.
    store: StoreOptions,
}

impl Plan {
    pub(super) fn new(
        common: &Common,
        settings: &Settings,
        data: &Path,
        walls: WallsArguments,
    ) -> Result<Self, Failure> {
        // It does not stand where this command does.
        let config = match common.config_file() {
            Some(file) => Some(std::path::absolute(file)?),
            None => None,
        };
        Ok(Self {
            data: std::path::absolute(data)?,
            config,
            sandbox: walls.sandbox.unwrap_or(settings.sandbox),
            network: walls.network || settings.walls.network,
            store: StoreOptions { backend: settings.store, ..StoreOptions::default() },
        })
    }

    fn arguments(&self) -> Vec<OsString> {
        let mut listen = OsString::from("unix:");
        listen.push(self.data.join(SOCKET));
        let mut arguments: Vec<OsString> = vec!["serve".into(), "--background".into()];
        arguments.extend(["--idle-exit".into(), STAYS.into(), "--listen".into(), listen]);
        arguments.extend(["--sandbox".into(), self.sandbox.name().into()]);
        arguments.extend(self.network.then(|| "--network".into()));
        arguments.extend(["--data".into(), self.data.clone().into()]);
        if let Some(config) = &self.config {
            arguments.extend(["--config".into(), config.into()]);
        }
        arguments
    }
}

/// The engine of the data directory; it is started where there is none.
pub(super) async fn engine(plan: &Plan) -> Result<OperatorClient, Failure> {
    let deadline = Instant::now() + START_WAIT;
    loop {
        if let Some(client) = ready(&plan.data).await? {
            return Ok(client);
        }
        match Store::prepare(&plan.data, &plan.store) {
            Ok(()) => {}
            // Another command is at it, and takes a moment. Nothing else may lie there before it is done.
            Err(StoreError::Locked { .. }) if Instant::now() < deadline => {
                sleep(LOOK).await;
                continue;
            }
            Err(error) => return Err(Failure::usage(error.to_string())),
        }
        if let Some(_turn) = take_turn(&plan.data)? {
            // Somebody may have been quicker.
            return match ready(&plan.data).await? {
                Some(client) => Ok(client),
                None => started(plan, deadline).await,
            };
        }
        if Instant::now() > deadline {
            let log = fs_err::metadata(plan.data.join(LOG)).map_or(0, |log| log.len());
            return Err(late(&plan.data, log));
        }
        sleep(LOOK).await;
    }
}

/// The engine that serves the data directory and takes new work.
async fn ready(data: &Path) -> Result<Option<OperatorClient>, Failure> {
    Ok(connect(data).await?.filter(|client| !client.facts().ending))
}

/// The right to start an engine, until the file is dropped; `None` while somebody else has it.
fn take_turn(data: &Path) -> Result<Option<fs_err::File>, Failure> {
    let mut options = fs_err::OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(data.join(TURN));
    let file = file.map_err(|error| Failure::usage(error.to_string()))?;
    match flock(file.file(), FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(Failure::failed(format!("failed to lock {}: {error}", data.join(TURN).display()))),
    }
}

async fn started(plan: &Plan, deadline: Instant) -> Result<OperatorClient, Failure> {
    let before = fs_err::metadata(plan.data.join(LOG)).map_or(0, |log| log.len());
    let mut process = start(plan)?;
    loop {
        if let Some(client) = ready(&plan.data).await? {
            return Ok(client);
        }
        if let Some(status) = process.try_wait()? {
            // It makes way for another server that was quicker.
            return match ready(&plan.data).await? {
                Some(client) => Ok(client),
                None => Err(not_started(&plan.data, before, status)),
            };
        }
        if Instant::now() > deadline {
            return Err(late(&plan.data, before));
        }
        sleep(LOOK).await;
    }
}

/// Starts the engine, with nothing of this command's but its environment. It leaves the terminal by itself.
fn start(plan: &Plan) -> Result<Child, Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("failed to start an engine: {error}"));
    let mut options = fs_err::OpenOptions::new();
    let log = options.append(true).create(true).mode(0o600).open(plan.data.join(LOG)).map_err(failed)?;
    let log = log.into_parts().0;
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(plan.arguments()).current_dir(&plan.data).stdin(Stdio::null());
    command.stdout(log.try_clone().map_err(failed)?).stderr(log);
    // Whoever waits for the end of a pipe or for a lock waits for commands, and not for an engine that stays.
    close_fds::set_fds_cloexec_threadsafe(3, &[]);
    command.spawn().map_err(failed)
}

/// The engine ended before it served anybody.
fn not_started(data: &Path, before: u64, status: ExitStatus) -> Failure {
    let said = tail(data, before);
    // Where it says what was wrong, that is what this command would have said.
    let message = match last_error(&said) {
        Some(error) => error.to_owned(),
        None => format!("the engine did not start ({status}): {said}"),
    };
    let exit = if status.code() == Some(2) { Exit::Usage } else { Exit::Failed };
    let log = data.join(LOG);
    Failure {
        exit,
        message: format!(
            "{}\n  (said by the engine in the background; its log is {})",
            message.trim_end(),
            log.display()
        ),
    }
}

/// The last error that a process said, which may be several lines long and may hold other errors.
fn last_error(said: &str) -> Option<&str> {
    let begin =
        said.rfind("\nerror: ").map(|place| place + 1).or(said.starts_with("error: ").then_some(0))?;
    said[begin..].strip_prefix("error: ")
}

fn late(data: &Path, before: u64) -> Failure {
    let (log, said) = (data.join(LOG), tail(data, before));
    Failure::failed(format!(
        "the engine did not start within {START_WAIT:?}; its log is {}: {said}",
        log.display()
    ))
}

/// The end of the log, as far as it was written after `before`.
fn tail(data: &Path, before: u64) -> String {
    let content = fs_err::read(data.join(LOG)).unwrap_or_default();
    let from = usize::try_from(before).unwrap_or(0);
    let new = content.get(from..).unwrap_or(&content);
    let from = new.len().saturating_sub(SHOWN);
    String::from_utf8_lossy(&new[from..]).trim().to_owned()
}

/// Forgets what an engine in the background said, when that becomes too much. Its standard error is the log.
pub(in crate::cli) fn keep_log_short() {
    let log = std::io::stderr();
    let is_long = rustix::fs::fstat(&log).is_ok_and(|log| {
        rustix::fs::FileType::from_raw_mode(log.st_mode).is_file()
            && u64::try_from(log.st_size).is_ok_and(|size| size > LONGEST_LOG)
    });
    if is_long {
        // It was opened to append: what follows goes to the new end.
        let _ = rustix::fs::ftruncate(&log, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_log_is_what_was_written_since() {
        let folder = tempfile::tempdir().unwrap();
        fs_err::write(folder.path().join(LOG), "before\nerror: after\n").unwrap();
        assert_eq!(tail(folder.path(), 7), "error: after");
        assert_eq!(tail(folder.path(), 1_000), "before\nerror: after", "it was begun anew");
        assert_eq!(tail(&folder.path().join("missing"), 0), "");
        fs_err::write(folder.path().join(LOG), "é".repeat(10_000)).unwrap();
        assert!(tail(folder.path(), 0).chars().count() <= SHOWN);
    }

    #[test]
    fn an_error_is_told_whole() {
        let said = "a line\nerror: the store failed: error: no space left\n  |\n1 | x";
        assert_eq!(last_error(said), Some("the store failed: error: no space left\n  |\n1 | x"));
        assert_eq!(last_error("error: one\nerror: two"), Some("two"));
        assert_eq!(last_error("no error: here"), None);
    }

    #[test]
    fn one_at_a_time_may_start_an_engine() {
        let folder = tempfile::tempdir().unwrap();
        let turn = take_turn(folder.path()).unwrap();
        assert!(turn.is_some());
        assert!(take_turn(folder.path()).unwrap().is_none());
        drop(turn);
        assert!(take_turn(folder.path()).unwrap().is_some());
    }
}

//! Finding the engine of a data directory, or opening the directory in this process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use playhouse_protocol::Sandbox;
use playhouse_protocol::operator::{EngineFacts, KeyRequest, OperatorReply, OperatorRequest};
use playhouse_server::{Keys, OperatorClient};
use playhouse_store::{Store, StoreError};
use tokio::time::{Instant, sleep};

use super::super::{Common, Failure, WallsArguments, say};
use super::Held;
use super::background::{self, Plan};
use crate::config::Settings;
use crate::house::HouseError;

/// The socket in the data directory, for the operator's own commands.
pub(in crate::cli) const SOCKET: &str = "engine.sock";

/// How long a command waits for a data directory that another process has open without a socket: one that starts, ends, or
/// is another command. Those are quick.
const LOCK_WAIT: Duration = Duration::from_secs(3);
/// How long a command waits for an engine that is ending to be gone, before it asks that one all the same.
const ENDING_WAIT: Duration = Duration::from_secs(1);
/// How long an engine may take to end that was asked to leave.
const LEAVE_WAIT: Duration = Duration::from_secs(5);
/// How often it is tried again.
const AGAIN: Duration = Duration::from_millis(20);

/// The engine that has the data directory open, else one in this process.
pub(in crate::cli) async fn open(common: &Common) -> Result<Held, Failure> {
    let (settings, data) = (common.settings()?, common.data()?);
    let start = async || crate::House::builder(settings.clone()).data(&data).start().await;
    let failed = |error: HouseError| match error {
        HouseError::Store(error @ StoreError::Locked { .. }) => Err(error),
        error => Ok(Failure::from(error)),
    };
    match first_of(common, &data, async || Ok(Held::inside(start().await.map_err(failed)?))).await? {
        Found::Outside(client) => {
            tell_of_difference(client.facts(), &settings);
            Ok(Held::outside(client))
        }
        Found::Inside(held) => Ok(held),
    }
}

/// Asks something about the keys of clients. Needs no configuration, and no engine where there is none.
pub(in crate::cli) async fn ask_key(common: &Common, request: KeyRequest) -> Result<OperatorReply, Failure> {
    let data = common.data()?;
    let open = async || match Store::open(&data) {
        Ok(store) => Ok(Keys::new(Arc::clone(&store.shelf))),
        Err(error @ StoreError::Locked { .. }) => Err(Err(error)),
        Err(error) => Err(Ok(Failure::usage(error.to_string()))),
    };
    match first_of(common, &data, open).await? {
        Found::Outside(client) => Ok(client.ask(&OperatorRequest::Key(request)).await?),
        Found::Inside(keys) => Ok(keys.answer(request)?),
    }
}

/// What was found first.
enum Found<T> {
    Outside(OperatorClient),
    Inside(T),
}

/// The engine that serves the data directory, else what `open` makes of it, which fails with the error of the store while
/// somebody else has it.
async fn first_of<T>(
    common: &Common,
    data: &Path,
    open: impl AsyncFn() -> Result<T, Result<Failure, StoreError>>,
) -> Result<Found<T>, Failure> {
    let began = Instant::now();
    loop {
        if !common.in_process
            && let Some(client) = connect(data).await?
        {
            if !client.facts().ending || began.elapsed() > ENDING_WAIT {
                return Ok(Found::Outside(client));
            }
            sleep(AGAIN).await;
            continue;
        }
        match open().await {
            Ok(opened) => return Ok(Found::Inside(opened)),
            Err(Ok(failure)) => return Err(failure),
            Err(Err(error)) if common.in_process => return Err(taken(&error, data).await),
            Err(Err(error)) if began.elapsed() > LOCK_WAIT => return Err(Failure::usage(error.to_string())),
            Err(Err(_)) => sleep(AGAIN).await,
        }
    }
}

/// The engine that has the data directory open, else one that is started in the background.
pub(in crate::cli) async fn or_start(common: &Common, walls: WallsArguments) -> Result<Held, Failure> {
    let (settings, data) = (common.settings()?, common.data()?);
    if common.in_process {
        return inside(walls, settings, &data).await;
    }
    if std::os::unix::net::SocketAddr::from_pathname(socket(&data)).is_err() {
        let path = data.display();
        say(&format!(
            "note: no engine can be started in the background, since the path {path} is too long for a socket; this \
             command keeps the data directory to itself"
        ));
        return inside(walls, settings, &data).await;
    }
    let mut asked_to_leave = None;
    loop {
        let plan = Plan::new(common, &settings, &data, walls)?;
        let client = background::engine(&plan).await?;
        let Err(difference) = fits(client.facts(), &settings, walls) else {
            tell_of_difference(client.facts(), &settings);
            return Ok(Held::outside(client));
        };
        // One that was started for commands may end, if no other command needs it.
        let since = *asked_to_leave.get_or_insert_with(Instant::now);
        let left = client.ask(&OperatorRequest::Leave).await;
        if left.is_err() || since.elapsed() > LEAVE_WAIT {
            return Err(Failure::usage(difference));
        }
        drop(client);
        sleep(AGAIN).await;
    }
}

/// An engine in this process, which nobody else may have open.
async fn inside(walls: WallsArguments, settings: Settings, data: &Path) -> Result<Held, Failure> {
    match walls.house(settings).data(data).start().await {
        Ok(house) => Ok(Held::inside(house)),
        Err(HouseError::Store(error @ StoreError::Locked { .. })) => Err(taken(&error, data).await),
        Err(error) => Err(error.into()),
    }
}

/// The engine that has the data directory open, if it works as this command shall.
pub(in crate::cli) async fn outside_if_fit(
    common: &Common,
    walls: WallsArguments,
) -> Result<Option<Held>, Failure> {
    let (Ok(data), false) = (common.data(), common.in_process) else { return Ok(None) };
    let Some(client) = connect(&data).await? else { return Ok(None) };
    let settings = common.settings()?;
    if client.facts().ending || fits(client.facts(), &settings, walls).is_err() {
        return Ok(None);
    }
    tell_of_difference(client.facts(), &settings);
    Ok(Some(Held::outside(client)))
}

/// Somebody else has the data directory, and this command was told to open it itself.
async fn taken(error: &StoreError, data: &Path) -> Failure {
    let served = connect(data).await.is_ok_and(|client| client.is_some());
    let advice = if served { "; or leave out --in-process, to go through that process" } else { "" };
    Failure::usage(format!("{error}{advice}"))
}

fn socket(data: &Path) -> PathBuf {
    data.join(SOCKET)
}

/// The engine that serves the data directory.
pub(super) async fn connect(data: &Path) -> Result<Option<OperatorClient>, Failure> {
    Ok(OperatorClient::connect(&socket(data)).await?)
}

/// Whether the programs of sessions are held there as this command wants it; else what to say. Where the command line says
/// nothing, an engine may be stricter than is configured here.
fn fits(engine: &EngineFacts, settings: &Settings, walls: WallsArguments) -> Result<(), String> {
    let strictness = |sandbox| match sandbox {
        Sandbox::Off => 0,
        Sandbox::BestEffort => 1,
        Sandbox::Required => 2,
    };
    let sandbox = match walls.sandbox {
        Some(wanted) => engine.sandbox == wanted,
        None => strictness(engine.sandbox) >= strictness(settings.sandbox),
    };
    let network = if walls.network { engine.network } else { !engine.network || settings.walls.network };
    if sandbox && network {
        return Ok(());
    }
    let network = if engine.network { "" } else { "out" };
    Err(format!(
        "the engine that has the data directory open (process {0}) runs the commands of sessions with --sandbox {1} and \
         with{network} --network, other than this command wants it: wait until it ends, stop it with `kill {0}`, or name \
         another directory with --data",
        engine.pid, engine.sandbox,
    ))
}

/// Says in one line that the engine has another configuration than this command.
fn tell_of_difference(engine: &EngineFacts, settings: &Settings) {
    if engine.configuration == settings.fingerprint {
        return;
    }
    let file = |file: Option<String>| file.unwrap_or_else(|| "no file".to_owned());
    let theirs = file(engine.file.clone());
    let ours = file(settings.file.as_ref().map(|file| file.display().to_string()));
    let differ = if theirs == ours {
        "files or variables as they were".to_owned()
    } else {
        format!("{theirs}, here {ours}")
    };
    say(&format!(
        "note: the engine in process {0} has another configuration than this command ({differ}), and its own holds; stop \
         it with `kill {0}` to use this one",
        engine.pid,
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(sandbox: Sandbox, network: bool) -> EngineFacts {
        EngineFacts {
            protocol: 1,
            version: "0".to_owned(),
            pid: 7,
            generation: 1,
            configuration: String::new(),
            file: None,
            sandbox,
            network,
            ending: false,
        }
    }

    #[test]
    fn an_engine_fits_that_holds_programs_as_they_shall_be() {
        use Sandbox::{BestEffort, Off, Required};
        let settings = Settings::load(None, &|_| None).unwrap();
        let fits = |engine: &EngineFacts, sandbox, network| {
            fits(engine, &settings, WallsArguments { sandbox, network }).is_ok()
        };
        assert!(fits(&engine(BestEffort, false), None, false));
        assert!(fits(&engine(Required, false), None, false), "it may be stricter");
        assert!(!fits(&engine(Off, false), None, false), "and no less strict");
        assert!(!fits(&engine(Required, false), Some(Off), false), "but for those who said what they want");
        assert!(fits(&engine(Off, false), Some(Off), false));
        assert!(!fits(&engine(BestEffort, true), None, false));
        assert!(!fits(&engine(BestEffort, false), None, true));
        assert!(fits(&engine(BestEffort, true), None, true));
    }
}

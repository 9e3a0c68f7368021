//! Finding the engine of a data directory, or opening the directory in this process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use playhouse_protocol::Sandbox;
use playhouse_protocol::operator::{EngineFacts, KeyRequest, OperatorReply, OperatorRequest, StoreRequest};
use playhouse_protocol::upkeep::Salvaged;
use playhouse_server::{Keys, OperatorClient, answer_store};
use playhouse_store::{Store, StoreError, StoreOptions};
use rustix::fs::Access;
use rustix::io::Errno;
use tokio::time::{Instant, sleep};

use super::super::{Common, Failure, WallsArguments, say};
use super::Held;
use super::background::{self, Plan};
use crate::clock::now;
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
/// How long one is waited for that is ending: as long as running turns usually get, and more.
const END_WAIT: Duration = Duration::from_secs(30);
/// How often it is tried again.
const AGAIN: Duration = Duration::from_millis(20);

/// The engine that has the data directory open, else one in this process.
pub(in crate::cli) async fn open(common: &Common) -> Result<Held, Failure> {
    let (settings, data) = (common.settings()?, common.data()?);
    // Whoever only looks delivers nothing, and moves nothing.
    let builder = || crate::House::builder(settings.clone()).sinks(false).salvages(false);
    let start = async || builder().data(&data).start().await;
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
    // Should this be what makes the directory.
    let backend = common.settings().map(|settings| settings.store).unwrap_or_default();
    let options = StoreOptions { backend, ..StoreOptions::default() };
    let open = async || match Store::open_with(&data, &options) {
        Ok(store) => Ok(Keys::new(Arc::clone(&store.shelf))),
        Err(error @ StoreError::Locked { .. }) => Err(Err(error)),
        Err(error) => Err(Ok(error.into())),
    };
    match first_of(common, &data, open).await? {
        Found::Outside(client) => Ok(client.ask(&OperatorRequest::Key(request)).await?),
        Found::Inside(keys) => Ok(keys.answer(request)?),
    }
}

/// Asks something about the upkeep of the store. Needs no engine where there is none.
pub(in crate::cli) async fn ask_store(
    common: &Common,
    request: StoreRequest,
) -> Result<OperatorReply, Failure> {
    let data = common.data()?;
    match Store::is_in(&data) {
        Ok(true) => {}
        Ok(false) => return Err(Failure::usage(format!("there is no store in {}", data.display()))),
        Err(error) => return Err(error.into()),
    }
    if matches!(request, StoreRequest::Check) {
        let look = async || look_closed(&data).await;
        // Where nothing can be written no engine runs.
        if rustix::fs::access(&data, Access::WRITE_OK).is_err() {
            return look().await.map_err(|error| error.unwrap_or_else(Failure::from));
        }
        return match first_of(common, &data, look).await? {
            Found::Outside(client) => Ok(client.ask(&OperatorRequest::Store(request)).await?),
            Found::Inside(checked) => Ok(checked),
        };
    }
    let open = async || match Store::open(&data) {
        Ok(store) => Ok(store),
        Err(error @ StoreError::Locked { .. }) => Err(Err(error)),
        Err(error) => Err(Ok(error.into())),
    };
    match first_of(common, &data, open).await? {
        Found::Outside(client) => Ok(client.ask(&OperatorRequest::Store(request)).await?),
        Found::Inside(store) => {
            let done = tokio::task::spawn_blocking(move || answer_store(&*store.upkeep, request)).await;
            Ok(done.map_err(|error| Failure::failed(format!("the store could not be read: {error}")))??)
        }
    }
}

/// Puts what can be read of a damaged store into a fresh database. No engine has it open: none can.
pub(in crate::cli) async fn salvage(common: &Common) -> Result<Salvaged, Failure> {
    let data = common.data()?;
    let done = tokio::task::spawn_blocking(move || Store::salvage(&data, now())).await;
    let done = done.map_err(|error| Failure::failed(format!("the store could not be read: {error}")))?;
    Ok(done?)
}

/// Looks through a store that no engine has open, and leaves it as it is.
async fn look_closed(data: &Path) -> Result<OperatorReply, Result<Failure, StoreError>> {
    let data = data.to_owned();
    match tokio::task::spawn_blocking(move || Store::check_closed(&data)).await {
        Ok(Ok(report)) => Ok(OperatorReply::Checked(report)),
        Ok(Err(error @ StoreError::Locked { .. })) => Err(Err(error)),
        Ok(Err(error)) => Err(Ok(error.into())),
        Err(error) => Err(Ok(Failure::failed(format!("the store could not be read: {error}")))),
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
    check(data)?;
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
    let socket = socket(&std::path::absolute(&data)?);
    // Only there is a way around it.
    if cfg!(not(target_os = "linux")) && std::os::unix::net::SocketAddr::from_pathname(socket).is_err() {
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
        let Err(difference) = suits(client.facts(), &settings, walls) else {
            tell_of_difference(client.facts(), &settings);
            return Ok(Held::outside(client));
        };
        if !client.facts().background {
            return Err(Failure::usage(difference));
        }
        // One that was started for commands ends, if no other command needs it.
        let since = *asked_to_leave.get_or_insert_with(Instant::now);
        let left = client.ask(&OperatorRequest::Leave).await;
        if left.is_err() || since.elapsed() > LEAVE_WAIT {
            return Err(Failure::usage(difference));
        }
        drop(client);
        sleep(AGAIN).await;
    }
}

/// The engine that has the data directory open, however it holds programs and whatever its configuration is, else one that is
/// started in the background with these walls.
pub(in crate::cli) async fn any_or_start(common: &Common, walls: WallsArguments) -> Result<Held, Failure> {
    if !common.in_process
        && let Some(client) = connect(&common.data()?).await?
        && !client.facts().ending
    {
        let settings = common.settings()?;
        tell_of_difference(client.facts(), &settings);
        if let Err(difference) = fits(client.facts(), &settings, walls) {
            say(&format!("note: {difference}"));
        }
        return Ok(Held::outside(client));
    }
    or_start(common, walls).await
}

/// An engine in this process, which nobody else may have open.
async fn inside(walls: WallsArguments, settings: Settings, data: &Path) -> Result<Held, Failure> {
    check(data)?;
    match walls.house(settings).data(data).start().await {
        Ok(house) => {
            crate::cli::opened();
            Ok(Held::inside(house))
        }
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
    if client.facts().ending || suits(client.facts(), &settings, walls).is_err() {
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

/// The engine that another process runs on the data directory, if any. Nothing is said of one that cannot be asked.
pub(in crate::cli) async fn running(common: &Common) -> Option<OperatorClient> {
    connect(&common.data().ok()?).await.ok().flatten()
}

/// The engine that serves the data directory.
pub(super) async fn connect(data: &Path) -> Result<Option<OperatorClient>, Failure> {
    check(data)?;
    Ok(OperatorClient::connect(&socket(data)).await?)
}

/// Whether `data` is something in which a socket may lie, or can be made. Every command says the same where it is not.
fn check(data: &Path) -> Result<(), Failure> {
    let wrong = |reason: &dyn std::fmt::Display| {
        let data = data.display();
        Err(Failure::usage(format!(
            "{data} cannot be the data directory: {reason}: name another one with --data"
        )))
    };
    match std::fs::metadata(data) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let absolute = std::path::absolute(data)?;
            match absolute.ancestors().skip(1).find(|folder| folder.exists()) {
                Some(folder) => {
                    rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK).or_else(|error| {
                        let error = std::io::Error::from(error);
                        wrong(&format_args!(
                            "it is not there, and cannot be made in {}: {error}",
                            folder.display()
                        ))
                    })
                }
                None => Ok(()),
            }
        }
        Err(error) => wrong(&error),
        Ok(found) if !found.is_dir() => wrong(&"it is no directory"),
        Ok(_) => match rustix::fs::access(data, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
            Ok(()) => Ok(()),
            // No usage is wrong: it may have become so while it was written.
            Err(error @ Errno::ROFS) => Err(StoreError::from(std::io::Error::from(error)).into()),
            Err(error) => wrong(&std::io::Error::from(error)),
        },
    }
}

/// Asks an engine that commands started in the background to leave the data directory to this process, and waits for
/// that. Whether there was one.
///
/// # Errors
/// Somebody needs it, or it cannot be used.
pub(in crate::cli) async fn make_way(data: &Path) -> Result<bool, Failure> {
    check(data)?;
    let began = Instant::now();
    let mut was_there = false;
    // Whoever else has the directory is named by the store.
    while let Ok(Some(client)) = connect(data).await {
        let engine = client.facts();
        if !engine.background {
            break;
        }
        was_there = true;
        // One that was told to end lets running turns go on for a while.
        let wait = if engine.ending { END_WAIT } else { LEAVE_WAIT };
        if began.elapsed() > wait {
            return Err(Failure::usage(format!(
                "the data directory {} is in use by the engine that commands started in the background (process {1}), and \
                 commands or turns need it: wait until they are over, stop it with `kill {1}`, or name another directory with --data",
                data.display(),
                engine.pid,
            )));
        }
        // Where it is gone already, that shows when it is looked again.
        drop(client.ask(&OperatorRequest::Leave).await);
        drop(client);
        sleep(AGAIN).await;
    }
    Ok(was_there)
}

/// Whether an engine works as this command wants it; else what to say. The configuration of one that somebody started by
/// hand is that engine's own affair.
fn suits(engine: &EngineFacts, settings: &Settings, walls: WallsArguments) -> Result<(), String> {
    fits(engine, settings, walls)?;
    if !engine.background || engine.configuration == settings.fingerprint {
        return Ok(());
    }
    Err(format!(
        "the engine that has the data directory open (process {0}), which a command started in the background, has another \
         configuration than this command ({1}), and commands need it: wait until it ends, stop it with `kill {0}`, or name \
         another directory with --data",
        engine.pid,
        difference(engine, settings),
    ))
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
    say(&format!(
        "note: the engine in process {0} has another configuration than this command ({1}), and its own holds; stop \
         it with `kill {0}` to use this one",
        engine.pid,
        difference(engine, settings),
    ));
}

/// In what the configurations differ.
fn difference(engine: &EngineFacts, settings: &Settings) -> String {
    let file = |file: Option<String>| file.unwrap_or_else(|| "no file".to_owned());
    let theirs = file(engine.file.clone());
    let ours = file(
        settings
            .file
            .as_ref()
            .and_then(|file| std::path::absolute(file).ok())
            .map(|file| file.display().to_string()),
    );
    if theirs == ours {
        "files or variables as they were".to_owned()
    } else {
        format!("{theirs}, here {ours}")
    }
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
            background: false,
            ending: false,
        }
    }

    #[test]
    fn the_configuration_counts_for_engines_in_the_background() {
        let settings = Settings::load(None, &|_| None).unwrap();
        let walls = WallsArguments { sandbox: None, network: false };
        let suits = |configuration: &str, background| {
            let configuration = configuration.to_owned();
            let engine = EngineFacts { configuration, background, ..engine(Sandbox::Required, false) };
            suits(&engine, &settings, walls)
        };
        assert_eq!(suits("other", false), Ok(()));
        assert_eq!(suits(&settings.fingerprint, true), Ok(()));
        assert!(suits("other", true).unwrap_err().contains("process 7"));
    }

    #[test]
    fn a_file_is_no_data_directory() {
        let folder = tempfile::tempdir().unwrap();
        check(folder.path()).unwrap();
        check(&folder.path().join("absent")).unwrap();
        let file = folder.path().join("file");
        fs_err::write(&file, "").unwrap();
        for path in [&file, &file.join("below")] {
            let failure = check(path).unwrap_err();
            assert_eq!(failure.exit, crate::cli::Exit::Usage);
            assert!(failure.message.contains("cannot be the data directory"), "{}", failure.message);
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

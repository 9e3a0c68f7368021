//! What ends all commands when this process has ended, also when it was killed.
//!
//! One sleeping shell for each process that runs commands, started with the first of them. It reads from a pipe whose
//! other end only this process holds: the end of the pipe is the end of this process, however that came. Then it looks
//! for everything that carries a mark of this run, tells it to end, and kills what does not.

use std::io::PipeWriter;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use parking_lot::Mutex;

use super::mark::Scope;
use super::{environment, find_program, program};

const SCRIPT: &str = include_str!("watchdog.sh");

enum State {
    NotStarted,
    Watching(Watchdog),
    /// Why not. It is not tried again.
    Impossible(String),
}

struct Watchdog {
    shell: Child,
    /// Held open for as long as this process lives.
    _pipe: PipeWriter,
}

static STATE: Mutex<State> = Mutex::new(State::NotStarted);

/// Starts it, if it is not there. `groups` are the folders of this run's control groups. Blocks for a millisecond when it
/// has to start it.
///
/// # Errors
/// Why commands will outlive this process when that is killed.
pub(super) fn ensure(groups: &[PathBuf]) -> Result<(), String> {
    let mut state = STATE.lock();
    let started = match &mut *state {
        State::Watching(watchdog) => match watchdog.shell.try_wait() {
            Ok(None) => return Ok(()),
            // Somebody ended it.
            _ => start(groups),
        },
        State::NotStarted => start(groups),
        State::Impossible(reason) => return Err(reason.clone()),
    };
    match started {
        Ok(watchdog) => {
            *state = State::Watching(watchdog);
            Ok(())
        }
        Err(reason) => {
            tracing::warn!(%reason, "commands will outlive this process if it is killed");
            *state = State::Impossible(reason.clone());
            Err(reason)
        }
    }
}

fn start(groups: &[PathBuf]) -> Result<Watchdog, String> {
    if !Path::new("/proc/self/environ").exists() {
        return Err("there is no /proc to find processes in".to_owned());
    }
    let needed = |name| find_program(name).ok_or_else(|| format!("there is no program {name}"));
    let shell = needed("sh")?;
    for name in ["grep", "sleep"] {
        needed(name)?;
    }
    let (reader, writer) = std::io::pipe().map_err(|error| error.to_string())?;
    // Signals of a terminal go to the process groups of one session: it has a session of its own where it can.
    let mut command = match find_program("setsid") {
        Some(setsid) => {
            let mut command = program(&setsid);
            command.arg(shell);
            command
        }
        None => {
            let mut command = program(&shell);
            command.process_group(0);
            command
        }
    };
    command
        .args(["-c", SCRIPT, "playhouse-watchdog", Scope::run().as_str()])
        .args(groups)
        .env_clear()
        .env("PATH", environment::search_path())
        .current_dir("/")
        .stdin(Stdio::from(reader))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let shell = command.spawn().map_err(|error| error.to_string())?;
    Ok(Watchdog { shell, _pipe: writer })
}

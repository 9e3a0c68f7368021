//! Commands, with their whole process tree, their output and their end.
//!
//! [`run`], [`start`] and [`start_apart`] are the only ways in which Playhouse starts a program, so that another place to run
//! in (another machine) can be put behind them. Rules that hold here:
//!
//! - A command ends when its shell ends, is cancelled, runs out of time, or wants too many processes or too much memory.
//!   A child in the background that holds the output open holds nothing up.
//! - Cancelled or out of time, its whole tree is told to end, and killed when it does not: within a second nothing of it
//!   is left. That is so for children that changed their process group or session as well, where `/proc` shows them. Only
//!   in a control group nothing can hide: without one, a process that has dropped its environment, its parent and its
//!   session is not found, and lives on.
//! - What a command leaves behind ends with its [`Scope`] ([`end_all`]), and at the latest with this process, also when
//!   that is killed.
//! - A command uses no more than its [`Limits`] say. What keeps to that depends on the machine, and can be asked:
//!   [`limits_in_force`].
//! - It gets none of this process's environment but what [`Environment`] lets through.
//! - It runs within the [`Walls`] of its [`Spec`]. Within those of bubblewrap what it leaves behind ends with it, and a
//!   shell that a signal ended is told by its exit code, as a shell tells it: 128 and the number of the signal.
//! - Its output is handed over piece by piece, and it is held back while the receiver is busy.

mod environment;
mod limits;
mod mark;
mod memory;
mod program;
mod running;
mod starter;
mod tree;
mod watchdog;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use futures::future::BoxFuture;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::walls::Walls;
pub use environment::{Environment, PASSED_DOWN};
pub use limits::{Bound, Limits, LimitsInForce, Share, limits_in_force, raise_open_files};
pub use mark::Scope;
pub(crate) use mark::random;
pub use memory::keep_memory_private;
pub use program::{Program, STOP_GRACE, start_apart};
pub use running::{Started, under_way};
pub(crate) use tree::kill_all_detached;
pub use tree::{GroupUse, end_all, is_of_a_command, use_of_groups};

/// What is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Run {
    /// What the shell (bash where there is one, else sh) reads.
    Shell(String),
    /// A program and its arguments, read by no shell. A program without `/` is looked for in the `PATH` of its [`Environment`],
    /// and where that has none, in that of this process.
    Words(Vec<OsString>),
}

impl Run {
    /// It as people read it.
    pub fn shown(&self) -> String {
        match self {
            Self::Shell(text) => text.clone(),
            Self::Words(words) => {
                let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
                words.join(" ")
            }
        }
    }

    /// The words that are started.
    fn words(&self, environment: &Environment) -> io::Result<Vec<OsString>> {
        match self {
            Self::Shell(text) => Ok(vec![shell().into(), "-c".into(), text.into()]),
            Self::Words(words) => {
                let nothing = || io::Error::new(io::ErrorKind::InvalidInput, "no program is named");
                let (first, rest) = words.split_first().ok_or_else(nothing)?;
                let found = environment.find(first).ok_or_else(|| {
                    let missing = format!("there is no program \"{}\" in PATH", first.display());
                    io::Error::new(io::ErrorKind::NotFound, missing)
                })?;
                Ok(std::iter::once(found.into_os_string()).chain(rest.iter().cloned()).collect())
            }
        }
    }

    /// The program that is started, for errors.
    fn program(&self) -> PathBuf {
        match self {
            Self::Shell(_) => shell().to_owned(),
            Self::Words(words) => words.first().map(PathBuf::from).unwrap_or_default(),
        }
    }
}

/// A command to run.
#[derive(Clone, Debug)]
pub struct Spec {
    /// What is run.
    pub run: Run,
    /// The directory in which it starts: absolute, free of links. One that a link stands for by now is refused.
    pub workdir: PathBuf,
    /// After this time it is ended; `None` when it may run for ever.
    pub timeout: Option<Duration>,
    /// Its environment.
    pub environment: Environment,
    /// What it belongs to.
    pub scope: Scope,
    /// What it may use.
    pub limits: Limits,
    /// What holds it.
    pub walls: Walls,
}

/// What a command reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Nothing.
    Empty,
    /// What is written to [`Started::take_input`].
    Written,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// The exit code, where the shell ended by itself.
    pub code: Option<i32>,
    /// The signal that ended the shell.
    pub signal: Option<i32>,
    /// It was ended since its time was over.
    pub timed_out: bool,
    /// It was ended since it was cancelled.
    pub cancelled: bool,
    /// It wanted more processes and threads than it may have, so all of them were ended.
    pub too_many_tasks: bool,
    /// It needed more memory than it may have, or the commands of its session together did, so all of it was ended. Known
    /// only where a control group bounds memory.
    pub out_of_memory: bool,
}

/// Why a command could not be run, or not be watched.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// It did not start.
    #[error("the command could not be started with {program} in {workdir}: {source}")]
    Start {
        /// The program that was to be started: a shell, for a text that a shell reads.
        program: PathBuf,
        /// The directory.
        workdir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// What holds it could not be built.
    #[error("the walls around the command could not be built, so it was not started: {0}")]
    Walls(io::Error),
    /// It started, and was ended since this failed.
    #[error("the command could not be watched, so it was ended: {0}")]
    Watch(#[from] io::Error),
}

impl ProcessError {
    /// Whether trying again would fail in the same way.
    pub fn is_lasting(&self) -> bool {
        use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
        match self {
            Self::Start { source, .. } => {
                matches!(source.kind(), NotFound | PermissionDenied | NotADirectory)
            }
            Self::Walls(_) => true,
            Self::Watch(_) => false,
        }
    }
}

/// Receives what a command writes to its standard output and its standard error, in the order in which it wrote it.
pub trait Receive: Send {
    /// More output, at most 64 KB. The command is held back until this is done. The future may be dropped before, when
    /// the command is cancelled; no more output follows then, or that which is left in the pipe.
    fn receive<'a>(&'a mut self, chunk: &'a [u8]) -> BoxFuture<'a, ()>;
}

/// Collects all output, however much: for commands that are known to say little.
impl Receive for Vec<u8> {
    fn receive<'a>(&'a mut self, chunk: &'a [u8]) -> BoxFuture<'a, ()> {
        self.extend_from_slice(chunk);
        Box::pin(std::future::ready(()))
    }
}

/// Runs a command to its end. Dropping the future kills it, with its tree. Needs a tokio runtime with I/O and time.
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # runtime.block_on(async {
/// use std::time::Duration;
/// use playhouse_sandbox::Walls;
/// use playhouse_sandbox::process::{Environment, Limits, Run, Scope, Spec, run};
/// use tokio_util::sync::CancellationToken;
///
/// let spec = Spec {
///     run: Run::Shell("echo out; echo err >&2; exit 3".into()),
///     workdir: "/".into(),
///     timeout: Some(Duration::from_secs(10)),
///     environment: Environment::of_this_process(),
///     scope: Scope::new(),
///     limits: Limits::default(),
///     walls: Walls::open(),
/// };
/// let mut output = Vec::new();
/// let exit = run(&spec, &CancellationToken::new(), &mut output).await.unwrap();
/// assert_eq!((exit.code, output.as_slice()), (Some(3), b"out\nerr\n".as_slice()));
/// # });
/// ```
///
/// # Errors
/// When the shell cannot be started in that directory, or not be watched.
pub async fn run(
    spec: &Spec,
    cancel: &CancellationToken,
    output: &mut dyn Receive,
) -> Result<Exit, ProcessError> {
    if cancel.is_cancelled() {
        return Ok(Exit { cancelled: true, ..Exit::default() });
    }
    start(spec, Input::Empty).await?.wait(cancel, output).await
}

/// Starts a command. [`Started::wait`] takes its output and sees it to its end; dropped, it is killed with its tree.
///
/// # Errors
/// When the shell cannot be started in that directory.
pub async fn start(spec: &Spec, input: Input) -> Result<Started, ProcessError> {
    begin(spec, input, Output::Together).await
}

/// Where the standard error of a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    /// Into the pipe of its standard output, so that their order is kept.
    Together,
    /// Into a pipe of its own.
    Apart,
}

async fn begin(spec: &Spec, input: Input, output: Output) -> Result<Started, ProcessError> {
    let limits = spec.limits;
    let hold = move |command: &Scope| {
        let wall = limits::wall();
        // Why it is not there was logged.
        let _ = watchdog::ensure(&wall.folders());
        wall.hold(command, &limits)
    };
    running::start(spec, input, output, hold).await
}

/// The program and its arguments that run words, after what bounds them.
fn bounded(words: Vec<OsString>, prelude: Option<Vec<OsString>>) -> (OsString, Vec<OsString>) {
    let prelude = prelude.map(|prelude| [POSIX_SHELL.into()].into_iter().chain(prelude));
    let mut all = prelude.into_iter().flatten().chain(words);
    (all.next().unwrap_or_else(|| POSIX_SHELL.into()), all.collect())
}

const POSIX_SHELL: &str = "/bin/sh";

/// Models write for bash; where there is none, a POSIX shell must do.
pub(crate) fn shell() -> &'static Path {
    static SHELL: OnceLock<PathBuf> = OnceLock::new();
    SHELL.get_or_init(|| find_program("bash").unwrap_or_else(|| PathBuf::from(POSIX_SHELL)))
}

/// A program, in the usual places first.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = environment::search_path();
    let usual = ["/bin", "/usr/bin", "/usr/local/bin"].map(PathBuf::from);
    let mut directories = usual.into_iter().chain(std::env::split_paths(&path));
    directories.find_map(|directory| {
        let program = directory.join(name);
        (program.is_absolute() && program.is_file()).then_some(program)
    })
}

/// The one place where programs are started from.
pub(crate) fn program(path: &(impl AsRef<OsStr> + ?Sized)) -> std::process::Command {
    std::process::Command::new(path)
}

#[cfg(test)]
mod tests;

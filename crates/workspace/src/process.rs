//! Commands, with their whole process tree, their output and their end.
//!
//! [`run`] is the only way in which Playhouse starts a program, so that another place to run in (a sandbox, another
//! machine) can be put behind it. Rules that hold here:
//!
//! - A command ends when its shell ends, is cancelled or runs out of time. A child in the background that holds the
//!   output open holds nothing up.
//! - Cancelled or out of time, its whole tree is told to end, and killed when it does not: within a second nothing of it
//!   is left. That is so for children that changed their process group or session as well, where `/proc` shows them.
//! - It gets none of this process's environment but what [`Environment`] lets through.
//! - Its output is handed over piece by piece, and it is held back while the receiver is busy.
//!
//! A child is not bound to the life of this process by the kernel: that needs code between fork and exec, which safe Rust
//! has no way to run.

mod environment;
mod tree;

use std::io::{self, PipeReader};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use futures::future::BoxFuture;
use thiserror::Error;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use environment::Environment;
use tree::Tree;

/// How much is read at once, in bytes: what a pipe holds.
const CHUNK: usize = 64 * 1024;
/// After the shell ended, its output is over when it was quiet for this long.
const QUIET: Duration = Duration::from_millis(100);
/// After the shell ended, children that go on writing are listened to for this long at most.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A command to run.
#[derive(Clone, Debug)]
pub struct Spec {
    /// What the shell (bash where there is one, else sh) reads.
    pub command: String,
    /// The directory in which it starts.
    pub workdir: PathBuf,
    /// After this time it is ended.
    pub timeout: Duration,
    /// Its environment.
    pub environment: Environment,
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
}

/// Why a command could not be run, or not be watched.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// It did not start.
    #[error("the command could not be started with {shell} in {workdir}: {source}")]
    Start {
        /// The shell.
        shell: PathBuf,
        /// The directory.
        workdir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It started, and was ended since this failed.
    #[error("the command could not be watched, so it was ended: {0}")]
    Watch(#[from] io::Error),
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
/// use playhouse_workspace::process::{Environment, Spec, run};
/// use tokio_util::sync::CancellationToken;
///
/// let spec = Spec {
///     command: "echo out; echo err >&2; exit 3".into(),
///     workdir: "/".into(),
///     timeout: Duration::from_secs(10),
///     environment: Environment::of_this_process(),
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
    let mut running = Running::start(spec)?;
    let end = tokio::select! {
        biased;
        () = cancel.cancelled() => End::Cancelled,
        () = tokio::time::sleep(spec.timeout) => End::TimedOut,
        end = running.watch(output) => End::Watched(end),
    };
    if let End::Watched(Ok(status)) = end {
        running.over = true;
        return Ok(Exit { code: status.code(), signal: status.signal(), ..Exit::default() });
    }
    let status = running.end(output).await?;
    if let End::Watched(Err(error)) = end {
        return Err(error.into());
    }
    Ok(Exit {
        code: status.code(),
        signal: status.signal(),
        timed_out: matches!(end, End::TimedOut),
        cancelled: matches!(end, End::Cancelled),
    })
}

enum End {
    Watched(io::Result<ExitStatus>),
    TimedOut,
    Cancelled,
}

/// A command that was started.
struct Running {
    child: Child,
    /// Both its standard output and its standard error, so that their order is kept.
    pipe: Receiver,
    tree: Tree,
    /// Whether nothing is left to be killed when this is dropped.
    over: bool,
}

impl Running {
    fn start(spec: &Spec) -> Result<Self, ProcessError> {
        let marker = tree::Marker::new();
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new(shell());
        command
            .arg("-c")
            .arg(&spec.command)
            .current_dir(&spec.workdir)
            .env_clear()
            .envs(spec.environment.variables())
            .env(tree::MARKER_NAME, marker.value())
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .process_group(0)
            .kill_on_drop(true);
        let child = command.spawn().map_err(|source| ProcessError::Start {
            shell: shell().to_owned(),
            workdir: spec.workdir.clone(),
            source,
        })?;
        // From here on, dropping `child` on an error kills the shell.
        let tree = Tree::of(child.id(), marker);
        let pipe = receiver(reader)?;
        Ok(Self { child, pipe, tree, over: false })
    }

    /// Until the shell has ended and its output is handed over.
    async fn watch(&mut self, output: &mut dyn Receive) -> io::Result<ExitStatus> {
        let mut buffer = vec![0; CHUNK];
        let mut open = true;
        let status = loop {
            tokio::select! {
                status = self.child.wait() => break status?,
                count = self.pipe.read(&mut buffer), if open => match count? {
                    0 => open = false,
                    count => output.receive(&buffer[..count]).await,
                },
            }
        };
        let last = Instant::now() + LAST_WORDS;
        while open && Instant::now() < last {
            match tokio::time::timeout(QUIET, self.pipe.read(&mut buffer)).await {
                Err(_) | Ok(Ok(0)) => open = false,
                Ok(count) => output.receive(&buffer[..count?]).await,
            }
        }
        Ok(status)
    }

    /// Ends the whole tree and hands over what is left in the pipe.
    async fn end(&mut self, output: &mut dyn Receive) -> io::Result<ExitStatus> {
        self.tree.end(self.child.id().is_some()).await;
        let mut buffer = vec![0; CHUNK];
        if let Ok(count @ 1..) = self.pipe.try_read(&mut buffer) {
            // A receiver that is stuck does not hold up the end.
            let _ = tokio::time::timeout(QUIET, output.receive(&buffer[..count])).await;
        }
        // A shell that even SIGKILL does not end (it waits for a dead disk) is left to the runtime.
        let status = tokio::time::timeout(QUIET, self.child.wait()).await??;
        self.over = true;
        Ok(status)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.over {
            self.tree.kill_detached(self.child.id().is_some());
        }
    }
}

fn receiver(reader: PipeReader) -> io::Result<Receiver> {
    Receiver::from_owned_fd(OwnedFd::from(reader))
}

/// Models write for bash; where there is none, a POSIX shell must do.
fn shell() -> &'static Path {
    static SHELL: OnceLock<PathBuf> = OnceLock::new();
    SHELL.get_or_init(|| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let usual = ["/bin", "/usr/bin", "/usr/local/bin"].map(PathBuf::from);
        let mut directories = usual.into_iter().chain(std::env::split_paths(&path));
        let bash = directories.find_map(|directory| {
            let bash = directory.join("bash");
            (bash.is_absolute() && bash.is_file()).then_some(bash)
        });
        bash.unwrap_or_else(|| PathBuf::from("/bin/sh"))
    })
}

#[cfg(test)]
mod tests;

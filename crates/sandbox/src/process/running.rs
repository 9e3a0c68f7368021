//! A command from its start to its end.

use std::io::{self, PipeReader};
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd as _;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::limits::{Broken, Hold};
use super::mark::Scope;
use super::tree::Tree;
use super::{Exit, Input, Output, ProcessError, Receive, Spec, bounded, mark, program, starter, tree};
use crate::blocking::blocking;
use crate::held;
use crate::walls::{After, Walls, WallsError};

/// How much is read at once, in bytes: what a pipe holds.
const CHUNK: usize = 64 * 1024;
/// After the shell ended, its output is over when it was quiet for this long.
const QUIET: Duration = Duration::from_millis(100);
/// After the shell ended, children that go on writing are listened to for this long at most.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long a shell that was killed may take to be gone: on a busy machine longer than its output is waited for.
const REAPED: Duration = Duration::from_secs(2);
/// How long a program may take to end by itself once its input has ended, before it is told to.
const CLOSED: Duration = Duration::from_millis(500);
/// How often it is looked whether a command uses more than it may.
const LOOK: Duration = Duration::from_millis(500);

/// A command that was started. Dropped, it is killed with its tree.
#[derive(Debug)]
pub struct Started {
    child: Child,
    id: u32,
    /// Its standard error, and its standard output as well where they are not apart.
    pipe: Receiver,
    tree: Tree,
    hold: Hold,
    timeout: Option<Duration>,
    /// Puts right what it did, after everything else.
    _after: After,
    /// What it sees lives as long as they do.
    _walls: Walls,
    /// Whether nothing is left to be killed when this is dropped.
    over: bool,
    _counted: Counted,
}

/// Commands of this process that are under way.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// How many commands of this process are under way, those in the background included.
pub fn under_way() -> usize {
    UNDER_WAY.load(Ordering::Relaxed)
}

/// Whether there was ever one.
static ANY: AtomicBool = AtomicBool::new(false);

pub(super) fn was_any() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// One of them.
#[derive(Debug)]
struct Counted;

impl Counted {
    fn begin() -> Self {
        UNDER_WAY.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
    }
}

enum End {
    Watched(io::Result<ExitStatus>),
    TimedOut,
    Cancelled,
    Over(Broken),
}

/// Starts a command. `hold` makes, where it may block, what bounds the one of this scope.
pub(super) async fn start(
    spec: &Spec,
    input: Input,
    output: Output,
    hold: impl FnOnce(&Scope) -> Hold + Send + 'static,
) -> Result<Started, ProcessError> {
    // Before it begins: the first thing it does may be to ask who it is.
    ANY.store(true, Ordering::Relaxed);
    let scope = spec.scope.command();
    let (variable, command) = (scope.variable(), scope.clone());
    let not_started =
        |source| ProcessError::Start { program: spec.run.program(), workdir: spec.workdir.clone(), source };
    let (walls, workdir) = (spec.walls.clone(), spec.workdir.clone());
    let (run, environment) = (spec.run.clone(), spec.environment.clone());
    let prepare = move || {
        let built = walls.built()?;
        let first = held::hold(built.first_directory(&workdir)).map_err(io::Error::from);
        let hold = hold(&command);
        let words = run.words(&environment);
        let enclosed = words.map(|words| built.around(&workdir, hold.user_words(), words, walls.hidden()));
        Ok((first, hold, enclosed))
    };
    let no_walls = |error: WallsError| ProcessError::Walls(io::Error::other(error));
    let (first_directory, hold, enclosed) = blocking(prepare).await.map_err(no_walls)?;
    let built = spec.walls.built().map_err(no_walls)?;
    let first_directory = first_directory.map_err(not_started)?;
    let enclosed = enclosed.map_err(not_started)?.map_err(ProcessError::Walls)?;
    let (reader, writer) = io::pipe()?;
    let (first, rest) = bounded(enclosed.words, hold.prelude());
    let mut command = program(&first);
    command
        .args(rest)
        .current_dir(as_path(&first_directory, spec))
        .env_clear()
        .envs(built.environment(&spec.environment).variables())
        .env(mark::NAME, variable)
        .stdin(match input {
            Input::Empty => Stdio::null(),
            Input::Written => Stdio::piped(),
        })
        .stdout(match output {
            Output::Together => writer.try_clone()?.into(),
            Output::Apart => Stdio::piped(),
        })
        .stderr(writer)
        .process_group(0);
    let mut command = Command::from(command);
    command.kill_on_drop(true);
    let child = starter::start(command).await.map_err(not_started)?;
    drop(first_directory);
    // From here on, dropping `child` on an error kills the shell.
    let tree = Tree::of(child.id(), scope, hold.group(), built.have_keeper());
    let (id, pipe) = (child.id().unwrap_or_default(), receiver(reader)?);
    Ok(Started {
        child,
        id,
        pipe,
        tree,
        hold,
        timeout: spec.timeout,
        _after: enclosed.after,
        _walls: spec.walls.clone(),
        over: false,
        _counted: Counted::begin(),
    })
}

/// A path of a directory that is held open: what stands in its place by now does not count.
#[cfg(target_os = "linux")]
fn as_path(directory: &OwnedFd, _: &Spec) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

/// The path of the directory in which a command starts. It was there a moment ago.
#[cfg(not(target_os = "linux"))]
fn as_path(_: &OwnedFd, spec: &Spec) -> PathBuf {
    spec.workdir.clone()
}

fn receiver(reader: PipeReader) -> io::Result<Receiver> {
    Receiver::from_owned_fd(OwnedFd::from(reader))
}

impl Started {
    /// The number of the shell's process, which leads a process group.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Where its standard input is written, if that was asked for and not taken before.
    pub fn take_input(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// What it writes to its standard output, if that is apart and was not taken before.
    pub(super) fn take_output(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Hands over what it writes to its standard error until it has ended, with all that descends from it. Once `stop` has
    /// said how long it has to end, it is waited for a moment, told to end, and killed when that time is over; so it is, at
    /// once, when it runs out of time or uses more than it may.
    ///
    /// # Errors
    /// When it cannot be watched; it is ended then.
    pub(super) async fn wait_apart(
        mut self,
        stop: impl Future<Output = Duration>,
        errors: &mut dyn Receive,
    ) -> Result<Exit, ProcessError> {
        let (timeout, hold) = (self.timeout, self.hold.clone());
        let mut exit = Exit::default();
        let mut grace = None;
        let mut ended = tokio::select! {
            ended = self.watch(errors) => Some(ended),
            time = stop => {
                exit.cancelled = true;
                grace = Some(time);
                None
            }
            () = after(timeout) => {
                exit.timed_out = true;
                None
            }
            broken = uses_too_much(&hold) => {
                (exit.too_many_tasks, exit.out_of_memory) = (broken == Broken::Tasks, broken == Broken::Memory);
                None
            }
        };
        if let (None, Some(grace)) = (&ended, grace) {
            // Its input has ended.
            ended = tokio::time::timeout(CLOSED.min(grace), self.watch(errors)).await.ok();
        }
        let status = match ended {
            Some(status) => {
                let status = status?;
                let broken = self.hold.broken();
                exit.too_many_tasks |= broken == Some(Broken::Tasks);
                exit.out_of_memory |= broken == Some(Broken::Memory);
                // What it left behind.
                match broken {
                    Some(_) => self.tree.end_storm(false).await,
                    None => self.tree.end(false, tree::GRACE).await,
                }
                self.over = true;
                status
            }
            None => self.end(grace.unwrap_or(tree::GRACE), errors).await?,
        };
        Ok(Exit { code: status.code(), signal: status.signal(), ..exit })
    }

    /// Hands over its output until it has ended. Cancelled, it is ended with its tree; so it is when it runs out of time
    /// or uses more than it may.
    ///
    /// # Errors
    /// When it cannot be watched; it is ended then.
    pub async fn wait(
        mut self,
        cancel: &CancellationToken,
        output: &mut dyn Receive,
    ) -> Result<Exit, ProcessError> {
        let (timeout, hold) = (self.timeout, self.hold.clone());
        let mut end = tokio::select! {
            biased;
            () = cancel.cancelled() => End::Cancelled,
            () = after(timeout) => End::TimedOut,
            broken = uses_too_much(&hold) => End::Over(broken),
            end = self.watch(output) => End::Watched(end),
        };
        if let End::Watched(Ok(status)) = end {
            let Some(broken) = self.hold.broken() else {
                self.over = true;
                return Ok(Exit { code: status.code(), signal: status.signal(), ..Exit::default() });
            };
            // Its shell has ended, and what makes processes without end has not.
            end = End::Over(broken);
        }
        let status = self.end(tree::GRACE, output).await?;
        if let End::Watched(Err(error)) = end {
            return Err(error.into());
        }
        Ok(Exit {
            code: status.code(),
            signal: status.signal(),
            timed_out: matches!(end, End::TimedOut),
            cancelled: matches!(end, End::Cancelled),
            too_many_tasks: matches!(end, End::Over(Broken::Tasks)),
            out_of_memory: matches!(end, End::Over(Broken::Memory)),
        })
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
    async fn end(&mut self, grace: Duration, output: &mut dyn Receive) -> io::Result<ExitStatus> {
        let leader_held = self.child.id().is_some();
        let Self { tree, hold, pipe, .. } = self;
        let mut ending = std::pin::pin!(async {
            match hold.broken() {
                Some(_) => tree.end_storm(leader_held).await,
                None => tree.end(leader_held, grace).await,
            }
        });
        let mut buffer = vec![0; CHUNK];
        // Where it has long for its end, what it says meanwhile must not hold it up.
        let mut open = grace > tree::GRACE;
        loop {
            tokio::select! {
                () = &mut ending => break,
                count = pipe.read(&mut buffer), if open => match count {
                    Ok(count @ 1..) => {
                        // Nor does a receiver that is stuck.
                        let _ = tokio::time::timeout(QUIET, output.receive(&buffer[..count])).await;
                    }
                    _ => open = false,
                },
            }
        }
        if let Ok(count @ 1..) = self.pipe.try_read(&mut buffer) {
            // A receiver that is stuck does not hold up the end.
            let _ = tokio::time::timeout(QUIET, output.receive(&buffer[..count])).await;
        }
        // A shell that even SIGKILL does not end (it waits for a dead disk) is left to the runtime.
        let status = tokio::time::timeout(REAPED, self.child.wait()).await??;
        self.over = true;
        Ok(status)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if !self.over {
            self.tree.kill_detached(self.child.id().is_some());
        }
    }
}

async fn after(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

async fn uses_too_much(hold: &Hold) -> Broken {
    loop {
        tokio::time::sleep(LOOK).await;
        if let Some(broken) = hold.broken() {
            return broken;
        }
    }
}

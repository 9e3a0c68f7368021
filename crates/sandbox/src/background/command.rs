//! One command in the background.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::io::AsyncWriteExt as _;
use tokio::process::ChildStdin;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use super::recent::Reading;
use super::recent::Recent;
use crate::process::{Exit, Receive, Started};

/// How long a command that was told to end is waited for. Its tree needs most of a second in the worst case.
const END_WAIT: Duration = Duration::from_secs(3);

/// A command in the background. Clones are the same command; it goes on when all of them are dropped.
#[derive(Clone)]
pub struct BackgroundCommand {
    inner: Arc<Inner>,
}

struct Inner {
    id: String,
    command: String,
    process: u32,
    started: Instant,
    recent: Mutex<Recent>,
    /// What the copy has, once it takes no more.
    cut: OnceLock<CutCopy>,
    ended_because: OnceLock<String>,
    state: watch::Sender<State>,
    /// Changes with each piece of output.
    output: watch::Sender<()>,
    cancel: CancellationToken,
    input: tokio::sync::Mutex<Option<ChildStdin>>,
}

/// How a command is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs.
    Running,
    /// It has ended in this way, after this time.
    Ended(Exit, Duration),
    /// It could not be watched, so it was ended.
    Lost(String),
}

/// Keeps the output of a command from its beginning on, such as in a file.
pub trait OutputCopy: Send {
    /// Takes a chunk. Says when it takes no more, and is given none from then on.
    fn take<'a>(&'a mut self, chunk: &'a [u8]) -> BoxFuture<'a, Option<CutCopy>>;
}

impl OutputCopy for Vec<u8> {
    fn take<'a>(&'a mut self, chunk: &'a [u8]) -> BoxFuture<'a, Option<CutCopy>> {
        self.extend_from_slice(chunk);
        std::future::ready(None).boxed()
    }
}

/// What a copy has that takes no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutCopy {
    /// The first bytes of the output that it has.
    pub bytes: u64,
    /// Why it takes no more.
    pub reason: String,
}

/// Why a command did not take all that was written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// Its standard input is closed.
    #[error("its standard input is closed")]
    Closed,
    /// It does not read.
    #[error(
        "it read {written} of {all} bytes, and no more within {wait:?}: it does not read its standard input"
    )]
    NotRead {
        /// How many bytes it took.
        written: usize,
        /// How many were to be written.
        all: usize,
        /// How long it was waited for.
        wait: Duration,
    },
    /// It ended, or closed its standard input.
    #[error("it does not take input any more: {0}")]
    Io(#[from] io::Error),
}

impl BackgroundCommand {
    /// Watches a command that was started, in the current runtime.
    pub(super) fn watch(
        id: String,
        command: String,
        mut started: Started,
        copy: Box<dyn OutputCopy>,
    ) -> Self {
        let inner = Inner {
            id,
            command,
            process: started.id(),
            started: Instant::now(),
            recent: Mutex::default(),
            cut: OnceLock::new(),
            ended_because: OnceLock::new(),
            state: watch::Sender::new(State::Running),
            output: watch::Sender::new(()),
            cancel: CancellationToken::new(),
            input: tokio::sync::Mutex::new(started.take_input()),
        };
        let this = Self { inner: Arc::new(inner) };
        let watched = this.clone();
        tokio::spawn(async move {
            let mut output = Output { command: watched.clone(), copy };
            let cancel = watched.inner.cancel.clone();
            let exit = started.wait(&cancel, &mut output).await;
            let inner = &watched.inner;
            inner.recent.lock().finish();
            if let Ok(mut input) = inner.input.try_lock() {
                *input = None;
            }
            inner.state.send_replace(match exit {
                Ok(exit) => State::Ended(exit, inner.started.elapsed()),
                Err(error) => State::Lost(error.to_string()),
            });
        });
        this
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// What the shell was given.
    pub fn command(&self) -> &str {
        &self.inner.command
    }

    /// The number of its shell's process.
    pub fn process(&self) -> u32 {
        self.inner.process
    }

    /// How long ago it was started.
    pub fn age(&self) -> Duration {
        self.inner.started.elapsed()
    }

    /// How it is.
    pub fn state(&self) -> State {
        self.inner.state.borrow().clone()
    }

    /// Whether it runs.
    pub fn runs(&self) -> bool {
        *self.inner.state.borrow() == State::Running
    }

    /// How many bytes it has written, and whether some of them are new.
    pub fn written(&self) -> (u64, bool) {
        let recent = self.inner.recent.lock();
        (recent.total(), recent.has_new())
    }

    /// What the copy has of what it wrote, once it takes no more; `None` while it has all.
    pub fn cut(&self) -> Option<&CutCopy> {
        self.inner.cut.get()
    }

    /// What it wrote since this was asked the last time.
    pub fn read_new(&self) -> Reading {
        self.inner.recent.lock().read_new()
    }

    /// All that is remembered of what it wrote: the last megabyte; of one that has ended, the last 128 KB.
    pub fn read_all(&self) -> Reading {
        self.inner.recent.lock().read_all()
    }

    /// Waits until there is output that was not read, or it has ended.
    pub async fn has_news(&self) {
        let (mut state, mut output) = (self.inner.state.subscribe(), self.inner.output.subscribe());
        loop {
            output.mark_unchanged();
            if self.inner.recent.lock().has_new() || *state.borrow_and_update() != State::Running {
                return;
            }
            tokio::select! {
                // Their senders live as long as this.
                _ = output.changed() => {}
                _ = state.changed() => {}
            }
        }
    }

    /// Waits until it has ended.
    pub async fn ended(&self) -> State {
        let mut state = self.inner.state.subscribe();
        match state.wait_for(|state| *state != State::Running).await {
            Ok(state) => state.clone(),
            Err(_) => self.state(),
        }
    }

    /// Writes to its standard input. Others who write wait until this is done.
    ///
    /// # Errors
    /// When it does not read all of it within `wait`, and when it takes no input any more.
    pub async fn write(&self, bytes: &[u8], wait: Duration) -> Result<(), WriteError> {
        let deadline = Instant::now() + wait;
        let mut written = 0;
        let not_read = |written| WriteError::NotRead { written, all: bytes.len(), wait };
        let locked = tokio::time::timeout_at(deadline, self.inner.input.lock()).await;
        let mut input = locked.map_err(|_| not_read(0))?;
        let input = input.as_mut().ok_or(WriteError::Closed)?;
        while written < bytes.len() {
            let some = tokio::time::timeout_at(deadline, input.write(&bytes[written..])).await;
            written += some.map_err(|_| not_read(written))??;
        }
        Ok(())
    }

    /// Closes its standard input: it reads the end of it.
    pub async fn close_input(&self) {
        *self.inner.input.lock().await = None;
    }

    /// Ends it for a reason that whoever reads it is told, and waits until that is done.
    pub async fn end_because(&self, reason: String) -> State {
        if self.runs() {
            // Only the first time.
            let _ = self.inner.ended_because.set(reason);
        }
        self.end().await
    }

    /// Why it was ended, where that is known.
    pub fn ended_because(&self) -> Option<&str> {
        self.inner.ended_because.get().map(String::as_str)
    }

    /// Ends it with its tree, and waits until that is done.
    pub async fn end(&self) -> State {
        self.inner.cancel.cancel();
        match tokio::time::timeout(END_WAIT, self.ended()).await {
            Ok(state) => state,
            // Its runtime is gone, and the command with it.
            Err(_) => self.state(),
        }
    }
}

impl fmt::Debug for BackgroundCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackgroundCommand")
            .field("id", &self.inner.id)
            .field("state", &*self.inner.state.borrow())
            .finish_non_exhaustive()
    }
}

/// Where output goes: into memory as far as it is recent, and to the copy as long as that takes more.
struct Output {
    command: BackgroundCommand,
    copy: Box<dyn OutputCopy>,
}

impl Receive for Output {
    fn receive<'a>(&'a mut self, chunk: &'a [u8]) -> BoxFuture<'a, ()> {
        let inner = &self.command.inner;
        inner.recent.lock().push(chunk);
        inner.output.send_replace(());
        if inner.cut.get().is_some() {
            return std::future::ready(()).boxed();
        }
        async move {
            if let Some(cut) = self.copy.take(chunk).await {
                // Only the first time.
                let _ = self.command.inner.cut.set(cut);
            }
        }
        .boxed()
    }
}

//! A program with pipes of its own, for as long as somebody needs it: a server that speaks over its standard input and
//! output, another agent, a formatter.
//!
//! It is started by words, never by a shell text, and nothing waits for its start. Its standard output is only that: what
//! it says on its standard error is kept apart, and only the end of it. It runs within the same walls and limits as a
//! command, carries the same marks, and ends at the latest with this process. When it ends, all that descends from it is
//! ended as well.

use std::collections::VecDeque;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Exit, Input, Output, ProcessError, Receive, Spec, begin};

/// How long a program usually has between being told to end (SIGTERM) and being killed.
pub const STOP_GRACE: Duration = Duration::from_secs(5);
/// So much of the end of its standard error is kept, in bytes.
const LAST_WORDS: usize = 8 * 1024;
/// So much of it is told of why a program ended, in bytes.
const TOLD_WORDS: usize = 600;

/// A program that runs. Clones are the same program; when the last of them is dropped it is killed, with all that descends
/// from it.
#[derive(Clone, Debug)]
pub struct Program(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    id: u32,
    input: Mutex<Option<ChildStdin>>,
    output: Mutex<Option<ChildStdout>>,
    errors: Errors,
    /// How it ended, once it has.
    ended: watch::Receiver<Option<Result<Exit, String>>>,
    /// How long it has to end, once it is to be stopped.
    stop: watch::Sender<Option<Duration>>,
    _kill: DropGuard,
}

/// Starts a program with pipes of its own. Needs a tokio runtime with I/O and time.
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # runtime.block_on(async {
/// use playhouse_sandbox::Walls;
/// use playhouse_sandbox::process::{Environment, Limits, Run, Scope, Spec, start_apart};
/// use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
///
/// let spec = Spec {
///     run: Run::Words(vec!["cat".into()]),
///     workdir: "/".into(),
///     timeout: None,
///     environment: Environment::empty(),
///     scope: Scope::new(),
///     limits: Limits::default(),
///     walls: Walls::open(),
/// };
/// let cat = start_apart(&spec).await.unwrap();
/// let mut input = cat.take_input().unwrap();
/// input.write_all(b"hello").await.unwrap();
/// // Its input ends here.
/// drop(input);
/// let mut said = String::new();
/// cat.take_output().unwrap().read_to_string(&mut said).await.unwrap();
/// assert_eq!((said.as_str(), cat.ended().await.unwrap().code), ("hello", Some(0)));
/// # });
/// ```
///
/// # Errors
/// There is no such program, or it cannot be started in that directory. What a program in walls does not find is told by its
/// exit code instead.
pub async fn start_apart(spec: &Spec) -> Result<Program, ProcessError> {
    let mut started = begin(spec, Input::Written, Output::Apart).await?;
    let errors = Errors::default();
    let (ended_sender, ended) = watch::channel(None);
    let (stop, mut stopped) = watch::channel(None);
    let kill = CancellationToken::new();
    let inner = Inner {
        id: started.id(),
        input: Mutex::new(started.take_input()),
        output: Mutex::new(started.take_output()),
        errors: errors.clone(),
        ended,
        stop,
        _kill: kill.clone().drop_guard(),
    };
    tokio::spawn(async move {
        let mut errors = errors;
        let stop = async move {
            match stopped.wait_for(Option::is_some).await.map(|grace| *grace) {
                Ok(Some(grace)) => grace,
                // Nobody is left who could: it is killed.
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = kill.cancelled() => {}
            exit = started.wait_apart(stop, &mut errors) => {
                ended_sender.send_replace(Some(exit.map_err(|error| error.to_string())));
            }
        }
    });
    Ok(Program(Arc::new(inner)))
}

impl Program {
    /// The number of its process, which leads a process group. Within walls it is that of what holds the program.
    pub fn id(&self) -> u32 {
        self.0.id
    }

    /// Where its standard input is written; `None` when it was taken before. Dropped, its input ends.
    pub fn take_input(&self) -> Option<ChildStdin> {
        self.0.input.lock().take()
    }

    /// What it writes to its standard output; `None` when it was taken before. A program whose output nobody reads waits once
    /// a pipe is full.
    pub fn take_output(&self) -> Option<ChildStdout> {
        self.0.output.lock().take()
    }

    /// The end of what it wrote to its standard error: 8 KB at most.
    pub fn last_words(&self) -> String {
        let (first, last) = {
            let kept = self.0.errors.0.lock();
            let (first, last) = kept.as_slices();
            (first.to_vec(), last.to_vec())
        };
        String::from_utf8_lossy(&[first, last].concat()).into_owned()
    }

    /// Says how it ended, with the end of what it said last; `None` if it goes on without its output.
    pub fn reason(&self, exit: Option<&Result<Exit, String>>) -> String {
        let how = match exit {
            None => "it closed its output".to_owned(),
            Some(Err(error)) => format!("it could not be watched: {error}"),
            Some(Ok(exit)) if exit.out_of_memory => "it needed more memory than it may have".to_owned(),
            Some(Ok(exit)) if exit.too_many_tasks => "it wanted more processes than it may have".to_owned(),
            Some(Ok(Exit { code: Some(code), .. })) => format!("it ended with exit code {code}"),
            Some(Ok(Exit { signal: Some(signal), .. })) => format!("it was ended by signal {signal}"),
            Some(Ok(_)) => "it ended".to_owned(),
        };
        let words = self.last_words();
        let words = words.trim();
        // The end tells more than the beginning.
        let from = (words.len().saturating_sub(TOLD_WORDS)..).find(|&from| words.is_char_boundary(from));
        match from.map(|from| &words[from..]) {
            None | Some("") => how,
            Some(words) => format!("{how}; its last words: {words}"),
        }
    }

    /// Waits until it has ended, and tells how. Returns at once where it has.
    ///
    /// # Errors
    /// Why it could not be watched; it is ended then.
    pub async fn ended(&self) -> Result<Exit, String> {
        let mut ended = self.0.ended.clone();
        // What was seen must not be held across an await.
        let seen = ended.wait_for(Option::is_some).await.map(|ended| ended.clone());
        match seen {
            Ok(Some(ended)) => ended,
            _ => Err("the runtime was shut down".to_owned()),
        }
    }

    /// Stops it: input and output end where they were not taken, half a second later it is told to end (SIGTERM), and after
    /// `grace` it is killed, with all that descends from it. Whoever took the input drops it before, and reads on or drops what
    /// took the output. Asked again, the first call counts.
    ///
    /// # Errors
    /// As with [`ended`](Self::ended).
    pub async fn stop(&self, grace: Duration) -> Result<Exit, String> {
        drop((self.take_input(), self.take_output()));
        self.0.stop.send_if_modified(|asked| {
            let first = asked.is_none();
            asked.get_or_insert(grace);
            first
        });
        self.ended().await
    }
}

/// The end of what a program says on its standard error. Clones are the same.
#[derive(Clone, Debug, Default)]
struct Errors(Arc<Mutex<VecDeque<u8>>>);

impl Receive for Errors {
    fn receive<'a>(&'a mut self, chunk: &'a [u8]) -> BoxFuture<'a, ()> {
        let mut kept = self.0.lock();
        kept.extend(&chunk[chunk.len().saturating_sub(LAST_WORDS)..]);
        let over = kept.len().saturating_sub(LAST_WORDS);
        kept.drain(..over);
        drop(kept);
        Box::pin(ready(()))
    }
}

#[cfg(test)]
mod tests;

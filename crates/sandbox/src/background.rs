//! Commands that run in the background, longer than the call that started them.
//!
//! They belong to their session, and end with it: when it is deleted, when its engine stops, and when the process ends,
//! whatever ends it. One that has ended can still be read until then.

mod command;
mod recent;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use thiserror::Error;

use crate::process::{self, Input, ProcessError, Scope, Spec};
pub use command::{BackgroundCommand, CutCopy, OutputCopy, Reading, State, WriteError};

/// Commands of a session that have ended and can still be read.
const KEPT: usize = 16;

/// The id of the command that a session started last, beside its own.
const LAST: &str = "last";

/// The commands of all sessions of an engine. They end with it.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    table: Arc<Table>,
}

struct Table {
    scope: Scope,
    /// In the ids of its commands, so that one of an earlier run is known as such.
    run: String,
    /// Those in which a command ran, by id.
    sessions: Mutex<HashMap<Arc<str>, Arc<Session>>>,
}

struct Session {
    scope: Scope,
    commands: Mutex<Commands>,
}

#[derive(Default)]
struct Commands {
    /// How many there were.
    count: u64,
    /// Room that is taken by commands that are being started.
    starting: usize,
    /// The oldest first.
    known: Vec<BackgroundCommand>,
    /// Nothing starts any more.
    closed: bool,
}

/// Why a command was not started in the background.
#[derive(Debug, Error)]
pub enum BackgroundError {
    /// There are too many that run.
    #[error("{live} commands run in the background, and no more than {most} may: end one of them first ({})", .ids.join(", "))]
    TooMany {
        /// How many run.
        live: usize,
        /// How many may.
        most: usize,
        /// Those that run.
        ids: Vec<String>,
    },
    /// The session ends.
    #[error("the session ends, so nothing is started any more")]
    Closed,
    /// It did not start.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// Why there is no command of this id.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unknown {
    /// Another run of the engine had started it.
    #[error("{0} ended with the engine that started it: start it again if it is still needed")]
    EarlierRun(String),
    /// It ended, and others ended after it.
    #[error("{0} has ended, and its output is not remembered any more")]
    Forgotten(String),
    /// There never was one.
    #[error("there is no background command {id:?}; {}", known(.ids))]
    Never {
        /// What was asked for.
        id: String,
        /// Those that there are.
        ids: Vec<String>,
    },
}

fn known(ids: &[String]) -> String {
    if ids.is_empty() {
        return "this session has started none".to_owned();
    }
    format!("there are {}", ids.join(", "))
}

impl Processes {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Those of one session.
    pub fn of(&self, session: &str) -> SessionProcesses {
        SessionProcesses { table: Arc::clone(&self.table), session: session.into() }
    }

    /// The commands that run, each with its session.
    pub fn running(&self) -> Vec<(Arc<str>, BackgroundCommand)> {
        let sessions: Vec<_> = self
            .table
            .sessions
            .lock()
            .iter()
            .map(|(id, session)| (Arc::clone(id), Arc::clone(session)))
            .collect();
        let commands = |(id, session): &(Arc<str>, Arc<Session>)| {
            let known = session.commands.lock().known.clone();
            known.into_iter().map(|command| (Arc::clone(id), command)).collect::<Vec<_>>()
        };
        sessions.iter().flat_map(commands).filter(|(_, command)| command.runs()).collect()
    }

    /// Ends everything that commands of all sessions have started.
    pub async fn end(&self) {
        let sessions: Vec<Arc<Session>> =
            self.table.sessions.lock().drain().map(|(_, session)| session).collect();
        if sessions.is_empty() {
            return;
        }
        futures::future::join_all(sessions.iter().map(|session| session.close())).await;
        process::end_all(&self.table.scope).await;
    }
}

impl Default for Table {
    fn default() -> Self {
        let mut run = process::random();
        run.truncate(6);
        Self { scope: Scope::new(), run, sessions: Mutex::default() }
    }
}

impl Drop for Table {
    /// An engine that was dropped without a shutdown.
    fn drop(&mut self) {
        if !self.sessions.lock().is_empty() {
            process::kill_all_detached(&self.scope);
        }
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("run", &self.run).finish_non_exhaustive()
    }
}

/// The commands of one session.
#[derive(Clone, Debug)]
pub struct SessionProcesses {
    table: Arc<Table>,
    session: Arc<str>,
}

impl SessionProcesses {
    /// The scope of this session's commands. Whoever asks for it runs one: the session's end looks for what is left.
    pub fn scope(&self) -> Scope {
        self.opened().scope.clone()
    }

    /// Starts a command in the background, unless `most` run already. Its scope becomes that of this session. Its output
    /// is remembered as far as it is recent, and goes to `copy` from its beginning on, as long as that takes more.
    ///
    /// # Errors
    /// When too many run, when the session ends, and when it cannot be started.
    pub async fn start(
        &self,
        mut spec: Spec,
        most: usize,
        copy: impl FnOnce(&str) -> Box<dyn OutputCopy>,
    ) -> Result<BackgroundCommand, BackgroundError> {
        let session = self.opened();
        let place = Place::take(&session, most)?;
        spec.scope = session.scope.clone();
        let started = process::start(&spec, Input::Written).await?;
        let mut commands = session.commands.lock();
        if commands.closed {
            // Dropped, it is killed.
            return Err(BackgroundError::Closed);
        }
        commands.count += 1;
        let id = format!("bg_{}_{}", self.table.run, commands.count);
        let copy = copy(&id);
        let command = BackgroundCommand::watch(id, spec.run.shown(), started, copy);
        commands.known.push(command.clone());
        commands.forget_the_oldest();
        drop(commands);
        drop(place);
        Ok(command)
    }

    /// All that run and those that ended last, the oldest first.
    pub fn list(&self) -> Vec<BackgroundCommand> {
        self.existing().map(|session| session.commands.lock().known.clone()).unwrap_or_default()
    }

    /// The command of this id; `last` is the one that was started last.
    ///
    /// # Errors
    /// Why there is none, for the model.
    pub fn find(&self, id: &str) -> Result<BackgroundCommand, Unknown> {
        let known = self.list();
        // Those that go from `known` are older than others that have ended.
        let found = if id == LAST { known.last() } else { known.iter().find(|command| command.id() == id) };
        if let Some(command) = found {
            return Ok(command.clone());
        }
        let ids = known.iter().map(|command| command.id().to_owned()).collect();
        let never = || Unknown::Never { id: id.chars().take(64).collect(), ids };
        let Some((run, number)) = id.strip_prefix("bg_").and_then(|rest| rest.split_once('_')) else {
            return Err(never());
        };
        let is_run = run.len() == self.table.run.len() && run.bytes().all(|byte| byte.is_ascii_hexdigit());
        let Some(number) = number.parse::<u64>().ok().filter(|number| is_run && *number > 0) else {
            return Err(never());
        };
        if run != self.table.run {
            return Err(Unknown::EarlierRun(id.to_owned()));
        }
        let count = self.existing().map_or(0, |session| session.commands.lock().count);
        if number <= count { Err(Unknown::Forgotten(id.to_owned())) } else { Err(never()) }
    }

    /// Ends everything that the session's commands have started, also what they left behind. A session without commands
    /// costs nothing.
    pub async fn end(&self) {
        let session = self.table.sessions.lock().remove(&self.session);
        if let Some(session) = session {
            session.close().await;
            process::end_all(&session.scope).await;
        }
    }

    fn existing(&self) -> Option<Arc<Session>> {
        self.table.sessions.lock().get(&self.session).cloned()
    }

    fn opened(&self) -> Arc<Session> {
        let new = || {
            let scope = self.table.scope.within(&self.session);
            Arc::new(Session { scope, commands: Mutex::default() })
        };
        Arc::clone(self.table.sessions.lock().entry(Arc::clone(&self.session)).or_insert_with(new))
    }
}

impl Session {
    /// Ends those in the background, and starts no more.
    async fn close(&self) {
        let known = {
            let mut commands = self.commands.lock();
            commands.closed = true;
            std::mem::take(&mut commands.known)
        };
        futures::future::join_all(known.iter().map(BackgroundCommand::end)).await;
    }
}

impl Commands {
    fn forget_the_oldest(&mut self) {
        let ended = self.known.iter().filter(|command| !command.runs()).count();
        let mut surplus = ended.saturating_sub(KEPT);
        self.known.retain(|command| {
            let stays = surplus == 0 || command.runs();
            surplus -= usize::from(!stays);
            stays
        });
    }
}

/// Room for one more command.
struct Place<'a>(&'a Session);

impl<'a> Place<'a> {
    fn take(session: &'a Session, most: usize) -> Result<Self, BackgroundError> {
        let mut commands = session.commands.lock();
        if commands.closed {
            return Err(BackgroundError::Closed);
        }
        let running = commands.known.iter().filter(|command| command.runs());
        let ids: Vec<String> = running.map(|command| command.id().to_owned()).collect();
        let live = ids.len() + commands.starting;
        if live >= most {
            return Err(BackgroundError::TooMany { live, most, ids });
        }
        commands.starting += 1;
        Ok(Self(session))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.commands.lock().starting -= 1;
    }
}

#[cfg(test)]
mod tests;

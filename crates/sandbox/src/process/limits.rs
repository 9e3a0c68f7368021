//! The walls against commands that use more than their share: processes, memory, file size, open files, processor time.
//!
//! Processes and memory are bounded for each command and for each session with all of its commands, by the first of
//! these that works here:
//!
//! 1. Control groups: one for each session, and in it one for each command. The kernel keeps their limits. Processes and
//!    memory are looked at apart, since a machine may offer only one of them.
//! 2. Limits of processes (`setrlimit`), set before the command begins. For memory that is what one process may allocate.
//!    For tasks (`RLIMIT_NPROC`) the kernel keeps them for all users but root, and counts all tasks of the user: so it
//!    stands above those that there are when the command starts, and a root engine gives its commands a user of their
//!    session's own where it can ([`own_user`]). The guard watches beside it.
//! 3. The guard: a thread that watches how many tasks there are, and ends a command that has too many.
//!
//! File size, open files and processor time are limits of each process, always.
//!
//! A task is a process or a thread: that is what the kernel counts. A command that goes beyond its limit of tasks or of
//! memory is ended.

mod bound;
mod cgroup;
#[cfg(target_os = "linux")]
mod guard;
#[cfg(target_os = "linux")]
mod own_user;
mod rlimit;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use super::mark::Scope;
use super::watchdog;
pub use bound::{Bound, LimitsInForce};
pub(super) use cgroup::CommandGroup;
use cgroup::Groups;
pub use rlimit::raise_open_files;

/// Fewer tasks are never asked for: a shell with a pipe must fit.
const FEWEST_TASKS: u32 = 8;
/// Less memory is never asked for, in bytes: a shell must fit.
const LEAST_MEMORY: u64 = 32 << 20;
/// How much more than one command a session may use with all of its commands, unless it is said otherwise.
const COMMANDS_WORTH: u32 = 4;

/// What a command may use, and a session with all of its commands. What keeps to it can be asked: [`limits_in_force`].
///
/// ```
/// use playhouse_sandbox::process::Limits;
///
/// let small = Limits { tasks: 64, memory: Some(1 << 30), ..Limits::default() };
/// assert_eq!((small.of_session().tasks, small.of_session().memory), (256, Some(4 << 30)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many processes and threads a command may have at once; fewer than 8 count as 8.
    pub tasks: u32,
    /// How much memory a command may use, in bytes, swapped-out memory included; less than 32 MB counts as 32 MB. Without
    /// a control group for it: how much each of its processes may allocate.
    pub memory: Option<u64>,
    /// How large a file may become that a process writes to, in bytes.
    pub file_size: Option<u64>,
    /// How many files each process may have open.
    pub open_files: Option<u64>,
    /// For how long each process may use a processor, in seconds.
    pub cpu_seconds: Option<u64>,
    /// How many processes and threads the commands of a session may have together; four times `tasks` where it is `None`.
    pub session_tasks: Option<u32>,
    /// How much memory they may use together, in bytes; four times `memory` where it is `None`.
    pub session_memory: Option<u64>,
}

/// Enough for a build on a large machine.
impl Default for Limits {
    fn default() -> Self {
        Self {
            tasks: 2048,
            memory: Some(16 << 30),
            file_size: Some(16 << 30),
            open_files: Some(65_536),
            cpu_seconds: Some(4 * 60 * 60),
            session_tasks: None,
            session_memory: None,
        }
    }
}

/// What several commands may use together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// How many processes and threads.
    pub tasks: u32,
    /// How much memory, in bytes.
    pub memory: Option<u64>,
}

impl Limits {
    /// What the commands of a session may use together.
    pub fn of_session(&self) -> Share {
        let command = self.of_command();
        let memory = command.memory.map(|memory| memory.saturating_mul(COMMANDS_WORTH.into()));
        Share {
            tasks: self
                .session_tasks
                .unwrap_or(command.tasks.saturating_mul(COMMANDS_WORTH))
                .max(FEWEST_TASKS),
            memory: self.session_memory.map(|memory| memory.max(LEAST_MEMORY)).or(memory),
        }
    }

    /// What one command may use, of what can be bounded for several processes together.
    fn of_command(&self) -> Share {
        let memory = self.memory.map(|memory| memory.max(LEAST_MEMORY));
        Share { tasks: self.tasks.max(FEWEST_TASKS), memory }
    }
}

/// What holds commands here. Finds it out, which blocks for some milliseconds, when no command was run before.
pub fn limits_in_force() -> LimitsInForce {
    let wall = wall();
    let group = |bounds: fn(cgroup::Controllers) -> bool| {
        let hierarchy = wall.groups.as_ref()?.bounding(bounds)?;
        Some(Bound::ControlGroup { folder: hierarchy.0.to_owned(), version: hierarchy.1 })
    };
    let tasks = || match wall.without {
        Without::User => Bound::UserLimit,
        Without::OwnUser => Bound::OwnUser,
        Without::Guard => Bound::Watched,
        Without::Nothing => Bound::Nothing,
    };
    LimitsInForce {
        tasks: group(|controllers| controllers.tasks).unwrap_or_else(tasks),
        memory: group(|controllers| controllers.memory).unwrap_or(Bound::EachProcess),
        file_size: Bound::EachProcess,
        open_files: Bound::EachProcess,
        cpu_seconds: Bound::EachProcess,
        outlives: watchdog::ensure(&wall.folders()).err(),
    }
}

/// What bounds commands.
#[derive(Clone, Debug)]
pub(super) struct Wall {
    groups: Option<Arc<Groups>>,
    /// What bounds tasks where no group does.
    without: Without,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    User,
    OwnUser,
    Guard,
    Nothing,
}

/// That of this process. Blocks when it was not asked for before.
pub(super) fn wall() -> &'static Wall {
    static WALL: OnceLock<Wall> = OnceLock::new();
    WALL.get_or_init(|| {
        let groups = Groups::find();
        if let Err(reason) = &groups {
            tracing::debug!(%reason, "there is no control group for commands");
        }
        let groups = groups.ok().map(Arc::new);
        let bounded = groups.as_ref().is_some_and(|groups| groups.controllers().tasks);
        // Finding out what else there is takes time.
        let without = if bounded { Without::usual() } else { Without::best() };
        Wall { groups, without }
    })
}

/// The folders of the control groups of this run, if commands have any.
#[cfg(target_os = "linux")]
pub(super) fn folders() -> Vec<PathBuf> {
    wall().folders()
}

/// The control groups of commands of a scope that ended and left processes behind.
pub(super) fn groups_within(scope: &Scope) -> Vec<Arc<CommandGroup>> {
    wall().groups.as_ref().map(|groups| groups.within(scope)).unwrap_or_default()
}

impl Without {
    fn usual() -> Self {
        match (cfg!(target_os = "linux"), rustix::process::getuid().is_root()) {
            (false, _) => Self::Nothing,
            (true, false) => Self::User,
            (true, true) => Self::Guard,
        }
    }

    fn best() -> Self {
        let usual = Self::usual();
        #[cfg(target_os = "linux")]
        if usual == Self::Guard {
            match own_user::try_out() {
                Ok(()) => return Self::OwnUser,
                Err(reason) => tracing::debug!(%reason, "commands get no user of their own"),
            }
        }
        usual
    }
}

impl Wall {
    /// The folders of the control groups of this run.
    pub(super) fn folders(&self) -> Vec<PathBuf> {
        self.groups.as_ref().map(|groups| groups.folders()).unwrap_or_default()
    }

    /// What bounds one command. Blocks for a moment.
    pub(super) fn hold(&self, command: &Scope, limits: &Limits) -> Hold {
        let group = self.groups.as_ref().and_then(|groups| match groups.command(command, limits) {
            Ok(group) => Some(Arc::new(group)),
            Err(error) => {
                tracing::warn!(%error, "a command has no control group, so it is watched instead");
                None
            }
        });
        let bounded = group.as_ref().map(|group| group.controllers()).unwrap_or_default();
        let steps = rlimit::steps(limits, !bounded.memory);
        let hold = Hold { group, steps, ..Hold::default() };
        if bounded.tasks { hold } else { self.without.bound(hold, command, limits) }
    }
}

impl Without {
    #[cfg(target_os = "linux")]
    fn bound(self, hold: Hold, command: &Scope, limits: &Limits) -> Hold {
        let most = limits.of_command().tasks;
        // Some more than the guard lets through, so that the guard finds out whose fault it is.
        let above = |there: u64| there + u64::from(most) + u64::from(most / 4);
        let watched = Some(Arc::new(guard::watch(command, most)));
        match self {
            Self::Nothing => hold,
            Self::Guard => Hold { watched, ..hold },
            Self::User => {
                let user = rustix::process::getuid().as_raw();
                let user_limit = Some(above(super::tree::tasks_of_user(user)));
                Hold { user_limit, watched, ..hold }
            }
            Self::OwnUser => {
                let user = own_user::of(&command.parent());
                let together = u64::from(limits.of_session().tasks);
                let user_limit = Some(above(super::tree::tasks_of_user(user)).min(together));
                Hold { user_limit, own_user: Some(user), watched, ..hold }
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn bound(self, hold: Hold, _command: &Scope, _limits: &Limits) -> Hold {
        hold
    }
}

/// A program with its arguments that goes over into the one that follows them, as the user of a session's own.
#[cfg(all(test, target_os = "linux"))]
pub(super) fn words_of_own_user(session: &Scope) -> Option<Vec<OsString>> {
    own_user::words(own_user::of(session))
}

/// What a command used too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    Tasks,
    Memory,
}

/// What bounds one command. Clones are the same hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Hold {
    group: Option<Arc<CommandGroup>>,
    /// Limits of each process, as words for the prelude.
    steps: Vec<String>,
    /// How many tasks the user may have, theirs included.
    user_limit: Option<u64>,
    /// The user as which it runs, where that is another than this process's.
    own_user: Option<u32>,
    #[cfg(target_os = "linux")]
    watched: Option<Arc<guard::Watched>>,
}

impl Hold {
    /// The control group, where there is one.
    pub(super) fn group(&self) -> Option<&Arc<CommandGroup>> {
        self.group.as_ref()
    }

    /// Whether the command wanted more than it may have, and of what. A look at two small files at most.
    pub(super) fn broken(&self) -> Option<Broken> {
        #[cfg(target_os = "linux")]
        if self.watched.as_ref().is_some_and(|watched| watched.is_over()) {
            return Some(Broken::Tasks);
        }
        self.group.as_ref()?.broken()
    }

    /// What comes before the words of a command, so that it is bounded before it begins: arguments of a POSIX shell, which
    /// goes over into the program that follows them. `None` when nothing has to be done.
    pub(super) fn prelude(&self) -> Option<Vec<OsString>> {
        let joined = self.group.iter().flat_map(|group| group.members_files()).map(OsString::from);
        let limits = self.steps.iter().map(OsString::from);
        let user_limit = self.user_limit.iter().flat_map(|limit| ["-u".into(), limit.to_string().into()]);
        let mut steps = joined.chain(limits).chain(user_limit).peekable();
        steps.peek()?;
        let first = ["-c".into(), PRELUDE.into(), "playhouse".into()];
        let words = first.into_iter().chain(steps).chain([OsString::new()]);
        Some(words.collect())
    }

    /// A program with its arguments that goes over into the one that follows them, as the user of the command's own; `None`
    /// when it has none. It must come after what needs root, such as bubblewrap.
    pub(super) fn user_words(&self) -> Option<Vec<OsString>> {
        #[cfg(target_os = "linux")]
        return self.own_user.and_then(own_user::words);
        #[cfg(not(target_os = "linux"))]
        None
    }
}

/// Takes steps up to an empty word: a path is that of a group to get into, an option with a value a limit. `-u` is what
/// most shells call the limit of processes, `-p` what dash and busybox do. A limit that is not known stays as it is; a
/// group that cannot be entered ends the command, since nothing else would hold it.
const PRELUDE: &str = r#"while [ -n "$1" ]; do
    case $1 in
    /*) { echo $$ > "$1"; } 2>/dev/null || { echo "the command's control group is gone, so it was not run" >&2; exit 126; }
        shift ;;
    -u) { ulimit -u "$2" || ulimit -p "$2"; } 2>/dev/null
        shift 2 ;;
    *)  ulimit "$1" "$2" 2>/dev/null
        shift 2 ;;
    esac
done
shift
exec "$@""#;

#[cfg(test)]
mod tests;

//! The wall against commands that make processes without end.
//!
//! The first of these that works here:
//!
//! 1. A control group for each command, with a limit of tasks that the kernel keeps.
//! 2. The user's limit of tasks (`RLIMIT_NPROC`), which the kernel keeps for all users but root. It counts all tasks of
//!    the user, so it stands above those that there are when the command starts. The guard watches beside it.
//! 3. The guard: a thread that watches how many tasks there are, and ends a command that has too many.
//!
//! A task is a process or a thread: that is what the kernel counts. A command that goes beyond its limit is ended.

mod cgroup;
#[cfg(target_os = "linux")]
mod guard;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::mark::Scope;
use super::watchdog;
pub(super) use cgroup::CommandGroup;
use cgroup::Groups;

/// Fewer tasks are never asked for: a shell with a pipe must fit.
const FEWEST_TASKS: u32 = 8;

/// What holds commands here. See [`limits_in_force`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsInForce {
    /// What bounds the tasks of a command.
    pub tasks: TaskLimit,
    /// Why commands outlive this process when it is killed; `None` when they do not.
    pub outlives: Option<String>,
}

/// What bounds the processes and threads of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskLimit {
    /// A control group for each command.
    ControlGroup {
        /// The folder that holds those of this process.
        folder: PathBuf,
        /// The version of control groups: 1 or 2.
        version: u8,
    },
    /// The user's limit, and a watch that ends what comes near it.
    UserLimit,
    /// A watch that ends a command that has too many.
    Watched,
    /// Nothing, since there is no `/proc`.
    Nothing,
}

impl fmt::Display for TaskLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ControlGroup { folder, version } => {
                write!(f, "control groups (version {version}) in {}", folder.display())
            }
            Self::UserLimit => f.write_str("the user's limit of processes"),
            Self::Watched => f.write_str("a watch over the number of processes"),
            Self::Nothing => f.write_str("nothing"),
        }
    }
}

/// What holds commands here: what bounds their number of processes, and whether they end with this process. Finds it out,
/// which blocks for some milliseconds, when no command was run before.
pub fn limits_in_force() -> LimitsInForce {
    let wall = wall();
    let tasks = match wall {
        Wall::Groups(groups) => {
            TaskLimit::ControlGroup { folder: groups.folder().to_owned(), version: groups.version() }
        }
        Wall::User => TaskLimit::UserLimit,
        Wall::Guard => TaskLimit::Watched,
        Wall::Nothing => TaskLimit::Nothing,
    };
    LimitsInForce { tasks, outlives: watchdog::ensure(wall.folder()).err() }
}

/// What bounds commands.
#[derive(Clone, Debug)]
pub(super) enum Wall {
    Groups(Arc<Groups>),
    User,
    Guard,
    Nothing,
}

/// That of this process. Blocks when it was not asked for before.
pub(super) fn wall() -> &'static Wall {
    static WALL: OnceLock<Wall> = OnceLock::new();
    WALL.get_or_init(|| {
        let found = Groups::find();
        match found {
            Ok(groups) => Wall::Groups(Arc::new(groups)),
            Err(reason) => {
                let wall = Wall::without_groups();
                tracing::debug!(%reason, ?wall, "there is no control group for commands");
                wall
            }
        }
    })
}

/// The control groups of commands of a scope that ended and left processes behind.
pub(super) fn groups_within(scope: &Scope) -> Vec<Arc<CommandGroup>> {
    match wall() {
        Wall::Groups(groups) => groups.within(scope),
        _ => Vec::new(),
    }
}

impl Wall {
    fn without_groups() -> Self {
        match (cfg!(target_os = "linux"), rustix::process::getuid().is_root()) {
            (false, _) => Self::Nothing,
            (true, false) => Self::User,
            (true, true) => Self::Guard,
        }
    }

    pub(super) fn folder(&self) -> Option<&Path> {
        match self {
            Self::Groups(groups) => Some(groups.folder()),
            _ => None,
        }
    }

    /// What bounds one command, with `most` tasks. Blocks for a moment.
    pub(super) fn hold(&self, command: &Scope, most: u32) -> Hold {
        let most = most.max(FEWEST_TASKS);
        if let Self::Groups(groups) = self {
            match groups.command(command, most) {
                Ok(group) => return Hold { group: Some(Arc::new(group)), ..Hold::default() },
                Err(error) => {
                    tracing::warn!(%error, "a command has no control group, so it is watched instead");
                }
            }
        }
        match self {
            Self::Nothing => Hold::default(),
            #[cfg(target_os = "linux")]
            Self::User => {
                // Some more than the guard lets through, so that the guard finds out whose fault it is.
                let user_limit = super::tree::tasks_of_user() + u64::from(most) + u64::from(most / 4);
                let watched = Some(Arc::new(guard::watch(command, most)));
                Hold { user_limit: Some(user_limit), watched, group: None }
            }
            #[cfg(target_os = "linux")]
            _ => Hold { watched: Some(Arc::new(guard::watch(command, most))), ..Hold::default() },
            #[cfg(not(target_os = "linux"))]
            _ => Hold::default(),
        }
    }
}

/// What bounds one command. Clones are the same hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Hold {
    group: Option<Arc<CommandGroup>>,
    /// How many tasks the user may have, theirs included.
    user_limit: Option<u64>,
    #[cfg(target_os = "linux")]
    watched: Option<Arc<guard::Watched>>,
}

impl Hold {
    /// The control group, where there is one.
    pub(super) fn group(&self) -> Option<&Arc<CommandGroup>> {
        self.group.as_ref()
    }

    /// Whether the command wanted more tasks than it may have. A look at one small file at most.
    pub(super) fn is_over(&self) -> bool {
        #[cfg(target_os = "linux")]
        if self.watched.as_ref().is_some_and(|watched| watched.is_over()) {
            return true;
        }
        self.group.as_ref().is_some_and(|group| group.was_full())
    }

    /// What comes before the words of a command, so that it is bounded before it begins: a program with its arguments,
    /// which goes over into the one that follows them.
    pub(super) fn prelude(&self) -> Option<Vec<std::ffi::OsString>> {
        if self.group.is_none() && self.user_limit.is_none() {
            return None;
        }
        let group = self.group.as_ref().map(|group| group.members_file()).unwrap_or_default();
        let limit = self.user_limit.map(|limit| limit.to_string()).unwrap_or_default();
        Some(vec!["-c".into(), PRELUDE.into(), "playhouse".into(), group.into(), limit.into()])
    }
}

/// `-u` is what most shells call the limit of processes, `-p` what dash and busybox do. A command that cannot be bounded
/// runs all the same: it is still ended as a whole.
const PRELUDE: &str = r#"{
[ -z "$1" ] || echo $$ > "$1"
[ -z "$2" ] || ulimit -u "$2" || ulimit -p "$2"
} 2>/dev/null
shift 2
exec "$@""#;

#[cfg(test)]
mod tests;

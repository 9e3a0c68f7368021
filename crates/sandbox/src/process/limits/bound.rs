//! What bounds commands here, for those who ask.

use std::fmt;
use std::path::PathBuf;

/// What holds commands here. See [`limits_in_force`](super::limits_in_force). Shown, it has a line for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsInForce {
    /// What bounds the processes and threads of a command.
    pub tasks: Bound,
    /// What bounds its memory.
    pub memory: Bound,
    /// What bounds how large its files become.
    pub file_size: Bound,
    /// What bounds how many files it has open.
    pub open_files: Bound,
    /// What bounds for how long it uses a processor.
    pub cpu_seconds: Bound,
    /// Why commands outlive this process when it is killed; `None` when they do not.
    pub outlives: Option<String>,
}

/// What keeps to a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A control group for each command, in one for each session: the kernel counts all of their processes together.
    ControlGroup {
        /// The folder that holds those of this process.
        folder: PathBuf,
        /// The version of control groups: 1 or 2.
        version: u8,
    },
    /// A limit of each process: nothing counts them together.
    EachProcess,
    /// The user's limit of tasks, and a watch that ends a command before it comes there.
    UserLimit,
    /// The same, for a user that each session has of its own, since root has no such limit.
    OwnUser,
    /// A watch that ends a command that has too many tasks. One that makes them faster than they are counted gets far
    /// beyond its limit before.
    Watched,
    /// Nothing.
    Nothing,
}

impl Bound {
    /// Whether it holds for the commands of a session together as well, and not for each alone only.
    pub fn is_per_session(&self) -> bool {
        matches!(self, Self::ControlGroup { .. } | Self::OwnUser)
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ControlGroup { folder, version } => {
                write!(
                    f,
                    "control groups (version {version}) in {}, for each command and each session",
                    folder.display()
                )
            }
            Self::EachProcess => f.write_str("a limit of each process"),
            Self::UserLimit => f.write_str("the user's limit of processes and a watch, for each command"),
            Self::OwnUser => {
                f.write_str("the limit of processes of a user of each session's own, and a watch")
            }
            Self::Watched => {
                f.write_str("a watch over the number of processes, which a fork bomb may outrun for a while")
            }
            Self::Nothing => f.write_str("nothing"),
        }
    }
}

impl fmt::Display for LimitsInForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outlives = match &self.outlives {
            None => "with this process, also when it is killed".to_owned(),
            Some(reason) => format!("not when this process is killed: {reason}"),
        };
        writeln!(f, "processes: {}", self.tasks)?;
        writeln!(f, "memory: {}", self.memory)?;
        writeln!(f, "file size: {}", self.file_size)?;
        writeln!(f, "open files: {}", self.open_files)?;
        writeln!(f, "processor time: {}", self.cpu_seconds)?;
        write!(f, "end of commands: {outlives}")
    }
}

//! How programs run: within walls and limits, with their whole process tree, and in the background.
//!
//! This is the one place where Playhouse starts programs for sessions. It knows nothing of workspaces but a directory that
//! they are held to.
//!
//! - [`process`]: commands and programs, their output and their end
//! - [`Walls`]: what holds the programs of a session
//! - [`Processes`]: commands that run in the background
//! - [`folder`] and [`held`]: directories that are held open, and looked at without following a link
//! - [`blocking()`]: work that may block

mod background;
mod blocking;
pub mod folder;
pub mod held;
pub mod process;
pub mod walls;

pub use background::{
    BackgroundCommand, BackgroundError, CutCopy, OutputCopy, Processes, Reading, SessionProcesses, State,
    Unknown, WriteError,
};
pub use blocking::{blocking, try_blocking};
pub use held::DirectoryError;
pub use walls::{Walls, WallsError, WallsSpec};

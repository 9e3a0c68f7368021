//! What tools stand on: the directory that a session works in, guarded ways into it, and supervised processes.
//!
//! A workspace is never trusted: what it holds may come from anyone, and may change while a call runs. So a path is
//! handled twice. First [`Workspace::resolve`] follows its links and says where it leads, which is what policy judges.
//! Then the [`door`] opens that place, and fails if a link was put into the way since.
//!
//! - [`Workspace`] and [`Resolved`]: the boundary, and a path within or outside of it
//! - [`door`]: opens, lists and writes files at resolved paths; never waits for a pipe, never follows a link
//! - [`follow_within`]: where a path leads, without a look at what lies outside
//! - [`ContentHash`] and [`FileTracker`]: what a session has seen of a file, to notice that others changed it
//! - [`PathLocks`]: calls that change the same files take turns
//! - [`Pool`]: where blocking work runs
//! - [`at_once`]: looks at files where nothing may block
//! - [`Processes`]: commands that run in the background
//! - [`Walls`]: what holds the programs of a session
//! - [`repository`]: what git says of a workspace that nobody vouches for
//! - [`process`]: commands with their whole process tree, their output and their end
//!
//! ```
//! use playhouse_policy::Zone;
//! use playhouse_workspace::{Workspace, door};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let workspace = Workspace::open(folder.path(), folder.path().with_extension("outputs"))?;
//!
//! let notes = workspace.resolve("docs/notes.txt")?;
//! assert_eq!((notes.zone, notes.shown.as_str()), (Zone::Workspace, "docs/notes.txt"));
//! door::create_parents(&notes)?;
//! door::write_atomic(&notes, b"hello", door::Expected::Nothing)?;
//!
//! let elsewhere = workspace.resolve("docs/../../../etc/passwd")?;
//! assert_eq!(elsewhere.zone, Zone::Outside);
//! # Ok(())
//! # }
//! ```

mod at_once;
mod background;
pub mod door;
mod folder;
mod guarded;
mod hash;
mod locks;
mod pool;
pub mod process;
pub mod repository;
mod resolve;
mod root;
mod tracker;
pub mod walls;
mod within;

pub use at_once::{Reader, at_once, would_wait, would_wait_for};
pub use background::{
    BackgroundCommand, BackgroundError, MOST_SAVED, MOST_SAVED_IN_ALL, Processes, Reading, SessionProcesses,
    State, Unknown, WriteError,
};
pub use hash::{ContentHash, hash};
pub use locks::{PathGuard, PathLocks};
pub use pool::{Pool, blocking};
pub use resolve::{PathError, Resolved};
pub use root::{Workspace, WorkspaceError};
pub use tracker::FileTracker;
pub use walls::{Walls, WallsError, WallsSpec};
pub use within::{Strayed, follow_within};

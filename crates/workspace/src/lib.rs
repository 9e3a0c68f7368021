//! What tools stand on: the directory that a session works in, and guarded ways into it. Programs run by `playhouse-sandbox`.
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
//! - [`repository`]: what git says of a workspace that nobody vouches for
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
pub mod door;
mod guarded;
mod hash;
mod locks;
mod pool;
pub mod repository;
mod resolve;
mod root;
mod state;
mod tracker;
pub mod tree;
mod within;

pub use at_once::{Reader, at_once, would_wait, would_wait_for};
pub use hash::{ContentHash, hash, hash_of};
pub use locks::{PathGuard, PathLocks};
pub use pool::Pool;
pub use resolve::{PathError, Resolved};
pub use root::{Workspace, WorkspaceError};
pub use state::{Doubtful, FileState, FileWrite, FolderWrite, LARGEST_KEPT, LINK, TYPE, folder_mode};
pub use tracker::FileTracker;
pub use within::{Strayed, follow_within};

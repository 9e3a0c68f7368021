//! The walls around the programs of a session.
//!
//! A policy decides which commands run; walls hold those that it let through, also when it was wrong. They are built of
//! what the machine has:
//!
//! 1. bubblewrap: the programs see a machine that is built up from nothing ([`WallsSpec`] says of what), with processes,
//!    users, a network and names of their own. It ends with the engine.
//! 2. Landlock, where bubblewrap does not work: the same files, but much else of the machine is seen. A program that has
//!    named itself with [`set_confiner`] is needed for that.
//!
//! With both, a filter denies system calls that only serve to get out, and no program gains rights by starting another.
//! [`Walls::in_force`] says what holds. What no walls hold are faults of the kernel itself.
//!
//! Building takes some milliseconds, and a folder on disk. So a session has [`Walls::when_needed`], which are built by its
//! first command, or by the first that asks what holds.

mod arrange;
mod bubblewrap;
#[cfg(target_os = "linux")]
mod confine;
#[cfg(target_os = "linux")]
mod filter;
mod folders;
pub mod git;
mod probe;
mod system;
mod toolchain;
mod view;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use playhouse_protocol::walls::{Sandbox, Strength, WallsAllowed, WallsInForce};
use thiserror::Error;

use crate::held::{DirectoryError, check};
use crate::process::Environment;
#[cfg(target_os = "linux")]
pub use confine::{CONFINE, ConfineError, confined, set_confiner};
pub use folders::remove_leftovers;
use probe::Bubblewrap;
pub use probe::without_bubblewrap;
use toolchain::Surroundings;
use view::View;

/// What walls are built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WallsSpec {
    /// Whether there must be walls.
    pub sandbox: Sandbox,
    /// What they let through beside the rest of this.
    pub allowed: WallsAllowed,
    /// The session's directory: absolute, links resolved.
    pub workspace: PathBuf,
    /// The folder of the session's saved outputs, which may be read. It may not exist yet.
    pub output: PathBuf,
    /// Those of the sessions whose conversation it shares: its own names files in them. What is not there is not seen.
    pub shared: Vec<PathBuf>,
    /// What programs see as their HOME, with their caches. It may not exist yet.
    pub home: PathBuf,
    /// What they never see, wherever it lies: the engine's own directories and files.
    pub hidden: Vec<PathBuf>,
    /// Directories of the operator's below which the git directory of a worktree or a submodule may lie.
    pub roots: Vec<PathBuf>,
}

/// Why there are no walls.
#[derive(Debug, Error)]
pub enum WallsError {
    /// None can be built on this machine, and some are required.
    #[error("commands cannot be held here, and `sandbox = \"required\"`: {0}")]
    Missing(String),
    /// The workspace is no longer the directory that it was.
    #[error(transparent)]
    Workspace(#[from] DirectoryError),
}

/// What walls are built of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Material {
    /// A view that is built up from nothing, with namespaces of its own.
    Bubblewrap,
    /// Rules that the kernel keeps for a program that confines itself: weaker.
    Landlock,
}

impl Material {
    /// All of them, the best first.
    pub const ALL: [Self; 2] = [Self::Bubblewrap, Self::Landlock];
}

/// The walls around the programs of one session. Clones are the same walls; a `/tmp` of their own goes with the last.
#[derive(Clone, Debug)]
pub struct Walls(Arc<Lazy>, Arc<[PathBuf]>);

#[derive(Debug)]
struct Lazy {
    built: OnceLock<Built>,
    /// What they are built from, where they were not from the beginning.
    plan: Option<Arc<WallsSpec>>,
    /// Held by whoever builds them.
    building: Mutex<()>,
}

/// Walls that stand.
#[derive(Debug)]
pub(crate) struct Built {
    in_force: WallsInForce,
    of: Of,
}

#[derive(Debug)]
enum Of {
    Nothing,
    Bubblewrap(Bubblewrap, View),
    #[cfg(target_os = "linux")]
    Landlock(View),
}

/// A command within walls.
#[derive(Debug)]
pub(crate) struct Enclosed {
    /// The program and its arguments.
    pub(crate) words: Vec<OsString>,
    /// To be kept until it has ended.
    pub(crate) after: After,
}

/// Removes, when it is dropped, what a command put where git would obey it and where no mount could hold it off.
#[derive(Debug, Default)]
pub(crate) struct After {
    absent: Vec<PathBuf>,
}

impl Drop for After {
    fn drop(&mut self) {
        let is_planted = |path: &&PathBuf| fs_err::symlink_metadata(path).is_ok_and(|facts| !facts.is_dir());
        for path in self.absent.iter().filter(is_planted) {
            tracing::warn!(path = %path.display(), "a command told git to look elsewhere; this is removed");
            if let Err(error) = fs_err::remove_file(path) {
                tracing::warn!(%error, "it could not be removed");
            }
        }
    }
}

impl Walls {
    /// No walls at all.
    pub fn open() -> Self {
        Built::open().into()
    }

    /// Builds walls. Blocks for some milliseconds, more when nothing was built before in this process. Makes the private
    /// HOME and the folder of saved outputs where they are missing.
    ///
    /// # Errors
    /// Walls are required, and this machine has nothing to build them of: with what to install.
    pub fn build(spec: &WallsSpec) -> Result<Self, WallsError> {
        Ok(Built::build(spec)?.into())
    }

    /// Walls that are built, as [`Walls::build`] does it, when something needs them. Blocks where walls are required and
    /// nothing was built before in this process: until it is known what there is to build them of.
    ///
    /// # Errors
    /// Those of [`Walls::build`], which nothing has to be built for.
    pub fn when_needed(spec: &Arc<WallsSpec>) -> Result<Self, WallsError> {
        match spec.sandbox {
            Sandbox::Off => return Ok(Self::open()),
            Sandbox::Required => check_material().map_err(WallsError::Missing)?,
            Sandbox::BestEffort => {}
        }
        let plan = Some(Arc::clone(spec));
        Ok(Self(Arc::new(Lazy { built: OnceLock::new(), plan, building: Mutex::default() }), Arc::default()))
    }

    /// Builds walls of one material, to try out what they hold: [`Walls::build`] takes the best that there is.
    ///
    /// # Errors
    /// They cannot be built here: with the reason.
    pub fn build_of(spec: &WallsSpec, material: Material) -> Result<Self, WallsError> {
        Built::of(spec, material, &[]).map(Self::from).map_err(WallsError::Missing)
    }

    /// The same walls, in which these files of the workspace look empty: for one command. Only where they
    /// [can be hidden](Self::can_hide).
    #[must_use]
    pub fn hiding(&self, files: Vec<PathBuf>) -> Self {
        Self(Arc::clone(&self.0), files.into())
    }

    /// Whether files of the workspace can be hidden from one command. Builds the walls if nothing needed them before, and blocks
    /// for it.
    pub fn can_hide(&self) -> bool {
        self.built().is_ok_and(|built| matches!(built.of, Of::Bubblewrap(..)))
    }

    /// The files that look empty.
    pub(crate) fn hidden(&self) -> &[PathBuf] {
        &self.1
    }

    /// What holds, where it is known without building anything.
    pub fn known(&self) -> Option<&WallsInForce> {
        self.0.built.get().map(|built| &built.in_force)
    }

    /// What holds. Builds the walls if nothing needed them before, and blocks for it.
    ///
    /// # Errors
    /// They cannot be built, or the workspace is not the directory that it was. The next that needs them tries again.
    pub fn in_force(&self) -> Result<&WallsInForce, WallsError> {
        Ok(&self.built()?.in_force)
    }

    /// Whether they stand, and hold that nothing in the workspace is changed.
    pub fn keep_the_workspace(&self) -> bool {
        self.0.built.get().is_some_and(|built| match &built.of {
            Of::Nothing => false,
            Of::Bubblewrap(_, view) => view.allowed().read_only,
            #[cfg(target_os = "linux")]
            Of::Landlock(view) => view.allowed().read_only && confine::keeps_files_whole(),
        })
    }

    /// The walls as they stand. Builds them if nothing needed them before, and blocks for it.
    ///
    /// # Errors
    /// As [`Walls::in_force`] has them.
    pub(crate) fn built(&self) -> Result<&Built, WallsError> {
        let Lazy { built, plan, building } = &*self.0;
        if let Some(built) = built.get() {
            return Ok(built);
        }
        // Others wait here while they are built.
        let _building = building.lock();
        if let Some(built) = built.get() {
            return Ok(built);
        }
        let Some(spec) = plan else {
            return Err(WallsError::Missing("nothing says what they are built from".to_owned()));
        };
        let new = Built::build(spec)?;
        // They looked at what is in it.
        check(&spec.workspace)?;
        Ok(built.get_or_init(|| new))
    }
}

impl From<Built> for Walls {
    fn from(built: Built) -> Self {
        Self(
            Arc::new(Lazy { built: OnceLock::from(built), plan: None, building: Mutex::default() }),
            Arc::default(),
        )
    }
}

/// Whether there is something to build walls of, or why there is nothing.
fn check_material() -> Result<(), String> {
    let Err(bubblewrap) = probe::bubblewrap() else { return Ok(()) };
    match landlock() {
        Ok(()) => Ok(()),
        Err(landlock) => Err(nothing_works(&[bubblewrap, landlock])),
    }
}

/// Whether programs can confine themselves, or why not.
#[cfg(target_os = "linux")]
fn landlock() -> Result<(), String> {
    confine::unavailable().map_or(Ok(()), |reason| Err(reason.to_owned()))
}

#[cfg(not(target_os = "linux"))]
const NO_LANDLOCK: &str = "there is no Landlock on this system";

/// Whether programs can confine themselves, or why not.
#[cfg(not(target_os = "linux"))]
fn landlock() -> Result<(), String> {
    Err(NO_LANDLOCK.to_owned())
}

/// Why there are no walls, and what to do about it.
fn nothing_works(reasons: &[String]) -> String {
    let reasons = reasons.join(", and ");
    format!("{reasons}; install bubblewrap (`apt install bubblewrap`), or let it make namespaces")
}

impl Built {
    fn open() -> Self {
        Self::unheld("commands can do what the engine's user can".to_owned())
    }

    fn unheld(detail: String) -> Self {
        let in_force =
            WallsInForce { strength: Strength::None, by: "none".to_owned(), detail, network: true };
        Self { in_force, of: Of::Nothing }
    }

    fn build(spec: &WallsSpec) -> Result<Self, WallsError> {
        if spec.sandbox == Sandbox::Off {
            return Ok(Self::open());
        }
        match (Self::best(spec), spec.sandbox) {
            (Ok(walls), _) => Ok(walls),
            (Err(reason), Sandbox::Required) => Err(WallsError::Missing(reason)),
            (Err(reason), _) => {
                tracing::warn!(%reason, "commands are not held");
                Ok(Self::unheld(one_line(&format!("commands can do what the engine's user can: {reason}"))))
            }
        }
    }

    fn best(spec: &WallsSpec) -> Result<Self, String> {
        let mut reasons = Vec::new();
        for material in Material::ALL {
            match Self::of(spec, material, &reasons) {
                Ok(walls) => return Ok(walls),
                Err(reason) => reasons.push(reason),
            }
        }
        Err(nothing_works(&reasons))
    }

    /// `better`: why there are no better ones.
    fn of(spec: &WallsSpec, material: Material, better: &[String]) -> Result<Self, String> {
        let view = || {
            View::build(spec, &Surroundings::of_this_process())
                .map_err(|error| format!("what programs need cannot be put together: {error}"))
        };
        let mut lacks: Vec<&str> = better.iter().map(String::as_str).collect();
        Ok(match material {
            Material::Bubblewrap => {
                let program = probe::bubblewrap()?.clone();
                let view = view()?;
                if view.filter().is_none() {
                    lacks.push("system calls are not filtered on this architecture");
                }
                let in_force = in_force("bubblewrap", true, &view, &lacks);
                Self { in_force, of: Of::Bubblewrap(program, view) }
            }
            #[cfg(target_os = "linux")]
            Material::Landlock => {
                landlock()?;
                let view = view()?;
                lacks.extend(confine::missing(&view));
                let in_force = in_force("landlock", false, &view, &lacks);
                Self { in_force, of: Of::Landlock(view) }
            }
            #[cfg(not(target_os = "linux"))]
            Material::Landlock => return Err(NO_LANDLOCK.to_owned()),
        })
    }

    /// Whether the program that stands first is not the command but what holds it, so that its end is the end of all.
    pub(crate) fn have_keeper(&self) -> bool {
        matches!(self.of, Of::Bubblewrap(..))
    }

    /// The directory in which the first of the words of [`Built::around`] has to start: it is held open from before, so that
    /// nothing can be put in its place. Bubblewrap goes from the workspace to `workdir` by itself.
    pub(crate) fn first_directory<'a>(&'a self, workdir: &'a Path) -> &'a Path {
        match &self.of {
            Of::Bubblewrap(_, view) => view.workspace(),
            _ => workdir,
        }
    }

    /// Puts walls around the words of a command. `hidden`: files of the workspace that look empty. `user`: a program that goes over into what follows it as another user.
    /// Blocks for a moment.
    ///
    /// # Errors
    /// When what has to be guarded in the workspace cannot be.
    pub(crate) fn around(
        &self,
        workdir: &Path,
        user: Option<Vec<OsString>>,
        inner: Vec<OsString>,
        hidden: &[PathBuf],
    ) -> io::Result<Enclosed> {
        let (words, absent) = match &self.of {
            Of::Nothing => (user.into_iter().flatten().chain(inner).collect(), Vec::new()),
            Of::Bubblewrap(program, view) => bubblewrap::words(program, view, workdir, user, inner, hidden)?,
            #[cfg(target_os = "linux")]
            Of::Landlock(view) => {
                let words = confine::words(view, user, inner);
                (words.ok_or_else(|| io::Error::other("no program can confine itself"))?, Vec::new())
            }
        };
        Ok(Enclosed { words, after: After { absent } })
    }

    /// The environment of a command within these walls.
    pub(crate) fn environment(&self, environment: &Environment) -> Environment {
        let environment = environment.clone();
        match &self.of {
            Of::Nothing => environment,
            Of::Bubblewrap(_, view) => {
                let set = |environment: Environment, (name, value): &(&str, OsString)| {
                    environment.with(name, value)
                };
                view.variables().iter().fold(environment.without("GOPATH"), set)
            }
            #[cfg(target_os = "linux")]
            Of::Landlock(view) => {
                let environment = environment
                    .without("GOPATH")
                    .with("HOME", view.home())
                    .with("TMPDIR", view.temporary())
                    .with("CARGO_HOME", view.home().join(".cargo"));
                // Without RUSTUP_HOME, rustup looks for toolchains in the private HOME.
                match view.variables().iter().find(|(name, _)| *name == "RUSTUP_HOME") {
                    Some((name, value)) => environment.with(name, value),
                    None => environment,
                }
            }
        }
    }
}

fn in_force(by: &str, full: bool, view: &View, lacks: &[&str]) -> WallsInForce {
    let strength = if full && lacks.is_empty() { Strength::Full } else { Strength::Weaker };
    let mut detail = view.describe(full);
    if !lacks.is_empty() {
        detail.push_str("; weaker: ");
        detail.push_str(&lacks.join("; "));
    }
    let network = view.allowed().network;
    WallsInForce { strength, by: by.to_owned(), detail: one_line(&detail), network }
}

#[cfg(test)]
mod tests;

/// Paths may hold anything.
fn one_line(text: &str) -> String {
    text.replace(|character: char| character.is_control(), " ")
}

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

mod arrange;
mod bubblewrap;
#[cfg(target_os = "linux")]
mod confine;
#[cfg(target_os = "linux")]
mod filter;
pub(crate) mod git;
mod probe;
mod system;
mod toolchain;
mod view;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use playhouse_protocol::walls::{Sandbox, Strength, WallsAllowed, WallsInForce};
use thiserror::Error;

use crate::process::Environment;
#[cfg(target_os = "linux")]
pub use confine::{CONFINE, ConfineError, confined, set_confiner};
use probe::Bubblewrap;
pub use probe::without_bubblewrap;
use toolchain::Surroundings;
use view::View;

/// What walls are built from.
#[derive(Clone, Debug)]
pub struct WallsSpec {
    /// Whether there must be walls.
    pub sandbox: Sandbox,
    /// What they let through beside the rest of this.
    pub allowed: WallsAllowed,
    /// The session's directory: absolute, links resolved.
    pub workspace: PathBuf,
    /// The folder of the session's saved outputs, which may be read. It may not exist yet.
    pub output: PathBuf,
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
pub struct Walls(Arc<Built>);

#[derive(Debug)]
struct Built {
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
        Self::unheld("commands can do what the engine's user can".to_owned())
    }

    fn unheld(detail: String) -> Self {
        let in_force =
            WallsInForce { strength: Strength::None, by: "none".to_owned(), detail, network: true };
        Self(Arc::new(Built { in_force, of: Of::Nothing }))
    }

    /// Builds walls. Blocks for some milliseconds, more when nothing was built before in this process. Makes the private
    /// HOME and the folder of saved outputs where they are missing.
    ///
    /// # Errors
    /// Walls are required, and this machine has nothing to build them of: with what to install.
    pub fn build(spec: &WallsSpec) -> Result<Self, WallsError> {
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
        let reasons = reasons.join(", and ");
        Err(format!("{reasons}; install bubblewrap (`apt install bubblewrap`), or let it make namespaces"))
    }

    /// Builds walls of one material, to try out what they hold: [`Walls::build`] takes the best that there is.
    ///
    /// # Errors
    /// They cannot be built here: with the reason.
    pub fn build_of(spec: &WallsSpec, material: Material) -> Result<Self, WallsError> {
        Self::of(spec, material, &[]).map_err(WallsError::Missing)
    }

    /// `better`: why there are no better ones.
    fn of(spec: &WallsSpec, material: Material, better: &[String]) -> Result<Self, String> {
        let view = || {
            View::build(spec, &Surroundings::of_this_process())
                .map_err(|error| format!("what programs need cannot be put together: {error}"))
        };
        let mut lacks: Vec<&str> = better.iter().map(String::as_str).collect();
        let built = match material {
            Material::Bubblewrap => {
                let program = probe::bubblewrap()?.clone();
                let view = view()?;
                if view.filter().is_none() {
                    lacks.push("system calls are not filtered on this architecture");
                }
                let in_force = in_force("bubblewrap", true, &view, &lacks);
                Built { in_force, of: Of::Bubblewrap(program, view) }
            }
            #[cfg(target_os = "linux")]
            Material::Landlock => {
                if let Some(reason) = confine::unavailable() {
                    return Err(reason.to_owned());
                }
                let view = view()?;
                lacks.extend(confine::missing(&view));
                let in_force = in_force("landlock", false, &view, &lacks);
                Built { in_force, of: Of::Landlock(view) }
            }
            #[cfg(not(target_os = "linux"))]
            Material::Landlock => return Err("there is no Landlock on this system".to_owned()),
        };
        Ok(Self(Arc::new(built)))
    }

    /// What holds.
    pub fn in_force(&self) -> &WallsInForce {
        &self.0.in_force
    }

    /// Whether the program that stands first is not the command but what holds it, so that its end is the end of all.
    pub(crate) fn have_keeper(&self) -> bool {
        matches!(self.0.of, Of::Bubblewrap(..))
    }

    /// The directory in which the first of the words of [`Walls::around`] has to start: it is held open from before, so that
    /// nothing can be put in its place. Bubblewrap goes from the workspace to `workdir` by itself.
    pub(crate) fn first_directory<'a>(&'a self, workdir: &'a Path) -> &'a Path {
        match &self.0.of {
            Of::Bubblewrap(_, view) => view.workspace(),
            _ => workdir,
        }
    }

    /// Puts walls around the words of a command. `user`: a program that goes over into what follows it as another user.
    /// Blocks for a moment.
    ///
    /// # Errors
    /// When what has to be guarded in the workspace cannot be.
    pub(crate) fn around(
        &self,
        workdir: &Path,
        user: Option<Vec<OsString>>,
        inner: Vec<OsString>,
    ) -> io::Result<Enclosed> {
        let (words, absent) = match &self.0.of {
            Of::Nothing => (user.into_iter().flatten().chain(inner).collect(), Vec::new()),
            Of::Bubblewrap(program, view) => bubblewrap::words(program, view, workdir, user, inner)?,
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
        match &self.0.of {
            Of::Nothing => environment,
            Of::Bubblewrap(_, view) => {
                let set = |environment: Environment, (name, value): &(&str, OsString)| {
                    environment.with(name, value)
                };
                view.variables().iter().fold(environment.without("GOPATH"), set)
            }
            #[cfg(target_os = "linux")]
            Of::Landlock(view) => environment
                .without("GOPATH")
                .with("HOME", view.home())
                .with("TMPDIR", view.temporary())
                .with("CARGO_HOME", view.home().join(".cargo")),
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

//! Walls without namespaces, for machines where bubblewrap does not work: a program of this engine's own confines itself
//! with Landlock and with a filter of system calls, and then goes over into the command.
//!
//! These are weaker: `missing` says what they do not do.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::sync::OnceLock;

use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, PathBeneath, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::bubblewrap::alone;
use super::filter::{self, Sockets};
use super::view::View;
use crate::held;
use crate::process::program;

/// The word by which the program of [`set_confiner`] knows that it is to call [`confined`].
pub const CONFINE: &str = "__confine";

/// Devices that every program may use.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// What is visible beside files.
const PROCESSES: &str = "/proc";
/// The newest rules that are asked for; a kernel that does not know them all takes those that it knows.
const NEWEST: ABI = ABI::V6;
const OTHER_ARCHITECTURE: &str = "system calls cannot be filtered on this architecture";
const NO_LANDLOCK: &str = "the kernel has no Landlock";

static CONFINER: OnceLock<PathBuf> = OnceLock::new();

/// Names the program that can confine itself: one whose `main` calls [`confined`] when its first argument is [`CONFINE`].
/// Without one there are no walls where bubblewrap does not work. Only the first call counts.
pub fn set_confiner(program: PathBuf) {
    // The one that is there is as good.
    let _ = CONFINER.set(program);
}

/// What holds a command, as it is handed to the confiner.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    /// What may be read, and run.
    read: Vec<PathBuf>,
    /// What may be changed as well.
    write: Vec<PathBuf>,
    network: bool,
    /// One of them: a link that stands there by now is not followed.
    #[serde(default)]
    workspace: PathBuf,
}

/// Why a program was not confined, so that the command was not run.
#[derive(Debug, Error)]
pub enum ConfineError {
    /// It was not called by Playhouse.
    #[error("{CONFINE} is called by playhouse itself, with rules and a command: {0}")]
    Arguments(String),
    /// The kernel did not take the rules.
    #[error("the command was not run, since it cannot be confined: {0}")]
    Rules(String),
    /// The command could not be run.
    #[error("{}: {}", .0.display(), .1)]
    Run(PathBuf, std::io::Error),
}

/// What Landlock can hold here: the version of its interface, and 0 when it can hold nothing.
fn version() -> u8 {
    static VERSION: OnceLock<u8> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let all = [ABI::V1, ABI::V2, ABI::V3, ABI::V4, ABI::V5, ABI::V6];
        all.iter().rev().find(|abi| takes(**abi).is_ok()).map_or(0, |abi| *abi as u8)
    })
}

/// Hands the kernel all that a version can hold, without holding anything.
fn takes(abi: ABI) -> Result<(), RulesetError> {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let ruleset = ruleset.handle_access(AccessFs::from_all(abi))?;
    let ruleset = if abi < ABI::V6 { ruleset } else { ruleset.scope(Scope::Signal)? };
    ruleset.create().map(drop)
}

/// Why no walls can be built of this.
pub(super) fn unavailable() -> Option<&'static str> {
    if version() == 0 {
        Some(NO_LANDLOCK)
    } else if CONFINER.get().is_none() {
        Some("this program has not named one that can confine itself with Landlock")
    } else if filter::program(Sockets::Pairs).is_none() {
        Some(OTHER_ARCHITECTURE)
    } else {
        None
    }
}

/// Whether files that can only be read cannot be cut off either.
pub(super) fn keeps_files_whole() -> bool {
    version() >= ABI::V3 as u8
}

/// What these walls do not do.
pub(super) fn missing(view: &View) -> Vec<&'static str> {
    let version = version();
    let all = [
        (true, "other processes are seen, and the names of all files"),
        (true, "/tmp cannot be used, TMPDIR names another folder"),
        (!view.allowed().read_only, ".git/hooks and .git/config can be changed"),
        (view.has_masks(), "what is hidden within visible folders is seen"),
        (view.allowed().network, "sockets of the machine's services can be reached"),
        (version < 6, "processes of the same user can be sent signals"),
        (version < 3, "files that can be read can be cut off"),
    ];
    all.into_iter().filter(|(lacks, _)| *lacks).map(|(_, what)| what).collect()
}

/// The words that run `inner` confined; `None` when no program was named for it. `user` as for bubblewrap: it changes the
/// user before anything is denied.
pub(super) fn words(view: &View, user: Option<Vec<OsString>>, inner: Vec<OsString>) -> Option<Vec<OsString>> {
    let (mut read, write) = view.places();
    read.push(PROCESSES.into());
    let is_text = |path: &PathBuf| path.to_str().is_some();
    read.retain(is_text);
    let workspace = view.workspace().to_owned();
    let rules = Rules { read, write, network: view.allowed().network, workspace };
    let rules = serde_json::to_string(&rules).ok()?;
    let mut words = alone(None, false);
    words.extend(user.into_iter().flatten());
    words.extend([CONFINER.get()?.into(), CONFINE.into(), rules.into(), "--".into()]);
    words.extend(inner);
    Some(words)
}

/// Confines this process for good, and goes over into a command. `arguments` are what follows [`CONFINE`]: rules, `--`, and
/// the command. To be called first in `main`, before there are threads: only the one that calls is confined.
///
/// ```no_run
/// use playhouse_sandbox::walls::{CONFINE, confined};
///
/// let mut arguments = std::env::args_os().skip(1);
/// if arguments.next().is_some_and(|first| first == CONFINE) {
///     let Err(error) = confined(arguments);
///     eprintln!("{error}");
///     std::process::exit(126);
/// }
/// ```
///
/// # Errors
/// When the arguments are others, when the kernel does not take the rules, or the command cannot be run. Nothing was run
/// then.
pub fn confined(arguments: impl IntoIterator<Item = OsString>) -> Result<Infallible, ConfineError> {
    let mut arguments = arguments.into_iter();
    let wrong = |what: &str| ConfineError::Arguments(what.to_owned());
    let rules = arguments.next().ok_or_else(|| wrong("there are no rules"))?;
    let rules = rules.to_str().ok_or_else(|| wrong("the rules are not text"))?;
    let rules: Rules = serde_json::from_str(rules).map_err(|error| wrong(&error.to_string()))?;
    if arguments.next().is_none_or(|word| word != "--") {
        return Err(wrong("no -- follows the rules"));
    }
    let command = arguments.next().ok_or_else(|| wrong("there is no command"))?;
    rules.apply().map_err(ConfineError::Rules)?;
    let error = program(&command).args(arguments).exec();
    Err(ConfineError::Run(command.into(), error))
}

impl Rules {
    fn apply(&self) -> Result<(), String> {
        drop_powers().map_err(|error| format!("its capabilities cannot be dropped: {error}"))?;
        // This also sets `no_new_privs`.
        let workspace = self.hold_workspace()?;
        let status = self.restrict(workspace).map_err(|error| error.to_string())?;
        if status == RulesetStatus::NotEnforced {
            return Err(NO_LANDLOCK.to_owned());
        }
        let sockets = if self.network { Sockets::InNamespace } else { Sockets::Pairs };
        let filter = filter::program(sockets).ok_or(OTHER_ARCHITECTURE)?;
        seccompiler::apply_filter(&filter).map_err(|error| error.to_string())
    }

    /// The workspace, if it is among what may be read or changed.
    fn hold_workspace(&self) -> Result<Option<OwnedFd>, String> {
        let is_named = self.read.iter().chain(&self.write).any(|path| *path == self.workspace);
        let held = is_named.then(|| held::hold(&self.workspace)).transpose();
        held.map_err(|error| format!("the workspace is no longer the directory that it was: {error}"))
    }

    fn restrict(&self, workspace: Option<OwnedFd>) -> Result<RulesetStatus, RulesetError> {
        let (read, all) = (AccessFs::from_read(NEWEST), AccessFs::from_all(NEWEST));
        let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev | AccessFs::Truncate;
        let ruleset = Ruleset::default().handle_access(all)?;
        let ruleset = ruleset.scope(Scope::Signal | Scope::AbstractUnixSocket)?.create()?;
        let of = |paths: &[PathBuf]| -> Vec<PathBuf> {
            paths.iter().filter(|path| **path != self.workspace).cloned().collect()
        };
        let ruleset = ruleset.add_rules(path_beneath_rules(of(&self.read), read))?;
        let mut ruleset = ruleset.add_rules(path_beneath_rules(of(&self.write), all))?;
        if let Some(workspace) = workspace {
            let access = if self.write.contains(&self.workspace) { all } else { read };
            ruleset = ruleset.add_rule(PathBeneath::new(workspace, access))?;
        }
        let ruleset = ruleset.add_rules(path_beneath_rules(DEVICES, device))?;
        Ok(ruleset.restrict_self()?.ruleset)
    }
}

/// Leaves root, and who has been given them, what is needed to work with files of others.
fn drop_powers() -> rustix::io::Result<()> {
    let kept =
        CapabilitySet::CHOWN | CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER | CapabilitySet::FSETID;
    let now = capabilities(None)?;
    let less = CapabilitySets {
        effective: now.effective & kept,
        permitted: now.permitted & kept,
        inheritable: now.inheritable & kept,
    };
    set_capabilities(None, less)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(arguments: &[&str]) -> String {
        let Err(error) = confined(arguments.iter().map(OsString::from));
        error.to_string()
    }

    #[test]
    fn what_playhouse_did_not_say_is_refused_before_anything_is_done() {
        let rules = r#"{"read":[],"write":[],"network":false}"#;
        for (arguments, reason) in [
            (&[][..], "there are no rules"),
            (&["{}", "--", "true"], "missing field"),
            (&[r#"{"read":[],"write":[],"network":false,"more":1}"#, "--", "true"], "unknown field"),
            (&[rules], "no -- follows"),
            (&[rules, "true"], "no -- follows"),
            (&[rules, "--"], "there is no command"),
        ] {
            let said = refusal(arguments);
            assert!(said.contains(reason) && said.starts_with(CONFINE), "{said}");
        }
    }

    #[test]
    fn rules_survive_their_way() {
        let workspace = "/é".into();
        let rules =
            Rules { read: vec!["/a b\n\"".into()], write: vec!["/é".into()], network: true, workspace };
        let text = serde_json::to_string(&rules).unwrap();
        assert_eq!(serde_json::from_str::<Rules>(&text).unwrap(), rules);
    }
}

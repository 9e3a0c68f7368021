//! Marks: how the processes of a command, of a session and of an engine are known among all others.
//!
//! Every command gets a mark in its environment. It begins with a name that this process made up when it ran its first
//! command, so that no other process, and no earlier run of this one, has the same. A mark goes on from the wider to the
//! narrower: run, engine, session, command. So all processes of a session carry marks that begin alike.

use std::ffi::OsString;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::environment;

/// The variable by which a command's processes are known.
pub(super) const NAME: &str = "PLAYHOUSE_COMMAND";
/// Ends each part of a mark, so that `1` is not taken for the beginning of `12`.
const END: char = ':';

/// What a command belongs to. All commands of a scope, with whatever they left behind, can be ended together.
///
/// ```
/// use playhouse_sandbox::process::Scope;
///
/// let engine = Scope::new();
/// let session = engine.within("ses_1");
/// assert!(engine.holds(&session) && !session.holds(&engine));
/// assert!(!engine.holds(&Scope::new()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// Parts with [`END`] after each.
    mark: Arc<str>,
}

impl Scope {
    /// A scope that no other holds.
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Self::run().within(&COUNT.fetch_add(1, Ordering::Relaxed).to_string())
    }

    /// All that this process has started.
    pub(super) fn run() -> Self {
        static RUN: OnceLock<Scope> = OnceLock::new();
        let new = || Self { mark: format!("{}{}{END}", random(), random()).into() };
        RUN.get_or_init(new).clone()
    }

    /// A narrower scope. Characters of `name` beside letters, digits and `_` are written as `_`.
    #[must_use]
    pub fn within(&self, name: &str) -> Self {
        let plain = |character: char| if character.is_ascii_alphanumeric() { character } else { '_' };
        let name: String = name.chars().map(plain).collect();
        Self { mark: format!("{}{name}{END}", self.mark).into() }
    }

    /// Whether `other` is this scope or a part of it.
    pub fn holds(&self, other: &Self) -> bool {
        other.mark.starts_with(&*self.mark)
    }

    /// The scope that has this mark.
    pub(super) fn of_mark(mark: &str) -> Self {
        Self { mark: mark.into() }
    }

    /// The scope of one more command.
    pub(super) fn command(&self) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        self.within(&COUNT.fetch_add(1, Ordering::Relaxed).to_string())
    }

    /// The next wider scope; that of a run is its own.
    pub(super) fn parent(&self) -> Self {
        let inner = self.mark.trim_end_matches(END);
        match inner.rfind(END) {
            Some(end) => Self { mark: self.mark[..=end].into() },
            None => self.clone(),
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.mark
    }

    /// The mark without the name of the run, as it can stand in the name of a folder. Begins with that of a wider scope.
    pub(super) fn folder_name(&self) -> String {
        let (_, rest) = self.mark.split_once(END).unwrap_or_default();
        rest.replace(END, ".")
    }

    /// What a command gets in its environment: its own mark after those of the command in which this process runs, if
    /// it does, so that ending that one ends this one as well.
    pub(super) fn variable(&self) -> OsString {
        let mut value = environment::outer_marks().unwrap_or_default();
        if !value.is_empty() {
            value.push(" ");
        }
        value.push(&*self.mark);
        value
    }

    /// The part that belongs to this scope of an environment as `/proc` shows it: the whole mark.
    pub(super) fn find_in<'a>(&self, environment: &'a [u8]) -> Option<&'a [u8]> {
        let mut variables = environment.split(|byte| *byte == 0);
        let value =
            variables.find_map(|variable| variable.strip_prefix(NAME.as_bytes())?.strip_prefix(b"="))?;
        value.split(|byte| *byte == b' ').find(|mark| mark.starts_with(self.mark.as_bytes()))
    }
}

impl Default for Scope {
    fn default() -> Self {
        Self::new()
    }
}

/// 16 hexadecimal digits that differ from run to run and from call to call.
pub(crate) fn random() -> String {
    // The standard library seeds its hashes from the system.
    format!("{:016x}", RandomState::new().hash_one(std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_whole_and_only_by_its_own_scopes() {
        let engine = Scope::new();
        let session = engine.within("ses_1");
        let command = session.command();
        let environment = format!("A=1\0{NAME}=other:0: {}\0B=2\0", command.as_str()).into_bytes();
        for scope in [&engine, &session, &command, &Scope::run()] {
            assert_eq!(scope.find_in(&environment), Some(command.as_str().as_bytes()));
        }
        for scope in [engine.within("ses_"), engine.within("ses_12"), Scope::new(), session.command()] {
            assert_eq!(scope.find_in(&environment), None, "{scope:?}");
        }
        assert_eq!((command.parent(), session.parent()), (session.clone(), engine.clone()));
        assert_eq!((engine.parent(), Scope::run().parent()), (Scope::run(), Scope::run()));
        assert_eq!(engine.find_in(b""), None);
        assert_eq!(engine.find_in(format!("X{NAME}={}", command.as_str()).as_bytes()), None);
    }

    #[test]
    fn names_are_made_plain() {
        let scope = Scope::new().within("a:b c/../d\0é");
        assert!(scope.as_str().ends_with(":a_b_c____d__:"), "{}", scope.as_str());
        assert!(!scope.folder_name().contains(['/', ':']));
        assert!(scope.command().folder_name().starts_with(&scope.folder_name()));
    }

    #[test]
    fn no_two_runs_have_the_same_name() {
        assert_eq!(random().len(), 16);
        assert_ne!(random(), random());
    }
}

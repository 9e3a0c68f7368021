//! What a command gets of the environment.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use super::mark;

/// Names that are passed down, beside those that begin with `LC_`: where programs and their settings lie, and how to speak
/// to the user. Everything else stays here, since any name may hold a secret.
pub const PASSED_DOWN: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TMPDIR",
    "TZ",
    "LANG",
    "LANGUAGE",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "GOPATH",
    "GOROOT",
    "JAVA_HOME",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// Nobody sits in front of the command: no colours, no pager, no questions.
const UNATTENDED: &[(&str, &str)] =
    &[("TERM", "dumb"), ("PAGER", "cat"), ("GIT_PAGER", "cat"), ("GIT_TERMINAL_PROMPT", "0")];

/// The environment of a command. Built up from a short list of names and never passed down as a whole, so that no key
/// of this process reaches a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
}

impl Environment {
    /// What this process's own environment gives to commands.
    pub fn of_this_process() -> Self {
        Self::of(std::env::vars_os())
    }

    /// What an environment of `variables` gives to commands.
    ///
    /// ```
    /// use playhouse_sandbox::process::Environment;
    ///
    /// let all = [("PATH", "/bin"), ("OPENAI_API_KEY", "secret")].map(|(name, value)| (name.into(), value.into()));
    /// let environment = Environment::of(all);
    /// assert!(environment.variables().any(|(name, _)| name == "PATH"));
    /// assert!(!environment.variables().any(|(_, value)| value == "secret"));
    /// ```
    pub fn of(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let passed = variables.into_iter().filter(|(name, _)| is_passed_down(name));
        let unattended = UNATTENDED.iter().map(|(name, value)| (name.into(), value.into()));
        Self { variables: passed.chain(unattended).collect() }
    }

    /// Nothing at all: for programs that get only what is declared for them.
    pub fn empty() -> Self {
        Self { variables: BTreeMap::new() }
    }

    /// The same with one variable more, or changed.
    #[must_use]
    pub fn with(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// The same with one variable less.
    #[must_use]
    pub fn without(mut self, name: impl AsRef<OsStr>) -> Self {
        self.variables.remove(name.as_ref());
        self
    }

    /// All variables, sorted by name.
    pub fn variables(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.variables.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

impl Environment {
    /// The program that `name` stands for: itself where it is a path, else the first of this name in `PATH`. Asks the disk.
    pub(super) fn find(&self, name: &OsStr) -> Option<PathBuf> {
        if Path::new(name).components().count() != 1 || name.is_empty() {
            return Some(PathBuf::from(name)).filter(|path| !path.as_os_str().is_empty());
        }
        let own = self.variables.get(OsStr::new("PATH"));
        let path = own.cloned().unwrap_or_else(search_path);
        let programs = std::env::split_paths(&path).map(|directory| directory.join(name));
        let mut found = programs.filter(|program| {
            program.is_absolute() && program.is_file() && rustix::fs::access(program, Access::EXEC_OK).is_ok()
        });
        found.next()
    }
}

/// The longest list of marks that is taken over, in bytes: far more than any nesting that makes sense.
const MAX_MARKS: usize = 4096;

/// The marks of the command in which this process runs, where it was started by one.
pub(super) fn outer_marks() -> Option<OsString> {
    std::env::var_os(mark::NAME).filter(|marks| marks.len() <= MAX_MARKS)
}

/// Where this process looks for programs.
pub(super) fn search_path() -> OsString {
    std::env::var_os("PATH").unwrap_or_default()
}

fn is_passed_down(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| PASSED_DOWN.contains(&name) || name.starts_with("LC_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_on_the_list_stays_here() {
        let given = [
            ("PATH", "/bin"),
            ("LC_ALL", "C.UTF-8"),
            ("TERM", "xterm"),
            ("ANTHROPIC_API_KEY", "secret"),
            ("HTTPS_PROXY", "http://user:secret@proxy"),
            ("LD_PRELOAD", "x.so"),
            ("BASH_ENV", "/tmp/x"),
        ];
        let environment = Environment::of(given.map(|(name, value)| (name.into(), value.into())));
        let names: Vec<_> = environment.variables().filter_map(|(name, _)| name.to_str()).collect();
        assert_eq!(names, ["GIT_PAGER", "GIT_TERMINAL_PROMPT", "LC_ALL", "PAGER", "PATH", "TERM"]);
        assert!(environment.variables().any(|pair| pair == (OsStr::new("TERM"), OsStr::new("dumb"))));
    }

    #[test]
    fn a_variable_can_be_added() {
        let environment =
            Environment::of([]).with("A", "1").with("TERM", "xterm").with("B", "2").without("B");
        assert!(!environment.variables().any(|(name, _)| name == "B"));
        assert!(environment.variables().any(|pair| pair == (OsStr::new("A"), OsStr::new("1"))));
        assert!(environment.variables().any(|pair| pair == (OsStr::new("TERM"), OsStr::new("xterm"))));
    }
}

//! What a shell script would run and touch, told without running it. Fails closed: what is not understood is in doubt.
//!
//! A script is parsed with tree-sitter's grammar of bash. Each simple command of it is told, wherever it stands: behind
//! `&&`, in a loop, in a substitution, in the string of `sh -c`, behind `sudo`, `xargs` or `find -exec`. So are the paths
//! that its words and redirections name.
//!
//! ```
//! use playhouse_policy::{AccessKind, shell};
//!
//! let script = shell::analyse("cd src && git commit -m 'a; b' | sudo tee /etc/motd");
//! let texts: Vec<&str> = script.commands.iter().map(|command| command.text.as_str()).collect();
//! assert_eq!(texts, ["cd src", "git commit -m a; b", "sudo tee /etc/motd", "tee /etc/motd"]);
//! assert_eq!(script.commands[1].always, ["git commit *"]);
//! assert!(script.paths.iter().any(|path| path.text == "/etc/motd" && path.kind == AccessKind::Write));
//!
//! let script = shell::analyse("$(cat x) -rf /");
//! assert!(script.commands.iter().any(|command| command.doubt.is_some()));
//! ```
//!
//! What a program does that a script runs is not told: a script that makes a file by a program of its own (a compiler, an
//! unpacked archive) and runs it is judged by the words that it is run with.
//!
//! - `walk`: through the tree of a script; `words`: what a word is without its quotes; `documents`: what `<<` brings
//! - `simple`: one command, and the commands and scripts in it; `wrappers` knows where those stand
//! - `interpreters`, `options`, `awk`, `sed`: commands that may run what is not told
//! - `paths`: what arguments name; `sources`: which of them are only read; `targets`: which are written for certain;
//!   `effects`: what is done to files for certain; `folders`: which folders are read; `git`: settings that it writes; `made`: files that are made and then run; `prefix`: what "always" would allow

mod awk;
mod documents;
mod effects;
mod findings;
mod folders;
mod git;
mod interpreters;
mod made;
mod operands;
mod options;
mod paths;
mod prefix;
mod sed;
mod simple;
mod sources;
mod targets;
mod transfers;
mod walk;
mod words;
mod wrappers;

use findings::Findings;

pub use folders::FolderUse;
pub use paths::{PathUse, split_pattern};

/// The longest script that is analysed, in bytes.
pub const LONGEST: usize = 16 * 1024;
/// The most commands that one script may have.
pub const MOST_COMMANDS: usize = 1_000;
/// The most paths that one script may name.
pub const MOST_PATHS: usize = 1_000;
/// How deeply scripts may stand in strings of scripts.
const DEEPEST: usize = 8;

/// One simple command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Its words without quotes, with one space between: what rules' patterns are matched with.
    pub text: String,
    /// Why it may do something else than `text` says.
    pub doubt: Option<String>,
    /// Patterns that would allow it and what is like it; empty where nothing useful and safe can be said.
    pub always: Vec<String>,
}

/// What a script would run and touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Every simple command, in the order of the text, each once.
    pub commands: Vec<Command>,
    /// Every path that is named.
    pub paths: Vec<PathUse>,
    /// Its commands that read all that lies in folders.
    pub folders: Vec<FolderUse>,
    /// Whether one of its commands may do more than read.
    pub may_write: bool,
}

/// Analyses a script. Takes some 30 ms at most: what is too long or too deep is in doubt as a whole.
pub fn analyse(script: &str) -> Script {
    if script.len() > LONGEST {
        return doubtful(script, "the script is too long to be analysed");
    }
    let mut found = Findings::default();
    walk::walk(script, 0, &mut found);
    let found = found.finish();
    if found.commands.len() > MOST_COMMANDS {
        return doubtful(script, "the script has too many commands to be analysed");
    }
    found
}

/// What is said of a script of which nothing is known.
fn doubtful(script: &str, why: &str) -> Script {
    let mut found = Findings::default();
    found.doubt(script, why);
    found.unknown(script, why);
    found.finish()
}

/// The beginning of a text, on one line.
fn shortened(text: &str) -> String {
    let line = text.trim();
    match line.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod tests;

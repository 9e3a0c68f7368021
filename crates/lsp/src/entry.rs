//! Which language servers there are: those that are known, and those that an operator adds.

use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

/// A language server: how it is started, and for which files.
#[derive(Clone)]
pub struct ServerEntry {
    /// Its name.
    pub name: String,
    /// The program, a path or a name that is looked for, and its arguments.
    pub command: Vec<String>,
    /// How the names of its files end, each with its dot.
    pub extensions: Vec<String>,
    /// Files and folders that mark the folder of a project.
    pub root_markers: Vec<String>,
    /// Variables of its environment.
    pub env: Vec<(String, SecretString)>,
    /// What it is told when it is introduced, and asks for later.
    pub initialization: Value,
    /// The name of its package and the first major version that has the server, where a program of that name may be older.
    pub since: Option<(&'static str, u64)>,
    /// Whether the operator configured it. Others are used only where they are found.
    pub is_configured: bool,
}

impl fmt::Debug for ServerEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerEntry")
            .field("name", &self.name)
            .field("command", &self.command)
            .field("extensions", &self.extensions)
            .finish_non_exhaustive()
    }
}

impl ServerEntry {
    /// One that an operator configures, with nothing but what it needs.
    pub fn new(name: impl Into<String>, command: Vec<String>, extensions: Vec<String>) -> Self {
        Self {
            name: name.into(),
            command,
            extensions,
            root_markers: Vec::new(),
            env: Vec::new(),
            initialization: json!({}),
            since: None,
            is_configured: true,
        }
    }

    /// The variables of its environment with their values.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.env.iter().map(|(name, value)| (name.as_str(), value.expose_secret()))
    }

    /// Whether it is for a file of this name.
    pub fn takes(&self, name: &str) -> bool {
        // A file that is called as an extension has none.
        self.extensions.iter().any(|end| name.len() > end.len() && name.ends_with(end.as_str()))
    }
}

/// One row of [`builtin`].
struct Known {
    name: &'static str,
    command: &'static [&'static str],
    extensions: &'static [&'static str],
    root_markers: &'static [&'static str],
    since: Option<(&'static str, u64)>,
    /// What `initializationOptions` hold, as JSON.
    initialization: &'static str,
}

/// Programs of the project (`build.rs`, macros, checks) are not run unasked.
const NO_PROGRAMS_OF_CARGO: &str =
    r#"{"checkOnSave": false, "cargo": {"buildScripts": {"enable": false}}, "procMacro": {"enable": false}}"#;
const SCRIPTS: &[&str] = &[".ts", ".tsx", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs"];
const OF_SCRIPTS: &[&str] = &["tsconfig.json", "jsconfig.json", "package.json"];
const PYTHON: &[&str] = &[".py", ".pyi"];
const OF_PYTHON: &[&str] = &["pyproject.toml", "ty.toml", "pyrightconfig.json", "setup.py", "setup.cfg"];

/// The servers that are known. Of two for the same files the first that is found is used.
const KNOWN: [Known; 7] = [
    Known {
        name: "typescript",
        command: &["tsc", "--lsp", "--stdio"],
        extensions: SCRIPTS,
        root_markers: OF_SCRIPTS,
        since: Some(("typescript", 7)),
        initialization: "{}",
    },
    Known {
        name: "typescript-language-server",
        command: &["typescript-language-server", "--stdio"],
        extensions: SCRIPTS,
        root_markers: OF_SCRIPTS,
        since: None,
        initialization: "{}",
    },
    Known {
        name: "ty",
        command: &["ty", "server"],
        extensions: PYTHON,
        root_markers: OF_PYTHON,
        since: None,
        initialization: "{}",
    },
    Known {
        name: "basedpyright",
        command: &["basedpyright-langserver", "--stdio"],
        extensions: PYTHON,
        root_markers: OF_PYTHON,
        since: None,
        initialization: "{}",
    },
    Known {
        name: "clangd",
        command: &["clangd"],
        extensions: &[".c", ".h", ".cc", ".hh", ".cpp", ".hpp", ".cxx", ".hxx"],
        root_markers: &["compile_commands.json", "compile_flags.txt", ".clangd"],
        since: None,
        initialization: "{}",
    },
    Known {
        name: "rust-analyzer",
        command: &["rust-analyzer"],
        extensions: &[".rs"],
        root_markers: &["Cargo.toml", "rust-project.json"],
        since: None,
        initialization: NO_PROGRAMS_OF_CARGO,
    },
    Known {
        name: "gopls",
        command: &["gopls"],
        extensions: &[".go"],
        root_markers: &["go.work", "go.mod"],
        since: None,
        initialization: "{}",
    },
];

/// The servers that are known and used where they are found, in the order in which one is chosen. Servers that start programs
/// of their own without bound are not among them.
pub fn builtin() -> Vec<ServerEntry> {
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    let entry = |known: &Known| ServerEntry {
        root_markers: texts(known.root_markers),
        since: known.since,
        initialization: serde_json::from_str(known.initialization).unwrap_or_default(),
        is_configured: false,
        ..ServerEntry::new(known.name, texts(known.command), texts(known.extensions))
    };
    KNOWN.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_for_the_files_that_end_so() {
        let entries = builtin();
        let of = |name: &str| {
            let takes = entries.iter().filter(|entry| entry.takes(name));
            takes.map(|entry| entry.name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(of("a.d.ts"), ["typescript", "typescript-language-server"]);
        assert_eq!(of("a.py"), ["ty", "basedpyright"]);
        assert_eq!((of("a.hpp"), of(".rs"), of("ts")), (vec!["clangd"], vec![], vec![]));
    }
}

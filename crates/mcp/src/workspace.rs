//! Servers that a workspace declares, in its file `.mcp.json`.
//!
//! Nobody vouches for that file: it comes with a repository. So less may stand in it than in the operator's configuration, what
//! may not is refused by its name, and a server that it declares always runs in walls without network. What people agree to is
//! an [`identity`](WorkspaceServer::identity): a hash of the entry and of the content of every file of the workspace that its
//! command names.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use playhouse_tools::web::{Url, shown_url};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::entry::{ServerEntry, ServerSandbox, ServerScope, Stdio, Transport};
use crate::names::check_name;
use crate::text::hex;

/// The file of a workspace that declares servers.
pub const WORKSPACE_FILE: &str = ".mcp.json";

/// The largest file that is read, in bytes.
const MOST_BYTES: u64 = 256 * 1024;
/// Number of servers of one workspace.
const MOST_SERVERS: usize = 32;
/// The most bytes that the files have together which the commands of a workspace's servers name.
pub const MOST_CONTENT: u64 = 64 * 1024 * 1024;

/// Files of a directory that interpreters run which are given the directory.
const STARTS: [&str; 5] = ["__main__.py", "package.json", "index.js", "index.mjs", "index.cjs"];

/// Programs that fetch a program and run it.
const FETCHERS: [&str; 9] = ["npx", "bunx", "pnpx", "uvx", "pipx", "yarnx", "docker", "podman", "nerdctl"];
/// Programs that do so with one of these as their first argument.
const FETCHING: [(&str, &[&str]); 10] = [
    ("npm", &["x", "exec", "create", "init"]),
    ("pnpm", &["dlx", "create"]),
    ("yarn", &["dlx", "create"]),
    ("bun", &["x", "create"]),
    ("uv", &["run", "tool", "x", "pip", "sync", "add"]),
    ("pip", &["install", "download"]),
    ("pip3", &["install", "download"]),
    ("gem", &["install"]),
    ("cargo", &["install", "binstall"]),
    ("go", &["run", "install"]),
];

/// Programs that run another one, which their words name.
const WRAPPERS: [&str; 22] = [
    "sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "busybox", "env", "timeout", "nice", "ionice", "chrt",
    "taskset", "nohup", "setsid", "stdbuf", "time", "xargs", "sudo", "doas", "unshare",
];

/// A server that a workspace declares.
#[derive(Clone, Debug)]
pub struct WorkspaceServer {
    /// How it is started or reached: in walls without network.
    pub entry: ServerEntry,
    /// The workspace: absolute, links resolved.
    pub workspace: PathBuf,
}

/// The name of a server, and the server, or why it is refused.
pub type WorkspaceFinding = (String, Result<WorkspaceServer, String>);

/// The servers that a workspace declares, in the order of their names. `workspace` is absolute, links resolved. None where it has
/// no such file. Blocks.
///
/// # Errors
/// The file cannot be read, or is not of the form `{"mcpServers": {NAME: {…}}}`: a text for users.
pub fn declared_in(workspace: &Path) -> Result<Vec<WorkspaceFinding>, String> {
    let wrong = |why: String| format!("{WORKSPACE_FILE}: {why}");
    let path = workspace.join(WORKSPACE_FILE);
    let Some(content) = content(&path, workspace, MOST_BYTES).map_err(wrong)? else { return Ok(Vec::new()) };
    let document: Value =
        serde_json::from_slice(&content).map_err(|error| wrong(format!("it is not JSON: {error}")))?;
    let servers = match document.get("mcpServers") {
        Some(Value::Object(servers)) => servers,
        None if document.as_object().is_some_and(Map::is_empty) => return Ok(Vec::new()),
        _ => {
            return Err(wrong("it needs a member \"mcpServers\" with one object for each server".to_owned()));
        }
    };
    if servers.len() > MOST_SERVERS {
        return Err(wrong(format!("it declares {} servers; {MOST_SERVERS} at most can be", servers.len())));
    }
    let mut found: Vec<WorkspaceFinding> =
        servers.iter().map(|(name, entry)| (name.clone(), server(name, entry, workspace))).collect();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(found)
}

fn server(name: &str, entry: &Value, workspace: &Path) -> Result<WorkspaceServer, String> {
    check_name(name).map_err(|error| format!("refused: {error}"))?;
    let Value::Object(entry) = entry else {
        return Err("refused: its entry is not an object with `command` or `url`".to_owned());
    };
    for (member, value) in entry {
        match member.as_str() {
            "command" | "args" | "env" | "url" | "type" => literal(member, value)?,
            "headers" | "headers_env" | "oauth" => {
                return Err(format!(
                    "refused: `{member}` may not stand in a workspace's file; the operator can declare the server, as [mcp.{name}] in the configuration"
                ));
            }
            member => {
                return Err(format!(
                    "refused: `{}` is not allowed in a workspace's file, which knows `command`, `args`, `env` and `url`",
                    member.chars().take(64).collect::<String>().escape_debug()
                ));
            }
        }
    }
    let text = |member: &str| match entry.get(member) {
        None => Ok(None),
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(Some(text.clone())),
        Some(_) => Err(format!("refused: `{member}` is not a text")),
    };
    let (command, url, kind) = (text("command")?, text("url")?, text("type")?);
    let mut entry = match (command, url) {
        (Some(command), None) => {
            if kind.as_deref().is_some_and(|kind| kind != "stdio") {
                return Err("refused: a server with a `command` is of the `type` \"stdio\"".to_owned());
            }
            program(name, command, entry)?
        }
        (None, Some(url)) => {
            if kind.as_deref().is_some_and(|kind| !matches!(kind, "http" | "streamable-http")) {
                return Err("refused: a server with a `url` is of the `type` \"http\"; \"sse\" is an older form that is not spoken".to_owned());
            }
            if entry.contains_key("args") || entry.contains_key("env") {
                return Err("refused: `args` and `env` are of a `command`, not of a `url`".to_owned());
            }
            address(name, &url)?
        }
        _ => return Err("refused: it needs a `command` or a `url`, and not both".to_owned()),
    };
    entry.scope = ServerScope::Workspace;
    entry.walls.sandbox = ServerSandbox::Walls;
    Ok(WorkspaceServer { entry, workspace: workspace.to_owned() })
}

fn program(name: &str, command: String, entry: &Map<String, Value>) -> Result<ServerEntry, String> {
    let args = match entry.get("args") {
        None => Vec::new(),
        Some(Value::Array(args)) => {
            let text = |value: &Value| value.as_str().map(str::to_owned);
            let args: Option<Vec<String>> = args.iter().map(text).collect();
            args.ok_or("refused: `args` is not a list of texts")?
        }
        Some(_) => return Err("refused: `args` is not a list of texts".to_owned()),
    };
    if entry.get("env").is_some_and(|env| env.get("PATH").is_some()) {
        return Err("refused: `env.PATH` may not stand in a workspace's file: name the program by its path in `command`".to_owned());
    }
    if command.contains('=') {
        return Err("refused: `command` holds a `=`, which no program's name may have here".to_owned());
    }
    if let Some(fetcher) = fetcher(&command, &args) {
        return Err(format!(
            "refused: `{fetcher}` would download a program, which a workspace's file may not do. install the server, and name its program; or let the operator declare it, as [mcp.{name}] in the configuration"
        ));
    }
    let env = match entry.get("env") {
        None => Vec::new(),
        Some(Value::Object(env)) => {
            let pair = |(name, value): (&String, &Value)| {
                let is_name = is_name(name);
                value
                    .as_str()
                    .filter(|value| is_name && !value.contains('\0'))
                    .map(|value| (name.clone(), value.into()))
            };
            let env: Option<Vec<_>> = env.iter().map(pair).collect();
            env.ok_or("refused: `env` is not an object of texts, with names of letters, digits and `_`")?
        }
        Some(_) => return Err("refused: `env` is not an object of texts".to_owned()),
    };
    let mut made = ServerEntry::stdio(name, command, args);
    if let Transport::Stdio(stdio) = &mut made.transport {
        (stdio.env, stdio.env_inside) = (env, true);
    }
    Ok(made)
}

/// Whether it can be the name of a variable.
fn is_name(name: &str) -> bool {
    let is_of_it = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.starts_with(|c: char| !c.is_ascii_digit()) && name.chars().all(is_of_it)
}

fn address(name: &str, url: &str) -> Result<ServerEntry, String> {
    let parsed = Url::parse(url).map_err(|error| format!("refused: `url` is no address: {error}"))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err("refused: `url` begins with http:// or https://".to_owned());
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(format!("refused: `url` may not hold credentials: {}", shown_url(&parsed)));
    }
    let mut entry = ServerEntry::http(name, url);
    if let Transport::Http(http) = &mut entry.transport {
        // Nobody logs in where a repository says so.
        http.oauth.enabled = false;
    }
    Ok(entry)
}

/// Refuses values that stand for something else: variables.
fn literal(member: &str, value: &Value) -> Result<(), String> {
    match value {
        Value::String(text) => match text.find("${") {
            None => Ok(()),
            Some(at) => {
                let end = text[at..].find('}').map_or(text.len(), |end| at + end + 1);
                let variable: String = text[at..end].chars().take(64).collect();
                Err(format!(
                    "refused: `{member}` holds {}: variables are not allowed in a workspace's file, only literal values",
                    variable.escape_debug()
                ))
            }
        },
        Value::Array(values) => values.iter().try_for_each(|value| literal(member, value)),
        Value::Object(values) => values.iter().try_for_each(|(name, value)| {
            literal(member, &Value::String(name.clone()))?;
            literal(&format!("{member}.{name}"), value)
        }),
        _ => Ok(()),
    }
}

/// The program that would fetch another one, if a command begins with one.
fn fetcher(command: &str, args: &[String]) -> Option<String> {
    let program = base(command);
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    if !WRAPPERS.contains(&program.as_str()) {
        return fetches(&program, &words);
    }
    // Which of its words is the program, only the wrapper knows: none may be one that fetches.
    let words: Vec<&str> = words.iter().flat_map(|word| words_in(word)).collect();
    words
        .iter()
        .enumerate()
        .find_map(|(at, word)| fetches(&base(word), words.get(at + 1..).unwrap_or_default()))
}

/// The name of a program, without its folder.
fn base(word: &str) -> String {
    let base = word.rsplit('/').next().unwrap_or(word);
    base.strip_suffix(".exe").or_else(|| base.strip_suffix(".cmd")).unwrap_or(base).to_owned()
}

/// What fetches a program, of one that is given these words.
fn fetches(program: &str, words: &[&str]) -> Option<String> {
    if FETCHERS.contains(&program) {
        return Some(program.to_owned());
    }
    if program.starts_with("python") || program.starts_with("pypy") {
        let at = words.iter().position(|word| word.starts_with("-m"))?;
        let (module, rest) = match words.get(at)?.strip_prefix("-m")? {
            "" => (*words.get(at + 1)?, words.get(at + 2..)?),
            module => (module, words.get(at + 1..)?),
        };
        return fetches(module, rest);
    }
    let (_, verbs) = FETCHING.iter().find(|(of, _)| *of == program)?;
    let mut before = "";
    for word in words {
        if verbs.contains(word) {
            return Some(format!("{program} {word}"));
        }
        // It may be the value of an option.
        if !word.starts_with('-') && (!before.starts_with('-') || before.contains('=')) {
            return None;
        }
        before = word;
    }
    None
}

/// The words of a text that a shell may read.
fn words_in(text: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| c.is_whitespace() || ";&|()<>'\"`".contains(c);
    text.split(ends).filter(|word| !word.is_empty())
}

impl WorkspaceServer {
    /// SHA-256 of the workspace's path, of the entry, and of the name and the content of every file of the workspace that the
    /// command, an argument or a value of its environment names, as hexadecimal digits. Of a directory those files count that
    /// interpreters start with. Blocks.
    ///
    /// # Errors
    /// A file cannot be read, or they are too large together: a text for users.
    pub fn identity(&self) -> Result<String, String> {
        self.identity_within(&mut MOST_CONTENT.clone())
    }

    /// The same, of files with so many bytes that are `left`, which become fewer by what was read.
    ///
    /// # Errors
    /// As [`identity`](Self::identity) has them.
    pub fn identity_within(&self, left: &mut u64) -> Result<String, String> {
        let mut hash = Sha256::new();
        let mut text = |text: &[u8]| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        text(b"playhouse workspace server 1");
        text(self.workspace.as_os_str().as_encoded_bytes());
        text(self.entry.hash().as_bytes());
        if let Transport::Stdio(stdio) = &self.entry.transport {
            let Stdio { command, args, .. } = stdio;
            // A command without `/` is looked for in PATH.
            let command = command.contains('/').then_some(command.as_str());
            let args = args.iter().map(String::as_str);
            let words: Vec<&str> = command.into_iter().chain(args.clone()).chain(stdio.values()).collect();
            let mut named: Vec<String> =
                words.iter().flat_map(|word| named_by(word)).map(str::to_owned).collect();
            named.extend(modules(&args.flat_map(words_in).collect::<Vec<_>>()));
            for named in named {
                for path in files(&self.workspace.join(named)) {
                    let Some(content) = content(&path, &self.workspace, *left)? else { continue };
                    *left -= content.len() as u64;
                    text(path.as_os_str().as_encoded_bytes());
                    text(&content);
                }
            }
        }
        Ok(hex(&hash.finalize()))
    }
}

/// What a word of a command may name: itself, and what stands behind `=`; of a text for a shell the same of each word in it.
fn named_by(word: &str) -> impl Iterator<Item = &str> {
    let of_one = |word| {
        let value = str::split_once(word, '=').map(|(_, value)| value);
        std::iter::once(word).chain(value).filter(|word| !word.is_empty())
    };
    let inner = words_in(word).filter(move |inner| *inner != word);
    of_one(word).chain(inner.flat_map(of_one))
}

/// The files of modules that Python runs with `-m`.
fn modules(words: &[&str]) -> Vec<String> {
    let after = words.iter().zip(words.iter().skip(1)).filter(|(option, _)| **option == "-m");
    let joined = words.iter().filter_map(|word| word.strip_prefix("-m")).filter(|module| !module.is_empty());
    let paths = after.map(|(_, module)| *module).chain(joined).map(|module| module.replace('.', "/"));
    // A package is a directory, and is run by what it starts with.
    paths.flat_map(|path| [format!("{path}.py"), path]).collect()
}

/// The file of this path, or of a directory those that interpreters start with.
fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_dir() { STARTS.iter().map(|name| path.join(name)).collect() } else { vec![path.to_owned()] }
}

/// What a file of the workspace holds; `None` if there is no such file, or if it lies elsewhere.
fn content(path: &Path, workspace: &Path, most: u64) -> Result<Option<Vec<u8>>, String> {
    let shown = || path.strip_prefix(workspace).unwrap_or(path).display().to_string();
    // A link that leads out is no file of the workspace, and what it leads to is no less than any other program of the machine.
    let Ok(resolved) = fs_err::canonicalize(path) else { return Ok(None) };
    let Ok(file) = fs_err::metadata(&resolved) else { return Ok(None) };
    if !file.is_file() || !resolved.starts_with(workspace) {
        return Ok(None);
    }
    let unreadable = |error: std::io::Error| format!("{} cannot be read: {}", shown(), error.kind());
    let opened = fs_err::File::open(&resolved).map_err(unreadable)?;
    let mut content = Vec::new();
    opened.take(most + 1).read_to_end(&mut content).map_err(unreadable)?;
    if content.len() as u64 > most {
        return Err(format!("{} is larger than the {most} bytes that are read", shown()));
    }
    Ok(Some(content))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workspace() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = fs_err::canonicalize(folder.path()).unwrap();
        (folder, path)
    }

    fn write(workspace: &Path, entry: &Value) {
        let text = json!({"mcpServers": {"own": entry}}).to_string();
        fs_err::write(workspace.join(WORKSPACE_FILE), text).unwrap();
    }

    fn only(workspace: &Path) -> Result<WorkspaceServer, String> {
        declared_in(workspace).unwrap().pop().unwrap().1
    }

    #[test]
    fn a_workspace_without_the_file_declares_nothing() {
        let (_folder, path) = workspace();
        assert!(declared_in(&path).unwrap().is_empty());
    }

    #[test]
    fn what_a_workspace_may_not_say_is_refused_by_name() {
        let (_folder, path) = workspace();
        for (entry, says) in [
            (json!({"command": "p", "env": {"A": "${HOME}/x"}}), "`env.A` holds ${HOME}"),
            (json!({"command": "p", "args": ["${A"]}), "`args` holds ${A"),
            (json!({"url": "https://a.example", "headers_env": {"a": "B"}}), "`headers_env`"),
            (json!({"url": "https://a.example", "oauth": {}}), "`oauth`"),
            (json!({"url": "https://me:pw@a.example"}), "credentials"),
            (json!({"url": "file:///etc/passwd"}), "https://"),
            (json!({"url": "https://a.example", "type": "sse"}), "\"sse\""),
            (json!({"command": "npx", "args": ["x"]}), "`npx`"),
            (json!({"command": "/usr/bin/uvx"}), "`uvx`"),
            (json!({"command": "npm", "args": ["--yes", "exec", "x"]}), "`npm exec`"),
            (json!({"command": "env", "args": ["A=1", "npx", "x"]}), "`npx`"),
            (json!({"command": "env", "args": ["-u", "A", "npx", "x"]}), "`npx`"),
            (json!({"command": "env", "args": ["-S", "npx x"]}), "`npx`"),
            (json!({"command": "sh", "args": ["-c", "cd d&&exec /usr/bin/npx x"]}), "`npx`"),
            (json!({"command": "/bin/bash", "args": ["-lc", "npm exec x"]}), "`npm exec`"),
            (json!({"command": "timeout", "args": ["9", "nice", "-n", "5", "uvx", "x"]}), "`uvx`"),
            (json!({"command": "npm", "args": ["--prefix", "d", "exec", "x"]}), "`npm exec`"),
            (json!({"command": "uv", "args": ["--directory", "d", "run", "x"]}), "`uv run`"),
            (json!({"command": "pip", "args": ["install", "x"]}), "`pip install`"),
            (json!({"command": "python3", "args": ["-m", "pip", "install", "x"]}), "`pip install`"),
            (json!({"command": "p", "sandbox": "none"}), "`sandbox`"),
            (json!({"command": "p", "url": "https://a.example"}), "not both"),
            (json!({"command": 7}), "`command` is not a text"),
            (json!({"command": "p", "args": "x"}), "`args`"),
            (json!({"command": "p", "env": {"A": 1}}), "`env`"),
            (json!({"command": "p", "env": {"-S x": "1"}}), "`env`"),
            (json!({"command": "A=1"}), "`=`"),
            (json!({"command": "p", "env": {"PATH": "bin"}}), "`env.PATH`"),
            (json!([]), "not an object"),
        ] {
            write(&path, &entry);
            let error = only(&path).unwrap_err();
            assert!(error.starts_with("refused: ") && error.contains(says), "{entry}: {error}");
            assert!(!error.contains("pw@"), "{error}");
        }
    }

    #[test]
    fn a_file_of_another_form_is_an_error() {
        let (_folder, path) = workspace();
        for (text, says) in [("{", "not JSON"), ("{\"servers\": {}}", "mcpServers"), ("[]", "mcpServers")] {
            fs_err::write(path.join(WORKSPACE_FILE), text).unwrap();
            let error = declared_in(&path).unwrap_err();
            assert!(error.starts_with(WORKSPACE_FILE) && error.contains(says), "{error}");
        }
        let many: Map<String, Value> = (0..33).map(|number| (format!("s{number}"), json!({}))).collect();
        fs_err::write(path.join(WORKSPACE_FILE), json!({"mcpServers": many}).to_string()).unwrap();
        assert!(declared_in(&path).unwrap_err().contains("33 servers"));
        fs_err::write(path.join(WORKSPACE_FILE), vec![b' '; 256 * 1024 + 1]).unwrap();
        assert!(declared_in(&path).unwrap_err().contains("larger"));
    }

    #[test]
    fn it_is_held_by_walls_without_network() {
        let (_folder, path) = workspace();
        write(&path, &json!({"type": "stdio", "command": "p", "args": ["a"], "env": {"A": "1"}}));
        let WorkspaceServer { entry, .. } = only(&path).unwrap();
        assert_eq!(entry.shown(), "A=… p a");
        // What makes the walls reads none of its variables.
        let Transport::Stdio(stdio) = &entry.transport else { panic!("it is a program") };
        assert_eq!(stdio.words(), ["/usr/bin/env", "--", "A=1", "p", "a"]);
        assert!(!stdio.environment().variables().any(|(name, _)| name == "A"));
        assert!(entry.walls.sandbox == ServerSandbox::Walls && !entry.walls.network);
    }

    #[test]
    fn programs_that_fetch_nothing_may_be_named_like_anything() {
        for (command, args) in [
            ("npm", &["run", "x"][..]),
            ("npm", &["--prefix=d", "run", "exec"]),
            ("server", &["docker", "npx"]),
            ("python3", &["-m", "server", "install"]),
            ("sh", &["-c", "exec python3 tools/npx.py"]),
            ("pip", &["list"]),
        ] {
            let args: Vec<String> = args.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(fetcher(command, &args), None, "{command} {args:?}");
        }
    }

    #[test]
    fn files_that_a_shell_or_an_interpreter_is_told_of_count() {
        let (_folder, path) = workspace();
        fs_err::create_dir_all(path.join("tools/inner")).unwrap();
        for (args, file) in [
            (json!(["-c", "exec python3 tools/server.py --quiet"]), "tools/server.py"),
            (json!(["-c", "A='tools/conf' python3 -m tools.inner.part;true"]), "tools/conf"),
            (json!(["-c", "A='tools/conf' python3 -m tools.inner.part;true"]), "tools/inner/part.py"),
            (json!(["-m", "server"]), "server.py"),
            (json!(["-mtools"]), "tools/__main__.py"),
        ] {
            write(&path, &json!({"command": "sh", "args": args}));
            let identity = || only(&path).unwrap().identity().unwrap();
            fs_err::write(path.join(file), "1").unwrap();
            let first = identity();
            assert_eq!(first, identity());
            fs_err::write(path.join(file), "2").unwrap();
            assert_ne!(first, identity(), "{args}");
        }
    }

    #[test]
    fn its_identity_is_that_of_all_that_it_names() {
        let (_folder, path) = workspace();
        fs_err::create_dir(path.join("tools")).unwrap();
        fs_err::write(path.join("tools/server.py"), "1").unwrap();
        fs_err::write(path.join("config"), "1").unwrap();
        fs_err::write(path.join("other"), "1").unwrap();
        let args = json!(["tools/server.py", format!("--config={}", path.join("config").display())]);
        write(&path, &json!({"command": "python3", "args": args}));
        let identity = || only(&path).unwrap().identity().unwrap();
        let first = identity();
        assert_eq!(first, identity());
        fs_err::write(path.join("other"), "2").unwrap();
        assert_eq!(first, identity());
        fs_err::write(path.join("tools/server.py"), "2").unwrap();
        let second = identity();
        assert_ne!(first, second);
        fs_err::write(path.join("config"), "2").unwrap();
        let third = identity();
        assert_ne!(second, third);
        write(&path, &json!({"command": "python3", "args": args, "env": {"A": "1"}}));
        assert_ne!(third, identity());
        // A directory is run by what it starts with, and a link is what it leads to.
        write(&path, &json!({"command": "python3", "args": ["tools"], "env": {"A": "link"}}));
        let fourth = identity();
        fs_err::write(path.join("tools/__main__.py"), "1").unwrap();
        let fifth = identity();
        std::os::unix::fs::symlink("other", path.join("link")).unwrap();
        let sixth = identity();
        fs_err::write(path.join("other"), "3").unwrap();
        assert!(fourth != fifth && fifth != sixth && sixth != identity());
        assert!(only(&path).unwrap().identity_within(&mut 1).unwrap_err().contains("larger"));
    }
}

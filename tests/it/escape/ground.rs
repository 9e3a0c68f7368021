//! What an attempt is made against: a workspace, what lies around it that it must not get at, and a process that is nobody's.
//!
//! All of it is in one temporary directory, so that nothing else can be harmed.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fs_err as fs;
use fs_err::os::unix::fs::symlink;
use tempfile::TempDir;

use super::listener::Listener;

/// What no call may learn, whoever agrees to it, by the names that rows use.
const NEVER: [&str; 5] = ["environment", "bystander", "configuration", "data", "data name"];
/// What file tools may read where somebody agrees to that, and commands within walls may not.
const OUTSIDE: [&str; 4] = ["outside", "name", "home", "other"];
/// What must stay as it is.
const WATCHED: [&str; 9] = [
    "{outside}",
    "{other}",
    "{home}",
    "{data}",
    "{config}",
    "{workspace}/.git/hooks",
    "{workspace}/.git/config",
    "{workspace}/.git/commondir",
    "{workspace}/.git/config.worktree",
];

/// Puts `fake`, a link to the outside, and `real`, a directory, by turns where `swap` is.
const RACE: &str = r#"while (1) {
    rename("real", "swap"); rename("swap", "real");
    rename("fake", "swap"); rename("swap", "fake");
}
"#;

/// See the module.
pub(super) struct Ground {
    _folder: TempDir,
    root: PathBuf,
    /// Unlike any other ground's.
    token: String,
    bystander: Child,
    service: UnixListener,
    unnamed: UnixListener,
    before: Vec<Snapshot>,
}

/// What lies at and below a place: files with their content, links with their target.
pub(super) type Snapshot = BTreeMap<PathBuf, Vec<u8>>;

impl Ground {
    /// With this configuration, and without some of what is in the workspace otherwise.
    pub(super) fn new(configuration: &str, without: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let token: String = root.to_string_lossy().chars().rev().take(6).collect();
        let token = format!("{token}{}", std::process::id());
        let bystander = Command::new("sleep")
            .arg("600.25")
            .env("TEST_SECRET", secret("bystander", &token))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let unnamed = SocketAddr::from_abstract_name(format!("playhouse-{token}")).unwrap();
        let mut ground = Self {
            service: UnixListener::bind(root.join("service.sock")).unwrap(),
            unnamed: UnixListener::bind_addr(&unnamed).unwrap(),
            _folder: folder,
            root,
            token,
            bystander,
            before: Vec::new(),
        };
        ground.lay_out();
        ground.build_workspace();
        let configured =
            format!("# {}\n{}", secret("configuration", &ground.token), ground.text(configuration, ""));
        fs::write(ground.place("{config}"), configured).unwrap();
        for name in without {
            fs::remove_dir_all(ground.workspace().join(name)).unwrap();
        }
        ground.look();
        ground
    }

    fn lay_out(&self) {
        let told = |name: &str| format!("the secret is {}\n", self.secret(name));
        let files = [
            ("outside/secret.txt", told("outside")),
            ("outside/keep.txt", "kept\n".to_owned()),
            ("outside/hard.txt", "in two places\n".to_owned()),
            ("outside/nb.ipynb", NOTEBOOK.to_owned()),
            ("other/secret.txt", told("other")),
            ("home/.ssh/id_ed25519", told("home")),
            ("home/.aws/credentials", told("home")),
            ("home/.bashrc", "# nothing\n".to_owned()),
            ("data/secret", told("data")),
            ("workspace/a.txt", "one\n".to_owned()),
            ("workspace/sub/b.txt", "two\n".to_owned()),
            ("workspace/.env", told("dotenv")),
            ("workspace/.env.example", "KEY=example\n".to_owned()),
            ("workspace/race.pl", RACE.to_owned()),
            ("workspace/real/secret.txt", "inside\n".to_owned()),
        ];
        for (path, content) in files {
            let path = self.root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        fs::write(self.root.join("outside").join(self.secret("name")), "").unwrap();
        fs::write(self.root.join("data").join(self.secret("data name")), "").unwrap();
    }

    fn build_workspace(&self) {
        let workspace = self.workspace();
        for (name, target) in [
            ("out", "{outside}"),
            ("out-file", "../outside/secret.txt"),
            ("sub/up", "../.."),
            ("chain", "out"),
            ("dangling", "{outside}/new.txt"),
            ("root", "/"),
            ("circle", "circle"),
            ("environ", "/proc/self/environ"),
            ("data", "../data"),
            ("hooks", ".git/hooks"),
            ("fake", "{outside}"),
        ] {
            symlink(self.text(target, ""), workspace.join(name)).unwrap();
        }
        fs::hard_link(self.place("{outside}/hard.txt"), workspace.join("hard.txt")).unwrap();
        for folder in ["hooks", "objects", "refs/heads"] {
            fs::create_dir_all(workspace.join(".git").join(folder)).unwrap();
        }
        fs::write(workspace.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(workspace.join(".git/config"), "[core]\n\trepositoryformatversion = 0\n").unwrap();
    }

    pub(super) fn workspace(&self) -> PathBuf {
        self.root.join("workspace")
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// A directory of the workspace with a folder `victim` in it.
    pub(super) fn apart(&self, name: &str) -> PathBuf {
        let here = self.workspace().join(name);
        fs::create_dir_all(here.join("victim")).unwrap();
        fs::write(here.join("victim/file"), "still here\n").unwrap();
        here
    }

    /// The words of this secret here.
    pub(super) fn secret(&self, name: &str) -> String {
        match name {
            // The real one: what nobody gave to the test.
            "hostname" => hostname(),
            _ => secret(name, &self.token),
        }
    }

    /// `text` with its placeholders replaced; `mark` is what tells this attempt from all others.
    pub(super) fn text(&self, text: &str, mark: &str) -> String {
        let mut text = text.to_owned();
        for name in ["workspace", "outside", "other", "home", "data"] {
            text = text.replace(&format!("{{{name}}}"), &self.root.join(name).to_string_lossy());
        }
        let numbers: Vec<(String, String)> =
            syscalls().iter().map(|(name, number)| (format!("{{{name}}}"), number.to_string())).collect();
        let others = [
            ("{root}", self.root.to_string_lossy().into_owned()),
            ("{config}", self.root.join("config.toml").to_string_lossy().into_owned()),
            ("{bystander}", self.bystander.id().to_string()),
            ("{port}", Listener::get().port.to_string()),
            ("{hostname}", hostname()),
            ("{abstract}", format!("playhouse-{}", self.token)),
            ("{long}", "true\n".repeat(4_000)),
            ("{mark}", mark.to_owned()),
        ];
        let others = others.iter().map(|(name, value)| (*name, value.as_str()));
        let numbers = numbers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        others.chain(numbers).fold(text, |text, (name, value)| text.replace(name, value))
    }

    /// Adds to the configuration, as an operator would.
    pub(super) fn configure(&mut self, lines: &str) {
        let config = self.place("{config}");
        let configured = fs::read_to_string(&config).unwrap();
        fs::write(config, format!("{configured}\n{lines}")).unwrap();
        self.look();
    }

    /// From here on things must stay as they are.
    fn look(&mut self) {
        self.before = WATCHED.map(|place| snapshot(&self.place(place))).into();
    }

    /// Where this is here.
    pub(super) fn place(&self, path: &str) -> PathBuf {
        self.text(path, "").into()
    }

    /// The engine, which writes its id into `engine.pid` of the workspace, with these arguments. They name the data
    /// directory.
    pub(super) fn engine(&self, arguments: &[&str]) -> Command {
        self.engine_in(&[], arguments)
    }

    /// The same where there is no bubblewrap: bubblewrap hides itself from it.
    pub(super) fn engine_without_bubblewrap(&self, arguments: &[&str]) -> Command {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders = std::env::split_paths(&path).map(|folder| folder.join("bwrap"));
        let bubblewrap = folders.find(|program| program.is_file()).unwrap();
        let bubblewrap = bubblewrap.to_str().unwrap();
        self.engine_in(&[bubblewrap, "--dev-bind", "/", "/", "--ro-bind", "/dev/null", bubblewrap], arguments)
    }

    fn engine_in(&self, around: &[&str], arguments: &[&str]) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo $$ > engine.pid; exec \"$@\"", "sh"]);
        command.args(around).arg(env!("CARGO_BIN_EXE_playhouse"));
        command.arg("--config").arg(self.place("{config}")).args(arguments);
        command.env_clear().current_dir(self.workspace()).stdin(Stdio::null());
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        let secret = self.secret("environment");
        for name in ["TEST_SECRET", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"] {
            command.env(name, &secret);
        }
        command.env("HOME", self.place("{home}"));
        command
    }

    /// Whether what stands at `place` is not what stood there before.
    pub(super) fn is_changed(&self, place: &str, before: &Snapshot) -> bool {
        snapshot(&self.place(place)) != *before
    }

    /// Whether somebody has sent `mark` to a socket of this ground.
    pub(super) fn was_reached(&self, mark: &str) -> bool {
        [&self.service, &self.unnamed].into_iter().any(|socket| {
            socket.set_nonblocking(true).unwrap();
            let mut sent = String::new();
            while let Ok((mut stream, _)) = socket.accept() {
                match stream.read_to_string(&mut sent) {
                    Ok(_) => {}
                    // Whoever is connected still may have sent something before.
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => panic!("{error}"),
                }
            }
            sent.contains(mark)
        })
    }

    /// Whether the process that is nobody's was ended or stopped.
    pub(super) fn is_bystander_harmed(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.bystander.id())).unwrap_or_default();
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
        !matches!(state, Some('S' | 'R' | 'D'))
    }

    /// Everything that is not as it was, but what rows do to the workspace itself.
    pub(super) fn disturbed(&self) -> Vec<String> {
        let mut disturbed: Vec<String> = WATCHED
            .iter()
            .zip(&self.before)
            .filter(|(place, before)| self.is_changed(place, before))
            .map(|(place, _)| format!("{place} changed"))
            .collect();
        if self.is_bystander_harmed() {
            disturbed.push("the bystander was harmed".to_owned());
        }
        disturbed
    }

    /// The secrets that stand in a text; those that are read with consent only where `all` are looked for.
    pub(super) fn revealed(&self, text: &str, all: bool) -> Vec<&'static str> {
        let asked = OUTSIDE.into_iter().filter(|_| all);
        NEVER.into_iter().chain(asked).filter(|name| text.contains(&self.secret(name))).collect()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // It may have been ended by the attempt.
        let _ = self.bystander.kill();
        let _ = self.bystander.wait();
    }
}

const NOTEBOOK: &str = r#"{"cells": [{"cell_type": "code", "execution_count": null, "metadata": {}, "outputs": [], "source": ["1"]}], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
"#;

/// Not to be found by chance, nor in what a row itself says.
fn secret(name: &str, token: &str) -> String {
    format!("SECRET-{}-{token}", name.replace(' ', "-"))
}

fn hostname() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned()
}

/// All files and links at and below a place.
pub(super) fn snapshot(place: &Path) -> Snapshot {
    let mut found = Snapshot::new();
    let Ok(facts) = fs::symlink_metadata(place) else { return found };
    if facts.is_symlink() {
        found.insert(place.into(), fs::read_link(place).unwrap().into_os_string().into_encoded_bytes());
    } else if facts.is_dir() {
        found.insert(place.into(), Vec::new());
        for entry in fs::read_dir(place).unwrap() {
            found.extend(snapshot(&entry.unwrap().path()));
        }
    } else if facts.is_file() {
        found.insert(place.into(), fs::read(place).unwrap());
    }
    found
}

/// Numbers of system calls by which attempts are made.
fn syscalls() -> &'static [(&'static str, u32)] {
    if cfg!(target_arch = "x86_64") {
        &[
            ("ptrace", 101),
            ("mount", 165),
            ("kexec_load", 246),
            ("add_key", 248),
            ("unshare", 272),
            ("perf_event_open", 298),
            ("process_vm_readv", 310),
            ("process_vm_writev", 311),
            ("finit_module", 313),
            ("bpf", 321),
            ("userfaultfd", 323),
            ("io_uring_setup", 425),
        ]
    } else {
        &[
            ("mount", 40),
            ("unshare", 97),
            ("kexec_load", 104),
            ("ptrace", 117),
            ("add_key", 217),
            ("perf_event_open", 241),
            ("process_vm_readv", 270),
            ("process_vm_writev", 271),
            ("finit_module", 273),
            ("bpf", 280),
            ("userfaultfd", 282),
            ("io_uring_setup", 425),
        ]
    }
}

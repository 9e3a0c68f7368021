//! A machine in small: a workspace with what lies around it, and programs that run in its walls.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_protocol::walls::{Sandbox, WallsAllowed};
use playhouse_sandbox::process::{Environment, Exit, Limits, Receive, Run, Scope, Spec, run};
use playhouse_sandbox::walls::{Material, Walls, WallsSpec, set_confiner};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// What is secret around a workspace.
pub(crate) const SECRET: &str = "the-secret-of-another";

pub(crate) struct House {
    _folder: TempDir,
    pub(crate) root: PathBuf,
    pub(crate) spec: WallsSpec,
}

impl House {
    pub(crate) fn new() -> Self {
        Self::named("workspace")
    }

    /// One whose workspace has this name.
    pub(crate) fn named(workspace: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = fs_err::canonicalize(folder.path()).unwrap();
        let spec = WallsSpec {
            sandbox: Sandbox::Required,
            allowed: WallsAllowed::default(),
            workspace: root.join(workspace),
            output: root.join("data/output"),
            shared: vec![root.join("data/shared"), root.join("data/gone")],
            home: root.join("data/home"),
            hidden: vec![root.join("data")],
            roots: Vec::new(),
        };
        fs_err::create_dir(&spec.workspace).unwrap();
        fs_err::create_dir(root.join("other")).unwrap();
        fs_err::create_dir(root.join("data")).unwrap();
        for file in ["other/secret", "data/secret"] {
            fs_err::write(root.join(file), SECRET).unwrap();
        }
        Self { _folder: folder, root, spec }
    }

    /// The best walls of this machine. They must be those of bubblewrap.
    pub(crate) fn walls(&self) -> Walls {
        let walls = Walls::build(&self.spec);
        let walls =
            walls.unwrap_or_else(|error| panic!("{error}: these tests need it (`apt install bubblewrap`)"));
        assert_eq!(walls.in_force().unwrap().by, "bubblewrap", "{}", walls.in_force().unwrap().detail);
        walls
    }

    /// Those of Landlock.
    pub(crate) fn landlock(&self) -> Walls {
        set_confiner(example());
        Walls::build_of(&self.spec, Material::Landlock).unwrap_or_else(|error| {
            panic!("{error}: these tests need a kernel with Landlock (5.13 or newer)")
        })
    }

    pub(crate) fn command(&self, walls: &Walls, command: &str) -> Spec {
        Spec {
            run: Run::Shell(command.to_owned()),
            workdir: self.spec.workspace.clone(),
            timeout: Some(Duration::from_secs(60)),
            environment: Environment::of_this_process(),
            scope: Scope::new(),
            limits: Limits::default(),
            walls: walls.clone(),
        }
    }

    /// Runs a command in fresh walls.
    pub(crate) async fn run(&self, command: &str) -> (Exit, String) {
        self.run_in(&self.walls(), command).await
    }

    pub(crate) async fn run_in(&self, walls: &Walls, command: &str) -> (Exit, String) {
        let mut output = Vec::new();
        let spec = self.command(walls, command);
        let exit = run(&spec, &CancellationToken::new(), &mut output).await.unwrap();
        (exit, String::from_utf8_lossy(&output).into_owned())
    }

    /// What a command writes that must end well.
    pub(crate) async fn done(&self, command: &str) -> String {
        let (exit, output) = self.run(command).await;
        assert_eq!(exit.code, Some(0), "{command}: {output}");
        output
    }

    /// What a command writes that must fail.
    pub(crate) async fn fails(&self, command: &str) -> String {
        let (exit, output) = self.run(command).await;
        assert!(exit.code.is_some_and(|code| code != 0), "{command}: {exit:?} {output}");
        // Else it is not the command that failed.
        assert!(!output.contains("bwrap: "), "{command}: {output}");
        output
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        let file = self.spec.workspace.join(file);
        fs_err::create_dir_all(file.parent().unwrap()).unwrap();
        fs_err::write(file, text).unwrap();
    }

    pub(crate) fn read(&self, file: &str) -> String {
        fs_err::read_to_string(self.spec.workspace.join(file)).unwrap()
    }
}

/// The example that runs commands in walls, and that can confine itself.
pub(crate) fn example() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let example = own.ancestors().nth(2).unwrap().join("examples/held");
    assert!(
        example.is_file(),
        "{example:?} is missing: `cargo build -p playhouse-sandbox --examples` makes it, and so does a `cargo test` of the whole package"
    );
    example
}

/// Collects output, and cancels a token once `ready` was written.
#[derive(Default)]
pub(crate) struct Watch {
    pub(crate) text: String,
    pub(crate) ready: CancellationToken,
}

impl Receive for Watch {
    fn receive<'a>(&'a mut self, chunk: &'a [u8]) -> BoxFuture<'a, ()> {
        self.text.push_str(&String::from_utf8_lossy(chunk));
        if self.text.contains("ready") {
            self.ready.cancel();
        }
        std::future::ready(()).boxed()
    }
}

/// A command that sleeps for a time by which it is found among all processes.
pub(crate) fn sleeper(number: u32) -> String {
    format!("sleep 87{:05}{number:02}", std::process::id() % 100_000)
}

/// Whether a process lives whose command line holds `mark`.
pub(crate) fn lives(mark: &str) -> bool {
    let entries = fs_err::read_dir("/proc").unwrap().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok()).any(|entry| {
        let line = fs_err::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").contains(mark)
    })
}

pub(crate) async fn gone(mark: &str) -> bool {
    for _ in 0..1000 {
        if !lives(mark) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

/// A path as a word of a shell.
pub(crate) fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_str().unwrap().replace('\'', "'\\''"))
}

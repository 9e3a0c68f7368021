//! What a run stands on: a folder, workspaces, a model on a socket, a configuration, tenants with keys.

use std::fmt::Write as _;
use std::fs::Permissions;
use std::net::TcpListener as Probe;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use fs_err as fs;
use mock_llm::{JournalOptions, Mock, MockOptions, Server};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::arguments::Arguments;
use crate::model::{Tenant, World};
use crate::plan::{ASKED, KINDS, MARK, Plan, kind_name, notes};

/// Tenants, and the workspaces of each.
const TENANTS: usize = 3;
const WORKSPACES: usize = 12;

/// Appends a line with the mark of its command, which names the session, and its argument.
const PROGRAM: &str = "#!/bin/sh\necho \"$PLAYHOUSE_COMMAND $1\" >> lines.txt\n";

/// Providers, each named as its dialect, with what comes after the host in its address.
pub(crate) const DIALECTS: [(&str, &str); 2] = [("anthropic", ""), ("openai-chat", "/v1")];

pub(crate) struct Stage {
    pub(crate) world: Arc<World>,
    pub(crate) mock: Mock,
    /// Removed at the end, unless something was wrong.
    folder: std::cell::RefCell<Option<TempDir>>,
    _server: Server,
}

impl Stage {
    /// Needs a runtime.
    pub(crate) async fn new(arguments: &Arguments) -> Self {
        let folder = TempDir::with_prefix("playhouse-chaos-").unwrap();
        let place = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir(place.join("home")).unwrap();
        let plan = Plan::new(arguments);
        // Bodies of so many requests are more than a journal should keep.
        let journal = JournalOptions { entries: 20_000_000, body_bytes: 0, ..JournalOptions::default() };
        let mock = Mock::with_options(plan.script(), MockOptions { rate: Some(4_000.0), journal }).unwrap();
        let server = mock.serve(TcpListener::bind("127.0.0.1:0").await.unwrap()).unwrap();
        fs::write(place.join("config.toml"), configuration(&server.url(), arguments)).unwrap();
        let tenants = (0..TENANTS).map(|tenant| tenant_in(&place, tenant)).collect();
        let binary = arguments.binary.clone().unwrap_or_else(|| env!("CARGO_BIN_EXE_playhouse").into());
        let world = Arc::new(World::new(plan, place, binary, tenants, free_port(), arguments.duration));
        for tenant in &world.tenants {
            tenant.key.set(key(&world, &tenant.name)).unwrap();
        }
        Self { world, mock, folder: std::cell::RefCell::new(Some(folder)), _server: server }
    }

    /// Keeps the folder.
    pub(crate) fn keep(&self) {
        if let Some(folder) = self.folder.take() {
            let _ = folder.keep();
        }
    }
}

fn tenant_in(place: &std::path::Path, number: usize) -> Tenant {
    let workspaces: Vec<PathBuf> = (0..WORKSPACES)
        .map(|workspace| {
            let folder = place.join("work").join(format!("t{number}-w{workspace}"));
            fs::create_dir_all(&folder).unwrap();
            for program in [MARK, ASKED] {
                let path = folder.join(program);
                fs::write(&path, PROGRAM).unwrap();
                fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
            }
            for kind in 0..KINDS {
                fs::write(folder.join(notes(kind)), "BEGIN\nEND\n").unwrap();
            }
            folder
        })
        .collect();
    Tenant { name: format!("tenant-{number}"), key: std::sync::OnceLock::new(), workspaces }
}

/// The binary with the run's data directory and configuration, and nothing else of the environment.
pub(crate) fn playhouse(world: &World) -> Command {
    let mut command = Command::new(&world.binary);
    command.env_clear().current_dir(&world.place);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let home = world.place.join("home");
    for (variable, folder) in
        [("HOME", ""), ("XDG_CONFIG_HOME", ".config"), ("XDG_DATA_HOME", ".share"), ("TMPDIR", "")]
    {
        command.env(variable, home.join(folder));
    }
    command.arg("--data").arg(world.data()).arg("--config").arg(world.place.join("config.toml"));
    command
}

fn key(world: &World, tenant: &str) -> String {
    let mut command = playhouse(world);
    command.args(["keys", "create", "--tenant", tenant, "--name", "chaos"]).stderr(Stdio::inherit());
    let made = command.output().unwrap();
    assert!(made.status.success(), "{made:?}");
    String::from_utf8(made.stdout).unwrap().trim_end().to_owned()
}

fn configuration(url: &str, arguments: &Arguments) -> String {
    let mut text = String::new();
    if let Some(store) = &arguments.store {
        writeln!(text, "store = \"{store}\"").unwrap();
    }
    text += "[retry]\nbase_ms = 1\nlongest_ms = 200\n[asking]\nwait_ms = 4000\n\
             [metrics]\naccess = \"open\"\n[sessions]\nidle_after_ms = 1500\nmax_live = 150\n[server]\ngrace_ms = 3000\n\
             [permissions]\n\"*\" = \"allow\"\nbash = { \"*\" = \"allow\", \"./asked *\" = \"ask\" }\n";
    for (dialect, path) in DIALECTS {
        writeln!(text, "[providers.on-{dialect}]\ndialect = \"{dialect}\"\nbase_url = \"{url}{path}\"")
            .unwrap();
        for kind in 0..KINDS {
            let name = kind_name(kind);
            writeln!(
                text,
                "[providers.on-{dialect}.models.\"{name}\"]\ncontext = 10000000\noutput = 8000\n\
                 cost = {{ input = 1, output = 2.5, cache_read = 0.1, cache_write = 1.25 }}"
            )
            .unwrap();
        }
    }
    text
}

/// A port below those that the system gives out, so that nobody takes it while the server is away.
fn free_port() -> u16 {
    let first = 18_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    (first..first + 2_000).find(|port| Probe::bind(("127.0.0.1", *port)).is_ok()).expect("a port is free")
}

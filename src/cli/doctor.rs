//! `playhouse doctor`: what is in force on this machine, and what to do about what is not.

mod begin;
mod language_servers;
mod online;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use playhouse_protocol::walls::{Sandbox, Strength, WallsInForce};
use playhouse_protocol::{ModelRef, NewSession, Prompt};
use playhouse_sandbox::Walls;
use playhouse_sandbox::process::{
    Bound, Environment, Limits, Run, Scope, Spec, find_program, keep_memory_private, limits_in_force, run,
};
use rustix::fs::{Access, access, statvfs};
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::run::{directory, new_session};
use super::sessions::{ListFormat, json};
use super::tools::configured;
use super::{CommandResult, Common, Exit, Failure, WallsArguments, print, variable};
use crate::config::{ConfigError, Settings};

/// Less room on the disk of the data directory is told, in bytes.
const LEAST_ROOM: u64 = 1_000_000_000;
/// How long a program may take to tell its version.
const VERSION_TIME: Duration = Duration::from_secs(10);

pub(super) const EXIT_CODES: &str = "\
Each line is ok, weak, missing or wrong.

Exit codes:
  0  commands are held as well as the configuration requires
  1  walls are required, and there are none
  2  bad usage or configuration";

/// Options of `playhouse doctor`.
#[derive(Debug, Args)]
pub(super) struct DoctorArguments {
    /// The directory whose walls and configuration are looked at [default: the current one]
    #[arg(short = 'C', long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// How to print it
    #[arg(long, value_enum, default_value_t = ListFormat::Table)]
    format: ListFormat,
    /// Ask OpenAI and Anthropic, as far as their keys are set, whether they serve the models of the configuration
    #[arg(long)]
    online: bool,
    #[command(flatten)]
    walls: WallsArguments,
}

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    /// As good as it can be.
    Ok,
    /// It works, and holds less than it could.
    Weak,
    /// It is not there.
    Missing,
    /// It is there, and cannot be used.
    Wrong,
}

/// What was found about one thing.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    status: Status,
    /// What there is. Never the value of a key.
    detail: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Finding {
    fn new(check: &'static str, status: Status, detail: impl Into<String>) -> Self {
        Self { check, status, detail: detail.into(), advice: None }
    }

    fn advice(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }
}

pub(super) async fn doctor(common: &Common, arguments: DoctorArguments) -> CommandResult {
    let root = directory(arguments.directory.as_deref())?;
    let mut findings = Vec::new();
    let mut exit = Exit::Completed;
    match common.settings_apart() {
        Ok(settings) => {
            let (checked, begins) = configuration(&settings, &root);
            let level = arguments.walls.sandbox.unwrap_or(settings.sandbox);
            let right = checked.status == Status::Ok;
            findings.push(checked);
            if begins.iter().any(|finding| finding.status == Status::Wrong) {
                exit = Exit::Usage;
            }
            findings.extend(begins);
            findings.push(sandbox(level));
            if right {
                let walls = walls(level, in_force(arguments.walls, settings.clone(), &root).await);
                if exit == Exit::Completed && level == Sandbox::Required && walls.status == Status::Missing {
                    exit = Exit::Failed;
                }
                findings.push(walls);
            } else {
                exit = Exit::Usage;
            }
            findings.push(network(arguments.walls.network || settings.walls.network));
            findings.push(language_servers::language_servers(&settings, &root));
            findings.push(keys(&settings));
            if arguments.online {
                findings.extend(online::online(&settings).await);
            }
            findings.extend(sinks(&settings));
            findings.push(connections(settings.server.connections, getrlimit(Resource::Nofile).maximum));
        }
        Err(Failure { message, .. }) => {
            exit = Exit::Usage;
            findings.push(
                Finding::new("configuration", Status::Wrong, message)
                    .advice("nothing runs until it is right; what depends on it is left out here"),
            );
        }
    }
    findings.push(data(common));
    // Finds out what bounds commands, which blocks.
    let limits = tokio::task::spawn_blocking(limits).await;
    findings.extend(limits.map_err(|error| Failure::failed(error.to_string()))?);
    for program in &PROGRAMS {
        findings.push(version(program).await);
    }
    show(&findings, arguments.format)?;
    Ok(exit)
}

fn show(findings: &[Finding], format: ListFormat) -> Result<(), Failure> {
    let mut text = String::new();
    for finding in findings {
        if format == ListFormat::Json {
            text.push_str(&(json(finding)? + "\n"));
            continue;
        }
        let status = match finding.status {
            Status::Ok => "ok",
            Status::Weak => "weak",
            Status::Missing => "missing",
            Status::Wrong => "wrong",
        };
        let detail = finding.detail.replace('\n', "; ");
        text.push_str(&format!("{status:8} {:14} {detail}\n", finding.check));
        if let Some(advice) = &finding.advice {
            text.push_str(&format!("{:24}→ {advice}\n", ""));
        }
    }
    Ok(print(&text)?)
}

/// The operator's file, and that of the directory; and what sessions begin with by them.
fn configuration(settings: &Settings, root: &Path) -> (Finding, Vec<Finding>) {
    // As a session is made: what the operator's file says first.
    let checked = configured(settings).and_then(|_| {
        let here = settings.with_workspace(root)?;
        let tools = configured(&here)?;
        Ok(begin::begin(&here, root, &tools))
    });
    let begins = match checked {
        Ok(begins) => begins,
        Err(error) => {
            let wrong = Finding::new("configuration", Status::Wrong, error.to_string()).advice(
                "sessions in this directory do not run until it is right; their walls are left out here",
            );
            return (wrong, Vec::new());
        }
    };
    let own = root.join(".playhouse/config.toml");
    let mut files: Vec<String> = settings.file.iter().map(|file| file.display().to_string()).collect();
    if own.is_file() {
        files.push(format!("{} (not trusted: it can only make things stricter)", own.display()));
    }
    let detail = if files.is_empty() { "no file: the defaults hold".to_owned() } else { files.join(", ") };
    (Finding::new("configuration", Status::Ok, detail), begins)
}

fn sandbox(level: Sandbox) -> Finding {
    let finding = |status, what| Finding::new("sandbox", status, format!("{level}: {what}"));
    match level {
        Sandbox::Required => finding(Status::Ok, "commands run inside walls, or not at all"),
        Sandbox::BestEffort => {
            finding(Status::Ok, "commands run inside the best walls that there are here, or without any")
        }
        Sandbox::Off => finding(Status::Weak, "commands run without walls")
            .advice("set `sandbox = \"best-effort\"` or \"required\" in the configuration"),
    }
}

/// The walls that a session in `root` has: those of one that is made for this, and kept nowhere.
///
/// # Errors
/// Why there can be none, or why such a session does not run.
async fn in_force(
    arguments: WallsArguments,
    settings: Settings,
    root: &Path,
) -> Result<WallsInForce, Failure> {
    let house = arguments.house(settings).start().await?;
    let new = NewSession {
        agent: Some(playhouse_prompts::Agents::DEFAULT.to_owned()),
        model: Some(ModelRef::new(crate::mock::PROVIDER, "doctor")),
        ..new_session(root)?
    };
    let found = async {
        let session = house.engine().create(new).await?;
        if let Some(walls) = session.snapshot().await?.walls {
            return Ok(walls);
        }
        // A session that cannot work says why when it shall.
        session.prompt(Prompt::text("Why not?")).await?;
        Err(Failure::failed("no command runs, and the session does not say why"))
    }
    .await;
    house.shutdown().await;
    found
}

fn walls(level: Sandbox, walls: Result<WallsInForce, Failure>) -> Finding {
    let walls = match walls {
        Ok(walls) => walls,
        // Where it is the walls that are missing, it says what to install.
        Err(Failure { message, .. }) => {
            return Finding::new("walls", Status::Missing, message)
                .advice("no session runs in this directory until that is right");
        }
    };
    let finding = |status| Finding::new("walls", status, walls.to_string());
    let install = "install bubblewrap (`bwrap`), and let it make user namespaces";
    match (walls.strength, level) {
        (Strength::Full, _) => finding(Status::Ok),
        (Strength::Weaker, _) if walls.by == "bubblewrap" => {
            finding(Status::Weak).advice("nothing better can be built on this machine")
        }
        (Strength::Weaker, _) => finding(Status::Weak).advice(install),
        (Strength::None, Sandbox::Off) => finding(Status::Weak)
            .advice("set `sandbox = \"best-effort\"` or \"required\" in the configuration"),
        (Strength::None, _) => finding(Status::Missing).advice(install),
    }
}

fn network(reached: bool) -> Finding {
    let detail = if reached {
        "commands may reach it"
    } else {
        "commands may not reach it where walls hold (`[walls] network = true` or --network lets them)"
    };
    Finding::new("network", Status::Ok, detail)
}

/// The variables that hold keys: their names.
fn keys(settings: &Settings) -> Finding {
    let mut set: Vec<&str> = Vec::new();
    for key in settings.providers.values().flat_map(|provider| &provider.keys) {
        let holds = variable(&key.name).is_some_and(|value| !value.trim().is_empty());
        if holds && !set.contains(&key.name.as_str()) {
            set.push(&key.name);
        }
    }
    if set.is_empty() {
        return Finding::new("keys", Status::Missing, "no variable with a provider's key is set")
            .advice("set one, as ANTHROPIC_API_KEY; models on a server of your own may need none");
    }
    Finding::new("keys", Status::Ok, set.join(", "))
}

/// Where the ledger goes, if anywhere.
fn sinks(settings: &Settings) -> Option<Finding> {
    let made = settings
        .sinks
        .iter()
        .map(|(name, sink)| Ok(format!("{name}: {}", sink.sink(name, &variable)?.address())));
    Some(match made.collect::<Result<Vec<String>, ConfigError>>() {
        Ok(sinks) if sinks.is_empty() => return None,
        Ok(sinks) => Finding::new("sinks", Status::Ok, sinks.join(", ")),
        Err(error) => Finding::new("sinks", Status::Wrong, error.to_string())
            .advice("no engine starts until it is right"),
    })
}

/// The data directory, or what is there of the way to it.
fn data(common: &Common) -> Finding {
    let folder = match common.data() {
        Ok(folder) => folder,
        Err(Failure { message, .. }) => {
            return Finding::new("data", Status::Missing, message).advice("name one with --data");
        }
    };
    let shown = folder.display();
    let there = folder.ancestors().find(|place| place.exists()).unwrap_or(Path::new("."));
    let wrong = |detail| {
        Finding::new("data", Status::Wrong, detail).advice("name another data directory with --data")
    };
    if !there.is_dir() {
        return wrong(format!("{} is not a directory", there.display()));
    }
    if let Err(error) = access(there, Access::WRITE_OK | Access::EXEC_OK) {
        return wrong(format!("{shown}: cannot write to {}: {error}", there.display()));
    }
    let made = if there == folder { "" } else { " (it is made when it is needed)" };
    let mut detail = format!("{shown}{made}");
    // Where that cannot be told, as on some network file systems, nothing is said of it.
    if let Ok(disk) = statvfs(there) {
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        detail.push_str(&format!(", with room for {} MB", free / 1_000_000));
        // Some file systems count no files.
        if free < LEAST_ROOM || (disk.f_files > 0 && disk.f_favail == 0) {
            let advice =
                "make room on that disk, for files as well: an engine takes no work while it is full";
            return Finding::new("data", Status::Weak, detail).advice(advice);
        }
    }
    Finding::new("data", Status::Ok, detail)
}

/// What a server may have open at once, and as far as the system lets it: `files` at the most.
fn connections(connections: usize, files: Option<u64>) -> Finding {
    let most = files.map_or("any number of".to_owned(), |files| files.to_string());
    let detail = format!("{connections} of clients at once, and {most} open files");
    // Who waits for an answer takes one more, for the request to the model.
    let wanted = u64::try_from(connections).unwrap_or(u64::MAX).saturating_mul(2);
    if files.is_some_and(|files| files < wanted) {
        return Finding::new("connections", Status::Weak, detail).advice(format!(
            "allow {wanted} open files (`LimitNOFILE=`, `ulimit -Hn`), or set a smaller `server.connections`: each client takes one, and its request to a model another"
        ));
    }
    Finding::new("connections", Status::Ok, detail)
}

/// What bounds commands, and whether they can look into the engine.
fn limits() -> Vec<Finding> {
    let limits = limits_in_force();
    let bounds = [
        ("processes", &limits.tasks),
        ("memory", &limits.memory),
        ("file size", &limits.file_size),
        ("open files", &limits.open_files),
        ("processor time", &limits.cpu_seconds),
    ];
    let status = if bounds.iter().any(|(_, bound)| **bound == Bound::Nothing) {
        Status::Missing
    } else if limits.tasks.is_per_session() && limits.memory.is_per_session() {
        Status::Ok
    } else {
        Status::Weak
    };
    let detail = bounds.map(|(what, bound)| format!("{what}: {bound}")).join("; ");
    let mut bounded = Finding::new("limits", status, detail);
    if status != Status::Ok {
        bounded = bounded.advice("let this user write to a control group (with systemd: `Delegate=yes`)");
    }
    let ends = match limits.outlives {
        None => Finding::new("ends", Status::Ok, "commands end with the engine, also when it is killed"),
        Some(reason) => {
            let detail = format!("commands outlive an engine that is killed: {reason}");
            Finding::new("ends", Status::Weak, detail).advice("let this user write to a control group")
        }
    };
    let memory = match keep_memory_private() {
        Ok(()) => Finding::new(
            "memory",
            Status::Ok,
            "other programs of this user cannot read what the engine holds",
        ),
        Err(error) => {
            let detail = format!("programs of this user can read what the engine holds: {error}");
            Finding::new("memory", Status::Weak, detail).advice("run commands inside walls")
        }
    };
    vec![bounded, ends, memory]
}

/// A program that is used, and what for.
struct Program {
    name: &'static str,
    /// How bad it is that it is not there.
    without: Status,
    advice: &'static str,
}

const PROGRAMS: [Program; 3] = [
    Program {
        name: "bash",
        without: Status::Missing,
        advice: "install bash: the tool `bash` runs its commands in it",
    },
    Program {
        name: "git",
        without: Status::Weak,
        advice: "install git: models know no better way to see what changed",
    },
    Program {
        name: "bwrap",
        without: Status::Missing,
        advice: "install bubblewrap: the walls are made of it",
    },
];

/// Where a program is, and its version as it tells it.
async fn version(program: &Program) -> Finding {
    let Program { name, without, advice } = program;
    let Some(file) = find_program(name) else {
        return Finding::new(name, *without, "not found").advice(*advice);
    };
    let shown = file.display().to_string();
    let wrong =
        |reason: String| Finding::new(name, Status::Wrong, format!("{shown}: {reason}")).advice(*advice);
    let spec = Spec {
        run: Run::Words(vec![file.into(), "--version".into()]),
        workdir: PathBuf::from("/"),
        timeout: Some(VERSION_TIME),
        environment: Environment::of_this_process(),
        scope: Scope::new(),
        limits: Limits::default(),
        walls: Walls::open(),
    };
    let mut output = Vec::new();
    match run(&spec, &CancellationToken::new(), &mut output).await {
        Err(error) => wrong(error.to_string()),
        Ok(exit) if exit.code != Some(0) => wrong("it does not tell its version".to_owned()),
        Ok(_) => {
            let text = String::from_utf8_lossy(&output);
            let line = text.lines().next().unwrap_or_default().chars();
            let version: String = line.filter(|character| !character.is_control()).take(100).collect();
            Finding::new(name, Status::Ok, format!("{version} ({shown})"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_that_is_not_there_is_missing() {
        let absent =
            Program { name: "playhouse-has-no-such-program", without: Status::Weak, advice: "install it" };
        let found = version(&absent).await;
        assert_eq!((found.status, found.advice.as_deref()), (Status::Weak, Some("install it")));
    }

    #[test]
    fn walls_are_judged_by_what_was_wanted() {
        let held = |strength| {
            let (by, detail) = ("none".to_owned(), "nothing holds".to_owned());
            Ok(WallsInForce { strength, by, detail, network: true })
        };
        for (level, strength, status) in [
            (Sandbox::Required, Strength::Full, Status::Ok),
            (Sandbox::Required, Strength::Weaker, Status::Weak),
            (Sandbox::Required, Strength::None, Status::Missing),
            (Sandbox::BestEffort, Strength::None, Status::Missing),
            (Sandbox::Off, Strength::None, Status::Weak),
        ] {
            assert_eq!(walls(level, held(strength)).status, status, "{level} {strength:?}");
        }
        let refused = walls(Sandbox::Required, Err(Failure::failed("the directory is gone")));
        assert_eq!((refused.status, refused.detail.as_str()), (Status::Missing, "the directory is gone"));
        assert!(
            refused.advice.is_some_and(|advice| !advice.contains("install")),
            "it is no lack of programs"
        );
    }
}

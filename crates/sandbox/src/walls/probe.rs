//! What walls can be built of on this machine, found out once in a process.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use playhouse_protocol::walls::{Sandbox, WallsAllowed};

use super::toolchain::Surroundings;
use super::view::View;
use super::{WallsSpec, bubblewrap};
use crate::process::{find_program, program};

/// A trial that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(2);
/// The most that is read of what a trial says, in bytes.
const MOST_SAID: u64 = 4096;

/// A bubblewrap that works.
#[derive(Clone, Debug)]
pub(super) struct Bubblewrap {
    pub(super) program: PathBuf,
    /// Whether it can make a user namespace.
    pub(super) with_user: bool,
    /// Whether it can do without: for root.
    pub(super) without_user: bool,
}

static AVOIDED: AtomicBool = AtomicBool::new(false);

/// From now on walls are built as if there were no bubblewrap: to try out what else there is.
pub fn without_bubblewrap() {
    AVOIDED.store(true, Ordering::Relaxed);
}

/// The bubblewrap of this machine, or why there is none that works. Blocks for some milliseconds the first time.
pub(super) fn bubblewrap() -> Result<&'static Bubblewrap, String> {
    static FOUND: OnceLock<Result<Bubblewrap, String>> = OnceLock::new();
    if AVOIDED.load(Ordering::Relaxed) {
        return Err("bubblewrap is not to be used".to_owned());
    }
    FOUND.get_or_init(try_bubblewrap).as_ref().map_err(Clone::clone)
}

fn try_bubblewrap() -> Result<Bubblewrap, String> {
    let program = find_program("bwrap").ok_or("there is no program bwrap")?;
    let with = trial(&Bubblewrap { program: program.clone(), with_user: true, without_user: false });
    let without = trial(&Bubblewrap { program: program.clone(), with_user: false, without_user: true });
    if let (Err(reason), Err(_)) = (&with, &without) {
        let hint = switched_off().map(|file| format!(" ({file} forbids it)")).unwrap_or_default();
        return Err(format!("{} does not work here: {reason}{hint}", program.display()));
    }
    Ok(Bubblewrap { program, with_user: with.is_ok(), without_user: without.is_ok() })
}

/// Runs a program that does nothing, in a view as it is used.
fn trial(bubblewrap: &Bubblewrap) -> Result<(), String> {
    let told = |error: io::Error| error.to_string();
    let folder = tempfile::tempdir().map_err(told)?;
    let root = fs_err::canonicalize(folder.path()).map_err(told)?;
    let spec = WallsSpec {
        sandbox: Sandbox::Required,
        allowed: WallsAllowed::default(),
        workspace: root.join("workspace"),
        output: root.join("output"),
        shared: Vec::new(),
        home: root.join("home"),
        hidden: Vec::new(),
        roots: Vec::new(),
    };
    fs_err::create_dir(&spec.workspace).map_err(told)?;
    let view = View::build(&spec, &Surroundings::of_this_process()).map_err(told)?;
    let inner = ["/bin/sh", "-c", "exit 0"].map(OsString::from).to_vec();
    let (words, _) = bubblewrap::words(bubblewrap, &view, &spec.workspace, None, inner, &[]).map_err(told)?;
    let (first, rest) = words.split_first().ok_or("nothing to run")?;
    run(first, rest, &spec.workspace)
}

fn run(first: &OsString, rest: &[OsString], directory: &Path) -> Result<(), String> {
    let told = |error: io::Error| error.to_string();
    let mut child = program(first)
        .args(rest)
        .env_clear()
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(told)?;
    let start = Instant::now();
    let status = loop {
        match child.try_wait().map_err(told)? {
            Some(status) => break status,
            None if start.elapsed() > PATIENCE => {
                // Both fail only when it is gone.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it did not end within {PATIENCE:?}"));
            }
            None => std::thread::sleep(PAUSE),
        }
    };
    if status.success() {
        return Ok(());
    }
    let mut said = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        // What it said until then is enough.
        let _ = stderr.take(MOST_SAID).read_to_end(&mut said);
    }
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().last().unwrap_or_default();
    Err(if last.is_empty() { status.to_string() } else { last.to_owned() })
}

/// The setting of the kernel that forbids what bubblewrap needs, if one does.
fn switched_off() -> Option<&'static str> {
    let settings = [
        ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
        ("/proc/sys/user/max_user_namespaces", "0"),
    ];
    let forbids =
        |(file, value): &(&str, &str)| fs_err::read_to_string(file).is_ok_and(|text| text.trim() == *value);
    settings.into_iter().find(forbids).map(|(file, _)| file)
}

//! Clients of others, unchanged: the SDKs and the terminal client of opencode, as the npm registry has them, against
//! `playhouse serve` and a scripted model. `scripts/setup` installs them into `tests/clients`, where the scripts lie that
//! drive the SDKs.
//!
//! Each has a home of its own and reaches for nothing outside of this machine.

mod attach;
mod mini;
mod screen;
mod sdk;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::stage::Stage;

/// A program of this machine that tests with clients need.
fn needed(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").expect("there is a PATH");
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|place| place.is_file());
    found.unwrap_or_else(|| panic!("there is no {name}: run scripts/setup, which installs it"))
}

/// A file of `tests/clients`.
fn of_clients(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name);
    assert!(path.exists(), "there is no {}: run scripts/setup, which installs it", path.display());
    path
}

/// The terminal client of opencode.
fn opencode(stage: &Stage) -> Command {
    isolated(stage.program(opencode_itself()))
}

/// The same with its standard output in a file: what is still on its way into a pipe is lost when the client ends itself.
fn opencode_into(stage: &Stage, file: &Path) -> Command {
    let mut command = isolated(stage.program("/bin/sh"));
    command.env("INTO", file).args(["-c", r#"exec "$0" "$@" >"$INTO""#]).arg(opencode_itself());
    command
}

fn opencode_itself() -> PathBuf {
    of_clients("node_modules/opencode-ai/bin/opencode.exe")
}

/// It neither updates itself nor asks for a list of models.
fn isolated(mut command: Command) -> Command {
    for variable in ["OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_MODELS_FETCH"] {
        command.env(variable, "1");
    }
    command
}

//! The peer: opencode as npm has it, with a provider that is the scripted model.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;

use crate::model::Scripted;
use crate::place::Place;
use crate::process::Process;
use crate::target::{Target, Wire};
use crate::who::write_file;
use crate::{Options, Result};

/// The package.
const PACKAGE: &str = "opencode-ai";

/// An installed peer.
pub(crate) struct Peer {
    program: PathBuf,
    version: String,
}

impl Peer {
    /// Installs the newest version of the package that `wanted` allows (`1`, `1.18.33`), unless it is there already.
    pub(crate) fn install(wanted: &str) -> Result<Self> {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("peer-{PACKAGE}-{wanted}"));
        let package = target.join("node_modules").join(PACKAGE);
        if !package.join("package.json").is_file() {
            fs_err::create_dir_all(&target)?;
            fs_err::write(target.join("package.json"), "{\"private\": true}")?;
            let status = Command::new("npm")
                .args(["install", "--no-audit", "--no-fund", "--silent", &format!("{PACKAGE}@{wanted}")])
                .current_dir(&target)
                .stdout(Stdio::null())
                .status()
                .map_err(|error| format!("a peer needs npm: {error}"))?;
            if !status.success() {
                return Err(format!("npm could not install {PACKAGE}@{wanted}: {status}").into());
            }
        }
        let manifest: serde_json::Value =
            serde_json::from_slice(&fs_err::read(package.join("package.json"))?)?;
        let version = manifest["version"].as_str().unwrap_or(wanted).to_owned();
        // The program itself, not the script that starts it: its numbers are read.
        let program = ["bin/opencode.exe", "bin/opencode"].map(|name| package.join(name));
        let program = program.into_iter().find(|program| program.is_file());
        Ok(Self { program: program.ok_or("the peer's package has no program")?, version })
    }

    pub(crate) fn name(&self) -> String {
        format!("opencode {}", self.version)
    }

    /// Starts it in a new place.
    pub(crate) async fn start(&self, options: &Options, model: &Scripted) -> Result<Target> {
        let place = Place::in_folder(options.folder()?, "")?;
        write_file(&place.workspace())?;
        let home = place.path().join("home");
        fs_err::create_dir_all(&home)?;
        let mut command = Command::new(&self.program);
        command
            .args(["serve", "--hostname", "127.0.0.1", "--port", &free_port()?.to_string()])
            .current_dir(place.workspace())
            .env("HOME", &home)
            .env("OPENCODE_CONFIG_CONTENT", model.peer_config().to_string())
            .env("OPENCODE_DISABLE_AUTOUPDATE", "1")
            .stderr(Stdio::null());
        for variable in ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"] {
            command.env(variable, home.join(variable));
        }
        let mut process = Process::start(&mut command)?;
        // Warnings may come first.
        for _ in 0..10 {
            if process.line.contains("http://") {
                break;
            }
            process.next_line()?;
        }
        let address = process.line.rsplit_once("http://").map(|(_, address)| address.trim().to_owned());
        Ok(Target {
            wire: Wire::V1,
            address: address.ok_or_else(|| format!("the peer did not start: it said {:?}", process.line))?,
            workspace: place.workspace(),
            id: Some(process.id()),
            process: Some(process),
            place: Some(Rc::new(place)),
            authorization: None,
        })
    }
}

/// A port that nobody listens on, a moment ago.
fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

//! `playhouse serve`, started as people start it.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Result;
use crate::http::Connection;
use crate::model::Scripted;
use crate::process::Process;

/// A folder with a configuration, a data directory and a workspace.
pub(crate) struct Place {
    folder: TempDir,
}

impl Place {
    pub(crate) fn new(config: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        fs_err::create_dir_all(folder.path().join("workspace"))?;
        fs_err::write(folder.path().join("config.toml"), config)?;
        Ok(Self { folder })
    }

    /// Whose models are those of `model`, whose commands need nobody's leave, and which holds them by no walls, so that
    /// they run on every machine.
    pub(crate) fn with(model: &Scripted) -> Result<Self> {
        Self::new(&format!("sandbox = \"off\"\n{}", model.config()))
    }

    pub(crate) fn workspace(&self) -> std::path::PathBuf {
        self.folder.path().join("workspace")
    }

    pub(crate) fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    fn command(&self) -> Command {
        let path = |name: &str| self.folder.path().join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_playhouse"));
        command
            .args(["serve", "--port", "0", "--data"])
            .arg(path("data"))
            .arg("--config")
            .arg(path("config.toml"))
            .arg("--root")
            .arg(path("workspace"))
            .stderr(Stdio::null());
        command
    }

    /// Starts a server here.
    pub(crate) fn serve(&self) -> Result<Served> {
        let process = Process::start(&mut self.command())?;
        let address = process.line.rsplit_once("http://").map(|(_, address)| address.to_owned());
        let address = address.ok_or_else(|| {
            format!(
                "`playhouse serve` did not start: it said {:?}; see {:?}",
                process.line,
                self.folder.path()
            )
        })?;
        Ok(Served { process, address })
    }
}

/// A running server.
pub(crate) struct Served {
    pub(crate) process: Process,
    /// Host and port.
    pub(crate) address: String,
}

impl Served {
    pub(crate) async fn connect(&self) -> Result<Connection> {
        Connection::open(&self.address).await
    }
}

/// A new session with one of the scripted models; its id.
pub(crate) async fn session(connection: &mut Connection, workspace: &Path, model: &str) -> Result<String> {
    let new = json!({
        "workspace": workspace, "title": model, "model": format!("bench/{model}"), "unattended": true,
        "permissions": [{"permission": "*", "pattern": "*", "action": "allow"}],
    });
    let session = connection.json("POST", "/v1/sessions", Some(&new)).await?;
    Ok(text_of(&session, "id")?.to_owned())
}

/// Begins a turn; the prompt's id.
pub(crate) async fn prompt(connection: &mut Connection, session: &str) -> Result<String> {
    let accepted = connection
        .json("POST", &format!("/v1/sessions/{session}/prompts"), Some(&json!({"text": "Go."})))
        .await?;
    Ok(text_of(&accepted, "turn")?.to_owned())
}

fn text_of<'a>(value: &'a Value, field: &str) -> Result<&'a str> {
    value[field].as_str().ok_or_else(|| format!("there is no \"{field}\" in {value}").into())
}

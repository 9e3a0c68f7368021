//! The scripted model, in a process of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use playhouse::mock_llm::{JournalOptions, Mock, MockOptions, Model, Script, tokens};
use serde::Deserialize;
use serde_json::json;

use crate::Result;

/// The argument that makes this program the model.
pub(crate) const ROLE: &str = "scripted-model";
/// Its name for a model that reads a file and says a little in each of so many steps.
pub(crate) const WALK: &str = "walk";
/// Its name for a model that says [`PACED_TOKENS`] at [`PACE`].
pub(crate) const PACED: &str = "paced";
/// How much the paced model says.
pub(crate) const PACED_TOKENS: u64 = 2_000;
/// How fast, in tokens a second.
pub(crate) const PACE: f64 = 1_000.0;
/// Its name for a model that calls a tool of an MCP server in each of so many steps, of the servers `s0`, `s1` and `s2` in turn.
pub(crate) const MCP: &str = "mcp";
/// Its name for one that calls [`NOTHING`] in each of so many steps.
pub(crate) const NATIVE: &str = "native";
/// The tool of the MCP servers, and of the engine, that does nothing.
pub(crate) const NOTHING: &str = "nothing";
/// Its name for a model that edits [`EDITED`] in each of so many steps but the first, which reads it.
pub(crate) const EDITS: &str = "edits";
/// Its name for one that does the same after it has asked the file's language server.
pub(crate) const EDITS_ASKED: &str = "edits-asked";
/// Its name for one that has a command write a file in each of so many steps.
pub(crate) const COMMANDS: &str = "commands";
/// Its name for one that has one command change every file `d0/*`.
pub(crate) const SWEEP: &str = "sweep";
/// The file that is edited, and what it holds before.
pub(crate) const EDITED: &str = "edited.acc";
pub(crate) const EDITED_FIRST: &str = "version 0 of a line\nwords\nend\n";
/// The file that the walking model reads.
pub(crate) const FILE: &str = "notes.txt";

/// A running model.
pub(crate) struct Server {
    child: Child,
    /// Where it listens.
    pub(crate) url: String,
    journal: PathBuf,
}

/// What the model noted of a request.
#[derive(Deserialize)]
pub(crate) struct Asked {
    /// The answers since the last prompt.
    pub(crate) step: usize,
    /// When its first bytes could be read, in microseconds.
    pub(crate) arrived_us: u64,
    /// When the end of its answer was handed over, in microseconds.
    pub(crate) sent_us: u64,
}

impl Server {
    /// Starts a model that keeps its journal in `folder` and can walk `steps`.
    pub(crate) fn start(folder: &Path, steps: usize) -> Result<Self> {
        let journal = folder.join("journal.ndjson");
        let mut child = Command::new(std::env::current_exe()?)
            .arg(ROLE)
            .arg(&journal)
            .arg(steps.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut url = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut url)?;
        }
        let url = url.trim().to_owned();
        if !url.starts_with("http://") {
            return Err(format!("the scripted model did not start: it said {url:?}").into());
        }
        Ok(Self { child, url, journal })
    }

    /// Stops it, and gives what it was asked, in order.
    pub(crate) fn stop(mut self) -> Result<Vec<Asked>> {
        // Its input ends.
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        if !status.success() {
            return Err(format!("the scripted model ended with {status}").into());
        }
        let journal = fs_err::read_to_string(&self.journal)?;
        Ok(journal.lines().map(serde_json::from_str).collect::<std::result::Result<_, _>>()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Has ended already, unless the measurement failed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Serves until its input ends.
pub(crate) fn serve(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let journal = arguments.next().ok_or("the journal's file is missing")?;
    let steps: usize = arguments.next().ok_or("the count of steps is missing")?.parse()?;
    let walk = (0..steps)
        .fold(Model::new(), |model, _| model.step(tokens(40).call("read", json!({"filePath": FILE}))));
    let paced = Model::new().step(tokens(PACED_TOKENS)).rate(PACE);
    let call = |name: String| tokens(40).call(name, json!({}));
    let mcp =
        (0..steps).fold(Model::new(), |model, step| model.step(call(format!("mcp_s{}_{NOTHING}", step % 3))));
    let native = (0..steps).fold(Model::new(), |model, _| model.step(call(NOTHING.to_owned())));
    let bash = |command: &str| tokens(40).call("bash", json!({"command": command}));
    let commands = (0..steps)
        .fold(Model::new(), |model, step| model.step(bash(&format!("echo version {step} > commanded"))));
    let sweep = Model::new().step(bash("for file in d0/*; do echo changed >> $file; done"));
    let script = Script::new()
        .model(WALK, walk)
        .model(PACED, paced)
        .model(MCP, mcp)
        .model(NATIVE, native)
        .model(EDITS, edits(steps, false))
        .model(EDITS_ASKED, edits(steps, true))
        .model(COMMANDS, commands)
        .model(SWEEP, sweep);
    let journal = JournalOptions { entries: 0, body_bytes: 0, file: Some(journal.into()) };
    let mock = Mock::with_options(script, MockOptions { rate: None, journal })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = mock.serve(tokio::net::TcpListener::bind("127.0.0.1:0").await?)?;
        println!("{}", server.url());
        std::io::stdout().flush()?;
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
        server.shutdown().await;
        Ok::<_, crate::Failure>(())
    })?;
    mock.journal().flush()?;
    Ok(())
}

fn edits(steps: usize, asks: bool) -> Model {
    let read = Model::new().step(tokens(40).call("read", json!({"filePath": EDITED})));
    let hover = json!({"operation": "hover", "filePath": EDITED, "line": 1, "character": 1});
    let (begun, steps) = if asks {
        (read.step(tokens(40).call("lsp", hover)), steps.saturating_sub(1))
    } else {
        (read, steps)
    };
    (1..steps).fold(begun, |model, step| {
        let (old, new) = (format!("version {} ", step - 1), format!("version {step} "));
        model.step(tokens(40).call("edit", json!({"filePath": EDITED, "oldString": old, "newString": new})))
    })
}

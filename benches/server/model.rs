//! The scripted model, in a process of its own.

use std::io::{Read, Write};

use playhouse::mock_llm::{Mock, Model, Script, Step, call, tokens};
use serde_json::json;

use crate::Result;
use crate::process::Process;

/// The argument that makes this program the model.
pub(crate) const ROLE: &str = "scripted-model";
/// Its name for a model that tells the time [`PACE`] times a second, for hours.
pub(crate) const CLOCK: &str = "clock";
/// How fast the clock is, in tokens a second.
pub(crate) const PACE: f64 = 50.0;
/// Its name for a model that says [`ANSWER`] tokens at once.
pub(crate) const TALKER: &str = "talker";
/// How much the talker says.
pub(crate) const ANSWER: u64 = 200;
/// How fast, in tokens a second.
const TALK: f64 = 100.0;
/// Its name for a model that has a command print [`PRINTED`] bytes.
pub(crate) const PRINTER: &str = "printer";
/// What the command prints.
pub(crate) const PRINTED: usize = 1_000_000;

/// A running model.
pub(crate) struct Scripted {
    _process: Process,
    /// Host and port.
    pub(crate) address: String,
}

impl Scripted {
    pub(crate) fn start() -> Result<Self> {
        let process = Process::role(ROLE, &[])?;
        let address = process.line.strip_prefix("http://").map(str::to_owned);
        let address =
            address.ok_or_else(|| format!("the model did not start: it said {:?}", process.line))?;
        Ok(Self { _process: process, address })
    }

    /// What makes the models of this process known.
    pub(crate) fn config(&self) -> String {
        let address = &self.address;
        let mut config =
            format!("[providers.bench]\ndialect = \"anthropic\"\nbase_url = \"http://{address}/v1\"\n");
        for model in [CLOCK, TALKER, PRINTER] {
            config += &format!("[providers.bench.models.{model}]\ncontext = 1000000\noutput = 1000000\n");
        }
        config
    }
}

/// Serves until its input ends.
pub(crate) fn serve() -> Result<()> {
    let clock = Model::new().step(Step::empty().times(1_000_000)).rate(PACE);
    let talker = Model::new().step(tokens(ANSWER)).rate(TALK);
    // Lines of a usual length.
    let command = format!("yes {} | head -c {PRINTED}", "a".repeat(79));
    let printer = Model::new().step(call("bash", json!({"command": command, "description": "Prints much"})));
    let script = Script::new().model(CLOCK, clock).model(TALKER, talker).model(PRINTER, printer);
    let mock = Mock::new(script);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = mock.serve(tokio::net::TcpListener::bind("127.0.0.1:0").await?)?;
        println!("{}", server.url());
        std::io::stdout().flush()?;
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
        server.shutdown().await;
        Ok::<_, crate::Failure>(())
    })
}

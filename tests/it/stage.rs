//! What a test stands on.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use fs_err as fs;
use mock_llm::{Entry, Mock, MockOptions, Model, Rules, Script, Server};
use playhouse::protocol::{Event, Record, SessionId};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// Far longer than any command of a test takes: ends one that hangs.
const PATIENCE: Duration = Duration::from_secs(90);

/// A wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Anthropic,
    OpenaiChat,
}

impl Dialect {
    pub(crate) const ALL: [Self; 2] = [Self::Anthropic, Self::OpenaiChat];

    fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenaiChat => "openai-chat",
        }
    }
}

thread_local! {
    static CARRIER: Cell<Carrier> = const { Cell::new(Carrier::InProcess) };
}

/// In which process the engine of a test's commands runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// In that of each command.
    InProcess,
    /// In one of its own, whose clients they are.
    Engine,
}

/// The process of the engine that has the data directory open, and what it says of itself.
pub(crate) fn engine_at(data: &Path) -> Option<(Pid, Value)> {
    let mut stream = UnixStream::connect(data.join("engine.sock")).ok()?;
    let body = r#"{"request": "hello"}"#;
    let head =
        "POST /operator HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json";
    write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    let mut reply: Value = serde_json::from_str(body).ok()?;
    let pid = i32::try_from(reply["data"]["pid"].as_u64()?).ok()?;
    Some((Pid::from_raw(pid)?, reply["data"].take()))
}

/// Runs a test twice: its commands do the same, in whichever process the engine runs.
pub(crate) fn in_both(test: impl Fn()) {
    for carrier in [Carrier::InProcess, Carrier::Engine] {
        with_carrier(carrier, &test);
    }
}

/// Runs a test whose commands are clients of an engine in the background.
pub(crate) fn through_an_engine(test: impl Fn()) {
    with_carrier(Carrier::Engine, test);
}

fn with_carrier(carrier: Carrier, test: impl Fn()) {
    /// Sets it back however the test ends.
    struct Back;
    impl Drop for Back {
        fn drop(&mut self) {
            CARRIER.set(Carrier::InProcess);
        }
    }
    CARRIER.set(carrier);
    let _back = Back;
    test();
}

/// A model on a socket, a configuration that knows it as `local/MODEL`, a workspace and a data directory.
pub(crate) struct Stage {
    pub(crate) mock: Mock,
    pub(crate) workspace: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) config: PathBuf,
    carrier: Carrier,
    root: TempDir,
    server: Server,
    /// Drives the server as long as the test lasts.
    runtime: Runtime,
}

impl Stage {
    /// With one model, `local/m`, that says this.
    pub(crate) fn new(model: Model) -> Self {
        Self::speaking(Dialect::OpenaiChat, Script::new().model("m", model))
    }

    /// With a model that refuses what the providers of these models refuse. The configuration is the test's to write.
    pub(crate) fn with_rules(script: Script, options: MockOptions, rules: Rules) -> Self {
        let mock = Mock::with_rules(script.clone(), options, rules).unwrap();
        Self::asking(Dialect::OpenaiChat, script, mock)
    }

    pub(crate) fn speaking(dialect: Dialect, script: Script) -> Self {
        // Models that it knows by name refuse what their providers refuse.
        let mock = Mock::with_rules(script.clone(), MockOptions::default(), Rules::default()).unwrap();
        Self::asking(dialect, script, mock)
    }

    fn asking(dialect: Dialect, script: Script, mock: Mock) -> Self {
        let root = tempfile::tempdir().unwrap();
        let place = fs::canonicalize(root.path()).unwrap();
        let [workspace, data, config] = ["workspace", "data", "config.toml"].map(|name| place.join(name));
        for folder in [&workspace, &place.join("home")] {
            fs::create_dir(folder).unwrap();
        }
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let names: Vec<String> = script.models.into_keys().collect();
        let server =
            runtime.block_on(async { mock.serve(TcpListener::bind("127.0.0.1:0").await.unwrap()).unwrap() });
        let path = if dialect == Dialect::OpenaiChat { "/v1" } else { "" };
        let mut text = format!(
            "model = \"local/{}\"\n[providers.local]\ndialect = \"{}\"\nbase_url = \"{}{path}\"\n",
            names[0],
            dialect.name(),
            server.url(),
        );
        for name in names {
            let facts = "context = 100000\noutput = 4000\nattachments = [\"image\", \"pdf\"]\n\
                         cost = { input = 1, output = 2.5, cache_read = 0.1, cache_write = 1.25 }";
            writeln!(text, "[providers.local.models.\"{name}\"]\n{facts}").unwrap();
        }
        fs::write(&config, text).unwrap();
        Self { mock, workspace, data, config, carrier: CARRIER.get(), root, server, runtime }
    }

    /// From now on this is the whole of what the model `local/m` says, its turns so far included; what it was asked is forgotten.
    pub(crate) fn goes_on_with(&mut self, model: Model) {
        self.goes_on_before(Mock::new(Script::new().model("m", model)));
    }

    /// From now on its models are those of `mock`.
    pub(crate) fn goes_on_before(&mut self, mock: Mock) {
        let before = self.url();
        self.mock = mock;
        let listening = async { self.mock.serve(TcpListener::bind("127.0.0.1:0").await.unwrap()).unwrap() };
        self.server = self.runtime.block_on(listening);
        let text = fs::read_to_string(&self.config).unwrap();
        fs::write(&self.config, text.replace(&before, &self.url())).unwrap();
    }

    /// Where the model listens.
    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// A folder of the test's own, beside the workspace.
    pub(crate) fn root(&self) -> PathBuf {
        fs::canonicalize(self.root.path()).unwrap()
    }

    /// Writes a file of the workspace.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.workspace.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    /// Reads a file of the workspace.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.workspace.join(name)).unwrap()
    }

    /// Adds lines at the end of the configuration.
    pub(crate) fn configure(&self, lines: &str) -> &Self {
        let text = fs::read_to_string(&self.config).unwrap();
        fs::write(&self.config, format!("{text}\n{lines}\n")).unwrap();
        self
    }

    /// Adds lines at the beginning of the configuration, before all tables.
    pub(crate) fn configure_first(&self, lines: &str) -> &Self {
        let text = fs::read_to_string(&self.config).unwrap();
        fs::write(&self.config, format!("{lines}\n{text}")).unwrap();
        self
    }

    /// The binary with the test's data directory and configuration, started in its workspace.
    pub(crate) fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        self.binary(self.flag(), arguments)
    }

    fn binary<A: AsRef<OsStr>>(&self, flag: &str, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_playhouse"));
        command.arg("--data").arg(&self.data).arg("--config").arg(&self.config);
        command.args(flag.split_whitespace()).args(arguments);
        command
    }

    /// The option that says in which process the engine runs.
    pub(crate) fn flag(&self) -> &'static str {
        match self.carrier {
            Carrier::InProcess => "--in-process",
            Carrier::Engine => "",
        }
    }

    /// The same as a client of whoever has the data directory open, whatever the other commands of the test are.
    pub(crate) fn client<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Ended {
        finish(self.binary("", arguments))
    }

    /// The process of the engine that has the data directory open, and what it says of itself.
    pub(crate) fn engine(&self) -> Option<(Pid, Value)> {
        engine_at(&self.data)
    }

    /// Any program, started in the workspace, with a home of the test's own and nothing else of the environment.
    pub(crate) fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().current_dir(&self.workspace);
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        let home = self.root().join("home");
        for (variable, folder) in
            [("HOME", ""), ("XDG_CONFIG_HOME", ".config"), ("XDG_DATA_HOME", ".share"), ("TMPDIR", "")]
        {
            command.env(variable, home.join(folder));
        }
        command
    }

    /// Runs the binary to its end.
    pub(crate) fn playhouse<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Ended {
        finish(self.command(arguments))
    }

    /// Runs it with this on its standard input.
    pub(crate) fn playhouse_reading<const N: usize>(
        &self,
        input: impl Into<Vec<u8>>,
        arguments: [&str; N],
    ) -> Ended {
        let mut command = assert_cmd::Command::from_std(self.command(arguments));
        command.write_stdin(input).timeout(PATIENCE).output().unwrap().into()
    }

    /// A `run` of one prompt.
    pub(crate) fn run<const N: usize>(&self, arguments: [&str; N]) -> Ended {
        self.playhouse(["run"].into_iter().chain(arguments))
    }

    /// What the model was asked.
    pub(crate) fn asked(&self) -> Vec<Entry> {
        self.mock.journal().entries()
    }

    /// The bodies of what the model was asked.
    pub(crate) fn requests(&self) -> Vec<Value> {
        let body = |entry: &Entry| serde_json::from_slice(entry.body.as_ref().unwrap()).unwrap();
        self.asked().iter().map(body).collect()
    }

    /// Waits until what the model was asked is so.
    pub(crate) fn wait_for(&self, is_so: impl FnMut(&[Entry]) -> bool) {
        let waiting = self.mock.journal().wait_until(is_so);
        self.runtime
            .block_on(async { tokio::time::timeout(PATIENCE, waiting).await })
            .expect("the model is asked what the test waits for");
    }

    /// The newest session of the workspace.
    pub(crate) fn session(&self) -> String {
        let ended = self.playhouse(["sessions", "list", "--format", "ndjson", "--limit", "1"]).is(0);
        let summary: Value = serde_json::from_str(&ended.stdout).unwrap();
        summary["id"].as_str().unwrap().to_owned()
    }

    /// The records of a session.
    pub(crate) fn records(&self, session: &str) -> Vec<Record> {
        let ended = self.playhouse(["sessions", "export", session]).is(0);
        let lines = ended.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let records: Vec<Value> = lines
            .enumerate()
            .map(|(index, mut line)| {
                assert_eq!(line["seq"], index + 1);
                line["record"].take()
            })
            .collect();
        records.into_iter().map(|record| serde_json::from_value(record).unwrap()).collect()
    }

    /// Changes the closed store behind its back: one byte of the frame that holds a record is another. The first record of that frame,
    /// which is the first that cannot be read.
    pub(crate) fn damage(&self, session: &str, seq: u64) -> u64 {
        let session = SessionId::parse(session).unwrap();
        // The segment size has to be the store's.
        let database = sled::Config::new().path(self.data.join("sled")).segment_size(8 << 20).open().unwrap();
        // A frame stands under the place of its last record.
        let from = [b"l/", session.as_str().as_bytes(), &seq.to_be_bytes()].concat();
        let start = [b"l/", session.as_str().as_bytes()].concat();
        let before = database.range(start.clone()..from.clone()).next_back().map(|found| found.unwrap().0);
        let place = |key: &[u8]| u64::from_be_bytes(key[start.len()..].try_into().unwrap());
        let first = before.map_or(1, |key| place(&key) + 1);
        let (key, frame) = database.range(from..).next().expect("the record is there").unwrap();
        let mut frame = frame.to_vec();
        let last = frame.len() - 1;
        frame[last] ^= 1;
        database.insert(key, frame).unwrap();
        database.flush().unwrap();
        first
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // One that a command started outlives it.
        if let Some((engine, _)) = self.engine() {
            let _ = kill_process(engine, Signal::KILL);
        }
    }
}

/// Runs a command to its end.
pub(crate) fn finish(command: Command) -> Ended {
    assert_cmd::Command::from_std(command).timeout(PATIENCE).output().unwrap().into()
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Ended {
    /// It ended with this code.
    #[track_caller]
    pub(crate) fn is(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Standard error holds all of these.
    #[track_caller]
    pub(crate) fn says<const N: usize>(self, texts: [&str; N]) -> Self {
        for text in texts {
            assert!(self.stderr.contains(text), "expected {text:?} in {}", self.stderr);
        }
        self
    }

    /// Standard output holds all of these, one after the other.
    #[track_caller]
    pub(crate) fn shows<const N: usize>(self, texts: [&str; N]) -> Self {
        let mut rest = self.stdout.as_str();
        for text in texts {
            let Some((_, after)) = rest.split_once(text) else {
                panic!("expected {text:?} in {}", self.stdout)
            };
            rest = after;
        }
        self
    }

    /// The lines of standard output, as JSON.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The lines of standard output, as events.
    #[track_caller]
    pub(crate) fn events(&self) -> Vec<Event> {
        let event = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.stdout.lines().map(event).collect()
    }
}

/// What the model read of each call, by its last request.
pub(crate) fn results(stage: &Stage) -> Vec<String> {
    let requests = stage.requests();
    let messages = requests.last().unwrap()["messages"].as_array().unwrap();
    let results = messages.iter().filter(|message| message["role"] == "tool");
    results.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

/// Asks until it is so.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Names of all files below a folder, with their contents.
pub(crate) fn contents(folder: &Path) -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
    let mut found = std::collections::BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            let content = fs::read(&path).unwrap();
            found.insert(path, content);
        }
    }
    found
}

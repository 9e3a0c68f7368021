//! A real Prometheus, as Debian has it, with a folder and a port of its own.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fs_err as fs;
use serde_json::Value;
use tempfile::TempDir;

/// How to get it.
const MISSING: &str = "is not there: it is in Debian's package `prometheus`, which scripts/setup installs";
/// How long it may take to start.
const START: Duration = Duration::from_secs(30);

/// A Prometheus that runs. It is killed with this.
pub(super) struct Prometheus {
    child: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // One that has ended cannot be killed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Prometheus {
    /// Starts one. `configure` writes its configuration into a folder, given its own address, and says which file it is.
    pub(super) fn start(configure: impl FnOnce(&Path, SocketAddr) -> std::path::PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Free a moment ago. Nobody else asks for it meanwhile: ports are given out in turn.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let configuration = configure(folder.path(), address);
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", configuration.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .args(["--log.level=warn", "--query.lookback-delta=1m"])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.into_file());
        let child = command.spawn().unwrap_or_else(|error| panic!("prometheus {MISSING}: {error}"));
        let mut prometheus = Self { child, address, folder };
        let deadline = Instant::now() + START;
        while prometheus.fetch("/-/ready").is_none_or(|(status, _)| status != 200) {
            let ended = prometheus.child.try_wait().unwrap();
            let late = Instant::now() > deadline;
            assert!(ended.is_none() && !late, "prometheus does not start: {}", prometheus.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        prometheus
    }

    /// What it had to say.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// The samples of an instant query, or what is wrong with it.
    pub(super) fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let data = self.ask(&format!("/api/v1/query?query={}", encoded(expression)))?;
        Ok(match data["resultType"].as_str() {
            Some("vector") => data["result"].as_array().unwrap().clone(),
            _ => vec![data["result"].clone()],
        })
    }

    /// The values of a label among the series of a selector.
    pub(super) fn values(&self, selector: &str, label: &str) -> Result<Vec<Value>, String> {
        let path = format!("/api/v1/label/{label}/values?match[]={}", encoded(selector));
        Ok(self.ask(&path)?.as_array().unwrap().clone())
    }

    /// The `data` of an answer of its interface, or its error.
    pub(super) fn ask(&self, path: &str) -> Result<Value, String> {
        let (_, body) = self.fetch(path).ok_or("it does not answer")?;
        let mut answer: Value = serde_json::from_str(&body).map_err(|error| format!("{error}: {body}"))?;
        match answer["status"].as_str() {
            Some("success") => Ok(answer["data"].take()),
            _ => Err(answer["error"].to_string()),
        }
    }

    /// Status and body; `None` where nobody answers.
    fn fetch(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        // To 1.0 the answer comes in one piece.
        write!(stream, "GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }
}

/// Text as a part of an address.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// Lets promtool look at something, which it must find no fault with.
#[track_caller]
pub(super) fn promtool(folder: &Path, arguments: &[&str]) {
    let mut command = Command::new("promtool");
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    let output = command.output().unwrap_or_else(|error| panic!("promtool {MISSING}: {error}"));
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "promtool {arguments:?}: {}", String::from_utf8_lossy(&said));
}

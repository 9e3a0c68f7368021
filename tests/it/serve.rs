//! `playhouse serve` and `playhouse keys`.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::Duration;

use mock_llm::{Model, call, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::interrupt::{is_alive, process};
use crate::stage::{Ended, Stage, finish, until};

/// A server that runs. It is killed with this.
pub(crate) struct Serving {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// Reads its log: one that nobody reads would hold the server up when the pipe is full.
    log: Mutex<Option<JoinHandle<String>>>,
    /// The line with which it began.
    line: String,
}

impl Drop for Serving {
    fn drop(&mut self) {
        // One that has ended cannot be killed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Serving {
    pub(crate) fn start<const N: usize>(stage: &Stage, arguments: [&str; N]) -> Self {
        Self::of(stage.command(["serve", "--sandbox", "off"].into_iter().chain(arguments)))
    }

    /// One that this command starts.
    pub(crate) fn of(mut command: Command) -> Self {
        command.stderr(Stdio::piped());
        Self::logging(command)
    }

    /// One whose standard error is what the command says.
    fn logging(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let stderr = child.stderr.take();
        let log = std::thread::spawn(move || {
            let mut log = String::new();
            if let Some(mut stderr) = stderr {
                stderr.read_to_string(&mut log).unwrap();
            }
            log
        });
        Self { child, stdout, log: Mutex::new(Some(log)), line }
    }

    /// Whether it said where it is; one that did not has ended and says why.
    pub(crate) fn has_begun(&self) -> bool {
        !self.line.is_empty()
    }

    /// Its process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// As the SDK of opencode finds it out.
    pub(crate) fn address(&self) -> SocketAddr {
        if !self.has_begun() {
            panic!("it ended: {:?}", self.log.lock().unwrap().take().map(JoinHandle::join));
        }
        assert!(self.line.starts_with("opencode server listening"), "{:?}", self.line);
        let (_, address) = self.line.trim_end().split_once(" on http://").expect("it says where");
        address.parse().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(id, signal).unwrap();
    }

    /// Waits until it ended.
    pub(crate) fn ended(mut self) -> Ended {
        let mut stdout = String::new();
        self.stdout.read_to_string(&mut stdout).unwrap();
        let stderr = self.log.get_mut().unwrap().take().unwrap().join().unwrap();
        Ended { code: self.child.wait().unwrap().code(), stdout, stderr }
    }

    pub(crate) fn ask(&self, method: &str, path: &str, headers: &[&str], body: &str) -> (u16, String) {
        ask(TcpStream::connect(self.address()).unwrap(), method, path, headers, body)
    }

    /// Begins a turn in a session of its own.
    pub(crate) fn prompt(&self, stage: &Stage) {
        let directory = json!({"workspace": stage.workspace}).to_string();
        let (status, session) = self.ask("POST", "/v1/sessions", &[], &directory);
        assert_eq!(status, 201, "{session}");
        let session: Value = serde_json::from_str(&session).unwrap();
        let path = format!("/v1/sessions/{}/prompts", session["id"].as_str().unwrap());
        let (status, answer) = self.ask("POST", &path, &[], r#"{"text": "go"}"#);
        assert_eq!(status, 202, "{answer}");
    }
}

/// Status and body of an answer.
pub(crate) fn ask(
    mut stream: impl std::io::Read + std::io::Write,
    method: &str,
    path: &str,
    headers: &[&str],
    body: &str,
) -> (u16, String) {
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for header in headers {
        request.push_str(&format!("{header}\r\n"));
    }
    if !body.is_empty() {
        request.push_str(&format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len()));
    }
    write!(stream, "{request}\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// A key of this tenant.
pub(crate) fn key(stage: &Stage, tenant: &str) -> String {
    let made = stage.playhouse(["keys", "create", "--tenant", tenant, "--name", "test"]).is(0);
    made.stdout.trim_end().to_owned()
}

/// Says so where programs that the tests start would be right not to end by SIGHUP: whoever runs the tests below `nohup` hands on that
/// it is ignored.
pub(crate) fn hangups_are_heard() {
    // Elsewhere nobody says so.
    let Ok(status) = fs_err::read_to_string("/proc/self/status") else { return };
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    assert_eq!(ignored & 1, 0, "SIGHUP is ignored, as below nohup: start the tests with setsid instead");
}

#[test]
fn it_says_where_it_is_and_ends_in_good_order() {
    hangups_are_heard();
    let stage = Stage::new(Model::new());
    for (arguments, signal) in [
        (["--port", "0", "--hostname", "localhost"].as_slice(), Signal::TERM),
        (["--listen", "127.0.0.1:0"].as_slice(), Signal::INT),
        (["--listen", "127.0.0.1:0"].as_slice(), Signal::HUP),
    ] {
        let serving = match arguments {
            [a, b, c, d] => Serving::start(&stage, [a, b, c, d]),
            [a, b] => Serving::start(&stage, [a, b]),
            _ => unreachable!(),
        };
        assert!(serving.address().ip().is_loopback() && serving.address().port() != 0);
        assert_eq!(serving.ask("GET", "/healthz", &[], ""), (200, "ok\n".to_owned()));
        assert_eq!(serving.ask("GET", "/v1/sessions?title=hush", &[], "").0, 200);
        let socket = stage.data.join("engine.sock");
        assert_eq!(fs_err::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(ask(UnixStream::connect(&socket).unwrap(), "GET", "/v1/sessions", &[], "").0, 200);
        serving.signal(signal);
        let ended = serving.ended().is(0).says([
            "path=/v1/sessions",
            "tenant=\"local\"",
            "stopped: 0 turns finished, 0 suspended, 0 sessions closed, 0 connections cut, 0 children left",
        ]);
        assert!(ended.stdout.is_empty() && !ended.stderr.contains("hush"), "{ended:?}");
        assert!(!socket.exists());
    }
}

/// Of the text of a prompt what models are not told takes up no room, and a turn that failed before its first answer says why.
#[test]
fn a_prompt_that_no_model_could_read_is_told_so_and_one_for_people_may_be_long() {
    let stage = Stage::new(Model::new());
    let serving = Serving::start(&stage, ["--port", "0"]);
    let (status, session) = serving.ask("POST", "/session", &[], "{}");
    assert_eq!(status, 200, "{session}");
    let session: Value = serde_json::from_str(&session).unwrap();
    let path = format!("/session/{}/message", session["id"].as_str().unwrap());
    let long = "word ".repeat(180_000);
    let prompt = |ignored: bool| {
        let parts =
            json!([{"type": "text", "text": "Hi."}, {"type": "text", "text": long, "ignored": ignored}]);
        json!({"model": {"providerID": "mock", "modelID": "tokens-5"}, "parts": parts}).to_string()
    };
    let (status, told) = serving.ask("POST", &path, &[], &prompt(true));
    assert_eq!(status, 200, "{told}");
    let (status, told) = serving.ask("POST", &path, &[], &prompt(false));
    assert!(status == 400 && told.contains("too long for mock/tokens-5"), "{status} {told}");
}

#[test]
fn a_server_below_nohup_outlives_its_terminal() {
    let stage = Stage::new(Model::new());
    let (server, mut command) = (stage.command(["serve", "--port", "0"]), stage.program("nohup"));
    command.arg(server.get_program()).args(server.get_args());
    let serving = Serving::of(command);
    serving.signal(Signal::HUP);
    assert_eq!(serving.ask("GET", "/healthz", &[], ""), (200, "ok\n".to_owned()));
    serving.signal(Signal::TERM);
    let ended = serving.ended().is(0).says(["stopped: 0 turns finished"]);
    assert_eq!(ended.stderr.matches("once more to stop at once").count(), 1, "{ended:?}");
}

#[test]
fn a_server_whose_data_directory_is_replaced_ends_and_leaves_the_new_one_alone() {
    for is_removed in [true, false] {
        let stage = Stage::new(Model::new());
        let serving = Serving::start(&stage, ["--port", "0"]);
        let moved = stage.root().join("moved");
        if is_removed {
            fs_err::remove_dir_all(&stage.data).unwrap();
        } else {
            fs_err::rename(&stage.data, &moved).unwrap();
        }
        fs_err::create_dir(&stage.data).unwrap();
        let ended = serving.ended().is(1);
        ended.says(["was removed, moved or replaced", "stopped: 0 turns finished"]);
        assert_eq!(fs_err::read_dir(&stage.data).unwrap().count(), 0, "{is_removed}");
        // Whoever begins there now begins anew.
        assert_eq!(stage.playhouse(["sessions", "list"]).is(0).stdout.lines().count(), 1);
    }
}

#[test]
fn a_log_of_objects_has_nothing_between_its_lines() {
    let stage = Stage::new(Model::new());
    let mut command = stage.command(["serve", "--port", "0"]);
    command.env("PLAYHOUSE_LOG_FORMAT", "json");
    let serving = Serving::of(command);
    serving.signal(Signal::TERM);
    let ended = serving.ended().is(0).says(["stopping: running turns", "stopped: 0 turns finished"]);
    for line in ended.stderr.lines() {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

#[test]
fn a_file_that_may_not_grow_ends_no_server() {
    let stage = Stage::new(Model::new());
    let serving = Serving::start(&stage, ["--port", "0"]);
    // What a write gets that goes beyond the limit for files.
    serving.signal(Signal::XFSZ);
    assert_eq!(serving.ask("GET", "/healthz", &[], ""), (200, "ok\n".to_owned()));
    serving.signal(Signal::TERM);
    serving.ended().is(0);
}

#[test]
fn a_root_that_is_a_file_is_refused() {
    let stage = Stage::new(Model::new());
    stage.write("file", "x");
    let file = stage.workspace.join("file").to_string_lossy().into_owned();
    stage.playhouse(["serve", "--port", "0", "--root", &file]).is(2).says(["file is no directory"]);
}

#[test]
fn a_configuration_without_an_end_is_refused() {
    let stage = Stage::new(Model::new());
    let mut command = stage.program(env!("CARGO_BIN_EXE_playhouse"));
    command.args(["models", "--config", "/dev/zero"]);
    finish(command).is(2).says(["/dev/zero: has more than 4 MB"]);
}

#[test]
fn a_server_without_connections_is_refused() {
    let stage = Stage::new(Model::new());
    stage.configure("[server]\nconnections = 0");
    let refused = stage.playhouse(["serve", "--port", "0"]).is(2);
    refused.says(["`server.connections`: is 0, expected a whole number from 1 to 4294967295"]);
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn more_connections_than_there_may_be_wait_until_one_ends() {
    let stage = Stage::new(Model::new());
    stage.configure("[server]\nconnections = 2");
    let serving = Serving::start(&stage, ["--port", "0"]);
    let connect = || {
        let mut stream = TcpStream::connect(serving.address()).unwrap();
        write!(stream, "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    };
    let mut read = [0; 12];
    let mut two = [connect(), connect()];
    for stream in &mut two {
        stream.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"HTTP/1.1 200");
    }
    let mut third = connect();
    third.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let error = third.read_exact(&mut read).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    drop(two);
    third.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    third.read_exact(&mut read).unwrap();
    assert_eq!(&read, b"HTTP/1.1 200");
}

#[cfg(target_os = "linux")]
#[test]
fn it_takes_as_many_open_files_as_it_may_and_gives_commands_as_many_as_it_was_given() {
    let told = json!({"command": "ulimit -Sn > soft.txt; ulimit -Hn > hard.txt"});
    let stage = Stage::new(Model::new().step(call("bash", told)).step(text("Done.")));
    stage.configure("[permissions]\nbash = \"allow\"\n[tools.bash]\nopen_files = 400");
    let serve = stage.command(["serve", "--sandbox", "off", "--port", "0"]);
    let mut command = stage.program("sh");
    command.args(["-c", "ulimit -Sn 300 && exec \"$0\" \"$@\""]);
    command.arg(serve.get_program()).args(serve.get_args());
    let serving = Serving::of(command);
    serving.address();
    let limits = fs_err::read_to_string(format!("/proc/{}/limits", serving.process())).unwrap();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let [soft, hard]: [u64; 2] =
        std::array::from_fn(|at| files.split_whitespace().nth(at).unwrap().parse().unwrap());
    assert!(soft > 300 && soft == hard, "{files}");
    serving.prompt(&stage);
    stage.wait_for(|asked| asked.len() == 2);
    assert_eq!((stage.read("soft.txt").trim(), stage.read("hard.txt").trim()), ("300", "400"));
}

#[test]
fn what_runs_is_suspended_when_it_is_told_twice() {
    let sleep = json!({"command": "echo $$ > sleeping.pid; exec sleep 300"});
    let stage = Stage::new(Model::new().step(call("bash", sleep)).step(text("Slept.")));
    stage.configure("[server]\ngrace_ms = 86400000\n[permissions]\nbash = \"allow\"");
    let serving = Serving::start(&stage, ["--port", "0"]);
    serving.prompt(&stage);
    let sleeping = process(&stage, "sleeping.pid");
    serving.signal(Signal::TERM);
    until("it is not ready", || serving.ask("GET", "/readyz", &[], "").0 == 503);
    assert!(is_alive(sleeping), "the turn goes on");
    serving.signal(Signal::TERM);
    serving.ended().is(0).says(["stopping at once", "0 turns finished, 1 suspended, 1 sessions closed"]);
    assert!(!is_alive(sleeping), "its commands are gone");
    // It goes on by itself at the next start: the model is told that the command was cut off.
    let serving = Serving::start(&stage, ["--port", "0"]);
    stage.wait_for(|asked| asked.len() == 2);
    until("the turn is over", || {
        let (_, page) = serving.ask("GET", "/v1/sessions", &[], "");
        page.contains("\"idle\"")
    });
    serving.signal(Signal::TERM);
    serving.ended().is(0).says(["0 suspended"]);
}

#[test]
fn turns_may_end_when_it_is_told_once() {
    let stage = Stage::new(Model::new().step(text("Well.").delay(Duration::from_millis(500))));
    let serving = Serving::start(&stage, ["--port", "0"]);
    serving.prompt(&stage);
    stage.wait_for(|asked| asked.len() == 1);
    serving.signal(Signal::TERM);
    serving.ended().is(0).says(["1 turns finished, 0 suspended"]);
}

#[test]
fn what_others_can_reach_needs_a_key() {
    let stage = Stage::new(Model::new());
    stage
        .playhouse(["serve", "--hostname", "0.0.0.0", "--port", "0"])
        .is(2)
        .says(["0.0.0.0:0 can be reached from outside", "playhouse keys create"]);
    let key = key(&stage, "acme");
    let serving = Serving::start(&stage, ["--listen", "0.0.0.0:0"]);
    let bearer = format!("authorization: Bearer {key}");
    let ask = |headers: &[&str]| {
        let stream = TcpStream::connect(("127.0.0.1", serving.address().port())).unwrap();
        ask(stream, "GET", "/v1/sessions", headers, "").0
    };
    assert_eq!((ask(&[]), ask(&["authorization: Bearer x"]), ask(&[&bearer])), (401, 401, 200));
    serving.signal(Signal::TERM);
    let ended = serving.ended().is(0).says(["tenant=\"acme\"", "status=401"]);
    assert!(!ended.stderr.contains(&key[..20]), "{}", ended.stderr);
}

#[test]
fn a_place_that_is_taken_is_an_error() {
    let stage = Stage::new(Model::new());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    stage.playhouse(["serve", "--listen", &address]).is(2).says(["failed to listen on", &address]);
    stage.playhouse(["serve", "--listen", "nowhere"]).is(2).says(["is no place to listen"]);
    stage.playhouse(["serve", "--port", "0", "--root", "/no/such/dir"]).is(2).says(["/no/such/dir"]);
    let _serving = Serving::start(&stage, ["--port", "0"]);
    stage.playhouse(["serve", "--port", "0"]).is(2).says(["in use"]);
}

#[test]
fn keys_are_made_listed_and_withdrawn() {
    let stage = Stage::new(Model::new());
    let make = ["keys", "create", "--tenant", "acme", "--name", "ci", "--format", "json"];
    let made = &stage.playhouse(make).is(0).lines()[0];
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    assert!(key.starts_with(&format!("ph_{id}_")), "{made}");
    let listed = stage.playhouse(["keys", "list"]).is(0).shows(["ID", id, "acme", "ci"]);
    assert!(!listed.stdout.contains(&key[16..]), "a secret is never shown again");
    let listed = stage.playhouse(["keys", "list", "--format", "json"]).is(0).lines();
    let names: Vec<&str> = listed[0].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, ["id", "tenant", "name", "created"]);
    stage.playhouse(["keys", "revoke", id]).is(0).shows(["withdrew", id]);
    stage.playhouse(["keys", "revoke", id]).is(2).says(["there is no key"]);
    assert!(stage.playhouse(["keys", "list", "--format", "json"]).is(0).stdout.is_empty());
    stage.playhouse(["keys", "create", "--tenant", " ", "--name", "x"]).is(2).says(["cannot be a tenant"]);
}

#[test]
fn a_log_that_cannot_be_written_costs_no_request() {
    let stage = Stage::new(Model::new().step(text("Hello.")));
    let (reader, gone) = std::io::pipe().unwrap();
    drop(reader);
    let full = fs_err::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for log in [Stdio::from(full.into_file()), Stdio::from(gone)] {
        let mut command = stage.command(["serve", "--sandbox", "off", "--port", "0"]);
        command.stderr(log);
        let serving = Serving::logging(command);
        for _ in 0..3 {
            assert_eq!(serving.ask("GET", "/healthz", &[], "").0, 200);
        }
        serving.signal(Signal::TERM);
        serving.ended().is(0);
    }
}

//! A disk that is full or fails while sessions work: the engine refuses what is new, suspends what runs, says so, and goes on
//! by itself when the disk is well. Nothing that was acknowledged is lost.
//!
//! For the full one the data directory lies in a small file system of its own, in memory, which takes `bwrap` (`apt install
//! bubblewrap`).
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fs_err as fs;
use mock_llm::{Model, Script, call, text};
use playhouse::protocol::record::TurnOutcome;
use playhouse::protocol::{MessageId, Record};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::serve::Serving;
use crate::stage::{Dialect, Ended, Stage, finish, until};

const DISK: usize = 96 * 1024 * 1024;
const SESSIONS: usize = 20;
/// Between two looks at a session.
const PAUSE: Duration = Duration::from_millis(20);

/// A server, and its disk.
struct Engine {
    stage: Stage,
    serving: Serving,
    /// What the data directory lies in, as this process sees it.
    disk: PathBuf,
}

impl Engine {
    /// One whose disk fails at these times: see `playhouse_store::fail`.
    fn failing(plan: &str, model: Model) -> Self {
        let stage = Stage::new(model);
        stage.configure("[permissions]\nbash = \"allow\"");
        let mut command = stage.command(["serve", "--sandbox", "off", "--port", "0"]);
        command.env("PLAYHOUSE_FAIL", plan);
        let (serving, disk) = (Serving::of(command), stage.root());
        Self { stage, serving, disk }
    }

    /// One whose disk is small.
    fn confined(backend: &str, model: Model) -> Self {
        Self::of_small_disk(backend, "", Stage::new(model))
    }

    fn of_small_disk(backend: &str, more: &str, mut stage: Stage) -> Self {
        let configuration = fs::read_to_string(&stage.config).unwrap();
        let configuration =
            format!("store = \"{backend}\"\n{configuration}\n[permissions]\nbash = \"allow\"\n{more}");
        fs::write(&stage.config, configuration).unwrap();
        let disk = stage.root().join("disk");
        fs::create_dir(&disk).unwrap();
        stage.data = disk.join("data");
        let inner = stage.command(["serve", "--sandbox", "off", "--port", "0"]);
        let mut command = stage.program("bwrap");
        command.args(["--dev-bind", "/", "/", "--size", &DISK.to_string(), "--tmpfs"]).arg(&disk);
        command.args(["--unshare-pid", "--die-with-parent", "--"]);
        // Through the shell others can see the disk: the engine keeps its own process to itself.
        command.args(["sh", "-c", "\"$0\" \"$@\"; exit $?"]).arg(inner.get_program()).args(inner.get_args());
        let serving = Serving::of(command);
        assert!(serving.has_begun(), "{:?}", serving.ended());
        let disk = seen_from_outside(serving.process(), &disk);
        Self { stage, serving, disk }
    }

    /// Takes up all that is left.
    fn fill(&self) {
        let mut file = fs::File::create(self.disk.join("filler")).unwrap();
        let (mut size, bytes) = (1024 * 1024, vec![1; 1024 * 1024]);
        while size > 0 {
            match file.write(&bytes[..size]) {
                Ok(0) | Err(_) => size /= 2,
                Ok(_) => {}
            }
        }
    }

    fn free(&self) {
        fs::remove_file(self.disk.join("filler")).unwrap();
    }

    fn create(&self) -> String {
        let workspace = json!({"workspace": self.stage.workspace}).to_string();
        let (status, session) = self.serving.ask("POST", "/v1/sessions", &[], &workspace);
        assert_eq!(status, 201, "{session}");
        let session: Value = serde_json::from_str(&session).unwrap();
        session["id"].as_str().unwrap().to_owned()
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.serving.ask("GET", path, &[], "")
    }

    /// A command that asks this engine, or says why it cannot.
    fn asks<const N: usize>(&self, arguments: [&str; N]) -> String {
        let mut command = self.stage.program(env!("CARGO_BIN_EXE_playhouse"));
        command
            .arg("--data")
            .arg(self.disk.join("data"))
            .arg("--config")
            .arg(&self.stage.config)
            .args(arguments);
        finish(command).is(0).stdout
    }
}

/// The directory as it is in the file systems of a process that this one started.
fn seen_from_outside(process: u32, directory: &Path) -> PathBuf {
    let mut processes = vec![process];
    while let Some(process) = processes.pop() {
        let inside = PathBuf::from(format!("/proc/{process}/root{}", directory.display()));
        if inside.join("data").is_dir() {
            return inside;
        }
        let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
        processes.extend(children.split_whitespace().map(|child| child.parse::<u32>().unwrap()));
    }
    panic!("no process of the server shows its disk");
}

/// What clients were told.
#[derive(Default)]
struct Told {
    acknowledged: Mutex<Vec<BTreeSet<MessageId>>>,
    /// No more prompts.
    enough: AtomicBool,
}

/// Has the others stop when one of them fails: they would be waited for.
struct Together<'a>(&'a Told);

impl Drop for Together<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.enough.store(true, Ordering::SeqCst);
        }
    }
}

/// Sends one prompt after the other, each until it is acknowledged, and waits for its end.
fn work(engine: &Engine, session: &str, number: usize, told: &Told) {
    let _together = Together(told);
    let path = format!("/v1/sessions/{session}/prompts");
    for prompt in 1_u64.. {
        let (key, body) =
            (format!("idempotency-key: msg_{prompt:012x}{number:014}"), json!({"text": "go"}).to_string());
        let accepted: Value = loop {
            let (status, answer) = engine.serving.ask("POST", &path, &[&key], &body);
            let answer: Value = serde_json::from_str(&answer).unwrap();
            if status == 202 {
                break answer;
            }
            assert_eq!(
                (status, &answer["type"]),
                (503, &"urn:playhouse:problem:suspended".into()),
                "{answer}"
            );
            thread::sleep(PAUSE);
        };
        let turn = serde_json::from_value(accepted["turn"].clone()).unwrap();
        told.acknowledged.lock().unwrap()[number].insert(turn);
        until("its turn is over", || {
            let (status, summary) = engine.get(&format!("/v1/sessions/{session}"));
            assert_eq!(status, 200, "reads go on: {summary}");
            thread::sleep(PAUSE);
            summary.contains("\"idle\"")
        });
        if told.enough.load(Ordering::SeqCst) {
            return;
        }
    }
}

fn everybody(told: &Told, counts: impl Fn(usize) -> bool) -> bool {
    told.acknowledged.lock().unwrap().iter().all(|acknowledged| counts(acknowledged.len()))
}

/// Every acknowledged prompt has run once, to its end, and nothing else has.
fn check(engine: &Engine, session: &str, acknowledged: &BTreeSet<MessageId>) {
    let exported = engine.asks(["sessions", "export", session]);
    let (mut admitted, mut ended) = (Vec::new(), Vec::new());
    for (index, line) in exported.lines().enumerate() {
        let mut line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["seq"], index + 1, "{line}");
        match serde_json::from_value(line["record"].take()).unwrap() {
            Record::PromptAdmitted(prompt) => admitted.push(prompt.message),
            Record::TurnEnded(turn) => {
                assert_eq!(turn.outcome, TurnOutcome::Completed, "{turn:?}");
                ended.push(turn.turn);
            }
            _ => {}
        }
    }
    assert_eq!(admitted, ended, "all ran, in order");
    assert_eq!(admitted.len(), acknowledged.len());
    assert_eq!(admitted.iter().copied().collect::<BTreeSet<_>>(), *acknowledged);
}

fn check_all(engine: &Engine, sessions: &[String], told: Told) {
    let acknowledged = told.acknowledged.into_inner().unwrap();
    for (session, acknowledged) in sessions.iter().zip(&acknowledged) {
        check(engine, session, acknowledged);
    }
    let report: Value = serde_json::from_str(&engine.asks(["store", "check", "--format", "json"])).unwrap();
    assert_eq!(report["problems"], json!([]), "{report}");
    assert!(engine.get("/metrics").1.contains("playhouse_session_crashes_total 0"), "none counts as a crash");
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_full_disk_suspends_what_works_and_all_goes_on_when_there_is_room() {
    for backend in ["sled", "redb"] {
        let command = json!({"command": "echo working"});
        let answer = "All is well. ".repeat(200);
        let model = Model::new().step(call("bash", command)).step(text(&answer)).cycle();
        let engine = Engine::confined(backend, model);
        let workspace = json!({"workspace": engine.stage.workspace}).to_string();
        let sessions: Vec<String> = (0..SESSIONS).map(|_| engine.create()).collect();
        let told = Told { acknowledged: Mutex::new(vec![BTreeSet::new(); SESSIONS]), ..Told::default() };
        thread::scope(|scope| {
            let clients: Vec<_> = sessions
                .iter()
                .enumerate()
                .map(|(number, session)| {
                    scope.spawn({
                        let (engine, told) = (&engine, &told);
                        move || work(engine, session, number, told)
                    })
                })
                .collect();
            // However this ends, they do.
            let alive = || assert!(!clients.iter().any(|client| client.is_finished()), "a client gave up");
            until("all work", || {
                alive();
                everybody(&told, |count| count > 0)
            });
            engine.fill();
            let mut why = String::new();
            until("the server says that it is not ready", || {
                alive();
                let (status, said) = engine.get("/readyz");
                why = said;
                status == 503
            });
            let why: Value = serde_json::from_str(&why).unwrap();
            assert_eq!(why["type"], "urn:playhouse:problem:suspended");
            assert!(
                why["detail"].as_str().unwrap().contains("the disk of the data directory is full"),
                "{why}"
            );
            assert!(engine.get("/metrics").1.contains("playhouse_store_suspended{reason=\"full\"} 1"));
            let (status, refused) = engine.serving.ask("POST", "/v1/sessions", &[], &workspace);
            assert!(status == 503 && refused.contains("make room"), "{refused}");
            let (path, body) = (
                format!("/session/{}/prompt_async", sessions[0]),
                json!({"parts": [{"type": "text", "text": "go"}]}),
            );
            let (status, refused) = engine.serving.ask("POST", &path, &[], &body.to_string());
            assert!(status == 503 && refused.contains("make room"), "{status} {refused}");
            // Some looks at the disk later it still refuses, and reads go on.
            let key = format!("idempotency-key: msg_{:012x}{:014}", 0, 99);
            let path = format!("/v1/sessions/{}/prompts", sessions[0]);
            for _ in 0..25 {
                let (status, refused) = engine.serving.ask("POST", &path, &[&key], r#"{"text": "go"}"#);
                assert!(status == 503 && refused.contains("problem:suspended"), "{status} {refused}");
                assert_eq!(engine.get("/readyz").0, 503);
                assert_eq!(engine.get(&format!("/v1/sessions/{}/messages", sessions[1])).0, 200);
                thread::sleep(PAUSE * 5);
            }
            let counts: Vec<usize> = told.acknowledged.lock().unwrap().iter().map(BTreeSet::len).collect();
            engine.free();
            until("the server is ready again", || engine.get("/readyz").0 == 200);
            until("all work again", || {
                alive();
                told.acknowledged.lock().unwrap().iter().zip(&counts).all(|(now, before)| now.len() > *before)
            });
            told.enough.store(true, Ordering::SeqCst);
        });
        check_all(&engine, &sessions, told);
        engine.serving.signal(Signal::KILL);
        engine.serving.ended().says(["the store takes no more writes", "the store takes writes again"]);
    }
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_session_whose_prompt_was_refused_is_shown_as_it_was() {
    for backend in ["sled", "redb"] {
        let engine = Engine::confined(backend, Model::new().step(text("All is well.")).cycle());
        let session = engine.create();
        engine.fill();
        let (path, prompts) = (format!("/v1/sessions/{session}"), format!("/v1/sessions/{session}/prompts"));
        let mut admitted = 0;
        // There may be room for a few.
        loop {
            let (status, said) = engine.serving.ask("POST", &prompts, &[], r#"{"text": "go"}"#);
            if status == 503 {
                assert!(said.contains("problem:suspended"), "{said}");
                break;
            }
            assert_eq!(status, 202, "{said}");
            admitted += 1;
            // The disk may be full at any place of its turn, which then stands still.
            until("its turn is over, or held up", || {
                engine.get(&path).1.contains("\"idle\"") || engine.get("/readyz").0 == 503
            });
        }
        let answers = [&path, &format!("{path}/messages"), "/v1/sessions"].map(|path| engine.get(path));
        assert_eq!(engine.get("/readyz").0, 503, "{backend}: all this while");
        let [(shown, session_is), (_, messages), (_, listed)] = answers;
        if shown == 200 {
            assert_eq!(messages.matches("\"role\":\"user\"").count(), admitted, "{backend}: {messages}");
            let session_is: Value = serde_json::from_str(&session_is).unwrap();
            let all_ended = session_is["turns"] == json!(admitted);
            assert_eq!(session_is["state"] == "idle", all_ended, "{backend}, {admitted}: {session_is}");
            let listed: Value = serde_json::from_str(&listed).unwrap();
            assert_eq!(listed["sessions"][0]["state"], session_is["state"], "{backend}: {listed}");
        } else {
            // Sled may have put its pages out of memory.
            assert_eq!((backend, shown), ("sled", 503), "{session_is}");
            assert!(session_is.contains("problem:suspended"), "{session_is}");
        }
        engine.free();
        until("all that was admitted ran", || engine.get(&path).1.contains("\"idle\""));
    }
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn an_answer_for_which_there_is_no_room_is_not_asked_for_again_before_there_is() {
    // So long that it goes beside the database: small records still have their place.
    let engine = Engine::confined("sled", Model::new().step(text("All is well. ".repeat(12_000))).cycle());
    let session = engine.create();
    let prompt = |text: &str| {
        let path = format!("/v1/sessions/{session}/prompts");
        let (status, said) = engine.serving.ask("POST", &path, &[], &json!({"text": text}).to_string());
        assert_eq!(status, 202, "{said}");
    };
    let ended = || engine.get(&format!("/v1/sessions/{session}")).1.contains("\"idle\"");
    prompt("first");
    until("the first turn ends", ended);
    engine.fill();
    let filler = fs::OpenOptions::new().write(true).open(engine.disk.join("filler")).unwrap();
    filler.set_len(filler.metadata().unwrap().len() - 60_000).unwrap();
    drop(filler);
    let before = engine.stage.asked().len();
    prompt("second");
    until("the server says that it is not ready", || engine.get("/readyz").0 == 503);
    assert!(engine.get("/metrics").1.contains("playhouse_store_suspended{reason=\"full\"} 1"));
    // Far longer than it would take to ask again.
    thread::sleep(Duration::from_secs(4));
    assert_eq!(engine.stage.asked().len() - before, 1, "each answer is paid for");
    engine.free();
    until("the turn ends", ended);
    assert_eq!(engine.stage.asked().len() - before, 2);
    assert_eq!(engine.get("/readyz").0, 200);
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_disk_that_fails_now_and_then_costs_nothing_that_was_acknowledged() {
    // Blobs for answers, so that their places come up.
    let model = Model::new().step(text("All is well. ".repeat(8_000))).cycle();
    let plan = "append.staged=error@25,append.applied=error@40,flush.done=error@55,journal.written=error@70,\
                blob.written=error@7,blob.done=error@12";
    let engine = Engine::failing(plan, model);
    let sessions: Vec<String> = (0..4).map(|_| engine.create()).collect();
    let told = Told { acknowledged: Mutex::new(vec![BTreeSet::new(); sessions.len()]), ..Told::default() };
    thread::scope(|scope| {
        for (number, session) in sessions.iter().enumerate() {
            let (engine, told) = (&engine, &told);
            scope.spawn(move || work(engine, session, number, told));
        }
        until("all have worked for a while", || everybody(&told, |count| count >= 12));
        told.enough.store(true, Ordering::SeqCst);
    });
    check_all(&engine, &sessions, told);
    engine.serving.signal(Signal::TERM);
    let ended = engine.serving.ended().is(0);
    for point in
        ["append.staged", "append.applied", "flush.done", "journal.written", "blob.written", "blob.done"]
    {
        assert!(ended.stderr.contains(&format!("the fail point {point}")), "{point}: {}", ended.stderr);
    }
    // Two may come in one round.
    let suspended = ended.stderr.matches("the store takes writes again").count();
    assert!((5..=6).contains(&suspended), "{suspended}: {}", ended.stderr);
}

/// A server that is started on a disk without any room: on a new data directory, and on one that was there before.
fn starts_on_a_full_disk(backend: &str, is_new: bool) -> Ended {
    let mut stage = Stage::new(Model::new());
    let configuration = fs::read_to_string(&stage.config).unwrap();
    fs::write(&stage.config, format!("store = \"{backend}\"\n{configuration}")).unwrap();
    let disk = stage.root().join("disk");
    fs::create_dir(&disk).unwrap();
    stage.data = disk.join("data");
    let inner = stage.command(["serve", "--sandbox", "off", "--port", "0"]);
    let mut command = stage.program("bwrap");
    command.args(["--dev-bind", "/", "/", "--size", &DISK.to_string(), "--tmpfs"]).arg(&disk);
    command.args(["--unshare-pid", "--die-with-parent", "--", "sh", "-c"]);
    let before =
        if is_new { "" } else { "\"$1\" --data \"$2\" keys create --tenant t --name n >&2 || exit 70; " };
    // With less and less at once, to the last byte.
    let fill = "for size in 1048576 4096 1; do dd if=/dev/zero bs=$size >> \"$3\" 2>/dev/null; done; ";
    command.arg(format!("{before}{fill}shift 3; exec \"$0\" \"$@\""));
    command.arg(inner.get_program()).arg(inner.get_program()).arg(&stage.data).arg(disk.join("filler"));
    command.args(inner.get_args());
    let serving = Serving::of(command);
    assert!(!serving.has_begun(), "it says what is wrong instead");
    serving.ended()
}

#[test]
fn a_server_that_is_started_on_a_full_disk_says_what_to_do() {
    for backend in ["sled", "redb"] {
        for is_new in [true, false] {
            // Not what stands for bad usage: whoever starts it again when it fails is to go on with that.
            let ended = starts_on_a_full_disk(backend, is_new).is(1);
            let (_, said) = ended.stderr.rsplit_once("error: ").unwrap();
            assert!(
                said.contains("the disk of the data directory is full: make room on it"),
                "{backend}, new: {is_new}: {said}"
            );
        }
    }
}

#[test]
fn a_data_directory_that_can_only_be_read_is_no_bad_usage_and_can_be_looked_through() {
    let stage = Stage::new(Model::new());
    stage.playhouse(["keys", "create", "--tenant", "t", "--name", "n"]).is(0);
    let read_only = |inner: Command| {
        let mut command = stage.program("bwrap");
        command.args(["--dev-bind", "/", "/", "--ro-bind"]).arg(&stage.data).arg(&stage.data).arg("--");
        command.arg(inner.get_program()).args(inner.get_args());
        finish(command)
    };
    let said = ["the file system of the data directory is read-only: mount it for writing"];
    read_only(stage.command(["serve", "--port", "0"])).is(1).says(said);
    read_only(stage.command(["sessions", "list"])).is(1).says(said);
    read_only(stage.command(["keys", "list"])).is(1).says(said);
    read_only(stage.command(["store", "compact"])).is(1).says(said);
    read_only(stage.command(["store", "check"])).is(0);
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_compaction_that_breaks_off_anywhere_loses_nothing_that_comes_after_it() {
    for point in ["begun", "copied", "between", "flushed", "pointer_written", "pointer_renamed", "exchanged"]
    {
        for action in ["error", "panic"] {
            let model = Model::new().step(text("All is well.")).cycle();
            let engine = Engine::failing(&format!("rewrite.{point}={action}@1"), model);
            let before = engine.create();
            // It may be told that it failed, and somebody may write meanwhile.
            let compacting = engine.stage.client(["store", "compact"]);
            assert!(matches!(compacting.code, Some(0 | 1)), "{compacting:?}");
            until("the server is ready", || engine.get("/readyz").0 == 200);
            let after = engine.create();
            let Engine { stage, serving, .. } = engine;
            serving.signal(Signal::KILL);
            let said = serving.ended().stderr;
            // Nobody wrote beside the copy.
            assert!(point == "between" || said.contains("the fail point"), "{point}: {said}");
            let serving = Serving::start(&stage, ["--port", "0"]);
            for session in [before, after] {
                let (status, body) = serving.ask("GET", &format!("/v1/sessions/{session}"), &[], "");
                assert_eq!(status, 200, "{point}={action}: {body}");
            }
        }
    }
}

/// With little space the tenant that takes up most is suspended, and goes on when there is space again. Others go on meanwhile.
#[test]
#[ignore = "slow: scripts/slow runs it"]
fn the_tenant_that_holds_most_is_suspended_before_the_disk_is_full() {
    let large = Model::new()
        .step(call("bash", json!({"command": "yes 1234567 | head -c 10000000"})))
        .step(text("Done."))
        .next_turn()
        .step(call("bash", json!({"command": "echo it runs; sleep 600"})))
        .step(text("Done again."));
    let small = Model::new().step(text("All is well.")).cycle();
    let script = Script::new().model("m", large).model("s", small);
    let stage = Stage::speaking(Dialect::OpenaiChat, script);
    let engine = Engine::of_small_disk("redb", "[metrics]\naccess = \"open\"\n", stage);
    let key = |tenant: &str| {
        let made = engine.asks(["keys", "create", "--tenant", tenant, "--name", "test"]);
        format!("authorization: Bearer {}", made.trim_end())
    };
    let (large, small) = (key("large"), key("small"));
    let ask = |engine: &Engine, key: &str, method: &str, path: &str, body: &Value| {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        engine.serving.ask(method, path, &[key], &body)
    };
    let create = |engine: &Engine, key: &str| {
        let (status, session) =
            ask(engine, key, "POST", "/v1/sessions", &json!({"workspace": engine.stage.workspace}));
        assert_eq!(status, 201, "{session}");
        let session: Value = serde_json::from_str(&session).unwrap();
        format!("/v1/sessions/{}", session["id"].as_str().unwrap())
    };
    let prompt = |engine: &Engine, key: &str, session: &str| {
        let model = if key == large { "local/m" } else { "local/s" };
        ask(engine, key, "POST", &format!("{session}/prompts"), &json!({"text": "go", "model": model}))
    };
    let is_idle = |engine: &Engine, key: &str, session: &str| {
        thread::sleep(PAUSE);
        ask(engine, key, "GET", session, &Value::Null).1.contains("\"idle\"")
    };
    let (one, other) = (create(&engine, &large), create(&engine, &small));
    assert_eq!(prompt(&engine, &large, &one).0, 202);
    until("much is saved", || is_idle(&engine, &large, &one));
    assert_eq!(prompt(&engine, &large, &one).0, 202);
    until("the command runs", || engine.stage.asked().len() == 3);
    engine.fill();
    let filler = fs::OpenOptions::new().write(true).open(engine.disk.join("filler")).unwrap();
    filler.set_len(filler.metadata().unwrap().len() - 3_000_000).unwrap();
    drop(filler);
    let suspended = |engine: &Engine, count: usize| {
        thread::sleep(PAUSE);
        engine.get("/metrics").1.contains(&format!("playhouse_tenants_suspended {count}\n"))
    };
    until("it is suspended", || suspended(&engine, 1));
    let (status, refused) = prompt(&engine, &large, &one);
    assert_eq!(status, 503, "{refused}");
    assert!(refused.contains("less than 5 %") && refused.contains("takes up 9 MB"), "{refused}");
    let (status, refused) =
        ask(&engine, &large, "POST", "/v1/sessions", &json!({"workspace": engine.stage.workspace}));
    assert_eq!(status, 503, "{refused}");
    // The other one works, and the server is ready.
    assert_eq!(prompt(&engine, &small, &other).0, 202);
    until("the turn of the other one ends", || is_idle(&engine, &small, &other));
    assert_eq!(engine.get("/readyz").0, 200);
    assert!(!is_idle(&engine, &large, &one), "it is held up");
    engine.free();
    until("it goes on", || suspended(&engine, 0));
    until("its turn ends", || is_idle(&engine, &large, &one));
}

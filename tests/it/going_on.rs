//! `serve` goes on by itself with what the one before left when it was killed.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use mock_llm::{Fault, Model, Script, call, text};
use playhouse::protocol::Record;
use playhouse::protocol::message::{CallOutcome, CallResult};
use playhouse::protocol::record::{AttemptOutcome, TurnOutcome};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::serve::Serving;
use crate::stage::{Dialect, Stage, until};

const LISTENING: [&str; 2] = ["--port", "0"];

fn create(serving: &Serving, stage: &Stage, model: &str) -> String {
    let body = json!({"workspace": stage.workspace, "model": format!("local/{model}")}).to_string();
    let (status, session) = serving.ask("POST", "/v1/sessions", &[], &body);
    assert_eq!(status, 201, "{session}");
    let session: Value = serde_json::from_str(&session).unwrap();
    session["id"].as_str().unwrap().to_owned()
}

fn prompt(serving: &Serving, session: &str) {
    let path = format!("/v1/sessions/{session}/prompts");
    let (status, answer) = serving.ask("POST", &path, &[], r#"{"text": "go"}"#);
    assert_eq!(status, 202, "{answer}");
}

/// What is at this path. Nothing that is asked for here wakes a session.
fn get(serving: &Serving, path: &str) -> Value {
    let (status, body) = serving.ask("GET", path, &[], "");
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// Waits until this many turns of a session are over, and none is open.
fn is_over(serving: &Serving, session: &str, turns: u64) {
    until("its turns are over", || {
        let summary = get(serving, &format!("/v1/sessions/{session}"));
        assert_ne!(summary["state"], "parked", "{summary}");
        summary["open_turns"] == 0 && summary["turns"] == turns
    });
}

fn ended(records: &[Record]) -> Vec<TurnOutcome> {
    let outcome = |record: &Record| match record {
        Record::TurnEnded(ended) => Some(ended.outcome),
        _ => None,
    };
    records.iter().filter_map(outcome).collect()
}

fn results(records: &[Record]) -> Vec<&CallResult> {
    records
        .iter()
        .filter_map(|record| match record {
            Record::CallSettled { result, .. } => Some(result),
            _ => None,
        })
        .collect()
}

/// A page that never comes when it is asked for first; its address, and how often it was asked for.
fn page() -> (String, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/page.txt", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&asked);
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            if counted.fetch_add(1, Ordering::SeqCst) == 0 {
                held.push(stream);
                continue;
            }
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close";
            write!(stream, "{head}\r\ncontent-length: 5\r\n\r\nhello").unwrap();
        }
    });
    (url, asked)
}

#[test]
fn a_server_goes_on_with_all_that_a_killed_one_left() {
    let question = json!({"questions": [{"question": "Which way?", "header": "Way",
        "options": [{"label": "left"}, {"label": "right"}]}]});
    let works = "echo run >> runs.txt; echo yes > begun.txt; sleep 600";
    let (page, fetched) = page();
    let asks = "printf 'asked\\n' >> asked.txt";
    let streams = text("one two three four").fault(Fault::stall(4)).fail_first(1);
    let script = Script::new()
        .model("streams", Model::new().step(streams))
        .model(
            "works",
            Model::new().step(call("bash", json!({"command": works}))).step(text("Well.")).cycle(),
        )
        .model("asks", Model::new().step(call("bash", json!({"command": asks}))).step(text("Thanks.")))
        .model("wonders", Model::new().step(call("question", question)).step(text("Left, then.")));
    let script = script
        .model("fetches", Model::new().step(call("webfetch", json!({"url": page}))).step(text("So it says.")))
        .model("waits", Model::new().step(text("Never mind.")));
    let stage = Stage::speaking(Dialect::OpenaiChat, script);
    stage.configure(
        "[permissions]\nwebfetch = \"allow\"\nbash = { \"*\" = \"allow\", \"printf *\" = \"ask\" }\n\
         [tools.web]\nallow_private = [\"127.0.0.1\"]",
    );
    let serving = Serving::start(&stage, LISTENING);
    let [streams, works, asks, wonders, fetches] =
        ["streams", "works", "asks", "wonders", "fetches"].map(|model| create(&serving, &stage, model));
    for session in [&streams, &works, &asks, &wonders, &fetches] {
        prompt(&serving, session);
    }
    until("the command has begun", || stage.workspace.join("begun.txt").exists());
    until("the page is asked for", || fetched.load(Ordering::SeqCst) == 1);
    // This one waits until the command has ended.
    let change = json!({"model": "local/waits"}).to_string();
    assert_eq!(serving.ask("PATCH", &format!("/v1/sessions/{works}"), &[], &change).0, 200);
    prompt(&serving, &works);
    let asked = |serving: &Serving| {
        let [consents, questions] =
            ["consents", "questions"].map(|what| get(serving, &format!("/v1/{what}")));
        (consents["consents"].clone(), questions["questions"].clone())
    };
    let is_one = |list: &Value| list.as_array().is_some_and(|list| list.len() == 1);
    until("people are asked", || {
        let (consents, questions) = asked(&serving);
        is_one(&consents) && is_one(&questions)
    });
    until("all models are asked", || stage.asked().len() == 5);
    let before = asked(&serving);
    serving.signal(Signal::KILL);
    serving.ended();

    // Nobody asks it for anything but lists.
    let serving = Serving::start(&stage, LISTENING);
    is_over(&serving, &streams, 1);
    is_over(&serving, &works, 2);
    is_over(&serving, &fetches, 1);
    until("people are asked again", || {
        let (consents, questions) = asked(&serving);
        is_one(&consents) && is_one(&questions)
    });
    let now = asked(&serving);
    for (before, now, id) in [(&before.0, &now.0, "consent"), (&before.1, &now.1, "question")] {
        assert_eq!(before[0][id], now[0][id], "it is the same request");
    }
    let [consent, question] =
        [&now.0[0]["consent"], &now.1[0]["question"]].map(|id| id.as_str().unwrap().to_owned());
    let path = format!("/v1/sessions/{asks}/consents/{consent}");
    assert_eq!(serving.ask("POST", &path, &[], r#"{"answer": "once"}"#).0, 204);
    let path = format!("/v1/sessions/{wonders}/questions/{question}");
    assert_eq!(serving.ask("POST", &path, &[], r#"{"answers": [["left"]]}"#).0, 204);
    is_over(&serving, &asks, 1);
    is_over(&serving, &wonders, 1);
    serving.signal(Signal::TERM);
    serving.ended().is(0);

    let [streams, works, asks, wonders, fetches] =
        [streams, works, asks, wonders, fetches].map(|id| stage.records(&id));
    for (records, turns) in [(&streams, 1), (&works, 2), (&asks, 1), (&wonders, 1), (&fetches, 1)] {
        assert_eq!(ended(records), vec![TurnOutcome::Completed; turns]);
    }
    let attempts = streams.iter().filter_map(|record| match record {
        Record::AttemptEnded(ended) => Some(ended.outcome.clone()),
        _ => None,
    });
    assert_eq!(attempts.collect::<Vec<_>>(), [AttemptOutcome::Lost, AttemptOutcome::Finished]);
    let [interrupted] = results(&works)[..] else { panic!("{works:?}") };
    assert_eq!(interrupted.outcome, CallOutcome::Interrupted);
    assert!(interrupted.output.contains("effects unknown"), "{}", interrupted.output);
    assert_eq!(stage.read("runs.txt"), "run\n", "it did not run again");
    assert_eq!(stage.read("asked.txt"), "asked\n");
    assert_eq!(fetched.load(Ordering::SeqCst), 2, "what changes nothing ran again");
    for records in [&asks, &wonders, &fetches] {
        let [result] = results(records)[..] else { panic!("{records:?}") };
        assert_eq!(result.outcome, CallOutcome::Done, "{result:?}");
    }
}

/// Asks, and gives up where the server ends meanwhile. The status.
fn try_to_prompt(serving: &Serving, session: &str, message: &str) -> Option<u16> {
    let body = json!({"text": "go", "message": message}).to_string();
    let mut stream = TcpStream::connect(serving.address()).ok()?;
    let head =
        format!("POST /v1/sessions/{session}/prompts HTTP/1.1\r\nhost: localhost\r\nconnection: close");
    write!(
        stream,
        "{head}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

/// Kills a server when its store has written for the so-manieth time, and checks what becomes of the turn. The last record
/// before that, and whether it was killed.
fn killed_at(write: u32) -> (&'static str, bool) {
    let steps = Model::new()
        .step(call("read", json!({"filePath": "a.txt"})))
        .step(call("bash", json!({"command": "echo run >> runs.txt"})))
        .step(text("Done."));
    let stage = Stage::new(steps);
    stage.write("a.txt", "one\n").write("runs.txt", "");
    stage.configure("[permissions]\nbash = \"allow\"");
    let serving = Serving::start(&stage, LISTENING);
    let session = create(&serving, &stage, "m");
    serving.signal(Signal::TERM);
    serving.ended().is(0);

    let mut command = stage.command(["serve", "--sandbox", "off", "--port", "0"]);
    command.env("PLAYHOUSE_FAIL", format!("flush.done=kill@{write}"));
    let serving = Serving::of(command);
    let message = format!("msg_{:012x}{:014}", 7, 7);
    let accepted = serving.has_begun() && try_to_prompt(&serving, &session, &message) == Some(202);
    let was_killed = loop {
        if !serving.has_begun() || TcpStream::connect(serving.address()).is_err() {
            break true;
        }
        if stage.asked().len() == 3 && stage.asked()[2].outcome == mock_llm::Outcome::Complete {
            // Its end is to be written, which may be the time.
            std::thread::sleep(std::time::Duration::from_millis(500));
            break TcpStream::connect(serving.address()).is_err();
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    serving.signal(Signal::KILL);
    let said = serving.ended().stderr;
    assert_eq!(was_killed, said.contains("the fail point flush.done"), "{said}");

    // Whoever only looks makes nothing go on.
    let last = stage.records(&session).last().map_or("", Record::kind);
    let serving = Serving::start(&stage, LISTENING);
    if !accepted {
        assert_eq!(try_to_prompt(&serving, &session, &message), Some(202));
    }
    is_over(&serving, &session, 1);
    serving.signal(Signal::TERM);
    serving.ended().is(0);
    let records = stage.records(&session);
    assert_eq!(ended(&records), [TurnOutcome::Completed], "{records:?}");
    let results = results(&records);
    let [read, ran] = results[..] else { panic!("killed at write {write}: {records:?}") };
    assert!(read.outcome == CallOutcome::Done && read.output.contains("one"), "{read:?}");
    let runs = stage.read("runs.txt").lines().count();
    match ran.outcome {
        CallOutcome::Done => assert_eq!(runs, 1),
        CallOutcome::Interrupted => assert!(runs <= 1, "it ran {runs} times"),
        _ => panic!("{ran:?}"),
    }
    (last, was_killed)
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_turn_goes_on_whichever_of_its_records_was_the_last() {
    let mut last = BTreeSet::new();
    for write in 1.. {
        let (of_turn, was_killed) = killed_at(write);
        last.insert(of_turn);
        if !was_killed {
            break;
        }
    }
    // How many records are written at once is a matter of timing.
    assert!(last.len() > 3, "it was killed behind {last:?} only");
}

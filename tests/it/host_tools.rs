//! Tools of the platform, over a killed engine.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use mock_llm::{Model, call, text};
use playhouse::protocol::Record;
use playhouse::protocol::message::CallOutcome;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::serve::Serving;
use crate::stage::{Stage, until};

pub(crate) const LISTENING: [&str; 2] = ["--port", "0"];

pub(crate) fn asked(serving: &Serving, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let body = if method == "GET" { String::new() } else { body.to_string() };
    let (status, answer) = serving.ask(method, path, &[], &body);
    (status, serde_json::from_str(&answer).unwrap_or_default())
}

/// The call that was offered in a session: waits until its event comes.
fn offered(serving: &Serving, session: &str) -> String {
    let mut stream = TcpStream::connect(serving.address()).unwrap();
    let request = format!("GET /v1/sessions/{session}/events?after=0 HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let lines = BufReader::new(stream).lines().map(Result::unwrap);
    let mut events = lines.filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data:")?).ok());
    let offered = events.find(|event| event["type"] == "call.offered").expect("the stream goes on");
    offered["data"]["call"].as_str().unwrap().to_owned()
}

#[test]
fn a_call_waits_over_a_killed_engine_for_its_one_result() {
    let model = Model::new().step(call("weather_at", json!({"city": "Oslo"}))).step(text("Rain."));
    let stage = Stage::new(model);
    stage.configure("[permissions]\nhost = \"allow\"");
    let serving = Serving::start(&stage, LISTENING);
    let tool = json!({"name": "weather_at", "description": "Tells the weather", "delivery": "events",
                      "risk": "moderate", "schema": {"type": "object"}});
    assert_eq!(asked(&serving, "POST", "/v1/tools", &tool).0, 201);
    let (status, made) = asked(&serving, "POST", "/v1/sessions", &json!({"workspace": stage.workspace}));
    assert_eq!(status, 201, "{made}");
    let session = made["id"].as_str().unwrap().to_owned();
    let place = format!("/v1/sessions/{session}");
    assert_eq!(asked(&serving, "POST", &format!("{place}/prompts"), &json!({"text": "go"})).0, 202);
    let call = offered(&serving, &session);
    serving.signal(Signal::KILL);
    drop(serving.ended());

    let serving = Serving::start(&stage, LISTENING);
    assert_eq!(asked(&serving, "POST", "/v1/tools", &tool).0, 409, "it is registered");
    assert_eq!(offered(&serving, &session), call, "it is kept");
    let result = format!("{place}/calls/{call}/result");
    let give = |serving: &Serving| asked(serving, "POST", &result, &json!({"output": "rain"})).0;
    assert_eq!(give(&serving), 204);
    // What was acknowledged is durable.
    serving.signal(Signal::KILL);
    drop(serving.ended());

    let serving = Serving::start(&stage, LISTENING);
    assert_eq!(give(&serving), 409, "it has a result");
    until("the turn is over", || asked(&serving, "GET", &place, &Value::Null).1["turns"].as_u64() == Some(1));
    serving.signal(Signal::TERM);
    drop(serving.ended());
    let records = stage.records(&session);
    let offered = records.iter().filter(|record| matches!(record, Record::CallOffered(_))).count();
    let settled: Vec<_> = records
        .iter()
        .filter_map(|record| match record {
            Record::CallSettled { result, .. } => Some((result.outcome, result.output.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!((offered, settled), (1, vec![(CallOutcome::Done, "rain")]));
}

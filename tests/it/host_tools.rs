//! Tools of the platform, over a killed engine.

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

/// The call that waits in a session.
fn waiting(serving: &Serving, session: &str) -> Option<String> {
    let (_, page) = asked(serving, "GET", &format!("/v1/sessions/{session}/messages"), &Value::Null);
    let text = page.to_string();
    let place = text.find("\"status\":\"running\"")?;
    let id = text[..place].rfind("\"prt_")?;
    Some(text[id + 1..].split('"').next()?.to_owned())
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
    until("the call waits", || waiting(&serving, &session).is_some());
    serving.signal(Signal::KILL);
    drop(serving.ended());

    let serving = Serving::start(&stage, LISTENING);
    assert_eq!(asked(&serving, "POST", "/v1/tools", &tool).0, 409, "it is registered");
    until("the call waits again", || waiting(&serving, &session).is_some());
    let call = waiting(&serving, &session).unwrap();
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

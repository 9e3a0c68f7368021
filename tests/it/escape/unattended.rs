//! Calls that a model makes where nobody is there to be asked: `playhouse run` without a terminal.

use std::collections::HashMap;

use mock_llm::{Mock, Model, Script, Server, call, text};
use playhouse::protocol::message::CallOutcome;
use playhouse::protocol::{EventBody, Record};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::ground::Ground;
use crate::stage::{Ended, finish};

/// A model that makes calls, one a step.
pub(super) struct Unattended {
    _server: Server,
    /// Drives the server.
    _runtime: Runtime,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Answers {
    /// Of each call, in order, whether it was declined.
    pub(super) declined: Vec<bool>,
    pub(super) printed: String,
}

impl Unattended {
    /// Adds the model to the configuration of `ground`.
    pub(super) fn new(ground: &mut Ground, calls: Vec<(String, Value)>) -> Self {
        let model =
            calls.into_iter().fold(Model::new(), |model, (tool, input)| model.step(call(tool, input)));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mock = Mock::new(Script::new().model("m", model.step(text("That is all."))));
        let server =
            runtime.block_on(async { mock.serve(TcpListener::bind("127.0.0.1:0").await.unwrap()).unwrap() });
        let provider = format!(
            "[providers.local]\ndialect = \"openai-chat\"\nbase_url = \"{}/v1\"\n[providers.local.models.m]\n\
             context = 1000000\noutput = 4000\n",
            server.url()
        );
        ground.configure(&provider);
        Self { _server: server, _runtime: runtime }
    }

    /// Lets the model make its calls.
    pub(super) fn run(&self, ground: &Ground) -> Answers {
        // Its own data, as what is in the ground's is no store.
        let data = ground.root().join("store");
        let data = data.to_string_lossy();
        let arguments = [
            "--data",
            &data,
            "--in-process",
            "run",
            "--model",
            "local/m",
            "--format",
            "json",
            "Make the calls.",
        ];
        let ended = finish(ground.engine(&arguments));
        Answers { declined: declined(&ended), printed: ended.stdout + &ended.stderr }
    }
}

fn declined(ended: &Ended) -> Vec<bool> {
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let mut proposed = Vec::new();
    let mut outcomes = HashMap::new();
    for event in ended.events() {
        match event.body {
            EventBody::Durable(record) => match *record {
                Record::CallProposed(ref call) => proposed.push(call.call),
                Record::CallSettled { call, ref result } => {
                    outcomes.insert(call, result.outcome == CallOutcome::Declined);
                }
                _ => {}
            },
            EventBody::Provisional(_) => {}
        }
    }
    proposed.iter().map(|call| outcomes.get(call).copied().unwrap_or_default()).collect()
}

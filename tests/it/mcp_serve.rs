//! `playhouse mcp serve`: a client on its pipes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use mock_llm::{Fault, Model, call, text};
use serde_json::{Value, json};

use crate::stage::{Stage, in_both, through_an_engine};

/// A client of the protocol, and the server that it started.
struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    requests: u64,
}

impl Peer {
    fn start(stage: &Stage, capabilities: &Value) -> Self {
        Self::start_with(stage, &[], capabilities)
    }

    fn start_with(stage: &Stage, options: &[&str], capabilities: &Value) -> Self {
        let mut command = stage.command(["mcp", "serve"]);
        command.args(options);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut peer = Self { child, input, output: BufReader::new(output), requests: 0 };
        let client = json!({"name": "test", "version": "1"});
        let hello =
            json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": client});
        peer.request("initialize", &hello);
        let answer = peer.read();
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
        peer.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        peer
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input, "{message}").unwrap();
    }

    fn request(&mut self, method: &str, params: &Value) {
        self.requests += 1;
        let id = self.requests;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }

    /// The next message, which is all that a line of the output may be.
    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn begin(&mut self, tool: &str, arguments: &Value) {
        let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": 7}});
        self.request("tools/call", &params);
    }

    /// The result of a call; what the server asks meanwhile is answered so.
    fn call(&mut self, tool: &str, arguments: &Value, answer: &Value) -> Value {
        self.begin(tool, arguments);
        loop {
            let message = self.read();
            match message["method"].as_str() {
                None => return message["result"].clone(),
                Some("notifications/progress") => assert_eq!(message["params"]["progressToken"], 7),
                Some("elicitation/create") => {
                    self.send(&json!({"jsonrpc": "2.0", "id": message["id"], "result": answer}));
                }
                Some(other) => panic!("{other}"),
            }
        }
    }

    fn session(&mut self) -> String {
        let made = self.call("session_create", &json!({}), &Value::Null);
        made["structuredContent"]["session"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
    }

    /// How it ends with its input.
    fn end(mut self) -> Option<i32> {
        drop(self.input);
        self.child.wait().unwrap().code()
    }
}

#[test]
fn a_client_hands_work_over_and_is_asked() {
    in_both(|| {
        let run = || call("bash", json!({"command": "echo hi > made.txt", "description": "x"}));
        let stage = Stage::new(Model::new().step(run()).step(text("It is made.")).cycle());
        stage.configure("[permissions]\nbash = \"ask\"");
        let mut peer = Peer::start(&stage, &json!({"elicitation": {}}));
        let session = peer.session();
        let prompt = json!({"session": session, "text": "go"});
        let declined = peer.call("session_prompt", &prompt, &json!({"action": "decline"}));
        assert_eq!(declined["structuredContent"]["declined"][0]["tool"], "bash", "{declined}");
        assert!(!stage.workspace.join("made.txt").exists());
        let accepted = json!({"action": "accept", "content": {}});
        let result = peer.call("session_prompt", &prompt, &accepted);
        assert_eq!(result["structuredContent"]["text"], "It is made.", "{result}");
        assert_eq!(stage.read("made.txt"), "hi\n");
        let status = peer.call("session_status", &json!({"session": session}), &Value::Null);
        let facts = &status["structuredContent"];
        assert_eq!((&facts["state"], &facts["turns"]), (&json!("idle"), &json!(2)), "{status}");
        assert_eq!(facts["workspace"], stage.workspace.to_str().unwrap());
        assert_eq!(peer.end(), Some(0));
    });
}

#[test]
fn chosen_native_tools_run_in_a_session_under_its_rules() {
    in_both(|| {
        let stage = Stage::new(Model::new());
        stage.configure("[permissions]\nbash = { \"echo *\" = \"ask\", \"rm *\" = \"deny\" }");
        fs_err::write(stage.workspace.join("a.txt"), "the first line\n").unwrap();
        let options = ["--tools", "read,bash"];
        let mut peer = Peer::start_with(&stage, &options, &json!({"elicitation": {}}));
        peer.request("tools/list", &json!({}));
        let listed = peer.read()["result"]["tools"].clone();
        let names: Vec<&str> =
            listed.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names[4..], ["read", "bash"], "{names:?}");
        let nobody = Value::Null;
        let read = peer.call("read", &json!({"filePath": "a.txt"}), &nobody);
        let text = read["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("the first line"), "{read}");
        let run = json!({"command": "echo hi > made.txt", "description": "x"});
        let declined = peer.call("bash", &run, &json!({"action": "decline"}));
        assert_eq!(declined["isError"], true, "{declined}");
        assert!(!stage.workspace.join("made.txt").exists());
        let done = peer.call("bash", &run, &json!({"action": "accept", "content": {}}));
        assert_eq!(done["isError"], false, "{done}");
        assert_eq!(stage.read("made.txt"), "hi\n");
        let denied = json!({"command": "rm made.txt", "description": "x"});
        assert_eq!(peer.call("bash", &denied, &nobody)["isError"], true);
        assert_eq!(stage.read("made.txt"), "hi\n");
        let wrong = peer.call("read", &json!({"filePaht": "a.txt"}), &nobody);
        assert_eq!(wrong["isError"], true, "{wrong}");
        peer.begin("write", &json!({"filePath": "b.txt", "content": ""}));
        let error = peer.read()["error"]["message"].as_str().unwrap().to_owned();
        assert!(error.contains("there is no tool \"write\""), "{error}");
        assert_eq!(peer.end(), Some(0));
        assert!(stage.asked().is_empty(), "no model is asked");
    });
}

#[test]
fn where_nobody_can_be_asked_a_native_call_is_declined_and_its_result_says_so() {
    let stage = Stage::new(Model::new());
    stage.configure("[permissions]\nbash = \"ask\"");
    let mut peer = Peer::start_with(&stage, &["--tools", "bash"], &json!({}));
    let run = json!({"command": "echo hi > made.txt", "description": "x"});
    let declined = peer.call("bash", &run, &Value::Null);
    assert_eq!(declined["isError"], true, "{declined}");
    let text = declined["content"].to_string();
    assert!(text.contains("Declined: bash: echo hi > made.txt"), "{text}");
    assert!(!stage.workspace.join("made.txt").exists());
    assert_eq!(peer.end(), Some(0));
}

#[test]
fn a_native_tool_that_there_is_not_is_named() {
    let stage = Stage::new(Model::new());
    let said = stage.playhouse_reading("", ["mcp", "serve", "--tools", "read,raed"]);
    said.is(2).says(["there is no native tool \"raed\"", "read"]);
}

#[test]
fn the_end_of_its_input_aborts_what_its_client_waited_for() {
    through_an_engine(|| {
        let step = text("one two three").fault(Fault::stall(2));
        let stage = Stage::new(Model::new().step(step));
        let mut peer = Peer::start(&stage, &json!({}));
        let session = peer.session();
        peer.begin("session_prompt", &json!({"session": session, "text": "go"}));
        stage.wait_for(|asked| !asked.is_empty());
        assert_eq!(peer.end(), Some(0));
        let records = stage.records(&session);
        let ended = records.iter().find_map(|record| match record {
            playhouse::protocol::Record::TurnEnded(ended) => Some(ended.outcome.to_string()),
            _ => None,
        });
        assert_eq!(ended.as_deref(), Some("aborted"));
    });
}

#[test]
fn a_client_that_leaves_before_it_begins_is_no_failure() {
    let stage = Stage::new(Model::new().step(text("So.")));
    stage.playhouse_reading("", ["mcp", "serve"]).is(0).shows([]);
}

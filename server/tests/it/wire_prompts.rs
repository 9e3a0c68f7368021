//! Prompts of the wire that ask no model, or say something for one turn only; and what clients keep with sessions.

use mock_llm::{Model, Script, call, text};
use serde_json::{Value, json};

use crate::support::{Served, Site};
use crate::wire_client::{Board, Wire, plain};

async fn served(script: Script) -> (Site, Served, Wire) {
    let site = Site::new();
    let served = site.serve(script, |_| {}).await;
    let wire = Wire::of(&served, None);
    (site, served, wire)
}

/// A session's messages, without when their parts were streamed.
async fn listed(wire: &Wire, session: &str) -> Vec<Value> {
    let listed = wire.get(&format!("/session/{session}/message")).await;
    let messages = listed.as_array().unwrap().iter().map(|message| {
        let parts = message["parts"].as_array().unwrap().iter().cloned().map(plain);
        json!({"info": message["info"], "parts": parts.collect::<Vec<_>>()})
    });
    messages.collect()
}

fn kinds(message: &Value) -> Vec<&str> {
    message["parts"].as_array().unwrap().iter().map(|part| part["type"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_by_hand_is_a_message_of_the_user_and_a_call() {
    let (site, _served, wire) = served(Script::new()).await;
    let session = wire.session("echo", "careful").await;
    let mut events = wire.events("/global/event", None).await;
    let message = "msg_00000000000012345678901234";
    let body = json!({"agent": "careful", "command": "echo hi | tee made", "messageID": message,
        "model": {"providerID": "mock", "modelID": "echo"}});
    let answer = wire.post(&format!("/session/{session}/shell"), body).await;
    assert_eq!(fs_err::read_to_string(site.workspace().join("made")).unwrap(), "hi\n");
    assert_eq!(
        (&answer["info"]["role"], &answer["info"]["parentID"]),
        (&json!("assistant"), &json!(message))
    );
    assert_eq!((&answer["info"]["cost"], &answer["info"]["tokens"]["input"]), (&json!(0.0), &json!(0)));
    assert_eq!(kinds(&answer), ["step-start", "tool", "step-finish", "patch"]);
    let call = &answer["parts"][1];
    assert_eq!((&call["tool"], &call["state"]["status"]), (&json!("bash"), &json!("completed")));
    assert_eq!(call["state"]["input"], json!({"command": "echo hi | tee made"}));
    assert!(call["state"]["metadata"]["output"].as_str().unwrap().contains("hi"), "{call}");
    // Nobody is asked, though the agent's model would be.
    let told = events.turn().await;
    assert!(told.iter().all(|event| event["type"] != "permission.asked"), "{told:#?}");
    let statuses: Vec<&Value> = told
        .iter()
        .filter(|event| event["type"] == "session.status")
        .map(|event| &event["properties"]["status"]["type"])
        .collect();
    assert_eq!(statuses, ["busy", "idle"]);
    let mut board = Board::default();
    told.iter().for_each(|event| board.take(event));
    let messages = listed(&wire, &session).await;
    assert_eq!(board.messages(), messages, "what was told is what is listed");
    assert_eq!(messages[0]["parts"][0]["text"], "The following tool was executed by the user");
    assert_eq!(messages[0]["parts"][0]["synthetic"], true);
    assert_eq!(messages[1]["info"], answer["info"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_session_says_so_to_a_command_and_an_abort_ends_one() {
    let (_site, _served, wire) = served(Script::new()).await;
    let session = wire.session("echo", "tester").await;
    let mut events = wire.events("/event", None).await;
    let path = format!("/session/{session}/shell");
    let body = json!({"agent": "tester", "command": "sleep 100"}).to_string();
    let (answer, ()) = tokio::join!(wire.ask("POST", &path, &[], &body), async {
        loop {
            let part = &events.until("message.part.updated").await["part"];
            if part["state"]["status"] == "running" {
                break;
            }
        }
        let busy = wire.ask("POST", &path, &[], &body).await.with(409);
        assert_eq!((&busy["_tag"], &busy["sessionID"]), (&json!("SessionBusyError"), &json!(session)));
        assert!(busy["message"].as_str().unwrap().contains("abort it"), "{busy}");
        assert_eq!(wire.post(&format!("/session/{session}/abort"), json!({})).await, json!(true));
    });
    let answer = answer.with(200);
    assert_eq!(answer["info"]["error"]["name"], "MessageAbortedError");
    assert_eq!(answer["parts"][1]["state"]["status"], "error");
    wire.ask("POST", &path, &[], r#"{"agent": "tester", "command": " "}"#).await.with(400);
    wire.ask("POST", &path, &[], r#"{"agent": "tester"}"#).await.with(400);
    let nobody = "/session/ses_00000000000012345678901234/shell";
    wire.ask("POST", nobody, &[], &body).await.with(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_without_an_answer_is_kept_and_answered_with_itself() {
    let (site, _served, wire) = served(Script::new()).await;
    let session = wire.session("echo", "tester").await;
    let mut events = wire.events("/event", None).await;
    let note = |text: &str| json!({"noReply": true, "parts": [{"type": "text", "text": text}]});
    let answer = wire.post(&format!("/session/{session}/message"), note("The build is broken.")).await;
    assert_eq!(answer["info"]["role"], "user");
    assert_eq!(answer["parts"][0]["text"], "The build is broken.");
    let (path, body) = (format!("/session/{session}/prompt_async"), note("Since Monday.").to_string());
    assert_eq!(wire.ask("POST", &path, &[], &body).await.status, 204);
    assert_eq!(wire.get("/session/status").await, json!({}));
    assert_eq!(listed(&wire, &session).await.len(), 2);
    // The next prompt's request has both.
    let prompt = json!({"parts": [{"type": "text", "text": "Mend it."}]});
    wire.post(&format!("/session/{session}/message"), prompt).await;
    let told = events.turn().await;
    let busy = told.iter().position(|event| event["type"] == "session.status").unwrap();
    let before = told[..busy].iter().filter(|event| event["type"] == "message.updated").count();
    assert_eq!(before, 3, "two notes and the prompt are told before anything runs");
    let request = site.requests().pop().unwrap();
    let said = request["messages"].to_string();
    for text in ["The build is broken.", "Since Monday.", "Mend it."] {
        assert!(said.contains(text), "{text}: {said}");
    }
}

/// Clients show a prompt before it is sent, under the ids that they gave its parts, and hide what programs put beside it.
#[tokio::test(flavor = "multi_thread")]
async fn the_parts_of_a_prompt_come_back_as_their_client_sent_them() {
    let (site, _served, wire) = served(Script::new()).await;
    let session = wire.session("echo", "tester").await;
    let path = format!("/session/{session}/message");
    let id = |number: u32| format!("prt_00000000000{number}TheIdOfAClient");
    let source = json!({"type": "file", "path": "a.txt", "text": {"value": "[a]", "start": 5, "end": 8}});
    let sent = json!([
        {"id": id(1), "type": "text", "text": "What of [a]?"},
        {"id": id(2), "type": "text", "text": "It is line 7.", "synthetic": true, "metadata": {"comment": {"line": 7}}},
        {"id": id(3), "type": "text", "text": "3 comments left", "ignored": true},
        {"id": id(4), "type": "file", "mime": "text/plain", "filename": "a.txt", "url": "data:text/plain;base64,YQ==", "source": source},
    ]);
    let mut events = wire.events("/event", None).await;
    wire.post(&path, json!({"parts": sent})).await;
    let told = events.turn().await;
    let messages = listed(&wire, &session).await;
    let without = |part: &Value| {
        let mut part = part.as_object().unwrap().clone();
        part.remove("sessionID");
        part.remove("messageID");
        Value::Object(part)
    };
    let parts = |parts: &[Value]| parts.iter().map(&without).collect::<Value>();
    assert_eq!(parts(messages[0]["parts"].as_array().unwrap()), sent);
    let shown = told.iter().filter(|event| event["type"] == "message.part.updated");
    let shown: Vec<Value> = shown.take(4).map(|event| event["properties"]["part"].clone()).collect();
    assert_eq!(parts(&shown), sent);
    let said = site.requests()[0]["messages"].to_string();
    assert!(said.contains("What of [a]?") && said.contains("It is line 7."), "{said}");
    assert!(!said.contains("comments left"), "{said}");
    assert_eq!(wire.get(&format!("/session/{session}")).await["title"], "What of [a]?");

    // Ids and sources of another form are not kept, and one id is that of one part.
    let other = json!([{"id": "prt_1", "type": "text", "text": "Well?"},
        {"id": "x", "type": "file", "mime": "text/plain", "url": "data:,b", "source": {"type": "file", "path": 7}}]);
    wire.post(&path, json!({"parts": other})).await;
    let parts = listed(&wire, &session).await[2]["parts"].clone();
    assert!(parts[0]["id"].as_str().unwrap().len() == 30 && parts[1].get("source").is_none(), "{parts}");
    let twice = json!({"parts": [sent[0], {"id": id(1), "type": "text", "text": "again"}]}).to_string();
    let refused = wire.ask("POST", &path, &[], &twice).await.with(400);
    assert!(refused["message"].as_str().unwrap().contains(&id(1)), "{refused}");
    let again = json!({"parts": [{"id": id(1), "type": "text", "text": "again", "synthetic": null}]});
    wire.post(&path, again).await;
    let parts = listed(&wire, &session).await[4]["parts"].clone();
    assert_ne!(parts[0]["id"], json!(id(1)), "the first message has it");
    let kept =
        |metadata: Value| json!({"parts": [{"type": "text", "text": "x", "metadata": metadata}]}).to_string();
    let deep = (0..40).fold(json!(1), |deep, _| json!([deep]));
    let long = "x".repeat(70_000);
    for (metadata, why) in [
        (json!({"a": long}), "at most 65536"),
        (json!({long.clone(): 1}), "at most 65536"),
        (json!({"a": deep}), "too deep"),
    ] {
        let refused = wire.ask("POST", &path, &[], &kept(metadata)).await.with(400);
        assert!(refused["message"].as_str().unwrap().contains(why), "{refused}");
    }
    // Only people read this one, and nobody answers it.
    let note = json!({"parts": [{"type": "text", "text": "Saved.", "ignored": true}]});
    assert_eq!(wire.ask("POST", &path, &[], &note.to_string()).await.status, 400);
    let note = json!({"noReply": true, "parts": note["parts"]});
    assert_eq!(wire.post(&path, note).await["parts"][0]["ignored"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_prompt_says_for_its_turn_is_shown_with_it() {
    let bash = call("bash", json!({"command": "touch made"}));
    let model = Model::new().step(bash).step(text("Done."));
    let (site, _served, wire) = served(Script::new().model("m", model)).await;
    let session = wire.session("m", "tester").await;
    let path = format!("/session/{session}/message");
    let prompt = |tools: Value| json!({"system": "Answer in verse.", "tools": tools, "parts": [{"type": "text", "text": "go"}]});
    let wrong = wire.ask("POST", &path, &[], &prompt(json!({"bahs": false})).to_string()).await.with(400);
    assert!(wrong["message"].as_str().unwrap().contains("Did you mean bash"), "{wrong}");
    wire.post(&path, prompt(json!({"bash": false, "read": true}))).await;
    assert!(!site.workspace().join("made").exists());
    let messages = listed(&wire, &session).await;
    let info = &messages[0]["info"];
    assert_eq!(
        (&info["system"], &info["tools"]),
        (&json!("Answer in verse."), &json!({"bash": false, "read": true}))
    );
    assert_eq!(messages[0]["parts"].as_array().unwrap().len(), 1, "people see what was written");
    let state = &messages[1]["parts"][1]["state"];
    assert!(state["error"].as_str().unwrap().contains("turned off"), "{state}");
    let requests = site.requests();
    assert!(requests[0]["messages"].to_string().contains("Answer in verse."));
    assert!(!requests[0]["system"].to_string().contains("verse"), "the system prompt stays as it is");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_built_of_prompts_says_what_to_do() {
    let (_site, _served, wire) = served(Script::new()).await;
    let session = wire.session("echo", "tester").await;
    let part = json!({"type": "text", "text": "go"});
    let task = json!({"type": "subtask", "prompt": "look", "description": "look", "agent": "tester"});
    for route in ["message", "prompt_async"] {
        let body = json!({"parts": [part, task]}).to_string();
        let answer = wire.ask("POST", &format!("/session/{session}/{route}"), &[], &body).await;
        let error = answer.with(501);
        assert_eq!(error["name"], "UnknownError");
        let message = error["data"]["message"].as_str().unwrap();
        assert!(message.starts_with("this is not built: ") && message.contains("subtasks"), "{message}");
    }
    let body = json!({"format": {"type": "text"}, "parts": [part]});
    wire.post(&format!("/session/{session}/message"), body).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_with_a_schema_is_structured() {
    let submit = call("submit_output", json!({"n": 3}));
    let (_site, _served, wire) = served(Script::new().model("m", Model::new().step(submit))).await;
    let session = wire.session("m", "tester").await;
    let path = format!("/session/{session}/message");
    let part = json!({"type": "text", "text": "go"});
    for (format, said) in [
        (json!({"type": "json_schema"}), "needs a `schema`"),
        (json!({"type": "json_schema", "schema": {"type": "objekt"}}), "the schema of the output"),
        (json!({"type": "xml"}), "there are"),
    ] {
        let body = json!({"format": format, "parts": [part]}).to_string();
        let error = wire.ask("POST", &path, &[], &body).await.with(400);
        assert!(error.to_string().contains(said), "{error}");
    }
    let schema = json!({"type": "object", "properties": {"n": {"minimum": 3}}, "required": ["n"]});
    let body = json!({"format": {"type": "json_schema", "schema": schema}, "parts": [part]});
    let answer = wire.post(&path, body).await;
    assert_eq!(answer["info"]["structured"], json!({"n": 3}), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_is_kept_and_sessions_are_put_aside() {
    let (_site, _served, wire) = served(Script::new()).await;
    let metadata = json!({"ticket": {"number": 7}});
    let body = json!({"model": {"providerID": "mock", "id": "echo"}, "metadata": metadata});
    let made = wire.post("/session", body).await;
    assert_eq!(made["metadata"], metadata);
    let id = made["id"].as_str().unwrap();
    let path = format!("/session/{id}");
    let mut events = wire.events("/event", None).await;
    let change = async |body: Value| wire.ask("PATCH", &path, &[], &body.to_string()).await;
    let aside = change(json!({"time": {"archived": 1_800_000_000_000u64}})).await.with(200);
    assert_eq!((&aside["time"]["archived"], &aside["metadata"]), (&json!(1_800_000_000_000u64), &metadata));
    let told = events.until("session.updated").await;
    assert_eq!(told["info"]["time"]["archived"], aside["time"]["archived"]);
    // The plain list has all, and the other one leaves out what is put aside.
    let other = wire.session("echo", "tester").await;
    assert_eq!(wire.get("/session").await.as_array().unwrap().len(), 2);
    let everywhere = wire.get("/experimental/session").await;
    assert_eq!((everywhere.as_array().unwrap().len(), &everywhere[0]["id"]), (1, &json!(other)));
    assert!(everywhere[0]["project"]["worktree"].is_string(), "{everywhere}");
    assert_eq!(wire.get("/experimental/session?archived=true").await.as_array().unwrap().len(), 2);
    let first = wire.ask("GET", "/experimental/session?archived=true&limit=1", &[], "").await;
    let cursor = first.header("x-next-cursor").unwrap().to_owned();
    let next = wire.get(&format!("/experimental/session?archived=true&limit=1&cursor={cursor}")).await;
    assert!(next.as_array().unwrap().len() <= 1);
    let back = change(json!({"time": {"archived": null}, "metadata": {}})).await.with(200);
    assert_eq!((back["time"].get("archived"), back.get("metadata")), (None, None));
    assert_eq!(change(json!({"time": {}})).await.with(200), back, "nothing is changed");
    for wrong in [
        json!({"time": {"archived": -1}}),
        json!({"time": {"archived": 1e300}}),
        json!({"metadata": {"text": "x".repeat(20_000)}}),
        json!({"metadata": 5}),
    ] {
        change(wrong).await.with(400);
    }
}

//! Turns over the wire: what clients see of them, live and later.

use mock_llm::{Fault, Model, Script, call, text, tokens};
use serde_json::{Value, json};

use crate::support::{Served, Site};
use crate::wire_client::{Board, Wire, plain};

async fn served(script: Script) -> (Site, Served, Wire) {
    let site = Site::new();
    let served = site.serve(script, |_| {}).await;
    let wire = Wire::of(&served, None);
    (site, served, wire)
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_is_answered_and_told_in_the_order_of_the_wire() {
    let (site, _served, wire) =
        served(Script::new().model("m", Model::new().step(text("Hello there.")))).await;
    let mut events = wire.events("/event", None).await;
    let session = wire.session("m", "tester").await;
    assert_eq!(events.until("session.created").await["info"]["id"], *session);
    events.until("session.updated").await;
    let body = json!({"agent": "tester", "model": {"providerID": "mock", "modelID": "m"},
        "parts": [{"type": "text", "text": "hello"}]});
    let answer = wire.post(&format!("/session/{session}/message"), body).await;
    let told = events.turn().await;
    // The session was named after its first prompt.
    assert_eq!(told[0]["properties"]["info"]["title"], "hello");
    let mut short = kinds(&told[1..]);
    short.dedup();
    assert_eq!(
        short,
        [
            "message.updated",
            "message.part.updated",
            "session.updated",
            "session.status",
            "message.updated",
            "message.part.updated",
            "message.part.delta",
            "message.part.updated",
            "message.updated",
            "session.status",
            "session.idle",
        ]
    );
    events.until("session.updated").await;
    let mut board = Board::default();
    told.iter().for_each(|event| board.take(event));
    let listed = wire.get(&format!("/session/{session}/message?limit=100")).await;
    let listed: Vec<Value> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|message| {
            let parts = message["parts"].as_array().unwrap().iter().cloned().map(plain);
            json!({"info": message["info"], "parts": parts.collect::<Vec<_>>()})
        })
        .collect();
    assert_eq!(board.messages(), listed, "what was told is what is listed");
    assert_eq!(answer["info"], listed[1]["info"]);
    assert_eq!(listed[1]["parts"][1]["text"], "Hello there.");
    let path = &listed[1]["info"]["path"];
    assert_eq!(path["cwd"], site.workspace().to_str().unwrap());
    let info = wire.get(&format!("/session/{session}")).await;
    assert!(info["tokens"]["output"].as_u64().unwrap() > 0 && info["cost"].as_f64().unwrap() > 0.0, "{info}");
    let one = listed[0]["info"]["id"].as_str().unwrap();
    let one = wire.get(&format!("/session/{session}/message/{one}")).await;
    assert_eq!(one["info"], listed[0]["info"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_told_from_its_beginning_to_its_end() {
    let command = json!({"command": "for i in 1 2 3; do echo line $i; done"});
    let write = json!({"filePath": "new.txt", "content": "hi\n"});
    let model = Model::new().step(call("bash", command)).step(call("write", write)).step(text("Done."));
    let (_site, _served, wire) = served(Script::new().model("m", model)).await;
    let session = wire.session("m", "tester").await;
    let mut events = wire.events("/global/event", None).await;
    wire.prompt(&session, "go").await;
    let told = events.turn().await;
    let calls: Vec<(String, String)> = told
        .iter()
        .map(|event| &event["properties"]["part"])
        .filter(|part| part["type"] == "tool")
        .map(|part| {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (text(&part["tool"]), text(&part["state"]["status"]))
        })
        .collect();
    for tool in ["bash", "write"] {
        let mut states: Vec<&str> =
            calls.iter().filter(|(of, _)| of == tool).map(|(_, state)| state.as_str()).collect();
        states.dedup();
        assert_eq!(states, ["pending", "running", "completed"], "{tool}");
    }
    let done = told.iter().rfind(|event| event["properties"]["part"]["tool"] == "bash").unwrap();
    let output = &done["properties"]["part"]["state"]["metadata"]["output"];
    assert!(output.as_str().unwrap().contains("line 3"), "{done}");
    assert_eq!(wire.get(&format!("/session/{session}/diff")).await, json!([]));
    let prompt = told.iter().find(|event| event["properties"]["info"]["role"] == "user").unwrap();
    let turn = prompt["properties"]["info"]["id"].as_str().unwrap();
    let diff = wire.get(&format!("/session/{session}/diff?messageID={turn}")).await;
    assert_eq!(diff[0]["file"], "new.txt");
    assert_eq!((&diff[0]["additions"], &diff[0]["status"]), (&json!(1), &json!("added")));
    // The end of the turn tells it, too: of the session, and of its prompt.
    let session_diff = told.iter().find(|event| event["type"] == "session.diff").unwrap();
    assert_eq!(session_diff["properties"]["diff"], diff);
    let last = told.iter().rfind(|event| event["properties"]["info"]["role"] == "user").unwrap();
    assert_eq!(last["properties"]["info"]["summary"], json!({"diffs": diff}));
    let listed = wire.get(&format!("/session/{session}/message")).await;
    assert_eq!(last["properties"]["info"], listed[0]["info"]);
    let updated = events.next().await.unwrap();
    assert_eq!(updated["type"], "session.updated");
    let summary = json!({"additions": 1, "deletions": 0, "files": 1});
    assert_eq!(updated["properties"]["info"]["summary"], summary);
    assert_eq!(wire.get(&format!("/session/{session}")).await["summary"], summary);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_comes_back_misses_nothing_and_other_directories_are_not_told() {
    let model =
        Model::new().rate(400.0).step(tokens(150).call("list", json!({"path": "."}))).step(tokens(150));
    let (site, _served, wire) = served(Script::new().model("m", model)).await;
    let other = site.workspace().join("other");
    fs_err::create_dir(&other).unwrap();
    let address = format!("/event?directory={}", other.display());
    let mut others = wire.events(&address, None).await;
    let session = wire.session("m", "tester").await;
    let mut board = Board::default();
    let mut events = wire.events("/event", None).await;
    wire.prompt(&session, "go").await;
    let mut breaks = 0;
    let mut idle = false;
    while !idle {
        let event = events.next().await.unwrap();
        board.take(&event);
        idle = event["type"] == "session.idle";
        if board.parts.len() % 3 == 2 && breaks < 20 && !idle {
            breaks += 1;
            let last = events.last.clone();
            drop(events);
            events = wire.events("/event", Some(&last)).await;
        }
    }
    assert!(breaks > 3, "it came back {breaks} times");
    let listed = wire.get(&format!("/session/{session}/message")).await;
    let texts = |of: &Value| of["text"].as_str().map(str::to_owned);
    let streamed: Vec<String> = board
        .messages()
        .iter()
        .flat_map(|message| message["parts"].as_array().unwrap().clone())
        .filter_map(|part| texts(&part))
        .collect();
    let read: Vec<String> = listed
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|message| message["parts"].as_array().unwrap())
        .filter_map(texts)
        .collect();
    assert_eq!(streamed, read);
    // A session there is the first that its stream tells.
    let body = json!({"title": "there"}).to_string();
    let header = [("x-opencode-directory", other.to_str().unwrap())];
    let made = wire.ask("POST", "/session", &header, &body).await.with(200);
    assert_eq!(made["directory"], other.to_str().unwrap());
    assert_eq!(others.next().await.unwrap()["properties"]["info"]["title"], "there");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_was_away_too_long_is_told_to_read_everything_again() {
    let (site, _served, wire) = served(Script::new()).await;
    for last in ["1-7", "999999-1", "nonsense"] {
        let mut events = wire.events("/event", Some(last)).await;
        let disposed = events.next().await.unwrap();
        assert_eq!(disposed["type"], "server.instance.disposed", "{last}");
        assert_eq!(disposed["properties"]["directory"], site.workspace().to_str().unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_leaves_nothing_that_waits() {
    let step = text("one two three four five").fault(Fault::stall(5));
    let (_site, _served, wire) = served(Script::new().model("m", Model::new().step(step))).await;
    let session = wire.session("m", "tester").await;
    let mut events = wire.events("/event", None).await;
    wire.prompt(&session, "go").await;
    events.until("message.part.delta").await;
    let status = wire.get("/session/status").await;
    assert_eq!(status, json!({session.as_str(): {"type": "busy"}}));
    let current = wire.get(&format!("/session/{session}/message")).await;
    let parts = current[1]["parts"].as_array().unwrap();
    assert!(
        parts.last().unwrap()["text"].as_str().unwrap().starts_with("one"),
        "what streams is listed: {parts:?}"
    );
    let aborted = wire.ask("POST", &format!("/session/{session}/abort"), &[], "").await.with(200);
    assert_eq!(aborted, json!(true));
    let told = events.turn().await;
    let error = told.iter().find(|event| event["type"] == "session.error").unwrap();
    assert_eq!(error["properties"]["error"]["name"], "MessageAbortedError");
    let messages = wire.get(&format!("/session/{session}/message")).await;
    let last = &messages.as_array().unwrap().last().unwrap()["info"];
    assert_eq!(last["error"]["name"], "MessageAbortedError");
    assert!(last["time"]["completed"].is_u64());
    assert_eq!(wire.get("/session/status").await, json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_id_of_a_prompt_is_the_clients_and_counts_once() {
    let (_site, _served, wire) = served(Script::new()).await;
    let session = wire.session("echo", "tester").await;
    let message = "msg_0123456789abTheIdOfAClient";
    let body = json!({"messageID": message, "parts": [{"type": "text", "text": "hello"}]}).to_string();
    let (asynchronous, awaited) =
        (format!("/session/{session}/prompt_async"), format!("/session/{session}/message"));
    assert_eq!(wire.ask("POST", &asynchronous, &[], &body).await.status, 204);
    let answer = wire.ask("POST", &awaited, &[], &body).await.with(200);
    assert_eq!(answer["info"]["parentID"], message);
    let messages = wire.get(&awaited).await;
    assert_eq!(messages.as_array().unwrap().len(), 2);
    // A file is kept beside the text; what is mentioned is said.
    let parts = json!([
        {"type": "text", "text": "look"},
        {"type": "file", "mime": "image/png", "filename": "dot.png", "url": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mOoBwAAgQCAfhwpxwAAAABJRU5ErkJggg=="},
        {"type": "file", "mime": "text/plain", "url": "file:///a/b%20c.txt"},
        {"type": "file", "mime": "text/plain", "url": "file://localhost/a/d.txt"},
        {"type": "file", "mime": "text/plain", "filename": "e.txt", "url": "data:text/plain,caf%C3%A9"},
        {"type": "agent", "name": "helper"},
    ]);
    wire.post(&awaited, json!({"parts": parts})).await;
    let messages = wire.get(&awaited).await;
    let parts = &messages[2]["parts"];
    assert_eq!((&parts[0]["text"], parts[0].get("synthetic")), (&json!("look"), None));
    assert_eq!(parts[1]["text"], "/a/b c.txt\n/a/d.txt\n@helper");
    assert_eq!(parts[1]["synthetic"], true);
    assert_eq!((&parts[2]["type"], &parts[2]["filename"]), (&json!("file"), &json!("dot.png")));
    assert_eq!(parts[3]["url"], "data:text/plain;base64,Y2Fmw6k=");
    // Pages go back, the newest first.
    let page = wire.ask("GET", &format!("{awaited}?limit=3"), &[], "").await;
    let cursor = page.header("x-next-cursor").unwrap().to_owned();
    assert!(page.header("link").unwrap().contains(&format!("before={cursor}")));
    let before = wire.get(&format!("{awaited}?limit=3&before={cursor}")).await;
    assert_eq!(before[0], messages[0]);
    assert_eq!(page.json()[0], messages[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_that_cannot_follow_makes_clients_read_everything_again() {
    let model = Model::new().step(tokens(50).call("list", json!({"path": "."}))).step(tokens(50)).cycle();
    let mut site = Site::new();
    // Next to nothing is kept for whoever reads a moment later.
    site.tune = |engine| engine.limits.hub_bytes = 1;
    let served = site.serve(Script::new().model("m", model), |_| {}).await;
    let wire = Wire::of(&served, None);
    let session = wire.session("m", "tester").await;
    let mut events = wire.events("/event", None).await;
    for turn in 1..=2 {
        let body = json!({"parts": [{"type": "text", "text": "go"}]});
        let path = format!("/session/{session}/message");
        wire.post(&path, body).await;
        let disposed = events.until("server.instance.disposed").await;
        assert_eq!(disposed["directory"], site.workspace().to_str().unwrap());
        // What is read then is all that there is.
        let messages = wire.get(&path).await;
        assert_eq!(messages.as_array().unwrap().len(), 3 * turn);
        assert!(messages[3 * turn - 1]["info"]["time"]["completed"].is_u64());
        assert_eq!(wire.get("/session/status").await, json!({}));
    }
}

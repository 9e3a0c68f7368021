//! Command templates: listed and run by both APIs; and paths that prompts name.

use mock_llm::Script;
use serde_json::{Value, json};

use crate::client::Client;
use crate::native_schema::Description;
use crate::support::{Served, Site};
use crate::wire_client::Wire;

async fn served() -> (Site, Served) {
    let site = Site::new();
    fs_err::write(site.workspace().join("a b.txt"), "one\ntwo\nthree\n").unwrap();
    let served = site.serve(Script::new(), |_| {}).await;
    (site, served)
}

/// The texts of the last message of the last request.
fn read_by_model(site: &Site) -> Vec<String> {
    let request = site.requests().pop().unwrap();
    let content = request["messages"].as_array().unwrap().last().unwrap()["content"].clone();
    let texts = content.as_array().unwrap().iter().filter_map(|block| block["text"].as_str());
    texts.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_the_wire_list_and_run_templates() {
    let (site, served) = served().await;
    let wire = Wire::of(&served, None);
    let listed = wire.get("/command").await;
    assert_eq!(
        listed[0],
        json!({
            "name": "explain", "description": "Explains it", "source": "command", "template": "Explain $1.",
            "subtask": false, "hints": ["$1"],
        })
    );
    let session = wire.session("echo", "tester").await;
    let path = format!("/session/{session}/command");
    let mut events = wire.events("/event", None).await;
    let url = format!("file://{}?start=2&end=2", site.workspace().join("a%20b.txt").display());
    let parts = json!([{"type": "file", "mime": "text/plain", "url": url}]);
    let body = json!({
        "command": "explain", "arguments": "the second line", "agent": "tester", "model": "mock/echo", "parts": parts,
        "messageID": "msg_0123456789abTheIdOfAClient",
    });
    let answer = wire.post(&path, body).await;
    assert_eq!(answer["info"]["parentID"], "msg_0123456789abTheIdOfAClient");
    assert_eq!(
        read_by_model(&site),
        [
            "ran\nExplain the second line.".to_owned(),
            "<file name=\"a b.txt\">\n2\ttwo\n(lines 2-2 of 3; read on with offset 3)\n</file>".to_owned(),
        ]
    );
    // What ran for it is shown as what it is, before the prompt.
    let messages = wire.get(&format!("/session/{session}/message")).await;
    let shown: Vec<&Value> = messages.as_array().unwrap().iter().collect();
    assert_eq!(shown.len(), 4);
    assert_eq!(shown[0]["parts"][0]["synthetic"], true);
    assert_eq!(shown[1]["parts"][1]["state"]["input"]["command"], "echo ran");
    assert_eq!(shown[2]["parts"][1]["filename"], "a b.txt");
    assert_eq!(shown[2]["parts"][1]["mime"], "text/plain");
    // Whoever waits until it is idle has seen the answer, and not only what ran before it.
    let told = events.turn().await;
    assert_eq!(told.last().unwrap()["type"], "session.idle");
    let text = |event: &Value| event["properties"]["part"]["text"].as_str().map(str::to_owned);
    let texts: Vec<String> = told.iter().filter_map(text).collect();
    let has = |text: &&String| text.starts_with("ran\nExplain the second line.");
    assert_eq!(texts.iter().filter(has).count(), 2, "the prompt, and what echoes it: {texts:?}");
    assert_eq!(wire.get("/session/status").await, json!({}));
    let bad = |body: Value| body.to_string();
    for (body, said) in [
        (bad(json!({"command": "none", "arguments": ""})), "unknown command"),
        (bad(json!({"command": "explain", "arguments": "", "model": "nonsense"})), "nonsense"),
        (bad(json!({"command": "explain"})), "arguments"),
    ] {
        let refused = wire.ask("POST", &path, &[], &body).await;
        assert!(refused.status == 400 && refused.body.contains(said), "{body}: {}", refused.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_the_native_api_list_and_run_templates() {
    let (site, served) = served().await;
    let client = Client::of(&served, None);
    let description = Description::of(&client).await;
    let list = client.get(&format!("/v1/commands?workspace={}", site.workspace().display())).await.with(200);
    description.check("Commands", &list);
    assert_eq!(list["commands"][0]["name"], "explain");
    assert_eq!(list["refused"], json!(["bad.md:1: it is bad"]));
    client.get("/v1/commands").await.refused(400, "invalid");
    client.get("/v1/commands?workspace=/").await.refused(403, "forbidden");
    let session = client.session("echo").await;
    let mut events = client.events(&format!("{session}/events"), None).await;
    let path = format!("{session}/command");
    let key = [("idempotency-key", "msg_00000000010012345678901234")];
    let body = json!({"name": "explain", "arguments": "it"}).to_string();
    let accepted = client.ask("POST", &path, &key, &body).await.with(202);
    description.check("Accepted", &accepted);
    for _ in 0..2 {
        events.until("turn.ended").await;
    }
    assert_eq!(read_by_model(&site), ["ran\nExplain it."]);
    let again = client.ask("POST", &path, &key, &body).await.with(202);
    assert_eq!((&again["repeated"], &again["turn"]), (&json!(true), &accepted["turn"]));
    let page = client.get(&format!("{session}/messages")).await.with(200);
    description.check("MessagePage", &page);
    assert_eq!(
        page["messages"][0]["kind"],
        json!({"kind": "block", "command": "echo ran", "template": "explain"})
    );
    let said = client.post(&path, json!({"name": "none"})).await.refused(400, "invalid");
    assert!(said.contains("unknown command"), "{said}");
    let said = client.post(&path, json!({"nam": "explain"})).await.refused(400, "invalid");
    assert!(said.contains("did you mean \"name\""), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_prompt_names_is_attached_unless_it_is_plain() {
    let (site, served) = served().await;
    let client = Client::of(&served, None);
    let session = client.session("echo").await;
    let mut events = client.events(&format!("{session}/events"), None).await;
    let text = "see @\"a b.txt#3\"";
    for (plain, read) in [(false, 2), (true, 1)] {
        client.post(&format!("{session}/prompts"), json!({"text": text, "plain": plain})).await.with(202);
        events.until("turn.ended").await;
        assert_eq!(read_by_model(&site).len(), read);
    }
    // A client that sends what it mentions as a file gets it once.
    let wire = Wire::of(&served, None);
    let url = format!("file://{}", site.workspace().join("a%20b.txt").display());
    let source =
        json!({"type": "file", "path": "a b.txt", "text": {"value": "@\"a b.txt\"", "start": 4, "end": 14}});
    let parts = json!([
        {"type": "text", "text": "see @\"a b.txt\""},
        {"type": "file", "mime": "text/plain", "filename": "a b.txt", "url": url, "source": source},
    ]);
    let id = session.rsplit('/').next().unwrap();
    wire.post(&format!("/session/{id}/message"), json!({"parts": parts})).await;
    assert_eq!(
        read_by_model(&site),
        ["see @\"a b.txt\"", "<file name=\"a b.txt\">\n1\tone\n2\ttwo\n3\tthree\n</file>"]
    );
}

//! Prompts of the native API that ask no model, or say something for one turn only; and what clients keep with sessions.

use mock_llm::Script;
use serde_json::{Value, json};

use crate::client::Client;
use crate::native_schema::Description;
use crate::support::{Served, Site};

async fn served() -> (Site, Served, Client) {
    let site = Site::new();
    let served = site.serve(Script::new(), |_| {}).await;
    let client = Client::of(&served, None);
    (site, served, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_run_by_hand() {
    let (site, _served, client) = served().await;
    let description = Description::of(&client).await;
    let session = client.session("echo").await;
    let mut events = client.events(&format!("{session}/events"), None).await;
    let path = format!("{session}/shell");
    let key = [("idempotency-key", "msg_00000000000012345678901234")];
    let body = r#"{"command": "echo ran >> ran", "timeout": 20000}"#;
    let accepted = client.ask("POST", &path, &key, body).await.with(202);
    description.check("Accepted", &accepted);
    let ended = events.until("turn.ended").await;
    assert_eq!(ended["data"]["outcome"], "completed");
    let again = client.ask("POST", &path, &key, body).await.with(202);
    assert_eq!(again["repeated"], true);
    assert_eq!(fs_err::read_to_string(site.workspace().join("ran")).unwrap(), "ran\n");
    let page = client.get(&format!("{session}/messages")).await.with(200);
    description.check("MessagePage", &page);
    let kind = &page["messages"][0]["kind"];
    assert_eq!(*kind, json!({"kind": "shell", "command": "echo ran >> ran", "timeout": 20_000}));
    assert_eq!(page["messages"][1]["parts"][0]["input"]["object"]["timeout"], 20_000);
    assert!(site.requests().is_empty(), "no model is asked");
    for timeout in [0, 600_001, 1_000_000_000_000_000_000_u64] {
        let said =
            client.post(&path, json!({"command": "true", "timeout": timeout})).await.refused(400, "invalid");
        assert!(said.contains("from 1 to 600000 milliseconds"), "{said}");
    }
    let said =
        client.post(&path, json!(["msg_00000000000012345678901235", "true"])).await.refused(400, "invalid");
    assert!(said.contains("JSON object"), "{said}");
    let diff = format!("{session}/diff?prompt=");
    client.get(&format!("{diff}msg_00000000000012345678901234")).await.with(200);
    client.get(&format!("{diff}msg_00000000000012345678901239")).await.refused(400, "invalid");
    client.post(&path, json!({"command": "sleep 100"})).await.with(202);
    client.post(&path, json!({"command": "true"})).await.refused(409, "busy");
    let detail = client.post(&path, json!({"comand": "true"})).await.refused(400, "invalid");
    assert!(detail.contains("did you mean \"command\""), "{detail}");
    assert_eq!(client.post(&format!("{session}/abort"), json!({})).await.with(200)["turns"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_calls_one_tool_and_the_rules_of_the_agent_hold() {
    let (site, _served, client) = served().await;
    let description = Description::of(&client).await;
    let session = client.session_with(json!({"model": "mock/echo", "agent": "careful"})).await;
    let mut events = client.events(&format!("{session}/events"), None).await;
    let path = format!("{session}/calls");
    let key = [("idempotency-key", "msg_00000000000012345678901234")];
    let input = json!({"filePath": "made", "content": "once\n"});
    let call = json!({"tool": "write", "input": input});
    let accepted = client.ask("POST", &path, &key, &call.to_string()).await.with(202);
    description.check("Accepted", &accepted);
    let asked = events.until("consent.asked").await;
    let made = site.workspace().join("made");
    assert!(!made.exists());
    let consent = asked["data"]["consent"].as_str().unwrap();
    let answer = json!({"answer": "once"});
    client.post(&format!("{session}/consents/{consent}"), answer).await.with(204);
    let settled = events.until("call.settled").await;
    assert_eq!(settled["data"]["result"]["outcome"], "done", "{settled}");
    events.until("turn.ended").await;
    assert_eq!(fs_err::read_to_string(&made).unwrap(), "once\n");
    let again = client.ask("POST", &path, &key, &call.to_string()).await.with(202);
    assert_eq!(again["repeated"], true);
    let page = client.get(&format!("{session}/messages")).await.with(200);
    description.check("MessagePage", &page);
    assert_eq!(page["messages"][0]["kind"], json!({"kind": "call", "tool": "write", "input": input}));

    let alone = json!({"tool": "write", "input": {"filePath": "other", "content": ""}, "unattended": true});
    client.post(&path, alone).await.with(202);
    let settled = events.until("call.settled").await;
    assert_eq!(settled["data"]["result"]["outcome"], "declined", "{settled}");
    assert!(!site.workspace().join("other").exists());
    events.until("turn.ended").await;
    assert!(site.requests().is_empty(), "no model is asked");

    let detail = client.post(&path, json!({"tool": "wirte"})).await.refused(400, "invalid");
    assert!(detail.contains("wirte"), "{detail}");
    let input = json!({"description": "d", "prompt": "p", "subagent_type": "explore"});
    let detail = client.post(&path, json!({"tool": "task", "input": input})).await.refused(400, "invalid");
    assert!(detail.contains("only a model's turn"), "{detail}");
    let steers = json!({"tool": "read", "when_busy": "steer"});
    client.post(&path, steers).await.refused(400, "invalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_without_a_reply_is_kept() {
    let (site, _served, client) = served().await;
    let description = Description::of(&client).await;
    let session = client.session("echo").await;
    let path = format!("{session}/prompts");
    let note = json!({"text": "The build is broken.", "reply": false});
    client.post(&path, note).await.with(202);
    let view = client.get(&session).await.with(200);
    assert_eq!((&view["state"], &view["open_turns"]), (&json!("idle"), &json!(0)));
    let page = client.get(&format!("{session}/messages")).await.with(200);
    description.check("MessagePage", &page);
    assert_eq!(page["messages"][0]["kind"], json!({"kind": "note"}));
    let mut events = client.events(&format!("{session}/events"), None).await;
    let tools = json!({"bash": false});
    let prompt = json!({"text": "Mend it.", "system": "Answer in verse.", "tools": tools});
    client.post(&path, prompt).await.with(202);
    events.until("turn.ended").await;
    let request = site.requests().remove(0)["messages"].to_string();
    for text in ["The build is broken.", "Mend it.", "Answer in verse.", "refused: bash"] {
        assert!(request.contains(text), "{text}: {request}");
    }
    let page = client.get(&format!("{session}/messages")).await.with(200);
    description.check("MessagePage", &page);
    assert_eq!(page["messages"][1]["tools"], tools);
    let wrong = json!({"text": "go", "tools": {"bahs": false}});
    let detail = client.post(&path, wrong).await.refused(400, "invalid");
    assert!(detail.contains("bash"), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_is_kept_and_sessions_are_put_aside() {
    let (_site, _served, client) = served().await;
    let description = Description::of(&client).await;
    let metadata = json!({"z": 1, "a": [true]});
    let session = client.session_with(json!({"model": "mock/echo", "metadata": metadata})).await;
    client.session("echo").await;
    let change = async |body: Value| client.ask("PATCH", &session, &[], &body.to_string()).await;
    let aside = change(json!({"archived": 1_800_000_000_000u64})).await.with(200);
    description.check("Session", &aside);
    assert_eq!((&aside["archived"], &aside["metadata"]), (&json!(1_800_000_000_000u64), &metadata));
    for (query, count) in [("", 2), ("?archived=true", 1), ("?archived=false", 1)] {
        let page = client.get(&format!("/v1/sessions{query}")).await.with(200);
        description.check("SessionPage", &page);
        assert_eq!(page["sessions"].as_array().unwrap().len(), count, "{query}");
    }
    let back = change(json!({"archived": null, "metadata": {"b": 2}})).await.with(200);
    assert_eq!((back.get("archived"), &back["metadata"]), (None, &json!({"b": 2})));
    let large = json!({"metadata": {"text": "x".repeat(20_000)}});
    let detail = change(large).await.refused(400, "invalid");
    assert!(detail.contains("at most 16384"), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_was_used_stands_for_the_same_prompt_only() {
    let (site, _served, client) = served().await;
    let session = client.session("echo").await;
    let key = [("idempotency-key", "msg_00000000000012345678901234")];
    let path = format!("{session}/prompts");
    let mut events = client.events(&format!("{session}/events"), None).await;
    let send = async |body: Value| client.ask("POST", &path, &key, &body.to_string()).await;
    let file = |text: &str| json!([{"mime": "text/plain", "filename": "a.txt", "text": text}]);
    let first = json!({"text": "one", "files": file("x")});
    send(first.clone()).await.with(202);
    assert_eq!(send(first.clone()).await.with(202)["repeated"], true, "while it waits or runs");
    events.until("turn.ended").await;
    assert_eq!(send(first).await.with(202)["repeated"], true, "and afterwards");
    for other in [
        json!({"text": "two", "files": file("x")}),
        json!({"text": "one", "files": file("y")}),
        json!({"text": "one"}),
        json!({"text": "one", "files": file("x"), "reply": false}),
    ] {
        let said = send(other).await.refused(409, "repeated");
        assert!(said.contains("other content") && said.contains(key[0].1), "{said}");
    }
    let command = json!({"command": "true"}).to_string();
    client.ask("POST", &format!("{session}/shell"), &key, &command).await.refused(409, "repeated");
    assert_eq!(site.requests().len(), 1);
    let plain = [("idempotency-key", "key1")];
    let said = client.ask("POST", &path, &plain, "{\"text\": \"hi\"}").await.refused(400, "invalid");
    assert!(said.contains("12 lower-case hex digits"), "{said}");
}

//! What those with keys are told of turns that failed, and what those without.

use std::collections::BTreeMap;

use mock_llm::{Fault, Model, Script, Step};
use serde_json::{Value, json};

use crate::client::Client;
use crate::native_schema::Description;
use crate::support::Site;
use crate::wire_client::Wire;

/// What the provider says, and nobody with a key shall read.
const SAID: &str = "bad thing at backend 10.1.2.3";

/// A model whose requests fail once in a way that is tried again, and then for good.
fn script() -> Script {
    let fault = |code| Fault::Status {
        code,
        headers: BTreeMap::new(),
        retry_after: None,
        body: Some(json!({"error": {"message": SAID, "type": "api_error"}}).to_string()),
    };
    let failing = |code| Step::default().text("never").fault(fault(code));
    Script::new()
        .model("m", Model::new().step(failing(404)).cycle())
        .model("n", Model::new().step(failing(503)).cycle())
}

/// All that is told of a turn that fails: by the streams as it happens, and by those who ask later.
async fn told(site: &Site, key: Option<&str>, model: &str) -> (String, Value) {
    let served = site.serve(script(), |_| {}).await;
    let (client, wire) = (Client::of(&served, key), Wire::of(&served, key));
    let description = Description::of(&client).await;
    let session = client.session(model).await;
    let id = session.rsplit('/').next().unwrap();
    let mut all = Vec::new();
    let one = format!("{session}/events");
    let mut streams = [client.events("/v1/events", None).await, client.events(&one, None).await];
    let mut wired = [wire.events("/event", None).await, wire.events("/global/event", None).await];
    let turn = client.prompt(&session, "Go.").await;
    for stream in &mut streams {
        loop {
            let event = stream.next().await.expect("the stream goes on").json;
            description.check("Event", &event);
            all.push(event.clone());
            if event["type"] == "turn.ended" {
                break;
            }
        }
    }
    for stream in &mut wired {
        all.extend(stream.turn().await);
    }
    // One that comes late reads the log.
    let mut late = client.events(&format!("{session}/events?after=0"), None).await;
    loop {
        let event = late.next().await.expect("the stream goes on").json;
        all.push(event.clone());
        if event["type"] == "turn.ended" {
            break;
        }
    }
    let page = client.get(&format!("{session}/messages")).await.with(200);
    description.check("MessagePage", &page);
    let error = page["messages"][1]["error"].clone();
    all.push(page);
    all.push(wire.get(&format!("/session/{id}/message")).await);
    all.push(client.get(&format!("{session}/turns/{turn}/usage")).await.with(200));
    all.push(client.get(&session).await.with(200));
    served.stop();
    served.ended().await;
    (Value::from(all).to_string(), error)
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_a_key_reads_what_failed_and_not_how_the_provider_is_reached() {
    let site = Site::new();
    let key = site.key("acme");
    for (model, code, status, message) in [
        ("m", "bad_request", 404, "mock refused the request for mock/m (404): ask the operator"),
        (
            "n",
            "provider_unavailable",
            503,
            "mock failed for mock/n (503): try again later, or ask the operator",
        ),
    ] {
        let (all, error) = told(&site, Some(&key), model).await;
        for hidden in ["10.1.2.3", "bad thing", "mock:/", "base_url"] {
            assert!(!all.contains(hidden), "{hidden}: {all}");
        }
        assert!(all.contains(message), "{all}");
        assert_eq!((&error["code"], &error["status"]), (&json!(code), &json!(status)));
        assert_eq!((&error["message"], &error["model"]), (&json!(message), &json!(format!("mock/{model}"))));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_needs_no_key_reads_what_the_provider_said() {
    let (all, error) = told(&Site::new(), None, "m").await;
    assert!(error["message"].as_str().unwrap().contains(SAID), "{error}");
    assert!(!all.contains("ask the operator"), "{all}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: scripts/slow runs it"]
async fn which_variable_holds_no_key_is_told_to_the_operator_only() {
    let site = Site::new();
    let key = site.key("acme");
    for key in [Some(&*key), None] {
        let site = if key.is_some() { &site } else { &Site::new() };
        let served = site.serve(script(), |_| {}).await;
        let (client, wire) = (Client::of(&served, key), Wire::of(&served, key));
        let session = client.session("m").await;
        let model = json!({"model": "keyless/m"});
        let prompt = json!({"text": "Go.", "model": "keyless/m"});
        let mut told = vec![
            client.post("/v1/sessions", model.clone()).await.refused(400, "invalid"),
            client.post(&format!("{session}/prompts"), prompt).await.refused(400, "invalid"),
            client.ask("PATCH", &session, &[], &model.to_string()).await.refused(400, "invalid"),
        ];
        let id = session.rsplit('/').next().unwrap();
        let parts = json!([{"type": "text", "text": "Go."}]);
        let prompt = json!({"model": {"providerID": "keyless", "modelID": "m"}, "parts": parts});
        let answer = wire.ask("POST", &format!("/session/{id}/message"), &[], &prompt.to_string()).await;
        assert_eq!(answer.status, 400, "{}", answer.body);
        told.push(answer.body);
        for told in told {
            match key {
                Some(_) => assert!(
                    told.contains("keyless cannot be spoken to") && !told.contains("API_KEY"),
                    "{told}"
                ),
                None => assert!(told.contains("KEYLESS_API_KEY is not set"), "{told}"),
            }
        }
    }
}

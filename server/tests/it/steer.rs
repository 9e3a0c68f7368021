//! A prompt to a session at work is read by its running turn, between two steps: on both faces.

use mock_llm::{Model, Script, call, text};
use serde_json::json;

use crate::client::Client;
use crate::support::{Served, Site};
use crate::wire_client::Wire;

/// A model whose first step takes until a file is there.
async fn at_work() -> (Site, Served) {
    let waits = call("bash", json!({"command": "touch begun; until [ -e go ]; do sleep 0.01; done"}));
    let model = Model::new().step(waits).step(text("So it is."));
    let site = Site::new();
    let served = site.serve(Script::new().model("m", model), |_| {}).await;
    (site, served)
}

async fn begun(site: &Site) {
    let begun = async {
        while !site.workspace().join("begun").exists() {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), begun).await.expect("the first step begins");
}

/// The steps of the one turn, and what the second was told.
fn check(site: &Site) {
    let requests = site.requests();
    assert_eq!(requests.len(), 2, "the prompt that steers has no turn of its own");
    assert!(!requests[0]["messages"].to_string().contains("use the blue one"));
    assert!(requests[1]["messages"].to_string().contains("use the blue one"), "{}", requests[1]["messages"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_steers_is_read_by_the_running_turn() {
    let (site, served) = at_work().await;
    let client = Client::of(&served, None);
    let session = client.session("m").await;
    let mut events = client.events(&format!("{session}/events"), None).await;
    client.prompt(&session, "paint it").await;
    begun(&site).await;
    let steers = json!({"text": "use the blue one", "when_busy": "steer"});
    client.post(&format!("{session}/prompts"), steers).await.with(202);
    fs_err::write(site.workspace().join("go"), "").unwrap();
    assert_eq!(events.until("turn.ended").await["data"]["outcome"], "completed");
    check(&site);
}

#[tokio::test(flavor = "multi_thread")]
async fn on_the_wire_every_prompt_to_a_session_at_work_steers() {
    let (site, served) = at_work().await;
    let wire = Wire::of(&served, None);
    let session = wire.session("m", "tester").await;
    let mut events = wire.events("/event", None).await;
    wire.prompt(&session, "paint it").await;
    begun(&site).await;
    wire.prompt(&session, "use the blue one").await;
    fs_err::write(site.workspace().join("go"), "").unwrap();
    events.until("session.idle").await;
    check(&site);
    // In the conversation it stands between the two steps.
    let messages = wire.get(&format!("/session/{session}/message")).await;
    let roles: Vec<&str> = messages
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["info"]["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
}

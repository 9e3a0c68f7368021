//! Forks over both faces of the server.

use mock_llm::{Model, Script, call, text};
use serde_json::{Value, json};

use crate::client::Client;
use crate::native_schema::Description;
use crate::support::{Served, Site};
use crate::wire_client::Wire;

fn script() -> Script {
    let model = Model::new()
        .step(call("list", json!({"path": "."})))
        .step(text("There is nothing."))
        .next_turn()
        .step(text("Still nothing."))
        .cycle();
    Script::new().model("m", model)
}

async fn served() -> (Site, Served) {
    let site = Site::new();
    let served = site.serve(script(), |_| {}).await;
    (site, served)
}

/// Prompts, and waits for the end of the turn.
async fn turn(client: &Client, session: &str, said: &str) {
    let mut events = client.events(&format!("{session}/events"), None).await;
    client.prompt(session, said).await;
    events.until("turn.ended").await;
}

async fn ids(client: &Client, session: &str) -> Vec<Value> {
    let page = client.get(&format!("{session}/messages")).await.with(200);
    page["messages"].as_array().unwrap().iter().map(|message| message["id"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_forked_at_a_message_or_as_it_stands() {
    let (_site, served) = served().await;
    let client = Client::of(&served, None);
    let description = Description::of(&client).await;
    let session = client.session("m").await;
    turn(&client, &session, "Look around").await;
    let all = ids(&client, &session).await;
    assert_eq!(all.len(), 3, "{all:?}");
    let mut events = client.events("/v1/events", None).await;
    for (body, count) in [
        (json!({}), 3),
        (json!({"message": all[0]}), 0),
        (json!({"message": all[1]}), 1),
        (json!({"message": all[2]}), 2),
    ] {
        let answer = client.post(&format!("{session}/fork"), body).await;
        let place = answer.header("location").unwrap().to_owned();
        let fork = answer.with(201);
        description.check("Session", &fork);
        assert_eq!(client.get(&place).await.with(200), fork);
        assert_eq!(fork["title"], "Look around (fork #1)");
        assert!(session.ends_with(fork["forked_from"].as_str().unwrap()));
        assert_eq!(fork["totals"]["attempts"], 0);
        assert_eq!(ids(&client, &place).await, all[..count]);
        let told = events.until("session.forked").await;
        description.check("Event", &told);
        assert_eq!((&told["session"], &told["data"]["session"]), (&fork["id"], &fork["id"]));
        turn(&client, &place, "And now?").await;
        assert_eq!(ids(&client, &session).await, all, "the other one stays as it was");
    }
    let nobody = json!({"message": "msg_00000000000012345678901234"});
    client.post(&format!("{session}/fork"), nobody).await.refused(400, "invalid");
    client.post(&format!("{session}/fork"), json!({"at": all[0]})).await.refused(400, "invalid");
    let missing = "/v1/sessions/ses_00000000000012345678901234/fork";
    client.post(missing, json!({})).await.refused(404, "not-found");
    let list = client.get("/v1/sessions").await.with(200);
    assert_eq!(list["sessions"].as_array().unwrap().len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_counts_as_a_session() {
    let site = Site::new();
    let served = site.serve(script(), |options| options.limits.sessions = Some(2)).await;
    let (client, wire) = (Client::of(&served, None), Wire::of(&served, None));
    let session = client.session("m").await;
    client.post(&format!("{session}/fork"), json!({})).await.with(201);
    client.post(&format!("{session}/fork"), json!({})).await.refused(429, "limited");
    let path = session.replace("/v1/sessions", "/session");
    wire.ask("POST", &format!("{path}/fork"), &[], "").await.with(429);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_the_wire_fork_and_are_told() {
    let (_site, served) = served().await;
    let wire = Wire::of(&served, None);
    let session = wire.session("m", "tester").await;
    let mut events = wire.events("/event", None).await;
    wire.prompt(&session, "Look around").await;
    events.turn().await;
    let messages = wire.get(&format!("/session/{session}/message")).await;
    let messages = messages.as_array().unwrap();
    assert_eq!(messages.len(), 3);
    // The terminal client sends no body where it means all.
    let all = wire.ask("POST", &format!("/session/{session}/fork"), &[], "").await.with(200);
    let body = json!({"messageID": messages[2]["info"]["id"]});
    let part = wire.post(&format!("/session/{session}/fork"), body).await;
    for (fork, count) in [(&all, 3), (&part, 2)] {
        let id = fork["id"].as_str().unwrap();
        let created = events.until("session.created").await;
        assert_eq!(created["info"]["id"], fork["id"]);
        assert_eq!(created["info"]["title"], "Look around (fork #1)");
        assert_eq!((&fork["title"], &fork["cost"]), (&created["info"]["title"], &json!(0.0)));
        assert!(fork.get("parentID").is_none(), "{fork}");
        assert_eq!(events.until("session.updated").await["info"]["id"], fork["id"]);
        let shared = wire.get(&format!("/session/{id}/message")).await;
        let shared = shared.as_array().unwrap();
        assert_eq!(shared.len(), count);
        for (mine, theirs) in shared.iter().zip(messages) {
            assert_eq!(mine["info"]["id"], theirs["info"]["id"]);
            assert_eq!(mine["info"]["sessionID"], *id);
            assert!(mine["parts"].as_array().unwrap().iter().all(|part| part["sessionID"] == *id));
        }
    }
    assert_eq!(wire.get("/session/status").await, json!({}));
    let id = part["id"].as_str().unwrap();
    wire.prompt(id, "And now?").await;
    events.until("session.idle").await;
    let end = events.until("session.idle").await;
    assert_eq!(end["sessionID"], *id);
    assert_eq!(wire.ask("DELETE", &format!("/session/{session}"), &[], "").await.with(200), json!(true));
    assert_eq!(wire.get(&format!("/session/{id}/message")).await.as_array().unwrap().len(), 4);
}

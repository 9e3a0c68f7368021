//! A session whose log is damaged: what clients read of it comes before the damage, and they are told so.

use std::sync::mpsc::sync_channel;

use mock_llm::{Model, Script, text};
use playhouse_protocol::{Entry, MessageId, Record, SessionId};
use playhouse_store::Append;
use serde_json::{Value, json};

use crate::client::Client;
use crate::native_schema::Description;
use crate::support::{Served, Site};
use crate::wire_client::Wire;

fn script() -> Script {
    Script::new().model("m", Model::new().step(text("Good words.")).cycle())
}

/// A session with two turns, to whose log a prompt and a record that does not fit are added behind the engine's back; and the
/// next engine.
async fn damaged() -> (Site, Served, SessionId, String) {
    let site = Site::new();
    let served = site.serve(script(), |_| {}).await;
    let client = Client::of(&served, None);
    let session = client.session("m").await;
    for said in ["One?", "Two?"] {
        let mut events = client.events(&format!("{session}/events"), None).await;
        client.prompt(&session, said).await;
        events.until("turn.ended").await;
    }
    served.stop();
    served.ended().await;
    let id = SessionId::parse(session.rsplit('/').next().unwrap()).unwrap();
    let log = &site.store.log;
    let entries = log.read(id, Default::default(), usize::MAX).unwrap().entries;
    let last = entries.last().unwrap();
    let prompt = entries.iter().find_map(|entry| match &entry.record {
        Record::PromptAdmitted(prompt) => Some(prompt.clone()),
        _ => None,
    });
    let mut prompt = prompt.unwrap();
    prompt.message = MessageId::parse("msg_fffffffffff012345678901234").unwrap();
    let turn = MessageId::parse("msg_00000000000012345678901234").unwrap();
    let first = Entry { seq: last.seq.next(), at: last.at, record: Record::PromptAdmitted(prompt) };
    let misfit = Entry { seq: first.seq.next(), at: last.at, record: Record::TurnStarted { turn } };
    let place = format!("record {}: turn.started does not fit", misfit.seq);
    let append =
        Append { session: id, tenant: "local".into(), expected: last.seq, entries: vec![first, misfit] };
    let (done, flushed) = sync_channel(1);
    log.append(append, Box::new(move |result| done.send(result).unwrap()));
    flushed.recv().unwrap().unwrap();
    let served = site.serve(script(), |options| options.limits.running_turns = Some(1)).await;
    (site, served, id, place)
}

fn list(page: &Value, name: &str) -> Vec<Value> {
    page[name].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_told_where_the_log_of_a_session_stops_to_be_readable() {
    let (_site, served, id, place) = damaged().await;
    let client = Client::of(&served, None);
    let description = Description::of(&client).await;
    let session = format!("/v1/sessions/{id}");

    let page = client.get(&format!("{session}/messages")).await.with(200);
    description.check("MessagePage", &page);
    assert_eq!(list(&page, "messages").len(), 5, "two answers, three prompts");
    let said = format!("record {}: {}", page["damage"]["seq"], page["damage"]["reason"].as_str().unwrap());
    assert!(said.starts_with(&place), "{said}");
    for (path, schema) in [("todos", "Todos"), ("diff", "Diff")] {
        let told = client.get(&format!("{session}/{path}")).await.with(200);
        description.check(schema, &told);
        assert_eq!(told["damage"], page["damage"], "{path}");
    }
    let reasons = [
        client.get(&format!("{session}/events?after=0")).await.refused(423, "parked"),
        client.get(&format!("{session}/attachments/abc")).await.refused(423, "parked"),
        client.post(&format!("{session}/prompts"), json!({"text": "More?"})).await.refused(423, "parked"),
    ];
    assert!(reasons.iter().all(|reason| reason.contains(&place)), "{reasons:?}");

    let view = client.get(&session).await.with(200);
    description.check("Session", &view);
    assert_eq!((&view["state"], &view["open_turns"]), (&json!("parked"), &json!(1)));
    assert!(view["parked"].as_str().unwrap().contains(&place), "{view}");
    let all = client.get("/v1/sessions").await.with(200);
    description.check("SessionPage", &all);
    assert_eq!(list(&all, "sessions"), [view]);
    // Nothing runs there: others may run.
    let other = client.session("m").await;
    client.prompt(&other, "Hello?").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_leaves_out_nothing_that_nobody_gave_up() {
    let (_site, served, id, place) = damaged().await;
    let (client, wire) = (Client::of(&served, None), Wire::of(&served, None));
    let fork = format!("/v1/sessions/{id}/fork");
    let messages = list(&client.get(&format!("/v1/sessions/{id}/messages")).await.with(200), "messages");
    let refused = client.post(&fork, json!({})).await.refused(423, "parked");
    assert!(refused.contains(&place) && refused.contains("`readable`"), "{refused}");
    let path = format!("/session/{id}/fork");
    let told = wire.ask("POST", &path, &[], "").await.with(423);
    assert!(told["data"]["message"].as_str().unwrap().contains(&place), "{told}");
    let both = json!({"message": messages[1]["id"], "readable": true});
    client.post(&fork, both).await.refused(400, "invalid");
    // A prompt that waits there waits there only.
    for (body, count) in [(json!({"message": messages[2]["id"]}), 2), (json!({"readable": true}), 4)] {
        let made = client.post(&fork, body).await.with(201);
        let page =
            client.get(&format!("/v1/sessions/{}/messages", made["id"].as_str().unwrap())).await.with(200);
        assert_eq!(list(&page, "messages").len(), count, "{page}");
        assert!(page.get("damage").is_none() && made["state"] == "idle", "{page}{made}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_the_wire_read_an_answer_that_says_it() {
    let (_site, served, id, place) = damaged().await;
    let wire = Wire::of(&served, None);
    let answer = wire.ask("GET", &format!("/session/{id}/message"), &[], "").await;
    assert!(answer.header("x-playhouse-damage").unwrap().starts_with(&place), "{answer:?}");
    let messages = answer.json();
    let messages = messages.as_array().unwrap();
    assert_eq!(messages.len(), 6);
    let last = &messages[5]["info"];
    assert_eq!((&last["role"], &last["parentID"]), (&json!("assistant"), &messages[4]["info"]["id"]));
    assert!(last["id"].as_str() > messages[4]["info"]["id"].as_str(), "it stands at the end");
    assert_eq!(last["error"]["name"], "UnknownError");
    assert!(last["error"]["data"]["message"].as_str().unwrap().contains(&place), "{last}");
    assert!(last["time"]["completed"].is_number(), "nobody waits for it");
    let part = wire.ask("GET", &format!("/session/{id}/message?limit=2"), &[], "").await;
    assert_eq!(part.json().as_array().unwrap().len(), 3, "the newest page says it");
    assert_eq!(wire.get("/session/status").await, json!({}), "nothing runs");
    for path in ["todo", "diff"] {
        let answer = wire.ask("GET", &format!("/session/{id}/{path}"), &[], "").await;
        assert!(answer.header("x-playhouse-damage").unwrap().starts_with(&place), "{path}");
    }
    let body = json!({"parts": [{"type": "text", "text": "More?"}]}).to_string();
    let told = wire.ask("POST", &format!("/session/{id}/message"), &[], &body).await.with(423);
    assert!(told["data"]["message"].as_str().unwrap().contains(&place), "{told}");
}

//! Prompts, messages, and what people are asked, over the native API.

use std::time::Duration;

use mock_llm::{Fault, Model, Moment, Script, call, text};
use playhouse_actors::Resume;
use serde_json::{Value, json};

use crate::client::Client;
use crate::native_schema::Description;
use crate::support::{PATIENCE, Served, Site};

async fn served(script: Script) -> (Site, Served, Client) {
    let site = Site::new();
    let served = site.serve(script, |_| {}).await;
    let client = Client::of(&served, None);
    (site, served, client)
}

fn ids(page: &Value) -> Vec<&str> {
    page["messages"].as_array().unwrap().iter().map(|message| message["id"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_prompt_is_admitted_once() {
    let (_site, _served, client) = served(Script::new()).await;
    let description = Description::of(&client).await;
    let session = client.session("echo").await;
    let mut events = client.events(&format!("{session}/events"), None).await;
    let message = "msg_00000000000012345678901234";
    let (path, body) = (format!("{session}/prompts"), r#"{"text": "hello"}"#);
    let key = [("idempotency-key", message)];
    let first = client.ask("POST", &path, &key, body).await.with(202);
    description.check("Accepted", &first);
    assert_eq!(first, json!({"turn": message, "repeated": false}));
    let second = client.post(&path, json!({"text": "hello", "message": message})).await.with(202);
    assert_eq!(second, json!({"turn": message, "repeated": true}));
    let both = json!({"text": "hello", "message": "msg_00000000000012345678901235"}).to_string();
    let detail = client.ask("POST", &path, &key, &both).await.refused(400, "invalid");
    assert!(detail.contains("a prompt has one id"), "{detail}");
    events.until("turn.ended").await;
    assert_eq!(client.get(&session).await.with(200)["turns"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn attachments_travel_in_the_prompt() {
    let (_site, _served, client) = served(Script::new()).await;
    let description = Description::of(&client).await;
    let session = client.session("echo").await;
    let mut events = client.events(&format!("{session}/events"), None).await;
    let files = json!([{"mime": "image/png", "filename": "dot.png", "base64": "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mOoBwAAgQCAfhwpxwAAAABJRU5ErkJggg=="}]);
    let body = json!({"text": "look", "files": files});
    client.post(&format!("{session}/prompts"), body).await.with(202);
    events.until("turn.ended").await;
    let page = client.get(&format!("{session}/messages")).await.with(200);
    description.check("MessagePage", &page);
    let file = &page["messages"][0]["parts"][1];
    assert_eq!((&file["type"], &file["blob"]["size"]), (&json!("file"), &json!(67)), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_read_in_pages_both_ways() {
    let script = Script::new()
        .model("m", Model::new().step(call("list", json!({"path": "."}))).step(text("There.")).cycle());
    let (_site, _served, client) = served(script).await;
    let description = Description::of(&client).await;
    let session = client.session("m").await;
    let mut events = client.events(&format!("{session}/events"), None).await;
    for _ in 0..3 {
        client.prompt(&session, "look").await;
        events.until("turn.ended").await;
    }
    let path = format!("{session}/messages");
    let page = async |query: &str| {
        let page = client.get(&format!("{path}?{query}")).await.with(200);
        description.check("MessagePage", &page);
        page
    };
    let all = page("").await;
    let all = ids(&all);
    assert_eq!(all.len(), 9);
    let (mut back, mut query) = (Vec::new(), "limit=4".to_owned());
    loop {
        let found = page(&query).await;
        back.splice(0..0, ids(&found).into_iter().map(str::to_owned));
        let Some(before) = found["before"].as_str() else { break };
        query = format!("limit=4&before={before}");
    }
    assert_eq!(back, all);
    let (mut on, mut query) = (vec![all[0].to_owned()], format!("limit=3&after={}", all[0]));
    loop {
        let found = page(&query).await;
        on.extend(ids(&found).into_iter().map(str::to_owned));
        let Some(after) = found["after"].as_str() else { break };
        query = format!("limit=3&after={after}");
    }
    assert_eq!(on, all);
    let between = page(&format!("after={}&before={}", all[2], all[6])).await;
    assert_eq!(ids(&between), all[3..6]);
    let nothing = page(&format!("after={}", all[8])).await;
    assert_eq!(nothing, json!({"messages": [], "before": null, "after": null}));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_ends_what_runs_and_what_waits() {
    let step = text("one two three four five").fault(Fault::stall(5));
    let (_site, _served, client) = served(Script::new().model("m", Model::new().step(step))).await;
    let session = client.session("m").await;
    let mut events = client.events(&format!("{session}/events"), None).await;
    client.prompt(&session, "go").await;
    client.prompt(&session, "and then").await;
    events.until("part.delta").await;
    let busy = json!({"text": "now", "when_busy": "reject"});
    client.post(&format!("{session}/prompts"), busy).await.refused(409, "busy");
    let waiting = client.get(&format!("{session}/messages?limit=1")).await.with(200);
    assert_eq!(waiting["messages"][0]["parts"][0]["text"], "and then");
    let aborted = client.ask("POST", &format!("{session}/abort"), &[], "").await.with(200);
    assert_eq!(aborted, json!({"turns": 2}));
    for _ in 0..2 {
        assert_eq!(events.until("turn.ended").await["data"]["outcome"], "aborted");
    }
    assert_eq!(client.get(&session).await.with(200)["state"], "idle");
    assert_eq!(client.post(&format!("{session}/abort"), json!({})).await.with(200), json!({"turns": 0}));
    let over = json!({"turn": "msg_00000000000012345678901234"});
    assert_eq!(client.post(&format!("{session}/abort"), over).await.with(200), json!({"turns": 0}));
    client.post(&format!("{session}/abort"), json!({"turns": 1})).await.with(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consent_is_asked_for_and_answered() {
    let write = |name: &str| call("write", json!({"filePath": name, "content": "hello\n"}));
    let model =
        Model::new().step(write("a.txt")).step(write("b.txt")).step(write("c.txt")).step(text("Done."));
    let (site, _served, client) = served(Script::new().model("m", model)).await;
    let description = Description::of(&client).await;
    let session = client.session_with(json!({"model": "mock/m", "agent": "careful"})).await;
    let id = session.rsplit('/').next().unwrap();
    let mut events = client.events(&format!("{session}/events"), None).await;
    client.prompt(&session, "write").await;

    let asked = events.until("consent.asked").await["data"].clone();
    let waiting = client.get("/v1/consents").await.with(200);
    description.check("Consents", &waiting);
    let consents = waiting["consents"].as_array().unwrap();
    assert_eq!((consents.len(), &consents[0]["session"]), (1, &json!(id)));
    assert_eq!(consents[0]["consent"], asked["consent"]);
    assert_eq!(client.get(&format!("/v1/consents?session={id}")).await.with(200), waiting);
    let consent = |asked: &Value| format!("{session}/consents/{}", asked["consent"].as_str().unwrap());
    let path = consent(&asked);
    let detail = client.post(&path, json!({"answer": "once", "message": "x"})).await.refused(400, "invalid");
    assert!(detail.contains("only \"decline\" has a message"), "{detail}");
    client.post(&path, json!({"answer": "covered"})).await.refused(400, "invalid");
    client.post(&path, json!({"answer": "once"})).await.with(204);
    let detail = client.post(&path, json!({"answer": "once"})).await.refused(409, "settled");
    assert!(detail.contains("allowed once"), "{detail}");

    let asked = events.until("consent.asked").await["data"].clone();
    client.post(&consent(&asked), json!({"answer": "decline", "message": "not this"})).await.with(204);
    let asked = events.until("consent.asked").await["data"].clone();
    client.post(&consent(&asked), json!({"answer": "always"})).await.with(204);
    events.until("turn.ended").await;
    assert_eq!(client.get("/v1/consents").await.with(200), json!({"consents": []}));
    let exists = |name: &str| site.workspace().join(name).exists();
    assert!(exists("a.txt") && !exists("b.txt") && exists("c.txt"));

    let grants = client.get("/v1/grants").await.with(200);
    description.check("Grants", &grants);
    let grant = grants["grants"][0]["id"].as_str().unwrap().to_owned();
    client.delete("/v1/grants/0123456789ab").await.refused(404, "not-found");
    for grant in grants["grants"].as_array().unwrap() {
        client.delete(&format!("/v1/grants/{}", grant["id"].as_str().unwrap())).await.with(204);
    }
    client.delete(&format!("/v1/grants/{grant}")).await.refused(404, "not-found");
    assert_eq!(client.get("/v1/grants").await.with(200), json!({"grants": []}));
    let unknown = format!("{session}/consents/per_00000000000012345678901234");
    client.post(&unknown, json!({"answer": "once"})).await.refused(404, "not-found");
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_are_answered_or_rejected() {
    let options =
        json!([{"label": "Red", "description": "like a rose"}, {"label": "Blue", "description": "b"}]);
    let question = json!({"questions": [{"question": "Which?", "header": "Colour", "options": options}]});
    let model = Model::new()
        .step(call("question", question.clone()))
        .step(call("question", question))
        .step(call(
            "todowrite",
            json!({"todos": [{"content": "paint", "status": "pending", "priority": "high"}]}),
        ))
        .step(text("So."));
    let (_site, _served, client) = served(Script::new().model("m", model)).await;
    let description = Description::of(&client).await;
    let session = client.session("m").await;
    let mut events = client.events(&format!("{session}/events"), None).await;
    client.prompt(&session, "ask").await;

    let asked = events.until("question.asked").await["data"].clone();
    let waiting = client.get("/v1/questions").await.with(200);
    description.check("Questions", &waiting);
    assert_eq!(waiting["questions"][0]["question"], asked["question"]);
    let path = format!("{session}/questions/{}", asked["question"].as_str().unwrap());
    for body in [json!({}), json!({"reject": false}), json!({"reject": true, "answers": [["Red"]]})] {
        client.post(&path, body).await.refused(400, "invalid");
    }
    client.post(&path, json!({"answers": [["Red"], ["Blue"]]})).await.refused(400, "invalid");
    client.post(&path, json!({"answers": [["Red"]]})).await.with(204);
    client.post(&path, json!({"answers": [["Red"]]})).await.refused(409, "settled");
    let settled = events.until("question.settled").await;
    assert_eq!(settled["data"]["answer"]["answers"], json!([["Red"]]));

    let asked = events.until("question.asked").await["data"].clone();
    let path = format!("{session}/questions/{}", asked["question"].as_str().unwrap());
    client.post(&path, json!({"reject": true})).await.with(204);
    events.until("turn.ended").await;
    assert_eq!(client.get("/v1/questions").await.with(200), json!({"questions": []}));
    let todos = client.get(&format!("{session}/todos")).await.with(200);
    description.check("Todos", &todos);
    assert_eq!(todos["todos"][0]["content"], "paint");
    let page = client.get(&format!("{session}/messages")).await.with(200);
    description.check("MessagePage", &page);
}

#[tokio::test]
async fn so_many_prompts_wait_in_a_session() {
    let site = Site::new();
    let step = text("one two").fault(Fault::stall(Moment::FirstToken));
    let served = site.serve(Script::new().model("m", Model::new().step(step)), |_| {}).await;
    let client = Client::of(&served, None);
    let session = client.session("m").await;
    for _ in 0..=100 {
        client.prompt(&session, "go").await;
    }
    let refused = client.post(&format!("{session}/prompts"), json!({"text": "go"})).await;
    assert_eq!(refused.header("retry-after").unwrap(), "1", "waiting helps");
    let limit = json!({"name": "waiting_prompts", "scope": "session", "unit": "count", "max": 100, "used": 100, "needed": 1});
    assert_eq!(refused.json()["limit"], limit);
    let detail = refused.refused(429, "limited");
    assert!(detail.contains("100 prompts wait in this session"), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_has_so_many_sessions_and_turns_at_once() {
    let site = Site::new();
    let step = text("one two three four five").fault(Fault::stall(5));
    let change = |options: &mut playhouse_server::ServerOptions| {
        options.limits.sessions = Some(2);
        options.limits.running_turns = Some(1);
    };
    let served = site.serve(Script::new().model("m", Model::new().step(step)), change).await;
    let client = Client::of(&served, None);
    let (busy, idle) = (client.session("m").await, client.session("echo").await);
    let refused = client.post("/v1/sessions", json!({})).await;
    assert!(refused.header("retry-after").is_none());
    let detail = refused.refused(429, "limited");
    assert!(detail.contains("2 sessions"), "{detail}");
    client.prompt(&busy, "go").await;
    let detail = client.post(&format!("{idle}/prompts"), json!({"text": "go"})).await.refused(429, "limited");
    assert!(detail.contains("1 running turns"), "{detail}");
    // In a session that is busy it waits, and begins nothing.
    client.prompt(&busy, "and then").await;
    client.post(&format!("{busy}/abort"), json!({})).await.with(200);
    client.prompt(&idle, "go").await;
    client.delete(&idle).await.with(204);
    client.session("echo").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_on_by_hand_where_it_does_not_by_itself() {
    let model = |delay| Script::new().model("m", Model::new().step(text("Well.").delay(delay)));
    let mut site = Site::new();
    let served =
        site.serve(model(Duration::from_secs(3_600)), |options| options.grace = Duration::ZERO).await;
    let client = Client::of(&served, None);
    let session = client.session("m").await;
    client.prompt(&session, "go").await;
    served.stop();
    served.ended().await;

    site.tune = |options| options.resume = Resume::Manual;
    let served = site.serve(model(Duration::ZERO), |_| {}).await;
    let client = Client::of(&served, None);
    let page = client.get(&format!("{session}/messages")).await.with(200);
    assert_eq!(page["messages"].as_array().unwrap().len(), 2, "{page}");
    assert!(site.requests().is_empty(), "whoever reads it makes nothing go on");
    let resume = format!("{session}/resume");
    let resumed = client.post(&resume, json!({})).await.with(200);
    Description::of(&client).await.check("Resumed", &resumed);
    assert_eq!(resumed, json!({"resumed": true}));
    let idle = async {
        while client.get(&session).await.with(200)["state"] != "idle" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, idle).await.expect("it goes on");
    assert_eq!(client.post(&resume, json!({})).await.with(200), json!({"resumed": false}));
    let missing = "/v1/sessions/ses_0123456789abABCDEFGHIJKLMN/resume";
    client.post(missing, json!({})).await.refused(404, "not-found");
}

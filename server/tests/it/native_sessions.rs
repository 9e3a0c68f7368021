//! Sessions over the native API: made, listed, read, changed, removed; and requests that do not fit.

use mock_llm::Script;
use serde_json::{Value, json};

use crate::client::Client;
use crate::native_schema::Description;
use crate::support::{Served, Site};
use crate::wire_client::Wire;

const NOBODY: &str = "/v1/sessions/ses_00000000000012345678901234";

async fn served() -> (Site, Served, Client) {
    let site = Site::new();
    let served = site.serve(Script::new(), |_| {}).await;
    let client = Client::of(&served, None);
    (site, served, client)
}

fn titles(page: &Value) -> Vec<&str> {
    let sessions = page["sessions"].as_array().unwrap();
    sessions.iter().map(|session| session["title"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_made_read_changed_and_removed() {
    let (site, _served, client) = served().await;
    let description = Description::of(&client).await;
    let answer = client.post("/v1/sessions", json!({"title": "one", "model": "mock/echo"})).await;
    let place = answer.header("location").unwrap().to_owned();
    let made = answer.with(201);
    description.check("Session", &made);
    assert_eq!(made["workspace"].as_str().unwrap(), site.workspace().to_str().unwrap());
    assert_eq!(client.get(&place).await.with(200), made);
    let changed = client.ask("PATCH", &place, &[], r#"{"title": "two", "agent": "careful"}"#).await.with(200);
    description.check("Session", &changed);
    assert_eq!((&changed["title"], &changed["agent"]), (&json!("two"), &json!("careful")));
    assert!(changed["head"].as_u64() > made["head"].as_u64());
    assert_eq!(client.get(&place).await.with(200), changed);
    client.delete(&place).await.with(204);
    client.get(&place).await.refused(404, "not-found");
    client.delete(&place).await.refused(404, "not-found");
}

#[tokio::test(flavor = "multi_thread")]
async fn problems_are_as_they_are_described() {
    let (_site, _served, client) = served().await;
    let description = Description::of(&client).await;
    for (method, path, status) in [
        ("GET", "/v1/sessions?limit=0", 400),
        ("GET", NOBODY, 404),
        ("PUT", "/v1/sessions", 405),
        ("POST", "/v1/sessions?", 400),
    ] {
        let problem = client.ask(method, path, &[], "[]").await.with(status);
        description.check("Problem", &problem);
        assert_eq!(problem["status"], status, "{problem}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_listed_in_pages_and_by_what_they_are() {
    let (site, _served, client) = served().await;
    let below = site.workspace().join("below");
    fs_err::create_dir_all(&below).unwrap();
    let below = below.to_str().unwrap();
    let one = client.session_with(json!({"title": "one"})).await;
    client.session_with(json!({"title": "Two", "workspace": below})).await;
    let parent = one.rsplit('/').next().unwrap();
    client.session_with(json!({"title": "three", "parent": parent})).await;
    let description = Description::of(&client).await;
    let list = async |query: &str| {
        let page = client.get(&format!("/v1/sessions{query}")).await.with(200);
        description.check("SessionPage", &page);
        page
    };
    let mut all = titles(&list("").await).into_iter().map(str::to_owned).collect::<Vec<_>>();
    all.sort();
    assert_eq!(all, ["Two", "one", "three"]);
    for (query, expected) in [
        (format!("?workspace={below}"), vec!["Two"]),
        (format!("?parent={parent}"), vec!["three"]),
        ("?title=tWO".to_owned(), vec!["Two"]),
        ("?updated_since=99999999999999".to_owned(), vec![]),
        ("?roots=true&title=o&limit=5".to_owned(), vec!["Two", "one"]),
    ] {
        let page = list(&query).await;
        let mut found = titles(&page);
        found.sort_unstable();
        assert_eq!(found, expected, "{query}");
        assert_eq!(page.get("cursor"), None);
    }
    let mut paged = Vec::new();
    let mut query = "?limit=2".to_owned();
    loop {
        let page = list(&query).await;
        paged.extend(titles(&page).into_iter().map(str::to_owned));
        match page.get("cursor") {
            Some(cursor) => query = format!("?limit=2&cursor={}", cursor.as_str().unwrap()),
            None => break,
        }
    }
    paged.sort();
    assert_eq!(paged, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_refused_with_what_is_wrong() {
    let (site, _served, client) = served().await;
    let session = client.session("echo").await;
    let prompts = format!("{session}/prompts");
    let outside = json!({"workspace": site.folder.path()}).to_string();
    let long = json!({"title": "x".repeat(1_001)}).to_string();
    for (method, path, body, said) in [
        (
            "POST",
            "/v1/sessions",
            "{\n \"titel\": 1}",
            "line 2, column 8: unknown field `titel`, expected one of",
        ),
        ("POST", "/v1/sessions", r#"{"titel": 1}"#, "; did you mean \"title\"?"),
        ("POST", "/v1/sessions", "{\"title\"", "at line 1, column 8"),
        ("POST", "/v1/sessions", r#"{"model": "echo"}"#, "is not a model: write PROVIDER/MODEL"),
        ("POST", "/v1/sessions", r#"{"workspace": "here"}"#, "is not absolute"),
        ("POST", "/v1/sessions", &long, "longer than 1000 characters"),
        ("POST", &prompts, "{}", "the prompt is empty"),
        ("POST", &prompts, r#"{"text": "x", "when_busy": "steeer"}"#, "did you mean \"steer\"?"),
        ("POST", &prompts, r#"{"text": "x", "message": "msg_1"}"#, "is not a message id"),
        ("POST", &prompts, r#"{"files": [{"mime": "image/png", "filename": "a"}]}"#, "needs its content"),
        ("POST", &prompts, r#"{"files": [{"mime": "a", "filename": "a", "base64": "?"}]}"#, "no good base64"),
        ("PATCH", &session, r#"{"model": "other/thing"}"#, "there is no model other/thing"),
        ("GET", "/v1/sessions?limit=0", "", "must be from 1 to 500"),
        ("GET", "/v1/sessions?limt=5", "", "did you mean \"limit\"?"),
        ("GET", "/v1/sessions?cursor=5", "", "not one that a page gave"),
        ("GET", "/v1/sessions/ses_12", "", "it has 6 characters, not 30"),
        ("GET", "/v1/events?after=17", "", "two numbers with a dash between"),
        ("GET", &format!("{session}/events?after=x"), "", "is not an event id"),
        (
            "GET",
            &format!("{session}/messages?before=msg_00000000000012345678901234"),
            "",
            "there is no message",
        ),
    ] {
        let detail = client.ask(method, path, &[], body).await.refused(400, "invalid");
        assert!(detail.contains(said), "{method} {path} {body}: {detail}");
    }
    client.ask("POST", "/v1/sessions", &[], &outside).await.refused(403, "forbidden");
    let key = [("idempotency-key", "once")];
    let detail = client.ask("POST", &prompts, &key, r#"{"text": "x"}"#).await.refused(400, "invalid");
    assert!(detail.contains("\"idempotency-key\" must be a message id"), "{detail}");
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let detail = client.ask("POST", "/v1/sessions", &form, "a=b").await.refused(400, "invalid");
    assert!(detail.contains("send JSON"), "{detail}");
    let last = [("last-event-id", "x")];
    client.ask("GET", &format!("{session}/events"), &last, "").await.refused(400, "invalid");
    for (method, path) in [
        ("GET", String::new()),
        ("PATCH", String::new()),
        ("DELETE", String::new()),
        ("POST", "/abort".to_owned()),
        ("GET", "/messages".to_owned()),
        ("GET", "/events".to_owned()),
        ("GET", "/todos".to_owned()),
    ] {
        client.ask(method, &format!("{NOBODY}{path}"), &[], "{}").await.refused(404, "not-found");
    }
    client.ask("PUT", "/v1/sessions", &[], "{}").await.refused(405, "method-not-allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_another_tenant_is_there() {
    let site = Site::new();
    let (mine, theirs) = (site.key("mine"), site.key("theirs"));
    let served = site.serve(Script::new(), |_| {}).await;
    let (me, them) = (Client::of(&served, Some(&mine)), Client::of(&served, Some(&theirs)));
    Client::of(&served, None).get("/v1/sessions").await.refused(401, "unauthorized");
    let session = me.session("echo").await;
    let mut events = me.events("/v1/events", None).await;
    let id = session.rsplit('/').next().unwrap();
    let consent = format!("{session}/consents/per_00000000000012345678901234");
    let question = format!("{session}/questions/que_00000000000012345678901234");
    for (method, path, body) in [
        ("GET", session.clone(), ""),
        ("PATCH", session.clone(), "{}"),
        ("DELETE", session.clone(), ""),
        ("POST", format!("{session}/fork"), "{}"),
        ("GET", format!("{session}/todos"), ""),
        ("GET", format!("{session}/diff"), ""),
        ("GET", format!("{session}/usage"), ""),
        ("POST", format!("{session}/prompts"), r#"{"text": "hello"}"#),
        ("POST", format!("{session}/abort"), ""),
        ("GET", format!("{session}/messages"), ""),
        ("GET", format!("{session}/events"), ""),
        ("GET", format!("/v1/consents?session={id}"), ""),
        ("GET", format!("/v1/questions?session={id}"), ""),
        ("POST", consent, r#"{"answer": "once"}"#),
        ("POST", question, r#"{"reject": true}"#),
    ] {
        let foreign = them.ask(method, &path, &[], body).await;
        let detail = foreign.refused(404, "not-found");
        let nobody = path.replace(id, "ses_00000000000012345678901234");
        let missing = them.ask(method, &nobody, &[], body).await.refused(404, "not-found");
        assert_eq!(
            detail.replace(id, "ID"),
            missing.replace("ses_00000000000012345678901234", "ID"),
            "{path}"
        );
    }
    let parent = json!({"parent": id});
    them.post("/v1/sessions", parent).await.refused(404, "not-found");
    assert_eq!(them.get("/v1/sessions").await.with(200), json!({"sessions": []}));
    // Events are kept for those who listen, and for a while after.
    let _listening = them.events("/v1/events", None).await;
    let theirs = them.session("echo").await;
    me.prompt(&session, "hello").await;
    // What they made is not among my events.
    while events.until("turn.ended").await["session"] != id {}
    assert_ne!(theirs, session);
    let mut replayed = them.events("/v1/events", Some("1-0")).await;
    let first = replayed.next().await.unwrap();
    assert!(theirs.ends_with(first.json["session"].as_str().unwrap()), "{first:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_are_as_they_are_described() {
    let (site, served, client) = served().await;
    let description = Description::of(&client).await;
    for (path, name) in [("/v1/agents", "Agents"), ("/v1/tools", "Tools"), ("/v1/models", "Models")] {
        let answer = client.get(path).await.with(200);
        description.check(name, &answer);
    }
    // A directory has agents of its own, and files that cannot be used as one; it must lie where the client may work.
    let here = site.workspace();
    let own = client.get(&format!("/v1/agents?workspace={}", here.display())).await.with(200);
    description.check("Agents", &own);
    assert_eq!(
        (&own["agents"][0]["origin"], &own["refused"][0]["name"]),
        (&json!("workspace"), &json!("broken"))
    );
    client.get("/v1/agents?workspace=/etc").await.refused(403, "forbidden");
    let wire = Wire::of(&served, None);
    let everywhere = wire.get("/agent").await;
    assert_eq!(everywhere[0]["native"], json!(true));
    assert_eq!(
        everywhere[0]["permission"],
        json!([{"permission": "bash", "pattern": "rm *", "action": "deny"}])
    );
    let listed = wire.get(&format!("/agent?directory={}", here.display())).await;
    assert_eq!(
        (&listed[0]["native"], &listed[0]["description"]),
        (&json!(false), &json!(here.to_str().unwrap()))
    );
    let session = client.session("echo").await;
    let mut events = client.events(&format!("{session}/events"), None).await;
    client.prompt(&session, "hello").await;
    events.until("turn.ended").await;
    let usage = client.get(&format!("{session}/usage")).await.with(200);
    description.check("Usage", &usage);
    assert_eq!(usage["models"]["mock/echo"], usage["totals"]);
    assert_eq!(usage["totals"]["attempts"], 1);
    served.stop();
    served.ended().await;
}

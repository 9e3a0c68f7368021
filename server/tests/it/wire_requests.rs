//! What people are asked over the wire, who may see what, and what is not there.

use mock_llm::{Model, Script, call, text};
use serde_json::{Value, json};

use crate::support::{Served, Site};
use crate::wire_client::Wire;
use crate::wire_schema::Description;

async fn served(script: Script) -> (Site, Served, Wire) {
    let site = Site::new();
    let served = site.serve(script, |_| {}).await;
    let wire = Wire::of(&served, None);
    (site, served, wire)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_is_asked_for_and_answered() {
    let write = |name: &str| call("write", json!({"filePath": name, "content": "hi\n"}));
    let model =
        Model::new().step(write("a.txt")).step(write("b.txt")).step(write("c.txt")).step(text("Done."));
    let (site, _served, wire) = served(Script::new().model("m", model)).await;
    let session = wire.session("m", "careful").await;
    let mut events = wire.events("/global/event", None).await;
    wire.prompt(&session, "write").await;
    let asked = events.until("permission.asked").await;
    assert_eq!((&asked["permission"], &asked["sessionID"]), (&json!("edit"), &json!(session)));
    assert!(asked["metadata"]["diff"].as_str().unwrap().contains("+hi"), "{asked}");
    assert_eq!(asked["metadata"]["filepath"], site.workspace().join("a.txt").to_str().unwrap());
    assert_eq!(wire.get("/permission").await, json!([asked]));
    // The dialog reads what is asked for from the call, which is no longer pending.
    let message = asked["tool"]["messageID"].as_str().unwrap();
    let message = wire.get(&format!("/session/{session}/message/{message}")).await;
    let parts = message["parts"].as_array().unwrap();
    let call = parts.iter().find(|part| part["callID"] == asked["tool"]["callID"]).unwrap();
    assert_eq!(
        (&call["state"]["status"], &call["state"]["input"]["filePath"]),
        (&json!("running"), &json!("a.txt"))
    );
    let id = asked["id"].as_str().unwrap();
    let reply = format!("/permission/{id}/reply");
    assert_eq!(wire.post(&reply, json!({"reply": "once"})).await, json!(true));
    let replied = events.until("permission.replied").await;
    assert_eq!(replied, json!({"sessionID": session, "requestID": id, "reply": "once"}));
    wire.ask("POST", &reply, &[], r#"{"reply":"once"}"#).await.with(404);
    // The older way, and a refusal that says why.
    let second = events.until("permission.asked").await["id"].as_str().unwrap().to_owned();
    let older = format!("/session/{session}/permissions/{second}");
    assert_eq!(wire.post(&older, json!({"response": "once"})).await, json!(true));
    let third = events.until("permission.asked").await["id"].as_str().unwrap().to_owned();
    let no = json!({"reply": "reject", "message": "not this one"});
    assert_eq!(wire.post(&format!("/permission/{third}/reply"), no).await, json!(true));
    events.turn().await;
    assert_eq!(wire.get("/permission").await, json!([]));
    let exists = |name: &str| site.workspace().join(name).exists();
    assert!(exists("a.txt") && exists("b.txt") && !exists("c.txt"));
    let messages = wire.get(&format!("/session/{session}/message")).await.to_string();
    assert!(messages.contains("not this one"), "the model reads it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_that_waits_outlives_the_server() {
    let script = || {
        let write = call("write", json!({"filePath": "a.txt", "content": "hi\n"}));
        Script::new().model("m", Model::new().step(write).step(text("Done.")))
    };
    let site = Site::new();
    let served = site.serve(script(), |options| options.grace = std::time::Duration::from_millis(20)).await;
    let wire = Wire::of(&served, None);
    let session = wire.session("m", "careful").await;
    let mut events = wire.events("/event", None).await;
    wire.prompt(&session, "write").await;
    events.until("permission.asked").await;
    let last = events.last.clone();
    served.stop();
    served.ended().await;
    assert!(events.next().await.is_none(), "the stream ends with the server");

    let served = site.serve(script(), |_| {}).await;
    let wire = Wire::of(&served, None);
    let mut events = wire.events("/event", Some(&last)).await;
    assert_eq!(events.next().await.unwrap()["type"], "server.instance.disposed");
    assert_eq!(wire.get("/session/status").await, json!({session.as_str(): {"type": "busy"}}));
    let waiting = loop {
        let waiting = wire.get("/permission").await;
        if waiting != json!([]) {
            break waiting;
        }
        events.next().await;
    };
    let request = waiting[0]["id"].as_str().unwrap();
    assert_eq!(waiting[0]["tool"]["callID"].as_str().map(str::is_empty), Some(false));
    assert_eq!(
        wire.post(&format!("/permission/{request}/reply"), json!({"reply": "once"})).await,
        json!(true)
    );
    events.until("session.idle").await;
    assert!(site.workspace().join("a.txt").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_of_a_session_hold() {
    let model = Model::new().step(call("bash", json!({"command": "touch x"}))).step(text("Done."));
    let (site, _served, wire) = served(Script::new().model("m", model)).await;
    let rules = json!([{"permission": "bash", "pattern": "*", "action": "deny"}]);
    let body = json!({"model": {"providerID": "mock", "id": "m"}, "permission": rules});
    let made = wire.post("/session", body).await;
    assert_eq!(made["permission"], rules);
    let session = made["id"].as_str().unwrap();
    wire.post(&format!("/session/{session}/message"), json!({"parts": [{"type": "text", "text": "go"}]}))
        .await;
    assert!(!site.workspace().join("x").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_outside_of_the_roots_of_a_key_is_not_there_for_it() {
    let option = |label: &str| json!({"label": label, "description": label});
    let question = json!({"question": "Pick?", "header": "Pick", "options": [option("A"), option("B")]});
    let asks = call("question", json!({"questions": [question]}));
    let model = Model::new().step(asks).step(text("Done."));
    let site = Site::new();
    let inner = site.workspace().join("inner");
    fs_err::create_dir(&inner).unwrap();
    let (wide, narrow) = (site.key("acme"), site.key_below("acme", &inner));
    let served = site.serve(Script::new().model("m", model), |_| {}).await;
    let (wide, narrow) = (Wire::of(&served, Some(&wide)), Wire::of(&served, Some(&narrow)));
    let session = wide.session("m", "tester").await;
    let mut events = wide.events("/event", None).await;
    wide.prompt(&session, "ask").await;
    let asked = events.until("question.asked").await["id"].as_str().unwrap().to_owned();
    let unknown = format!("{}{}", &asked[..asked.len() - 4], "0000");
    let answers = r#"{"answers":[["A"]]}"#;
    for (end, body) in [("reply", answers), ("reject", "")] {
        let there = narrow.ask("POST", &format!("/question/{asked}/{end}"), &[], body).await.with(404);
        let not = narrow.ask("POST", &format!("/question/{unknown}/{end}"), &[], body).await.with(404);
        assert_eq!(there.to_string().replace(&asked, &unknown), not.to_string());
    }
    wide.ask("POST", &format!("/question/{asked}/reply"), &[], answers).await.with(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_are_answered_or_rejected() {
    let asks = || {
        let option = |label: &str| json!({"label": label, "description": label});
        let question = json!({"question": "Pick?", "header": "Pick", "options": [option("A"), option("B")]});
        call("question", json!({"questions": [question]}))
    };
    let model = Model::new().step(asks()).step(asks()).step(text("Done."));
    let (_site, _served, wire) = served(Script::new().model("m", model)).await;
    let session = wire.session("m", "tester").await;
    let mut events = wire.events("/event", None).await;
    wire.prompt(&session, "ask").await;
    let asked = events.until("question.asked").await;
    assert_eq!(wire.get("/question").await, json!([asked]));
    let id = asked["id"].as_str().unwrap();
    let reply = format!("/question/{id}/reply");
    wire.ask("POST", &reply, &[], r#"{"answers":[["A"],["B"]]}"#).await.with(400);
    assert_eq!(wire.post(&reply, json!({"answers": [["A"]]})).await, json!(true));
    let replied = events.until("question.replied").await;
    assert_eq!(replied, json!({"sessionID": session, "requestID": id, "answers": [["A"]]}));
    let second = events.until("question.asked").await["id"].as_str().unwrap().to_owned();
    let rejected = wire.ask("POST", &format!("/question/{second}/reject"), &[], "").await.with(200);
    assert_eq!(rejected, json!(true));
    assert_eq!(events.until("question.rejected").await["requestID"], *second);
    events.turn().await;
    wire.ask("POST", &format!("/question/{second}/reject"), &[], "").await.with(404);
    wire.ask("POST", "/question/que_nonsense/reject", &[], "").await.with(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_sub_sessions_are_shown_on_the_direct_child() {
    let model =
        Model::new().step(call("write", json!({"filePath": "a.txt", "content": "x"}))).step(text("Done."));
    let (_site, _served, wire) = served(Script::new().model("m", model)).await;
    let mut events = wire.events("/global/event", None).await;
    let root = wire.session("m", "tester").await;
    let mut sessions = vec![root.clone()];
    for _ in 0..3 {
        let parent = sessions.last().unwrap();
        let body =
            json!({"parentID": parent, "agent": "careful", "model": {"providerID": "mock", "id": "m"}});
        sessions.push(wire.post("/session", body).await["id"].as_str().unwrap().to_owned());
    }
    let children = wire.get(&format!("/session/{root}/children")).await;
    assert_eq!((children.as_array().unwrap().len(), &children[0]["id"]), (1, &json!(sessions[1])));
    wire.prompt(&sessions[3], "write").await;
    let asked = events.until("permission.asked").await;
    assert_eq!(asked["sessionID"], *sessions[1]);
    let id = asked["id"].as_str().unwrap();
    let older = format!("/session/{}/permissions/{id}", sessions[1]);
    assert_eq!(wire.post(&older, json!({"response": "always"})).await, json!(true));
    assert_eq!(events.until("permission.replied").await["sessionID"], *sessions[1]);
    assert_eq!(events.until("session.idle").await["sessionID"], *sessions[3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_sees_nothing_of_another() {
    let model =
        Model::new().step(call("write", json!({"filePath": "a.txt", "content": "x"}))).step(text("Done."));
    let site = Site::new();
    let (one, other) = (site.key("one"), site.key("other"));
    let served = site.serve(Script::new().model("m", model), |_| {}).await;
    let (one, other) = (Wire::of(&served, Some(&one)), Wire::of(&served, Some(&other)));
    let nobody = Wire::of(&served, None);
    nobody.ask("GET", "/session", &[], "").await.with(401);
    let (mut seen, mut unseen) =
        (one.events("/event", None).await, other.events("/global/event", None).await);
    let session = one.session("m", "careful").await;
    one.prompt(&session, "write").await;
    let asked = seen.until("permission.asked").await["id"].as_str().unwrap().to_owned();
    assert_eq!(other.get("/session").await, json!([]));
    assert_eq!(other.get("/session/status").await, json!({}));
    assert_eq!(other.get("/permission").await, json!([]));
    for (method, path, body) in [
        ("GET", format!("/session/{session}"), ""),
        ("GET", format!("/session/{session}/message"), ""),
        ("GET", format!("/session/{session}/children"), ""),
        ("GET", format!("/session/{session}/todo"), ""),
        ("GET", format!("/session/{session}/diff"), ""),
        ("PATCH", format!("/session/{session}"), r#"{"title":"mine"}"#),
        ("POST", format!("/session/{session}/abort"), ""),
        ("POST", format!("/session/{session}/prompt_async"), r#"{"parts":[]}"#),
        ("POST", format!("/session/{session}/permissions/{asked}"), r#"{"response":"once"}"#),
        ("POST", format!("/permission/{asked}/reply"), r#"{"reply":"once"}"#),
        ("DELETE", format!("/session/{session}"), ""),
    ] {
        other.ask(method, &path, &[], body).await.with(404);
    }
    assert_eq!(one.post(&format!("/permission/{asked}/reply"), json!({"reply": "once"})).await, json!(true));
    seen.turn().await;
    // What the other one is told first is its own.
    let own = other.session("m", "tester").await;
    assert_eq!(unseen.next().await.unwrap()["properties"]["sessionID"], *own);
    assert_eq!(one.ask("DELETE", &format!("/session/{session}"), &[], "").await.with(200), json!(true));
    assert_eq!(seen.until("session.deleted").await["sessionID"], *session);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_ask_first_is_there_and_holds_no_secrets() {
    let (site, _served, wire) = served(Script::new()).await;
    assert_eq!(wire.get("/global/health").await, json!({"healthy": true, "version": "0.0.0-test"}));
    let workspace = site.workspace();
    fs_err::create_dir(workspace.join(".git")).unwrap();
    fs_err::write(workspace.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    let directory = format!("?directory={}", workspace.display());
    for path in [
        "/path",
        "/project",
        "/project/current",
        "/project/x/directories",
        "/config",
        "/global/config",
        "/config/providers",
        "/provider",
        "/provider/auth",
        "/agent",
        "/command",
        "/lsp",
        "/formatter",
        "/mcp",
        "/vcs",
        "/experimental/capabilities",
        "/experimental/console",
        "/experimental/resource",
        "/experimental/tool/ids",
        "/experimental/workspace",
        "/experimental/workspace/adapter",
        "/experimental/workspace/status",
        "/session",
        "/session/status",
        "/permission",
        "/question",
    ] {
        wire.get(&format!("{path}{directory}")).await;
    }
    wire.get("/experimental/tool?provider=mock&model=m").await;
    wire.ask("GET", "/experimental/tool?provider=mock", &[], "").await.with(400);
    assert_eq!(wire.get("/vcs").await, json!({"branch": "main"}));
    assert_eq!(wire.get("/project/current").await["worktree"], workspace.to_str().unwrap());
    let providers = wire.get("/provider").await;
    assert_eq!(
        (&providers["connected"], &providers["default"]),
        (&json!(["mock"]), &json!({"mock": "greeter"}))
    );
    let model = &providers["all"][0]["models"]["greeter"];
    assert_eq!((&model["cost"]["output"], &model["limit"]["context"]), (&json!(5.0), &json!(200_000)));
    assert_eq!(wire.get("/config").await["default_agent"], "tester");
    // Outside of what the operator allowed there is nothing to see.
    for path in ["/path", "/session", "/event", "/file?path=.", "/vcs"] {
        let mark = if path.contains('?') { '&' } else { '?' };
        let answer = wire.ask("GET", &format!("{path}{mark}directory=/etc"), &[], "").await;
        answer.with(400);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_listed_changed_and_removed() {
    let (site, _served, wire) = served(Script::new()).await;
    let inner = site.workspace().join("inner");
    fs_err::create_dir(&inner).unwrap();
    fs_err::create_dir(site.workspace().join(".git")).unwrap();
    let mut made = Vec::new();
    for title in ["Alpha", "Beta", "Gamma"] {
        made.push(wire.post("/session", json!({"title": title})).await);
    }
    let below = wire.post("/session", json!({"title": "below", "parentID": made[0]["id"]})).await;
    let header = [("x-opencode-directory", inner.to_str().unwrap())];
    let elsewhere = wire.ask("POST", "/session", &header, r#"{"title":"elsewhere"}"#).await.with(200);
    assert_eq!(elsewhere["path"], "inner");
    let titles = async |query: &str| {
        let listed = wire.get(&format!("/session{query}")).await;
        let mut titles: Vec<String> = listed
            .as_array()
            .unwrap()
            .iter()
            .map(|session| session["title"].as_str().unwrap().to_owned())
            .collect();
        titles.sort();
        titles
    };
    assert_eq!(titles("").await, ["Alpha", "Beta", "Gamma", "below"]);
    assert_eq!(titles("?roots=true").await, ["Alpha", "Beta", "Gamma"]);
    assert_eq!(titles("?search=LPH").await, ["Alpha"]);
    assert_eq!(titles("?scope=project").await.len(), 5);
    assert_eq!(titles(&format!("?directory={}", inner.display())).await, ["elsewhere"]);
    assert_eq!(titles("?limit=2").await.len(), 2);
    assert_eq!(titles("?start=9999999999999").await, Vec::<String>::new());
    let first = made[0]["id"].as_str().unwrap();
    let path = format!("/session/{first}");
    let rename = wire.ask("PATCH", &path, &[], r#"{"title":"Renamed"}"#).await.with(200);
    assert_eq!(rename["title"], "Renamed");
    // The one that changed last comes first.
    assert_eq!(wire.get("/session").await[0]["id"], *first);
    assert_eq!(wire.get(&format!("{path}/todo")).await, json!([]));
    let below = below["id"].as_str().unwrap();
    assert_eq!(wire.ask("DELETE", &format!("/session/{below}"), &[], "").await.with(200), json!(true));
    wire.ask("GET", &format!("/session/{below}"), &[], "").await.with(404);
    wire.ask("GET", "/session/ses_nonsense", &[], "").await.with(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_listed_found_and_read_inside_of_the_directory_only() {
    let (site, _served, wire) = served(Script::new()).await;
    let root = site.workspace();
    fs_err::create_dir_all(root.join("src")).unwrap();
    fs_err::write(root.join("src/main.rs"), "fn main() {}\n").unwrap();
    fs_err::write(root.join("dot.png"), [0u8, 1, 2]).unwrap();
    fs_err::os::unix::fs::symlink("/etc", root.join("link")).unwrap();
    let listed = wire.get("/file?path=").await;
    let names: Vec<&Value> = listed.as_array().unwrap().iter().map(|node| &node["name"]).collect();
    assert_eq!(names, ["src", "dot.png", "link"]);
    assert_eq!(wire.get("/file?path=src").await[0]["path"], "src/main.rs");
    assert_eq!(wire.get("/find/file?query=main").await, json!(["src/main.rs"]));
    let content = wire.get("/file/content?path=src/main.rs").await;
    assert_eq!(content, json!({"type": "text", "content": "fn main() {}\n"}));
    assert_eq!(wire.get("/file/content?path=dot.png").await["encoding"], "base64");
    for path in ["../", "/etc/passwd", "link/passwd", "link", "src/../../x", "nothing"] {
        wire.ask("GET", &format!("/file/content?path={path}"), &[], "").await.with(400);
        wire.ask("GET", &format!("/file?path={path}"), &[], "").await.with(400);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_of_the_wire_is_built_or_said_not_to_be() {
    let description = Description::get();
    let (_site, _served, wire) = served(Script::new()).await;
    let (mut there, mut missing) = (0, 0);
    for (path, method, _) in description.operations() {
        // They do not end by themselves.
        if path.ends_with("/event") && !path.starts_with("/api") {
            continue;
        }
        let address: Vec<&str> =
            path.split('/').map(|part| if part.starts_with('{') { "x" } else { part }).collect();
        let answer = wire.ask(&method, &address.join("/"), &[], "").await;
        match answer.status {
            501 => {
                let error = answer.json();
                assert_eq!(error["name"], "UnknownError", "{method} {path}");
                assert!(
                    error["data"]["message"].as_str().unwrap().starts_with("this is not built"),
                    "{error}"
                );
                missing += 1;
            }
            200 | 400 => there += 1,
            404 if ["/permission", "/question", "/mcp"].iter().any(|known| path.starts_with(known)) => {
                there += 1
            }
            other => panic!("{method} {path}: {other} {}", answer.body),
        }
    }
    assert!(there >= 45 && missing >= 90, "{there} are there, {missing} are not");
}

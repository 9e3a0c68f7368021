//! Who may ask what: keys, tenants, hosts and origins.

use axum::http::header::ACCESS_CONTROL_ALLOW_ORIGIN;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mock_llm::Script;
use playhouse_server::{Listen, Server, ServerError};
use serde_json::json;

use crate::client::Client;
use crate::support::{Served, Site, ask_unix};
use crate::wire_client::Wire;

#[tokio::test]
async fn without_keys_everyone_on_this_machine_is_the_local_tenant() {
    let served = Site::new().serve(Script::new(), |_| {}).await;
    assert_eq!(served.get("/v1/sessions").await.status, 200);
    // A client that was given a key for another server.
    let sent = served.ask("GET", "/v1/sessions", &[("authorization", "Bearer nothing")], "").await;
    assert_eq!(sent.status, 200);
}

#[tokio::test]
async fn with_keys_only_those_are_let_in_that_have_a_valid_one() {
    let ground = Site::new();
    let (key, revoked) = (ground.key("acme"), ground.key("acme"));
    let served = ground.serve(Script::new(), |_| {}).await;
    let basic = |text: String| format!("Basic {}", STANDARD.encode(text));
    let ask = async |value: &str| served.ask("GET", "/v1/sessions", &[("authorization", value)], "").await;
    for value in [format!("Bearer {key}"), basic(format!("opencode:{key}")), basic(format!(":{key}"))] {
        assert_eq!(ask(&value).await.status, 200, "{value}");
    }
    assert_eq!(ask(&format!("Bearer {revoked}")).await.status, 200);
    served.app.keys().revoke(&revoked).unwrap();
    let other_secret = format!("{}{}", &key[..16], &revoked[16..]);
    for value in [
        format!("Bearer {revoked}"),
        format!("Bearer {other_secret}"),
        format!("Bearer {key}x"),
        "Bearer".to_owned(),
        basic(format!("{key}:")),
    ] {
        let answer = ask(&value).await;
        assert_eq!((answer.problem().as_str(), answer.status), ("unauthorized", 401), "{value}");
        assert!(answer.header("www-authenticate").is_some_and(|asked| asked.contains("Basic")));
        assert!(!answer.body.contains("ph_"), "a key is not said back: {}", answer.body);
    }
    for path in ["/v1/sessions", "/metrics", "/global/health", "/nowhere"] {
        assert_eq!(served.get(path).await.status, 401, "{path}");
    }
    assert_eq!((served.get("/healthz").await.status, served.get("/readyz").await.status), (200, 200));
}

#[tokio::test]
async fn the_session_of_another_tenant_is_not_there() {
    let ground = Site::new();
    let (mine, theirs) = (ground.key("acme"), ground.key("other"));
    let served = ground.serve(Script::new(), |_| {}).await;
    let session = served.session("acme", "greeter").await.id();
    let path = format!("/v1/sessions/{session}");
    let ask = async |key: &str, method: &str, path: &str| {
        served.ask(method, path, &[("authorization", &format!("Bearer {key}"))], "").await
    };
    assert_eq!(ask(&mine, "GET", &path).await.status, 200);
    assert_eq!(ask(&theirs, "GET", &path).await.problem(), "not-found");
    assert_eq!(ask(&theirs, "DELETE", &path).await.problem(), "not-found");
    assert_eq!(ask(&mine, "GET", &path).await.status, 200, "it is still there");
    let seen = ask(&theirs, "GET", "/v1/sessions").await;
    assert!(seen.status == 200 && !seen.body.contains(session.as_str()), "{}", seen.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_streams_of_a_key_end_when_it_is_withdrawn() {
    let site = Site::new();
    let (kept, withdrawn) = (site.key("acme"), site.key("acme"));
    let served = site.serve(Script::new(), |_| {}).await;
    let (stays, goes) = (Client::of(&served, Some(&kept)), Client::of(&served, Some(&withdrawn)));
    let session = stays.session("echo").await;
    let one = format!("{session}/events");
    let mut staying = stays.events("/v1/events", None).await;
    let mut going = [goes.events("/v1/events", None).await, goes.events(&one, None).await];
    let wire = Wire::of(&served, Some(&withdrawn));
    let mut wired = [wire.events("/event", None).await, wire.events("/global/event", None).await];
    served.app.keys().revoke(&withdrawn).unwrap();
    for events in &mut going {
        assert!(events.next().await.is_none());
    }
    for events in &mut wired {
        assert!(events.next().await.is_none());
    }
    stays.prompt(&session, "hi").await;
    staying.until("prompt.admitted").await;
}

#[tokio::test]
async fn what_others_can_reach_needs_keys() {
    let ground = Site::new();
    let anywhere = || Listen::Tcp("0.0.0.0:0".parse().unwrap());
    let app = ground.app(Script::new(), |_| {}).await;
    let refused = Server::bind(app, anywhere()).await.unwrap_err();
    assert!(matches!(refused, ServerError::Open(_)));
    assert!(refused.to_string().contains("playhouse keys create"), "{refused}");
    let key = ground.key("acme");
    let app = ground.app(Script::new(), |_| {}).await;
    let served = Served::run(Server::bind(app, anywhere()).await.unwrap());
    let bearer = format!("Bearer {key}");
    assert_eq!(served.get("/v1/sessions").await.status, 401);
    let asked = [("authorization", bearer.as_str()), ("host", "127.0.0.1")];
    assert_eq!(served.ask("GET", "/v1/sessions", &asked, "").await.status, 200);
}

#[tokio::test]
async fn whoever_opens_the_socket_in_the_file_system_is_the_operator() {
    let ground = Site::new();
    let key = ground.key("acme");
    let socket = ground.folder.path().join("engine.sock");
    let app = ground.app(Script::new(), |_| {}).await;
    let mut server = Server::bind(app, Listen::Tcp("127.0.0.1:0".parse().unwrap())).await.unwrap();
    server.and_on(Listen::Unix(socket.clone())).await.unwrap();
    let served = Served::run(server);
    let session = served.session("acme", "greeter").await.id();
    let path = format!("/v1/sessions/{session}");
    assert_eq!(served.get(&path).await.status, 401, "from the network a key is needed");
    assert_eq!(ask_unix(&socket, &path, &[]).await.status, 200, "the operator finds the sessions of all");
    let own = format!("{path}?tenant=local");
    assert_eq!(ask_unix(&socket, &own, &[]).await.problem(), "not-found", "it is not the local tenant's");
    let bearer = format!("Bearer {key}");
    assert_eq!(ask_unix(&socket, &path, &[("authorization", &bearer)]).await.status, 200);
    assert_eq!(ask_unix(&socket, &path, &[("authorization", "Bearer wrong")]).await.status, 401);
    assert_eq!(ask_unix(&socket, "/v1/sessions", &[("host", "anything")]).await.status, 200);
    served.stop();
    served.ended().await;
    assert!(!socket.exists());
}

#[tokio::test]
async fn a_name_that_is_not_the_servers_is_refused() {
    let change = |options: &mut playhouse_server::ServerOptions| options.hosts = vec!["play.example".into()];
    let served = Site::new().serve(Script::new(), change).await;
    let port = served.address.port();
    let ask = async |host: &str| served.ask("GET", "/v1/sessions", &[("host", host)], "").await;
    for host in ["localhost", &format!("localhost:{port}"), "play.example", "[::1]:1"] {
        assert_eq!(ask(host).await.status, 200, "{host}");
    }
    for host in ["evil.example", &format!("evil.example:{port}"), "play.example.evil.example"] {
        let answer = ask(host).await;
        assert_eq!((answer.problem().as_str(), answer.status), ("forbidden", 403), "{host}");
    }
}

#[tokio::test]
async fn a_page_of_another_site_may_send_nothing() {
    let served = Site::new().serve(Script::new(), |_| {}).await;
    let body = r#"{"workspace": "/"}"#;
    let own = format!("http://{}", served.address);
    for (origin, site) in [
        (Some("https://evil.example"), Some("cross-site")),
        (Some("null"), None),
        (Some("http://localhost:3000"), None),
        (None, Some("cross-site")),
        (None, Some("same-site")),
    ] {
        for kind in ["text/plain", "application/x-www-form-urlencoded", "application/json"] {
            let mut headers = vec![("content-type", kind)];
            headers.extend(origin.map(|origin| ("origin", origin)));
            headers.extend(site.map(|site| ("sec-fetch-site", site)));
            let answer = served.ask("POST", "/v1/sessions", &headers, body).await;
            assert_eq!(answer.problem(), "forbidden", "{headers:?}");
            assert_eq!(answer.headers.get(ACCESS_CONTROL_ALLOW_ORIGIN), None);
        }
    }
    assert_eq!(served.ask("GET", "/v1/sessions", &[("origin", &own)], "").await.status, 200);
    let page = served.app.engine().list(playhouse_store::ListQuery::default()).await.unwrap();
    assert!(page.sessions.is_empty());
}

#[tokio::test]
async fn a_listed_origin_is_told_what_it_may_do() {
    const APP: &str = "https://app.example";
    let ground = Site::new();
    ground.key("acme");
    let served = ground.serve(Script::new(), |options| options.origins = vec![APP.into()]).await;
    // The question comes without a key.
    let asked = [("origin", APP), ("access-control-request-method", "DELETE")];
    let preflight = served.ask("OPTIONS", "/v1/sessions", &asked, "").await;
    assert_eq!((preflight.status, preflight.header("access-control-allow-origin")), (204, Some(APP)));
    assert!(preflight.header("access-control-allow-methods").unwrap().contains("DELETE"));
    assert!(preflight.header("access-control-allow-headers").unwrap().contains("authorization"));
    assert_eq!(preflight.header("access-control-allow-credentials"), None);
    // Pages can read why they were refused.
    let refused = served.ask("GET", "/v1/sessions", &[("origin", APP)], "").await;
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (401, Some(APP)));
    assert_eq!(refused.header("vary"), Some("origin"));
    let asked = [("origin", "https://evil.example"), ("access-control-request-method", "DELETE")];
    let preflight = served.ask("OPTIONS", "/v1/sessions", &asked, "").await;
    assert_eq!((preflight.status, preflight.header("access-control-allow-origin")), (403, None));
}

#[tokio::test]
async fn a_key_with_roots_sees_and_uses_no_others() {
    let ground = Site::new();
    let (a, b) = (ground.workspace().join("a"), ground.workspace().join("b"));
    for folder in [&a, &b] {
        fs_err::create_dir(folder).unwrap();
        fs_err::write(folder.join("file"), "text").unwrap();
    }
    let (narrow, wide) = (ground.key_below("acme", &a), ground.key("other"));
    let served = ground.serve(Script::new(), |_| {}).await;
    let ask = async |key: &str, method: &str, path: &str, body: &str| {
        let bearer = format!("Bearer {key}");
        served
            .ask(method, path, &[("authorization", &bearer), ("content-type", "application/json")], body)
            .await
    };
    for (key, folder, allowed) in [(&narrow, &a, true), (&narrow, &b, false), (&wide, &b, true)] {
        let listed = ask(key, "GET", &format!("/file?path=.&directory={}", folder.display()), "").await;
        assert_eq!(listed.status == 200, allowed, "{}", listed.body);
        let body = format!("{{\"workspace\": \"{}\"}}", folder.display());
        let made = ask(key, "POST", "/v1/sessions", &body).await;
        assert_eq!(made.status == 201, allowed, "{}", made.body);
    }
    let made = ask(&narrow, "POST", "/v1/sessions", "{}").await;
    assert!(made.body.contains(a.to_str().unwrap()), "its first root is where it works: {}", made.body);
}

#[tokio::test]
async fn a_root_that_a_link_leads_to_is_used_as_it_was_given() {
    let site = Site::new();
    let workspace = site.workspace();
    for folder in ["in", "other"] {
        fs_err::create_dir(workspace.join(folder)).unwrap();
    }
    let link = site.folder.path().join("link");
    fs_err::os::unix::fs::symlink(&workspace, &link).unwrap();
    let (narrow, wide) = (site.key_below("acme", &link.join("in")), site.key("other"));
    let served = site.serve(Script::new(), |options| options.roots = vec![link.clone()]).await;
    // By the name that the operator gave it and by the other.
    for (key, folder, leads_to) in [
        (&wide, link.clone(), Some(".")),
        (&wide, link.join("other"), Some("other")),
        (&wide, workspace.join("other"), Some("other")),
        (&wide, link.join("../nowhere"), None),
        (&narrow, link.join("in"), Some("in")),
        (&narrow, workspace.join("in"), Some("in")),
        (&narrow, link.clone(), None),
        (&narrow, link.join("other"), None),
        (&narrow, link.join("in/../other"), None),
    ] {
        let bearer = format!("Bearer {key}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let made =
            served.ask("POST", "/v1/sessions", &headers, &json!({"workspace": folder}).to_string()).await;
        let listed = format!("/file?path=.&directory={}", folder.display());
        let listed = served.ask("GET", &listed, &headers, "").await;
        let Some(leads_to) = leads_to else {
            assert_eq!((made.status, listed.status), (403, 400), "{}: {}", folder.display(), made.body);
            assert_eq!(made.problem(), "forbidden");
            assert!(made.body.contains("as the operator did, or with its links resolved"), "{}", made.body);
            continue;
        };
        assert_eq!((made.status, listed.status), (201, 200), "{}: {}", folder.display(), made.body);
        let place: std::path::PathBuf = workspace.join(leads_to).components().collect();
        assert_eq!(made.json()["workspace"], json!(place));
    }
}

#[tokio::test]
async fn no_workspace_is_swapped_for_a_link() {
    let ground = Site::new();
    let served = ground.serve(Script::new(), |_| {}).await;
    let (swapped, secret) = (ground.workspace().join("sw"), ground.folder.path().join("secret"));
    fs_err::create_dir(&swapped).unwrap();
    fs_err::create_dir(&secret).unwrap();
    let body = format!("{{\"workspace\": \"{}\"}}", swapped.display());
    let made = served.ask("POST", "/v1/sessions", &[("content-type", "application/json")], &body).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let made: serde_json::Value = serde_json::from_str(&made.body).unwrap();
    fs_err::remove_dir(&swapped).unwrap();
    fs_err::os::unix::fs::symlink(&secret, &swapped).unwrap();
    let path = format!("/v1/sessions/{}/shell", made["id"].as_str().unwrap());
    let sent = [("content-type", "application/json")];
    let refused = served.ask("POST", &path, &sent, r#"{"command": "touch written"}"#).await;
    assert_eq!(refused.status, 400, "{}", refused.body);
    assert!(refused.body.contains("no longer the directory that it was"), "{}", refused.body);
    assert!(!secret.join("written").exists());
    // A fork would work there too.
    for path in ["/v1/sessions/ID/fork", "/session/ID/fork"] {
        let path = path.replace("ID", made["id"].as_str().unwrap());
        let refused = served.ask("POST", &path, &sent, "{}").await;
        assert_eq!(refused.status, 400, "{}", refused.body);
        assert!(refused.body.contains("no longer the directory that it was"), "{}", refused.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_uses_no_session_outside_of_its_roots_whoever_woke_it() {
    let site = Site::new();
    let (a, b) = (site.workspace().join("a"), site.workspace().join("b"));
    fs_err::create_dir(&a).unwrap();
    fs_err::create_dir(&b).unwrap();
    let (wide_key, narrow_key) = (site.key("acme"), site.key_below("acme", &a));
    let served = site.serve(Script::new(), |_| {}).await;
    let (wide, narrow) = (Client::of(&served, Some(&wide_key)), Client::of(&served, Some(&narrow_key)));
    let make = async |client: &Client, place: &std::path::Path| {
        client.session_with(json!({"workspace": place, "model": "mock/echo"})).await
    };
    let (theirs, own) = (make(&wide, &b).await, make(&narrow, &a).await);
    let mut events = wide.events(&format!("{theirs}/events"), None).await;
    wide.prompt(&theirs, "It is awake.").await;
    events.until("turn.ended").await;
    let id = theirs.rsplit('/').next().unwrap();
    let text = json!({"text": "hi"});
    let shell = json!({"command": "touch written"});
    for (method, path, body) in [
        ("GET", theirs.clone(), json!({})),
        ("GET", format!("{theirs}/messages"), json!({})),
        ("GET", format!("{theirs}/events"), json!({})),
        ("POST", format!("{theirs}/prompts"), text),
        ("POST", format!("{theirs}/shell"), shell),
        ("POST", format!("{theirs}/calls"), json!({"tool": "bash", "input": {"command": "touch written"}})),
        ("POST", format!("{theirs}/abort"), json!({})),
        ("POST", format!("{theirs}/fork"), json!({})),
        ("PATCH", theirs.clone(), json!({"title": "mine"})),
        ("DELETE", theirs.clone(), json!({})),
        ("POST", "/v1/sessions".to_owned(), json!({"parent": id})),
    ] {
        let body = if method == "GET" { String::new() } else { body.to_string() };
        let answer = narrow.ask(method, &path, &[], &body).await;
        assert_eq!((answer.status, answer.problem().as_str()), (404, "not-found"), "{method} {path}");
    }
    let parts = json!({"parts": [{"type": "text", "text": "hi"}]});
    for (method, path, body) in [
        ("GET", format!("/session/{id}"), json!({})),
        ("GET", format!("/session/{id}/message"), json!({})),
        ("POST", format!("/session/{id}/message"), parts.clone()),
        ("POST", format!("/session/{id}/prompt_async"), parts),
        ("POST", format!("/session/{id}/shell"), json!({"agent": "tester", "command": "touch written"})),
        ("POST", format!("/session/{id}/fork"), json!({})),
        ("POST", "/session".to_owned(), json!({"parentID": id})),
        ("DELETE", format!("/session/{id}"), json!({})),
    ] {
        let body = if method == "GET" { String::new() } else { body.to_string() };
        assert_eq!(narrow.ask(method, &path, &[], &body).await.status, 404, "{method} {path}");
    }
    assert!(!b.join("written").exists());
    // No list has it, and no stream.
    for (path, ids) in [("/v1/sessions?limit=1", "sessions"), ("/experimental/session", "")] {
        let listed = narrow.get(path).await.with(200);
        let listed = if ids.is_empty() { listed } else { listed[ids].clone() };
        assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
        assert!(own.ends_with(listed[0]["id"].as_str().unwrap()), "{listed}");
    }
    let mut heard = narrow.events("/v1/events", None).await;
    let wire = Wire::of(&served, Some(&narrow_key));
    let mut wired = wire.events("/global/event", None).await;
    wide.prompt(&theirs, "Nobody else hears this.").await;
    events.until("turn.ended").await;
    narrow.prompt(&own, "This is heard.").await;
    loop {
        let event = heard.next().await.expect("the stream goes on").json;
        assert!(own.ends_with(event["session"].as_str().unwrap()), "{event}");
        if event["type"] == "turn.ended" {
            break;
        }
    }
    for event in wired.turn().await {
        assert!(!event.to_string().contains(id), "{event}");
    }
    wide.get(&theirs).await.with(200);
}

//! `websearch` and `codesearch` against servers that speak the wire.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use playhouse_tools::web::{
    CodeSearch, Endpoint, SearchBackend, SearchError, SearchOptions, WebOptions, WebQuery, WebSearch,
};
use playhouse_tools::{NativeOptions, Registry, ToolError, Typed};
use serde_json::{Value, json};

use super::web_server::{Place, Reply, Seen, Server};

fn place(options: SearchOptions) -> Place {
    let mut registry = Registry::new();
    registry.add(Arc::new(Typed::new(WebSearch::new(options.clone())))).unwrap();
    registry.add(Arc::new(Typed::new(CodeSearch::new(options)))).unwrap();
    Place::new(registry)
}

fn endpoint(server: &Server, path: &str) -> Endpoint {
    Endpoint::new(&server.url(path), vec![("x-api-key".into(), "hunter2-hunter2".into())]).unwrap()
}

async fn exa(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> (Server, Place) {
    let server = Server::start(answer).await;
    let place = place(SearchOptions::exa(endpoint(&server, "/mcp?profile=7")));
    (server, place)
}

fn result(text: &str) -> String {
    let content = json!([{"type": "text", "text": text}, {"type": "image", "data": ""}]);
    json!({"jsonrpc": "2.0", "id": 1, "result": {"content": content}}).to_string()
}

fn rpc(seen: &Seen) -> Value {
    serde_json::from_str(&seen.body).unwrap()
}

#[tokio::test]
async fn exa_is_asked_for_the_web_and_for_code() {
    let (server, place) =
        exa(|_| Reply::ok("application/json", result("Title: Rust\nURL: https://rust-lang.org"))).await;
    let found = place.call("websearch", &json!({"query": " rust 2024 ", "numResults": 3})).await.unwrap();
    assert_eq!(
        (found.output.as_str(), found.title.as_str()),
        ("Title: Rust\nURL: https://rust-lang.org", "rust 2024")
    );
    assert_eq!(Value::Object(found.metadata), json!({"provider": "exa", "numResults": 3}));
    place.call("codesearch", &json!({"query": "axum state"})).await.unwrap();
    let [web, code] = &server.seen()[..] else { panic!() };
    assert_eq!(
        rpc(web),
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "web_search_exa", "arguments": {"query": "rust 2024", "numResults": 3}}})
    );
    assert_eq!(
        rpc(code)["params"],
        json!({"name": "get_code_context_exa", "arguments": {"query": "axum state", "tokensNum": 5000}})
    );
    assert!(web.head.starts_with("post /mcp?profile=7 http/1.1"), "{}", web.head);
    assert_eq!(web.header("accept"), Some("application/json, text/event-stream"));
    assert_eq!(web.header("content-type"), Some("application/json"));
    assert_eq!(web.header("x-api-key"), Some("hunter2-hunter2"));
}

#[tokio::test]
async fn an_answer_may_be_a_stream_of_events() {
    let events = |events: &str| format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n{events}");
    let answer = result("found äöü");
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#;
    let other = r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"not ours"}]}}"#;
    for (name, reply) in [
        ("one", Reply::raw(events(&format!("event: message\ndata: {answer}\n\n")))),
        ("no blank line", Reply::raw(events(&format!("data: {answer}")))),
        (
            "others before",
            Reply::raw(events(&format!(
                ": hi\n\ndata: {progress}\r\n\r\ndata: {other}\n\ndata: x\n\ndata:{answer}\r\r"
            ))),
        ),
        ("goes on", Reply::hanging(&events(&format!("data: {answer}\n\n: waiting")))),
    ] {
        let reply = std::sync::Mutex::new(Some(reply));
        let (_server, place) = exa(move |_| reply.lock().unwrap().take().unwrap()).await;
        let found = place.call("websearch", &json!({"query": "x"})).await.unwrap();
        assert_eq!(found.output, "found äöü", "{name}");
    }
}

#[tokio::test]
async fn what_goes_wrong_is_told_and_no_key_with_it() {
    let rpc_error = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"bad key hunter2-hunter2"}}"#;
    let tool_error = r#"{"jsonrpc":"2.0","id":1,"result":{"isError":true,"content":[{"type":"text","text":"rate limited hunter2-hunter2"}]}}"#;
    let huge = format!("data: {}\n\n", "x".repeat(6_000_000));
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (name, reply, expected) in [
        ("error", Reply::ok("application/json", rpc_error), "bad key [hidden] (error -32602)"),
        ("isError", Reply::ok("application/json", tool_error), "rate limited [hidden]"),
        ("401", Reply::new(401, "", "who is hunter2-hunter2?"), "answers 401: who is [hidden]?"),
        ("400", Reply::new(400, "", "no"), "answers 400: no"),
        ("500", Reply::new(500, "", "x".repeat(100_000)), "answers 500: xxx"),
        ("garbage", Reply::ok("application/json", "<html>"), "not JSON-RPC"),
        ("empty", Reply::ok("application/json", ""), "not JSON-RPC"),
        ("other JSON", Reply::ok("application/json", "{}"), "not that of a tool"),
        ("deep", Reply::ok("application/json", deep), "not JSON-RPC"),
        ("stream without answer", Reply::ok("text/event-stream", "data: {}\n\n"), "ended without an answer"),
        ("huge stream", Reply::ok("text/event-stream", huge), "larger than"),
        ("huge", Reply::ok("application/json", vec![b' '; 6_000_000]), "larger than"),
        ("redirect", Reply::new(307, "Location: http://169.254.169.254/", ""), "not followed"),
        ("cut", Reply::raw("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"), "cannot be reached"),
    ] {
        let reply = std::sync::Mutex::new(Some(reply));
        let (_server, place) =
            exa(move |_| reply.lock().unwrap().take().unwrap_or_else(|| Reply::new(400, "", "no"))).await;
        let error = place.call("websearch", &json!({"query": "x"})).await.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, ToolError::Failed(_)), "{name}: {error:?}");
        assert!(text.contains(expected) && text.contains("Go on without it"), "{name}: {text}");
        assert!(
            !text.contains("hunter2") && !text.contains("profile") && text.len() < 1500,
            "{name}: {text}"
        );
    }
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gone = place(SearchOptions::exa(Endpoint::new(&format!("http://{gone}/mcp"), Vec::new()).unwrap()));
    let error = gone.call("codesearch", &json!({"query": "x"})).await.unwrap_err();
    assert!(error.to_string().contains("cannot be reached"), "{error}");
}

#[tokio::test]
async fn a_server_that_wants_a_session_gets_one_and_keeps_it() {
    let begun = Arc::new(AtomicUsize::new(0));
    let sessions = begun.clone();
    let (server, place) = exa(move |seen| {
        let current = format!("session-{}", sessions.load(Ordering::SeqCst));
        match rpc(seen)["method"].as_str().unwrap() {
            "initialize" => {
                let number = sessions.fetch_add(1, Ordering::SeqCst) + 1;
                let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": "2025-06-18"}});
                Reply::new(
                    200,
                    &format!("Content-Type: application/json\nMcp-Session-Id: session-{number}"),
                    answer.to_string(),
                )
            }
            "notifications/initialized" => Reply::new(202, "", ""),
            _ if seen.header("mcp-session-id") == Some(&current) => {
                Reply::ok("application/json", result(&current))
            }
            _ => Reply::new(400, "", "Missing session ID"),
        }
    })
    .await;
    let ask = || async { place.call("websearch", &json!({"query": "x"})).await.map(|found| found.output) };
    assert_eq!(ask().await, Ok("session-1".into()));
    assert_eq!(ask().await, Ok("session-1".into()));
    assert_eq!(server.paths().len(), 5);
    // The server forgets it.
    begun.fetch_add(1, Ordering::SeqCst);
    assert_eq!(ask().await, Ok("session-3".into()));
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up() {
    /// One that is waited for less long.
    struct Impatient(Arc<dyn SearchBackend>);
    impl SearchBackend for Impatient {
        fn name(&self) -> &str {
            self.0.name()
        }
        fn timeout(&self) -> Duration {
            assert_eq!(self.0.timeout(), Duration::from_secs(25));
            Duration::from_millis(50)
        }
        fn web<'a>(&'a self, query: &'a WebQuery) -> BoxFuture<'a, Result<String, SearchError>> {
            self.0.web(query)
        }
    }
    let server =
        Server::start(|_| Reply::hanging("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")).await;
    let SearchOptions::Backend(exa_itself) = SearchOptions::exa(endpoint(&server, "/")) else { panic!() };
    let house = place(SearchOptions::Backend(Arc::new(Impatient(exa_itself))));
    let input = json!({"query": "x"});
    let begun = Instant::now();
    let call = tokio::time::timeout(Duration::from_secs(30), house.call("websearch", &input));
    let error = call.await.expect("it is given up").unwrap_err();
    assert_eq!(error.to_string(), "the search with exa took longer than 0.05 s");
    assert!(begun.elapsed() >= Duration::from_millis(50));

    let (server, house) = exa(|_| Reply::hanging("")).await;
    let call = house.call("codesearch", &input);
    let cancel = async {
        server.asked.notified().await;
        house.context.cancel.cancel();
    };
    let (result, ()) = tokio::join!(call, cancel);
    assert_eq!(result, Err(ToolError::Cancelled(String::new())));
}

#[tokio::test]
async fn any_server_of_mcp_does_with_the_names_of_its_tools() {
    let server = Server::start(|_| Reply::ok("application/json", result(""))).await;
    let house = place(SearchOptions::mcp(endpoint(&server, "/"), Some("find".into()), None));
    let found = house.call("websearch", &json!({"query": "x"})).await.unwrap();
    assert_eq!(found.output, "nothing was found for \"x\"");
    assert_eq!(rpc(&server.seen()[0])["params"]["name"], "find");
    let error = house.call("codesearch", &json!({"query": "x"})).await.unwrap_err();
    assert!(error.to_string().contains("no search for code"), "{error}");
}

#[tokio::test]
async fn searxng_is_asked_and_read() {
    let server = Server::start(|seen| match seen.path.as_str() {
        path if path.starts_with("/search?q=%C3%A4+b%26c&format=json") || path.starts_with("/sub/search?") => {
            let entry = |n: usize| json!({"url": format!("https://{n}.example/"), "title": format!(" Title {n} "), "content": "Über\nalles", "engine": "x"});
            let mut entries: Vec<Value> = (1..=30).map(entry).collect();
            entries[0]["publishedDate"] = json!("2026-01-02");
            entries[1]["content"] = Value::Null;
            Reply::ok("application/json", json!({"query": "x", "results": entries}).to_string())
        }
        "/search?q=closed&format=json" => Reply::new(403, "", ""),
        "/search?q=html&format=json" => Reply::ok("text/html", "<html>"),
        "/search?q=none&format=json" => Reply::ok("application/json", r#"{"results": []}"#),
        "/search?q=moved&format=json" => Reply::to("http://10.0.0.1/"),
        path => panic!("{path}"),
    })
    .await;
    let house = place(SearchOptions::searxng(endpoint(&server, "/")));
    let found = house.call("websearch", &json!({"query": "ä b&c", "numResults": 2})).await.unwrap();
    assert_eq!(
        found.output,
        "## Title 1\nhttps://1.example/\npublished 2026-01-02\nÜber\nalles\n\n## Title 2\nhttps://2.example/"
    );
    assert_eq!(Value::Object(found.metadata), json!({"provider": "searxng", "numResults": 2}));
    assert_eq!(server.seen()[0].header("x-api-key"), Some("hunter2-hunter2"));
    for (query, expected) in
        [("closed", "search.formats"), ("html", "not what SearxNG says"), ("moved", "not followed")]
    {
        let error = house.call("websearch", &json!({"query": query})).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{query}: {error}");
    }
    let nothing = house.call("websearch", &json!({"query": "none"})).await.unwrap();
    assert_eq!(nothing.output, "nothing was found for \"none\"");
    let error = house.call("codesearch", &json!({"query": "x"})).await.unwrap_err();
    assert!(error.to_string().contains("use websearch"), "{error}");
    let below = place(SearchOptions::searxng(endpoint(&server, "/sub/")));
    below.call("websearch", &json!({"query": "x"})).await.unwrap();
}

#[tokio::test]
async fn without_a_backend_the_tools_say_so() {
    let house = Place::new(Registry::native());
    for tool in ["websearch", "codesearch"] {
        let error = house.call(tool, &json!({"query": "x"})).await.unwrap_err();
        assert!(matches!(error, ToolError::Failed(_)), "{error:?}");
        assert!(
            error.to_string().contains("there is no search here")
                && error.to_string().contains("[tools.web]")
        );
    }
    for (tool, input) in [
        ("websearch", json!({})),
        ("websearch", json!({"query": "  "})),
        ("websearch", json!({"query": "x".repeat(2001)})),
        ("websearch", json!({"query": "x", "numResults": 0})),
        ("websearch", json!({"query": "x", "numResults": 26})),
        ("websearch", json!({"query": "x", "numResults": "many"})),
        ("codesearch", json!({"query": "x", "tokensNum": 999})),
        ("codesearch", json!({"query": "x", "tokensNum": 50001})),
        ("codesearch", json!({"search": "x"})),
    ] {
        let error = house.call(tool, &input).await.unwrap_err();
        assert!(matches!(error, ToolError::Invalid(_)), "{input}: {error:?}");
    }
}

#[test]
fn endpoints_that_cannot_be_are_told_and_no_key_with_it() {
    for (url, name, value) in [
        ("mcp.exa.ai", "x", "y"),
        ("ftp://mcp.exa.ai/", "x", "y"),
        ("https://name:hunter2@mcp.exa.ai/", "x", "y"),
        ("https://mcp.exa.ai/", "two words", "hunter2"),
        ("https://mcp.exa.ai/", "x-api-key", "hunter2\n"),
    ] {
        let error = Endpoint::new(url, vec![(name.into(), value.into())]).unwrap_err().to_string();
        assert!(!error.is_empty() && !error.contains("hunter2"), "{error}");
    }
    assert!(Endpoint::new(SearchOptions::EXA, Vec::new()).is_ok());
    assert!(Endpoint::new("http://127.0.0.1:8080/", Vec::new()).is_ok());
}

#[test]
fn a_search_that_nobody_does_is_unavailable() {
    let endpoint = || Endpoint::new("http://127.0.0.1:1/", Vec::new()).unwrap();
    let tool = |name: &str| Some(name.to_owned());
    for (search, web, code) in [
        (SearchOptions::Off, false, false),
        (SearchOptions::exa(endpoint()), true, true),
        (SearchOptions::searxng(endpoint()), true, false),
        (SearchOptions::mcp(endpoint(), tool("find"), None), true, false),
        (SearchOptions::mcp(endpoint(), None, tool("find")), false, true),
    ] {
        let web_options = WebOptions { search, ..WebOptions::default() };
        let registry = Registry::native_with(NativeOptions { web: web_options, ..NativeOptions::default() });
        let available = |name: &str| registry.get(name).unwrap().unavailable().is_none();
        assert_eq!((available("websearch"), available("codesearch")), (web, code));
        let others = registry.iter().filter(|tool| !tool.spec().name.ends_with("search"));
        assert!(others.map(|tool| tool.unavailable()).all(|reason| reason.is_none()));
    }
}

//! `websearch` and `codesearch` against servers that speak the wire.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use playhouse_tools::web::{
    CodeSearch, Endpoint, SearchBackend, SearchError, SearchOptions, WebOptions, WebQuery, WebSearch,
};
use playhouse_tools::{NativeOptions, Registry, ToolError, Typed};
use serde_json::{Value, json};

use super::web_server::{Place, Reply, Server};

fn place(options: SearchOptions) -> Place {
    let mut registry = Registry::new();
    registry.add(Arc::new(Typed::new(WebSearch::new(options.clone())))).unwrap();
    registry.add(Arc::new(Typed::new(CodeSearch::new(options)))).unwrap();
    Place::new(registry)
}

fn endpoint(server: &Server, path: &str) -> Endpoint {
    Endpoint::new(&server.url(path), vec![("x-api-key".into(), "hunter2-hunter2".into())]).unwrap()
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
    let SearchOptions::Backend(itself) = SearchOptions::searxng(endpoint(&server, "/")) else { panic!() };
    let house = place(SearchOptions::Backend(Arc::new(Impatient(itself))));
    let input = json!({"query": "x"});
    let begun = Instant::now();
    let call = tokio::time::timeout(Duration::from_secs(30), house.call("websearch", &input));
    let error = call.await.expect("it is given up").unwrap_err();
    assert_eq!(error.to_string(), "the search with searxng took longer than 0.05 s");
    assert!(begun.elapsed() >= Duration::from_millis(50));

    let server = Server::start(|_| Reply::hanging("")).await;
    let house = place(SearchOptions::searxng(endpoint(&server, "/")));
    let call = house.call("websearch", &input);
    let cancel = async {
        server.asked.notified().await;
        house.context.cancel.cancel();
    };
    let (result, ()) = tokio::join!(call, cancel);
    assert_eq!(result, Err(ToolError::Cancelled(String::new())));
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
    assert!(Endpoint::new("http://127.0.0.1:8080/", Vec::new()).is_ok());
}

#[test]
fn a_search_that_nobody_does_is_unavailable() {
    let endpoint = || Endpoint::new("http://127.0.0.1:1/", Vec::new()).unwrap();
    for (search, web, code) in
        [(SearchOptions::Off, false, false), (SearchOptions::searxng(endpoint()), true, false)]
    {
        let web_options = WebOptions { search, ..WebOptions::default() };
        let registry = Registry::native_with(NativeOptions { web: web_options, ..NativeOptions::default() });
        let available = |name: &str| registry.get(name).unwrap().unavailable().is_none();
        assert_eq!((available("websearch"), available("codesearch")), (web, code));
        let others = registry.iter().filter(|tool| !tool.spec().name.ends_with("search"));
        assert!(others.map(|tool| tool.unavailable()).all(|reason| reason.is_none()));
    }
}

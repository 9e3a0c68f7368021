//! Servers that search for `websearch` and `codesearch`.

use std::sync::atomic::Ordering;

use playhouse_mcp::{EXA, SearchServer};
use playhouse_tools::web::{CodeQuery, Endpoint, SearchBackend, SearchError, SearchOptions, WebQuery};

use crate::web::WebServer;

fn backend(options: SearchOptions) -> std::sync::Arc<dyn SearchBackend> {
    let SearchOptions::Backend(backend) = options else { panic!("somebody searches") };
    backend
}

/// The server at this path, of which these tools search.
fn searching(server: &WebServer, path: &str, web: &str, code: Option<&str>) -> SearchOptions {
    let url = format!("http://127.0.0.1:{}{path}", server.port);
    let headers = vec![("Authorization".to_owned(), "Bearer hunter2".into())];
    let endpoint = Endpoint::new(&url, headers).unwrap();
    SearchServer::options(endpoint, Some(web.to_owned()), code.map(str::to_owned))
}

async fn search(options: SearchOptions) -> Result<String, SearchError> {
    backend(options).web(&WebQuery { query: "rust 2024".into(), num_results: 3 }).await
}

#[tokio::test]
async fn a_tool_of_a_server_searches_over_one_connection() {
    let server = WebServer::start().await;
    let backend = backend(searching(&server, "/mcp?profile=7", "json", Some("sse")));
    assert!(backend.has_web() && backend.has_code());
    for _ in 0..2 {
        let query = WebQuery { query: "rust 2024".into(), num_results: 3 };
        assert_eq!(backend.web(&query).await.unwrap(), "plain");
    }
    let query = CodeQuery { query: "axum state".into(), tokens_num: 5_000 };
    assert_eq!(backend.code(&query).await.unwrap(), "streamed");
    assert_eq!(server.all(|seen| seen.says() == "initialize").len(), 1);
    let calls = server.all(|seen| seen.says() == "tools/call");
    assert_eq!(
        calls[0].body["params"]["arguments"],
        serde_json::json!({"query": "rust 2024", "numResults": 3})
    );
    assert_eq!(
        calls[2].body["params"]["arguments"],
        serde_json::json!({"query": "axum state", "tokensNum": 5_000})
    );
    assert!(calls.iter().all(|seen| seen.header("authorization") == Some("Bearer hunter2")));
    // It forgets the session, which is begun again.
    server.forgets.store(true, Ordering::SeqCst);
    assert_eq!(search(searching(&server, "/mcp", "json", None)).await.unwrap(), "plain");
}

#[tokio::test]
async fn what_goes_wrong_is_told_and_no_key_with_it() {
    let server = WebServer::start().await;
    for (path, tool, said) in [
        ("/broken", "json", "500"),
        ("/closed", "json", "401"),
        ("/away", "json", "not followed"),
        ("/mcp", "refuse", "an error"),
        ("/mcp?profile=secret", "cut", "at http://127.0.0.1"),
    ] {
        let error = search(searching(&server, path, tool, None)).await.unwrap_err().to_string();
        assert!(error.contains(said) && error.len() < 1_500, "{path} {tool}: {error}");
        assert!(!error.contains("hunter2") && !error.contains("profile"), "{path} {tool}: {error}");
    }
    let query = CodeQuery { query: "x".into(), tokens_num: 5_000 };
    let error = backend(searching(&server, "/mcp", "json", None)).code(&query).await.unwrap_err();
    assert!(error.to_string().contains("no search for code"), "{error}");
    let exa = backend(SearchServer::exa(Endpoint::new(EXA, Vec::new()).unwrap()));
    assert!(exa.name() == "exa" && exa.has_web() && exa.has_code());
}

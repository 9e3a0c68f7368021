//! Connections to servers behind addresses.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use playhouse_mcp::{CallError, CallRequest, Connection, OpenError, Protocol};
use playhouse_tools::Host;
use serde_json::json;
use tokio::time::timeout;

use crate::stage::{PATIENCE, Person, call, place, request, text_of, watched};
use crate::web::{Seen, WebServer, place_with_loopback};

async fn open(server: &WebServer, path: &str) -> Result<Connection, OpenError> {
    Ok(Connection::open(&server.entry(path), &place_with_loopback()).await?.0)
}

fn is_call(seen: &Seen) -> bool {
    seen.says() == "tools/call"
}

#[tokio::test]
async fn answers_are_json_or_streams_and_the_session_is_named() {
    let server = WebServer::start().await;
    let connection = open(&server, "/mcp").await.unwrap();
    assert_eq!(connection.server_info(), Some(("web", "1")));
    assert_eq!(connection.listing().await.unwrap().tools[0].name, "json");
    assert_eq!(call(&connection, "json").await.unwrap(), "plain");
    let (streamed, mut told) = watched(request("sse", json!({})));
    assert_eq!(text_of(connection.call(streamed).await.unwrap()), "streamed");
    assert_eq!(told.recv().await.unwrap().message.as_deref(), Some("half"));
    let greeting = &server.all(|seen| seen.says() == "initialize")[0];
    assert_eq!((greeting.header("mcp-session-id"), greeting.header("mcp-protocol-version")), (None, None));
    for seen in server.all(|seen| seen.says() != "initialize") {
        assert_eq!(seen.header("mcp-session-id"), Some("s1"), "{seen:?}");
        assert_eq!(seen.header("mcp-protocol-version"), Some("2025-11-25"), "{seen:?}");
        assert_eq!(seen.header("authorization"), Some("Bearer hunter2"), "{seen:?}");
    }
    connection.shutdown().await;
    let ended = server.all(|seen| seen.method == "DELETE");
    assert_eq!((ended.len(), ended[0].header("mcp-session-id")), (1, Some("s1")));
    assert!(matches!(call(&connection, "json").await, Err(CallError::Ended(_))));
}

#[tokio::test]
async fn what_it_says_by_itself_is_heard() {
    let server = WebServer::start().await;
    let connection = open(&server, "/mcp").await.unwrap();
    let mut changed = connection.changed();
    timeout(PATIENCE, changed.wait_for(|changes| *changes > 0)).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_question_of_it_is_put_to_whoever_calls() {
    let server = WebServer::start().await;
    let connection = open(&server, "/mcp").await.unwrap();
    let person = Arc::new(Person { name: "me".into(), ..Person::default() });
    let host = Some(Arc::<Person>::clone(&person) as Arc<dyn Host>);
    let ask = CallRequest { host, ..request("ask", json!({})) };
    let answer = text_of(connection.call(ask).await.unwrap());
    assert_eq!(answer, r#"{"action":"accept","content":{"name":"me"}}"#);
}

#[tokio::test]
async fn a_private_address_is_refused_unless_it_is_allowed() {
    let server = WebServer::start().await;
    let Err(error) = Connection::open(&server.entry("/mcp"), &place()).await else {
        panic!("it was reached")
    };
    assert!(matches!(error, OpenError::Permanent(_)), "{error:?}");
    assert!(error.to_string().contains("allow_private"), "{error}");
    assert!(server.all(|_| true).is_empty());
}

#[tokio::test]
async fn a_redirect_is_followed_within_the_origin_only() {
    let server = WebServer::start().await;
    let connection = open(&server, "/moved").await.unwrap();
    assert_eq!(call(&connection, "json").await.unwrap(), "plain");
    let Err(error) = open(&server, "/away").await else { panic!("it was followed") };
    assert!(matches!(error, OpenError::Permanent(_)), "{error:?}");
    assert!(error.to_string().contains("redirects to http://127.0.0.2"), "{error}");
}

#[tokio::test]
async fn an_authorization_that_is_wanted_is_told() {
    let server = WebServer::start().await;
    let Err(error) = open(&server, "/closed").await else { panic!("it was open") };
    let challenge = Some(r#"Bearer resource_metadata="https://x/y""#.to_owned());
    assert_eq!(error, OpenError::Unauthorized { challenge });
    assert!(error.to_string().contains("authorization is needed"), "{error}");
}

#[tokio::test]
async fn errors_say_what_failed_without_secrets() {
    let server = WebServer::start().await;
    let Err(error) = open(&server, "/broken").await else { panic!("it worked") };
    assert_eq!(error, OpenError::Transient("it answers 500: your token … broke it".into()));
    let Err(error) = open(&server, "/old").await else { panic!("it worked") };
    assert!(error.to_string().contains("405: only GET"), "{error}");
    let nowhere = WebServer::start().await;
    let mut entry = nowhere.entry("/mcp");
    let playhouse_mcp::Transport::Http(http) = &mut entry.transport else { panic!("it is an address") };
    http.url = "http://127.0.0.1:1/mcp".into();
    let Err(error) = Connection::open(&entry, &place_with_loopback()).await else { panic!("it was reached") };
    assert!(
        matches!(error, OpenError::Transient(_)) && error.to_string().contains("cannot be reached"),
        "{error}"
    );
    let connection = open(&server, "/mcp").await.unwrap();
    assert_eq!(call(&connection, "refuse").await, Err(CallError::Refused("not so".into())));
}

#[tokio::test]
async fn a_hang_ends_at_the_deadline_and_the_next_call_works() {
    let server = WebServer::start().await;
    let connection = open(&server, "/mcp").await.unwrap();
    for tool in ["hang", "silent"] {
        let mut hang = request(tool, json!({}));
        hang.timeout = Some(Duration::from_millis(300));
        assert!(matches!(connection.call(hang).await, Err(CallError::TimedOut(_))), "{tool}");
    }
    assert_eq!(call(&connection, "json").await.unwrap(), "plain");
    let cancelled = async {
        while server.all(|seen| seen.says() == "notifications/cancelled").len() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, cancelled).await.unwrap();
    // So does a greeting.
    let mut entry = server.entry("/mcp");
    entry.start_timeout = Duration::ZERO;
    assert!(Connection::open(&entry, &place_with_loopback()).await.is_err());
}

#[tokio::test]
async fn a_stream_that_is_cut_fails_its_call_or_is_resumed() {
    let server = WebServer::start().await;
    let connection = open(&server, "/mcp").await.unwrap();
    let error = call(&connection, "cut").await.unwrap_err();
    assert!(matches!(error, CallError::Failed(_)), "{error:?}");
    assert!(error.to_string().contains("before the answer came"), "{error}");
    assert_eq!(call(&connection, "resume").await.unwrap(), "resumed");
    let resumed = server.all(|seen| seen.header("last-event-id").is_some());
    assert_eq!((resumed.len(), resumed[0].method.as_str()), (1, "GET"));
    assert_eq!(call(&connection, "json").await.unwrap(), "plain");
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_not_read() {
    let server = WebServer::start().await;
    let connection = open(&server, "/mcp").await.unwrap();
    let error = call(&connection, "large").await.unwrap_err().to_string();
    assert!(error.contains("larger than 16777216 bytes"), "{error}");
    let error = call(&connection, "flood").await.unwrap_err().to_string();
    assert!(error.contains("is longer than 16 MB and was dropped"), "{error}");
    assert_eq!(connection.diagnosis().too_long, 1);
    assert_eq!(call(&connection, "json").await.unwrap(), "plain");
}

#[tokio::test]
async fn a_session_that_is_forgotten_is_begun_anew() {
    let server = WebServer::start().await;
    let connection = open(&server, "/mcp").await.unwrap();
    assert_eq!(call(&connection, "json").await.unwrap(), "plain");
    server.forgets.store(true, Ordering::SeqCst);
    assert_eq!(call(&connection, "json").await.unwrap(), "plain");
    assert_eq!(server.all(|seen| seen.says() == "initialize").len(), 2);
    let sessions: Vec<String> =
        server.all(is_call).iter().map(|seen| seen.header("mcp-session-id").unwrap().to_owned()).collect();
    assert_eq!(sessions, ["s1", "s1", "s2"]);
    assert_eq!(server.all(|seen| seen.says() == "notifications/initialized").len(), 2);
}

#[tokio::test]
async fn the_later_protocol_names_requests_in_headers() {
    let server = WebServer::start().await;
    let mut entry = server.entry("/mcp");
    entry.protocol = Protocol::Discover;
    let connection = Connection::open(&entry, &place_with_loopback()).await.unwrap().0;
    assert_eq!(call(&connection, "jsön").await.unwrap(), "jsön");
    let seen = &server.all(is_call)[0];
    assert_eq!(seen.header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(seen.header("mcp-method"), Some("tools/call"));
    assert_eq!(seen.header("mcp-name"), Some("=?base64?anPDtm4=?="));
    connection.shutdown().await;
    assert!(server.all(|seen| seen.method != "POST").is_empty());
}

//! What a connection may do, and what every answer has.

use std::time::Duration;

use mock_llm::Script;
use playhouse_server::{Listen, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{PATIENCE, Served, Site};

const SHORT: Duration = Duration::from_millis(100);

async fn served() -> Served {
    let change = |options: &mut playhouse_server::ServerOptions| {
        options.head_time = SHORT;
        options.write_time = SHORT;
        options.body = 1_000;
        options.connections = 4;
    };
    Site::new().serve(Script::new(), change).await
}

/// Waits until the server has closed the connection.
async fn closed(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
    // The end and a reset are both one.
    drop(read.expect("the server closes the connection"));
}

#[tokio::test]
async fn hundreds_that_connect_at_once_need_not_try_again() {
    let app = Site::new().app(Script::new(), |_| {}).await;
    // It accepts nothing yet: this is how it looks to all who come while it is busy.
    let server = Server::bind(app, Listen::Tcp("127.0.0.1:0".parse().unwrap())).await.unwrap();
    let address = server.address().unwrap();
    // The system's second try comes after a second.
    let connect = |_| std::net::TcpStream::connect_timeout(&address, Duration::from_millis(900));
    let connected: Result<Vec<_>, _> = (0..200).map(connect).collect();
    // Fewer where the system allows fewer: Linux 4,096 from 5.4 on.
    connected.expect("200 connections can wait, as net.core.somaxconn has to allow");
}

#[tokio::test]
async fn a_head_that_trickles_is_cut_off() {
    let served = served().await;
    // One sends a byte now and then, one nothing at all.
    let mut silent = TcpStream::connect(served.address).await.unwrap();
    let (mut read, mut write) = TcpStream::connect(served.address).await.unwrap().into_split();
    let trickle = tokio::spawn(async move {
        for byte in b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: ".iter().chain(std::iter::repeat(&b'x'))
        {
            if write.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let mut rest = Vec::new();
    let read = tokio::time::timeout(PATIENCE, read.read_to_end(&mut rest)).await;
    drop(read.expect("the server closes the connection"));
    closed(&mut silent).await;
    tokio::time::timeout(PATIENCE, trickle).await.expect("nobody reads it any more").unwrap();
    assert_eq!(served.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_connection_that_is_kept_and_not_used_is_closed_after_its_time() {
    let served = served().await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    for _ in 0..2 {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200", "it is kept for the next request");
        // The rest of the answer.
        let mut byte = [0; 1];
        let mut end = Vec::new();
        while !end.ends_with(b"ok\n") {
            stream.read_exact(&mut byte).await.unwrap();
            end.extend(byte);
        }
    }
    closed(&mut stream).await;
    assert_eq!(served.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_body_that_trickles_is_cut_off() {
    let served = served().await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let head = "POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                content-length: 100\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    closed(&mut stream).await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_cut_off_and_its_seat_is_free_again() {
    let served = served().await;
    let mut streams = Vec::new();
    for _ in 0..4 {
        streams.push(TcpStream::connect(served.address).await.unwrap());
    }
    for mut stream in streams {
        // More answers than the system keeps for a client that does not read them.
        let requests = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(1_000);
        let ask = async { while stream.write_all(requests.as_bytes()).await.is_ok() {} };
        tokio::time::timeout(PATIENCE, ask).await.expect("the server cuts it off");
    }
    assert_eq!(served.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn there_are_no_more_connections_than_seats() {
    let change = |options: &mut playhouse_server::ServerOptions| options.connections = 2;
    let served = Site::new().serve(Script::new(), change).await;
    let mut seated = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        seated.push(stream);
    }
    // The third one waits until one of them leaves.
    let mut waiting = TcpStream::connect(served.address).await.unwrap();
    waiting.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = [0; 12];
    tokio::time::timeout(SHORT, waiting.read_exact(&mut answer)).await.unwrap_err();
    assert_eq!(served.app.overloads().len(), 1);
    drop(seated);
    let read = tokio::time::timeout(PATIENCE, waiting.read_exact(&mut answer)).await;
    read.expect("there is a seat").unwrap();
}

#[tokio::test]
async fn whoever_asks_a_server_of_one_connection_hears_that_it_is_ready() {
    let change = |options: &mut playhouse_server::ServerOptions| options.connections = 1;
    let served = Site::new().serve(Script::new(), change).await;
    assert_eq!(served.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_whether_it_says_so_or_not() {
    let served = served().await;
    let large = format!("{{\"title\": \"{}\"}}", "x".repeat(2_000));
    let answer = served.ask("POST", "/v1/sessions", &[], &large).await;
    assert_eq!((answer.problem().as_str(), answer.status), ("too-large", 413));
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let head = "POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                transfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    let chunked = format!("{head}{:x}\r\n{large}\r\n0\r\n\r\n", large.len());
    stream.write_all(chunked.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
}

#[tokio::test]
async fn whoever_writes_all_of_a_large_body_before_it_reads_is_told_that_it_is_too_large() {
    let served = served().await;
    for path in ["/v1/sessions", "/v1/nowhere"] {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        let size = 20 * 1024 * 1024;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {size}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![b'x'; size]).await.expect("it is not cut off");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("the answer is there");
        assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    }
}

#[tokio::test]
async fn a_refused_client_that_writes_on_is_left_after_a_while() {
    let served = served().await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let head = "POST /v1/nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    read.expect("it is told that nothing more comes").unwrap();
    let write = async { while stream.write_all(&[b'x'; 1_000]).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, write).await.expect("it is cut off in the end");
}

#[tokio::test]
async fn what_is_not_there_is_a_problem_document() {
    let served = served().await;
    let unknown = served.get("/v1/nowhere").await;
    assert_eq!((unknown.problem().as_str(), unknown.status), ("not-found", 404));
    let wrong = served.ask("DELETE", "/healthz", &[], "").await;
    assert_eq!((wrong.problem().as_str(), wrong.status), ("method-not-allowed", 405));
    assert!(wrong.header("allow").is_some_and(|allow| allow.contains("GET")), "{wrong:?}");
    assert_eq!(served.get("/metrics").await.problem(), "not-found");
    let broken = served.ask("POST", "/v1/sessions", &[], "{").await;
    assert_eq!((broken.problem().as_str(), broken.status), ("invalid", 400));
}

#[tokio::test]
async fn every_answer_carries_the_id_of_its_request() {
    let served = served().await;
    let given = served.ask("GET", "/nowhere", &[("x-request-id", "mine-1")], "").await;
    assert_eq!(given.header("x-request-id"), Some("mine-1"));
    let bad = served.ask("GET", "/healthz", &[("x-request-id", "not an id")], "").await;
    let made = bad.header("x-request-id").unwrap();
    assert!(made.starts_with("req_") && made.len() == 20, "{made}");
    let refused = served.ask("GET", "/healthz", &[("host", "evil.example")], "").await;
    assert!(refused.status == 403 && refused.header("x-request-id").is_some());
}

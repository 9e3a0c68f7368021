//! The transport over real sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use playhouse_llm::{
    AnswerStream, Connections, DialectKind, Endpoint, Http2, HttpTransport, Limits, StreamEvent, send,
};
use playhouse_protocol::ErrorInfo;
use playhouse_protocol::error::ErrorCode;
use playhouse_protocol::message::FinishReason;

use crate::openai_chat;
use crate::support::{KEY, MODEL, attempt, endpoint, merge, read};

const BODY: &str = r#"{"model":"acme-1","messages":[]}"#;

/// A server that reads one request after the other on one connection, and answers each with the next of `answers`.
/// Gives back the requests.
fn serve(answers: Vec<Vec<u8>>) -> (SocketAddr, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        answers
            .into_iter()
            .map(|answer| {
                let request = read_request(&mut connection);
                connection.write_all(&answer).unwrap();
                request
            })
            .collect()
    });
    (address, server)
}

fn read_request(connection: &mut TcpStream) -> String {
    let mut request = Vec::new();
    while !request.ends_with(BODY.as_bytes()) {
        let mut byte = [0];
        connection.read_exact(&mut byte).unwrap();
        request.push(byte[0]);
    }
    String::from_utf8(request).unwrap()
}

/// An answer whose body is sent in chunks.
fn chunked(chunks: &[&str]) -> Vec<u8> {
    let mut answer =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_owned();
    for chunk in chunks {
        answer += &format!("{:x}\r\n{chunk}\r\n", chunk.len());
    }
    answer.into_bytes()
}

fn endpoint_at(address: SocketAddr) -> Endpoint {
    Endpoint { base_url: format!("http://{address}/v1"), ..endpoint(DialectKind::OpenaiChat) }
}

async fn ask(transport: &HttpTransport, endpoint: &Endpoint) -> Result<AnswerStream, ErrorInfo> {
    send(transport, endpoint, MODEL, attempt(), Bytes::from_static(BODY.as_bytes()), Limits::default()).await
}

#[tokio::test]
async fn an_answer_arrives_and_the_connection_serves_the_next_request() {
    let stream = openai_chat::everything();
    let (left, right) = stream.split_at(stream.len() / 2);
    let answer = [chunked(&[left, right]), b"0\r\n\r\n".to_vec()].concat();
    let (address, server) = serve(vec![answer.clone(), answer]);
    let transport = HttpTransport::new();
    for _ in 0..2 {
        let (batches, end) = read(ask(&transport, &endpoint_at(address)).await.unwrap()).await;
        assert_eq!(merge(batches.concat()), openai_chat::everything_decoded());
        assert_eq!(end.unwrap().finish, FinishReason::ToolCalls);
    }
    let requests = server.join().unwrap();
    for line in [
        "POST /v1/chat/completions HTTP/1.1\r\n",
        &format!("authorization: Bearer {KEY}\r\n"),
        "content-type: application/json\r\n",
        &format!("x-playhouse-attempt: {}\r\n", attempt()),
    ] {
        assert!(requests[1].contains(line), "{line} in {}", requests[1]);
    }
}

#[tokio::test]
async fn what_an_address_names_before_its_host_goes_along_unless_there_is_a_key() {
    let answer = [chunked(&[&openai_chat::everything()]), b"0\r\n\r\n".to_vec()].concat();
    for (key, expected) in [(None, "Basic YWRhOnBAdw==".to_owned()), (Some(KEY), format!("Bearer {KEY}"))] {
        let (address, server) = serve(vec![answer.clone()]);
        let base_url = format!("http://ada:p%40w@{address}/v1");
        let endpoint = Endpoint { base_url, key: key.map(Into::into), ..endpoint_at(address) };
        read(ask(&HttpTransport::new(), &endpoint).await.unwrap()).await.1.unwrap();
        let request = server.join().unwrap().remove(0);
        assert!(request.contains(&format!("authorization: {expected}\r\n")), "{request}");
        assert!(request.contains(&format!("host: {address}\r\n")), "{request}");
    }
}

#[tokio::test]
async fn a_refusal_is_read() {
    let body = r#"{"error":{"message":"slow down","type":"rate_limit_error"}}"#;
    let head = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 3\r\ncontent-type: application/json\r\n";
    let (address, server) =
        serve(vec![format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()]);
    let error = ask(&HttpTransport::new(), &endpoint_at(address)).await.unwrap_err();
    assert_eq!(
        (error.code, error.status, error.retry_after_ms),
        (ErrorCode::RateLimited, Some(429), Some(3000))
    );
    assert!(error.message.contains("slow down"), "{error}");
    server.join().unwrap();
}

#[tokio::test]
async fn a_page_is_no_answer() {
    let page = "<html><head><title>hello</title></head></html>";
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n";
    let (address, server) = serve(vec![format!("{head}{page}").into_bytes()]);
    let error = ask(&HttpTransport::new(), &endpoint_at(address)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::BadAnswer);
    assert!(error.message.contains("an HTML page titled \"hello\""), "{error}");
    server.join().unwrap();
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let head =
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://elsewhere.test/v1\r\ncontent-length: 0\r\n\r\n";
    let (address, server) = serve(vec![head.as_bytes().to_vec()]);
    let error = ask(&HttpTransport::new(), &endpoint_at(address)).await.unwrap_err();
    assert_eq!((error.code, error.status), (ErrorCode::BadRequest, Some(307)));
    assert!(error.message.contains("http://elsewhere.test/v1"), "{error}");
    server.join().unwrap();
}

#[tokio::test]
async fn a_connection_that_breaks_in_the_middle_cuts_the_stream() {
    let stream = openai_chat::everything();
    let first_events: String = stream.split_inclusive("\n\n").take(4).collect();
    let (address, server) = serve(vec![chunked(&[&first_events])]);
    let (batches, end) = read(ask(&HttpTransport::new(), &endpoint_at(address)).await.unwrap()).await;
    assert!(!batches.concat().is_empty(), "what came is kept");
    let error = end.unwrap_err();
    assert_eq!(error.code, ErrorCode::StreamCut);
    assert!(error.message.contains(&address.to_string()), "{error}");
    server.join().unwrap();
}

#[tokio::test]
async fn a_connection_that_closes_without_an_answer_may_have_been_worked_on() {
    let (address, server) = serve(vec![Vec::new()]);
    let error = ask(&HttpTransport::new(), &endpoint_at(address)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::NoAnswer);
    assert!(error.message.contains("broke before an answer began"), "{error}");
    server.join().unwrap();
}

#[tokio::test]
async fn a_refused_connection_names_the_address_and_asks_for_the_server() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = ask(&HttpTransport::new(), &endpoint_at(address)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Connection);
    assert!(error.message.starts_with("acme: "), "{error}");
    assert!(error.message.contains(&address.to_string()), "{error}");
    assert!(error.message.ends_with("is the server running?"), "{error}");
}

/// A server whose queue of connections is full drops what else comes, as one behind a firewall does.
#[tokio::test]
async fn a_server_that_takes_no_connection_is_given_up() {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let knock = || TcpStream::connect_timeout(&address, Duration::from_millis(200));
    let waiting: Vec<TcpStream> = (0..64).map_while(|_| knock().ok()).collect();
    assert!(waiting.len() < 64, "the test needs a system that bounds the queue of a listener");
    let connections = Connections { connect: Duration::from_millis(50), ..Connections::default() };
    let endpoint = Endpoint { connections, ..endpoint_at(address) };
    let error = ask(&HttpTransport::new(), &endpoint).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Connection);
    assert!(error.message.contains(&format!("could not connect to http://{address}")), "{error}");
    assert!(error.message.contains("within 0.05 s"), "{error}");
}

/// Nothing more comes of the server, so that nothing else would tell the connection that nobody reads from it.
#[tokio::test]
async fn a_connection_whose_answer_is_given_up_at_a_chunk_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        read_request(&mut connection);
        let second = Duration::from_secs(1);
        connection.set_read_timeout(Some(5 * second)).unwrap();
        for part in [chunked(&[]), b"12\r\ndata: no JSON {{\n\n\r\n".to_vec()] {
            connection.write_all(&part).unwrap();
            std::thread::sleep(second / 10);
        }
        matches!(connection.read(&mut [0]), Ok(0))
    });
    let transport = HttpTransport::new();
    let (_, end) = read(ask(&transport, &endpoint_at(address)).await.unwrap()).await;
    assert!(end.is_err());
    assert!(tokio::task::spawn_blocking(|| server.join().unwrap()).await.unwrap(), "it stays open");
    drop(transport);
}

#[tokio::test]
async fn a_server_that_does_not_speak_http2_is_said_not_to() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut preface = [0; 24];
        connection.read_exact(&mut preface).unwrap();
        connection.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").unwrap();
        // Until the client gives up: what it writes to a closed connection could break before it has read the answer.
        let mut rest = Vec::new();
        drop(connection.read_to_end(&mut rest));
        preface
    });
    let connections = Connections { http2: Http2::PriorKnowledge, ..Connections::default() };
    let endpoint = Endpoint { connections, ..endpoint_at(address) };
    let error = ask(&HttpTransport::new(), &endpoint).await.unwrap_err();
    assert_eq!(&server.join().unwrap(), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_eq!(error.code, ErrorCode::NoAnswer);
    assert!(error.message.contains("does the server speak HTTP/2?"), "{error}");
}

#[tokio::test]
async fn addresses_and_keys_that_cannot_be_used_are_named_but_not_shown() {
    let transport = HttpTransport::new();
    let base = endpoint(DialectKind::OpenaiChat);
    for (base_url, code) in [
        ("api.acme.test/v1", ErrorCode::Misconfigured),
        ("ftp://user:hidden@api.acme.test", ErrorCode::Misconfigured),
        ("https://user:hidden@api.acme.test:99999/v1", ErrorCode::Misconfigured),
        // The path of the dialect becomes the host.
        ("http://", ErrorCode::Connection),
        ("", ErrorCode::Misconfigured),
    ] {
        let error =
            ask(&transport, &Endpoint { base_url: base_url.into(), ..base.clone() }).await.unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert!(error.message.contains("base_url") && !error.message.contains("hidden"), "{error}");
    }
    let error = ask(&transport, &Endpoint { key: Some("a\nb".into()), ..base }).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Authentication);
    assert!(error.message.contains("ACME_API_KEY") && !error.message.contains("a\nb"), "{error}");
}

#[tokio::test]
async fn a_compressed_answer_is_read() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(openai_chat::everything().as_bytes()).unwrap();
    let body = encoder.finish().unwrap();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let (address, server) = serve(vec![[head.as_bytes(), &body].concat()]);
    let (batches, end) = read(ask(&HttpTransport::new(), &endpoint_at(address)).await.unwrap()).await;
    assert_eq!(merge(batches.concat()), openai_chat::everything_decoded());
    assert_eq!(end.unwrap().finish, FinishReason::ToolCalls);
    let request = server.join().unwrap().remove(0);
    assert!(request.contains("accept-encoding: identity\r\n"), "compression is not asked for: {request}");
}

#[tokio::test]
async fn a_name_that_does_not_exist_is_said_to_be_unknown() {
    let endpoint =
        Endpoint { base_url: "http://playhouse.invalid/v1".into(), ..endpoint(DialectKind::OpenaiChat) };
    let error = ask(&HttpTransport::new(), &endpoint).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Connection);
    assert!(
        error.message.contains("http://playhouse.invalid/v1/chat/completions: its name was not found"),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_without_tls_is_told_from_one_that_is_down() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        // Drains the greeting, so that closing does not reset the connection before the answer is read.
        let mut greeting = [0; 4096];
        let _ = connection.read(&mut greeting).unwrap();
        connection.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").unwrap();
    });
    let endpoint =
        Endpoint { base_url: format!("https://{address}/v1"), ..endpoint(DialectKind::OpenaiChat) };
    let error = ask(&HttpTransport::new(), &endpoint).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Misconfigured, "{error}");
    assert!(
        error.message.contains("does not speak TLS"),
        "the test needs CA certificates on the machine: {error}"
    );
    server.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_that_come_together_are_read_together() {
    let event = |text: &str| {
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    };
    let texts: Vec<String> = (0..50).map(|number| format!("{number} ")).collect();
    let events: Vec<String> = texts.iter().map(|text| event(text)).collect();
    let chunks: Vec<&str> = events.iter().map(String::as_str).collect();
    let (address, server) = serve(vec![[chunked(&chunks), b"0\r\n\r\n".to_vec()].concat()]);
    let mut stream = ask(&HttpTransport::new(), &endpoint_at(address)).await.unwrap();
    let mut pieces = Vec::new();
    let more = stream.next(&mut pieces).await.unwrap();
    assert!(!more, "{pieces:?}");
    assert_eq!(pieces[0], StreamEvent::Text(texts.concat()));
    server.join().unwrap();
}

//! Over real sockets, read byte by byte.

use std::io::ErrorKind;
use std::time::Duration;

use mock_llm::{
    Cut, Fault, Framing, JournalOptions, Mock, MockOptions, Model, Moment, Outcome, Script, Server, Step,
    text,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{
    CHAT, MESSAGES, RESPONSES, ask, chat, gemini, gemini_path, gemini_prompt, messages, prompt, responses,
};

/// Nothing here takes long: a read that waits so long waits for ever.
const HANG: Duration = Duration::from_secs(60);

async fn start(step: Step) -> (Mock, Server) {
    let script = Script::new().model("m", Model::new().step(step));
    let mock = Mock::with_options(
        script,
        MockOptions { journal: JournalOptions::default(), ..MockOptions::default() },
    )
    .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = mock.serve(listener).unwrap();
    (mock, server)
}

fn head(method: &str, path: &str, length: usize) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: mock\r\nX-Playhouse-Attempt: att_9\r\ncontent-length: {length}\r\n\r\n"
    )
}

async fn send(server: &Server, path: &str, request: &Value) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let body = request.to_string();
    stream.write_all((head("POST", path, body.len()) + &body).as_bytes()).await.unwrap();
    stream
}

/// Reads until `end` was read.
async fn read_to(stream: &mut TcpStream, end: &str) -> String {
    String::from_utf8(read_bytes_to(stream, end).await).unwrap()
}

/// The same, where characters may be split.
async fn read_bytes_to(stream: &mut TcpStream, end: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end.as_bytes()) {
        let mut some = [0; 4096];
        let read = tokio::time::timeout(HANG, stream.read(&mut some)).await;
        let count = read.expect("the answer goes on").unwrap();
        assert!(count > 0, "it ended before {end:?}: {}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&some[..count]);
    }
    bytes
}

/// The body of a chunked answer.
fn unchunk(answer: &str) -> String {
    let (_, mut rest) = answer.split_once("\r\n\r\n").unwrap();
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        body += &after[..size];
        rest = &after[size + 2..];
    }
    body
}

/// The same, as far as it came.
fn unchunk_open(answer: &str) -> String {
    let complete = answer.rfind("\r\n").map_or("", |end| &answer[..end + 2]);
    match complete.contains("\r\n\r\n") {
        true => unchunk(complete),
        false => String::new(),
    }
}

#[tokio::test]
async fn the_socket_carries_what_is_said_in_process() {
    let (mock, server) = start(text("one two three")).await;
    for (path, request) in [
        (MESSAGES, messages("m", prompt())),
        (CHAT, chat("tokens-3000", prompt())),
        (RESPONSES, responses("tokens-3000", prompt())),
        (&gemini_path("tokens-3000"), gemini(gemini_prompt())),
    ] {
        let mut stream = send(&server, path, &request).await;
        let answer = read_to(&mut stream, "\r\n0\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("content-type: text/event-stream"), "{answer}");
        assert_eq!(unchunk(&answer), ask(&mock, path, &request).await.text);
    }
    let entry = &mock.journal().entries()[0];
    assert_eq!((entry.attempt.as_deref(), entry.outcome), (Some("att_9"), Outcome::Complete));
    server.shutdown().await;
}

#[tokio::test]
async fn a_connection_serves_many_requests() {
    let (mock, server) = start(text("one")).await;
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let body = chat("m", prompt()).to_string();
    for _ in 0..3 {
        stream.write_all((head("POST", CHAT, body.len()) + &body).as_bytes()).await.unwrap();
        read_to(&mut stream, "\r\n0\r\n\r\n").await;
    }
    assert_eq!(mock.journal().count(), 3);
}

#[tokio::test]
async fn a_cut_is_an_end_and_a_reset_is_a_reset() {
    let (_mock, server) = start(text("one two three").fault(Fault::cut(4, Cut::Eof))).await;
    let mut stream = send(&server, MESSAGES, &messages("m", prompt())).await;
    let answer = read_to(&mut stream, "\r\n0\r\n\r\n").await;
    assert_eq!(unchunk(&answer).matches("\n\n").count(), 4);

    for after in [0, 4] {
        let (mock, server) = start(text("one two three").fault(Fault::cut(after, Cut::Reset))).await;
        let mut stream = send(&server, MESSAGES, &messages("m", prompt())).await;
        let mut answer = Vec::new();
        let error = stream.read_to_end(&mut answer).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer:?}");
        assert_eq!(answer.matches("\n\n").count() as u64, after, "{answer}");
        let ended = mock.journal().wait_until(|entries| entries[0].outcome != Outcome::Open).await;
        assert_eq!(ended[0].outcome, Outcome::Cut);
    }
}

/// A request for the model `m` in every format.
fn in_every_format() -> [(String, Value); 4] {
    [
        (MESSAGES.to_owned(), messages("m", prompt())),
        (CHAT.to_owned(), chat("m", prompt())),
        (RESPONSES.to_owned(), responses("m", prompt())),
        (gemini_path("m"), gemini(gemini_prompt())),
    ]
}

#[tokio::test]
async fn every_format_breaks_at_every_moment() {
    for at in [Moment::FirstToken, Moment::InText, Moment::InArguments, Moment::FinalEvent] {
        for how in [Cut::Eof, Cut::Reset] {
            let step = text("one two").call("read", json!({"filePath": "a", "limit": 5}));
            let (mock, server) = start(step.fault(Fault::cut(at, how))).await;
            for (path, request) in in_every_format() {
                let expected = ask(&mock, &path, &request).await.text;
                let mut stream = send(&server, &path, &request).await;
                let mut bytes = Vec::new();
                let body = match how {
                    Cut::Eof => unchunk(&read_to(&mut stream, "0\r\n\r\n").await),
                    Cut::Reset => {
                        let error = stream.read_to_end(&mut bytes).await.unwrap_err();
                        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                        unchunk(std::str::from_utf8(&bytes).unwrap())
                    }
                };
                assert_eq!(body, expected, "{path} {at:?} {how:?}");
            }
        }
    }
}

#[tokio::test]
async fn bytes_that_come_one_by_one_are_all_there() {
    let framing = Framing { comments: true, ..Framing::split(1) };
    let (mock, server) = start(text("één 🏠").framing(framing)).await;
    for (path, request) in in_every_format() {
        let mut stream = send(&server, &path, &request).await;
        let answer = read_bytes_to(&mut stream, "\r\n0\r\n\r\n").await;
        let head = answer.windows(4).position(|some| some == b"\r\n\r\n").unwrap();
        let mut rest = &answer[head + 4..];
        let mut body = Vec::new();
        while let [b'1', b'\r', b'\n', byte, b'\r', b'\n', after @ ..] = rest {
            body.push(*byte);
            rest = after;
        }
        assert_eq!(rest, b"0\r\n\r\n");
        assert_eq!(String::from_utf8(body).unwrap(), ask(&mock, &path, &request).await.text);
    }
}

#[tokio::test]
async fn an_answer_that_never_ends_is_over_when_the_client_goes() {
    let (mock, server) = start(text("one").framing(Framing { never_ends: true, ..Framing::default() })).await;
    for (number, (path, request)) in in_every_format().into_iter().enumerate() {
        let expected = {
            let plain = Mock::new(Script::new().model("m", Model::new().step(text("one"))));
            ask(&plain, &path, &request).await.text
        };
        let mut stream = send(&server, &path, &request).await;
        let mut answer = String::new();
        // The last chunk, which is empty, never comes.
        while unchunk_open(&answer) != expected {
            answer += &read_to(&mut stream, "\n").await;
        }
        assert!(!answer.ends_with("0\r\n\r\n"));
        assert_eq!(mock.journal().entries()[number].outcome, Outcome::Open);
        drop(stream);
        let ended = mock.journal().wait_until(|entries| entries[number].outcome != Outcome::Open).await;
        assert_eq!(ended[number].outcome, Outcome::Complete);
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_redirect_leads_to_another_server() {
    let (_there, target) = start(text("here")).await;
    let (_mock, server) = start(text("one").fault(Fault::redirect(target.url()))).await;
    for (path, request) in in_every_format() {
        let mut stream = send(&server, &path, &request).await;
        let head = read_to(&mut stream, "}}").await;
        assert!(head.starts_with("HTTP/1.1 307 "), "{head}");
        assert!(head.contains(&format!("location: {}\r\n", target.url())), "{head}");
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_ends_a_stall() {
    let (mock, server) = start(text("one two three").fault(Fault::stall(4))).await;
    let mut stream = send(&server, MESSAGES, &messages("m", prompt())).await;
    let mut answer = String::new();
    while answer.matches("\n\n").count() < 4 {
        answer += &read_to(&mut stream, "\n").await;
    }
    assert_eq!(mock.journal().entries()[0].outcome, Outcome::Open);
    drop(stream);
    let ended = mock.journal().wait_until(|entries| entries[0].outcome != Outcome::Open).await;
    assert_eq!((ended[0].outcome, ended[0].events), (Outcome::ClientGone, 4));
    server.shutdown().await;
}

#[tokio::test]
async fn a_shutdown_closes_answers_under_way() {
    let (mock, server) = start(text("one two three").fault(Fault::stall(4))).await;
    let address = server.address();
    let mut stream = send(&server, MESSAGES, &messages("m", prompt())).await;
    read_to(&mut stream, "\n\n\r\n").await;
    server.shutdown().await;
    assert_eq!(mock.journal().entries()[0].outcome, Outcome::ClientGone);
    let mut rest = Vec::new();
    // Closed in the middle: an end or a reset, as the system has it, but no last chunk.
    let _ = stream.read_to_end(&mut rest).await;
    assert!(!rest.ends_with(b"0\r\n\r\n"));
    assert_eq!(TcpStream::connect(address).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn errors_have_a_length_and_leave_the_connection_usable() {
    let (_mock, server) = start(text("one").fault(Fault::retry_after(429, 3))).await;
    let mut stream = send(&server, MESSAGES, &messages("m", prompt())).await;
    let answer = read_to(&mut stream, "}}").await;
    assert!(answer.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{answer}");
    assert!(answer.contains("retry-after: 3\r\n") && answer.contains("content-length: "), "{answer}");
    stream.write_all(head("POST", "/v1/messages", 8).as_bytes()).await.unwrap();
    stream.write_all(b"not json").await.unwrap();
    let answer = read_to(&mut stream, "}}").await;
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
    stream.write_all(head("GET", "/v1/messages", 0).as_bytes()).await.unwrap();
    let answer = read_to(&mut stream, "}}").await;
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("allow: POST\r\n"), "{answer}");
}

#[tokio::test]
async fn a_script_that_http_cannot_carry_is_an_error_not_a_panic() {
    let fault = Fault::Status {
        code: 200,
        headers: [("a b".to_owned(), "c\n".to_owned())].into(),
        retry_after: None,
        body: None,
    };
    for (fault, what) in [(fault, "cannot be an HTTP header"), (Fault::status(5), "5 is not an HTTP status")]
    {
        let (_mock, server) = start(text("one").fault(fault)).await;
        let mut stream = send(&server, CHAT, &json!({"model": "m", "messages": prompt()})).await;
        let answer = read_to(&mut stream, "}}").await;
        assert!(answer.starts_with("HTTP/1.1 500 ") && answer.contains(what), "{answer}");
    }
}

#[tokio::test]
async fn a_request_that_is_too_large_is_refused() {
    let (_mock, server) = start(text("one")).await;
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(head("POST", CHAT, (64 << 20) + 1).as_bytes()).await.unwrap();
    let mut sent = 0;
    let block = vec![b' '; 1 << 20];
    // The answer may come, and the connection close, before all was sent.
    while sent <= 64 && stream.write_all(&block).await.is_ok() {
        sent += 1;
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

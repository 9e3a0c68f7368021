//! Answers at a pace over real sockets: what is written past the HTTP library is what it would write.

use std::time::{Duration, Instant, SystemTime};

use mock_llm::{Mock, Model, Outcome, Script, Server, Step, call, text, tokens};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{
    CHAT, MESSAGES, RESPONSES, ask, chat, gemini, gemini_path, gemini_prompt, messages, prompt, responses,
};

/// Nothing here takes long: a read that waits so long waits for ever.
const HANG: Duration = Duration::from_secs(60);
const END: &[u8] = b"\r\n0\r\n\r\n";

async fn start(step: Step) -> (Mock, Server) {
    let mock = Mock::new(Script::new().model("m", Model::new().step(step)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = mock.serve(listener).unwrap();
    (mock, server)
}

async fn send(stream: &mut TcpStream, path: &str, request: &Value) {
    let body = request.to_string();
    let head = format!("POST {path} HTTP/1.1\r\nhost: mock\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all((head + &body).as_bytes()).await.unwrap();
}

/// What is read in each read, up to the end of an answer.
async fn reads(stream: &mut TcpStream) -> Vec<Vec<u8>> {
    let (mut reads, mut tail) = (Vec::new(), Vec::new());
    let mut some = vec![0; 1 << 20];
    while !tail.ends_with(END) {
        let count = tokio::time::timeout(HANG, stream.read(&mut some)).await.expect("it goes on").unwrap();
        assert!(count > 0, "the connection was closed");
        tail.extend_from_slice(&some[..count]);
        tail.drain(..tail.len().saturating_sub(END.len()));
        reads.push(some[..count].to_vec());
    }
    reads
}

/// The chunks of an answer.
fn chunks(answer: &[u8]) -> Vec<String> {
    let (_, mut rest) = std::str::from_utf8(answer).unwrap().split_once("\r\n\r\n").unwrap();
    let mut chunks = Vec::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        assert_eq!(size, size.to_uppercase());
        let size = usize::from_str_radix(size, 16).unwrap();
        assert_eq!(&after[size..size + 2], "\r\n");
        chunks.push(after[..size].to_owned());
        rest = &after[size + 2..];
    }
    assert_eq!(chunks.pop().as_deref(), Some(""), "the last chunk is empty");
    chunks
}

#[tokio::test]
async fn in_every_format_it_is_what_is_said_in_process() {
    let (mock, server) =
        start(tokens(20).call("read", json!({"filePath": "a b c", "limit": 5})).rate(200.0)).await;
    let formats = [
        (MESSAGES.to_owned(), messages("m", prompt())),
        (CHAT.to_owned(), chat("m", prompt())),
        (RESPONSES.to_owned(), responses("m", prompt())),
        (gemini_path("m"), gemini(gemini_prompt())),
    ];
    // One connection, so that what follows an answer is in order too.
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    for (number, (path, request)) in formats.into_iter().enumerate() {
        let begun = Instant::now();
        send(&mut stream, &path, &request).await;
        let answer = reads(&mut stream).await.concat();
        assert!(begun.elapsed() > Duration::from_millis(95), "{path} is too fast");
        let chunks = chunks(&answer);
        assert_eq!(chunks.concat(), ask(&mock, &path, &request).await.text, "{path}");
        let entry = &mock.journal().entries()[2 * number];
        assert_eq!((entry.outcome, entry.bytes), (Outcome::Complete, chunks.concat().len() as u64), "{path}");
        assert_eq!(entry.bytes, mock.journal().entries()[2 * number + 1].bytes, "{path}");
        assert_eq!(entry.tokens, mock.journal().entries()[2 * number + 1].tokens, "{path}");
        // Tokens that are due together go together, so a busy machine has fewer.
        assert!((2..=30).contains(&chunks.len()), "{path}: {}", chunks.len());
    }
    server.shutdown().await;
}

/// Each on the connection of the one before it.
#[tokio::test]
async fn a_request_comes_when_its_first_bytes_do() {
    let (mock, server) = start(tokens(3).rate(200.0)).await;
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let micros = || u64::try_from(SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros()).unwrap();
    for number in 0..2 {
        let begun = micros();
        stream.write_all(b"POST /v1/messages HTTP/1.1\r\nhost: ").await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        let late = micros();
        let body = messages("m", prompt()).to_string();
        let rest = format!("mock\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(rest.as_bytes()).await.unwrap();
        reads(&mut stream).await;
        let came = mock.journal().entries()[number].arrived_us;
        assert!((begun..late).contains(&came), "{number}: {came} is not in {begun}..{late}");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn many_answers_keep_to_their_pace_at_once() {
    let (mock, server) = start(Step::empty().times(50).rate(100.0)).await;
    let answers = (0..100).map(|_| async {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        send(&mut stream, MESSAGES, &messages("m", prompt())).await;
        let begun = Instant::now();
        (chunks(&reads(&mut stream).await.concat()), begun.elapsed())
    });
    for (chunks, took) in futures::future::join_all(answers).await {
        assert!(took > Duration::from_millis(480), "{took:?}");
        let text = chunks.concat();
        let times: Vec<&str> = text.split('@').skip(1).map(|rest| &rest[..16]).collect();
        assert_eq!(times.len(), 50);
        assert!(times.is_sorted_by(|one, next| one < next), "{times:?}");
    }
    assert!(
        mock.journal().entries().iter().all(|entry| (entry.tokens, entry.outcome) == (50, Outcome::Complete))
    );
}

#[tokio::test]
async fn a_client_that_does_not_read_gets_all_of_it_later() {
    // More than the buffers of the connection hold, in tokens of their own.
    let word = "x".repeat(4096) + " ";
    let (mock, server) = start(text(word.repeat(800)).rate(1_000_000.0)).await;
    let request = messages("m", prompt());
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    send(&mut stream, MESSAGES, &request).await;
    // Nobody reads until nothing more can be written.
    let mut before = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = mock.journal().entries().first().map_or(0, |entry| entry.bytes);
        if now > 0 && now == before {
            break;
        }
        before = now;
    }
    assert_eq!(mock.journal().entries()[0].outcome, Outcome::Open, "the buffers hold all of it");
    let answer = reads(&mut stream).await.concat();
    assert_eq!(chunks(&answer).concat(), ask(&mock, MESSAGES, &request).await.text);
    assert_eq!(mock.journal().entries()[0].outcome, Outcome::Complete);
}

#[tokio::test]
async fn a_client_that_goes_is_noted_at_once() {
    // The next token would come in an hour.
    let (mock, server) = start(tokens(1000).rate(1.0 / 3600.0)).await;
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    send(&mut stream, MESSAGES, &messages("m", prompt())).await;
    let mut some = [0; 4096];
    let count = stream.read(&mut some).await.unwrap();
    assert!(String::from_utf8_lossy(&some[..count]).contains("200 OK"));
    drop(stream);
    let ended = mock.journal().wait_until(|entries| entries[0].outcome != Outcome::Open);
    let entries = tokio::time::timeout(HANG, ended).await.expect("it is noted");
    assert_eq!((entries[0].outcome, entries[0].tokens), (Outcome::ClientGone, 1));
    server.shutdown().await;
}

#[tokio::test]
async fn a_server_that_ends_ends_its_answers() {
    let (mock, server) = start(call("read", json!({})).tokens(1000).rate(10.0)).await;
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    send(&mut stream, MESSAGES, &messages("m", prompt())).await;
    let mut some = [0; 4096];
    assert!(stream.read(&mut some).await.unwrap() > 0);
    server.shutdown().await;
    let entries = mock.journal().entries();
    assert_eq!(entries[0].outcome, Outcome::ClientGone);
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(HANG, stream.read_to_end(&mut rest)).await.expect("it is closed");
    drop(ended);
}

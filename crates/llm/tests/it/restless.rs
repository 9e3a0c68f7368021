//! A server that closes connections and says things when it likes.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use playhouse_llm::{DialectKind, Endpoint, HttpTransport, Limits, send};
use tokio::time::timeout;

use crate::support::{MODEL, attempt, endpoint};

/// How many tasks ask at the same time, and how often each.
const ASKING: (u64, u64) = (8, 100);
/// How long a server may take. A request hangs about once in a hundred thousand, with nothing but hyper-util's client as well
/// (docs/decisions/requests-that-hang.md): then this ends it.
const DEADLINE: Duration = Duration::from_secs(5);
/// No request waits longer.
const LONGEST: Duration = Duration::from_secs(10);
/// How often all of it is done, where nothing else is said (`PLAYHOUSE_RESTLESS_RUNS`).
const RUNS: u32 = 3;
/// What every body ends with.
const END: &str = "#end";

/// Reads requests from `connection`, and tells their bodies to `seen`; after three it closes the connection, of every second
/// one with a word that nobody asked for.
fn serve(mut connection: TcpStream, number: u64, seen: &Mutex<Vec<String>>) {
    for time in 0..3 {
        let (mut asked, mut buffer) = (Vec::new(), [0; 4096]);
        while !asked.ends_with(END.as_bytes()) {
            match connection.read(&mut buffer) {
                Ok(length @ 1..) => asked.extend_from_slice(&buffer[..length]),
                _ => return,
            }
        }
        let asked = String::from_utf8(asked).unwrap();
        seen.lock().unwrap().push(asked.split("\r\n\r\n").nth(1).unwrap().to_owned());
        if connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_err() {
            return;
        }
        std::thread::sleep(Duration::from_micros((number * 11 + time * 5) % 150));
    }
    if number.is_multiple_of(2) {
        // The other end may be gone.
        drop(connection.write_all(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n"));
    }
}

/// Asks once. That it is answered, and with what, is of no interest: it must end in time, if need be by its own deadline.
async fn ask(transport: &HttpTransport, endpoint: &Endpoint, body: &str) {
    let limits = Limits { head: DEADLINE, attempt: DEADLINE, error_body: DEADLINE, ..Limits::default() };
    let body = Bytes::copy_from_slice(body.as_bytes());
    let sent = send(transport, endpoint, MODEL, attempt(), body.clone(), limits);
    drop(timeout(LONGEST, sent).await.unwrap_or_else(|_| panic!("{body:?} waits for ever")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_request_is_written_twice_or_waits_for_ever_whatever_its_server_does() {
    let runs = std::env::var("PLAYHOUSE_RESTLESS_RUNS").ok();
    for run in 0..runs.map_or(RUNS, |runs| runs.parse().expect("PLAYHOUSE_RESTLESS_RUNS is a number")) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base_url = format!("http://{}/", listener.local_addr().unwrap());
        let endpoint = Endpoint { base_url, ..endpoint(DialectKind::OpenaiChat) };
        let seen = Arc::new(Mutex::new(Vec::new()));
        let seeing = Arc::clone(&seen);
        // Ends with the test.
        std::thread::spawn(move || {
            for (number, connection) in (0..).zip(listener.incoming()) {
                let seen = Arc::clone(&seeing);
                std::thread::spawn(move || serve(connection.unwrap(), number, &seen));
            }
        });
        let transport = HttpTransport::new();
        let (tasks, times) = ASKING;
        let asking = (0..tasks).map(|number| {
            let (transport, endpoint) = (transport.clone(), endpoint.clone());
            tokio::spawn(async move {
                for time in 0..times {
                    let pause = Duration::from_micros((number * 7 + time * 13) % 200);
                    std::thread::sleep(pause);
                    ask(&transport, &endpoint, &format!("{run}-{number}-{time}{END}")).await;
                }
            })
        });
        futures::future::try_join_all(asking).await.unwrap();
        let seen = seen.lock().unwrap().clone();
        let once: BTreeSet<&String> = seen.iter().collect();
        assert_eq!(once.len(), seen.len(), "run {run}: one was written twice");
        // A server that closes a connection just when a request leaves over it does not see that.
        assert!(seen.len() > 400, "run {run}: most come to the server: {}", seen.len());
    }
}

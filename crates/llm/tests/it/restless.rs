//! A server that closes connections and says things when it likes.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use playhouse_llm::{Connections, HttpRequest, HttpTransport, Transport as _};
use tokio::time::timeout;

/// How many tasks ask at the same time, and how often each.
const ASKING: (u64, u64) = (8, 100);
/// No request waits longer for its answer, or for the error in place of one.
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

/// Asks once. Whether the answer was good; an error is one in time.
async fn ask(transport: &HttpTransport, url: &str, body: &str) -> bool {
    let request = HttpRequest {
        url: url.to_owned(),
        headers: Vec::new(),
        body: Bytes::copy_from_slice(body.as_bytes()),
        connections: Connections::default(),
    };
    let exchange = async {
        let Ok(mut answer) = transport.send(request).await else { return false };
        while let Some(chunk) = answer.body.next().await {
            if chunk.is_err() {
                return false;
            }
        }
        answer.status == 200
    };
    timeout(LONGEST, exchange).await.unwrap_or_else(|_| panic!("{body} waits for its answer"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_request_is_written_twice_or_waits_for_ever_whatever_its_server_does() {
    let runs = std::env::var("PLAYHOUSE_RESTLESS_RUNS").ok();
    for run in 0..runs.map_or(RUNS, |runs| runs.parse().expect("PLAYHOUSE_RESTLESS_RUNS is a number")) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
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
            let (transport, url) = (transport.clone(), url.clone());
            tokio::spawn(async move {
                let mut answered = Vec::new();
                for time in 0..times {
                    let pause = Duration::from_micros((number * 7 + time * 13) % 200);
                    std::thread::sleep(pause);
                    let body = format!("{run}-{number}-{time}{END}");
                    // A server that closes a connection just when a request leaves over it may have seen that.
                    if ask(&transport, &url, &body).await {
                        answered.push(body);
                    }
                }
                answered
            })
        });
        let answered = futures::future::try_join_all(asking).await.unwrap().concat();
        let seen = seen.lock().unwrap().clone();
        let once: BTreeSet<&String> = seen.iter().collect();
        assert_eq!(once.len(), seen.len(), "run {run}: one was written twice");
        assert!(answered.iter().all(|body| once.contains(body)), "run {run}");
        assert!(answered.len() > 400, "run {run}: most are answered: {}", answered.len());
    }
}

use std::future::Future;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::pin::{Pin, pin};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use http::{HeaderMap, HeaderName, HeaderValue};
use reqwest::Url;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use super::*;
use crate::client::{Answer, Client, Unanswered};
use crate::connections::Connections;
use crate::paced::{Coming, Pace};

const BODY: &str = "{\"model\":\"acme-1\"}";
/// What comes comes by then.
const SOON: Duration = Duration::from_secs(20);

type Sent = Result<Answer, Unanswered>;

/// A server, and a client for it.
struct Stage {
    listener: TcpListener,
    url: Url,
    client: Client,
    pace: Pace,
}

impl Stage {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let pace = Pace::default();
        let client = Client::new(&url, None, Connections::default(), &pace).unwrap();
        Self { listener, url, client, pace }
    }

    async fn post(&self, body: &str, headers: HeaderMap, hold: &Hold) -> Sent {
        let body = Bytes::copy_from_slice(body.as_bytes());
        self.client.post(self.url.clone(), headers, body, Connections::default(), Some(hold)).await
    }

    async fn ask(&self, hold: &Hold) -> Sent {
        self.post(BODY, HeaderMap::new(), hold).await
    }

    /// The next connection, whose reads block for a while at most.
    async fn accept(&self) -> TcpStream {
        let (connection, _) = timeout(SOON, self.listener.accept()).await.expect("it connects").unwrap();
        let connection = connection.into_std().unwrap();
        connection.set_nonblocking(false).unwrap();
        connection.set_read_timeout(Some(SOON)).unwrap();
        connection
    }

    /// Answers a request on the next connection.
    async fn serve(&self) {
        let mut server = self.accept().await;
        let serve = move || {
            request(&mut server);
            answer(&mut server);
        };
        tokio::task::spawn_blocking(serve).await.unwrap();
    }

    /// Whether nobody connected.
    async fn is_left_alone(&self) -> bool {
        timeout(Duration::from_millis(50), self.listener.accept()).await.is_err()
    }
}

/// Goes on with `sent`, which comes to no end, until `what` is done.
async fn beside<T>(sent: &mut Pin<&mut impl Future<Output = Sent>>, what: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        sent = sent => panic!("it may not leave: {:?}", sent.map(|answer| answer.status())),
        done = timeout(SOON, what) => done.expect("it comes to that"),
    }
}

/// The request stands in front of its socket.
async fn at_socket(hold: &Hold) {
    while !hold.0.is_at_socket() {
        sleep(Duration::from_millis(1)).await;
    }
}

/// Reads a request, and nothing else on this thread.
fn request(connection: &mut TcpStream) -> String {
    request_up_to(BODY, connection)
}

fn request_up_to(end: &str, connection: &mut TcpStream) -> String {
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    while !request.ends_with(end.as_bytes()) {
        let length = connection.read(&mut buffer).expect("the request comes");
        assert!(length > 0, "it comes before the end");
        request.extend_from_slice(&buffer[..length]);
    }
    String::from_utf8(request).unwrap()
}

fn answer(connection: &mut TcpStream) {
    connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
}

async fn read(sent: Sent) {
    let body: Vec<Bytes> = sent.unwrap().into_body().try_collect().await.unwrap();
    assert_eq!(body.concat(), b"ok");
}

/// What comes within a while.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(SOON, what).await.expect("it comes to an end")
}

/// What comes over a connection until the other end closes it.
async fn rest(connection: &TcpStream) -> Vec<u8> {
    let mut connection = connection.try_clone().unwrap();
    let read = move || {
        let mut rest = Vec::new();
        connection.read_to_end(&mut rest).map(|_| rest)
    };
    tokio::task::spawn_blocking(read).await.unwrap().expect("its connection is closed")
}

#[tokio::test]
async fn a_held_request_is_written_by_whoever_lets_it_leave_and_not_before() {
    let stage = Stage::new().await;
    let mut server = None;
    for time in ["on a new connection", "on one that served another"] {
        let (hold, opening) = Hold::new();
        let mut sent = pin!(stage.ask(&hold));
        beside(&mut sent, at_socket(&hold)).await;
        if server.is_none() {
            server = Some(beside(&mut sent, stage.accept()).await);
        }
        let server = server.as_mut().unwrap();
        server.set_nonblocking(true).unwrap();
        assert!(server.read(&mut [0]).is_err() && hold.opened_at().is_none(), "{time}");
        server.set_nonblocking(false).unwrap();
        // The only thread of this runtime does nothing until the request is there.
        std::thread::spawn(|| opening.open()).join().unwrap();
        let request = request(server);
        assert!(
            request.starts_with("POST / HTTP/1.1\r\n") && hold.opened_at().is_some(),
            "{time}: {request}"
        );
        answer(server);
        read(sent.await).await;
    }
}

#[tokio::test]
async fn what_would_take_long_to_write_is_written_by_its_connection() {
    // By itself, and beside others.
    for (size, others) in [(2 << 20, 0), (600 << 10, 1), (0, 16)] {
        let stage = Stage::new().await;
        let _others: Vec<Coming> = (0..=others).map(|_| stage.pace.begin()).collect();
        let body = " ".repeat(size) + BODY;
        let (hold, opening) = Hold::new();
        let mut sent = pin!(stage.post(&body, HeaderMap::new(), &hold));
        beside(&mut sent, at_socket(&hold)).await;
        let mut server = beside(&mut sent, stage.accept()).await;
        std::thread::spawn(|| opening.open()).join().unwrap();
        // Nobody who could write it runs.
        server.set_nonblocking(true).unwrap();
        assert!(server.read(&mut [0]).is_err(), "{size} bytes beside {others}");
        server.set_nonblocking(false).unwrap();
        let served = tokio::task::spawn_blocking(move || {
            request(&mut server);
            answer(&mut server);
        });
        read(sent.await).await;
        served.await.unwrap();
    }
}

#[tokio::test]
async fn a_request_that_may_leave_before_it_is_ready_leaves_when_it_is() {
    let stage = Stage::new().await;
    let (hold, opening) = Hold::new();
    opening.open();
    let (sent, ()) = tokio::join!(stage.ask(&hold), stage.serve());
    read(sent).await;
}

#[tokio::test]
async fn what_is_given_up_before_it_may_leave_never_leaves() {
    for how in ["nobody waits for it", "it is given up", "it was given up before it was ready"] {
        let stage = Stage::new().await;
        let (hold, opening) = Hold::new();
        let hold = Arc::new(hold);
        let of = Arc::clone(&hold);
        let mut sent = Box::pin(async { stage.ask(&of).await });
        let server = match how {
            "it was given up before it was ready" => {
                assert!(!hold.give_up());
                let (server, sent) = soon(async { tokio::join!(stage.accept(), sent) }).await;
                assert!(sent.is_err(), "{how}");
                server
            }
            _ => {
                beside(&mut sent.as_mut(), at_socket(&hold)).await;
                let server = beside(&mut sent.as_mut(), stage.accept()).await;
                if how == "it is given up" {
                    assert!(!hold.give_up());
                    assert!(soon(sent).await.is_err(), "{how}");
                } else {
                    drop(sent);
                    assert!(!hold.give_up());
                }
                server
            }
        };
        opening.open();
        assert_eq!(rest(&server).await, b"", "{how}");
    }
}

#[tokio::test]
async fn what_may_have_left_cannot_be_given_up() {
    let (hold, opening) = Hold::new();
    opening.open();
    assert!(hold.give_up() && hold.give_up() && Hold::none().give_up() && !hold.take_back());
    let (hold, opening) = Hold::new();
    assert!(!hold.give_up());
    opening.open();
    assert!(!hold.give_up() && !hold.take_back() && hold.opened_at().is_none());
}

#[tokio::test]
async fn a_request_whose_connection_ends_while_it_is_held_leaves_over_another_one() {
    let gone = "HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let stays = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\nno";
    for (said, is_closed) in [("", true), (gone, true), (gone, false), (stays, false)] {
        let stage = Stage::new().await;
        let (hold, opening) = Hold::new();
        let mut sent = pin!(stage.ask(&hold));
        beside(&mut sent, at_socket(&hold)).await;
        let mut first = beside(&mut sent, stage.accept()).await;
        first.write_all(said.as_bytes()).unwrap();
        if is_closed {
            first.shutdown(Shutdown::Write).unwrap();
        }
        // Nothing left, and nothing leaves over it any more.
        assert_eq!(beside(&mut sent, rest(&first)).await, b"", "{said}, {is_closed}");
        opening.open();
        let (sent, ()) = tokio::join!(sent, stage.serve());
        read(sent).await;
        assert!(stage.is_left_alone().await);
    }
}

/// Who lets it leave may come between the connection, which saw its end, and who sends the request.
#[tokio::test]
async fn a_request_that_may_leave_when_its_connection_saw_its_end_leaves_over_another_one() {
    for said in ["", "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\nno"] {
        let stage = Stage::new().await;
        let (hold, opening) = Hold::new();
        let mut sent = pin!(stage.ask(&hold));
        beside(&mut sent, at_socket(&hold)).await;
        let mut first = beside(&mut sent, stage.accept()).await;
        first.write_all(said.as_bytes()).unwrap();
        if said.is_empty() {
            first.shutdown(Shutdown::Write).unwrap();
        }
        let seen = async {
            while !hold.0.standing().is_taken_back {
                tokio::task::yield_now().await;
            }
        };
        // Its connection is a task of its own, and who sends it does not look meanwhile.
        soon(seen).await;
        opening.open();
        let (sent, ()) = soon(async { tokio::join!(sent, stage.serve()) }).await;
        read(sent).await;
        assert_eq!(rest(&first).await, b"", "{said}");
    }
}

#[tokio::test]
async fn what_cannot_be_held_at_its_socket_is_begun_when_it_may_leave() {
    let name = HeaderName::from_static("x-long");
    let long = HeaderMap::from_iter([(name, HeaderValue::try_from("x".repeat(100 << 10)).unwrap())]);
    for (body, headers) in [("", HeaderMap::new()), (BODY, long)] {
        let stage = Stage::new().await;
        let (hold, opening) = Hold::new();
        let mut sent = pin!(stage.post(body, headers, &hold));
        assert!(beside(&mut sent, stage.is_left_alone()).await, "a body of {} bytes", body.len());
        opening.open();
        let serve = async {
            let mut server = stage.accept().await;
            let end = if body.is_empty() { "\r\n\r\n" } else { BODY };
            tokio::task::spawn_blocking(move || {
                request_up_to(end, &mut server);
                answer(&mut server);
            })
            .await
            .unwrap();
        };
        let (sent, ()) = tokio::join!(sent, serve);
        read(sent).await;
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_told_before_the_request_may_leave() {
    let Stage { listener, url, client, .. } = Stage::new().await;
    drop(listener);
    let (hold, _opening) = Hold::new();
    let body = Bytes::from_static(BODY.as_bytes());
    let sent = soon(client.post(url, HeaderMap::new(), body, Connections::default(), Some(&hold))).await;
    assert!(sent.is_err_and(|error| error.is_connect));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_request_leaves_whenever_it_may() {
    let stage = Arc::new(Stage::new().await);
    let of = Arc::clone(&stage);
    let serving = tokio::spawn(async move {
        loop {
            let mut connection = of.accept().await;
            std::thread::spawn(move || {
                let (mut asked, mut buffer) = (Vec::new(), [0; 4096]);
                while let Ok(length @ 1..) = connection.read(&mut buffer) {
                    asked.extend_from_slice(&buffer[..length]);
                    if asked.ends_with(BODY.as_bytes()) {
                        asked.clear();
                        answer(&mut connection);
                    }
                }
            });
        }
    });
    let asking = futures::stream::iter(0..8_u64).map(|number| {
        let stage = Arc::clone(&stage);
        tokio::spawn(async move {
            for time in 0..100 {
                let (hold, opening) = Hold::new();
                // From before there is a connection until it was long ready.
                let after = Duration::from_micros((number * 7 + time * 13) % 200);
                let opened = std::thread::spawn(move || {
                    std::thread::sleep(after);
                    opening.open();
                });
                read(stage.ask(&hold).await).await;
                opened.join().unwrap();
            }
        })
    });
    let asked = asking.buffer_unordered(8).try_collect::<Vec<()>>();
    timeout(SOON, asked).await.expect("none waits").unwrap();
    serving.abort();
}

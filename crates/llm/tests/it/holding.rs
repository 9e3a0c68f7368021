//! Requests that are made ready before they may leave.

use std::future::Future;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::pin::{Pin, pin};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use playhouse_llm::{
    AnswerStream, Connections, DialectKind, Endpoint, Hold, Http2, HttpRequest, HttpResponse, HttpTransport,
    Limits, Transport, send_held,
};
use playhouse_protocol::ErrorInfo;
use playhouse_protocol::error::ErrorCode;
use tokio::time::{Instant, sleep};

use crate::openai_chat;
use crate::support::{MODEL, attempt, endpoint, read};

const BODY: &str = r#"{"model":"acme-1","messages":[]}"#;
/// Long enough for whatever would not wait.
const A_WHILE: Duration = Duration::from_millis(50);
/// What comes comes by then.
const SOON: Duration = Duration::from_secs(20);

fn endpoint_at(listener: &TcpListener) -> Endpoint {
    let address = listener.local_addr().unwrap();
    Endpoint { base_url: format!("http://{address}/v1"), ..endpoint(DialectKind::OpenaiChat) }
}

async fn ask(transport: &HttpTransport, endpoint: &Endpoint, hold: &Hold) -> Result<AnswerStream, ErrorInfo> {
    let body = Bytes::from_static(BODY.as_bytes());
    send_held(transport, endpoint, MODEL, attempt(), body, Limits::default(), hold).await
}

/// A connection of a server, what comes over it from now on, and `None` at its end.
fn watched(listener: &TcpListener) -> (TcpStream, Receiver<Option<Vec<u8>>>) {
    let (connection, _) = listener.accept().unwrap();
    let mut reading = connection.try_clone().unwrap();
    let (tell, told) = sync_channel(1024);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        loop {
            let length = reading.read(&mut buffer).unwrap_or(0);
            let piece = (length > 0).then(|| buffer[..length].to_vec());
            if tell.send(piece).is_err() || length == 0 {
                return;
            }
        }
    });
    (connection, told)
}

/// One request, which comes without anybody's help.
fn request(told: &Receiver<Option<Vec<u8>>>) -> String {
    let mut request = Vec::new();
    while !request.ends_with(BODY.as_bytes()) {
        request.extend(told.recv_timeout(SOON).expect("the request leaves").expect("before the end"));
    }
    String::from_utf8(request).unwrap()
}

fn answer(connection: &mut TcpStream) {
    let stream = openai_chat::everything();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length:";
    connection.write_all(format!("{head} {}\r\n\r\n{stream}", stream.len()).as_bytes()).unwrap();
}

/// Has a request made ready, and all that would not wait leave.
async fn made_ready(sent: &mut Pin<&mut impl Future<Output = Result<AnswerStream, ErrorInfo>>>) {
    tokio::select! {
        sent = sent => panic!("it may not leave: {sent:?}"),
        () = sleep(A_WHILE) => {}
    }
}

#[tokio::test]
async fn a_held_request_is_written_by_whoever_lets_it_leave_and_not_before() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (transport, endpoint) = (HttpTransport::new(), endpoint_at(&listener));
    let mut server = None;
    for time in ["on a new connection", "on one that served another"] {
        let (hold, opening) = Hold::new();
        let mut sent = pin!(ask(&transport, &endpoint, &hold));
        made_ready(&mut sent).await;
        let (connection, told) = server.get_or_insert_with(|| watched(&listener));
        assert!(told.try_recv().is_err() && hold.opened_at().is_none(), "{time}");
        // The only thread of this runtime does nothing until the request is there.
        std::thread::spawn(|| opening.open()).join().unwrap();
        let request = request(told);
        assert!(request.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{time}: {request}");
        assert!(hold.opened_at().is_some(), "{time}");
        answer(connection);
        read(sent.await.unwrap()).await.1.unwrap();
    }
}

#[tokio::test]
async fn a_request_that_would_take_long_to_write_is_written_by_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (transport, endpoint) = (HttpTransport::new(), endpoint_at(&listener));
    let large = Bytes::from(format!("{}{BODY}", " ".repeat(600 << 10)));
    let send = |hold| {
        let limits = Limits::default();
        send_held(&transport, &endpoint, MODEL, attempt(), large.clone(), limits, hold)
    };
    // One of them is written at once, and two are too much.
    let [(first, _of_first), (hold, opening)] = [Hold::new(), Hold::new()];
    let mut other = pin!(send(&first));
    made_ready(&mut other).await;
    let _other = watched(&listener);
    let mut sent = pin!(send(&hold));
    made_ready(&mut sent).await;
    let (mut connection, told) = watched(&listener);
    std::thread::spawn(|| opening.open()).join().unwrap();
    // Nobody who could write it runs.
    assert!(told.recv_timeout(A_WHILE).is_err());
    let served = tokio::task::spawn_blocking(move || {
        request(&told);
        answer(&mut connection);
    });
    read(sent.await.unwrap()).await.1.unwrap();
    served.await.unwrap();
}

#[tokio::test]
async fn a_request_that_may_leave_before_it_is_ready_leaves_when_it_is() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = endpoint_at(&listener);
    let served = std::thread::spawn(move || {
        let (mut connection, told) = watched(&listener);
        request(&told);
        answer(&mut connection);
    });
    let (hold, opening) = Hold::new();
    opening.open();
    read(ask(&HttpTransport::new(), &endpoint, &hold).await.unwrap()).await.1.unwrap();
    served.join().unwrap();
}

#[tokio::test]
async fn what_is_given_up_before_it_may_leave_never_leaves() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = endpoint_at(&listener);
    for is_dropped in [true, false] {
        let transport = HttpTransport::new();
        let (hold, opening) = Hold::new();
        let mut sent = Box::pin(ask(&transport, &endpoint, &hold));
        made_ready(&mut sent.as_mut()).await;
        let (_connection, told) = watched(&listener);
        if is_dropped {
            drop(sent);
            drop(hold);
        } else {
            assert!(!hold.give_up());
            let error = sent.await.unwrap_err();
            assert_eq!(error.code, ErrorCode::NoAnswer, "{error}");
        }
        opening.open();
        sleep(A_WHILE).await;
        assert_eq!(told.recv_timeout(SOON).unwrap(), None, "its connection is closed");
    }
}

#[tokio::test]
async fn what_left_cannot_be_given_up() {
    let (hold, opening) = Hold::new();
    opening.open();
    assert!(hold.give_up() && hold.give_up() && Hold::none().give_up());
    let (hold, opening) = Hold::new();
    assert!(!hold.give_up());
    opening.open();
    assert!(!hold.give_up() && hold.opened_at().is_none());
}

#[tokio::test]
async fn a_request_whose_connection_is_closed_while_it_is_held_leaves_on_another_one() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (transport, endpoint) = (HttpTransport::new(), endpoint_at(&listener));
    let (hold, opening) = Hold::new();
    let mut sent = pin!(ask(&transport, &endpoint, &hold));
    made_ready(&mut sent).await;
    let (connection, told) = watched(&listener);
    connection.shutdown(std::net::Shutdown::Both).unwrap();
    made_ready(&mut sent).await;
    assert_eq!(told.recv_timeout(SOON).unwrap(), None, "nothing left over the first");
    let (mut connection, told) = watched(&listener);
    opening.open();
    request(&told);
    answer(&mut connection);
    read(sent.await.unwrap()).await.1.unwrap();
}

#[tokio::test]
async fn a_server_that_closes_every_connection_is_not_asked_for_ever() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = endpoint_at(&listener);
    let closing = std::thread::spawn(move || {
        for _ in 0..3 {
            drop(listener.accept().unwrap());
        }
        listener
    });
    let (hold, _opening) = Hold::new();
    let error = ask(&HttpTransport::new(), &endpoint, &hold).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::NoAnswer, "{error}");
    closing.join().unwrap();
}

#[tokio::test]
async fn what_cannot_be_held_at_its_socket_is_begun_when_it_may_leave() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let http2 = Connections { http2: Http2::PriorKnowledge, ..Connections::default() };
    let endpoint = endpoint_at(&listener);
    let tls = endpoint.base_url.replace("http:", "https:");
    for endpoint in
        [Endpoint { connections: http2, ..endpoint.clone() }, Endpoint { base_url: tls, ..endpoint }]
    {
        listener.set_nonblocking(true).unwrap();
        let transport = HttpTransport::new();
        let (hold, opening) = Hold::new();
        let mut sent = pin!(ask(&transport, &endpoint, &hold));
        made_ready(&mut sent).await;
        assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        opening.open();
        listener.set_nonblocking(false).unwrap();
        let listener = listener.try_clone().unwrap();
        let closing = std::thread::spawn(move || drop(listener.accept().unwrap()));
        sent.await.unwrap_err();
        closing.join().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_request_leaves_whenever_it_may() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = endpoint_at(&listener);
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
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
    let transport = HttpTransport::new();
    let asking = (0..8_u64).map(|number| {
        let (transport, endpoint) = (transport.clone(), endpoint.clone());
        tokio::spawn(async move {
            for time in 0..100 {
                let (hold, opening) = Hold::new();
                // From before there is a connection until it was long ready.
                let after = Duration::from_micros((number * 7 + time * 13) % 200);
                let opened = std::thread::spawn(move || {
                    std::thread::sleep(after);
                    opening.open();
                });
                read(ask(&transport, &endpoint, &hold).await.unwrap()).await.1.unwrap();
                opened.join().unwrap();
            }
        })
    });
    tokio::time::timeout(SOON, futures::future::try_join_all(asking)).await.expect("none waits").unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_time_that_a_server_has_begins_when_the_request_may_leave() {
    struct Mute;
    impl Transport for Mute {
        fn send(&self, _: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, ErrorInfo>> {
            Box::pin(futures::future::pending())
        }
    }
    let limits = Limits { head: Duration::from_secs(5), ..Limits::default() };
    let endpoint = endpoint(DialectKind::OpenaiChat);
    let (hold, opening) = Hold::new();
    let mut sent = pin!(send_held(&Mute, &endpoint, MODEL, attempt(), Bytes::new(), limits, &hold));
    tokio::select! {
        sent = &mut sent => panic!("{sent:?}"),
        () = sleep(Duration::from_secs(3_603)) => {}
    }
    let opened = Instant::now();
    opening.open();
    let error = sent.await.unwrap_err();
    assert_eq!((error.code, opened.elapsed().as_secs()), (ErrorCode::NoAnswer, 5), "{error}");
}

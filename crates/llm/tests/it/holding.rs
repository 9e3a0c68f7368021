//! Requests that are made ready before they may leave: what those see who carry them. What happens at sockets is tested in the crate.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use playhouse_llm::{
    Connections, DialectKind, Endpoint, Hold, Http2, HttpRequest, HttpResponse, HttpTransport, Limits,
    Transport, send_held,
};
use playhouse_protocol::ErrorInfo;
use playhouse_protocol::error::ErrorCode;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{MODEL, PATIENCE, attempt, endpoint};

#[tokio::test]
async fn what_goes_over_connections_of_others_is_begun_when_it_may_leave() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let endpoint = endpoint(DialectKind::OpenaiChat);
    let http2 = Connections { http2: Http2::PriorKnowledge, ..Connections::default() };
    for (scheme, connections) in [("http", http2), ("https", Connections::default())] {
        let endpoint =
            Endpoint { connections, base_url: format!("{scheme}://{address}/v1"), ..endpoint.clone() };
        let transport = HttpTransport::new();
        let (hold, opening) = Hold::new();
        let (body, limits) = (Bytes::from_static(b"{}"), Limits::default());
        let mut sent = pin!(send_held(&transport, &endpoint, MODEL, attempt(), body, limits, &hold));
        tokio::select! {
            sent = &mut sent => panic!("it may not leave: {sent:?}"),
            _ = listener.accept() => panic!("{scheme}: nobody is to be asked yet"),
            () = sleep(Duration::from_millis(50)) => {}
        }
        opening.open();
        let closing = async { drop(listener.accept().await.unwrap()) };
        let both = async { tokio::join!(sent, closing) };
        let (sent, ()) = timeout(Duration::from_secs(20), both).await.expect("it is begun");
        sent.unwrap_err();
    }
}

/// A server that says nothing, or a word again and again after the beginning of its answer.
struct Slow {
    begins: bool,
}

impl Transport for Slow {
    fn send(&self, _: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, ErrorInfo>> {
        let begins = self.begins;
        Box::pin(async move {
            if !begins {
                futures::future::pending::<()>().await;
            }
            let word = |()| sleep(Duration::from_millis(5));
            let words = futures::stream::repeat(()).then(word).map(|()| Ok(Bytes::from_static(b": ...\n\n")));
            Ok(HttpResponse { status: 200, headers: Vec::new(), body: words.boxed() })
        })
    }
}

#[tokio::test]
async fn the_time_that_a_server_has_begins_when_the_request_may_leave() {
    let limits =
        Limits { head: Duration::from_millis(50), attempt: Duration::from_millis(100), ..Limits::default() };
    let endpoint = endpoint(DialectKind::OpenaiChat);
    for (begins, error, time) in
        [(false, ErrorCode::NoAnswer, limits.head), (true, ErrorCode::StreamCut, limits.attempt)]
    {
        let server = Slow { begins };
        let (hold, opening) = Hold::new();
        let mut sent = pin!(send_held(&server, &endpoint, MODEL, attempt(), Bytes::new(), limits, &hold));
        tokio::select! {
            sent = &mut sent => panic!("{sent:?}"),
            () = sleep(2 * limits.attempt) => {}
        }
        let opened = Instant::now();
        opening.open();
        let ended = async {
            match sent.await {
                Err(error) => error,
                Ok(mut answer) => loop {
                    if let Err(error) = answer.next(&mut Vec::new()).await {
                        break error;
                    }
                },
            }
        };
        let ended = timeout(PATIENCE, ended).await.expect("its time ends");
        assert_eq!(ended.code, error, "{ended}");
        assert!(opened.elapsed() >= time, "{ended}");
    }
}

//! HTTP/2 in the clear, to clients that know it beforehand.

use bytes::Bytes;
use futures::future::join_all;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Request, Response, Version, body::Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use mock_llm::{Cut, Fault, Mock, Model, Moment, Outcome, Script, ServeOptions, Server, text, tokens};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{CHAT, ask, chat, prompt};

fn mock() -> Mock {
    Mock::new(
        Script::new()
            .model("m", Model::new().step(text("one two three")))
            .model("reset", Model::new().step(text("one two").fault(Fault::cut(Moment::InText, Cut::Reset))))
            .model("slow", Model::new().step(tokens(20).rate(50.0))),
    )
}

async fn connect(server: &Server) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn send(sender: &SendRequest<Full<Bytes>>, model: &str) -> Response<Incoming> {
    let mut sender = sender.clone();
    let body = Full::new(Bytes::from(chat(model, prompt()).to_string()));
    let request = Request::post(format!("http://mock{CHAT}")).body(body).unwrap();
    sender.ready().await.unwrap();
    sender.send_request(request).await.unwrap()
}

async fn read(response: Response<Incoming>) -> Result<Bytes, hyper::Error> {
    response.into_body().collect().await.map(|body| body.to_bytes())
}

#[tokio::test]
async fn many_answers_share_a_connection() {
    let mock = mock();
    let server = mock.serve(TcpListener::bind("127.0.0.1:0").await.unwrap()).unwrap();
    let sender = connect(&server).await;
    let expected = ask(&mock, CHAT, &chat("m", prompt())).await.text;
    let answers = join_all((0..50).map(|_| async {
        let response = send(&sender, "m").await;
        assert_eq!((response.version(), response.status().as_u16()), (Version::HTTP_2, 200));
        read(response).await.unwrap()
    }));
    assert!(answers.await.iter().all(|answer| answer == expected.as_bytes()));
    let entries = mock.journal().entries();
    let (in_process, streams) = entries.split_first().unwrap();
    assert_eq!((in_process.connection, in_process.http2), (None, false));
    assert!(streams.iter().all(|entry| (entry.connection, entry.http2) == (Some(1), true)));
    server.shutdown().await;
}

#[tokio::test]
async fn a_reset_is_that_of_one_stream() {
    let mock = mock();
    let server = mock.serve(TcpListener::bind("127.0.0.1:0").await.unwrap()).unwrap();
    let sender = connect(&server).await;
    let slow = send(&sender, "slow").await;
    assert!(read(send(&sender, "reset").await).await.is_err());
    let answer = read(slow).await.unwrap();
    assert!(answer.ends_with(b"data: [DONE]\n\n"));
    let ended =
        mock.journal().wait_until(|entries| entries.iter().all(|entry| entry.outcome != Outcome::Open)).await;
    let outcome =
        |model: &str| ended.iter().find(|entry| entry.model.as_deref() == Some(model)).unwrap().outcome;
    assert_eq!((outcome("slow"), outcome("reset")), (Outcome::Complete, Outcome::Cut));
}

#[tokio::test]
async fn a_client_that_leaves_one_answer_keeps_the_others() {
    let mock = mock();
    let server = mock.serve(TcpListener::bind("127.0.0.1:0").await.unwrap()).unwrap();
    let sender = connect(&server).await;
    drop(send(&sender, "slow").await);
    assert_eq!(
        read(send(&sender, "m").await).await.unwrap().windows(6).filter(|some| some == b"data: ").count(),
        7
    );
    let ended =
        mock.journal().wait_until(|entries| entries.iter().all(|entry| entry.outcome != Outcome::Open)).await;
    assert_eq!(ended[0].outcome, Outcome::ClientGone);
}

#[tokio::test]
async fn streams_are_limited_as_asked() {
    let mock = mock();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = mock.serve_with(listener, ServeOptions { http2_streams: Some(2) }).unwrap();
    let sender = connect(&server).await;
    // The limit is known once the server's settings are there.
    read(send(&sender, "m").await).await.unwrap();
    let mut answers = Vec::new();
    for _ in 0..6 {
        answers.push(async { read(send(&sender, "slow").await).await.unwrap() });
    }
    let most = async {
        let is_over = |entries: &[mock_llm::Entry]| {
            entries.iter().filter(|entry| entry.outcome == Outcome::Complete).count() == 7
        };
        let mut most = 0;
        mock.journal()
            .wait_until(|entries| {
                most = most.max(entries.iter().filter(|entry| entry.outcome == Outcome::Open).count());
                is_over(entries)
            })
            .await;
        most
    };
    let (_, most) = futures::join!(join_all(answers), most);
    assert_eq!(most, 2);
}

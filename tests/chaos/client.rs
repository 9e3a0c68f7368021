//! Requests to a server that may be killed at any moment.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::model::{Counters, Failure, Phase, World, count, text_at};

/// Far longer than any answer takes, with all that the server tries again by itself.
const PATIENCE: Duration = Duration::from_secs(170);

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

/// No answer came: the connection was lost, or never made.
#[derive(Debug)]
pub(crate) struct Lost;

/// The head of an answer, with its body to come.
pub(crate) async fn begin(
    world: &World,
    tenant: usize,
    method: &str,
    path: &str,
    last_event: Option<&str>,
    body: Option<&Value>,
) -> Result<hyper::Response<Incoming>, Lost> {
    let stream = TcpStream::connect(world.address).await.map_err(|_| Lost)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|_| Lost)?;
    tokio::spawn(connection);
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", world.address.to_string())
        .header("authorization", format!("Bearer {}", world.key(tenant)));
    if let Some(last) = last_event {
        request = request.header("last-event-id", last);
    }
    if body.is_some() {
        request = request.header("content-type", "application/json");
    }
    let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
    let request = request.body(Full::new(bytes)).expect("it is made of known parts");
    sender.send_request(request).await.map_err(|_| Lost)
}

/// One request, once.
pub(crate) async fn ask(
    world: &World,
    tenant: usize,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<Answer, Lost> {
    let (status, bytes) = fetch(world, tenant, method, path, body).await?;
    Ok(Answer { status, body: serde_json::from_slice(&bytes).unwrap_or_default() })
}

/// The same, with the body as it is.
pub(crate) async fn fetch(
    world: &World,
    tenant: usize,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<(u16, Bytes), Lost> {
    let asking = async {
        let answer = begin(world, tenant, method, path, None, body).await?;
        let status = answer.status().as_u16();
        Ok((status, answer.into_body().collect().await.map_err(|_| Lost)?.to_bytes()))
    };
    match tokio::time::timeout(PATIENCE, asking).await {
        Ok(answer) => answer,
        Err(_) => {
            let seen = format!("no answer for {PATIENCE:?}");
            world.fail(Failure::new(format!("an answer to {method} {path}"), seen));
            Err(Lost)
        }
    }
}

/// The same request again and again until there is an answer that says what became of it; `None` at the end of the run.
pub(crate) async fn insist(
    world: &World,
    tenant: usize,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Option<Answer> {
    let mut wait = Duration::from_millis(20);
    loop {
        match ask(world, tenant, method, path, body).await {
            Err(Lost) => count(&world.counters.connections),
            Ok(answer) if may_be_tried_again(&answer) => {
                let kind = text_at(&answer.body, "/type").rsplit('/').next().unwrap_or_default().to_owned();
                Counters::hit(&world.counters.refusals, format!("{} {kind}", answer.status));
            }
            Ok(answer) if answer.status == 423 => {
                let session = path.split('/').nth(3).unwrap_or_default();
                let seen = format!("{method} {path}: {}", text_at(&answer.body, "/detail"));
                world.fail(Failure::of(session, "no session is parked", seen));
                return None;
            }
            Ok(answer) => return Some(answer),
        }
        if world.phase() == Phase::Over || world.failed().is_err() {
            return None;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(Duration::from_millis(300));
    }
}

/// The server ends, its store does not write, or it has too much to do.
fn may_be_tried_again(answer: &Answer) -> bool {
    matches!(answer.status, 429 | 500 | 502 | 503)
}

/// An answer that has no place in what was asked.
pub(crate) fn unexpected(world: &World, session: &str, what: &str, answer: &Answer) {
    let seen = format!("{} {}", answer.status, answer.body);
    world.fail(Failure::of(session, what, seen));
}

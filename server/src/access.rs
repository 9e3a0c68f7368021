//! The id of each request, and one line in the log about it.
//!
//! The line says who asked for what and how it ended. It never holds a header, a token, the query or a body.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tracing::Instrument as _;

use crate::metrics::Asked;
use crate::principal::Principal;

/// Carries the id of a request, in both directions.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The longest id that a client may give its request, in bytes.
const LONGEST_ID: usize = 64;
/// The most bytes of a path that are logged.
const LONGEST_PATH: usize = 256;

/// Gives the request an id, which the answer carries too, and logs the answer when the last of it left.
pub(crate) async fn access(mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let id = given(&request).unwrap_or_else(made);
    let method = request.method().clone();
    let path: Arc<str> = shown(request.uri().path()).into();
    if let Ok(value) = HeaderValue::from_str(&id) {
        request.headers_mut().insert(REQUEST_ID, value);
    }
    let asked = Asked::of(&request);
    // Whatever is logged on the way to the answer has the id.
    let span = tracing::info_span!("request", id);
    let mut response = next.run(request).instrument(span).await;
    asked.answered(response.status(), began.elapsed());
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    let principal = response.extensions_mut().remove::<Principal>();
    let status = response.status().as_u16();
    let line = Line { id, method, path, status, principal, began, bytes: 0 };
    response.map(|body| Body::new(Counted { body, line }))
}

/// The id that the client gave, if it can be one.
fn given(request: &Request) -> Option<String> {
    let id = request.headers().get(REQUEST_ID)?.to_str().ok()?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    ((1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(fits)).then(|| id.to_owned())
}

fn made() -> String {
    let mut bytes = [0; 8];
    // Without randomness ids only cannot tell requests apart.
    let _ = getrandom::fill(&mut bytes);
    format!("req_{:016x}", u64::from_be_bytes(bytes))
}

fn shown(path: &str) -> &str {
    let end = (0..=LONGEST_PATH.min(path.len())).rev().find(|end| path.is_char_boundary(*end));
    &path[..end.unwrap_or(0)]
}

/// What is logged when it is dropped.
struct Line {
    id: String,
    method: Method,
    path: Arc<str>,
    status: u16,
    principal: Option<Principal>,
    began: Instant,
    bytes: u64,
}

impl Drop for Line {
    fn drop(&mut self) {
        let principal = self.principal.as_ref();
        tracing::info!(
            target: "playhouse::access",
            id = self.id,
            method = %self.method,
            path = %self.path,
            status = self.status,
            ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            tenant = principal.map_or("-", |principal| &*principal.tenant),
            key = principal.and_then(|principal| principal.key.as_deref()).unwrap_or("-"),
            bytes = self.bytes,
        );
    }
}

/// A body whose bytes are counted for the line about it.
struct Counted {
    body: Body,
    line: Line,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            self.line.bytes += data.len() as u64;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_taken_over_only_if_it_can_be_one() {
        let request = |id: &str| Request::builder().header(REQUEST_ID, id).body(Body::empty()).unwrap();
        let longest = "x".repeat(LONGEST_ID);
        for id in ["a", "2026-11-22_08.15", longest.as_str()] {
            assert_eq!(given(&request(id)).as_deref(), Some(id));
        }
        for id in ["", "a b", "a\"b", "é", &format!("{longest}x")] {
            assert_eq!(given(&request(id)), None, "{id}");
        }
        assert_ne!(made(), made());
    }

    #[test]
    fn a_long_path_is_shown_up_to_a_character() {
        let path = format!("/{}é", "x".repeat(LONGEST_PATH - 2));
        assert_eq!(shown(&path).len(), LONGEST_PATH - 1);
    }
}

//! All routes, and what a request goes through before it comes to one.

use std::panic::AssertUnwindSafe;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::{ALLOW, CONTENT_TYPE};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use futures::FutureExt as _;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::timeout::RequestBodyTimeoutLayer;

use crate::access::access;
use crate::app::App;
use crate::auth::authenticate;
use crate::hosts::hosts;
use crate::native::extract::too_large;
use crate::problem::{Kind, Problem, SUSPENDED};
use crate::{metrics, native, operator, wire};

/// The most bytes of a text that says why a request was refused.
const LONGEST_REASON: usize = 8 * 1024;

/// All routes over `app`.
pub fn router(app: App) -> Router {
    let options = app.options();
    // From inside: the last of these is the first that a request comes to.
    Router::new()
        .route("/healthz", get(healthy))
        .route("/readyz", get(ready))
        .route(metrics::PATH, get(metrics::show))
        .merge(native::router())
        .merge(native::mcp_server::router(&app))
        .merge(wire::router())
        .fallback(unknown)
        .layer(RequestBodyLimitLayer::new(options.body))
        // Has a limit of its own.
        .merge(operator::router())
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::disable())
        .layer(RequestBodyTimeoutLayer::new(options.head_time))
        .layer(from_fn(documents))
        .layer(from_fn_with_state(app.clone(), authenticate))
        .layer(from_fn_with_state(app.clone(), hosts))
        .layer(from_fn(survive))
        .layer(from_fn(access))
        .with_state(app)
}

/// The process lives.
async fn healthy() -> &'static str {
    "ok\n"
}

/// New work is welcome.
async fn ready(State(app): State<App>) -> Result<&'static str, Problem> {
    app.admit()?;
    if let Some(suspended) = app.engine().suspended() {
        let seconds = suspended.since.elapsed().as_secs();
        let detail = format!("the store has taken no writes for {seconds} s: {}", suspended.reason);
        return Err(Problem::new(Kind::Suspended, detail).after(SUSPENDED));
    }
    let overloads = app.overloads();
    if !overloads.is_empty() {
        let detail = format!("there is too much to do: {}; try again soon", overloads.join(", "));
        return Err(Problem::new(Kind::Overloaded, detail).after(std::time::Duration::from_secs(1)));
    }
    Ok("ok\n")
}

async fn unknown(uri: Uri) -> Problem {
    Problem::not_found(format!("there is nothing at \"{}\"", uri.path().escape_debug()))
}

async fn wrong_method(method: Method, uri: Uri) -> Problem {
    let detail = format!("\"{}\" does not take {method}: the `allow` header says what it takes", uri.path());
    Problem::new(Kind::Method, detail)
}

/// Answers for a handler that failed. The panic itself stands in the log; nothing of it is said to the client. The body of
/// an answer is passed on as it is: each wrapping of it would cost every event of every stream.
async fn survive(request: Request, next: Next) -> Response {
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(_) => {
            tracing::error!("a request's handler panicked");
            Problem::new(Kind::Internal, "the server failed to answer this: its log says why").into_response()
        }
    }
}

/// Makes problem documents of what the extractors refuse with plain text.
async fn documents(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let kind = match response.status() {
        StatusCode::NOT_FOUND => Kind::NotFound,
        StatusCode::METHOD_NOT_ALLOWED => Kind::Method,
        StatusCode::PAYLOAD_TOO_LARGE => Kind::TooLarge,
        status if status.is_client_error() => Kind::Invalid,
        _ => return response,
    };
    let content = response.headers().get(CONTENT_TYPE).map(|value| value.as_bytes());
    if content.is_some_and(|content| !content.starts_with(b"text/plain")) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let reason = to_bytes(body, LONGEST_REASON).await.unwrap_or_default();
    let reason = String::from_utf8_lossy(&reason);
    let problem = if kind == Kind::TooLarge {
        too_large()
    } else if reason.is_empty() {
        Problem::new(kind, kind.title().to_lowercase())
    } else {
        Problem::new(kind, reason)
    };
    let mut response = problem.into_response();
    if let Some(allow) = parts.headers.get(ALLOW) {
        response.headers_mut().insert(ALLOW, allow.clone());
    }
    response
}

#[cfg(test)]
mod tests {
    use axum::Json;
    use axum::body::Body;
    use axum::routing::post;
    use serde_json::Value;
    use tower::ServiceExt as _;

    use super::*;

    async fn ask(routes: Router, request: Request) -> (StatusCode, Value) {
        let response = routes.oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn a_panic_is_told_without_what_it_says() {
        let fail = async || -> &'static str { panic!("the secret is out") };
        let routes = Router::new().route("/", get(fail)).layer(from_fn(survive));
        let (status, problem) = ask(routes, Request::new(Body::empty())).await;
        assert_eq!(
            (status.as_u16(), &problem["type"]),
            (500, &Value::from("urn:playhouse:problem:internal"))
        );
        assert!(!problem.to_string().contains("secret"), "{problem}");
    }

    #[tokio::test]
    async fn what_an_extractor_refuses_is_a_problem_document() {
        let echo = async |Json(body): Json<Value>| body.to_string();
        let routes = Router::new().route("/", post(echo)).layer(from_fn(documents));
        let request = |kind: &str| {
            let request = Request::post("/").header(CONTENT_TYPE, kind);
            request.body(Body::from("{\"a\":")).unwrap()
        };
        for (kind, word) in [("application/json", "EOF"), ("text/plain", "Content-Type")] {
            let (status, problem) = ask(routes.clone(), request(kind)).await;
            let detail = problem["detail"].as_str().unwrap();
            assert!(status.as_u16() == 400 && detail.contains(word), "{problem}");
            assert_eq!(problem["type"], "urn:playhouse:problem:invalid");
        }
    }
}

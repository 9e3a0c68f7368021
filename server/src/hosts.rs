//! Which pages of browsers may reach the server: the checks of `Host` and `Origin`, and what CORS answers.
//!
//! A page on the web can point a name of its own at this machine and then read what the server says (DNS rebinding): so a
//! request must name an address, `localhost`, or a host that the operator listed. And any page can send requests to any
//! address: so one that a browser sends must come from the server's own pages, or from an origin that the operator listed.

use std::net::IpAddr;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HOST, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::app::App;
use crate::connection::Carrier;
use crate::problem::{Kind, Problem};

/// How long browsers may remember what they were allowed.
const REMEMBERED: Duration = Duration::from_secs(600);
/// Whether a browser sends a request for a page of another site.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// A browser asks whether a public page may reach a private address.
const REQUEST_PRIVATE: HeaderName = HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE: HeaderName = HeaderName::from_static("access-control-allow-private-network");
/// What pages of other origins may send and read.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");
const SENT: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, idempotency-key, last-event-id, x-opencode-directory, x-request-id",
);
const READ: HeaderValue = HeaderValue::from_static("link, retry-after, x-next-cursor, x-request-id");

/// Refuses what a page may not send, and answers what browsers ask beforehand.
pub(crate) async fn hosts(State(app): State<App>, request: Request, next: Next) -> Response {
    if request.extensions().get() == Some(&Carrier::Unix) {
        // No page reaches a socket in the file system.
        return next.run(request).await;
    }
    let (hosts, origins) = (&app.options().hosts, &app.options().origins);
    let checked = host(request.headers(), request.uri()).and_then(|host| {
        check_host(host, hosts)?;
        check_origin(request.headers(), host, origins)
    });
    let asks = request.headers().contains_key(ORIGIN);
    let mut response = match checked {
        Err(problem) => problem.into_response(),
        Ok(listed) => {
            let preflight = listed.is_some()
                && request.method() == Method::OPTIONS
                && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
            let mut response = if preflight { allowed(request.headers()) } else { next.run(request).await };
            if let Some(origin) = listed {
                response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
                response.headers_mut().insert(ACCESS_CONTROL_EXPOSE_HEADERS, READ);
            }
            response
        }
    };
    if asks {
        response.headers_mut().append(VARY, HeaderValue::from_static("origin"));
    }
    response
}

/// The answer to a browser that asks beforehand, for an origin that is listed.
fn allowed(asked: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, SENT);
    headers.insert(ACCESS_CONTROL_MAX_AGE, REMEMBERED.as_secs().into());
    if asked.contains_key(REQUEST_PRIVATE) {
        headers.insert(ALLOW_PRIVATE, HeaderValue::from_static("true"));
    }
    response
}

/// The host, with its port, that the request is for.
fn host<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Result<&'a str, Problem> {
    let mut named = headers.get_all(HOST).iter();
    let (first, second) = (named.next(), named.next());
    let header = first.and_then(|value| value.to_str().ok()).filter(|_| second.is_none());
    let host = header.ok_or_else(|| Problem::invalid("the request must have one `host` header"))?;
    match uri.authority() {
        // Whoever believes the one must not be told something else by the other.
        Some(authority) if !authority.as_str().eq_ignore_ascii_case(host) => {
            Err(Problem::invalid("the request's target and its `host` header name different hosts"))
        }
        _ => Ok(host),
    }
}

/// The name in `host`, without its port and without the dot of a full name.
fn name(host: &str) -> &str {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(name, _)| name),
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.strip_suffix('.').unwrap_or(name)
}

/// Whether the server may be called by this name. An address may be: no page can make another's its own.
fn check_host(host: &str, listed: &[String]) -> Result<(), Problem> {
    let called = name(host);
    let fits = called.parse::<IpAddr>().is_ok()
        || called.eq_ignore_ascii_case("localhost")
        || listed.iter().any(|listed| name(listed).eq_ignore_ascii_case(called));
    if fits {
        return Ok(());
    }
    let detail = format!(
        "the server is not called \"{}\": the operator can list the name as `server.hosts`",
        called.escape_debug()
    );
    Err(Problem::new(Kind::Forbidden, detail))
}

/// The origin of the request, if it is listed. One that is none and not the server's own is refused, whatever the method:
/// a page can send a form anywhere without asking first.
fn check_origin(headers: &HeaderMap, host: &str, listed: &[String]) -> Result<Option<HeaderValue>, Problem> {
    let Some(origin) = headers.get(ORIGIN) else {
        return match headers.get(FETCH_SITE).map(HeaderValue::as_bytes) {
            None | Some(b"same-origin" | b"none") => Ok(None),
            Some(_) => Err(Problem::new(
                Kind::Forbidden,
                "a page of another site sent this request, and not by an origin that the operator listed",
            )),
        };
    };
    let text = origin.to_str().unwrap_or_default();
    if listed.iter().any(|listed| listed.trim_end_matches('/').eq_ignore_ascii_case(text)) {
        return Ok(Some(origin.clone()));
    }
    if is_of(text, host) {
        return Ok(None);
    }
    let detail = format!(
        "pages of \"{}\" may not use this server: the operator can list the origin as `server.origins`",
        text.escape_debug()
    );
    Err(Problem::new(Kind::Forbidden, detail))
}

/// Whether `origin` is `host`, default ports aside.
fn is_of(origin: &str, host: &str) -> bool {
    let (place, port) = match origin.split_once("://") {
        Some(("http", place)) => (place, ":80"),
        Some(("https", place)) => (place, ":443"),
        _ => return false,
    };
    let bare = |text: &str| text.strip_suffix(port).unwrap_or(text).to_ascii_lowercase();
    bare(place) == bare(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn the_server_is_called_by_an_address_localhost_or_a_listed_name() {
        let listed = ["play.example.org".to_owned(), "other.example:8080".to_owned()];
        for host in [
            "127.0.0.1:4096",
            "192.168.1.7",
            "[::1]:4096",
            "[fe80::1]",
            "localhost:4096",
            "LOCALHOST.",
            "Play.Example.org:443",
            "other.example",
        ] {
            assert_eq!(check_host(host, &listed), Ok(()), "{host}");
        }
        for host in
            ["", "evil.example:4096", "localhost.evil.example", "127.0.0.1.evil.example", "example.org"]
        {
            assert_eq!(check_host(host, &listed).unwrap_err().kind, Kind::Forbidden, "{host}");
        }
    }

    #[test]
    fn a_request_names_one_host() {
        let uri = |text: &str| text.parse::<Uri>().unwrap();
        let one = headers(&[("host", "localhost:1")]);
        assert_eq!(host(&one, &uri("/a")), Ok("localhost:1"));
        assert_eq!(host(&one, &uri("http://localhost:1/a")), Ok("localhost:1"));
        assert_eq!(host(&one, &uri("http://evil.example/a")).unwrap_err().kind, Kind::Invalid);
        assert_eq!(host(&HeaderMap::new(), &uri("/a")).unwrap_err().kind, Kind::Invalid);
        let mut two = one.clone();
        two.append(HOST, HeaderValue::from_static("evil.example"));
        assert_eq!(host(&two, &uri("/a")).unwrap_err().kind, Kind::Invalid);
    }

    #[test]
    fn pages_come_from_the_server_itself_or_from_a_listed_origin() {
        let listed = ["https://app.example.org".to_owned()];
        let check = |pairs: &[(&'static str, &str)], host: &str| {
            let found = check_origin(&headers(pairs), host, &listed);
            found.map(|origin| origin.is_some()).map_err(|problem| problem.kind)
        };
        assert_eq!(check(&[], "localhost:4096"), Ok(false), "no browser");
        assert_eq!(check(&[("origin", "http://localhost:4096")], "localhost:4096"), Ok(false));
        assert_eq!(check(&[("origin", "https://play.example")], "play.example:443"), Ok(false));
        assert_eq!(check(&[("origin", "https://app.example.org")], "localhost:4096"), Ok(true));
        for origin in
            ["http://localhost:3000", "http://localhost", "null", "file://", "http://app.example.org"]
        {
            let found = check(&[("origin", origin)], "localhost:4096");
            assert_eq!(found, Err(Kind::Forbidden), "{origin}");
        }
        for (site, fits) in
            [("same-origin", true), ("none", true), ("same-site", false), ("cross-site", false)]
        {
            assert_eq!(check(&[("sec-fetch-site", site)], "localhost:4096").is_ok(), fits, "{site}");
        }
    }
}

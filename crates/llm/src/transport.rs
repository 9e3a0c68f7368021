//! Carries requests: over sockets, or to a model in the same process.

use std::error::Error;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{BoxStream, StreamExt};
use http::{HeaderMap, HeaderName, HeaderValue};
use playhouse_protocol::ErrorInfo;
use playhouse_protocol::error::ErrorCode;
use reqwest::Url;

use secrecy::{ExposeSecret, SecretString};

use crate::client::Unanswered;
use crate::connections::{Connections, Http2, Lanes};

/// A request, ready to be sent.
#[derive(Debug)]
pub struct HttpRequest {
    /// The whole address.
    pub url: String,
    /// Names (lower case) and values. Values may be secrets: they are never logged.
    pub headers: Vec<(String, SecretString)>,
    /// The body, JSON.
    pub body: Bytes,
    /// How its server is connected to; of no interest within a process.
    pub connections: Connections,
}

/// The beginning of an answer.
pub struct HttpResponse {
    /// The status.
    pub status: u16,
    /// Names (lower case) and values.
    pub headers: Vec<(String, String)>,
    /// The body as it arrives.
    pub body: BoxStream<'static, Result<Bytes, ErrorInfo>>,
}

impl std::fmt::Debug for HttpResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpResponse").field("status", &self.status).finish_non_exhaustive()
    }
}

/// Carries requests to servers.
pub trait Transport: Send + Sync {
    /// Sends a request, and returns when the answer's head has arrived. Errors are of class
    /// [`Connection`](ErrorCode::Connection) or [`Misconfigured`](ErrorCode::Misconfigured) while nothing was sent, then of
    /// class [`NoAnswer`](ErrorCode::NoAnswer), and of class [`StreamCut`](ErrorCode::StreamCut) in the body.
    fn send(&self, request: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, ErrorInfo>>;
}

/// Requests over sockets: HTTP/1.1 and HTTP/2, TLS with the certificates that the machine trusts (or, if they are set,
/// those in `SSL_CERT_FILE` and `SSL_CERT_DIR`), connections pooled. Where a connection of HTTP/2 carries as many requests as
/// [`Connections`] allows, others are opened.
///
/// Redirects are not followed: they would carry the key to another host. Costs nothing until the first request. Must be
/// used within one tokio runtime, whose tasks hold the connections.
#[derive(Clone, Debug, Default)]
pub struct HttpTransport {
    lanes: Arc<Lanes>,
}

impl HttpTransport {
    /// A transport without connections.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Transport for HttpTransport {
    fn send(&self, request: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, ErrorInfo>> {
        let transport = self.clone();
        async move { transport.exchange(request).await }.boxed()
    }
}

impl HttpTransport {
    async fn exchange(&self, request: HttpRequest) -> Result<HttpResponse, ErrorInfo> {
        let HttpRequest { url: wanted, headers, body, connections } = request;
        let url = Url::parse(&wanted).map_err(|error| {
            unusable(format!("\"{}\" is not an address ({error}): check base_url", address(&wanted)))
        })?;
        let headers = header_map(headers)?;
        if !matches!(url.scheme(), "http" | "https") {
            let (scheme, address) = (url.scheme(), address(&wanted));
            return Err(unusable(format!(
                "\"{address}\" begins with {scheme}: a base_url begins with http:// or https://"
            )));
        }
        let place = self.lanes.place(&url, connections).await.map_err(unusable)?;
        let sent = place.client.post(url, headers, body).await;
        let answer = sent.map_err(|error| connection_error(&address(&wanted), &error, connections))?;
        let status = answer.status().as_u16();
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers =
            answer.headers().iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
        let body = answer.into_body().map(move |chunk| {
            // The place is taken as long as the body is there.
            let _ = &place;
            chunk.map_err(|error| {
                let (address, cause) = (address(&wanted), playhouse_tls::innermost(error.as_ref()));
                let what = format!("the connection to {address} broke in the middle of the answer ({cause})");
                ErrorInfo::new(ErrorCode::StreamCut, what)
            })
        });
        Ok(HttpResponse { status, headers, body: body.boxed() })
    }
}

fn header_map(pairs: Vec<(String, SecretString)>) -> Result<HeaderMap, ErrorInfo> {
    let mut headers = HeaderMap::with_capacity(pairs.len());
    for (name, value) in pairs {
        let known = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| unusable(format!("\"{}\" is not the name of a header", name.escape_debug())))?;
        let mut value = HeaderValue::from_str(value.expose_secret()).map_err(|_| {
            unusable(format!("the value of the header {name} holds characters that no header can carry"))
        })?;
        value.set_sensitive(true);
        headers.insert(known, value);
    }
    Ok(headers)
}

/// `url` for people: without what may be secret in it (credentials, query). What is no address is not shown up to its
/// last `@`, where a password may hold anything.
pub fn address(url: &str) -> String {
    match Url::parse(url) {
        // `ada:pw@host` reads as the scheme `ada`.
        Ok(mut url) if url.has_host() => {
            // Fails for addresses that cannot have credentials.
            let _ = url.set_username("");
            let _ = url.set_password(None);
            url.set_query(None);
            url.set_fragment(None);
            url.to_string()
        }
        _ => {
            let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
            let rest = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
            let place = rest.split(['?', '#']).next().unwrap_or_default();
            if scheme.is_empty() { place.to_owned() } else { format!("{scheme}://{place}") }
        }
    }
}

/// Refuses what is no address that can be connected to, as one with a port above 65,535. The address may be shown.
///
/// # Errors
/// What is wrong with it, in a fragment without the address.
pub fn check_address(url: &str) -> Result<(), String> {
    match Url::parse(url) {
        Ok(url) if url.has_host() && url.port() != Some(0) => Ok(()),
        Ok(_) => Err("it names no host and port".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn unusable(what: String) -> ErrorInfo {
    ErrorInfo::new(ErrorCode::Misconfigured, what)
}

/// Which class a failed request is of: whether it may pass, and whether it was sent.
fn class(error: &Unanswered, cause: &str) -> ErrorCode {
    if !error.is_connect {
        return ErrorCode::NoAnswer;
    }
    // Neither a certificate nor a server without TLS is another one a second later.
    let lasting = cause.contains("certificate") || cause.contains("InvalidContentType");
    if lasting { ErrorCode::Misconfigured } else { ErrorCode::Connection }
}

fn connection_error(address: &str, error: &Unanswered, connections: Connections) -> ErrorInfo {
    let Connections { http2, connect, .. } = connections;
    let cause = playhouse_tls::innermost(error.error.as_ref());
    let broken = |what: String| ErrorInfo::new(class(error, &cause), what);
    let refused = io_kind(error) == Some(io::ErrorKind::ConnectionRefused);
    broken(match (error.is_connect, error.is_timeout) {
        (true, true) => format!(
            "could not connect to {address} within {} s: is it the right address?",
            connect.as_secs_f64()
        ),
        (true, false) if refused => {
            format!("could not connect to {address} ({cause}): is the server running?")
        }
        (true, false) if chain_says(error, "dns error") => {
            format!(
                "could not connect to {address}: its name was not found ({cause}): check base_url and the network"
            )
        }
        (true, false) if cause.contains("certificate") => {
            format!(
                "could not connect to {address} ({cause}): are the machine's CA certificates installed, and is it the right server?"
            )
        }
        (true, false) if cause.contains("InvalidContentType") => {
            format!(
                "could not connect to {address} ({cause}): the server does not speak TLS; does its base_url begin with http://?"
            )
        }
        (true, false) if address.starts_with("https") && chain_says(error, "handshake") => {
            format!(
                "could not connect to {address} ({cause}): no TLS connection could be made; is it the right server?"
            )
        }
        (true, false) => format!("could not connect to {address} ({cause}): check base_url and the network"),
        (false, _) if http2 == Http2::PriorKnowledge && chain_says(error, "http2 error") => format!(
            "the connection to {address} broke before an answer began ({cause}): does the server speak HTTP/2? It is \
             spoken to in nothing else, as `http2` of the provider says"
        ),
        (false, _) => format!("the connection to {address} broke before an answer began ({cause})"),
    })
}

/// Whether one of the reasons holds these words.
fn chain_says(error: &Unanswered, words: &str) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = error.error.source();
    while let Some(error) = cause {
        if error.to_string().contains(words) {
            return true;
        }
        cause = error.source();
    }
    false
}

fn io_kind(error: &Unanswered) -> Option<io::ErrorKind> {
    let mut cause: Option<&(dyn Error + 'static)> = error.error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn no_form_of_an_address_shows_its_credentials() {
        for (url, shown) in [
            ("https://ada:pw@a.test/v1?key=x#y", "https://a.test/v1"),
            ("https://ada:pw@a.test:99999/x?token=x", "https://a.test:99999/x"),
            ("https://ada:p?w@a.test:99999/x", "https://a.test:99999/x"),
            ("https://ada:p@w@[::1/x", "https://[::1/x"),
            ("ada:pw@a.test", "a.test"),
            ("nonsense?token=x", "nonsense"),
            ("", ""),
        ] {
            assert_eq!(address(url), shown, "{url}");
        }
    }
}

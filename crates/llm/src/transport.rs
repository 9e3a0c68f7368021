//! Carries requests: over sockets, or to a model in the same process.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{BoxStream, StreamExt};
use playhouse_protocol::ErrorInfo;
use playhouse_protocol::error::ErrorCode;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url, redirect};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::OnceCell;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection is kept for the next request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// A request, ready to be sent.
#[derive(Debug)]
pub struct HttpRequest {
    /// The whole address.
    pub url: String,
    /// Names (lower case) and values. Values may be secrets: they are never logged.
    pub headers: Vec<(String, SecretString)>,
    /// The body, JSON.
    pub body: Bytes,
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
    /// [`Connection`](ErrorCode::Connection) up to there, of class [`StreamCut`](ErrorCode::StreamCut) in the body.
    fn send(&self, request: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, ErrorInfo>>;
}

/// Requests over sockets: HTTP/1.1 and HTTP/2, TLS with the certificates that the machine trusts, connections pooled.
///
/// Redirects are not followed: they would carry the key to another host. Costs nothing until the first request. Must be
/// used within one tokio runtime, whose tasks hold the connections.
#[derive(Clone, Debug, Default)]
pub struct HttpTransport {
    /// For `http`: needs no certificates, which a machine may lack.
    plain: Arc<OnceCell<Client>>,
    /// For `https`.
    tls: Arc<OnceCell<Client>>,
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
    async fn exchange(self, request: HttpRequest) -> Result<HttpResponse, ErrorInfo> {
        let address = address(&request.url);
        let url = Url::parse(&request.url)
            .map_err(|error| broken(format!("\"{address}\" is not an address ({error}): check base_url")))?;
        let headers = headers(request.headers)?;
        let client = match url.scheme() {
            "http" => self.plain.get_or_try_init(|| client(false)).await?,
            "https" => self.tls.get_or_try_init(|| client(true)).await?,
            scheme => {
                return Err(broken(format!(
                    "\"{address}\" begins with {scheme}: a base_url begins with http:// or https://"
                )));
            }
        };
        let sent = client.post(url).headers(headers).body(request.body).send().await;
        let response = sent.map_err(|error| connection_error(&address, &error))?;
        let status = response.status().as_u16();
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers =
            response.headers().iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
        let body = response.bytes_stream().map(move |chunk| {
            chunk.map_err(|error| {
                let what = format!(
                    "the connection to {address} broke in the middle of the answer ({})",
                    cause(&error)
                );
                ErrorInfo::new(ErrorCode::StreamCut, what)
            })
        });
        Ok(HttpResponse { status, headers, body: body.boxed() })
    }
}

/// Builds a client off the runtime's workers: loading the machine's certificates takes milliseconds.
async fn client(tls: bool) -> Result<Client, ErrorInfo> {
    let build = move || {
        let builder = Client::builder()
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .user_agent(concat!("playhouse/", env!("CARGO_PKG_VERSION")));
        if tls { builder } else { builder.tls_certs_only([]) }.build()
    };
    let built = tokio::task::spawn_blocking(build).await;
    let built =
        built.map_err(|error| ErrorInfo::new(ErrorCode::Internal, format!("no HTTP client: {error}")))?;
    built.map_err(|error| {
        broken(format!(
            "TLS cannot be set up ({}): are the machine's CA certificates installed?",
            cause(&error)
        ))
    })
}

fn headers(pairs: Vec<(String, SecretString)>) -> Result<HeaderMap, ErrorInfo> {
    let mut headers = HeaderMap::with_capacity(pairs.len());
    for (name, value) in pairs {
        let known = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| broken(format!("\"{}\" is not the name of a header", name.escape_debug())))?;
        let mut value = HeaderValue::from_str(value.expose_secret()).map_err(|_| {
            broken(format!("the value of the header {name} holds characters that no header can carry"))
        })?;
        value.set_sensitive(true);
        headers.insert(known, value);
    }
    Ok(headers)
}

/// `url` for people: without what may be secret in it (credentials, query).
pub(crate) fn address(url: &str) -> String {
    match Url::parse(url) {
        Ok(mut url) => {
            // Fails for addresses that cannot have credentials.
            let _ = url.set_username("");
            let _ = url.set_password(None);
            url.set_query(None);
            url.set_fragment(None);
            url.to_string()
        }
        Err(_) => url.split(['?', '@']).next().unwrap_or_default().to_owned(),
    }
}

fn broken(what: String) -> ErrorInfo {
    ErrorInfo::new(ErrorCode::Connection, what)
}

fn connection_error(address: &str, error: &reqwest::Error) -> ErrorInfo {
    let cause = cause(error);
    let refused = io_kind(error) == Some(io::ErrorKind::ConnectionRefused);
    broken(match (error.is_connect(), error.is_timeout()) {
        (true, true) => format!(
            "could not connect to {address} within {} s: is it the right address?",
            CONNECT_TIMEOUT.as_secs()
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
        (false, _) => format!("the connection to {address} broke before an answer began ({cause})"),
    })
}

/// The innermost reason: outer ones repeat the address.
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// Whether one of the reasons holds these words.
fn chain_says(error: &reqwest::Error, words: &str) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = error.source();
    while let Some(error) = cause {
        if error.to_string().contains(words) {
            return true;
        }
        cause = error.source();
    }
    false
}

fn io_kind(error: &reqwest::Error) -> Option<io::ErrorKind> {
    let mut cause: Option<&(dyn Error + 'static)> = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        cause = error.source();
    }
    None
}

//! One HTTP client with a pool of its own: straight to a server, or through the proxy that the environment names.
//!
//! The straight one is made of the parts that the other is made of, without its layers, and its sockets rest as
//! [`paced`](crate::paced) says.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io::{self, Write as _};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{BoxStream, StreamExt as _, try_unfold};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyDataStream, Full};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::{Client as Pool, Error as PoolError};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioIo, TokioTimer};
use percent_encoding::percent_decode_str;
use playhouse_tls::Trust;
use reqwest::{Url, redirect};
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tower::Service;

use crate::connections::{Connections, Http2, blocking};
use crate::driven::{Driven, Drivers};
use crate::paced::{Pace, Paced};

/// How long a connection is kept for the next request.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// So many connections without a request are kept to a server that speaks HTTP/1.1. Each holds a buffer as large as what came
/// at once.
const MOST_IDLE: usize = 64;
/// The most that is read at once, and so the largest buffer. No head of an answer is larger.
const MOST_AT_ONCE: usize = 64 << 10;
/// Names that are looked up at once.
const LOOKUPS: usize = 8;
/// How often a server that is silent on a connection of HTTP/2 is asked whether it is still there. A connection that
/// died without a word would otherwise take every new request until the system gives it up.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How long it may take to answer that.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// How often the system asks whether the other end of a silent connection is there, and how often in vain.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_RETRIES: u32 = 3;
/// How long what was written may stay unacknowledged.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a request is sent again that a server handed back unread.
const MOST_HANDED_BACK: usize = 2;
const AGENT: &str = concat!("playhouse/", env!("CARGO_PKG_VERSION"));

type BoxError = Box<dyn Error + Send + Sync>;

/// The beginning of an answer, and its body as it arrives.
pub(crate) type Answer = Response<BoxStream<'static, Result<Bytes, BoxError>>>;

/// Why no answer began.
#[derive(Debug)]
pub(crate) struct Unanswered {
    /// No connection was made, so nothing was sent.
    pub(crate) is_connect: bool,
    /// It took too long.
    pub(crate) is_timeout: bool,
    pub(crate) error: BoxError,
}

/// A client. A request that a server handed back unread is sent again, as the standard allows; all other failures are the
/// caller's.
#[derive(Clone, Debug)]
pub(crate) enum Client {
    Straight(Arc<Pool<Connector, Full<Bytes>>>),
    Proxied(reqwest::Client),
}

impl Client {
    /// A client for the server of `url`. `tls`: `None` for addresses without TLS, which need no certificates.
    ///
    /// # Errors
    /// A fragment that says what is wrong.
    pub(crate) fn new(
        url: &Url,
        tls: Option<&ClientConfig>,
        connections: Connections,
        pace: &Pace,
    ) -> Result<Self, String> {
        let tls = tls.map(|tls| {
            let mut tls = tls.clone();
            tls.alpn_protocols = match connections.http2 {
                Http2::Negotiated => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
                Http2::PriorKnowledge => vec![b"h2".to_vec()],
            };
            tls
        });
        let uri = Uri::try_from(url.as_str()).map_err(|error| error.to_string())?;
        if Matcher::from_system().intercept(&uri).is_some() {
            return proxied(tls, connections).map(Self::Proxied);
        }
        straight(tls, connections, pace).map(|pool| Self::Straight(Arc::new(pool)))
    }

    /// Sends `body` to `url`, and returns when the answer's head has arrived.
    pub(crate) async fn post(&self, url: Url, headers: HeaderMap, body: Bytes) -> Result<Answer, Unanswered> {
        match self {
            Self::Straight(pool) => post(pool, url, headers, body).await,
            Self::Proxied(client) => {
                let sent = client.post(url).headers(headers).body(body).send().await;
                let response = sent.map_err(|error| Unanswered {
                    is_connect: error.is_connect(),
                    is_timeout: error.is_timeout(),
                    error: error.into(),
                })?;
                let mut answer = Response::new(());
                *answer.status_mut() = response.status();
                *answer.headers_mut() = response.headers().clone();
                let body = response.bytes_stream().map(|chunk| chunk.map_err(BoxError::from));
                Ok(answer.map(|()| body.boxed()))
            }
        }
    }
}

fn proxied(tls: Option<ClientConfig>, connections: Connections) -> Result<reqwest::Client, String> {
    let builder = reqwest::Client::builder()
        .redirect(redirect::Policy::none())
        .connect_timeout(connections.connect)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(MOST_IDLE)
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .user_agent(AGENT);
    let tls = tls.map_or_else(|| playhouse_tls::client_config(Trust::Nobody), Ok)?;
    let builder = builder.tls_backend_preconfigured(tls);
    match connections.http2 {
        Http2::Negotiated => builder,
        Http2::PriorKnowledge => builder.http2_prior_knowledge(),
    }
    .build()
    .map_err(|error| playhouse_tls::innermost(&error))
}

fn straight(
    tls: Option<ClientConfig>,
    connections: Connections,
    pace: &Pace,
) -> Result<Pool<Connector, Full<Bytes>>, String> {
    let tls = tls.map_or_else(|| playhouse_tls::client_config(Trust::Nobody), Ok)?;
    let mut http = HttpConnector::new_with_resolver(Names);
    http.enforce_http(false);
    http.set_nodelay(true);
    // Shared by the addresses of a host, so that one which does not answer leaves time for the next.
    http.set_connect_timeout(Some(connections.connect));
    http.set_keepalive(Some(KEEPALIVE));
    http.set_keepalive_interval(Some(KEEPALIVE));
    http.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    #[cfg(target_os = "linux")]
    http.set_tcp_user_timeout(Some(USER_TIMEOUT));
    let sockets = Sockets { http, pace: pace.clone() };
    let connector = Connector { https: HttpsConnector::from((sockets, tls)), within: connections.connect };
    Ok(Pool::builder(Drivers)
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(MOST_IDLE)
        .http1_max_buf_size(MOST_AT_ONCE)
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .http2_only(connections.http2 == Http2::PriorKnowledge)
        .build(connector))
}

async fn post(
    pool: &Pool<Connector, Full<Bytes>>,
    mut url: Url,
    mut headers: HeaderMap,
    body: Bytes,
) -> Result<Answer, Unanswered> {
    if let Some(credentials) = credentials(&url)
        && !headers.contains_key(AUTHORIZATION)
    {
        headers.insert(AUTHORIZATION, credentials);
    }
    // Fails for addresses that cannot have credentials.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    let uri = Uri::try_from(url.as_str()).map_err(|error| Unanswered {
        is_connect: true,
        is_timeout: false,
        error: error.into(),
    })?;
    headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(AGENT));
    let mut handed_back = 0;
    let response = loop {
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = headers.clone();
        match pool.request(request).await {
            Ok(response) => break response,
            Err(error) if handed_back < MOST_HANDED_BACK && is_handed_back(&error) => handed_back += 1,
            Err(error) => {
                return Err(Unanswered {
                    is_connect: error.is_connect(),
                    is_timeout: is_too_slow(&error),
                    error: error.into(),
                });
            }
        }
    };
    let (mut head, body) = response.into_parts();
    let body = Driven::new(BodyDataStream::new(body), head.version, &head.extensions);
    let body = body.map(|chunk| chunk.map_err(BoxError::from));
    let is_packed = head.headers.get(CONTENT_ENCODING).is_some_and(|encoding| {
        let encoding = encoding.as_bytes();
        encoding.eq_ignore_ascii_case(b"gzip") || encoding.eq_ignore_ascii_case(b"x-gzip")
    });
    let body = if is_packed {
        head.headers.remove(CONTENT_ENCODING);
        head.headers.remove(CONTENT_LENGTH);
        unpacked(body.boxed())
    } else {
        body.boxed()
    };
    Ok(Response::from_parts(head, body))
}

/// What `url` names before its host, as a header.
fn credentials(url: &Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let mut pair: Vec<u8> = percent_decode_str(url.username()).collect();
    pair.push(b':');
    pair.extend(percent_decode_str(url.password().unwrap_or_default()));
    let mut value = HeaderValue::try_from(format!("Basic {}", BASE64_STANDARD.encode(pair))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Whether the server said that it did not look at the request: it was closing the connection, or refused the stream.
fn is_handed_back(error: &PoolError) -> bool {
    let cause = chain(error).find_map(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|error| {
        let closes = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
        let refuses = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
        error.is_remote() && (closes || refuses)
    })
}

fn is_too_slow(error: &PoolError) -> bool {
    let is_out_of_time = |cause: &(dyn Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
    };
    chain(error).any(|cause| cause.is::<TooSlow>() || is_out_of_time(cause))
}

/// An error and its causes.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// A body that was compressed although nobody had asked for that, as some gateways do.
fn unpacked(
    body: BoxStream<'static, Result<Bytes, BoxError>>,
) -> BoxStream<'static, Result<Bytes, BoxError>> {
    let unpacker = Some(MultiGzDecoder::new(Vec::new()));
    try_unfold((body, unpacker), |(mut body, unpacker)| async move {
        let Some(mut unpacker) = unpacker else { return Ok(None) };
        let next = match body.next().await {
            Some(chunk) => {
                unpacker.write_all(&chunk?)?;
                unpacker.flush()?;
                Bytes::from(std::mem::take(unpacker.get_mut()))
            }
            // Fails if the end is missing.
            None => return Ok(Some((Bytes::from(unpacker.finish()?), (body, None)))),
        };
        Ok(Some((next, (body, Some(unpacker)))))
    })
    .boxed()
}

/// No connection within the time that it may take.
#[derive(Debug)]
struct TooSlow;

impl fmt::Display for TooSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no connection was made in time")
    }
}

impl Error for TooSlow {}

/// Makes connections, with TLS where the address says so.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    https: HttpsConnector<Sockets>,
    /// The most time for name, socket and TLS together.
    within: Duration,
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<Paced<TcpStream>>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.https.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.https.call(uri);
        let limited = tokio::time::timeout(self.within, connecting);
        async move { limited.await.map_err(|_| BoxError::from(TooSlow))? }.boxed()
    }
}

/// Finds the addresses of a name as the system does it, which blocks a thread, for half a minute where no server of names answers. So it
/// is done for a few names at once; that a request gave up does not free such a thread.
#[derive(Clone, Debug)]
struct Names;

static LOOKING: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(LOOKUPS)));

impl Service<Name> for Names {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let look = async move {
            let permit = Arc::clone(&LOOKING).acquire_owned().await.map_err(io::Error::other)?;
            let look = move || {
                let _permit = permit;
                (name.as_str(), 0).to_socket_addrs()
            };
            blocking(look).await.map_err(io::Error::other)?
        };
        look.boxed()
    }
}

/// Makes sockets that rest.
#[derive(Clone, Debug)]
struct Sockets {
    http: HttpConnector<Names>,
    pace: Pace,
}

impl Service<Uri> for Sockets {
    type Response = TokioIo<Paced<TcpStream>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.http.poll_ready(cx).map_err(BoxError::from)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connecting, pace) = (self.http.call(uri), self.pace.clone());
        async move { Ok(TokioIo::new(Paced::new(connecting.await?.into_inner(), pace))) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpListener;

    use futures::TryStreamExt as _;
    use tokio::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::paced::Coming;

    /// Answers one request on each of two connections, in pieces, closes it a moment later, and says so.
    fn serve(listener: &TcpListener, closed: &Sender<()>) -> io::Result<()> {
        for _ in 0..2 {
            let (mut socket, _) = listener.accept()?;
            let (mut request, mut buffer) = (Vec::new(), [0; 1024]);
            while !request.ends_with(b"\r\n\r\n{}") {
                let length = socket.read(&mut buffer)?;
                assert!(length > 0, "a request came on a connection that was closed");
                request.extend_from_slice(&buffer[..length]);
            }
            socket.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n")?;
            for piece in [&b"1\r\nb\r\n"[..], b"1\r\nc\r\n0\r\n\r\n"] {
                std::thread::sleep(Duration::from_millis(10));
                socket.write_all(piece)?;
            }
            std::thread::sleep(Duration::from_millis(5));
            drop(socket);
            // Nobody waits for it where the test failed.
            let _ = closed.blocking_send(());
        }
        Ok(())
    }

    #[tokio::test]
    async fn a_connection_that_was_closed_after_an_answer_is_not_asked_again_beside_many_answers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let (closed, mut is_closed) = channel(1);
        let server = std::thread::spawn(move || serve(&listener, &closed));
        let pace = Pace::default();
        let _others: Vec<Coming> = (0..2_000).map(|_| pace.begin()).collect();
        let client = Client::new(&url, None, Connections::default(), &pace).unwrap();
        for _ in 0..2 {
            let answer = {
                let (url, body) = (url.clone(), Bytes::from_static(b"{}"));
                client.post(url, HeaderMap::new(), body).await
            };
            let body: Vec<Bytes> = answer.unwrap().into_body().try_collect().await.unwrap();
            assert_eq!(body.concat(), b"abc");
            is_closed.recv().await.unwrap();
            // Less than a socket rests here.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        server.join().unwrap().unwrap();
    }
}

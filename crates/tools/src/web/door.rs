//! The door to the network: every request that a model can cause goes through it.
//!
//! It resolves names itself, refuses what is not public, and connects to the addresses that it has checked: a name that
//! resolves to something else the next time is checked again, and nothing behind the door resolves it once more. Redirects
//! are followed by hand, so that each hop is checked like the first. No proxy is used: it would resolve by itself.

use std::error::Error;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_sandbox::blocking;
use playhouse_tls::Trust;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, LOCATION};
use reqwest::{Client, Method, Response, Url, redirect};
use thiserror::Error;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

use super::address::{Allowed, Refusal, Rules};

/// Redirects that are followed.
const HOPS: usize = 5;
/// The longest wait for a connection, names and TLS included.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a connection is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(15);
/// Requests of one door under way at once; the others wait their turn. Bounds what bodies take in memory.
const REQUESTS: usize = 64;
/// Requests of one door under way at once whose answers may be streams that end: calls of servers of tools.
const EXCHANGES: usize = 256;
/// Streams of one door that are open at once and that have no end.
const STREAMS: usize = 512;
/// Names that are resolved at once: the system's resolver blocks a thread for each.
const LOOKUPS: usize = 8;
/// Addresses of one name that are tried.
const ADDRESSES: usize = 16;
/// The longest address, in bytes.
const LONGEST_URL: usize = 8 * 1024;
/// Says who asks.
const USER_AGENT: &str = concat!(
    "Mozilla/5.0 (compatible; Playhouse/",
    env!("CARGO_PKG_VERSION"),
    "; +https://github.com/playhouse-engine/playhouse)"
);

/// Finds the addresses of names.
pub trait Resolver: Send + Sync + 'static {
    /// The addresses of `host`, the best first.
    fn resolve(&self, host: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The resolver of the machine.
#[derive(Debug)]
struct SystemResolver {
    lookups: Arc<Semaphore>,
}

impl Resolver for SystemResolver {
    fn resolve(&self, host: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let (lookups, host) = (self.lookups.clone(), host.to_owned());
        async move {
            let permit = lookups.acquire_owned().await.map_err(io::Error::other)?;
            let lookup = move || {
                // Kept as long as the thread is, which nothing can stop.
                let _permit = permit;
                Ok((host.as_str(), 0).to_socket_addrs()?.map(|address| address.ip()).collect())
            };
            blocking(lookup).await
        }
        .boxed()
    }
}

/// A resolver behind the rules. This is what makes connections resolve.
struct Guard {
    resolver: Arc<dyn Resolver>,
    rules: Arc<Rules>,
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let (host, rules) = (name.as_str().to_owned(), self.rules.clone());
        let lower = host.trim_end_matches('.').to_ascii_lowercase();
        let addresses = if lower == "localhost" || lower.ends_with(".localhost") {
            // No resolver is asked for these, as their standard says.
            std::future::ready(Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()])).boxed()
        } else {
            self.resolver.resolve(&host)
        };
        Box::pin(async move {
            let mut good = rules.filter(&host, addresses.await?)?;
            if good.is_empty() {
                return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address").into());
            }
            good.truncate(ADDRESSES);
            // The port is that of the request.
            Ok(Box::new(good.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

/// Why a request was not made, or has no answer.
#[derive(Debug, Error)]
pub enum DoorError {
    /// The address cannot be used.
    #[error("\"{url}\" {reason}")]
    Address {
        /// The address, shortened.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// What it leads to may not be reached.
    #[error("{url} is refused: {refusal}")]
    Refused {
        /// The address.
        url: String,
        /// What is not allowed.
        refusal: Refusal,
    },
    /// It leads elsewhere, and is not followed.
    #[error("{from} redirects to {to}, which is not followed: {reason}")]
    Redirect {
        /// The address.
        from: String,
        /// Where it leads.
        to: String,
        /// Why it is not followed.
        reason: String,
    },
    /// There is no connection, or it broke.
    #[error("{url} cannot be reached: {reason}")]
    Unreachable {
        /// The address.
        url: String,
        /// Why.
        reason: String,
    },
    /// The answer is larger than what is read.
    #[error("the answer of {url} is larger than {limit} bytes, and nothing this large is read")]
    TooLarge {
        /// The address.
        url: String,
        /// The most that is read, in bytes, uncompressed.
        limit: usize,
    },
    /// The answer is compressed in a way that nobody asked for.
    #[error("the answer of {url} is encoded as \"{encoding}\", which cannot be read and was not asked for")]
    Encoded {
        /// The address.
        url: String,
        /// How it is encoded.
        encoding: String,
    },
}

/// The door. Clones share connections, which belong to the tokio runtime in which they were made.
#[derive(Clone)]
pub struct Door {
    shared: Arc<Shared>,
}

struct Shared {
    rules: Arc<Rules>,
    resolver: Arc<dyn Resolver>,
    /// Made when it is needed: it loads the certificates that the machine trusts.
    client: OnceCell<Client>,
    requests: Arc<Semaphore>,
    exchanges: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("rules", &self.shared.rules).finish_non_exhaustive()
    }
}

/// Which bound of requests under way at once a request counts against. Each has one of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// Answers that are read at once: 64.
    #[default]
    Fetch,
    /// Answers that may take minutes: 256.
    Exchange,
    /// Answers without an end: 512. One more is refused at once.
    Stream,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Where it goes.
    pub url: Url,
    /// Beside those that every request has. They go to the first server only.
    pub headers: HeaderMap,
    /// GET, POST or DELETE.
    pub method: Method,
    /// Its body.
    pub body: Option<Bytes>,
    /// Whether redirects are followed. Those of other methods than GET only if they keep the method (307, 308) and lead to the
    /// same origin.
    pub follow: bool,
    /// What bounds how many of its kind are under way.
    pub share: Share,
}

impl Request {
    /// A GET that follows redirects.
    pub fn get(url: Url) -> Self {
        let (method, share) = (Method::GET, Share::Fetch);
        Self { url, headers: HeaderMap::new(), method, body: None, follow: true, share }
    }
}

/// The head of an answer, and its body to be read.
#[derive(Debug)]
pub struct Answer {
    /// Where it came from, after redirects.
    pub url: Url,
    /// The status, as 200.
    pub status: u16,
    /// The media type with its parameters, as it was given.
    pub content_type: Option<String>,
    response: Response,
    /// The place among the requests that are under way.
    _place: OwnedSemaphorePermit,
}

impl Door {
    /// A door to the public Internet and to what is `allowed` beside it.
    pub fn new(allowed: Vec<Allowed>) -> Self {
        Self::with_resolver(allowed, Arc::new(SystemResolver { lookups: Arc::new(Semaphore::new(LOOKUPS)) }))
    }

    /// The same with a resolver of its own.
    pub fn with_resolver(allowed: Vec<Allowed>, resolver: Arc<dyn Resolver>) -> Self {
        Self::through(Rules::new(allowed), resolver)
    }

    /// A door to everywhere, for addresses that the operator configured, and never for those that a model or a server named:
    /// what goes through it follows no redirect.
    pub(super) fn for_the_operator() -> Self {
        let resolver = Arc::new(SystemResolver { lookups: Arc::new(Semaphore::new(LOOKUPS)) });
        Self::through(Rules::everything(), resolver)
    }

    fn through(rules: Rules, resolver: Arc<dyn Resolver>) -> Self {
        let permits = |most| Arc::new(Semaphore::new(most));
        let shared = Shared {
            rules: Arc::new(rules),
            resolver,
            client: OnceCell::new(),
            requests: permits(REQUESTS),
            exchanges: permits(EXCHANGES),
            streams: permits(STREAMS),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Checks all of an address that can be checked before its name is resolved.
    ///
    /// # Errors
    /// It is no address of the web, holds credentials, or leads where nothing may be reached.
    pub fn check(&self, url: &Url) -> Result<(), DoorError> {
        let wrong = |reason: &str| DoorError::Address { url: shown(url), reason: reason.to_owned() };
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("is not an address of the web: it begins with http:// or https://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("holds a user name or a password, and those are never sent: leave them out"));
        }
        if url.as_str().len() > LONGEST_URL {
            return Err(wrong(&format!("is longer than {LONGEST_URL} bytes")));
        }
        let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
            return Err(wrong("has no host"));
        };
        self.shared.rules.check_host(host).map_err(|refusal| DoorError::Refused { url: shown(url), refusal })
    }

    /// Sends a request, and returns when the head of the answer is there. Has no deadline: dropping the future ends it.
    ///
    /// # Errors
    /// The address, or one that it redirects to, is refused or cannot be reached.
    pub async fn send(&self, request: Request) -> Result<Answer, DoorError> {
        self.send_where(request, &|_, _| Ok(())).await
    }

    /// The same where `follows` says of each redirect, from one address to another, whether it is followed, or why not.
    ///
    /// # Errors
    /// Those of [`send`](Self::send), and a redirect that is not followed.
    pub async fn send_where(
        &self,
        request: Request,
        follows: &(dyn Fn(&Url, &Url) -> Result<(), String> + Send + Sync),
    ) -> Result<Answer, DoorError> {
        let Request { mut url, mut headers, method, body, follow, share } = request;
        let shared = &self.shared;
        let closed = |_| unreachable(&url, "the engine is shutting down");
        let place = match share {
            Share::Fetch => shared.requests.clone().acquire_owned().await.map_err(closed)?,
            Share::Exchange => shared.exchanges.clone().acquire_owned().await.map_err(closed)?,
            Share::Stream => shared
                .streams
                .clone()
                .try_acquire_owned()
                .map_err(|_| unreachable(&url, &format!("{STREAMS} streams are open already")))?,
        };
        let client = shared.client.get_or_try_init(|| self.connect()).await?;
        for hop in 0..=HOPS {
            self.check(&url)?;
            let sending = client.request(method.clone(), url.clone());
            let sending = match &body {
                None => sending,
                Some(body) => sending.body(body.clone()),
            };
            let sent = sending.headers(headers.clone()).send().await;
            let response = sent.map_err(|error| failure(&url, &error))?;
            let status = response.status();
            if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Answer::new(url, response, place);
            }
            let Some(location) = response.headers().get(LOCATION) else {
                return Answer::new(url, response, place);
            };
            let location = String::from_utf8_lossy(location.as_bytes()).into_owned();
            let stays = |to: &str, reason: &str| DoorError::Redirect {
                from: shown(&url),
                to: to.chars().take(500).collect(),
                reason: reason.to_owned(),
            };
            let keeps_method = matches!(status.as_u16(), 307 | 308);
            if !follow || (method != Method::GET && !keeps_method) {
                return Err(stays(&location, "configure the address that it leads to"));
            }
            if hop == HOPS {
                return Err(stays(&location, &format!("there were {HOPS} redirects before it")));
            }
            let next = url.join(&location).map_err(|error| stays(&location, &error.to_string()))?;
            if url.scheme() == "https" && next.scheme() == "http" {
                return Err(stays(
                    next.as_str(),
                    "it is not encrypted any more; fetch it by itself if that is what you want",
                ));
            }
            if method != Method::GET && next.origin() != url.origin() {
                return Err(stays(next.as_str(), "configure the address that it leads to"));
            }
            follows(&url, &next).map_err(|reason| stays(next.as_str(), &reason))?;
            if next.origin() != url.origin() {
                headers = harmless(&headers);
            }
            url = next;
        }
        // The loop returns at its last hop.
        Err(unreachable(&url, "there were too many redirects"))
    }

    async fn connect(&self) -> Result<Client, DoorError> {
        let guard = Guard { resolver: self.shared.resolver.clone(), rules: self.shared.rules.clone() };
        let build = move || {
            let tls = playhouse_tls::client_config(Trust::Machine)?;
            Client::builder()
                .tls_backend_preconfigured(tls)
                .no_proxy()
                .redirect(redirect::Policy::none())
                .referer(false)
                .dns_resolver(Arc::new(guard))
                .connect_timeout(CONNECT)
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(2)
                .user_agent(USER_AGENT)
                .build()
                .map_err(|error| playhouse_tls::innermost(&error))
        };
        let failed = |reason: String| DoorError::Unreachable { url: "the network".into(), reason };
        blocking(build).await.map_err(failed)
    }
}

impl Answer {
    fn new(url: Url, response: Response, place: OwnedSemaphorePermit) -> Result<Self, DoorError> {
        let text = |name: HeaderName| {
            response
                .headers()
                .get(name)
                .map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned())
        };
        // What the client could undo is gone from here.
        let encoding = text(CONTENT_ENCODING).filter(|encoding| !encoding.is_empty());
        if let Some(encoding) = encoding.filter(|encoding| !encoding.eq_ignore_ascii_case("identity")) {
            let encoding = encoding.escape_debug().take(64).collect();
            return Err(DoorError::Encoded { url: shown(&url), encoding });
        }
        let (status, content_type) = (response.status().as_u16(), text(CONTENT_TYPE));
        Ok(Self { url, status, content_type, response, _place: place })
    }

    /// A header of the answer, as far as it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// The next piece of the body, uncompressed.
    ///
    /// # Errors
    /// The connection broke, or what came cannot be uncompressed.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, DoorError> {
        self.response.chunk().await.map_err(|error| failure(&self.url, &error))
    }

    /// The whole body, if it has at most `limit` bytes once it is uncompressed. Reads no more than that.
    ///
    /// # Errors
    /// It is larger, or the connection broke.
    pub async fn body(mut self, limit: usize) -> Result<Vec<u8>, DoorError> {
        let too_large = || DoorError::TooLarge { url: shown(&self.url), limit };
        if self.response.content_length().is_some_and(|length| length > limit as u64) {
            return Err(too_large());
        }
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if body.len() + chunk.len() > limit {
                return Err(DoorError::TooLarge { url: shown(&self.url), limit });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// The beginning of the body, at most `most` bytes, as far as it came.
    pub async fn beginning(mut self, most: usize) -> Vec<u8> {
        let mut body = Vec::new();
        while body.len() < most {
            let Ok(Some(chunk)) = self.chunk().await else { break };
            body.extend_from_slice(&chunk);
        }
        body.truncate(most);
        body
    }
}

/// The headers that may go to another server than the one that they were meant for.
fn harmless(headers: &HeaderMap) -> HeaderMap {
    let kept = headers.iter().filter(|(name, _)| *name == reqwest::header::ACCEPT);
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// `url` for people: without credentials, query and fragment, which may be secret, and not too long.
pub fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Fails for addresses that cannot have credentials.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.as_str().chars().take(500).collect()
}

fn unreachable(url: &Url, reason: &str) -> DoorError {
    DoorError::Unreachable { url: shown(url), reason: reason.to_owned() }
}

fn failure(url: &Url, error: &reqwest::Error) -> DoorError {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(refusal) = error.downcast_ref::<Refusal>() {
            return DoorError::Refused { url: shown(url), refusal: refusal.clone() };
        }
        cause = error.source();
    }
    let reason = match error.is_timeout() {
        true => format!("no connection within {} s", CONNECT.as_secs()),
        false => playhouse_tls::innermost(error),
    };
    DoorError::Unreachable { url: shown(url), reason }
}

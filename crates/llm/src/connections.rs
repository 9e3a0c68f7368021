//! Connections to servers. One of HTTP/2 carries many requests, up to a limit of the server's; beyond it, others are opened.
//!
//! The HTTP client keeps one connection of HTTP/2 for each server, and lets a request wait where that carries as many as the
//! server allows. So each server has *lanes*: clients, each for as many requests as one connection carries. A request
//! takes the first lane that has room, which leaves the later ones idle as the load falls; idle ones are given up. Over
//! HTTP/1.1, where every request has a connection of its own, lanes change nothing but in which pool that lies.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use playhouse_tls::Trust;
use reqwest::Url;
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;
use tokio::task::JoinError;
use tokio::time::Instant;

use crate::client::{Client, IDLE_TIMEOUT};
use crate::paced::{Coming, Pace};

/// How long a connection may take to be made, where nothing else is wanted.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How connections to a server are made, and what each carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    /// When HTTP/2 is spoken.
    pub http2: Http2,
    /// The most requests at once on one connection of HTTP/2; more open another one. It must not be above the limit of
    /// the server, or requests wait for each other. 0 counts as 1.
    pub streams: usize,
    /// How long a connection may take to be made.
    pub connect: Duration,
}

impl Default for Connections {
    /// HTTP/2 where the server offers it, with 100 requests on a connection: the least that the standard recommends to
    /// servers, and what most have. 10 s to be connected.
    fn default() -> Self {
        Self { http2: Http2::Negotiated, streams: 100, connect: CONNECT_TIMEOUT }
    }
}

/// When HTTP/2 is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Http2 {
    /// Over TLS where the server offers it; HTTP/1.1 else, and without TLS.
    #[default]
    Negotiated,
    /// Always, without asking, also without TLS: for gateways inside a network that speak nothing else, or that should
    /// carry many requests on few connections.
    PriorKnowledge,
}

/// The lanes to all servers.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    /// Loaded with the first request over TLS, and shared by all clients: certificates are read once, and a further lane
    /// resumes the session of the first.
    tls: OnceCell<ClientConfig>,
    by_server: Mutex<HashMap<Server, Vec<Lane>>>,
    pace: Pace,
}

/// What clients differ in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Server {
    /// Scheme, host and port.
    origin: String,
    http2: Http2,
    connect: Duration,
}

#[derive(Debug)]
struct Lane {
    client: Client,
    /// Shared with the requests under way, which so are counted.
    load: Arc<()>,
    /// When the last request began.
    used: Instant,
}

impl Lane {
    fn under_way(&self) -> usize {
        Arc::strong_count(&self.load) - 1
    }
}

/// A client, and the room of one request on its connection until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) client: Client,
    _load: Arc<()>,
    _coming: Coming,
}

impl Lanes {
    /// A place for a request to `url`.
    ///
    /// # Errors
    /// TLS cannot be set up. A fragment with the reason.
    pub(crate) async fn place(&self, url: &Url, connections: Connections) -> Result<Place, String> {
        let tls = match url.scheme() {
            "https" => Some(self.tls.get_or_try_init(trusting_the_machine).await?),
            _ => None,
        };
        let Connections { http2, connect, .. } = connections;
        let server = Server { origin: url.origin().ascii_serialization(), http2, connect };
        let mut by_server = self.by_server.lock();
        let lanes = by_server.entry(server).or_default();
        let now = Instant::now();
        let mut index = 0;
        lanes.retain(|lane| {
            index += 1;
            index == 1 || lane.under_way() > 0 || now.duration_since(lane.used) < IDLE_TIMEOUT
        });
        let free = lanes.iter().position(|lane| lane.under_way() < connections.streams.max(1));
        let free = match free {
            Some(free) => free,
            None => {
                let client = Client::new(url, tls, connections, &self.pace)?;
                lanes.push(Lane { client, load: Arc::new(()), used: now });
                lanes.len() - 1
            }
        };
        let lane = &mut lanes[free];
        lane.used = now;
        Ok(Place { client: lane.client.clone(), _load: Arc::clone(&lane.load), _coming: self.pace.begin() })
    }
}

/// TLS with the certificates that the machine trusts. Loads them off the runtime's workers: it takes milliseconds.
async fn trusting_the_machine() -> Result<ClientConfig, String> {
    blocking(|| playhouse_tls::client_config(Trust::Machine)).await.map_err(|error| error.to_string())?
}

/// What comes of work that blocks, or its panic. Where the runtime is shut down before it begins there is neither: that is no
/// failure, and whoever waits is dropped next.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    match tokio::task::spawn_blocking(work).await {
        Err(error) if error.is_cancelled() => std::future::pending().await,
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: Connections =
        Connections { http2: Http2::PriorKnowledge, streams: 2, connect: CONNECT_TIMEOUT };

    async fn place(lanes: &Lanes, url: &str, connections: Connections) -> Place {
        lanes.place(&Url::parse(url).unwrap(), connections).await.unwrap()
    }

    /// How many requests are on each lane to the only server.
    fn loads(lanes: &Lanes) -> Vec<usize> {
        let by_server = lanes.by_server.lock();
        assert_eq!(by_server.len(), 1);
        by_server.values().flatten().map(Lane::under_way).collect()
    }

    /// Makes all lanes idle for as long as idle ones are kept.
    fn age(lanes: &Lanes) {
        let mut by_server = lanes.by_server.lock();
        by_server.values_mut().flatten().for_each(|lane| lane.used -= IDLE_TIMEOUT);
    }

    #[tokio::test]
    async fn full_lanes_open_others_and_the_first_with_room_is_taken() {
        let lanes = Lanes::default();
        let mut places = Vec::new();
        for _ in 0..5 {
            places.push(place(&lanes, "http://a.test/v1/x", TWO).await);
        }
        assert_eq!(loads(&lanes), [2, 2, 1]);
        drop(places.remove(1));
        drop(places.remove(1));
        assert_eq!(loads(&lanes), [1, 1, 1]);
        let last = places.pop();
        places.push(place(&lanes, "http://a.test/v1/y", TWO).await);
        assert_eq!(loads(&lanes), [2, 1, 1]);
        drop(last);
        assert_eq!(loads(&lanes), [2, 1, 0]);
        age(&lanes);
        places.push(place(&lanes, "http://a.test/v1/x", TWO).await);
        assert_eq!(loads(&lanes), [2, 2], "an idle lane is given up");
        drop(places);
        age(&lanes);
        drop(place(&lanes, "http://a.test/v1/x", TWO).await);
        assert_eq!(loads(&lanes), [0], "the first stays");
    }

    #[tokio::test]
    async fn servers_and_ways_to_speak_to_them_have_lanes_of_their_own() {
        let lanes = Lanes::default();
        let negotiated = Connections { http2: Http2::Negotiated, ..TWO };
        for (url, connections) in [
            ("http://a.test/v1", TWO),
            ("http://a.test:80/other", TWO),
            ("http://a.test:81/v1", TWO),
            ("http://b.test/v1", TWO),
            ("http://a.test/v1", negotiated),
        ] {
            drop(place(&lanes, url, connections).await);
        }
        assert_eq!(lanes.by_server.lock().len(), 4);
    }

    #[tokio::test]
    async fn a_limit_of_nothing_is_one() {
        let lanes = Lanes::default();
        let none = Connections { streams: 0, ..TWO };
        let _places =
            (place(&lanes, "http://a.test", none).await, place(&lanes, "http://a.test", none).await);
        assert_eq!(loads(&lanes), [1, 1]);
    }
}

//! A server of HTTP/1.1 that answers what a test wants, byte for byte, and the tools that talk to it.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_policy::{Access, Policy};
use playhouse_protocol::message::CallInput;
use playhouse_tools::web::{Allowed, Door, Resolver, WebFetch};
use playhouse_tools::{Alone, CallContext, Registry, ToolError, ToolOutput, Typed, runner};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::{Count, context};

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// `GET /path HTTP/1.1` and the headers, in lower case.
    pub(crate) head: String,
    pub(crate) path: String,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// What is written back.
pub(crate) struct Reply {
    bytes: Vec<u8>,
    /// Whether the connection stays open afterwards, without a word.
    hangs: bool,
}

impl Reply {
    /// An answer with these headers (lines) and a body.
    pub(crate) fn new(status: u16, headers: &str, body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let mut head =
            format!("HTTP/1.1 {status} Whatever\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        for line in headers.lines() {
            head.push_str(&format!("{line}\r\n"));
        }
        let bytes = [head.as_bytes(), b"\r\n", body].concat();
        Self { bytes, hangs: false }
    }

    pub(crate) fn ok(kind: &str, body: impl AsRef<[u8]>) -> Self {
        Self::new(200, &format!("Content-Type: {kind}"), body)
    }

    pub(crate) fn to(location: &str) -> Self {
        Self::new(302, &format!("Location: {location}"), "")
    }

    /// These bytes, and then nothing more.
    pub(crate) fn hanging(bytes: &str) -> Self {
        Self { bytes: bytes.as_bytes().to_vec(), hangs: true }
    }

    /// These bytes, and the end of the connection.
    pub(crate) fn raw(bytes: impl AsRef<[u8]>) -> Self {
        Self { bytes: bytes.as_ref().to_vec(), hangs: false }
    }
}

/// A server on an address of its own. It ends when it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Told of each request.
    pub(crate) asked: Arc<Notify>,
    _tasks: JoinSet<()>,
}

impl Server {
    pub(crate) async fn start(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, asked) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
        let (answer, journal, told) = (Arc::new(answer), seen.clone(), asked.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (answer, journal, told) = (answer.clone(), journal.clone(), told.clone());
                connections.spawn(async move {
                    let Some((mut stream, request)) = read(stream).await else { return };
                    journal.lock().unwrap().push(request.clone());
                    let reply = answer(&request);
                    // A client may have gone.
                    let _ = stream.write_all(&reply.bytes).await;
                    told.notify_one();
                    if reply.hangs {
                        std::future::pending::<()>().await;
                    }
                    let _ = stream.shutdown().await;
                });
            }
        });
        Self { address, seen, asked, _tasks: tasks }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.path).collect()
    }
}

async fn read(mut stream: TcpStream) -> Option<(TcpStream, Seen)> {
    let mut bytes = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let count = stream.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let path = head.split(' ').nth(1)?.to_owned();
        let seen = Seen { head: head.to_ascii_lowercase(), path, body: body.to_owned() };
        let length = seen.header("content-length").map_or(0, |length| length.parse().unwrap());
        if body.len() >= length {
            return Some((stream, seen));
        }
    }
}

/// A resolver that says what a test wants, and counts.
pub(crate) struct Names<F> {
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
    pub(crate) answer: F,
}

impl<F: Fn(&str, usize) -> Vec<IpAddr> + Send + Sync + 'static> Resolver for Names<F> {
    fn resolve(&self, host: &str) -> BoxFuture<'static, std::io::Result<Vec<IpAddr>>> {
        let mut asked = self.asked.lock().unwrap();
        let addresses = (self.answer)(host, asked.len());
        asked.push(host.to_owned());
        std::future::ready(Ok(addresses)).boxed()
    }
}

/// A door that lets 127.0.0.1 through, and nothing beside the public Internet. No name resolves.
pub(crate) fn door() -> Door {
    named(|_, _| Vec::new()).0
}

/// The same with names, and those that were asked for.
pub(crate) fn named(
    answer: impl Fn(&str, usize) -> Vec<IpAddr> + Send + Sync + 'static,
) -> (Door, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let allowed: Vec<Allowed> = vec!["127.0.0.1".parse().unwrap()];
    (Door::with_resolver(allowed, Arc::new(Names { asked: asked.clone(), answer })), asked)
}

/// Where a call is made.
pub(crate) struct Place {
    pub(crate) registry: Arc<Registry>,
    pub(crate) context: CallContext,
    _folder: TempDir,
}

impl Place {
    pub(crate) fn new(registry: Registry) -> Self {
        Self::judged_by(registry, None)
    }

    /// With rules.
    pub(crate) fn judged_by(registry: Registry, rules: Option<Policy>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let registry = Arc::new(registry);
        let host = match rules {
            None => Alone::new(registry.clone()),
            Some(rules) => Alone::with_policy(registry.clone(), rules),
        };
        let context = context(folder.path(), Arc::new(Count::default()));
        Self { registry, context: CallContext { host: Arc::new(host), ..context }, _folder: folder }
    }

    /// With `webfetch` behind this door.
    pub(crate) fn fetching(door: Door) -> Self {
        Self::fetching_by(door, None)
    }

    /// The same with rules.
    pub(crate) fn fetching_by(door: Door, rules: Option<Policy>) -> Self {
        let mut registry = Registry::new();
        registry.add(Arc::new(Typed::new(WebFetch::new(door)))).unwrap();
        Self::judged_by(registry, rules)
    }

    pub(crate) async fn call(&self, tool: &str, input: &Value) -> Result<ToolOutput, ToolError> {
        let input = CallInput::from_model(&input.to_string());
        let (tool, prepared) = runner::prepare(&self.registry, tool, &input, &self.context).await?;
        assert!(matches!(prepared.accesses[..], [Access::Address(_) | Access::Query(_)]));
        assert!(!prepared.preview.is_empty() && !prepared.title.is_empty());
        runner::execute(&tool, prepared, &self.context).await
    }
}

//! A server behind an address, which answers as the names of its tools say.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use playhouse_mcp::{Place, ServerEntry, Transport};
use playhouse_tools::web::Door;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::stage::{PATIENCE, place};

/// A request that came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The method of its message.
    pub(crate) fn says(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }
}

/// The server. Its paths: `/mcp` works, `/moved` leads to it, `/away` elsewhere, `/closed` wants an authorization, `/broken` fails,
/// `/old` takes no POST.
pub(crate) struct WebServer {
    pub(crate) port: u16,
    pub(crate) seen: Mutex<Vec<Seen>>,
    sessions: AtomicUsize,
    answered: Notify,
    /// It forgets its sessions once.
    pub(crate) forgets: AtomicBool,
}

/// A message of the server as an event.
fn event(message: &Value) -> String {
    format!("event: message\ndata: {message}\n\n")
}

fn text(id: &Value, text: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}})
}

impl WebServer {
    pub(crate) async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Arc::new(Self {
            port: listener.local_addr().unwrap().port(),
            seen: Mutex::default(),
            sessions: AtomicUsize::new(0),
            answered: Notify::new(),
            forgets: AtomicBool::new(false),
        });
        let serving = Arc::clone(&server);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = Arc::clone(&serving);
                // A client that goes away is none of its business.
                tokio::spawn(async move { drop(server.serve(stream).await) });
            }
        });
        server
    }

    pub(crate) fn entry(&self, path: &str) -> ServerEntry {
        let mut entry = ServerEntry::http("web", format!("http://127.0.0.1:{}{path}", self.port));
        let Transport::Http(http) = &mut entry.transport else { panic!("it is an address") };
        http.headers = vec![("Authorization".into(), "Bearer hunter2".into())];
        (entry.start_timeout, entry.timeout) = (PATIENCE, PATIENCE);
        entry
    }

    /// What came, as far as it fits.
    pub(crate) fn all(&self, fits: impl Fn(&Seen) -> bool) -> Vec<Seen> {
        self.seen.lock().unwrap().iter().filter(|seen| fits(seen)).cloned().collect()
    }

    async fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let mut words = line.split_whitespace().map(str::to_owned);
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            let Some((name, value)) = line.trim().split_once(':') else { break };
            headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
        let mut seen = Seen { method, path, headers, body: Value::Null };
        let length = seen.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        seen.body = serde_json::from_slice(&body).unwrap_or_default();
        self.seen.lock().unwrap().push(seen.clone());
        let mut stream = stream.into_inner();
        self.answer(seen, &mut stream).await?;
        stream.shutdown().await
    }

    async fn answer(&self, seen: Seen, stream: &mut TcpStream) -> std::io::Result<()> {
        let moved = |to: &str| format!("HTTP/1.1 307 Moved\r\nlocation: {to}\r\nconnection: close\r\n\r\n");
        let fixed = match seen.path.as_str() {
            "/moved" => moved("/mcp"),
            "/away" => moved(&format!("http://127.0.0.2:{}/mcp", self.port)),
            "/closed" => {
                status("401 No", "www-authenticate: Bearer resource_metadata=\"https://x/y\"\r\n", "no")
            }
            "/broken" => status("500 Broken", "", "your token hunter2 broke it"),
            "/old" => status("405 No", "", "only GET"),
            _ => String::new(),
        };
        if !fixed.is_empty() {
            return stream.write_all(fixed.as_bytes()).await;
        }
        match seen.method.as_str() {
            "DELETE" => stream.write_all(status("200 OK", "", "").as_bytes()).await,
            "GET" => self.stream(&seen, stream).await,
            _ => self.message(&seen, stream).await,
        }
    }

    /// What it says by itself, or the rest of a stream that was cut.
    async fn stream(&self, seen: &Seen, stream: &mut TcpStream) -> std::io::Result<()> {
        stream.write_all(EVENTS.as_bytes()).await?;
        if let Some(last) = seen.header("last-event-id") {
            let id: Value = last.parse().unwrap();
            return stream.write_all(event(&text(&id, "resumed")).as_bytes()).await;
        }
        let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
        stream.write_all(event(&changed).as_bytes()).await?;
        std::future::pending().await
    }

    async fn message(&self, seen: &Seen, stream: &mut TcpStream) -> std::io::Result<()> {
        let id = &seen.body["id"];
        let initialize = || {
            json!({"jsonrpc": "2.0", "id": id, "result": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "web", "version": "1"},
            }})
        };
        let session = format!("mcp-session-id: s{}\r\n", self.sessions.load(Ordering::SeqCst));
        match seen.says() {
            "initialize" => {
                let session =
                    format!("mcp-session-id: s{}\r\n", self.sessions.fetch_add(1, Ordering::SeqCst) + 1);
                stream.write_all(status("200 OK", &session, &initialize().to_string()).as_bytes()).await
            }
            "server/discover" => {
                let result = json!({
                    "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                    "ttlMs": 0, "cacheScope": "private",
                    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "web", "version": "2"}},
                });
                let result = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
                stream.write_all(status("200 OK", "", &result).as_bytes()).await
            }
            "tools/list" => {
                let list = json!({"jsonrpc": "2.0", "id": id, "result": {"tools": [{"name": "json"}]}});
                stream.write_all(format!("{EVENTS}{}", event(&list)).as_bytes()).await
            }
            "tools/call" => self.call(seen, &session, stream).await,
            _ => {
                if seen.body.get("result").is_some() {
                    self.answered.notify_one();
                }
                stream.write_all(status("202 Accepted", "", "").as_bytes()).await
            }
        }
    }

    async fn call(&self, seen: &Seen, session: &str, stream: &mut TcpStream) -> std::io::Result<()> {
        let (id, params) = (&seen.body["id"], &seen.body["params"]);
        if self.forgets.swap(false, Ordering::SeqCst) {
            return stream.write_all(status("404 Gone", "", "").as_bytes()).await;
        }
        let json = |text: &str| status("200 OK", session, text);
        let head = format!("{EVENTS}: hello\n\n");
        let whole = match params["name"].as_str().unwrap_or_default() {
            "json" => json(&text(id, "plain").to_string()),
            "sse" => {
                let params = json!({"progressToken": params["_meta"]["progressToken"], "progress": 1, "message": "half"});
                let progress =
                    json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
                format!("{head}{}{}", event(&progress), event(&text(id, "streamed")))
            }
            "ask" => {
                let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
                let question = json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create",
                    "params": {"message": "Who?", "requestedSchema": schema}});
                stream.write_all(format!("{head}{}", event(&question)).as_bytes()).await?;
                self.answered.notified().await;
                let seen = self.all(|seen| seen.body["id"] == "q");
                event(&text(id, &seen[0].body["result"].to_string()))
            }
            "hang" => {
                stream.write_all(head.as_bytes()).await?;
                return std::future::pending().await;
            }
            "silent" => return std::future::pending().await,
            "cut" => format!("{head}data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\""),
            "resume" => format!("{head}retry: 100\nid: {id}\ndata:\n\ndata: {{\"jsonrpc\""),
            "refuse" => {
                let error =
                    json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "not so"}});
                status("400 Bad", "", &error.to_string())
            }
            "large" => {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
                return flood(stream, &format!("{head}{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":\""))
                    .await;
            }
            "flood" => {
                return flood(
                    stream,
                    &format!("{head}data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":\""),
                )
                .await;
            }
            name => json(&text(id, name).to_string()),
        };
        stream.write_all(whole.as_bytes()).await
    }
}

const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

fn status(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

/// An answer of 50 MB.
async fn flood(stream: &mut TcpStream, beginning: &str) -> std::io::Result<()> {
    stream.write_all(beginning.as_bytes()).await?;
    let part = vec![b'x'; 1 << 20];
    for _ in 0..50 {
        stream.write_all(&part).await?;
    }
    stream.write_all(b"\"}\n\n").await
}

/// A place from which the servers of this machine are reached.
pub(crate) fn place_with_loopback() -> Place {
    Place { door: Door::new(vec!["127.0.0.1".parse().unwrap()]), ..place() }
}

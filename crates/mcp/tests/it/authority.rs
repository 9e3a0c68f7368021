//! A server of tools that wants a login, and its authorization server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use playhouse_mcp::{Redirected, ServerEntry};
use playhouse_tools::web::Url;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};

use crate::stage::PATIENCE;

/// The server. The token of number `n` is `access-n`, and is renewed with `refresh-n`, once.
#[derive(Default)]
pub(crate) struct Authority {
    port: u16,
    issued: AtomicUsize,
    /// The number of the token that is good, and of the refresh token.
    good: AtomicUsize,
    refresh: AtomicUsize,
    /// The scopes of each token.
    scopes: Mutex<HashMap<usize, String>>,
    /// What the last login asked for.
    asked: Mutex<Vec<(String, String)>>,
    pub(crate) registrations: AtomicUsize,
    pub(crate) renewals: AtomicUsize,
    /// Refresh tokens that were used twice, or are over.
    pub(crate) refused: AtomicUsize,
    /// How many seconds a token is good; an hour if `u64::MAX`.
    pub(crate) lives: AtomicU64,
    /// The status of renewals, if not 0.
    pub(crate) fails: AtomicUsize,
    pub(crate) takes_none: AtomicBool,
    pub(crate) registers: AtomicBool,
    /// What it says of PKCE.
    pub(crate) challenges: Mutex<Option<&'static str>>,
    /// Which of its addresses leads to another machine.
    pub(crate) astray: Mutex<Option<&'static str>>,
    /// Told of each renewal; holds it back if there is a gate.
    pub(crate) renewing: Notify,
    gate: Mutex<Option<Arc<Semaphore>>>,
}

/// A request.
struct Asked {
    method: String,
    path: String,
    authorization: String,
    body: String,
}

impl Asked {
    fn form(&self) -> HashMap<String, String> {
        let url = Url::parse(&format!("http://x/?{}", self.body)).unwrap();
        url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
    }
}

impl Authority {
    pub(crate) async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Arc::new(Self {
            port: listener.local_addr().unwrap().port(),
            lives: AtomicU64::new(u64::MAX),
            registers: AtomicBool::new(true),
            challenges: Mutex::new(Some(r#"["S256"]"#)),
            ..Self::default()
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

    pub(crate) fn url(&self) -> String {
        self.at("mcp", "/mcp")
    }

    pub(crate) fn entry(&self) -> ServerEntry {
        let mut entry = ServerEntry::http("web", self.url());
        (entry.start_timeout, entry.timeout) = (PATIENCE, PATIENCE);
        entry
    }

    /// Where something is: on another machine, if it is what leads astray.
    fn at(&self, what: &'static str, path: &str) -> String {
        let host = if *self.astray.lock().unwrap() == Some(what) { "127.0.0.2" } else { "127.0.0.1" };
        format!("http://{host}:{}{path}", self.port)
    }

    /// What a person's browser brings back that opened this address.
    pub(crate) fn agree(&self, address: &str) -> Redirected {
        let url = Url::parse(address).unwrap();
        let asked: Vec<(String, String)> =
            url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        let of = |name: &str| asked.iter().find(|(key, _)| key == name).unwrap().1.clone();
        let redirected = Redirected { code: of("code_challenge"), state: of("state"), issuer: None };
        *self.asked.lock().unwrap() = asked;
        redirected
    }

    pub(crate) fn asked(&self) -> Vec<(String, String)> {
        self.asked.lock().unwrap().clone()
    }

    /// The tokens that it gave are good no longer.
    pub(crate) fn end_tokens(&self) {
        self.good.store(0, Ordering::SeqCst);
    }

    pub(crate) fn end_refreshes(&self) {
        self.refresh.store(0, Ordering::SeqCst);
    }

    /// Renewals wait for permits.
    pub(crate) fn hold_renewals(&self) -> Arc<Semaphore> {
        let gate = Arc::new(Semaphore::new(0));
        *self.gate.lock().unwrap() = Some(Arc::clone(&gate));
        gate
    }

    async fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let mut words = line.split_whitespace().map(str::to_owned);
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut asked = Asked { method, path, authorization: String::new(), body: String::new() };
        let mut length = 0;
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            let Some((name, value)) = line.trim().split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "authorization" => asked.authorization = value.trim().to_owned(),
                "content-length" => length = value.trim().parse().unwrap(),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        asked.body = String::from_utf8(body).unwrap();
        let (status, headers, body) = self.answer(&asked).await;
        let answer = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        let mut stream = stream.into_inner();
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    }

    async fn answer(&self, asked: &Asked) -> (usize, String, String) {
        let plain = |value: Value| (200, String::new(), value.to_string());
        match (asked.method.as_str(), asked.path.as_str()) {
            ("POST", "/mcp") => self.mcp(asked),
            ("GET", "/.well-known/oauth-protected-resource/mcp") => {
                if *self.astray.lock().unwrap() == Some("redirect") {
                    return (302, format!("location: http://127.0.0.2:{}/x\r\n", self.port), String::new());
                }
                plain(json!({
                    "resource": self.url(), "authorization_servers": [self.at("authority", "")], "scopes_supported": ["read"],
                }))
            }
            ("GET", "/.well-known/oauth-authorization-server") => {
                let mut metadata = json!({
                    "issuer": self.at("issuer", ""),
                    "authorization_endpoint": self.at("authorize", "/authorize"),
                    "token_endpoint": self.at("token", "/token"),
                    "response_types_supported": ["code"],
                });
                if let Some(methods) = *self.challenges.lock().unwrap() {
                    metadata["code_challenge_methods_supported"] = serde_json::from_str(methods).unwrap();
                }
                if self.registers.load(Ordering::SeqCst) {
                    metadata["registration_endpoint"] = self.at("register", "/register").into();
                }
                plain(metadata)
            }
            ("POST", "/register") => {
                let number = self.registrations.fetch_add(1, Ordering::SeqCst) + 1;
                let wish: Value = serde_json::from_str(&asked.body).unwrap();
                plain(
                    json!({"client_id": format!("client-{number}"), "redirect_uris": wish["redirect_uris"]}),
                )
            }
            ("POST", "/token") => self.token(&asked.form()).await,
            _ => (404, String::new(), String::new()),
        }
    }

    async fn token(&self, form: &HashMap<String, String>) -> (usize, String, String) {
        let refused = |error: &str| {
            self.refused.fetch_add(1, Ordering::SeqCst);
            (400, String::new(), json!({"error": error, "error_description": "no"}).to_string())
        };
        assert_eq!(form["resource"], self.url());
        let scope = match form["grant_type"].as_str() {
            // The code is the challenge: whoever has its verifier may have a token.
            "authorization_code" if form["code"] != challenge(&form["code_verifier"]) => {
                return refused("invalid_grant");
            }
            "authorization_code" => {
                self.asked().into_iter().find(|(name, _)| name == "scope").map(|(_, scope)| scope)
            }
            "client_credentials" => None,
            _ => {
                self.renewing.notify_one();
                let gate = self.gate.lock().unwrap().clone();
                if let Some(gate) = gate {
                    gate.acquire().await.unwrap().forget();
                }
                let fails = self.fails.load(Ordering::SeqCst);
                if fails > 0 {
                    return (fails, String::new(), "{}".to_owned());
                }
                let latest = self.refresh.load(Ordering::SeqCst);
                if form["refresh_token"] != format!("refresh-{latest}") {
                    return refused("invalid_grant");
                }
                self.renewals.fetch_add(1, Ordering::SeqCst);
                self.scopes.lock().unwrap().get(&latest).cloned()
            }
        };
        let number = self.issued.fetch_add(1, Ordering::SeqCst) + 1;
        self.good.store(number, Ordering::SeqCst);
        self.refresh.store(number, Ordering::SeqCst);
        self.scopes.lock().unwrap().insert(number, scope.unwrap_or_default());
        let lives = match self.lives.load(Ordering::SeqCst) {
            u64::MAX => 3_600,
            lives => lives,
        };
        let mut token =
            json!({"access_token": format!("access-{number}"), "token_type": "Bearer", "expires_in": lives});
        if form["grant_type"] != "client_credentials" {
            token["refresh_token"] = format!("refresh-{number}").into();
        }
        (200, String::new(), token.to_string())
    }

    fn mcp(&self, asked: &Asked) -> (usize, String, String) {
        let good = self.good.load(Ordering::SeqCst);
        let known = asked.authorization == format!("Bearer access-{good}");
        if good == 0 || !known || self.takes_none.load(Ordering::SeqCst) {
            let metadata = self.at("metadata", "/.well-known/oauth-protected-resource/mcp");
            let challenge = format!("www-authenticate: Bearer resource_metadata=\"{metadata}\"\r\n");
            return (401, challenge, String::new());
        }
        let message: Value = serde_json::from_str(&asked.body).unwrap();
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "web", "version": "1"},
            }),
            "tools/list" => json!({"tools": [{"name": "who"}, {"name": "admin"}]}),
            "tools/call" => {
                let scopes = self.scopes.lock().unwrap()[&good].clone();
                if message["params"]["name"] == "admin" && !scopes.contains("admin") {
                    let challenge =
                        "www-authenticate: Bearer error=\"insufficient_scope\", scope=\"admin\"\r\n";
                    return (403, challenge.to_owned(), String::new());
                }
                json!({"content": [{"type": "text", "text": format!("access-{good}")}]})
            }
            _ => return (202, String::new(), String::new()),
        };
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        (200, String::new(), answer.to_string())
    }
}

/// The challenge of a verifier, as PKCE has it.
fn challenge(verifier: &str) -> String {
    use base64::Engine as _;
    use sha2::Digest as _;
    base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(sha2::Sha256::digest(verifier))
}

//! A server over an engine in memory, and clients of it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Request};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use mock_llm::{Mock, Script};
use playhouse_actors::{
    AgentDirectory, Aside, Choice, Directory, Engine, EngineOptions, FilledTemplate, Ground, ModelDirectory,
    Profile, ProfileDirectory, ProfileRequest, SessionHandle, TemplateDirectory, TemplatePiece,
    WorkspaceDirectory,
};
use playhouse_llm::{
    DialectKind, Endpoint, Head, HttpRequest, HttpResponse, Limiter, Limits, Quota, Transport,
};
use playhouse_policy::{Action, Rule, Rules};
use playhouse_protocol::capability::Modalities;
use playhouse_protocol::consent::{PermissionRule, Risk};
use playhouse_protocol::ledger::Purpose;
use playhouse_protocol::template::{TemplateFacts, TemplateList, TemplateOwner};
use playhouse_protocol::{
    CommandError, ErrorCode, ErrorInfo, ModelRef, NewSession, PriceList, Prices, Sandbox, Timestamp,
};
use playhouse_server::{
    AgentFacts, AgentList, AgentMode, AgentOrigin, App, Ended, Facts, Keys, Listen, ModelView, ProviderView,
    RefusedAgent, Server, ServerOptions, ToolView,
};
use playhouse_session::RetryPolicy;
use playhouse_store::Store;
use playhouse_tools::Registry;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Carries requests to a mock without sockets.
struct InProcess(Mock);

impl Transport for InProcess {
    fn send(&self, request: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, ErrorInfo>> {
        let mock = self.0.clone();
        async move {
            let path = request.url.trim_start_matches("mock:").to_owned();
            let response = mock.respond(&path, &[], request.body).await;
            let cut = |error: std::io::Error| ErrorInfo::new(ErrorCode::StreamCut, error.to_string());
            let body = response.body.map(move |chunk| chunk.map_err(cut)).boxed();
            Ok(HttpResponse { status: response.status, headers: response.headers, body })
        }
        .boxed()
    }
}

/// One agent, which knows every model of the script.
struct TestDirectory {
    transport: Arc<dyn Transport>,
    limiter: Limiter,
    tools: Registry,
}

fn modalities() -> Modalities {
    Modalities { image: true, pdf: false }
}

impl WorkspaceDirectory for TestDirectory {
    fn local(self: Arc<Self>, _: &Path) -> Result<Arc<dyn Directory>, String> {
        Ok(self)
    }

    fn defaults(&self, _: &Path) -> Result<(Option<String>, Option<ModelRef>), String> {
        Ok((None, None))
    }

    fn ground(&self, _: &str, _: &Path) -> Result<Ground, String> {
        let configuration = [Rule::new("*", "*", Action::Allow)].into_iter().collect();
        Ok(Ground { configuration, sandbox: Sandbox::Off, ..Ground::default() })
    }
}

impl AgentDirectory for TestDirectory {
    fn agent_rules(&self, agent: &str) -> Rules {
        match agent {
            // Somebody has to agree before it does anything.
            "careful" => [Rule::new("*", "*", Action::Ask)].into_iter().collect(),
            _ => Rules::new(),
        }
    }

    fn allows(&self, _: &str, _: &str) -> bool {
        true
    }

    fn overhead_tokens(&self, _: &str) -> u64 {
        10
    }
}

impl ModelDirectory for TestDirectory {
    fn prices(&self, _: &ModelRef) -> PriceList {
        Prices { input: Some(1.into()), output: Some(5.into()), ..Prices::default() }.into()
    }
}

impl TemplateDirectory for TestDirectory {
    fn templates(&self, _: &Path) -> TemplateList {
        let explain = TemplateFacts {
            name: "explain".into(),
            description: Some("Explains it".into()),
            agent: None,
            model: None,
            subtask: false,
            template: "Explain $1.".into(),
            hints: vec!["$1".into()],
            owner: TemplateOwner::Workspace,
        };
        TemplateList { commands: vec![explain], refused: vec!["bad.md:1: it is bad".into()] }
    }

    fn template(&self, _: &Path, name: &str, arguments: &str) -> Result<FilledTemplate, String> {
        if name != "explain" {
            return Err(format!("unknown command \"{name}\""));
        }
        let pieces = vec![
            TemplatePiece::Shell("echo ran".into()),
            TemplatePiece::Text(format!("\nExplain {arguments}.")),
        ];
        Ok(FilledTemplate { pieces, ..FilledTemplate::default() })
    }
}

impl ProfileDirectory for TestDirectory {
    fn choose(
        &self,
        agent: Option<&str>,
        model: Option<&ModelRef>,
        fallback_agent: Option<&str>,
        fallback_model: Option<&ModelRef>,
    ) -> Result<Choice, CommandError> {
        let model = model.or(fallback_model).cloned().unwrap_or_else(|| ModelRef::new("mock", "greeter"));
        if model.provider == "keyless" {
            let error = ErrorInfo::new(ErrorCode::Misconfigured, "no key for it: KEYLESS_API_KEY is not set");
            return Err(CommandError::Unusable(Box::new(ErrorInfo { model: Some(model), ..error })));
        }
        if model.provider != "mock" {
            return Err(CommandError::Invalid(format!("there is no model {model}")));
        }
        Ok(Choice {
            agent: agent.or(fallback_agent).unwrap_or("tester").to_owned(),
            model,
            step_limit: None,
            modalities: modalities(),
        })
    }

    fn aside(&self, purpose: Purpose, model: &ModelRef) -> Option<Aside> {
        (purpose == Purpose::Compaction).then(|| Aside {
            agent: "compaction".into(),
            model: model.clone(),
            system: "Write down what matters.".into(),
        })
    }

    fn profile(&self, request: &ProfileRequest) -> Result<Profile, ErrorInfo> {
        Ok(Profile {
            ended: None,
            endpoint: Endpoint::new("mock", DialectKind::Anthropic, "mock:"),
            transport: Arc::clone(&self.transport),
            limiter: self.limiter.clone(),
            limits: Limits::default(),
            head: Head {
                model: request.model.model.clone(),
                system: "You are a test.".into(),
                tools: self.tools.specs(|_| true).into(),
                max_output: 1_000_000,
                modalities: modalities(),
                ..Head::default()
            },
            findings: Arc::default(),
        })
    }
}

/// What clients may know of the same.
pub(crate) struct TestFacts;

impl Facts for TestFacts {
    fn agents_in(&self, workspace: &Path) -> AgentList {
        let own = |agent: &mut AgentFacts| {
            agent.origin = AgentOrigin::Workspace;
            agent.description = workspace.display().to_string();
        };
        let mut agents = self.agents();
        agents.iter_mut().for_each(own);
        let refused = RefusedAgent { name: "broken".into(), error: "broken.md:2: no".into() };
        AgentList { agents, refused: vec![refused] }
    }

    fn agents(&self) -> Vec<AgentFacts> {
        let agent = |name: &str, mode, hidden| AgentFacts {
            name: name.into(),
            description: format!("the agent {name}"),
            mode,
            origin: AgentOrigin::Builtin,
            hidden,
            color: None,
            variant: None,
            read_only: false,
            tools: None,
            model: None,
            steps: None,
            permissions: vec![PermissionRule {
                permission: "bash".into(),
                pattern: "rm *".into(),
                action: Action::Deny,
            }],
        };
        vec![agent("tester", AgentMode::Primary, false), agent("careful", AgentMode::All, false)]
    }

    fn tools(&self) -> Vec<ToolView> {
        vec![ToolView {
            name: "read".into(),
            description: "reads a file".into(),
            parameters: json!({"type": "object", "properties": {"filePath": {"type": "string"}}}),
            risk: Risk::Safe,
            permission: "read".into(),
            source: None,
        }]
    }

    fn providers(&self) -> Vec<ProviderView> {
        let prices = Prices { input: Some(1.into()), output: Some(5.into()), ..Prices::default() };
        let model = ModelView {
            model: ModelRef::new("mock", "greeter"),
            name: "Greeter".into(),
            context: 200_000,
            output: 1_000,
            reasoning: false,
            temperature: true,
            modalities: modalities(),
            prices: prices.into(),
            released: None,
        };
        vec![ProviderView { id: "mock".into(), connected: true, models: vec![model] }]
    }

    fn default_model(&self) -> Option<ModelRef> {
        Some(ModelRef::new("mock", "greeter"))
    }

    fn version(&self) -> &str {
        "0.0.0-test"
    }
}

/// What a server stands on.
pub(crate) struct Site {
    pub(crate) store: Store,
    pub(crate) folder: Arc<tempfile::TempDir>,
    /// Changes the options of the engine.
    pub(crate) tune: fn(&mut EngineOptions),
    /// The model of the engine that was started last.
    pub(crate) mock: Arc<Mutex<Option<Mock>>>,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self {
            store: Store::memory().unwrap(),
            folder: Arc::new(tempfile::tempdir().unwrap()),
            tune: |_| {},
            mock: Arc::default(),
        }
    }

    /// The requests that the model was sent.
    pub(crate) fn requests(&self) -> Vec<Value> {
        let mock = self.mock.lock().unwrap().clone().expect("an engine was started");
        let entries = mock.journal().entries();
        entries.iter().map(|entry| serde_json::from_slice(entry.body.as_deref().unwrap()).unwrap()).collect()
    }

    /// The directory in which its sessions work: absolute, links resolved.
    pub(crate) fn workspace(&self) -> PathBuf {
        let workspace = self.folder.path().join("workspace");
        fs_err::create_dir_all(&workspace).unwrap();
        fs_err::canonicalize(workspace).unwrap()
    }

    /// A key of `tenant`.
    pub(crate) fn key(&self, tenant: &str) -> String {
        let keys = Keys::new(Arc::clone(&self.store.shelf));
        keys.create(tenant, "test", &[], Timestamp::from_millis(1)).unwrap().1
    }

    /// A key of `tenant` that works below this directory only.
    pub(crate) fn key_below(&self, tenant: &str, root: &Path) -> String {
        let keys = Keys::new(Arc::clone(&self.store.shelf));
        let roots = [root.to_str().unwrap().to_owned()];
        keys.create(tenant, "test", &roots, Timestamp::from_millis(1)).unwrap().1
    }

    /// What the routes share, over an engine with this script.
    pub(crate) async fn app(&self, script: Script, change: impl FnOnce(&mut ServerOptions)) -> App {
        let tools = Registry::native();
        let mock = Mock::new(script);
        *self.mock.lock().unwrap() = Some(mock.clone());
        let directory = TestDirectory {
            transport: Arc::new(InProcess(mock)),
            limiter: Limiter::new(Quota { concurrent: 64, ..Quota::default() }),
            tools: tools.clone(),
        };
        let outputs = self.folder.path().join("outputs");
        fs_err::create_dir_all(&outputs).unwrap();
        let outputs = fs_err::canonicalize(outputs).unwrap();
        let mut engine = EngineOptions::new(self.store.clone(), Arc::new(directory), outputs);
        engine.tools = tools;
        engine.limits.retry = RetryPolicy { attempts: 2, base_ms: 1, longest_ms: 10, total_ms: 60_000 };
        (self.tune)(&mut engine);
        let engine = Engine::start(engine).await.unwrap();
        let mut options = ServerOptions { roots: vec![self.workspace()], ..ServerOptions::default() };
        change(&mut options);
        App::new(engine, Arc::new(TestFacts), Keys::new(Arc::clone(&self.store.shelf)), options).unwrap()
    }

    /// A server that runs, on an address of its own.
    pub(crate) async fn serve(&self, script: Script, change: impl FnOnce(&mut ServerOptions)) -> Served {
        let app = self.app(script, change).await;
        let server = Server::bind(app, Listen::Tcp("127.0.0.1:0".parse().unwrap())).await.unwrap();
        Served::run(server)
    }
}

/// A server that runs.
pub(crate) struct Served {
    pub(crate) app: App,
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
    hurry: CancellationToken,
    task: JoinHandle<Ended>,
}

impl Served {
    /// Runs it; it listens on an address.
    pub(crate) fn run(server: Server) -> Self {
        let (app, address) = (server.app().clone(), server.address().unwrap());
        let (stop, hurry) = (CancellationToken::new(), CancellationToken::new());
        let run = server.run(stop.clone().cancelled_owned(), hurry.clone().cancelled_owned());
        Self { app, address, stop, hurry, task: tokio::spawn(run) }
    }

    /// Tells it to end.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Tells it again.
    pub(crate) fn hurry(&self) {
        self.hurry.cancel();
    }

    /// How it ended.
    pub(crate) async fn ended(self) -> Ended {
        tokio::time::timeout(PATIENCE, self.task).await.expect("the server ends").unwrap()
    }

    /// Asks it without a key.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "").await
    }

    /// Asks it, with these headers beside `host`, which is its address unless one of them is another.
    pub(crate) async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let stream = TcpStream::connect(self.address).await.unwrap();
        ask(stream, &self.address.to_string(), method, path, headers, body).await
    }

    /// A session of this tenant, made beside the server.
    pub(crate) async fn session(&self, tenant: &str, model: &str) -> SessionHandle {
        let workspace = self.app.roots().first().unwrap().to_string_lossy().into_owned();
        let new =
            NewSession { model: Some(ModelRef::new("mock", model)), ..NewSession::new(tenant, workspace) };
        self.app.engine().create(new).await.unwrap()
    }
}

/// What a server said.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The kind of the problem that it is; its status is checked to be the same as that of the answer.
    pub(crate) fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status, "{problem}");
        problem["type"].as_str().unwrap().strip_prefix("urn:playhouse:problem:").unwrap().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// Asks over the Unix socket at `path`.
pub(crate) async fn ask_unix(socket: &Path, path: &str, headers: &[(&str, &str)]) -> Answer {
    ask(UnixStream::connect(socket).await.unwrap(), "localhost", "GET", path, headers, "").await
}

/// Sends a body to a server on a Unix socket, without a key.
pub(crate) async fn post_unix(socket: &Path, path: &str, body: &serde_json::Value) -> Answer {
    let headers = [("content-type", "application/json")];
    ask(UnixStream::connect(socket).await.unwrap(), "localhost", "POST", path, &headers, &body.to_string())
        .await
}

async fn ask<S>(
    stream: S,
    host: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let response = open(stream, host, method, path, headers, body).await;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let read = tokio::time::timeout(PATIENCE, response.into_body().collect()).await.expect("it answers");
    let body = String::from_utf8(read.unwrap().to_bytes().to_vec()).unwrap();
    Answer { status, headers, body }
}

/// Asks, and gives the answer as its head comes; a stream of events is read from its body.
pub(crate) async fn open<S>(
    stream: S,
    host: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> hyper::Response<Incoming>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request = request.header("host", host);
    }
    if !body.is_empty() && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        request = request.header("content-type", "application/json");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(body.to_owned())).unwrap();
    tokio::time::timeout(PATIENCE, sender.send_request(request)).await.expect("it answers").unwrap()
}

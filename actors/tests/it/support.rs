//! An engine in memory, a directory that can be made to fail, and tools that can be watched.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use mock_llm::{Mock, Script, Server};
use playhouse_actors::{
    AgentDirectory, Aside, Choice, Directory, Engine, EngineOptions, FilledTemplate, Ground, ModelDirectory,
    Profile, ProfileDirectory, ProfileRequest, SessionHandle, Subscription, TemplateDirectory, TemplatePiece,
    WorkspaceDirectory,
};
use playhouse_llm::{
    Connections, DialectKind, Endpoint, Head, HttpRequest, HttpResponse, HttpTransport, Limiter, Limits,
    Quota, Transport,
};
use playhouse_policy::{Access, Action, Rule, Rules};
use playhouse_protocol::attribution::labels_of;
use playhouse_protocol::capability::Modalities;
use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::ledger::{Purpose, Tier};
use playhouse_protocol::record::{Effect, Recovery};
use playhouse_protocol::{
    CommandError, ErrorCode, ErrorInfo, EventBody, Labels, ModelRef, NewSession, PriceList, Prices, Record,
    Sandbox,
};
use playhouse_session::RetryPolicy;
use playhouse_store::Store;
use playhouse_tools::{CallContext, Plan, Prepared, Registry, Risk, Tool, ToolError, ToolOutput};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

/// Threads of an engine for blocking work.
pub(crate) const POOL: u32 = 4;

/// Carries requests to a mock without sockets.
pub(crate) struct InProcess(pub(crate) Mock);

impl Transport for InProcess {
    fn send(&self, request: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, ErrorInfo>> {
        use secrecy::ExposeSecret as _;
        let mock = self.0.clone();
        async move {
            let headers: Vec<(String, String)> = request
                .headers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.expose_secret().to_owned()))
                .collect();
            let path = request.url.trim_start_matches("mock:").to_owned();
            let response = mock.respond(&path, &headers, request.body).await;
            let body = response
                .body
                .map(|chunk| chunk.map_err(|error| ErrorInfo::new(ErrorCode::StreamCut, error.to_string())));
            Ok(HttpResponse { status: response.status, headers: response.headers, body: body.boxed() })
        }
        .boxed()
    }
}

/// What every model here reads.
fn modalities() -> Modalities {
    Modalities { image: true, pdf: false }
}

/// A directory with one agent that knows every model, and can be made to panic.
pub(crate) struct TestDirectory {
    pub(crate) mock: Mock,
    specs: Vec<ToolSpec>,
    /// What holds for sessions that are woken from now on.
    pub(crate) ground: Mutex<Ground>,
    /// The next profile panics, in the step actor.
    pub(crate) panic_in_step: AtomicBool,
    /// So many of the next looks at prices panic, in the session actor.
    pub(crate) panics_in_session: AtomicU32,
    /// Tokens that a request may have. Where it is known, summaries are asked of the model `summarizer`.
    pub(crate) room: Mutex<Option<u64>>,
    /// Whether titles are asked of the model `titler`.
    pub(crate) titles: AtomicBool,
    /// How often sessions were woken.
    pub(crate) woken: AtomicU32,
    /// How often a conversation was begun.
    pub(crate) profiles: AtomicU32,
    /// The context window of all models, in tokens.
    pub(crate) window: AtomicU64,
    /// What the model `dear` costs, as a multiple of what the others cost.
    pub(crate) dearness: AtomicU32,
    /// What system prompts say that are made from now on.
    pub(crate) system: Mutex<String>,
    pub(crate) limiter: Limiter,
    /// How long a server may take.
    pub(crate) limits: Mutex<Limits>,
    /// Threads of the pool that profiles of the model `hog` hold.
    hogged: AtomicU32,
    let_go: AtomicBool,
    /// The mock on a socket, for the providers that are named as their dialect.
    pub(crate) server: Mutex<Option<Server>>,
    /// Its address, kept when it is gone, and how it is connected to.
    pub(crate) place: Mutex<(String, Connections)>,
    http: Arc<dyn Transport>,
}

impl TestDirectory {
    /// Waits until profiles of the model `hog` hold every thread of the engine's pool.
    pub(crate) async fn pool_is_hogged(&self) {
        let hogged = async {
            while self.hogged.load(Ordering::SeqCst) < POOL {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), hogged).await.expect("the pool is full");
    }

    /// Lets go of them.
    pub(crate) fn let_go(&self) {
        self.let_go.store(true, Ordering::SeqCst);
    }

    fn endpoint(&self, provider: &str) -> Endpoint {
        let (kind, path) = match provider {
            "anthropic" => (DialectKind::Anthropic, ""),
            "openai-chat" => (DialectKind::OpenaiChat, "/v1"),
            "openai-responses" => (DialectKind::OpenaiResponses, "/v1"),
            "gemini" => (DialectKind::Gemini, "/v1beta"),
            _ => return Endpoint::new("mock", DialectKind::Anthropic, "mock:"),
        };
        let (url, connections) = self.place.lock().unwrap().clone();
        Endpoint { connections, ..Endpoint::new(provider, kind, format!("{url}{path}")) }
    }

    fn transport(&self, provider: &str) -> Arc<dyn Transport> {
        match provider {
            "mock" => Arc::new(InProcess(self.mock.clone())),
            _ => Arc::clone(&self.http),
        }
    }
}

impl WorkspaceDirectory for TestDirectory {
    fn local(self: Arc<Self>, _: &Path) -> Result<Arc<dyn Directory>, String> {
        Ok(self)
    }

    fn defaults(&self, _: &Path) -> Result<(Option<String>, Option<ModelRef>), String> {
        Ok((None, None))
    }

    fn ground(&self, _: &str, _: &Path) -> Result<Ground, String> {
        self.woken.fetch_add(1, Ordering::SeqCst);
        Ok(self.ground.lock().unwrap().clone())
    }
}

impl AgentDirectory for TestDirectory {
    fn agent_rules(&self, agent: &str) -> Rules {
        match agent {
            "careful" => [Rule::new("danger", "*", Action::Deny)].into_iter().collect(),
            _ => Rules::new(),
        }
    }

    fn agent_restrictions(&self, agent: &str) -> Rules {
        match agent {
            // One of a workspace, which says that it may all and must not one thing.
            "local" => [Rule::new("*", "*", Action::Allow), Rule::new("danger", "https://b/*", Action::Deny)]
                .into_iter()
                .collect(),
            _ => Rules::new(),
        }
    }

    fn is_read_only(&self, agent: &str) -> bool {
        agent == "looker"
    }

    fn takes_tasks(&self, agent: &str) -> Result<(), String> {
        if agent == "nobody" { Err("no agent \"nobody\" takes tasks".to_owned()) } else { Ok(()) }
    }

    fn allows(&self, agent: &str, tool: &str) -> bool {
        match agent {
            "reader" => tool == "read",
            "batcher" => matches!(tool, "read" | "batch"),
            "giver" => matches!(tool, "probe" | "task"),
            _ => true,
        }
    }

    fn overhead_tokens(&self, _: &str) -> u64 {
        if self.room.lock().unwrap().is_none() {
            return 10;
        }
        let tools = self.specs.iter().map(|spec| serde_json::to_string(spec).unwrap().len() as u64);
        tools.sum::<u64>() / 4
    }
}

impl ModelDirectory for TestDirectory {
    fn prices(&self, model: &ModelRef) -> PriceList {
        let dearness = match &*model.model {
            "priceless" => 0,
            "dear" => self.dearness.load(Ordering::SeqCst),
            _ => 1,
        };
        if dearness == 0 {
            return PriceList::default();
        }
        Prices { input: Some(dearness.into()), output: Some((5 * dearness).into()), ..Prices::default() }
            .into()
    }

    fn tier(&self, _: &ModelRef) -> Tier {
        let left = self.panics_in_session.load(Ordering::SeqCst);
        if left > 0 {
            self.panics_in_session.store(left - 1, Ordering::SeqCst);
            panic!("the list of tiers is on fire");
        }
        Tier::default()
    }

    fn labels(&self, metadata: &Map<String, Value>) -> Labels {
        labels_of(&["customer".to_owned()], metadata, |_| ())
    }

    fn window(&self, _: &ModelRef) -> Option<u64> {
        Some(self.window.load(Ordering::SeqCst))
    }

    fn room(&self, _: &ModelRef) -> Option<u64> {
        *self.room.lock().unwrap()
    }
}

impl TemplateDirectory for TestDirectory {
    fn template(&self, _: &Path, name: &str, arguments: &str) -> Result<FilledTemplate, String> {
        let text = |text: &str| TemplatePiece::Text(text.to_owned());
        match name {
            "sh" => Ok(FilledTemplate {
                pieces: vec![
                    text("Before: "),
                    TemplatePiece::Shell(arguments.to_owned()),
                    text(". See @a.txt"),
                ],
                ..FilledTemplate::default()
            }),
            "later" => {
                Ok(FilledTemplate { subtask: true, pieces: vec![text("do it")], ..FilledTemplate::default() })
            }
            _ => Err(format!("unknown command \"{name}\"")),
        }
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
        let missing = || CommandError::Invalid("no model is chosen".into());
        // These bring a model of their own.
        let own = agent.filter(|agent| matches!(*agent, "worker" | "helper"));
        let own = own.map(|agent| ModelRef::new("mock", agent));
        Ok(Choice {
            agent: agent.or(fallback_agent).unwrap_or("tester").to_owned(),
            model: model.or(own.as_ref()).or(fallback_model).ok_or_else(missing)?.clone(),
            step_limit: None,
            modalities: modalities(),
        })
    }

    fn aside(&self, purpose: Purpose, _: &ModelRef) -> Option<Aside> {
        if purpose == Purpose::Title && self.titles.load(Ordering::SeqCst) {
            return Some(Aside {
                agent: "title".into(),
                model: ModelRef::new("mock", "titler"),
                system: "Name it.".into(),
            });
        }
        let asks = purpose == Purpose::Compaction && self.room.lock().unwrap().is_some();
        asks.then(|| Aside {
            agent: "compaction".into(),
            model: ModelRef::new("mock", "summarizer"),
            system: "Write down what matters.".into(),
        })
    }

    fn profile(&self, request: &ProfileRequest) -> Result<Profile, ErrorInfo> {
        assert!(!self.panic_in_step.swap(false, Ordering::SeqCst), "the profile is on fire");
        self.profiles.fetch_add(1, Ordering::SeqCst);
        if request.model.model == "hog" {
            self.hogged.fetch_add(1, Ordering::SeqCst);
            while !self.let_go.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(Profile {
            ended: None,
            endpoint: self.endpoint(&request.model.provider),
            transport: self.transport(&request.model.provider),
            limiter: self.limiter.clone(),
            limits: *self.limits.lock().unwrap(),
            head: Head {
                model: request.model.model.clone(),
                system: request.settled.clone().unwrap_or_else(|| self.system.lock().unwrap().clone()),
                tools: self.specs.clone().into(),
                max_output: 1_000,
                modalities: modalities(),
                ..Head::default()
            },
            findings: Arc::default(),
        })
    }
}

/// A tool that does as its `mode` says.
pub(crate) struct Probe {
    spec: ToolSpec,
    /// A permit for each call of mode `wait` that began.
    started: Semaphore,
    /// Ends as many calls of mode `wait` as it has permits.
    release: Semaphore,
    /// Calls that were executed.
    pub(crate) executed: AtomicU32,
    /// The tasks of the runtime that began to execute calls, and went on with those that waited.
    pub(crate) tasks: Mutex<Vec<tokio::task::Id>>,
}

impl Probe {
    fn new() -> Self {
        Self {
            spec: ToolSpec {
                name: "probe".into(),
                description: "does as it is told".into(),
                parameters: json!({"type": "object", "properties": {"mode": {"type": "string"}}}),
            },
            started: Semaphore::new(0),
            release: Semaphore::new(0),
            executed: AtomicU32::new(0),
            tasks: Mutex::default(),
        }
    }

    fn ran_in(&self) {
        self.tasks.lock().unwrap().extend(tokio::task::try_id());
    }

    /// Waits until one more call of mode `wait` has begun.
    pub(crate) async fn begun(&self) {
        let begun = tokio::time::timeout(Duration::from_secs(20), self.started.acquire()).await;
        begun.expect("the call begins").unwrap().forget();
    }

    /// Lets `count` calls of mode `wait` end.
    pub(crate) fn release(&self, count: usize) {
        self.release.add_permits(count);
    }
}

impl Tool for Probe {
    fn is_brief(&self) -> bool {
        true
    }

    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn risk(&self) -> Risk {
        Risk::Safe
    }

    fn prepare<'a>(
        &'a self,
        input: &'a Map<String, Value>,
        _: &'a CallContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        async move {
            let mode = input.get("mode").and_then(Value::as_str).unwrap_or_default().to_owned();
            assert!(mode != "panic-in-prepare", "prepare is on fire");
            if mode == "panic-later-in-prepare" {
                tokio::task::yield_now().await;
                panic!("prepare is on fire");
            }
            let effect = if mode.starts_with("free") { Effect::None } else { Effect::Workspace };
            Ok(Prepared {
                accesses: Vec::new(),
                effect,
                recovery: if effect == Effect::None { Recovery::Rerun } else { Recovery::Interrupt },
                preview: mode.clone(),
                title: format!("probe {mode}"),
                plan: Box::new(mode),
            })
        }
        .boxed()
    }

    fn execute<'a>(
        &'a self,
        plan: Plan,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        async move {
            self.executed.fetch_add(1, Ordering::SeqCst);
            self.ran_in();
            let mode = *plan.downcast::<String>().unwrap();
            match mode.as_str() {
                "panic" => panic!("the tool is on fire"),
                "panic-later" => {
                    tokio::task::yield_now().await;
                    panic!("the tool is on fire");
                }
                large if large.starts_with("free-large") => {
                    let output =
                        format!("{large}\n{}", "A line of much output, as tools write it.\n".repeat(38));
                    return Ok(ToolOutput { title: "probe".into(), output, ..ToolOutput::default() });
                }
                "hang" => std::future::pending::<()>().await,
                "wait" | "free-wait" => {
                    context.output.write("waiting…");
                    self.started.add_permits(1);
                    tokio::select! {
                        permit = self.release.acquire() => {
                            permit.unwrap().forget();
                            self.ran_in();
                        }
                        () = context.cancel.cancelled() => {
                            return Err(ToolError::Cancelled("it had begun".into()));
                        }
                    }
                }
                _ => {}
            }
            Ok(ToolOutput { title: "probe".into(), output: format!("did {mode}"), ..ToolOutput::default() })
        }
        .boxed()
    }
}

/// A tool that nobody may use without a rule or a person. It goes to the address that it is given.
pub(crate) struct Danger {
    spec: ToolSpec,
    /// Where it went, in order.
    went: Mutex<Vec<String>>,
}

impl Danger {
    fn new() -> Self {
        Self {
            spec: ToolSpec {
                name: "danger".into(),
                description: "goes somewhere".into(),
                parameters: json!({"type": "object", "properties": {"to": {"type": "string"}}}),
            },
            went: Mutex::default(),
        }
    }

    /// Where it went, in order.
    pub(crate) fn went(&self) -> Vec<String> {
        self.went.lock().unwrap().clone()
    }
}

impl Tool for Danger {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn risk(&self) -> Risk {
        Risk::Dangerous
    }

    fn prepare<'a>(
        &'a self,
        input: &'a Map<String, Value>,
        _: &'a CallContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        async move {
            let to = input.get("to").and_then(Value::as_str).unwrap_or_default().to_owned();
            Ok(Prepared {
                accesses: vec![Access::Address(to.clone())],
                effect: Effect::Workspace,
                recovery: Recovery::Interrupt,
                preview: format!("go to {to}"),
                title: "danger".into(),
                plan: Box::new(to),
            })
        }
        .boxed()
    }

    fn execute<'a>(&'a self, plan: Plan, _: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        async move {
            let to = *plan.downcast::<String>().unwrap();
            self.went.lock().unwrap().push(to.clone());
            Ok(ToolOutput::text(format!("went to {to}")))
        }
        .boxed()
    }
}

/// A ground on which nobody is asked about anything.
pub(crate) fn open_ground() -> Ground {
    Ground {
        configuration: [Rule::new("*", "*", Action::Allow)].into_iter().collect(),
        sandbox: Sandbox::Off,
        ..Ground::default()
    }
}

/// A ground with the rules that come with the engine only.
pub(crate) fn bare_ground() -> Ground {
    Ground { sandbox: Sandbox::Off, ..Ground::default() }
}

pub(crate) struct Stage {
    pub(crate) engine: Engine,
    pub(crate) directory: Arc<TestDirectory>,
    pub(crate) probe: Arc<Probe>,
    pub(crate) danger: Arc<Danger>,
    pub(crate) store: Store,
    pub(crate) folder: Arc<tempfile::TempDir>,
}

impl Stage {
    pub(crate) async fn new(script: Script) -> Self {
        Self::on(Store::memory().unwrap(), Arc::new(tempfile::tempdir().unwrap()), script, 1024 * 1024).await
    }

    pub(crate) async fn on(
        store: Store,
        folder: Arc<tempfile::TempDir>,
        script: Script,
        ring_bytes: usize,
    ) -> Self {
        Self::with(store, folder, script, |options| options.limits.ring_bytes = ring_bytes).await
    }

    /// With an engine whose options are changed.
    pub(crate) async fn with(
        store: Store,
        folder: Arc<tempfile::TempDir>,
        script: Script,
        change: impl FnOnce(&mut EngineOptions),
    ) -> Self {
        Self::prepared(store, folder, script, |_, options| change(options)).await
    }

    /// The same, with a directory that is prepared before the engine starts: what is resumed by itself sees it at once.
    pub(crate) async fn prepared(
        store: Store,
        folder: Arc<tempfile::TempDir>,
        script: Script,
        prepare: impl FnOnce(&TestDirectory, &mut EngineOptions),
    ) -> Self {
        let probe = Arc::new(Probe::new());
        let mut tools = Registry::native();
        tools.add(Arc::clone(&probe) as _).unwrap();
        let danger = Arc::new(Danger::new());
        tools.add(Arc::clone(&danger) as _).unwrap();
        let mock = Mock::new(script);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = mock.serve(listener).unwrap();
        let directory = Arc::new(TestDirectory {
            mock,
            specs: tools.specs(|_| true),
            ground: Mutex::new(open_ground()),
            panic_in_step: AtomicBool::new(false),
            panics_in_session: AtomicU32::new(0),
            room: Mutex::new(None),
            titles: AtomicBool::new(false),
            woken: AtomicU32::new(0),
            profiles: AtomicU32::new(0),
            window: AtomicU64::new(200_000),
            dearness: AtomicU32::new(1),
            system: Mutex::new("You are a test.".to_owned()),
            hogged: AtomicU32::new(0),
            let_go: AtomicBool::new(false),
            limiter: Limiter::new(Quota { concurrent: 64, ..Quota::default() }),
            limits: Mutex::new(Limits::default()),
            place: Mutex::new((server.url(), Connections::default())),
            server: Mutex::new(Some(server)),
            http: Arc::new(HttpTransport::new()),
        });
        fs_err::create_dir_all(folder.path().join("outputs")).unwrap();
        fs_err::create_dir_all(folder.path().join("workspace")).unwrap();
        let outputs = fs_err::canonicalize(folder.path().join("outputs")).unwrap();
        let mut options = EngineOptions::new(store.clone(), Arc::clone(&directory) as _, outputs);
        options.tools = tools;
        options.limits.threads = POOL as usize;
        // As a house does it: the outputs of other sessions are the engine's, whatever the rules say.
        options.hidden = vec![options.outputs.clone()];
        options.limits.retry = RetryPolicy { attempts: 2, base_ms: 1, longest_ms: 10, total_ms: 60_000 };
        prepare(&directory, &mut options);
        let engine = Engine::start(options).await.unwrap();
        Self { engine, directory, probe, danger, store, folder }
    }

    pub(crate) async fn session(&self, model: &str) -> SessionHandle {
        self.session_with("mock", model).await
    }

    pub(crate) async fn session_with(&self, provider: &str, model: &str) -> SessionHandle {
        let model = Some(ModelRef::new(provider, model));
        self.engine.create(NewSession { model, ..self.new_session("echo") }).await.unwrap()
    }

    /// What a session with this scripted model is made of.
    pub(crate) fn new_session(&self, model: &str) -> NewSession {
        NewSession {
            model: Some(ModelRef::new("mock", model)),
            ..NewSession::new("local", self.folder.path().join("workspace").to_string_lossy().into_owned())
        }
    }

    /// Sessions that are woken from now on ask about everything that is not harmless.
    pub(crate) fn bare(self) -> Self {
        *self.directory.ground.lock().unwrap() = bare_ground();
        self
    }

    /// All records of a session.
    pub(crate) async fn records(&self, session: &SessionHandle) -> Vec<Record> {
        let (entries, damage) = self.engine.read(session.id()).await.unwrap();
        assert_eq!(damage, None);
        entries.into_iter().map(|entry| entry.record).collect()
    }
}

/// Reads events up to and including the first durable one for which `is_it` says so.
pub(crate) async fn until(events: &mut Subscription, is_it: impl Fn(&Record) -> bool) -> Record {
    let wait = async {
        loop {
            let event = events.next().await.unwrap().expect("the stream goes on");
            if let EventBody::Durable(record) = &event.event().body
                && is_it(record)
            {
                return record.as_ref().clone();
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.expect("the event comes")
}

pub(crate) fn kinds(records: &[Record]) -> Vec<&'static str> {
    records.iter().map(Record::kind).collect()
}

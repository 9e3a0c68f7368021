//! The mock: answers requests by its script.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use crate::answer::{self, Body, Said};
use crate::cache::{Cached, PromptCache};
use crate::fault::Fault;
use crate::framing::Framing;
use crate::journal::{Arrival, Journal, JournalOptions, Record};
use crate::plan::Plan;
use crate::repeats::Repeats;
use crate::rules::{Enforcer, Request, Rules, RulesReport};
use crate::script::Script;
use crate::server::{ServeOptions, Server};
use crate::wire::{About, Wire, foreign_error, wire_of};

/// Names the attempt, for the journal.
const ATTEMPT_HEADER: &str = "x-playhouse-attempt";
/// Tells sessions apart that ask exactly the same, for [`Step::fail_first`](crate::Step::fail_first).
const SESSION_HEADER: &str = "x-mock-session";

/// Turns on parts of the Anthropic format; there may be several, and each may name several.
const BETA_HEADER: &str = "anthropic-beta";

/// How a mock is set up.
#[derive(Clone, Debug, Default)]
pub struct MockOptions {
    /// Tokens a second of models and steps that set none; `None`, or what is not above 0, for as fast as possible.
    pub rate: Option<f64>,
    /// What the journal keeps.
    pub journal: JournalOptions,
}

/// A scripted model. A clone is another handle of the same mock.
#[derive(Clone)]
pub struct Mock {
    shared: Arc<Shared>,
}

struct Shared {
    script: Script,
    rate: Option<f64>,
    journal: Journal,
    repeats: Mutex<Repeats>,
    prompt_cache: PromptCache,
    rules: Option<Enforcer>,
}

/// The answer to a request.
pub struct MockResponse {
    /// The HTTP status.
    pub status: u16,
    /// Header names (lower case) and values.
    pub headers: Vec<(String, String)>,
    /// The body. An error in it is a connection that breaks. Dropping it tells the journal that the client went away.
    pub body: Body,
}

/// The answer to a request, of which it was not said who carries it.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Header names (lower case) and values.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) said: Said,
}

impl std::fmt::Debug for Mock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mock").field("journal", &self.shared.journal).finish_non_exhaustive()
    }
}

impl Mock {
    /// A mock that sends as fast as possible and keeps its journal in memory.
    pub fn new(script: Script) -> Self {
        Self::with(script, None, Journal::in_memory(), None)
    }

    /// A mock.
    ///
    /// # Errors
    /// When the journal's file cannot be created; the error names it.
    pub fn with_options(script: Script, options: MockOptions) -> io::Result<Self> {
        Ok(Self::with(script, options.rate, Journal::new(options.journal)?, None))
    }

    /// A mock that enforces `rules`.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use mock_llm::{Mock, MockOptions, Model, Rules, Script, reasoning};
    /// use serde_json::json;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let model = Model::new().step(reasoning("Hm.").text("Done."));
    /// let script = Script::new().model("claude-opus-5-5", model);
    /// let mock = Mock::with_rules(script, MockOptions::default(), Rules::default()).unwrap();
    /// let request = json!({"model": "claude-opus-5-5", "max_tokens": 100, "temperature": 0.5,
    ///     "messages": [{"role": "user", "content": "Fix the test."}]});
    /// let response = mock.respond("/v1/messages", &[], Bytes::from(request.to_string())).await;
    /// assert_eq!(response.status, 400);
    /// let report = mock.rules_report();
    /// assert_eq!(report.total.messages["`temperature` is not supported for this model."], 1);
    /// assert_eq!((report.models["claude-opus-5-5"].stale, report.total.missing), (0, 0));
    /// # });
    /// ```
    ///
    /// # Errors
    /// As [`with_options`](Self::with_options).
    pub fn with_rules(script: Script, options: MockOptions, rules: Rules) -> io::Result<Self> {
        Ok(Self::with(script, options.rate, Journal::new(options.journal)?, Some(rules)))
    }

    fn with(script: Script, rate: Option<f64>, journal: Journal, rules: Option<Rules>) -> Self {
        let (repeats, prompt_cache) = Default::default();
        let rules = rules.map(Enforcer::new);
        Self { shared: Arc::new(Shared { script, rate, journal, repeats, prompt_cache, rules }) }
    }

    /// The findings of the rules so far; empty for a mock without rules.
    pub fn rules_report(&self) -> RulesReport {
        self.shared.rules.as_ref().map(Enforcer::report).unwrap_or_default()
    }

    /// What was asked and answered.
    pub fn journal(&self) -> &Journal {
        &self.shared.journal
    }

    /// Answers a `POST` of `body` to `path` (with or without a query), once the step's delay is over. Any request gets
    /// an answer: one that cannot be read gets an error in its wire format.
    ///
    /// Needs a tokio runtime with timers. Names of headers are compared without regard to case.
    pub async fn respond(&self, path: &str, headers: &[(String, String)], body: Bytes) -> MockResponse {
        let Answer { status, headers, said } =
            self.respond_to(Arrival::in_process(), path, headers, body).await;
        MockResponse { status, headers, body: said.into_body() }
    }

    /// The same for a request that came as `arrival` says.
    pub(crate) async fn respond_to(
        &self,
        arrival: Arrival,
        path: &str,
        headers: &[(String, String)],
        body: Bytes,
    ) -> Answer {
        let header = |wanted: &str| {
            headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.clone())
        };
        let record = self.shared.journal.begin(arrival, path, header(ATTEMPT_HEADER), &body);
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let Some(wire) = wire_of(path) else {
            let message = format!("there is nothing at {path}: post to {PLACES}");
            return plain(404, JSON, foreign_error(404, &message), record);
        };
        record.dialect(wire.dialect());
        let asked = match wire.read(path, query, &body) {
            Ok(asked) => asked,
            Err(message) => return plain(400, JSON, wire.error(400, &message), record),
        };
        record.asked(&asked);
        let Some(mut plan) = Plan::find(&self.shared.script, self.shared.rate, &asked, wire) else {
            let message = self.no_such_model(&asked.model);
            return plain(404, JSON, wire.error(404, &message), record);
        };
        let mut passed = None;
        if let Some(rules) = &self.shared.rules {
            let betas: Vec<&str> = headers
                .iter()
                .filter(|(name, _)| name.eq_ignore_ascii_case(BETA_HEADER))
                .map(|(_, value)| value.as_str())
                .collect();
            let betas = betas.join(",");
            let request =
                Request { dialect: wire.dialect(), model: &asked.model, betas: &betas, body: &body };
            let (note, checked) = rules.check(request);
            record.rules(note);
            match checked {
                Ok(answerable) => passed = answerable.map(|passed| (rules, passed)),
                Err(refusal) => return plain(refusal.status, JSON, wire.refuse(&refusal), record),
            }
        }
        if let (Some(times), Some(_)) = (plan.fail_first, &plan.fault)
            && self.came_before(header(SESSION_HEADER).as_deref(), path, &body) >= times
        {
            plan.fault = None;
        }
        if !plan.delay.is_zero() {
            tokio::time::sleep(plan.delay).await;
        }
        let cached = match self.shared.script.prompt_cache {
            true => self.shared.prompt_cache.ask(wire.dialect(), &asked.model, &body),
            false => Cached::default(),
        };
        let input = plan.input(body.len(), cached);
        record.reports(&plan.reports);
        plan.break_calls();
        let mut about = About {
            model: asked.model,
            place: asked.place,
            wants: asked.wants,
            input,
            is_early: plan.reports.is_early(),
            transformations: Vec::new(),
        };
        if let Some((rules, passed)) = passed {
            rules.sign(&passed, &about, &mut plan);
            about.transformations = passed.transformations;
        }
        say(wire, about, asked.stream, plan, record).await
    }

    /// Serves HTTP/1.1, and HTTP/2 to clients that know it beforehand, on `listener` until the server is shut down or
    /// dropped.
    ///
    /// # Errors
    /// When the listener cannot say its address.
    pub fn serve(&self, listener: TcpListener) -> io::Result<Server> {
        self.serve_with(listener, ServeOptions::default())
    }

    /// The same, with options.
    ///
    /// # Errors
    /// When the listener cannot say its address.
    pub fn serve_with(&self, listener: TcpListener, options: ServeOptions) -> io::Result<Server> {
        Server::start(self.clone(), listener, options)
    }

    fn came_before(&self, session: Option<&str>, path: &str, body: &[u8]) -> u32 {
        let mut hasher = DefaultHasher::new();
        (session, path, body).hash(&mut hasher);
        self.shared.repeats.lock().count(hasher.finish())
    }

    fn no_such_model(&self, model: &str) -> String {
        let names: Vec<&str> = self.shared.script.models.keys().take(20).map(String::as_str).collect();
        let scripted = match names.as_slice() {
            [] => "the script has none".to_owned(),
            names => format!("the script has {}", names.join(", ")),
        };
        format!("model {model:?} is not known: {scripted}; built in are echo, tokens-N and tools-K-tokens-N")
    }
}

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream; charset=utf-8";
const PAGE: &str = "text/html; charset=utf-8";
/// Where requests may be sent.
const PLACES: &str = "…/messages, …/chat/completions, …/responses or …/models/MODEL:streamGenerateContent";

/// Says what was planned, or what the fault puts in its place.
async fn say(
    wire: &'static dyn Wire,
    about: About,
    is_stream: bool,
    mut plan: Plan,
    record: Record,
) -> Answer {
    let framing = plan.framing;
    match plan.fault.take() {
        Some(Fault::Status { code, mut headers, retry_after, body }) => {
            let message = format!("the script answers with status {code} here");
            let body = body.map_or_else(|| wire.error(code, &message), String::into_bytes);
            let mut response = known(code, JSON, body, framing, record);
            if let Some((name, value)) = retry_after.map(|retry| retry.header(SystemTime::now())) {
                headers.insert(name.to_owned(), value);
            }
            for (name, value) in headers {
                let name = name.to_ascii_lowercase();
                response.headers.retain(|(usual, _)| *usual != name);
                response.headers.push((name, value));
            }
            return response;
        }
        Some(Fault::Rejected(rejection)) => {
            let rejected = wire.reject(rejection, &about, is_stream);
            let kind = if rejected.is_stream { EVENTS } else { JSON };
            return known(rejected.status, kind, rejected.body, framing, record);
        }
        Some(Fault::Html(page)) => return known(200, PAGE, page.into_bytes(), framing, record),
        Some(Fault::Empty) => plan.say_nothing(),
        fault => plan.fault = fault,
    }
    record.status(200);
    if is_stream {
        let mut headers = content_type(EVENTS, framing);
        headers.push(("cache-control".to_owned(), "no-cache".to_owned()));
        return Answer { status: 200, headers, said: answer::streamed(wire, about, plan, record) };
    }
    // A body that ends early must not promise its length, or the client would know that it was cut.
    let is_sound = plan.fault.as_ref().and_then(Fault::moment).is_none() && framing.is_plain();
    let (length, body) = answer::whole(wire, &about, plan, record).await;
    let mut headers = content_type(JSON, framing);
    if is_sound {
        headers.push(("content-length".to_owned(), length.to_string()));
    }
    Answer { status: 200, headers, said: Said::Body(body) }
}

fn content_type(kind: &str, framing: Framing) -> Vec<(String, String)> {
    let mut headers = vec![("content-type".to_owned(), kind.to_owned())];
    if framing.gzip {
        headers.push(("content-encoding".to_owned(), "gzip".to_owned()));
    }
    headers
}

fn plain(status: u16, kind: &str, body: Vec<u8>, record: Record) -> Answer {
    known(status, kind, body, Framing::default(), record)
}

/// An answer whose body is known.
fn known(status: u16, kind: &str, body: Vec<u8>, framing: Framing, record: Record) -> Answer {
    record.status(status);
    let mut headers = content_type(kind, framing);
    if framing.is_plain() {
        headers.push(("content-length".to_owned(), body.len().to_string()));
    }
    let body = answer::plain(Bytes::from(body), framing, kind == EVENTS, record);
    Answer { status, headers, said: Said::Body(body) }
}

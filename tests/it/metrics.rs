//! `/metrics` of a real server after a short load: what the table names is there, nothing else is, Prometheus's own tool
//! has nothing to say, and only who may reads it. And the log: one request is followed from the edge to the call.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use mock_llm::{Fault, Model, Rejection, Script, call, text};
use playhouse::protocol::metric::{Kind, Metric};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::serve::{Serving, ask, key};
use crate::stage::{Dialect, Stage, until};

/// A sample: its name, its labels and its value.
type Sample = (String, BTreeMap<String, String>, f64);

/// What is in the text, by metric: samples, and the metric's type.
#[derive(Default)]
struct Scrape {
    samples: Vec<Sample>,
    types: BTreeMap<String, String>,
    help: BTreeMap<String, String>,
    text: String,
}

impl Scrape {
    fn read(text: &str) -> Self {
        let mut scrape = Self { text: text.to_owned(), ..Self::default() };
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(
                    scrape.types.insert(name.to_owned(), kind.to_owned()).is_none(),
                    "{name} is there twice"
                );
            } else if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                scrape.help.insert(name.to_owned(), help.to_owned());
            } else {
                scrape.samples.push(sample(line));
            }
        }
        scrape
    }

    /// The sum of the samples of a series, with these labels among theirs.
    fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let fits = |found: &BTreeMap<String, String>| {
            labels.iter().all(|(label, value)| found.get(*label).is_some_and(|found| found == value))
        };
        self.samples
            .iter()
            .filter(|(found, labels, _)| found == name && fits(labels))
            .map(|(.., value)| value)
            .sum()
    }
}

/// `name{label="value"} 1`. No value of this test holds a quote or a comma.
fn sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let labels = labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty());
    let labels = labels.map(|label| {
        let (name, value) = label.split_once('=').unwrap();
        (name.to_owned(), value.trim_matches('"').to_owned())
    });
    (name.to_owned(), labels.collect(), value.parse().unwrap())
}

fn scrape(serving: &Serving) -> Scrape {
    let (status, text) = serving.ask("GET", "/metrics", &[], "");
    assert_eq!(status, 200, "{text}");
    Scrape::read(&text)
}

/// Creates a session and begins a turn in it.
pub(crate) fn prompt(serving: &Serving, stage: &Stage, model: &str) -> String {
    let body = json!({"workspace": stage.workspace, "model": format!("local/{model}")}).to_string();
    let (status, session) = serving.ask("POST", "/v1/sessions", &[], &body);
    assert_eq!(status, 201, "{session}");
    let session: Value = serde_json::from_str(&session).unwrap();
    let id = session["id"].as_str().unwrap().to_owned();
    let headers = ["x-request-id: edge-1"];
    let path = format!("/v1/sessions/{id}/prompts");
    let (status, answer) = serving.ask("POST", &path, &headers, r#"{"text": "go"}"#);
    assert_eq!(status, 202, "{answer}");
    id
}

/// The model `working` calls tools, one of which needs consent; `failing` is answered at the second attempt; `silent`
/// never answers.
fn script() -> Script {
    let steps = Model::new()
        .step(call("read", json!({"filePath": "a.txt"})).reasoning("Which file may it be?"))
        .step(call("bash", json!({"command": "echo hello"})))
        .step(call("no_such_tool", json!({})))
        .step(text("Done."));
    let failing =
        Model::new().step(text("At last.").fault(Fault::Rejected(Rejection::Overloaded)).fail_first(1));
    let silent = Model::new().step(text("…").delay(std::time::Duration::from_secs(3_600)));
    Script::new().prompt_cache().model("working", steps).model("failing", failing).model("silent", silent)
}

/// A short load on a server with this dialect, and what it tells after it.
fn load(dialect: Dialect, configuration: &str) -> Scrape {
    let stage = Stage::speaking(dialect, script());
    stage
        .write("a.txt", "one\n")
        .configure("[permissions]\nbash = \"ask\"\n[retry]\nbase_ms = 1\n[server.limits]\nsubscribers = 1");
    let folder = stage.root().join("usage");
    stage.configure(&format!("[sinks.files]\nkind = \"file\"\nfolder = {folder:?}\nlinger_ms = 0"));
    stage.configure(configuration);
    let serving = Serving::start(&stage, ["--port", "0"]);
    let working = prompt(&serving, &stage, "working");
    let mut consent = String::new();
    until("somebody is asked", || {
        let (_, asked) = serving.ask("GET", "/v1/consents", &[], "");
        let asked: Value = serde_json::from_str(&asked).unwrap();
        consent = asked["consents"][0]["consent"].as_str().unwrap_or_default().to_owned();
        !consent.is_empty()
    });
    let waiting = scrape(&serving);
    assert_eq!(waiting.sum("playhouse_consents_waiting", &[]), 1.0);
    assert_eq!(waiting.sum("playhouse_sessions", &[("state", "asking")]), 1.0);
    let path = format!("/v1/sessions/{working}/consents/{consent}");
    assert_eq!(serving.ask("POST", &path, &[], r#"{"answer": "once"}"#).0, 204);
    prompt(&serving, &stage, "failing");
    until("both turns are over", || {
        scrape(&serving).sum("playhouse_turns_total", &[("outcome", "completed")]) == 2.0
    });
    // One that never ends, and a stream more than there may be.
    let silent = prompt(&serving, &stage, "silent");
    stage.wait_for(|asked| asked.len() == 7);
    let mut stream = TcpStream::connect(serving.address()).unwrap();
    let request = format!("GET /v1/sessions/{silent}/events HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    until("the stream is open", || scrape(&serving).sum("playhouse_streams_open", &[]) == 1.0);
    assert_eq!(serving.ask("GET", "/v1/events", &[], "").0, 429);
    assert_eq!(serving.ask("GET", "/no/such/place", &[], "").0, 404);
    let running = scrape(&serving);
    assert_eq!(running.sum("playhouse_sessions", &[("state", "running")]), 1.0);
    assert_eq!(running.sum("playhouse_sessions", &[("state", "idle")]), 2.0);
    assert_eq!(running.sum("playhouse_children", &[]), 1.0, "the step that waits for an answer");
    let (status, text) = serving.ask("POST", &format!("/v1/sessions/{silent}/abort"), &[], "");
    assert_eq!(status, 200, "{text}");
    until("it is aborted", || {
        scrape(&serving).sum("playhouse_turns_total", &[("outcome", "aborted")]) == 1.0
    });
    until("the ledger is exported", || {
        let scrape = scrape(&serving);
        scrape.sum("playhouse_sink_rows_total", &[("sink", "files")]) > 0.0
            && scrape.sum("playhouse_sink_lag_rows", &[]) == 0.0
    });
    scrape(&serving)
}

/// Metrics that a short load of this kind leaves at 0: nothing crashes or rests for long in it, no client is slow, and there
/// is no budget.
const QUIET: [Metric; 5] = [
    Metric::SessionCrashes,
    Metric::Evictions,
    Metric::EventResyncs,
    Metric::BudgetRefusals,
    Metric::LedgerUnreadable,
];

#[test]
fn everything_that_is_named_is_told_and_nothing_else() {
    let scrapes = Dialect::ALL.map(|dialect| load(dialect, ""));
    let mut fed = BTreeSet::new();
    for scrape in &scrapes {
        let known: BTreeMap<&str, _> =
            Metric::ALL.iter().map(|metric| (metric.name(), metric.facts())).collect();
        for (name, kind) in &scrape.types {
            let facts = known.get(name.as_str()).unwrap_or_else(|| panic!("{name} is in no table"));
            let expected = match facts.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram(_) => "histogram",
            };
            assert_eq!((kind.as_str(), scrape.help[name].as_str()), (expected, facts.help), "{name}");
        }
        for (name, labels, value) in &scrape.samples {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let base = base.filter(|base| known.contains_key(base)).unwrap_or(name);
            let facts = known.get(base).unwrap_or_else(|| panic!("{name} is in no table"));
            assert!(scrape.types.contains_key(base), "{name} has no type");
            for (label, value) in labels.iter().filter(|(label, _)| *label != "le") {
                let known = facts.labels.iter().find(|known| known.name == label);
                let known = known.unwrap_or_else(|| panic!("{name} has a label {label}"));
                assert!(known.values.is_empty() || known.values.contains(&value.as_str()), "{name}: {value}");
                assert!(!value.contains("ses_") && !value.contains("msg_"), "{name}: {value}");
            }
            if *value > 0.0 {
                fed.insert(base.to_owned());
            }
        }
    }
    // Tests of language servers look at what only those feed.
    let fed_here = |metric: &&Metric| **metric != Metric::LspWait;
    for facts in Metric::ALL.iter().filter(fed_here).map(|metric| metric.facts()) {
        let name = facts.name;
        assert!(
            scrapes.iter().all(|scrape| scrape.types.contains_key(name) || name.starts_with("gen_ai")),
            "{name}"
        );
        // A gauge may be at 0 whenever somebody looks.
        let may_be_quiet = facts.kind == Kind::Gauge || QUIET.contains(&facts.metric);
        assert!(may_be_quiet || fed.contains(name), "{name} was never fed: {fed:?}");
    }
    counts_are_right(&scrapes[1]);
    for scrape in &scrapes {
        promtool_has_nothing_to_say(&scrape.text);
    }
}

/// What the load did, in numbers.
fn counts_are_right(scrape: &Scrape) {
    let count = |name: &str, labels: &[(&str, &str)]| scrape.sum(name, labels);
    assert_eq!(count("playhouse_sessions_created_total", &[]), 3.0);
    assert_eq!(count("playhouse_session_wake_duration_seconds_count", &[]), 3.0);
    assert_eq!(count("playhouse_step_duration_seconds_count", &[]), 6.0, "four, one, and the aborted one");
    let requests = "playhouse_provider_requests_total";
    assert_eq!(count(requests, &[("model", "working"), ("outcome", "finished")]), 4.0);
    assert_eq!(count(requests, &[("model", "failing")]), 2.0);
    assert_eq!(count(requests, &[("model", "failing"), ("outcome", "provider_unavailable")]), 1.0);
    assert_eq!(count(requests, &[("model", "silent"), ("outcome", "aborted")]), 1.0);
    assert_eq!(count("playhouse_retries_total", &[("reason", "provider_unavailable")]), 1.0);
    let calls = "playhouse_tool_calls_total";
    assert_eq!(count(calls, &[("tool", "read"), ("outcome", "done")]), 1.0);
    assert_eq!(count(calls, &[("tool", "bash"), ("outcome", "done")]), 1.0);
    assert_eq!(count(calls, &[("tool", "other")]), 1.0, "a tool that there is not has no series");
    assert_eq!(count("playhouse_tool_duration_seconds_count", &[]), 2.0);
    assert_eq!(count("playhouse_consent_wait_seconds_count", &[("answer", "once")]), 1.0);
    assert_eq!(count("playhouse_refused_total", &[("limit", "subscribers")]), 1.0);
    assert_eq!(count("playhouse_http_requests_total", &[("route", "other"), ("status", "404")]), 1.0);
    let route = [("route", "/v1/sessions/{session}/prompts"), ("method", "POST"), ("status", "202")];
    assert_eq!(count("playhouse_http_requests_total", &route), 3.0);
    let classes = ["input", "cache_read", "cache_write", "output", "reasoning"];
    let tokens = classes.map(|class| count("playhouse_tokens_total", &[("class", class)]));
    let [input, read, write, output, reasoning] = tokens;
    assert_eq!(count("gen_ai_client_inference_usage_input_tokens_total", &[]), input + read + write);
    assert_eq!(count("gen_ai_client_inference_usage_output_tokens_total", &[]), output + reasoning);
    // The stage's prices, in dollars per million tokens.
    let spent = (input + 0.1 * read + 1.25 * write + 2.5 * (output + reasoning)) / 1e6;
    let told = count("playhouse_attempt_cost_dollars_sum", &[]);
    assert!((spent - told).abs() < 1e-9, "{spent} and {told}");
}

/// Prometheus's own tool reads the text and finds no fault with it.
pub(crate) fn promtool_has_nothing_to_say(text: &str) {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool is there: scripts/setup installs it");
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}\n{text}", String::from_utf8_lossy(&said));
}

#[test]
fn the_tenant_is_told_where_the_operator_wants_it() {
    let scrape = load(Dialect::OpenaiChat, "[metrics]\ntenants = true");
    let tenant = ("tenant", "local");
    assert_eq!(scrape.sum("playhouse_turns_total", &[tenant, ("outcome", "completed")]), 2.0);
    assert!(scrape.sum("playhouse_tokens_total", &[tenant, ("class", "output")]) > 0.0);
    assert!(scrape.sum("playhouse_attempt_cost_dollars_sum", &[tenant]) > 0.0);
    let told: BTreeSet<&str> = scrape
        .samples
        .iter()
        .filter(|(_, labels, _)| labels.contains_key("tenant"))
        .map(|(name, ..)| {
            ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
        })
        .collect();
    let by_tenant = Metric::ALL.iter().map(|metric| metric.facts()).filter(|facts| facts.by_tenant);
    assert_eq!(told, by_tenant.map(|facts| facts.name).collect());
}

#[test]
fn labels_of_usage_are_told_where_the_operator_wants_it() {
    let stage = Stage::new(Model::new().step(text("One.")).step(text("Two.")).step(text("Three.")));
    stage.configure("[billing]\nlabels = [\"customer\", \"project\"]\n[metrics]\nlabels = [\"customer\"]");
    let serving = Serving::start(&stage, ["--port", "0"]);
    for (done, customer) in (1_u8..).zip([json!("c-42"), json!(7), json!(null)]) {
        let metadata = json!({"customer": customer, "project": "red"});
        let body =
            json!({"workspace": stage.workspace, "model": "local/m", "metadata": metadata}).to_string();
        let (status, session) = serving.ask("POST", "/v1/sessions", &[], &body);
        assert_eq!(status, 201, "{session}");
        let session: Value = serde_json::from_str(&session).unwrap();
        let path = format!("/v1/sessions/{}/prompts", session["id"].as_str().unwrap());
        assert_eq!(serving.ask("POST", &path, &[], r#"{"text": "go"}"#).0, 202);
        until("the turn is over", || {
            let ended = scrape(&serving).sum("playhouse_turns_total", &[("outcome", "completed")]);
            (ended - f64::from(done)).abs() < 0.5
        });
    }
    let scrape = scrape(&serving);
    promtool_has_nothing_to_say(&scrape.text);
    for customer in ["c-42", "7", ""] {
        let label = [("label_customer", customer)];
        assert!(scrape.sum("playhouse_tokens_total", &[label[0], ("class", "output")]) > 0.0, "{customer}");
        assert_eq!(scrape.sum("playhouse_attempt_cost_dollars_count", &label), 1.0, "{customer}");
    }
    assert!(!scrape.text.contains("label_project"), "{}", scrape.text);
    // Rows have all of them.
    let (status, page) = serving.ask("GET", "/v1/usage/rows", &[], "");
    assert_eq!(status, 200, "{page}");
    let page: Value = serde_json::from_str(&page).unwrap();
    let labels: Vec<&Value> = page["rows"].as_array().unwrap().iter().map(|row| &row["labels"]).collect();
    let red = |customer: &str| json!({"customer": customer, "project": "red"});
    assert_eq!(labels, [&red("c-42"), &red("7"), &json!({"project": "red"})]);
    let told = scrape.samples.iter().filter(|(_, labels, _)| labels.contains_key("label_customer"));
    assert!(
        told.into_iter()
            .all(|(name, ..)| name.starts_with("playhouse_tokens")
                || name.starts_with("playhouse_attempt_cost"))
    );
}

/// A server with keys, asked for `/metrics` over the network with these headers, and on the socket.
fn who_reads(configuration: &str, token: Option<&str>) -> ([u16; 3], u16) {
    let stage = Stage::new(Model::new());
    stage.configure(configuration);
    let key = key(&stage, "acme");
    let mut command = stage.command(["serve", "--sandbox", "off", "--port", "0"]);
    if let Some(token) = token {
        command.env("SCRAPE_TOKEN", token);
    }
    let serving = Serving::of(command);
    let over_network = [
        vec![],
        vec![format!("authorization: Bearer {key}")],
        vec!["authorization: Bearer right".to_owned()],
    ]
    .map(|headers| {
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        serving.ask("GET", "/metrics", &headers, "").0
    });
    let socket = UnixStream::connect(stage.data.join("engine.sock")).unwrap();
    (over_network, ask(socket, "GET", "/metrics", &[], "").0)
}

#[test]
fn metrics_are_not_for_tenants() {
    let token = "[metrics]\ntoken_env = \"SCRAPE_TOKEN\"";
    for (configuration, over_network, on_socket) in [
        ("", [401, 401, 401], 200),
        (token, [401, 401, 200], 200),
        ("[metrics]\naccess = \"open\"", [200, 200, 200], 200),
        ("[metrics]\naccess = \"off\"", [404, 404, 404], 404),
    ] {
        assert_eq!(who_reads(configuration, Some("right")), (over_network, on_socket), "{configuration}");
    }
    let stage = Stage::new(Model::new());
    stage.configure(token);
    stage.playhouse(["serve", "--port", "0"]).is(2).says(["`metrics.token_env` names SCRAPE_TOKEN"]);
}

#[test]
fn a_request_is_followed_from_the_edge_to_the_call() {
    let stage = Stage::speaking(Dialect::OpenaiChat, script());
    stage.write("a.txt", "one\n").configure("[permissions]\nbash = \"allow\"");
    let mut command = stage.command(["serve", "--sandbox", "off", "--port", "0"]);
    command.env("PLAYHOUSE_LOG_FORMAT", "json").env("PLAYHOUSE_LOG", "warn,playhouse=debug");
    let serving = Serving::of(command);
    let session = prompt(&serving, &stage, "working");
    until("the turn is over", || {
        scrape(&serving).sum("playhouse_turns_total", &[("outcome", "completed")]) == 1.0
    });
    serving.signal(Signal::TERM);
    let ended = serving.ended().is(0);
    // The last line is for people.
    let lines = ended.stderr.lines().filter(|line| line.starts_with('{'));
    let lines: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    let said =
        |message: &str| -> Vec<&Value> { lines.iter().filter(|line| line["message"] == message).collect() };
    let span = |line: &Value, name: &str| -> Value {
        let spans = line["spans"].as_array().unwrap();
        spans
            .iter()
            .find(|span| span["name"] == name)
            .unwrap_or_else(|| panic!("no {name} in {line}"))
            .clone()
    };
    let [admitted] = said("a prompt was admitted")[..] else { panic!("{lines:?}") };
    assert_eq!(span(admitted, "request")["id"], "edge-1");
    let turn = &admitted["turn"];
    assert_eq!(admitted["session"], session.as_str());
    let edge = lines.iter().find(|line| line["target"] == "playhouse::access" && line["id"] == "edge-1");
    assert!(edge.is_some_and(|line| line["status"] == 202), "{edge:?}");
    let [ended] = said("a turn ended")[..] else { panic!("{lines:?}") };
    let of_turn = span(ended, "invoke_agent");
    assert_eq!((&of_turn["turn"], &of_turn["gen_ai.conversation.id"]), (turn, &json!(session)));
    assert_eq!((&of_turn["outcome"], &of_turn["steps"]), (&json!("completed"), &json!(4)));
    for (attribute, value) in [
        ("otel.name", "invoke_agent sisyphus"),
        ("gen_ai.operation.name", "invoke_agent"),
        ("gen_ai.agent.name", "sisyphus"),
        ("gen_ai.provider.name", "local"),
        ("gen_ai.request.model", "working"),
    ] {
        assert_eq!(of_turn[attribute], value, "{attribute}");
    }
    let attempts = said("an attempt ended");
    assert_eq!(attempts.len(), 4);
    for line in attempts {
        assert_eq!(span(line, "invoke_agent")["turn"], *turn);
        let chat = span(line, "chat");
        assert_eq!(
            (&chat["otel.name"], &chat["gen_ai.request.model"]),
            (&json!("chat working"), &json!("working"))
        );
        assert!(chat["gen_ai.usage.input_tokens"].as_u64().unwrap() > 0, "{chat}");
        assert_eq!(
            (&chat["gen_ai.operation.name"], &chat["gen_ai.provider.name"]),
            (&json!("chat"), &json!("local"))
        );
    }
    let calls = said("a call ended");
    let tools: Vec<String> =
        calls.iter().map(|line| span(line, "execute_tool")["otel.name"].to_string()).collect();
    assert_eq!(tools, ["\"execute_tool read\"", "\"execute_tool bash\""]);
    assert!(calls.iter().all(|line| span(line, "invoke_agent")["turn"] == *turn));
    for (line, tool) in calls.iter().zip(["read", "bash"]) {
        let call = span(line, "execute_tool");
        let told = ["gen_ai.operation.name", "gen_ai.tool.name", "outcome"].map(|name| call[name].clone());
        assert_eq!(told, ["execute_tool", tool, "done"], "{call}");
    }
}

#[test]
fn a_form_of_the_log_that_there_is_not_is_refused() {
    let stage = Stage::new(Model::new());
    let mut command = stage.command(["tools"]);
    command.env("PLAYHOUSE_LOG_FORMAT", "xml");
    crate::stage::finish(command).is(2).says(["PLAYHOUSE_LOG_FORMAT is \"xml\", expected human or json"]);
}

//! What lies in `deploy/`: it names only what there is, Prometheus's own tools find no fault with it, and no expression of
//! its rules and dashboards is dead. The last is tried: a real Prometheus reads a real engine, which was started with the
//! configuration that lies there, under a short load.

mod prometheus;
mod promql;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fs_err as fs;
use mock_llm::{Fault, Model, Rejection, Script, call, text};
use playhouse::protocol::metric::{Kind, Metric, TENANT};
use serde_json::{Value, json};

use self::prometheus::{Prometheus, promtool};
use self::promql::named;
use crate::metrics::promtool_has_nothing_to_say;
use crate::serve::{Serving, key};
use crate::sink_server::SIGNING_KEY;
use crate::stage::{Dialect, Stage, contents, finish, until};

/// How long expressions may take until they give something: Prometheus reads and evaluates four times a second.
const PATIENCE: Duration = Duration::from_secs(40);

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")
}

fn read(path: &str) -> String {
    fs::read_to_string(deploy().join(path)).unwrap()
}

/// The dashboards, by file.
fn dashboards() -> Vec<(String, Value)> {
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    let files = contents(&deploy().join("grafana/dashboards"));
    files.iter().map(|(path, text)| (name(path), serde_json::from_slice(text).unwrap())).collect()
}

/// Every value of this key, wherever it stands.
fn all<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(object) => {
            found.extend(object.get(key));
            object.values().for_each(|value| all(value, key, found));
        }
        Value::Array(list) => list.iter().for_each(|value| all(value, key, found)),
        _ => {}
    }
}

/// An expression of a dashboard as Grafana asks it: the variables stand for all that there is.
fn filled(dashboard: &Value, expression: &str) -> String {
    let mut filled = expression.to_owned();
    for (variable, value) in [("__rate_interval", "1m"), ("__range", "1h")] {
        filled = filled.replace(&format!("${variable}"), value);
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        filled = filled.replace(&format!("${}", variable["name"].as_str().unwrap()), ".*");
    }
    assert!(!filled.contains('$'), "a variable that there is not: {expression}");
    filled
}

/// The expressions of a dashboard, each with the title of its panel.
fn expressions(dashboard: &Value) -> Vec<(String, String)> {
    let panels = dashboard["panels"].as_array().unwrap();
    let of_panel = |panel: &Value| -> Vec<(String, String)> {
        let mut found = Vec::new();
        all(panel, "expr", &mut found);
        let expression = |found: &Value| filled(dashboard, found.as_str().unwrap());
        found
            .into_iter()
            .map(|found| (panel["title"].as_str().unwrap().to_owned(), expression(found)))
            .collect()
    };
    let mut all_of_them = Vec::new();
    all(dashboard, "expr", &mut all_of_them);
    let found: Vec<(String, String)> = panels.iter().flat_map(of_panel).collect();
    assert_eq!(found.len(), all_of_them.len(), "every expression is one of a panel");
    found
}

/// The variables of a dashboard that ask for values: the selector and the label.
fn variables(dashboard: &Value) -> Vec<(String, String)> {
    let list = dashboard["templating"]["list"].as_array().unwrap();
    let asking = list.iter().filter(|variable| variable["type"] == "query");
    asking
        .map(|variable| {
            let query = variable["query"]["query"].as_str().unwrap();
            assert_eq!(variable["definition"], query);
            let inner = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
            let (selector, label) = inner.and_then(|inner| inner.rsplit_once(',')).expect(query);
            (filled(dashboard, selector), label.trim().to_owned())
        })
        .collect()
}

/// The model `working` calls tools, one of which needs consent; `failing` is answered at the second attempt; of `refused`
/// the provider does not take the key; `silent` never answers.
fn script() -> Script {
    let steps = Model::new()
        .step(call("read", json!({"filePath": "a.txt"})).reasoning("Which file may it be?"))
        .step(call("bash", json!({"command": "echo hello"})))
        .step(call("read", json!({"filePath": "no such file"})))
        .step(text("Done."));
    let failing =
        Model::new().step(text("At last.").fault(Fault::Rejected(Rejection::Overloaded)).fail_first(1));
    let refused = Model::new().step(text("…").fault(Fault::Rejected(Rejection::BadKey)));
    let silent = Model::new().step(text("…").delay(Duration::from_secs(3_600)));
    Script::new()
        .prompt_cache()
        .model("working", steps)
        .model("failing", failing)
        .model("refused", refused)
        .model("silent", silent)
}

/// An engine that was started with the configuration in `deploy/`, and a client of it.
struct Engine {
    serving: Serving,
    stage: Stage,
    headers: String,
}

impl Engine {
    fn start() -> Self {
        let stage = Stage::speaking(Dialect::OpenaiChat, script());
        stage.write("a.txt", "one\n");
        let shipped = read("playhouse.toml");
        let workspace = stage.workspace.to_str().unwrap();
        let shipped = replaced(&shipped, &[("\"/workspaces\"", &format!("{workspace:?}"))]);
        // What stands before the first table has to stay there.
        let (top, tables) = shipped.split_at(shipped.find("\n[").unwrap());
        let provider = fs::read_to_string(&stage.config).unwrap();
        let bills = stage.root().join("bills");
        let more = format!(
            "[permissions]\nbash = \"ask\"\n[retry]\nbase_ms = 1\n\
             [sinks.bills]\nkind = \"file\"\nfolder = {bills:?}\n"
        );
        fs::write(&stage.config, format!("{top}\n{provider}\n{tables}\n{more}")).unwrap();
        let headers = format!("authorization: Bearer {}", key(&stage, "acme"));
        let listen = ["serve", "--sandbox", "off", "--hostname", "127.0.0.1", "--port", "0"];
        let mut command = stage.command(listen);
        command.env("PLAYHOUSE_METRICS_TOKEN", TOKEN);
        Self { serving: Serving::of(command), stage, headers }
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let (status, text) = self.serving.ask(method, path, &[&self.headers], body);
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    /// Begins a turn in a session of its own.
    fn prompt(&self, model: &str) -> String {
        let body = json!({"workspace": self.stage.workspace, "model": format!("local/{model}")});
        let (status, session) = self.ask("POST", "/v1/sessions", &body.to_string());
        assert_eq!(status, 201, "{session}");
        let id = session["id"].as_str().unwrap().to_owned();
        let (status, answer) = self.ask("POST", &format!("/v1/sessions/{id}/prompts"), r#"{"text": "go"}"#);
        assert_eq!(status, 202, "{answer}");
        id
    }

    /// All that it tells.
    fn metrics(&self) -> String {
        self.serving.ask("GET", "/metrics", &[&format!("authorization: Bearer {TOKEN}")], "").1
    }

    fn ended(&self, session: &str) {
        until("the turn is over", || {
            let (_, session) = self.ask("GET", &format!("/v1/sessions/{session}"), "");
            session["state"] == "idle"
        });
    }

    /// A bit of everything.
    fn load(&self) {
        let working = self.prompt("working");
        let mut consent = Value::Null;
        until("somebody is asked", || {
            consent = self.ask("GET", "/v1/consents", "").1["consents"][0]["consent"].clone();
            consent.is_string()
        });
        let path = format!("/v1/sessions/{working}/consents/{}", consent.as_str().unwrap());
        assert_eq!(self.ask("POST", &path, r#"{"answer": "once"}"#).0, 204);
        let others = ["failing", "refused"].map(|model| self.prompt(model));
        [working].iter().chain(&others).for_each(|session| self.ended(session));
        // What is not built is an error of the server.
        assert_eq!(self.ask("GET", "/skill", "").0, 501);
    }
}

/// The token of metrics.
const TOKEN: &str = "scrape-me-123";

/// A text with other words in it, each of which must be there.
fn replaced(text: &str, words: &[(&str, &str)]) -> String {
    words.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from} is not in {text}");
        text.replace(from, to)
    })
}

/// Prometheus with the configuration in `deploy/`, which reads this engine, often.
fn watching(engine: &Engine) -> Prometheus {
    let target = engine.serving.address().to_string();
    Prometheus::start(|folder, own| {
        let there = folder.join("etc");
        for (path, content) in contents(&deploy().join("prometheus")) {
            let path = there.join(path.strip_prefix(deploy().join("prometheus")).unwrap());
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let token = folder.join("token");
        fs::write(&token, format!("{TOKEN}\n")).unwrap();
        let words = [
            ("playhouse:4096", target.as_str()),
            ("127.0.0.1:9090", &own.to_string()),
            ("/run/secrets/metrics_token", token.to_str().unwrap()),
            ("scrape_interval: 15s", "scrape_interval: 250ms"),
            ("evaluation_interval: 15s", "evaluation_interval: 250ms"),
        ];
        let configuration = there.join("prometheus.yml");
        fs::write(&configuration, replaced(&read("prometheus/prometheus.yml"), &words)).unwrap();
        promtool(&there, &["check", "config", "prometheus.yml"]);
        configuration
    })
}

/// A question to Prometheus that has to give something.
#[derive(Debug)]
enum Asked {
    /// An expression, with at least one number.
    Expression(String),
    /// A selector, with at least one series.
    Selector(String),
    /// A label of the series of a selector, with at least one value.
    Values(String, String),
    /// An expression that a healthy engine gives nothing for.
    Silent(String),
}

impl Asked {
    /// What is wrong with the answer.
    fn fault(&self, prometheus: &Prometheus) -> Option<String> {
        let answer = match self {
            Self::Expression(text) | Self::Selector(text) | Self::Silent(text) => prometheus.query(text),
            Self::Values(selector, label) => prometheus.values(selector, label),
        };
        let answer = match answer {
            Err(error) => return Some(format!("{self:?}: {error}")),
            Ok(answer) => answer,
        };
        let speaks = match self {
            Self::Expression(_) => answer.iter().any(|sample| sample["value"][1] != "NaN"),
            Self::Selector(_) | Self::Values(..) => !answer.is_empty(),
            Self::Silent(_) => true,
        };
        (!speaks).then(|| format!("{self:?} gives nothing: {answer:?}"))
    }
}

/// All questions of rules and dashboards, each with its place.
fn questions(prometheus: &Prometheus) -> Vec<(String, Asked)> {
    let mut asked = Vec::new();
    let rules = prometheus.ask("/api/v1/rules").unwrap();
    let groups = rules["groups"].as_array().unwrap();
    for rule in groups.iter().flat_map(|group| group["rules"].as_array().unwrap()) {
        let place = rule["name"].as_str().unwrap().to_owned();
        let query = rule["query"].as_str().unwrap();
        let selectors = named(query).selectors.into_iter();
        asked.extend(selectors.map(|selector| (place.clone(), Asked::Selector(selector))));
        if rule["type"] == "recording" {
            asked.push((place.clone(), Asked::Expression(query.to_owned())));
            asked.push((place.clone(), Asked::Expression(place)));
        } else {
            asked.push((place, Asked::Silent(query.to_owned())));
        }
    }
    for (file, dashboard) in dashboards() {
        for (panel, expression) in expressions(&dashboard) {
            let place = format!("{file}, {panel}");
            let selectors = named(&expression).selectors.into_iter();
            asked.extend(selectors.map(|selector| (place.clone(), Asked::Selector(selector))));
            asked.push((place, Asked::Expression(expression)));
        }
        let values = variables(&dashboard).into_iter();
        asked.extend(values.map(|(selector, label)| (file.clone(), Asked::Values(selector, label))));
    }
    asked
}

#[test]
fn no_expression_is_dead() {
    let engine = Engine::start();
    let prometheus = watching(&engine);
    engine.load();
    // A series that is new has no increase before it grows again: so what happened is read, and then happens again.
    let seen = r#"playhouse_provider_requests_total{outcome="authentication"}"#;
    until("Prometheus has read it", || prometheus.query(seen).is_ok_and(|found| !found.is_empty()));
    engine.load();
    let silent = engine.prompt("silent");
    let questions = questions(&prometheus);
    let count = |kind: fn(&Asked) -> bool| questions.iter().filter(|(_, asked)| kind(asked)).count();
    let counts = [
        count(|asked| matches!(asked, Asked::Expression(_))),
        count(|asked| matches!(asked, Asked::Silent(_))),
        count(|asked| matches!(asked, Asked::Values(..))),
    ];
    assert!(counts[0] > 100 && counts[1] > 20 && counts[2] >= 7, "they are all found: {counts:?}");
    let deadline = Instant::now() + PATIENCE;
    let mut dead = questions;
    loop {
        let asked_again = dead.into_iter().filter_map(|(place, asked)| {
            let fault = asked.fault(&prometheus)?;
            Some((format!("{place}: {fault}"), (place, asked)))
        });
        let (faults, left): (Vec<String>, Vec<_>) = asked_again.unzip();
        dead = left;
        if dead.is_empty() {
            break;
        }
        let late = Instant::now() > deadline;
        assert!(!late, "dead:\n{}\n{}\n{}", faults.join("\n"), prometheus.log(), engine.metrics());
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(engine.ask("POST", &format!("/v1/sessions/{silent}/abort"), "").0, 200);
    let rules = prometheus.ask("/api/v1/rules").unwrap();
    let mut health = Vec::new();
    all(&rules, "health", &mut health);
    assert!(health.iter().all(|health| **health == "ok"), "{rules}");
    assert_eq!(prometheus.log(), "", "it has nothing to say");
    // By tenant, and with sinks.
    let told = engine.metrics();
    assert!(told.contains("tenant=\"acme\"") && told.contains("sink=\"bills\""), "{told}");
    promtool_has_nothing_to_say(&told);
}

#[test]
fn promtool_finds_no_fault() {
    let folder = deploy().join("prometheus");
    promtool(&folder, &["check", "config", "--syntax-only", "prometheus.yml"]);
    promtool(&folder, &["check", "rules", "rules/recording.yml", "rules/alerts.yml"]);
    promtool(&folder, &["test", "rules", "tests/alerts.yml"]);
}

/// The words of a text that may be names of metrics.
fn words(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    let prefixes = ["playhouse_", "gen_ai_client_", "process_"];
    let is_name =
        |word: &&str| prefixes.iter().any(|prefix| word.split(':').any(|part| part.starts_with(prefix)));
    words.map(|word| word.trim_end_matches(':')).filter(is_name).collect()
}

#[test]
fn the_sinks_of_the_example_have_their_keys_and_a_place() {
    let shipped = read("playhouse.toml");
    let (_, example) = shipped.split_once("# [sinks.").unwrap();
    let lines = format!("# [sinks.{example}");
    let example: String =
        lines.lines().map(|line| format!("{}\n", line.strip_prefix('#').unwrap().trim_start())).collect();
    let compose = read("compose.yaml");
    let (_, environment) = compose.split_once("environment:").unwrap();
    let (environment, _) = environment.split_once("ports:").unwrap();
    let stage = Stage::new(Model::new());
    stage.configure(&example);
    let mut command = stage.command(["doctor"]);
    let keys = example.lines().filter_map(|line| line.strip_prefix("key_env = "));
    let keys: Vec<&str> = keys.map(|key| key.trim_matches('"')).collect();
    assert!(keys.len() >= 3, "{keys:?}");
    for key in keys {
        assert!(environment.lines().any(|line| line.trim() == format!("{key}:")), "{key} is not passed on");
        command.env(key, SIGNING_KEY);
    }
    // It is whole, and the folder lies in a volume: whether it can be written is another matter on this machine.
    let seen = finish(command);
    let is_fine = seen.stdout.contains("files: /var/lib/playhouse/export")
        || seen.stdout.contains("`sinks.files.folder` cannot be written: /var/lib");
    assert!(is_fine, "{}", seen.stdout);
    assert!(compose.contains("- data:/var/lib/playhouse\n") && compose.contains("/var/lib/playhouse/export"));
}

/// The names after `- record:` or `- alert:`.
fn defined(text: &str, what: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix(what))
        .map(|name| name.trim().to_owned())
        .collect()
}

#[test]
fn what_is_named_there_is_there() {
    let mut series: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for facts in Metric::ALL.iter().map(|metric| metric.facts()) {
        let labels: BTreeSet<&str> =
            facts.labels.iter().map(|label| label.name).chain(facts.by_tenant.then_some(TENANT)).collect();
        if let Kind::Histogram(_) = facts.kind {
            for suffix in ["_bucket", "_sum", "_count"] {
                series.insert(format!("{}{suffix}", facts.name), labels.clone());
            }
        }
        series.insert(facts.name.to_owned(), labels);
    }
    let recorded = defined(&read("prometheus/rules/recording.yml"), "- record:");
    assert!(!recorded.is_empty());
    let mut used = BTreeSet::new();
    for (path, content) in contents(&deploy()) {
        let text = String::from_utf8(content).unwrap();
        for word in words(&text) {
            let known = match word.contains(':') {
                true => recorded.iter().any(|name| name == word),
                false => series.contains_key(word),
            };
            assert!(known, "{}: {word} is no metric", path.display());
            used.insert(word.to_owned());
        }
    }
    for name in &recorded {
        assert!(used.contains(name));
    }
    // Labels of what Prometheus adds, and of its own series.
    let mut labels: BTreeSet<&str> = series.values().flatten().copied().collect();
    labels.extend(["job", "instance", "le", "alertname", "alertstate"]);
    for (file, dashboard) in dashboards() {
        for (panel, expression) in expressions(&dashboard) {
            let named = named(&expression);
            for label in &named.labels {
                assert!(labels.contains(label.as_str()), "{file}, {panel}: {label} is no label");
            }
            assert!(named.metrics().count() > 0, "{file}, {panel}");
        }
    }
}

#[test]
fn every_alert_says_what_to_do_and_is_tried() {
    let rules = read("prometheus/rules/alerts.yml");
    let tests = read("prometheus/tests/alerts.yml");
    let alerts: Vec<&str> = rules.split("- alert:").skip(1).collect();
    assert!(alerts.len() > 20);
    for alert in alerts {
        let name = alert.lines().next().unwrap().trim();
        for part in ["severity: ", "summary: ", "description: ", "runbook: "] {
            assert_eq!(alert.matches(part).count(), 1, "{name}: {part}");
        }
        assert!(tests.contains(&format!("alertname=\"{name}\"")), "{name} is not tried");
    }
}

#[test]
fn dashboards_are_what_grafana_provisions() {
    let mut ids = BTreeSet::new();
    for (file, dashboard) in dashboards() {
        assert!(ids.insert(dashboard["uid"].to_string()), "{file}");
        assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 41, "{file}");
        let panels = dashboard["panels"].as_array().unwrap();
        let numbers: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        assert_eq!(numbers.len(), panels.len(), "{file}: every panel has a number of its own");
        for panel in panels {
            let place = &panel["gridPos"];
            let [x, width] = ["x", "w"].map(|side| place[side].as_u64().unwrap());
            assert!(x + width <= 24, "{file}: {place}");
            if panel["targets"].is_array() {
                assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{file}: {}", panel["title"]);
                assert_ne!(panel["description"].as_str().unwrap(), "", "{file}: {}", panel["title"]);
            }
        }
        let mut sources = Vec::new();
        all(&dashboard, "datasource", &mut sources);
        let known = ["${datasource}", "-- Grafana --"];
        assert!(sources.iter().all(|source| known.iter().any(|known| source["uid"] == *known)), "{file}");
    }
}

#[test]
fn what_compose_mounts_and_the_image_copies_is_there() {
    let compose = read("compose.yaml");
    let mounts: Vec<&str> =
        compose.lines().filter_map(|line| line.trim().strip_prefix("- ./")?.split(':').next()).collect();
    assert!(mounts.len() >= 4, "{mounts:?}");
    for mount in mounts {
        assert!(deploy().join(mount).exists(), "{mount}");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for copied in read("Dockerfile.dockerignore").lines().filter_map(|line| line.strip_prefix('!')) {
        assert!(root.join(copied).exists(), "{copied}");
    }
    // The build needs every package of the workspace, and cargo every target that a manifest names, also those it does not build.
    for member in
        ["actors", "crates", "server", "src", "prompts", "benches", "examples", "tests", "Cargo.lock"]
    {
        assert!(read("Dockerfile.dockerignore").lines().any(|line| line == format!("!{member}")), "{member}");
    }
}

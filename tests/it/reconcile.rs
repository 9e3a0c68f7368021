//! Hundreds of turns on all four dialects, with all that goes wrong on the wire and engines that are killed: what the
//! ledger says is what the models were asked and what they reported, by class and in money, and so is what each sink holds.

mod shapes;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use mock_llm::{
    Cut, Defect, Entry, Fault, Finish, JournalOptions, Mock, MockOptions, Model, Moment, Outcome, Rejection,
    Script, Server, UsageOverride, reasoning, refusal, text,
};
use playhouse::protocol::ledger::{FeedItem, RowId};
use playhouse::protocol::record::AttemptOutcome;
use playhouse::protocol::usage::{Quality, Tokens};
use playhouse::protocol::{LedgerRow, Record, Seq, SessionId};
use playhouse::store::Store;
use rust_decimal::Decimal;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::serve::Serving;
use crate::sink_server::{Kind, Mood, Server as Bills};
use crate::sinks::{chaos, keyed, settled, sink};
use crate::stage::{Stage, finish, until};

/// Providers, each named as its dialect, with what comes after the host in its address.
const DIALECTS: [(&str, &str); 4] =
    [("anthropic", ""), ("openai-chat", "/v1"), ("openai-responses", "/v1"), ("gemini", "")];

/// Sessions of each model on each dialect.
const SESSIONS: usize = 2;

/// Far longer than it takes: ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(300);

const TEXT: &str = "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.";

/// What the models say. Each request of a session is another one, so each turn meets its fault anew.
fn script() -> Script {
    let long = || text(TEXT).call("list", json!({"path": ".", "ignore": ["x".repeat(200)]}));
    let fault = |fault| Model::new().step(long().fault(fault).fail_first(1)).step(text("Done.")).cycle();
    let counts = |usage| Model::new().step(reasoning("Hm.").text(TEXT).usage(usage)).cycle();
    let odd = UsageOverride {
        input: Some(1_234_567),
        cache_read: Some(89),
        cache_write: Some(1_000_003),
        output: Some(17),
        reasoning: Some(5),
        ..UsageOverride::default()
    };
    let script = Script::new()
        .prompt_cache()
        .model("plain", Model::new().step(text(TEXT)).next_turn().step(reasoning("Well.").text(TEXT)).cycle())
        .model("calls", Model::new().step(long()).step(long()).step(text("Done.")).cycle())
        .model("odd", counts(odd))
        .model("hour", counts(UsageOverride { cache_write_1h: Some(777), ..odd }))
        .model("total", counts(UsageOverride { total: Some(3), ..odd }))
        .model("early", fault(Fault::cut(Moment::FirstToken, Cut::Eof)))
        .model("text", fault(Fault::cut(Moment::InText, Cut::Reset)))
        .model("late", fault(Fault::cut(Moment::FinalEvent, Cut::Eof)))
        .model("fire", fault(Fault::error_event(Moment::InText, "we are on fire")))
        .model("busy", fault(Fault::Rejected(Rejection::Overloaded)))
        .model("down", fault(Fault::status(500)))
        .model("gateway", fault(Fault::status(504)))
        .model("page", fault(Fault::Html("<html>Welcome to the hotel</html>".into())))
        .model("broken", fault(Fault::Broken(Defect::MalformedJson)))
        .model("silent-usage", fault(Fault::Broken(Defect::NoUsage)))
        .model("no", Model::new().step(refusal("I would rather not.")).cycle())
        .model("filter", Model::new().step(text(TEXT).finish(Finish::ContentFilter)).cycle())
        .model("stall", Model::new().step(text(TEXT).fault(Fault::stall(Moment::InText))).cycle());
    shapes::models(script)
}

/// US dollars per million tokens of each model: of input, output, what is read from the cache and what is written to it.
fn prices(place: usize) -> [Decimal; 4] {
    let place = i64::try_from(place).unwrap();
    [
        Decimal::new(3_003 + place, 3),
        Decimal::new(15_007 + 3 * place, 3),
        Decimal::new(30_03 + place, 4),
        Decimal::new(3_751 + place, 3),
    ]
}

/// What these tokens cost at the prices of the model, worked out without anything of the engine.
fn cost(tokens: &Tokens, [input, output, read, write]: [Decimal; 4]) -> Decimal {
    let of = |count: u64, price: Decimal| Decimal::from(count) * price / Decimal::from(1_000_000);
    let answer = of(tokens.output + tokens.reasoning, output);
    let cached = of(tokens.cache_read, read) + of(tokens.cache_write_5m + tokens.cache_write_30m, write);
    // What is kept for an hour and longer has no price in the configuration: it costs multiples of what input costs.
    let hour = of(tokens.cache_write_1h, input * Decimal::TWO);
    let long = of(tokens.cache_write_12h, input * Decimal::new(25, 1));
    of(tokens.input, input) + cached + hour + long + answer
}

/// What the prices of a request that was served in these ways are multiplied with.
fn factor(served: &[String]) -> Decimal {
    let of = |name: &String| shapes::MULTIPLES.iter().find(|(way, _)| way == name).unwrap().1;
    served.iter().map(|name| of(name).parse::<Decimal>().unwrap()).product()
}

/// What a row costs.
fn cost_of(row: &LedgerRow, prices: &BTreeMap<String, [Decimal; 4]>) -> Decimal {
    cost(&row.tokens, prices[&format!("{}/{}", row.provider, row.model)]) * factor(&row.served)
}

struct Ground {
    stage: Stage,
    mock: Mock,
    /// Where the ledger is exported to, beside files: servers of each kind, which lose answers, take things twice and refuse.
    sinks: [Bills; 4],
    prices: BTreeMap<String, [Decimal; 4]>,
    /// Ends with the test.
    _server: Server,
    _runtime: Runtime,
}

impl Ground {
    fn new() -> Self {
        // The bodies of so many requests are more than a journal keeps.
        let journal = JournalOptions { body_bytes: 0, ..JournalOptions::default() };
        let script = script();
        let names: Vec<String> = script.models.keys().cloned().collect();
        let mock = Mock::with_options(script, MockOptions { rate: None, journal }).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server =
            runtime.block_on(async { mock.serve(TcpListener::bind("127.0.0.1:0").await.unwrap()).unwrap() });
        let stage = Stage::new(Model::new());
        let mut prices_of = BTreeMap::new();
        let multiples = shapes::MULTIPLES.map(|(name, factor)| format!("{name} = {factor}")).join(", ");
        let mut text = "[retry]\nattempts = 3\nbase_ms = 1\nlongest_ms = 2000\n".to_owned();
        for (dialect, path) in DIALECTS {
            let url = server.url();
            text +=
                &format!("[providers.on-{dialect}]\ndialect = \"{dialect}\"\nbase_url = \"{url}{path}\"\n");
            for name in &names {
                let place = prices_of.len();
                let [input, output, read, write] = prices(place);
                text += &format!(
                    "[providers.on-{dialect}.models.\"{name}\"]\ncontext = 10000000\noutput = 4000\n\
                     cost = {{ input = {input}, output = {output}, cache_read = {read}, cache_write = {write}, \
                     multiples = {{ {multiples} }} }}\n",
                );
                prices_of.insert(format!("on-{dialect}/{name}"), prices(place));
            }
        }
        stage.configure(&text).write("a.txt", "one\n");
        let sinks =
            [Kind::OpenMeter, Kind::Polar, Kind::Webhook, Kind::Report].map(|kind| Bills::start(kind, 3));
        for (server, name) in sinks.iter().zip(["meter", "polar", "hook", "turns"]) {
            server.with(|state| {
                state.chance = 1;
                state.script = vec![Mood::AnswerLost, Mood::Later, Mood::Closed, Mood::Status(429)];
            });
            stage.configure(&sink(name, server, "timeout_ms = 200\nbatch_rows = 64"));
        }
        let folder = stage.root().join("bills");
        stage.configure(&format!(
            "[sinks.files]\nkind = \"file\"\nfolder = {folder:?}\nrotate_bytes = 200000"
        ));
        Self { stage, mock, sinks, prices: prices_of, _server: server, _runtime: runtime }
    }

    fn serve(&self) -> Serving {
        let serving = Serving::of(keyed(self.stage.command(["serve", "--sandbox", "off", "--port", "0"])));
        if !serving.has_begun() {
            panic!("{:#?}", serving.ended());
        }
        serving
    }

    /// What each sink holds is the ledger, without duplicates.
    fn check_sinks(&self, rows: &[LedgerRow]) {
        let mut rows = rows.to_vec();
        rows.sort_by(|a, b| a.id.cmp(&b.id));
        chaos::check(&self.stage.root().join("bills"), self.sinks.each_ref(), &rows);
    }

    fn post(&self, serving: &Serving, path: &str, body: &Value) -> Value {
        let (status, answer) = serving.ask("POST", path, &[], &body.to_string());
        assert!((200..300).contains(&status), "{path}: {answer}");
        serde_json::from_str(&answer).unwrap()
    }

    fn session(&self, serving: &Serving, model: &str) -> String {
        let body = json!({"workspace": self.stage.workspace, "model": model});
        let made = self.post(serving, "/v1/sessions", &body);
        format!("/v1/sessions/{}", made["id"].as_str().unwrap())
    }

    /// All turns of the load are over; how many these are.
    fn all_over(&self, serving: &Serving) -> u64 {
        let begun = Instant::now();
        loop {
            let (status, page) = serving.ask("GET", "/v1/sessions?limit=500", &[], "");
            assert_eq!(status, 200, "{page}");
            let page: Value = serde_json::from_str(&page).unwrap();
            let sessions = page["sessions"].as_array().unwrap();
            if sessions.iter().all(|session| session["open_turns"] == 0) {
                return sessions.iter().map(|session| session["turns"].as_u64().unwrap()).sum();
            }
            assert!(begun.elapsed() < PATIENCE, "turns never end: {page}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What the models were asked, by the attempt that it was for.
    fn journal(&self) -> BTreeMap<String, Entry> {
        let entries = self.mock.journal().entries();
        assert_eq!(entries.len() as u64, self.mock.journal().count(), "none is forgotten");
        let count = entries.len();
        let by_attempt: BTreeMap<String, Entry> =
            entries.into_iter().map(|entry| (entry.attempt.clone().expect("it is named"), entry)).collect();
        assert_eq!(by_attempt.len(), count, "no attempt is sent twice");
        by_attempt
    }

    /// The load: so many prompts for each session of every model on every dialect, under an engine that is killed twice. How many
    /// turns there were.
    fn run(&self, prompts: usize) -> u64 {
        let mut serving = self.serve();
        let models: Vec<&String> = self.prices.keys().filter(|name| !name.ends_with("/stall")).collect();
        for number in 0..SESSIONS {
            for model in &models {
                let session = self.session(&serving, model);
                let is_shape = shapes::is_shape(model.split_once('/').unwrap().1);
                for prompt in 0..if is_shape { prompts.min(2) } else { prompts } {
                    let text = format!("prompt {prompt} of session {number} of {model}");
                    self.post(&serving, &format!("{session}/prompts"), &json!({"text": text}));
                }
            }
            serving = self.killed_and_begun_anew(serving);
        }
        // What never ends is aborted in the middle of its answer.
        for model in self.prices.keys().filter(|name| name.ends_with("/stall")) {
            let session = self.session(&serving, model);
            self.post(&serving, &format!("{session}/prompts"), &json!({"text": model}));
            let dialect = model.trim_start_matches("on-").trim_end_matches("/stall");
            until("it is in the middle of its answer", || {
                let entries = self.mock.journal().entries();
                entries.iter().any(|entry| {
                    let on = entry.dialect.map(|dialect| json!(dialect));
                    on == Some(json!(dialect)) && entry.model.as_deref() == Some("stall") && entry.tokens > 0
                })
            });
            self.post(&serving, &format!("{session}/abort"), &json!({}));
        }
        let turns = self.all_over(&serving);
        settled(&self.stage);
        self.check_sums(&serving);
        serving.signal(Signal::TERM);
        serving.ended().is(0);
        turns
    }

    /// Another engine in the place of this one, which is killed in the middle of its work.
    fn killed_and_begun_anew(&self, serving: Serving) -> Serving {
        let count = || self.mock.journal().count();
        let before = count();
        until("it works", || count() > before + 20 || self.mock.journal().entries().iter().all(is_over));
        serving.signal(Signal::KILL);
        serving.ended();
        self.serve()
    }

    /// The sums that clients see are those over the rows.
    fn check_sums(&self, serving: &Serving) {
        let (status, page) = serving.ask("GET", "/v1/usage?by=model", &[], "");
        assert_eq!(status, 200, "{page}");
        let page: Value = serde_json::from_str(&page).unwrap();
        let mut seen: BTreeMap<String, (u64, u64, Decimal)> = BTreeMap::new();
        for row in page["rows"].as_array().unwrap() {
            let of = |name: &str| row[name].as_u64().unwrap();
            let cost = row["cost"].as_str().unwrap().parse().unwrap();
            seen.insert(row["model"].as_str().unwrap().to_owned(), (of("rows"), of("output"), cost));
        }
        let mut expected: BTreeMap<String, (u64, u64, Decimal)> = BTreeMap::new();
        for row in crate::usage::rows(&self.stage) {
            let name = format!("{}/{}", row.provider, row.model);
            let sum = expected.entry(name).or_default();
            sum.0 += 1;
            sum.1 += row.tokens.output;
            sum.2 += cost_of(&row, &self.prices);
        }
        assert_eq!(seen, expected);
    }

    /// Rows, how each attempt ended by the logs, and the feed as sinks read it.
    fn stored(&self) -> (Vec<LedgerRow>, BTreeMap<String, AttemptOutcome>, Vec<FeedItem>) {
        let rows = crate::usage::rows(&self.stage);
        let store = Store::open(&self.stage.data).unwrap();
        let mut outcomes = BTreeMap::new();
        for session in rows.iter().map(|row| row.session).collect::<BTreeSet<SessionId>>() {
            let read = store.log.read(session, Seq::START, 1_000_000).unwrap();
            assert_eq!(read.damage, None);
            for entry in read.entries {
                if let Record::AttemptEnded(ended) = entry.record {
                    let before = outcomes.insert(ended.attempt.to_string(), ended.outcome);
                    assert_eq!(before, None, "an attempt ends once");
                }
            }
        }
        let end = store.ledger.feed_end();
        let feed = store.ledger.feed(0, usize::try_from(end).unwrap() + 1).unwrap();
        assert_eq!(feed.len() as u64, end);
        (rows, outcomes, feed.into_iter().map(|(_, item)| item).collect())
    }
}

fn is_over(entry: &Entry) -> bool {
    entry.outcome != Outcome::Open
}

/// What the ledger has to say of a request.
#[derive(Debug, PartialEq)]
enum Expected {
    /// A row with exactly these tokens.
    Exactly(Tokens),
    /// A row with an estimate, or with what was reported before it was cut.
    OneRow,
    Nothing,
}

fn expected(entry: &Entry, outcome: &AttemptOutcome) -> Expected {
    let is_whole = entry.outcome == Outcome::Complete
        && !matches!(entry.model.as_deref(), Some("broken" | "silent-usage"));
    let was_read = !matches!(outcome, AttemptOutcome::Lost | AttemptOutcome::Aborted);
    match (entry.status, entry.reported) {
        // A page in place of an answer: no model was asked.
        (200, None) if entry.model.as_deref() == Some("page") && was_read => Expected::Nothing,
        (200, Some(tokens)) if is_whole && was_read => Expected::Exactly(tokens),
        // Of an engine that was killed it is not known whether the request was refused; a gateway that lost patience had
        // somebody work on it.
        (200 | 504, _) => Expected::OneRow,
        _ if !was_read => Expected::OneRow,
        _ => Expected::Nothing,
    }
}

#[test]
fn the_ledger_is_what_the_models_were_asked_and_reported() {
    reconciled(1, [100, 20, 10]);
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn the_ledger_of_five_hundred_turns_is_what_the_models_were_asked_and_reported() {
    reconciled(5, [500, 100, 50]);
}

/// With so many prompts a session. `fewest`: turns; and of each provider, rows with reported and rows with estimated tokens.
fn reconciled(prompts: usize, fewest: [usize; 3]) {
    let ground = Ground::new();
    let turns = ground.run(prompts);
    assert!(turns >= fewest[0] as u64, "{turns} turns");
    let (rows, outcomes, feed) = ground.stored();
    let journal = ground.journal();

    // Each row is of one request; only an engine that was killed may have had no time to send it. Calls of other models
    // inside of its answer are rows of their own.
    let mut by_attempt: BTreeMap<String, &LedgerRow> = BTreeMap::new();
    let mut inner: BTreeMap<String, Vec<(&str, Tokens)>> = BTreeMap::new();
    for row in &rows {
        let attempt = row.attempt.to_string();
        if row.id != RowId::of(row.attempt) {
            inner.entry(attempt).or_default().push((&row.model, row.tokens));
            continue;
        }
        let asked = journal.get(&attempt);
        assert!(asked.is_some() || outcomes[&attempt] == AttemptOutcome::Lost, "{row:?}");
        assert_eq!(by_attempt.insert(attempt, row), None, "one row an attempt");
    }
    // Each request is a row, if it used tokens.
    let mut exact: BTreeMap<&str, usize> = BTreeMap::new();
    let mut estimated: BTreeMap<&str, usize> = BTreeMap::new();
    for (attempt, entry) in &journal {
        let outcome = outcomes.get(attempt).unwrap_or_else(|| panic!("it is in no log: {entry:?}"));
        let row = by_attempt.get(attempt).copied();
        let model = entry.model.as_deref().unwrap_or_default();
        match expected(entry, outcome) {
            Expected::Nothing => assert_eq!(row, None, "{entry:?}"),
            Expected::Exactly(tokens) => {
                let row = row.unwrap_or_else(|| panic!("it has no row: {entry:?}"));
                let (own, others) = shapes::told_apart(entry, tokens);
                assert_eq!(row.tokens, own, "{entry:?}");
                assert_eq!(inner.remove(attempt).unwrap_or_default(), others, "{entry:?}");
                let sorted = |names: Vec<String>| names.into_iter().collect::<BTreeSet<_>>();
                assert_eq!(sorted(row.served.clone()), sorted(shapes::served(entry)), "{entry:?}");
                let dialect = row.provider.trim_start_matches("on-");
                let contradicts =
                    model == "total" && dialect != "anthropic" || shapes::is_in_doubt(model, dialect);
                let quality = if contradicts { Quality::Unreconciled } else { Quality::Reported };
                assert_eq!(row.quality, quality, "{entry:?}");
                assert!(row.raw.is_some(), "{row:?}");
                *exact.entry(&row.provider).or_default() += 1;
            }
            Expected::OneRow => {
                let row = row.unwrap_or_else(|| panic!("it has no row: {outcome:?} {entry:?}"));
                // What was reported before the cut is kept.
                let known = entry.reported.is_some_and(|tokens| tokens == row.tokens);
                assert!(row.quality == Quality::Estimated || known, "{entry:?} {row:?}");
                assert!(row.tokens.all_input() > 0, "{row:?}");
                *estimated.entry(&row.provider).or_default() += 1;
            }
        }
    }
    assert!(inner.is_empty(), "{inner:?}");
    for (dialect, _) in DIALECTS {
        let provider = format!("on-{dialect}");
        let (exact, estimated) = (exact[&*provider], estimated[&*provider]);
        assert!(exact > fewest[1] && estimated > fewest[2], "{provider}: {exact} {estimated}");
    }
    check_money(&ground, &rows);
    ground.check_sinks(&rows);
    check_feed(&rows, &feed, turns);
    check_later(&ground, rows);
}

/// Prices and cost of every row are those of the configuration, by class and together.
fn check_money(ground: &Ground, rows: &[LedgerRow]) {
    let mut assumed = 0;
    for row in rows {
        let prices = ground.prices[&format!("{}/{}", row.provider, row.model)];
        let of = row.prices;
        let factor = factor(&row.served);
        let prices = prices.map(|price| (price * factor).normalize());
        let [input, output, read, write] = prices.map(Some);
        assert_eq!([of.input, of.output, of.cache_read, of.cache_write], [input, output, read, write]);
        let class = |tokens: Tokens| Some(cost(&tokens, prices));
        let (tokens, none) = (row.tokens, Tokens::default());
        for (told, counted) in [
            (row.costs.input, Tokens { input: tokens.input, ..none }),
            (row.costs.cache_read, Tokens { cache_read: tokens.cache_read, ..none }),
            (row.costs.cache_write_5m, Tokens { cache_write_5m: tokens.cache_write_5m, ..none }),
            (row.costs.cache_write_30m, Tokens { cache_write_30m: tokens.cache_write_30m, ..none }),
            (row.costs.cache_write_12h, Tokens { cache_write_12h: tokens.cache_write_12h, ..none }),
            (row.costs.cache_write_1h, Tokens { cache_write_1h: tokens.cache_write_1h, ..none }),
            (row.costs.output, Tokens { output: tokens.output, ..none }),
            (row.costs.reasoning, Tokens { reasoning: tokens.reasoning, ..none }),
        ] {
            assert_eq!(told.map(|cost| cost.0), class(counted), "{row:?}");
        }
        assert_eq!(row.cost.map(|cost| cost.0), class(tokens), "{row:?}");
        let gaps = [("cache_write_1h", tokens.cache_write_1h), ("cache_write_12h", tokens.cache_write_12h)];
        let names: Vec<&str> =
            gaps.into_iter().filter(|(_, count)| *count > 0).map(|(name, _)| name).collect();
        assert_eq!(row.assumed, names, "{row:?}");
        assumed += names.len();
    }
    assert!(assumed > 0, "what has no price is not taken for nothing");
}

/// The feed holds every row once, and the end of every turn behind its rows.
fn check_feed(rows: &[LedgerRow], feed: &[FeedItem], turns: u64) {
    let mut of_feed: BTreeMap<String, &LedgerRow> = BTreeMap::new();
    let (mut open, mut ended) = (BTreeSet::new(), BTreeSet::new());
    for item in feed {
        match item {
            FeedItem::Row(row) => {
                open.insert((row.session, row.turn));
                assert_eq!(of_feed.insert(row.id.to_string(), row), None, "a row is in the feed once");
            }
            FeedItem::TurnEnded(end) => {
                open.remove(&(end.session, end.turn));
                ended.insert((end.session, end.turn));
            }
            FeedItem::Closed(_) => {}
        }
    }
    assert!(open.is_empty(), "the end of a turn comes behind its rows: {open:?}");
    assert_eq!(ended.len() as u64, turns);
    assert_eq!(of_feed, rows.iter().map(|row| (row.id.to_string(), row)).collect());
}

/// A fork brings no rows with it, and rows stay when their session goes.
fn check_later(ground: &Ground, mut rows: Vec<LedgerRow>) {
    let model = "on-openai-chat/plain";
    let is_plain = |row: &&LedgerRow| {
        format!("{}/{}", row.provider, row.model) == model && row.id == RowId::of(row.attempt)
    };
    let plain = rows.iter().find(is_plain).unwrap();
    let session = plain.session.to_string();
    let known = ground.journal();
    let run = ground.stage.command(["run", "-s", &session, "--fork", "And now?"]);
    finish(keyed(run)).is(0);
    finish(keyed(ground.stage.command(["sessions", "delete", &session]))).is(0);
    let more = crate::usage::rows(&ground.stage);
    let new: Vec<&LedgerRow> = more.iter().filter(|row| !rows.contains(row)).collect();
    let [row] = &new[..] else { panic!("{new:?}") };
    assert_ne!(row.session.to_string(), session);
    let asked = ground.journal();
    let entry = &asked[&row.attempt.to_string()];
    assert_eq!((Some(row.tokens), asked.len()), (entry.reported, known.len() + 1));
    rows.push((*row).clone());
    let ids = |rows: &[LedgerRow]| rows.iter().map(|row| row.id.to_string()).collect::<BTreeSet<_>>();
    assert_eq!(ids(&rows), ids(&more));
}

//! Usage objects of providers, and what becomes of them in the ledger: worked examples in each dialect.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use mock_llm::{Mock, Model, Reports, Script, Server, text};
use playhouse::protocol::ledger::{FeedItem, LedgerClosed, Purpose};
use playhouse::protocol::usage::{Cost, Quality};
use playhouse::protocol::{LedgerRow, Timestamp};
use playhouse::store::Store;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::stage::{Stage, finish, until};
use crate::tap::Tap;
use crate::usage::rows;

/// The scripted provider of an example, at an address of its own.
struct Provider {
    mock: Mock,
    server: Server,
    /// Ends with the test.
    _runtime: Runtime,
}

impl Provider {
    /// One that answers every request with the usage object of this example.
    fn of((_, model, usage, service_tier, _): &Example) -> Self {
        let reports = Reports {
            object: usage.as_object().cloned(),
            tier: service_tier.map(str::to_owned),
            ..Reports::default()
        };
        let model_of_it = Model::new().step(text("fine").reports(reports)).cycle();
        let mock = Mock::new(Script::new().model(*model, model_of_it));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server =
            runtime.block_on(async { mock.serve(TcpListener::bind("127.0.0.1:0").await.unwrap()).unwrap() });
        Self { mock, server, _runtime: runtime }
    }
}

/// A provider, a model of it, a usage object in its dialect, the tier that stands beside it, and what that costs in dollars.
type Example = (&'static str, &'static str, Value, Option<&'static str>, &'static str);

fn examples() -> Vec<Example> {
    let responses = |input: u64, details: Value, output: u64| {
        json!({"input_tokens": input, "input_tokens_details": details, "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": input + output})
    };
    let opus = json!({"input_tokens": 1_000, "cache_read_input_tokens": 40_000, "cache_creation_input_tokens": 8_000,
        "cache_creation": {"ephemeral_5m_input_tokens": 3_000, "ephemeral_1h_input_tokens": 5_000},
        "output_tokens": 500, "service_tier": "standard"});
    let within = |calls: Value| {
        let mut usage = opus.clone();
        usage["iterations"] = calls;
        usage
    };
    let compaction = json!([{"type": "compaction", "input_tokens": 20_000, "output_tokens": 1_000}]);
    let advisor = json!([{"type": "advisor_message", "model": "claude-haiku-5-5", "input_tokens": 10_000, "output_tokens": 100}]);
    let lifetimes = json!({"cached_tokens": 0, "cache_write_tokens": 30_000,
        "cache_write_tokens_details": {"ttl_30m_tokens": 10_000, "ttl_12h_tokens": 20_000}});
    vec![
        (
            "openai",
            "gpt-6.1-sol",
            responses(100_000, json!({"cached_tokens": 60_000, "cache_write_tokens": 30_000}), 2_000),
            None,
            "0.121",
        ),
        (
            "openai",
            "gpt-6.1-sol",
            responses(300_000, json!({"cached_tokens": 200_000}), 1_000),
            None,
            "0.455",
        ),
        ("openai", "gpt-6-luna", responses(35_000, lifetimes, 1_000), None, "0.00725"),
        (
            "openai",
            "gpt-5.5",
            responses(100_000, json!({"cached_tokens": 80_000}), 3_000),
            Some("flex"),
            "0.115",
        ),
        ("anthropic", "claude-opus-5-5", opus.clone(), None, "0.077"),
        ("anthropic", "claude-opus-5-5", within(compaction), None, "0.177"),
        ("anthropic", "claude-opus-5-5", within(advisor), None, "0.07805"),
        (
            "anthropic",
            "claude-opus-5-5",
            json!({"input_tokens": 1_000, "output_tokens": 500, "speed": "fast", "inference_geo": "us"}),
            None,
            "0.0308",
        ),
        (
            "anthropic",
            "claude-haiku-5-5",
            json!({"input_tokens": 50_000, "cache_read_input_tokens": 60_000, "output_tokens": 1_000}),
            None,
            "0.0305",
        ),
        // Two calls, of which none is above 100,000 by itself.
        (
            "anthropic",
            "claude-haiku-5-5",
            json!({"input_tokens": 60_000, "output_tokens": 500,
                "iterations": [{"type": "compaction", "input_tokens": 55_000, "output_tokens": 500}]}),
            None,
            "0.012",
        ),
        (
            "google",
            "gemini-3.8-flash",
            json!({"promptTokenCount": 20_000, "cachedContentTokenCount": 18_000, "toolUsePromptTokenCount": 500,
                "candidatesTokenCount": 800, "thoughtsTokenCount": 300, "totalTokenCount": 21_600}),
            None,
            "0.00735",
        ),
        (
            "deepseek",
            "deepseek-v4-pro",
            json!({"prompt_tokens": 20_000, "prompt_cache_hit_tokens": 18_000, "prompt_cache_miss_tokens": 2_000,
                "completion_tokens": 1_000, "total_tokens": 21_000}),
            None,
            "0.007392",
        ),
    ]
}

/// The provider of an example is at `url`. Whatever was configured of another one is gone.
fn configure(stage: &Stage, (provider, model, ..): &Example, url: &str) {
    let text = fs_err::read_to_string(&stage.config).unwrap();
    let text = text.split(MARK).next().unwrap();
    let dialect = if *provider == "openai" { "dialect = \"openai-responses\"\n" } else { "" };
    let version = if matches!(*provider, "google" | "anthropic") { "" } else { "/v1" };
    let lines = format!(
        "[providers.{provider}]\n{dialect}base_url = \"{url}{version}\"\napi_key_env = \"WORKED_KEY\"\n\
         [providers.{provider}.models.\"{model}\".cost.multiples]\noff_peak = 1\n"
    );
    fs_err::write(&stage.config, format!("{text}{MARK}\n{lines}")).unwrap();
}

/// Stands before what [`configure`] writes.
const MARK: &str = "# worked";

/// A command with the key of every example.
fn command<const N: usize>(stage: &Stage, arguments: [&str; N]) -> Command {
    let mut command = stage.command(arguments);
    command.env("WORKED_KEY", "k-0123456789");
    command
}

/// Runs a turn that is answered with this usage object.
fn run(stage: &Stage, example: &Example) {
    let (provider, model, ..) = example;
    let scripted = Provider::of(example);
    configure(stage, example, &scripted.server.url());
    finish(command(stage, ["run", "-m", &format!("{provider}/{model}"), "Go."])).is(0);
}

fn turns(rows: Vec<LedgerRow>) -> Vec<LedgerRow> {
    rows.into_iter().filter(|row| row.purpose == Purpose::Turn).collect()
}

fn sum(rows: &[LedgerRow]) -> Decimal {
    rows.iter().map(|row| row.cost.unwrap().0).sum()
}

fn dollars(text: &str) -> Decimal {
    text.parse().unwrap()
}

#[test]
fn usage_objects_of_each_dialect_give_their_sums() {
    for example in examples() {
        let stage = Stage::new(Model::new());
        run(&stage, &example);
        let rows = turns(rows(&stage));
        let (provider, model, usage, _, expected) = example;
        assert_eq!(sum(&rows), dollars(expected), "{provider}/{model} {usage}: {rows:#?}");
        assert!(
            rows.iter().all(|row| row.quality == Quality::Reported && row.assumed.is_empty()),
            "{rows:#?}"
        );
        for row in &rows {
            assert_eq!(row.prices.cost(&row.tokens), row.cost, "the prices of a row give its cost");
        }
        // They hold still.
        let name = format!("{provider}/{model}");
        let reprice = ["usage", "reprice", "--from", "2026-01-01", "--to", "2100-01-01", "--model", &name];
        let report = finish(command(&stage, reprice)).is(0);
        assert!(report.stdout.contains("\n0 rows corrected"), "{name} {usage}: {}", report.stdout);
    }
}

#[test]
fn the_sums_stay_over_hours_that_close_and_what_is_late_says_so() {
    let stage = Stage::new(Model::new());
    let now = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        u64::try_from(since.as_millis()).unwrap()
    };
    let close = |until: u64| {
        let store = Store::open(&stage.data).unwrap();
        store.ledger.close(Timestamp::from_millis(until)).unwrap();
    };
    close(1);
    let examples = examples();
    let (in_time, late) = examples.split_at(7);
    for example in in_time {
        run(&stage, example);
        close(now() + 1);
    }
    // An hour that is not over: all that follows is late.
    close(now() + 3_600_000);
    for example in late {
        run(&stage, example);
    }
    let feed = Store::open(&stage.data).unwrap().ledger.feed(0, 10_000).unwrap();
    let (mut open, mut closed, mut all) = (Vec::new(), 0, Vec::new());
    for (_, item) in feed {
        match item {
            FeedItem::Row(row) => open.push(*row),
            FeedItem::Closed(LedgerClosed { until }) => {
                assert!(open.iter().all(|row| row.ended < until && !row.late), "{until:?}: {open:#?}");
                if let Some((.., expected)) = in_time.get(closed) {
                    assert_eq!(sum(&turns(open.clone())), dollars(expected), "{closed}");
                }
                closed += 1;
                all.append(&mut open);
            }
            FeedItem::TurnEnded(_) => {}
        }
    }
    assert_eq!(closed, in_time.len() + 1);
    assert!(open.iter().all(|row| row.late), "{open:#?}");
    all.append(&mut open);
    let expected: Decimal = examples.iter().map(|(.., expected)| dollars(expected)).sum();
    assert_eq!(sum(&turns(all)), expected);
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn the_sums_stay_when_the_engine_is_killed_in_the_middle() {
    for example in examples() {
        let stage = Stage::new(Model::new());
        let silent = Tap::silent();
        configure(&stage, &example, silent.url());
        let (provider, model, usage, _, expected) = &example;
        let mut killed = command(&stage, ["run", "-m", &format!("{provider}/{model}"), "Go."]);
        let mut killed =
            killed.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("it was asked", || silent.heard().contains("POST"));
        killed.kill().unwrap();
        killed.wait().unwrap();
        let scripted = Provider::of(&example);
        configure(&stage, &example, &scripted.server.url());
        finish(command(&stage, ["run", "-c", "Go on."])).is(0);
        let rows = turns(rows(&stage));
        let (reported, lost): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| row.quality == Quality::Reported);
        assert_eq!(lost.len(), 1, "{provider}/{model}: {lost:#?}");
        assert_eq!((lost[0].quality, lost[0].cost > Some(Cost::ZERO)), (Quality::Estimated, true));
        let asked = scripted.mock.journal().count();
        let of_turns: BTreeSet<_> = reported.iter().map(|row| row.step).collect();
        assert!(!of_turns.is_empty() && of_turns.len() as u64 <= asked, "{reported:#?}");
        assert_eq!(
            sum(&reported),
            dollars(expected) * Decimal::from(of_turns.len()),
            "{provider}/{model} {usage}"
        );
    }
}

//! How much of each request is what the last one was: what a provider's prompt cache can serve, and how often the past changes.
//! A session of 200 steps with large outputs, whose model has a window of 32,000 tokens, and one of 1,000 steps in 200,000:
//! room is made in them again and again.

use playhouse::House;
use playhouse::config::Settings;
use playhouse::mock_llm::{Dialect, Mock, Model, Script, text};
use playhouse::protocol::Record;
use serde_json::json;

use crate::house::{Place, run};
use crate::report::Measurement;
use crate::{Effort, Result};

/// Steps with a call after a prompt.
const STEPS: usize = 10;
/// A session.
struct Case {
    /// The window of its model, in tokens.
    window: u64,
    /// Prompts.
    turns: usize,
    /// The most requests that may have another past than the one before, in percent.
    changes: f64,
}

const CASES: [Case; 2] =
    [Case { window: 32_000, turns: 20, changes: 5.0 }, Case { window: 200_000, turns: 100, changes: 2.0 }];
/// Lines of an output: about 1,600 bytes.
const LINES: usize = 25;
/// The file that is read.
const FILE: &str = "long.txt";
/// The most of a request that may be lost to a cache, in percent.
const TARGET: f64 = 5.0;

pub(crate) fn measure(effort: Effort) -> Result<Vec<Measurement>> {
    let mut all = Vec::new();
    for case in CASES {
        all.extend(measure_one(effort, &case)?);
    }
    Ok(all)
}

fn measure_one(effort: Effort, case: &Case) -> Result<Vec<Measurement>> {
    let place = Place::new()?;
    let line = "A line of a long file, which somebody wants to be read from its beginning on.\n";
    fs_err::write(place.path().join("workspace").join(FILE), line.repeat(STEPS * LINES))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (bodies, compactions, cleared, requests) = runtime.block_on(async {
        let mock = Mock::new(script());
        let server = mock.serve(tokio::net::TcpListener::bind("127.0.0.1:0").await?)?;
        let config = format!(
            "[providers.bench]\ndialect = \"anthropic\"\nbase_url = \"{}\"\n[providers.bench.models.long]\ncontext = {}\noutput = 8000\n",
            server.url(),
            case.window
        );
        let file = place.path().join("config.toml");
        fs_err::write(&file, config)?;
        let settings = Settings::load(Some(&file), &|_| None)?;
        let house = House::builder(settings).data(place.path().join("data")).start().await?;
        let session = place.session(&house, "long").await?;
        for _ in 0..effort.of(case.turns).max(6) {
            run(&session).await?;
        }
        let (entries, _) = house.engine().read(session.id()).await?;
        let count = |is_it: fn(&Record) -> bool| entries.iter().filter(|entry| is_it(&entry.record)).count();
        let compactions = count(|record| matches!(record, Record::ContextCompacted(_)));
        let cleared = count(|record| matches!(record, Record::ContextCleared(_)));
        let requests = count(|record| matches!(record, Record::StepFinished(_)));
        house.shutdown().await;
        let asked = mock.journal().entries();
        // Those for summaries have nothing in common with the others.
        let steps = asked.iter().filter(|entry| entry.dialect == Some(Dialect::Anthropic));
        let bodies = steps.filter_map(|entry| entry.body.as_ref()).map(|body| String::from_utf8_lossy(body).into_owned());
        let bodies: Vec<String> = bodies.filter(|body| body.contains("\"tools\":[{")).map(without_marks).collect();
        Ok::<_, crate::Failure>((bodies, compactions, cleared, requests))
    })?;
    let shares = |of: fn(&str, &str) -> usize| -> f64 {
        let same: usize = bodies.windows(2).map(|pair| common(&pair[0], &pair[1])).sum();
        let all: usize = bodies.windows(2).map(|pair| of(&pair[0], &pair[1])).sum();
        same as f64 * 100.0 / all.max(1) as f64
    };
    // The provider remembers the last of many large requests only, so that these are counted in the log.
    let changes = cleared + compactions;
    println!(
        "{requests} requests in a window of {}, {} of them compared: the past changed {changes} times (outputs were cleared {cleared} times, {compactions} compactions)",
        case.window,
        bodies.len()
    );
    let session =
        format!("{} steps in a window of {} tokens", effort.of(case.turns).max(6) * STEPS, case.window);
    let lost = format!("part of a request that the next one does not begin with, {session}");
    let new = format!("part of a request that the last one had not, {session}");
    let changed = changes as f64 * 100.0 / requests.max(1) as f64;
    Ok(vec![
        Measurement::new(lost, "%", vec![100.0 - shares(|last, _| last.len())]).under(TARGET),
        Measurement::new(new, "%", vec![100.0 - shares(|_, next| next.len())]),
        Measurement::new(
            format!("requests with another past than the one before, {session}"),
            "%",
            vec![changed],
        )
        .under(case.changes),
    ])
}

/// A model that reads ten pieces of the file for every prompt, and writes summaries.
fn script() -> Script {
    let step = |number: usize| {
        let input = json!({"filePath": FILE, "offset": number * LINES + 1, "limit": LINES});
        text(format!("Now piece {number}.")).call("read", input)
    };
    let model = (0..STEPS).fold(Model::new(), |model, number| model.step(step(number)));
    Script::new().model("long", model.step(text("That is all of it.")).cycle())
}

/// The marks that tell a provider what to keep move along with the conversation, and are no part of it.
fn without_marks(body: String) -> String {
    body.replace(r#","cache_control":{"type":"ephemeral"}"#, "")
}

fn common(one: &str, other: &str) -> usize {
    one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count()
}

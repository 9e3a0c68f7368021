//! Servers of tools that speak MCP over stdio: what a call through one costs, what sessions that share three of them take, and
//! that three which never answer hold up no start.
//!
//! Each is measured beside the same without MCP, in the same run: a tool in this process whose calls do nothing, and which are
//! written down before they run, as those of a server are. The servers are this program again, see [`serve`].

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::{StreamExt, TryStreamExt, stream};
use playhouse::House;
use playhouse::protocol::Prompt;
use playhouse::protocol::record::{Effect, TurnOutcome};
use playhouse::tools::{FunctionTool, ToolOutput};
use serde_json::{Value, json};

use crate::house::{Place, run};
use crate::idle::megabytes;
use crate::model::{Asked, MCP, NATIVE, NOTHING, Server, WALK};
use crate::report::Measurement;
use crate::{Effort, Result};

/// The argument that makes this program a server of tools. With [`SILENT`] behind it, one that never answers.
pub(crate) const ROLE: &str = "mcp-server";
const SILENT: &str = "silent";
/// The argument that makes this program an engine whose sessions call tools.
pub(crate) const SHARING: &str = "engine-with-mcp";
/// How many servers there are.
const SERVERS: usize = 3;
/// Turns of each kind, and the calls of each; the first ones are not counted, since they start servers.
const TURNS: usize = 20;
const CALLS: usize = 60;
const COLD: usize = 6;
/// Sessions that share the servers, and how many work at once.
const SESSIONS: usize = 1_000;
const AT_ONCE: usize = 32;
/// How long these are left alone before memory is looked at, in seconds: as in the case `memory`.
const SETTLE: usize = 40;
/// Sessions that start beside servers that never answer.
const STARTS: usize = 50;
/// Targets: in milliseconds, in MB, and as a ratio with room for noise.
const CALL_TARGET: f64 = 0.3;
const MEMORY_TARGET: f64 = 20.0;
const START_TARGET: f64 = 1.1;

/// What servers are asked for.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct NoArguments {}

pub(crate) fn measure(effort: Effort) -> Result<Vec<Measurement>> {
    let mut measurements = calls(effort)?;
    measurements.extend(memory(effort)?);
    measurements.extend(starts(effort)?);
    Ok(measurements)
}

/// Steps with a call that does nothing, in the process and through a server; the server alone; and what is left.
fn calls(effort: Effort) -> Result<Vec<Measurement>> {
    let turns = effort.of(TURNS);
    let place = Place::new()?;
    let model = Server::start(place.path(), CALLS)?;
    runtime()?.block_on(async {
        let house = start(&place, &model, "", Some(&[])).await?;
        for _ in 0..turns {
            for name in [NATIVE, MCP] {
                run(&place.session(&house, name).await?).await?;
            }
        }
        house.shutdown().await;
        Ok::<_, crate::Failure>(())
    })?;
    let asked = model.stop()?;
    let (mut native, mut mcp) = (Vec::new(), Vec::new());
    let mut turn = 0;
    for pair in asked.windows(2) {
        let [before, after] = pair else { continue };
        if after.step != before.step + 1 {
            turn += 1;
        } else if after.step > COLD {
            let samples = if turn % 2 == 0 { &mut native } else { &mut mcp };
            samples.push(after.arrived_us.saturating_sub(before.sent_us) as f64 / 1e3);
        }
    }
    let wanted = turns * (CALLS - COLD);
    if (native.len(), mcp.len(), turn + 1) != (wanted, wanted, 2 * turns) {
        return Err(format!("{} and {} steps of {turn} turns were seen", native.len(), mcp.len()).into());
    }
    let alone = alone(effort.of(TURNS) * CALLS)?;
    let native = Measurement::new("step with a call in the process, written down first", "ms", native);
    let mcp = Measurement::new("step with a call through MCP", "ms", mcp);
    let alone = Measurement::new("the server alone, over pipes", "ms", alone);
    let ratio = mcp.median() / native.median();
    let cost = mcp.median() - native.median() - alone.median();
    Ok(vec![
        native,
        mcp,
        alone,
        Measurement::new("step through MCP, beside that in the process", "times", vec![ratio]),
        Measurement::new("a call through MCP, over both", "ms", vec![cost]).under(CALL_TARGET),
    ])
}

/// What the server takes for an answer that a bare program reads, with both ways through pipes, in milliseconds.
fn alone(samples: usize) -> Result<Vec<f64>> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(ROLE)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let taken = exchange(&mut child, samples);
    drop(child.stdin.take());
    child.wait()?;
    taken
}

fn exchange(child: &mut Child, samples: usize) -> Result<Vec<f64>> {
    let mut input = child.stdin.take().ok_or("it has no input")?;
    let mut output = BufReader::new(child.stdout.take().ok_or("it has no output")?);
    let mut taken = Vec::with_capacity(samples);
    let mut line = String::new();
    for number in 0..samples {
        let request = json!({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": NOTHING, "arguments": {}}});
        let request = format!("{request}\n");
        line.clear();
        let begun = Instant::now();
        input.write_all(request.as_bytes())?;
        output.read_line(&mut line)?;
        taken.push(begun.elapsed().as_secs_f64() * 1e3);
        if !line.contains("\"result\"") {
            return Err(format!("the server said {line:?}").into());
        }
    }
    Ok(taken)
}

/// Memory of the engine with sessions that call three servers, beside as many that call a tool in the process.
fn memory(effort: Effort) -> Result<Vec<Measurement>> {
    let (sessions, settle) = (effort.of(SESSIONS), effort.of(SETTLE));
    let native = see(NATIVE, sessions, settle)?;
    let shared = see(MCP, sessions, settle)?;
    Ok(vec![
        Measurement::new(format!("engine, {sessions} sessions without MCP"), "MB", vec![native]),
        Measurement::new(format!("engine, {sessions} sessions with {SERVERS} servers"), "MB", vec![shared]),
        Measurement::new("grown by the servers", "MB", vec![shared - native]).under(MEMORY_TARGET),
    ])
}

fn see(name: &str, sessions: usize, settle: usize) -> Result<f64> {
    let output = Command::new(std::env::current_exe()?)
        .args([SHARING, name, &sessions.to_string(), &settle.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    match said.trim().parse() {
        Ok(seen) if output.status.success() => Ok(seen),
        _ => Err(format!("the engine with sessions said {said:?} and ended with {}", output.status).into()),
    }
}

/// Starts an engine, lets sessions work with one of the models, and says how much memory it has when they rest.
pub(crate) fn child(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let mut next = || arguments.next().ok_or("an argument is missing");
    let (name, sessions, settle) = (next()?, next()?.parse::<usize>()?, next()?.parse()?);
    let place = Place::new()?;
    let model = Server::start(place.path(), SERVERS)?;
    let seen = runtime()?.block_on(async {
        let configuration = "[sessions]\nidle_after_ms = 86400000\nmax_live = 1000000\n";
        let servers = (name == MCP).then_some(&[][..]);
        let house = start(&place, &model, configuration, servers).await?;
        let work = stream::iter(0..sessions).map(|_| async {
            let session = place.session(&house, &name).await?;
            let ended = session.run(Prompt::text("Go.")).await?.ended;
            match ended.outcome {
                TurnOutcome::Completed => Ok(()),
                outcome => Err(format!("a turn ended {outcome}: {:?}", ended.error).into()),
            }
        });
        work.buffer_unordered(AT_ONCE).try_for_each(|()| async { Ok::<_, crate::Failure>(()) }).await?;
        tokio::time::sleep(Duration::from_secs(settle)).await;
        let seen = megabytes(&fs_err::read_to_string("/proc/self/smaps_rollup")?, &["Rss:"])?;
        house.shutdown().await;
        Ok::<_, crate::Failure>(seen)
    })?;
    model.stop()?;
    println!("{seen}");
    Ok(())
}

/// Starts of sessions beside servers that never answer, and without servers: from the wish for a session to its first request.
fn starts(effort: Effort) -> Result<Vec<Measurement>> {
    let count = effort.of(STARTS);
    let (mut with, mut without) =
        (first_requests(Some(&[SILENT]), count + 1)?, first_requests(None, count + 1)?);
    // The first session of an engine finds everything cold, and waits for lists that were never seen.
    let (first_with, first_without) = (with.remove(0), without.remove(0));
    let without = Measurement::new("session to its first request, no servers", "ms", without);
    let with = Measurement::new(format!("the same with {SERVERS} that never answer"), "ms", with);
    let ratio = with.median() / without.median();
    Ok(vec![
        without,
        with,
        Measurement::new("beside that without", "times", vec![ratio]).under(START_TARGET),
        Measurement::new("the first session of an engine, no servers", "ms", vec![first_without]),
        Measurement::new("the same with these, whose lists were never seen", "ms", vec![first_with]),
    ])
}

/// What sessions take to their first requests, one after the other, in milliseconds.
fn first_requests(servers: Option<&[&str]>, count: usize) -> Result<Vec<f64>> {
    let place = Place::new()?;
    let model = Server::start(place.path(), 1)?;
    let begun = runtime()?.block_on(async {
        let house = start(&place, &model, "", servers).await?;
        let mut begun = Vec::with_capacity(count);
        for _ in 0..count {
            begun.push(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros() as u64);
            run(&place.session(&house, WALK).await?).await?;
        }
        house.shutdown().await;
        Ok::<_, crate::Failure>(begun)
    })?;
    let asked = model.stop()?;
    let first = |begun: &u64| asked.iter().find(|asked| asked.arrived_us > *begun);
    let taken = |begun: &u64| first(begun).map(|Asked { arrived_us, .. }| (arrived_us - begun) as f64 / 1e3);
    let taken: Vec<f64> = begun.iter().filter_map(taken).collect();
    if taken.len() != count {
        return Err(format!("{} of {count} sessions asked the model", taken.len()).into());
    }
    Ok(taken)
}

/// An engine with a tool that does nothing, and servers that get these arguments where there are any.
async fn start(place: &Place, model: &Server, more: &str, servers: Option<&[&str]>) -> Result<House> {
    let program = std::env::current_exe()?.to_string_lossy().into_owned();
    let mut configuration = format!("{more}\n[permissions]\n\"*\" = \"allow\"\nmcp = \"allow\"\n");
    for (number, arguments) in std::iter::repeat_n(servers, SERVERS).flatten().enumerate() {
        let arguments = [&[ROLE], arguments].concat();
        write!(configuration, "[mcp.s{number}]\ncommand = {program:?}\nargs = {arguments:?}\n")?;
    }
    let nothing = FunctionTool::new(NOTHING, "Does nothing.", |NoArguments {}, _| async {
        Ok(ToolOutput::text("done".to_owned()))
    });
    Ok(House::builder(place.settings(model, "anthropic", &configuration)?)
        .data(place.path().join("data"))
        .tool(Arc::new(nothing.effect(Effect::Workspace)))
        .start()
        .await?)
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// Answers on the standard output what comes on the standard input, until that ends: a server with the tool [`NOTHING`].
pub(crate) fn serve(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let silent = arguments.next().is_some_and(|argument| argument == SILENT);
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?)?;
        let id = &message["id"];
        if silent || id.is_null() {
            continue;
        }
        let result = match message["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "bench", "version": "1"},
            }),
            Some("tools/list") => json!({"tools": [{"name": NOTHING, "inputSchema": {"type": "object"}}]}),
            Some("tools/call") => json!({"content": [{"type": "text", "text": "done"}]}),
            _ => json!({}),
        };
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": result});
        output.write_all(format!("{answer}\n").as_bytes())?;
        output.flush()?;
    }
    Ok(())
}

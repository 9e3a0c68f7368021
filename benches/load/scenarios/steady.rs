//! Turns as sessions have them all day: five calls of `read`, and tokens at a pace. All begin at once; their steps have other lengths
//! in each session, as answers have.

use std::time::{Duration, Instant};

use crate::floor;
use crate::histogram::share;
use crate::model::{Asked, CALLS, FLOOR, STEADY, Scripted, TIMES, TURN, overheads, steady};
use crate::process::{Used, used};
use crate::report::{Row, Rows};
use crate::watch::{Shared, Watch, until};
use crate::who::Who;
use crate::{Options, Result};

/// Sessions of which the goals of the latency and of the time speak.
const MANY: usize = 1_000;
/// Beyond these a multiple of the forwarder's time is allowed.
const FLOORED: f64 = 1.5;

pub(crate) async fn run(options: &Options, who: &Who, sessions: usize) -> Result<Vec<Row>> {
    let mut model = Scripted::start(options, 1, 1)?;
    let mut rows = Rows::of(format!("steady, {sessions} sessions"));
    let target = who.start(options, &model).await?;
    let watch = Watch::shared();
    watch.borrow_mut().of_a_turn = Some(TIMES);
    let started = target.resident()?;
    let ids = target.sessions(&watch, sessions, STEADY).await?;
    let ready = target.resident()?;
    let (before, mine, models) = (target.used()?, used(std::process::id())?, used(model.process.id())?);
    let (count, flushes) = (model.count()?, target.flushes().await);

    let begun = Instant::now();
    target.prompt_each(&watch, 0, &ids, steady).await?;
    let patience = Duration::from_secs_f64(60.0 + 10.0 * TURN as f64 / options.rate);
    let is_over = until(&watch, patience, |watch| watch.busy == 0).await;
    let wall = begun.elapsed().as_secs_f64();

    let spent = target.used()?.since(before);
    let (mine, models) = (used(std::process::id())?.since(mine), used(model.process.id())?.since(models));
    let flushes = target.flushes().await - flushes;
    if !is_over {
        let busy = watch.borrow().busy;
        watch.borrow_mut().fail(format!("{busy} turns did not come to an end"));
    }
    let asked = model.asked(count)?;
    let turns: Vec<&Asked> = asked.iter().filter(|asked| is_steady(asked)).collect();
    let cut = turns.iter().filter(|asked| !asked.is_complete).count();
    if cut > 0 {
        watch.borrow_mut().fail(format!("{cut} answers were not read to their ends"));
    }
    let tokens = turns.iter().map(|asked| asked.tokens).sum::<u64>() as f64;
    // As the model paces them.
    let ideal = tokens / sessions as f64 / options.rate;
    let said = Said { sessions, tokens, wall, ideal };

    let floored = who.is_engine().then(|| floor::to_the_end(&model, sessions, FLOOR, Some(TURN), patience));
    let floored = match floored {
        Some(floored) => Some(floored.await?),
        None => None,
    };
    pace(&mut rows, &said, options, &watch);
    if let Some(floored) = &floored {
        let bare = floored.wall * options.rate / TURN as f64;
        rows.add("time to the end, bare forwarder", "times the ideal", bare);
        if sessions > MANY {
            rows.goal("time to the end beside the forwarder's", "times", wall / ideal / bare, FLOORED);
        }
    }
    latency(&mut rows, sessions, &watch, floored.as_ref());
    begins(&mut rows, &turns);
    steps(&mut rows, sessions, &turns);
    cost(&mut rows, &said, spent, flushes);
    if let Some(floored) = &floored {
        let bare = floored.cost((sessions as u64 * TURN) as f64);
        rows.add("the same of the bare forwarder, which makes no steps", "µs a token", bare);
    }
    rows.add("memory with one client for each session, before any prompt", "MB", ready);
    rows.add("memory, peak", "MB", target.peak()?);
    rows.add("memory of a session that waits", "KB", (ready - started) * 1e3 / sessions as f64);
    rows.add("processors used by the server", "", spent.own / 1e6 / wall);
    rows.add("processors used by the model", "", models.own / 1e6 / wall);
    rows.add("processors used by the clients", "", mine.own / 1e6 / wall);
    rows.add("processor time of the model", "µs a token", models.own / said.tokens);
    rows.add("processor time of the clients", "µs a token", mine.own / said.tokens);
    Ok(rows.rows)
}

/// What was said, and how long it took.
struct Said {
    sessions: usize,
    tokens: f64,
    wall: f64,
    ideal: f64,
}

fn pace(rows: &mut Rows, said: &Said, options: &Options, watch: &Shared) {
    let watch = watch.borrow();
    let Said { sessions, tokens, wall, ideal } = *said;
    for failure in watch.failures.iter().take(3) {
        println!("{failure}");
    }
    rows.goal("errors", "", watch.failed as f64, 0.0);
    rows.add("tokens wanted", "a second", sessions as f64 * options.rate);
    rows.add("tokens delivered", "a second", tokens / wall);
    rows.put("time to the end", "times the ideal", wall / ideal, (sessions == MANY).then_some(1.1));
}

fn latency(rows: &mut Rows, sessions: usize, watch: &Shared, floored: Option<&floor::Floor>) {
    let watch = watch.borrow();
    rows.add("event latency, median", "ms", watch.latency.at(0.5));
    rows.put("event latency, 99 %", "ms", watch.latency.at(0.99), (sessions == MANY).then_some(50.0));
    if let Some(floored) = floored {
        rows.add("event latency, 99 %, bare forwarder", "ms", floored.watch.borrow().latency.at(0.99));
    }
    rows.add("tokens of an event", "", watch.tokens as f64 / watch.deltas as f64);
    rows.add("tokens that a client reads at once", "", watch.tokens as f64 / watch.reads as f64);
    if let Some(floored) = floored {
        rows.add("tokens that a client of the forwarder reads at once", "", floored.at_once());
    }
}

fn is_steady(asked: &Asked) -> bool {
    asked.model.as_ref().is_some_and(|model| model.starts_with(STEADY))
}

/// How long it takes until every turn has asked its model: what comes before that is a prompt's way into a new session.
fn begins(rows: &mut Rows, turns: &[&Asked]) {
    let firsts = || turns.iter().filter(|asked| asked.step == Some(0)).map(|asked| asked.arrived);
    if let (Some(first), Some(last)) = (firsts().min(), firsts().max()) {
        rows.add("from the first turn's first request to the last turn's", "ms", (last - first) as f64 / 1e3);
    }
}

fn steps(rows: &mut Rows, sessions: usize, turns: &[&Asked]) {
    let mut times: Vec<f64> = overheads(turns.iter().copied()).into_iter().map(|(_, time)| time).collect();
    times.sort_by(f64::total_cmp);
    rows.add("step overhead, median", "ms", share(&times, 0.5));
    rows.add("step overhead, 95 %", "ms", share(&times, 0.95));
    rows.put("step overhead, 99 %", "ms", share(&times, 0.99), (sessions == 500).then_some(5.0));
}

fn cost(rows: &mut Rows, said: &Said, spent: Used, flushes: f64) {
    let turns = said.sessions as f64;
    rows.add("processor time of the server, steps among it", "µs a token", spent.own / said.tokens);
    rows.add("processor time of its children", "µs a step", spent.children / turns / (CALLS as f64 + 1.0));
    rows.add("handed to files and sockets by a turn", "KB", spent.handed / turns / 1e3);
    rows.add("written to disk by a turn", "KB", spent.written / turns / 1e3);
    rows.add("flushes", "a second", flushes / said.wall);
}

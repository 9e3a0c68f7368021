//! Long answers: many at a pace, and one as fast as it goes. Beside each the bare forwarder does the same.

use std::time::{Duration, Instant};

use crate::floor;
use crate::model::{BURST, CLOCK, Scripted};
use crate::report::{Row, Rows};
use crate::watch::{Watch, until};
use crate::who::Who;
use crate::{Options, Result};

/// For how long paced answers are looked at, and after what time.
const WINDOW: Duration = Duration::from_secs(8);
const WARM_UP: Duration = Duration::from_secs(2);
/// Tokens of the answer without a pace.
const LONG: usize = 200_000;
/// How long that may take.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) async fn run(options: &Options, who: &Who, sessions: usize) -> Result<Vec<Row>> {
    let mut rows = paced(options, who, sessions).await?;
    rows.extend(full_speed(options, who).await?);
    Ok(rows)
}

async fn paced(options: &Options, who: &Who, sessions: usize) -> Result<Vec<Row>> {
    let model = Scripted::start(options, 1, 1)?;
    let mut rows = Rows::of(format!("stream, {sessions} sessions at {} tokens a second", options.rate));
    let (window, warm_up) = match options.bench {
        true => (WINDOW, WARM_UP),
        false => (WINDOW / 8, WARM_UP / 8),
    };
    let bare = match who.is_engine() {
        true => Some(floor::for_a_while(&model, sessions, CLOCK, warm_up, window).await?),
        false => None,
    };
    let target = who.start(options, &model).await?;
    let watch = Watch::shared();
    let ids = target.sessions(&watch, sessions, CLOCK).await?;
    target.prompt_all(&watch, 0, &ids, CLOCK).await?;
    // From here on all of them speak.
    until(&watch, PATIENCE, |watch| watch.sessions.iter().all(|seen| seen.tokens > 0)).await;
    tokio::time::sleep(warm_up).await;
    watch.borrow_mut().look();
    let (before, begun) = (target.used()?, Instant::now());
    tokio::time::sleep(window).await;
    let (spent, wall) = (target.used()?.since(before), begun.elapsed().as_secs_f64());

    let watch = watch.borrow();
    if let Some(failure) = watch.failures.first() {
        println!("{failure}");
    }
    let tokens = watch.tokens as f64;
    rows.goal("errors", "", watch.failed as f64, 0.0);
    rows.add("tokens wanted", "a second", sessions as f64 * options.rate);
    rows.add("tokens delivered", "a second", tokens / wall);
    rows.add("event latency, median", "ms", watch.latency.at(0.5));
    rows.add("event latency, 99 %", "ms", watch.latency.at(0.99));
    rows.add("processor time of the server", "µs a token", spent.own / tokens);
    rows.add("tokens of an event", "", tokens / watch.deltas as f64);
    rows.add("tokens that a client reads at once", "", tokens / watch.reads as f64);
    rows.add("bytes to a client", "a token", watch.bytes as f64 / tokens);
    if let Some(bare) = bare {
        let seen = bare.watch.borrow();
        let cost = bare.cost(seen.tokens as f64);
        rows.add("event latency, 99 %, bare forwarder", "ms", seen.latency.at(0.99));
        rows.add("processor time of the bare forwarder", "µs a token", cost);
        rows.add("tokens that a client of the forwarder reads at once", "", bare.at_once());
        rows.goal("processor time beside the forwarder's", "times", spent.own / tokens / cost, 2.0);
    }
    Ok(rows.rows)
}

async fn full_speed(options: &Options, who: &Who) -> Result<Vec<Row>> {
    let tokens = options.of(LONG) as f64;
    let model = Scripted::start(options, 1, tokens as u64)?;
    let mut rows = Rows::of("stream, one session at full speed");
    let bare = match who.is_engine() {
        true => Some(floor::to_the_end(&model, 1, BURST, None, PATIENCE).await?),
        false => None,
    };
    let target = who.start(options, &model).await?;
    let watch = Watch::shared();
    let ids = target.sessions(&watch, 1, BURST).await?;
    let (before, begun) = (target.used()?, Instant::now());
    target.prompt_all(&watch, 0, &ids, BURST).await?;
    if !until(&watch, PATIENCE, |watch| watch.busy == 0).await {
        watch.borrow_mut().fail("the answer did not come to an end".to_owned());
    }
    let (spent, wall) = (target.used()?.since(before), begun.elapsed().as_secs_f64());
    let watch = watch.borrow();
    rows.goal("errors", "", watch.failed as f64, 0.0);
    rows.add("tokens delivered", "a second", tokens / wall);
    rows.goal("processor time of the server", "µs a token", spent.own / tokens, 3.0);
    rows.add("tokens of an event", "", tokens / watch.deltas as f64);
    rows.add("tokens that a client reads at once", "", tokens / watch.reads as f64);
    rows.add("bytes to a client", "a token", watch.bytes as f64 / tokens);
    if let Some(bare) = bare {
        rows.add("processor time of the bare forwarder", "µs a token", bare.cost(tokens));
        rows.add("tokens delivered, bare forwarder", "a second", tokens / bare.wall);
    }
    Ok(rows.rows)
}

//! From the start of the program until it is ready, and until what was cut off goes on.

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::old_session;
use crate::fill::copies;
use crate::histogram::share;
use crate::model::{CLOCK, Scripted};
use crate::place::Place;
use crate::report::{Row, Rows};
use crate::target::Wire;
use crate::watch::{Watch, until};
use crate::who::{Who, place, serve};
use crate::{Options, Result};

/// How often a start is timed.
const TIMES: usize = 10;
/// Sessions that were cut off, for each tenth of those in the full store.
const PART: usize = 10;
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the server is left alone before it is looked at.
const SETTLE: Duration = Duration::from_millis(500);

pub(crate) async fn run(options: &Options, who: &Who, sessions: usize) -> Result<Vec<Row>> {
    let mut model = Scripted::start(options, 1, 1)?;
    let mut rows = Rows::of(format!("start, {sessions} sessions"));
    let (mut times, mut sizes, mut own) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.of(TIMES).min(if who.is_engine() { TIMES } else { 3 }) {
        let begun = Instant::now();
        let target = who.start(options, &model).await?;
        let path = if who.is_engine() { "/readyz" } else { "/session" };
        target.connect().await?.ask("GET", path, None).await?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        tokio::time::sleep(SETTLE).await;
        sizes.push(target.resident()?);
        own.push(target.own_memory()?);
    }
    times.sort_by(f64::total_cmp);
    sizes.sort_by(f64::total_cmp);
    own.sort_by(f64::total_cmp);
    rows.goal("ready, empty store, median", "ms", share(&times, 0.5), 50.0);
    rows.goal("memory, started", "MB", share(&sizes, 0.5), 20.0);
    rows.add("memory, started, without pages of the program's file", "MB", share(&own, 0.5));
    if !matches!(who, Who::Engine(_)) {
        return Ok(rows.rows);
    }

    let full = Rc::new(place(options, &model, "")?);
    let old = old_session(&full, 1).await?;
    copies(&full, &old, sessions)?;
    let (mut times, mut own) = (Vec::new(), Vec::new());
    for _ in 0..options.of(TIMES) {
        let (time, memory) = ready(&full).await?;
        times.push(time);
        own.push(memory);
    }
    times.sort_by(f64::total_cmp);
    own.sort_by(f64::total_cmp);
    rows.goal(format!("ready, {sessions} sessions in the store, median"), "ms", share(&times, 0.5), 200.0);
    rows.add("memory, started there, without pages of the program's file", "MB", share(&own, 0.5));
    resumed(options, &mut rows, &mut model, (sessions / PART).max(1)).await?;
    Ok(rows.rows)
}

/// Milliseconds until a server is ready in this place, and the megabytes of its own that it takes then.
async fn ready(place: &Rc<Place>) -> Result<(f64, f64)> {
    let begun = Instant::now();
    let target = serve(Wire::Native, Rc::clone(place))?;
    let (status, _) = target.connect().await?.ask("GET", "/readyz", None).await?;
    let time = begun.elapsed().as_secs_f64() * 1e3;
    if status != 200 {
        return Err(format!("a server that listens was not ready: {status}").into());
    }
    tokio::time::sleep(SETTLE).await;
    Ok((time, target.own_memory()?))
}

/// Kills a server in the middle of so many turns, and sees how fast the next one goes on with them.
async fn resumed(options: &Options, rows: &mut Rows, model: &mut Scripted, count: usize) -> Result<()> {
    let place = Rc::new(place(options, model, "")?);
    let target = serve(Wire::Native, Rc::clone(&place))?;
    let watch = Watch::shared();
    let ids = target.sessions(&watch, count, CLOCK).await?;
    target.prompt_all(&watch, 0, &ids, CLOCK).await?;
    let speaking = |watch: &Watch| watch.sessions.iter().all(|seen| seen.tokens > 0);
    if !until(&watch, PATIENCE, speaking).await {
        return Err("not all sessions speak that are to be cut off".into());
    }
    // By a signal that cannot be handled, unless a profiler wants to hear of the end (`--under`).
    drop(target);
    let before = model.count()?;
    let begun = Instant::now();
    let target = serve(Wire::Native, place)?;
    rows.add(format!("ready, {count} turns cut off"), "ms", begun.elapsed().as_secs_f64() * 1e3);
    while model.count()? < before + count as u64 {
        if begun.elapsed() > PATIENCE {
            let asked = model.count()? - before;
            return Err(format!("{asked} of {count} turns went on").into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    rows.goal(format!("{count} turns that were cut off go on"), "s", begun.elapsed().as_secs_f64(), 2.0);
    rows.add("memory, peak meanwhile", "MB", target.peak()?);
    Ok(())
}

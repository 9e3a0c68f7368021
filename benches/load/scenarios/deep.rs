//! One session that goes far: what a step costs at its beginning and at its end.

use std::os::unix::fs::FileExt as _;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::histogram::share;
use crate::model::{SHORT, Scripted, WALK, overheads};
use crate::process::Used;
use crate::report::{Row, Rows};
use crate::target::Target;
use crate::watch::{Shared, Watch, until};
use crate::who::Who;
use crate::{Options, Result};

/// Steps beside a peer, which takes half a second for each in the end.
const BESIDE_PEER: usize = 50;
/// Steps around a place whose times are taken.
const AROUND: usize = 20;
/// How long a step may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Goals for the median step, in milliseconds: without TLS, and with it. The time of the TLS proxy in the model's process is included.
const PLAIN: f64 = 0.5;
const OVER_TLS: f64 = 1.2;
/// By how much a step may grow from its 10th to the last.
const GROWTH: f64 = 1.5;

pub(crate) async fn run(options: &Options, who: &Who) -> Result<Vec<Row>> {
    let steps =
        if options.peer.is_some() { options.steps.min(BESIDE_PEER) } else { options.of(options.steps) };
    let mut model = Scripted::start(options, steps, 1)?;
    let over = if options.tls { ", over TLS" } else { "" };
    let mut rows = Rows::of(format!("deep, {steps} steps{over}"));
    let target = who.start(options, &model).await?;
    let watch = Watch::shared();
    let ids = target.sessions(&watch, 1, WALK).await?;
    target.prompt_all(&watch, 0, &ids, WALK).await?;
    // What a step costs at the beginning, and at the end.
    let window = (steps / 4).clamp(1, 200);
    let early = (steps / 100).max(1);
    let from = looked_at(&target, &watch, early).await?;
    let begin = looked_at(&target, &watch, early + window).await?.since(from);
    // What is written comes in portions, which not every window has.
    let half = looked_at(&target, &watch, steps / 2).await?;
    let before = looked_at(&target, &watch, steps.saturating_sub(window + 1)).await?;
    let last = looked_at(&target, &watch, steps.saturating_sub(1)).await?;
    let (end, first_half, second_half) = (last.since(before), half.since(from), last.since(half));
    let patience = PATIENCE * u32::try_from(steps)?;
    if !until(&watch, patience, |watch| watch.busy == 0 || watch.failed > 0).await {
        watch.borrow_mut().fail("the turn did not come to an end".to_owned());
    }
    let asked = model.asked(0)?;
    let all = overheads(asked.iter().filter(|asked| asked.model.as_deref() == Some(WALK)));
    let around = |step: usize| {
        let near = all
            .iter()
            .filter(|(at, _)| at.abs_diff(step) <= AROUND / 2 || *at + AROUND > step && step == steps);
        let mut times: Vec<f64> = near.map(|(_, time)| *time).collect();
        times.sort_by(f64::total_cmp);
        share(&times, 0.5)
    };
    let mut times: Vec<f64> = all.iter().map(|(_, time)| *time).collect();
    times.sort_by(f64::total_cmp);
    for failure in watch.borrow().failures.iter().take(3) {
        println!("{failure}");
    }
    rows.goal("errors", "", watch.borrow().failed as f64, 0.0);
    rows.add("steps seen by the model", "", all.len() as f64);
    rows.goal("step overhead, median", "ms", share(&times, 0.5), if options.tls { OVER_TLS } else { PLAIN });
    rows.add("step overhead, 95 %", "ms", share(&times, 0.95));
    rows.goal("step overhead, 99 %", "ms", share(&times, 0.99), 2.0);
    let first = around(10.min(steps));
    rows.add("step overhead around step 10", "ms", first);
    if steps > 100 {
        rows.add("step overhead around step 100", "ms", around(100));
    }
    rows.goal(format!("step overhead at step {steps}"), "times that at 10", around(steps) / first, GROWTH);
    rows.goal("processor time of a step with a `read`, early", "µs", begin.own, 500.0);
    rows.goal("processor time of a step, late", "times the early", end.own / begin.own, GROWTH);
    let (early, late) = (first_half.written, second_half.written);
    rows.add("written to disk by a step of the first half", "KB", early / 1e3);
    rows.goal("written to disk by a step of the second half", "times the first half's", late / early, GROWTH);
    rows.add("handed to files and sockets by a step, early", "KB", begin.handed / 1e3);
    rows.add("handed to files and sockets by a step, late", "KB", end.handed / 1e3);
    rows.add("request at the end", "KB", asked.last().map_or(f64::NAN, |asked| asked.bytes as f64 / 1e3));
    rows.add("memory, peak", "MB", target.peak()?);
    one_step(options, who, &mut rows, &target, &watch, &ids[0]).await?;
    if who.is_engine() && options.server.is_none() {
        rows.add("a flush of that disk by itself, median", "ms", flush(options)?);
    }
    Ok(rows.rows)
}

/// How long the disk takes for what a step waits for: a few thousand bytes are written over and flushed, a while after the time before.
/// In milliseconds, the median.
fn flush(options: &Options) -> Result<f64> {
    const BYTES: usize = 3_000;
    let (times, folder) = (options.of(300), options.folder()?);
    let file = fs_err::File::create(folder.path().join("flushed"))?;
    let file = file.file();
    file.write_all_at(&vec![1; BYTES * times], 0)?;
    file.sync_all()?;
    let mut took = Vec::with_capacity(times);
    for time in 0..times {
        sleep(Duration::from_millis(1));
        let began = Instant::now();
        file.write_all_at(&[2; BYTES], (time * BYTES) as u64)?;
        file.sync_data()?;
        took.push(began.elapsed().as_secs_f64() * 1e3);
    }
    took.sort_by(f64::total_cmp);
    Ok(share(&took, 0.5))
}

/// What was used until a step.
#[derive(Clone, Copy)]
struct At {
    step: u64,
    used: Used,
}

impl At {
    /// What a step used since then.
    fn since(self, before: Self) -> Used {
        let (used, steps) = (self.used.since(before.used), (self.step - before.step).max(1) as f64);
        Used {
            own: used.own / steps,
            children: used.children / steps,
            handed: used.handed / steps,
            written: used.written / steps,
        }
    }
}

/// Waits for so many steps.
async fn looked_at(target: &Target, watch: &Shared, step: usize) -> Result<At> {
    let reached = move |watch: &Watch| watch.sessions[0].steps >= step as u64 || watch.failed > 0;
    until(watch, PATIENCE * u32::try_from(step.max(1))?, reached).await;
    Ok(At { used: target.used()?, step: watch.borrow().sessions[0].steps })
}

/// Turns of one step in the session that has become old.
async fn one_step(
    options: &Options,
    who: &Who,
    rows: &mut Rows,
    target: &Target,
    watch: &Shared,
    id: &str,
) -> Result<()> {
    let turns = options.of(100).min(if who.is_engine() { 100 } else { 10 });
    let mut connection = target.connect().await?;
    // The first one may be about the long turn before it.
    let mut before = target.used()?;
    for turn in 0..=turns {
        if turn == 1 {
            before = target.used()?;
        }
        watch.borrow_mut().begin(0);
        target.prompt(&mut connection, id, SHORT, &format!("Turn {turn}.")).await?;
        if !until(watch, PATIENCE, |watch| watch.busy == 0 || watch.failed > 0).await {
            return Err("a short turn did not come to an end".into());
        }
    }
    let used = target.used()?.since(before);
    rows.add("handed to files and sockets by a one-step turn now", "KB", used.handed / turns as f64 / 1e3);
    rows.goal("written to disk by a one-step turn now", "KB", used.written / turns as f64 / 1e3, 30.0);
    rows.add("processor time of a one-step turn now", "ms", used.own / turns as f64 / 1e3);
    Ok(())
}

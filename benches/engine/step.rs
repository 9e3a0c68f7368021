//! The overhead of a step: from the last byte of a model's answer to the first byte of the next request, with one `read`
//! of a small file between. Both times are the model's.
//!
//! Messages are counted as the model sees them: a prompt, then two for each step (the answer, and its results).

use crate::house::{Place, run};
use crate::model::{Asked, Server, WALK};
use crate::report::Measurement;
use crate::{Effort, Result};

/// Messages of a short history, and how many samples around it a session gives.
const SHORT: usize = 10;
const SHORT_SAMPLES: usize = 3;
/// Messages of a long history, and of one twice as long.
const LONG: [usize; 2] = [2_000, 4_000];
/// Samples before a long history's end.
const LONG_SAMPLES: usize = 60;
/// How many short sessions there are.
const SESSIONS: usize = 40;
/// Targets, in milliseconds and as a ratio.
const TARGET: f64 = 2.0;
const GROWTH: f64 = 1.5;

pub(crate) fn measure(effort: Effort) -> Result<Vec<Measurement>> {
    let short = overheads(SHORT / 2 + 1, effort.of(SESSIONS), SHORT_SAMPLES)?;
    let short = Measurement::new(format!("step overhead, {SHORT} messages"), "ms", short).under(TARGET);
    let growth = short.median() * GROWTH;
    let mut measurements = vec![short];
    for (index, messages) in LONG.into_iter().enumerate() {
        let steps = effort.of(messages / 2);
        let long = overheads(steps, 1, LONG_SAMPLES.min(steps))?;
        let long = Measurement::new(format!("step overhead, {} messages", 2 * steps), "ms", long);
        // The demand is for the first; the second shows where it goes.
        measurements.push(if index == 0 { long.under(growth) } else { long });
    }
    Ok(measurements)
}

/// The overheads of the last `samples` steps of turns of so many steps, in milliseconds.
fn overheads(steps: usize, sessions: usize, samples: usize) -> Result<Vec<f64>> {
    let place = Place::new()?;
    let server = Server::start(place.path(), steps)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let house = place.start(&server, "anthropic").await?;
        for _ in 0..sessions {
            let session = place.session(&house, WALK).await?;
            run(&session).await?;
        }
        house.shutdown().await;
        Ok::<_, crate::Failure>(())
    })?;
    let asked = server.stop()?;
    let gap = |pair: &[Asked]| match pair {
        [before, after] if after.step == before.step + 1 && after.step > steps.saturating_sub(samples) => {
            Some(after.arrived_us.saturating_sub(before.sent_us) as f64 / 1e3)
        }
        _ => None,
    };
    let overheads: Vec<f64> = asked.windows(2).filter_map(gap).collect();
    if overheads.len() != sessions * samples {
        return Err(format!("{} steps were seen instead of {}", overheads.len(), sessions * samples).into());
    }
    Ok(overheads)
}

//! Processor time of a token, from the model's socket to a subscriber in the process: all that this process does in a turn
//! whose answer has many tokens, its records and its log too, divided by their number.

use rustix::time::{ClockId, clock_gettime};

use crate::house::{Place, run};
use crate::model::{PACED, PACED_TOKENS, Server};
use crate::report::Measurement;
use crate::{Effort, Result};

/// Tokens of an answer at full speed.
const TOKENS: u64 = 20_000;
/// Answers that are measured.
const ANSWERS: usize = 30;
/// Answers before them.
const WARM_UP: usize = 3;
/// Target, in microseconds.
const TARGET: f64 = 3.0;

pub(crate) fn measure(effort: Effort) -> Result<Vec<Measurement>> {
    let full = format!("tokens-{TOKENS}");
    let mut measurements = Vec::new();
    for dialect in ["anthropic", "openai-chat"] {
        let samples = cost(dialect, &full, TOKENS, effort.of(ANSWERS))?;
        let name = format!("processor time of a token, {TOKENS} at full speed, {dialect}");
        measurements.push(Measurement::new(name, "µs", samples).under(TARGET));
    }
    let samples = cost("anthropic", PACED, PACED_TOKENS, effort.of(5))?;
    let name = "processor time of a token, 1,000 a second, anthropic";
    measurements.push(Measurement::new(name, "µs", samples));
    Ok(measurements)
}

/// Microseconds of processor time for each of an answer's tokens.
fn cost(dialect: &str, model: &str, tokens: u64, answers: usize) -> Result<Vec<f64>> {
    let place = Place::new()?;
    let server = Server::start(place.path(), 0)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let samples = runtime.block_on(async {
        let house = place.start(&server, dialect).await?;
        let mut samples = Vec::new();
        for answer in 0..WARM_UP + answers {
            let session = place.session(&house, model).await?;
            let before = processor_microseconds();
            // The subscriber is a task of its own, as a client's connection would be.
            tokio::spawn(async move { run(&session).await }).await??;
            if answer >= WARM_UP {
                samples.push((processor_microseconds() - before) / tokens as f64);
            }
        }
        house.shutdown().await;
        Ok::<_, crate::Failure>(samples)
    })?;
    server.stop()?;
    Ok(samples)
}

/// Processor time of this process, all threads, user and system.
fn processor_microseconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

//! One turn of a given length and nothing else, to be counted from outside:
//! `valgrind --tool=callgrind target/release/deps/engine-… --bench turn --steps 1000`. What a step costs is the difference between two
//! lengths, divided by theirs.

use std::time::Instant;

use fs_err as fs;

use crate::house::{Place, run};
use crate::model::{Server, WALK};
use crate::report::Measurement;
use crate::{Effort, Result};

pub(crate) fn measure(effort: Effort, steps: usize) -> Result<Vec<Measurement>> {
    let steps = effort.of(steps);
    let place = Place::new()?;
    let server = Server::start(place.path(), steps)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (processor, written, took) = runtime.block_on(async {
        let house = place.start(&server, "anthropic").await?;
        let session = place.session(&house, WALK).await?;
        let before = (processor()?, written()?, Instant::now());
        run(&session).await?;
        let after = (processor()?, written()?, Instant::now());
        house.shutdown().await;
        let took = (after.2 - before.2).as_secs_f64() * 1e6;
        Ok::<_, crate::Failure>((after.0 - before.0, after.1 - before.1, took))
    })?;
    drop(server.stop()?);
    let each = |total: f64| vec![total / steps as f64];
    Ok(vec![
        Measurement::new(format!("time of a step, mean of {steps}"), "µs", each(took)),
        Measurement::new(format!("processor time of a step, mean of {steps}"), "µs", each(processor)),
        Measurement::new(format!("written for a step, mean of {steps}"), "KB", each(written / 1e3)),
    ])
}

/// Processor time of this process so far, in microseconds, to 10 ms: from a file, since valgrind has no other clock for it.
fn processor() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // What comes before is the program's name, in parentheses.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks = fields.skip(11).take(2).map(str::parse).collect::<std::result::Result<Vec<f64>, _>>()?;
    Ok(ticks.iter().sum::<f64>() * 1e4)
}

/// Bytes that this process had written to disks so far.
fn written() -> Result<f64> {
    let counts = fs::read_to_string("/proc/self/io")?;
    let line = counts.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(line.ok_or("/proc/self/io does not say what was written")?.parse()?)
}

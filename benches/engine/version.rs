//! How long `playhouse --version` takes, from its start to its end.

use std::process::{Command, Stdio};
use std::time::Instant;

use crate::report::Measurement;
use crate::{Effort, Result};

pub(crate) fn measure(effort: Effort) -> Result<Vec<Measurement>> {
    let mut samples = Vec::new();
    for _ in 0..effort.of(100) {
        let begun = Instant::now();
        let status = Command::new(env!("CARGO_BIN_EXE_playhouse"))
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()?;
        samples.push(begun.elapsed().as_secs_f64() * 1e3);
        if !status.success() {
            return Err(format!("playhouse --version ended with {status}").into());
        }
    }
    Ok(vec![Measurement::new("`playhouse --version`", "ms", samples).under(10.0)])
}

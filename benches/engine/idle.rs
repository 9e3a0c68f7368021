//! How much memory an engine takes that embeds in a process and has a data directory, but no session.
//!
//! Linux only: the numbers are the kernel's (`/proc/PID/smaps_rollup`).

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use playhouse::House;
use playhouse::config::Settings;

use crate::report::Measurement;
use crate::{Effort, Result};

/// The argument that makes this program the idle one.
pub(crate) const ROLE: &str = "idle-engine";
/// How long the engine is left alone before it is looked at.
const SETTLE: Duration = Duration::from_millis(500);

/// Starts an engine, says so, and stays until its input ends.
pub(crate) fn child() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let data = tempfile::tempdir()?;
        let house = House::builder(Settings::load(None, &|_| None)?).data(data.path()).start().await?;
        tokio::time::sleep(SETTLE).await;
        println!("ready");
        std::io::stdout().flush()?;
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
        house.shutdown().await;
        Ok(())
    })
}

pub(crate) fn measure(effort: Effort) -> Result<Vec<Measurement>> {
    let (mut resident, mut shared_out, mut private) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..effort.of(5) {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(ROLE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let sizes = fs_err::read_to_string(format!("/proc/{}/smaps_rollup", child.id()));
        // Its input ends.
        drop(child.stdin.take());
        let status = child.wait()?;
        if line.trim() != "ready" || !status.success() {
            return Err(format!("the idle engine said {line:?} and ended with {status}").into());
        }
        let sizes = sizes?;
        resident.push(megabytes(&sizes, &["Rss:"])?);
        shared_out.push(megabytes(&sizes, &["Pss:"])?);
        private.push(megabytes(&sizes, &["Private_Clean:", "Private_Dirty:"])?);
    }
    Ok(vec![
        Measurement::new("idle engine, resident", "MB", resident).under(20.0),
        Measurement::new("idle engine, proportional", "MB", shared_out),
        Measurement::new("idle engine, private", "MB", private),
    ])
}

/// The sum of these fields, in millions of bytes.
pub(crate) fn megabytes(sizes: &str, fields: &[&str]) -> Result<f64> {
    let mut kilobytes = 0_u64;
    for field in fields {
        let line = sizes.lines().find_map(|line| line.strip_prefix(field));
        let size =
            line.and_then(|line| line.split_whitespace().next()).ok_or("smaps_rollup lacks a field")?;
        kilobytes += size.parse::<u64>()?;
    }
    Ok(kilobytes as f64 * 1024.0 / 1e6)
}

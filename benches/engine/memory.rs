//! How much memory sessions take: those that are in memory and rest, those that are only stored, and those that were there and
//! left.
//!
//! Each engine that is measured runs in a process of its own, which looks at itself before its sessions and when they rest.
//! Linux only: the numbers are the kernel's (`/proc/PID/smaps_rollup`).

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use playhouse::protocol::Prompt;
use playhouse::protocol::record::TurnOutcome;

use crate::house::Place;
use crate::idle::megabytes;
use crate::model::{Server, WALK};
use crate::report::Measurement;
use crate::{Effort, Result};

/// The argument that makes this program an engine with sessions.
pub(crate) const ROLE: &str = "engine-with-sessions";
/// Answers of the one turn of a session that works: with its prompt and the results of its calls these are ten messages.
const STEPS: usize = 4;
/// What is done at once.
const AT_ONCE: usize = 32;
/// How long sessions are left alone before it is looked at, in seconds: longer than the engine waits until it lets go of what
/// nobody needs that rests.
const SETTLE: usize = 40;

/// What an engine is measured with.
#[derive(Clone, Copy)]
struct Load {
    /// Sessions that work once and then rest.
    worked: usize,
    /// Sessions that are created and nothing else.
    stored: usize,
    /// When they leave memory, in milliseconds.
    idle_after: u64,
    /// How long they are left alone, in seconds.
    settle: usize,
}

/// In millions of bytes.
struct Seen {
    before: f64,
    after: f64,
}

pub(crate) fn measure(effort: Effort) -> Result<Vec<Measurement>> {
    const NEVER: u64 = 24 * 60 * 60 * 1_000;
    let (worked, settle) = (effort.of(1_000), effort.of(SETTLE));
    let live = see(Load { worked, stored: 0, idle_after: NEVER, settle })?;
    let left = see(Load { worked, stored: 0, idle_after: 1, settle })?;
    let stored = effort.of(100_000);
    let only_stored = see(Load { worked: 0, stored, idle_after: NEVER, settle })?;
    let all = see(Load { worked: effort.of(10_000), stored, idle_after: NEVER, settle })?;
    let each = |seen: &Seen, sessions: usize| (seen.after - seen.before) * 1e3 / sessions as f64;
    Ok(vec![
        Measurement::new("a live idle session with 10 messages", "kB", vec![each(&live, worked)]).under(40.0),
        Measurement::new("a session that left memory", "kB", vec![each(&left, worked)]),
        Measurement::new("a stored session that was never in memory", "kB", vec![each(&only_stored, stored)]),
        Measurement::new(
            format!("{} live and {stored} stored sessions", effort.of(10_000)),
            "MB",
            vec![all.after],
        )
        .under(500.0),
    ])
}

fn see(load: Load) -> Result<Seen> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(ROLE)
        .args([load.worked.to_string(), load.stored.to_string()])
        .args([load.idle_after.to_string(), load.settle.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    let status = child.wait()?;
    let numbers: Vec<f64> = line.split_whitespace().map(str::parse).collect::<std::result::Result<_, _>>()?;
    match numbers[..] {
        [before, after] if status.success() => Ok(Seen { before, after }),
        _ => Err(format!("the engine with sessions said {line:?} and ended with {status}").into()),
    }
}

/// Starts an engine, lets its sessions work, and says how much memory it had before and has afterwards.
pub(crate) fn child(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let mut number = || arguments.next().ok_or("a number is missing");
    let (worked, stored) = (number()?.parse()?, number()?.parse()?);
    let load = Load { worked, stored, idle_after: number()?.parse()?, settle: number()?.parse()? };
    let place = Place::new()?;
    let server = Server::start(place.path(), STEPS)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let config = format!("[sessions]\nidle_after_ms = {}\nmax_live = 1000000", load.idle_after);
    let seen = runtime.block_on(async {
        let house = place.start_with(&server, "anthropic", &config).await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let before = resident()?;
        let create = stream::iter(0..load.stored).map(|_| place.session(&house, WALK));
        create.buffer_unordered(AT_ONCE).try_for_each(|_| async { Ok(()) }).await?;
        let work = stream::iter(0..load.worked).map(|_| async {
            let session = place.session(&house, WALK).await?;
            let ended = session.run(Prompt::text("Go.")).await?.ended;
            match ended.outcome {
                TurnOutcome::Completed => Ok(()),
                outcome => Err(format!("a turn ended {outcome}: {:?}", ended.error).into()),
            }
        });
        work.buffer_unordered(AT_ONCE).try_for_each(|()| async { Ok::<_, crate::Failure>(()) }).await?;
        tokio::time::sleep(Duration::from_secs(load.settle as u64)).await;
        let seen = Seen { before, after: resident()? };
        house.shutdown().await;
        Ok::<_, crate::Failure>(seen)
    })?;
    server.stop()?;
    println!("{} {}", seen.before, seen.after);
    Ok(())
}

fn resident() -> Result<f64> {
    megabytes(&fs_err::read_to_string("/proc/self/smaps_rollup")?, &["Rss:"])
}

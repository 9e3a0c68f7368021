//! What a server holds that works for long: with the load of chaos, as slow as people are, and without kills. Every minute the
//! clients stop for a moment. When nothing is under way and every session sleeps, it is looked at how much memory, how many
//! descriptors, threads and processes there are: at the end not more than after the first minute, to a tenth.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fs_err as fs;
use tokio::time::sleep;

use crate::PATIENCE;
use crate::checker::processes;
use crate::client::fetch;
use crate::drain;
use crate::model::{Failure, Phase, World};
use crate::server::{Last, Running, begins};
use crate::stage::Stage;

/// A minute, where it is for long enough.
const MINUTE: Duration = Duration::from_secs(60);
/// How often it is looked, and how often at rest. What passes does not count there, as threads that pools keep for a while.
const LOOK: Duration = Duration::from_secs(1);
const LOOKS: u32 = 12;
/// Threads that start commands, as the kernel knows them: they live as long as the process does, and there are 64 at most.
const STARTERS: &str = "start-command";
/// What no session does that sleeps.
const AWAKE: [&str; 4] = ["idle", "running", "asking", "waking"];
/// One part in so many may be there more at the end, and so many of what is counted.
const PART: u64 = 10;
const FEW: u64 = 4;

/// What a server holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// In KiB.
    memory: u64,
    descriptors: u64,
    threads: u64,
    /// Its own one among them.
    processes: u64,
}

impl Held {
    fn of(world: &World, running: &mut Running) -> Result<Self, Failure> {
        if let Some(status) = running.ended() {
            return Err(Failure::new(
                "the server runs until it is told to end",
                format!("it ended: {status}"),
            ));
        }
        let place = PathBuf::from(format!("/proc/{}", running.id()));
        let status = fs::read_to_string(place.join("status")).unwrap();
        let field = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().next()?.parse().ok()).expect("the kernel says so")
        };
        Ok(Self {
            memory: field("VmRSS:"),
            descriptors: fs::read_dir(place.join("fd")).unwrap().count() as u64,
            threads: threads(&place),
            processes: processes(world).len() as u64,
        })
    }

    /// Of each what `choose` says.
    fn with(self, other: Self, choose: fn(u64, u64) -> u64) -> Self {
        Self {
            memory: choose(self.memory, other.memory),
            descriptors: choose(self.descriptors, other.descriptors),
            threads: choose(self.threads, other.threads),
            processes: choose(self.processes, other.processes),
        }
    }

    /// What is more than it was, by more than is allowed.
    fn more_than(self, before: Self) -> Option<Failure> {
        let each = [
            ("KiB of memory", before.memory, self.memory, 0),
            ("descriptors", before.descriptors, self.descriptors, FEW),
            ("threads", before.threads, self.threads, FEW),
            ("processes", before.processes, self.processes, 0),
        ];
        let more = each.into_iter().find(|(_, before, now, few)| *now > before + before / PART + few);
        more.map(|(what, before, now, _)| {
            let expected = format!("as many {what} at rest as after the first minute, {before}, to a tenth");
            Failure::new(expected, now.to_string())
        })
    }
}

/// Without those that stay for ever.
fn threads(process: &Path) -> u64 {
    let threads = fs::read_dir(process.join("task")).unwrap().flatten();
    let names = threads.map(|thread| fs::read_to_string(thread.path().join("comm")).unwrap_or_default());
    names.filter(|name| name.trim_end() != STARTERS).count() as u64
}

impl fmt::Display for Held {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, descriptors, threads, processes } = self;
        write!(out, "{:>9.1} {descriptors:>6} {threads:>7} {processes:>9}", *memory as f64 / 1024.0)
    }
}

/// Starts the server and looks at it, to the end of the load.
pub(crate) async fn reign(stage: &Stage) -> Result<Last, Failure> {
    let world = &stage.world;
    let mut running = Running::start(world, "");
    if !running.has_begun().await {
        return Err(begins(&mut running, "none"));
    }
    let began = Instant::now();
    let length = ((world.end - began) / 2).min(MINUTE);
    println!("                                  the most of the time                            at rest");
    println!(
        "time     prompts deleted |  MiB mem  files threads processes |  MiB mem  files threads processes sessions"
    );
    let mut at_rest: Vec<Held> = Vec::new();
    while world.phase() == Phase::Chaos {
        // Clients work for as long each time, however long it takes until they are through.
        let most = at_work(world, &mut running, Instant::now() + length).await?;
        let calm = world.load.write().await;
        let least = rest(stage, &mut running).await?;
        if Instant::now() >= world.end {
            world.enter(Phase::Draining);
        }
        drop(calm);
        let [prompts, deletions] = [&world.counters.prompts, &world.counters.deletions]
            .map(|counter| counter.load(std::sync::atomic::Ordering::Relaxed));
        let time = began.elapsed().as_secs();
        println!("{time:>5} s {prompts:>8} {deletions:>7} |{most} |{least} {:>8}", world.there());
        at_rest.push(least);
    }
    let (first, last) = (at_rest[0], at_rest[at_rest.len() - 1]);
    last.more_than(first).map_or(Ok(()), Err)?;
    Ok(Last::new(running))
}

/// The most of everything until then.
async fn at_work(world: &World, running: &mut Running, end: Instant) -> Result<Held, Failure> {
    let mut most = Held::of(world, running)?;
    while Instant::now() < end {
        world.failed()?;
        sleep(LOOK).await;
        most = most.with(Held::of(world, running)?, u64::max);
    }
    Ok(most)
}

/// The least of everything, when nothing is under way any more.
async fn rest(stage: &Stage, running: &mut Running) -> Result<Held, Failure> {
    let world = &stage.world;
    drain(world).await?;
    let began = Instant::now();
    loop {
        world.failed()?;
        let awake = awake(world).await?;
        // What commands left behind ends by itself.
        if awake.is_empty() && processes(world).len() == 1 {
            break;
        }
        if began.elapsed() > PATIENCE {
            return Err(Failure::new("only the server is left when nobody wants anything", awake));
        }
        sleep(LOOK).await;
    }
    let mut least = Held::of(world, running)?;
    for _ in 0..LOOKS {
        sleep(LOOK).await;
        least = least.with(Held::of(world, running)?, u64::min);
    }
    Ok(least)
}

/// What the server's metrics say of sessions that do not sleep, and of commands that run; empty where there are none.
async fn awake(world: &World) -> Result<String, Failure> {
    let answer = fetch(world, 0, "GET", "/metrics", None).await;
    let Ok((200, body)) = answer else {
        return Err(Failure::new("the server tells its metrics", format!("{answer:?}")));
    };
    let text = String::from_utf8_lossy(&body);
    let is_of_those = |line: &&str| {
        line.starts_with("playhouse_tool_processes ")
            || AWAKE.iter().any(|state| line.starts_with(&format!("playhouse_sessions{{state=\"{state}\"}}")))
    };
    let lines: Vec<&str> = text.lines().filter(is_of_those).collect();
    if lines.len() != AWAKE.len() + 1 {
        return Err(Failure::new("metrics of sessions and of their programs", text));
    }
    Ok(lines.into_iter().filter(|line| !line.ends_with(" 0")).collect::<Vec<_>>().join(", "))
}

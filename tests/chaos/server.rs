//! The lives of the server: started, killed at random or at a named place, and started again on the same data.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fs_err as fs;
use playhouse::store::fail::VARIABLE;
use rustix::process::{Pid, Signal, kill_process};

use crate::model::{Counters, Failure, Phase, World, count};
use crate::plan::Life;
use crate::stage::{Stage, playhouse};

/// How long a server may take to begin, to end, and to leave no child behind. Far longer than it takes.
const BEGIN: Duration = Duration::from_secs(60);
const END: Duration = Duration::from_secs(60);
/// A shorter life may end before the server has begun.
const SHORT: Duration = Duration::from_millis(500);
/// How often it is looked whether a process has ended.
const LOOK: Duration = Duration::from_millis(10);

/// A server that runs. It is killed with this.
pub(crate) struct Running {
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

impl Running {
    pub(crate) fn start(world: &World, fail: &str) -> Self {
        let mut command = playhouse(world);
        command.args(["serve", "--sandbox", "off", "--port", &world.address.port().to_string()]);
        command.arg("--root").arg(world.place.join("work"));
        command.env("PLAYHOUSE_LOG", "warn,playhouse=info,playhouse_server=warn").env("NO_COLOR", "1");
        if !fail.is_empty() {
            command.env(VARIABLE, fail);
        }
        let log = fs::OpenOptions::new().create(true).append(true).open(world.log()).unwrap();
        let log = log.into_parts().0;
        use std::io::Write as _;
        writeln!(&log, "--- life {} {fail}", world.counters.lives.load(std::sync::atomic::Ordering::Relaxed))
            .unwrap();
        count(&world.counters.lives);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        Self { child: command.spawn().unwrap() }
    }

    /// Whether it says where it listens; one that ends before does not.
    pub(crate) async fn has_begun(&mut self) -> bool {
        let stdout = self.child.stdout.take().unwrap();
        let line = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(stdout).read_line(&mut line).map(|_| line)
        });
        let line = tokio::time::timeout(BEGIN, line).await;
        matches!(line, Ok(Ok(Ok(line))) if line.starts_with("opencode server listening"))
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(i32::try_from(self.id()).unwrap()).unwrap();
        // One that ended a moment ago cannot be told anything.
        let _ = kill_process(id, signal);
    }

    /// Kills it.
    pub(crate) fn end(&self) {
        self.signal(Signal::KILL);
    }

    /// The signal or exit code with which it ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits until it ended, or for so long.
    async fn lives(&mut self, time: Duration) -> Option<std::process::ExitStatus> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            if began.elapsed() >= time {
                return None;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// A server that nothing kills any more.
pub(crate) struct Last {
    running: std::cell::RefCell<Running>,
}

impl Last {
    pub(crate) fn new(running: Running) -> Self {
        Self { running: std::cell::RefCell::new(running) }
    }

    /// Kills it.
    pub(crate) fn end(&self) {
        self.running.borrow().end();
    }

    /// Tells it to end, and waits until it did, in good order.
    pub(crate) fn end_in_good_order(&self) -> Result<(), Failure> {
        let mut running = self.running.borrow_mut();
        running.signal(Signal::TERM);
        let began = Instant::now();
        loop {
            match running.ended() {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    return Err(Failure::new("the server ends with exit code 0", status.to_string()));
                }
                None if began.elapsed() > END => {
                    return Err(Failure::new(format!("the server ends within {END:?}"), "it still runs"));
                }
                None => std::thread::sleep(LOOK),
            }
        }
    }
}

/// Starts servers and kills them, to the end of the chaos; then starts the last one, which nothing kills.
pub(crate) async fn reign(stage: &Stage) -> Result<Last, Failure> {
    let world = &stage.world;
    let mut number = 0;
    while Instant::now() < world.end {
        world.failed()?;
        let life = world.plan.life(number);
        live(world, &life).await?;
        tokio::time::sleep(life.away).await;
        number += 1;
    }
    world.enter(Phase::Draining);
    let mut running = Running::start(world, "");
    if !running.has_begun().await {
        return Err(begins(&mut running, "none"));
    }
    Ok(Last::new(running))
}

/// It did not begin.
pub(crate) fn begins(running: &mut Running, fail: &str) -> Failure {
    let ended =
        running.ended().map_or_else(|| "it runs and says nothing".to_owned(), |status| status.to_string());
    Failure::new(format!("a server begins on what the ones before left (fail points: {fail:?})"), ended)
}

async fn live(world: &Arc<World>, life: &Life) -> Result<(), Failure> {
    let mut running = Running::start(world, &life.fail);
    let started = Instant::now();
    if life.after > SHORT && !running.has_begun().await && life.fail.is_empty() {
        return Err(begins(&mut running, &life.fail));
    }
    let left = |from: Instant| life.after.saturating_sub(from.elapsed());
    let ended = match life.compacts {
        None => running.lives(left(started)).await,
        Some(at) => match running.lives(at.min(left(started))).await {
            Some(status) => Some(status),
            None => {
                let _compacting = Compacting::start(world);
                running.lives(left(started)).await
            }
        },
    };
    if let Some(status) = ended {
        use std::os::unix::process::ExitStatusExt as _;
        let killed_itself = status.signal() == Some(9) && life.fail.contains("=kill@");
        // A store that cannot be opened is a reason to end.
        let refused = !life.fail.contains("=kill@") && !life.fail.is_empty() && status.code().is_some();
        if !killed_itself && !refused {
            return Err(Failure::new("the server runs until it is killed", format!("it ended: {status}")));
        }
        count_point(world, life);
        return Ok(());
    }
    running.end();
    count(&world.counters.kills);
    let _ = running.lives(END).await;
    count_point(world, life);
    Ok(())
}

/// Whether the life came to its fail point: it says so before it ends.
fn count_point(world: &World, life: &Life) {
    let Some((point, _)) = life.fail.split_once('=') else { return };
    let log = fs::read_to_string(world.log()).unwrap_or_default();
    let (_, of_life) = log.rsplit_once("--- life ").unwrap_or_default();
    if of_life.contains(&format!("the fail point {point}")) {
        let name = life.fail.split('@').next().unwrap_or_default();
        Counters::hit(&world.counters.points, name.to_owned());
    }
}

/// A command that has the store compacted, as an operator would. It is killed with this.
struct Compacting(Child);

impl Compacting {
    fn start(world: &World) -> Self {
        let mut command = playhouse(world);
        command.args(["store", "compact"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Compacting {
    fn drop(&mut self) {
        // It may have ended; where the server is gone, it may have the store open itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

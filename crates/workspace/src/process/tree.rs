//! All processes of a command, and their end.
//!
//! A process belongs to a command when it is in the shell's process group, descends from such a process, or carries the
//! command's marker in its environment. The last one finds those that left the group *and* lost their parent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::time::Instant;

#[cfg(target_os = "linux")]
mod proc;

/// How long processes have between being told to end and being killed.
const GRACE: Duration = Duration::from_millis(300);
/// After this time what is still there is left alone: it waits in the kernel, or is not ours to kill.
const LIMIT: Duration = Duration::from_millis(800);
/// How often it is looked whether they are gone.
const LOOK: Duration = Duration::from_millis(20);

/// The variable by which a command's processes are known.
pub(super) const MARKER_NAME: &str = "PLAYHOUSE_COMMAND";

/// Names one command among those of this process.
#[derive(Clone, Debug)]
pub(super) struct Marker(Arc<str>);

impl Marker {
    pub(super) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self(format!("{}-{count}", std::process::id()).into())
    }

    pub(super) fn value(&self) -> &str {
        &self.0
    }
}

/// The processes of a command.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    /// The shell, which leads the process group.
    leader: Option<Pid>,
    #[cfg(target_os = "linux")]
    strays: proc::Strays,
}

impl Tree {
    pub(super) fn of(leader: Option<u32>, marker: Marker) -> Self {
        let leader = leader.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        #[cfg(target_os = "linux")]
        return Self { leader, strays: proc::Strays::of(leader, &marker) };
        #[cfg(not(target_os = "linux"))]
        {
            drop(marker);
            Self { leader }
        }
    }

    /// Tells all to end, then kills those that did not. `leader_held`: the shell was not reaped yet, so that its number
    /// cannot belong to another group.
    pub(super) async fn end(&self, leader_held: bool) {
        let start = Instant::now();
        let mut alive = self.signal_all(Signal::TERM, leader_held).await;
        while alive && start.elapsed() < GRACE {
            tokio::time::sleep(LOOK).await;
            alive = self.is_alive().await;
        }
        // Once more until none is left, since a process may have made another one meanwhile.
        while alive && start.elapsed() < LIMIT {
            alive = self.signal_all(Signal::KILL, leader_held).await;
            if alive {
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    /// Kills all without waiting for it: the group at once, the others from a thread of its own, since looking for them
    /// takes too long for where this is called.
    pub(super) fn kill_detached(&self, leader_held: bool) {
        self.signal_group(Signal::KILL, leader_held);
        #[cfg(target_os = "linux")]
        {
            let strays = self.strays.clone();
            let start = std::time::Instant::now();
            let kill = move || {
                while strays.signal(Signal::KILL) > 0 && start.elapsed() < LIMIT {
                    std::thread::sleep(LOOK);
                }
            };
            // Without a thread the group is dead all the same.
            let _ = std::thread::Builder::new().name("kill-command".into()).spawn(kill);
        }
    }

    /// Gives back the leader of the group that was reached.
    fn signal_group(&self, signal: Signal, leader_held: bool) -> Option<Pid> {
        let leader = self.leader.filter(|_| leader_held)?;
        rustix::process::kill_process_group(leader, signal).ok().map(|()| leader)
    }

    /// Whether there was any.
    #[cfg(target_os = "linux")]
    async fn signal_all(&self, signal: Signal, leader_held: bool) -> bool {
        let tree = self.clone();
        let work = move || {
            // Those outside of the group are found through their parents, which must live for that.
            let found = tree.strays.find();
            let reached = tree.signal_group(signal, leader_held);
            // Nobody is told twice, since a command may answer each time.
            let others =
                |process: &&proc::Process| !reached.is_some_and(|leader| process.is_in_group_of(leader));
            found.iter().filter(others).for_each(|process| process.signal(signal));
            !found.is_empty()
        };
        tokio::task::spawn_blocking(work).await.unwrap_or(false)
    }

    #[cfg(target_os = "linux")]
    async fn is_alive(&self) -> bool {
        let strays = self.strays.clone();
        tokio::task::spawn_blocking(move || !strays.find().is_empty()).await.unwrap_or(false)
    }

    /// Without `/proc` nobody knows; a held shell may live.
    #[cfg(not(target_os = "linux"))]
    async fn signal_all(&self, signal: Signal, leader_held: bool) -> bool {
        self.signal_group(signal, leader_held);
        leader_held && signal == Signal::TERM
    }

    #[cfg(not(target_os = "linux"))]
    async fn is_alive(&self) -> bool {
        true
    }
}

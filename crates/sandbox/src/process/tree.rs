//! All processes of a command, and their end.
//!
//! A process belongs to a command when it is in the shell's process group, descends from such a process, carries the
//! command's mark in its environment, or is in its control group. The last two find those that left the group *and* lost
//! their parent.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::time::Instant;

use super::limits::{self, CommandGroup};
use super::mark::Scope;
use crate::blocking::try_blocking;

#[cfg(target_os = "linux")]
mod proc;
#[cfg(all(test, target_os = "linux"))]
pub(super) use proc::count;
#[cfg(target_os = "linux")]
pub(super) use proc::{Counted, tasks_of_machine, tasks_of_user};

/// How long processes of commands have between being told to end and being killed.
pub(super) const GRACE: Duration = Duration::from_millis(300);
/// So long what was killed is waited for: what is still there then waits in the kernel, or is not ours to kill, or there are
/// very many.
const LIMIT: Duration = Duration::from_millis(500);
/// So long those are killed that nobody waits for, and those of which there are too many.
const LONG_LIMIT: Duration = Duration::from_secs(10);
/// How often it is looked whether they are gone: less often, the longer it takes.
const LOOK: Duration = Duration::from_millis(20);
const LONGEST_LOOK: Duration = Duration::from_millis(200);

/// What the processes of a group use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupUse {
    /// How many there are.
    pub processes: usize,
    /// Memory that is in use, in bytes. What processes share is counted for each.
    pub resident_bytes: u64,
    /// Processor time of those that run, and of their children that ended.
    pub processor: Duration,
}

/// What the process groups with these leaders use now; nothing of those that are gone. Blocks while it looks through all
/// processes of the machine.
pub fn use_of_groups(leaders: &[u32]) -> HashMap<u32, GroupUse> {
    #[cfg(target_os = "linux")]
    {
        let leaders: Vec<i32> = leaders.iter().filter_map(|leader| i32::try_from(*leader).ok()).collect();
        let uses = proc::uses(&leaders).into_iter();
        uses.filter_map(|(leader, used)| Some((u32::try_from(leader).ok()?, used))).collect()
    }
    #[cfg(not(target_os = "linux"))]
    HashMap::new()
}

/// The processes of a command, or of all commands of a scope.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    /// The shell, which leads the process group.
    leader: Option<Pid>,
    /// Whether the leader is not the shell but what holds it: its end is the end of all, so it is not told to end.
    #[cfg(target_os = "linux")]
    kept: bool,
    #[cfg(target_os = "linux")]
    strays: proc::Strays,
}

impl Tree {
    /// Those of one command.
    pub(super) fn of(
        leader: Option<u32>,
        command: Scope,
        group: Option<&Arc<CommandGroup>>,
        kept: bool,
    ) -> Self {
        let leader = leader.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Self::new(leader, command, group.into_iter().cloned().collect(), kept)
    }

    /// Those that commands of a scope left behind, and those of commands that run. Blocks for a moment.
    fn within(scope: &Scope) -> Self {
        Self::new(None, scope.clone(), limits::groups_within(scope), false)
    }

    #[cfg(target_os = "linux")]
    fn new(leader: Option<Pid>, scope: Scope, groups: Vec<Arc<CommandGroup>>, kept: bool) -> Self {
        Self { leader, kept, strays: proc::Strays::of(leader, scope, groups) }
    }

    #[cfg(not(target_os = "linux"))]
    fn new(leader: Option<Pid>, _scope: Scope, _groups: Vec<Arc<CommandGroup>>, _kept: bool) -> Self {
        Self { leader }
    }

    /// Tells all to end, then kills those that did not within `grace`. `leader_held`: the shell was not reaped yet, so that its number
    /// cannot belong to another group.
    pub(super) async fn end(&self, leader_held: bool, grace: Duration) {
        let start = Instant::now();
        let mut alive = self.blocking(move |tree| tree.tell(leader_held)).await;
        while alive && start.elapsed() < grace {
            tokio::time::sleep((start.elapsed() / 8).clamp(LOOK, LONGEST_LOOK)).await;
            alive = self.blocking(move |tree| tree.is_alive(leader_held)).await;
        }
        if alive {
            self.kill_until(start + grace + LIMIT, leader_held).await;
        }
    }

    /// Kills all, of which there are too many: they leave no time for being asked.
    pub(super) async fn end_storm(&self, leader_held: bool) {
        self.signal_group(Signal::KILL, leader_held);
        self.blocking(move |tree| tree.kill_storm()).await;
        self.kill_until(Instant::now() + LONG_LIMIT, leader_held).await;
    }

    async fn kill_until(&self, deadline: Instant, leader_held: bool) {
        // Once more until none is left, since a process may have made another one meanwhile.
        while self.blocking(move |tree| tree.kill(leader_held)).await {
            if Instant::now() > deadline {
                return self.kill_detached(leader_held);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Kills all without waiting for it: the group at once, the others from a thread of its own, since looking for them
    /// takes too long for where this is called.
    pub(super) fn kill_detached(&self, leader_held: bool) {
        self.signal_group(Signal::KILL, leader_held);
        let tree = self.clone();
        // By then the shell is reaped, so only its marks and its group tell what is left of it.
        let kill = move || {
            hurry();
            tree.kill_until_gone();
        };
        // Without a thread the group is dead all the same.
        let _ = std::thread::Builder::new().name("kill-command".into()).spawn(kill);
    }

    fn kill_until_gone(&self) {
        let start = std::time::Instant::now();
        while self.kill(false) && start.elapsed() < LONG_LIMIT {
            std::thread::sleep(LOOK);
        }
    }

    /// Gives back the leader of the group that was reached.
    fn signal_group(&self, signal: Signal, leader_held: bool) -> Option<Pid> {
        let leader = self.leader.filter(|_| leader_held)?;
        rustix::process::kill_process_group(leader, signal).ok().map(|()| leader)
    }

    async fn blocking(&self, work: impl FnOnce(&Self) -> bool + Send + 'static) -> bool {
        let tree = self.clone();
        try_blocking(move || work(&tree)).await.unwrap_or(false)
    }

    /// Tells all to end. Whether there was any.
    #[cfg(target_os = "linux")]
    fn tell(&self, leader_held: bool) -> bool {
        // Those outside of the group are found through their parents, which must live for that.
        let found = self.strays.find(leader_held);
        let keeper = self.leader.filter(|_| self.kept);
        let reached = if self.kept { None } else { self.signal_group(Signal::TERM, leader_held) };
        // Nobody is told twice, since a command may answer each time.
        let others = |process: &&proc::Process| {
            !reached.or(keeper).is_some_and(|leader| process.is_in_group_of(leader))
        };
        found.iter().filter(others).for_each(|process| process.signal(Signal::TERM));
        !found.is_empty()
    }

    /// Whether there was any is not known.
    #[cfg(target_os = "linux")]
    fn kill_storm(&self) -> bool {
        self.strays.kill_storm();
        true
    }

    #[cfg(not(target_os = "linux"))]
    fn kill_storm(&self) -> bool {
        true
    }

    /// Kills all. Whether there was any.
    #[cfg(target_os = "linux")]
    fn kill(&self, leader_held: bool) -> bool {
        // Those of the group all at once, before one of them can make another.
        self.signal_group(Signal::KILL, leader_held);
        self.strays.kill(leader_held) > 0
    }

    #[cfg(target_os = "linux")]
    fn is_alive(&self, leader_held: bool) -> bool {
        !self.strays.find(leader_held).is_empty()
    }

    /// Without `/proc` nobody knows; a held shell may live.
    #[cfg(not(target_os = "linux"))]
    fn tell(&self, leader_held: bool) -> bool {
        self.signal_group(Signal::TERM, leader_held);
        leader_held
    }

    #[cfg(not(target_os = "linux"))]
    fn kill(&self, leader_held: bool) -> bool {
        self.signal_group(Signal::KILL, leader_held);
        false
    }

    #[cfg(not(target_os = "linux"))]
    fn is_alive(&self, leader_held: bool) -> bool {
        leader_held
    }
}

/// Whether the process with this number belongs to a command or a program that this process started, or descends from one, or
/// is gone. Not found is what has dropped its environment, and whose parents and leader of its process group have ended, where no
/// control group holds it; and what another service of the machine started for it. Only on Linux. Blocks for a moment.
pub fn is_of_a_command(id: u32) -> bool {
    #[cfg(target_os = "linux")]
    return super::running::was_any() && i32::try_from(id).is_ok_and(proc::is_of_a_command);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = id;
        false
    }
}

/// Ends what commands of a scope left behind, and those that run: told to end first, then killed. Nothing of them is left
/// within a second, where `/proc` shows them. Looks through all processes of the machine, so it is for scopes in which
/// commands ran.
pub async fn end_all(scope: &Scope) {
    let wanted = scope.clone();
    if let Ok(tree) = try_blocking(move || Tree::within(&wanted)).await {
        tree.end(false, GRACE).await;
    }
}

/// The same at once, without telling them and without waiting for it, also where no runtime is left.
pub(crate) fn kill_all_detached(scope: &Scope) {
    let scope = scope.clone();
    let kill = move || kill_all(&scope);
    // Without a thread they end with this process.
    let _ = std::thread::Builder::new().name("kill-commands".into()).spawn(kill);
}

/// Kills all processes of a scope. Blocks until they are gone.
pub(super) fn kill_all(scope: &Scope) {
    let tree = Tree::within(scope);
    tree.kill_storm();
    tree.kill_until_gone();
}

/// Kills all that a command left behind in its group. Blocks until it is gone.
pub(super) fn kill_group(command: Scope, group: CommandGroup) {
    hurry();
    let tree = Tree::new(None, command, vec![Arc::new(group)], false);
    tree.kill_storm();
    tree.kill_until_gone();
}

/// Lets this thread run before those that it is to kill, where this process may do that.
pub(super) fn hurry() {
    #[cfg(target_os = "linux")]
    // On Linux, without a number, it is this thread's own.
    let _ = rustix::process::setpriority_process(None, -20);
}

//! Finding processes in `/proc`.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal};

use super::GroupUse;
use crate::process::limits::{self, CommandGroup};
use crate::process::mark::Scope;

/// So many processes may stand above another.
const DEEPEST: usize = 4_096;

/// What all processes of a command, or of several, have in common.
#[derive(Clone, Debug)]
pub(super) struct Strays {
    /// The shell, as long as its number cannot belong to another process.
    leader: Option<i32>,
    /// When the shell was started, in ticks since the machine was. Nothing older belongs to the command.
    since: u64,
    scope: Scope,
    /// The control groups that hold them.
    groups: Vec<Arc<CommandGroup>>,
}

/// A process as it was found. Its number may pass to another one when it ends, number and start together may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    id: i32,
    /// When it was started, in ticks.
    since: u64,
    group: i32,
}

struct Status {
    process: Process,
    parent: i32,
    threads: u64,
    is_dead: bool,
}

impl Strays {
    pub(super) fn of(leader: Option<Pid>, scope: Scope, groups: Vec<Arc<CommandGroup>>) -> Self {
        let leader = leader.map(|leader| leader.as_raw_pid());
        let since = leader.and_then(status).map_or(0, |status| status.process.since);
        Self { leader, since, scope, groups }
    }

    /// All processes that live, the shell among them. `leader_held`: the number of the shell is still its own.
    pub(super) fn find(&self, leader_held: bool) -> Vec<Process> {
        let all: Vec<Status> =
            process_ids().filter_map(status).filter(|status| status.process.since >= self.since).collect();
        let leader = self.leader.filter(|_| leader_held);
        let mut ours: HashSet<i32> = self.groups.iter().flat_map(|group| group.members()).collect();
        ours.extend(
            all.iter().filter(|status| self.is_known(status, leader)).map(|status| status.process.id),
        );
        let children = all.iter().fold(HashMap::<i32, Vec<i32>>::new(), |mut children, status| {
            children.entry(status.parent).or_default().push(status.process.id);
            children
        });
        let mut ahead: Vec<i32> = ours.iter().copied().collect();
        while let Some(parent) = ahead.pop() {
            let found = children.get(&parent).into_iter().flatten();
            ahead.extend(found.filter(|child| ours.insert(**child)));
        }
        let lives = |status: &&Status| ours.contains(&status.process.id) && !status.is_dead;
        all.iter().filter(lives).map(|status| status.process).collect()
    }

    /// Kills all that live, and says how many there were.
    pub(super) fn kill(&self, leader_held: bool) -> usize {
        self.groups.iter().for_each(|group| group.close());
        let found = self.find(leader_held);
        found.iter().for_each(|process| process.signal(Signal::KILL));
        found.len()
    }

    /// The same for processes that make new ones as fast as they can, and take the time that it needs to find them: each
    /// process group is killed as a whole as soon as one of it is found.
    pub(super) fn kill_storm(&self) {
        self.groups.iter().for_each(|group| group.close());
        let mut killed = HashSet::new();
        let members = self.groups.iter().flat_map(|group| group.members());
        let marked = process_ids().filter(|id| mark_of(*id, &self.scope).is_some());
        for status in members.chain(marked).filter_map(status) {
            if killed.insert(status.process.group) {
                status.process.signal_group(Signal::KILL);
            }
            status.process.signal(Signal::KILL);
        }
    }

    fn is_known(&self, status: &Status, leader: Option<i32>) -> bool {
        let (id, group) = (status.process.id, status.process.group);
        leader.is_some_and(|leader| id == leader || group == leader)
            || (!status.is_dead && mark_of(id, &self.scope).is_some())
    }
}

impl Process {
    /// Whether a signal to the shell's process group reaches it.
    pub(super) fn is_in_group_of(self, leader: Pid) -> bool {
        self.group == leader.as_raw_pid()
    }

    /// Sends a signal to this process, and to no other that got its number.
    pub(super) fn signal(self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.id) else { return };
        let held = rustix::process::pidfd_open(pid, PidfdFlags::empty());
        if status(self.id).is_none_or(|status| status.process.since != self.since) {
            return;
        }
        // An error means that it is gone, or another user's.
        let _ = match held {
            Ok(held) => rustix::process::pidfd_send_signal(&held, signal),
            Err(_) => rustix::process::kill_process(pid, signal),
        };
    }

    /// Sends a signal to its process group, unless that is the one of this process. The groups of a command's processes
    /// hold no others.
    fn signal_group(self, signal: Signal) {
        let group = Pid::from_raw(self.group).filter(|group| *group != rustix::process::getpgrp());
        // An error means that it is gone.
        let _ = group.map(|group| rustix::process::kill_process_group(group, signal));
    }
}

/// How many tasks the machine has.
pub(in crate::process) fn tasks_of_machine() -> u64 {
    // "0.01 0.05 0.00 2/345 6789": the fourth field is running/all.
    let text = fs_err::read_to_string("/proc/loadavg").unwrap_or_default();
    let all = text.split(' ').nth(3).and_then(|tasks| tasks.split('/').nth(1)?.parse().ok());
    // Not known: whoever asks has to count them.
    all.unwrap_or(u64::MAX)
}

/// How many tasks a user has.
pub(in crate::process) fn tasks_of_user(user: u32) -> u64 {
    let is_ours = |id: &i32| fs_err::metadata(format!("/proc/{id}")).is_ok_and(|facts| facts.uid() == user);
    process_ids().filter(is_ours).filter_map(status).map(|status| status.threads).sum()
}

/// How many processes carry a mark within `scope`.
#[cfg(test)]
pub(in crate::process) fn count(scope: &Scope) -> u64 {
    process_ids().filter(|id| mark_of(*id, scope).is_some()).count() as u64
}

/// How many tasks the commands within a scope have.
#[derive(Debug, Default)]
pub(in crate::process) struct Counted {
    commands: HashMap<Vec<u8>, Command>,
}

#[derive(Debug, Default)]
struct Command {
    tasks: u64,
    /// One process of each process group.
    groups: HashMap<i32, Process>,
}

impl Counted {
    /// Counts. With `stop` all process groups of commands within `scope` are stopped, each as soon as one of it is found.
    pub(in crate::process) fn all(scope: &Scope, stop: bool) -> Self {
        let mut counted = Self::default();
        for status in process_ids().filter_map(status).filter(|status| !status.is_dead) {
            let Some(mark) = mark_of(status.process.id, scope) else { continue };
            let command = counted.commands.entry(mark).or_default();
            command.tasks += status.threads;
            if command.groups.insert(status.process.group, status.process).is_none() && stop {
                status.process.signal_group(Signal::STOP);
            }
        }
        counted
    }

    /// How many tasks a command has; `None` when it has none.
    pub(in crate::process) fn tasks(&self, mark: &str) -> Option<u64> {
        self.commands.get(mark.as_bytes()).map(|command| command.tasks)
    }

    /// Kills the groups of those of which `is_over` says so, and lets the others go on if they were `stopped`.
    pub(in crate::process) fn settle(&self, stopped: bool, is_over: impl Fn(&[u8]) -> bool) {
        for (mark, command) in &self.commands {
            let signal = match (is_over(mark), stopped) {
                (true, _) => Signal::KILL,
                (false, true) => Signal::CONT,
                (false, false) => continue,
            };
            command.groups.values().for_each(|process| process.signal_group(signal));
        }
    }
}

/// Whether a process belongs to a command or a program that this process started: it or the leader of its process group carries
/// a mark of this run, is in one of its control groups, or descends from such a process, or from this one. One that is gone may
/// have been any. Blocks for a moment.
pub(in crate::process) fn is_of_a_command(id: i32) -> bool {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    if id == own {
        return false;
    }
    let Some(found) = status(id) else { return true };
    let groups = limits::folders();
    let leader = Some(found.process.group).filter(|leader| *leader != id && status(*leader).is_some());
    [Some(id), leader].into_iter().flatten().any(|id| descends(id, own, &groups))
}

/// Whether a process, or one above it, is this one or carries a mark of this run or is in one of these control groups.
fn descends(id: i32, own: i32, groups: &[PathBuf]) -> bool {
    let mut at = id;
    // As deep as nobody builds it; whoever does is not trusted.
    for _ in 0..DEEPEST {
        if at == own || mark_of(at, &Scope::run()).is_some() || is_below(at, groups) {
            return true;
        }
        match status(at) {
            // The first process may be this one.
            Some(status) if status.parent == own => return true,
            Some(status) if status.parent > 1 => at = status.parent,
            Some(_) => return false,
            None => return true,
        }
    }
    true
}

/// Whether a process is in one of these control groups, or in one within them.
fn is_below(id: i32, groups: &[PathBuf]) -> bool {
    // "0::/path", or "4:pids:/path"; the path begins where the file system of control groups is mounted.
    let text = fs_err::read_to_string(format!("/proc/{id}/cgroup")).unwrap_or_default();
    let paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2)?.strip_prefix('/'));
    paths
        .flat_map(|path| Path::new(path).ancestors())
        .any(|path| !path.as_os_str().is_empty() && groups.iter().any(|group| group.ends_with(path)))
}

/// The mark of a process that belongs to `scope`.
fn mark_of(id: i32, scope: &Scope) -> Option<Vec<u8>> {
    // Other users' processes cannot be read, and are not ours.
    let environment = fs_err::read(format!("/proc/{id}/environ")).ok()?;
    scope.find_in(&environment).map(<[u8]>::to_vec)
}

fn process_ids() -> impl Iterator<Item = i32> {
    let entries = fs_err::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn status(id: i32) -> Option<Status> {
    parse(id, &fs_err::read(format!("/proc/{id}/stat")).ok()?)
}

/// What the process groups with these leaders use now.
pub(in crate::process) fn uses(leaders: &[i32]) -> HashMap<i32, GroupUse> {
    let (page, ticks) = (rustix::param::page_size() as u64, rustix::param::clock_ticks_per_second().max(1));
    let mut uses: HashMap<i32, GroupUse> = HashMap::new();
    for id in process_ids() {
        let Ok(line) = fs_err::read(format!("/proc/{id}/stat")) else { continue };
        let Some(status) = parse(id, &line).filter(|status| !status.is_dead) else { continue };
        if !leaders.contains(&status.process.group) {
            continue;
        }
        let Some(fields) = fields(&line) else { continue };
        let number =
            |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or_default();
        let used = uses.entry(status.process.group).or_default();
        used.processes += 1;
        used.resident_bytes += number(21) * page;
        // Its own, and that of children that it has waited for.
        let ticked = (11..=14).map(number).sum::<u64>();
        used.processor += Duration::from_millis(ticked.saturating_mul(1_000) / ticks);
    }
    uses
}

/// The fields of `/proc/ID/stat` behind the name: the first is the state.
fn fields(line: &[u8]) -> Option<Vec<&str>> {
    let end_of_name = line.iter().rposition(|byte| *byte == b')')?;
    Some(std::str::from_utf8(line.get(end_of_name + 1..)?).ok()?.split_whitespace().collect())
}

/// `/proc/ID/stat`: the number, the name in parentheses (which may hold anything), then fields with spaces between.
fn parse(id: i32, line: &[u8]) -> Option<Status> {
    let fields = fields(line)?;
    Some(Status {
        is_dead: matches!(*fields.first()?, "Z" | "X"),
        parent: fields.get(1)?.parse().ok()?,
        threads: fields.get(17)?.parse().ok()?,
        process: Process { id, since: fields.get(19)?.parse().ok()?, group: fields.get(2)?.parse().ok()? },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let line = b"7 (a) S 1 (b\n) Z 3 4 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 6 0 991 0 0";
        let status = parse(7, line).unwrap();
        assert!(status.is_dead);
        assert_eq!((status.parent, status.process.group, status.process.since), (3, 4, 991));
        assert_eq!(status.threads, 6);
        assert!(parse(7, b"7 (a").is_none());
        assert!(parse(7, b"7 (a) S 1").is_none());
    }

    #[test]
    fn what_a_group_uses_is_summed() {
        let own = rustix::process::getpgrp().as_raw_pid();
        let uses = uses(&[own, 1 << 30]);
        assert_eq!(uses.len(), 1);
        assert!(uses[&own].processes >= 1 && uses[&own].resident_bytes > 1 << 20, "{uses:?}");
    }

    #[test]
    fn this_process_is_found_as_it_is() {
        let id = i32::try_from(std::process::id()).unwrap();
        let status = status(id).unwrap();
        assert_eq!(Some(status.parent), rustix::process::getppid().map(|parent| parent.as_raw_pid()));
        assert!(process_ids().any(|found| found == id));
        let user = rustix::process::getuid().as_raw();
        assert!(status.threads > 0 && tasks_of_user(user) >= status.threads);
        assert!((status.threads..u64::MAX).contains(&tasks_of_machine()));
    }
}

//! Finding the processes of a command in `/proc`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rustix::process::{Pid, PidfdFlags, Signal};

use super::{MARKER_NAME, Marker};

/// What all processes of a command have in common.
#[derive(Clone, Debug)]
pub(super) struct Strays {
    leader: i32,
    /// When the shell was started, in ticks since the machine was. Nothing older belongs to the command.
    since: u64,
    /// `NAME=value` as it stands in an environment.
    marker: Arc<[u8]>,
}

/// A process as it was found. Its number may pass to another one when it ends, number and start together may not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process {
    id: i32,
    /// When it was started, in ticks.
    since: u64,
    group: i32,
}

struct Status {
    process: Process,
    parent: i32,
    is_dead: bool,
}

impl Strays {
    pub(super) fn of(leader: Option<Pid>, marker: &Marker) -> Self {
        let leader = leader.map_or(0, |leader| leader.as_raw_pid());
        let since = status(leader).map_or(0, |status| status.process.since);
        let marker = format!("{MARKER_NAME}={}", marker.value()).into_bytes().into();
        Self { leader, since, marker }
    }

    /// All processes of the command that live, the shell among them.
    pub(super) fn find(&self) -> Vec<Process> {
        let all: Vec<Status> =
            process_ids().filter_map(status).filter(|status| status.process.since >= self.since).collect();
        let mut ours: HashSet<i32> =
            all.iter().filter(|status| self.is_known(status)).map(|status| status.process.id).collect();
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

    /// Sends `signal` to all that live, and says how many there were.
    pub(super) fn signal(&self, signal: Signal) -> usize {
        let found = self.find();
        found.iter().for_each(|process| process.signal(signal));
        found.len()
    }

    fn is_known(&self, status: &Status) -> bool {
        let id = status.process.id;
        id == self.leader || status.process.group == self.leader || (!status.is_dead && self.is_marked(id))
    }

    fn is_marked(&self, id: i32) -> bool {
        // Other users' processes cannot be read, and are not the command's.
        let Ok(environment) = fs_err::read(format!("/proc/{id}/environ")) else { return false };
        environment.split(|byte| *byte == 0).any(|variable| variable == &*self.marker)
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
}

fn process_ids() -> impl Iterator<Item = i32> {
    let entries = fs_err::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn status(id: i32) -> Option<Status> {
    parse(id, &fs_err::read(format!("/proc/{id}/stat")).ok()?)
}

/// `/proc/ID/stat`: the number, the name in parentheses (which may hold anything), then fields with spaces between.
fn parse(id: i32, line: &[u8]) -> Option<Status> {
    let end_of_name = line.iter().rposition(|byte| *byte == b')')?;
    let fields: Vec<&str> =
        std::str::from_utf8(line.get(end_of_name + 1..)?).ok()?.split_whitespace().collect();
    Some(Status {
        is_dead: matches!(*fields.first()?, "Z" | "X"),
        parent: fields.get(1)?.parse().ok()?,
        process: Process { id, since: fields.get(19)?.parse().ok()?, group: fields.get(2)?.parse().ok()? },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let line = b"7 (a) S 1 (b\n) Z 3 4 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 991 0 0";
        let status = parse(7, line).unwrap();
        assert!(status.is_dead);
        assert_eq!((status.parent, status.process.group, status.process.since), (3, 4, 991));
        assert!(parse(7, b"7 (a").is_none());
        assert!(parse(7, b"7 (a) S 1").is_none());
    }

    #[test]
    fn this_process_is_found_as_it_is() {
        let id = i32::try_from(std::process::id()).unwrap();
        let status = status(id).unwrap();
        assert_eq!(Some(status.parent), rustix::process::getppid().map(|parent| parent.as_raw_pid()));
        assert!(process_ids().any(|found| found == id));
    }
}

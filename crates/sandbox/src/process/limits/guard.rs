//! Watches the number of tasks of commands where the kernel does not.
//!
//! Looking through all processes is expensive, knowing how many tasks the whole machine has is cheap: as long as those
//! have not become so many more that a command can be beyond its limit, nobody looks further, but for once in a while: as many as a command
//! begins may have ended elsewhere in the same moment. For a closer look all
//! commands are stopped for some milliseconds, since a fork bomb makes processes faster than they can be counted, and
//! leaves nobody the time for it. One thread for all commands, which ends when none runs and none has left processes
//! behind.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::super::mark::Scope;
use super::super::tree;

/// How often it is looked how many tasks there are.
const LOOK: Duration = Duration::from_millis(20);
/// How often it is looked what commands left behind, when none runs.
const LOOK_FOR_LEFT: Duration = Duration::from_secs(1);
/// How often it is looked when some run, however many tasks there are.
const LOOK_ANYWAY: Duration = Duration::from_secs(2);

/// Commands by their marks.
#[derive(Default)]
struct Guard {
    commands: HashMap<String, Watch>,
    /// Whether the thread is there.
    runs: bool,
    /// How many more tasks the machine may have than `counted_at` before somebody must look.
    slack: u64,
    counted_at: u64,
}

struct Watch {
    most: u64,
    is_over: Arc<AtomicBool>,
    /// What it left behind is still watched.
    has_ended: bool,
}

/// A command that is watched until this is dropped, and what it left behind after that.
#[derive(Debug)]
pub(in super::super) struct Watched {
    mark: String,
    is_over: Arc<AtomicBool>,
}

static GUARD: Mutex<Option<Guard>> = Mutex::new(None);

/// Watches that a command has no more than `most` tasks.
pub(super) fn watch(command: &Scope, most: u32) -> Watched {
    let (mark, is_over) = (command.as_str().to_owned(), Arc::new(AtomicBool::new(false)));
    with_guard(|guard| {
        let watch = Watch { most: most.into(), is_over: Arc::clone(&is_over), has_ended: false };
        guard.commands.insert(mark.clone(), watch);
        guard.slack = guard.slack.min(most.into());
        if !guard.runs {
            // The first look finds out how things are.
            guard.slack = 0;
            let spawned = std::thread::Builder::new().name("watch-commands".into()).spawn(run);
            guard.runs = spawned.is_ok();
            if let Err(error) = spawned {
                tracing::warn!(%error, "the number of processes of commands is not watched");
            }
        }
    });
    Watched { mark, is_over }
}

impl Watched {
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        with_guard(|guard| {
            if let Some(watch) = guard.commands.get_mut(&self.mark) {
                watch.has_ended = true;
            }
        });
    }
}

fn with_guard<T>(work: impl FnOnce(&mut Guard) -> T) -> T {
    let mut guard = GUARD.lock();
    work(guard.get_or_insert_default())
}

fn run() {
    tree::hurry();
    let mut looked = Instant::now();
    loop {
        let total = tree::tasks_of_machine();
        let (has_grown, all_ended) = with_guard(|guard| {
            guard.runs = !guard.commands.is_empty();
            // What has ended since makes no room.
            guard.counted_at = guard.counted_at.min(total);
            let has_grown = total.saturating_sub(guard.counted_at) > guard.slack;
            (has_grown && guard.runs, guard.commands.values().all(|watch| watch.has_ended))
        });
        if has_grown {
            look(total, true);
            looked = Instant::now();
        } else if looked.elapsed() >= if all_ended { LOOK_FOR_LEFT } else { LOOK_ANYWAY } {
            look(total, false);
            looked = Instant::now();
        }
        if !with_guard(|guard| guard.runs) {
            return;
        }
        std::thread::sleep(LOOK);
    }
}

/// Counts the tasks of every command, stopped or running, and ends those that have too many.
fn look(total: u64, stop: bool) {
    let counted = tree::Counted::all(&Scope::run(), stop);
    let over: HashSet<String> = with_guard(|guard| {
        guard.commands.retain(|mark, watch| !watch.has_ended || counted.tasks(mark).is_some());
        let tasks = |mark: &String| counted.tasks(mark).unwrap_or_default();
        let slack = |(mark, watch): (&String, &Watch)| watch.most.saturating_sub(tasks(mark));
        guard.slack = guard.commands.iter().map(slack).min().unwrap_or_default();
        guard.counted_at = total;
        let over = guard.commands.iter().filter(|(mark, watch)| tasks(mark) > watch.most);
        over.map(|(mark, watch)| {
            watch.is_over.store(true, Ordering::Relaxed);
            mark.clone()
        })
        .collect()
    });
    counted.settle(stop, |mark| std::str::from_utf8(mark).is_ok_and(|mark| over.contains(mark)));
    for mark in over {
        tree::kill_all(&Scope::of_mark(&mark));
    }
}

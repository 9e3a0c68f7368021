//! Thousands of schedules, each from a seed of its own, in which the process may end between any append and its flush, and
//! take with it what was not durable. A schedule that fails is made as short as it can be, and told with its seed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use playhouse_session::{Input, Machine, RetryPolicy, Session};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use super::check::{check, check_log};
use super::disk::Disk;
use super::world::World;
use super::{CHOICES, act, drain};
use crate::harness::Harness;

/// The most events of a schedule.
const EVENTS: usize = 150;

/// What happens, by two numbers: what, and how.
type Schedule = Vec<(u8, u8)>;

/// Everything that was seen in a run.
struct Run {
    h: Harness,
    world: World,
    disk: Disk,
    crashes: usize,
    lost: usize,
}

impl Run {
    fn new(cramped: bool) -> Self {
        let h = super::harness(cramped);
        let disk = Disk::new(h.log.len());
        Self { h, world: World::default(), disk, crashes: 0, lost: 0 }
    }

    fn take(&mut self, effects: Vec<playhouse_session::Effect>) {
        let mut effects = self.disk.pass(effects);
        loop {
            self.world.take(effects);
            let Some(report) = self.disk.reports.pop() else { break };
            let more = self.h.raw(report);
            effects = self.disk.pass(more);
        }
        self.world.waits_for_something(self.h.machine.session());
    }

    fn event(&mut self, choice: u8, by: u8) {
        // Three of the numbers beyond are the end of the process; with the rest the disk keeps up.
        match choice % (CHOICES + 12) {
            0 | 1 if by.is_multiple_of(5) => {
                let prompt = self.h.new_prompt("told", playhouse_protocol::WhenBusy::Queue, None);
                let ticket = self.h.ticket();
                self.world.asked += 1;
                let input = Input::Prompt(ticket, prompt);
                self.disk.asked(&input);
                let effects = self.h.raw(input);
                self.take(effects);
            }
            // Nothing of the log is lost here: that is what `crash` is for.
            16 => self.crash(by),
            event if event < CHOICES => {
                if let Some(effects) = act(&mut self.h, &mut self.world, event, by) {
                    self.take(effects);
                }
            }
            event if event < CHOICES + 2 => self.crash(by),
            _ => {
                let flushed = self.disk.flush(usize::from(by % 4) + 1);
                self.world.take(flushed);
            }
        }
    }

    fn crash(&mut self, by: u8) {
        let before = self.h.log.len();
        self.disk.crash(&mut self.h.log, by);
        self.crashes += 1;
        self.lost += before - self.h.log.len();
        let session = Session::replay(&self.h.log).unwrap();
        self.h.machine = Machine::new(session, RetryPolicy::default());
        self.world.restart(&self.h.log);
        let effects = self.h.raw(Input::Resume);
        self.take(effects);
    }

    fn end(&mut self) {
        let flushed = self.disk.flush_all();
        self.world.take(flushed);
        drain(&mut self.h, &mut self.world);
        check(&self.h, &self.world);
        check_log(&self.h.log);
        self.disk.check(&self.h.log);
        assert_eq!(&Session::replay(&self.h.log).unwrap(), self.h.machine.session());
    }
}

/// Runs a schedule; how often the process ended in it, and how many records were lost with it.
fn simulate(schedule: &Schedule, cramped: bool) -> (usize, usize) {
    let mut run = Run::new(cramped);
    for (choice, by) in schedule {
        run.event(*choice, *by);
    }
    run.end();
    (run.crashes, run.lost)
}

/// The run of a seed.
fn run(seed: u64) -> Result<(usize, usize), String> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases: 1, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let schedules = prop::collection::vec((any::<u8>(), any::<u8>()), 1..EVENTS);
    let seen = std::cell::Cell::new((0, 0));
    let result = runner.run(&schedules, |schedule| {
        // Half of the sessions have a model with little room.
        catch_unwind(AssertUnwindSafe(|| simulate(&schedule, (seed / 2).is_multiple_of(2))))
            .map(|counts| seen.set(counts))
            .map_err(|panic| TestCaseError::fail(text(&*panic)))
    });
    match result {
        Ok(()) => Ok(seen.get()),
        Err(TestError::Fail(reason, schedule)) => {
            Err(format!("seed {seed}: {reason}; the shortest schedule that fails: {schedule:?}"))
        }
        Err(error) => Err(format!("seed {seed}: {error}")),
    }
}

fn text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref().copied());
    text.unwrap_or("a panic without a message").to_owned()
}

#[test]
fn two_thousand_schedules_with_crashes_at_any_append_lose_nothing() {
    lose_nothing(2_000);
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn ten_thousand_schedules_with_crashes_at_any_append_lose_nothing() {
    lose_nothing(10_000);
}

fn lose_nothing(runs: usize) {
    let halves = [0, 1].map(|half| {
        thread::spawn(move || {
            let (mut crashes, mut lost) = (0, 0);
            for seed in (half..runs as u64).step_by(2) {
                let seen = run(seed).unwrap_or_else(|failure| panic!("{failure}"));
                crashes += seen.0;
                lost += seen.1;
            }
            (crashes, lost)
        })
    });
    let [first, second] = halves.map(|half| half.join().unwrap_or_else(|panic| panic!("{}", text(&*panic))));
    // The schedules are worth something: processes ended, and records were lost with them.
    assert!(first.0 + second.0 > 2 * runs, "{first:?} {second:?}");
    assert!(first.1 + second.1 > 2 * runs, "{first:?} {second:?}");
}

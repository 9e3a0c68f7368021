use playhouse_protocol::{IdGenerator, Timestamp};
use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn session(number: u8) -> SessionId {
    IdGenerator::new(move |bytes| bytes.fill(number)).next(Timestamp::from_millis(1_000))
}

fn rules() -> Rules {
    Rules {
        idle: 10 * SECOND,
        first_backoff: 2 * SECOND,
        longest_backoff: 6 * SECOND,
        failures: 4,
        window: 100 * SECOND,
        // Longer than failures count.
        open: 150 * SECOND,
        healthy: 20 * SECOND,
        ..Rules::default()
    }
}

/// A machine and what its effects would have made of the world.
struct World {
    machine: Machine,
    now: Duration,
    last_lease: LeaseId,
    /// The start that has not reported yet.
    starting: Option<Run>,
    /// The child that was started and has neither died nor been stopped.
    alive: Option<Run>,
    /// Runs whose holders were told that the child is gone.
    gone: HashSet<Run>,
    /// The stop that has not reported yet.
    stopping: Option<Run>,
    unanswered: HashMap<LeaseId, SessionId>,
    /// Leases that were granted and not released, with their run.
    held: HashMap<LeaseId, (Run, SessionId)>,
    refused: Vec<(LeaseId, Refusal)>,
    /// Runs by how often they were stopped or died without a stop.
    ends: HashMap<Run, u32>,
    /// The last input made the keeper leave.
    left: bool,
}

impl World {
    fn new() -> Self {
        Self {
            machine: Machine::new(rules()),
            now: Duration::ZERO,
            last_lease: 0,
            starting: None,
            alive: None,
            gone: HashSet::new(),
            stopping: None,
            unanswered: HashMap::new(),
            held: HashMap::new(),
            refused: Vec::new(),
            ends: HashMap::new(),
            left: false,
        }
    }

    fn on(&mut self, input: Input) {
        self.left = false;
        for effect in self.machine.on(self.now, 1.0, input) {
            match effect {
                Effect::Start(run) => {
                    assert_eq!(
                        (self.starting, self.alive, self.stopping),
                        (None, None, None),
                        "one at a time"
                    );
                    self.starting = Some(run);
                }
                Effect::CancelStart => assert!(self.starting.is_some()),
                Effect::Stop(run) => {
                    assert_eq!((self.alive, self.stopping), (Some(run), None));
                    self.stopping = Some(run);
                    *self.ends.entry(run).or_default() += 1;
                }
                Effect::Grant(lease) => {
                    let holder = self.unanswered.remove(&lease).expect("it waits for an answer");
                    let run = self.alive.expect("a child runs");
                    assert!(self.stopping.is_none() && !self.gone.contains(&run), "a dying child is granted");
                    self.held.insert(lease, (run, holder));
                }
                Effect::Refuse(lease, refusal) => {
                    self.unanswered.remove(&lease).expect("it waits for an answer");
                    self.refused.push((lease, refusal));
                }
                Effect::Gone(_) => assert!(self.gone.insert(self.machine.run), "it is told once"),
                Effect::Leave => self.left = true,
            }
        }
        let is_held = |(run, _): &&(Run, SessionId)| Some(*run) == self.alive && !self.gone.contains(run);
        let holders: HashSet<_> = self.held.values().filter(is_held).map(|(_, holder)| holder).collect();
        assert_eq!(self.machine.holders(), holders.len());
        if self.starting.is_none() && self.stopping.is_none() {
            assert!(self.unanswered.is_empty(), "who waits, waits for something");
        }
        if self.left {
            assert_eq!((self.starting, self.alive, self.stopping), (None, None, None));
            assert_eq!(self.machine.deadline().filter(|_| !self.machine.closing), None);
        }
    }

    fn lease(&mut self, holder: u8) -> LeaseId {
        self.last_lease += 1;
        self.unanswered.insert(self.last_lease, session(holder));
        self.on(Input::Lease(self.last_lease, session(holder)));
        self.last_lease
    }

    fn release(&mut self, lease: LeaseId) {
        self.held.remove(&lease).expect("it is held");
        self.on(Input::Release(lease));
    }

    fn started(&mut self) {
        let run = self.starting.take().expect("a start is under way");
        self.alive = Some(run);
        self.on(Input::Started(run));
    }

    fn failed(&mut self, error: StartError) {
        let run = self.starting.take().expect("a start is under way");
        self.on(Input::Failed(run, error));
    }

    fn died(&mut self) {
        let run = self.alive.expect("a child runs");
        if self.stopping.is_none() {
            self.alive = None;
            *self.ends.entry(run).or_default() += 1;
        }
        self.on(Input::Ended(run, "it died".into()));
    }

    fn stopped(&mut self, result: Result<(), Arc<str>>) {
        let run = self.stopping.take().expect("a stop is under way");
        self.alive = None;
        self.on(Input::Stopped(run, result));
    }

    /// Lets time pass, with the timers that are due meanwhile.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.machine.deadline().filter(|due| *due <= end) {
            self.now = due;
            self.on(Input::Timer);
        }
        self.now = end;
    }

    /// Leases, and returns why that was refused at once.
    fn refusal(&mut self) -> Refusal {
        let lease = self.lease(9);
        let (refused, refusal) = self.refused.pop().expect("it is refused at once");
        assert_eq!(refused, lease);
        refusal
    }
}

fn transient() -> StartError {
    StartError::Transient("no".into())
}

#[test]
fn leases_share_one_start_and_the_child_stops_when_it_is_idle() {
    let mut world = World::new();
    let (first, second) = (world.lease(1), world.lease(1));
    assert_eq!(world.machine.state(), State::Starting);
    world.started();
    assert_eq!((world.held.len(), world.machine.holders()), (2, 1));
    world.release(first);
    world.pass(50 * SECOND);
    assert_eq!(world.machine.state(), State::Running { since: Duration::ZERO });
    world.release(second);
    world.pass(9 * SECOND);
    let third = world.lease(2);
    world.pass(9 * SECOND);
    world.release(third);
    world.pass(9 * SECOND);
    assert_eq!(world.machine.state(), State::Idle { since: 68 * SECOND });
    world.pass(SECOND);
    assert_eq!(world.stopping, Some(1));
    world.stopped(Ok(()));
    assert!(world.left);
}

#[test]
fn a_lease_during_a_stop_gets_a_fresh_child() {
    let mut world = World::new();
    let lease = world.lease(1);
    world.started();
    world.release(lease);
    world.pass(10 * SECOND);
    let late = world.lease(2);
    assert!(world.unanswered.contains_key(&late));
    world.stopped(Ok(()));
    world.started();
    assert_eq!(world.held[&late].0, 2);
}

#[test]
fn a_release_from_before_a_death_does_not_count_after_it() {
    let mut world = World::new();
    let old = world.lease(1);
    world.started();
    world.died();
    world.pass(2 * SECOND);
    world.lease(1);
    world.started();
    world.release(old);
    assert_eq!(world.machine.holders(), 1);
    world.pass(100 * SECOND);
    assert_eq!(world.stopping, None);
}

#[test]
fn backoff_doubles_until_the_circuit_opens_and_one_failure_opens_it_again() {
    let mut world = World::new();
    for (failure, seconds) in [2, 4, 6].into_iter().enumerate() {
        let lease = world.lease(1);
        world.failed(transient());
        let retry_in = seconds * SECOND;
        let refusal = Refusal::BackingOff { reason: "no".into(), retry_in };
        assert_eq!(world.refused.pop(), Some((lease, refusal)), "after failure {failure}");
        assert!(matches!(world.refusal(), Refusal::BackingOff { .. }));
        world.pass(retry_in);
    }
    let open = |reason: &str| Refusal::Open { reason: reason.into(), retry_in: 150 * SECOND };
    world.lease(1);
    world.failed(transient());
    assert_eq!(world.refusal(), open("no"));
    world.pass(150 * SECOND);
    // The trial starts, and dies too soon.
    world.lease(1);
    world.started();
    world.pass(19 * SECOND);
    world.died();
    assert_eq!(world.refusal(), open("it died"));
    world.pass(150 * SECOND);
    // This one runs for long enough: its death is a first failure.
    world.lease(1);
    world.started();
    world.pass(20 * SECOND);
    world.died();
    assert_eq!(world.refusal(), Refusal::BackingOff { reason: "it died".into(), retry_in: 2 * SECOND });
    world.pass(101 * SECOND);
    assert!(!world.left && world.machine.state().at(world.now) == State::Stopped);
    world.pass(SECOND);
    assert!(world.left, "the failure is forgotten");
}

#[test]
fn a_permanent_failure_stays_until_a_restart() {
    let mut world = World::new();
    world.lease(1);
    world.failed(StartError::Permanent("no program".into()));
    world.pass(10_000 * SECOND);
    assert_eq!(world.refusal(), Refusal::Failed { reason: "no program".into() });
    world.on(Input::Restart);
    assert!(world.left);
    world.lease(1);
    assert!(world.starting.is_some());
}

#[test]
fn a_restart_cancels_a_start_and_begins_another_for_those_who_wait() {
    let mut world = World::new();
    let lease = world.lease(1);
    world.on(Input::Restart);
    world.failed(transient());
    assert_eq!(world.starting, Some(2));
    // This one came before it could be cancelled.
    world.on(Input::Restart);
    world.started();
    assert_eq!((world.stopping, world.held.len()), (Some(2), 0));
    world.stopped(Ok(()));
    world.started();
    assert_eq!(world.held[&lease].0, 3);
    world.on(Input::Restart);
    assert!(world.gone.contains(&3));
}

#[test]
fn a_stop_that_fails_is_a_failure() {
    let mut world = World::new();
    world.lease(1);
    world.started();
    world.on(Input::Restart);
    let waits = world.lease(1);
    world.stopped(Err("it hangs".into()));
    let refusal = Refusal::BackingOff { reason: "it hangs".into(), retry_in: 2 * SECOND };
    assert_eq!(world.refused, [(waits, refusal)]);
}

#[derive(Clone, Debug)]
enum Action {
    Lease(u8),
    Release(prop::sample::Index),
    Start,
    FailStart(bool),
    Die,
    Lose,
    Stop(bool),
    Restart,
    /// A report of an earlier run.
    Stale(u8),
    Pass(u32),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => (0..4_u8).prop_map(Action::Lease),
        4 => any::<prop::sample::Index>().prop_map(Action::Release),
        6 => Just(Action::Start),
        2 => prop::bool::weighted(0.1).prop_map(Action::FailStart),
        1 => Just(Action::Die),
        1 => Just(Action::Lose),
        4 => prop::bool::weighted(0.8).prop_map(Action::Stop),
        1 => Just(Action::Restart),
        1 => (0..5_u8).prop_map(Action::Stale),
        5 => (0..80_u32).prop_map(Action::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// `World` checks each effect: one child at a time, no grant of a dying child, one answer per lease, the right holders.
    #[test]
    fn whatever_happens_one_child_runs_and_each_is_stopped_once(actions in prop::collection::vec(action(), 1..80)) {
        let mut world = World::new();
        for action in actions {
            match action {
                Action::Lease(holder) => drop(world.lease(holder)),
                Action::Release(index) if !world.held.is_empty() => {
                    let mut held: Vec<LeaseId> = world.held.keys().copied().collect();
                    held.sort_unstable();
                    world.release(*index.get(&held));
                }
                Action::Start if world.starting.is_some() => world.started(),
                Action::FailStart(true) if world.starting.is_some() => world.failed(StartError::Permanent("no".into())),
                Action::FailStart(false) if world.starting.is_some() => world.failed(transient()),
                Action::Die if world.alive.is_some() => world.died(),
                Action::Lose if let Some(run) = world.alive => world.on(Input::Lost(run, "lost".into())),
                Action::Stop(true) if world.stopping.is_some() => world.stopped(Ok(())),
                Action::Stop(false) if world.stopping.is_some() => world.stopped(Err("it hangs".into())),
                Action::Restart => world.on(Input::Restart),
                Action::Stale(kind) if let Some(run) = world.machine.run.checked_sub(1) => world.on(match kind {
                    0 => Input::Started(run),
                    1 => Input::Failed(run, transient()),
                    2 => Input::Ended(run, "stale".into()),
                    3 => Input::Lost(run, "stale".into()),
                    _ => Input::Stopped(run, Ok(())),
                }),
                Action::Pass(seconds) => world.pass(seconds * SECOND),
                _ => {}
            }
        }
        world.on(Input::Close);
        if world.starting.is_some() {
            world.started();
        }
        if world.stopping.is_some() {
            world.stopped(Ok(()));
        }
        prop_assert!(world.left && world.unanswered.is_empty());
        prop_assert_eq!(world.refusal(), Refusal::Closed);
        prop_assert!(world.ends.values().all(|ends| *ends == 1));
    }
}
